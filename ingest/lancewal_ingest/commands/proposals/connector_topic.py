"""The table that fits a topic of Debezium's connector, found from the topic's newest records.

1. All records with a row or a delete have one form: one envelope, one format of values, one format of keys, the same
   columns in the key.  Otherwise ``InvalidInput`` names records of two forms.
2. ``InvalidInput`` also says why no table can have the rows: records without a key, a key that is not in the row, the
   envelope of another program, a connector whose snapshots cover newer rows (Oracle), or no record with a row.
3. A record beside rows, and one that is neither JSON nor framed, says nothing about columns.
4. If each partition was read, a changed key without a delete of the old one shows that the connector loses deletes.
   ``InvalidInput`` says so.  Keys of formats with a schema do not show it.
5. Fields of newer records come first.  A field that only older records have is a column too, because the table reads
   them.
6. No value of a record is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lancewal_core.errors import InvalidInput, counted
from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.commands.proposals.connector_advice import advice
from lancewal_ingest.commands.proposals.connector_record import ConnectorFacts, ConnectorRecord, What, add, value_of
from lancewal_ingest.commands.proposals.connector_schema import ConnectorSchema, ConnectorSchemas
from lancewal_ingest.commands.proposals.sampled_columns import column_of
from lancewal_ingest.commands.proposals.settings_text import listed
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.value_decoder import Schemas
from lancewal_ingest.envelopes.envelope import EnvelopeRules
from lancewal_ingest.envelopes.unwrapped import DELETED
from lancewal_ingest.formats import value_decoder

if TYPE_CHECKING:
    from lancewal_core.record_keys.key_choices import KeyFormat
    from lancewal_core.settings.sections import Envelope, ValueFormat
    from lancewal_ingest.append.prepare import Consumed
    from lancewal_ingest.commands.proposals.settings_text import Fields

_ZONED = "io.debezium.time.ZonedTimestamp"
_APART_MS = 10_000
"""More milliseconds than ever lie between a delete of an old key and the row of the new one.  One producer sends both
at once."""


@dataclass(frozen=True, slots=True)
class ConnectorTopic:
    """Proposed table for a topic that a connector writes: formats, keys, columns and advice."""

    envelope: Envelope
    value: ValueFormat
    key: KeyFormat
    key_names: tuple[str, ...]
    """Names of the key's columns in records, in the key's order."""
    fields: Fields
    remarks: Mapping[str, str]
    """By field, a remark about its column, for a comment in the settings file."""
    advice: Sequence[str]
    """Sentences about settings of the connector, and of the source."""
    records: int
    """Number of records that were looked at."""
    compacted: bool


def connector_topic(
    parts: Sequence[Consumed], schemas: Schemas | None, partitions: int, *, placeholder: str, compacted: bool
) -> ConnectorTopic:
    """Propose a table for the records of ``parts``. ``partitions``: the topic's number of partitions.

    ``schemas``: those of the registry; None if there is none. ``placeholder``: the text of an unavailable value.
    ``compacted``: whether Kafka keeps only the newest record of each key.
    """
    known = ConnectorSchemas(schemas)
    seen = ConnectorFacts()
    for record in _newest_first(parts):
        value = value_of(record, known)
        seen.kinds[value.what] += 1
        if value.what in ("row", "delete", "tombstone"):
            add(record, value, seen, known)
    _refuse_mixed(seen)
    if not seen.rows and not seen.schemas:
        raise InvalidInput(_no_row(seen.kinds))
    fields, remarks = _of_schemas(seen.schemas) if seen.schemas else _of_rows(seen.rows, placeholder)
    _refuse_without_key(seen, fields, schemas)
    if len(parts) == partitions and not compacted:
        _refuse_lost_deletes(seen, parts)
    ((format_, enveloped),) = {form for form in seen.forms if form[1] is not None}
    key = next(iter(seen.keys))
    _refuse_other_key(key.names, fields)
    fields = _as_keys(seen.schemas, fields, key.names)
    if not seen.schemas:  # such a key holds texts, integers and booleans, so its columns have no other type
        remarks = {name: remark for name, remark in remarks.items() if name not in key.names}
    return ConnectorTopic(
        "debezium" if enveloped else "debezium-unwrapped",
        format_,
        key.format,
        key.names,
        fields,
        remarks,
        list(advice(seen, fields, compacted=compacted)),
        seen.kinds.total(),
        compacted,
    )


def _newest_first(parts: Sequence[Consumed]) -> Iterator[ConnectorRecord]:
    places = [
        (part.records.timestamps[n], part.region, n, part.records) for part in parts for n in range(len(part.records))
    ]
    for ms, region, n, records in sorted(places, key=lambda one: one[:3], reverse=True):
        at = f"{region.topic}-{region.partition}-{records.offsets[n]}"
        yield ConnectorRecord(at, ms, records.keys[n], records.values[n], records.headers[n] or ())


def _refuse_mixed(seen: ConnectorFacts) -> None:
    if "oracle" in seen.connectors:
        raise InvalidInput(
            "the events come from the connector of Oracle. A row of its snapshot may come after a newer event of the same "
            "key, and would take its place. No table can have such events yet"
        )
    formats = {format_: at for (format_, _), at in seen.forms.items()}
    envelopes = {enveloped: at for (_, enveloped), at in seen.forms.items() if enveloped is not None}
    if len(formats) > 1:
        raise InvalidInput(
            f"the topic has values of several formats: {_examples(formats)}. A table reads one format: let the connector "
            "write into a new topic"
        )
    if len(envelopes) > 1:
        named = {"Debezium's envelope" if is_ else "plain rows": at for is_, at in envelopes.items()}
        raise InvalidInput(
            f"the topic has values of several forms: {_examples(named)}. A table reads one form: let the connector write into "
            "a new topic"
        )
    if len(seen.keys) > 1:
        keys = {f"{key.format} with {listed(key.names)}": at for key, at in seen.keys.items()}
        raise InvalidInput(
            f"the topic has record keys of several forms: {_examples(keys)}. A table has one form of keys: let the connector "
            "write into a new topic"
        )


def _refuse_without_key(seen: ConnectorFacts, fields: Fields, schemas: Schemas | None) -> None:
    wrong = _with_rows(seen, fields, schemas)
    if wrong or not seen.keys:
        at = f"{wrong[0].at}: " if wrong else ""
        raise InvalidInput(
            f"{at}the record has no key, so no delete can name its row. Give the source table a primary key, or set "
            "message.key.columns in the connector"
        )


def _refuse_other_key(key: Sequence[str], fields: Fields) -> None:
    """Raise ``InvalidInput`` if the key does not consist of fields of the row."""
    missing = [name for name in key if name not in dict(fields)]
    if missing or not key:
        wrong = f"fields that the row lacks ({listed(missing)})" if missing else "no field"
        raise InvalidInput(
            f"the record key has {wrong}, so it names no row. Key by columns of the row: message.key.columns in the "
            "connector, and no transformation that changes keys"
        )


def _refuse_lost_deletes(seen: ConnectorFacts, parts: Sequence[Consumed]) -> None:
    """Raise ``InvalidInput`` if a key has changed, and no record deletes the old key's row.

    The connector writes the delete right before the row of the new key.  So it was read if each part begins at offset
    0, or with a record that is older by ``_APART_MS``."""
    if not all(len(part.records) for part in parts):
        return  # transactions were aborted there, and nothing tells what lies before them
    begins = max((part.records.timestamps[0] for part in parts if part.records.offsets[0] > 0), default=0)
    for old_key, record in seen.changed:
        if record.ms > begins + _APART_MS and old_key not in seen.deleted and old_key.startswith(b"{"):
            raise InvalidInput(
                f"{record.at}: the key of this row has changed, and no record deletes the row of the old key. The connector "
                "loses deletes (delete.tombstone.handling.mode=drop): set it to rewrite or tombstone, and take a new topic"
            )


def _with_rows(seen: ConnectorFacts, fields: Fields, schemas: Schemas | None) -> list[ConnectorRecord]:
    """Return the records without a key that have a row or a delete.  In Avro's envelope only the decoder can tell them
    from other records, such as a truncate."""
    if schemas is None or not any(one.enveloped and one.record.format == "avro" for one in seen.schemas):
        return seen.without_key
    columns = pa.schema([(name, type_) for name, type_ in fields if type_ is not None])
    framed = [record for record in seen.without_key if record.value is not None]
    rows = RowSchema(columns, tuple(columns.names[:1]), ())
    decoder = value_decoder("avro", rows, Naming(), schemas, envelope=EnvelopeRules("debezium"))
    found = decoder.decode([one.value or b"" for one in framed], np.zeros(len(framed), np.uint8))
    others = {one.place for one in found.refused if one.kind == "truncate"}
    others.update(int(at) for of_kind in found.passed_over.values() for at in of_kind)
    kept = [record for place, record in enumerate(framed) if place not in others]
    return kept + [record for record in seen.without_key if record.value is None]


def _of_schemas(schemas: Sequence[ConnectorSchema]) -> tuple[Fields, dict[str, str]]:
    fields, remarks = dict[str, pa.DataType | None](), dict[str, str]()
    for schema in schemas:
        for name, type_ in schema.record.fields:
            fields.setdefault(name, type_)
            said = (schema.names or {}).get(name, "")
            if said.startswith("io.debezium.time.") and (type_ == pa.string() or pa.types.is_integer(type_)):
                remarks.setdefault(name, listed([said]))
    fields.pop(DELETED, None)
    return list(fields.items()), remarks


def _as_keys(schemas: Sequence[ConnectorSchema], fields: Fields, key: Sequence[str]) -> Fields:
    """Return the fields with types that keys can have: a time in a key is the text, or the number, that the record
    has."""
    texts = {n for schema in schemas for n, said in (schema.names or {}).items() if said == _ZONED}
    return [
        (name, (pa.string() if name in texts else pa.int64()) if name in key and _is_time(type_) else type_)
        for name, type_ in fields
    ]


def _is_time(type_: pa.DataType | None) -> bool:
    return type_ is not None and (pa.types.is_timestamp(type_) or pa.types.is_time(type_))


def _of_rows(rows: Sequence[Mapping[str, Any]], placeholder: str) -> tuple[Fields, dict[str, str]]:
    values: dict[str, list[object]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    values.pop(DELETED, None)
    found = {name: column_of(of_name, placeholder) for name, of_name in values.items()}
    remarks = {name: column.remark for name, column in found.items() if column.remark}
    return [(name, column.type) for name, column in found.items()], remarks


def _no_row(kinds: Counter[What]) -> str:
    if not kinds:
        return "the topic has no record yet: let the connector take its snapshot first"
    found = ", ".join(f"{count} {what}" for what, count in kinds.most_common())
    return (
        f"none of the newest {counted(kinds.total(), 'record')} has a row ({found}), so nothing tells the columns. Have the "
        "source write a row, or the connector take a snapshot"
    )


def _examples(found: Mapping[Any, str]) -> str:
    return ", ".join(f"{what} (such as {at})" for what, at in found.items())
