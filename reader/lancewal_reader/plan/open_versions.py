"""Versions of the table that plans have opened last: a read goes on with the version that its plan has pinned.

A pinned version stays what it is.  It serves the read right after its plan, and lookups, which have read
everything before they return a row.  A read that is used again later opens its version again.  If a clean-up has
removed the version since, the read then fails before its first row, not in the middle.
"""

from __future__ import annotations

from threading import Lock

from lancewal_core.names.ids import TableVersion
from lancewal_core.table.protocol import PinnedTable


class OpenVersions:
    """Cache of the ``count_max`` versions that plans opened last.  Threads may share it."""

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
