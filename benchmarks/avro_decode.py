"""Compare the Avro decoder with fastavro and columns built from its records.

``rows``: seven narrow columns.  ``bad``: the same with one bad record in a thousand.  ``vectors``: rows with a vector of 384
floats, as an array and as raw bytes.  Rates are the best of ``ROUNDS`` runs, in rows a second of CPU time.  Ratios are of one
run.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.avro.decoder import AvroFormat
from lancewal_ingest.decode.framed.payloads import Payloads
from lancewal_ingest.decode.naming import PLAIN

MESSAGES, VECTORS, ROUNDS, DIMENSIONS = 100_000, 10_000, 7, 384
BAD_EVERY = 1000
COLUMNS = pa.schema(
    [
        ("city", pa.string()),
        ("trip", pa.int64()),
        ("status", pa.string()),
        ("fare", pa.decimal128(10, 2)),
        ("distance", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("shared", pa.bool_()),
    ]
)
FARE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FIELDS: list[tuple[str, Any]] = [
    ("city", "string"),
    ("trip", "long"),
    ("status", ["null", "string"]),
    ("fare", ["null", FARE]),
    ("distance", ["null", "double"]),
    ("at", ["null", {"type": "long", "logicalType": "timestamp-micros"}]),
    ("shared", "boolean"),
]
VECTOR_COLUMNS = pa.schema([("trip", pa.int64()), ("vector", pa.list_(pa.float32(), DIMENSIONS))])
ARRAY: list[tuple[str, Any]] = [("trip", "long"), ("vector", {"type": "array", "items": "float"})]
RAW: list[tuple[str, Any]] = [("trip", "long"), ("vector", {"type": "fixed", "name": "Vector", "size": 4 * DIMENSIONS})]


def narrow(number: int) -> dict[str, Any]:
    """One row."""
    return {
        "city": f"Oslo{number % 50}", "trip": number, "status": None if number % 7 == 0 else "ended",
        "fare": Decimal(number % 9999) / 100, "distance": 1.5 * number, "at": 1_700_000_000_000_000 + number,
        "shared": number % 3 == 0,
    }  # fmt: skip


def record(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "Trip", "fields": [{"name": name, "type": type_} for name, type_ in fields]}


def written(schema: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[bytes]:
    """Return the datums of rows."""
    parsed, datums = fastavro.parse_schema(json.loads(json.dumps(schema))), []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        datums.append(out.getvalue())
    return datums


def best(call: Callable[[], object], rounds: int) -> float:
    """Return the least CPU seconds of some runs."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def compared(name: str, fields: Sequence[tuple[str, Any]], columns: pa.Schema, datums: list[bytes]) -> dict[str, float]:
    """Return our rate and how many times fastavro's it is, after a check that both give the same rows."""
    schema, ops = record(fields), np.zeros(len(datums), np.uint8)
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    decoder = AvroFormat(RowSchema(columns, ("trip",), ("trip",)), PLAIN).decoder(
        WriterSchema("avro", json.dumps(schema)), ()
    )

    def ours() -> pa.Table:
        parts = decoder.decode(Payloads.of(datums), ops).parts
        return pa.Table.from_batches([pa.RecordBatch.from_arrays(list(part.columns), schema=columns) for part in parts])

    def theirs() -> pa.Table:
        rows: list[Any] = [fastavro.schemaless_reader(io.BytesIO(datum), parsed, None) for datum in datums]
        if isinstance(rows[0].get("vector"), bytes):
            for row in rows:
                row["vector"] = np.frombuffer(row["vector"], "<f4")
        return pa.Table.from_pylist(rows, columns)

    assert ours().equals(theirs())
    mine, other = best(ours, ROUNDS), best(theirs, 2)
    return {f"{name}_per_s": len(datums) / mine, f"{name}_ratio": other / mine}


def run() -> dict[str, float]:
    datums = written(record(FIELDS), [narrow(number) for number in range(MESSAGES)])
    found = compared("rows", FIELDS, COLUMNS, datums)
    with_bad = [datum[:-1] if number % BAD_EVERY == 0 else datum for number, datum in enumerate(datums)]
    schema = WriterSchema("avro", json.dumps(record(FIELDS)))
    decoder = AvroFormat(RowSchema(COLUMNS, ("trip",), ("trip",)), PLAIN).decoder(schema, ())
    ops = np.zeros(MESSAGES, np.uint8)
    assert len(decoder.decode(Payloads.of(with_bad), ops).refused) == MESSAGES // BAD_EVERY
    good = best(lambda: decoder.decode(Payloads.of(datums), ops), ROUNDS)
    bad = best(lambda: decoder.decode(Payloads.of(with_bad), ops), ROUNDS)
    values = np.random.default_rng(1).random((VECTORS, DIMENSIONS), np.float32)
    arrays = [{"trip": number, "vector": row.tolist()} for number, row in enumerate(values)]
    raw = [{"trip": number, "vector": row.tobytes()} for number, row in enumerate(values)]
    return {
        **found,
        "bad_ratio": good / bad,
        **compared("vectors", ARRAY, VECTOR_COLUMNS, written(record(ARRAY), arrays)),
        **compared("raw_vectors", RAW, VECTOR_COLUMNS, written(record(RAW), raw)),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
