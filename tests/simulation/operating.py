"""An operator, who pauses and resumes the services of a world."""

from __future__ import annotations

from random import Random

from lancewal_core.errors import Refresh, Retry
from lancewal_core.table.control import Service
from tests.simulation.draws import drawn_s
from tests.simulation.world import Process, World
from tests.support.pauses import pause, resume
from tests.twins.sim_clock import SimClock


def operator(world: World, process: Process) -> None:
    """Pauses with an end, pauses without, and resumes; each is one command, which may fail."""
    rng = Random(f"{world.seed}/{process.name}/operator")
    making = world.contract.making
    while True:
        world.scheduler.sleep(drawn_s(rng, 2.0))
        service = rng.choice(list(Service))
        act = rng.choice(["pause", "pause for a while", "resume"])
        try:
            match act:
                case "pause":
                    pause(process.store, process.clock, process.new_id, service, making)
                case "pause for a while":
                    for_s = rng.choice([0.5, 3.0, 10.0])
                    pause(process.store, process.clock, process.new_id, service, making, for_s)
                case _:
                    resume(process.store, process.clock, process.new_id, service, making)
        except (Retry, Refresh) as error:
            world.note(f"operator: {act} failed: {type(error).__name__}")
        else:
            world.note(f"operator: {act} {service.value}")


def resume_everything(world: World) -> None:
    """The end of every pause, whatever the store did before."""
    making = world.contract.making
    for service in Service:
        resume(world.checker.store, SimClock(world.scheduler), lambda: f"the-end-{service}", service, making)  # noqa: B023
