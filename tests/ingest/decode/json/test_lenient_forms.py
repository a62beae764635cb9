"""Lenient forms of columns: what each value means by plain Python, and that both paths agree.

The oracle computes with ``Fraction`` and ``datetime``, and shares no code with either path."""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.sections import JsonForm
from lancewal_core.table.contract import Column, Contract
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import Names, Naming, naming_of
from tests.ingest.decode.json.cases import Header, Ways, records

EXAMPLES = 40
# With 600 they found nothing more.
FORMS: dict[str, tuple[pa.DataType, JsonForm]] = {
    "es": (pa.timestamp("us", tz="UTC"), "epoch_s"),
    "ems": (pa.timestamp("us", tz="UTC"), "epoch_ms"),
    "ems_s": (pa.timestamp("s"), "epoch_ms"),
    "eus_ns": (pa.timestamp("ns"), "epoch_us"),
    "eus": (pa.timestamp("ms", tz="UTC"), "epoch_us"),
    "utc": (pa.timestamp("us", tz="UTC"), "utc"),
    "i8": (pa.int8(), "number_text"),
    "u64": (pa.uint64(), "number_text"),
    "i64": (pa.int64(), "number_text"),
    "f": (pa.float64(), "number_text"),
    "f4": (pa.float32(), "number_text"),
    "t": (pa.string(), "text"),
    "b": (pa.bool_(), "bool_text"),
    "raw": (pa.string(), "raw"),
    "raw_l": (pa.large_string(), "raw"),
    "doc": (pa.string(), "json_text"),
    "doc_l": (pa.large_string(), "json_text"),
    "num": (pa.string(), "number"),
    "num_l": (pa.large_string(), "number"),
    "t_l": (pa.large_string(), "text"),
    "v": (pa.list_(pa.float32(), 2), "base64"),
    "v1": (pa.list_(pa.float64(), 1), "base64"),
    "v_bits": (pa.list_(pa.uint8(), 3), "base64"),
}
DIGITS = "123456789012345678901234567890123456789012345678901234567890.10"
COLUMNS = pa.schema([("id", pa.int64()), ("k", pa.string()), *((name, type_) for name, (type_, _) in FORMS.items())])
ROWS = RowSchema(COLUMNS, ("id", "k"), ("k",))
NAMING = Naming(None, {}, {}, {name: form for name, (_, form) in FORMS.items()})
STRICT = Naming()

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def packed(form: str, *items: float) -> str:
    return json.dumps(base64.b64encode(struct.pack(form, *items)).decode())


UNIT = {"epoch_s": 10**6, "epoch_ms": 10**3, "epoch_us": 1}
"""Microseconds."""
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

FIXED = [
    ("ems", "1618540600943", datetime(2021, 4, 16, 2, 36, 40, 943000, tzinfo=UTC)),
    ("ems", "1.618540600943E12", datetime(2021, 4, 16, 2, 36, 40, 943000, tzinfo=UTC)),
    ("ems", "161854060094300e-2", datetime(2021, 4, 16, 2, 36, 40, 943000, tzinfo=UTC)),
    ("ems", "1618540600943.125", datetime(2021, 4, 16, 2, 36, 40, 943125, tzinfo=UTC)),
    ("ems", '"2021-04-16T02:36:40.943Z"', datetime(2021, 4, 16, 2, 36, 40, 943000, tzinfo=UTC)),
    ("ems", "-1", datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    ("ems", "-62135596800000", datetime(1, 1, 1, tzinfo=UTC)),
    ("ems", "-0", EPOCH),
    ("ems", "0e99", EPOCH),
    ("es", "1618540600.943000", datetime(2021, 4, 16, 2, 36, 40, 943000, tzinfo=UTC)),
    ("ems_s", "-1000", datetime(1969, 12, 31, 23, 59, 59)),
    ("utc", '"2021-04-16T02:36:40"', datetime(2021, 4, 16, 2, 36, 40, tzinfo=UTC)),
    ("utc", '"2021-04-16 02:36:40.5"', datetime(2021, 4, 16, 2, 36, 40, 500000, tzinfo=UTC)),
    ("utc", '"2021-04-16T02:36:40+02:00"', datetime(2021, 4, 16, 0, 36, 40, tzinfo=UTC)),
    ("i8", '"-128"', -128), ("i8", '"-0"', 0), ("i8", "7", 7), ("u64", '"18446744073709551615"', 2**64 - 1),
    ("f", '"1e3"', 1000.0), ("f", '"0.1"', 0.1), ("f", "0.1", 0.1), ("f4", '"16777216"', 16777216.0),
    ("t", "42", "42"), ("t", "-0", "0"), ("t", "123456789012345678901234567890", "123456789012345678901234567890"),
    ("t", '"x"', "x"), ("t", "-9223372036854775808", "-9223372036854775808"),
    ("b", '"true"', True), ("b", '"false"', False), ("b", "true", True),
    ("t_l", "42", "42"), ("t_l", '"x"', "x"),
    ("raw", '{"b": 1.0, "a":[1e5,\n-0.0,null] }', '{"b": 1.0, "a":[1e5,\n-0.0,null] }'),
    ("raw", '"a\\u0041\\"é\\ud800"', '"a\\u0041\\"é\\ud800"'), ("raw", '""', '""'), ("raw", DIGITS, DIGITS),
    ("raw", "true", "true"), ("raw", "[]", "[]"), ("raw", " { } ", "{ }"), ("raw", '"null"', '"null"'), ("raw", "null", None),
    ("raw_l", '{"x":{"y":[[]]}}', '{"x":{"y":[[]]}}'),
    ("doc", '"{\\"b\\": 1.0,\\n \\"a\\":[1e5]}"', '{"b": 1.0,\n "a":[1e5]}'), ("doc", '"1"', "1"), ("doc", '"null"', "null"),
    ("doc", '"\\"x\\""', '"x"'), ("doc", '" [] "', " [] "), ("doc", "null", None), ("doc_l", '"{}"', "{}"),
    ("num", DIGITS, DIGITS), ("num", f"-{DIGITS}E-999999999999", f"-{DIGITS}E-999999999999"), ("num", "-0", "-0"),
    ("num", "1.50", "1.50"), ("num", '"1.50"', "1.50"), ("num", '"x"', "x"), ("num", "null", None), ("num_l", "1e5", "1e5"),
    ("v", packed("<2f", 1.5, -0.25), [1.5, -0.25]), ("v", "[1.5,-0.25]", [1.5, -0.25]), ("v", "null", None),
    ("v", packed("<2f", 3.4e38, 2**-149), [struct.unpack("<f", struct.pack("<f", 3.4e38))[0], 2**-149]),
    ("v", packed("<2f", math.inf, -math.inf), [math.inf, -math.inf]), ("v", '"AAAAAAAA\\u0041AA="', [0.0, 0.0]),
    ("v1", packed("<d", 2**53 + 2.0), [2**53 + 2.0]), ("v1", "[7]", [7.0]), ("v1", packed("<d", 5e-324), [5e-324]),
    ("v_bits", '"AP8B"', [0, 255, 1]), ("v_bits", "[0,255,1]", [0, 255, 1]),
]  # fmt: skip
REFUSED = [
    ("ems", "1618540600943.1234567", "range"), ("ems_s", "1500", "range"), ("ems_s", "0.5", "range"), ("eus", "1", "range"),
    ("ems", "253402300800000", "range"), ("ems", "-62135596800001", "range"), ("ems", "1e30", "range"),
    ("ems", "1e999999999999", "range"), ("ems", "1e-999999999999", "range"), ("eus_ns", "9223372036854776", "range"),
    ("es", "9223372036854775807", "range"), ("ems", '"1618540600943"', "type"), ("ems", "true", "type"),
    ("ems", "01", "not_json"), ("ems", '"2021-04-16T02:36:40"', "type"), ("utc", "1618540600943", "type"),
    ("utc", '"2021-02-30T00:00:00"', "range"), ("utc", '"2021-04-16"', "type"),
    ("i8", '"128"', "range"), ("i8", '"1.0"', "type"), ("i8", '"1e1"', "type"), ("i8", '"+1"', "type"), ("i8", '" 1"', "type"),
    ("i8", '""', "type"), ("i8", '"01"', "type"), ("i8", '"0x1"', "type"), ("i8", "1.0", "type"), ("u64", '"-1"', "range"),
    ("f", '"NaN"', "type"), ("f", '"inf"', "type"), ("f", '"1e400"', "range"), ("f", '"9007199254740993"', "range"),
    ("f", '".5"', "type"), ("f4", '"1e39"', "range"), ("f4", '"16777217"', "range"),
    ("t", "1.5", "type"), ("t", "1e3", "type"), ("t", "true", "type"), ("t", '"\\ud800"', "range"),
    ("raw", "{'a':1}", "not_json"), ("raw", "NaN", "not_json"), ("raw", "01", "not_json"), ("raw", "[1,]", "not_json"),
    ("raw", '{"a":1,"\\u0061":2}', "duplicate_member"), ("raw", "[" * 64 + "]" * 64, "too_deep"),
    ("raw", '"\x01"', "not_json"),
    ("doc", '"{"', "type"), ("doc", '""', "type"), ("doc", '"x"', "type"), ("doc", '"NaN"', "type"),
    ("doc", '"[] []"', "type"),
    ("doc", '"{\\"a\\":1,\\"a\\":2}"', "type"), ("doc", "1", "type"), ("doc", "{}", "type"), ("doc", "true", "type"),
    ("doc", '"\\ufeff1"', "type"), ("doc", '"1,\\"_\\":2"', "type"), ("doc_l", '"01"', "type"),
    ("num", "true", "type"), ("num", "[1]", "type"), ("num", "{}", "type"), ("num", "01", "not_json"),
    ("num", '"\\ud800"', "range"),
    ("num", "Infinity", "not_json"),
    ("v", packed("<1f", 1), "type"), ("v", packed("<3f", 1, 2, 3), "type"), ("v", '""', "type"), ("v", "[1]", "type"),
    ("v", '"AAAAAAAAAAA"', "type"), ("v", '"AAAAAAAAAAB="', "type"), ("v", '" AAAAAAAAAAA="', "type"), ("v", "1", "type"),
    ("v", '"AAAAAAAAAA_="', "type"), ("v", "[1e39,0]", "range"), ("v", "[null,1]", "type"), ("v", "{}", "type"),
    ("v_bits", '"é"', "type"), ("v_bits", '"\\ud800"', "type"), ("v_bits", '"AP8BAA=="', "type"),
    ("b", '"True"', "type"), ("b", '"TRUE"', "type"), ("b", "1", "type"), ("b", '"1"', "type"), ("b", '""', "type"),
]  # fmt: skip


def value(name: str, text: str) -> bytes:
    return f'{{"id":1,"k":"a","{name}":{text}}}'.encode()


@pytest.mark.parametrize(("name", "text", "expected"), FIXED)
def test_each_form_means_one_value(name: str, text: str, expected: object) -> None:
    found = Ways(naming=NAMING, rows=ROWS).both(records([value(name, text)]))
    assert found.rows[name].to_pylist() == [expected]


@pytest.mark.parametrize(("name", "text", "kind"), REFUSED)
def test_what_is_neither_the_form_nor_strict_is_refused(name: str, text: str, kind: str) -> None:
    found = Ways(naming=NAMING, rows=ROWS).both(records([value(name, text), value("t", '"x"')]))
    assert [one.kind for one in found.rejected] == [kind]


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ('{"id":1,"k":"raw","raw":{"raw":1}}', '{"raw":1}'),
        ('{"id":1,"k":"a","t":"raw","raw":1}', "1"),
        ('{"t":"{raw:1}","id":1,"k":"a", "raw" : "raw" }', '"raw"'),
        ('{"id":1,"k":"\\"raw\\":2","raw":[1]}', "[1]"),
        ('{"id":1,"k":"a","\\u0072aw":[1]}', "[1]"),
        ('{"id":1,"k":"x\\"raw","\\u0072aw":[1]}', "[1]"),
        ('{"id":1,"k":"a","doc":"{\\"raw\\":1}"}', None),
        ('{"num":1.50,"raw":[ ],"id":1,"k":"raw","num_l":2,"raw_l":null}', "[ ]"),
    ],
)
def test_the_name_of_a_column_may_stand_elsewhere(value: str, raw: str | None) -> None:
    (row,) = Ways(naming=NAMING, rows=ROWS).both(records([value.encode()])).rows.to_pylist()
    assert row["raw"] == raw
    assert row["k"] == json.loads(value)["k"]


@pytest.mark.parametrize("value", ['{"id":1,"k":"a","raw":1,"raw":null}', '{"id":1,"k":"a","raw":null,"raw":{}}'])
def test_a_column_that_is_there_twice_is_refused(value: str) -> None:
    for names in (None, Names(dict.fromkeys(COLUMNS.names), {}, frozenset(["gone"]), True)):
        found = Ways(naming=Naming(names, {}, {}, NAMING.forms), rows=ROWS).both(records([value.encode()]))
        assert [one.kind for one in found.rejected] == ["duplicate_member"]


def test_a_default_is_a_text_too() -> None:
    defaults = {"raw": ' {"b": 1.0} ', "num": "1.50", "doc": '"[1.0]"', "raw_l": "null", "num_l": '"x"'}
    naming = Naming(None, defaults, {}, NAMING.forms)
    (row,) = Ways(naming=naming, rows=ROWS).both(records([b'{"id":1,"k":"a"}'])).rows.to_pylist()
    assert {name: row[name] for name in defaults} == {
        "raw": '{"b": 1.0}', "num": "1.50", "doc": "[1.0]", "raw_l": None, "num_l": "x",
    }  # fmt: skip
    for name, text in {"raw": "{", "doc": "[1.0]", "num": "true"}.items():
        with pytest.raises(InvalidSchema, match="is not a value of its type"):
            JsonDecoder(ROWS, Naming(None, {name: text}, {}, NAMING.forms))


def test_bytes_of_a_vector_stay_as_they_are() -> None:
    """NaN with any bits, among good and bad vectors, read together and one by one."""
    bits = [0x7FC00001, 0xFFFFFFFF, 0x7F800001, 0x3F800000, 0]
    texts = [packed("<2I", one, 0x80000000) for one in bits]
    batch, ways = records([value("v", text) for text in ['"AA=="', *texts, "null"]]), Ways(naming=NAMING, rows=ROWS)
    for found in (ways.both(batch), ways.reference(batch)):
        vectors = found.rows["v"]
        assert [one.kind for one in found.rejected] == ["type"]
        assert vectors.is_null().to_pylist() == [False] * len(bits) + [True]
        shown = vectors.flatten().to_numpy().view(np.uint32).reshape(-1, 2).tolist()
        assert shown == [[one, 0x80000000] for one in bits]


def test_a_refusal_names_both_forms() -> None:
    batch = records([value("ems", '"x"'), value("ems_s", "1500"), value("v", '"AA=="')])
    found = Ways(naming=NAMING, rows=ROWS).both(batch)
    assert [one.message for one in found.rejected] == [
        "column 'ems': expected a number of milliseconds since 1970, or a string YYYY-MM-DDTHH:MM:SS, with Z or an offset "
        "like +02:00",
        "column 'ems_s': expected a number of milliseconds since 1970 that timestamp[s] holds exactly",
        "column 'v': expected a string of 8 bytes in base64 (standard alphabet, padded), or an array of 2 numbers",
    ]


digits = st.integers(-(10**16), 10**16).map(str) | st.integers(-(2**65), 2**65).map(str)
numbers = st.builds(
    "{}{}{}".format,
    digits,
    st.sampled_from(["", "", "", ".0", ".5", ".125", ".000000", ".1234567"]),
    st.sampled_from(["", "", "", "e0", "E3", "e-3", "e-6", "E+12", "e-20"]),
)
blanks = st.sampled_from(["", "", " ", "\n", "\t \r"])
json_strings = st.text(max_size=6).map(json.dumps) | st.sampled_from(
    ['"\\u0041"', '"\\/"', '"é\\ud83d\\ude00"', '"\\ud800"']
)
json_texts = st.recursive(
    numbers | json_strings | st.sampled_from(["true", "false", "null"]),
    lambda inner: st.one_of(
        st.tuples(blanks, st.lists(inner, max_size=3)).map(
            lambda drawn: f"[{drawn[0]}{f',{drawn[0]}'.join(drawn[1])}]"
        ),
        st.tuples(blanks, st.dictionaries(st.sampled_from(['"a"', '"b"', '"é"']), inner, max_size=3)).map(
            lambda drawn: f"{{{drawn[0]}{f' ,{drawn[0]}'.join(f'{k}{drawn[0]}:{v}' for k, v in drawn[1].items())}}}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(json_texts, json_texts, numbers, blanks, st.booleans()), min_size=1, max_size=6))
def test_a_text_is_kept_byte_for_byte(drawn: list[tuple[str, str, str, str, bool]]) -> None:
    """Of any JSON, of JSON in a string, and of a number; also by a former name."""
    values = [
        f'{{"id":{n},{blank}"k":"a","{"old" if former else "raw"}":{blank}{raw}{blank},'
        f'"num":{number}{blank},"doc":{json.dumps(doc)}}}'
        for n, (raw, doc, number, blank, former) in enumerate(drawn)
    ]
    naming = Naming(Names(dict.fromkeys(COLUMNS.names), {"old": "raw"}, frozenset(), True), {}, {}, NAMING.forms)
    found = Ways(naming=naming, rows=ROWS).both(records([one.encode() for one in values]))
    bad = {one.offset: one.kind for one in found.rejected}
    rows = {row["id"]: row for row in found.rows.select(["id", "raw", "doc", "num"]).to_pylist()}
    for n, (raw, doc, number, _, _) in enumerate(drawn):
        if "\\ud800" in doc.replace("\\\\", ""):
            continue  # a lone half of a character, which the string of a column cannot hold once it is unescaped
        assert 100 + 3 * n not in bad
        assert rows[n] == {"id": n, "raw": None if raw == "null" else raw, "doc": doc, "num": number}


times = st.builds(
    '"{}{}{}"'.format,
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.isoformat(timespec="seconds")),
    st.sampled_from(["", "", ".5", ".123456", ".1230000", ".1234567891"]),
    st.sampled_from(["", "Z", "+02:00"]),
)
texts = st.sampled_from(
    [
        "true",
        "false",
        '"true"',
        '"false"',
        '{"a":1,"a":2}',
        '"{}"',
        '{"a":[1.50]}',
        '"[1"',
        '"x"',
        '"\\u0031"',
        '"True"',
        "[]",
        "{}",
        '"0x1"',
        '" 1"',
    ]
)
finite = st.floats(allow_nan=False, width=32)
vectors = st.one_of(
    st.tuples(finite, finite).map(lambda items: packed("<2f", *items)),
    st.binary(min_size=2, max_size=9).map(lambda data: json.dumps(base64.b64encode(data).decode())),
    st.lists(st.integers(-1, 256), min_size=1, max_size=3).map(json.dumps),
)
cells = st.one_of(numbers, numbers, numbers.map('"{}"'.format), times, texts, vectors, st.just("null"))


@st.composite
def lenient_values(draw: st.DrawFn) -> bytes:
    names = draw(st.lists(st.sampled_from(sorted(FORMS)), max_size=5, unique=True))
    members = ['"id":1', '"k":"a"', *(f'"{name}":{draw(cells)}' for name in names)]
    return ("{" + ",".join(members) + "}").encode()


HEADERS: list[list[Header] | None] = [None, None, [("lancewal.op", b"patch")], [("lancewal.op", b"delete")]]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_both_paths_agree(data: st.DataObject) -> None:
    values = data.draw(st.lists(lenient_values(), min_size=1, max_size=10))
    headers = data.draw(st.lists(st.sampled_from(HEADERS), min_size=len(values), max_size=len(values)))
    Ways(naming=NAMING, rows=ROWS).both(records(values, headers=headers), singly_max=data.draw(st.sampled_from([1, 3])))


FORMER = Names(dict.fromkeys(COLUMNS.names), {"old": "ems", "number": "i64"}, frozenset(["gone"]))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_both_paths_agree_about_former_names(data: st.DataObject) -> None:
    values = data.draw(st.lists(lenient_values(), min_size=1, max_size=10))
    chosen = data.draw(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=len(values), max_size=len(values)))
    values = [
        [one, one.replace(b'"ems"', b'"old"').replace(b'"i64"', b'"number"'), one[:-1] + b',"gone":[1]}'][at]
        for one, at in zip(values, chosen, strict=True)
    ]
    naming = Naming(FORMER, {"i64": '"5"', "ems": "1000"}, {}, NAMING.forms)
    Ways(naming=naming, rows=ROWS).both(records(values), singly_max=1)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([n for n, (_, f) in FORMS.items() if f in UNIT]), numbers), min_size=1))
def test_a_number_is_the_exact_time(drawn: list[tuple[str, str]]) -> None:
    found = Ways(naming=NAMING, rows=ROWS).both(records([value(name, text) for name, text in drawn]))
    kinds = {one.offset: one.kind for one in found.rejected}
    rows = dict(zip(found.rows["_offset"].to_pylist(), range(found.rows.num_rows), strict=True))
    for number, (name, text) in enumerate(drawn):
        type_, form = FORMS[name]
        ticks = Fraction(text) * UNIT[form] / 10**6 * TICKS[type_.unit]
        seconds = ticks / TICKS[type_.unit]
        first, end = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH), (datetime(9999, 12, 31, tzinfo=UTC) - EPOCH)
        fits = first.total_seconds() <= seconds < (end + timedelta(days=1)).total_seconds()
        offset = 100 + 3 * number
        if ticks.denominator == 1 and fits and -(2**63) <= ticks < 2**63:
            assert found.rows[name].cast(pa.int64())[rows[offset]].as_py() == ticks
        else:
            assert kinds[offset] == "range"


strict_cells: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("es", "ems", "utc"), times.map(lambda text: text.replace('+02:00"', 'Z"'))),
    "i64": st.integers(-(2**63), 2**63 - 1).map(str),
    "i8": st.integers(-130, 130).map(str),
    "f": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "t": st.text("ab1", max_size=3).map(json.dumps),
    "b": st.sampled_from(["true", "false"]),
}
strict_rows = st.fixed_dictionaries({}, optional={n: st.just("null") | cell for n, cell in strict_cells.items()})


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.fixed_dictionaries({}, optional={n: st.just("null") | cell for n, cell in strict_cells.items()}), min_size=1
    )
)
def test_a_strict_row_is_what_it_is_without_forms(drawn: list[dict[str, str]]) -> None:
    """Every row of the strict decoder is a row of the lenient one, with the same cells."""
    texts = ["{" + ",".join(['"id":1', '"k":"a"', *(f'"{n}":{t}' for n, t in one.items())]) + "}" for one in drawn]
    batch = records([text.encode() for text in texts])
    strict, lenient = Ways(naming=STRICT, rows=ROWS).both(batch).rows, Ways(naming=NAMING, rows=ROWS).both(batch).rows
    offsets = set(strict["_offset"].to_pylist())
    kept = lenient.filter(pa.array([offset in offsets for offset in lenient["_offset"].to_pylist()], pa.bool_()))
    assert kept.equals(strict)


def test_many_values_of_two_producers_stay_on_the_fast_path() -> None:
    """One writes the forms and one writes strictly; columns are absent, null, and floats at times."""
    decoder = JsonDecoder(ROWS, NAMING)
    ours = [
        b'{"id":1,"k":"a","ems":1618540600943,"i64":"5","t":7,"b":"true","utc":"2021-04-16T02:36:40"}',
        b'{"id":2,"k":"a","ems":"2021-04-16T02:36:40Z","i64":5,"t":"7","b":true,"utc":"2021-04-16T02:36:40Z"}',
        b'{"id":3,"k":"a","ems":1.618540600943E12,"i64":null,"b":"false"}',
        b'{"id":4,"k":"a","es":1618540600.5,"f":"1.5","f4":2}',
    ] * 100
    found = Ways(rows=ROWS).decoder(decoder).decode(records(ours))
    assert found.rows.num_rows == 400
    assert decoder.single_records == 0


def test_values_that_arrow_must_not_be_given_are_not_given_to_it() -> None:
    """As a decimal, an exponent so far below zero would let Arrow read outside its tables, and end the process."""
    decoder = JsonDecoder(ROWS, NAMING)
    ours = [value("ems", "1.5E3"), value("ems", "1e-999999999"), value("ems", "25E-1")] * 50
    found = Ways(rows=ROWS).decoder(decoder).decode(records(ours))
    assert [one.kind for one in found.rejected] == ["range"] * 50
    assert found.rows.num_rows == 100
    assert decoder.single_records == 50


def contract(*columns: Column, **terms: Any) -> Contract:
    ids = tuple([column.model_copy(update={"field_ids": (place,)}) for place, column in enumerate(columns)])
    return Contract(
        format=2, table_uuid="t", topic="orders", topic_id="i", partitions=1, primary_key=("id",), region_key=("id",),
        start=(0,), columns=ids, **terms,
    )  # fmt: skip


def test_records_use_the_name_of_the_field_alone() -> None:
    of = contract(
        Column(name="id", type="int64", field_ids=(), field="key"),
        Column(name="a", type="string", field_ids=(), field="b", default='"none"'),
        Column(name="b", type="timestamp[ms, UTC]", field_ids=(), field="a", json_form="epoch_ms"),
    )
    values = [
        b'{"key":1,"b":"x","a":1000}', b'{"key":2,"a":1}', b'{"id":3}', b'{"key":4,"a":"x"}', b'{"key":5,"b":null}', b"{}",
    ]  # fmt: skip
    headers: list[list[Header] | None] = [None, None, None, None, [("lancewal.op", b"patch")], None]
    found = Ways(rows=of.rows, naming=naming_of(of)).both(records(values, headers=headers))
    at = EPOCH + timedelta(seconds=1)
    assert found.rows.select(["id", "a", "b", "_present"]).to_pylist() == [
        {"id": 1, "a": "x", "b": at, "_present": None},
        {"id": 2, "a": "none", "b": EPOCH + timedelta(milliseconds=1), "_present": None},
        {"id": 5, "a": None, "b": None, "_present": b"\x03"},
    ]
    assert [(one.kind, one.message) for one in found.rejected] == [
        ("unknown_column", "expected no members but the columns ['key', 'b', 'a']"),
        ("type", "column 'b': expected a number of milliseconds since 1970, or a string YYYY-MM-DDTHH:MM:SS, with Z or an "
         "offset like +02:00"),
        ("missing_key", "column 'id': expected a value, because it is in the primary key"),
    ]  # fmt: skip
