"""Column types as text: a type survives its text, and what is no type is refused with its place."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.column_types import VECTOR_ITEMS, format_type, of_first_release, parse_type

PLAIN = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "large_string": pa.large_string(),
    "large_binary": pa.large_binary(),
    "time32[s]": pa.time32("s"),
    "time32[ms]": pa.time32("ms"),
    "time64[us]": pa.time64("us"),
    "time64[ns]": pa.time64("ns"),
    "duration[s]": pa.duration("s"),
    "duration[ns]": pa.duration("ns"),
    "fixed_size_binary[1]": pa.binary(1),
    "fixed_size_binary[1048576]": pa.binary(1 << 20),
}
UNITS = ["s", "ms", "us", "ns"]
WRITTEN: dict[str, pa.DataType] = {
    **PLAIN,
    "uuid": pa.uuid(),
    "map<string, int64>": pa.map_(pa.string(), pa.int64()),
    "list<map<string, map<string, struct<a: bool>>>>": pa.list_(
        pa.map_(pa.string(), pa.map_(pa.string(), pa.struct([("a", pa.bool_())])))
    ),
    "decimal128(12, 2)": pa.decimal128(12, 2),
    "decimal128(38, 0)": pa.decimal128(38, 0),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[ns, UTC]": pa.timestamp("ns", tz="UTC"),
    "list<string>": pa.list_(pa.string()),
    "fixed_size_list<float32>[384]": pa.list_(pa.float32(), 384),
    "fixed_size_list<uint8>[96]": pa.list_(pa.uint8(), 96),
    "struct<a: int32, b: list<date32>>": pa.struct([("a", pa.int32()), ("b", pa.list_(pa.date32()))]),
}


def _decimals() -> st.SearchStrategy[pa.DataType]:
    return st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,4}", fullmatch=True)
    members = st.lists(st.tuples(names, inner), min_size=1, max_size=4, unique_by=lambda member: member[0])
    return st.one_of(inner.map(pa.list_), members.map(pa.struct), inner.map(lambda item: pa.map_(pa.string(), item)))


TYPES = st.recursive(
    st.one_of(
        st.sampled_from(list(PLAIN.values())),
        _decimals(),
        st.tuples(st.sampled_from(UNITS), st.sampled_from([None, "UTC"])).map(lambda t: pa.timestamp(t[0], tz=t[1])),
        st.tuples(st.sampled_from(VECTOR_ITEMS), st.integers(1, 5000)).map(lambda t: pa.list_(*t)),
    ),
    _nested,
    max_leaves=6,
)


@pytest.mark.parametrize("text", WRITTEN)
def test_each_form_as_it_is_written(text: str) -> None:
    assert parse_type(text) == WRITTEN[text]
    assert format_type(WRITTEN[text]) == text


def test_the_first_release_has_none_of_the_later_types() -> None:
    later = re.compile("(list<)?map|large_|time32|time64|duration|fixed_size_binary|uuid")
    for text, type_ in WRITTEN.items():
        assert of_first_release(type_) == (later.match(text) is None), text
        if type_ != pa.uuid():
            assert of_first_release(pa.struct([("a", pa.list_(type_))])) == of_first_release(type_)


@given(TYPES)
def test_a_type_survives_its_text(type_: pa.DataType) -> None:
    assert parse_type(format_type(type_)) == type_


@given(TYPES, st.data())
def test_spaces_do_not_matter(type_: pa.DataType, data: st.DataObject) -> None:
    text = format_type(type_)
    for mark in "<>[](),:":
        text = text.replace(mark, data.draw(st.sampled_from(["", " "])) + mark + data.draw(st.sampled_from(["", "  "])))
    assert parse_type(f" {text} ") == type_


REFUSED = {
    "": "a type name at character 1",
    "int": "a known type",
    "int64 int64": "the end at character 6",
    "decimal128": r"'\('",
    "decimal128(0, 0)": "precision of 1 to 38",
    "decimal128(39, 2)": "precision of 1 to 38",
    "decimal128(5, 6)": "scale of at most the precision",
    "decimal128(a, 2)": "a number",
    "timestamp[d]": "a unit",
    "timestamp[us, Europe/Berlin]": "the zone UTC",
    "timestamp[us, +01:00]": "the zone UTC",
    "timestamp[us": r"'\]'",
    "list<int64": "'>'",
    "list<>": "a known type|a type name",
    "struct<>": "a member name|':'",
    "struct<a int32>": "':'",
    "struct<a: int32, a: int64>": "distinct member names",
    "fixed_size_list<int8>[3]": "float32, float64 or uint8",
    "fixed_size_list<float32>[0]": "size of 1 to",
    "fixed_size_list<float32>": r"'\['",
    "int64;": "the end at character 6",
    "time32[us]": r"a unit \(s, ms\)",
    "time64[ms]": r"a unit \(us, ns\)",
    "time64": r"'\['",
    "duration[d]": "a unit",
    "fixed_size_binary[0]": "a size of 1 to 1048576 bytes",
    "fixed_size_binary[1048577]": "a size of 1 to 1048576 bytes",
    "fixed_size_binary": r"'\['",
    "list<uuid>": r"fixed_size_binary\[16\] or string instead of uuid, which cannot lie within lists and structs",
    "struct<a: uuid>": "uuid, which cannot lie within",
    "map<string, uuid>": "uuid, which cannot lie within",
    "map<int64, string>": "string as the type of a map's keys",
    "map<string>": r"','",
    "map": "'<'",
}


MEANT = {
    "integer": "int64", "INTEGER": "int64",
    "int": "int64", "BIGINT": "int64", "Int64": "int64", "int46": "int64", "smallint": "int16",
    "datetime": r"timestamp\[us, UTC\]", "varchar(10)": "string", "text": "string", "String": "string", "bolean": "bool",
    "boolean": "bool", "double precision": "float64", "numeric(10, 2)": r"decimal128\(18, 2\)", "date": "date32",
    "bytea": "binary", "array<int64>": "list<string>", "Timestamp[us]": "timestamp",
    "list<integer>": "int64", "struct<a: varchar(3)>": "string",
    "float16": "float32", "guid": "uuid", "time": r"time64\[us\]", "interval": r"duration\[us\]",
}  # fmt: skip


@pytest.mark.parametrize("text", MEANT)
def test_names_of_other_systems_are_told_the_nearest_type(text: str) -> None:
    with pytest.raises(InvalidSchema, match=rf"a known type \(did you mean {MEANT[text]}\?\) at character"):
        parse_type(text)


def test_what_is_like_no_type_is_told_none() -> None:
    with pytest.raises(InvalidSchema, match="expected a known type at character 7"):
        parse_type("qwertz")


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_type_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InvalidSchema, match=REFUSED[text]) as caught:
        parse_type(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "type_",
    [
        pa.binary_view(),
        pa.string_view(),
        pa.float16(),
        pa.date64(),
        pa.month_day_nano_interval(),
        pa.null(),
        pa.decimal256(50, 2),
        pa.list_(pa.int8(), 3),
        pa.large_list(pa.int8()),
        pa.map_(pa.string(), pa.float16()),
        pa.dictionary(pa.int8(), pa.string()),
        pa.struct([("a", pa.float16())]),
        pa.list_(pa.large_list(pa.large_string())),
        pa.json_(),
        pa.bool8(),
    ],
    ids=str,
)
def test_other_arrow_types_are_refused_by_name(type_: pa.DataType) -> None:
    with pytest.raises(InvalidSchema, match="not supported"):
        format_type(type_)


@given(st.text(alphabet="int64list<>[](),: fsrucdeam128UTC\n", max_size=30))
def test_any_text_is_a_type_or_refused(text: str) -> None:
    try:
        type_ = parse_type(text)
    except InvalidSchema:
        return
    assert parse_type(format_type(type_)) == type_
