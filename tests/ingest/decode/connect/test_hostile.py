"""Values that are made to cost memory: long schemas, many schemas, deep ones, and payloads of many small values."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lancewal_ingest.decode.naming import Names, Naming
from tests.ingest.decode.connect.cases import KEY, decode, decoder, field, struct, value
from tests.support.fuzzing import memory_bound

MB = 1 << 20
IGNORING = Naming(Names({"id": None, "c": None}, ignores=True))
FIELDS = struct(KEY, *(field(f"f{n}", "int8") for n in range(MB // 60)))
BRACKETS = b'{"schema": ' + b"[{" * (MB // 4) + b'"'
ITEMS = struct(KEY, field("c", "array", items={"type": "struct", "fields": [field("x", "int8")], "optional": True}))
COLUMN = pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float64(), 16))]))


@pytest.mark.parametrize(
    ("made", "rows"),
    [
        (value(FIELDS, {"id": 1}), 1),
        (value(FIELDS, {"id": 1, **{f"f{n}": n for n in range(1000)}}), 1),
        (BRACKETS, 0),
        (b'{"schema": {"type": "' + b"\\\\" * (MB // 2), 0),
        (b'{"schema": {}, "payload": ' + b"[" * MB, 0),
        (value(ITEMS, {"id": 1, "c": [None] * (MB // 8)}), 1),
        (value(ITEMS, {"id": 1, "c": [{}] * (MB // 8)}), 1),
    ],
    ids=["fields", "values", "brackets", "escapes", "deep", "nulls", "empty"],
)
def test_a_value_costs_a_bounded_memory(made: bytes, rows: int) -> None:
    of = decoder({"c": COLUMN}, IGNORING if b"f999" in made else Naming())
    (grown,) = of.growth.each([made]).tolist()
    with memory_bound(64 * MB + 4 * len(made) + 2 * grown):
        found = decode(of, [made])
    assert sum(len(part.indexes) for part in found.parts) == rows
    for part in found.parts:
        assert sum(column.nbytes for column in part.columns) <= grown + 1000


def test_schemas_that_are_all_different_cost_a_bounded_memory() -> None:
    of = decoder({"c": pa.string()})
    made = [
        json.dumps(
            {"schema": struct(KEY, field("c", "string", doc=f"{n}".rjust(50_000))), "payload": {"id": n}}
        ).encode()
        for n in range(400)
    ]
    with memory_bound(96 * MB):
        for one in made:
            assert decode(of, [one]).refused == []
