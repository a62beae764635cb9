"""Write the changes of a merge: deletion vectors and columns, by one task a fragment, and new rows (step 3 of
``merge``).

These files have no effect before the merge's commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import RewriteFailed
from lancewal_core.keys.index import KeyRows
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import together
from lancewal_core.rows.fold import complete
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import rows_as
from lancewal_core.table.checks import check_no_blobs, columns_of
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import PinnedTable, StoredTable, files_of, fragment_bytes, fragment_live_rows
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.merge.set_aside import SortedOut
from lancewal_flusher.tasks.cost import is_worn
from lancewal_flusher.tasks.in_place import PatchesInPlace, choose_in_place
from lancewal_flusher.tasks.merge_task import Candidates, FragmentResult, FragmentTask, KeyScan

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a merge that are written but not committed yet."""

    results: Sequence[FragmentResult]
    new: tuple[str, ...]
    """Fragments of new rows, as JSON."""
    in_place: Mapping[int, PatchesInPlace]
    """Patches that are written in place, by the id of the fragment whose rows they patch."""
    as_rows: _Mask
    """Mask over all patches of the merge: True for a patch that became a new row, False for one written in place."""

    @property
    def rows_in_place(self) -> int:
        return len(self.as_rows) - self.rows_completed

    @property
    def rows_completed(self) -> int:
        """Return the number of patches that became new rows."""
        return int(self.as_rows.sum())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that patches in place have written."""
        return tuple(sorted({name for patches in self.in_place.values() for name in patches.columns}))

    def column_files(self, pinned: PinnedTable) -> frozenset[str]:
        """Return the names of the data files that patches in place have added to fragments."""
        before = {name for f in pinned.fragments() if f.fragment_id in self.in_place for name in f.files}
        return files_of(self._with_columns().values()) - before

    def column_bytes(self, pinned: PinnedTable) -> int:
        """Return the bytes of the data files that patches in place have added, as far as Lance records sizes."""
        before = {f.fragment_id: f.nbytes for f in pinned.fragments() if f.fragment_id in self.in_place}
        return sum(max(0, fragment_bytes(text) - before[i]) for i, text in self._with_columns().items())

    def worn(self, pinned: PinnedTable, limits: MergeLimits) -> tuple[int, ...]:
        """Return the fragments that hide more rows than before and that compaction should now rewrite (``is_worn``).
        Fragments smaller than ``rewrite_bytes`` are left out.
        """
        fragments = {f.fragment_id: f for f in pinned.fragments()}
        found = []
        for result in self.results:
            if result.updated is None:
                continue
            f = fragments[result.fragment_id]
            hidden = f.physical_rows - fragment_live_rows(result.updated)
            worn = is_worn(f.physical_rows, hidden, limits.deleted_share)
            if worn and hidden > f.deleted_rows and f.nbytes >= limits.rewrite_bytes:
                found.append(f.fragment_id)
        return tuple(found)

    def _with_columns(self) -> dict[int, str]:
        """Return the new JSON, by fragment id, of fragments with patches in place that have a row left."""
        return {
            r.fragment_id: r.updated for r in self.results if r.fragment_id in self.in_place and r.updated is not None
        }


def write_changes(context: FlusherContext, pinned: PinnedTable, found: SortedOut, limits: MergeLimits) -> Changes:
    """Write the changes of a merge, and return them.  ``found``: the merge's inputs, without the records that are set
    aside.
    """
    keys, lookup = found.keys, found.lookup
    whole = [taken.rows for taken in found.inputs.region_inputs]
    partials = found.inputs.partials(context.contract.rows)
    if not partials.num_rows:  # the new rows wait for nothing that the tasks find
        results, new = together(
            context.tasks,
            lambda: run_tasks(context, pinned, keys, 0, lookup, {}),
            lambda: write_rows(context.table, context.contract, pinned, whole, partials, ()),
        )
        return Changes(results, new, {}, np.ones(0, np.bool_))
    in_place = choose_in_place(context, pinned, lookup, partials, limits.in_place_rows, limits.deleted_share).chosen
    try:
        results = run_tasks(context, pinned, keys, partials.num_rows, lookup, in_place)
    except RewriteFailed:
        # Lance joins columns more strictly than it appends rows: a merge must not wait for a rarer way of writing.
        in_place = {}
        results = run_tasks(context, pinned, keys, partials.num_rows, lookup, in_place)
    as_rows = _not_in_place(partials, in_place)
    left = partials if as_rows.all() else partials.filter(pa.array(as_rows))
    new = write_rows(context.table, context.contract, pinned, whole, left, results)
    return Changes(results, new, in_place, as_rows)


def run_tasks(
    context: FlusherContext,
    pinned: PinnedTable,
    keys: pa.Table,
    partial_keys: int,
    found: KeyRows,
    in_place: Mapping[int, PatchesInPlace],
) -> list[FragmentResult]:
    """Run a task for each fragment that may have one of ``keys``.  The first ``partial_keys`` of them are keys of
    patches.  ``found``: the result of looking ``keys`` up in the key index.

    Raises ``ContractMismatch`` if patched rows would lose values of another program's blob column.
    """
    if partial_keys:
        check_no_blobs(pinned)
    columns = tuple(pinned.schema.names) if partial_keys else context.contract.primary_key
    sources = _candidates(pinned, found, len(keys))
    if found.uncovered:
        sources.update(dict.fromkeys(found.uncovered, KeyScan(KeySet(keys))))
    rows = {f.fragment_id: f.physical_rows for f in pinned.fragments()}
    tasks = [
        FragmentTask(pinned.version, i, rows[i], source, partial_keys, columns, in_place.get(i))
        for i, source in sources.items()
    ]
    return context.runner.run(tasks)


def _candidates(pinned: PinnedTable, found: KeyRows, keys: int) -> dict[int, KeyScan | Candidates]:
    """Return the rows that the key index names, by covered fragment.  A fragment's rows are ``doubtful`` if the index
    has several rows for each of their keys: perhaps none of them is live."""
    often = np.bincount(
        np.concatenate([np.zeros(0, np.int64), *(rows.places for rows in found.covered.values())]), minlength=keys
    )
    live = {f.fragment_id: f.live_rows for f in pinned.fragments()}
    return {
        i: Candidates(rows, live[i], doubtful=bool((often[rows.places] > 1).all()))
        for i, rows in sorted(found.covered.items())
    }


def _not_in_place(partials: pa.Table, in_place: Mapping[int, PatchesInPlace]) -> _Mask:
    """Return a mask over ``partials``: True for a patch that becomes a new row."""
    left = np.ones(partials.num_rows, np.bool_)
    for patches in in_place.values():
        left[patches.places] = False
    return left


def write_rows(
    table: StoredTable,
    contract: Contract,
    pinned: PinnedTable,
    whole: Sequence[pa.Table],
    partials: pa.Table,
    results: Sequence[FragmentResult],
) -> tuple[str, ...]:
    """Write the rows ``whole``, then the completed patches, and return the new fragments as JSON; empty if there are
    no rows.

    Patches are completed with the base rows that the tasks returned in ``results``.  Base rows have all columns of the
    version, so columns of other programs keep their values.
    """
    parts, ids = [part for part in whole if part.num_rows], contract.fields_of
    if partials.num_rows:
        rows, ids = columns_of(pinned, contract), pinned.field_ids
        *parts, partials = (rows_as(part, contract.rows, rows, lambda: "the merge") for part in (*parts, partials))
        found = [r.base.select(rows.table.names).cast(rows.table) for r in results if r.base is not None]
        base = pa.concat_tables(found) if found else rows.table.empty_table()
        parts.append(complete(partials, base, rows))
    if not parts:
        return ()
    with point("fragment.write"):
        return table.write_rows(pa.concat_tables(parts), ids)
