"""What bytes mean, byte by byte, and which are refused: each case alone, among others, and by the strict reader."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lancewal_ingest.decode.framed.payloads import Payloads
from lancewal_ingest.decode.outcomes import KINDS
from tests.ingest.decode.avro.cases import decoder, logical, number, record
from tests.ingest.decode.framed.outcomes import by_one, decoded, outcomes, texts

DAY_MS = 86_400_000
DECIMAL_3 = logical("bytes", "decimal", precision=3, scale=0)
DECIMAL_38 = logical("bytes", "decimal", precision=38, scale=38)
FIXED_DECIMAL = {"type": "fixed", "name": "d", "size": 20, "logicalType": "decimal", "precision": 5, "scale": 2}
ABC = {"type": "enum", "name": "e", "symbols": ["A", "B", "C"]}
MILLIS = logical("long", "timestamp-millis")
MICROS = logical("long", "timestamp-micros")
INTS = {"type": "array", "items": "int"}
STRINGS = {"type": "array", "items": "string"}
FLOATS = {"type": "array", "items": "float"}
NOTHINGS = {"type": "array", "items": "null"}
PAIR = {
    "type": "record",
    "name": "p",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"]}],
}
PAIRS = {"type": "array", "items": PAIR}
PAIR_COLUMN = pa.struct([("x", pa.int8()), ("y", pa.string())])
MAP = {"type": "map", "values": ["null", "int"]}
MAP_COLUMN = pa.map_(pa.string(), pa.int8())
UUID = uuid.UUID("c3a1f5d0-0000-4abc-8def-0123456789ab")
UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


ZONED = connect("string", "io.debezium.time.ZonedTimestamp")
ZONEDS = {"type": "array", "items": ["null", ZONED]}
CONNECT_TIME = connect("long", "org.apache.kafka.connect.data.Timestamp", logicalType="timestamp-millis")
NO_PRECISION = connect(
    "bytes", "org.apache.kafka.connect.data.Decimal", logicalType="decimal", precision=64, scale=2,
    **{"connect.parameters": {"scale": "2"}},
)  # fmt: skip


def sized(data: bytes) -> bytes:
    return number(len(data)) + data


def fixed(size: int, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


GOOD: list[tuple[Any, pa.DataType, bytes, Any]] = [
    ("null", pa.int8(), b"", None),
    ("boolean", pa.bool_(), b"\1", True),
    ("int", pa.int8(), b"\xff\1", -128),
    ("int", pa.int32(), b"\xff\xff\xff\xff\x0f", -(2**31)),
    ("int", pa.uint8(), b"\xfe\3", 255),
    ("int", pa.float32(), number(2**24), 2.0**24),
    ("int", pa.int32(), b"\x82\x80\x80\x80\x80\x80\x80\x80\x80\0", 1),  # more bytes than it needs
    ("long", pa.int64(), b"\xff" * 9 + b"\1", -(2**63)),
    ("long", pa.int64(), b"\xfe" + b"\xff" * 8 + b"\1", 2**63 - 1),
    ("long", pa.uint64(), number(2**63 - 1), 2**63 - 1),
    ("long", pa.int16(), b"\x81\0", -1),
    ("long", pa.float64(), number(-(2**53)), -(2.0**53)),
    ("float", pa.float64(), struct.pack("<f", 0.1), struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    ("float", pa.float32(), struct.pack("<f", float("inf")), float("inf")),
    ("double", pa.float64(), struct.pack("<d", float("nan")), float("nan")),
    ("double", pa.float64(), struct.pack("<d", -0.0), -0.0),
    ("string", pa.string(), sized("żółw\0".encode()), "żółw\0"),
    ("string", pa.string(), b"\x80\0", ""),  # a length in more bytes than it needs
    ("string", pa.string(), sized(b"x" * 100), "x" * 100),
    ("bytes", pa.binary(), sized(b"\xff\0"), b"\xff\0"),
    ("bytes", pa.list_(pa.float32(), 2), sized(struct.pack("<2f", 1.5, -2)), [1.5, -2.0]),
    ("bytes", pa.list_(pa.float64(), 1), sized(struct.pack("<d", 0.1)), [0.1]),
    (fixed(3), pa.list_(pa.uint8(), 3), b"\0\xff\7", [0, 255, 7]),
    (fixed(3), pa.binary(), b"abc", b"abc"),
    (fixed(0), pa.binary(), b"", b""),
    (fixed(3), pa.binary(3), b"abc", b"abc"),
    (fixed(16, logicalType="uuid"), pa.binary(16), bytes(range(16)), bytes(range(16))),
    (fixed(12, logicalType="duration"), pa.binary(), b"\1\0\0\0\2\0\0\0\3\0\0\0", b"\1\0\0\0\2\0\0\0\3\0\0\0"),
    (logical("string", "uuid"), pa.string(), sized(b"not checked"), "not checked"),
    (ABC, pa.string(), b"\4", "C"),
    (ABC, pa.large_string(), b"\4", "C"),
    ("string", pa.large_string(), sized("ż".encode()), "ż"),
    ("bytes", pa.large_binary(), sized(b"\xff"), b"\xff"),
    (fixed(16, logicalType="uuid"), pa.uuid(), UUID.bytes, UUID.bytes),
    (logical("string", "uuid"), pa.uuid(), sized(str(UUID).encode()), UUID.bytes),
    (logical("string", "uuid"), pa.uuid(), sized(str(UUID).upper().encode()), UUID.bytes),
    (["null", logical("string", "uuid")], pa.uuid(), b"\0", None),
    (ABC, pa.string(), b"\x84\0", "C"),
    (logical("int", "date"), pa.date32(), number(-719_163), -719_163),
    (logical("int", "date"), pa.int64(), number(-5), -5),
    (logical("int", "time-millis"), pa.time32("ms"), number(DAY_MS - 1), DAY_MS - 1),
    (logical("int", "time-millis"), pa.time64("ns"), number(DAY_MS - 1), (DAY_MS - 1) * 10**6),
    (logical("int", "time-millis"), pa.time32("s"), number(5000), 5),
    (logical("long", "time-micros"), pa.time64("us"), number(0), 0),
    (logical("long", "time-nanos"), pa.time64("us"), number(7000), 7),
    (MILLIS, UTC, number(253_402_300_800_000), 253_402_300_800_000_000),  # the year 10000
    (MILLIS, UTC, number(-62_135_596_800_001), -62_135_596_800_001_000),  # before the year 1
    (MICROS, UTC, number(2**63 - 1), 2**63 - 1),
    (MICROS, pa.timestamp("ms", "UTC"), number(-7000), -7),
    (MICROS, pa.int64(), number(-7001), -7001),
    (logical("long", "timestamp-nanos"), pa.timestamp("s", "UTC"), number(3 * 10**9), 3),
    (logical("long", "local-timestamp-micros"), LOCAL, number(5), 5),
    (logical("long", "local-timestamp-millis"), pa.timestamp("ns"), number(-5), -5_000_000),
    (DECIMAL_3, pa.decimal128(3, 0), sized((999).to_bytes(2, "big")), "999"),
    (DECIMAL_3, pa.decimal128(5, 2), sized(b"\xff"), "-1.00"),
    (DECIMAL_3, pa.decimal128(3, 0), sized(b"\0" * 30 + b"\7"), "7"),
    (DECIMAL_3, pa.decimal128(3, 0), sized(b"\xff" * 12), "-1"),
    (FIXED_DECIMAL, pa.decimal128(6, 2), b"\0" * 19 + b"\7", "0.07"),
    (fixed(12, logicalType="decimal", precision=5, scale=0), pa.decimal128(5, 0), b"\xff" * 10 + b"\x01\0", "-65280"),
    (DECIMAL_38, pa.decimal128(38, 38), sized((10**38 - 1).to_bytes(16, "big")), "0." + "9" * 38),
    (DECIMAL_38, pa.decimal128(38, 38), sized((1 - 10**38).to_bytes(16, "big", signed=True)), "-0." + "9" * 38),
    (connect("int", "io.debezium.time.Date"), pa.date32(), number(-5), -5),
    (connect("long", "io.debezium.time.MicroTime"), pa.time64("us"), number(7), 7),
    (connect("long", "io.debezium.time.MicroTimestamp"), LOCAL, number(5), 5),
    (connect("long", "io.debezium.time.MicroTimestamp"), pa.int64(), number(5), 5),
    (connect("long", "io.debezium.time.NanoTimestamp"), LOCAL, number(5000), 5),
    (connect("long", "io.debezium.time.MicroDuration"), pa.duration("ns"), number(-5), -5000),
    (connect("long", "no.such.Name"), pa.int64(), number(5), 5),
    ({"type": "long", "connect.name": ["x"]}, pa.int64(), number(5), 5),
    (CONNECT_TIME, LOCAL, number(5), 5000),
    (CONNECT_TIME, UTC, number(5), 5000),
    (connect("string", "io.debezium.data.Uuid"), pa.uuid(), sized(str(UUID).encode()), UUID.bytes),
    (NO_PRECISION, pa.decimal128(7, 2), sized(b"\x01\xe2\x40"), "1234.56"),
    (ZONED, UTC, sized(b"1970-01-01T00:00:01.5Z"), 1_500_000),
    (ZONED, UTC, sized(b"1970-01-01T02:00:01+02:00"), 1_000_000),
    (ZONED, UTC, sized(b"1970-01-01T00:00:00.1234560000Z"), 123_456),
    (ZONED, UTC, sized(b"0001-01-01T00:00:00Z"), -62_135_596_800_000_000),
    (ZONED, pa.string(), sized(b"infinity"), "infinity"),
    (ZONEDS, pa.list_(UTC), b"\4\2" + sized(b"1970-01-01 00:00:00Z") + b"\0\0", [0, None]),
    (["null", "int"], pa.int8(), b"\0", None),
    (["int", "null"], pa.int8(), b"\2", None),
    (["int"], pa.int8(), b"\0\2", 1),
    (["null"], pa.int8(), b"\0", None),
    (["null", "string"], pa.string(), b"\x82\0\2x", "x"),
    (["string", "int", "null"], pa.struct([("int", pa.int8()), ("string", pa.string())]), b"\2\6", {"int": 3, "string": None}),
    (["string", "int", "null"], pa.struct([("int", pa.int8()), ("string", pa.string())]), b"\4", None),
    (["int", PAIR], pa.struct([("p", PAIR_COLUMN), ("int", pa.int8())]), b"\2\2\0", {"p": {"x": 1, "y": None}, "int": None}),
    (INTS, pa.list_(pa.int8()), b"\0", []),
    (INTS, pa.list_(pa.int8()), b"\4\2\3\0", [1, -2]),
    (INTS, pa.list_(pa.int8()), b"\3\4\2\3\0", [1, -2]),  # a block with its size in bytes
    (INTS, pa.list_(pa.int8()), b"\4\2\3\2\6\1\2\0\0", [1, -2, 3, 0]),  # three blocks
    (INTS, pa.list_(pa.uint8(), 2), b"\2\6\2\0\0", [3, 0]),
    (STRINGS, pa.list_(pa.string()), number(100) + b"\2x" * 100 + b"\0", ["x"] * 100),
    (FLOATS, pa.list_(pa.float64()), b"\2\0\0\0\x3f\0", [0.5]),
    (FLOATS, pa.list_(pa.float32(), 2), b"\2\0\0\0\x3f\1\x08\0\0\x80\x3f\0", [0.5, 1.0]),
    (NOTHINGS, pa.list_(pa.int8()), b"\4\0", [None, None]),
    ({"type": "array", "items": INTS}, pa.list_(pa.list_(pa.int32())), b"\4\0\2\2\0\0", [[], [1]]),
    (MAP, MAP_COLUMN, b"\0", []),
    (MAP, MAP_COLUMN, b"\4\2b\2\6\0\0\0", [("b", 3), ("", None)]),
    (MAP, MAP_COLUMN, b"\3\x0c\2b\2\6\0\0\2\2a\0\0", [("b", 3), ("", None), ("a", None)]),
    (["null", MAP], MAP_COLUMN, b"\0", None),
    ({"type": "array", "items": MAP}, pa.list_(MAP_COLUMN), b"\4\2\2k\0\0\2\2k\0\0\0", [[("k", None)]] * 2),
    ({"type": "map", "values": PAIR}, pa.map_(pa.string(), PAIR_COLUMN), b"\2\2k\6\0\0", [("k", {"x": 3, "y": None})]),
    (PAIR, PAIR_COLUMN, b"\6\2\2z", {"x": 3, "y": "z"}),
    (PAIRS, pa.list_(PAIR_COLUMN), b"\4\6\0\2\2\2z\0", [{"x": 3, "y": None}, {"x": 1, "y": "z"}]),
    (PAIR, pa.struct([*reversed(list(PAIR_COLUMN)), ("more", pa.bool_())]), b"\6\0", {"y": None, "more": None, "x": 3}),
]  # fmt: skip
BAD: list[tuple[str, Any, pa.DataType, bytes]] = [
    # What libraries are known to read as something.
    ("malformed", ["null", "int"], pa.int8(), b"\1\2"),  # branch -1
    ("malformed", ["null", "int"], pa.int8(), b"\4\2"),
    ("malformed", ["null", "int"], pa.int8(), number(2**40) + b"\2"),
    ("malformed", ABC, pa.string(), b"\1"),  # symbol -1
    ("malformed", ABC, pa.string(), b"\6"),
    ("range", DECIMAL_3, pa.decimal128(7, 0), sized((1_048_575).to_bytes(3, "big"))),
    ("range", DECIMAL_3, pa.decimal128(7, 0), sized((2**64 + 7).to_bytes(9, "big"))),
    ("range", DECIMAL_3, pa.decimal128(7, 0), sized((1000).to_bytes(2, "big"))),
    ("range", DECIMAL_3, pa.decimal128(3, 0), sized((-1000).to_bytes(2, "big", signed=True))),
    ("malformed", "boolean", pa.bool_(), b"\7"),
    ("range", logical("int", "time-millis"), pa.time32("ms"), number(-5)),
    ("range", logical("int", "time-millis"), pa.int32(), number(-5)),
    ("range", logical("long", "time-micros"), pa.time64("us"), number(DAY_MS * 1000)),
    ("malformed", "long", pa.int64(), b"\x82" + b"\x80" * 18 + b"\0"),  # 20 bytes
    ("malformed", "long", pa.int64(), b"\x82" + b"\x80" * 9 + b"\0"),  # 11 bytes
    ("malformed", "long", pa.int64(), b"\xff" * 9 + b"\2"),  # 65 bits
    ("malformed", "int", pa.int64(), number(2**40)),
    ("malformed", "int", pa.int64(), number(2**31)),
    ("malformed", "string", pa.string(), b"\2x\0"),  # something after it
    # What the columns cannot hold.
    ("range", "int", pa.int8(), number(128)),
    ("range", "long", pa.uint64(), number(-1)),
    ("range", "long", pa.float64(), number(2**53 + 1)),
    ("range", MILLIS, UTC, number(2**62)),
    ("range", MILLIS, UTC, number(-(2**62))),
    ("range", MICROS, pa.timestamp("ms", "UTC"), number(7001)),
    ("range", logical("int", "time-millis"), pa.time32("s"), number(5001)),
    ("range", DECIMAL_38, pa.decimal128(38, 38), sized((10**38).to_bytes(16, "big"))),
    ("range", DECIMAL_38, pa.decimal128(38, 38), sized((-(10**38)).to_bytes(16, "big", signed=True))),
    ("range", DECIMAL_38, pa.decimal128(38, 38), sized((10**38 + 2**64).to_bytes(16, "big"))),
    ("range", DECIMAL_38, pa.decimal128(38, 38), sized((-(10**38) - 2**64).to_bytes(16, "big", signed=True))),
    ("range", DECIMAL_38, pa.decimal128(38, 38), sized(b"\1" + b"\0" * 16)),
    ("range", FIXED_DECIMAL, pa.decimal128(6, 2), b"\0" * 17 + b"\2\0\0"),
    ("range", INTS, pa.list_(pa.int8()), b"\4\2\x80\2\0"),
    ("type", "bytes", pa.list_(pa.float32(), 2), sized(b"\0" * 7)),
    ("type", "bytes", pa.binary(3), sized(b"ab")),
    ("type", logical("string", "uuid"), pa.uuid(), sized(UUID.hex.encode())),
    ("type", logical("string", "uuid"), pa.uuid(), sized(str(UUID).replace("c", "g").encode())),
    ("type", logical("string", "uuid"), pa.uuid(), sized(str(UUID).replace("-", "_").encode())),
    ("type", logical("string", "uuid"), pa.uuid(), sized(str(UUID)[:35].encode() + b"\xff")),
    ("malformed", "string", pa.large_string(), sized(b"\xff")),
    ("type", INTS, pa.list_(pa.uint8(), 2), b"\2\6\0"),
    ("type", {"type": "array", "items": ["null", "float"]}, pa.list_(pa.float32(), 1), b"\2\0\0"),
    ("duplicate_member", MAP, MAP_COLUMN, b"\4\2b\0\2b\0\0"),
    ("duplicate_member", MAP, MAP_COLUMN, b"\2\2b\0\2\2b\0\0"),
    ("duplicate_member", {"type": "array", "items": MAP}, pa.list_(MAP_COLUMN), b"\2\6\0\0\2a\0\0\0\0\0"),
    ("range", MAP, MAP_COLUMN, b"\2\2b\2\x80\2\0"),
    ("malformed", MAP, MAP_COLUMN, b"\2\2\xff\0\0"),
    ("type", ZONED, UTC, sized(b"infinity")),
    ("type", ZONED, UTC, sized(b"1970-01-01T00:00:00")),
    ("type", ZONED, UTC, sized(b"")),
    ("range", ZONED, UTC, sized(b"1970-02-30T00:00:00Z")),
    ("range", ZONED, UTC, sized(b"1970-01-01T00:00:00.0000001Z")),
    ("range", ZONED, pa.timestamp("ns", "UTC"), sized(b"9999-12-31T00:00:00Z")),
    ("malformed", ZONED, UTC, sized(b"\xff")),
    ("range", NO_PRECISION, pa.decimal128(5, 2), sized(b"\x01\xe2\x40")),
    ("range", connect("long", "io.debezium.time.NanoTimestamp"), LOCAL, number(5001)),
    # What is cut, or longer than what remains.
    ("malformed", "long", pa.int64(), b""),
    ("malformed", "long", pa.int64(), b"\x80"),
    ("malformed", "double", pa.float64(), b"\0" * 7),
    ("malformed", "string", pa.string(), b"\4x"),
    ("malformed", "string", pa.string(), b"\1x"),  # length -1
    ("malformed", "string", pa.string(), number(2**62)),
    ("malformed", "string", pa.string(), number(-(2**63))),
    ("malformed", "string", pa.string(), sized(b"\xff")),
    ("malformed", "string", pa.string(), sized(b"\xed\xa0\x80")),  # a lone surrogate
    ("malformed", "string", pa.string(), sized(b"\xc0\x80")),
    ("malformed", DECIMAL_3, pa.decimal128(3, 0), sized(b"")),
    ("malformed", fixed(3), pa.binary(), b"ab"),
    ("malformed", INTS, pa.list_(pa.int8()), b"\4\2\0"),
    ("malformed", INTS, pa.list_(pa.int8()), b"\4\2\2"),
    ("malformed", INTS, pa.list_(pa.int8()), b"\x0a\2\0"),
    ("malformed", INTS, pa.list_(pa.int8()), number(100) + b"\x80\0" * 50),
    ("malformed", INTS, pa.list_(pa.int8()), number(2**62)),
    ("malformed", INTS, pa.list_(pa.int8()), number(-(2**63)) + b"\2\2\0"),
    ("malformed", INTS, pa.list_(pa.int8()), b"\3\6\2\3\0"),  # a block of another size than it says
    ("malformed", INTS, pa.list_(pa.int8()), b"\3\2\2\3\0"),
    ("malformed", INTS, pa.list_(pa.int8()), b"\3\1\2\3\0"),
    ("malformed", INTS, pa.list_(pa.int8()), b"\3\x0e\2\3\0"),
    ("malformed", INTS, pa.list_(pa.int32()), b"\2" + number(2**31) + b"\0"),
    ("malformed", NOTHINGS, pa.list_(pa.int8()), number(20_000_000) + b"\0"),
    ("malformed", FLOATS, pa.list_(pa.float32()), b"\4\0\0\0\x3f\0"),
    ("malformed", STRINGS, pa.list_(pa.string()), b"\4\2x\4y\0"),
]  # fmt: skip
SEVERAL = 5
AFTER = "expected one value of the schema, and nothing after it"


def made(type_: Any, column: pa.DataType, data: bytes) -> tuple[Any, bytes]:
    """A decoder, and a datum with a key before the value and a text after it."""
    columns = pa.schema([("id", pa.int64()), ("v", column), ("s", pa.string())])
    return decoder(record([("id", "long"), ("v", type_), ("s", "string")]), columns), b"\2" + data + b"\2!"


@pytest.mark.parametrize(("type_", "column", "data", "cell"), GOOD)
def test_bytes_are_a_cell(type_: Any, column: pa.DataType, data: bytes, cell: Any) -> None:
    of, datum = made(type_, column, data)
    if column == pa.uuid():
        expected = pa.ExtensionArray.from_storage(column, pa.array([cell], pa.binary(16)))
    else:
        expected = (
            pa.array([cell], pa.string()).cast(column) if pa.types.is_decimal(column) else pa.array([cell], column)
        )
    found = decoded(of, [datum] * SEVERAL)
    assert found.refused == []
    for part in found.parts:
        assert set(texts(part.columns[1])) == set(texts(expected))
        assert part.columns[1].type == column
        assert set(part.columns[2].to_pylist()) == {"!"}
    assert by_one(of, [datum] * SEVERAL) == outcomes(found)


@pytest.mark.parametrize(("kind", "type_", "column", "data"), BAD)
def test_bytes_are_refused(kind: str, type_: Any, column: pa.DataType, data: bytes) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", column)])
    of = decoder(record([("id", "long"), ("v", type_)]), columns)
    found = decoded(of, [b"\2" + data] * SEVERAL)
    assert [one.kind for one in found.refused] == [kind] * SEVERAL
    assert kind in KINDS
    assert all(one.message.startswith("column 'v") or one.message == AFTER for one in found.refused)
    assert by_one(of, [b"\2" + data] * SEVERAL) == outcomes(found)


@pytest.mark.parametrize("case", range(len(BAD)))
def test_a_refused_neighbour_changes_nothing(case: int) -> None:
    kind, type_, column, data = BAD[case]
    nullable = ["null", type_] if not isinstance(type_, list) else type_
    prefix = b"\2" if nullable is not type_ else b""
    columns = pa.schema([("id", pa.int64()), ("v", column)])
    of = decoder(record([("id", "long"), ("v", nullable)]), columns)
    good = [number(place) + b"\0" for place in range(9)]
    found = decoded(of, [*good[:4], b"\2" + prefix + data, *good[4:]])
    (refused,) = found.refused
    assert (refused.place, refused.kind) == (4, kind)
    assert sorted(cell for part in found.parts for cell in part.columns[0].to_pylist()) == list(range(9))


def test_every_flip_and_every_cut_of_small_records_is_decided_alike() -> None:
    """A short text, a number, a list and a union have nearly all kinds of bytes."""
    types: list[tuple[str, Any, pa.DataType]] = [
        ("id", "long", pa.int64()),
        ("s", ["null", "string"], pa.string()),
        ("e", ABC, pa.string()),
        ("d", logical("bytes", "decimal", precision=4, scale=2), pa.decimal128(8, 4)),
        ("l", {"type": "array", "items": ["null", "int"]}, pa.list_(pa.int16())),
        ("m", PAIRS, pa.list_(PAIR_COLUMN)),
        ("f", FLOATS, pa.list_(pa.float32(), 1)),
        ("b", "boolean", pa.bool_()),
    ]
    columns = pa.schema([(name, column) for name, _, column in types])
    of = decoder(record([(name, type_) for name, type_, _ in types]), columns)
    datum = b"\x82\4" + b"\2\4xy" + b"\2" + b"\4\1\x23" + b"\4\2\6\0\0" + b"\2\4\2\2q\0" + b"\2\0\0\x80\x3f\0" + b"\1"
    values = [datum[:end] for end in range(len(datum))]
    values += [datum[:at] + bytes([byte]) + datum[at + 1 :] for at in range(len(datum)) for byte in range(256)]
    values += [datum[:at] + datum[at + 1 :] for at in range(len(datum))]
    values += [datum[:at] + b"\0" + datum[at:] for at in range(len(datum))]
    found = decoded(of, values)
    assert outcomes(found) == by_one(of, values)
    assert {one.kind for one in found.refused} == {"malformed", "range"}
    assert of.single_records < 2 * len(values)


def test_lists_of_nothing_have_together_no_more_items_than_the_record_has_bytes() -> None:
    columns = pa.schema(
        [("id", pa.int64()), ("a", pa.list_(pa.int8())), ("b", pa.list_(pa.int8())), ("s", pa.string())]
    )
    of = decoder(record([("id", "long"), ("a", NOTHINGS), ("b", NOTHINGS), ("s", "string")]), columns)
    values = [b"\2" + number(count) + b"\0" + number(count) + b"\0" + sized(b"x" * 50) for count in (20, 28, 29, 40)]
    found = decoded(of, values)
    assert {one.place: one.kind for one in found.refused} == {2: "malformed", 3: "malformed"}
    assert outcomes(found) == by_one(of, values)


def test_a_message_holds_nothing_of_the_value() -> None:
    secret = b"xq7secretqx"
    types = ["string", "bytes", logical("string", "uuid"), DECIMAL_3, STRINGS, MAP, fixed(3), ABC, ZONED]
    columns = [
        pa.string(),
        pa.binary(4),
        pa.uuid(),
        pa.decimal128(3, 0),
        pa.list_(pa.string()),
        MAP_COLUMN,
        pa.binary(),
        pa.string(),
        UTC,
    ]
    for type_, column in zip(types, columns, strict=True):
        of = decoder(record([("id", "long"), ("v", type_)]), pa.schema([("id", pa.int64()), ("v", column)]))
        values = [
            b"\2" + before + secret + after for before in (b"", b"\x16", b"\2\x16") for after in (b"", b"\0", b"\xff")
        ]
        found = decoded(of, values)
        assert len(found.refused) > 3
        for one in found.refused:
            assert secret.decode() not in one.message + one.found
            assert len(one.message) < 200


def test_payloads_come_after_frames_of_any_length() -> None:
    of, datum = made("string", pa.string(), b"\2x")
    values = [b"\0" * (place % 7) + datum for place in range(50)]
    found = of.decode(Payloads.of(values, np.arange(50) % 7), np.zeros(50, np.uint8))
    assert found.refused == []
    assert [part.columns[1].to_pylist() for part in found.parts] == [["x"] * 50]


def test_payloads_that_lie_far_from_each_other_are_copied_together() -> None:
    of, datum = made("string", pa.string(), b"\2x")
    values = [b"\0" * 5000 + datum for _ in range(200)]
    found = of.decode(Payloads.of(values, 5000), np.zeros(200, np.uint8))
    assert sum(len(part.indexes) for part in found.parts) == 200
    assert found.refused == []


def test_no_payloads_give_no_rows() -> None:
    of, _ = made("string", pa.string(), b"")
    assert outcomes(decoded(of, [])) == {}
