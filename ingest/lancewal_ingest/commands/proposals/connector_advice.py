"""Sentences about settings of a connector and of its source that are missing or harmful, as far as records show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from lancewal_core.errors import counted
from lancewal_ingest.commands.proposals.connector_record import ConnectorFacts
from lancewal_ingest.commands.proposals.settings_text import listed

if TYPE_CHECKING:
    from lancewal_ingest.commands.proposals.settings_text import Fields

_TRIED = ("postgresql", "mysql", "mariadb")
_FULL = "REPLICA IDENTITY FULL"
_CUT = ("org.apache.kafka.connect.data.Timestamp", "org.apache.kafka.connect.data.Time")
"""Types of Connect that hold milliseconds."""


def advice(seen: ConnectorFacts, fields: Fields, *, compacted: bool) -> Iterator[str]:
    """Yield sentences about settings of the connector that are missing or harmful."""
    (format_,) = {form for form, _ in seen.forms}
    enveloped = True in {is_ for _, is_ in seen.forms}
    defaults = list(dict.fromkeys(name for schema in seen.schemas for name in schema.defaults))
    if format_ == "json":
        yield (
            "decimal.handling.mode=string: JSON without schemas does not tell the scale of other decimals. Likewise "
            "time.precision.mode=isostring tells the unit of times."
        )
        yield "value.converter.replace.null.with.default=false: otherwise a NULL comes as the DEFAULT of its column."
    elif defaults and format_ == "connect-json":
        yield (
            "value.converter.replace.null.with.default=false: otherwise a NULL comes as the DEFAULT, in "
            f"{listed(defaults)}."
        )
    elif defaults:
        yield f"A NULL comes as the DEFAULT in {listed(defaults)}, unless the converter of Avro can leave defaults out."
    cut = [n for s in seen.schemas for n, said in (s.names or {}).items() if said in _CUT]
    if cut:
        yield f"time.precision.mode=connect cuts microseconds off in {listed(list(dict.fromkeys(cut)))}: use adaptive."
    of_postgres = seen.connectors <= {"postgresql"}
    lists = [name for name, type_ in fields if type_ is not None and _may_be_null(type_)]
    if lists and of_postgres and not enveloped:
        yield (
            f"A null stops a partition (unavailable_value) in {listed(lists)}. With {_FULL} on the source table a null is a "
            "null: then add toast: never to these columns."
        )
    elif lists and of_postgres and not seen.full:
        yield f"{_FULL} on the source table: otherwise a large value that did not change comes as null, in {listed(lists)}."
    elif compacted and of_postgres and not seen.full:
        yield f"{_FULL} on the source table: a table of a compacted topic cannot keep a large value that did not change."
    if compacted and enveloped and seen.kinds["delete"] and not seen.kinds["tombstone"]:
        yield "tombstones.on.delete=true: otherwise compaction never removes a deleted row's record."
    if not enveloped and not seen.tells_deletes and not seen.deleted:
        yield (
            "delete.tombstone.handling.mode must not be drop, which loses deletes: no record that was read is a delete. Take "
            "rewrite, or tombstone."
        )
    yield (
        "skipped.operations=none: otherwise a TRUNCATE of the source is not written, and its rows stay."
        if enveloped
        else "A TRUNCATE of the source is not written by ExtractNewRecordState: its rows stay."
    )
    if len(seen.tables) > 1:
        yield f"Rows come from several tables ({listed(sorted(seen.tables))}): a key must name one row of all of them."
    if len(seen.key_schemas) > 1:
        yield (
            f"Record keys have {len(seen.key_schemas)} schemas: ingest stops partitions before keys of a second one "
            "(key_form_changed)."
        )
    untried = sorted(seen.connectors.difference(_TRIED))
    if untried:
        yield f"lancewal was tried with connectors of PostgreSQL and MariaDB, and not with {listed(untried)}."
    if seen.kinds["unreadable"]:
        yield f"{counted(seen.kinds['unreadable'], 'record')} can be read by no format: they would be bad records."


def _may_be_null(type_: pa.DataType) -> bool:
    """Return whether the connector may write null for a value of the type that did not change."""
    return isinstance(type_, pa.ListType | pa.FixedSizeListType)
