"""One key, one region: what a merge of a table with ``key-bytes`` asks before anything is written.

Guarantees
 1. No merge takes a key through two regions, in one commit or one after the other, as far as the region of the row that lives
    is known and counts (``keys.origin``): ``RegionConflict``, and the table and the generations stay as they are.
 2. Rows whose region is not known conflict with nothing; they are counted.
 3. Of a table with ``canonical`` nothing is asked: its keys of different regions differ.

Steps of ``check_regions``
 1. Keys of the merge's own regions: none is in two.
 2. Rows that the key index found: those that another region brought must not live.
 3. Fragments that the index does not cover: where a commit says what regions its rows came through, they are looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import ATTACH_A_COPY, RegionConflict
from lancewal_core.keys.index import KeyRows, RowsOfKeys, fragments_by_file, live_rows
from lancewal_core.keys.origin import NOT_KNOWN, Meeting, Partitions, conflict, counting, meeting
from lancewal_core.keys.scan import find_keys
from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.protocol import PinnedTable
from lancewal_flusher.commit.row_origins import Spans, expanded, find_spans
from lancewal_flusher.context import FlusherContext, check_contract
from lancewal_flusher.merge.inputs import Work

ADDRESSES_SHOWN = 20
"""So many rows a message names."""
_Strays = npt.NDArray[np.int64]
"""Rows of the table whose keys wait through another region: address, its partition, and the partition that waits."""


def check_regions(
    context: FlusherContext, pinned: PinnedTable, works: Sequence[Work], keys: pa.Table, found: KeyRows
) -> int:
    """``RegionConflict``, or how many rows with these keys are of a region not known, hidden ones too.

    ``keys`` are those of ``works`` (``Stock.keys``), ``found`` is what the index says of them.
    """
    if not context.contract.keyed_by_bytes:
        return 0
    partitions = _partitions(works)
    # Step 1
    met = meeting(keys, partitions)
    if met is not None:
        raise _conflict(
            context,
            met,
            f"waits to be merged ({_generations(works, met.partitions)})",
            f"To go on, {ATTACH_A_COPY}",
        )
    # Step 2
    not_known = 0
    strays = [np.zeros((0, 3), np.int64)]
    for fragment_id, rows in found.covered.items():
        not_known += _not_known(rows)
        strays.append(_strays(pinned, fragment_id, rows, partitions))
    # Step 3
    told = _told(context, pinned, found.uncovered)
    wanted, counts = KeySet(keys if told else keys.slice(0, 0)), counting(context.contract)
    for fragment_id, (file_rows, spans) in told.items():
        of_rows = expanded(spans, {region: counts(region) for region, _ in spans}, file_rows)
        if of_rows is None:
            continue
        hits = find_keys(pinned, wanted, [fragment_id])
        at = (hits.addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
        looked_up = RowsOfKeys(at, hits.places, of_rows[at])
        not_known += _not_known(looked_up)
        strays.append(_strays(pinned, fragment_id, looked_up, partitions))
    found_strays = np.concatenate(strays)
    if len(found_strays):
        raise _replaced(context, pinned, works, found_strays)
    return not_known


def _partitions(works: Sequence[Work]) -> Partitions:
    """The partition of each key, in the order of ``Stock.keys``."""
    of_works = np.array([work.merge.region.partition for work in works], np.int32)
    partials = [work.partials.num_rows for work in works]
    others = [work.keys.num_rows - work.partials.num_rows for work in works]
    return np.concatenate([np.repeat(of_works, partials), np.repeat(of_works, others)])


def _not_known(rows: RowsOfKeys) -> int:
    return len(rows.rows) if rows.partitions is None else int((rows.partitions == NOT_KNOWN).sum())


def _strays(pinned: PinnedTable, fragment_id: int, rows: RowsOfKeys, partitions: Partitions) -> _Strays:
    """Those rows that live and that another region brought."""
    nothing = np.zeros((0, 3), np.int64)
    if rows.partitions is None:
        return nothing
    other = np.flatnonzero((rows.partitions != NOT_KNOWN) & (rows.partitions != partitions[rows.places]))
    if not len(other):
        return nothing
    live = live_rows(pinned, fragment_id, RowsOfKeys(rows.rows[other], rows.places[other], rows.partitions[other]))
    if live.partitions is None:
        return nothing
    return np.column_stack([live.rows + (fragment_id << 32), live.partitions, partitions[live.places]])


def _replaced(context: FlusherContext, pinned: PinnedTable, works: Sequence[Work], strays: _Strays) -> RegionConflict:
    """A merge would replace rows of other regions."""
    strays = strays[np.argsort(strays[:, 0])]
    shown = strays[:ADDRESSES_SHOWN, 0].tolist()
    more = f" and {len(strays) - len(shown)} more" if len(strays) > len(shown) else ""
    here, there = strays[0, 1:].tolist()
    return _conflict(
        context,
        Meeting(len(strays), (here, there)),
        f"is in the table through partition {here}, and waits to be merged through partition {there} "
        f"({_generations(works, (there,))}). Row addresses in version {pinned.version}: "
        f"{', '.join(map(str, shown))}{more}",
        "To let the waiting rows stand, delete these rows from the Lance table; the merge then goes on. To keep the "
        f"table as it is, {ATTACH_A_COPY}",
        addresses=shown,
    )


def _told(context: FlusherContext, pinned: PinnedTable, fragment_ids: Sequence[int]) -> Mapping[int, tuple[int, Spans]]:
    """By uncovered fragment the rows of its key file, and what a commit says of them."""
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


def _generations(works: Sequence[Work], partitions: Sequence[int]) -> str:
    found = [work.merge for work in works if work.merge.region.partition in partitions]
    return " and ".join(
        f"generations {m.snapshots[0].generation} to {m.snapshots[-1].generation} of partition {m.region.partition}, offsets "
        f"{m.snapshots[0].first} to {m.snapshots[-1].next - 1}"
        for m in found
    )


def _conflict(context: FlusherContext, met: Meeting, what: str, way_on: str, **where: object) -> RegionConflict:
    """``ContractMismatch`` where a newer contract may let it pass."""
    check_contract(context)
    return conflict(context.contract.topic, met, what, f"Nothing was merged. {way_on}", **where)
