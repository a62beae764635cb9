"""How often each act comes, and how soon a row is seen.

An ingest process stores at most one segment at a time.  It stores at most one in each ``ingest.linger_ms``, and at most
one in three times the duration of a PUT.  It stores none while no record has come.  If records come at random, ``rate``
a second, a segment is stored every ``period + exp(-rate * period) / rate`` seconds.  A generation is sealed by the
limit of the settings that it reaches first.

The delay until a record is seen has five parts:

* from the broker into ingest's loop,
* the wait for the next segment,
* the PUT,
* the wait for the reader's next read,
* that read.

``most_s`` counts both waits in full, ``typical_s`` counts half of each.

The constants for seconds were measured roughly, on two cores that ran broker, services, store and reader together.
``dev.py bench steady`` compares the results with measured ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lancewal_core.cli.estimate.counted import Size, asked
from lancewal_core.cli.estimate.deployment import Deployment
from lancewal_core.errors import WishUnreachable
from lancewal_core.settings.sections import FlusherSettings, IngestSettings
from lancewal_core.wal.writer import length_of

BROKER_S = 0.01
"""Seconds from a record's arrival at the broker until the loop has it."""
APPEND_S = 0.025
"""Seconds that each segment takes beside its request: begin, encode, apply."""
ROW_S = 1 / 300_000
"""Seconds that each row of a segment takes: decode, encode."""
READ_S = 0.12
"""Seconds that a strong read of some thousand unmerged rows takes beside its requests: plan, decode, merge."""
ROUNDS_FOR_ROWS = 1
"""Requests, one after another, with which a read gets rows of the table, in addition to the counted ones."""
READ = "strong read of an open table behind a merge"
SEGMENT_BYTES_MAX = 32 << 20
"""Largest number of bytes of rows in one segment (``WorkerLimits.segment_bytes`` of ingest)."""
BUNDLE_SEGMENTS = 32
"""Largest number of segments of which one bundle has copies (``WorkerLimits.bundle_segments`` of ingest)."""
BUNDLED_BYTES_MAX = 64 << 10
"""Size in bytes of the largest segment that is copied into a bundle (``SMALL_BYTES`` of ingest's ``bundling``)."""
MEMTABLES_RATIO = 0.3
"""Share of the memory budget that MemTables may take (``memtables_ratio`` of ingest's ``MemoryPolicy``)."""
SEALED_IN_GROUPS = 8
"""Number of groups of partitions, each of which is sealed at once (``GROUPS`` of ingest's ``policy``)."""
LINGER_MS_LEAST = 1
LINGER_PUTS, LINGER_S_MAX = 3.0, 1.0
"""Least time between two segments: in durations of recent PUTs, and its upper bound in seconds (``WorkerLimits`` of
ingest)."""


@dataclass(frozen=True, slots=True)
class IngestPace:
    """Pace of one ingest process, unless a field says otherwise."""

    linger_ms: int
    """Value for ``ingest.linger_ms``."""
    segments_per_s: float
    generation_s: float
    """Seconds from a generation's first entry to its seal."""
    sealed_by: str
    """Name of the setting with the limit that a generation reaches first."""
    turns: float
    """Number of turns in which the partitions of a process are sealed, each once."""
    read_s: float
    typical_s: float
    most_s: float


def pace(wished: Deployment) -> IngestPace:
    """Return the pace of one ingest process.  Raises ``WishUnreachable`` if no setting fulfils the wish."""
    read_s = READ_S + (asked(READ, read_size(wished)).rounds + ROUNDS_FOR_ROWS) * wished.latency_s
    every_s = max(wished.read_every_s, read_s)
    beside_s = BROKER_S + every_s + read_s
    """Delay of a row that does not depend on how often segments are stored, in seconds."""
    if not _keeps_up(wished):
        raise WishUnreachable(
            f"{wished.member_rows_per_s:,.0f} rows/s of {wished.row_bytes:g} bytes are more than one member takes in; "
            f"{_enough(wished)}"
        )
    row_s = wished.member_rows_per_s * ROW_S
    alone_s = wished.latency_s + APPEND_S
    shortest_s = alone_s / (1 - row_s)
    linger_s = _linger_s(wished, beside_s, alone_s, shortest_s)
    period_s = _period_s(linger_s, shortest_s, wished.latency_s)
    put_s = alone_s + period_s * row_s
    rate = wished.member_rows_per_s
    segments_per_s = 1 / (period_s + math.exp(-min(700.0, rate * period_s)) / rate)
    generation_s, sealed_by, turns = _generation(wished, segments_per_s)
    most_s = beside_s + period_s + put_s
    typical_s = BROKER_S + period_s / 2 + put_s + every_s / 2 + read_s
    return IngestPace(round(linger_s * 1000), segments_per_s, generation_s, sealed_by, turns, read_s, typical_s, most_s)


def read_size(wished: Deployment) -> Size:
    """Return the size of a read of the whole table."""
    return Size(wished.partitions, pages_of(wished.partitions), wished.members)


def pages_of(partitions: int) -> int:
    """Return the number of state pages in which the states of ``partitions`` partitions lie."""
    return -(-partitions // PARTITIONS_PER_PAGE)


PARTITIONS_PER_PAGE = 128
"""Number of partitions whose states lie in one state page (``Contract.regions_per_page``)."""


def _linger_s(wished: Deployment, beside_s: float, alone_s: float, shortest_s: float) -> float:
    """Return the default linger in seconds, or the longest one that fulfils the wish.  Segments are most of the
    requests, so a long linger is cheap."""
    default_s = IngestSettings().linger_ms / 1000
    if wished.freshness_s is None:
        return default_s
    row_s = wished.member_rows_per_s * ROW_S
    least_s = LINGER_MS_LEAST / 1000
    best_s = beside_s + _period_s(least_s, shortest_s, wished.latency_s) * (1 + row_s) + alone_s
    if wished.freshness_s < best_s:
        raise WishUnreachable(
            f"a freshness of {wished.freshness_s:g} s cannot be had at {wished.latency_s:g} s a request: ask for at "
            f"least {best_s:.2f} s. A read and the wait for the next read take {beside_s - BROKER_S:.2f} s. A segment "
            f"takes {best_s - beside_s:.2f} s until it is stored, and the broker takes the rest"
        )
    longest_s = (wished.freshness_s - beside_s - alone_s) / (1 + row_s)
    in_a_segment_s = min(
        IngestSettings().segment_rows_max / wished.member_rows_per_s,
        SEGMENT_BYTES_MAX / (wished.member_rows_per_s * wished.row_bytes),
    )
    found_s = math.floor(min(longest_s, in_a_segment_s) * 1000) / 1000
    return found_s if found_s >= max(shortest_s, _by_puts_s(wished.latency_s)) else least_s


def _period_s(linger_s: float, shortest_s: float, latency_s: float) -> float:
    """Return the seconds between two segments.  Twice in each linger the loop checks whether a segment is due."""
    half_s = linger_s / 2
    return max(linger_s, half_s * math.ceil(max(shortest_s, _by_puts_s(latency_s)) / half_s - 1e-9))


def _by_puts_s(latency_s: float) -> float:
    """Return the least seconds between two segments that follow from the duration of PUTs, whatever
    ``ingest.linger_ms`` is."""
    return min(LINGER_PUTS * latency_s, LINGER_S_MAX)


def _keeps_up(wished: Deployment) -> bool:
    """Return whether one segment can take all records that arrive before the next, by the default settings."""
    row_s = wished.member_rows_per_s * ROW_S
    if row_s >= 1:
        return False
    shortest_s = (wished.latency_s + APPEND_S) / (1 - row_s)
    period_s = _period_s(IngestSettings().linger_ms / 1000, shortest_s, wished.latency_s)
    rows = wished.member_rows_per_s * period_s
    return rows <= IngestSettings().segment_rows_max and rows * wished.row_bytes <= SEGMENT_BYTES_MAX


def _enough(wished: Deployment) -> str:
    most = wished.partitions
    if not _keeps_up(replace(wished, members=most)):
        return "one member for each partition is not enough either: take more partitions"
    few = next(n for n in range(wished.members + 1, most + 1) if _keeps_up(replace(wished, members=n)))
    return f"take at least {few} members"


def _generation(wished: Deployment, segments_per_s: float) -> tuple[float, str, float]:
    settings = IngestSettings()
    row_rate = wished.rows_per_s / wished.partitions
    # A segment has an entry of each partition that rows have come of.
    rows = wished.member_rows_per_s / segments_per_s
    entries = wished.member_partitions * -math.expm1(-rows / wished.member_partitions)
    limits = {
        "ingest.seal_age_s": settings.seal_age_s,
        "ingest.seal_log_distance": settings.seal_log_distance / (segments_per_s * length_of(entries)),
        "ingest.seal_rows": settings.seal_rows / row_rate,
        "ingest.seal_bytes": settings.seal_bytes / (row_rate * wished.row_bytes),
        # The largest is sealed early; where that is what seals, they are of all ages, half as old as the oldest.
        "ingest.memory_bytes_max": 2
        * MEMTABLES_RATIO
        * settings.memory_bytes_max
        / (wished.member_rows_per_s * wished.row_bytes),
    }
    by = min(limits, key=lambda name: limits[name])
    turns = {
        "ingest.seal_log_distance": min(SEALED_IN_GROUPS, wished.member_partitions),
        "ingest.memory_bytes_max": wished.member_partitions,
    }
    return limits[by], by, turns.get(by, 1.0)


def merges_per_s(events_per_s: float) -> float:
    """Return the flusher's rounds a second that find something to merge, if ``events_per_s`` flushes come at random."""
    interval_s = FlusherSettings().merge_interval_s
    return (1 - math.exp(-interval_s * events_per_s)) / interval_s
