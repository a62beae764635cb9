"""One key, one region: what a merge of a table with ``key-bytes`` asks before anything is written.

Guarantees
 1. No merge takes a key through two regions, in one commit or one after the other, as far as the region of the row that lives
    is known and counts (``key_region``): ``RegionConflict``, and the table and the generations stay as they are.
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
import pyarrow as pa

from lancewal_core.errors import ATTACH_A_COPY, RegionConflict
from lancewal_core.key_index import KeyRows, RowsOfKeys, fragments_by_file, live_rows
from lancewal_core.key_lookup import find_keys
from lancewal_core.key_match import KeySet
from lancewal_core.key_region import NOT_KNOWN, Partitions, counting, meeting
from lancewal_core.table import PinnedTable
from lancewal_flusher.context import FlusherContext, check_contract
from lancewal_flusher.file_regions import Spans, expanded, find_spans
from lancewal_flusher.merge_stock import Work

_REASON = (
    "Kafka does not order partitions, so nothing says which row is newer. Producers must key by something that the primary "
    "key determines"
)


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
            met.partitions,
            met.keys,
            f"wait to be merged ({_generations(works, met.partitions)})",
            f"To go on, {ATTACH_A_COPY}",
        )
    # Step 2
    not_known = 0
    for fragment_id, rows in found.covered.items():
        not_known += _check_rows(context, pinned, fragment_id, rows, partitions)
    # Step 3
    told = _told(context, pinned, found.uncovered)
    wanted, counts = KeySet(keys if told else keys.slice(0, 0)), counting(context.contract)
    for fragment_id, (file_rows, spans) in told.items():
        of_rows = expanded(spans, {region: counts(region) for region, _ in spans}, file_rows)
        if of_rows is None:
            continue
        hits = find_keys(pinned, wanted, [fragment_id])
        at = (hits.addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
        not_known += _check_rows(context, pinned, fragment_id, RowsOfKeys(at, hits.places, of_rows[at]), partitions)
    return not_known


def _partitions(works: Sequence[Work]) -> Partitions:
    """The partition of each key, in the order of ``Stock.keys``."""
    of_works = np.array([work.merge.region.partition for work in works], np.int32)
    partials = [work.partials.num_rows for work in works]
    others = [work.keys.num_rows - work.partials.num_rows for work in works]
    return np.concatenate([np.repeat(of_works, partials), np.repeat(of_works, others)])


def _check_rows(
    context: FlusherContext, pinned: PinnedTable, fragment_id: int, rows: RowsOfKeys, partitions: Partitions
) -> int:
    if rows.partitions is None:
        return len(rows.rows)
    other = np.flatnonzero((rows.partitions != NOT_KNOWN) & (rows.partitions != partitions[rows.places]))
    if len(other):
        doubtful = RowsOfKeys(rows.rows[other], rows.places[other], rows.partitions[other])
        live = live_rows(pinned, fragment_id, doubtful)
        if len(live.rows) and live.partitions is not None:
            between = int(live.partitions[0]), int(partitions[live.places[0]])
            raise _conflict(
                context,
                between,
                len(live.rows),
                f"is in the table (row address {(fragment_id << 32) + int(live.rows[0])} of version {pinned.version}) through "
                f"partition {between[0]}, and waits to be merged through partition {between[1]}",
                "To let the waiting row stand, delete that row from the Lance table; the merge then goes on. To keep the "
                f"table as it is, {ATTACH_A_COPY}",
                fragment=fragment_id,
            )
    return int((rows.partitions == NOT_KNOWN).sum())


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
    spans = find_spans(context.table, pinned, {name: fragment.fragment_id for name, fragment in files.items()})
    return {files[name].fragment_id: (files[name].physical_rows, told) for name, told in spans.items()}


def _generations(works: Sequence[Work], partitions: tuple[int, int]) -> str:
    found = [work.merge for work in works if work.merge.region.partition in partitions]
    return " and ".join(
        f"generations {m.snapshots[0].generation} to {m.snapshots[-1].generation} of partition {m.region.partition}, offsets "
        f"{m.snapshots[0].first} to {m.snapshots[-1].next - 1}"
        for m in found
    )


def _conflict(
    context: FlusherContext, partitions: tuple[int, int], keys: int, what: str, way_on: str, **where: object
) -> RegionConflict:
    """Names places, never the key itself: that is a payload.  ``ContractMismatch`` where a newer contract may let it pass."""
    check_contract(context)
    topic = context.contract.topic
    return RegionConflict(
        f"topic {topic}: a primary key ({keys} in all) came through partitions {partitions[0]} and {partitions[1]}: it "
        f"{what}. {_REASON}. Nothing was merged. {way_on}",
        topic=topic,
        partitions=list(partitions),
        keys=keys,
        **where,
    )
