"""Find rows with keys of a merge that users appended between the version from which the merge was computed and the
merge's own version.

Guarantee: a user's row that was visible next to Kafka's row at the merge's own version is found in the newest
version.  This holds even if a compaction has moved the user's row since.  Kafka's row is never returned.

Steps
 1. At the merge's version, users' rows lie in fragments that were added after the version from which the merge was
    computed, but not by the merge.  Search those of these fragments that still exist in the newest version, as they
    are there.
 2. In the fragments that no longer exist, take the rows with keys of the merge.  A compaction has moved such rows,
    and only their values are the same.  Search the fragments added since for rows with equal values, as many as there
    were.  If the merge's own rows were moved too, leave as many equal rows alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.keys.scan import find_keys
from lancewal_core.rows.equal_cells import row_texts
from lancewal_core.rows.key_set import KeySet, distinct
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.protocol import PinnedTable, rows_by_fragment
from lancewal_flusher.commit.facts import MergeFacts

Addresses = npt.NDArray[np.uint64]


def foreign_rows(
    landed: PinnedTable, current: PinnedTable, facts: MergeFacts, keys: Callable[[], pa.Table], rows: RowSchema
) -> dict[int, list[int]]:
    """Return the physical rows of ``current`` that must be hidden, by fragment.  ``landed``: the merge's own version.
    ``current``: the version to search.  ``keys`` returns the merge's keys.
    """
    others = [
        f.fragment_id
        for f in landed.fragments()
        if f.fragment_id >= facts.fragments_below and not facts.files.intersection(f.files)
    ]
    if not others:
        return {}
    wanted = KeySet(keys())
    live = {f.fragment_id for f in current.fragments()}
    # Step 1
    found = find_keys(current, wanted, [f for f in others if f in live]).addresses
    # Step 2
    gone = [f for f in others if f not in live]
    if gone:
        own = [f.fragment_id for f in landed.fragments() if facts.files.intersection(f.files)]
        moved = _moved(landed, current, gone, [f for f in own if f not in live], wanted, rows)
        found = np.concatenate([found, moved])
    return rows_by_fragment(found)


def _moved(
    landed: PinnedTable,
    current: PinnedTable,
    gone: Sequence[int],
    own: Sequence[int],
    wanted: KeySet,
    rows: RowSchema,
) -> Addresses:
    """Return the addresses in ``current`` of users' rows that were in the fragments ``gone`` (step 2).  ``own``:
    fragments of the merge itself that ``current`` does not have.  ``wanted``: the merge's keys."""
    names = list(rows.table.names)
    before = landed.take(pa.array(find_keys(landed, wanted, gone).addresses), names)
    if not before.num_rows:
        return np.zeros(0, np.uint64)
    keys = KeySet(distinct(before, rows))
    kept = landed.take(pa.array(find_keys(landed, keys, own).addresses), names)
    known = {f.fragment_id for f in landed.fragments()}
    later = [f.fragment_id for f in current.fragments() if f.fragment_id not in known]
    addresses = find_keys(current, keys, later).addresses
    now = row_texts(current.take(pa.array(addresses), names))
    spare = Counter(now) - Counter(row_texts(kept))
    left = Counter(row_texts(before)) & spare
    found = []
    for address, values in zip(addresses, now, strict=True):
        if left[values]:
            left[values] -= 1
            found.append(address)
    return np.array(found, np.uint64)
