"""The whole ingest service on a real broker and a local folder: in this process, and as a process of its own.

The oracle is Kafka itself: what was produced, by partition and offset, against what the WAL and the flushes hold.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    Message,
    Producer,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from prometheus_client.parser import text_string_to_metric_families

from lancewal_core.errors import (
    ActionNeeded,
    ContractMismatch,
    InvalidSettings,
    OtherGroup,
    PartitionCountChanged,
    Problem,
    RetentionLost,
    StoreInconsistent,
    TopicMissing,
    TopicReplaced,
)
from lancewal_core.names.ids import Position
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.health import Health, HealthServer
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.region.flushes.manifest import read_flushed_generation
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationState, RegionState
from lancewal_core.region.states import RegionStates
from lancewal_core.rows.row_range import RowRange
from lancewal_core.rows.schema import OFFSET, OP, SYSTEM_FIELDS, TIMESTAMP, Op
from lancewal_core.settings.load import Settings, load_settings
from lancewal_core.store.obstore import open_store
from lancewal_core.table import control
from lancewal_core.table.contract import Contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_demo.stack import KafkaBroker
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.kafka.statistics import NOTHING_TOLD
from lancewal_ingest.regions.open import open_regions
from lancewal_ingest.retention import topic_watch
from lancewal_ingest.service import contract_watch
from lancewal_ingest.service import table as served
from lancewal_ingest.service.metric_table import IngestMetricTable
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_ingest.service.service import Running, run_ingest, serve
from lancewal_tables.define.alter import alter_terms
from lancewal_tables.define.create import create_table
from tests.support.pauses import pause, resume
from tests.support.regions import by_number, numbers, region
from tests.support.retention import delete_records
from tests.support.scrapes import not_shown
from tests.support.topics import delete_topic, make_topics

TIMESTAMP_TYPE = next(f.type for f in SYSTEM_FIELDS if f.name == TIMESTAMP)
DEADLINE_S = 240.0
PACKAGES = ("api", "core", "kafka", "ingest", "flusher", "reader", "tables", "demo")
ROOT = Path(__file__).resolve().parents[3]


def make_topic(broker: KafkaBroker, topic: str, partitions: int) -> None:
    make_topics(broker.bootstrap_servers, {topic: partitions})


def recreate_topic(broker: KafkaBroker, topic: str) -> None:
    delete_topic(broker.bootstrap_servers, topic)
    make_topic(broker, topic, 1)


def settings_tree(broker: KafkaBroker, topic: str, folder: Path, **sections: Mapping[str, object]) -> dict[str, Any]:
    tree: dict[str, dict[str, object]] = {
        "table": {
            "uri": str(folder / "table"),
            "topic": topic,
            "columns": {"customer": "string", "id": "int64", "amount": "float64"},
            "primary_key": ["customer", "id"],
            "region_key": ["customer"],
        },
        "kafka": {"bootstrap_servers": broker.bootstrap_servers, "options": {}},
        "ingest": {"drain_timeout_s": 60.0},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    for name, section in sections.items():
        tree.setdefault(name, {}).update(section)
    return tree


@dataclass(slots=True)
class Produced:
    """Key and amount by partition and offset, as the broker acknowledged them."""

    by_partition: dict[int, dict[int, tuple[str, int, float]]] = field(default_factory=dict)

    @property
    def ends(self) -> dict[int, int]:
        return {p: max(offsets) + 1 for p, offsets in self.by_partition.items()}

    @property
    def latest(self) -> dict[tuple[str, int], float]:
        """The table as it must be: per key the amount at its highest offset."""
        return {
            (customer, number): amount
            for offsets in self.by_partition.values()
            for _, (customer, number, amount) in sorted(offsets.items())
        }


def produce(
    broker: KafkaBroker, topic: str, count: int, begin: int = 0, produced: Produced | None = None, time_ms: int = 0
) -> Produced:
    """``time_ms``: of the records; 0 is now."""
    result = produced or Produced()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"})

    def acknowledged(row: tuple[str, int, float]) -> Callable[[Any, Message], None]:
        def note(error: object, message: Message) -> None:
            assert error is None
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            result.by_partition.setdefault(partition, {})[offset] = row

        return note

    for number in range(begin, begin + count):
        row = (f"customer-{number % 97}", number % 1500, number / 2)
        value = json.dumps(dict(zip(("customer", "id", "amount"), row, strict=True))).encode()
        producer.produce(topic, value, key=encode_region_key(row[0]), on_delivery=acknowledged(row), timestamp=time_ms)
    assert producer.flush(30) == 0
    return result


@contextmanager
def serving(settings: Settings) -> Iterator[Running]:
    """The service on a thread; told to stop at the end, which must have been in time."""
    stop = threading.Event()
    began = threading.Event()
    running: list[Running] = []
    ended: list[bool | BaseException] = []

    def note(service: Running) -> None:
        running.append(service)
        began.set()

    def run() -> None:
        try:
            ended.append(serve(settings, stop.is_set, note))
        except BaseException as error:
            ended.append(error)
        began.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert began.wait(DEADLINE_S)
        if not running:
            (error,) = ended
            assert isinstance(error, BaseException)
            raise error
        yield running[0]
    finally:
        stop.set()
        thread.join(DEADLINE_S)
    (outcome,) = ended
    if isinstance(outcome, BaseException):
        raise outcome
    assert outcome is True


def until(condition: Callable[[], bool], what: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metric(port: int, name: str, **labels: str) -> float | None:
    _, text = get(port, "/metrics")
    families: Any = text_string_to_metric_families
    for family in families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return float(sample.value)
    return None


def states_of(contract: Contract, uri: str) -> dict[int, RegionState]:
    indexes = RegionStates(open_store(uri), SystemClock(), contract.regions_per_page, contract.making)
    found = {region.partition: indexes.read([region]).get(region) for region in contract.regions}
    return {partition: index for partition, index in found.items() if index is not None}


def wal_offsets(contract: Contract, uri: str) -> dict[int, list[int]]:
    """Offsets of all rows in the logs, in the generations' order."""
    tasks, address = ThreadTasks(), Address(uri)
    opened = OpenedTable.over(address.store(), address.table(), contract, tasks, SystemClock())
    found: dict[int, list[int]] = {}
    for partition, state in states_of(contract, uri).items():
        for record in state.generations:
            for entry in entries_of(opened, contract.regions[partition], record):
                found.setdefault(partition, []).extend(entry.rows.column(OFFSET).to_pylist())
    tasks.close()
    return found


def flush_rows(contract: Contract, uri: str) -> dict[tuple[str, int], float]:
    """Rows of all flushes, later generations winning."""
    store, table = open_store(uri), LanceTable(uri)
    found: dict[tuple[str, int], float] = {}
    for state in states_of(contract, uri).values():
        for record in state.generations:
            if record.flush is None:
                continue
            flushed = read_flushed_generation(store, record.flush, state.region, record.generation)
            own = range(flushed.rows_from, flushed.rows_from + flushed.rows)
            for batch in table.read_unadopted(flushed.fragments, ["customer", "id", "amount"], own):
                found.update({(r["customer"], r["id"]): r["amount"] for r in batch.to_pylist()})
    return found


def check_handed_over(contract: Contract, uri: str, produced: Produced) -> None:
    states = states_of(contract, uri)
    assert {p: state.newest.next for p, state in states.items() if state.newest} == {
        p: produced.ends.get(p, 0) for p in range(contract.partitions)
    }
    assert {record.state for state in states.values() for record in state.generations} == {GenerationState.FLUSHED}
    assert wal_offsets(contract, uri) == {p: sorted(offsets) for p, offsets in produced.by_partition.items()}
    assert flush_rows(contract, uri) == produced.latest


# -- the service -----------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_rows_become_durable_and_are_handed_over(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    make_topic(kafka, topic_name, 4)
    make_topic(kafka, f"{topic_name}.dead-letters", 1)
    settings = Settings(**settings_tree(kafka, topic_name, tmp_path, ingest={"offset_commit_interval_s": 0.2}))
    contract = create_table(settings)
    produced = produce(kafka, topic_name, 5000)
    with serving(settings) as running:
        until(lambda: by_number(running.worker.durable) == produced.ends, lambda: running.worker.durable)
        produce(kafka, topic_name, 500, 5000, produced)
        until(lambda: by_number(running.worker.durable) == produced.ends, lambda: running.worker.durable)
        # What is durable is told to the group, and to whoever asks.
        group = settings.kafka.group(contract.table_uuid)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

        def committed() -> dict[int, int]:
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
            return {p.partition: p.offset for p in asked.topic_partitions}

        until(lambda: committed() == produced.ends, committed)
        assert get(running.port, "/livez") == (200, "ok\n")
        assert get(running.port, "/readyz") == (200, "ok\n")
        assert get(running.port, "/")[0] == 200, "it leads to the status"

        def shown(name: str) -> list[float | None]:
            return [metric(running.port, f"lancewal_ingest_{name}", partition=str(p)) for p in range(4)]

        # The worker's thread counts behind what it has done, and shows positions behind that.
        until(lambda: shown("durable_position") == [produced.ends[p] for p in range(4)])
        assert shown("rows_total") == [len(produced.by_partition[p]) for p in range(4)]
        until(lambda: shown("lag_records") == [0] * 4)
        assert shown("freshness_seconds") == [0] * 4
        assert not_shown(get(running.port, "/metrics")[1], IngestMetricTable) == set()
        assert metric(running.port, "lancewal_ingest_open_partitions") == 4
        assert metric(running.port, "lancewal_ingest_claims_total", outcome="won") == 4
        assert metric(running.port, "lancewal_ingest_open_seconds_count") == 4
        assert metric(running.port, "lancewal_build_info", service="ingest") == 1
        ours = {"table": "table", "topic": topic_name, "topic_id": contract.topic_id, "uri": settings.table.uri}
        assert metric(running.port, "lancewal_table_info", **ours) == 1
        assert (
            metric(running.port, "lancewal_store_request_seconds_count", operation="put", object="segment") or 0
        ) >= 2
    check_handed_over(contract, settings.table.uri, produced)
    assert list((tmp_path / "table" / "_lancewal" / "probe").iterdir()) == []


@pytest.mark.kafka
def test_a_second_member_takes_over_half_and_nothing_is_lost(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path
) -> None:
    make_topic(kafka, topic_name, 4)
    settings = Settings(**settings_tree(kafka, topic_name, tmp_path, table={"on_bad_record": "stop"}))
    contract = create_table(settings)
    produced = produce(kafka, topic_name, 2000)
    with serving(settings) as first:
        until(lambda: by_number(first.worker.durable) == produced.ends, lambda: first.worker.durable)
        with serving(settings) as second:
            until(lambda: len(second.worker.durable) == 2, lambda: second.worker.durable)
            produce(kafka, topic_name, 2000, 2000, produced)
            until(lambda: by_number({**first.worker.durable, **second.worker.durable}) == produced.ends)
            assert first.worker.durable.keys().isdisjoint(second.worker.durable)
        until(lambda: by_number(first.worker.durable) == produced.ends, lambda: first.worker.durable)
    check_handed_over(contract, settings.table.uri, produced)


@pytest.mark.kafka
def test_ready_is_who_has_opened_its_partitions_or_has_none_and_says_so(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(kafka, topic_name, 1)
    settings = Settings(**settings_tree(kafka, topic_name, tmp_path, table={"on_bad_record": "stop"}))
    create_table(settings)
    may_open = threading.Event()
    opens = open_regions

    def held_back(context: Any, writer: Any, regions: Any, offsets: Any) -> Any:
        if not may_open.is_set():
            return {region: StoreInconsistent("not yet") for region in regions}
        return opens(context, writer, regions, offsets)

    monkeypatch.setattr("lancewal_ingest.regions.partitions.open_regions", held_back)
    with serving(settings) as first:
        assert get(first.port, "/readyz")[0] == 503
        until(lambda: "store_inconsistent: partition 0 cannot be opened: not yet" in get(first.port, "/readyz")[1])
        may_open.set()
        until(lambda: get(first.port, "/readyz") == (200, "ok\n"))
        assert numbers(first.worker.durable) == [0]
        with serving(settings) as second:
            text = "joining: the consumer group has not told yet which partitions are this process's\n"
            assert get(second.port, "/readyz") == (503, text)
            alone = (200, "ok: no partition is assigned to this process\n")
            until(lambda: alone in (get(first.port, "/readyz"), get(second.port, "/readyz")))
            assert first.worker.durable.keys().isdisjoint(second.worker.durable)


@pytest.mark.kafka
def test_a_second_group_ends_by_name_until_the_table_is_moved(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract_watch, "POLL_S", 0.1)
    make_topic(kafka, topic_name, 2)

    def of(group: str) -> Settings:
        tree = settings_tree(kafka, topic_name, tmp_path, table={"on_bad_record": "stop"}, kafka={"group_id": group})
        return Settings(**tree)

    contract = create_table(of(""))
    produced = produce(kafka, topic_name, 1000)
    with serving(of("one")) as first:
        until(lambda: by_number(first.worker.durable) == produced.ends, lambda: first.worker.durable)
        with pytest.raises(OtherGroup, match="'one', this process's is 'two'"), serving(of("two")):
            pass
        alter_terms(of("one"), {"group_id": "two"})
        until(lambda: get(first.port, "/readyz")[0] == 503, lambda: get(first.port, "/readyz"))
        until(lambda: "former_group" in get(first.port, "/readyz")[1], lambda: get(first.port, "/readyz"))
        with serving(of("two")) as second:
            until(lambda: by_number(second.worker.durable) == produced.ends, lambda: second.worker.durable)
            produce(kafka, topic_name, 1000, 1000, produced)
            until(lambda: by_number(second.worker.durable) == produced.ends, lambda: second.worker.durable)
            assert get(first.port, "/readyz")[0] == 503
            # Claimed once by each, and not back and forth.
            assert {i.newest.generation for i in states_of(contract, str(tmp_path / "table")).values() if i.newest} == {
                2
            }
        alter_terms(of("two"), {"group_id": "one"})
        until(lambda: get(first.port, "/readyz")[0] == 200, lambda: get(first.port, "/readyz"))


@pytest.mark.kafka
def test_a_paused_ingest_consumes_nothing_and_stays_a_member(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "POLL_S", 0.1)
    monkeypatch.setattr(topic_watch, "TOPIC_CHECK_S", 0.1)
    monkeypatch.setattr(served, "REFRESH_S", 0.1)
    make_topic(kafka, topic_name, 2)
    session = {
        "options": {"session.timeout.ms": "6000", "max.poll.interval.ms": "6000", "statistics.interval.ms": "100"}
    }
    settings = Settings(**settings_tree(kafka, topic_name, tmp_path, table={"on_bad_record": "stop"}, kafka=session))
    contract = create_table(settings)
    store = open_store(settings.table.uri)
    old_ms = SystemClock().now_ms() - 600_000
    produced = produce(kafka, topic_name, 1000, time_ms=old_ms)

    def shown(name: str) -> float | None:
        return metric(running.port, f"lancewal_ingest_{name}")

    def both(name: str) -> dict[int, float | None]:
        return {p: metric(running.port, f"lancewal_ingest_{name}", partition=str(p)) for p in (0, 1)}

    pause(store, SystemClock(), lambda: "1", control.Service.INGEST, making=contract.making)
    with serving(settings) as running:
        # Paused before it began: it has its partitions, and leaves them where they are.
        until(lambda: by_number(running.worker.durable) == {0: 0, 1: 0}, lambda: running.worker.durable)
        until(lambda: shown("paused") == 1)
        # Who has taken over and gets nothing knows how old what waits is, though it has consumed no record.
        until(
            lambda: all((s or 0) >= 600 for s in both("freshness_seconds").values()), lambda: both("freshness_seconds")
        )
        assert both("end_position") == produced.ends
        assert both("durable_timestamp_seconds") == {0: None, 1: None}
        resume(store, SystemClock(), lambda: "2", control.Service.INGEST, making=contract.making)
        until(lambda: by_number(running.worker.durable) == produced.ends, lambda: running.worker.durable)
        until(lambda: shown("paused") == 0)
        until(lambda: both("freshness_seconds") == {0: 0, 1: 0}, lambda: both("freshness_seconds"))
        assert both("durable_timestamp_seconds") == {p: pytest.approx(old_ms / 1000) for p in (0, 1)}
        told = ("connected_brokers", "rebalances_total", "received_records_total", "round_trip_seconds")
        until(lambda: all((metric(running.port, f"lancewal_kafka_{name}") or 0) > 0 for name in told))
        assert 0 <= (metric(running.port, "lancewal_kafka_poll_age_seconds") or 0) < 6
        pause(store, SystemClock(), lambda: "3", control.Service.INGEST, making=contract.making)
        until(lambda: shown("paused") == 1)
        before = dict(running.worker.durable)
        produce(kafka, topic_name, 1000, 1000, produced)
        behind = sum(produced.ends.values()) - sum(before.values())
        until(
            lambda: behind == sum(metric(running.port, "lancewal_ingest_lag_records", partition=p) or 0 for p in "01")
        )
        assert running.worker.durable == before
        assert get(running.port, "/readyz") == (200, "ok\n")
        # From here on it ends by itself, later than a member that does not poll would have been thrown out.
        pause(store, SystemClock(), lambda: "4", control.Service.INGEST, for_s=7.0, making=contract.making)
        until(lambda: by_number(running.worker.durable) == produced.ends, lambda: running.worker.durable)
        assert shown("generations_sealed_total") == 0  # nothing was handed over
    assert wal_offsets(contract, settings.table.uri) == {p: sorted(o) for p, o in produced.by_partition.items()}


@pytest.mark.kafka
def test_bad_records_become_dead_letters(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    make_topic(kafka, topic_name, 1)
    make_topic(kafka, "dead-" + topic_name, 1)
    changes = {"dead_letter_topic": "dead-" + topic_name}
    settings = Settings(**settings_tree(kafka, topic_name, tmp_path, table=changes))
    contract = create_table(settings)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (b'{"customer": "c", "id": 1}', b"{secret", b'{"customer": "c", "id": 2}'):
        producer.produce(topic_name, value, key=encode_region_key("c"))
    assert producer.flush(30) == 0
    with serving(settings) as running:
        until(lambda: by_number(running.worker.durable) == {0: 3}, lambda: running.worker.durable)
        until(lambda: metric(running.port, "lancewal_ingest_dead_letters_total", kind="not_json") == 1)
        from tests.ingest.kafka.test_dead_letters import read

        (letter,) = read(kafka, "dead-" + topic_name, 1)
        assert letter.value() == b"{secret"
        assert ("lancewal.source", f"{topic_name}-0-1".encode()) in (letter.headers() or [])
    assert wal_offsets(contract, settings.table.uri) == {0: [0, 2]}


@pytest.mark.kafka
def test_a_stopped_partition_is_shown_and_the_others_go_on(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    make_topic(kafka, topic_name, 2)
    settings = Settings(**settings_tree(kafka, topic_name, tmp_path, table={"on_bad_record": "stop"}))
    create_table(settings)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic_name, b"{secret", partition=1)
    assert producer.flush(30) == 0
    produced = produce(kafka, topic_name, 100)
    with serving(settings) as running:
        until(lambda: bool(running.worker.stopped) and by_number(running.worker.durable).get(0) == produced.ends[0])
        status, text = get(running.port, "/readyz")
        assert status == 503
        assert text.startswith("bad_record: partition 1 stopped: ")
        assert get(running.port, "/livez")[0] == 200
        labels = {"partition": "1", "kind": "bad_record"}
        until(lambda: metric(running.port, "lancewal_ingest_partition_stopped", **labels) == 1)


@pytest.mark.kafka
def test_lost_retention_stops_its_partition_alone(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    make_topic(kafka, topic_name, 2)
    settings = Settings(**settings_tree(kafka, topic_name, tmp_path, table={"on_bad_record": "stop"}))
    create_table(settings)
    produced = produce(kafka, topic_name, 100)
    with serving(settings) as running:
        until(lambda: by_number(running.worker.durable) == produced.ends, lambda: running.worker.durable)
        # Records of an open transaction are not readable yet, and are deleted before they are.
        open_ = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic_name, "log_level": 2})
        open_.init_transactions(30)
        open_.begin_transaction()
        open_.produce(topic_name, b"{}", partition=0)
        open_.flush(30)
        delete_records(kafka.bootstrap_servers, topic_name, {0: produced.ends[0] + 1})
        until(lambda: 0 in by_number(running.worker.stopped))
        assert isinstance(by_number(running.worker.stopped)[0], RetentionLost)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for customer in (row[0] for row in produced.by_partition[1].values()):
            value = json.dumps({"customer": customer, "id": 1})
            producer.produce(topic_name, value, key=encode_region_key(customer), partition=1)
        assert producer.flush(30) == 0
        until(lambda: by_number(running.worker.durable).get(1) == 2 * produced.ends[1], lambda: running.worker.durable)
        assert by_number(running.worker.durable)[0] == produced.ends[0]
        open_.abort_transaction(30)


@pytest.mark.kafka
def test_a_topic_that_is_recreated_ends_the_service(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    make_topic(kafka, topic_name, 1)
    settings = Settings(**settings_tree(kafka, topic_name, tmp_path, table={"on_bad_record": "stop"}))
    contract = create_table(settings)
    produced = produce(kafka, topic_name, 100)

    def recreate_meanwhile() -> None:
        with serving(settings) as running:
            until(lambda: by_number(running.worker.durable) == {0: 100}, lambda: running.worker.durable)
            recreate_topic(kafka, topic_name)
            until(lambda: by_number(running.worker.durable) == {}, lambda: running.worker.durable)

    with pytest.raises((TopicReplaced, TopicMissing)):
        recreate_meanwhile()
    # It was handed over all the same: what was durable stays as it was.
    check_handed_over_only(contract, settings.table.uri, produced)


@pytest.mark.kafka
def test_added_partitions_end_the_service_before_anything_more_is_written(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path
) -> None:
    make_topic(kafka, topic_name, 1)
    settings = Settings(**settings_tree(kafka, topic_name, tmp_path, table={"on_bad_record": "stop"}))
    contract = create_table(settings)
    produced = produce(kafka, topic_name, 100)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def add_meanwhile() -> None:
        with serving(settings) as running:
            until(lambda: by_number(running.worker.durable) == {0: 100}, lambda: running.worker.durable)
            admin.create_partitions([NewPartitions(topic_name, 2)])[topic_name].result(30)
            until(lambda: len(admin.list_topics(topic_name, 30).topics[topic_name].partitions) == 2)
            produce(kafka, topic_name, 20)
            until(lambda: by_number(running.worker.durable) == {}, lambda: running.worker.durable)

    with pytest.raises(PartitionCountChanged):
        add_meanwhile()
    check_handed_over_only(contract, settings.table.uri, produced)


def check_handed_over_only(contract: Contract, uri: str, produced: Produced) -> None:
    """Not flushed: the next owner does that."""
    assert wal_offsets(contract, uri) == {0: sorted(produced.by_partition[0])}
    newest = states_of(contract, uri)[0].newest
    assert newest is not None
    assert newest.state is GenerationState.SEALED


# -- as a process ----------------------------------------------------------------------------------------------


def program(folder: Path, tree: Mapping[str, object]) -> subprocess.Popen[bytes]:
    """``lancewal ingest run`` of an installation that has the command."""
    info = folder / "site" / "lancewal-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: lancewal\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[lancewal.commands]\ningest = lancewal_ingest.commands.ingest:app\n")
    config = folder / "lancewal.yaml"
    config.write_text(yaml.safe_dump(tree, sort_keys=False))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LANCEWAL_")}
    path = os.pathsep.join([str(folder / "site"), *(str(ROOT / package) for package in PACKAGES)])
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from lancewal_core.cli.program import main; main()",
            "ingest",
            "run",
            "--config",
            str(config),
        ],
        env={**kept, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.kafka
def test_sigterm_drains_and_exits_with_0(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    make_topic(kafka, topic_name, 4)
    tree = settings_tree(kafka, topic_name, tmp_path, table={"on_bad_record": "stop"})
    contract = create_table(Settings(**tree))
    produced = produce(kafka, topic_name, 5000)
    process = program(tmp_path, tree)
    try:
        uri = str(tmp_path / "table")

        def segments() -> int:
            return len(list((tmp_path / "table" / "_lancewal" / "wal").rglob("*.arrow")))

        until(lambda: process.poll() is None and segments() > 0)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 0, errors.decode()
    lines = [json.loads(line) for line in errors.decode().splitlines()]
    events = {line["event"] for line in lines}
    assert {"service_started", "partition_opened", "generation_sealed", "generation_flushed"} <= events
    assert [line["port"] > 0 for line in lines if line["event"] == "service_started"] == [True]
    assert [line["dead_letters"] for line in lines if line["event"] == "topics_unbound"] == [contract.dead_letters]
    assert {"drain_begun", "drain_completed"} <= events
    states = states_of(contract, uri)
    assert {record.state for state in states.values() for record in state.generations} == {GenerationState.FLUSHED}
    # It may have been told in the middle: what is there is a prefix of each partition, and the index says which.
    for partition, state in states.items():
        assert state.newest is not None
        offsets = wal_offsets(contract, uri).get(partition, [])
        assert offsets == [n for n in sorted(produced.by_partition[partition]) if n < (state.newest.next or 0)]
    assert sum(map(len, wal_offsets(contract, uri).values())) > 0


@pytest.mark.kafka
def test_what_a_person_must_change_is_one_line_and_exit_code_2(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path
) -> None:
    make_topic(kafka, topic_name, 1)
    tree = settings_tree(kafka, topic_name, tmp_path)
    create_table(Settings(**tree))
    recreate_topic(kafka, topic_name)
    process = program(tmp_path, tree)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2, errors.decode()
    *logged, line = errors.decode().splitlines()
    assert {json.loads(text)["level"] for text in logged} <= {"warning"}, "of what the topic lets in"
    assert line.startswith(f"lancewal: topic_replaced: topic {topic_name} has id ")
    assert "`lancewal table alter --topic-id" in line


# -- what is checked first -------------------------------------------------------------------------------------


def refused(tree: Mapping[str, Any]) -> ActionNeeded:
    with pytest.raises(ActionNeeded) as caught:
        serve(Settings(**tree), lambda: True)
    return caught.value


def test_all_settings_that_are_missing_are_named_at_once() -> None:
    with pytest.raises(InvalidSettings) as caught:
        run_ingest(load_settings(None))
    assert all(f"{key}: is needed here" in str(caught.value) for key in ("table.uri", "kafka.bootstrap_servers"))


@pytest.mark.kafka
def test_contradictions_are_found_before_anything_is_consumed(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path
) -> None:
    make_topic(kafka, topic_name, 1)
    stop = {"on_bad_record": "stop"}
    good = settings_tree(kafka, topic_name, tmp_path, table=stop)
    create_table(Settings(**good))
    other_key = settings_tree(kafka, topic_name, tmp_path, table={**stop, "primary_key": ["customer"]})
    error = refused(other_key)
    assert isinstance(error, ContractMismatch)
    assert "table.primary_key" in str(error)
    unknown = settings_tree(kafka, topic_name, tmp_path, table=stop)
    unknown["kafka"]["options"] = {"partition.assignment.strategy": "range"}
    assert isinstance(refused(unknown), InvalidSettings)
    with serving(Settings(**good)) as running:
        taken = settings_tree(kafka, topic_name, tmp_path, table=stop, http={"ingest_port": running.port})
        assert "http.ingest_port" in str(refused(taken))
        contract, uri = create_contract(good), good["table"]["uri"]
        until(lambda: any(state.newest is not None for state in states_of(contract, uri).values()))


def create_contract(tree: Mapping[str, Any]) -> Contract:
    from lancewal_core.table.contract import read_contract

    uri = tree["table"]["uri"]
    return read_contract(open_store(uri), uri)


def test_livez_fails_once_the_loop_hangs_and_readyz_says_why() -> None:
    class Hands:
        at = 0.0

        def now_ms(self) -> int:
            return int(self.at * 1000)

        def monotonic(self) -> float:
            return self.at

        def sleep(self, seconds: float) -> None:
            self.at += seconds

    clock = Hands()
    problems: list[Problem] = []
    health = Health(clock, lambda: problems, loop_limit_s=10)
    with HealthServer("127.0.0.1", 0, IngestMetrics(clock, "t", 1000, IngestEvents()).registry, health) as server:
        clock.at = 10
        assert get(server.port, "/livez") == (200, "ok\n")
        problems.append(Problem("kafka_unavailable", "Kafka\ndoes not answer"))
        assert get(server.port, "/readyz") == (503, "kafka_unavailable: Kafka does not answer\n")
        assert get(server.port, "/livez") == (200, "ok\n")
        clock.at = 10.1
        assert get(server.port, "/livez") == (503, "loop_stands: the service's loop has not run for 10 s\n")
        health.beat()
        assert get(server.port, "/livez") == (200, "ok\n")
        assert metric(server.port, "lancewal_ingest_memory_budget_bytes") == 1000


def test_metrics_follow_the_partitions_that_are_ours(capsys: pytest.CaptureFixture[str]) -> None:
    class At(SystemClock):
        def now_ms(self) -> int:
            return 60_000

    metrics = IngestMetrics(At(), "t", 1000, IngestEvents())
    value = metrics.registry.get_sample_value
    first, second = region(0), region(1)
    times = pa.array([5_000, 10_000, 20_000, 30_000], TIMESTAMP_TYPE)
    batch = pa.RecordBatch.from_pydict(
        {TIMESTAMP: times, OP: pa.array([Op.DELETE, Op.PATCH, Op.UPSERT, 0], pa.uint8())}
    )
    rows = RowRange(batch, 1, 2)
    left = RejectedOffset(6, "range")
    metrics.appended(Entry(first, Position(0), Position(2), 1, rows, (RejectedOffset(5, "type"), left)), [left])
    metrics.positions({first: Position(2), second: Position(7)}, unflushed=3)
    metrics.refresh({first: Position(12), second: Position(7)}, {second: RetentionLost("gone")})
    zero, one = ({"table": "t", "partition": p} for p in "01")
    assert value("lancewal_ingest_rows_total", zero) == 2
    operations = {"upsert": 1, "patch": 1, "delete": 0}
    name = "lancewal_ingest_row_operations_total"
    assert {kind: value(name, {"table": "t", "kind": kind}) for kind in operations} == operations
    assert value("lancewal_ingest_dead_letters_total", {**zero, "kind": "type"}) == 1
    assert value("lancewal_ingest_dead_letters_total", {**zero, "kind": "range"}) is None
    assert value("lancewal_ingest_records_ignored_total", {**zero, "kind": "range"}) == 1
    assert value("lancewal_ingest_durable_position", one) == 7
    assert (value("lancewal_ingest_lag_records", zero), value("lancewal_ingest_lag_records", one)) == (10, 0)
    metrics.freshness({first: 40.0, second: 0.0}, {first: Position(12)})
    assert value("lancewal_ingest_freshness_seconds", zero) == 40
    assert value("lancewal_ingest_end_position", zero) == 12
    assert value("lancewal_ingest_durable_timestamp_seconds", zero) == 20
    assert value("lancewal_ingest_durable_timestamp_seconds", one) is None
    assert value("lancewal_ingest_append_latency_seconds_sum", {"table": "t"}) == 40
    assert value("lancewal_ingest_unflushed_generations", {"table": "t"}) == 3
    assert value("lancewal_ingest_partition_stopped", {**one, "kind": "retention_lost"}) == 1
    # Partition 0 moves away, partition 1 goes on.
    metrics.positions({second: Position(8)}, unflushed=0)
    metrics.freshness({second: 0.0}, {})
    metrics.refresh({second: Position(8)}, {first: RetentionLost("gone")})  # partition 0 came back and cannot be opened
    assert value("lancewal_ingest_partition_stopped", {**zero, "kind": "retention_lost"}) == 1
    for name in (
        "durable_position", "lag_records", "freshness_seconds", "end_position", "durable_timestamp_seconds",
    ):  # fmt: skip
        assert value(f"lancewal_ingest_{name}", zero) is None
    assert value("lancewal_ingest_durable_position", one) == 8
    assert value("lancewal_ingest_partition_stopped", {**one, "kind": "retention_lost"}) is None
    metrics.stopped(second, RetentionLost("gone"))
    assert value("lancewal_ingest_partition_stopped", {**one, "kind": "retention_lost"}) == 1
    metrics.refresh({second: Position(8)}, {})
    for partition in (zero, one):
        assert value("lancewal_ingest_partition_stopped", {**partition, "kind": "retention_lost"}) is None
    # What a new client tells begins at 0 again.
    for total in (5, 7, 2):
        metrics.kafka(replace(NOTHING_TOLD, rebalances_total=total))
    assert value("lancewal_kafka_rebalances_total", {"table": "t"}) == 9
    # A durable position never falls.
    assert value("lancewal_ingest_invariant_violations_total", {"table": "t", "kind": "durable_position_fell"}) == 0
    metrics.positions({second: Position(7)}, unflushed=0)
    assert value("lancewal_ingest_invariant_violations_total", {"table": "t", "kind": "durable_position_fell"}) == 1
    # A fault that repeats is counted each time and logged once.
    for _ in range(3):
        metrics.failed("append", "the store is away")
    assert value("lancewal_ingest_failures_total", {"table": "t", "operation": "append"}) == 3
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("the store is away") == 1
