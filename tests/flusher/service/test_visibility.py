"""How long it takes until a strong read sees what was produced: what is measured, what counts as a failure, and that the
positions are those of a strong read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer

from lancewal_core.errors import KafkaUnavailable, LancewalError, StoreUnavailable
from lancewal_core.names.ids import LogId, OwnerId, Position, Region, Sequence, TopicId
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.region.durable_position import durable_positions
from lancewal_core.region.states import RegionStates
from lancewal_core.region.transitions import Claimant, first_claim
from lancewal_core.settings.load import Settings
from lancewal_demo.stack import KafkaBroker
from lancewal_flusher.cuts.visible_positions import INDEX_S, SELDOM_S, VisiblePositions
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.service import visibility
from lancewal_flusher.service.metrics import FlusherMetrics
from lancewal_flusher.service.visibility import TIMEOUT_S, Failure, Visibility
from lancewal_ingest.kafka.source import Polled
from lancewal_ingest.regions.policy import SealPolicy
from lancewal_tables.define.create import create_table
from tests.core.wal.test_log import NORTH as NORTH_OF_LOG
from tests.core.wal.test_log import SOUTH as SOUTH_OF_LOG
from tests.core.wal.test_tail import Written
from tests.flusher.service.test_service import samples, wait_for
from tests.flusher.service.test_service import serving as flushing
from tests.ingest.service.test_service import make_topic, produce, serving, settings_tree
from tests.ingest.service.test_worker import Place
from tests.support.scripted import ManualClock

NORTH, SOUTH = (Region("orders", TopicId("x"), partition) for partition in (0, 1))


@dataclass
class World:
    """Kafka's ends, and the positions of a strong read, which move as time passes."""

    clock: ManualClock = field(default_factory=ManualClock)
    ends_: dict[Region, int] = field(default_factory=dict)
    at: dict[Region, int] = field(default_factory=dict)
    reach: dict[Region, float] = field(default_factory=dict)
    """When a partition's position reaches its end."""
    fault: LancewalError | None = None
    told: list[tuple[object, ...]] = field(default_factory=list)

    def ends(self) -> dict[Region, Position]:
        if isinstance(self.fault, KafkaUnavailable):
            raise self.fault
        return {region: Position(end) for region, end in self.ends_.items()}

    def look(self, wanted: Collection[Region]) -> Mapping[Region, Position]:
        if isinstance(self.fault, StoreUnavailable):
            raise self.fault
        for region, when in self.reach.items():
            if self.clock.monotonic() >= when:
                self.at[region] = self.ends_[region]
        return {region: Position(at) for region, at in self.at.items() if region in wanted}

    def pause(self, seconds: float) -> bool:
        self.clock.sleep(seconds)
        return False

    def visible(self, seconds: float) -> None:
        self.told.append(("visible", round(seconds, 3)))

    def not_visible(self, region: Region, position: Position, end: Position) -> None:
        self.told.append(("not visible", region.partition, position, end))

    def unanswered(self, reason: Failure, error: LancewalError) -> None:
        self.told.append(("unanswered", reason))

    def measured(self, behind: Mapping[Region, int]) -> None:
        self.told.append(("measured", {region.partition: n for region, n in behind.items()}))

    def measuring(self) -> Visibility:
        return Visibility(self.ends, self, self.clock, self, self.pause)

    def tell(self) -> list[tuple[object, ...]]:
        told, self.told = self.told, []
        return told


def test_each_partition_with_new_records_counts_once_a_quiet_one_never() -> None:
    world = World(ends_={NORTH: 5, SOUTH: 9}, at={NORTH: 2, SOUTH: 9})
    measuring = world.measuring()
    measuring.measure()  # learns where they are
    assert world.tell() == []
    world.ends_[NORTH] = 8
    world.reach[NORTH] = world.clock.monotonic() + 0.25
    measuring.measure()
    assert world.tell() == [("visible", 0.3), ("measured", {0: 0, 1: 0})]
    measuring.measure()
    assert world.tell() == [("measured", {0: 0, 1: 0})]
    # What was visible before anybody looked counts as soon as it was looked at.
    world.ends_ = {NORTH: 9, SOUTH: 12}
    world.at = {NORTH: 9, SOUTH: 15}
    measuring.measure()
    assert world.tell() == [("visible", 0.0), ("visible", 0.0), ("measured", {0: 0, 1: 0})]


def test_a_partition_that_never_gets_there_is_a_failure_and_holds_up_nothing() -> None:
    world = World(ends_={NORTH: 1, SOUTH: 1}, at={NORTH: 1, SOUTH: 1})
    measuring = world.measuring()
    measuring.measure()
    world.tell()
    world.ends_ = {NORTH: 8, SOUTH: 4}
    began = world.clock.monotonic()
    world.reach[SOUTH] = began + 0.95
    measuring.measure()
    assert world.tell() == [("visible", 1.0), ("not visible", 0, 1, 8), ("measured", {0: 7, 1: 0})]
    assert world.clock.monotonic() - began == pytest.approx(TIMEOUT_S, abs=0.2)
    # It stays one, and is not waited for again; others are measured as ever.
    world.ends_[NORTH], world.ends_[SOUTH], world.reach[SOUTH] = 9, 5, world.clock.monotonic() + 0.15
    again = world.clock.monotonic()
    measuring.measure()
    assert world.tell() == [("not visible", 0, 1, 9), ("visible", 0.2), ("measured", {0: 8, 1: 0})]
    assert world.clock.monotonic() - again < 1
    # Until it has got there.
    world.at[NORTH] = 8
    measuring.measure()
    assert world.tell() == [("measured", {0: 0, 1: 0})]
    world.ends_[NORTH] = world.at[NORTH] = 10
    measuring.measure()
    assert world.tell() == [("visible", 0.0), ("measured", {0: 0, 1: 0})]


def test_who_gives_no_answer_is_named() -> None:
    world = World(ends_={NORTH: 1}, at={NORTH: 1})
    measuring = world.measuring()
    world.fault = KafkaUnavailable("silent")
    measuring.measure()
    world.fault = None
    measuring.measure()
    world.ends_ = {NORTH: 2}
    world.fault = StoreUnavailable("silent")
    measuring.measure()
    world.fault = None
    world.at = {NORTH: 2}
    measuring.measure()
    measuring.measure()
    told = world.tell()
    assert told[:2] == [("unanswered", "kafka"), ("unanswered", "store")]


def test_told_to_stop_it_ends_without_a_word() -> None:
    world = World(ends_={NORTH: 1}, at={NORTH: 1})
    measuring = Visibility(world.ends, world, world.clock, world, lambda seconds: True)
    measuring.measure()
    world.ends_ = {NORTH: 2}
    measuring.measure()
    assert world.tell() == []


def test_what_is_seen_is_shown() -> None:
    metrics = FlusherMetrics(ManualClock(), "t", FlusherEvents())
    value = metrics.registry.get_sample_value
    of = {"table": "t"}
    assert value("lancewal_flusher_visibility_failures_total", {**of, "reason": "timeout"}) == 0
    assert value("lancewal_flusher_visibility_timestamp_seconds", of) is None
    metrics.visible(1.7)
    metrics.not_visible(NORTH, Position(1), Position(8))
    metrics.measured({NORTH: 7})
    assert value("lancewal_flusher_visible_seconds_bucket", {**of, "le": "1.5"}) == 0
    assert value("lancewal_flusher_visible_seconds_bucket", {**of, "le": "2.0"}) == 1
    assert value("lancewal_flusher_visibility_failures_total", {**of, "reason": "timeout"}) == 1
    assert value("lancewal_flusher_visibility_behind_records", {**of, "partition": "0"}) == 7
    assert value("lancewal_flusher_visibility_timestamp_seconds", of) is None
    metrics.measured({NORTH: 0})
    assert value("lancewal_flusher_visibility_behind_records", {**of, "partition": "0"}) == 0
    assert value("lancewal_flusher_visibility_timestamp_seconds", of) is not None


@pytest.mark.parametrize("seldom_s", [None, INDEX_S, SELDOM_S])
def test_positions_are_those_of_a_strong_read_whoever_owns_the_region(seldom_s: float | None) -> None:
    """``seldom_s``: time between two looks of somebody who looks seldom."""
    place = Place(partitions=2)
    regions = [place.region(0), place.region(1)]
    indexes = RegionStates(place.store, place.clock, 128, None)
    positions = VisiblePositions(place.store, indexes, place.clock, seldom=seldom_s is not None)

    def check() -> dict[Region, Position]:
        place.clock.sleep(seldom_s or INDEX_S)
        seen = positions.look(regions)
        assert seen == {r: at for r, at in durable_positions(place.context, regions).items() if r in seen}
        return seen

    assert check() == {}
    one = place.worker(SealPolicy(rows=4))
    one.assigned(regions)
    one.step()
    at = [0, 0]
    for partition, count in ((0, 3), (1, 2), (0, 5), (0, 1), (1, 4)):
        place.source.coming = [place.records(at[partition], count, partition)]
        at[partition] += count
        for _ in range(3):
            one.step()
            check()
    assert check() == dict(zip(regions, at, strict=True))
    # Another owner ends its log, and goes on in one of its own.
    two = place.worker()
    two._owner = OwnerId("two")
    two.assigned(regions[:1])
    two.step()
    assert check() == dict(zip(regions, at, strict=True))
    place.source.coming = [Polled({}, {}), place.records(at[0], 6, 0)]
    for _ in range(4):
        two.step()
    assert check()[regions[0]] == at[0] + 6
    assert two.drain(10.0)
    assert check()[regions[0]] == at[0] + 6


def test_a_log_that_only_others_lie_in_is_not_gone_over_again() -> None:
    """While one is waited for, those of the others are kept where they are."""
    logs = {region: Written(LogId(f"log-{region.partition}")) for region in (NORTH_OF_LOG, SOUTH_OF_LOG)}
    (store, other) = (log.store for log in logs.values())
    other.bucket = store.bucket
    clock = ManualClock()
    indexes = RegionStates(store, clock, 128, None)
    for region, log in logs.items():
        at = Claimant(OwnerId("ours"), log.log, Sequence(0))
        indexes.swap({region: lambda _, region=region, at=at: first_claim(region, 1, Position(0), at, "w")})  # type: ignore[misc] # bound now
        for _ in range(5):
            log.put(region)
    positions = VisiblePositions(store, indexes, clock)
    assert positions.look(logs) == dict.fromkeys(logs, 5)
    clock.sleep(INDEX_S)
    assert positions.look([NORTH_OF_LOG]) == {NORTH_OF_LOG: 5}
    store.read = []
    assert positions.look(logs) == dict.fromkeys(logs, 5)
    assert store.read == []


@pytest.mark.kafka
def test_end_to_end_with_bad_records_and_an_aborted_transaction(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is waited for in vain; what nobody makes durable is."""
    make_topic(kafka, topic_name, 2)
    make_topic(kafka, f"{topic_name}.dead-letters", 1)
    settings = Settings(
        **settings_tree(
            kafka, topic_name, tmp_path, flusher={"visibility_interval_s": 0.2, "merge_interval_s": 0.2},
            http={"ingest_port": 0, "flusher_port": 0},
        )
    )  # fmt: skip
    create_table(settings)
    with flushing(settings) as port:

        def shown(name: str) -> float:
            return samples(port).get(name, 0.0)

        with serving(settings) as running:
            wait_for(lambda: len(running.worker.durable) == 2)
            produced = produce(kafka, topic_name, 200)
            wait_for(lambda: shown("visible_seconds_count") >= 2)
            seen = shown("visible_seconds_count")
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic_name})
            producer.init_transactions(30)
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce(topic_name, b"{", key=encode_region_key("x"), partition=partition)
            producer.flush(30)
            producer.abort_transaction(30)
            wait_for(lambda: shown("visible_seconds_count") >= seen + 2)
            wait_for(lambda: sum(running.worker.durable.values()) >= sum(produced.ends.values()) + 4)
            bad = Producer({"bootstrap.servers": kafka.bootstrap_servers})
            bad.produce(topic_name, b"{", key=encode_region_key("x"), partition=0)
            assert bad.flush(30) == 0
            wait_for(lambda: shown("visible_seconds_count") >= seen + 3)
            assert shown("visibility_failures_total{timeout}") == 0
            assert shown("visibility_timestamp_seconds") > 0
        # Nobody makes durable what comes now, and merges go on.
        monkeypatch.setattr(visibility, "TIMEOUT_S", 0.5)
        produce(kafka, topic_name, 50, 200)
        wait_for(lambda: shown("visibility_failures_total{timeout}") >= 2)
        wait_for(lambda: shown("visibility_behind_records{0}") > 0 and shown("visibility_behind_records{1}") > 0)
        wait_for(lambda: shown("merges_total") >= 1)
