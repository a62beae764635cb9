"""Cache of the addresses of merged rows that unmerged records supersede.  It serves all reads of an open table.

Guarantees
 1. ``addresses`` returns the addresses of all live rows of the version whose key is in the delta, as a row or as a
    deletion.  They are ascending and distinct.
 2. Keys that were looked up at this version before, and are still in the delta, are not looked up again.
 3. The cache holds the last ``count_max`` states that were looked up: the keys of each, and 8 bytes an address.  A
    state is a table version, a delta, and the keys in conflict.

Within a version a row never changes its key, so what was found stays true.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.names.ids import TableVersion
from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.protocol import PinnedTable
from lancewal_reader.plan.strong import ReadPlan, RegionDelta

Addresses = npt.NDArray[np.uint64]


_State: TypeAlias = tuple[TableVersion, tuple[RegionDelta, ...], ConflictsRef | None]


class HiddenRows:
    """Cache of the addresses of superseded rows, for the states that were looked up most recently.  Threads may share
    it.
    """

    def __init__(self, count_max: int = 2) -> None:
        self._count_max = count_max
        self._found: tuple[tuple[_State, KeySet, Addresses], ...] = ()
        """Each state with its keys and their addresses, the newest last.  States are compared, not hashed: a hash would visit
        every source of a plan."""
        self._lock = Lock()

    def known(self, pinned: PinnedTable, plan: ReadPlan) -> Addresses | None:
        """Return the cached addresses for exactly this state; None if there are none."""
        state = pinned.version, plan.deltas, plan.in_force.conflicts
        return next((addresses for known, _, addresses in reversed(self._found) if known == state), None)

    def addresses(
        self, find: Callable[[PinnedTable, pa.Table], Addresses], pinned: PinnedTable, plan: ReadPlan, keys: KeySet
    ) -> Addresses:
        """Return the addresses of the live rows with these keys, ascending and distinct.  ``keys``: those of the plan's
        delta.  ``find`` is called for keys whose rows are not cached.
        """
        known = self.known(pinned, plan)
        if known is not None:
            return known
        before, others = self._before(pinned, keys)
        found = _each_once(np.concatenate([before, find(pinned, others)]))
        state = pinned.version, plan.deltas, plan.in_force.conflicts
        with self._lock:
            left = [kept for kept in self._found if kept[0] != state]
            self._found = (*left, (state, keys, found))[-self._count_max :]
        return found

    def _before(self, pinned: PinnedTable, keys: KeySet) -> tuple[Addresses, pa.Table]:
        """Return the addresses that are already known for these keys, and the keys that must be looked up."""
        for state, earlier, addresses in reversed(self._found):
            if state[0] == pinned.version:
                met = earlier.contains(keys.columns)
                if met.sum() == len(earlier):
                    return addresses, keys.table.filter(pa.array(~met))
        return np.zeros(0, np.uint64), keys.table


def _each_once(addresses: Addresses) -> Addresses:
    """Return the addresses ascending, each once.  ``np.unique`` hashes them first, which takes several times as long if
    nearly all differ."""
    ascending = np.sort(addresses)
    again = np.flatnonzero(ascending[1:] == ascending[:-1])
    return np.delete(ascending, again) if len(again) else ascending
