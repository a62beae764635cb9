"""The rows of ``upserts`` as Debezium writes updates of them: keys of the whole primary key, envelopes, four headers.

No event has the row before the change, as with PostgreSQL's default identity.  ``placeholder_every``: each so many leaves
the column ``pad`` out, since the update has not changed it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import fastavro

from benchmarks.ingest import KEYS, Headers
from benchmarks.workload import PRIMARY_KEY, Message, upserts
from lancewal_core.settings.sections import PLACEHOLDER

EVENT_ID, KEY_ID = 10, 11
HEADERS: Headers = [
    ("__debezium.context.connectorLogicalName", b"inventory"),
    ("__debezium.context.taskId", b"0"),
    ("__debezium.context.connectorName", b"postgresql"),
    ("__debezium.context.runId", b"01a2087f-6feb-79ad-8421-8697c016d91f"),
]
_MS = 1_795_438_898_053
_SOURCE = {
    "version": "string", "connector": "string", "name": "string", "ts_ms": "long", "snapshot": "string", "db": "string",
    "sequence": ["null", "string"], "ts_us": ["null", "long"], "ts_ns": ["null", "long"], "schema": "string",
    "table": "string", "txId": ["null", "long"], "lsn": ["null", "long"], "xmin": ["null", "long"],
    "origin": ["null", "string"], "origin_lsn": ["null", "long"],
}  # fmt: skip
_BLOCK = {"id": "string", "total_order": "long", "data_collection_order": "long"}
_CONNECT = {"string": "string", "long": "int64", "double": "double"}


def key_schema(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Avro schema of the keys of rows."""
    fields = [field for field in row["fields"] if field["name"] in PRIMARY_KEY]
    return {"type": "record", "name": "Key", "fields": fields}


def event_schema(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Avro schema of the envelope around rows."""
    fields = {
        "before": ["null", row],
        "after": ["null", row["name"]],
        "source": _record("Source", _SOURCE),
        "transaction": ["null", _record("block", _BLOCK)],
        "op": "string",
        **{name: ["null", "long"] for name in ("ts_ms", "ts_us", "ts_ns")},
    }
    return _record("Envelope", fields)


def in_json(count: int) -> Iterator[Message]:
    """Events and keys in JSON without schemas."""
    for key, event in _events(count, 0):
        yield Message(_text(key), _text(event), "upsert")


def in_connect(count: int, row: Mapping[str, Any]) -> Iterator[Message]:
    """Events and keys in JSON with schemas.  ``row``: the Avro schema of rows."""
    heads = [
        _text({"schema": _of_connect(schema, {"Row": row}, optional=False)})[:-1] + b',"payload":'
        for schema in (key_schema(row), event_schema(row))
    ]
    for pair in _events(count, 0):
        key, value = (head + _text(part) + b"}" for head, part in zip(heads, pair, strict=True))
        yield Message(key, value, "upsert")


def in_avro(count: int, row: Mapping[str, Any], placeholder_every: int = 0) -> Iterator[Message]:
    """Events and keys in Avro, with frames.  ``row``: the Avro schema of rows."""
    of_keys, of_events = _writer(KEY_ID, key_schema(row)), _writer(EVENT_ID, event_schema(row))
    for key, event in _events(count, placeholder_every):
        yield Message(of_keys(key), of_events(event), "upsert")


def _events(count: int, placeholder_every: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the keys and the events."""
    for n, message in enumerate(upserts(count, KEYS, 1)):
        row = json.loads(message.value)
        if placeholder_every and n % placeholder_every == placeholder_every - 1:
            row["pad"] = PLACEHOLDER
        lsn = 27_340_680 + 56 * n
        source = {
            "version": "3.5.0.Final", "connector": "postgresql", "name": "inventory", "ts_ms": _MS + n, "snapshot": "false",
            "db": "shop", "sequence": f'["{lsn - 56}","{lsn}"]', "ts_us": (_MS + n) * 1000, "ts_ns": (_MS + n) * 10**6,
            "schema": "public", "table": "rows", "txId": 791 + n, "lsn": lsn, "xmin": None, "origin": None,
            "origin_lsn": None,
        }  # fmt: skip
        seen = _MS + n + 387
        yield (
            {name: row[name] for name in PRIMARY_KEY},
            {
                "before": None, "after": row, "source": source, "transaction": None, "op": "u", "ts_ms": seen,
                "ts_us": seen * 1000 + 609, "ts_ns": seen * 10**6 + 609_109,
            },
        )  # fmt: skip


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _record(name: str, types: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": types[field]} for field in types]}


def _writer(number: int, schema: dict[str, Any]) -> Callable[[dict[str, Any]], bytes]:
    parsed, frame = fastavro.parse_schema(json.loads(json.dumps(schema))), b"\0" + number.to_bytes(4)

    def write(value: dict[str, Any]) -> bytes:
        data = io.BytesIO(frame)
        data.seek(len(frame))
        fastavro.schemaless_writer(data, parsed, value)
        return data.getvalue()

    return write


def _of_connect(schema: Any, named: Mapping[str, Any], *, optional: bool) -> dict[str, Any]:
    """Return a schema of Kafka Connect for an Avro schema."""
    if isinstance(schema, list):
        return _of_connect(schema[1], named, optional=True)
    record = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(record, str):
        return {"type": _CONNECT[record], "optional": optional}
    fields = [
        {**_of_connect(field["type"], named, optional=False), "field": field["name"]} for field in record["fields"]
    ]
    return {"type": "struct", "fields": fields, "optional": optional, "name": f"shop.public.rows.{record['name']}"}
