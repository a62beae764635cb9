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
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_kinds import kind_of
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_reader.table import open_table
from lancewal_reader.unmerged.left_out import left_out_of
from tests.golden.release_table import FOLDER, IN_CONFLICT, SNAPSHOT, ReleaseTable, rows_of, unpack
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
