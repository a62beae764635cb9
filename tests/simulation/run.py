"""One run of a world: start everything, let it go wrong, then let it come to rest and compare everything.

A failure names the seed; the same seed and settings repeat the run switch by switch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lancewal_core.errors import LancewalError
from lancewal_flusher.garbage import find as garbage
from tests.simulation import (
    chaos,
    column_changes,
    cutting,
    expiring,
    keeping,
    operating,
    publishing,
    services,
    subscribing,
    travelling,
    user,
)
from tests.simulation.kinds import KINDS
from tests.simulation.mishaps import Mishaps
from tests.simulation.rest import check_everything, come_to_rest
from tests.simulation.settings import Limits, Settings
from tests.simulation.world import World

SWITCHES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did.  ``trace`` is the hash of its schedule."""

    seed: int
    switches: int
    trace: int
    seconds: float
    counts: dict[str, int]


class SimulationFailed(AssertionError):
    """A run broke an invariant or an actor died of an error; the message says how to repeat it."""


def run(seed: int, settings: Settings | None = None) -> Report:
    """Run the world of a seed; ``SimulationFailed`` if anything is not as it must be."""
    world = World(seed, settings)
    try:
        with limits_of(world.settings.limits), Mishaps(world).active():
            _start(world)
            world.scheduler.run(lambda: world.produced, SWITCHES_MAX)
            come_to_rest(world, SWITCHES_MAX)
            check_everything(world)
    except Exception as error:
        tail = "\n".join(world.events[-15:])
        raise SimulationFailed(
            f"seed {seed} ({world.settings}) after {world.scheduler.switches} switches: {_described(error)}\n{tail}\n"
            f"repeat with: python -m tests.simulation --seed {seed} --runs 1{_kind(settings or Settings())}"
        ) from error
    finally:
        world.scheduler.close()
    return Report(seed, world.scheduler.switches, world.scheduler.trace, world.scheduler.now, world.counts)


def _described(error: BaseException) -> str:
    kind = f"{error.kind} " if isinstance(error, LancewalError) else ""
    return f"{type(error).__name__} {kind}{error}"


def _kind(settings: Settings) -> str:
    names = [name for name, known in KINDS.items() if known == settings]
    return f" --kind {names[0]}" if names else ", with these settings"


@contextmanager
def limits_of(limits: Limits | None) -> Iterator[None]:
    """Garbage collection with these constants meanwhile."""
    if limits is None:
        yield
        return
    before = garbage.HISTORY_PAGE_AT, garbage.HISTORY_PAGE_REST, garbage.VERSIONS_KEPT
    garbage.HISTORY_PAGE_AT, garbage.HISTORY_PAGE_REST, garbage.VERSIONS_KEPT = (
        limits.page_at,
        limits.page_rest,
        limits.versions_kept,
    )
    try:
        yield
    finally:
        garbage.HISTORY_PAGE_AT, garbage.HISTORY_PAGE_REST, garbage.VERSIONS_KEPT = before


def _start(world: World) -> None:
    settings = world.settings
    kinds: list[tuple[int, str, services.Body]] = [
        (settings.members, "member", services.member),
        (settings.flushers, "flusher", services.flusher),
        (settings.collectors, "collector", services.collector),
        (settings.compactors, "compactor", services.compactor),
        (settings.readers, "reader", services.reader),
        (settings.expirers, "expirer", expiring.expirer),
        (settings.keepers, "keeper", keeping.keeper),
        (settings.cutters, "cutter", cutting.cutter),
        (settings.publishers, "publisher", publishing.publisher),
        (settings.subscribers, "subscriber", subscribing.subscriber),
        (settings.travellers, "traveller", travelling.traveller),
        (int(settings.operator), "operator", operating.operator),
        (settings.changers, "changer", column_changes.changer),
    ]
    world.bodies = {f"{name}{i}": body for count, name, body in kinds for i in range(count)}
    for group, body in world.bodies.items():
        services.serve(world, group, body)
    world.scheduler.spawn("producer", lambda: services.producer(world))
    world.scheduler.spawn("chaos", lambda: chaos.chaos(world))
    world.scheduler.spawn("supervisor", lambda: chaos.supervisor(world))
    if settings.user:
        world.scheduler.spawn("user", lambda: user.user(world))
