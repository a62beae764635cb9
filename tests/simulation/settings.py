"""Size and climate of a world: how much of everything there is, and what may go wrong how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lancewal_core.record_keys.key_choices import KeyFormat
from lancewal_core.settings.sections import Policy
from lancewal_ingest.regions.policy import SealPolicy
from tests.twins.faults import Rates

USER_KEYS = 1_000
"""Keys from here on are a user's, who appends them to the table by hand."""

ACTS = {"append": 2.0, "index": 1.0, "config": 1.0, "compact": 1.0, "clean up": 1.0}
"""What a user does, by weight."""
CHAOS = {"rebalance": 6.0, "crash": 2.0, "pause": 3.0, "warp": 0.3, "none": 4.0}
"""What happens to processes, group and time, by weight."""


EXPIRED_PER_S = 2
"""By so much a second the number grows below which rows expire."""

BRISK = SealPolicy(rows=4, age_s=0.4, log_distance=2)
"""Generations are sealed soon, so that there are many."""

Slow = Literal["member", "flusher", "reader"]


@dataclass(frozen=True, slots=True)
class Delay:
    """Calls of a process group take ``mean_s`` more on average, at this rate: those of an act, on keys that contain
    ``what`` (each empty: all)."""

    group: str
    act: str
    what: str
    rate: float
    mean_s: float


@dataclass(frozen=True, slots=True)
class Mishap:
    """At a place of the protocol (a named point, before or after it) a process dies or stands still, at this rate."""

    place: str
    act: Literal["crash", "freeze"]
    rate: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Constants of garbage collection, so small that a short life reaches them."""

    page_at: int
    page_rest: int
    versions_kept: int


@dataclass(frozen=True, slots=True)
class Settings:
    """See the module docstring.  ``swarm``: the numbers are bounds, and each seed draws its own below them."""

    making: str = "making-1"
    key_format: KeyFormat = "canonical"
    """Of the table."""
    partitions: int = 3
    keys: int = 12
    skew: int = 1
    """From 1 (none) on: the higher, the more records have the same few keys, and the quieter are other regions."""
    members: int = 2
    flushers: int = 2
    collectors: int = 1
    compactors: int = 0
    readers: int = 2
    expirers: int = 0
    """Processes that hide expired rows.  With some of them no record is a patch."""
    keepers: int = 0
    """Processes that make, read and drop named snapshots."""
    cutters: int = 0
    """Processes that make, read and drop kept cuts."""
    publishers: int = 0
    """Processes that publish a moving cut, and read it."""
    subscribers: int = 0
    """Processes that create, read, commit and drop subscriptions."""
    travellers: int = 0
    """Processes that read at points in time, wait for records, and read what may be stale; with some of them the times of
    records do not ascend."""
    changers: int = 0
    """Commands that change columns, one after the other in each.  With some of them records have other columns, too."""
    records: int = 120
    """How many the producers send."""
    burst_records: int = 12
    """At most so many at once."""
    burst_s: float = 0.3
    """Mean time between two bursts of records."""
    rest_s: float | None = None
    """How long flushers and collectors rest between two rounds.  None: each draws, each time."""
    seals: SealPolicy | None = None
    """When members seal.  None: each draws its own."""
    bundle_segments: int = 0
    """As many segments a member bundles; 0: none."""
    history_window_s: int = 4
    grace_s: int = 2
    subscription_hold_s_max: int = 30
    chaos: Mapping[str, float] = field(default_factory=lambda: CHAOS)
    chaos_s: float = 0.3
    """Mean time between two acts of chaos."""
    deaf_s: float = 0.0
    """Mean time until a member that was expelled hears of it.  0: at its next poll."""
    user: Mapping[str, float] = field(default_factory=lambda: ACTS)
    user_s: float = 0.5
    shared_keys: int = 0
    """So many of the topic's keys are appended by the user too, and never patched."""
    operator: bool = False
    """Ingest and flusher are paused and resumed."""
    rates: Rates = field(default_factory=Rates)
    delays: tuple[Delay, ...] = ()
    mishaps: tuple[Mishap, ...] = ()
    limits: Limits | None = None
    stay: float | None = None
    """None: drawn."""
    on_misrouted: Policy = "stop"
    on_bad_record: Policy = "dead-letter"
    swarm: bool = False
    slow: Slow | None = None
    """Of a swarm: the kind of process that is slow, while all else is brisk."""
