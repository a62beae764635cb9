"""One run of a world: start everything, let it go wrong, then let it come to rest and compare everything.

A failure names the seed; the same seed and settings repeat the run switch by switch.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation import actors
from tests.simulation.checker import require, rows_of
from tests.simulation.kinds import KINDS
from tests.simulation.world import Settings, World

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
        _start(world)
        world.scheduler.run(lambda: world.produced, SWITCHES_MAX)
        _come_to_rest(world)
        _compare(world)
    except Exception as error:
        tail = "\n".join(world.events[-15:])
        raise SimulationFailed(
            f"seed {seed} ({world.settings}) after {world.scheduler.switches} switches: {actors.describe(error)}\n{tail}\n"
            f"repeat with: python -m tests.simulation --seed {seed} --runs 1{_kind(world.settings)}"
        ) from error
    finally:
        world.scheduler.close()
    return Report(seed, world.scheduler.switches, world.scheduler.trace, world.scheduler.now, world.counts)


def _kind(settings: Settings) -> str:
    names = [name for name, known in KINDS.items() if known == settings]
    return f" --kind {names[0]}" if names else ", with these settings"


def _start(world: World) -> None:
    settings = world.settings
    bodies: dict[str, actors.Body] = {}
    kinds: list[tuple[int, str, actors.Body]] = [
        (settings.members, "member", actors.member),
        (settings.flushers, "flusher", actors.flusher),
        (settings.collectors, "collector", actors.collector),
        (settings.compactors, "compactor", actors.compactor),
        (settings.readers, "reader", actors.reader),
    ]
    for count, name, body in kinds:
        bodies.update({f"{name}{i}": body for i in range(count)})
    world.bodies = bodies
    for group, body in bodies.items():
        actors.serve(world, group, body)
    world.scheduler.spawn("producer", lambda: actors.producer(world))
    world.scheduler.spawn("chaos", lambda: actors.chaos(world))
    world.scheduler.spawn("balancer", lambda: actors.balancer(world))
    if settings.user:
        world.scheduler.spawn("user", lambda: actors.user(world))


def _come_to_rest(world: World) -> None:
    """No more faults; everything that was produced becomes durable, and merged where there is a flusher."""
    world.faults.enabled = False
    for group in ("chaos", "user"):
        world.scheduler.crash(group)
    for group in world.bodies:
        world.scheduler.pause(group, 0.0)
        if group not in world.scheduler.groups():
            actors.serve(world, group, world.bodies[group])
    ends = {p: log.end for p, log in enumerate(world.topic.partitions)}
    world.log("coming to rest")
    world.scheduler.run(lambda: all(world.acknowledged.get(p, 0) >= n for p, n in ends.items()), SWITCHES_MAX)
    if world.settings.flushers:
        names = {p: world.contract.regions[p].name for p in ends}
        world.scheduler.run(
            lambda: all(world.merged_up_to().get(names[p], 0) >= n for p, n in ends.items()), SWITCHES_MAX
        )


def _compare(world: World) -> None:
    world.checker.check(world.acknowledged)
    if world.settings.flushers:
        ends = {region: world.topic.partitions[region.partition].high for region in world.contract.regions}
        newest = world.checker.table.newest()
        found = rows_of(newest.scan(world.contract.rows.table.names))
        expected = world.expected_rows(ends, newest.version)
        require(found == expected, "after everything was merged the table holds", found, "expected", expected)
