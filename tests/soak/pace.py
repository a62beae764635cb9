"""How fast a soak lives: how long processes live and freeze, how long weather lasts, and what weather there is.

``SCALED`` has everything that happens in a day of a bad week within minutes: sessions of the group, latencies and pauses
are a tenth of what they are outside.  ``LITERAL`` has them as they are: Kafka's default session of 45 s, PUTs that arrive
after 30 s, when their client has just given up, processes frozen for longer than their session, and once a store that is
away for three minutes.  Much less happens there in the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.http_fault_proxy import Faults
from tests.whole_path.world import SESSION_MS

Span = tuple[float, float]
"""Seconds: at least, at most."""

PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "classic": {},
    "consumer": {"group.protocol": "consumer"},
}
STORM_LIFE_S: Span = (4.0, 6.0)
"""Of an ingest process in a storm of rebalances."""
LITERAL_FROM_MINUTES = 20.0
"""A soak so long spends its second half at ``LITERAL``: what happens there takes minutes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """All times in seconds."""

    name: str
    life: Span
    frozen: Span
    weather: Span
    broker: Span
    """Between two deaths of the broker."""
    skies: tuple[Faults, ...]
    """What the weather may be."""
    session: Mapping[str, object]
    """Kafka properties of the classic protocol's members."""
    supervisor_s: float
    """After so long a process that ended by itself is started again."""
    grace_s: float
    """So long a process that is asked to end may take."""
    patience_s: float
    """So long it may take, once all is calm, until everything produced is read."""
    overdue_is_killed: bool = False
    """Who takes longer meets SIGKILL, as in Kubernetes; else that is a failure of the soak."""
    outage_s: float = 0.0
    """The store is away once, for so long."""


SCALED = Pace(
    name="scaled",
    life=(3.0, 25.0),
    frozen=(1.0, 8.0),
    weather=(5.0, 20.0),
    broker=(60.0, 180.0),
    skies=(
        Faults(),
        Faults(),
        Faults(cut=0.2, delay_s=0.2),
        Faults(unavailable=0.3, conflict=0.05),
        Faults(refuse=0.2, delay_s=1.0),
        Faults(delay_s=3.0),
        Faults(unavailable=1.0),
    ),
    session={"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 400},
    supervisor_s=0.0,
    grace_s=90.0,
    patience_s=90.0,
)
LITERAL = Pace(
    name="literal",
    life=(40.0, 240.0),
    frozen=(1.0, 90.0),
    weather=(30.0, 90.0),
    broker=(120.0, 300.0),
    skies=(
        Faults(),
        Faults(late_s=30.0),
        Faults(late_s=30.0),
        Faults(delay_s=60.0),
        Faults(unavailable=0.3, conflict=0.05),
        Faults(cut=0.2, delay_s=0.2),
    ),
    session={},
    supervisor_s=10.0,
    grace_s=120.0,
    patience_s=300.0,
    overdue_is_killed=True,
    outage_s=180.0,
)


def paces(minutes: float, *, storm: bool) -> list[tuple[Pace, float]]:
    """Which paces a soak has, and for how many minutes each.  A storm needs short sessions: it is scaled throughout."""
    if storm or minutes < LITERAL_FROM_MINUTES:
        return [(SCALED, minutes)]
    return [(SCALED, minutes / 2), (LITERAL, minutes / 2)]
