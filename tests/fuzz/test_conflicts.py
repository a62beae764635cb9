"""Keys in conflict under a sha256 that matches: what was written, or an error that names the object; and what names it."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core import paths
from lancewal_core.ids import Position, Region, TopicId
from lancewal_core.keys.conflicts import KEYS_MAX, ConflictKeys, Conflicts, encode_conflicts, read_conflicts
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.rows.fold import fold
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.store.object_kinds import CONFLICTS_ROWS_BYTES_MAX
from lancewal_core.table.conflicts_ref import ConflictsRef, decode_ref
from tests.support.fuzzing import damaged, fuzz, memory_bound, outcome
from tests.support.scripted import ManualClock, ScriptedStore

MIB = 1 << 20
ROWS = RowSchema(pa.schema([("id", pa.int64()), ("k", pa.string()), ("words", pa.list_(pa.string()))]), ("id", "k"), ())
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
FILES = [DATA, encode_conflicts(Conflicts.none(ROWS), MERGE)[0]]


def judge(data: bytes) -> Conflicts | None:
    """Read ``data`` as what a commit names."""
    store = ScriptedStore(ManualClock())
    ref = ConflictsRef(MERGE, len(data), hashlib.sha256(data).hexdigest(), REF.keys)
    store.bucket.put(ref.key, data, 0)
    with memory_bound(64 * MIB):
        found = outcome(lambda: read_conflicts(store, ref, ROWS), ref.key)
    if found is not None:
        found.rows.validate(full=True)
        assert found.waiting_keys.num_rows == REF.keys
        mask = ConflictKeys(found, lambda _: 0).left_out(Q, found.waiting_keys)
        assert mask.dtype == np.bool_
        assert {region.topic for region in found.regions} <= {"orders"} or data != DATA
    return found


def test_what_was_written_is_read() -> None:
    found = judge(DATA)
    assert found is not None
    assert found.rows == SOME.rows
    assert found.folded(Q).rows.sort_by("id") == FOLDED.rows.sort_by("id")


@fuzz(120)
@given(damaged(FILES))
def test_damage_is_named(data: bytes) -> None:
    judge(data)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("_op", 3),
        ("_op", 2),
        ("_present", b"\x07"),
        ("_region", "../x"),
        ("_region", "orders/t/1"),
        ("_first", -1),
        ("_next", 3),
        ("id", 1),
    ],
)
def test_rows_that_no_merge_writes_are_refused(column: str, value: object) -> None:
    """One value of the first row, which waits: an upsert of key 0 through P."""
    rows = SOME.rows.to_pylist()
    assert (rows[0]["_op"], rows[0]["id"], rows[0]["_first"]) == (0, 0, 3)
    rows[0][column] = value
    if column == "id":
        rows[0]["k"] = "k"
    changed = Conflicts(ROWS, pa.Table.from_pylist(rows, SOME.rows.schema))
    assert judge(encode_conflicts(changed, MERGE)[0]) is None


def test_what_unpacks_to_too_much_is_not_unpacked() -> None:
    rows = 2 * CONFLICTS_ROWS_BYTES_MAX // (KEYS_MAX * 8)
    table = pa.table({f"c{n}": pa.array(np.zeros(KEYS_MAX, np.int64)) for n in range(rows)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    del table
    assert judge(data) is None


@fuzz(100)
@given(damaged([REF.to_json().encode()]) | st.just(REF.to_json().replace(MERGE, "../../x").encode()))
def test_a_name_leads_nowhere_else(text: bytes) -> None:
    found = outcome(lambda: decode_ref(text.decode("utf-8", "replace"), "version 7"), "version 7")
    assert found is None or paths.parse_conflicts_object(found.key) == found.merge
