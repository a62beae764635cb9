"""JSON keys have the bytes that Kafka Connect's own converter wrote, one by one and by the array; other texts are no keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import InvalidInput, InvalidSchema
from lancewal_core.record_keys.json_compact import JsonCompactCodec, same_json
from lancewal_core.record_keys.why_misrouted import why_misrouted
from lancewal_core.rows.schema import RowSchema

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "connect_json_vectors.json").read_text(encoding="utf-8")
)["vectors"]
TYPES = {"string": pa.string(), "bool": pa.bool_(), **{f"int{8 << n}": getattr(pa, f"int{8 << n}")() for n in range(4)}}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["key_hex"][:40])
def test_bytes_of_connect(vector: dict[str, Any]) -> None:
    columns = [(name, TYPES[type_]) for name, type_ in vector["types"]]
    codec = JsonCompactCodec(pa.schema(columns))
    values = [
        int(value) if pa.types.is_integer(t) else value for (_, t), value in zip(columns, vector["values"], strict=True)
    ]
    key = bytes.fromhex(vector["key_hex"])
    assert codec.encode(values) == key
    assert codec.decode(key) == tuple(values)
    arrays = [pa.array([value, None, value], type_) for (_, type_), value in zip(columns, values, strict=True)]
    assert codec.encode_batch(arrays).to_pylist() == [key, None, key]


COLUMNS = pa.schema([("s", pa.string()), ("n", pa.uint64()), ("ok", pa.bool_()), ("l", pa.large_string())])
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 2**64 - 1), st.booleans(), TEXTS), max_size=6))
def test_arrays_and_values_agree(rows: list[tuple[str, int, bool, str]]) -> None:
    codec = JsonCompactCodec(COLUMNS)
    keys = [codec.encode(row) for row in rows]
    assert [codec.decode(key) for key in keys] == rows
    assert [tuple(json.loads(key).values()) for key in keys] == rows
    arrays = [pa.array(column, field.type) for field, column in zip(COLUMNS, zip(*rows, strict=True), strict=False)]
    if rows:
        assert codec.encode_batch(arrays).to_pylist() == keys
        assert codec.encode_batch([array[1:] for array in arrays]).to_pylist() == keys[1:]


class Counted(list[pa.Field]):
    """Fields that count how often somebody goes through them: those of a schema are made anew each time."""

    passes = 0

    def __iter__(self) -> Iterator[pa.Field]:
        self.passes += 1
        return super().__iter__()


def test_a_key_takes_no_new_fields_of_the_schema() -> None:
    fields = Counted(COLUMNS)
    codec = JsonCompactCodec(fields)
    before, row = fields.passes, ("acme", 42, True, "x")
    assert codec.decode(codec.encode(row)) == row
    assert fields.passes == before


@pytest.mark.parametrize(
    "key",
    [
        b"", b"{}", b"7", b"null", b'["acme",42]', b'{"customer":"acme"}', b'{"id":42,"customer":"acme"}',
        b'{"customer": "acme","id":42}', b'{"customer":"acme","id":42} ', b'{"customer":"acme","id":42.0}',
        b'{"customer":"acme","id":"42"}', b'{"customer":"acme","id":true}', b'{"customer":"acme","id":042}',
        b'{"customer":"\\u0061cme","id":42}', b'{"customer":"acme","id":42,"id":42}', b'{"customer":null,"id":42}',
        b'{"customer":"acme","id":9223372036854775808}', b'{"customer":"\xff","id":42}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_other_bytes_are_no_key(key: bytes) -> None:
    codec = JsonCompactCodec(pa.schema([("customer", pa.string()), ("id", pa.int64())]))
    assert codec.decode(b'{"customer":"acme","id":42}') == ("acme", 42)
    assert codec.decode(key) is None


@pytest.mark.parametrize("values", [[], [1, 2], ["1"], [None], [True], [2**63], [1.0]])
def test_values_that_have_no_key(values: list[object]) -> None:
    with pytest.raises(InvalidInput, match="region key"):
        JsonCompactCodec(pa.schema([("id", pa.int64())])).encode(values)


def test_a_text_that_is_not_unicode() -> None:
    with pytest.raises(InvalidInput, match="not Unicode"):
        JsonCompactCodec(pa.schema([("s", pa.string())])).encode(["\ud800"])


@pytest.mark.parametrize("type_", [pa.date32(), pa.binary()], ids=str)
def test_types_that_such_a_key_does_not_hold(type_: pa.DataType) -> None:
    with pytest.raises(InvalidSchema, match="such keys hold strings, integers and booleans"):
        JsonCompactCodec(pa.schema([("x", type_)]))


def test_a_stop_says_that_the_key_is_another_text_of_the_same_json() -> None:
    right = b'{"customer":"acme","id":42}'
    rows = RowSchema(pa.schema([("customer", pa.string()), ("id", pa.int64())]), ("customer", "id"), ("customer", "id"))
    for key in (b'{"id": 42, "customer": "acme"}', b'{"customer":"\\u0061cme","id":42}'):
        assert same_json(key, right)
        said = why_misrouted(rows, "json-compact", key, right, "murmur2")
        assert "another text of the same JSON" in said
        assert said.endswith(". If producers write other texts, make the table with table.format.key: json")
    for key in (b'{"customer":"acme","id":43}', b"acme", b'["acme",42]', b'{"customer":"acme","id":42', b"[" * 100_000):
        assert not same_json(key, right)
        assert "are wrong" in why_misrouted(rows, "json-compact", key, right, "murmur2")
