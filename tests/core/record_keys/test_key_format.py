"""Keys of one integer in bytes: encoded one by one and by the array, decoded, and refused where no key is such an integer."""

from __future__ import annotations

import struct
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import InvalidInput, InvalidSchema
from lancewal_core.record_keys.key_choices import KeyFormat
from lancewal_core.record_keys.key_format import check_region_key, encode_region_key, key_codec
from lancewal_core.rows.schema import RowSchema

FORMS = {"short": ">h", "integer": ">i", "long": ">q"}
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()]


def rows(*types: pa.DataType) -> RowSchema:
    names = [f"k{n}" for n in range(len(types))]
    fields = [pa.field(name, type_, nullable=False) for name, type_ in zip(names, types, strict=True)]
    return RowSchema(pa.schema(fields), tuple(names), tuple(names))


def packed(value: int, key_format: str) -> bytes | None:
    try:
        return struct.pack(FORMS[key_format], value)
    except struct.error:
        return None


@pytest.mark.parametrize("key_format", FORMS)
@pytest.mark.parametrize("type_", INTEGERS, ids=str)
@given(data=st.data())
def test_integers(key_format: KeyFormat, type_: pa.DataType, data: st.DataObject) -> None:
    codec = key_codec(rows(type_), key_format)
    assert codec is not None
    bits = type_.bit_width
    least, most = (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if pa.types.is_signed_integer(type_) else (0, (1 << bits) - 1)
    )
    number = st.integers(least, most) | st.sampled_from([least, most])
    values = data.draw(st.lists(st.none() | number, max_size=20))
    expected = [None if value is None else packed(value, key_format) for value in values]
    for given_, kept in (
        (values, expected),
        ([*values, None, most][1:], [*expected, None, packed(most, key_format)][1:]),
    ):
        assert codec.encode_batch([pa.array(given_, type_)]).to_pylist() == kept
    assert codec.encode_batch([pa.array([None, *values], type_)[1:]]).to_pylist() == expected
    for value, key in zip(values, expected, strict=True):
        if value is not None and key is not None:
            assert codec.encode([value]) == key
            assert codec.decode(key) == (value,)
        elif value is not None:
            with pytest.raises(InvalidInput, match="takes one integer from"):
                codec.encode([value])


@pytest.mark.parametrize("key_format", FORMS)
def test_bytes_that_are_no_key(key_format: KeyFormat) -> None:
    size = struct.calcsize(FORMS[key_format])
    codec = key_codec(rows(pa.uint8()), key_format)
    assert codec is not None
    assert codec.decode(bytes(size)) == (0,)
    for key in (b"", bytes(size - 1), bytes(size + 1), b"1", b"\xff" * size, (256).to_bytes(size, "big")):
        assert codec.decode(key) is None


@pytest.mark.parametrize("key_format", FORMS)
@pytest.mark.parametrize("values", [[], [1, 2], ["1"], [True], [None], [1.0], [1 << 70]])
def test_values_that_have_no_key(key_format: KeyFormat, values: list[object]) -> None:
    codec = key_codec(rows(pa.int64()), key_format)
    assert codec is not None
    with pytest.raises(InvalidInput, match="takes one integer from"):
        codec.encode(values)


@pytest.mark.parametrize("key_format", FORMS)
@pytest.mark.parametrize(
    "types", [[pa.uint64()], [pa.string()], [pa.bool_()], [pa.date32()], [pa.int64(), pa.int64()]], ids=str
)
def test_columns_that_no_such_key_holds(key_format: KeyFormat, types: list[pa.DataType]) -> None:
    with pytest.raises(
        InvalidSchema, match=f"table.format.key is {key_format}: table.region_key must be one integer column"
    ):
        check_region_key(rows(*types), key_format)


@pytest.mark.parametrize("key_format", ["canonical", *FORMS])
def test_a_key_that_is_decoded_needs_columns(key_format: KeyFormat) -> None:
    empty = RowSchema(rows(pa.int64()).columns, ("k0",), ())
    with pytest.raises(InvalidSchema, match=r"table\.region_key is empty"):
        check_region_key(empty, key_format)


def test_keys_for_producers() -> None:
    assert encode_region_key("acme", 42) == b'["acme",42]'
    assert encode_region_key(-2, form="short") == b"\xff\xfe"
    assert encode_region_key({"customer": "acme", "id": 42}, form="json-compact") == b'{"customer":"acme","id":42}'
    with pytest.raises(InvalidInput, match="a json-compact key cannot hold a float"):
        encode_region_key({"id": 1.0}, form="json-compact")
    for values, form, said in (
        ([1], "json-compact", "one mapping"),
        ([b"x"], "bytes", "other keys are the producer's own"),
    ):
        with pytest.raises(InvalidSchema, match=said):
            encode_region_key(*values, form=cast("KeyFormat", form))


def test_bytes_have_no_columns() -> None:
    table = RowSchema(rows(pa.int64()).columns, ("k0",), ())
    check_region_key(table, "bytes")
    assert key_codec(table, "bytes") is None
    with pytest.raises(InvalidSchema, match=r"Leave table\.region_key out"):
        check_region_key(rows(pa.int64()), "bytes")
