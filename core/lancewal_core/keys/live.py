"""Live rows of a table version that have given keys.

The key index finds them, and a scan of the fragments that the index does not cover.  Merges, loads, previews of
merges, and checks for keys in conflict use this.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancewal_core.keys.index import KeyRows, RowsOfKeys
from lancewal_core.keys.scan import FoundRows, find_keys
from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.protocol import PinnedTable

_TABLE_ROWS = 1 << 24
"""Largest row number up to which live rows are found with a table of one byte a row, in half the time.  Above it they
are found by sorting."""


def find_live(pinned: PinnedTable, keys: KeySet, found: KeyRows) -> dict[int, RowsOfKeys]:
    """Return the live rows with the keys, by fragment id.

    ``found`` is what the key index found for these keys in this version.  A key may have several rows.
    """
    live = {fragment_id: live_rows(pinned, fragment_id, rows) for fragment_id, rows in found.covered.items()}
    if found.uncovered:
        scanned = find_keys(pinned, keys, found.uncovered)  # at once: each call may build tables of the keys anew
        fragments = (scanned.addresses >> np.uint64(32)).astype(np.int64)
        for fragment_id in np.unique(fragments).tolist():
            live[fragment_id] = _in_fragment(scanned, fragments == fragment_id)
    return live


def live_rows(pinned: PinnedTable, fragment_id: int, rows: RowsOfKeys) -> RowsOfKeys:
    """Return the ``rows`` of a fragment that its deletion vector does not hide."""
    hidden = pinned.hidden_rows(fragment_id)
    few = not len(hidden) or hidden.max() < _TABLE_ROWS
    live = np.flatnonzero(~np.isin(rows.rows, hidden, kind="table" if few else None))
    return RowsOfKeys(rows.rows[live], rows.places[live], None if rows.partitions is None else rows.partitions[live])


def scan_fragment(pinned: PinnedTable, keys: KeySet, fragment_id: int) -> RowsOfKeys:
    """Return the live rows of one fragment with these keys, found by a scan.  ``places`` of the result are indexes
    into ``keys``."""
    found = find_keys(pinned, keys, [fragment_id])
    return _in_fragment(found, np.ones(len(found.places), np.bool_))


def _in_fragment(found: FoundRows, chosen: npt.NDArray[np.bool_]) -> RowsOfKeys:
    return RowsOfKeys((found.addresses[chosen] & np.uint64(0xFFFFFFFF)).astype(np.int64), found.places[chosen])
