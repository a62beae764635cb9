"""Keys in conflict under a sha256 that matches: what was written, or an error that names the object; and what names it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.keys.conflicts import ConflictKeys, Conflicts, encode_conflicts, read_conflicts
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.rows.column_types import format_type
from lancewal_core.rows.fold import fold
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.store.object_kinds import CONFLICTS_ROWS_BYTES_MAX
from lancewal_core.table.conflicts_ref import ConflictsRef, decode_ref
from lancewal_core.table.contract import Column
from tests.golden import json_formats as texts
from tests.support.fuzzing import damaged, fuzz, memory_bound, outcome
from tests.support.scripted import ManualClock, ScriptedStore

MIB = 1 << 20
_KEY = [pa.field("id", pa.int64(), nullable=False), pa.field("k", pa.string(), nullable=False)]
ROWS = RowSchema(pa.schema([*_KEY, ("words", pa.list_(pa.string()))]), ("id", "k"), ())
CONTRACT = texts.CONTRACT.model_copy(
    update={
        "columns": tuple(Column(name=f.name, type=format_type(f.type), field_ids=()) for f in ROWS.columns),
        "primary_key": ROWS.primary_key,
        "region_key": (),
    }
)
P, Q = (Region("orders", TopicId("t"), partition) for partition in (0, 1))


def operations(op: Op, ids: range) -> pa.RecordBatch:
    present = b"\x07" if op is Op.PATCH else None
    words = None if op is Op.DELETE else ["a", None]
    rows = [
        {"id": i, "k": "k" * i, "words": words, "_op": op, "_present": present, "_offset": i, "_timestamp": 0}
        for i in ids
    ]
    return pa.RecordBatch.from_pylist(rows, ROWS.wal)


FOLDED = fold(
    [operations(Op.UPSERT, range(9)), operations(Op.DELETE, range(9, 12)), operations(Op.PATCH, range(12, 15))], ROWS
)
SOME = (
    Conflicts.none(ROWS)
    .with_waiting(P, FOLDED, Position(3), Position(90))
    .with_waiting(Q, FOLDED, Position(0), Position(7))
    .with_owner(MergedFrom(P, Position(3)), FOLDED.gone)
)
MERGE = "0badcafe"
DATA, REF = encode_conflicts(SOME, MERGE)
OWNERS = DATA[8 + int.from_bytes(DATA[:8], "little") :]
FILES = [DATA, encode_conflicts(Conflicts.none(ROWS), MERGE)[0]]


def judge(data: bytes) -> Conflicts | None:
    """Read ``data`` as what a commit names."""
    store = ScriptedStore(ManualClock())
    ref = ConflictsRef(MERGE, len(data), hashlib.sha256(data).hexdigest(), REF.keys)
    store.bucket.put(ref.key, data, 0)
    with memory_bound(64 * MIB):
        found = outcome(lambda: read_conflicts(store, ref, CONTRACT), ref.key)
    if found is not None:
        found.waiting.validate(full=True)
        found.owners.validate(full=True)
        assert found.waiting_keys.num_rows == REF.keys
        mask = ConflictKeys(found, lambda _: 0).left_out(Q, found.waiting_keys)
        assert mask.dtype == np.bool_
        assert {region.topic for region in found.regions} <= {"orders"} or data != DATA
    return found


def test_what_was_written_is_read() -> None:
    found = judge(DATA)
    assert found is not None
    assert found == SOME
    assert found.folded(Q, found.schema).rows.sort_by("id") == FOLDED.rows.sort_by("id")


@fuzz(120)
@given(damaged(FILES))
def test_damage_is_named(data: bytes) -> None:
    judge(data)


@pytest.mark.parametrize(
    ("part", "column", "value"),
    [
        ("waiting", "_op", 3),
        ("waiting", "_op", 2),
        ("waiting", "_present", b"\x07"),
        ("waiting", "_region", "../x"),
        ("waiting", "_region", "orders/t/1"),
        ("waiting", "_first", -1),
        ("waiting", "_next", 3),
        ("waiting", "id", 1),
        ("owners", "_region", "../x"),
        ("owners", "_merged", -1),
        ("owners", "id", 10),
    ],
)
def test_rows_that_no_merge_writes_are_refused(part: str, column: str, value: object) -> None:
    """One value of the first row: what waits is an upsert of key 0 through P, P owns key 9."""
    table = getattr(SOME, part)
    rows = table.to_pylist()
    first = {"_op": 0, "id": 0, "_first": 3} if part == "waiting" else {"id": 9, "_merged": 3}
    assert first.items() <= rows[0].items()
    rows[0][column] = value
    if column == "id":
        rows[0]["k"] = "k" * int(str(value))
    changed = replace(SOME, **{part: pa.Table.from_pylist(rows, table.schema)})
    assert judge(encode_conflicts(changed, MERGE)[0]) is None


def with_first_stream(schema: pa.Schema) -> bytes:
    """``DATA`` with another schema of its first stream, which then has no rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")):
        pass
    stream = sink.getvalue().to_pybytes()
    return b"".join([len(stream).to_bytes(8, "little"), stream, OWNERS])


@pytest.mark.parametrize(
    "ids",
    ["", "{}", "[", "7", "[[0],[1]]", "[[0],[1],[2]]", "[[0],[1],[2,3,4]]", "[0,1,2]", '[["0"],["1"],["2","3"]]',
     "[[0],[1],[2,[3]]]", "[[0],[1],[2,-1]]", "[[0],[1],[2,0.5]]", "[[0],[1],[2,true]]", "[" * 100_000],
)  # fmt: skip
def test_ids_that_no_merge_writes_are_refused(ids: str) -> None:
    assert judge(with_first_stream(SOME.waiting.schema.with_metadata({"lancewal.field_ids": ids}))) is None


@pytest.mark.parametrize("change", ["without the key", "twice"])
def test_columns_that_no_merge_writes_are_refused(change: str) -> None:
    """With ids for each of them."""
    key, *others = SOME.waiting.schema
    words = others[1]
    fields = [words, *others] if change == "without the key" else [key, words, *others]
    ids = "[[9,8],[1],[2,3]]" if change == "without the key" else "[[0],[9,8],[1],[2,3]]"
    assert judge(with_first_stream(pa.schema(fields).with_metadata({"lancewal.field_ids": ids}))) is None


def test_what_unpacks_to_too_much_is_not_unpacked() -> None:
    column = pa.array(np.zeros(1 << 20, np.int64))
    table = pa.table({f"c{n}": column for n in range(CONFLICTS_ROWS_BYTES_MAX // column.nbytes + 1)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    stream = sink.getvalue().to_pybytes()
    del table
    assert judge(len(stream).to_bytes(8, "little") + stream + OWNERS) is None
    assert judge(DATA[: len(DATA) - len(OWNERS)] + stream) is None


@fuzz(100)
@given(damaged([REF.to_json().encode()]) | st.just(REF.to_json().replace(MERGE, "../../x").encode()))
def test_a_name_leads_nowhere_else(text: bytes) -> None:
    found = outcome(lambda: decode_ref(text.decode("utf-8", "replace"), "version 7"), "version 7")
    assert found is None or paths.parse_conflicts_object(found.key) == found.merge
