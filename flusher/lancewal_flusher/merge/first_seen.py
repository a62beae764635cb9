"""Since when this process has seen a generation in its state; no other clock counts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from lancewal_core.names.ids import Generation, Region

Key = tuple[Region, Generation]


@dataclass(slots=True)
class FirstSeen:
    """When each generation was first seen (monotonic seconds)."""

    seen: dict[Key, float] = field(default_factory=dict)

    def ages_s(self, keys: Collection[Key], now: float) -> dict[Key, float]:
        """Return for how many seconds each of these has been seen, and forget all others."""
        self.seen = {key: self.seen.get(key, now) for key in keys}
        return {key: now - since for key, since in self.seen.items()}
