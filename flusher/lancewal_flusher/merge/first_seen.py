"""Remember since when this process has seen each generation as waiting, by the process's own monotonic clock."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from lancewal_core.names.ids import Generation, Region

Key = tuple[Region, Generation]


@dataclass(slots=True)
class FirstSeen:
    """Time when each waiting generation was first seen, in monotonic seconds."""

    seen: dict[Key, float] = field(default_factory=dict)

    def ages_s(self, keys: Collection[Key], now: float) -> dict[Key, float]:
        """Return for each of these generations the seconds since it was first seen.  All others are forgotten."""
        self.seen = {key: self.seen.get(key, now) for key in keys}
        return {key: now - since for key, since in self.seen.items()}
