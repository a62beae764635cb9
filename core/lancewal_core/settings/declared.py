"""The settings' declarations of a table's rows (columns, keys, expiry), and faults in them that do not depend on Kafka."""

from __future__ import annotations

import pyarrow as pa

from lancewal_core.errors import InvalidSchema
from lancewal_core.record_keys.key_format import check_region_key, has_region_key
from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.schema import RowSchema, check_row_schema
from lancewal_core.rows.ttl import Ttl, check_ttl
from lancewal_core.settings.sections import TableSettings


def declared_ttl(table: TableSettings) -> Ttl | None:
    return Ttl(table.ttl_column, table.ttl_s) if table.ttl_s else None


def declared_columns(table: TableSettings) -> pa.Schema:
    return pa.schema([pa.field(name, parse_type(text)) for name, text in table.columns.items()])


def declared_keys(columns: pa.Schema, table: TableSettings) -> RowSchema:
    """Return ``columns`` with the keys that the settings declare; ``InvalidSchema`` if no table can have them."""
    rows = RowSchema(columns, table.primary_key, table.region_key)
    check_row_schema(rows)
    check_region_key(rows, table.format.key)
    return rows


def check_declared(table: TableSettings) -> None:
    """Raise ``InvalidSchema`` for declarations that no table can have.

    A setting that is not set passes: the contract may have its value, or a table that is still to be attached.  A
    region key that is written out without a column is an error, unless ``format.key`` is ``bytes``."""
    if "region_key" in table.model_fields_set and not table.region_key and has_region_key(table.format.key):
        raise InvalidSchema(
            "table.region_key is empty: name the columns that producers key by. Leave it out where the table's contract has "
            "them; where producers key by other bytes, set table.format.key to bytes"
        )
    if table.columns and table.primary_key:
        rows = RowSchema(declared_columns(table), table.primary_key, table.region_key)
        check_row_schema(rows)
        if table.region_key:
            check_region_key(rows, table.format.key)
        check_ttl(declared_ttl(table), rows, table.patches)
        return
    missing = [name for name in table.region_key if table.primary_key and name not in table.primary_key]
    if missing:
        raise InvalidSchema(
            f"table.region_key: column {missing[0]!r} is not in table.primary_key {list(table.primary_key)}; all rows of one "
            "primary key must come through one partition"
        )
