"""Each type's JSON form, with values written by hand; every case holds for both paths."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.json.cells import base64_bytes
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.weight import slot_bits
from tests.ingest.decode.json.cases import Ways, records

NEWEST = UUID("019f3a6e-7c1b-7b1a-9c3d-0123456789ab")
F32_AFTER_ONE = 1.00000011920928955078125

GOOD: list[tuple[str, str, object]] = [
    ("ok", "true", True),
    ("ok", "false", False),
    ("ok", "null", None),
    ("i8", "-128", -128),
    ("i8", "127", 127),
    ("i8", "-0", 0),
    ("u8", "255", 255),
    ("u8", "-0", 0),
    ("id", "9223372036854775807", 2**63 - 1),
    ("id", "-9223372036854775808", -(2**63)),
    ("id", "9007199254740993", 2**53 + 1),
    ("u64", "18446744073709551615", 2**64 - 1),
    ("f", "1", 1.0),
    ("f", "-0.0", -0.0),
    ("f", "-0", -0.0),
    ("f", "0.1", 0.1),
    ("f", "1E5", 100000.0),
    ("f", "9007199254740991", 9007199254740991.0),
    ("f", "9007199254740992", 9007199254740992.0),
    ("f", "9007199254740993.0", 9007199254740992.0),
    ("f", "1.7976931348623157e308", 1.7976931348623157e308),
    ("f", "1e300", 1e300),
    ("f", "1e-400", 0.0),
    ("f", "1e0000000000000000000002", 100.0),
    ("f4", "16777216", 16777216.0),
    ("f4", "16777217.0", 16777216.0),
    ("f4", "3.4028235e38", 3.4028234663852886e38),
    # A little above the middle of two floats, but a double rounds it to the middle, which would then go down to 1.0.
    ("f4", "1.000000059604644775390625000000001", F32_AFTER_ONE),
    ("dec", "1.5", Decimal("1.50")),
    ("dec", '"1.5"', Decimal("1.50")),
    ("dec", '"-999.99"', Decimal("-999.99")),
    ("dec", "1.500", Decimal("1.50")),
    ("dec", "1e2", Decimal("100.00")),
    ("dec", '"100000e-3"', Decimal("100.00")),
    ("dec", "0e50", Decimal("0.00")),
    ("dec", "0e-9999999999", Decimal("0.00")),
    ("dec", '"+.5"', Decimal("0.50")),
    ("dec", '"5."', Decimal("5.00")),
    ("dec", '"007"', Decimal("7.00")),
    ("wide", "12345678.123456789012345678901234567890", Decimal("12345678.123456789012345678901234567890")),
    ("s", '""', ""),
    ("s", '"a\\u0000b"', "a\x00b"),
    ("s", '"\\ud83d\\ude00"', "\U0001f600"),
    ("s", '"é\\u00e9 null {}"', "éé null {}"),
    ("s", '"2024-01-01"', "2024-01-01"),
    ("bin", '""', b""),
    ("bin", '"AP8="', b"\x00\xff"),
    ("bin", '"+/+/"', b"\xfb\xff\xbf"),
    ("bin", '"AP8\\u003d"', b"\x00\xff"),
    ("day", '"2024-02-29"', date(2024, 2, 29)),
    ("day", '"0001-01-01"', date(1, 1, 1)),
    ("day", '"9999-12-31"', date(9999, 12, 31)),
    ("at", '"2024-01-01T00:00:00Z"', datetime(2024, 1, 1, tzinfo=UTC)),
    ("at", '"2024-01-01 01:30:00.25+01:30"', datetime(2024, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)),
    ("at", '"2023-12-31T19:00:00.123456000-05:00"', datetime(2024, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)),
    ("at", '"1969-12-31T23:59:59.5Z"', datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)),
    ("at", '"0001-01-01T00:00:00Z"', datetime(1, 1, 1, tzinfo=UTC)),
    ("at_s", '"2024-07-01T12:00:00.000+02:00"', datetime(2024, 7, 1, 10, tzinfo=UTC)),
    ("local", '"2024-01-01T23:59:59.999"', datetime(2024, 1, 1, 23, 59, 59, 999_000)),
    ("local", '"9999-12-31 23:59:59"', datetime(9999, 12, 31, 23, 59, 59)),
    ("ints", "[]", []),
    ("ints", "[1,null,-3]", [1, None, -3]),
    ("days", '["2024-01-01",null]', [date(2024, 1, 1), None]),
    ("floats", "[1,0.5,1e30]", [1.0, 0.5, 1.0000000150474662e30]),
    ("st", "{}", {"x": None, "day": None, "_": None}),
    ("st", '{"_":"a","x":1}', {"x": 1, "day": None, "_": "a"}),
    ("st", '{"day":"1999-12-31","x":null}', {"x": None, "day": date(1999, 12, 31), "_": None}),
    ("st", "null", None),
    ("sts", '[{"f":1.5},null,{"bin":"AA=="}]', [{"f": 1.5, "bin": None}, None, {"f": None, "bin": b"\x00"}]),
    ("vec", "[1,2.5]", [1.0, 2.5]),
    ("vec", "[1e30,-0.0]", [1.0000000150474662e30, -0.0]),
    ("vec8", "[1,2,3]", [1.0, 2.0, 3.0]),
    ("bits", "[0,255]", [0, 255]),
    ("bits", "[-0,128]", [0, 128]),
    ("bits", "null", None),
    ("fix", '"AP8A"', b"\x00\xff\x00"),
    ("fix", "null", None),
    ("uid", f'"{NEWEST}"', NEWEST),
    ("uid", f'"{str(NEWEST).upper()}"', NEWEST),
    ("uid", f'"{UUID(int=0)}"', UUID(int=0)),
    ("uid", f'"{UUID(int=2**128 - 1)}"', UUID(int=2**128 - 1)),
    ("uid", "null", None),
    ("t32", '"00:00:00"', time(0)),
    ("t32", '"23:59:59.999"', time(23, 59, 59, 999_000)),
    ("t32", '"12:00:00.5000000"', time(12, 0, 0, 500_000)),
    ("t32s", '"23:59:59"', time(23, 59, 59)),
    ("t32s", '"23:59:59.000"', time(23, 59, 59)),
    ("t64", '"23:59:59.999999"', time(23, 59, 59, 999_999)),
    ("t64", '"00:00:00.1"', time(0, 0, 0, 100_000)),
    ("t64", "null", None),
    ("t64n", '"23:59:59.999999000"', time(23, 59, 59, 999_999)),
    ("took", "0", timedelta(0)),
    ("took", "-1", timedelta(microseconds=-1)),
    ("took", "-0", timedelta(0)),
    ("took", "86400000001", timedelta(days=1, microseconds=1)),
    ("took", "null", None),
    ("ls", '""', ""),
    ("ls", '"a\\u0000😀"', "a\x00😀"),
    ("lb", '"AP8="', b"\x00\xff"),
    ("lb", '""', b""),
    ("fixes", '["AP8A",null]', [b"\x00\xff\x00", None]),
    ("fixes", "[]", []),
    ("map", "{}", []),
    ("map", "null", None),
    ("map", '{"b":1,"a":null,"":-2147483648}', [("b", 1), ("a", None), ("", -(2**31))]),
    ("map", '{"\\u0061":1,"A":2, "é\\n":3}', [("a", 1), ("A", 2), ("é\n", 3)]),
    (
        "days_of",
        '{"x":["2024-02-29",null],"y":[],"z":null}',
        [("x", [date(2024, 2, 29), None]), ("y", []), ("z", None)],
    ),
    (
        "deep",
        '{"m":{"k":{"x":1},"l":null,"n":{"mm":{"f":-0.0,"g":null}}},"s":"{}"}',
        {
            "m": [("k", {"x": 1, "mm": None}), ("l", None), ("n", {"x": None, "mm": [("f", -0.0), ("g", None)]})],
            "s": "{}",
        },
    ),
    ("all", '[{},null,{"a":"{}"}]', [[], None, [("a", "{}")]]),
    ("sty", '{"u":"x","t":"01:02:03.000004"}', {"t": time(1, 2, 3, 4), "u": "x", "d": None}),
    ("sty", "{}", {"t": None, "u": None, "d": None}),
]

BAD: list[tuple[str, str, str]] = [
    ("ok", "1", "type"),
    ("ok", '"true"', "type"),
    ("i8", "128", "range"),
    ("i8", "-129", "range"),
    ("i8", "1.0", "type"),
    ("i8", "1e1", "type"),
    ("i8", "true", "type"),
    ("i8", '"1"', "type"),
    ("i8", "[1]", "type"),
    ("u8", "-1", "range"),
    ("id", "9223372036854775808", "range"),
    ("u64", "18446744073709551616", "range"),
    ("u64", "1" + "0" * 6000, "range"),
    ("f", "9007199254740993", "range"),
    ("f", "-9007199254740993", "range"),
    ("f", "1.7976931348623159e308", "range"),
    ("f", "1e400", "range"),
    ("f", "1" + "0" * 6000, "range"),
    ("f", '"1"', "type"),
    ("f", "NaN", "not_json"),
    ("f", "Infinity", "not_json"),
    ("f", "-Infinity", "not_json"),
    ("f4", "16777217", "range"),
    ("f4", "1e39", "range"),
    ("f4", "3.4028236e38", "range"),
    ("f4", "NaN", "not_json"),
    ("dec", "1.001", "range"),
    ("dec", "1000", "range"),
    ("dec", '"999.999"', "range"),
    ("dec", "1e400", "range"),
    ("dec", '"1e99999999999999999999"', "range"),
    ("dec", '" 1"', "type"),
    ("dec", '""', "type"),
    ("dec", '"."', "type"),
    ("dec", '"NaN"', "type"),
    ("dec", '"1_0"', "type"),
    ("dec", "NaN", "not_json"),
    ("dec", "true", "type"),
    ("wide", "123456789", "range"),
    # Times 10^30 these wrap around in 128 bits, the first to a number that fits.
    ("wide", "-9223372036854775808", "range"),
    ("wide", "170141183460469231731687303715884105728", "range"),
    ("wide", "340282366920938463463374607431768211456", "range"),
    ("wide", '"99999999999999999999999999999999999999"', "range"),
    ("s", "1", "type"),
    ("s", '"\\ud800"', "range"),
    ("s", '"\\ude00\\ud83d"', "range"),
    ("s", '"a\nb"', "not_json"),
    ("s", '"a\\qb"', "not_json"),
    ("bin", '"AP8"', "type"),
    ("bin", '"AP8=\\n"', "type"),
    ("bin", '"A P8="', "type"),
    ("bin", '"AP9="', "type"),
    ("bin", '"-_-_"', "type"),
    ("bin", '"é==="', "type"),
    ("day", '"2023-02-29"', "range"),
    ("day", '"2024-13-01"', "range"),
    ("day", '"0000-01-01"', "range"),
    ("day", '"2024-1-1"', "type"),
    ("day", '"2024-01-01T00:00:00"', "type"),
    ("day", '"2024-01-01\\n"', "type"),
    ("day", '"\u0662\u0660\u0662\u0664-\u0660\u0661-\u0660\u0661"', "type"),
    ("day", "19723", "type"),
    ("at", '"2024-01-01T00:00:00"', "type"),
    ("at", '"2024-01-01T00:00:00z"', "type"),
    ("at", '"2024-01-01T00:00:00+0200"', "type"),
    ("at", '"2024-01-01T00:00:00+24:00"', "type"),
    ("at", '"2024-01-01T24:00:00Z"', "type"),
    ("at", '"2024-01-01T00:00:60Z"', "type"),
    ("at", '"2024-01-01T00:00Z"', "type"),
    ("at", '"2024-01-01T00:00:00.Z"', "type"),
    ("at", '"2024-02-30T00:00:00Z"', "range"),
    ("at", '"2024-01-01T00:00:00.1234567Z"', "range"),
    ("at", '"0001-01-01T00:00:00+00:01"', "range"),
    ("at", '"9999-12-31T23:59:59-00:01"', "range"),
    ("at", "1700000000", "type"),
    ("at_s", '"2024-01-01T00:00:00.5Z"', "range"),
    ("local", '"2024-01-01T00:00:00Z"', "type"),
    ("local", '"2024-01-01T00:00:00+02:00"', "type"),
    ("local", '"2024-01-01T00:00:00.0001"', "range"),
    ("fine", '"1677-09-21T00:12:43"', "range"),
    ("fine", '"2262-04-11T23:47:16.854775808"', "range"),
    ("ints", "1", "type"),
    ("ints", "{}", "type"),
    ("ints", "[1,[2]]", "type"),
    ("ints", "[2147483648]", "range"),
    ("days", '["2024-01-01","2024-02-30"]', "range"),
    ("floats", "[1,16777217]", "range"),
    ("floats", "[NaN]", "not_json"),
    ("st", "[]", "type"),
    ("st", '{"x":1,"z":2}', "unknown_column"),
    ("st", '{"x":1,"x":2}', "duplicate_member"),
    ("st", '{"x":1,"\\u0078":2}', "duplicate_member"),
    ("st", '{"x":"1"}', "type"),
    ("st", '{"day":"soon"}', "type"),
    ("sts", '[{"f":1e999}]', "range"),
    ("sts", '[{"bin":"!"}]', "type"),
    ("vec", "[1]", "type"),
    ("vec", "[1,2,3]", "type"),
    ("vec", "[]", "type"),
    ("vec", "[1,null]", "type"),
    ("vec", '[1,"2"]', "type"),
    ("vec", "[1,1e39]", "range"),
    ("vec", "[1,16777217]", "range"),
    ("vec8", "[1,2,9007199254740993]", "range"),
    ("bits", "[1]", "type"),
    ("bits", "[1,2,3]", "type"),
    ("bits", "[]", "type"),
    ("bits", "[1,null]", "type"),
    ("bits", "[1,2.0]", "type"),
    ("bits", "[1,true]", "type"),
    ("bits", '[1,"2"]', "type"),
    ("bits", '"AP8="', "type"),
    ("bits", "[0,256]", "range"),
    ("bits", "[-1,0]", "range"),
    ("fix", '"AP8="', "range"),
    ("fix", '"AP8AAA=="', "range"),
    ("fix", '""', "range"),
    ("fix", '"AP8"', "type"),
    ("fix", "[0,255,0]", "type"),
    ("uid", '""', "type"),
    ("uid", f'"{NEWEST.hex}"', "type"),
    ("uid", f'"{{{NEWEST}}}"', "type"),
    ("uid", f'"urn:uuid:{NEWEST}"', "type"),
    ("uid", f'"{NEWEST} "', "type"),
    ("uid", f'"{NEWEST}\\n"', "type"),
    ("uid", f'"{str(NEWEST)[:-1]}g"', "type"),
    ("uid", f'"{str(NEWEST)[:-1]}٣"', "type"),
    ("uid", "7", "type"),
    ("t32", '"24:00:00"', "type"),
    ("t32", '"23:59:60"', "type"),
    ("t32", '"12:00"', "type"),
    ("t32", '"12:00:00Z"', "type"),
    ("t32", '"1:00:00"', "type"),
    ("t32", '"12:00:00."', "type"),
    ("t32", '"12:00:00\\n"', "type"),
    ("t32", '" 12:00:00"', "type"),
    ("t32", '"1970-01-01 12:00:00"', "type"),
    ("t32", "43200000", "type"),
    ("t32", '"12:00:00.0001"', "range"),
    ("t32s", '"12:00:00.1"', "range"),
    ("t64", '"12:00:00.0000001"', "range"),
    ("t64n", '"12:00:00.0000000001"', "range"),
    ("took", "1.5", "type"),
    ("took", "1e3", "type"),
    ("took", '"1"', "type"),
    ("took", '"PT1S"', "type"),
    ("took", "9223372036854775808", "range"),
    ("took", "-9223372036854775809", "range"),
    ("ls", "1", "type"),
    ("ls", '"\\ud800"', "range"),
    ("lb", '"AP8"', "type"),
    ("fixes", '["AP8A","AP8="]', "range"),
    ("fixes", "[1]", "type"),
    ("map", "[]", "type"),
    ("map", '"{}"', "type"),
    ("map", '[["a",1]]', "type"),
    ("map", "1", "type"),
    ("map", '{"a":"1"}', "type"),
    ("map", '{"a":2147483648}', "range"),
    ("map", '{"a":1,"a":1}', "duplicate_member"),
    ("map", '{"a":1,"\\u0061":2}', "duplicate_member"),
    ("map", '{"\\ud800":1}', "range"),
    ("map", "{null:1}", "not_json"),
    ("map", "{1:1}", "not_json"),
    ("map", '{"a":1,}', "not_json"),
    ("days_of", '{"x":["soon"]}', "type"),
    ("deep", '{"m":{"k":{"x":128}}}', "range"),
    ("deep", '{"m":{"k":{"y":1}}}', "unknown_column"),
    ("deep", '{"m":{"k":{"mm":{"f":1,"f":1}}}}', "duplicate_member"),
    ("all", '[{"a":1}]', "type"),
    ("all", "{}", "type"),
    ("sty", '{"t":"25:00:00"}', "type"),
    ("sty", '{"u":1}', "type"),
    ("sty", '{"d":1.5}', "type"),
]


def _row(column: str, text: str) -> bytes:
    members = {"id": "7", "k": '"k"', column: text}
    return ("{" + ",".join(f'"{name}":{literal}' for name, literal in members.items()) + "}").encode()


@pytest.mark.parametrize(("column", "text", "expected"), GOOD)
def test_a_good_cell_has_the_value_written_beside_it(column: str, text: str, expected: object) -> None:
    # Plain neighbours, so that the case is one row of a columnar part.
    plain = _row("ok", "true")
    decoded = Ways().both(records([plain, _row(column, text), plain]))
    assert decoded.rejected == ()
    assert repr(_instant(decoded.rows[column].to_pylist()[1])) == repr(_instant(expected))


def _instant(cell: object) -> object:
    return cell.astimezone(UTC) if isinstance(cell, datetime) and cell.tzinfo is not None else cell


@pytest.mark.parametrize(("column", "text", "kind"), BAD)
def test_a_bad_cell_is_rejected_and_its_neighbours_are_not(column: str, text: str, kind: str) -> None:
    plain = _row("ok", "true")
    decoded = Ways().both(records([plain, _row(column, text), plain]))
    assert [(bad.offset, bad.kind) for bad in decoded.rejected] == [(103, kind)]
    assert decoded.rows["_offset"].to_pylist() == [100, 106]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ('"1970-01-01T00:00:00.000000001"', 1),
        ('"2024-01-01 00:00:00.123456789"', 1_704_067_200_123_456_789),
        ('"2262-04-11T23:47:16.854775807"', 2**63 - 1),
        ('"1677-09-21T00:12:43.145224193"', -(2**63) + 1),
    ],
)
def test_nanoseconds_are_exact_to_the_ends_of_their_range(text: str, nanoseconds: int) -> None:
    decoded = Ways().both(records([_row("fine", text)]))
    assert decoded.rows["fine"].cast(pa.int64()).to_pylist() == [nanoseconds]


def test_a_message_names_the_column_and_never_the_content() -> None:
    secrets = [_row(column, text) for column, text, _ in BAD if column in ("s", "day", "at", "st", "dec")]
    named = [b'{"id":1,"k":"hunter2"', b'{"id":1,"k":"a","hunter2":1}', b'{"id":1,"k":"a","st":{"hunter2":1}}']
    for bad in Ways().both(records([*secrets, *named])).rejected:
        assert "hunter2" not in bad.message
        assert "2024" not in bad.message
    assert [bad.found for bad in Ways().both(records(named)).rejected] == ["", "hunter2", "hunter2"]
    twice = [b'{"id":1,"k":"a","k":"b"}', b'{"id":1,"k":"a","st":{"z":1,"z":2}}', b'{"k":"a","id":1,"z":0,"y":0}']
    assert [bad.found for bad in Ways().both(records(twice)).rejected] == ["k", "z", "z"]
    (bad,) = Ways().both(records([_row("st", '{"day":"soon"}')])).rejected
    assert bad.message.startswith("column 'st.day': expected a string YYYY-MM-DD")


@pytest.mark.parametrize("around", [pa.list_, lambda of: pa.map_(pa.string(), of), lambda of: pa.struct([("a", of)])])
def test_deep_types_are_refused(around: Callable[[pa.DataType], pa.DataType]) -> None:
    type_ = pa.list_(pa.float32(), 3)
    for _ in range(15):
        type_ = around(type_)
    rows = [RowSchema(pa.schema([("id", pa.int64()), ("odd", of)]), ("id",), ("id",)) for of in (type_, around(type_))]
    JsonDecoder(rows[0])
    with pytest.raises(InvalidSchema, match="'odd' nests more than 16 lists"):
        JsonDecoder(rows[1])


def test_base64_is_exactly_what_an_encoder_writes() -> None:
    assert base64_bytes("AA==") == b"\x00"
    for text in ("AA=", "AA", "AA===", "AB==", "=", "A A=", "AA==AA=="):
        assert base64_bytes(text) is None, text


ITEMS: dict[str, tuple[pa.DataType, str]] = {
    **{f"fixed {n}": (pa.binary(n), f'"{b64encode(b"x" * n).decode()}"') for n in (1, 3, 24, 1000)},
    "int64": (pa.int64(), "0"),
    "text": (pa.string(), '""'),
    "large text": (pa.large_string(), '"a"'),
    "list": (pa.list_(pa.int64()), "[0,0,0]"),
    "map": (pa.map_(pa.string(), pa.int8()), '{"":0}'),
    "struct": (pa.struct([("x", pa.int64()), ("y", pa.list_(pa.binary(99)))]), "{}"),
}


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("count", [0, 1, 50])
@pytest.mark.parametrize("of", ["list", "map"])
def test_items_and_entries_take_no_more_than_their_bound(of: str, count: int, name: str) -> None:
    """Nulls of a few letters, and the shortest values, in a table with no other column of that kind."""
    type_, text = ITEMS[name]
    whole = pa.list_(type_) if of == "list" else pa.map_(pa.string(), type_)
    rows = RowSchema(pa.schema([("id", pa.int64()), ("all", whole)]), ("id",), ("id",))
    decoder = JsonDecoder(rows)
    for item in ("null", text):
        parts = [item if of == "list" else f'"{place}":{item}' for place in range(count)]
        all_ = f"[{','.join(parts)}]" if of == "list" else f"{{{','.join(parts)}}}"
        value = f'{{"id":1,"all":{all_}}}'.encode()
        (part,) = decoder.decode([value], np.zeros(1, np.uint8)).parts
        took = pa.RecordBatch.from_arrays(list(part.columns), schema=rows.columns).nbytes
        fixed = -(-sum(slot_bits(field.type) for field in rows.columns) // 8)
        bound = int(decoder.growth.each([value])[0])
        assert took <= fixed + bound + 32  # an offset more than there are lists or texts, at each level
        assert bound <= decoder.growth.largest(len(value))
