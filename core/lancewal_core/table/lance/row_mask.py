"""Rows to leave out of a scan, by their row addresses: as a list for Lance, or as a mask over the scanned rows."""

from __future__ import annotations

import struct
from array import array
from collections import OrderedDict

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

_FRAGMENTS_MAX = 16
"""Largest number of fragments whose masks are cached, with a byte for each row.  A scan reads a few fragments at the
same time."""

Addresses = npt.NDArray[np.uint64]


def row_list(rows: Addresses) -> bytes:
    """Return a list of rows in Lance's binary form, for a scan that leaves these rows out or reads only these.

    The form has a bitmap of row numbers for each fragment.  ``lance.dataset.serialize_row_addrs`` returns the same
    bytes, but takes rows one by one.  ``rows`` are row addresses or row ids, in any order.
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
    """Mask that keeps all rows except those at the addresses ``without``, which must ascend."""

    def __init__(self, without: Addresses) -> None:
        self._without = without
        self._hidden: OrderedDict[int, npt.NDArray[np.bool_]] = OrderedDict()

    def kept(self, addresses: Addresses) -> npt.NDArray[np.bool_]:
        """Return for each of ``addresses`` whether its row is kept."""
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
        """Return for each row of a fragment whether it is left out.

        The last item is False.  It stands for all rows after the last one that is left out.
        """
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
