"""Which bytes are which cells, and which are refused, by both readers: bytes written by hand from the specification."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.rows.schema import Op
from lancewal_ingest.decode.naming import Names, Naming, OtherName
from tests.ingest.decode.framed.outcomes import by_one, decoded, outcomes
from tests.ingest.decode.framed.protobuf.cases import HEAD, decoder, tagged, varint

ID = tagged(1, 0, b"\7")
CUT = b"\xff" * 9
NAN = b"\0\0\xc0\x7f"
INNER = pa.struct([("a", pa.int32()), ("s", pa.string())])
MESSAGE = "message In { optional int32 a = 1; optional string s = 2; } message Empty { }"


def message(fields: str, syntax: str = "proto3") -> str:
    label = "optional " if syntax == "proto2" else ""
    return HEAD.format(syntax=syntax) + MESSAGE + f" message Row {{ {label}int64 id = 1; {fields} }}"


def outcome(text: str, column: pa.DataType, data: bytes) -> str | list[Any]:
    """What becomes of a payload with a column ``v``: the kind of the refusal, or the cell in a list."""
    of = decoder(text, pa.schema([("id", pa.int64()), ("v", column)]))
    found = decoded(of, [ID + data, ID + data])
    assert outcomes(found) == by_one(of, [ID + data, ID + data])
    if found.refused:
        return found.refused[0].kind
    array = found.parts[0].columns[1]
    if pa.types.is_temporal(column):
        array = array.cast(pa.int64())
    cells: list[Any] = array.slice(0, 1).to_pylist()
    return cells


def whole(kind: str, column: pa.DataType, data: bytes) -> str | list[Any]:
    return outcome(message(f"optional {kind} v = 2;"), column, data)


def number(value: int) -> bytes:
    return tagged(2, 0, varint(value))


@pytest.mark.parametrize(
    ("kind", "column", "data", "expected"),
    [
        ("int32", pa.int32(), number(-1), [-1]),
        ("int32", pa.int32(), number(2**31 - 1), [2**31 - 1]),
        ("int32", pa.int32(), number(2**40), "malformed"),
        ("int32", pa.int32(), number(2**31), "malformed"),
        ("int32", pa.int32(), number(2**32 - 1), "malformed"),  # not -1: its sign has 64 bits
        ("int32", pa.int32(), number(-(2**31)), [-(2**31)]),
        ("int32", pa.int32(), number(-(2**31) - 1), "malformed"),
        ("int32", pa.int8(), number(128), "range"),
        ("int32", pa.uint8(), number(-1), "range"),
        ("int32", pa.float32(), number(2**24), [2.0**24]),
        ("int32", pa.float32(), number(2**24 + 1), "range"),
        ("int64", pa.int64(), number(-(2**63)), [-(2**63)]),
        ("int64", pa.uint64(), number(-1), "range"),
        ("uint32", pa.uint32(), number(2**32 - 1), [2**32 - 1]),
        ("uint32", pa.uint32(), number(2**32), "malformed"),
        ("uint64", pa.uint64(), number(2**64 - 1), [2**64 - 1]),
        ("uint64", pa.int64(), number(2**63), "range"),
        ("sint32", pa.int32(), number(2**32 - 1), [-(2**31)]),
        ("sint32", pa.int32(), number(2**32), "malformed"),
        ("sint64", pa.int64(), number(2**64 - 1), [-(2**63)]),
        ("int64", pa.int64(), tagged(2, 0, b"\x80\x00"), [0]),  # more bytes than it needs, up to 10
        ("int64", pa.int64(), tagged(2, 0, b"\x81" + b"\x80" * 8 + b"\x00"), [1]),
        ("int64", pa.int64(), tagged(2, 0, CUT + b"\1"), [-1]),
        ("int64", pa.int64(), tagged(2, 0, CUT + b"\2"), "malformed"),
        ("int64", pa.int64(), tagged(2, 0, CUT + b"\x80\0"), "malformed"),
        ("int64", pa.int64(), tagged(2, 0, b"\x80"), "malformed"),
        ("fixed32", pa.int64(), tagged(2, 5, b"\xff" * 4), [2**32 - 1]),
        ("fixed32", pa.int32(), tagged(2, 5, b"\xff" * 4), "range"),
        ("sfixed32", pa.int32(), tagged(2, 5, b"\xff" * 4), [-1]),
        ("sfixed32", pa.uint32(), tagged(2, 5, b"\xff" * 4), "range"),
        ("fixed64", pa.uint64(), tagged(2, 1, b"\xff" * 8), [2**64 - 1]),
        ("fixed64", pa.int64(), tagged(2, 1, b"\xff" * 8), "range"),
        ("sfixed64", pa.int64(), tagged(2, 1, b"\xff" * 8), [-1]),
        ("fixed32", pa.int64(), tagged(2, 5, b"\0" * 3), "malformed"),
        ("fixed64", pa.int64(), tagged(2, 1, b"\0" * 7), "malformed"),
        ("float", pa.float64(), tagged(2, 5, np.float32(0.1).tobytes()), [float(np.float32(0.1))]),
        ("double", pa.float64(), tagged(2, 1, np.float64(0.1).tobytes()), [0.1]),
        ("bool", pa.bool_(), number(1), [True]),
        ("bool", pa.bool_(), number(0), [False]),
        ("bool", pa.bool_(), number(2), "malformed"),
        ("bool", pa.bool_(), number(2**63), "malformed"),
        ("Kind", pa.string(), number(7), ["SEVEN"]),
        ("Kind", pa.large_string(), number(-1), ["NEGATIVE"]),
        ("Kind", pa.string(), number(1), "malformed"),
        ("Kind", pa.string(), number(2**32 + 7), "malformed"),
        ("string", pa.string(), tagged(2, 2, "ü".encode()), ["ü"]),
        ("string", pa.string(), tagged(2, 2), [""]),
        ("string", pa.string(), tagged(2, 2, b"\xff"), "malformed"),
        ("string", pa.string(), tagged(2, 2, b"\xed\xa0\x80"), "malformed"),
        ("string", pa.string(), varint(2 << 3 | 2) + b"\5abcd", "malformed"),
        ("string", pa.string(), varint(2 << 3 | 2) + CUT + b"\1", "malformed"),
        ("string", pa.uuid(), tagged(2, 2, b"123E4567-e89b-12d3-a456-426614174000"),
         [UUID("123e4567-e89b-12d3-a456-426614174000")]),
        ("string", pa.uuid(), tagged(2, 2, b"123e4567e89b12d3a456426614174000"), "type"),
        ("string", pa.uuid(), tagged(2, 2), "type"),
        ("bytes", pa.binary(), tagged(2, 2, b"\0\xff"), [b"\0\xff"]),
        ("bytes", pa.binary(3), tagged(2, 2, b"abc"), [b"abc"]),
        ("bytes", pa.binary(3), tagged(2, 2, b"ab"), "type"),
        ("bytes", pa.list_(pa.float32(), 2), tagged(2, 2, np.array([1, 2], "<f4").tobytes()), [[1.0, 2.0]]),
        ("bytes", pa.list_(pa.float32(), 2), tagged(2, 2, b"\0" * 7), "type"),
        ("In", INNER, tagged(2, 2, tagged(1, 0, b"\5")), [{"a": 5, "s": None}]),
        ("In", INNER, tagged(2, 2), [{"a": None, "s": None}]),
        ("In", INNER, tagged(2, 2, tagged(1, 0)), "malformed"),
        ("In", INNER, tagged(2, 2, b"\x0f"), "malformed"),
        ("Empty", INNER, tagged(2, 2), [{"a": None, "s": None}]),
        ("google.protobuf.Int64Value", pa.int64(), tagged(2, 2, tagged(1, 0, b"\5")), [5]),
        ("google.protobuf.Int64Value", pa.int64(), tagged(2, 2), [0]),
        ("google.protobuf.StringValue", pa.string(), tagged(2, 2), [""]),
        ("google.protobuf.BytesValue", pa.binary(3), tagged(2, 2), "type"),
        ("google.protobuf.Timestamp", pa.timestamp("us", "UTC"), tagged(2, 2), [0]),
        ("google.protobuf.Timestamp", pa.timestamp("us", "UTC"),
         tagged(2, 2, tagged(1, 0, varint(-1)) + tagged(2, 0, varint(999_999_000))), [-1]),
        ("google.protobuf.Timestamp", pa.timestamp("us", "UTC"), tagged(2, 2, tagged(2, 0, varint(1))), "range"),
        ("google.protobuf.Timestamp", pa.timestamp("ns", "UTC"), tagged(2, 2, tagged(2, 0, varint(10**9))), "range"),
        ("google.protobuf.Timestamp", pa.timestamp("ns", "UTC"), tagged(2, 2, tagged(2, 0, varint(-1))), "range"),
        ("google.protobuf.Timestamp", pa.timestamp("s", "UTC"), tagged(2, 2, tagged(1, 0, varint(253_402_300_800))),
         "range"),
        ("google.protobuf.Timestamp", pa.timestamp("s", "UTC"), tagged(2, 2, tagged(1, 0, varint(253_402_300_799))),
         [253_402_300_799]),
        ("google.protobuf.Timestamp", pa.timestamp("ns", "UTC"),
         tagged(2, 2, tagged(1, 0, varint(9_223_372_036)) + tagged(2, 0, varint(854_775_807))), [2**63 - 1]),
        ("google.protobuf.Timestamp", pa.timestamp("ns", "UTC"),
         tagged(2, 2, tagged(1, 0, varint(9_223_372_036)) + tagged(2, 0, varint(854_775_808))), "range"),
        ("google.protobuf.Duration", pa.duration("ms"),
         tagged(2, 2, tagged(1, 0, varint(-1)) + tagged(2, 0, varint(-500_000_000))), [-1500]),
        ("google.protobuf.Duration", pa.duration("ms"),
         tagged(2, 2, tagged(1, 0, varint(1)) + tagged(2, 0, varint(-500_000_000))), "range"),
        ("google.protobuf.Duration", pa.duration("s"), tagged(2, 2, tagged(1, 0, varint(315_576_000_001))), "range"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_value_is_its_cell_or_refused(kind: str, column: pa.DataType, data: bytes, expected: str | list[Any]) -> None:
    assert whole(kind, column, data) == expected


@pytest.mark.parametrize(
    ("kind", "column", "data", "expected"),
    [
        ("int32", pa.list_(pa.int32()), tagged(2, 2, b"\1\2"), [[1, 2]]),
        ("int32", pa.list_(pa.int32()), number(1) + number(2), [[1, 2]]),
        ("int32", pa.list_(pa.int32()), number(1) + tagged(2, 2, b"\2\3") + number(4), [[1, 2, 3, 4]]),
        ("int32", pa.list_(pa.int32()), tagged(2, 2), [[]]),
        ("int32", pa.list_(pa.int32()), b"", [[]]),
        ("int32", pa.list_(pa.int32()), tagged(2, 2, b"\1\x80"), "malformed"),
        ("int32", pa.list_(pa.int32()), tagged(2, 2, varint(2**40)), "malformed"),
        ("int32", pa.list_(pa.int8()), tagged(2, 2, varint(200)), "range"),
        ("int32", pa.list_(pa.int32()), tagged(2, 5, b"\0" * 4), "malformed"),
        ("fixed32", pa.list_(pa.int64()), tagged(2, 2, b"\1\0\0\0\2\0\0\0"), [[1, 2]]),
        ("fixed32", pa.list_(pa.int64()), tagged(2, 2, b"\1\0\0\0\2"), "malformed"),
        ("float", pa.list_(pa.float32()), tagged(2, 2, b"\0" * 5), "malformed"),  # not [0.0]
        ("float", pa.list_(pa.float32()), tagged(2, 2, NAN[:3]), "malformed"),
        ("float", pa.list_(pa.float32(), 2), tagged(2, 2, b"\0" * 8), [[0.0, 0.0]]),
        ("float", pa.list_(pa.float64(), 2), tagged(2, 5, b"\0" * 4) * 2, [[0.0, 0.0]]),
        ("float", pa.list_(pa.float32(), 2), tagged(2, 2, b"\0" * 4), "type"),
        ("float", pa.list_(pa.float32(), 2), b"", [None]),
        ("uint32", pa.list_(pa.uint8(), 2), tagged(2, 2, b"\1\x80\1"), [[1, 128]]),
        ("uint32", pa.list_(pa.uint8(), 2), tagged(2, 2, b"\1\x80\2"), "range"),
        ("Kind", pa.list_(pa.string()), tagged(2, 2, b"\7\0"), [["SEVEN", "ZERO"]]),
        ("Kind", pa.list_(pa.string()), tagged(2, 2, b"\7\1"), "malformed"),
        ("bool", pa.list_(pa.bool_()), tagged(2, 2, b"\1\0"), [[True, False]]),
        ("string", pa.list_(pa.string()), tagged(2, 2, b"a") + tagged(2, 2), [["a", ""]]),
        ("string", pa.list_(pa.string()), tagged(2, 2, b"a") * 100, [["a"] * 100]),
        ("string", pa.list_(pa.string()), tagged(2, 2, b"a") + tagged(2, 2, b"\xff"), "malformed"),
        ("In", pa.list_(INNER), tagged(2, 2) + tagged(2, 2, tagged(2, 2, b"x")),
         [[{"a": None, "s": None}, {"a": None, "s": "x"}]]),
        ("bytes", pa.list_(pa.list_(pa.float32(), 1)), tagged(2, 2, b"\0" * 4), [[[0.0]]]),
        ("bytes", pa.list_(pa.binary(2)), tagged(2, 2), "type"),
        ("google.protobuf.Int64Value", pa.list_(pa.int64()), tagged(2, 2), [[0]]),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_repeated_field_is_a_list_or_a_vector(
    kind: str, column: pa.DataType, data: bytes, expected: str | list[Any]
) -> None:
    assert outcome(message(f"repeated {kind} v = 2;"), column, data) == expected


@pytest.mark.parametrize(
    ("value", "item", "data", "expected"),
    [
        ("int32", pa.int32(), tagged(2, 2, tagged(1, 2, b"k") + tagged(2, 0, b"\5")), [[("k", 5)]]),
        ("int32", pa.int32(), tagged(2, 2, tagged(2, 0, b"\5") + tagged(1, 2, b"k")), [[("k", 5)]]),
        ("int32", pa.int32(), tagged(2, 2), [[("", 0)]]),
        ("int32", pa.int32(), b"", [[]]),
        ("int32", pa.int32(), tagged(2, 2, tagged(1, 2, b"k")) * 2, "duplicate_member"),
        ("int32", pa.int32(), tagged(2, 2, tagged(1, 2, b"k")) + tagged(2, 2), [[("k", 0), ("", 0)]]),
        ("In", INNER, tagged(2, 2, tagged(1, 2, b"k")), [[("k", {"a": None, "s": None})]]),
        ("bytes", pa.binary(2), tagged(2, 2, tagged(1, 2, b"k")), "type"),
        ("google.protobuf.Timestamp", pa.timestamp("us", "UTC"), tagged(2, 2, tagged(1, 2, b"k")), None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_map_has_its_entries_in_their_order(
    value: str, item: pa.DataType, data: bytes, expected: str | list[Any] | None
) -> None:
    found = outcome(message(f"map<string, {value}> v = 2;"), pa.map_(pa.string(), item), data)
    if expected is None:
        assert isinstance(found, list)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("kind", "column", "expected"),
    [
        ("int32", pa.int8(), 0), ("bool", pa.bool_(), False), ("double", pa.float64(), 0.0), ("string", pa.string(), ""),
        ("bytes", pa.binary(), b""), ("Kind", pa.string(), "ZERO"), ("bytes", pa.binary(2), None),
        ("string", pa.uuid(), None), ("In", INNER, None), ("google.protobuf.Int64Value", pa.int64(), None),
        ("bytes", pa.list_(pa.float32(), 2), None),
    ],
    ids=str,
)  # fmt: skip
def test_an_absent_field_without_presence_is_zero(kind: str, column: pa.DataType, expected: Any) -> None:
    assert outcome(message(f"{kind} v = 2;"), column, b"") == [expected]
    assert outcome(message(f"optional {kind} v = 2;"), column, b"") == [None]
    assert outcome(message(f"optional {kind} v = 2;", "proto2"), column, b"") == [None]


def test_no_bytes_are_no_value_of_a_size_where_a_field_has_no_presence() -> None:
    assert outcome(message("bytes v = 2;"), pa.binary(2), tagged(2, 2)) == [None]
    assert outcome(message("string v = 2;"), pa.uuid(), tagged(2, 2)) == [None]
    assert outcome(message("bytes v = 2;"), pa.binary(2), tagged(2, 2, b"x")) == "type"


@pytest.mark.parametrize("default", ["", " [default = 5]"])
def test_a_default_of_the_schema_changes_nothing(default: str) -> None:
    assert outcome(message(f"optional int32 v = 2{default};", "proto2"), pa.int32(), b"") == [None]


def test_a_required_field_must_be_there() -> None:
    text = message("required int32 v = 2;", "proto2")
    assert outcome(text, pa.int32(), b"") == "malformed"
    assert outcome(text, pa.int32(), number(0)) == [0]


def test_the_last_value_of_a_field_counts() -> None:
    assert whole("int32", pa.int8(), number(300) + number(5)) == [5]
    assert whole("int32", pa.int8(), number(5) + number(300)) == "range"
    assert whole("int32", pa.int8(), number(2**40) + number(5)) == "malformed"
    first, second = tagged(2, 2, tagged(1, 0, b"\5")), tagged(2, 2, tagged(2, 2, b"x"))
    assert whole("In", INNER, first + second) == [{"a": 5, "s": "x"}]
    assert whole("google.protobuf.Int64Value", pa.int64(), tagged(2, 2, tagged(1, 0, b"\5")) + tagged(2, 2)) == [5]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (varint(2 << 3 | 2) + b"\5", b"hello"), (varint(1 << 3), b"\5"), (b"\x88", b"\0\5"),
        (tagged(9, 3), tagged(9, 4)), (varint(9 << 3 | 1) + b"\0" * 3, b"\0" * 5), (tagged(1, 0, b"\x81"), b"\1"),
    ],
    ids=bytes.hex,
)  # fmt: skip
def test_a_value_does_not_go_on_in_the_next_piece_of_its_message(first: bytes, second: bytes) -> None:
    assert whole("In", INNER, tagged(2, 2, first) + tagged(2, 2, second)) == "malformed"
    assert whole("In", INNER, tagged(2, 2) + tagged(2, 2, first + second)) != "malformed"


def test_a_member_of_a_oneof_that_does_not_count_is_well_formed() -> None:
    text = message("oneof o { int32 w = 3; In v = 2; } ")
    of = decoder(text, pa.schema([("id", pa.int64()), ("v", INNER), ("w", pa.int32())]))
    payloads = [ID + tagged(2, 2, b"\x0f") + tagged(3, 0, b"\1"),
                ID + tagged(2, 2, b"\x0f") + tagged(3, 0, b"\1") + tagged(2, 2)]  # fmt: skip
    assert {one.kind for one in decoded(of, payloads).refused} == {"malformed"}


def test_the_last_member_of_a_oneof_clears_the_others() -> None:
    text = message("oneof o { int32 w = 3; In v = 2; } ")
    columns = pa.schema([("id", pa.int64()), ("v", INNER), ("w", pa.int8())])
    of = decoder(text, columns)
    five, x = tagged(2, 2, tagged(1, 0, b"\5")), tagged(2, 2, tagged(2, 2, b"x"))
    payloads = [ID + five + tagged(3, 0, b"\1"), ID + tagged(3, 0, b"\1") + five, ID + five + tagged(3, 0, b"\1") + x,
                ID + five + x, ID + tagged(3, 0, varint(300)) + five]  # fmt: skip
    found = decoded(of, payloads)
    assert outcomes(found) == by_one(of, payloads)
    rows = {
        int(place): (v, w)
        for part in found.parts
        for place, v, w in zip(part.indexes, part.columns[1].to_pylist(), part.columns[2].to_pylist(), strict=True)
    }
    assert rows == {
        0: (None, 1),
        1: ({"a": 5, "s": None}, None),
        2: ({"a": None, "s": "x"}, None),
        3: ({"a": 5, "s": "x"}, None),
        4: ({"a": 5, "s": None}, None),
    }


@pytest.mark.parametrize(
    "data",
    [
        tagged(2, 1, b"\0" * 8), tagged(2, 5, b"\0" * 4), tagged(2, 2, b"\1"), tagged(2, 3) + tagged(2, 4), tagged(2, 4),
        tagged(2, 6), tagged(2, 7),
    ],
    ids=bytes.hex,
)  # fmt: skip
def test_a_known_field_in_another_wire_type_is_refused(data: bytes) -> None:
    assert whole("int32", pa.int32(), data) == "malformed"


@pytest.mark.parametrize(
    "data",
    [
        varint(0), b"\2\0", tagged(9, 4), tagged(9, 3), tagged(9, 3) + tagged(8, 4), tagged(9, 6), tagged(9, 7),
        varint(1 << 32),
        varint(1 << 32) + b"\0",
        tagged(9, 0, CUT + b"\2"), b"\x90\x80\x80\x80\x80\x00\x05", tagged(9, 2)[:-1] + b"\5abc", tagged(9, 1, b"\0"),
        tagged(9, 5, b"\0"), tagged(9, 0), tagged(9, 0, b"\xff" * 10), b"\x80", tagged(9, 3) + b"\0",
    ],
    ids=bytes.hex,
)  # fmt: skip
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    assert whole("int32", pa.int32(), data) == "malformed"


@pytest.mark.parametrize(
    "data",
    [
        tagged(9, 0, b"\5"), tagged(9, 1, b"\0" * 8), tagged(9, 2, b"abc"), tagged(9, 5, b"\0" * 4),
        tagged(9, 3) + tagged(1, 0, b"\1") + tagged(2, 3) + tagged(2, 4) + tagged(9, 4), tagged((1 << 29) - 1, 0, b"\1"),
    ],
    ids=bytes.hex,
)  # fmt: skip
def test_numbers_that_the_schema_does_not_know_are_passed_over_and_counted(data: bytes) -> None:
    of = decoder(message("optional int32 v = 2;"), pa.schema([("id", pa.int64()), ("v", pa.int32())]))
    for place in (data + ID + number(5), ID + data + number(5), ID + number(5) + data):
        found = decoded(of, [place, ID + number(5)])
        assert {cell for part in found.parts for cell in part.columns[1].to_pylist()} == {5}
        unknown = 9 if data[0] >> 3 == 9 else (1 << 29) - 1
        assert found.other_names == {OtherName("unknown", str(unknown)): 1}


def test_unknown_numbers_are_counted_within_messages_and_of_rows_alone() -> None:
    of = decoder(message("In v = 2;"), pa.schema([("id", pa.int64()), ("v", INNER)]))
    inner = tagged(2, 2, tagged(9, 0, b"\1") * 3)
    found = decoded(of, [ID + inner, ID + inner + b"\x80"])
    assert found.other_names == {OtherName("unknown", "v.9"): 3}
    many = ID + b"".join(tagged(number, 0, b"\1") for number in range(20, 20 + 500))
    found = decoded(of, [many])
    assert (len(found.other_names), sum(found.other_names.values())) == (101, 500)


def test_fields_in_any_order_are_read() -> None:
    text = message("optional int32 a = 2; optional string b = 3; repeated int32 c = 4; optional In d = 5;")
    columns = pa.schema(
        [("id", pa.int64()), ("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.int32())), ("d", INNER)]
    )
    of = decoder(text, columns)
    a, b, c = number(1), tagged(3, 2, b"x"), tagged(4, 2, b"\1\2")
    d = tagged(5, 2, tagged(2, 2, b"y") + tagged(1, 0, b"\3"))
    payloads = [ID + a + b + c + d, d + c + b + a + ID, c + ID + d + a + b, b + ID]
    found = decoded(of, payloads)
    assert outcomes(found) == by_one(of, payloads)
    rows = sorted(
        (int(place), *cells)
        for part in found.parts
        for place, *cells in zip(part.indexes, *(column.to_pylist() for column in part.columns), strict=True)
    )
    whole_ = (7, 1, "x", [1, 2], {"a": 3, "s": "y"})
    assert rows == [(0, *whole_), (1, *whole_), (2, *whole_), (3, 7, None, "x", [], None)]


def test_what_follows_a_cut_run_is_not_read_with_it() -> None:
    text = message("repeated int32 v = 2; string s = 18;")
    of = decoder(text, pa.schema([("id", pa.int64()), ("v", pa.list_(pa.int32())), ("s", pa.string())]))
    # The last byte of the run and the next one would be the tag of the text.
    payload = ID + tagged(2, 2, b"\1\x92") + b"\1\1a"
    assert [one.kind for one in decoded(of, [payload]).refused] == ["malformed"]


def test_payloads_in_the_order_of_numbers_are_read_together() -> None:
    of = decoder(message("repeated string v = 2;"), pa.schema([("id", pa.int64()), ("v", pa.list_(pa.string()))]))
    decoded(of, [ID + tagged(2, 2, b"a") * count for count in range(60)])
    decoded(of, [ID, tagged(2, 2, b"a"), b""] * 20)
    assert of.single_records == 0


def test_groups_that_are_passed_over_have_a_limit_of_depth() -> None:
    deep = tagged(9, 3) * 65 + tagged(9, 4) * 65
    assert whole("int32", pa.int32(), deep) == "too_deep"
    assert whole("int32", pa.int32(), tagged(9, 3) * 64 + tagged(9, 4) * 64) == [None]


def test_fields_that_are_passed_over_are_checked_for_their_wire_type() -> None:
    ignoring = Naming(Names({"id": None, "v": None}, ignores=True))
    text = message("optional int32 v = 2; string t = 3; repeated int32 n = 4; fixed64 f = 5; In m = 6;")
    of = decoder(text, pa.schema([("id", pa.int64()), ("v", pa.int32())]), ignoring)
    good = tagged(3, 2, b"\xff") + tagged(4, 2, b"\1\x80") + tagged(4, 0, b"\1") + tagged(5, 1, b"x" * 8)
    good += tagged(6, 2, b"\xff")
    bad = [
        tagged(3, 0, b"\1"),
        tagged(4, 5, b"\0" * 4),
        tagged(5, 0, b"\1"),
        tagged(6, 0, b"\1"),
        tagged(3, 2, b"ab")[:-1],
    ]
    found = decoded(of, [ID + good, *(ID + data for data in bad)])
    assert [one.kind for one in found.refused] == ["malformed"] * len(bad)
    assert by_one(of, [ID + good, *(ID + data for data in bad)]) == outcomes(found)
    assert found.other_names[OtherName("unknown", "t")] == 1


def test_patches_tell_their_columns_where_each_field_has_presence() -> None:
    columns = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("w", pa.string())])
    of = decoder(message("optional int32 v = 2; optional string w = 3;"), columns)
    assert of.tells_presence
    data = [ID + number(0), ID, ID + number(1) + tagged(3, 2)]
    found = decoded(of, data, [Op.PATCH, Op.PATCH, Op.UPSERT])
    (part,) = found.parts
    assert part.present.to_pylist() == [b"\3", b"\1", None]
    assert not decoder(message("int32 v = 2; optional string w = 3;"), columns).tells_presence
    listed = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.int32()))])
    assert not decoder(message("repeated int32 v = 2;"), listed).tells_presence


def test_a_missing_value_has_the_default_of_its_column_in_an_upsert() -> None:
    columns = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("w", pa.string())])
    naming = Naming(defaults={"v": "9", "w": '"d"'})
    of = decoder(message("optional int32 v = 2;"), columns, naming)
    found = decoded(of, [ID, ID + number(5), ID, b"\x08\x80\0"], [Op.UPSERT, Op.UPSERT, Op.PATCH, Op.UPSERT])
    rows = {
        int(place): (v, w)
        for part in found.parts
        for place, v, w in zip(part.indexes, part.columns[1].to_pylist(), part.columns[2].to_pylist(), strict=True)
    }
    assert rows == {0: (9, "d"), 1: (5, "d"), 2: (None, None), 3: (9, "d")}
    implicit = decoder(message("int32 v = 2; string w = 3;"), columns, naming)
    (part,) = decoded(implicit, [ID]).parts
    assert [column.to_pylist() for column in part.columns] == [[7], [0], [""]]


def test_an_absent_key_is_missing_or_zero() -> None:
    columns = pa.schema([("id", pa.int64())])
    (refused,) = decoded(decoder('syntax = "proto3"; message Row { optional int64 id = 1; }', columns), [b""]).refused
    assert refused.kind == "missing_key"
    (part,) = decoded(decoder('syntax = "proto3"; message Row { int64 id = 1; }', columns), [b""]).parts
    assert part.columns[0].to_pylist() == [0]
