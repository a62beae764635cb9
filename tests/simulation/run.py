"""One run of a world: start everything, let it go wrong, then let it come to rest and compare everything.

A failure names the seed; the same seed and settings repeat the run switch by switch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lancewal_core import paths
from lancewal_core.errors import LancewalError, TableRestored
from lancewal_core.ids import TableVersion
from lancewal_flusher import gc
from tests.simulation import chaos, operating, reading, services, user
from tests.simulation.checker import require
from tests.simulation.kinds import KINDS
from tests.simulation.mishaps import Mishaps
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
        with _limits(world.settings.limits), Mishaps(world).active():
            _start(world)
            world.scheduler.run(lambda: world.produced, SWITCHES_MAX)
            _come_to_rest(world)
            _compare(world)
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
def _limits(limits: Limits | None) -> Iterator[None]:
    """Garbage collection with these constants meanwhile."""
    if limits is None:
        yield
        return
    before = gc.PAGE_AT, gc.PAGE_REST, gc.INDEX_VERSIONS_KEPT
    gc.PAGE_AT, gc.PAGE_REST, gc.INDEX_VERSIONS_KEPT = (
        limits.page_at,
        limits.page_rest,
        limits.index_versions_kept,
    )
    try:
        yield
    finally:
        gc.PAGE_AT, gc.PAGE_REST, gc.INDEX_VERSIONS_KEPT = before


def _start(world: World) -> None:
    settings = world.settings
    kinds: list[tuple[int, str, services.Body]] = [
        (settings.members, "member", services.member),
        (settings.flushers, "flusher", services.flusher),
        (settings.collectors, "collector", services.collector),
        (settings.readers, "reader", reading.reader),
        (int(settings.operator), "operator", operating.operator),
    ]
    world.bodies = {f"{name}{i}": body for count, name, body in kinds for i in range(count)}
    for group, body in world.bodies.items():
        services.serve(world, group, body)
    world.scheduler.spawn("producer", lambda: services.producer(world))
    world.scheduler.spawn("chaos", lambda: chaos.chaos(world))
    world.scheduler.spawn("supervisor", lambda: chaos.supervisor(world))
    if settings.user:
        world.scheduler.spawn("user", lambda: user.user(world))


def _come_to_rest(world: World) -> None:
    """No more faults; everything that was produced becomes durable, and merged where somebody merges."""
    world.faults.enabled = False
    world.bodies = {group: body for group, body in world.bodies.items() if not group.startswith("operator")}
    for group in world.scheduler.groups() - set(world.bodies) - {"supervisor"}:
        world.scheduler.crash(group)
    for group in world.bodies:
        world.scheduler.pause(group, 0.0)
    operating.resume_everything(world)
    world.log("coming to rest")
    ends = {p: log.high for p, log in enumerate(world.topic.partitions)}
    world.scheduler.run(lambda: all(world.acknowledged.get(p, 0) >= n for p, n in ends.items()), SWITCHES_MAX)
    if world.settings.flushers and world.restored is None:
        ends = {p: log.end for p, log in enumerate(world.topic.partitions)}
        names = {p: world.contract.regions[p].name for p in ends}
        world.scheduler.run(
            lambda: all(world.merged_up_to().get(names[p], 0) >= n for p, n in ends.items()) and _finished(world),
            SWITCHES_MAX,
        )


def _finished(world: World) -> bool:
    """Whether the newest merge is."""
    merges = [v.number for v in world.dataset.landed if "lancewal.merge" in v.transaction.properties]
    return not merges or world.bucket.get(paths.merge_finished(TableVersion(merges[-1]))) is not None


def _compare(world: World) -> None:
    world.checker.check(world.acknowledged)
    if world.restored is not None:
        _compare_restored(world, world.restored)
    elif world.settings.flushers:
        ends = {region: world.topic.partitions[region.partition].high for region in world.contract.regions}
        newest = world.checker.table.newest()
        batches = list(newest.scan(world.contract.rows.table.names))
        world.check_rows(batches, ends, newest.version, "the table, after everything was merged:")
        _, by_hand = world.by_hand.split(batches, newest.version)
        left = world.by_hand.left_in_the_end(world.dataset, world.topic, world.contract.regions)
        require(by_hand == left, "rows of a user with keys of the topic: there are", by_hand, "expected", left)


def _compare_restored(world: World, version: int) -> None:
    """After a restore nothing was merged, and nobody reads as if nothing had happened."""
    late = [v for v in world.dataset.landed if v.number > version and v.transaction.properties]
    require(not late, "committed after the table was restored:", late)
    try:
        reading.Reading(world, world.process("audience")).read("strong")
    except TableRestored:
        return
    raise AssertionError("a strong read of a restored table")
