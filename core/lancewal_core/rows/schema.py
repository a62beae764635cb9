"""Rows as lancewal carries them: the table's columns plus four system columns.

A *WAL batch* is a ``pyarrow.RecordBatch`` of ``RowSchema.wal``: the table's columns (all nullable but the primary key),
then

* ``_offset`` int64: Kafka offset of the record that made the row,
* ``_timestamp`` timestamp[ms, UTC]: Kafka's timestamp,
* ``_op`` uint8: 0 upsert, 1 delete, 2 patch (``Op``),
* ``_present`` binary: for a patch the bitmap of the columns that it carries, null elsewhere.

The bitmap has bit ``i`` (least significant first) for column ``i`` of the table in the contract's order, primary key
included, in ``ceil(columns / 8)`` bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import pyarrow as pa

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.column_types import integer_like, is_bytes, is_text

OFFSET = "_offset"
TIMESTAMP = "_timestamp"
OP = "_op"
PRESENT = "_present"

COLUMNS_MAX = 4096
"""Largest number of columns of a table: far more than a record can sensibly carry.  The limit bounds work whose time
grows with the number of columns."""

FieldIds = tuple[int, ...]
"""Ids of a column's field and, depth first, of its nested fields."""
Signature = tuple[tuple[object, ...], ...]
"""Names, types and ids of columns, in their order."""
SYSTEM_FIELDS: tuple[pa.Field, ...] = (
    pa.field(OFFSET, pa.int64(), nullable=False),
    pa.field(TIMESTAMP, pa.timestamp("ms", tz="UTC"), nullable=False),
    pa.field(OP, pa.uint8(), nullable=False),
    pa.field(PRESENT, pa.binary(), nullable=True),
)


class Op(IntEnum):
    """Operation of a record on its key."""

    UPSERT = 0
    DELETE = 1
    PATCH = 2


@dataclass(frozen=True)
class RowSchema:
    """The table's columns and its keys.  Value object: equal when the columns and keys are equal."""

    columns: pa.Schema
    """The table's columns in the contract's order, without system columns."""
    primary_key: tuple[str, ...]
    region_key: tuple[str, ...]
    """Columns that producers key by; empty where they key by bytes of their own (``format.key: bytes``)."""
    ids: tuple[FieldIds, ...] = ()
    """For each column the ids that its fields keep for as long as they exist, whatever their names and types; empty if
    not known.  A column that was dropped and added again has other ids."""

    @cached_property
    def table(self) -> pa.Schema:
        """Columns as the Lance table has them: primary key not nullable, all else nullable."""
        key = frozenset(self.primary_key)
        return pa.schema([f.with_nullable(f.name not in key) for f in self.columns])

    @cached_property
    def wal(self) -> pa.Schema:
        """Schema of a WAL batch."""
        return pa.schema([*self.table, *SYSTEM_FIELDS])

    @cached_property
    def key(self) -> pa.Schema:
        """Schema of the primary key columns, in ``primary_key`` order."""
        return pa.schema([self.table.field(name) for name in self.primary_key])

    @cached_property
    def signature(self) -> Signature:
        """Name, type and ids of each column, for keys of caches.  A change of the contract that leaves the columns
        alone does not change it."""
        ids = self.ids or ((),) * len(self.columns)
        return tuple((field.name, field.type, own) for field, own in zip(self.table, ids, strict=True))

    def called(self, names: Mapping[str, str]) -> RowSchema:
        """Return the same columns and keys, with other names for some columns.  ``names``: the new name of each
        renamed column, by its present name."""
        columns = pa.schema([f.with_name(names.get(f.name, f.name)) for f in self.columns])
        primary, region = (tuple(names.get(n, n) for n in key) for key in (self.primary_key, self.region_key))
        return RowSchema(columns, primary, region, self.ids)

    @property
    def present_bytes(self) -> int:
        """Length of a ``_present`` bitmap."""
        return (len(self.columns) + 7) // 8


_NO_NAME = re.compile(r"^$|^\*$|[.`\x00]")
"""Names that Lance refuses, or accepts and cannot read back."""
RESERVED_NAMES = frozenset(
    {
        *(field.name for field in SYSTEM_FIELDS),
        *(
            "_first",
            "_merged",
            "_next",
            "_partition",
            "_place",
            "_region",
        ),  # columns that lancewal adds to rows of its own
        *("_distance", "_relevance_score", "_score"),  # what searches add
        *("_change_type", "_commit_timestamp", "_commit_version", "_sequence"),  # what Spark adds to changes
    }
)
"""Names that no column of a table may have, in lower case.  Any other name may begin with ``_``, as those of MongoDB,
Airbyte and dlt do."""
_RESERVED_PREFIX = "_row"
"""Prefix of columns that Lance adds: ``_rowid``, ``_rowaddr`` and others."""


def is_reserved(name: str) -> bool:
    """Return whether no column of a table may have this name."""
    return name.lower() in RESERVED_NAMES or name.lower().startswith(_RESERVED_PREFIX)


def alike_but_for_case(fields: Iterable[pa.Field], within: str = "") -> str:
    """Return as text the columns, and the members of one struct, whose names differ only in upper and lower case; empty
    if there are none.

    lancewal and Lance tell them apart.  DuckDB silently reads one for the other, and Spark refuses both."""
    seen: dict[str, str] = {}
    found = []
    for field in fields:
        name = f"{within}{field.name}"
        other = seen.setdefault(field.name.lower(), name)
        if other != name:
            found.append(f"{other!r} and {name!r}")
        item = field.type
        while pa.types.is_list(item) or pa.types.is_map(item):
            item = item.item_type if pa.types.is_map(item) else item.value_type
        if pa.types.is_struct(item):
            found.append(alike_but_for_case(item, f"{name}."))
    return ", ".join(filter(None, found))


def check_row_schema(rows: RowSchema) -> None:
    """Raise ``InvalidSchema`` unless columns and keys can be a lancewal table."""
    names = rows.columns.names
    if not names:
        raise InvalidSchema("table.columns is empty: declare at least the primary key's columns")
    if len(names) > COLUMNS_MAX:
        raise InvalidSchema(f"table.columns has {len(names)} columns; the limit is {COLUMNS_MAX}")
    declared: set[str] = set()
    for name in names:
        if name in declared:
            raise InvalidSchema(f"column {name!r} is declared twice")
        declared.add(name)
        if _NO_NAME.search(name):
            raise InvalidSchema(
                f"column name {name!r} is not allowed: Lance cannot read it back. Names must not be empty, be '*' or contain "
                "'.', '`' or NUL"
            )
        if is_reserved(name):
            raise InvalidSchema(
                f"column name {name!r} is reserved, in upper and lower case: lancewal, Lance or Spark adds a column of this "
                f"name to rows. Choose another name; reserved are {', '.join(sorted(RESERVED_NAMES))} and all that begin "
                f"with {_RESERVED_PREFIX}"
            )
    if not rows.primary_key:
        raise InvalidSchema("table.primary_key is empty: name the columns that identify a row")
    for role, key in (("primary_key", rows.primary_key), ("region_key", rows.region_key)):
        if len(set(key)) != len(key):
            raise InvalidSchema(f"table.{role} names a column twice: {list(key)}")
    for name in rows.primary_key:
        if name not in declared:
            raise InvalidSchema(f"table.primary_key: column {name!r} is not among table.columns {names}")
        _check_key_type(name, rows.columns.field(name).type)
    primary_key = frozenset(rows.primary_key)
    for name in rows.region_key:
        if name not in primary_key:
            raise InvalidSchema(
                f"table.region_key: column {name!r} is not in the primary key {list(rows.primary_key)}; "
                "all rows of one primary key must come through one partition"
            )
        type_ = rows.columns.field(name).type
        if pa.types.is_timestamp(type_) or pa.types.is_time(type_):
            raise InvalidSchema(
                f"table.region_key: column {name!r} has type {type_}; "
                "region keys are strings, integers, booleans, dates, uuids or binaries"
            )


def _check_key_type(name: str, type_: pa.DataType) -> None:
    plain = integer_like(type_) or is_text(type_) or is_bytes(type_)
    if not plain and not pa.types.is_boolean(type_) and type_ != pa.uuid():
        raise InvalidSchema(
            f"table.primary_key: column {name!r} has type {type_}; keys are strings, integers, booleans, "
            "dates, times of day, timestamps, uuids or binaries"
        )
