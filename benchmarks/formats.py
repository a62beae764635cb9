"""Compare formats of record values: the same rows through ingest in each format, over a real broker.

The floor only consumes and looks at no record.  Floor and formats alternate, so that all run on the same machine state;
ratios are of medians, seals and flushes included.  ``bad``: one record in a thousand is bad and becomes a dead letter.
``connect``: JSON of Kafka Connect with schemas of ``CONNECT_BYTES``, against a floor of its own, of fewer rows.
``decode``: Avro decoding alone (``avro_decode``).  ``new_schema``: the delay of a new schema's first record (``new_schema``).
"""

from __future__ import annotations

import io
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fastavro

from benchmarks import workload
from benchmarks.avro_decode import run as decode
from benchmarks.ingest import BUDGET, KEYS, child, prefill
from benchmarks.new_schema import run as new_schema
from benchmarks.workload import Message, upserts
from lancewal_demo.stack import KafkaBroker
from tests.support.stub_registry import serving

SCHEMA_ID = 7
BAD_EVERY = 1000
CONNECT_BYTES, CONNECT_FEWER = 3_000, 5
SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": name, "type": ["null", kind] if name in ("a", "b", "name") else kind}
        for name, kind in (
            ("region", "string"),
            ("id", "long"),
            ("a", "long"),
            ("b", "double"),
            ("name", "string"),
            ("ts", "long"),
            ("pad", "string"),
        )
    ],
}


def run(rows: int = 2_000_000, runs: int = 3) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    rates: dict[str, list[float]] = {kind: [] for kind in ("floor", "json", "avro", "bad", "connect_floor", "connect")}
    try:
        with serving() as registry, KafkaBroker(folder / "kafka") as broker:
            registry.has(f"/schemas/ids/{SCHEMA_ID}", json.dumps(SCHEMA))
            servers = broker.bootstrap_servers
            fewer = rows // CONNECT_FEWER
            topics = {
                "json": upserts(rows, KEYS, 1),
                "avro": in_avro(rows),
                "bad": in_avro(rows, BAD_EVERY),
                "connect": in_connect(fewer),
            }
            formats = {"avro": ("avro", registry.url), "bad": ("avro", registry.url), "connect": ("connect-json", "")}
            for kind, messages in topics.items():
                prefill(servers, f"formats-{kind}", messages)
            for number in range(runs):
                rates["floor"].append(child("consume", servers, "formats-avro", rows, folder, 0)["rows_per_s"])
                floor = child("consume", servers, "formats-connect", fewer, folder, 0)["rows_per_s"]
                rates["connect_floor"].append(floor)
                for kind in topics:
                    table = folder / f"{kind}-{number}"
                    count = fewer if kind == "connect" else rows
                    done = child("ingest", servers, f"formats-{kind}", count, table, BUDGET, formats.get(kind, ()))
                    rates[kind].append(done["rows_per_s"])
                    shutil.rmtree(table)
    finally:
        shutil.rmtree(folder)
    rate = {kind: statistics.median(found) for kind, found in rates.items()}
    result = {f"{kind}_rows_per_s": found for kind, found in rate.items()}
    result |= {
        "avro_to_floor": rate["avro"] / rate["floor"],
        "avro_to_json": rate["avro"] / rate["json"],
        "bad_to_good": rate["bad"] / rate["avro"],
        "connect_to_floor": rate["connect"] / rate["connect_floor"],
    }
    result |= {f"decode_{name}": found for name, found in decode().items()}
    result |= {f"new_schema_{name}": found for name, found in new_schema().items()}
    return {"rows": rows, "runs": runs, **result}


def in_avro(count: int, bad_every: int = 0) -> Iterator[Message]:
    """The rows of ``upserts`` in Avro, with a frame; each so many is cut."""
    schema, frame = fastavro.parse_schema(SCHEMA), b"\0" + SCHEMA_ID.to_bytes(4)
    for number, message in enumerate(upserts(count, KEYS, 1)):
        data = io.BytesIO()
        fastavro.schemaless_writer(data, schema, json.loads(message.value))
        cut = -1 if bad_every and number % bad_every == bad_every - 1 else None
        yield Message(message.key, frame + data.getvalue()[:cut], "upsert")


def in_connect(count: int) -> Iterator[Message]:
    """The rows of ``upserts`` as Kafka Connect writes them, with a schema."""
    kinds = {"string": "string", "int64": "int64", "double": "double"}
    fields = [{"type": kinds[str(one.type)], "optional": one.nullable, "field": one.name} for one in workload.SCHEMA]
    head = json.dumps(
        {"schema": {"type": "struct", "fields": fields, "optional": False, "doc": ""}}, separators=(",", ":")
    )
    head = head.replace('"doc":""', f'"doc":"{"x" * (CONNECT_BYTES - len(head))}"')[:-1]
    for message in upserts(count, KEYS, 1):
        yield Message(message.key, head.encode() + b',"payload":' + message.value + b"}", "upsert")
