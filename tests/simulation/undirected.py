"""Looking for mutations without direction: random schedules until one fails that without the mutation does not."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from tests.simulation.kinds import KINDS
from tests.simulation.mutations import KINDS_TO_SEARCH, MUTATIONS, NOT_IN_SCHEDULES
from tests.simulation.processes import one_for_each_processor
from tests.simulation.run import SimulationFailed, run


@dataclass(frozen=True, slots=True)
class Search:
    """How a mutation was looked for; ``said`` is None where time was up before it was found."""

    kind: str
    schedules: int
    said: str | None

    def row(self, name: str) -> str:
        said = "NOT FOUND" if self.said is None else " ".join(self.said.split())[:90]
        return f"  {name:46s} {self.kind:14s} {self.schedules:9d}  {said}"


def search(name: str, seed: int, minutes: float) -> Search:
    """Random schedules from ``seed`` on until one fails; without the mutation the same one must not."""
    kind = KINDS_TO_SEARCH.get(name, "swarm")
    ends = time.monotonic() + minutes * 60
    schedules = 0
    while time.monotonic() < ends:
        at = seed + schedules
        schedules += 1
        with pytest.MonkeyPatch.context() as patch:
            MUTATIONS[name](patch)
            said = _failure(at, kind)
        if said is not None and _failure(at, kind) is None:
            return Search(kind, schedules, said)
    return Search(kind, schedules, None)


def _failure(seed: int, kind: str) -> str | None:
    """What went wrong in a schedule."""
    try:
        run(seed, KINDS[kind])
    except SimulationFailed as error:
        return str(error.__cause__)
    return None


def search_all(seed: int, minutes: float) -> bool:
    """Print, for each mutation that may show, after how many schedules it was found; True if one was not."""
    print(f"mutations, without direction, from seed {seed} on:", flush=True)
    print(f"  {'mutation':46s} {'kind':14s} schedules  found by", flush=True)
    missed = False
    with one_for_each_processor() as pool:
        searches = {
            name: pool.submit(search, name, seed, minutes) for name in MUTATIONS if name not in NOT_IN_SCHEDULES
        }
        for name, running in searches.items():
            found = running.result()
            missed = missed or found.said is None
            print(found.row(name), flush=True)
    return missed
