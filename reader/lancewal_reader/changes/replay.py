"""Replay records: find for each record the row of its key before and after it, its *images*.

Guarantees
 1. The images are those that applying the records one after the other gives.  An upsert replaces the row, a delete
    removes it, and a patch overlays it.  A patch of an absent row overlays nulls.
 2. Each record has its images, also if it changes nothing, except a delete of an absent row.
 3. Replaying records in portions, each from the states after the portion before it, gives the images of replaying all
    at once, wherever the records are cut.

The work is columnar.  Records are grouped by key.  For each column and record, the source of the cell after it is the last
operation at or before the record that carries the column.  The image before a record is the one after the record before
it.  Sources are numbers, so images of all records are known before a row is copied, and rows are copied in bounded slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from lancewal_core.rows.equal_cells import Mask
from lancewal_core.rows.fold import Folded, Indices, key_codes, partial_schema, present_bits
from lancewal_core.rows.schema import OP, PRESENT, Op, RowSchema

_HALF = 32
"""Number of bits for the index of a row.  An Arrow table of one chunk has fewer rows than these bits can number, and
so fewer keys.
"""
SLICE_ROWS = 65_536
"""Largest number of records whose images are copied at once."""
SLICE_BYTES = 64 << 20
"""About the most bytes of the images that are copied at once, by the average size of a row."""


@dataclass(frozen=True, slots=True)
class Images:
    """Rows before and after each of some records, in the records' order.  All parts have the same length."""

    places: Indices
    """Places of the records among the records that were replayed."""
    before: pa.Table
    """Rows before each record, in the columns of ``RowSchema.table``.  Where ``had`` is False, only the key counts."""
    after: pa.Table
    """Rows after each record.  Where ``has`` is False, only the key counts."""
    had: Mask
    has: Mask


class Replay:
    """Records of some keys, applied to the rows of these keys."""

    def __init__(self, records: pa.Table, start: pa.Table, schema: RowSchema, codes: Indices | None = None) -> None:
        """``records`` must have the columns of ``fold.operation_schema``, and may have others.  Records of one key are
        in their order.  ``start`` has the table's columns, and at most one row per key, in any order.

        ``codes``: for each row of ``start`` and then for each record a number from 0, equal for equal keys.
        """
        self._schema = schema
        self._first = start.num_rows
        names = schema.table.names
        both = [start.select(names).cast(schema.table), records.select(names).cast(schema.table)]
        self._rows = pa.concat_tables(both).combine_chunks()
        self._ops = np.full(self._rows.num_rows, Op.UPSERT, np.uint8)
        self._ops[self._first :] = records[OP].to_numpy()
        self._present = records[PRESENT]
        if codes is None:
            codes = key_codes(self._rows.select(schema.primary_key))
        # Sorting numbers that hold both is several times as fast as a stable sort of the codes.
        self._order = np.sort((codes << _HALF) | np.arange(len(codes))) & ((1 << _HALF) - 1)
        """All rows, the start's before the records, grouped by key, oldest first."""
        group = codes[self._order]
        begins = np.ones(len(group), np.bool_)
        begins[1:] = group[1:] != group[:-1]
        self._begins = begins
        earlier = np.full(len(group), -1, np.int64)
        earlier[1:] = np.where(begins[1:], -1, self._order[:-1])
        self._earlier = np.empty_like(earlier)
        self._earlier[self._order] = earlier
        """For each row the index of the previous row of its key; -1 if it is the first."""

    def images(self) -> Iterator[Images]:
        """Yield the images of all records in their order, except deletes of absent rows."""
        earlier = self._earlier[self._first :]
        there = self._ops != Op.DELETE
        had = np.where(earlier >= 0, there[earlier], False)
        has = there[self._first :]
        kept = np.flatnonzero(had | has)
        row_bytes = 2 * self._rows.nbytes // max(self._rows.num_rows, 1)
        step = min(max(SLICE_BYTES // max(row_bytes, 1), 1), SLICE_ROWS)
        for begin in range(0, len(kept), step):
            places = kept[begin : begin + step]
            own = places + self._first
            yield Images(places, self._taken(earlier[places], own), self._taken(own, own), had[places], has[places])

    def states(self) -> Folded:
        """Return each key's state after all records, either Row or Gone."""
        last = self._order[np.flatnonzero(np.append(self._begins[1:], True))] if len(self._order) else self._order
        there = self._ops[last] != Op.DELETE
        gone = self._rows.select(self._schema.primary_key).take(pa.array(last[~there]))
        rows = self._taken(last[there], last[there])
        return Folded(rows, gone.cast(self._schema.key), partial_schema(self._schema).empty_table())

    def _taken(self, of: Indices, keys: Indices) -> pa.Table:
        """Return the rows as they are after each of the records ``of`` (-1: nulls), with the key columns of the rows
        ``keys``.
        """
        columns = []
        for at, field in enumerate(self._schema.table):
            if field.name in self._schema.primary_key:
                source = keys
            else:
                found = self._sources[at]
                source = of if found is None else np.where(of >= 0, found[of], -1)
            columns.append(cells_at(self._rows[field.name], source))
        return pa.Table.from_arrays(columns, schema=self._schema.table)

    @cached_property
    def _sources(self) -> list[Indices | None]:
        """For each column: the index of the row that carries the cell as it is after each row, -1 for null.  None
        instead of indices: each row carries its own cell.
        """
        fields = self._schema.table
        if not (self._ops == Op.PATCH).any():
            return [None] * len(fields)
        carried = np.ones((len(self._ops), len(fields)), np.bool_)
        carried[self._first :] = present_bits(self._present, self._schema)
        place = np.arange(len(self._order))
        begin = np.maximum.accumulate(np.where(self._begins, place, 0))
        deleted = self._ops[self._order] == Op.DELETE
        found: list[Indices | None] = []
        for at in range(len(fields)):
            carriers = carried[self._order, at]
            if carriers.all():
                found.append(None)
                continue
            last = np.maximum.accumulate(np.where(carriers, place, -1))
            none = (last < begin) | deleted[last]
            sources = np.empty_like(last)
            sources[self._order] = np.where(none, -1, self._order[last])
            found.append(sources)
        return found


def cells_at(column: pa.ChunkedArray, places: Indices) -> pa.ChunkedArray:
    """Return the cells at these indexes; null for -1.  Consecutive indexes give a slice, without a copy."""
    if len(places) and places[0] >= 0 and (np.diff(places) == 1).all():
        return column.slice(int(places[0]), len(places))
    return column.take(pa.array(places, mask=places < 0))
