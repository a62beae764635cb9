"""One end of a change feed: a planned state that is open, and shows the columns of the feed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import pyarrow as pa

from lancewal_core.names.ids import TableVersion
from lancewal_core.rows.carry import taken_whole
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.protocol import PinnedTable
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.reading.lookup import lookup_plan
from lancewal_reader.reading.reads import Planned, Reads
from lancewal_reader.reading.scan import OpenState
from lancewal_reader.reading.shown_version import stored_version
from lancewal_reader.unmerged.completed import FindAddresses

T = TypeVar("T")
Compared: TypeAlias = dict[tuple[TableVersion, TableVersion], int]
"""How many fragments had all their rows compared, by the two versions between which they were not traced.

Using a feed again, or after a new plan of the same versions, counts nothing twice."""


@dataclass(frozen=True, slots=True)
class Side(OpenState):
    """One end of a change feed: the state of the table that ``plan`` reads at ``receipt``, with the feed's columns."""

    receipt: Receipt
    compared: Compared = field(default_factory=dict)
    """Number of fragments that were compared row by row.  Only the note of the feed's end is used."""
    lacking: frozenset[str] = frozenset()
    """Columns of the feed that the state does not have: they are null, also in unmerged rows from before they were dropped."""

    @property
    def rows(self) -> RowSchema:
        """The columns of the feed."""
        return self.context.rows

    @property
    def stored(self) -> PinnedTable:
        """The plan's table version as it is stored."""
        return stored_version(self.pinned)

    def rows_of(self, keys: pa.Table, columns: Sequence[str], find: FindAddresses | None = None) -> pa.Table:
        """Return the rows that the state has for ``keys``, in the order of the keys.  A key without a row is left out.

        ``keys`` are distinct, in the columns of the primary key.  ``find``: lookup to use instead of the state's own.
        """
        found = lookup_plan(self if find is None else replace(self, find=find), columns, keys)
        for at, cells in enumerate(found.schema):
            if cells.name in self.lacking:
                found = found.set_column(at, cells, pa.nulls(found.num_rows, cells.type))
        return found


def between_sides(reads: Reads, start: Planned | None, end: Planned, use: Callable[[Side | None, Side], T]) -> T:
    """Open both ends with the columns of ``end``, call ``use`` with them, and return its result.  ``start`` is None
    for a feed from the empty table; ``use`` then gets None too.

    If objects of a plan have vanished, make a new plan at the same receipt, and call ``use`` again.
    """

    def side(state: OpenState, receipt: Receipt, lacking: frozenset[str] = frozenset()) -> Side:
        return Side(state.context, state.pinned, state.plan, state.find, receipt, lacking=lacking)

    def with_end(state: OpenState) -> T:
        after = side(state, end.receipt)
        if start is None:
            return use(None, after)
        at, lacking = start.receipt, _lacking(start.chosen.rows, end.chosen.rows)
        return reads.using(replace(start, chosen=end.chosen), lambda state: use(side(state, at, lacking), after))

    return reads.using(end, with_end)


def _lacking(has: RowSchema, shown: RowSchema) -> frozenset[str]:
    """Return the columns of ``shown`` that ``has`` lacks, told apart by their ids.

    A column that another program had added when ``has`` was read may be the contract's now."""
    there = {own[0] for own in has.ids}
    return frozenset(
        name
        for name, own in zip(shown.table.names, shown.ids, strict=bool(shown.ids))
        if there.isdisjoint((own[0], taken_whole(own[0])))
    )
