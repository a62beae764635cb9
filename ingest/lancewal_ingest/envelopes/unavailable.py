"""Values that a connector could not read: PostgreSQL leaves a large value that did not change out of its log (TOAST).

Debezium writes a *placeholder* in place of such an *unavailable* value.  Guarantees

1. No placeholder becomes a cell.  It is looked for in decoded columns, so all formats follow the same rules.
2. An update with placeholders becomes a patch that sets every column but those with a placeholder.  So their cells
   keep the former values, wherever these are stored.
3. A value is refused as ``unavailable_value`` if the former cell cannot be kept: the row is new, or the contract
   allows no patches.  A null of a list or vector, in an update without the old row, may be an unavailable value.
   Such a value is refused too.
4. With the policy ``ignore`` (``on_unavailable_value``) nothing is refused, and a cell that cannot be kept is null.
5. Columns that a connector never leaves out are not looked at.  A null in them is a null, and the placeholder's text
   is a text.

| type of the column | placeholder |
|---|---|
| string | its text, its base64, and ``{"text":"text"}``; the JSON of each form here, for columns that hold JSON |
| binary | its bytes |
| list of strings or binaries | a list of one such item, or of the uuid of its bytes |
| list of integers or dates | its bytes as Java has them, from -128 to 127; a date is that number of days |
| map of strings | one entry, whose key is the text |
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.table.contract import UNAVAILABLE_VALUE
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.decode.part import DecodedPart, present_bitmap
from lancewal_ingest.decode.value_decoder import Mask, RefusedValue

_TEXTS = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())
_ADVICE = (
    "Set REPLICA IDENTITY FULL on the source table, so that updates have all values. Or decide about such records: "
    "`lancewal table alter --on unavailable-value=ignore` or =dead-letter. If this column never holds large values, declare "
    "it with toast: never"
)


@dataclass(frozen=True, slots=True)
class _Unavailable:
    """Cells of one column whose values are unavailable, or may be.  ``recognised``: a mask of the rows that have a
    placeholder.
    """

    place: int
    name: str
    recognised: Mask
    unclear: Mask
    """Mask of the rows that have a null which may be an unavailable value."""


class UnavailableValues:
    """Rules about unavailable values in one table.

    ``placeholder``: the text that the connector writes for such a value.  ``never``: the columns that are never
    unavailable, by the table's names.

    ``keeps``: whether former values may be kept, because the contract allows patches.  ``as_null``: whether a cell
    that cannot be kept becomes null, instead of its row being refused.
    """

    def __init__(
        self, rows: RowSchema, placeholder: str, never: Collection[str], *, keeps: bool, as_null: bool
    ) -> None:
        self._rows = rows
        self._keeps = keeps
        self._as_null = as_null
        data = placeholder.encode()
        digest = bytearray(hashlib.md5(data, usedforsecurity=False).digest())
        digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80  # Java's UUID.nameUUIDFromBytes
        self._codes = np.frombuffer(data, np.int8).astype(np.int64)
        plain, uuid = [placeholder, base64.b64encode(data).decode()], str(UUID(bytes=bytes(digest)))
        lists = ([plain[0]], [plain[1]], [uuid], self._codes.tolist())
        texts = [*plain, _json({placeholder: placeholder})]
        self._texts = pa.array([*texts, *map(_json, [*plain, *lists])], pa.string())
        self._items = pa.array([*texts, uuid], pa.string())
        self._bytes = pa.scalar(data, pa.binary())
        self._columns = [
            (place, field.name, field.type)
            for place, field in enumerate(rows.columns)
            if field.name not in never and field.name not in rows.primary_key and _may_be(field.type)
        ]

    def kept(
        self,
        part: DecodedPart,
        updates: Mask,
        unclear: Mask,
        counts: Counter[OtherName],
        refused: list[RefusedValue],
    ) -> DecodedPart:
        """Return the rows of a part in which unavailable cells keep their former values.  Rows for which this is
        impossible are added to ``refused``.

        ``updates``: a mask of the rows that may have former values.  ``unclear``: a mask of the rows in which a null
        of a list may be an unavailable value.  ``counts`` gets the number of placeholders in each column.
        """
        found = list(self._found(part, unclear))
        if not found:
            return part
        lost = np.zeros(len(part.indexes), np.bool_)
        for one in found:
            number = int(np.count_nonzero(one.recognised))
            if number:
                counts[OtherName("unavailable", one.name)] += number
            if self._as_null:
                continue
            wrong = one.unclear | (one.recognised & ~(updates & self._keeps))
            message = f"column {one.name!r}: the source has not written the value, since it did not change. {_ADVICE}"
            refused += [RefusedValue(n, UNAVAILABLE_VALUE, message) for n in part.indexes[wrong & ~lost].tolist()]
            lost |= wrong
        columns = list(part.columns)
        has = np.ones((len(columns), len(lost)), np.bool_)
        for one in found:
            if one.recognised.any():
                columns[one.place] = _without(columns[one.place], one.recognised)
                has[one.place] = ~one.recognised
        patched = updates & self._keeps & ~has.all(axis=0)
        part = replace(part, columns=columns)
        if patched.any():
            part = replace(part, ops=_patches(part.ops, patched), present=self._present(has, patched))
        return part.where(~lost) if lost.any() else part

    def _found(self, part: DecodedPart, unclear: Mask) -> Iterable[_Unavailable]:
        nothing = np.zeros(len(part.indexes), np.bool_)
        for place, name, type_ in self._columns:
            column = part.columns[place]
            recognised = self._recognised(column, type_)
            maybe = nothing
            if _is_list(type_) and column.null_count and unclear.any():
                maybe = column.is_null().to_numpy(zero_copy_only=False) & unclear
            if recognised is not None or maybe.any():
                yield _Unavailable(place, name, nothing if recognised is None else recognised, maybe)

    def _recognised(self, column: pa.Array, type_: pa.DataType) -> Mask | None:
        """Return a mask of the cells that hold the placeholder; None if none does."""
        if type_ in _TEXTS:
            return _mask(pc.is_in(column, value_set=self._texts.cast(type_)))
        if type_ in _BYTES:
            return _mask(pc.equal(column, self._bytes.cast(type_)).fill_null(False))
        if pa.types.is_map(type_):
            return self._of_lists(column, pc.equal(column.keys, self._texts[0].cast(type_.key_type)), 1)
        if pa.types.is_fixed_size_list(type_):
            return None
        item, items = type_.value_type, column.values
        if item in _TEXTS:
            return self._of_lists(column, pc.is_in(items, value_set=self._items.cast(item)), 1)
        if item in _BYTES:
            return self._of_lists(column, pc.equal(items, self._bytes.cast(item)), 1)
        if pa.types.is_integer(item):
            return self._of_codes(column, items)
        if pa.types.is_date32(item):
            return self._of_codes(column, items.view(pa.int32()))
        return None

    def _of_lists(self, lists: pa.Array, wanted: pa.Array, size: int) -> Mask | None:
        """Return a mask of the lists that have ``size`` items, the first of them wanted; None if there are none.

        ``wanted``: for each item of all lists, whether it is the placeholder.
        """
        hits = _mask(wanted.fill_null(False))
        if hits is None:
            return None
        begins = lists.offsets.to_numpy()
        found = (np.diff(begins) == size) & lists.is_valid().to_numpy(zero_copy_only=False)
        found[found] = hits[begins[:-1][found]]
        return found if found.any() else None

    def _of_codes(self, lists: pa.Array, items: pa.Array) -> Mask | None:
        begins = lists.offsets.to_numpy()
        found = (np.diff(begins) == len(self._codes)) & lists.is_valid().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(found).tolist():
            numbers = items.slice(begins[row], len(self._codes))
            found[row] = numbers.null_count == 0 and np.array_equal(numbers.to_numpy(), self._codes)
        return found if found.any() else None

    def _present(self, has: npt.NDArray[np.bool_], patched: Mask) -> pa.Array:
        """Return ``DecodedPart.present``: a bitmap for each row in ``patched``, null for the others.

        ``has``: for each column, a mask of the rows that set it.
        """
        names = self._rows.columns.names
        known: dict[bytes, bytes] = {}
        found: list[bytes | None] = [None] * len(patched)
        for row in np.flatnonzero(patched).tolist():
            of_row = has[:, row].tobytes()
            if of_row not in known:
                columns = (name for name, there in zip(names, has[:, row], strict=True) if there)
                known[of_row] = present_bitmap(self._rows, columns)
            found[row] = known[of_row]
        return pa.array(found, pa.binary())


def _json(value: object) -> str:
    """Return a value as the connector's converter writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _may_be(type_: pa.DataType) -> bool:
    text_map = pa.types.is_map(type_) and type_.key_type == pa.string()
    return type_ in (*_TEXTS, *_BYTES) or _is_list(type_) or text_map


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_))


def _mask(found: pa.Array) -> Mask | None:
    if not pc.any(found).as_py():
        return None
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


def _without(column: pa.Array, cells: Mask) -> pa.Array:
    """Return the column with null in place of some cells."""
    places = np.arange(len(column))
    return column.take(pa.array(places, mask=cells))


def _patches(ops: pa.Array, rows: Mask) -> pa.Array:
    return pa.array(np.where(rows, np.uint8(Op.PATCH), ops.to_numpy()))
