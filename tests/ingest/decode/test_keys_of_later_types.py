"""Records whose keys have types that the first release does not have: rows, deletes without a value, and wrong keys."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from lancewal_core.record_keys.key_format import encode_region_key, key_codec
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_ingest.decode.connect.decoder import ConnectDecoder
from lancewal_ingest.decode.decoder import Decoder
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.record_keys import ComparedKeys, EncodedKeys
from tests.ingest.decode.json.cases import records

ID, OTHER = UUID("019f3a6e-7c1b-7b1a-9c3d-0123456789ab"), UUID(int=7)
KEYS: dict[str, tuple[pa.Schema, tuple[Any, ...], tuple[Any, ...]]] = {
    "uuid": (pa.schema([("a", pa.uuid())]), (ID,), (OTHER,)),
    "fixed": (pa.schema([("a", pa.binary(2))]), (b"\0\xff",), (b"\0\xfe",)),
    "large text": (pa.schema([("a", pa.large_string())]), ("ä",), ("",)),
    "large data": (pa.schema([("a", pa.large_binary())]), (b"",), (b"\0",)),
    "three": (
        pa.schema([("a", pa.uuid()), ("b", pa.binary(1)), ("c", pa.large_string())]),
        (ID, b"x", "y"),
        (ID, b"y", "y"),
    ),
}


def as_json(values: dict[str, Any]) -> bytes:
    def form(value: Any) -> str:
        return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)

    return json.dumps(values, default=form).encode()


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("in_json", [False, True], ids=["canonical", "json"])
def test_keys(name: str, in_json: bool) -> None:
    columns, key, other = KEYS[name]
    names = tuple(columns.names)
    rows = RowSchema(pa.schema([*columns, ("v", pa.int64())]), names, names)
    one, another = (dict(zip(names, values, strict=True)) for values in (key, other))
    keys: EncodedKeys | ComparedKeys
    if in_json:
        of_key = RowSchema(columns, names, names)
        keys = ComparedKeys(JsonDecoder(of_key), rows, {n: n for n in names})
        encoded, wrong = as_json(one), as_json(another)
    else:
        codec = key_codec(rows, "canonical")
        assert codec is not None
        keys = EncodedKeys(codec, rows, compared=True)
        encoded, wrong = encode_region_key(*key), encode_region_key(*other)
    decoder = Decoder(rows, JsonDecoder(rows), patches=True, record_bytes_max=1000, keys=keys)
    value = as_json({**one, "v": 5})
    batch = records([value, None, value, value], keys=[encoded, encoded, wrong, encoded + b"x"])
    found = decoder.decode(batch)
    assert found.rows["_op"].to_pylist() == [Op.UPSERT, Op.DELETE]
    assert found.rows.select([*names, "v"]).to_pylist() == [{**one, "v": 5}, {**one, "v": None}]
    assert {bad.offset: bad.kind for bad in found.rejected}[106] == "key_differs"
    assert [bad.offset for bad in found.rejected] == [106, 109]


def test_deletes_of_dates_that_python_does_not_hold() -> None:
    """PostgreSQL has dates up to the year 5874897, and infinity.  Keys with schemas have each number of days."""
    columns = pa.schema([("a", pa.date32())])
    rows, of_key = (RowSchema(of, ("a",), ("a",)) for of in (pa.schema([*columns, ("v", pa.int64())]), columns))
    field = {"field": "a", "type": "int32", "name": "io.debezium.time.Date"}
    days = [0, 2_932_897, 2**31 - 1, -(2**31)]
    keys = [
        json.dumps({"schema": {"type": "struct", "fields": [field]}, "payload": {"a": day}}).encode() for day in days
    ]
    compared = ComparedKeys(ConnectDecoder(of_key), rows, {})
    decoder = Decoder(rows, JsonDecoder(rows), patches=True, record_bytes_max=1000, keys=compared)
    found = decoder.decode(records([None] * len(days), keys=keys))
    assert found.rows["a"].view(pa.int32()).to_pylist() == days
    assert found.rows["_op"].to_pylist() == [Op.DELETE] * len(days)
