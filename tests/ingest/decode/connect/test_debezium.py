"""Values that Debezium's connector for PostgreSQL has written, with JsonConverter (``debezium.jsonl``)."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.connect.envelope import schema_and_payload
from lancewal_ingest.decode.connect.rows import ConnectRows
from lancewal_ingest.decode.connect.schema import parse_schema
from lancewal_ingest.decode.naming import PLAIN, Names, Naming
from tests.ingest.decode.connect.cases import cells, decode, decoder

SAMPLES = [json.loads(line) for line in (Path(__file__).parent / "debezium.jsonl").read_text().splitlines()]


def values(topic: str) -> list[bytes]:
    return [one["value"].encode() for one in SAMPLES if one["topic"] == topic]


def test_rows_of_an_unwrapped_topic() -> None:
    columns = {
        "name": pa.string(),
        "amount": pa.decimal128(12, 2),
        "at": pa.timestamp("us", "UTC"),
        "__deleted": pa.string(),
        "__lsn": pa.int64(),
    }
    names = dict.fromkeys(["id", *columns])
    of = decoder(columns, Naming(Names(names, dropped=frozenset({"__op", "__table", "__source_ts_ms"}))))
    start = datetime(2024, 1, 1, tzinfo=UTC)
    assert cells(decode(of, values("unwrap_schema.public.accounts"))) == {
        0: [1, "name 1", Decimal("1.50"), start, "false", 27342872],
        1: [6, None, None, start, "true", 27352176],
        2: [60, "kept", Decimal("6.00"), start, "false", 27352176],
    }


ALL_TYPES = {
    "tenant": (pa.int32(), 1),
    "id": (pa.int64(), 10),
    "b": (pa.bool_(), True),
    "i2": (pa.int16(), 2),
    "i4": (pa.int64(), 4),
    "i8": (pa.int64(), 8),
    "num_ps": (pa.decimal128(12, 3), Decimal("123456.789")),
    "num_p": (pa.decimal128(38, 0), Decimal("12345678901234567890")),
    "num": (pa.struct([("scale", pa.int32()), ("value", pa.binary())]), {"scale": 5, "value": b"\x04\xcb/"}),
    "num_big": (pa.decimal128(38, 10), Decimal("1234567890.0123456789")),
    "dom": (pa.decimal128(10, 2), Decimal("19.99")),
    "mny": (pa.decimal128(38, 2), Decimal("1234.56")),
    "f4": (pa.float32(), 1.5),
    "f8": (pa.float64(), 2.25),
    "txt": (pa.string(), "text é 漢 😀"),
    "bin": (pa.binary(), b"\x00\xff\x7f\x80"),
    "uid": (pa.uuid(), UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    "js": (pa.string(), '{"b": 1,  "a": [1, 2]}'),
    "d": (pa.date32(), date(2024, 2, 29)),
    "t": (pa.time64("us"), time(12, 34, 56, 123456)),
    "t3": (pa.time32("ms"), time(12, 34, 56, 789000)),
    "ttz": (pa.string(), "10:34:56.123456Z"),
    "ts": (pa.timestamp("us"), datetime(2024, 2, 29, 12, 34, 56, 123456)),
    "ts3": (pa.timestamp("ms"), datetime(2024, 2, 29, 12, 34, 56, 789000)),
    "tstz": (pa.timestamp("us", "UTC"), datetime(2024, 2, 29, 10, 34, 56, 123456, UTC)),
    "iv": (pa.duration("us"), timedelta(microseconds=37091106789000)),
    "ai": (pa.list_(pa.int32()), [1, None, 3]),
    "at": (pa.list_(pa.string()), ["a", None, "c d"]),
    "anum": (pa.list_(pa.decimal128(8, 2)), [Decimal("1.25"), None, Decimal("3.50")]),
    "atstz": (pa.list_(pa.timestamp("us", "UTC")), [datetime(2024, 2, 29, 10, 34, 56, 123456, UTC)]),
    "ad": (pa.list_(pa.date32()), [date(2024, 2, 29)]),
    "auid": (pa.list_(pa.string()), ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    "en": (pa.string(), "happy"),
    "aen": (pa.list_(pa.string()), ["sad", "ok"]),
    "pt": (pa.struct([("x", pa.float64()), ("y", pa.float64())]), {"x": 1.5, "y": -2.0}),
    "b8": (pa.binary(), b"\xaa"),
    "o": (pa.int64(), 4294967295),
}


def test_a_struct_within_a_payload_is_decoded_by_its_part_of_the_schema() -> None:
    """As an envelope needs it: the struct ``after``."""
    (value,) = values("json_schema.public.all_types")
    text, payload = schema_and_payload(value)
    of = {one.name: one.type for one in parse_schema(text).fields}["after"]
    schema = of.others[0]  # type: ignore[union-attr] # a union with null
    after = json.dumps(json.loads(payload)["after"], ensure_ascii=False).encode()
    columns = pa.schema([(name, type_) for name, (type_, _) in ALL_TYPES.items()])
    present = {name: Names({"x": None, "y": None}, ignores=True) if name == "pt" else None for name in columns.names}
    present["num"] = Names({"scale": None, "value": None})
    rows = RowSchema(columns, ("tenant", "id"), ("tenant", "id"))
    decoder = ConnectRows(schema, rows, Naming(Names(present, ignores=True)))  # type: ignore[arg-type] # a struct
    found = decoder.decode([after], np.zeros(1, np.uint8))
    assert found.refused == []
    assert cells(found)[0] == [cell for _, cell in ALL_TYPES.values()]


def test_an_envelope_itself_has_fields_that_are_no_columns() -> None:
    found = decode(decoder({}, PLAIN), values("json_schema.public.accounts"))
    assert {one.kind for one in found.refused} == {"unknown_column"}
    assert {"before", "after", "source", "op"} <= found.new_fields.keys()
