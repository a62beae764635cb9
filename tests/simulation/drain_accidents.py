"""Accidents of a topic that gets more partitions while the old ones hold records that are not durable, or not merged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lancewal_core.errors import (
    ContractMismatch,
    InvalidInput,
    InvalidSettings,
    KafkaBehind,
    LancewalError,
    PartitionCountChanged,
    RetentionLost,
    TopicReplaced,
    TopicTruncated,
)
from lancewal_core.names.ids import OwnerId, Position
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.sections import POLICIES
from lancewal_core.table.contract import Contract, read_contract
from lancewal_ingest.commands.operator.accept_loss import accept_loss
from lancewal_kafka.topic import TopicState
from lancewal_reader.point.receipt import receipt_of
from lancewal_tables.define.alter import add_partitions, take_up_topic
from tests.simulation import oracle
from tests.simulation.checker import require, rows_of
from tests.simulation.memory_kafka import MemoryTopic, Partition
from tests.simulation.script import Crashed, crash, stops
from tests.simulation.stage import Member, Stage
from tests.support.regions import by_number, numbers
from tests.twins.faults import PutFault

OLD, NEW = 2, 3


@dataclass(frozen=True, slots=True)
class _Asked:
    """The topic as ``table alter`` asks for it."""

    topic: MemoryTopic
    uncommitted: int = 0
    """Records of an open transaction behind each end."""

    def describe(self, topic: str) -> TopicState:
        return TopicState(topic, self.topic.topic_id, len(self.topic.partitions), False)

    def begins(self, topic: str, partitions: Collection[int]) -> Mapping[int, Position]:
        return {p: Position(self.topic.partitions[p].low) for p in partitions}

    def ends(self, topic: str, partitions: Collection[int], *, committed: bool = True) -> Mapping[int, Position]:
        more = 0 if committed else self.uncommitted
        return {p: Position(self.topic.partitions[p].high + more) for p in partitions}


def add_to_topic(stage: Stage) -> None:
    stage.topic.partitions += [Partition() for _ in range(NEW - OLD)]
    for partition in range(OLD, NEW):
        stage.group.target[partition] = stage.group.owner[partition] = None


def alter(stage: Stage, uncommitted: int = 0) -> Contract:
    """The command of an operator; who is on stage afterwards works by the new contract."""
    process = stage.process("alter")
    asked = _Asked(stage.topic, uncommitted)
    add_partitions(process.opened(stage.contract), process.new_id, NEW, asked)
    new = read_contract(process.store, "memory")
    stage.altered(new)
    return new


def rebind(stage: Stage) -> Contract:
    """The command that takes up the topic that is there now."""
    process = stage.process("alter")
    asked: Any = _Asked(stage.topic)
    contract = read_contract(process.store, "memory")
    return take_up_topic(process.opened(contract), process.new_id, stage.topic.topic_id, asked)


def look(stage: Stage) -> Contract:
    """The same with ``--dry-run``."""
    process = stage.process("look")
    before = [found.key for found in process.store.list("")]
    try:
        return add_partitions(process.opened(stage.contract), process.new_id, NEW, _Asked(stage.topic), look_only=True)
    finally:
        require([found.key for found in process.store.list("")] == before, "a look has stored something")


def _key(old: int, new: int, nth: int = 0) -> int:
    """A key that belongs to these partitions by the old and by the new number."""
    keys = (
        k
        for k in range(100_000)
        if (partition_of(encode_region_key(k), OLD), partition_of(encode_region_key(k), NEW)) == (old, new)
    )
    return [next(keys) for _ in range(nth + 1)][-1]


def _drained(member: Member, partition: int) -> None:
    found = by_number(member.worker.stopped).get(partition)
    require(isinstance(found, PartitionCountChanged), f"partition {partition} stopped by", found)


def _goes_on(stage: Stage, before: Member) -> None:
    """By the new contract each partition takes records, and all is right."""
    c = stage.member("c")
    stage.group.expel(before.process.name)
    stage.give(c, *range(NEW))
    stage.step(c, 2)
    for partition in range(NEW):
        stage.send_again(partition, _key(partition % OLD, partition, nth=9))
    stage.step(c, 3)
    ends = {p: log.high for p, log in enumerate(stage.topic.partitions)}
    require(not c.worker.stopped, "stopped:", c.worker.stopped)
    require(stage.acknowledged == ends, "durable up to", stage.acknowledged, "of", ends)
    stage.check()


def _stale(stage: Stage) -> Member:
    """Two records durable, two that are not, and more partitions: A ends, and B begins to drain."""
    a = stage.member("a", *range(OLD))
    stage.append(a, 0)
    stage.append(a, 1)
    stage.send(0)
    stage.send(1)
    add_to_topic(stage)
    with stops(PartitionCountChanged):
        stage.step(a, 2)
    b = stage.member("b")
    stage.take_over(a, b, *range(NEW))
    return b


def topic_is_made_anew_while_a_segment_is_in_flight() -> None:
    """A has read its last record by the former topic's id.  Its segment arrives when the contract names the new one: nobody
    would merge what became durable by it."""
    stage = Stage()
    a = stage.member("a", *range(OLD))
    stage.append_and_seal(a, *range(OLD))
    stage.round(stage.flusher("f"))

    def made_anew() -> None:
        stage.topic.topic_id = "topic-id-2"
        rebind(stage)

    a.script.before("put", "/wal/", made_anew)
    stage.send(0)
    with suppress(LancewalError):
        stage.step(a, 3)
    require(read_contract(stage.process("look").store, "memory").topic_id == "topic-id-2", "the contract is as it was")
    require(stage.acknowledged == {0: 1, 1: 1}, "durable in a log of the former topic:", stage.acknowledged)
    stage.checker.check(stage.acknowledged)


def topic_is_taken_up_by_a_command_that_dies() -> None:
    """It dies before it ends a log, before it says so in the state, or before the contract.  Members of the former topic are
    told by name, and the command, run again, takes the new topic up."""
    for place, passing in (("_lancewal/wal", 1), ("/pages/", 1), ("/pages/", 2), ("/contract/", 1)):
        stage = Stage()
        a = stage.member("a", *range(OLD))
        stage.append_and_seal(a, *range(OLD))
        stage.round(stage.flusher("f"))
        stage.topic.topic_id = "topic-id-2"
        stage.faults_of("alter").before("put", place, crash, passing)
        with stops(Crashed):
            rebind(stage)
        stage.send(0)
        with stops(TopicReplaced, "alter --topic-id"):
            stage.step(a, 3)
        with stops(TopicReplaced, "alter --topic-id"):
            stage.member("late")
        require(stage.acknowledged == {0: 1, 1: 1}, "durable in a log of the former topic:", stage.acknowledged)
        stage.check()
        require(rebind(stage).topic_id == "topic-id-2", place, "the contract is as it was")
        with stops(InvalidSettings, "already"):
            rebind(stage)


def old_partitions_are_drained() -> None:
    """What they hold becomes durable, and ``alter`` waits for its merge.  The new partition is left alone till then."""
    stage = Stage()
    b = _stale(stage)
    stage.step(b, 2)
    require(stage.acknowledged == {0: 2, 1: 2}, "durable up to", stage.acknowledged)
    require(not b.worker.stopped and numbers(b.worker.durable) == [0, 1], "B has", b.worker.durable, b.worker.stopped)
    with stops(
        InvalidInput, "of partitions 0, 1 are in open generations, which no merge takes: ingest seals them after"
    ):
        alter(stage)
    stage.seal(b)
    for act in (look, alter):
        with stops(InvalidInput, "not merged yet", but_not="in open generations"):
            act(stage)
    stage.round(stage.flusher("f"))
    with stops(InvalidInput):
        alter(stage, uncommitted=3)  # of the old number: behind the change they would be misrouted
    looked = look(stage)
    require(alter(stage) == looked, "looked at", looked, "and put", stage.contract)
    require(looked.altered_at == (2, 2), "altered at", looked.altered_at)
    _goes_on(stage, b)


def drained_up_to_a_key_of_the_new_number() -> None:
    """By the contract it lies in the wrong partition, and might be a dead letter; by the topic it lies where it should."""
    for on_misrouted in POLICIES:
        stage = Stage(on_misrouted=on_misrouted)
        stage.send_again(0, _key(0, 0))
        b = _stale(stage)
        # B began before these were sent, and may not take the one that is right: it is to be started again.
        stage.send_again(0, _key(0, 0))
        stage.send_again(0, _key(1, 0, nth=4))
        stage.send_again(0, _key(0, 0))
        stage.step(b, 2)
        _drained(b, 0)
        stage.seal(b)
        stage.round(stage.flusher("f"))
        with stops(InvalidInput):
            alter(stage)
        again = stage.member("again")
        stage.take_over(b, again, *range(NEW))
        stage.step(again, 2)
        _drained(again, 0)
        require(stage.acknowledged == {0: 4, 1: 2}, "durable up to", stage.acknowledged)
        stage.seal(again)
        stage.round(stage.flusher("g"))
        require(not stage.checker.rejected, "dead letters:", stage.checker.rejected)
        require(alter(stage).altered_at == (4, 2), "altered at", stage.contract.altered_at)
        _goes_on(stage, again)


def record_of_the_old_number_while_it_is_altered() -> None:
    """A producer that does not know of the new partitions sends on.  ``alter`` has looked, and B is still at work."""
    for act in ("/drain/", "/contract/"):
        stage = Stage()
        b = _stale(stage)
        stage.step(b, 2)
        stage.seal(b)
        stage.round(stage.flusher("f"))

        def late(stage: Stage = stage, b: Member = b) -> None:
            stage.send_again(0, _key(0, 2))
            stage.step(b, 3)

        stage.faults_of("alter").before("put", act, late)
        new = alter(stage)
        require(stage.acknowledged == {0: 2, 1: 2}, "durable up to", stage.acknowledged, "altered at", new.altered_at)
        _drained(b, 0)
        stage.checker.check(stage.acknowledged)


def ingest_begins_while_it_is_altered() -> None:
    """All is durable and merged when ``alter`` looks.  Then a late record comes, and with it an ingest that would drain it."""
    for act, error in (("/drain/", ContractMismatch), ("/contract/", None)):
        stage = Stage()
        a = stage.member("a", *range(OLD))
        stage.append_and_seal(a, *range(OLD))
        stage.round(stage.flusher("f"))
        add_to_topic(stage)

        def late(stage: Stage = stage, a: Member = a, error: type[Exception] | None = error) -> None:
            stage.send_again(0, _key(0, 2))
            if error is None:
                with stops(PartitionCountChanged):
                    stage.member("b")
                return
            b = stage.member("b")
            stage.take_over(a, b, *range(OLD))
            stage.step(b, 3)

        stage.faults_of("alter").before("put", act, late)
        if error is None:
            alter(stage)
        else:
            with stops(error):
                alter(stage)
        require(stage.acknowledged[0] == (1 if error is None else 2), "durable up to", stage.acknowledged)


def alter_is_cut_short() -> None:
    """Between the end of the drain and the contract: nobody goes on by the old one, and the command goes on."""
    stage = Stage()
    b = _stale(stage)
    stage.step(b, 2)
    stage.seal(b)
    stage.round(stage.flusher("f"))
    stage.faults_of("alter").before("put", "/contract/", crash)
    with stops(Crashed):
        alter(stage)
    stage.send_again(1, _key(1, 1, nth=5))
    with stops(PartitionCountChanged):
        stage.member("late")
    require(alter(stage).altered_at == (2, 2), "altered at", stage.contract.altered_at)
    _goes_on(stage, b)


def policies_are_altered_while_it_drains() -> None:
    """Before it begins, when it has met a key of the new number, or when ``alter`` has closed it: all versions have one drain,
    and the command needs no other start of ingest to know where it ends."""
    for when in ("before", "meanwhile", "closed"):
        stage = Stage()
        if when == "before":
            stage.alter(on_misrouted="dead-letter")
        b = _stale(stage)
        stage.step(b, 2)
        stage.send_again(0, _key(1, 0, nth=4))
        stage.step(b, 4)
        _drained(b, 0)
        if when == "meanwhile":
            stage.alter(on_misrouted="dead-letter")
            stage.take_up(b)
            stage.step(b, 4)
            _drained(b, 0)
        stage.seal(b)
        stage.round(stage.flusher("f"))
        if when == "closed":
            _altered_when_closed(stage)
        require(alter(stage).altered_at == (2, 2), when, "altered at", stage.contract.altered_at)
        require(not stage.checker.rejected, "dead letters:", stage.checker.rejected)
        _goes_on(stage, b)


def _altered_when_closed(stage: Stage) -> None:
    script = stage.faults_of("alter")
    script.before("put", "/contract/", lambda: stage.alter(on_misrouted="dead-letter"))
    with stops(ContractMismatch):
        alter(stage)
    with stops(PartitionCountChanged):
        stage.member("after")


def kafka_drops_what_was_to_be_drained() -> None:
    """The loss is accepted as ever, then ``alter`` goes on."""
    stage = Stage()
    b = _stale(stage)
    stage.group.expel(b.process.name)
    log = stage.topic.partitions[0]
    log.low = log.high = log.high + 3
    heir = stage.member("heir")
    stage.take_over(b, heir, *range(NEW))
    stage.step(heir, 3)
    found = heir.worker.stopped.get(stage.region(0))
    require(isinstance(found, RetentionLost), "partition 0 stopped by", found)
    with stops(InvalidInput):
        alter(stage)
    stage.seal(heir)
    accept_loss(
        heir.worker._context, OwnerId(heir.process.name), stage.region(0), lambda: heir.source.offsets(stage.region(0))
    )
    stage.round(stage.flusher("f"))
    stage.round(stage.flusher("f"))
    require(alter(stage).altered_at[0] == log.low, "altered at", stage.contract.altered_at)


def _lost_in_flight(stage: Stage) -> Member:
    """B has consumed the last record of each partition, and has its segment in flight, when Kafka loses them.  The rest is
    merged."""
    b = _stale(stage)
    b.script.puts.append(("_lancewal/wal", PutFault.NEVER_ARRIVED))
    stage.step(b)
    for partition in range(OLD):
        stage.topic.partitions[partition].lose_tail(1, 1)
    stage.round(stage.flusher("f"))
    require(stage.acknowledged == {0: 1, 1: 1}, "durable up to", stage.acknowledged)
    return b


def _goes_on_behind_lost_tail(stage: Stage, b: Member) -> None:
    for partition in range(OLD):
        stage.topic.partitions[partition].grow_again()
    _goes_on(stage, b)


def kafka_loses_its_tail_before_it_is_altered() -> None:
    """All that Kafka holds is merged.  What B has in flight lies behind, and comes too late, by whatever log."""
    stage = Stage()
    b = _lost_in_flight(stage)
    alter(stage)
    with stops(PartitionCountChanged):
        stage.step(b, 10)
    require(stage.acknowledged == {0: 1, 1: 1}, "durable up to", stage.acknowledged)
    require(stage.contract.altered_at == (1, 1), "altered at", stage.contract.altered_at)
    _goes_on_behind_lost_tail(stage, b)


def lost_tail_is_durable_while_it_is_altered() -> None:
    """The same, but it comes when ``alter`` has looked, and before B's log has ended: it is merged first, without ingest.  A
    person accepts that Kafka ends below."""
    for key in ("/drain/", "_lancewal/wal"):
        stage = Stage()
        b = _lost_in_flight(stage)
        script = stage.faults_of("alter")
        script.before("put", key, lambda stage=stage, b=b: stage.step(b, 5))  # type: ignore[misc] # defaults
        script.before("put", "/pages/", lambda stage=stage, b=b: stage.seal(b))  # type: ignore[misc] # defaults
        with stops(InvalidInput, "offsets 1 to 1 are not merged yet"):
            alter(stage)
        with stops(InvalidInput, "ingest need not run"):
            alter(stage)
        stage.step(b, 10)
        require(stage.acknowledged == {0: 2, 1: 2}, "durable up to", stage.acknowledged)
        stage.round(stage.flusher("g"))
        require(alter(stage).altered_at == (2, 2), "altered at", stage.contract.altered_at)
        c = stage.member("c")
        stage.take_over(b, c, 0)
        found = c.worker.stopped.get(stage.region(0))
        require(isinstance(found, TopicTruncated), "partition 0 stopped by", found)
        region = stage.region(0)
        accept_loss(c.worker._context, OwnerId(c.process.name), region, lambda c=c, r=region: c.source.offsets(r))  # type: ignore[misc] # defaults
        d = stage.member("d")
        stage.take_over(c, d, 0)
        require(
            isinstance(d.worker.refused.get(stage.region(0)), KafkaBehind), "partition 0 waits for", d.worker.refused
        )
        _goes_on_behind_lost_tail(stage, d)


def partition_is_claimed_while_it_is_altered() -> None:
    """Heir has found where a partition goes on, and claims it when ``alter`` has ended all that was OPEN: it writes nothing,
    though Kafka holds more again."""
    for handed_over in (False, True):
        stage = Stage()
        b = _lost_in_flight(stage)
        heir = stage.member("heir")
        if handed_over:
            b, dead = stage.member("c"), b
            stage.take_over(dead, b, *range(OLD))
            stage.give(heir, 0)
            stage.step(b)
            stage.round(stage.flusher("g"))
        else:
            stage.group.expel(b.process.name)

        def late(stage: Stage = stage) -> None:
            alter(stage)
            for partition in range(OLD):
                stage.send_again(partition, _key(partition, partition))

        heir.script.before("put", "/pages/", late)
        with stops(PartitionCountChanged):
            stage.give(heir, 0)
            stage.step(heir, 5)
        require(stage.acknowledged == {0: 1, 1: 1}, "durable up to", stage.acknowledged)
        require(stage.contract.altered_at == (1, 1), "altered at", stage.contract.altered_at)
        stage.group.expel(b.process.name)
        _goes_on(stage, heir)


def check_old_then_new(stage: Stage, result: pa.RecordBatchReader) -> None:
    """What a strong read has given is the fold of what was taken by the old number, then of what was taken by the new one."""
    cut = {region.partition: int(position) for region, position in receipt_of(result.schema).positions.items()}
    altered_at = stage.contract.altered_at
    expected: dict[int, oracle.Values] = {}
    for partition in range(OLD):
        expected.update(oracle.rows(stage.topic.partitions[partition].between(0, altered_at[partition])))
    for partition in range(NEW):
        first = altered_at[partition] if partition < OLD else 0
        expected.update(oracle.rows(stage.topic.partitions[partition].between(first, cut.get(partition, 0))))
    found = rows_of(result)
    require(found == expected, "rows", found, "expected", expected)


def contract_changes_under_a_reader() -> None:
    """A reader has pinned its version and found no newer contract.  Then what it is to read of partition 1 is merged, the
    contract is altered, and a key of partition 1 goes on in partition 0: of two regions, nothing orders them."""
    stage = Stage()
    a = stage.member("a", *range(OLD))
    moved = _key(1, 0)
    stage.send_again(1, moved)
    stage.append(a, 0)
    stage.append(a, 1)
    stage.seal(a)
    reading = stage.reader("r")

    def goes_on() -> None:
        stage.round(stage.flusher("f"))
        add_to_topic(stage)
        alter(stage)
        heir = stage.member("heir")
        stage.take_over(a, heir, *range(NEW))
        stage.send_again(0, moved)
        stage.step(heir, 3)
        stage.seal(heir)
        require(stage.acknowledged == {0: 2, 1: 2, 2: 0}, "durable up to", stage.acknowledged)

    stage.faults_of("r").before("list", "pages", goes_on)
    result = reading.table.to_batches()
    require(not stage.faults_of("r").cues, "the reader has not come to the pages")
    check_old_then_new(stage, result)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    topic_is_made_anew_while_a_segment_is_in_flight: ("former logs go on", "durable in a log of the former topic"),
    contract_changes_under_a_reader: ("claims of a newer contract are read", "^rows"),
}

ACCIDENTS: list[Callable[[], None]] = [
    topic_is_taken_up_by_a_command_that_dies,
    old_partitions_are_drained,
    drained_up_to_a_key_of_the_new_number,
    record_of_the_old_number_while_it_is_altered,
    ingest_begins_while_it_is_altered,
    alter_is_cut_short,
    policies_are_altered_while_it_drains,
    kafka_drops_what_was_to_be_drained,
    kafka_loses_its_tail_before_it_is_altered,
    lost_tail_is_durable_while_it_is_altered,
    partition_is_claimed_while_it_is_altered,
]
