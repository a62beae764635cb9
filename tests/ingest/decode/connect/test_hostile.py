"""Values that are made to cost memory: long schemas, many schemas, deep ones, and payloads of many small values."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lancewal_ingest.decode.framed.kept import TEXTS_BYTES_MAX
from lancewal_ingest.decode.naming import Names, Naming
from tests.ingest.decode.connect.cases import KEY, cells, decode, decoder, field, refusals, struct, value
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


def test_a_payload_before_its_schema_costs_a_bounded_memory() -> None:
    begin, end = b'{"payload": {"a": [', b'1]}, "schema": ' + json.dumps(struct(KEY)).encode() + b"}"
    made = begin + b"1," * ((MB - len(begin) - len(end)) // 2) + end
    with memory_bound(64 * MB + 4 * MB):
        assert refusals(decode(decoder({"c": pa.string()}), [made]))[0][0] == "malformed"


def test_schemas_of_many_short_fields_cost_a_bounded_memory() -> None:
    of = decoder({"c": pa.string()}, IGNORING)
    with memory_bound(64 * MB + 4 * MB):
        for number in range(8):
            fields = [field(f"{number}_{n:x}", "int8") for n in range(MB // 64)]
            assert decode(of, [value(struct(KEY, *fields), {"id": 1})]).refused == []
    assert 0 < len(of._known) < 8


def test_a_text_that_is_too_long_to_stay_is_read_again_each_time() -> None:
    of = decoder({"c": pa.string()})
    made = value(struct(KEY, field("c", "string")), {"id": 1, "c": "x"}).replace(b"{", b"{" + b" " * TEXTS_BYTES_MAX, 1)
    for _ in range(2):
        assert cells(decode(of, [made, made])) == {0: [1, "x"], 1: [1, "x"]}
    assert len(of._heads._known) == 0


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
