"""Two tables in one flusher process, on twins: what stops one leaves the other alone, and what they share is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from lancewal_core.errors import LancewalError, StoreNotWritable, StoreRefused
from lancewal_core.region.state import GenerationState
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_store import PutOutcome
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.service.process import FlusherProcess
from lancewal_flusher.service.table import FlusherTable
from tests.simulation.stage import Stage
from tests.support.scrapes import by_table
from tests.support.scripted import ManualClock
from tests.twins.memory_store import MemoryStore

PASSES_MAX = 50


class Served:
    """A table with a generation that waits to be merged."""

    def __init__(self, process: FlusherProcess, name: str) -> None:
        self.stage = Stage()
        _, context, _ = self.stage.flushed(0)
        settings = Settings.model_validate({"table": {"uri": f"memory/{name}"}})
        metrics = process.metrics(settings)
        context = replace(context, events=FlusherEvents(table=name))
        assert isinstance(context.store, MemoryStore)
        self.store = context.store
        self.table = FlusherTable(settings, context, metrics, process.stopping)
        process.add(self.table)

    @property
    def states(self) -> list[GenerationState]:
        context = self.stage.flusher("look")
        return [r.state for state in context.read_states().values() for r in state.generations]

    def merged(self) -> bool:
        return set(self.states) <= {GenerationState.MERGED, GenerationState.OPEN}


class World:
    """A process that is told to stop once it has passed over its tables so often."""

    def __init__(self, stack: ExitStack, passes: int) -> None:
        self.passes = passes
        self.clock = ManualClock()
        self.process = FlusherProcess(Settings(), self.stopping, stack, self.clock)
        self.tables = [Served(self.process, name) for name in ("one", "two")]

    def stopping(self) -> bool:
        return self.clock.monotonic() >= self.passes


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack, PASSES_MAX)


def refusing(served: Served, error: LancewalError) -> None:
    """Nothing can be put into its store any more."""

    def refuse(key: str, data: bytes) -> PutOutcome:
        raise error

    served.store.put_if_absent = refuse  # type: ignore[method-assign] # as a store does that was made read only


def test_both_are_merged(world: World) -> None:
    world.process.work()
    assert [served.merged() for served in world.tables] == [True, True]
    assert by_table(world.process.registry, "lancewal_flusher_merges_total") == {"one": 1.0, "two": 1.0}
    assert world.process.problems() == []


def test_one_that_stops_leaves_the_other_alone(world: World) -> None:
    """Its error comes at the end, and is a problem until then."""
    one, two = world.tables
    refusing(one, StoreNotWritable("a file lies in its place"))
    with pytest.raises(StoreNotWritable, match="a file lies in its place"):
        world.process.work()
    assert (one.merged(), two.merged()) == (False, True)
    (problem,) = [found for found in world.process.problems() if found.kind == "store_not_writable"]
    assert str(problem) == "store_not_writable: memory/one stopped: a file lies in its place"
    assert world.clock.monotonic() >= PASSES_MAX


def test_one_whose_store_refuses_is_tried_again_beside_the_other(world: World) -> None:
    one, two = world.tables
    refusing(one, StoreRefused("403"))
    world.process.work()
    assert (one.merged(), two.merged()) == (False, True)
    (problem,) = one.table.problems()
    assert (problem.kind, ": 403; the next round writes it" in problem.message) == ("store_unavailable", True)
    assert two.table.problems() == []
    assert by_table(world.process.registry, "lancewal_flusher_merges_total") == {"one": 0.0, "two": 1.0}


def test_once_none_is_left_the_first_error_ends_the_process(world: World) -> None:
    for number, served in enumerate(world.tables):
        refusing(served, StoreNotWritable(f"store {number}"))
    with pytest.raises(StoreNotWritable, match="store 0"):
        world.process.work()
    assert world.clock.monotonic() < PASSES_MAX
