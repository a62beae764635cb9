"""Fold, compose and complete against a dict that applies one operation after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows import fold as fold_module
from lancewal_core.rows.fold import (
    Folded,
    complete,
    compose,
    extend,
    fold,
    fold_onto,
    operation_schema,
    states_at,
)
from lancewal_core.rows.projection import project, project_rows
from lancewal_core.rows.schema import PRESENT, Op, RowSchema

# The key columns stand apart and in another order than in the primary key; nine columns make a bitmap of two bytes.
SCHEMA = RowSchema(
    pa.schema(
        [
            ("a", pa.int64()),
            ("id", pa.int64()),
            ("s", pa.string()),
            ("st", pa.struct([("x", pa.int32()), ("names", pa.list_(pa.string()))])),
            ("tags", pa.list_(pa.string())),
            ("r", pa.string()),
            ("vec", pa.list_(pa.float32(), 2)),
            ("bits", pa.list_(pa.uint8(), 2)),
            ("sts", pa.list_(pa.struct([("y", pa.int8())]))),
            ("ok", pa.bool_()),
        ]
    ),
    primary_key=("r", "id"),
    region_key=("r",),
)
NAMES = SCHEMA.table.names
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "a": st.integers(0, 99),
    "s": st.text(max_size=2),
    "st": st.fixed_dictionaries(
        {"x": st.none() | st.integers(0, 9), "names": st.none() | st.lists(st.none() | st.text(max_size=1), max_size=2)}
    ),
    "tags": st.lists(st.none() | st.text(max_size=1), max_size=2),
    "vec": st.lists(st.sampled_from([0.0, 0.5, -1.0]), min_size=2, max_size=2),
    "bits": st.lists(st.sampled_from([0, 255]), min_size=2, max_size=2),
    "sts": st.lists(st.none() | st.fixed_dictionaries({"y": st.none() | st.integers(0, 9)}), max_size=2),
    "ok": st.booleans(),
}
Key = tuple[str, int]
State = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Operation:
    op: Op
    r: str
    id: int
    values: dict[str, Any]
    """Columns beside the key; of a patch those that it carries."""


def values(required: bool) -> st.SearchStrategy[dict[str, Any]]:
    nullable = {name: st.none() | strategy for name, strategy in VALUES.items()}
    return st.fixed_dictionaries(nullable) if required else st.fixed_dictionaries({}, optional=nullable)


def operations() -> st.SearchStrategy[Operation]:
    key = (st.sampled_from("ab"), st.integers(0, 2))
    return st.one_of(
        st.builds(Operation, st.just(Op.UPSERT), *key, values(required=True)),
        st.builds(Operation, st.just(Op.DELETE), *key, st.just({})),
        st.builds(Operation, st.just(Op.PATCH), *key, values(required=False)),
    )


SEQUENCES = st.lists(operations(), max_size=14)


def bitmap(carried: set[str], names: list[str] = NAMES) -> bytes:
    bits = sum(1 << i for i, name in enumerate(names) if name in carried)
    return bits.to_bytes((len(names) + 7) // 8, "little")


def batch(sequence: list[Operation]) -> pa.RecordBatch:
    rows = [
        {
            **item.values,
            "r": item.r,
            "id": item.id,
            "_offset": offset,
            "_timestamp": 0,
            "_op": int(item.op),
            "_present": bitmap({"r", "id", *item.values}) if item.op is Op.PATCH else None,
        }
        for offset, item in enumerate(sequence)
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA.wal)


def apply_all(sequence: list[Operation], names: list[str] = NAMES) -> dict[Key, State]:
    """The table of rules in ``fold``'s docstring, one operation after the other."""
    others = [name for name in names if name not in ("r", "id")]
    states: dict[Key, State] = {}
    for item in sequence:
        carried = {name: value for name, value in item.values.items() if name in others}
        before = states.get((item.r, item.id))
        after: State
        if item.op is Op.UPSERT:
            after = ("row", carried)
        elif item.op is Op.DELETE:
            after = ("gone", {})
        elif before is None:
            after = ("partial", carried)
        elif before[0] == "gone":
            after = ("row", {**dict.fromkeys(others), **carried})
        else:
            after = (before[0], {**before[1], **carried})
        states[item.r, item.id] = after
    return states


def states_of(folded: Folded, names: list[str] = NAMES) -> dict[Key, State]:
    others = [name for name in names if name not in ("r", "id")]
    found: list[tuple[Key, State]] = []
    for row in folded.rows.to_pylist():
        found.append(((row["r"], row["id"]), ("row", {name: row[name] for name in others})))
    for row in folded.gone.to_pylist():
        found.append(((row["r"], row["id"]), ("gone", {})))
    for row in folded.partials.to_pylist():
        present = int.from_bytes(row[PRESENT], "little")
        carried = {name for i, name in enumerate(names) if present >> i & 1}
        assert {"r", "id"} <= carried
        assert all(row[name] is None for name in others if name not in carried)
        found.append(((row["r"], row["id"]), ("partial", {name: row[name] for name in others if name in carried})))
    assert len(dict(found)) == len(found), "a key is there twice"
    return dict(found)


@given(SEQUENCES, st.lists(st.integers(0, 14), max_size=3), st.booleans())
def test_fold_is_the_dict_wherever_batches_are_cut(sequence: list[Operation], cuts: list[int], joined: bool) -> None:
    """``joined``: not where one column has more than fits into a chunk."""
    edges = [0, *sorted(min(cut, len(sequence)) for cut in cuts), len(sequence)]
    batches = [batch(sequence[a:b]) for a, b in pairwise(edges)]
    with pytest.MonkeyPatch.context() as patch:
        if not joined:
            patch.setattr(fold_module, "_combined", lambda table: table)
        folded = fold(batches, SCHEMA)
    assert states_of(folded) == apply_all(sequence)
    assert folded.rows.schema == SCHEMA.table
    assert folded.gone.schema == SCHEMA.key


@given(SEQUENCES, SEQUENCES, SEQUENCES)
def test_compose_of_folds_is_the_fold_of_all(a: list[Operation], b: list[Operation], c: list[Operation]) -> None:
    expected = apply_all(a + b + c)
    first, second, third = (fold([batch(part)], SCHEMA) for part in (a, b, c))
    assert states_of(compose([first, second, third], SCHEMA)) == expected
    assert states_of(compose([compose([first, second], SCHEMA), third], SCHEMA)) == expected
    assert states_of(compose([first, compose([second, third], SCHEMA)], SCHEMA)) == expected
    assert states_of(extend(extend(first, second, SCHEMA), third, SCHEMA)) == expected
    assert states_of(fold_onto([first, second], pa.Table.from_batches([batch(c)]), SCHEMA)) == expected
    assert states_of(fold_onto([first], pa.Table.from_batches([batch(b), batch(c)]), SCHEMA)) == expected


@given(SEQUENCES, st.lists(operations().filter(lambda item: item.op is Op.UPSERT), max_size=6))
def test_complete_overlays_the_tables_row_or_nulls(sequence: list[Operation], in_table: list[Operation]) -> None:
    base = {(item.r, item.id): item.values for item in in_table}
    rows = [{"r": r, "id": id, **row} for (r, id), row in base.items()]
    folded = fold([batch(sequence)], SCHEMA)
    done = complete(folded.partials, pa.Table.from_pylist(rows, SCHEMA.table), SCHEMA)
    assert done.schema == SCHEMA.table
    states = apply_all(sequence)
    expected = []
    for row in folded.partials.to_pylist():
        key = (row["r"], row["id"])
        old = base.get(key, dict.fromkeys(VALUES))
        expected.append({"r": key[0], "id": key[1], **old, **states[key][1]})
    assert done.to_pylist() == expected


@given(SEQUENCES, st.sets(st.sampled_from(sorted(VALUES))))
def test_projected_batches_fold_to_the_projected_states(sequence: list[Operation], columns: set[str]) -> None:
    projected = project(SCHEMA, columns)
    names = projected.table.names
    assert set(names) == columns | {"r", "id"}
    assert names == [name for name in NAMES if name in names]
    rows = project_rows(batch(sequence), SCHEMA, projected)
    assert states_of(fold([rows], projected), names) == apply_all(sequence, names)


@given(SEQUENCES, st.sets(st.sampled_from(sorted(VALUES))))
def test_partial_rows_are_projected_like_batches(sequence: list[Operation], columns: set[str]) -> None:
    projected = project(SCHEMA, columns)
    folded = fold([batch(sequence)], SCHEMA)
    partials = project_rows(folded.partials, SCHEMA, projected)
    assert states_of(Folded(SCHEMA.table.empty_table(), SCHEMA.key.empty_table(), partials), projected.table.names) == {
        key: state for key, state in apply_all(sequence, projected.table.names).items() if state[0] == "partial"
    }


@given(SEQUENCES)
def test_partial_rows_get_the_order_of_the_columns_taken(sequence: list[Operation]) -> None:
    """Columns of the table and of a contract may have different orders while they change."""
    projected = replace(SCHEMA, columns=pa.schema(reversed(list(SCHEMA.columns))), ids=SCHEMA.ids[::-1])
    partials = project_rows(fold([batch(sequence)], SCHEMA).partials, SCHEMA, projected)
    assert partials.schema.names == [*projected.table.names, PRESENT]
    found = Folded(projected.table.empty_table(), projected.key.empty_table(), partials)
    assert states_of(found, projected.table.names) == {
        key: state for key, state in apply_all(sequence, projected.table.names).items() if state[0] == "partial"
    }


def test_projecting_a_slice_reads_the_slices_bitmaps() -> None:
    sequence = [Operation(Op.PATCH, "a", i, {"sts": [], "ok": True} if i % 2 else {"a": 1}) for i in range(6)]
    projected = project(SCHEMA, ["ok", "a"])
    rows = project_rows(batch(sequence).slice(3, 2), SCHEMA, projected)
    assert rows.column(PRESENT).to_pylist() == [bitmap({"r", "id", *c}, projected.table.names) for c in (["ok"], ["a"])]


def test_a_bitmap_of_the_wrong_length_is_refused() -> None:
    rows = batch([Operation(Op.PATCH, "a", 1, {"a": 1})])
    wrong = rows.set_column(rows.num_columns - 1, SCHEMA.wal.field(PRESENT), pa.array([b"\x00"], pa.binary()))
    with pytest.raises(pa.ArrowInvalid):
        fold([wrong], SCHEMA)


def many_gigabytes(count: int) -> pa.ChunkedArray:
    """Texts of a GiB, each a chunk of its own; all lie in the same memory, of which nothing is touched."""
    size = 1 << 30
    zeros, offsets = pa.py_buffer(np.zeros(size, np.uint8)), pa.py_buffer(np.array([0, size], np.int32))
    return pa.chunked_array([pa.StringArray.from_buffers(1, offsets, zeros)] * count)


def test_more_text_than_arrow_addresses_in_a_chunk_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was replaced, behind gigabytes of others that were, and one that was patched among them."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())])
    schema = RowSchema(columns, primary_key=("id",), region_key=("id",))
    texts = pa.chunked_array([*many_gigabytes(3).chunks, pa.array(["last", "one", "two"])])
    ops = [Op.UPSERT, Op.UPSERT, Op.UPSERT, Op.UPSERT, Op.PATCH, Op.PATCH]
    present = [bitmap({"id", "s"}, columns.names) if op is Op.PATCH else None for op in ops]
    table = pa.Table.from_arrays(
        [pa.array([1, 1, 1, 1, 2, 2]), texts, pa.array(ops, pa.uint8()), pa.array(present, pa.binary())],
        schema=operation_schema(schema),
    )
    combined = fold_module._combined
    # It would copy them: what is too large stays in its chunks.
    monkeypatch.setattr(fold_module, "_combined", lambda t: t if t.nbytes > 1 << 31 else combined(t))
    folded = fold_onto([], table, schema)
    assert (folded.rows["s"].to_pylist(), folded.partials["s"].to_pylist()) == (["last"], ["two"])


def test_of_more_text_than_arrow_addresses_in_a_chunk_states_are_found() -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())])
    schema = RowSchema(columns, primary_key=("id",), region_key=("id",))
    texts = pa.chunked_array([*many_gigabytes(3).chunks, pa.array(["last"])])
    nothing = fold([], schema)
    folded = Folded(pa.table([pa.array(range(4)), texts], schema=columns), nothing.gone, nothing.partials)
    assert states_at(folded, np.array([3])).rows.to_pylist() == [{"id": 3, "s": "last"}]


@given(SEQUENCES, st.sets(st.integers(0, 40)))
def test_states_are_found_by_the_places_of_their_keys(sequence: list[Operation], chosen: set[int]) -> None:
    folded = fold([batch(sequence)], SCHEMA)
    keys = [(row["r"], row["id"]) for row in folded.keys(SCHEMA).to_pylist()]
    places = [place for place in chosen if place < len(keys)]
    of_keys = {keys[place]: apply_all(sequence)[keys[place]] for place in places}
    assert states_of(states_at(folded, np.array(places, np.int64))) == of_keys
