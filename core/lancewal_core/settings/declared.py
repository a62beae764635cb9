"""The settings' declarations of a table's rows (columns, keys, expiry), and faults in them that do not depend on Kafka.

Sources of a column's values in records (``ColumnSource``)
 1. Each column has one name in records, its *field*.  By default this is the column's name; a declaration may say another.
 2. A column of Kafka's metadata has no name in records.  Its value follows from the record alone, so a record that is read
    again gives the same value.
 3. A lenient form belongs to some types (``_FITS``).  Columns of the primary key have none: two forms of one key could lie
    in two partitions, and a reader of keys would have to know both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from lancewal_core.errors import InvalidSchema
from lancewal_core.record_keys.key_format import check_region_key, has_region_key
from lancewal_core.rows.column_types import is_text, parse_type
from lancewal_core.rows.schema import RowSchema, check_row_schema
from lancewal_core.rows.ttl import Ttl, check_ttl
from lancewal_core.settings.sections import (
    NEVER,
    ColumnText,
    JsonForm,
    TableSettings,
    is_metadata,
    is_of_envelope,
    metadata_types,
)

_FITS: Mapping[JsonForm, tuple[str, Callable[[pa.DataType], bool]]] = {
    "epoch_s": ("timestamp", pa.types.is_timestamp),
    "epoch_ms": ("timestamp", pa.types.is_timestamp),
    "epoch_us": ("timestamp", pa.types.is_timestamp),
    "utc": ("timestamp with UTC", lambda type_: pa.types.is_timestamp(type_) and type_.tz is not None),
    "number_text": (
        "integer or float (decimals take a number in a string without it)",
        lambda type_: pa.types.is_integer(type_) or pa.types.is_floating(type_),
    ),
    "text": ("string", is_text),
    "bool_text": ("bool", pa.types.is_boolean),
    "raw": ("string", is_text),
    "json_text": ("string", is_text),
    "number": ("string", is_text),
    "base64": ("vector", pa.types.is_fixed_size_list),
}
"""Types of columns that each lenient form may have: in words, and as a test."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Source of a column's values in records."""

    json: JsonForm | None = None
    """Lenient form that the column's values may have in records, in addition to the strict form; None: none."""
    field: str | None = None
    """Name that records use for the column; None: the column's own name."""
    metadata: str | None = None
    """Metadata of records that fills the column, such as ``kafka.offset``; None: a member of the record's value fills
    it."""

    toast: Literal["never"] | None = None
    """``never``: no connector leaves the column's values out, so a null is a null.  None: a connector may leave them
    out."""

    @property
    def text(self) -> str:
        """The source in words that follow the column's type, such as ``, field no``; empty for ``OF_ITSELF``."""
        said = ("json", self.json), ("field", self.field), ("from", self.metadata), ("toast", self.toast)
        return "".join(f", {what} {value}" for what, value in said if value is not None)


OF_ITSELF = ColumnSource()
"""Source of a column that has its own name in records, and the strict form."""


def check_sources(rows: RowSchema, sources: Mapping[str, ColumnSource], envelope: str = "none") -> None:
    """Raise ``InvalidSchema`` unless records can fill the columns from their sources.

    ``sources``: the source of each column by name; a column without an entry has ``OF_ITSELF``.  ``envelope``:
    ``table.format.envelope``.
    """
    columns_of: dict[str, str] = {}
    for column in rows.columns:
        source = sources.get(column.name, OF_ITSELF)
        if source.metadata is not None:
            _check_metadata(column, source, rows, envelope)
        if source.json is not None:
            if column.name in rows.primary_key:
                raise InvalidSchema(
                    f"column {column.name!r} has json {source.json}, and is in the primary key: the values of keys "
                    "have only one form. Leave json out, or take a type that has the producers' form (int64 for "
                    "numbers)"
                )
            words, fits = _FITS[source.json]
            if not fits(column.type):
                raise InvalidSchema(
                    f"column {column.name!r} has json {source.json}, which is a form of type {words}, not of {column.type}"
                )
        if source.field is not None and "." in source.field:
            raise InvalidSchema(
                f"column {column.name!r} has field {source.field!r}: members of nested objects are no columns yet. Declare a "
                "column of type struct<...>"
            )
        field = column.name if source.field is None else source.field
        if field in columns_of:
            raise InvalidSchema(
                f"columns {columns_of[field]!r} and {column.name!r} both claim the name {field!r} in records. Give one of "
                "them another field"
            )
        columns_of[field] = column.name


def _check_metadata(column: pa.Field, source: ColumnSource, rows: RowSchema, envelope: str) -> None:
    allowed = metadata_types(source.metadata or "")
    if column.name in rows.primary_key:
        raise InvalidSchema(
            f"column {column.name!r} is filled from {source.metadata}, and is in the primary key: a row's key comes from its "
            "value. Name columns of the values"
        )
    if column.type not in map(parse_type, allowed):
        raise InvalidSchema(
            f"column {column.name!r} is filled from {source.metadata}, which is of type "
            f"{' or '.join(allowed) or 'an unknown source'}, not of {column.type}"
        )
    if source.json is not None or source.field is not None:
        raise InvalidSchema(f"column {column.name!r} is filled from {source.metadata}: leave out json and field")
    if is_of_envelope(source.metadata or "") and envelope != "debezium":
        unwrapped = "add.fields in the connector gives unwrapped rows such members, which are columns like others"
        raise InvalidSchema(
            f"column {column.name!r} is filled from {source.metadata}, which only an envelope has: table.format.envelope is "
            f"{envelope}, not debezium. " + (unwrapped if envelope == "debezium-unwrapped" else "Leave the column out")
        )


def type_text(column: ColumnText) -> str:
    """Return the type of a column in the settings."""
    if isinstance(column, str):
        return metadata_types(column)[0] if is_metadata(column) else column
    return column["type"]


def column_source(column: ColumnText) -> ColumnSource:
    """Return the source of a column, from its entry in the settings."""
    if isinstance(column, str):
        return ColumnSource(metadata=column) if is_metadata(column) else OF_ITSELF
    if "source" in column:
        return ColumnSource(metadata=column["source"])
    json: JsonForm | None = column.get("json")  # type: ignore[assignment]  # its validator has seen to it
    return ColumnSource(json, column.get("field"), toast=NEVER if "toast" in column else None)


def declared_sources(table: TableSettings) -> dict[str, ColumnSource]:
    """Return the sources of the declared columns, by name."""
    return {name: column_source(column) for name, column in {**table.columns, **table.metadata_columns}.items()}


def declared_ttl(table: TableSettings) -> Ttl | None:
    return Ttl(table.ttl_column, table.ttl_s) if table.ttl_s else None


def declared_columns(table: TableSettings) -> pa.Schema:
    """Return all columns that a new table gets; none without ``table.columns``."""
    columns = {**table.columns, **table.metadata_columns} if table.columns else {}
    return pa.schema([pa.field(name, parse_type(type_text(column))) for name, column in columns.items()])


def declared_keys(columns: pa.Schema, table: TableSettings) -> RowSchema:
    """Return ``columns`` with the keys that the settings declare.  Raises ``InvalidSchema`` if no table can have them."""
    rows = RowSchema(columns, table.primary_key, table.region_key)
    check_row_schema(rows)
    check_region_key(rows, table.format.key, table.format.envelope)
    missing = [name for name in table.metadata_columns if name not in columns.names]
    if missing:
        raise InvalidSchema(f"table.metadata_columns: the table has no column {missing[0]!r}. Add it, or leave it out")
    check_sources(rows, declared_sources(table), table.format.envelope)
    return rows


def check_declared(table: TableSettings) -> None:
    """Raise ``InvalidSchema`` for declarations that no table can have.

    A setting that is missing is accepted, because the contract may have its value, or a table is still to be attached.
    An explicit region key needs a column, unless ``format.key`` is ``bytes``.
    """
    if "region_key" in table.model_fields_set and not table.region_key and has_region_key(table.format.key):
        raise InvalidSchema(
            "table.region_key is empty: name the columns that producers key by. Leave it out where the table's contract has "
            "them; where producers key by other bytes, set table.format.key to bytes"
        )
    if table.columns and table.primary_key:
        rows = RowSchema(declared_columns(table), table.primary_key, table.region_key)
        check_row_schema(rows)
        if table.region_key:
            check_region_key(rows, table.format.key, table.format.envelope)
        check_sources(rows, declared_sources(table), table.format.envelope)
        check_ttl(declared_ttl(table), rows, table.patches)
        return
    missing = [name for name in table.region_key if table.primary_key and name not in table.primary_key]
    if missing:
        raise InvalidSchema(
            f"table.region_key: column {missing[0]!r} is not in table.primary_key {list(table.primary_key)}; all rows of one "
            "primary key must come through one partition"
        )
