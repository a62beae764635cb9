"""Compare formats of record values: the same rows through ingest as JSON and as Avro, over a real broker.

The floor only consumes and looks at no record.  Floor and formats alternate, so that all run on the same machine state;
ratios are of medians, seals and flushes included.  ``bad``: one record in a thousand is bad and becomes a dead letter.
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

from benchmarks.avro_decode import run as decode
from benchmarks.ingest import BUDGET, KEYS, child, prefill
from benchmarks.new_schema import run as new_schema
from benchmarks.workload import Message, upserts
from lancewal_demo.stack import KafkaBroker
from tests.support.stub_registry import serving

SCHEMA_ID = 7
BAD_EVERY = 1000
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
    rates: dict[str, list[float]] = {kind: [] for kind in ("floor", "json", "avro", "bad")}
    try:
        with serving() as registry, KafkaBroker(folder / "kafka") as broker:
            registry.has(f"/schemas/ids/{SCHEMA_ID}", json.dumps(SCHEMA))
            servers = broker.bootstrap_servers
            topics = {"json": upserts(rows, KEYS, 1), "avro": in_avro(rows), "bad": in_avro(rows, BAD_EVERY)}
            for kind, messages in topics.items():
                prefill(servers, f"formats-{kind}", messages)
            for number in range(runs):
                rates["floor"].append(child("consume", servers, "formats-avro", rows, folder, 0)["rows_per_s"])
                for kind in topics:
                    table = folder / f"{kind}-{number}"
                    values = () if kind == "json" else ("avro", registry.url)
                    done = child("ingest", servers, f"formats-{kind}", rows, table, BUDGET, values)
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
