"""``rows_as``: rows of equal columns pass as they are, others are carried over or refused by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lancewal_core.errors import ContractMismatch, ObjectCorrupt, StoreUnavailable
from lancewal_core.keys.conflicts import Conflicts, encode_conflicts, read_conflicts
from lancewal_core.names import paths
from lancewal_core.names.paths import FlushFile
from lancewal_core.process.clock import SystemClock
from lancewal_core.region.flush import flush_from_logs
from lancewal_core.region.flushes.manifest import FlushedGeneration, read_flush
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows import projection
from lancewal_core.rows.fold import bitmaps, columns_set, present_bits
from lancewal_core.rows.projection import project, rows_as
from lancewal_core.rows.schema import PRESENT, RowSchema
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.contract import Column, Contract, WrittenContracts, encode_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_flusher.merge.plan import RegionMerge
from lancewal_flusher.merge.region_input import RegionInput, read_region_inputs
from lancewal_ingest.append.prepare import Preparer
from lancewal_reader.plan.strong import FlushRef
from lancewal_reader.table import open_table
from lancewal_reader.unmerged.flushed import FlushCache, read_flushed
from lancewal_reader.unmerged.load import SideBySide
from tests.support.flusher_tables import COLUMNS, FlusherTable, Operation, patch, upsert, upserts
from tests.support.pipeline import NoDeadLetters, Pipeline
from tests.twins.memory_store import MemoryStore


def schema(*columns: tuple[str, str], primary_key: tuple[str, ...] = ("id",)) -> RowSchema:
    fields = [pa.field(name, pa.type_for_alias(type_)) for name, type_ in columns]
    return RowSchema(pa.schema(fields), primary_key, ())


WANTED = schema(("id", "int64"), ("a", "int64"))


def test_rows_of_equal_columns_are_the_same_object() -> None:
    rows = object()
    for written in (WANTED, schema(("id", "int64"), ("a", "int64"))):
        assert rows_as(rows, written, WANTED, lambda: "x") is rows


def test_a_bitmap_that_many_patches_have_is_rewritten_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written, wanted = (
        RowSchema(pa.schema([(name, pa.int64()) for name in names]), ("id",), (), tuple((ord(n[0]),) for n in names))
        for names in (("id", "a", "b"), ("id", "b", "c", "a"))
    )
    bits = [[True, False, True], [True, True, False]] * 500
    present = pc.if_else(
        pa.array([True, True, False, True] * 250), bitmaps(np.array(bits)), pa.scalar(None, pa.binary())
    )
    rows = pa.record_batch(
        [pa.nulls(1000, f.type) for f in written.columns] + [present], [*written.columns.names, PRESENT]
    )
    rewritten = list[int]()

    def counted(bits: Any) -> pa.Array:
        rewritten.append(len(bits))
        return bitmaps(bits)

    monkeypatch.setattr(projection, "bitmaps", counted)
    found = rows_as(rows.slice(1), written, wanted, lambda: "x")[PRESENT]
    set_ = {True: [True, True, False, False], False: [True, False, False, True]}  # by whether column b is set
    expected = [None if n % 4 == 2 else set_[bool(bits[n][2])] for n in range(1, 1000)]
    shown = present_bits(found.drop_null(), wanted).tolist()
    assert [None if null else shown.pop(0) for null in found.is_null().to_pylist()] == expected
    assert rewritten == [2]


@pytest.mark.parametrize(
    ("written", "named"),
    [
        (schema(("id", "int64"), ("a", "int32")), "'a' was written as int32, the table's contract has int64"),
        (schema(("id", "int64")), "'a' was written as absent"),
        (schema(("id", "int64"), ("a", "int64"), ("b", "string")), "'b' was written as string, .* has absent"),
        (schema(("a", "int64"), ("id", "int64")), r"\['a', 'id'\] .* were written"),
        (schema(("id", "int64"), ("a", "int64"), primary_key=("id", "a")), "keys"),
    ],
)
def test_other_rows_are_refused_by_name(written: RowSchema, named: str) -> None:
    with pytest.raises(ContractMismatch, match=f"the entry of partition p-0 at offset 7 .*{named}"):
        rows_as(object(), written, WANTED, lambda: "the entry of partition p-0 at offset 7")


def test_an_older_contract_is_read_once_and_the_newest_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = FlusherTable(tmp_path, 1)
    store, asked = MemoryStore(SystemClock()), list[str]()
    newest = made.contract.model_copy(update={"version": 2})
    store.put_if_absent(paths.contract_version(1, newest.making), encode_contract(made.contract))
    real = store.get

    def get(key: str) -> bytes | None:
        asked.append(key)
        return real(key)

    monkeypatch.setattr(store, "get", get)
    contracts = WrittenContracts(store)
    for version in (2, 1, 1, 2):
        assert contracts.of(newest, version).rows == newest.rows
    assert asked == [paths.contract_version(1, newest.making)]
    with pytest.raises(ObjectCorrupt, match="WAL entries may name this version"):
        contracts.of(newest, 3)
    made.close()


class LosesContracts:
    """A store that cannot read contracts."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.get_range, self.list, self.delete = store.get_range, store.list, store.delete
        self.put_if_absent = store.put_if_absent

    def get(self, key: str) -> bytes | None:
        if paths.parse_contract_version(key) is not None:
            raise StoreUnavailable(f"could not read {key}", object=key)
        return self._store.get(key)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


def altered(table: FlusherTable, **terms: Any) -> Contract:
    """The next version of the contract, stored."""
    version = table.contract.version + 1
    change = {"columns_change": f"{version}-1"} if "columns" in terms else {}
    new = table.contract.model_copy(update={"version": version, **change, **terms})
    table.store.put_if_absent(paths.contract_version(new.version, None), encode_contract(new))
    return new


def test_a_contract_that_cannot_be_read_holds_up_its_regions_alone(table: FlusherTable) -> None:
    """A service asks again: an error is the answer of the region whose entries name it."""
    for partition in (0, 1):
        table.generation(partition, upserts(range(5)), flush=False)
    newest = altered(table, grace_s=1)
    opened = OpenedTable.over(LosesContracts(table.store), LanceTable(table.uri), newest, table.tasks, SystemClock())
    answers = flush_from_logs(opened, table.regions, table.new_id)
    assert [type(answer) for answer in answers.values()] == [StoreUnavailable, StoreUnavailable]
    answers = flush_from_logs(replace(table.context(), contract=newest), table.regions, table.new_id)
    assert [type(answer) for answer in answers.values()] == [FlushedGeneration, FlushedGeneration]


def test_rows_of_a_contract_that_was_taken_up_are_flushed_without_another_look(tmp_path: Path) -> None:
    """A process has read the version that it takes up: no flush from memory waits for the store, or fails by it."""
    pipeline = Pipeline(tmp_path, partitions=1)
    pipeline.upsert("r0", 1, a=1)
    pipeline.ingest()
    newer = pipeline.contract.model_copy(update={"version": 2, "on_bad_record": "ignore"})
    pipeline._worker.take_up(Preparer(newer), NoDeadLetters())
    pipeline.upsert("r0", 2, a=2)
    pipeline.ingest()
    pipeline.hand_over()  # nobody has stored version 2
    flushes = [read_flush(pipeline.store, info.key) for info in pipeline.store.list(paths.FLUSHES)
               if info.key.endswith(FlushFile.MANIFEST.value)]  # fmt: skip
    assert [part.rows for flush in flushes for part in flush.parts] == [2]
    pipeline.close()


CHANGES = ["narrower", "fewer", "more", "renamed", "added again"]


def changed_columns(table: FlusherTable, change: str) -> tuple[Column, ...]:
    """The table's columns (region, id, a, s, tags) after a change of ``a`` or the last one."""
    columns = list(table.contract.columns)
    a = next(c for c in columns if c.name == "a")
    place = columns.index(a)
    match change:
        case "narrower":
            columns[place] = a.model_copy(update={"type": "int32"})
        case "fewer":
            del columns[-1]
        case "more":
            columns.append(a.model_copy(update={"name": "b", "field_ids": (99,)}))
        case "renamed":
            columns[place] = a.model_copy(update={"name": "b"})
        case "added again":
            columns[place] = a.model_copy(update={"field_ids": (99,)})
    return tuple(columns)


def given_row(one: Operation) -> dict[str, Any]:
    return {"region": "r0", "id": one.id, **one.values}


def carried_by_hand(row: Mapping[str, Any], change: str, names: Collection[str]) -> dict[str, Any]:
    old = {"b": row["a"], **row, "a": None} if change == "renamed" else dict(row)
    if change == "added again":
        old["a"] = None
    return {name: old.get(name) for name in names}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("act", ["read", "read one column", "merge", "merge two"])
def test_a_flush_of_other_columns_is_carried_over_or_refused_by_name(
    table: FlusherTable, act: str, change: str
) -> None:
    """Nothing of it is taken for damage, which would be "mended" from the log (``repair generation``), that has the same
    columns."""
    given = [*upserts(range(4)), patch(9, s="patched")]
    table.generation(0, given)
    if act == "merge two":
        table.generation(0, upserts(range(3, 8)))
    newest = altered(table, columns=changed_columns(table, change), format=2)
    context = replace(table.context(), contract=newest)
    merges = [
        RegionMerge(table.regions[0], tuple(table.flushed(0, g) for g in range(1, 3 if act == "merge two" else 2)))
    ]
    rows = newest.rows

    def act_() -> tuple[pa.Table, pa.Table]:
        nonlocal rows
        if act.startswith("read"):
            ref = FlushRef.of(table.record(0, 1))
            assert ref is not None
            rows = project(rows, {rows.columns.names[2]}) if act == "read one column" else rows
            (folded,) = read_flushed(context, FlushCache(0), [(table.regions[0], ref)], rows)
            return folded.rows, folded.partials
        (found,) = read_region_inputs(context, merges, frozenset({table.regions[0]} if act == "merge two" else ()))
        assert isinstance(found, RegionInput)
        return found.rows, found.partials

    if change == "narrower":
        with pytest.raises(ContractMismatch, match=r"^_lancewal/flushes/.* has rows of another contract: column 'a'"):
            act_()
        return
    found, partials = act_()
    names = rows.table.names
    before = {row["id"]: row for row in (given_row(one) for one in [*given[:4], *upserts(range(3, 8))])}
    if act == "merge two":
        assert sorted(found["id"].to_pylist()) == list(range(8))
    elif act != "merge":
        assert sorted(found["id"].to_pylist()) == list(range(4))
    for row in found.to_pylist():
        assert row == carried_by_hand(before[row["id"]], change, names)
    (patched,) = partials.to_pylist()
    assert patched.pop(PRESENT) is not None
    assert patched == {name: {"region": "r0", "id": 9, "s": "patched"}.get(name) for name in patched}
    assert columns_set(partials, rows) == ({"s": True} if "s" in partials.column_names else {})


def with_conflict(folder: Path) -> tuple[FlusherTable, ConflictsRef]:
    """A table of which one key waits in two partitions."""
    made = FlusherTable(folder, columns=pa.schema(list(COLUMNS)[:4]), keyed_by_bytes=True)
    for partition in (0, 1):
        made.generation(partition, [upsert(1, partition, "s")], of=0)
    made.round()
    ref = made.context().watermarks.newest()[1].conflicts
    assert ref is not None
    return made, ref


@pytest.mark.parametrize("columns", [{"a": "int32"}, {"a": None}, {"b": "string"}])
def test_rows_set_aside_under_other_columns_are_carried_over_or_refused_by_name(
    tmp_path: Path, columns: dict[str, str | None]
) -> None:
    made, ref = with_conflict(tmp_path)
    before = read_conflicts(made.store, ref, made.contract).waiting
    assert before.num_rows == 2
    types = {column.name: column.type for column in made.contract.columns} | columns
    ids = made.contract.fields_of
    wanted = made.contract.model_copy(
        update={
            "format": 2,
            "version": 2,
            "columns": tuple(
                Column(name=name, type=type_, field_ids=ids.get(name, (99,))) for name, type_ in types.items() if type_
            ),
        }
    )
    if columns == {"a": "int32"}:
        with pytest.raises(ContractMismatch, match=f"^{ref.key} has rows of another contract: column 'a'"):
            read_conflicts(made.store, ref, wanted)
    else:
        found = read_conflicts(made.store, ref, wanted)
        assert found.schema == wanted.rows
        names = [name for name in before.column_names if name in found.waiting.column_names]
        assert found.waiting.select(names).drop_columns([PRESENT]).equals(before.select(names).drop_columns([PRESENT]))
        assert "b" not in columns or found.waiting["b"].to_pylist() == [None, None]
        assert read_conflicts(made.store, encoded(made.store, found), wanted) == found
    made.close()


def encoded(store: ObjectStore, conflicts: Conflicts) -> ConflictsRef:
    data, ref = encode_conflicts(conflicts, "0badcafe")
    store.put_if_absent(ref.key, data)
    return ref


def test_rows_set_aside_that_name_no_ids_have_the_columns_of_version_1(tmp_path: Path) -> None:
    """As an older release has written them."""
    made, ref = with_conflict(tmp_path)
    held = read_conflicts(made.store, ref, made.contract)
    made.store.put_if_absent(paths.contract_version(1, None), encode_contract(made.contract))
    without = encoded(made.store, replace(held, schema=replace(held.schema, ids=())))
    assert read_conflicts(made.store, without, made.contract) == held
    columns = tuple(
        c.model_copy(update={"name": "b", "field_ids": (99,)} if c.name == "a" else {}) for c in made.contract.columns
    )
    newest = made.contract.model_copy(update={"format": 2, "version": 2, "columns": columns, "columns_change": "2-a"})
    assert read_conflicts(made.store, without, newest).waiting["b"].to_pylist() == [None, None]
    made.close()


def test_a_contract_that_is_copied_with_other_terms_has_none_of_the_old_values(table: FlusherTable) -> None:
    old = table.contract
    assert (len(old.rows.columns), len(old.regions), len(old.field_ids)) == (5, 2, 6)
    new = old.model_copy(update={"version": 2, "partitions": 3, "columns": old.columns[:3]})
    assert (len(new.rows.columns), len(new.regions), len(new.field_ids)) == (3, 3, 3)
    assert new == Contract.model_validate_json(encode_contract(new))


def test_an_altered_policy_empties_no_cache(tmp_path: Path) -> None:
    """Entries of both versions lie in one generation, and are read by what was remembered."""
    made = FlusherTable(tmp_path, 1)
    made.generation(0, upserts(range(3)))
    context: Any = made.context()
    other = made.contract.model_copy(update={"version": made.contract.version + 1})
    assert other.rows.signature == made.contract.rows.signature
    entry = replace(_first_entry(made), contract_version=made.contract.version)
    later = replace(context, contract=other)
    assert later.rows_of(entry).equals(entry.rows)
    made.close()


def test_an_altered_policy_leaves_the_keys_in_force(table: FlusherTable) -> None:
    """They are read again where other regions count, and nowhere else."""
    made = FlusherTable(Path(table.uri).parent / "bytes", keyed_by_bytes=True)
    for partition in (0, 1):
        made.generation(partition, upserts([1], a=partition), of=0)
    made.round()
    ref = made.context().watermarks.newest()[1].conflicts
    assert ref is not None
    folding = SideBySide("leave-out")
    known = folding.in_force(made.store, ref, made.contract)
    policy = made.contract.model_copy(update={"version": 2, "on_bad_record": "ignore", "grace_s": 5})
    assert folding.in_force(made.store, ref, policy) is known
    regions = policy.model_copy(update={"version": 3, "altered_at": (9, 9)})
    assert folding.in_force(made.store, ref, regions) is not known
    made.close()


def test_an_altered_policy_leaves_the_plan_that_is_young_enough(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5)), flush=False)
    opened = open_table(table.uri)
    assert opened.to_arrow().num_rows == 5
    table.generation(0, upserts(range(5, 9)), flush=False)
    table.contract = altered(table, on_bad_record="ignore")
    opened._reads._take_up_contract()
    assert opened._reads.contract.version == 2
    assert opened.to_arrow(max_staleness_s=600).num_rows == 5
    assert opened.to_arrow().num_rows == 9


def _first_entry(made: FlusherTable) -> Any:
    from lancewal_core.region.generation_entries import entries_of

    context = made.context()
    return entries_of(context, made.regions[0], made.record(0, 1))[0]
