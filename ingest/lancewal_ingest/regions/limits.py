"""Limits of the ingest loop of one table."""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.settings.sections import IngestSettings

_DEFAULTS = IngestSettings()
SEGMENT_BYTES = 32 << 20
BUNDLE_SEGMENTS = 32
"""Segments in a bundle.  A far reader requests half as many newer segments by themselves, on average."""
LINGER_S_MAX = 1.0
"""Most seconds by which a slow store delays the next segment."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of the worker.  Times are in seconds."""

    poll_records: int = 10_000
    segment_rows: int = _DEFAULTS.segment_rows_max
    """Most consumed records in a segment.  This many, or ``segment_bytes``, start a segment before ``linger_s``."""
    segment_bytes: int = SEGMENT_BYTES
    """Most weight of a segment's records (``decode.weight``).  If a poll brings more, the rest goes into the next segment."""
    linger_s: float = _DEFAULTS.linger_ms / 1000
    """Least time between two segments."""
    linger_puts: float = 0.0
    """Least time between two segments in durations of recent PUTs, up to ``LINGER_S_MAX``.  More segments would cost more
    requests, and make rows durable hardly sooner: a row waits for its own PUT anyway."""
    idle_position_s: float = 1.0
    """Least time between two entries without rows that move a region's position."""
    offset_commit_s: float = _DEFAULTS.offset_commit_interval_s
    retry_s: float = _DEFAULTS.retry_interval_s
    damaged_s: float = 10.0
    """Time until a partition with lost or damaged objects is tried again: a person must act first."""
    settle_s: float = 10.0
    """Most time that a revoked partition waits for the segment in flight, and then for its hand-over."""
    open_s: float = 1.0
    """Time after which a turn begins to open no further partitions.  Between turns the consumer polls, and the loop
    reports that it is alive."""
    join_s: float = 5.0
    """Time after which a member without partitions counts as joined.  A new member gets none until others give some up."""
    bundle_segments: int = BUNDLE_SEGMENTS
    """Most segments that a bundle copies; 0: no bundles."""
    hold_s: float = 1.0
    """Time for which the loop only waits while nothing more may be consumed.  Then it pauses the consumer, which drops the
    records fetched ahead, and polls again."""
