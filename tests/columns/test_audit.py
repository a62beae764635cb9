"""``verify``, repairs, ``inspect``, snapshots and ``export-memwal`` of a table with rows of three contracts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_audit.verify.report import report_text
from lancewal_core.cli.stored_object import SHOWERS, inspect_object, inspect_region
from lancewal_core.names import paths
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.store.object_kinds import kind_of
from lancewal_core.table.control import Service
from lancewal_reader.table import open_table, reads_of
from lancewal_tables.snapshots.make import make_snapshot
from lancewal_tables.status.memwal_export import export_memwal
from tests.audit.repair.index.test_repair import flip_all, repair_page
from tests.audit.repair.test_generation import files_of, snapshot_of
from tests.audit.repair.test_segment import MemoryRecords, damage, repair, state_of, survey_of
from tests.audit.verify.test_columns_changed import verify
from tests.columns.test_merges import check, merge_all
from tests.columns.test_reads import check_point, check_reads
from tests.columns.three_contracts import LARGE, NAMES, ThreeContracts
from tests.support.lance_row_ids import read_by_lance
from tests.support.pauses import pause
from tests.support.pipeline import Row, by_key
from tests.support.repairs import command, dry
from tests.tables.status.test_memwal_export import FLUSHED, MERGED, OPEN, mem_wals

# -- verify -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sources", ["wal", "both"])
def test_verify(table: ThreeContracts, monkeypatch: pytest.MonkeyPatch, sources: str) -> None:
    """Now and at each state, unmerged and merged; a wrong value of each column that has changed is found."""
    sent = sum(len(table.messages(partition)) for partition in (0, 1))
    for _ in range(2):
        report = verify(table, monkeypatch, sources)
        assert report.counts == {}, report_text(report)
        assert (report.records, report.rows_read) == (sent, len(table.oracle))
        for state in table.moments[1:]:
            report = verify(table, monkeypatch, sources, at=str(state.points["receipt"]))
            assert report.counts == {}, report_text(report)
            assert (report.records, report.rows_read) == (sum(state.ends), len(state.rows))
        merge_all(table)
    dataset: Any = lance.dataset(table.uri)
    for n, change in enumerate([{"n": "n + 1"}, {"words": "'w5'"}, {"old": "4"}, {"note": "null"}], 1):
        dataset.update(change, where=f"id = {251 + n}")
        report = verify(table, monkeypatch, sources)
        assert sum(report.counts.values()) >= n, report_text(report)


# -- inspect, export-memwal, snapshots ------------------------------------------------------------------------------


def test_every_object_is_shown(table: ThreeContracts) -> None:
    for merged in (False, True):
        shown: dict[str, int] = {}
        for info in table.store.list(paths.ROOT):
            kind = kind_of(info.key)
            if kind is not None and kind.name in SHOWERS:
                shown[kind.name] = shown.get(kind.name, 0) + 1
                assert json.dumps(inspect_object(table.store, info.key).content)
        assert shown.keys() >= {"contract", "segment", "bundle", "flush", "deleted keys", "patches", "state page"}
        assert shown["contract"] == table.contract.version == 5
        states = [
            inspect_region(table.store, region, table.contract.page_of(region)).content
            for region in table.contract.regions
        ]
        assert [len(state["generations"]) for state in states] == [5 + merged] * 2
        merge_all(table)


def test_export_memwal(made: ThreeContracts) -> None:
    found = mem_wals(export_memwal(made.flusher()))
    assert [mem_wal.state for mem_wal in found] == [MERGED, FLUSHED, FLUSHED, FLUSHED, OPEN] * 2
    for partition in (0, 1):
        records = state_of(made, partition).generations
        of_partition = found[5 * partition : 5 * partition + 5]
        for record, mem_wal in zip(records[:-1], of_partition, strict=False):
            entries = read_by_lance(mem_wal.wal_entries)
            assert entries[0] == record.first
            assert all(record.first <= at < (record.next or 0) for at in entries)


def test_snapshots(table: ThreeContracts) -> None:
    """Of now and of each state; plain Lance shows the columns of then."""
    for n, state in enumerate([*table.moments, None]):
        rows, names = (table.oracle, NAMES[2]) if state is None else (state.rows, state.names)
        context = table.flusher()
        make_snapshot(
            context, reads_of(context, table.uri), f"s{n}", None if state is None else state.points["receipt"]
        )
        plain = lance.dataset(table.uri).checkout_version((f"s{n}", None)).to_table()
        assert plain.schema.names == names
        assert by_key(plain) == rows
    merge_all(table)
    opened = open_table(table.uri)
    for n, state in enumerate(table.moments):
        check_point(opened, state.rows, state.names, at=f"snapshot:s{n}")
    check_point(opened, table.oracle, NAMES[2], at="snapshot:s4")


# -- repairs ------------------------------------------------------------------------------------------------------


def flushed_of(table: ThreeContracts, partition: int) -> list[GenerationRecord]:
    return [r for r in state_of(table, partition).generations if r.state is GenerationState.FLUSHED]


@pytest.mark.parametrize(
    ("number", "what"), [(0, "data files"), (1, "side files"), (1, "data files"), (2, "manifest"), (2, "data files")]
)
def test_repair_generation(table: ThreeContracts, number: int, what: str) -> None:
    """Of one contract, and of two."""
    record = flushed_of(table, 0)[number]
    before = snapshot_of(table, record)
    lost = files_of(table, record, what)
    assert lost
    for path in lost:
        path.unlink()
    assert "rebuild it" in dry(table, "generation", "orders-0")
    assert "rebuilt as" in command(table, "generation", "orders-0")
    command(table, "generation", "orders-1")  # it may have had a part of the same flush
    (again,) = [r for r in flushed_of(table, 0) if r.generation == record.generation]
    assert snapshot_of(table, again).contract_version == before.contract_version
    opened = open_table(table.uri)
    check_point(opened, table.oracle, NAMES[2])
    for state in table.moments[1:]:
        check_point(opened, state.rows, state.names, at=state.points["receipt"])
    merge_all(table)


def test_repair_region(table: ThreeContracts) -> None:
    """The state is concluded from logs and flushes of all three."""
    table.settle()
    for service in Service:
        pause(table.store, table.clock, lambda: uuid.uuid4().hex, service, None)
    versions = [state_of(table, partition).contract_version for partition in (0, 1)]
    flip_all(table)
    assert any("is written" in line for line in repair_page(table))
    check_reads(open_table(table.uri), table.oracle, NAMES[2])
    assert [state_of(table, partition).contract_version for partition in (0, 1)] >= versions
    merge_all(table)


@pytest.fixture(scope="module")
def open_generations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeContracts]:
    """The same rows, and nothing is flushed: each region has one generation with entries of all three."""
    made = ThreeContracts(tmp_path_factory.mktemp("open"), flushing=False)
    made.fill()
    yield made
    made.close()


def test_all_in_the_log(open_generations: ThreeContracts) -> None:
    table = open_generations
    assert [len(state_of(table, partition).generations) for partition in (0, 1)] == [2, 2]
    check_reads(open_table(table.uri), table.oracle, NAMES[2])
    for state in table.moments:
        check_point(open_table(table.uri), state.rows, state.names, at=state.points["receipt"])


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (5, 5), (1, 2)])
def test_repair_segment(open_generations: ThreeContracts, tmp_path: Path, before: int, after: int) -> None:
    """Its records are read again by the contract of the entries around it, or by the newer one of both: with its default."""
    table = open_generations.copied(tmp_path)
    log = state_of(table, 0).generations[-1].log
    of_regions = survey_of(table, log).pieces.values()
    found = {
        one.sequence: one
        for pieces in of_regions
        for last, one, following in zip(pieces, pieces[1:], pieces[2:], strict=False)
        if (last.contract_version, following.contract_version) == (before, after)
        and one.contract_version == before
        and one.next == one.first + 1
        and sum(piece.sequence == one.sequence for some in of_regions for piece in some) == 1
    }
    lost = found[min(found)]
    path = Path(table.uri) / paths.wal_segment(log, lost.sequence)
    damage(path, "lost")
    assert repair(table, path, MemoryRecords(table))
    if before != after:
        (key,) = [(row["region"], row["id"]) for row in rows_of(table, lost.first) if row["id"] >= 300]
        assert table.oracle[key]["note"] is None
        table.oracle[key]["note"] = "none"
    table.crash()
    check_reads(open_table(table.uri), table.oracle, NAMES[2])
    merge_all(table)
    table.close()


def rows_of(table: ThreeContracts, offset: int) -> list[Row]:
    """Records with this offset, of small segments of the first contract."""
    found = [
        json.loads(table.messages(partition)[offset][1])
        for partition in (0, 1)
        if offset < len(table.messages(partition))
    ]
    return [row for row in found if row.get("tags") == ["first"]]


def test_repair_index(table: ThreeContracts) -> None:
    """Over a renamed column, a widened and an added one."""
    dataset: Any = lance.dataset(table.uri)
    dataset.create_scalar_index("n", "BTREE")
    dataset.create_index("v", "IVF_FLAT", num_partitions=2, metric="l2")
    for merged in (False, True):
        for name in ("text_idx", "n_idx", "v_idx", "w_idx"):
            command(table, "index", name)
        check(table)
        if not merged:
            merge_all(table)
    found: Any = lance.dataset(table.uri).to_table(columns=["id"], filter=f"n = {LARGE + 250}")
    assert found["id"].to_pylist() == [250]
    words: Any = lance.dataset(table.uri).to_table(columns=["id", "_score"], full_text_query="w21")
    expected = [row["id"] for row in table.oracle.values() if "w21" in (row["words"] or "").split()]
    assert sorted(words["id"].to_pylist()) == sorted(expected)


def test_repair_merged_position(table: ThreeContracts) -> None:
    """The versions that said what is merged are gone: so all is merged once more, by the newest contract."""
    merge_all(table)
    for info in table.store.list(paths.merges_prefix(None)):
        table.store.delete([info.key])
    dataset: Any = lance.dataset(table.uri)
    dataset.update_config({"by": "a user"})
    dataset.cleanup_old_versions(timedelta(0))
    assert "no merged positions are left at all" in dry(table, "merged-position")
    command(table, "merged-position")
    check(table)
    table.merge()
    check(table)
    assert pa.types.is_int64(lance.dataset(table.uri).schema.field("n").type)
