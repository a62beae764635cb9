"""Each type and logical name of Kafka Connect: the cell of each column that takes it, and what is refused."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.decode.connect.cases import KEY, Schema, cells, decode, decoder, field, refusals, struct, value
from tests.support.fuzzing import fuzz

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DAY_MS = 86_400_000


def unscaled(number: int) -> str:
    """As Java's BigInteger.toByteArray: the fewest bytes, with a sign."""
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def decimal(scale: object, **more: str) -> Schema:
    return field("c", "bytes", DECIMAL, parameters={"scale": scale, **more})


def outcome(column: pa.DataType, schema: Schema, cell: object) -> Any:
    """The cell that a value gives, or the kind of its refusal.  A null and other neighbours change nothing."""
    whole, of = struct(KEY, schema), decoder({"c": column})
    found = decode(of, [value(whole, {"id": n, "c": given}) for n, given in enumerate([None, cell, None])])
    assert [cells(found)[n] for n in (0, 2)] == [[0, None], [2, None]]
    return refusals(found)[1][0] if 1 in refusals(found) else cells(found)[1][1]


@pytest.mark.parametrize(
    ("column", "schema", "cell", "expected"),
    [
        (pa.int8(), field("c", "int8"), -128, -128),
        (pa.int64(), field("c", "int8"), 127, 127),
        (pa.int64(), field("c", "int8"), 128, "range"),
        (pa.int64(), field("c", "int16"), -32769, "range"),
        (pa.int8(), field("c", "int16"), 128, "range"),
        (pa.uint8(), field("c", "int16"), -1, "range"),
        (pa.int64(), field("c", "int32"), 2**31, "range"),
        (pa.int64(), field("c", "int64"), -(2**63), -(2**63)),
        (pa.int64(), field("c", "int64"), 2**63, "range"),
        (pa.uint64(), field("c", "int64"), 2**63 - 1, 2**63 - 1),
        (pa.float64(), field("c", "int64"), 2**53, 2.0**53),
        (pa.float64(), field("c", "int64"), 2**53 + 1, "range"),
        (pa.int64(), field("c", "int64"), "7", "type"),
        (pa.int64(), field("c", "int64"), 1.5, "type"),
        (pa.float32(), field("c", "float"), 1.5, 1.5),
        (pa.float64(), field("c", "float"), 0.1, 0.10000000149011612),
        (pa.float64(), field("c", "double"), 0.1, 0.1),
        (pa.float64(), field("c", "double"), "Infinity", math.inf),
        (pa.float32(), field("c", "float"), "-Infinity", -math.inf),
        (pa.float64(), field("c", "float"), "inf", "type"),
        (pa.float64(), field("c", "double"), "1.5", "type"),
        (pa.float32(), field("c", "double"), 1.5, "type"),
        (pa.bool_(), field("c", "boolean"), True, True),
        (pa.bool_(), field("c", "boolean"), "true", "type"),
        (pa.bool_(), field("c", "int8"), 1, "type"),
        (pa.string(), field("c", "string"), "é\u0000😀", "é\u0000😀"),
        (pa.string(), field("c", "string"), 1, "type"),
        (pa.large_string(), field("c", "string", "io.debezium.data.Json"), '{"a": 1}', '{"a": 1}'),
        (pa.binary(), field("c", "bytes"), "AP8=", b"\x00\xff"),
        (pa.binary(), field("c", "bytes"), "AP8", "type"),
        (pa.large_binary(), field("c", "bytes", "io.debezium.data.Bits"), "BQ==", b"\5"),
        (pa.binary(2), field("c", "bytes"), "AP8=", b"\x00\xff"),
        (pa.binary(3), field("c", "bytes"), "AP8=", "range"),
        (pa.list_(pa.uint8(), 2), field("c", "bytes"), "AP8=", [0, 255]),
        (pa.list_(pa.uint8(), 3), field("c", "bytes"), "AP8=", "type"),
        (pa.list_(pa.float32(), 1), field("c", "bytes"), "AADAPw==", [1.5]),
        (pa.uuid(), field("c", "string", "io.debezium.data.Uuid"), str(UUID(int=7)), UUID(int=7)),
        (pa.uuid(), field("c", "string", "io.debezium.data.Uuid"), "7", "type"),
        (pa.uuid(), field("c", "string"), str(UUID(int=7)), "type"),
        (pa.string(), field("c", "string", "io.debezium.data.Uuid"), "7", "7"),
        (pa.date32(), field("c", "int32", "org.apache.kafka.connect.data.Date"), -1, date(1969, 12, 31)),
        (pa.date32(), field("c", "int32", "io.debezium.time.Date"), 19782, date(2024, 2, 29)),
        (pa.int32(), field("c", "int32", "io.debezium.time.Date"), -622191234, -622191234),
        (pa.date32(), field("c", "int32"), 1, "type"),
        (pa.date32(), field("c", "int64", "io.debezium.time.Date"), 1, "type"),
        (pa.time32("ms"), field("c", "int32", "org.apache.kafka.connect.data.Time"), 1, time(0, 0, 0, 1000)),
        (pa.time64("us"), field("c", "int64", "io.debezium.time.MicroTime"), 45296123456, time(12, 34, 56, 123456)),
        (pa.time64("us"), field("c", "int64", "io.debezium.time.MicroTime"), DAY_MS * 1000, "range"),
        (pa.int64(), field("c", "int64", "io.debezium.time.MicroTime"), -3_020_399_000_000, -3_020_399_000_000),
        (pa.duration("us"), field("c", "int64", "io.debezium.time.MicroTime"), -5, timedelta(microseconds=-5)),
        (pa.duration("ms"), field("c", "int32", "io.debezium.time.Time"), DAY_MS, timedelta(days=1)),
        (pa.int32(), field("c", "int32", "org.apache.kafka.connect.data.Time"), -1, "range"),
        (pa.time64("us"), field("c", "int32", "io.debezium.time.Time"), -1, "range"),
        (pa.time32("ms"), field("c", "int64", "io.debezium.time.MicroTime"), 1, "range"),
        (pa.time64("us"), field("c", "int64", "io.debezium.time.NanoTime"), 1500, "range"),
        (
            pa.timestamp("us", "UTC"),
            field("c", "int64", "org.apache.kafka.connect.data.Timestamp"),
            1,
            datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
        ),
        (
            pa.timestamp("ms"),
            field("c", "int64", "org.apache.kafka.connect.data.Timestamp"),
            1,
            datetime(1970, 1, 1, 0, 0, 0, 1000),
        ),
        (
            pa.timestamp("us"),
            field("c", "int64", "io.debezium.time.MicroTimestamp"),
            -1,
            datetime(1969, 12, 31, 23, 59, 59, 999999),
        ),
        (pa.timestamp("ms"), field("c", "int64", "io.debezium.time.MicroTimestamp"), 1, "range"),
        (pa.timestamp("ns"), field("c", "int64", "io.debezium.time.Timestamp"), 2**63 // 10**6 + 1, "range"),
        (pa.timestamp("us", "UTC"), field("c", "int64", "io.debezium.time.Timestamp"), 1, "type"),
        (pa.timestamp("us"), field("c", "int64"), 1, "type"),
        (
            pa.timestamp("us", "UTC"),
            field("c", "string", "io.debezium.time.ZonedTimestamp"),
            "2024-02-29T10:34:56.123456+02:00",
            datetime(2024, 2, 29, 8, 34, 56, 123456, UTC),
        ),
        (pa.timestamp("us", "UTC"), field("c", "string", "io.debezium.time.ZonedTimestamp"), "infinity", "type"),
        (pa.timestamp("us", "UTC"), field("c", "string"), "2024-02-29T10:34:56Z", "type"),
        (pa.timestamp("us"), field("c", "string", "io.debezium.time.ZonedTimestamp"), "2024-02-29T10:34:56Z", "type"),
        (pa.duration("us"), field("c", "int64", "io.debezium.time.MicroDuration"), -1, timedelta(microseconds=-1)),
        (pa.duration("s"), field("c", "int64", "io.debezium.time.NanoDuration"), 10**9, timedelta(seconds=1)),
        (pa.duration("s"), field("c", "int64", "io.debezium.time.NanoDuration"), 1, "range"),
        (pa.decimal128(9, 3), decimal("2"), unscaled(-12345), Decimal("-123.450")),
        (pa.decimal128(5, 2), decimal("2"), unscaled(99999), Decimal("999.99")),
        (pa.decimal128(5, 2), decimal("2"), unscaled(100000), "range"),
        (pa.decimal128(38, 0), decimal("0"), unscaled(10**38 - 1), Decimal(10**38 - 1)),
        (pa.decimal128(38, 0), decimal("0"), unscaled(10**38), "range"),
        (pa.decimal128(38, 2), decimal("2", **{"connect.decimal.precision": "5"}), unscaled(100000), "range"),
        (pa.decimal128(6, 2), decimal("2", **{"connect.decimal.precision": "7"}), unscaled(1), "type"),
        (pa.decimal128(6, 1), decimal("2"), unscaled(10), "type"),
        (pa.decimal128(6, 0), decimal("-2"), unscaled(7), Decimal(700)),
        (pa.decimal128(6, 2), decimal("2"), "", "range"),
        (pa.decimal128(6, 2), decimal("2"), 1.5, "type"),
        (pa.decimal128(6, 2), decimal(2), unscaled(7), Decimal("0.07")),
        (pa.decimal128(6, 2), decimal("2.0"), unscaled(7), "unusable_schema"),
        (pa.decimal128(6, 2), field("c", "bytes", DECIMAL), unscaled(7), "unusable_schema"),
        (pa.binary(), decimal("2"), unscaled(-2), b"\xfe"),
        (pa.float64(), decimal("2"), unscaled(7), "type"),
        (pa.list_(pa.int16()), field("c", "array", items={"type": "int16"}), [1, -2], [1, -2]),
        (pa.list_(pa.int16()), field("c", "array", items={"type": "int16"}), [1, None], "malformed"),
        (pa.list_(pa.int16()), field("c", "array", items={"type": "int16", "optional": True}), [None], [None]),
        (pa.list_(pa.int16()), field("c", "array", items={"type": "int64"}), [1, 2**15], "range"),
        (pa.list_(pa.int16()), field("c", "array", items={"type": "int64"}), {"a": 1}, "type"),
        (
            pa.list_(pa.decimal128(9, 2)),
            field("c", "array", items={**decimal("2"), "field": "none"}),
            [unscaled(1), None],
            [Decimal("0.01"), None],
        ),
        (pa.list_(pa.float32(), 2), field("c", "array", items={"type": "float"}), [1.5, 2], [1.5, 2.0]),
        (pa.list_(pa.float64(), 2), field("c", "array", items={"type": "float"}), [1.5, 2], [1.5, 2.0]),
        (pa.list_(pa.float64(), 2), field("c", "array", items={"type": "double"}), [1.5], "type"),
        (pa.list_(pa.float32(), 2), field("c", "array", items={"type": "double"}), [1.5, 2], "type"),
        (pa.list_(pa.uint8(), 2), field("c", "array", items={"type": "int16"}), [0, 255], [0, 255]),
        (pa.list_(pa.uint8(), 2), field("c", "array", items={"type": "int16"}), [0, 256], "range"),
        (pa.list_(pa.uint8(), 2), field("c", "array", items={"type": "int16"}), [0], "type"),
        (
            pa.map_(pa.string(), pa.int32()),
            field("c", "map", keys={"type": "string"}, values={"type": "int32"}),
            {"b": 1, "a": 2},
            [("b", 1), ("a", 2)],
        ),
        (
            pa.map_(pa.string(), pa.int8()),
            field("c", "map", keys={"type": "string"}, values={"type": "int32"}),
            {"b": 200},
            "range",
        ),
        (
            pa.map_(pa.string(), pa.int8()),
            field("c", "map", keys={"type": "string"}, values={"type": "int8"}),
            {"b": None},
            "malformed",
        ),
        (
            pa.map_(pa.string(), pa.int32()),
            field("c", "map", keys={"type": "int32"}, values={"type": "int32"}),
            [[1, 2]],
            "type",
        ),
        (
            pa.struct([("x", pa.int8()), ("y", pa.string())]),
            field("c", "struct", fields=[field("x", "int32")]),
            {"x": 5},
            {"x": 5, "y": None},
        ),
        (
            pa.struct([("x", pa.int8()), ("y", pa.string())]),
            field("c", "struct", fields=[field("x", "int32")]),
            {"x": 5, "y": True},
            "malformed",
        ),
        (pa.struct([("x", pa.int8())]), field("c", "struct", fields=[field("x", "int32")]), {"x": 128}, "range"),
        (
            pa.struct([("x", pa.int8())]),
            field("c", "struct", fields=[{"field": "x", "type": "int8"}]),
            {"x": None},
            "malformed",
        ),
        (pa.struct([("x", pa.int8())]), field("c", "struct", fields=[{"field": "x", "type": "int8"}]), {}, "malformed"),
        (pa.struct([("x", pa.int8())]), field("c", "struct", fields=[]), {}, {"x": None}),
    ],
    ids=str,
)
def test_a_value_is_the_cell_that_its_schema_says_or_refused(
    column: pa.DataType, schema: Schema, cell: object, expected: object
) -> None:
    if expected in ("type", "unusable_schema"):  # then the schema, and with it a neighbour, may be refused
        (refused,) = decode(decoder({"c": column}), [value(struct(KEY, schema), {"id": 1, "c": cell})]).refused
        assert (refused.kind, refused.message[:9]) == (expected, "column 'c" if expected == "type" else "schema, f")
        return
    found = outcome(column, schema, cell)
    assert found == expected
    assert type(found) is type(expected)


def test_not_a_number_is_a_float() -> None:
    for column, kind in ((pa.float64(), "double"), (pa.float32(), "float"), (pa.float64(), "float")):
        assert math.isnan(outcome(column, field("c", kind), "NaN"))
    found = decode(
        decoder({"c": pa.float64()}),
        [value(struct(KEY, field("c", "double")), {"id": n, "c": "NaN" if n % 2 else n / 2}) for n in range(500)],
    )
    assert found.refused == []
    assert [math.isnan(cells(found)[n][1]) for n in range(4)] == [False, True, False, True]


@fuzz(200)
@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_a_decimal_is_exact_or_refused(number: int, scale: int) -> None:
    column = pa.decimal128(38, scale)
    assert outcome(column, decimal(str(scale)), unscaled(number)) == Decimal(f"{number}e-{scale}")


@pytest.mark.parametrize("missing", ["null", "absent"])
def test_a_field_that_is_not_optional_has_a_value(missing: str) -> None:
    """A default in the schema says what a writer wrote, never what is missing here."""
    for more in ({}, {"default": 5}):
        whole = struct(KEY, {"field": "c", "type": "int32", **more})
        payload = {"id": 1, "c": None} if missing == "null" else {"id": 1}
        (refused,) = decode(decoder({"c": pa.int64()}), [value(whole, payload)]).refused
        assert (refused.kind, "'c'" in refused.message) == ("malformed", True)


def test_an_optional_null_is_null_whatever_its_default_is() -> None:
    whole = struct(KEY, field("c", "int32", default=5))
    assert cells(decode(decoder({"c": pa.int64()}), [value(whole, {"id": 1, "c": None})])) == {0: [1, None]}


def test_a_null_struct_has_no_missing_members() -> None:
    inner = {"field": "x", "type": "int32"}
    whole = struct(KEY, field("c", "struct", fields=[inner]))
    of = decoder({"c": pa.struct([("x", pa.int64())])})
    found = decode(of, [value(whole, {"id": 1, "c": None}), value(whole, {"id": 2, "c": {"x": 3}})])
    assert cells(found) == {0: [1, None], 1: [2, {"x": 3}]}


BAD_NEIGHBOURS = pytest.mark.parametrize("neighbours", [[], [{"id": "x"}]], ids=["good", "bad"])
"""A bad neighbour has all values of a batch read one by one."""


@BAD_NEIGHBOURS
@pytest.mark.parametrize(
    ("inner", "column"),
    [
        ({**decimal("2"), "field": "m"}, {"m": pa.decimal128(9, 2)}),
        (field("m", "array", items={"type": "int8"}), {"m": pa.list_(pa.int8(), 2)}),
        (field("m", "int8"), {"m": pa.int8(), "n": pa.int8()}),
    ],
    ids=["decimal", "vector", "absent member"],
)
@pytest.mark.parametrize("outer", ["column", "list", "map", "struct"])
def test_a_null_struct_is_null_whatever_it_is_in(
    outer: str, inner: Schema, column: dict[str, pa.DataType], neighbours: list[dict[str, object]]
) -> None:
    type_, schema = pa.struct(column), {"type": "struct", "optional": True, "fields": [inner]}
    whole, holder, null, expected = {
        "column": ({**schema, "field": "c"}, type_, None, None),
        "list": (field("c", "array", items=schema), pa.list_(type_), [None], [None]),
        "map": (
            field("c", "map", keys={"type": "string"}, values=schema),
            pa.map_(pa.string(), type_),
            {"a": None},
            [("a", None)],
        ),
        "struct": (
            field("c", "struct", fields=[{**schema, "field": "i"}]),
            pa.struct([("i", type_)]),
            {"i": None},
            {"i": None},
        ),
    }[outer]
    given_ = [{"id": 0, "c": null}, *neighbours]
    found = decode(decoder({"c": holder}), [value(struct(KEY, whole), one) for one in given_])
    assert cells(found) == {0: [0, expected]}


def test_the_first_fault_of_a_row_is_told_and_neighbours_stay() -> None:
    whole = struct(KEY, field("a", "int32"), field("b", "array", items={"type": "int32"}))
    of = decoder({"a": pa.int8(), "b": pa.list_(pa.int8())})
    given_ = [{"id": n, "a": n * 60, "b": [1, n * 50]} for n in range(6)]
    found = decode(of, [value(whole, one) for one in given_])
    assert cells(found) == {n: [n, n * 60, [1, n * 50]] for n in (0, 1, 2)}
    paths = {n: message.split("'")[1] for n, (_, message) in refusals(found).items()}
    assert paths == {3: "a", 4: "a", 5: "a"}


def test_json_that_is_no_value_of_the_schema_is_told_by_column() -> None:
    whole = struct(KEY, field("c", "bytes", DECIMAL, parameters={"scale": "2"}))
    payload = json.loads('{"id": 1, "c": 12.5}')
    (refused,) = decode(decoder({"c": pa.decimal128(9, 2)}), [value(whole, payload)]).refused
    assert "column 'c': expected a string" in refused.message
