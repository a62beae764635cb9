"""When to seal, and whether to go on consuming: pure decisions from figures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from lancewal_core.names.ids import Region
from lancewal_core.settings.sections import IngestSettings

_DEFAULTS = IngestSettings()

GENERATION_BYTES_MAX = 1 << 30
"""A generation of this size is sealed whatever the settings say.  Folding joins its batches, and Arrow's texts and lists
end at 2 GiB in one column."""


class GenerationStats(NamedTuple):
    """An OPEN generation at a moment; made of each region in each turn that may seal."""

    entries: int
    rows: int
    nbytes: int
    age_s: float
    first: float
    """The log's length (``LogWriter``) when the generation began in it."""
    now: float
    """The log's length."""
    region: Region

    @property
    def log_distance(self) -> float:
        """Growth of the log since the generation began."""
        return self.now - self.first


class SealDecision(Enum):
    """Decision about an OPEN generation now."""

    KEEP = "keep"
    SEAL = "seal"
    REANCHOR = "reanchor"


_TURNS = (0, 4, 2, 6, 1, 5, 3, 7)
"""By group of partitions: neighbours lie far apart, so that few partitions do too."""
GROUPS = len(_TURNS)
"""Regions of a log that share a seal by distance are one in so many."""


@dataclass(frozen=True, slots=True)
class SealPolicy:
    """Seal at the first limit reached.  ``log_distance`` bounds what a new owner has to read, and a strong read.

    Regions that were opened together would reach that distance together.  They would be folded, flushed and merged at
    once: seconds in which reads wait for a processor.  Each group of regions (``GROUPS``) therefore has lengths of
    the log of its own, ``log_distance`` apart, and is sealed when the log passes one.  A generation never spans more,
    beside the segment that passes it; an owner's first generation mostly spans less.
    """

    nbytes: int = _DEFAULTS.seal_bytes
    rows: int = _DEFAULTS.seal_rows
    age_s: float = _DEFAULTS.seal_age_s
    log_distance: int = _DEFAULTS.seal_log_distance

    def decide(self, stats: GenerationStats) -> SealDecision:
        if stats.entries == 0:
            return SealDecision.REANCHOR if stats.log_distance >= self.log_distance else SealDecision.KEEP
        if (
            stats.nbytes >= min(self.nbytes, GENERATION_BYTES_MAX)
            or stats.rows >= self.rows
            or stats.age_s >= self.age_s
            or self._passed(stats)
        ):
            return SealDecision.SEAL
        return SealDecision.KEEP

    def _passed(self, stats: GenerationStats) -> bool:
        ahead = _TURNS[stats.region.partition % GROUPS] * self.log_distance // GROUPS
        return (stats.now + ahead) // self.log_distance > (stats.first + ahead) // self.log_distance


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """Bounded memory: consumption pauses above ``nbytes`` and goes on below ``resume_ratio`` of it.

    ``memtables_ratio`` of the budget may be OPEN generations; above it the largest is sealed early.  While more than
    ``unflushed_generations_max`` generations of one region wait to be flushed, consumption pauses too: flushes do not keep up.
    Those of many regions fall due together, since they were opened together, and are flushed together.
    """

    nbytes: int = _DEFAULTS.memory_bytes_max
    resume_ratio: float = 0.8
    memtables_ratio: float = 0.3
    unflushed_generations_max: int = 8

    def paused(self, used: int, unflushed: int, was_paused: bool) -> bool:
        limit = self.nbytes * (self.resume_ratio if was_paused else 1.0)
        return used >= limit or unflushed > self.unflushed_generations_max

    def seal_largest(self, memtables: int) -> bool:
        return memtables >= self.nbytes * self.memtables_ratio
