"""Records of a connector: what each value is, which form a key has, and facts about many of them.

1. A value is a row, a delete, a tombstone, a truncate or a record beside rows.  Anything else is unreadable.  A record
   *beside rows* is a heartbeat, a transaction or a message.
2. ``InvalidInput`` names a record that no table can have: the envelope of another program, another frame than ingest
   reads, an event without a row, or a key that is no struct.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson
import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.record_keys.json_compact import json_key
from lancewal_ingest.commands.proposals.connector_schema import ConnectorSchema, ConnectorSchemas
from lancewal_ingest.decode.framed.frames import APICURIO_ADVICE, SCHEMA_HEADER, FrameReader
from lancewal_ingest.decode.json.foreign import framed_format, other_envelope
from lancewal_ingest.decode.json.strict import BLANKS
from lancewal_ingest.decode.record_keys import KEY_SCHEMA_HEADER
from lancewal_ingest.envelopes.debezium_json import ROWS, passed_over
from lancewal_ingest.envelopes.unwrapped import DELETED, OLD_KEY

if TYPE_CHECKING:
    from lancewal_core.names.ids import SchemaKey
    from lancewal_core.record_keys.key_choices import KeyFormat
    from lancewal_core.settings.sections import ValueFormat

What = Literal["row", "delete", "tombstone", "truncate", "beside rows", "unreadable"]


class ConnectorValue(NamedTuple):
    """One value of a connector, and its kind (such as row, delete or heartbeat)."""

    what: What
    format: ValueFormat | None = None
    enveloped: bool | None = None
    """Whether the value is Debezium's envelope; None if it may come with or without an envelope, as a null does."""
    row: Mapping[str, Any] | None = None
    """The row in JSON without schemas."""
    schema: ConnectorSchema | None = None
    source: Mapping[str, Any] | None = None
    """Member ``source`` of an envelope in JSON."""
    full: bool = False
    """Whether an update has the whole row before the change."""


class ConnectorKey(NamedTuple):
    format: KeyFormat
    names: tuple[str, ...]


class ConnectorRecord(NamedTuple):
    at: str
    """Topic, partition and offset, for messages."""
    ms: int
    """Kafka's timestamp."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class ConnectorFacts:
    """Facts collected from a connector's records, the newest record first."""

    forms: dict[tuple[ValueFormat, bool | None], str] = field(default_factory=dict)
    """Each form of values, which is the format and whether it is an envelope, with the place of a record that has
    it."""
    keys: dict[ConnectorKey, str] = field(default_factory=dict)
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    schemas: list[ConnectorSchema] = field(default_factory=list)
    key_schemas: list[ConnectorSchema] = field(default_factory=list)
    connectors: set[str] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    kinds: Counter[What] = field(default_factory=Counter)
    without_key: list[ConnectorRecord] = field(default_factory=list)
    full: bool = False
    """Whether an update has the whole row before the change."""
    tells_deletes: bool = False
    """Whether rows without an envelope have a member that says if they were deleted."""
    deleted: set[bytes] = field(default_factory=set)
    """Keys of deletes and tombstones."""
    changed: list[tuple[bytes, ConnectorRecord]] = field(default_factory=list)
    """Old keys of rows whose key has changed, each with the record of the new key."""


def value_of(record: ConnectorRecord, known: ConnectorSchemas) -> ConnectorValue:
    """Find the kind of a record's value, and read the value."""
    if record.value is None:
        return ConnectorValue("tombstone")
    if any(name.startswith("apicurio.value.") for name, _ in record.headers):
        raise InvalidInput(_other_frame(record.at, "value", record.value, record.headers))
    text = record.value.strip(BLANKS)
    if text.startswith(b"{") or text == b"null":
        return _of_json(record, text, known)
    framed = _framed(record.value, record.headers, SCHEMA_HEADER)
    if framed is not None:
        schema = known.named(framed)
        what: What = "beside rows" if schema.beside_rows else "row"
        return ConnectorValue(what, schema.record.format, schema.enveloped, schema=schema)
    if record.value[:1] == b"\x00":
        raise InvalidInput(_other_frame(record.at, "value", record.value, record.headers))
    return ConnectorValue("unreadable")


def _other_frame(at: str, of: str, data: bytes, headers: Sequence[tuple[str, bytes | None]] = ()) -> str:
    found = framed_format(data, list(headers)) or "of no frame that is known"
    return f"{at}: the {of} is {found}, which ingest does not read: {APICURIO_ADVICE}"


def _framed(data: bytes, headers: Sequence[tuple[str, bytes | None]], header: str) -> SchemaKey | None:
    """Return the schema that a frame names; None for bytes without a frame."""
    named = dict(headers).get(header)
    framed, _ = FrameReader("a record", paths=False, header=header).read([data], pa.array([named], pa.binary()))
    return framed[0].key if framed else None


def _of_json(record: ConnectorRecord, text: bytes, known: ConnectorSchemas) -> ConnectorValue:
    try:
        members = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ConnectorValue("unreadable")
    if members is None:
        return ConnectorValue("delete", "json", False)
    if members.keys() != {"schema", "payload"} or not isinstance(members["schema"], dict | None):
        return _classified(record, members, "json", None)
    schema, payload = members["schema"], members["payload"]
    if payload is None:
        return ConnectorValue("delete", "connect-json")
    if schema is None or not isinstance(payload, dict):
        return ConnectorValue("unreadable")
    return _classified(record, payload, "connect-json", known.written_out(schema))


def _classified(
    record: ConnectorRecord, members: Mapping[str, Any], format_: ValueFormat, schema: ConnectorSchema | None
) -> ConnectorValue:
    letter, source = members.get("op"), members.get("source")
    if isinstance(letter, str) and isinstance(source, dict) and (letter == "m" or {"before", "after"} & members.keys()):
        return _of_event(record, letter, members, format_, schema)
    if passed_over(members) is not None:
        return ConnectorValue("beside rows")
    other = other_envelope(members, ())
    if other is not None:
        raise InvalidInput(f"{record.at}: the value is {other}, which no table can have")
    if members.get(DELETED) == "true":
        return ConnectorValue("delete", format_, False, schema=schema)
    return ConnectorValue("row", format_, False, members, schema)


def _of_event(
    record: ConnectorRecord,
    letter: str,
    members: Mapping[str, Any],
    format_: ValueFormat,
    schema: ConnectorSchema | None,
) -> ConnectorValue:
    source, row = members["source"], members.get("after")
    match letter:
        case "d":
            return ConnectorValue("delete", format_, True, schema=schema, source=source)
        case "t":
            return ConnectorValue("truncate")
        case "m":
            return ConnectorValue("beside rows")
        case _ if letter not in ROWS:
            return ConnectorValue("unreadable")
    if not isinstance(row, dict):
        raise InvalidInput(
            f"{record.at}: member 'after' is not an object, so the event has no row. The connector of MongoDB writes such "
            "events, which no table can have"
        )
    before = members.get("before")
    full = letter == "u" and isinstance(before, dict)
    return ConnectorValue("row", format_, True, row, schema, source, full)


def add(record: ConnectorRecord, value: ConnectorValue, seen: ConnectorFacts, known: ConnectorSchemas) -> None:
    """Add the facts of a row, a delete or a tombstone. Call this for newer records first."""
    if value.format is not None:
        seen.forms.setdefault((value.format, value.enveloped), record.at)
    if value.schema is not None:
        if value.schema not in seen.schemas:
            seen.schemas.append(value.schema)
        if value.schema.connector:
            seen.connectors.add(value.schema.connector)
    elif value.row is not None:
        seen.rows.append(value.row)
    if value.source is not None:
        seen.connectors.add(str(value.source.get("connector")))
        seen.tables.add(f"{value.source.get('schema') or value.source.get('db')}.{value.source.get('table')}")
    seen.full |= value.full
    if value.what != "row" and record.key is not None:
        seen.deleted.add(record.key)
    old_key = dict(record.headers).get(OLD_KEY)
    if old_key is not None:
        seen.changed.append((old_key, record))
    seen.tells_deletes |= DELETED in (value.row or ()) or DELETED in _names(value.schema)
    if record.key is None:
        seen.without_key.append(record)
    else:
        seen.keys.setdefault(_key_of(record, known, seen), record.at)


def _names(schema: ConnectorSchema | None) -> Sequence[str]:
    return [] if schema is None else [name for name, _ in schema.record.fields]


def _key_of(record: ConnectorRecord, known: ConnectorSchemas, seen: ConnectorFacts) -> ConnectorKey:
    key = record.key or b""
    schema = None
    if key.startswith(b"{"):
        try:
            members = orjson.loads(key)
        except orjson.JSONDecodeError:
            members = {}
        if members.keys() == {"schema", "payload"} and isinstance(members["schema"], dict):
            schema = known.written_out(members["schema"])
        elif members and all(isinstance(value, str | int) for value in members.values()):
            return ConnectorKey("json-compact" if json_key(members) == key else "json", tuple(members))
    else:
        framed = _framed(key, record.headers, KEY_SCHEMA_HEADER)
        schema = None if framed is None else known.named(framed)
        if framed is None and key[:1] == b"\x00":
            raise InvalidInput(_other_frame(record.at, "record key", key))
    if schema is None:
        raise InvalidInput(
            f"{record.at}: the record key is no struct of texts, integers and booleans in JSON, and has no schema. A delete "
            "names its row by the key: use JsonConverter or Avro for keys, and no transformation that changes keys"
        )
    if schema not in seen.key_schemas:
        seen.key_schemas.append(schema)
    return ConnectorKey(schema.record.format, tuple(name for name, _ in schema.record.fields))
