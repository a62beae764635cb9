"""Compare the Protobuf decoder with Google's (upb) and columns built from its records.

``rows``: seven narrow columns.  ``bad``: the same with one bad record in a thousand.  ``vectors``: rows with a vector of 384
floats.  Rates are the best of some runs, in rows a second of CPU time.  Ratios are of one run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from benchmarks.avro_decode import BAD_EVERY, DIMENSIONS, MESSAGES, ROUNDS, VECTOR_COLUMNS, VECTORS, best
from lancewal_core.rows.schema import RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.framed.payloads import Payloads
from lancewal_ingest.decode.framed.protobuf.decoder import ProtobufFormat, ProtobufPayloads
from lancewal_ingest.decode.framed.protobuf.schema import message_of
from lancewal_ingest.decode.naming import PLAIN

COLUMNS = pa.schema(
    [
        ("city", pa.string()),
        ("trip", pa.int64()),
        ("status", pa.string()),
        ("fare", pa.float64()),
        ("distance", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("shared", pa.bool_()),
    ]
)
ROWS = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Trip {
  string city = 1; int64 trip = 2; optional string status = 3; optional double fare = 4; optional double distance = 5;
  google.protobuf.Timestamp at = 6; bool shared = 7;
}
"""
VECTOR_ROWS = 'syntax = "proto3"; message Trip { int64 trip = 1; repeated float vector = 2; }'


def message_class(text: str) -> Any:
    """Return the class of the first message."""
    return GetMessageClass(message_of(WriterSchema("protobuf", text), (0,)))


def narrow(of: Any, number: int) -> bytes:
    """Return one row."""
    row = of(
        city=f"Oslo{number % 50}", trip=number, fare=number % 9999 / 4, distance=1.5 * number, shared=number % 3 == 0
    )
    if number % 7:
        row.status = "ended"
    row.at.FromMicroseconds(1_700_000_000_000_000 + number)
    data: bytes = row.SerializeToString()
    return data


def decoder_of(text: str, columns: pa.Schema) -> ProtobufPayloads:
    return ProtobufFormat(RowSchema(columns, ("trip",), ("trip",)), PLAIN).decoder(WriterSchema("protobuf", text), (0,))


def compared(
    name: str, text: str, columns: pa.Schema, payloads: Sequence[bytes], cells: Callable[[Any], dict[str, Any]]
) -> dict[str, float]:
    """Return our rate and how many times that of upb it is, after a check that both give the same rows."""
    decoder, ops, of = decoder_of(text, columns), np.zeros(len(payloads), np.uint8), message_class(text)

    def ours() -> pa.Table:
        parts = decoder.decode(Payloads.of(payloads), ops).parts
        return pa.Table.from_batches([pa.RecordBatch.from_arrays(list(part.columns), schema=columns) for part in parts])

    def theirs() -> pa.Table:
        return pa.Table.from_pylist([cells(of.FromString(payload)) for payload in payloads], columns)

    assert ours().equals(theirs())
    mine, other = best(ours, ROUNDS), best(theirs, 2)
    return {f"{name}_per_s": len(payloads) / mine, f"{name}_ratio": other / mine}


def of_narrow(row: Any) -> dict[str, Any]:
    return {
        "city": row.city,
        "trip": row.trip,
        "status": row.status if row.HasField("status") else None,
        "fare": row.fare if row.HasField("fare") else None,
        "distance": row.distance if row.HasField("distance") else None,
        "at": row.at.seconds * 10**6 + row.at.nanos // 1000 if row.HasField("at") else None,
        "shared": row.shared,
    }


def run() -> dict[str, float]:
    of = message_class(ROWS)
    payloads = [narrow(of, number) for number in range(MESSAGES)]
    found = compared("rows", ROWS, COLUMNS, payloads, of_narrow)
    with_bad = [one[:-1] if number % BAD_EVERY == 0 else one for number, one in enumerate(payloads)]
    decoder, ops = decoder_of(ROWS, COLUMNS), np.zeros(MESSAGES, np.uint8)
    assert len(decoder.decode(Payloads.of(with_bad), ops).refused) == MESSAGES // BAD_EVERY
    good = best(lambda: decoder.decode(Payloads.of(payloads), ops), ROUNDS)
    bad = best(lambda: decoder.decode(Payloads.of(with_bad), ops), ROUNDS)
    values = np.random.default_rng(1).random((VECTORS, DIMENSIONS), np.float32)
    row_of = message_class(VECTOR_ROWS)
    vectors = [row_of(trip=number, vector=row).SerializeToString() for number, row in enumerate(values, 1)]
    return {
        **found,
        "bad_ratio": good / bad,
        **compared(
            "vectors", VECTOR_ROWS, VECTOR_COLUMNS, vectors, lambda row: {"trip": row.trip, "vector": list(row.vector)}
        ),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
