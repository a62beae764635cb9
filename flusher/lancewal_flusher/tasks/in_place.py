"""Patches in place: in a fragment with many patched rows, only the columns that patches set are rewritten.

Guarantees
 1. A key is patched in place only if the pinned version has exactly one live row of it, in a fragment that the key
    index covers.  Rows of all other keys are hidden and written as new rows, so a key with two
    rows keeps only one.
 2. Patching in place adds one data file to a fragment, which has no effect before the merge's commit.  To Lance it is
    an update of the fragment.  Like a deletion vector, it conflicts with any other commit that has changed the
    fragment since.
 3. Columns that no patch sets are neither read nor written, nor is the key: the key index stays right.
 4. A column is not written in place if an index of the pinned version is over it, or over a member of it.  If such an
    index is made before the commit, the commit is refused (``table.protocol``, guarantee 5).

Steps of ``choose_in_place``
 1. Patch nothing in place if the key index does not cover some fragment: a row of a key might lie there.
 2. Take the fragments in which the key index names at least ``in_place_rows`` rows of patched keys, hidden rows
    included.
 3. Find which of these rows are live, and which keys have exactly one live row.
 4. Compare the strategies (``cost``), from the sizes of the fragment's columns and from the indexes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.keys.index import KeyRows, RowsOfKeys
from lancewal_core.keys.live import live_rows
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.fold import columns_set, complete
from lancewal_core.rows.projection import rows_as
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.checks import columns_of
from lancewal_core.table.protocol import Fragment, PinnedTable, TableIndex
from lancewal_flusher.tasks.cost import FragmentChange, Strategy, costs, least

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PatchesInPlace:
    """Patches of one fragment.  ``places``: the indexes of their keys among the merge's keys, ascending.  ``partials``:
    the patches, in the same order.
    """

    places: Places
    partials: pa.Table
    schema: RowSchema

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that the patches set."""
        return tuple(columns_set(self.partials, self.schema))

    def split(self, found: RowsOfKeys) -> tuple[RowsOfKeys, RowsOfKeys]:
        """Divide the rows that have a key of the merge into rows to hide and rows to patch."""
        ours = np.isin(found.places, self.places)
        return (
            RowsOfKeys(found.rows[~ours], found.places[~ours]),
            RowsOfKeys(found.rows[ours], found.places[ours]),
        )

    def write(self, pinned: PinnedTable, fragment_id: int, patched: RowsOfKeys, fragment_json: str) -> str:
        """Write the columns that patches set, and return the fragment's new JSON."""
        columns = columns_set(self.partials, self.schema)
        if not columns or len(patched.rows) == 0:
            return fragment_json  # patches that say only that the row is there
        values = self.partials.take(pa.array(np.searchsorted(self.places, patched.places)))
        if not all(columns.values()):
            addresses = patched.rows.astype(np.uint64) | np.uint64(fragment_id << 32)
            names = self.schema.table.names
            base = pinned.take(pa.array(addresses), names).select(names).cast(self.schema.table)
            values = complete(values, base, self.schema)
        return pinned.write_columns(fragment_id, patched.rows, values.select(list(columns)), fragment_json)


@dataclass(frozen=True, slots=True)
class InPlace:
    """Fragments that are patched in place (``chosen``), and those for which an index forbids it (``barred``)."""

    chosen: Mapping[int, PatchesInPlace]
    barred: Mapping[int, tuple[str, ...]]
    """Names of the indexes that prevent patching in place, by fragment id."""


NOT_IN_PLACE = InPlace({}, {})


def choose_in_place(
    opened: OpenedTable,
    pinned: PinnedTable,
    found: KeyRows,
    partials: pa.Table,
    rows_min: int,
    deleted_share: float,
) -> InPlace:
    """Choose the fragments to patch in place.  ``partials``: all patches of the merge, with the contract's columns.
    Their keys are the first keys of the merge.  The result has the version's columns.
    """
    tasks = opened.tasks
    # Step 1
    if partials.num_rows == 0 or found.uncovered:
        return NOT_IN_PLACE
    # Step 2
    counts = {i: int((rows.places < partials.num_rows).sum()) for i, rows in found.covered.items()}
    if not any(count >= rows_min for count in counts.values()):
        return NOT_IN_PLACE
    # Step 3
    touched = sorted(i for i, count in counts.items() if count)
    live = dict(zip(touched, tasks.map(lambda i: live_rows(pinned, i, found.covered[i]), touched), strict=True))
    often = np.zeros(partials.num_rows, np.int64)
    for rows in live.values():
        often += np.bincount(rows.places[rows.places < partials.num_rows], minlength=partials.num_rows)

    # Step 4
    schema, indexes = columns_of(pinned, opened.contract), pinned.indexes()
    partials = rows_as(partials, opened.contract.rows, schema, lambda: "the merge")

    def decide(fragment_id: int) -> PatchesInPlace | tuple[str, ...] | None:
        rows = live[fragment_id]
        once = rows.places[rows.places < partials.num_rows]
        places = np.sort(once[often[once] == 1])
        if len(places) < rows_min:
            return None
        patches = PatchesInPlace(places, partials.take(pa.array(places)), schema)
        change = change_of(pinned, fragment_id, len(rows.rows), patches, indexes)
        if change.indexed_by:
            return change.indexed_by
        chosen = least(costs(change, deleted_share))
        return patches if chosen.strategy is Strategy.COLUMNS else None

    large = [i for i in touched if counts[i] >= rows_min]
    decided = list(zip(large, tasks.map(decide, large), strict=True))
    return InPlace(
        {i: patches for i, patches in decided if isinstance(patches, PatchesInPlace)},
        {i: names for i, names in decided if isinstance(names, tuple)},
    )


def change_of(
    pinned: PinnedTable,
    fragment_id: int,
    replaced: int,
    patches: PatchesInPlace | None,
    indexes: Sequence[TableIndex],
    *,
    rewritable: bool = True,
) -> FragmentChange:
    """Return what the merge does to a fragment.  ``replaced``: the number of its live rows with a key of the merge.
    ``patches``: patches to write in place, if any.
    """
    (fragment,) = (f for f in pinned.fragments() if f.fragment_id == fragment_id)
    written = frozenset[str]() if patches is None else frozenset(patches.columns)
    indexed_by = tuple(index.name for index in indexes if not index.columns.isdisjoint(written))
    return FragmentChange(
        fragment_id,
        fragment.physical_rows,
        fragment.deleted_rows,
        fragment.nbytes,
        replaced,
        0 if patches is None else len(patches.places),
        None if patches is None or indexed_by else _bytes_anew(pinned, fragment, patches),
        rewritable,
        sum(index.row_bytes for index in indexes),
        indexed_by,
    )


def _bytes_anew(pinned: PinnedTable, fragment: Fragment, patches: PatchesInPlace) -> int | None:
    """Estimate the bytes that the patched columns of the whole fragment will take; None if they cannot be written
    alone."""
    held = pinned.column_bytes(fragment.fragment_id, patches.columns)
    if held is None:
        return None
    rows = max(fragment.physical_rows, 1)
    return int(sum(max(size, rows * _value_bytes(patches.partials[n], size / rows)) for n, size in held.items()))


def _value_bytes(column: pa.ChunkedArray, now: float) -> float:
    """Estimate the bytes of one patched value.  ``now``: bytes that a value of the column takes now.  Return 0 if
    ``now`` is the better estimate.

    Lance stores integers with as many bits as the largest of its neighbours needs.  A column of equal values has
    taken no space so far.
    """
    if pa.types.is_integer(column.type):
        found = pc.min_max(column).as_py()
        if found["max"] is None:
            return 0.0
        return column.type.bit_width / 8 if found["min"] < 0 else int(found["max"]).bit_length() / 8
    return 0.0 if now else column.nbytes / max(len(column), 1)
