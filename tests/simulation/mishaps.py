"""Crashes and freezes at the protocol's named points, before and after each, in random schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random

from lancewal_core.process import failpoints
from tests.simulation.settings import Mishap
from tests.simulation.world import World

_SECONDS = (0.5, 3.0, 10.0)


class Mishaps(failpoints.Failpoints):
    """The process that passes a place of ``World.settings.mishaps`` dies there, or stands still, at the rate given."""

    def __init__(self, world: World) -> None:
        super().__init__((), None)
        self._world = world
        self._rng = Random(f"{world.seed}/mishaps")
        self._at = {mishap.place: mishap for mishap in world.settings.mishaps}

    def passing(self, name: str, when: failpoints.When, where: Mapping[str, object]) -> None:
        world, scheduler = self._world, self._world.scheduler
        mishap = self._at.get(f"{name} {when}")
        actor = scheduler.current
        if mishap is None or actor is None or actor.group not in world.bodies or not world.faults.enabled:
            return
        if self._rng.random() >= mishap.rate:
            return
        self._happens(mishap, actor.group)
        scheduler.switch(mishap.place)

    def _happens(self, mishap: Mishap, group: str) -> None:
        world = self._world
        world.note(f"{mishap.act} at {mishap.place}")
        world.log(f"{mishap.act} of {world.incarnation.get(group, group)} at {mishap.place}")
        if mishap.act == "crash":
            world.scheduler.crash(group)
            return
        world.scheduler.pause(group, self._rng.choice(_SECONDS))
        if self._rng.random() < 0.7:
            world.group.expel(world.incarnation.get(group, group))

    @contextmanager
    def active(self) -> Iterator[None]:
        """Points lead here meanwhile."""
        before, failpoints._active = failpoints._active, self
        try:
            yield
        finally:
            failpoints._active = before
