"""Partitions are added while producers of both numbers, members that come, go and freeze, a Kafka that loses its tail, and
``table alter`` all are at work.

What a strong read gives in the end is the fold, key by key, of what was taken by the old number, then of what was taken by the
new one: whatever the old processes still did when the contract was altered.
"""

from __future__ import annotations

from random import Random

import pytest

from lancewal_core.errors import ActionNeeded, ContractMismatch, Misrouted, PartitionCountChanged
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from tests.simulation.checker import require
from tests.simulation.drain_accidents import OLD, add_to_topic, alter, check_old_then_new
from tests.simulation.script import Crashed, crash
from tests.simulation.stage import Member, Stage
from tests.twins.faults import PutFault

KEYS = 12
ACTS = (
    "old",
    "old",
    "new",
    "step",
    "step",
    "step",
    "start",
    "seal",
    "merge",
    "alter",
    "lose",
    "lose in flight",
    "grow",
)


class _Play:
    """A stage on which things happen by chance."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.stage = Stage()
        self.members: list[Member] = []
        self.altered = False
        self.start()

    def act(self, names: tuple[str, ...]) -> None:
        match self.rng.choice(names):
            case "old":
                self.send(OLD)
            case "new":
                self.send(len(self.stage.topic.partitions))
            case "step" if self.members:
                self.step(self.rng.choice(self.members))
            case "step":
                self.start()
            case "start":
                self.start()
            case "seal":
                self.seal()
            case "merge":
                self.stage.round(self.stage.flusher("f"))
            case "lose":
                self.lose(self.rng.randrange(OLD), back=self.rng.randrange(3))
            case "grow":
                self.grow()
            case "lose in flight":
                self.lose_in_flight()
            case _:
                self.alter()

    def send(self, partitions: int) -> None:
        k = self.rng.randrange(KEYS)
        self.stage.send_again(partition_of(encode_region_key(k), partitions), k)

    def start(self, steps: int | None = None) -> None:
        """A process that takes all over; those before it live on, and do not know it."""
        try:
            member = self.stage.member("m")
        except PartitionCountChanged:
            return
        for partition, owner in self.stage.group.owner.items():
            if owner is not None:
                self.stage.group.expel(owner, self.stage.scheduler.now + self.rng.choice([0.0, 1.0]))
                self.stage.group.owner[partition] = None
        self.stage.give(member, *self.stage.group.target)
        self.members.append(member)
        self.step(member, steps)

    def step(self, member: Member, times: int | None = None) -> None:
        try:
            self.stage.step(member, times or self.rng.choice([1, 2, 3]))
        except PartitionCountChanged:
            self.stage.group.expel(member.process.name)
            self.members.remove(member)
            if not self.members and not self.altered:
                self.start()

    def lose(self, *partitions: int, back: int) -> None:
        """Kafka loses its tail there, at most so many records of what is durable with it."""
        for partition in partitions:
            log, durable = self.stage.topic.partitions[partition], self.stage.acknowledged.get(partition, 0)
            log.lose_tail(min(log.high, max(durable - back, 0)), durable)

    def grow(self) -> None:
        """Kafka's partitions come to where they ended before; nobody waits for that any more."""
        for log in self.stage.topic.partitions:
            log.grow_again()

    def lose_in_flight(self) -> None:
        """Kafka loses what a new member has consumed, whose segment does not arrive before it tries again.  All else is
        merged, and somebody alters the contract."""
        for _ in range(3):
            self.send(OLD)
        self.start(steps=1)
        puts = self.stage.faults_of("m").puts
        puts.append(("_lancewal/wal", PutFault.NEVER_ARRIVED))
        if self.members:
            self.step(self.members[-1], 2)
        puts.clear()
        self.lose(*range(OLD), back=0)
        for act in ("merge", "alter"):
            self.act((act,))

    def seal(self) -> None:
        try:
            if self.members:
                self.stage.seal(self.members[-1])
        except PartitionCountChanged:
            self.start()

    def alter(self) -> None:
        if self.altered or len(self.stage.topic.partitions) == OLD:
            return
        meanwhile = self.rng.choice([("get", "drain"), ("get", "pages"), ("put", "drain"), ("put", "contract")])
        script = self.stage.faults_of("alter")
        script.clear()
        if self.rng.random() < 0.8:
            script.before(*meanwhile, self.meanwhile)
        if self.rng.random() < 0.2:
            script.before("put", "contract", crash)
        try:
            alter(self.stage)
        except (ActionNeeded, ContractMismatch, Crashed):
            return
        self.altered = True
        for k in range(KEYS):  # whoever is still at work by the old contract gets records to its liking
            self.stage.send_again(partition_of(encode_region_key(k), OLD), k)
        for member in list(self.members):
            self.step(member)
            self.check_ended(member)

    def check_ended(self, member: Member) -> None:
        """Nothing is durable behind the positions that the new contract names, while all is at work by the old one."""
        if member in self.members:
            reached, ended = self.stage.acknowledged, self.stage.contract.altered_at
            require(
                all(reached.get(p, 0) <= ended[p] for p in range(OLD)), "durable up to", reached, "altered at", ended
            )

    def meanwhile(self) -> None:
        for act in (
            "old",
            self.rng.choice(("start", "step")),
            "old",
            "step",
            "step",
            *self.rng.choices(("old", "new", "step", "start"), k=3),
        ):
            self.act((act,))


@pytest.mark.parametrize("seed", range(30))
def test_old_then_new(seed: int) -> None:
    play = _Play(seed)
    stage = play.stage
    for _ in range(play.rng.randrange(12)):
        play.act(("old", "step", "step", "seal", "merge"))
    add_to_topic(stage)
    for _ in range(25):
        play.act(ACTS)
    for _ in range(10):  # the producers are stopped: there is a way out
        if play.altered:
            break
        play.grow()
        play.start()
        for act in ("step", "step", "step", "seal", "merge", "alter"):
            play.act((act,))
    require(play.altered, "the command finds no end:", stage.acknowledged)
    for _ in range(10):
        play.act(("old", "new", "step", "start"))
    for act in ("grow", "start", "step", "step", "step"):
        play.act((act,))
    for error in play.members[-1].worker.stopped.values():
        require(isinstance(error, Misrouted | PartitionCountChanged), "stopped by", error)

    stage.checker.check(stage.acknowledged)
    check_old_then_new(stage, stage.reader("audience").table.to_batches())
