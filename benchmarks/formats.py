"""Compare formats of record values: the same rows through ingest in each format, over a real broker.

The floor only consumes and looks at no record.  Floor and formats alternate, so that all run on the same machine state;
ratios are of medians, seals and flushes included.  ``bad``: one record in a thousand is bad and becomes a dead letter.
``connect``: JSON of Kafka Connect with schemas of ``CONNECT_BYTES``, against a floor of its own, of fewer rows.
``vector_json``, ``vector_protobuf``: fewer rows with a vector of ``DIMENSIONS`` floats besides.
``events_json``, ``events_connect``, ``events_avro``: fewer rows as change events (``change_events``).  Each has a floor of its
own, which asks every record for its value and its headers.  In ``events_kept`` the connector has left a value out of
each ``KEPT_EVERY``th event of ``events_avro``.
``decode``: Avro decoding alone (``avro_decode``), ``decode_protobuf`` that of Protobuf.  ``new_schema``: the delay of a new
schema's first record (``new_schema``).
"""

from __future__ import annotations

import io
import json
import shutil
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import fastavro
import numpy as np

from benchmarks import change_events, workload
from benchmarks.avro_decode import DIMENSIONS
from benchmarks.avro_decode import run as decode
from benchmarks.ingest import BUDGET, KEYS, Prefilled, child, prefill
from benchmarks.new_schema import run as new_schema
from benchmarks.protobuf_decode import message_class
from benchmarks.protobuf_decode import run as decode_protobuf
from benchmarks.workload import Message, upserts
from lancewal_demo.stack import KafkaBroker
from tests.support.stub_registry import serving

SCHEMA_ID = 7
BAD_EVERY = 1000
CONNECT_BYTES, CONNECT_FEWER = 3_000, 5
PROTOBUF_ID, VECTOR_FEWER = 8, 20
EVENTS_FEWER, KEPT_EVERY = 4, 10
EVENTS = ("events_json", "events_connect", "events_avro")
PROTOBUF = """syntax = "proto3";
message Row {
  string region = 1; int64 id = 2; optional int64 a = 3; optional double b = 4; optional string name = 5; int64 ts = 6;
  string pad = 7; repeated float vector = 8;
}
"""
NARROW_PROTOBUF = PROTOBUF.replace(" repeated float vector = 8;", "")
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
FLOORS = {
    "floor": ("consume", "avro"),
    "connect_floor": ("consume", "connect"),
    "vector_floor": ("consume", "vector_protobuf"),
    **{f"{kind}_floor": ("read", kind) for kind in EVENTS},
}
"""By floor, the act of a child, and the kind of records that it consumes."""


class FormatTopic(NamedTuple):
    """The records of one kind, and how a table reads them."""

    rows: int
    messages: Iterator[Message]
    values: tuple[str, ...] = ()
    """Arguments of ``ingest_child.ingest`` about the format."""


def run(rows: int = 2_000_000, runs: int = 3) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    rates = defaultdict[str, list[float]](list)
    try:
        with serving() as registry, KafkaBroker(folder / "kafka") as broker:
            registry.has(f"/schemas/ids/{SCHEMA_ID}", json.dumps(SCHEMA))
            registry.has(f"/schemas/ids/{PROTOBUF_ID}", NARROW_PROTOBUF, schemaType="PROTOBUF")
            registry.has(f"/schemas/ids/{PROTOBUF_ID + 1}", PROTOBUF, schemaType="PROTOBUF")
            registry.has(f"/schemas/ids/{change_events.EVENT_ID}", json.dumps(change_events.event_schema(SCHEMA)))
            registry.has(f"/schemas/ids/{change_events.KEY_ID}", json.dumps(change_events.key_schema(SCHEMA)))
            servers = broker.bootstrap_servers
            topics = _topics(rows, registry.url)
            sources = {kind: Prefilled(servers, f"formats-{kind}", topic.rows) for kind, topic in topics.items()}
            for kind, topic in topics.items():
                headers = change_events.HEADERS if "events" in kind else ()
                prefill(servers, sources[kind].topic, topic.messages, headers)
            for number in range(runs):
                for floor, (act, kind) in FLOORS.items():
                    rates[floor].append(child(act, sources[kind], folder, 0)["rows_per_s"])
                for kind, topic in topics.items():
                    table = folder / f"{kind}-{number}"
                    done = child("ingest", sources[kind], table, BUDGET, topic.values)
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
        "protobuf_to_floor": rate["protobuf"] / rate["floor"],
        "protobuf_to_json": rate["protobuf"] / rate["json"],
        "vector_floor_to_json": rate["vector_floor"] / rate["vector_json"],
        "vector_protobuf_to_json": rate["vector_protobuf"] / rate["vector_json"],
        **{f"{kind}_to_floor": rate[kind] / rate[f"{kind}_floor"] for kind in EVENTS},
        "events_to_avro": rate["events_avro"] / rate["avro"],
        "events_kept_to_none": rate["events_kept"] / rate["events_avro"],
    }
    result |= {f"decode_{name}": found for name, found in decode().items()}
    result |= {f"decode_protobuf_{name}": found for name, found in decode_protobuf().items()}
    result |= {f"new_schema_{name}": found for name, found in new_schema().items()}
    return {"rows": rows, "runs": runs, **result}


def _topics(rows: int, registry: str) -> dict[str, FormatTopic]:
    """Return all kinds.  ``rows``: the number of records, of which some kinds have fewer."""
    connect, vectors, events = rows // CONNECT_FEWER, rows // VECTOR_FEWER, rows // EVENTS_FEWER
    avro, protobuf = ("avro", registry), ("protobuf", registry)
    in_avro_events = (*avro, "", "debezium")
    return {
        "json": FormatTopic(rows, upserts(rows, KEYS, 1)),
        "avro": FormatTopic(rows, in_avro(rows), avro),
        "bad": FormatTopic(rows, in_avro(rows, BAD_EVERY), avro),
        "protobuf": FormatTopic(rows, in_protobuf(rows, PROTOBUF_ID, NARROW_PROTOBUF), protobuf),
        "connect": FormatTopic(connect, in_connect(connect), ("connect-json", "")),
        "vector_json": FormatTopic(vectors, with_vectors(vectors), ("json", "", str(DIMENSIONS))),
        "vector_protobuf": FormatTopic(
            vectors, in_protobuf(vectors, PROTOBUF_ID + 1, PROTOBUF), (*protobuf, str(DIMENSIONS))
        ),
        "events_json": FormatTopic(events, change_events.in_json(events), ("json", "", "", "debezium")),
        "events_connect": FormatTopic(
            events, change_events.in_connect(events, SCHEMA), ("connect-json", "", "", "debezium")
        ),
        "events_avro": FormatTopic(events, change_events.in_avro(events, SCHEMA), in_avro_events),
        "events_kept": FormatTopic(events, change_events.in_avro(events, SCHEMA, KEPT_EVERY), in_avro_events),
    }


def in_avro(count: int, bad_every: int = 0) -> Iterator[Message]:
    """The rows of ``upserts`` in Avro, with a frame; each so many is cut."""
    schema, frame = fastavro.parse_schema(SCHEMA), b"\0" + SCHEMA_ID.to_bytes(4)
    for number, message in enumerate(upserts(count, KEYS, 1)):
        data = io.BytesIO()
        fastavro.schemaless_writer(data, schema, json.loads(message.value))
        cut = -1 if bad_every and number % bad_every == bad_every - 1 else None
        yield Message(message.key, frame + data.getvalue()[:cut], "upsert")


def with_vectors(count: int) -> Iterator[Message]:
    """The rows of ``upserts`` with a vector."""
    values = np.random.default_rng(2).random((1000, DIMENSIONS), np.float32)
    texts = [json.dumps([round(value, 7) for value in row.tolist()]).encode() for row in values]
    for number, message in enumerate(upserts(count, KEYS, 1)):
        yield Message(message.key, message.value[:-1] + b',"vector":' + texts[number % len(texts)] + b"}", "upsert")


def in_protobuf(count: int, schema: int, text: str) -> Iterator[Message]:
    """The rows of ``upserts`` in Protobuf, with a frame, and with a vector if the text has one."""
    of, frame = message_class(text), b"\0" + schema.to_bytes(4) + b"\0"
    for message in with_vectors(count) if "vector" in text else upserts(count, KEYS, 1):
        yield Message(message.key, frame + of(**json.loads(message.value)).SerializeToString(), "upsert")


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
