"""Check that each key comes through one region only, for merges into a table whose rows do not tell their region.

A *stray* is a live row with a key of the merge that is known to have come through another region than the merge's
record.  A *meeting* (``Meeting``) counts keys that wait through several regions.  The errors about both are made
here.

``regions_of_merge`` says through which region the rows of the merge's files came.

Guarantees
 1. ``find_strays`` finds all strays among the live rows that a merge would replace, as far as the other region counts
    (``keys.origin``).
 2. Rows whose region is unknown do not count as strays.  Their number is returned.

Steps of ``find_strays``
 1. From the rows that the key index found, take the live ones that came through another region.
 2. Scan the fragments that the index does not cover for the keys, if a commit says through which regions the
    fragment's rows came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import ATTACH_A_COPY, RegionConflict
from lancewal_core.keys.index import KeyRows, RowsOfKeys, fragments_by_file
from lancewal_core.keys.live import live_rows, scan_fragment
from lancewal_core.keys.origin import NOT_KNOWN, Meeting, MergedFrom, Partitions, conflict, counting
from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.protocol import PinnedTable, fragment_rows
from lancewal_flusher.commit.row_origins import Spans, divided, expanded, find_spans
from lancewal_flusher.context import FlusherContext, check_contract
from lancewal_flusher.merge.region_input import RegionInput, adopted_files

ADDRESSES_SHOWN = 20
"""Upper bound of the row addresses that a message names."""
Strays = npt.NDArray[np.int64]
"""Array with a line for each stray (module docstring): the row's address, its partition, and the index of its key
among the merge's keys."""
MET = -2
"""Number used in place of a partition: the key waits through several partitions, so a row of any partition is a
stray."""


def find_strays(
    context: FlusherContext, pinned: PinnedTable, keys: pa.Table, partitions: Partitions, found: KeyRows
) -> tuple[Strays, int]:
    """Return the strays, and the number of rows with these keys whose region is unknown, including hidden rows (steps 1
    and 2).

    ``partitions``: the partition of each of ``keys``.  ``found``: the result of looking ``keys`` up in the key index.
    """
    # Step 1
    looked_up = dict(found.covered)
    # Step 2
    told = _told(context, pinned, found.uncovered)
    wanted, counts = KeySet(keys if told else keys.slice(0, 0)), counting(context.contract)
    for fragment_id, (file_rows, spans) in told.items():
        of_rows = expanded(spans, {region: counts(region) for region, _ in spans}, file_rows)
        if of_rows is not None:
            hits = scan_fragment(pinned, wanted, fragment_id)
            looked_up[fragment_id] = replace(hits, partitions=of_rows[hits.rows])
    strays = [_strays(pinned, fragment_id, rows, partitions) for fragment_id, rows in looked_up.items()]
    not_known = sum(map(_not_known, looked_up.values()))
    return np.concatenate([np.zeros((0, 3), np.int64), *strays]), not_known


def _not_known(rows: RowsOfKeys) -> int:
    return len(rows.rows) if rows.partitions is None else int((rows.partitions == NOT_KNOWN).sum())


def _strays(pinned: PinnedTable, fragment_id: int, rows: RowsOfKeys, partitions: Partitions) -> Strays:
    """Return the strays of one fragment.  ``rows``: its rows that the lookup found.  ``partitions``: that of each
    key.
    """
    nothing = np.zeros((0, 3), np.int64)
    if rows.partitions is None:
        return nothing
    other = np.flatnonzero((rows.partitions != NOT_KNOWN) & (rows.partitions != partitions[rows.places]))
    if not len(other):
        return nothing
    live = live_rows(pinned, fragment_id, RowsOfKeys(rows.rows[other], rows.places[other], rows.partitions[other]))
    if live.partitions is None:
        return nothing
    return np.column_stack([live.rows + (fragment_id << 32), live.partitions, live.places])


def too_many_waiting(context: FlusherContext, region_inputs: Sequence[RegionInput], met: Meeting) -> RegionConflict:
    """Return the error for a merge in which more keys come through two regions than may be set aside."""
    return _conflict(
        context,
        met,
        f"waits to be merged ({_generations(region_inputs, met.partitions)})",
        f"To go on, {ATTACH_A_COPY}",
    )


def too_many_in_force(context: FlusherContext, region_inputs: Sequence[RegionInput], met: Meeting) -> RegionConflict:
    """Return the error for keys in conflict that leave too little room, in number or bytes, for those that this merge
    would set aside.
    """
    return _conflict(
        context,
        met,
        f"waits for a decision, and comes again ({_generations(region_inputs, met.partitions)})",
        "Decide about keys that wait: `lancewal conflict list`, `lancewal conflict settle`; then they are merged",
    )


def too_many_replaced(
    context: FlusherContext,
    pinned: PinnedTable,
    region_inputs: Sequence[RegionInput],
    strays: Strays,
    partitions: Partitions,
) -> RegionConflict:
    """Return the error for a merge with more strays than keys may be set aside."""
    strays = strays[np.argsort(strays[:, 0])]
    shown = strays[:ADDRESSES_SHOWN, 0].tolist()
    more = f" and {len(strays) - len(shown)} more" if len(strays) > len(shown) else ""
    here, there = int(strays[0, 1]), int(partitions[strays[0, 2]])
    return _conflict(
        context,
        Meeting(len(strays), (here, there)),
        f"is in the table through partition {here}, and waits to be merged through partition {there} "
        f"({_generations(region_inputs, (there,))}). Row addresses in version {pinned.version}: "
        f"{', '.join(map(str, shown))}{more}",
        "To let the waiting rows stand, delete these rows from the Lance table; the merge then goes on. To keep the "
        f"table as it is, {ATTACH_A_COPY}",
        addresses=shown,
    )


def _told(context: FlusherContext, pinned: PinnedTable, fragment_ids: Sequence[int]) -> Mapping[int, tuple[int, Spans]]:
    """Return, by fragment id, the number of physical rows and their regions, for fragments of which a commit has
    recorded the regions.
    """
    wanted = set(fragment_ids)
    files = {
        name: fragment
        for name, fragments in fragments_by_file(pinned, context.contract.primary_key).items()
        for fragment in fragments
        if fragment.fragment_id in wanted
    }
    if not files:
        return {}
    spans = find_spans(context, pinned, {name: fragment.fragment_id for name, fragment in files.items()})
    return {files[name].fragment_id: (files[name].physical_rows, told) for name, told in spans.items()}


def _generations(region_inputs: Sequence[RegionInput], partitions: Sequence[int]) -> str:
    found = [taken.merge for taken in region_inputs if taken.merge.region.partition in partitions]
    return " and ".join(
        f"generations {m.flushes[0].generation} to {m.flushes[-1].generation} of partition {m.region.partition}, offsets "
        f"{m.flushes[0].first} to {m.flushes[-1].next - 1}"
        for m in found
    )


def _conflict(context: FlusherContext, met: Meeting, what: str, way_on: str, **where: object) -> RegionConflict:
    """Return the error.  Raises ``ContractMismatch`` instead if there is a newer contract, with which the keys may
    not be in conflict.
    """
    check_contract(context)
    return conflict(context.contract.topic, met, what, f"Other partitions are merged. {way_on}", **where)


def regions_of_merge(
    region_inputs: Sequence[RegionInput], kept: npt.NDArray[np.bool_], written: Sequence[str]
) -> dict[str, Spans]:
    """Return the regions of the rows in a merge's new files, by file.  These are the adopted files, the rewritten ones,
    and the files ``written``.

    The files ``written`` have the new rows of all regions, in order, then the completed patches.  ``kept``: mask over
    all patches, True for completed ones; the others are written in place.
    """
    sources = [_source(taken) for taken in region_inputs]
    spans: dict[str, Spans] = {}
    for files in adopted_files(region_inputs):
        spans |= divided(files.fragments, [(_source(taken), taken.row_keys.num_rows) for taken in files.parts])
    for taken, source in zip(region_inputs, sources, strict=True):
        spans |= divided(taken.rewritten, [(source, sum(map(fragment_rows, taken.rewritten)))])
    rows = [(source, taken.rows.num_rows) for taken, source in zip(region_inputs, sources, strict=True)]
    ends = np.cumsum([taken.partials.num_rows for taken in region_inputs])
    patched = [int(part.sum()) for part in np.split(kept, ends[:-1])]
    return spans | divided(written, [*rows, *zip(sources, patched, strict=True)])


def _source(taken: RegionInput) -> MergedFrom:
    return MergedFrom(taken.merge.region, taken.merge.flushes[-1].next)
