"""Versions of the table that plans have opened last: a read goes on with the one that its plan has pinned.

What is pinned stays what it is.  A clean-up that has taken its files shows where they are read, as it would right behind
opening the version once more.
"""

from __future__ import annotations

from threading import Lock

from lancewal_core.ids import TableVersion
from lancewal_core.table.protocol import PinnedTable


class OpenVersions:
    """Threads may share it."""

    def __init__(self, count_max: int = 2) -> None:
        self._count_max = count_max
        self._pinned: dict[TableVersion, PinnedTable] = {}
        self._lock = Lock()

    def keep(self, pinned: PinnedTable) -> None:
        with self._lock:
            self._pinned.pop(pinned.version, None)
            self._pinned[pinned.version] = pinned
            if len(self._pinned) > self._count_max:
                del self._pinned[next(iter(self._pinned))]

    def get(self, version: TableVersion) -> PinnedTable | None:
        return self._pinned.get(version)
