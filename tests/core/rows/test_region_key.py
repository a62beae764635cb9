"""The canonical encoding: against json, base64 and isoformat of the standard library, and against the test vectors."""

from __future__ import annotations

import base64
import datetime
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lancewal_core.errors import InvalidInput, InvalidSchema
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import murmur2, partitions_of
from lancewal_core.rows.region_key import RegionKeyCodec

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "region_key_vectors.json").read_text())["vectors"]

INTEGER_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.text(
    'a"\\/\x00\x1f\x7f\n\u2028', max_size=6
)


def values_of(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_integer(type_):
        bits = type_.bit_width
        low, high = (
            (0, 2**bits - 1) if pa.types.is_unsigned_integer(type_) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        return st.integers(low, high) | st.sampled_from([low, high, 0])
    if pa.types.is_boolean(type_):
        return st.booleans()
    if pa.types.is_date(type_):
        return st.dates() | st.sampled_from([datetime.date.min, datetime.date.max, datetime.date(1969, 12, 31)])
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return st.binary(max_size=10)
    if pa.types.is_fixed_size_binary(type_):
        return st.binary(min_size=type_.byte_width, max_size=type_.byte_width)
    if type_ == pa.uuid():
        return st.uuids() | st.sampled_from([UUID(int=0), UUID(int=2**128 - 1)])
    return TEXTS


TYPES = [*INTEGER_TYPES, pa.bool_(), pa.date32(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
TYPES += [pa.binary(1), pa.binary(16), pa.uuid()]


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*map(values_of, types)), max_size=8))
    return pa.schema([(f"c{i}", type_) for i, type_ in enumerate(types)]), rows


def by_the_rules(values: tuple[Any, ...]) -> bytes:
    """The encoding as the reference page words it, by the standard library alone."""

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return base64.standard_b64encode(value).decode()
        if isinstance(value, UUID):
            return str(value)
        return value.isoformat() if isinstance(value, datetime.date) else value

    if len(values) > 1:
        return json.dumps([plain(v) for v in values], ensure_ascii=False, separators=(",", ":")).encode()
    match values[0]:
        case bytes(raw):
            return raw
        case bool(flag):
            return {True: b"true", False: b"false"}[flag]
        case other:
            return str(plain(other)).encode()


@settings(max_examples=400)
@given(tables())
@example(
    (pa.schema([("a", pa.string()), ("b", pa.string())]), [("", '"'), ("\x1f\x7f", "\U0001f409\n"), ("plain", "")])
)
def test_all_forms_agree(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    schema, rows = table
    codec = RegionKeyCodec(schema)
    expected = [by_the_rules(row) for row in rows]
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    encoded = codec.encode_batch(columns)
    assert encoded.type == pa.binary()
    assert encoded.to_pylist() == expected
    assert codec.encode_batch([c.slice(1) for c in columns]).to_pylist() == expected[1:]
    for row, key in zip(rows, expected, strict=True):
        assert codec.encode(row) == key
        assert encode_region_key(*row) == key
        assert codec.decode(key) == row
        assert list(map(type, codec.decode(key) or ())) == list(map(type, row))


@given(tables())
@example((pa.schema([("t", pa.string()), ("b", pa.binary())]), [('x"y', b"\xff")]))
@example(
    (pa.schema([("u", pa.uuid()), ("f", pa.bool_()), ("d", pa.date32())]), [(UUID(int=1), True, datetime.date.min)])
)
def test_a_codec_that_was_pickled_says_the_same(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    """Contracts are pickled for Spark's executors, with the codec once it was used."""
    schema, rows = table
    codec = pickle.loads(pickle.dumps(RegionKeyCodec(schema)))
    expected = [by_the_rules(row) for row in rows]
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    assert codec.encode_batch(columns).to_pylist() == expected
    assert [codec.encode(row) for row in rows] == expected
    assert [codec.decode(key) for key in expected] == rows


@settings(max_examples=400)
@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3), st.data())
def test_what_decodes_is_canonical(types: list[pa.DataType], data: st.DataObject) -> None:
    """Change, drop or insert bytes of a good key: the result decodes to nothing or is itself the encoding."""
    codec = RegionKeyCodec(pa.schema([(f"c{i}", type_) for i, type_ in enumerate(types)]))
    key = bytearray(codec.encode([data.draw(values_of(type_)) for type_ in types]))
    start = data.draw(st.integers(0, len(key)))
    key[start : start + data.draw(st.integers(0, 2))] = data.draw(
        st.sampled_from([b"", b" ", b"0", b"-", b"1.0", b"1e0", b'"', b"\\u0061", b"\\/", b"\xff", b"=", b",", b"null"])
    )
    decoded = codec.decode(bytes(key))
    assert decoded is None or codec.encode(decoded) == key


@pytest.mark.parametrize(
    ("types", "key"),
    [
        ([pa.int64()], b"+1"),
        ([pa.int64()], b"01"),
        ([pa.int64()], b"-0"),
        ([pa.int64()], b" 1"),
        ([pa.int64()], b"1_0"),
        ([pa.int64()], b"\xd9\xa1"),
        ([pa.int64()], b""),
        ([pa.int64()], b"9" * 100_000),
        ([pa.int64()], str(2**63).encode()),
        ([pa.uint8()], b"256"),
        ([pa.uint64()], b"-1"),
        ([pa.bool_()], b"True"),
        ([pa.bool_()], b"1"),
        ([pa.date32()], b"20240229"),
        ([pa.date32()], b"2023-02-29"),
        ([pa.date32()], b"2024-W01-1"),
        ([pa.date32()], b"0000-01-01"),
        ([pa.date32()], b"2024-02-29T00:00:00"),
        ([pa.string()], b"\xff"),
        ([pa.string()], b"\xed\xa0\x80"),
        ([pa.string(), pa.int64()], b'["a", 1]'),
        ([pa.string(), pa.int64()], b'["a",1] '),
        ([pa.string(), pa.int64()], b'["a",1.0]'),
        ([pa.string(), pa.int64()], b'["a",true]'),
        ([pa.string(), pa.int64()], b'["a","1"]'),
        ([pa.string(), pa.int64()], b'["a"]'),
        ([pa.string(), pa.int64()], b'["a",1,1]'),
        ([pa.string(), pa.int64()], b'["a",null]'),
        ([pa.string(), pa.int64()], b'{"a":1}'),
        ([pa.string(), pa.int64()], b'"a"'),
        ([pa.string(), pa.int64()], b"[" * 200_000),
        ([pa.string(), pa.int64()], b""),
        ([pa.string(), pa.string()], b'["\\u0061","b"]'),
        ([pa.string(), pa.string()], b'["\\/","b"]'),
        ([pa.string(), pa.string()], b'["\\u000A","b"]'),
        ([pa.string(), pa.string()], b'["\\u000a","b"]'),
        ([pa.string(), pa.string()], b'["\\u001F","b"]'),
        ([pa.string(), pa.string()], b'["\\u007f","b"]'),
        ([pa.string(), pa.string()], b'["\\ud800","b"]'),
        ([pa.string(), pa.string()], b'\xef\xbb\xbf["a","b"]'),
        ([pa.binary(), pa.string()], b'["AA","b"]'),
        ([pa.binary(), pa.string()], b'["AB==","b"]'),
        ([pa.binary(), pa.string()], b'["_-8=","b"]'),
        ([pa.binary(), pa.string()], b'["AA==\\n","b"]'),
        ([pa.date32(), pa.string()], b'["20240229","b"]'),
        ([pa.date32(), pa.string()], b'[19782,"b"]'),
        ([pa.binary(2)], b"a"),
        ([pa.binary(2)], b"abc"),
        ([pa.binary(2), pa.string()], b'["YQ==","b"]'),
        ([pa.uuid()], b"123E4567-e89b-12d3-a456-426614174000"),
        ([pa.uuid()], b"123e4567e89b12d3a456426614174000"),
        ([pa.uuid()], b"{123e4567-e89b-12d3-a456-426614174000}"),
        ([pa.uuid()], b"\x00" * 16),
        ([pa.uuid()], b""),
        ([pa.uuid(), pa.string()], b'["123e4567e89b12d3a456426614174000","b"]'),
        ([pa.uuid(), pa.string()], b'[7,"b"]'),
    ],
)
def test_other_forms_do_not_decode(types: list[pa.DataType], key: bytes) -> None:
    assert RegionKeyCodec(pa.schema([(f"c{i}", t) for i, t in enumerate(types)])).decode(key) is None


@pytest.mark.parametrize(
    "type_",
    [
        pa.float64(),
        pa.timestamp("ms"),
        pa.date64(),
        pa.decimal128(10, 2),
        pa.time64("us"),
        pa.duration("us"),
        pa.list_(pa.int8()),
        pa.null(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
)
def test_other_column_types_are_refused(type_: pa.DataType) -> None:
    with pytest.raises(InvalidSchema, match="'c1'"):
        RegionKeyCodec(pa.schema([("c0", pa.string()), ("c1", type_)]))


def test_a_key_without_columns_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="empty"):
        RegionKeyCodec(pa.schema([]))
    with pytest.raises(InvalidSchema, match="at least one"):
        encode_region_key()


@pytest.mark.parametrize("value", [1.0, None, datetime.datetime(2024, 1, 1), [1], bytearray(b"a")])
def test_other_python_types_are_refused(value: object) -> None:
    with pytest.raises(InvalidSchema, match=type(value).__name__):
        encode_region_key(value)
    with pytest.raises(InvalidSchema, match=type(value).__name__):
        encode_region_key("a", value)


def test_values_that_no_column_holds_are_refused() -> None:
    for value in (2**64, -(2**63) - 1, 10**6000, "\ud800"):
        with pytest.raises(InvalidInput):
            encode_region_key(value)
        with pytest.raises(InvalidInput):
            encode_region_key(value, value)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int8(), 128),
        (pa.int8(), True),
        (pa.uint64(), -1),
        (pa.bool_(), 1),
        (pa.string(), b"a"),
        (pa.binary(), "a"),
        (pa.date32(), datetime.datetime(2024, 1, 1)),
        (pa.date32(), "2024-01-01"),
        pytest.param(pa.int64(), 10**6000, id="huge"),
    ],
)
def test_encode_refuses_values_of_another_type_or_range(type_: pa.DataType, value: object) -> None:
    with pytest.raises(InvalidInput, match="'c'"):
        RegionKeyCodec(pa.schema([("c", type_)])).encode([value])


def test_encode_refuses_a_wrong_number_of_values() -> None:
    with pytest.raises(
        InvalidInput, match=r"^the region key takes one value for each column of \['a', 'b'\]; got 1 value$"
    ):
        RegionKeyCodec(pa.schema([("a", pa.string()), ("b", pa.string())])).encode(["x"])
    with pytest.raises(InvalidInput, match=r"column of \['a'\]; got 2 values$"):
        RegionKeyCodec(pa.schema([("a", pa.string())])).encode(["x", "y"])


def test_encode_batch_refuses_other_columns() -> None:
    codec = RegionKeyCodec(pa.schema([("a", pa.string()), ("b", pa.int64())]))
    with pytest.raises(InvalidSchema, match="a string, b int64"):
        codec.encode_batch([pa.array(["x"])])
    with pytest.raises(InvalidSchema, match="int32"):
        codec.encode_batch([pa.array(["x"]), pa.array([1], pa.int32())])


def test_rows_without_an_encoding_are_null() -> None:
    days = pa.array([-719163, -719162, 2932896, 2932897, None], pa.int32()).cast(pa.date32())
    alone = RegionKeyCodec(pa.schema([("d", pa.date32())])).encode_batch([days])
    assert alone.to_pylist() == [None, b"0001-01-01", b"9999-12-31", None, None]
    texts = pa.array(['"', '"', None, '"', '"'])
    bytes_ = pa.array([b"", b"\x00", b"", None, b"a"])
    codec = RegionKeyCodec(pa.schema([("d", pa.date32()), ("t", pa.string()), ("b", pa.binary())]))
    assert codec.encode_batch([days, texts, bytes_]).to_pylist() == [
        None,
        b'["0001-01-01","\\"","AA=="]',
        None,
        None,
        None,
    ]


def test_null_slots_over_bytes_stay_null() -> None:
    """Arrow allows a null slot to lie over any bytes, here over one that needs an escape."""
    plain = pa.array(['a"', 'b"'])
    hidden = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x02"), *plain.buffers()[1:]])
    codec = RegionKeyCodec(pa.schema([("t", pa.string()), ("n", pa.int8())]))
    assert codec.encode_batch([hidden, pa.array([1, 2], pa.int8())]).to_pylist() == [None, b'["b\\"",2]']


# -- the vectors for other languages ---------------------------------------------------------------------------


def vector_values(vector: dict[str, Any]) -> list[Any]:
    parse: dict[str, Callable[[Any], Any]] = {
        "date32": datetime.date.fromisoformat,
        "binary": bytes.fromhex,
        "string": str,
        "bool": bool,
    }
    return [parse.get(type_, int)(value) for type_, value in zip(vector["types"], vector["values"], strict=True)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    types = [pa.bool_() if name == "bool" else pa.type_for_alias(name) for name in vector["types"]]
    values = vector_values(vector)
    key = bytes.fromhex(vector["key_hex"])
    codec = RegionKeyCodec(pa.schema([(f"c{i}", type_) for i, type_ in enumerate(types)]))
    columns = [pa.array([value], type_) for value, type_ in zip(values, types, strict=True)]
    assert key.decode(errors="replace") == vector["key_text"]
    assert codec.encode(values) == key == by_the_rules(tuple(values))
    assert codec.encode_batch(columns).to_pylist() == [key]
    assert codec.decode(key) == tuple(values)
    assert murmur2(key) == vector["murmur2"]
    for partitions, partition in vector["partitions"].items():
        assert partitions_of(codec.encode_batch(columns), int(partitions)).tolist() == [partition]
