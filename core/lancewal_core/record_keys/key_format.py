"""Formats of record keys, by two questions.

1. *Can the key be decoded?*  Then a record without a value deletes the row of its key, if that is the primary key.
2. *Does a row tell its partition?*  If the key's bytes follow from the row's region key, and the partition from these
   bytes, ingest notices a misrouted row as it arrives, and reads and ``verify`` find a row's partition.  Otherwise the
   flusher records through which region a key came, and ingest compares a decoded key with its row.

No code outside this room compares names of formats.

| format | decoded | a row tells its partition |
|---|---|---|
| ``canonical``: ``rows.region_key`` | yes | yes |
| ``short``, ``integer``, ``long``: 2, 4 or 8 bytes, as Kafka's serializer of that name writes | yes | yes |
| ``json-compact``: ``json_compact`` | yes | yes |
| ``json``: an object of the region key's columns in any text | yes | no |
| ``avro``, ``protobuf``, ``json-schema``: these columns by a registry's schema that the key names (``key_form``) | yes | no |
| ``connect-json``: these columns by a schema that the key holds | yes | no |
| ``bytes`` of the producers' choice | no | no |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidInput, InvalidSchema
from lancewal_core.record_keys.json_compact import JsonCompactCodec, json_key
from lancewal_core.record_keys.key_choices import KeyFormat, Partitioner
from lancewal_core.rows.column_types import integer_range
from lancewal_core.rows.region_key import RegionKeyCodec, canonical_key, check_key_columns
from lancewal_core.rows.schema import RowSchema

OF_FIRST_RELEASE = frozenset[KeyFormat](["canonical", "bytes"])
"""Formats of record keys that the first release of lancewal knows."""
_WITH_SCHEMAS = frozenset[KeyFormat](["connect-json", "avro", "protobuf", "json-schema"])
_IN_ANY_TEXT = frozenset[KeyFormat](["json"]) | _WITH_SCHEMAS
"""Formats in which one key may have several texts, so that its bytes do not follow from a row."""
_INTEGER_BYTES = {"short": 2, "integer": 4, "long": 8}


class KeyCodec(Protocol):
    """Encoding of the region keys of one table."""

    named: str
    """Words for such keys in messages, for example "the canonical encoding"."""

    def encode(self, values: Sequence[object]) -> bytes:
        """Return the key for the values of the region key's columns.  Raises ``InvalidInput`` for values that have
        none.
        """

    def decode(self, key: bytes) -> tuple[object, ...] | None:
        """Return the values whose encoding is ``key``; None if there are none."""

    def encode_batch(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the key of each row, given the region key's columns; null for a row that has none."""


def encode_region_key(*values: object, form: KeyFormat = "canonical") -> bytes:
    """Return the Kafka key of a row, from its region key's values in order: str, int, bool, datetime.date, bytes.

    ``form``: the table's ``format.key``.  ``short``, ``integer`` and ``long`` take one int, ``json-compact`` one
    mapping of column names to values, in the region key's order.  Raises ``InvalidSchema`` for a value of another
    type, for no value, and for a form whose keys do not follow from rows.  Raises ``InvalidInput`` for an integer
    that has no key, or a text that is not Unicode (a lone surrogate).
    """
    if form == "canonical":
        return canonical_key(*values)
    if form == "json-compact":
        (members,) = values if len(values) == 1 else [None]
        if not isinstance(members, Mapping):
            raise InvalidSchema("form 'json-compact': pass one mapping of column names to values")
        return json_key(members)
    if form not in _INTEGER_BYTES:
        known = ", ".join(["canonical", *_INTEGER_BYTES, "json-compact"])
        raise InvalidSchema(f"form {form!r}: expected {known}; other keys are the producer's own")
    return IntegerKeyCodec(pa.schema([pa.field("the region key", pa.int64())]), form).encode(values)


def has_region_key(key_format: KeyFormat) -> bool:
    """Return whether tables with keys of this format have a region key.  If so, keys can be decoded."""
    return key_format != "bytes"


def has_key_forms(key_format: KeyFormat) -> bool:
    """Return whether keys of this format have schemas.  If so, the contract lists the key forms that the table accepts."""
    return key_format in _WITH_SCHEMAS


def why_rows_do_not_tell(key_format: KeyFormat, partitioner: Partitioner) -> str | None:
    """Return the setting because of which rows do not tell their partition, with its value; None if rows tell it."""
    if not has_region_key(key_format) or key_format in _IN_ANY_TEXT:
        return f"table.format.key is {key_format}"
    return "table.partitioner is none" if partitioner == "none" else None


def key_codec(rows: RowSchema, key_format: KeyFormat) -> KeyCodec | None:
    """Return the encoding of the table's record keys; None if a key's bytes cannot be computed from its row."""
    fields = pa.schema([rows.columns.field(name) for name in rows.region_key])
    if key_format == "canonical":
        return RegionKeyCodec(fields)
    if key_format in _INTEGER_BYTES:
        return IntegerKeyCodec(fields, key_format)
    return JsonCompactCodec(fields) if key_format == "json-compact" else None


def check_region_key(rows: RowSchema, key_format: KeyFormat, envelope: str = "none") -> None:
    """Raise ``InvalidSchema`` if no table can have this region key with record keys of this format.

    With an ``envelope``, the region key must be the whole primary key: only the record's key says which row a delete
    removes.
    """
    if envelope != "none" and (not has_region_key(key_format) or {*rows.region_key} != {*rows.primary_key}):
        raise InvalidSchema(
            f"table.format.envelope is {envelope}: a delete names its row by the record's key alone. Let table.region_key "
            f"have all columns of table.primary_key {list(rows.primary_key)}, in the order of the key. Set table.format.key "
            "to the format in which the connector writes keys, such as json-compact"
        )
    if not has_region_key(key_format):
        if rows.region_key:
            raise InvalidSchema(
                f"table.region_key names {list(rows.region_key)}, but table.format.key is bytes: the bytes of the "
                "record keys are the region key, whatever columns hold. Leave table.region_key out"
            )
        return
    if not rows.region_key:
        raise InvalidSchema("table.region_key is empty: name the columns that producers key by")
    key_codec(rows, key_format)


class IntegerKeyCodec:
    """Encoding of keys that are one integer in 2, 4 or 8 bytes, the highest byte first, as two's complement."""

    def __init__(self, fields: pa.Schema, key_format: str) -> None:
        """Raise ``InvalidSchema`` unless ``fields`` is one integer column of a type other than uint64."""
        (field,) = list(fields) if len(fields) == 1 else [None]
        if field is None or not pa.types.is_integer(field.type) or pa.types.is_uint64(field.type):
            shown = ", ".join(f"{one.name} {one.type}" for one in fields)
            raise InvalidSchema(
                f"table.format.key is {key_format}: table.region_key must be one integer column, and not of type uint64; "
                f"it is {shown}. Name that column, or choose another table.format.key"
            )
        self.named = f"the {_INTEGER_BYTES[key_format]} bytes of Kafka's serializer for {key_format}"
        self._fields, self._name = fields, field.name
        self._bytes = _INTEGER_BYTES[key_format]
        values, room = integer_range(field.type), 1 << (8 * self._bytes - 1)
        self._least, self._most = max(values[0], -room), min(values[-1], room - 1)

    def encode(self, values: Sequence[object]) -> bytes:
        (value,) = values if len(values) == 1 else [None]
        if not isinstance(value, int) or isinstance(value, bool) or not self._least <= value <= self._most:
            raise InvalidInput(
                f"the region key takes one integer from {self._least} to {self._most} for column {self._name!r}; "
                f"got {str(values)[:80]}"
            )
        return value.to_bytes(self._bytes, "big", signed=True)

    def decode(self, key: bytes) -> tuple[object, ...] | None:
        if len(key) != self._bytes:
            return None
        value = int.from_bytes(key, "big", signed=True)
        return (value,) if self._least <= value <= self._most else None

    def encode_batch(self, columns: Sequence[pa.Array]) -> pa.Array:
        check_key_columns(self._fields, columns)
        column = columns[0]
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        fits = (self._least <= values) & (values <= self._most)
        data = values.astype(f">i{self._bytes}").tobytes()
        type_ = pa.binary(self._bytes)
        keys = pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(data)]).cast(pa.binary())
        if fits.all() and not column.null_count:
            return keys
        return pc.if_else(pc.and_(pa.array(fits), column.is_valid()), keys, pa.scalar(None, pa.binary()))
