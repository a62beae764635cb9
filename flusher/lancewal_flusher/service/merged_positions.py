"""Check whether the merged position of a partition has ever fallen.  No merge does this: the alarm must never ring.

A person's decision after a restore may take positions back, and is no violation.  Such a decision is known by what
lies between two looks.  Either a version restores, or no merge has set the watermarks, or only a lower bound of them
is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lancewal_core.names.ids import Position, Region
from lancewal_core.table.protocol import Table, TransactionInfo
from lancewal_core.table.watermarks import InForce

RESTORE = "Restore"


@dataclass(slots=True)
class MergedPositions:
    """Told at every look what is in force."""

    _version: int = 0
    _next: Mapping[Region, Position] = field(default_factory=dict)

    def look(self, table: Table, in_force: InForce) -> dict[Region, Position]:
        """Regions whose merged position fell, and where it is now."""
        before, since = self._next, self._version
        self._next = {region: mark.next for region, mark in in_force.regions.items()}
        self._version = in_force.version
        fell = {region: at for region, at in self._next.items() if region in before and at < before[region]}
        if not fell or in_force.merge is None or not in_force.exact or self._restored(table, since):
            return {}
        return fell

    def _restored(self, table: Table, since: int) -> bool:
        """Also where what one of the versions did cannot be told."""
        made = [table.transaction(version) for version in range(since + 1, self._version + 1)]
        return not all(isinstance(info, TransactionInfo) and info.operation != RESTORE for info in made)
