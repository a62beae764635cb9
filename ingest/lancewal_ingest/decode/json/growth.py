"""Upper bound of the memory that rows of JSON values take, from their lengths, brackets and nulls.

Slots of fixed size are not counted here (``weight`` counts them).  In a column of variable size, each byte of a value
counts as many bytes as a byte of JSON can become there.  Lists, structs and vectors inside lists count too.  Their
number is bounded by the value's brackets and nulls: an empty list of two bytes, or a null, may take a vector's full
width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.value_decoder import NO_HEADERS, HeaderValues, Weights
from lancewal_ingest.decode.weight import lengths, slot_bits

_ITEM_BYTES_MIN = 2
"""Bytes of the shortest JSON of an item of a list, its comma included."""

_ENTRY_BYTES_MIN = 5
"""Bytes of the shortest JSON of an entry of a map, ``"":0,``."""


class JsonGrowth:
    """``Growth`` of one table's JSON values."""

    def __init__(self, rows: RowSchema, default_bytes: int = 0) -> None:
        self._default_bytes = default_bytes
        """Largest number of bytes that defaults of columns add to a row."""
        self._unpacked = max(_unpacked(field.type) for field in rows.columns)
        """Largest number of bytes of a row that one byte of its value can become, without nested items."""
        self._item_bytes = max(_item_bytes(field.type) for field in rows.columns)
        """Largest number of bytes of an item of a list that is a list, struct, vector or binary of fixed size; 0
        without such lists."""

    headers: Sequence[str] = ()

    def each(self, values: Sequence[bytes | None], headers: HeaderValues = NO_HEADERS) -> Weights:
        grown = self._unpacked * lengths(values) + self._default_bytes
        if self._item_bytes:
            grown += self._item_bytes * np.fromiter(map(_items_max, values), np.int64, len(values))
        return grown

    def largest(self, nbytes: int) -> int:
        factor, fixed = self.bound
        return factor * nbytes + fixed

    @property
    def bound(self) -> tuple[int, int]:
        """Upper bound for any value, as two numbers: bytes per byte of the value, and further bytes per row."""
        return self._unpacked + -(-self._item_bytes // _ITEM_BYTES_MIN), self._default_bytes


def _unpacked(type_: pa.DataType) -> int:
    if type_ in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        return 1
    if pa.types.is_list(type_):
        item = type_.value_type
        if _is_wide(item):
            return 2  # base64 is longer than its bytes; the rest is for validity bits
        return _unpacked(item) + (0 if pa.types.is_nested(item) else -(-slot_bits(item) // (8 * _ITEM_BYTES_MIN)))
    if pa.types.is_map(type_):
        item = type_.item_type
        own = slot_bits(type_.key_type) + 1 + (0 if pa.types.is_nested(item) or _is_wide(item) else slot_bits(item))
        return max(1, 2 if _is_wide(item) else _unpacked(item)) - (-own // (8 * _ENTRY_BYTES_MIN))
    if pa.types.is_struct(type_):
        return max((_unpacked(child.type) for child in type_), default=0)
    return 0


def _item_bytes(type_: pa.DataType) -> int:
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        item = type_.item_type if pa.types.is_map(type_) else type_.value_type
        counted = pa.types.is_nested(item) or _is_wide(item)
        return max(_item_bytes(item), -(-slot_bits(item) // 8) if counted else 0)
    if pa.types.is_struct(type_):
        return max((_item_bytes(child.type) for child in type_), default=0)
    return 0


def _is_wide(type_: pa.DataType) -> bool:
    """Return whether a null of this type takes more bytes in Arrow than its JSON has: true for binaries of fixed
    size.
    """
    return bool(pa.types.is_fixed_size_binary(type_))


def _items_max(value: bytes | None) -> int:
    """Return an upper bound of the number of lists, structs and vectors in the value, nulls in their place included."""
    return 0 if value is None else value.count(b"[") + value.count(b"{") + value.count(b"null")
