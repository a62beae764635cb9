"""Two tables in one ingest process, on twins: one that stops leaves the other alone, and a topic belongs to one of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from lancewal_core.errors import FormerGroup, InvalidSettings, RetentionLost, StoreNotWritable, TopicMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.region.state import GenerationState
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_store import Done, PutOutcome, put_once
from lancewal_core.table.contract import Contract, encode_contract
from lancewal_ingest.kafka.dead_letters import RefusedDeadLetters
from lancewal_ingest.kafka.source import Polled, Positions
from lancewal_ingest.service.batch_check import BatchCheck
from lancewal_ingest.service.process import IngestProcess
from lancewal_ingest.service.table import IngestTable, TableKafka
from lancewal_kafka.topic import TopicConfig, TopicFacts
from lancewal_kafka.unpacking import StoredBatches
from tests.ingest.service.test_worker import Place
from tests.support.columns_by_hand import next_columns
from tests.support.regions import by_number
from tests.support.scrapes import by_table
from tests.support.scripted import ManualClock

TURNS_MAX = 40
STORED = StoredBatches("uncompressed", 1 << 20)


@dataclass
class Topic:
    """What the brokers say of a topic with so many records in each partition."""

    topic_id: str
    end: int = 6

    def facts(self, topic: str) -> TopicFacts:
        return TopicFacts(self.topic_id, 1)

    def ends(self, regions: Collection[Region]) -> dict[Region, Position]:
        return dict.fromkeys(regions, Position(self.end))

    high_watermarks = ends

    def highs(self) -> dict[Region, Position]:
        return {}

    def config(self) -> TopicConfig:
        return TopicConfig(False, 3600.0, float("inf"), STORED)

    def lows(self, regions: Collection[Region]) -> dict[Region, Position]:
        return dict.fromkeys(regions, Position(0))

    def timestamps(self, positions: Positions) -> dict[Region, int]:
        return dict.fromkeys(positions, 0)


class Served:
    """A table to whose one partition six records come, three at a time."""

    def __init__(self, process: IngestProcess, name: str, topic: str) -> None:
        self.place = place = Place(topic=topic)
        key = paths.contract_version(place.contract.version, place.contract.making)
        put_once(place.store, key, encode_contract(place.contract))  # else the table counts as deleted
        settings = Settings.model_validate({"table": {"uri": f"memory/{name}"}})
        brokers = Topic(place.contract.topic_id)
        batches = BatchCheck(topic, lambda: STORED, 1 << 30, "warn", place.clock, lambda _: None)
        kafka = TableKafka(place.source, brokers, brokers, batches, lambda _: RefusedDeadLetters())
        self.table = IngestTable(
            settings, place.context, kafka, process.metrics(settings), process.owner, process.memory
        )
        self.table.worker.assigned(place.regions(0))
        nothing = Polled({}, {})
        place.source.coming = [nothing, place.records(0, 3), *[nothing] * 9, place.records(3, 3)]

    @property
    def durable(self) -> int:
        """Position up to which everything is in a generation that is not OPEN: handed over."""
        states = self.place.context.states.read(self.place.regions(0)).values()
        ended = [r for index in states for r in index.generations if r.state is not GenerationState.OPEN]
        return max((r.next or 0 for r in ended), default=0)


class World:
    """A process that is told to stop once it has had so many turns."""

    def __init__(self, stack: ExitStack) -> None:
        self.turns = 0
        self.not_ready: list[str] = []
        self.process = IngestProcess(Settings(), self.stopping, stack, ManualClock())
        self.one, self.two = (Served(self.process, name, f"topic-{name}") for name in ("one", "two"))
        for served in (self.one, self.two):
            self.process.add(served.table)

    def stopping(self) -> bool:
        self.turns += 1
        self.not_ready = [str(problem) for problem in self.process.problems()]
        for served in (self.one, self.two):
            served.place.clock.sleep(1)
        return self.turns > TURNS_MAX


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack)


def test_both_take_their_records_and_hand_them_over(world: World) -> None:
    assert world.process.work()
    assert world.not_ready == []
    assert (world.one.durable, world.two.durable) == (6, 6)
    assert world.one.table.worker._owner == world.two.table.worker._owner == world.process.owner
    assert by_table(world.process.registry, "lancewal_ingest_rows_total") == {"one": 6, "two": 6}


def test_one_whose_store_refuses_stops_alone(world: World) -> None:
    store = world.one.place.store
    put = store.put_if_absent

    def refuse(key: str, data: bytes) -> PutOutcome:
        if "/wal/" in key and world.turns > 6:
            raise StoreNotWritable("read only")
        return put(key, data)

    store.put_if_absent = refuse  # type: ignore[method-assign]
    with pytest.raises(StoreNotWritable, match="read only"):
        world.process.work()
    assert world.turns > TURNS_MAX
    assert world.not_ready == ["store_not_writable: memory/one stopped: read only"]
    assert by_number(world.one.table.worker.durable) == {0: 3}
    assert world.two.durable == 6


def test_one_that_is_moved_to_another_group_is_let_go_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = FormerGroup("the table was moved to group other", group="other")

    def look() -> None:
        raise moved

    monkeypatch.setattr(world.one.table._altered, "look", look)
    with pytest.raises(FormerGroup):
        world.process.work()
    assert world.two.durable == 6
    world.process.let_go(world.one.table, moved)
    assert world.process.problems() == list(world.two.table.problems())


def test_a_partition_that_stops_stops_in_its_table_alone(world: World) -> None:
    """The partitions of both have the same number."""
    world.one.place.source.coming[11] = RetentionLost("3 is gone", topic="topic-one", partition=0)
    assert world.process.work()
    assert world.not_ready == ["retention_lost: partition 0 stopped: 3 is gone"]
    assert (world.one.durable, world.two.durable) == (3, 6)


def test_a_second_table_of_a_topic_is_refused_by_name(world: World) -> None:
    second = Served(world.process, "another", "topic-one")
    with pytest.raises(InvalidSettings, match=r"memory/another: its topic topic-one belongs to the table memory/one"):
        world.process.add(second.table)
    assert world.process.work()
    assert second.durable == 0, "nobody turns its loop"


def test_before_a_table_is_there_the_process_says_so() -> None:
    with ExitStack() as stack:
        process = IngestProcess(Settings(), lambda: True, stack, ManualClock())
        assert [problem.kind for problem in process.problems()] == ["starting"]


@pytest.mark.parametrize("policy", [False, True], ids=["columns", "columns and a policy"])
def test_a_table_takes_up_columns_that_a_record_shows(policy: bool) -> None:
    """What a version needs of Kafka is checked first: until then its records wait, and no record is rejected."""
    with ExitStack() as stack:
        process = IngestProcess(Settings(), lambda: True, stack, ManualClock())
        served = Served(process, "one", "topic-one")
        place, table = served.place, served.table
        asked: list[int] = []

        def dead_letters(contract: Contract) -> RefusedDeadLetters:
            asked.append(contract.version)
            if len(asked) < 3:
                raise TopicMissing("the dead-letter topic does not exist", topic="topic-one.dead-letters")
            return RefusedDeadLetters()

        table._kafka = replace(table._kafka, dead_letters=dead_letters)
        terms = {"on_bad_record": "dead-letter"} if policy else {}
        newer = next_columns(place.contract, {"a": "c"}, {"b": "int64"}, **terms)
        assert isinstance(put_once(place.store, paths.contract_version(2, None), encode_contract(newer)), Done)
        new = place.records(0, 3)
        new.records[place.region(0)].values[1] = b'{"k": %d, "c": "x", "b": 5}' % 1
        key = encode_region_key(1)
        new.records[place.region(0)].keys[1] = key
        new.records[place.region(0)].values[0] = b'{"k": 1, "a": "by the former name"}'
        new.records[place.region(0)].keys[0] = key
        place.source.coming = [Polled({}, {}), new]
        waited = False
        for _ in range(200):
            table.take_turn()
            place.clock.sleep(1)
            if table.worker._flight.late:
                waited = True
                kinds = {problem.kind for problem in table.problems()}
                assert "contract_changed" in kinds
                assert "store_unavailable" not in kinds
            if table.worker.durable.get(place.region(0)) == 3:
                break
        assert by_number(table.worker.durable) == {0: 3}
        assert (waited, bool(asked)) == (policy, policy)
        assert (table.worker.stopped, table.worker.terms.contract) == ({}, newer)
        (memtable,) = table.worker.memtables.values()
        assert memtable.contract_version == 2
        assert by_table(process.registry, "lancewal_ingest_contract_version") == {"one": 2}
        assert table.shown([]).contract_version == 2
