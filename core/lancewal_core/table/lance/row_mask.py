"""Rows to be left out of a scan, by their addresses.  Lance leaves them out, or this module does."""

from __future__ import annotations

import struct
from array import array
from collections import OrderedDict

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

_FRAGMENTS_MAX = 16
"""Fragments of which a byte for each row is kept; a scan reads a few side by side."""

Addresses = npt.NDArray[np.uint64]


def row_list(rows: Addresses) -> bytes:
    """Return rows to leave out, or to read alone, in Lance's form: a bitmap of numbers for each fragment.

    The form is that of ``lance.dataset.serialize_row_addrs``, which takes rows one by one.  ``rows`` are row addresses
    or row ids.
    """
    ascending = np.unique(rows)
    fragments, begins = np.unique(ascending >> np.uint64(32), return_index=True)
    numbers = ascending.astype(np.uint32)  # the lower half
    parts = [struct.pack("<I", len(fragments))]
    for fragment, some in zip(fragments.tolist(), np.split(numbers, begins[1:]), strict=True):
        values = array("I")
        values.frombytes(some.tobytes())
        bits = BitMap(values).serialize()
        parts += [struct.pack("<II", fragment, len(bits)), bits]
    return b"".join(parts)


class RowMask:
    """Mask of all rows except ``without``, which ascend."""

    def __init__(self, without: Addresses) -> None:
        self._without = without
        self._hidden: OrderedDict[int, npt.NDArray[np.bool_]] = OrderedDict()

    def kept(self, addresses: Addresses) -> npt.NDArray[np.bool_]:
        """Return a mask over ``addresses``: True for rows that stay."""
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
            # The mask ends with a row that is not hidden, which stands for all rows after it.
            kept[at] = ~hidden.take(rows[at], mode="clip")
        return kept

    def _of(self, fragment: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the fragment's hidden rows, up to the row after the last hidden one."""
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
