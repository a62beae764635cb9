"""Tables of each release go on: they are read, merged, verified, altered and written to by the code of today."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pytest

from lancewal_audit.verify.report import report_text
from lancewal_audit.verify.verification import VerifyRequest, verify_table
from lancewal_core.cli.program import run
from lancewal_core.names import paths
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_kinds import kind_of
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_reader.table import open_table
from lancewal_reader.unmerged.left_out import left_out_of
from tests.golden.release_table import (
    FOLDER,
    IN_CONFLICT,
    PARTITIONS,
    SNAPSHOT,
    ReleaseTable,
    other_systems_key,
    rows_of,
    salt_of_another_partition,
    unpack,
)
from tests.support.pipeline import Key, Row, by_key

RELEASES = sorted(FOLDER.glob("release_*.*.*"))


@pytest.fixture(params=RELEASES, ids=lambda release: release.name)
def release(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def uri(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return unpack(release)


def strong(uri: str) -> dict[Key, Row]:
    return by_key(open_table(uri).to_arrow())


def test_there_is_one_of_the_first_release() -> None:
    assert [release.name for release in RELEASES][:1] == ["release_0.1.0"]
    for release in RELEASES:
        assert sum(file.stat().st_size for file in release.iterdir()) < 2**20


def test_it_has_objects_of_these_kinds(uri: str) -> None:
    kinds = {kind_of(info.key) for info in open_store(uri).list(paths.ROOT)}
    assert {kind.name for kind in kinds if kind is not None} >= {
        *("contract", "state page", "segment", "bundle", "flush", "deleted keys", "patches", "merge record"),
        *("finished merge", "key catalog", "part of a key run", "keys in conflict", "store proof"),
    }


def test_it_is_read(release: Path, uri: str) -> None:
    head, snapshot = rows_of(release, "head"), rows_of(release, "snapshot")
    table = open_table(uri)
    read = table.to_arrow()
    assert by_key(read) == head
    left_out = left_out_of(read.schema)
    assert left_out is not None
    assert table.count_rows() == len(head)
    assert by_key(table.to_arrow(at=f"snapshot:{SNAPSHOT}")) == snapshot
    assert by_key(lance.dataset(uri).checkout_version((SNAPSHOT, None)).to_table()) == snapshot
    some = sorted(head)[::7]
    assert by_key(table.get(some).to_arrow()) == {key: head[key] for key in some}
    assert head[IN_CONFLICT]["a"] == 1


def test_it_is_merged(release: Path, uri: str) -> None:
    head, merged = rows_of(release, "head"), rows_of(release, "merged")
    assert by_key(lance.dataset(uri).to_table()) not in (merged, head)
    assert run(["merge", "-t", uri]) == 0
    assert by_key(lance.dataset(uri).to_table()) == merged
    assert strong(uri) == head


def test_it_is_verified(release: Path, uri: str) -> None:
    report = verify_table(Settings(), uri, VerifyRequest(sources="wal"))
    assert report.equal, report_text(report)
    assert report.records > 500
    assert report.keys > 100
    assert report.rows_read == len(rows_of(release, "head"))
    assert run(["verify", "--from", "wal", "-t", uri]) == 0


def test_it_is_altered(release: Path, uri: str) -> None:
    before = read_contract(open_store(uri), uri)
    assert before.on_bad_record == "ignore"
    assert run(["table", "alter", "-t", uri, "--on", "bad-record=dead-letter"]) == 0
    after = read_contract(open_store(uri), uri)
    assert after == before.model_copy(update={"version": before.version + 1, "on_bad_record": "dead-letter"})
    assert strong(uri) == rows_of(release, "head")


def test_ingest_and_flusher_go_on_with_it(release: Path, uri: str) -> None:
    """Behind it every record is merged, so that plain Lance reads what a strong read does."""
    durable = json.loads((release / "durable.json").read_text())
    table = ReleaseTable(rows_of(release, "head"), durable)
    table.produce(100)
    table.ingest()
    assert strong(uri) == table.oracle
    table.hand_over()
    table.merge()
    assert by_key(lance.dataset(uri).to_table()) == strong(uri) == table.oracle
    of_index = by_key(lance.dataset(uri).to_table(filter="id = 3"))
    assert of_index == {key: row for key, row in table.oracle.items() if key[1] == 3}
    table.close()


CHANGES = {
    "--add-column": ['note: string = "none"'],
    "--rename-column": ["s=text", "sts=lines"],
    "--drop-column": ["i8", "vec"],
    "--widen-column": ["u8: uint32", "f4: float64", "dec: decimal128(20, 4)"],
}
"""All acts, on columns of which rows lie in the table, in flushes, in bundles and segments, and among keys in conflict."""


def changed(rows: dict[Key, Row]) -> dict[Key, Row]:
    """What these changes make of rows that were there before."""
    names = {"s": "text", "sts": "lines"}
    return {
        key: {**{names.get(name, name): row[name] for name in row if name not in ("i8", "vec")}, "note": None}
        for key, row in rows.items()
    }


def alter(uri: str) -> None:
    options = [word for option, values in CHANGES.items() for value in values for word in (option, value)]
    assert run(["table", "alter", "-t", uri, *options]) == 0


def test_its_columns_change(release: Path, uri: str) -> None:
    """All acts while its rows wait.  A merge takes them, and widens; whatever a reader may ask for is there as before."""
    head, snapshot = rows_of(release, "head"), rows_of(release, "snapshot")
    receipt = str(open_table(uri).receipt())
    alter(uri)
    assert strong(uri) == changed(head)
    assert run(["verify", "--from", "wal", "-t", uri]) == 0
    assert run(["merge", "-t", uri]) == 0
    contract = read_contract(open_store(uri), uri)
    types = {column.name: column.type for column in contract.columns}
    assert (types["u8"], types["f4"], types["dec"]) == ("uint32", "float64", "decimal128(20, 4)")
    assert not types.keys() & {"i8", "vec", "s", "sts"}
    assert by_key(lance.dataset(uri).to_table()) == changed(rows_of(release, "merged"))
    table = open_table(uri)
    assert by_key(table.to_arrow()) == changed(head)
    assert by_key(table.to_arrow(at=receipt)) == head
    assert by_key(table.to_arrow(at=f"snapshot:{SNAPSHOT}")) == snapshot
    assert table.count_rows("text is not null") == sum(row["s"] is not None for row in head.values())
    assert run(["verify", "--from", "wal", "-t", uri]) == 0


@pytest.mark.parametrize("merged", [False, True], ids=["rows wait", "merged"])
def test_ingest_and_flusher_go_on_with_other_columns(release: Path, uri: str, merged: bool) -> None:
    """Rows of the release and of today wait together, and so do the keys in conflict, until a person decides."""
    alter(uri)
    if merged:
        assert run(["merge", "-t", uri]) == 0
    durable = json.loads((release / "durable.json").read_text())
    table = ReleaseTable(changed(rows_of(release, "head")), durable)
    table.columns = table.contract.rows.table
    table.produce(100)
    table.ingest()
    # Random upserts leave the new column out now and then: its default is there.
    left_out = {key for key, row in strong(uri).items() if row["note"] == "none"}
    assert left_out
    for key in left_out:
        assert table.oracle[key]["note"] is None
        table.oracle[key]["note"] = "none"
    assert strong(uri) == table.oracle
    table.hand_over()
    table.merge()
    assert run(["merge", "-t", uri]) == 0
    assert by_key(lance.dataset(uri).to_table()) == strong(uri) == table.oracle
    partition = partition_of(other_systems_key(*IN_CONFLICT, salt_of_another_partition()), PARTITIONS)
    assert run(["conflict", "settle", f"orders-{partition}", "--all", "--yes", "-t", uri]) == 0
    owned = table.oracle[IN_CONFLICT]
    table.oracle[IN_CONFLICT] = {
        **dict.fromkeys(owned),
        "region": "conflict",
        "id": 1,
        "a": 2,
        "text": "another partition's",
    }
    assert by_key(lance.dataset(uri).to_table()) == strong(uri) == table.oracle
    assert run(["verify", "--from", "wal", "-t", uri]) == 0
    table.close()
