"""Limits of the ingest loop, and policies that decide when to seal a generation, and whether to pause consumption.

The module has no side effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lancewal_core.settings.sections import IngestSettings
from lancewal_ingest.regions.memtable import MemTable

_DEFAULTS = IngestSettings()

SEGMENT_BYTES = 32 << 20
SEGMENTS_IN_BUDGET = 8
"""Number of largest segments that fit into the budget.  One waits, one is in flight, and decoding holds the latter
twice; the rest is for MemTables and flushes."""
LINGER_PUTS = 3.0
"""Least time between two segments, in durations of a PUT."""
BUNDLE_SEGMENTS = 32
"""Largest number of segments in a bundle.  On average a distant reader requests half as many segments one by one,
because they are newer than the newest bundle."""
LINGER_S_MAX = 1.0
"""Largest number of seconds by which a slow store delays the next segment."""
GENERATION_BYTES_MAX = 1 << 30
"""Bytes at which a generation is sealed whatever the settings say.  Folding joins its batches, and a text or list
column of Arrow holds at most 2 GiB."""


class SealDecision(Enum):
    """Decision about an OPEN generation: keep it, seal it, or re-anchor it (move its first segment forward)."""

    KEEP = "keep"
    SEAL = "seal"
    REANCHOR = "reanchor"


_TURNS = (0, 4, 2, 6, 1, 5, 3, 7)
"""Place of each group of partitions in the order of seals.  Neighbouring numbers are far apart in that order, so that
the seals of a few partitions are too."""
GROUPS = len(_TURNS)
"""Number of groups of partitions.  Each group has its own marks on the log.  Its regions are sealed when the log passes
one (``SealPolicy``)."""


@dataclass(frozen=True, slots=True)
class SealPolicy:
    """Limits at which a generation is sealed.  The first limit that is reached counts.

    ``log_distance`` limits how much of the log a new owner or a strong read must read.  Regions that were opened
    together would reach it at the same time, and all be folded, flushed and merged at once.  Reads would then wait
    seconds for a processor.  Each group of regions (``GROUPS``) therefore has its own marks on the log,
    ``log_distance`` apart, and is sealed when the log passes a mark.  A generation spans at most this distance plus the
    segment that passes the mark.
    """

    nbytes: int = _DEFAULTS.seal_bytes
    rows: int = _DEFAULTS.seal_rows
    age_s: float = _DEFAULTS.seal_age_s
    log_distance: int = _DEFAULTS.seal_log_distance

    @classmethod
    def of(cls, ingest: IngestSettings) -> SealPolicy:
        """Return the policy that the settings name."""
        return cls(int(ingest.seal_bytes), ingest.seal_rows, ingest.seal_age_s, ingest.seal_log_distance)

    def decide(self, generation: MemTable, now: float, length: float) -> SealDecision:
        """Return what to do with an OPEN generation at the monotonic time ``now``, when its log has ``length``."""
        if generation.entries == 0:
            far = length - generation.first_length >= self.log_distance
            return SealDecision.REANCHOR if far else SealDecision.KEEP
        if (
            generation.nbytes >= min(self.nbytes, GENERATION_BYTES_MAX)
            or generation.rows >= self.rows
            or now - generation.opened_at >= self.age_s
            or self._passed(generation, length)
        ):
            return SealDecision.SEAL
        return SealDecision.KEEP

    def _passed(self, generation: MemTable, length: float) -> bool:
        ahead = _TURNS[generation.region.partition % GROUPS] * self.log_distance // GROUPS
        return (length + ahead) // self.log_distance > (generation.first_length + ahead) // self.log_distance


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """Policy that bounds memory: consumption pauses at ``nbytes``, and goes on below ``resume_ratio`` of that budget.

    OPEN generations may take ``memtables_ratio`` of the budget; above that the largest is sealed early.  Consumption
    also pauses while more than ``unflushed_generations_max`` generations of one region wait to be flushed.  Then
    flushes do not keep up.  Many waiting generations of different regions are normal: they are sealed and flushed
    together.
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


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of the worker.  Times are in seconds."""

    poll_records: int = 10_000
    segment_rows: int = _DEFAULTS.segment_rows_max
    """Largest number of consumed records in a segment.  This many, or ``segment_bytes``, start a segment before
    ``linger_s``."""
    segment_bytes: int = SEGMENT_BYTES
    """Largest weight of a segment's records (``decode.weight``).  If a poll brings more, the rest goes into the next
    segment."""
    linger_s: float = _DEFAULTS.linger_ms / 1000
    """Least time between two segments."""
    linger_puts: float = 0.0
    """Least time between two segments in durations of recent PUTs, up to ``LINGER_S_MAX``.  More segments would cost
    more requests, and make rows durable hardly sooner: a row waits for its own PUT anyway."""
    idle_position_s: float = 1.0
    """Least time between two entries without rows that move a region's position."""
    offset_commit_s: float = _DEFAULTS.offset_commit_interval_s
    retry_s: float = _DEFAULTS.retry_interval_s
    damaged_s: float = 10.0
    """Time until a partition with lost or damaged objects is tried again: a person must act first."""
    settle_s: float = 10.0
    """Longest time that a revoked partition waits for the segment in flight, and then for its hand-over."""
    open_s: float = 1.0
    """Time after which a turn begins to open no further partitions.  Between turns the consumer polls, and the loop
    reports that it is alive."""
    join_s: float = 5.0
    """Time after which a member without partitions counts as joined.  A new member gets none until others give some
    up."""
    bundle_segments: int = BUNDLE_SEGMENTS
    """Largest number of segments that a bundle copies; 0: no bundles."""
    hold_s: float = 1.0
    """Time for which the loop waits without a poll while nothing more may be consumed.  Then it pauses the consumer,
    which drops prefetched records, and polls again."""

    @classmethod
    def of(cls, ingest: IngestSettings, memory: MemoryPolicy) -> WorkerLimits:
        """Return the limits that follow from the settings and the memory budget."""
        return cls(
            segment_rows=ingest.segment_rows_max,
            # One that waits and one in flight, which decoding holds twice, take a part of a small budget only.
            segment_bytes=min(SEGMENT_BYTES, memory.nbytes // SEGMENTS_IN_BUDGET),
            linger_s=ingest.linger_ms / 1000,
            linger_puts=LINGER_PUTS,
            offset_commit_s=ingest.offset_commit_interval_s,
            retry_s=ingest.retry_interval_s,
            bundle_segments=BUNDLE_SEGMENTS if ingest.bundles else 0,
        )
