"""``lancewal status``: the figures of regions in every state, read only, and what is shown when something is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from lancewal_core.cli.groups import with_options
from lancewal_core.cli.program import run
from lancewal_core.errors import InvalidInput, KafkaUnavailable, NotALancewalTable, TableMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TableVersion
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.status.facts import STANDS_S
from lancewal_core.process.status.report import PartitionStatus, TableStatus
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region import transitions
from lancewal_core.region.flush import flush_generation, flush_generations
from lancewal_core.region.flush_files import Content, Flushable
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import RegionState
from lancewal_core.region.transitions import Claimant, Ended
from lancewal_core.rows.fold import fold
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import OFFSET, OP, PRESENT, TIMESTAMP
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import KafkaSettings
from lancewal_core.store.obstore import open_store
from lancewal_core.table import control
from lancewal_core.table.columns.changes import Adopted
from lancewal_core.table.contract import Contract, put_next
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.watermarks import InForce, Watermark, Watermarks
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.log_end import end_log
from lancewal_core.wal.segment import Trailer, decode_trailer
from lancewal_core.wal.writer import Durable, LogWriter
from lancewal_tables.commands.status import status_text
from lancewal_tables.define.column_changes import alter_columns
from lancewal_tables.define.create import create_table
from lancewal_tables.status.of_kafka import NO_BROKERS
from lancewal_tables.status.status import table_status
from tests.flusher.table_settings import content, make_topic, table_settings
from tests.support.indexes import flip_record
from tests.support.pauses import pause
from tests.support.retention import delete_records
from tests.support.scripted import InlineTasks, ManualClock
from tests.support.whole_path import until

if TYPE_CHECKING:
    from lancewal_demo.stack import KafkaBroker

pytestmark = pytest.mark.kafka

status_of = partial(table_status, kafka_timeout_s=120.0)
"""A busy machine is no reason for a problem."""


class Ingest:
    """One process incarnation: a log, and indexes changed as ingest changes them."""

    def __init__(self, folder: Path, contract: Contract, owner: str) -> None:
        self.store, self.clock, self.contract = open_store(str(folder)), SystemClock(), contract
        self.table = LanceTable(str(folder))
        self.opened = OpenedTable.over(self.store, self.table, contract, InlineTasks(), self.clock)
        self.states = self.opened.states
        self.log = LogWriter(self.store, self.clock, LogId(uuid4().hex), OwnerId(owner), contract.rows.wal)
        self.batches: dict[Region, list[pa.RecordBatch]] = {}
        self.open: dict[Region, Position] = {}

    def claimant(self) -> Claimant:
        return Claimant(self.log.owner, self.log.log, self.log.next_unsent)

    def claim(self, region: Region, start: int) -> None:
        def decide(state: RegionState | None) -> RegionState:
            assert state is None
            return transitions.first_claim(region, 1, Position(start), self.claimant(), uuid4().hex)

        assert self.states.swap({region: decide})[region][0]
        self.open[region] = Position(start)
        self.batches[region] = []

    def take_over(self, region: Region, former: Ingest, generation: int) -> None:
        """Of a process that has died: its log is ended, its OPEN generation SEALED there."""
        tasks = ThreadTasks(workers=1)
        try:
            end = end_log(self.store, tasks, self.clock, former.log.log, {region: Sequence(0)}, self.log.owner).end
        finally:
            tasks.close()
        next_ = former.open[region]
        ended = Ended(Generation(generation), former.log.log, next_, end, None, self.clock.now_ms())

        def decide(state: RegionState | None) -> RegionState | None:
            assert state is not None
            return transitions.claim(state, ended, 1, self.claimant(), uuid4().hex)

        assert self.states.swap({region: decide})[region][0]
        self.open[region] = next_
        self.batches[region] = []

    def append(self, **counts: int) -> int:
        """One segment with so many rows for partition ``p<number>``; the bytes of its entries."""
        entries = []
        for name, count in counts.items():
            region = self.contract.regions[int(name[1:])]
            first = self.open[region]
            batch = pa.RecordBatch.from_pylist(
                [self.row(region, first + i) for i in range(count)], self.contract.rows.wal
            )
            # A marker behind the rows: the position moves by one more.
            entries.append(Entry(region, first, Position(first + count + 1), 1, batch, ()))
            self.open[region] = entries[-1].next
            self.batches[region].append(batch)
        result = self.log.put(entries)
        assert isinstance(result, Durable)
        return result.size

    def reject(self, partition: int, kinds: dict[int, str], next_: int) -> None:
        """One segment of records of which none became a row."""
        region = self.contract.regions[partition]
        first = self.open[region]
        none = pa.RecordBatch.from_pylist([], self.contract.rows.wal)
        rejected = tuple(RejectedOffset(offset, kind) for offset, kind in kinds.items())
        assert isinstance(self.log.put([Entry(region, first, Position(next_), 1, none, rejected)]), Durable)
        self.open[region] = Position(next_)
        self.batches[region].append(none)

    def row(self, region: Region, offset: int) -> dict[str, Any]:
        key = {"region": f"r{region.partition}", "id": offset}
        return {**key, OFFSET: offset, TIMESTAMP: 0, OP: 1 if offset % 10 == 0 else 0, PRESENT: None}

    def seal(self, region: Region, generation: int, *, hand_over: bool = False) -> None:
        next_ = self.open[region]

        def decide(state: RegionState | None) -> RegionState | None:
            assert state is not None
            return transitions.seal(
                state,
                Generation(generation),
                self.claimant(),
                next_,
                uuid4().hex,
                hand_over=hand_over,
                record_times=None,
                now_ms=self.clock.now_ms(),
            )

        assert self.states.swap({region: decide})[region][0]
        self.open[region] = next_

    def flush(self, region: Region, generation: int) -> None:
        state = self.states.read([region]).get(region)
        assert state is not None
        (record,) = (r for r in state.generations if r.generation == generation)
        batches, self.batches[region] = self.batches[region], []
        content = Content(fold(batches, self.contract.rows))
        assert flush_generation(self.opened, region, record, content, new_id)


def new_id() -> str:
    return uuid4().hex


@pytest.fixture
def settings(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> Settings:
    make_topic(kafka.bootstrap_servers, topic_name)
    return table_settings(tmp_path / "table", kafka.bootstrap_servers, topic_name)


@pytest.fixture
def contract(settings: Settings) -> Contract:
    return create_table(settings)


def fill(kafka: KafkaBroker, contract: Contract, at_ms: int = 0, **counts: int) -> None:
    """So many records for partition ``p<number>``, of now or of another time."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for name, count in counts.items():
        for _ in range(count):
            producer.produce(contract.topic, b"{}", partition=int(name[1:]), timestamp=at_ms)
    assert producer.flush(30) == 0


def only(settings: Settings, partition: int) -> PartitionStatus:
    return status_of(settings, settings.table.uri).partitions[partition]


def figures(found: PartitionStatus) -> tuple[object, ...]:
    positions = (found.end, found.high, found.durable, found.flushed, found.merged, found.read, found.lag)
    return found.owner, *positions, found.generations, found.unmerged_rows


def stops(status: TableStatus) -> list[str]:
    """The first step of each partition that does not move, and why."""
    return [f"{found.diagnosis.step}: {found.diagnosis.kind}" for found in status.partitions]


def test_a_new_table(settings: Settings, contract: Contract) -> None:
    before = content(Path(settings.table.uri))
    status = status_of(settings, settings.table.uri)
    assert content(Path(settings.table.uri)) == before
    assert (status.table_version, status.table_rows, status.table_fragments) == (2, 0, 0)
    assert (status.topic, status.topic_id, status.contract_version) == (contract.topic, contract.topic_id, 1)
    assert (status.primary_key, status.region_key) == (("region", "id"), ("region",))
    assert status.problems == ()
    assert [figures(found) for found in status.partitions] == [
        (None, 0, 0, None, None, None, None, None, {}, 0) for _ in contract.regions
    ]
    assert (status.diagnosis.step, status.diagnosis.kind, status.diagnosis.state) == (
        "kafka",
        "nothing_produced",
        "idle",
    )
    assert "a table reads no other" in status.diagnosis.do


def test_every_state_of_a_generation(kafka: KafkaBroker, settings: Settings, contract: Contract) -> None:
    """Region 0: generation 1 FLUSHED, 2 SEALED, 3 OPEN.  Region 1: OPEN in the same log.  Region 2: nobody's."""
    fill(kafka, contract, p0=70, p1=13)
    zero, one, _ = contract.regions
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(zero, 0)
    ingest.append(p0=20)  # offsets 0 to 19, two of which are deletes; position 21
    ingest.claim(one, 5)
    ingest.append(p0=4, p1=7)  # positions 26 and 13
    ingest.seal(zero, 1)
    ingest.flush(zero, 1)
    first = only(settings, 0)
    assert first.unmerged_rows == 24  # each key once: rows and deletes of the flush
    assert first.unmerged_bytes > 0
    ingest.append(p0=10)  # position 37, generation 2
    ingest.seal(zero, 2)
    ingest.append(p0=3)  # position 41, generation 3
    before = content(Path(settings.table.uri))
    status = status_of(settings, settings.table.uri)
    assert content(Path(settings.table.uri)) == before
    assert status.problems == ()
    found = status.partitions[0]
    assert found.unmerged_bytes > first.unmerged_bytes
    generations = {"open": 1, "sealed": 1, "flushed": 1}
    assert figures(found) == ("host-a", 70, 70, 41, 26, None, None, 29, generations, 24 + 10 + 3)
    assert (found.start, found.merged_generation) == (0, 0)
    assert (status.partitions[1].durable, status.partitions[1].unmerged_rows, status.partitions[1].lag) == (13, 7, 0)
    assert (status.partitions[2].owner, status.partitions[2].generations) == (None, {})
    ingest.seal(zero, 3, hand_over=True)
    assert only(settings, 0).generations == {"sealed": 2, "flushed": 1}
    assert only(settings, 0).durable == 41


def test_what_the_table_version_holds_is_merged_whatever_the_index_says(settings: Settings, contract: Contract) -> None:
    zero = contract.regions[0]
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(zero, 0)
    ingest.append(p0=5)
    ingest.seal(zero, 1)
    ingest.append(p0=2)
    lance.dataset(settings.table.uri).update_config({"a": "version"})
    version = TableVersion(lance.dataset(settings.table.uri).version)
    in_force = InForce(version, "m", {zero: Watermark(Generation(1), Position(6))})
    Watermarks(ingest.store, ingest.table, contract.making).record(in_force, version, "merge")
    found = only(settings, 0)
    assert (found.merged, found.merged_generation, found.unmerged_rows, found.durable) == (6, 1, 2, 9)
    assert found.generations == {"open": 1, "sealed": 1}


def test_a_region_whose_generations_lie_in_two_logs(kafka: KafkaBroker, settings: Settings, contract: Contract) -> None:
    """Region 0: generation 1 SEALED in the first log, 2 OPEN in the second.  Region 1: OPEN in the first; 2: in the second."""
    fill(kafka, contract, p0=20, p1=4, p2=5)
    zero, one, two = contract.regions
    died, ingest = (Ingest(Path(settings.table.uri), contract, owner) for owner in ("host-a", "host-b"))
    died.claim(zero, 0)
    died.claim(one, 0)
    died.append(p0=4, p1=3)  # positions 5 and 4
    died.append(p0=2)  # position 8
    ingest.claim(two, 0)
    ingest.append(p2=1)  # position 2: region 0 begins behind the log's first segment
    ingest.take_over(zero, died, 1)
    taken = only(settings, 0)
    assert (taken.durable, taken.unmerged_rows) == (8, 6)
    first_bytes = taken.unmerged_bytes
    ingest.append(p0=6, p2=2)  # positions 15 and 5
    status = status_of(settings, settings.table.uri)
    assert status.problems == ()
    found = status.partitions[0]
    assert found.unmerged_bytes > first_bytes > 0
    assert figures(found) == ("host-b", 20, 20, 15, None, None, None, 5, {"open": 1, "sealed": 1}, 4 + 2 + 6)
    assert [(it.owner, it.durable, it.unmerged_rows) for it in status.partitions[1:]] == [
        ("host-a", 4, 3),
        ("host-b", 5, 3),
    ]


def test_a_long_log_is_walked_to_its_tail(settings: Settings, contract: Contract) -> None:
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(contract.regions[0], 0)
    for _ in range(37):
        ingest.append(p0=1)
    found = only(settings, 0)
    assert (found.durable, found.unmerged_rows) == (74, 37)


# -- when something is missing ---------------------------------------------------------------------------------


def test_without_brokers_all_but_the_lag_is_there(settings: Settings, contract: Contract) -> None:
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(contract.regions[0], 0)
    ingest.append(p0=3)
    silent = settings.model_copy(update={"kafka": KafkaSettings(bootstrap_servers="127.0.0.1:1")})
    status = table_status(silent, settings.table.uri, kafka_timeout_s=1.0)
    assert (status.partitions[0].durable, status.partitions[0].lag, status.partitions[0].end) == (4, None, None)
    (problem,) = status.problems
    assert problem.startswith("kafka_unavailable: Kafka at 127.0.0.1:1")
    assert (status.diagnosis.step, status.diagnosis.kind) == ("kafka", "kafka_unavailable")
    assert status.diagnosis.message.startswith("Kafka at 127.0.0.1:1")  # its kind stands before it
    blind = table_status(Settings(), settings.table.uri)
    assert (blind.problems, blind.unknown[0], blind.group_members) == ((), NO_BROKERS, None)
    assert (blind.partitions[0].durable, blind.partitions[0].high) == (4, None)
    assert stops(blind)[0] == "flushed: seal_limits"


def test_a_topic_that_is_another_one(kafka: KafkaBroker, settings: Settings, contract: Contract) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 2})
    admin.delete_topics([contract.topic])[contract.topic].result(30)
    # A broker may go on describing for a moment what its controller has deleted.
    until(lambda: any(p.startswith("topic_missing: ") for p in status_of(settings, settings.table.uri).problems))
    make_topic(kafka.bootstrap_servers, contract.topic)
    status = status_of(settings, settings.table.uri)
    assert "deleted and recreated" in status.problems[0]
    assert (status.diagnosis.step, status.diagnosis.kind) == ("kafka", "topic_replaced")


def test_pauses_are_shown_while_they_hold(settings: Settings, contract: Contract) -> None:
    store = open_store(settings.table.uri)
    long_ago = ManualClock()
    assert status_of(settings, settings.table.uri).paused == {}
    pause(store, long_ago, new_id, control.Service.FLUSHER, contract.making, 60.0)
    pause(store, SystemClock(), new_id, control.Service.INGEST, contract.making)
    status = status_of(settings, settings.table.uri)
    assert status.paused == {"ingest": "resumed"}
    assert "\npaused    ingest until resumed\n" in status_text(status)
    pause(store, ManualClock(epoch_ms=4_000_000_000_000), new_id, control.Service.FLUSHER, contract.making, 60.0)
    status = status_of(settings, settings.table.uri)
    assert status.paused == {"ingest": "resumed", "flusher": 4_000_000_060_000}
    assert "\npaused    flusher until 2096-10-02T07:07:40Z\n" in status_text(status)


def test_a_restored_and_a_replaced_table(settings: Settings, contract: Contract) -> None:
    dataset = lance.dataset(settings.table.uri)
    dataset.update_config({"lancewal.table_uuid": "another"})
    lance.dataset(settings.table.uri, version=2).restore()  # type: ignore[no-untyped-call] # no annotations there
    status = status_of(settings, settings.table.uri)
    assert [problem.split(":")[0] for problem in status.problems] == ["table_restored"]
    assert status.partitions[0].merged_generation is None
    lance.dataset(settings.table.uri).update_config({"lancewal.table_uuid": "another"})
    problems = status_of(settings, settings.table.uri).problems
    assert "another" in problems[0]
    assert contract.table_uuid in problems[0]


def test_columns_of_other_programs(settings: Settings, contract: Contract) -> None:
    uri = settings.table.uri
    assert "of other programs" not in status_text(status_of(settings, uri))
    lance.dataset(uri).add_columns(pa.schema([("heat", pa.float32()), ("a=b", pa.int8())]))
    status = status_of(settings, uri)
    assert (status.foreign_columns, status.problems) == (("heat", "a=b"), ())
    way = "`lancewal table alter --adopt-column heat --adopt-column '\"a=b\"'`\n"
    assert (
        f"\ncolumns   of other programs: heat, a=b. To take them into the contract, so that records may set them: {way}"
        in (status_text(status))
    )
    lance.dataset(uri).add_columns({"stops": "7"})
    status = status_of(settings, uri)
    assert status.foreign_columns == ()
    (problem,) = status.problems
    for said in ("'stops' is not in the contract and not nullable", '"nullable": True', "--adopt-column '*'"):
        assert said in problem
    dataset: Any = lance.dataset(uri)
    dataset.alter_columns({"path": "stops", "nullable": True})
    alter_columns(settings, [Adopted(())])
    status = status_of(settings, uri)
    assert (status.foreign_columns, status.problems) == ((), ())


def test_a_corrupt_index_hides_no_other_region(settings: Settings, contract: Contract) -> None:
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    for region in contract.regions[:2]:
        ingest.claim(region, 0)
    flip_record(min((Path(settings.table.uri) / "_lancewal").glob("made/*/pages/*/*/00000/*.binpb")), 0)
    status = status_of(settings, settings.table.uri)
    assert status.problems[0].startswith("object_corrupt: ")
    assert [it.owner for it in status.partitions] == [None, "host-a", None]


def test_tables_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(TableMissing):
        table_status(Settings(), str(tmp_path / "no"))
    lance.write_dataset(pa.table({"a": [1]}), str(tmp_path / "plain"))
    with pytest.raises(NotALancewalTable, match="table attach"):
        table_status(Settings(), str(tmp_path / "plain"))


def test_settings_that_contradict_the_contract_are_problems(settings: Settings, contract: Contract) -> None:
    table = settings.table.model_copy(update={"grace_s": 1, "history_window_s": 2})
    (problem,) = status_of(settings.model_copy(update={"table": table}), settings.table.uri).problems
    assert problem.startswith("contract_mismatch: ")
    assert "table.grace_s" in problem
    assert "table.history_window_s" in problem
    elsewhere = settings.model_copy(update={"table": table.model_copy(update={"uri": "/another"})})
    assert status_of(elsewhere, settings.table.uri).problems == ()


@pytest.mark.parametrize(("first", "count"), [(1, 1), (1, 2), (4, 4), (1, 7)])
def test_lost_segments_are_named_and_end_no_log(
    kafka: KafkaBroker, settings: Settings, contract: Contract, first: int, count: int
) -> None:
    fill(kafka, contract, p0=99)
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(contract.regions[0], 0)
    for _ in range(9):
        ingest.append(p0=1)
    lost = [paths.wal_segment(ingest.log.log, Sequence(first + n)) for n in range(count)]
    ingest.store.delete(lost)
    status = status_of(settings, settings.table.uri)
    (problem,) = status.problems
    assert problem.startswith(f"object_missing: {lost[0]} is missing")
    assert "lancewal repair segment" in problem
    found = status.partitions[0]
    assert (found.durable, found.lag, found.unmerged_rows) == (None, None, first)


def test_a_lost_segment_that_a_sealed_generation_needs(
    kafka: KafkaBroker, settings: Settings, contract: Contract
) -> None:
    """It is the last of its log, so no later one tells: the generation's end does."""
    fill(kafka, contract, p0=99)
    zero = contract.regions[0]
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(zero, 0)
    ingest.append(p0=3)
    ingest.append(p0=3)
    ingest.seal(zero, 1, hand_over=True)
    lost = paths.wal_segment(ingest.log.log, Sequence(1))
    ingest.store.delete([lost])
    status = status_of(settings, settings.table.uri)
    (problem,) = status.problems
    assert problem.startswith(f"object_missing: {lost} is missing")
    assert (status.partitions[0].durable, status.partitions[0].unmerged_rows) == (8, 3)


def test_what_lies_before_a_lost_segment_is_looked_at(settings: Settings, contract: Contract) -> None:
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(contract.regions[0], 0)
    for _ in range(3):
        ingest.append(p0=3)
    damaged, lost, _ = (paths.wal_segment(ingest.log.log, Sequence(number)) for number in range(3))
    file = Path(settings.table.uri) / damaged
    data = file.read_bytes()
    trailer = decode_trailer(data, damaged, len(data))
    assert isinstance(trailer, Trailer)
    at = trailer.batches[0].section.start + trailer.batches[0].section.length - 1
    file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    ingest.store.delete([lost])
    problems = table_status(Settings(), settings.table.uri).problems
    assert sorted(problem.split(" ")[:2] for problem in problems) == [
        ["object_corrupt:", damaged],
        ["object_missing:", lost],
    ]
    assert any(f"run `lancewal repair segment {damaged}`" in problem for problem in problems)


def test_data_files_are_nothing_to_a_part_without_rows(settings: Settings, contract: Contract) -> None:
    """They are lost, and so is the log of the part that has a delete alone: the rows of the other its log has."""
    folder = Path(settings.table.uri)
    flushable, ingests = [], [Ingest(folder, contract, owner) for owner in ("host-a", "host-b")]
    for region, count, ingest in zip(contract.regions, (5, 1), ingests, strict=False):
        ingest.claim(region, 0)
        ingest.append(**{f"p{region.partition}": count})
        ingest.seal(region, 1, hand_over=True)
        (record,) = ingest.states.read([region])[region].generations
        content = Content(fold(ingest.batches[region], contract.rows))
        flushable.append(Flushable(region, record, content))
    found = flush_generations(ingests[0].opened, flushable, new_id)
    assert [(s.rows, s.parts) for s in found if isinstance(s, FlushedGeneration)] == [(4, 2), (0, 2)]
    for file in (folder / "data").glob("*.lance"):
        file.unlink()
    ingests[1].store.delete([paths.wal_segment(ingests[1].log.log, Sequence(0))])
    assert table_status(Settings(), settings.table.uri).problems == ()


def test_since_when_a_generation_is_sealed_its_record_tells(settings: Settings, contract: Contract) -> None:
    """Not its page, which changes later."""
    zero = contract.regions[0]
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(zero, 0)
    ingest.append(p0=5)
    ingest.clock = Later(-10_000)
    ingest.seal(zero, 1)

    def changed(state: RegionState | None, **of_record: Any) -> RegionState:
        assert state is not None
        first, *others = state.generations
        return replace(state, generations=(replace(first, **of_record), *others), write_id=new_id())

    def unmerged_s() -> float | None:
        return table_status(Settings(), settings.table.uri).partitions[0].unmerged_s

    ingest.states.swap({zero: changed})
    sealed_s = unmerged_s()
    assert sealed_s is not None
    assert sealed_s >= 10_000
    ingest.states.swap({zero: partial(changed, sealed_at_ms=None)})
    assert unmerged_s() is None


# -- partitions that go no further -----------------------------------------------------------------------------


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody is in ingest's group."""
    from lancewal_kafka.topic import GroupMember, TopicInspector

    monkeypatch.setattr(TopicInspector, "members", lambda *_: (GroupMember("host-a", "127.0.0.1"),))


def test_why_the_members_of_the_group_are_not_known(
    settings: Settings, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the brokers' own words: no coordinator yet is no lack of rights."""
    from lancewal_kafka.topic import TopicInspector

    def silent(*_: object) -> None:
        raise KafkaUnavailable(f"no coordinator for the group of {contract.topic}", topic=contract.topic)

    monkeypatch.setattr(TopicInspector, "members", silent)
    status = status_of(settings, settings.table.uri)
    assert status.group_members is None
    assert f"whether ingest runs: no coordinator for the group of {contract.topic}" in status.unknown


class Later(SystemClock):
    """The machine's clock, as it will be."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now_ms(self) -> int:
        return super().now_ms() + int(self._seconds * 1000)


def later() -> Later:
    """As it will be behind ``STANDS_S``."""
    return Later(90)


@pytest.mark.usefixtures("member")
def test_a_partition_that_stands_is_a_problem(kafka: KafkaBroker, settings: Settings, contract: Contract) -> None:
    fill(kafka, contract, p0=9, p1=4)
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    for region in contract.regions[:2]:
        ingest.claim(region, 0)
    ingest.append(p0=5, p1=3)  # positions 6 and 4: partition 1 is at the end
    fresh = status_of(settings, settings.table.uri)
    assert (fresh.problems, fresh.diagnosis.kind) == ((), "seal_limits")
    status = status_of(settings, settings.table.uri, clock=later())
    (problem,) = status.problems
    assert "partition 0: is stalled at position 6 since 20" in problem
    assert "records up to position 9 wait. The partition has stopped, or no ingest has it" in problem
    assert stops(status) == ["consumed: stands", "flushed: seal_limits", "kafka: nothing_produced"]
    pause(ingest.store, SystemClock(), new_id, control.Service.INGEST, contract.making)
    paused = status_of(settings, settings.table.uri, clock=later())
    assert (paused.problems, paused.diagnosis.kind, paused.diagnosis.state) == ((), "ingest_paused", "waits")


def test_without_a_member_no_ingest_is_the_reason(kafka: KafkaBroker, settings: Settings, contract: Contract) -> None:
    fill(kafka, contract, p0=9, p1=4, p2=1)
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    for region in contract.regions[:2]:
        ingest.claim(region, 0)
    ingest.append(p0=5, p1=3)
    fresh = status_of(settings, settings.table.uri)
    assert fresh.group_members == 0
    assert (fresh.problems, fresh.diagnosis.kind) == ((), "no_ingest")
    status = status_of(settings, settings.table.uri, clock=later())
    assert stops(status) == ["consumed: no_ingest", "flushed: abandoned", "consumed: no_ingest"]
    assert len(status.problems) == 3


@pytest.mark.usefixtures("member")
def test_a_key_that_belongs_elsewhere_is_named(kafka: KafkaBroker, settings: Settings, contract: Contract) -> None:
    key = b"some key"
    right = partition_of(key, contract.partitions)
    wrong = (right + 1) % contract.partitions
    fill(kafka, contract, **{f"p{wrong}": 5})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in (right, wrong):
        producer.produce(contract.topic, b"{}", key=key, partition=partition)
    assert producer.flush(30) == 0
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    for partition in (right, wrong):
        ingest.claim(contract.regions[partition], 0)
    ingest.append(**{f"p{wrong}": 4})  # position 5
    status = status_of(settings, settings.table.uri, clock=later())
    found = {found.partition: found.diagnosis for found in status.partitions}
    assert (found[wrong].step, found[wrong].kind) == ("decoded", "misrouted")
    assert f"belongs to partition {right}" in found[wrong].message
    assert f"`lancewal offset reject {contract.topic}-{wrong}-5`" in found[wrong].do
    assert found[right].kind == "stands"


@pytest.mark.usefixtures("member")
def test_a_misrouted_record_is_named_at_once_with_its_cause(
    kafka: KafkaBroker, settings: Settings, contract: Contract
) -> None:
    """All partitions have such a record next, of now; which of key and partition is wrong follows from its row."""
    mine = {partition_of(name.encode(), 3): name for name in ("a", "b", "c", "d", "e", "f")}
    wrong_key = next(k for k in (b"k%d" % i for i in range(99)) if partition_of(k, 3) == 1)
    row = {p: json.dumps({"region": mine[p], "id": 1}).encode() for p in mine}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(contract.topic, row[1], key=mine[1].encode(), partition=0)
    producer.produce(contract.topic, row[0], key=wrong_key, partition=1)
    producer.produce(contract.topic, row[1], partition=2)
    assert producer.flush(30) == 0
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    for region in contract.regions:
        ingest.claim(region, 0)
    status = status_of(settings, settings.table.uri)
    assert stops(status) == ["decoded: misrouted"] * 3
    causes = [found.diagnosis.message.split(": the record there ")[1] for found in status.partitions]
    assert causes[0].startswith("belongs to partition 1. The record's key is right, its partition is not")
    assert causes[1].startswith("belongs to partition 0. The bytes of its key are wrong")
    assert causes[2].startswith("belongs to partition 1. The record has no key")
    assert all("`lancewal table alter --on misrouted=dead-letter`" in found.diagnosis.do for found in status.partitions)
    # A record that belongs where it is, whatever its key says, is one that ingest is about to take.
    ingest.append(p0=0)
    producer.produce(contract.topic, row[0], key=wrong_key, partition=0)
    assert producer.flush(30) == 0
    assert stops(status_of(settings, settings.table.uri))[0] == "consumed: moving"
    # Once the contract lets such records pass, none stops a partition.
    passing = contract.model_copy(update={"on_misrouted": "dead-letter", "version": contract.version + 1})
    put_next(open_store(settings.table.uri), SystemClock(), contract, passing)
    assert "misrouted" not in "".join(stops(status_of(settings, settings.table.uri)))


@pytest.mark.usefixtures("member")
def test_a_partition_that_its_first_bad_records_stop_is_not_called_misrouted(
    kafka: KafkaBroker, settings: Settings, contract: Contract
) -> None:
    """The hundredth record of each partition belongs elsewhere by its row.  Ingest stops partition 0 for its bad records, and
    says so; the others have had bad records of two kinds, or a row."""
    mine = {partition_of(name.encode(), 3): name for name in ("a", "b", "c", "d", "e", "f")}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in range(3):
        for _ in range(99):
            producer.produce(contract.topic, b"{}", key=mine[partition].encode(), partition=partition)
        row = json.dumps({"region": mine[(partition + 1) % 3], "id": 1}).encode()
        producer.produce(contract.topic, row, key=mine[partition].encode(), partition=partition)
    assert producer.flush(30) == 0
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    for region in contract.regions:
        ingest.claim(region, 0)
    one = dict.fromkeys(range(99), "unknown_column")
    ingest.reject(0, one, next_=99)
    ingest.reject(1, {**one, 5: "type"}, next_=99)
    ingest.reject(2, {o: kind for o, kind in one.items() if o < 97}, next_=97)
    ingest.append(p2=1)  # and a marker behind it
    clock = later()
    found = stops(status_of(settings, settings.table.uri, clock=clock))
    assert found[1:] == ["decoded: misrouted"] * 2
    assert found[0] == "consumed: stands"
    assert stops(status_of(settings, settings.table.uri))[0] != "decoded: misrouted"
    # Once bad records of any kind pass, ingest judges the record by its partition.
    passing = contract.model_copy(update={"on_wrong_format": "dead-letter", "version": contract.version + 1})
    put_next(open_store(settings.table.uri), SystemClock(), contract, passing)
    assert stops(status_of(settings, settings.table.uri, clock=clock))[0] == "decoded: misrouted"


def test_rejected_records_are_counted_and_the_commonest_reason_is_named(
    kafka: KafkaBroker, settings: Settings, contract: Contract
) -> None:
    fill(kafka, contract, p0=6, p1=2)
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    for region in contract.regions[:2]:
        ingest.claim(region, 0)
    ingest.reject(0, {0: "type", 1: "not_json", 4: "not_json", 5: "not_json"}, next_=6)
    ingest.append(p1=1)
    status = status_of(settings, settings.table.uri)
    assert stops(status)[:2] == ["decoded: all_rejected", "flushed: seal_limits"]
    assert (
        f"4 records became a row; the most frequent reason is not_json, as at {contract.topic}-0-5"
        in status.problems[0]
    )
    assert "rejected: partition 0: 4 of the newest 4 records, most often not_json, as at offset 5" in status_text(
        status
    )
    # Also once the generation has ended, and nothing of it waits.
    ingest.seal(contract.regions[0], 1)
    ingest.flush(contract.regions[0], 1)
    assert stops(status_of(settings, settings.table.uri))[0] == "decoded: all_rejected"
    assert status_of(settings, settings.table.uri).partitions[0].rejections.rows == 0
    # What became of records counts by the policy of now.
    ignoring = contract.model_copy(update={"on_bad_record": "ignore", "version": contract.version + 1})
    put_next(open_store(settings.table.uri), SystemClock(), contract, ignoring)
    assert stops(status_of(settings, settings.table.uri))[0] != "decoded: all_rejected"
    ingest.append(p0=1)
    assert status_of(settings, settings.table.uri).partitions[0].rejections.records == 0  # the newest ones are good


def test_what_is_flushed_and_not_merged(settings: Settings, contract: Contract) -> None:
    zero = contract.regions[0]
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(zero, 0)
    ingest.append(p0=5)
    ingest.seal(zero, 1, hand_over=True)
    blind = Settings()
    assert stops(table_status(blind, settings.table.uri))[0] == "flushed: flush_under_way"
    assert stops(table_status(blind, settings.table.uri, clock=Later(200)))[0] == "flushed: not_flushed"
    ingest.flush(zero, 1)
    assert stops(table_status(blind, settings.table.uri))[0] == "merged: merge_due"
    status = table_status(blind, settings.table.uri, clock=Later(200))
    assert stops(status)[0] == "merged: no_flusher"
    assert status.partitions[0].flushed == 6
    pause(ingest.store, SystemClock(), new_id, control.Service.FLUSHER, making=contract.making)
    assert stops(table_status(blind, settings.table.uri, clock=Later(200)))[0] == "merged: flusher_paused"


def test_a_generation_without_rows_holds_up_nothing(settings: Settings, contract: Contract) -> None:
    """An orderly stop of both services leaves one of each partition: sealed or flushed, and merged by nobody."""
    zero, one = contract.regions[:2]
    ingest, blind = Ingest(Path(settings.table.uri), contract, "host-a"), Settings()
    look = partial(table_status, blind, settings.table.uri, clock=Later(200))
    for region in (zero, one):
        ingest.claim(region, 0)
    ingest.reject(1, {0: "not_json", 1: "not_json"}, next_=2)  # positions, and no row
    ingest.append(p1=0)  # a marker of a transaction
    for region in (zero, one):
        ingest.seal(region, 1)
    ends = [found.diagnosis for found in look().partitions[:2]]
    assert [(found.kind, found.state) for found in ends] == [("caught_up", "idle"), ("all_rejected", "problem")]
    for region in (zero, one):
        ingest.flush(region, 1)
    ends = [found.diagnosis for found in look().partitions[:2]]
    assert [(found.kind, found.state) for found in ends] == [("caught_up", "idle"), ("all_rejected", "problem")]
    # It hides none with rows behind it, whose own age counts.
    ingest.append(p0=5)
    ingest.seal(zero, 2)
    assert (found := look().partitions[0].diagnosis).kind == "not_flushed"
    assert found.message.startswith("generation 2 is sealed since ")
    ingest.flush(zero, 2)
    assert (found := look().partitions[0].diagnosis).kind == "no_flusher"
    assert found.message.startswith("generation 2 is flushed since ")


def test_a_memtable_that_is_not_sealed_in_time(settings: Settings, contract: Contract) -> None:
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(contract.regions[0], 0)
    ingest.append(p0=5)
    age_s = Settings().ingest.seal_age_s
    assert stops(table_status(Settings(), settings.table.uri, clock=Later(age_s)))[0] == "flushed: seal_limits"
    overdue = Later(age_s + STANDS_S + 1)
    assert stops(table_status(Settings(), settings.table.uri, clock=overdue))[0] == "flushed: seal_overdue"


def test_a_reader_that_has_an_older_version_open(settings: Settings, contract: Contract) -> None:
    zero = contract.regions[0]
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(zero, 0)
    ingest.append(p0=5)
    ingest.seal(zero, 1)
    before = lance.dataset(settings.table.uri).version
    lance.dataset(settings.table.uri).update_config({"a": "version"})
    version = TableVersion(lance.dataset(settings.table.uri).version)
    in_force = InForce(version, "m", {zero: Watermark(Generation(1), Position(6))})
    Watermarks(ingest.store, ingest.table, contract.making).record(in_force, version, "merge")
    assert stops(table_status(Settings(), settings.table.uri, reader_version=version))[0] == "read: caught_up"
    status = table_status(Settings(), settings.table.uri, reader_version=before)
    assert stops(status)[0] == "read: reader_behind"
    assert (status.partitions[0].read, status.partitions[0].merged) == (None, 6)
    assert f"version {before} open, which holds the partition up to position 0" in status.problems[0]
    with pytest.raises(InvalidInput, match=f"there is no table version {version + 1} yet, the newest is {version}"):
        table_status(Settings(), settings.table.uri, reader_version=version + 1)


def test_kafka_has_nothing_for_the_table(kafka: KafkaBroker, settings: Settings, contract: Contract) -> None:
    """Deleted before anything was claimed, and before the start that the table has."""
    fill(kafka, contract, p0=5, p1=5)
    delete_records(kafka.bootstrap_servers, contract.topic, {0: 5, 1: 3})
    status = status_of(settings, settings.table.uri)
    assert stops(status) == ["kafka: retention_passed", "consumed: no_ingest", "kafka: nothing_produced"]
    assert status.problems == ()
    assert "`lancewal table load`" in status.partitions[0].diagnosis.do
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(contract.regions[1], 5)
    assert stops(status_of(settings, settings.table.uri))[1] == "kafka: starts_behind"


@pytest.mark.usefixtures("member")
def test_an_open_transaction_is_lag_and_is_named(kafka: KafkaBroker, settings: Settings, contract: Contract) -> None:
    fill(kafka, contract, p0=6)
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(contract.regions[0], 0)
    ingest.append(p0=5)  # position 6: all that can be read
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": contract.topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(contract.topic, b"{}", partition=0)
    producer.flush(60)
    fill(kafka, contract, p0=4)  # of another producer, behind it
    status = status_of(settings, settings.table.uri, clock=later())
    (problem,) = status.problems
    assert "partition 0: is stalled at position 6" in problem
    assert "records up to position 13 wait. A transaction is open from position 6 on" in problem
    found = status.partitions[0]
    assert (found.end, found.high, found.lag, found.diagnosis.kind) == (6, 13, 7, "open_transaction")
    producer.abort_transaction(60)
    # Its marker is written behind the answer.
    until(lambda: stops(status_of(settings, settings.table.uri, clock=later()))[0] == "consumed: stands")
    assert status_of(settings, settings.table.uri, clock=later()).partitions[0].lag == 8  # the marker too


@pytest.mark.usefixtures("member")
def test_an_owner_that_writes_for_others_has_stopped_it(
    kafka: KafkaBroker, settings: Settings, contract: Contract
) -> None:
    now_ms = SystemClock().now_ms()
    fill(kafka, contract, now_ms, p0=9, p1=9)
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    for region in contract.regions[:2]:
        ingest.claim(region, 0)
    ingest.append(p0=5)
    ingest.log._clock = later()
    ingest.append(p1=5)
    (problem,) = status_of(settings, settings.table.uri, clock=later()).problems
    assert "partition 0: is stalled at position 6" in problem
    assert "The owner writes for other partitions, so this one has stopped" in problem
    ingest.append(p0=1)
    assert status_of(settings, settings.table.uri, clock=later()).problems == ()


def test_records_that_kafka_no_longer_has(kafka: KafkaBroker, settings: Settings, contract: Contract) -> None:
    fill(kafka, contract, p0=20)
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(contract.regions[0], 0)
    ingest.claim(contract.regions[1], 7)
    ingest.append(p0=5)
    delete_records(kafka.bootstrap_servers, contract.topic, {0: 12})
    status = status_of(settings, settings.table.uri)
    assert stops(status) == ["kafka: retention_lost", "kafka: topic_truncated", "kafka: nothing_produced"]
    assert "partition 0: durable up to position 6, but Kafka begins at 12: offsets 6 to 11" in status.problems[0]
    assert "partition 1: durable up to position 7, but Kafka ends at 0" in status.problems[1]


# -- the command -----------------------------------------------------------------------------------------------


def test_the_command_gives_json_and_aligned_text(kafka: KafkaBroker, settings: Settings, contract: Contract) -> None:
    import typer

    from lancewal_tables.commands.status import command

    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    fill(kafka, contract, p0=1_004)
    ingest.claim(contract.regions[0], 1_000)
    ingest.append(p0=3)
    app = typer.Typer()
    app.command()(with_options(command))
    environ = {"LANCEWAL_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers}
    done = CliRunner().invoke(app, ["-t", settings.table.uri, "-o", "json"], env=environ)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["partitions"][0]["durable"] == 1_004
    text = CliRunner().invoke(app, ["-t", settings.table.uri], env=environ).stdout
    assert text.strip() == status_text(status_of(settings, settings.table.uri)).strip()
    assert CliRunner().invoke(app, ["-t", settings.table.uri], env=environ).stderr == ""
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("partition"))
    title, first = lines[at], lines[at + 1]
    assert first[: title.index("durable") + len("durable")].endswith(" 1004")
    assert first[title.index("owner") :] == "host-a"
    assert first[title.index("generations") :].startswith("1 open")


def test_exit_code_1_of_a_few_bad_records_behind_many_good_ones_says_what_it_is_for(
    settings: Settings, contract: Contract, capsys: pytest.CaptureFixture[str]
) -> None:
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    zero = contract.regions[0]
    ingest.claim(zero, 0)
    ingest.append(p0=1_000)
    ingest.seal(zero, 1)
    ingest.flush(zero, 1)
    ingest.reject(0, {1_001: "type", 1_002: "type"}, next_=1_003)

    def asked(*arguments: str) -> tuple[int, str, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("LANCEWAL_KAFKA__BOOTSTRAP_SERVERS", raising=False)
            code = run(["status", *arguments, "-t", settings.table.uri])
        said = capsys.readouterr()
        return code, said.out, said.err

    code, text, said = asked()
    assert code == 1
    assert "none of the newest 2 records became a row" in text
    assert "Earlier records may have become rows" in text
    assert "The problem is over once a newer record becomes a row" in text
    assert said == "exit code 1, for the problem above: it wants a person\n"
    code, text, said = asked("-o", "json")
    assert (code, len(json.loads(text)["problems"]), said) == (1, 1, "")
    ingest.append(p0=1)
    assert asked()[::2] == (0, "")


def test_the_command_shows_and_judges_the_partitions_that_are_named(
    kafka: KafkaBroker, settings: Settings, contract: Contract, capsys: pytest.CaptureFixture[str]
) -> None:
    """Partition 0 lacks records that Kafka has deleted; 1 and 2 never had one."""
    fill(kafka, contract, p0=20)
    ingest = Ingest(Path(settings.table.uri), contract, "host-a")
    ingest.claim(contract.regions[0], 0)
    ingest.append(p0=5)
    delete_records(kafka.bootstrap_servers, contract.topic, {0: 12})
    place = ("-t", settings.table.uri)

    def asked(*arguments: str) -> tuple[int, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LANCEWAL_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
            return run(["status", *arguments, *place]), capsys.readouterr().out

    code, text = asked("2", f"{contract.topic}-1", "1")
    assert (code, "problem" in text) == (0, False)
    assert f"topic     {contract.topic} ({contract.topic_id}), 2 of 3 partitions" in text
    assert [line.split()[0] for line in text.splitlines() if line.strip()[:1].isdigit()] == ["1", "2"]
    assert "Topic" not in text  # that it never had a record would be said of all partitions
    code, found = asked("0", "-o", "json")
    assert (code, [one["partition"] for one in json.loads(found)["partitions"]]) == (1, [0])
    assert "offsets 6 to 11" in json.loads(found)["problems"][0]
    code, found = asked("1", "-o", "json")
    assert (code, json.loads(found)["problems"], json.loads(found)["topic_partitions"]) == (0, [], 3)
    assert json.loads(found)["diagnosis"] == json.loads(found)["partitions"][0]["diagnosis"]
    for wrong in ("3", "other-1", "one"):
        assert asked(wrong) == (2, "")
    # What strong reads need, they need of every partition.
    key = paths.wal_segment(ingest.log.log, Sequence(0))
    (Path(settings.table.uri) / key).write_bytes(b"no segment")
    code, found = asked("1", "-o", "json")
    assert code == 1
    assert key in json.loads(found)["problems"][0]
