"""Rows of three contracts, unmerged at once: read, merged and finished against a model that follows the columns by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSettings, ObjectCorrupt, or_raised
from lancewal_core.names import paths
from lancewal_core.region.flush import flush_from_logs
from lancewal_core.region.flush_files import read_folded
from lancewal_core.rows.schema import Op
from lancewal_core.table.contract import Column
from lancewal_core.table.protocol import fragment_files
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.inputs import _files_fit
from lancewal_flusher.merge.merge import Merged, merge_next
from lancewal_flusher.merge.plan import MergeLimits, RegionMerge, combined_regions, within_memory
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_reader.table import open_table
from tests.support.flusher_tables import (
    COMBINE,
    OPEN_ROWS,
    FlusherTable,
    Operation,
    ScriptedTable,
    delete,
    patch,
    upsert,
    upserts,
)


def put(id: int, **values: Any) -> Operation:
    return Operation(Op.UPSERT, id, values)


def both(table: FlusherTable, operations: list[Operation]) -> None:
    for partition in (0, 1):
        table.generation(partition, operations)


def three_contracts(table: FlusherTable, *, flush: bool = True) -> None:
    """Columns a, s, tags; then b beside them; then c, which was a, without s, and another tags."""
    table.generation(0, upserts(range(10)))
    table.generation(1, [*upserts(range(6), a=3), patch(50, s="first")], flush=flush)
    table.change_columns(b="float64")
    table.generation(
        0, [*(put(i, a=-i, b=i / 2) for i in range(5, 12)), patch(0, b=0.25), delete(1), patch(60, tags=["x"])]
    )
    table.generation(1, [put(1, b=1.5), patch(2, b=None, s="second"), patch(50, b=9.5), delete(3)], flush=flush)
    table.change_columns({"a": "c", "s": None, "tags": None}, tags="list<int64>", d="string")
    table.generation(0, [put(7, c=70, tags=[7]), patch(8, d="eight"), patch(0, c=1), patch(61, c=61)], flush=flush)
    table.generation(1, [patch(4, tags=[]), put(5, d="five"), patch(50, c=5)], flush=flush)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["region"], row["id"]))


def check_reads(table: FlusherTable) -> None:
    """Scan, some columns, a filter by a renamed column, a count and keys give the model's rows."""
    expected = by_key(list(table.model.values()))
    opened = open_table(table.uri)
    assert opened.to_arrow().schema.names == table.contract.rows.table.names
    assert by_key(opened.to_arrow().to_pylist()) == expected
    for names in (["c"], ["tags", "d"], ["b"]):
        found = opened.to_arrow(columns=["region", "id", *names]).to_pylist()
        assert by_key(found) == [{name: row[name] for name in ("region", "id", *names)} for row in expected]
    filtered = opened.to_arrow(filter="c > 0 or d is not null").to_pylist()
    assert by_key(filtered) == [row for row in expected if (row["c"] or 0) > 0 or row["d"] is not None]
    assert opened.count_rows() == len(expected)
    keys = [{"region": row["region"], "id": row["id"]} for row in expected]
    assert by_key(opened.get(keys).to_arrow().to_pylist()) == expected


def merge_all(table: FlusherTable, limits: MergeLimits) -> None:
    while {*table.states(0), *table.states(1)} != {"MERGED"}:
        table.round(limits)
        check_reads(table)
    table.check()


@pytest.mark.in_turns("limits", "flush", each=2)
@pytest.mark.parametrize("limits", [OPEN_ROWS, COMBINE, MergeLimits()], ids=["adopt", "combine", "default"])
@pytest.mark.parametrize("flush", [True, False], ids=["flushed", "in the log"])
def test_rows_of_three_contracts(table: FlusherTable, limits: MergeLimits, flush: bool) -> None:
    three_contracts(table, flush=flush)
    check_reads(table)
    while not flush and "SEALED" in table.states(1):
        table.flush(1)
    if not flush:
        table.flush(0)
    check_reads(table)
    merge_all(table, limits)


@pytest.mark.parametrize("merged", range(4))
def test_a_merge_between_two_changes(table: FlusherTable, merged: int) -> None:
    """Whatever was merged before the columns changed is read with the columns of now."""
    steps: list[Callable[[], object]] = [
        lambda: both(table, [*upserts(range(8)), patch(20, a=1)]),
        lambda: table.change_columns(b="float64"),
        lambda: table.generation(0, [put(1, a=5, b=0.5), patch(2, b=1.0)]),
        lambda: table.change_columns({"a": "c", "s": None, "tags": None}, d="string"),
        lambda: table.generation(0, [put(3, c=9, d="x"), patch(20, d="y")]),
        lambda: table.change_columns(tags="string"),
    ]
    for place, step in enumerate(steps):
        step()
        if place == merged:
            table.round()
    check_reads(table)
    merge_all(table, OPEN_ROWS)


def test_rows_that_somebody_appends_beside_a_merge_of_old_rows_give_way(tmp_path: Path) -> None:
    """The follow-up asks the flushes of every contract for their keys."""
    table = FlusherTable(tmp_path)
    table.generation(0, upserts([40]))
    table.round()
    table.generation(0, [*upserts(range(4)), patch(9, s="patched")])
    table.change_columns({"s": None}, b="float64")
    table.generation(0, [patch(1, b=0.5)])

    def append() -> None:
        rows = [{"region": "r0", "id": id, "a": -1, "tags": None, "b": None} for id in (1, 9, 30)]
        lance.write_dataset(pa.Table.from_pylist(rows, table.contract.rows.table), table.uri, mode="append")
        table.model["r0", 30] = rows[-1]

    scripted = ScriptedTable(table.uri)
    scripted.before.append(append)
    context = replace(table.context(), table=scripted)
    assert isinstance(merge_next(table.context(scripted), COMBINE), Merged)
    finish_newest(context)
    table.check()
    table.close()


def test_files_of_a_flush_are_gone(table: FlusherTable) -> None:
    """It is rebuilt from entries of the contract that was, by the contract that is."""
    table.generation(0, [*upserts(range(4)), upsert(4, a=4)])
    flushed = table.flushed(0, 1)
    table.change_columns({"a": "c", "tags": None}, d="string")
    table.remove_files(flushed)
    check_rows_of_c(table)
    table.round()
    table.check()


def check_rows_of_c(table: FlusherTable) -> None:
    assert by_key(open_table(table.uri).to_arrow().to_pylist()) == by_key(list(table.model.values()))


def file_fields(table: FlusherTable) -> list[tuple[int, ...]]:
    return [fields for f in table.context().table.newest().fragments() for fields in f.file_fields]


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
@pytest.mark.parametrize("change", ["add", "rename", "drop"])
def test_files_of_older_columns_are_adopted_without_those_that_are_gone(
    table: FlusherTable, change: str, shared: bool
) -> None:
    """Another program may add a column, which gets the id of the dropped one."""
    if shared:
        table.generations({0: upserts(range(5)), 1: upserts(range(3))})
    else:
        table.generation(0, upserts(range(5)))
    flushed = table.flushed(0, 1)
    gone = table.contract.fields_of["tags"][0]
    match change:
        case "add":
            table.change_columns(b="float64")
        case "rename":
            table.change_columns({"s": "c"})
        case "drop":
            table.change_columns({"tags": None})
    table.round()
    table.check()
    written = {name for fragment in flushed.fragments for name in fragment_files(fragment)}
    assert written <= {name for f in table.context().table.newest().fragments() for name in f.files}
    assert all(({gone, gone + 1} & set(fields) != set()) == (change != "drop") for fields in file_fields(table))
    if change == "drop":
        dataset: Any = lance.dataset(table.uri)
        dataset.add_columns(pa.schema([("theirs", pa.list_(pa.string()))]))
        dataset.validate()
        assert table.context().table.newest().field_ids["theirs"][0] == gone
        assert dataset.to_table()["theirs"].null_count == dataset.count_rows() > 0
        dataset.optimize.compact_files()
        assert dataset.to_table()["theirs"].null_count == dataset.count_rows()
        for row in table.model.values():
            row["theirs"] = None
        table.check()


def test_files_of_a_struct_without_a_member_are_written_again(table: FlusherTable) -> None:
    """They say which structs are null."""
    table.generation(0, upserts(range(5)))
    merge = RegionMerge(table.regions[0], (table.flushed(0, 1),))
    columns = [*table.contract.columns, Column(name="t", type="struct<x: int64, y: int64>", field_ids=(9, 10, 11))]
    other = Column(name="t", type="struct<x: int64>", field_ids=(9, 10))

    def fit(now: Sequence[Column]) -> bool:
        before, after = (table.contract.model_copy(update={"columns": tuple(of)}) for of in (columns, now))
        return _files_fit(after, lambda _: before, merge)

    assert fit(columns)
    assert fit(columns[:-1])
    assert not fit([*columns[:-1], other])


def test_a_flush_has_the_columns_of_its_newest_entry(table: FlusherTable) -> None:
    """Whoever writes it: a read of the flush shows what a read of the entries showed."""
    table.generation(0, upserts(range(3)), flush=False)
    table.change_columns({"s": None}, b="float64")
    table.generation(1, [put(1, b=1.5)], flush=False)
    table.change_columns({"b": "c"})
    old, new = [table.flush(partition) for partition in (0, 1)]
    assert (old.contract_version, new.contract_version) == (1, 2)
    context = table.context()
    assert read_folded(table.store, context.table, old, context.columns_of(old)).rows["s"].to_pylist() == [
        "s0",
        "s1",
        "s2",
    ]
    table.round()
    table.check()


def test_generations_of_two_contracts_are_not_flushed_together(table: FlusherTable) -> None:
    table.generation(0, upserts(range(3)), flush=False)
    table.change_columns(b="float64")
    table.generation(1, [put(1, b=1.5)], flush=False)
    flushed = [or_raised(found) for found in flush_from_logs(table.context(), table.regions, table.new_id).values()]
    assert [one and one.contract_version for one in flushed] == [1, 2]
    table.round()
    table.check()


def test_rows_that_are_rewritten_are_counted_in_memory(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5)))
    merge = RegionMerge(table.regions[0], (table.flushed(0, 1),))
    other = replace(merge, files_fit=False)
    assert combined_regions([merge], OPEN_ROWS) == frozenset()
    assert combined_regions([other], OPEN_ROWS) == {table.regions[0]}
    assert other.memory_bytes == merge.memory_bytes + 3 * merge.flushes[0].rows_bytes
    assert within_memory([other], lambda _: 0.0, MergeLimits(memory_bytes=other.memory_bytes)) == [other]
    with pytest.raises(InvalidSettings, match="merge_memory_bytes_max"):
        within_memory([other], lambda _: 0.0, MergeLimits(memory_bytes=other.memory_bytes - 1))


def test_a_contract_that_cannot_be_read_holds_up_its_region_alone(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5)))
    table.change_columns(b="float64")
    table.generation(1, [put(1, b=0.5)])
    key = paths.contract_version(1, None)
    away = {key: table.store.get(key) or b""}
    table.store.delete([key])
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0.0)
    with pytest.raises(ObjectCorrupt, match="WAL entries may name this version"):
        report.raise_held()
    assert (table.states(0), table.states(1)) == (["FLUSHED"], ["MERGED"])
    table.put_back(away)
    table.round()
    table.check()
