"""What happens to processes, group, topic and time from outside; and who starts again what has died."""

from __future__ import annotations

from random import Random

from tests.simulation.draws import drawn_s
from tests.simulation.services import serve
from tests.simulation.world import World
from tests.twins.sim_clock import EPOCH_MS

_WARPS_S = (60.0, 4_000.0, 8 * 24 * 3_600.0)
"""A minute, more than an index is trusted, more than fences and old index versions are kept."""


def chaos(world: World) -> None:
    """Crashes, freezes, rebalances, retention, lost segments, jumps of time; each time a look at the stopped world."""
    rng = Random(f"{world.seed}/chaos")
    settings = world.settings
    while True:
        world.scheduler.sleep(drawn_s(rng, settings.chaos_s))
        world.checker.check(world.acknowledged)
        if not settings.chaos:
            continue
        (act,) = rng.choices(list(settings.chaos), list(settings.chaos.values()))
        world.note(f"chaos: {act}")
        groups = sorted(g for g in world.scheduler.groups() if g in world.bodies)
        match act:
            case "rebalance":
                world.group.target[rng.randrange(settings.partitions)] = None
            case "crash" if groups:
                group = rng.choice(groups)
                world.log(f"crash of {group}")
                world.scheduler.crash(group)
            case "pause" if groups:
                group = rng.choice(groups)
                seconds = rng.choice([0.3, 2.0, 10.0])
                world.log(f"pause of {group} for {seconds} s")
                world.scheduler.pause(group, seconds)
                if rng.random() < 0.7:
                    world.scheduler.sleep(0.2)
                    world.group.expel(world.incarnation.get(group, group))
            case "expel" if world.group.members:
                deaf_s = drawn_s(rng, settings.deaf_s) if settings.deaf_s else 0.0
                world.group.expel(rng.choice(sorted(world.group.members)), world.scheduler.now + deaf_s)
            case "retention":
                partition = rng.randrange(settings.partitions)
                log = world.topic.partitions[partition]
                log.low = rng.randint(log.low, max(log.low, world.acknowledged.get(partition, 0)))
            case "lose segments":
                for key in world.losses.lose(rng):
                    world.note("segment lost")
                    world.log(f"lost: {key}")
            case "put segments back":
                for key in world.losses.put_back(EPOCH_MS + int(world.scheduler.now * 1000)):
                    world.log(f"put back: {key}")
            case "warp":
                world.scheduler.now += rng.choice(_WARPS_S)
            case _:
                pass
        world.group.balance(rng)


def supervisor(world: World) -> None:
    """The group coordinator and the scheduler of containers: sessions of the dead time out, partitions that nobody has
    go to somebody, and a process that has died begins again."""
    rng = Random(f"{world.seed}/supervisor")
    while True:
        world.scheduler.sleep(rng.choice([0.01, 0.3]))
        for group in [g for g in world.bodies if g not in world.scheduler.groups()]:
            world.group.expel(world.incarnation.get(group, group))
            serve(world, group, world.bodies[group])
        for name in sorted(world.group.members - set(world.incarnation.values())):
            world.group.expel(name)
        world.group.balance(rng)
