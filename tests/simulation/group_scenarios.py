"""Two consumer groups come to one table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lancewal_core.errors import FormerGroup, OtherGroup
from lancewal_ingest.kafka.consumer_group import take_group
from tests.simulation.checker import require
from tests.simulation.memory_kafka import MemoryGroup
from tests.simulation.script import stops
from tests.simulation.stage import Member, Stage


def _member_of(stage: Stage, group: str, name: str) -> Member:
    """A member of another group, which Kafka gives all partitions."""
    stage.group = MemoryGroup(stage.settings.partitions, lambda partition, position: None)
    stage.consumer_group = group
    return stage.member(name, 0, 1)


def table_is_moved_to_another_group() -> None:
    """A works in one group, and the table is moved to another, in which B claims both partitions.  A meets B's fence, and
    leaves B what it has, though its own group still gives it the partitions."""
    stage = Stage()
    stage.alter(group_id="former")
    a = _member_of(stage, "former", "a")
    stage.append(a, 0)
    stage.alter(group_id="new", former_group_id="former")
    b = _member_of(stage, "new", "b")
    stage.append(b, 0)
    for _ in range(4):
        stage.send(0)
        with suppress(FormerGroup):
            stage.step(a, 2)
        stage.step(b, 2)
    found = stage.checker.states.read(stage.contract.regions)
    owners = {index.generations[-1].owner for index in found.values()}
    require(owners == {b.worker._owner}, "it is not B's:", owners)
    claims = max(len(index.generations) for index in found.values())
    require(claims == 2, "they were claimed", claims, "times")
    stage.check()


def two_groups_begin_at_once() -> None:
    """Both have read a contract that names no group.  Before A writes its own, B does."""
    stage = Stage()
    a, b = stage.process("a"), stage.process("b")
    old = stage.contract
    stage.faults_of("a").before("put", "/contract/", lambda: take_group(b.store, b.clock, old, "of b"))
    with stops(OtherGroup, "of b"):
        take_group(a.store, a.clock, old, "of a")
    stage.altered(take_group(b.store, b.clock, old, "of b"))
    require(stage.contract.group_id == "of b", "it is", stage.contract.group_id)
    _member_of(stage, "of b", "b")
    stage.check()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    table_is_moved_to_another_group: (
        "a claim of another group is not noticed",
        "it is not B's|they were claimed|went back",
    ),
    two_groups_begin_at_once: ("groups are not compared", "OtherGroup was expected"),
}
