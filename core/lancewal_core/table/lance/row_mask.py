"""Leaving rows out of a scan by their addresses, where Lance is not to do it."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

_FRAGMENTS_MAX = 16
"""Of which a byte for each row is kept; a scan reads a few side by side."""

Addresses = npt.NDArray[np.uint64]


class RowMask:
    """All rows but those ``without``, which ascend."""

    def __init__(self, without: Addresses) -> None:
        self._without = without
        self._hidden: OrderedDict[int, npt.NDArray[np.bool_]] = OrderedDict()

    def kept(self, addresses: Addresses) -> npt.NDArray[np.bool_]:
        """Which of these rows stay."""
        fragments = addresses >> np.uint64(32)
        rows = (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
        kept = np.ones(len(rows), np.bool_)
        if not len(rows):
            return kept
        first = fragments[0]
        several = np.unique(fragments).tolist() if (fragments != first).any() else [int(first)]
        for fragment in several:
            hidden = self._of(fragment)
            at = np.flatnonzero(fragments == fragment) if len(several) > 1 else slice(None)
            # Behind the last hidden row stands one that is not.
            kept[at] = ~hidden.take(rows[at], mode="clip")
        return kept

    def _of(self, fragment: int) -> npt.NDArray[np.bool_]:
        """Per row up to one behind the last hidden one whether it is hidden."""
        known = self._hidden.get(fragment)
        if known is None:
            first, end = np.searchsorted(self._without, np.array([fragment, fragment + 1], np.uint64) << np.uint64(32))
            rows = (self._without[first:end] & np.uint64(0xFFFFFFFF)).astype(np.int64)
            known = np.zeros(int(rows.max(initial=-1)) + 2, np.bool_)
            known[rows] = True
            self._hidden[fragment] = known
            if len(self._hidden) > _FRAGMENTS_MAX:
                self._hidden.popitem(last=False)
        self._hidden.move_to_end(fragment)
        return known
