"""One simulated deployment: a topic, a store, a table, and the processes around them, all under one scheduler.

A *process* is a group of actors with clients, a clock and random ids of its own; it calls lancewal's own modules.  What
it knows dies with it; the topic, the bucket and the data set stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import pyarrow as pa

from lancewal_core import paths
from lancewal_core.contract import Column, Contract, encode_contract
from lancewal_core.errors import KafkaUnavailable, Refresh, Retry
from lancewal_core.ids import OwnerId, Region
from lancewal_core.murmur2 import partition_of
from lancewal_core.region_index import GenerationRecord
from lancewal_core.region_key import encode_region_key
from lancewal_core.regions import RegionIndexes
from lancewal_core.segment import Entry
from lancewal_core.tasks import Tasks
from lancewal_core.testing.faults import Faultless, Faults, RandomFaults, Rates
from lancewal_core.testing.memory_store import MemoryBucket, MemoryStore
from lancewal_core.testing.memory_table import MemoryDataset, MemoryTable
from lancewal_core.testing.scheduler import Scheduler
from lancewal_core.testing.sim_clock import EPOCH_MS, SimClock
from lancewal_core.testing.sim_tasks import SimTasks
from lancewal_core.watermarks import TABLE_UUID, Watermarks
from lancewal_ingest.append import Preparer
from lancewal_ingest.context import IngestContext
from lancewal_ingest.decode.records import Records, Rejected
from lancewal_ingest.observer import SilentObserver
from lancewal_ingest.policy import MemoryPolicy, SealPolicy
from lancewal_ingest.worker import IngestWorker, WorkerLimits
from lancewal_reader.receipt import Receipt
from tests.simulation import oracle
from tests.simulation.checker import Checker, require
from tests.simulation.memory_kafka import MemoryGroup, MemorySource, MemoryTopic

USER_KEYS = 1_000
"""Keys from here on are a user's, who appends them to the table by hand."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Size of a world."""

    partitions: int = 3
    keys: int = 12
    members: int = 2
    flushers: int = 2
    collectors: int = 1
    compactors: int = 0
    readers: int = 2
    records: int = 120
    """How many the producers send."""
    history_window_s: int = 4
    grace_s: int = 2
    chaos: bool = True
    user: bool = True
    lose_files: bool = False
    """The user also removes data files of unmerged snapshots."""
    rates: Rates = field(default_factory=Rates)
    stay: float | None = None
    """None: drawn."""
    misrouted: Literal["stop", "dlq"] = "stop"


@dataclass(frozen=True, slots=True)
class Process:
    """What one process incarnation works with."""

    name: str
    group: str
    store: MemoryStore
    table: MemoryTable
    indexes: RegionIndexes
    watermarks: Watermarks
    tasks: Tasks
    clock: SimClock
    rng: Random
    new_id: Callable[[], str]


class World:
    """Everything of one run.  ``seed`` and ``settings`` decide it completely."""

    def __init__(self, seed: int, settings: Settings | None = None, scheduler: Scheduler | None = None) -> None:
        self.seed = seed
        self.settings = settings or Settings()
        self.rng = Random(f"{seed}/world")
        stay = self.settings.stay
        if stay is None:
            stay = self.rng.choice([0.0, 0.5, 0.8, 0.95])
        self.scheduler = scheduler or Scheduler(str(seed), stay=stay)
        self.topic = MemoryTopic("orders", "topic-id-1", self.settings.partitions)
        self.acknowledged: dict[int, int] = {}
        """Highest durable position that a member reported, by partition."""
        self.group = MemoryGroup(self.settings.partitions, self._check_commit)
        self.bucket = MemoryBucket()
        self.contract = _contract(self.settings)
        self.dataset = MemoryDataset(self.contract.rows.table, {TABLE_UUID: self.contract.table_uuid})
        self.faults = RandomFaults(Random(f"{seed}/faults"), self.settings.rates)
        self.writer_of: dict[str, str] = {}
        self.user_rows: list[tuple[int, int]] = []
        """(table version, key) of what a user appended."""
        self.reads: list[tuple[Receipt, dict[int, oracle.Values]]] = []
        """What readers got, by receipt."""
        self.produced = False
        self.bodies: dict[str, Callable[[World, Process], None]] = {}
        """Main loop of each process group."""
        self.events: list[str] = []
        self.counts: dict[str, int] = {}
        self.incarnation: dict[str, str] = {}
        """Name of the newest process of each group."""
        self._incarnations = 0
        clock = SimClock(self.scheduler)
        store = MemoryStore(clock, self.bucket, Faultless())
        store.put_if_absent(paths.contract_version(1), encode_contract(self.contract))
        table = MemoryTable(self.dataset)
        tasks = SimTasks(self.scheduler, Random(0), 0.0)
        self.checker = Checker(
            store, table, tasks, RegionIndexes(store, clock), self.contract, self.topic, self.writer_of
        )

    # -- processes -----------------------------------------------------------------------------------------------

    def process(self, group: str) -> Process:
        """A fresh incarnation of a process."""
        self._incarnations += 1
        name = f"{group}.{self._incarnations}"
        rng = self.draws(name)
        clock = SimClock(self.scheduler, skew_ms=rng.choice([0, 0, -3000, 3000]))
        switch = self.scheduler.switch
        faults = self.faults_of(group)
        store = MemoryStore(clock, self.bucket, faults, switch)
        table = MemoryTable(self.dataset, faults, switch)
        tasks = self.tasks_of(name)
        ids = Random(f"{self.seed}/{name}/ids")

        def new_id() -> str:
            text = f"{ids.getrandbits(64):016x}"
            self.writer_of[text] = name
            return text

        self.incarnation[group] = name
        return Process(
            name, group, store, table, RegionIndexes(store, clock), Watermarks(store, table), tasks, clock, rng, new_id
        )

    def draws(self, name: str) -> Random:
        """What a process draws from."""
        return Random(f"{self.seed}/{name}")

    def faults_of(self, group: str) -> Faults:
        """What goes wrong for a process."""
        return self.faults

    def tasks_of(self, name: str) -> Tasks:
        """How a process runs what it does beside its main loop."""
        return SimTasks(self.scheduler, Random(f"{self.seed}/{name}/tasks"))

    def worker(
        self, process: Process, bad_records: Literal["dlq", "stop"] = "dlq"
    ) -> tuple[IngestWorker, MemorySource]:
        """An ingest worker with limits so small that everything happens often."""
        faults = self.faults_of(process.group)
        context = IngestContext(
            process.store, process.table, process.indexes, process.watermarks, process.tasks, process.clock,
            self.contract, process.new_id,
        )  # fmt: skip
        source = MemorySource(
            process.name, self.topic, self.group, self.scheduler, process.rng,
            lambda: faults.unavailable("kafka", "broker"),
        )  # fmt: skip
        rng = process.rng
        worker = IngestWorker(
            context,
            source,
            DeadLetters(self, process),
            Preparer(self.contract, bad_records),
            OwnerId(process.name),
            MemberObserver(self),
            SealPolicy(rows=rng.choice([5, 15, 40]), age_s=rng.choice([1.0, 3.0]), log_distance=rng.choice([3, 8])),
            MemoryPolicy(),
            WorkerLimits(linger_s=0.02, idle_position_s=0.2, offset_commit_s=0.5, retry_s=0.1, settle_s=1.0),
        )
        return worker, source

    # -- what processes report -----------------------------------------------------------------------------------

    def note(self, event: str) -> None:
        self.counts[event] = self.counts.get(event, 0) + 1

    def log(self, text: str) -> None:
        self.events.append(f"{self.scheduler.now:9.3f} {self.scheduler.switches:7d} {text}")

    def _check_commit(self, partition: int, position: int) -> None:
        known = self.acknowledged.get(partition, 0)
        require(position <= known, f"partition {partition}: committed", position, "durable is", known)
        before = self.group.committed.get(partition, 0)
        require(position >= before, f"partition {partition}: committed", position, "after", before)

    # -- the topic -----------------------------------------------------------------------------------------------

    def produce(self, rng: Random, k: int) -> None:
        """One record of a key."""
        key = encode_region_key(k)
        partition = partition_of(key, self.settings.partitions)
        now_ms = EPOCH_MS + int(self.scheduler.now * 1000)
        gap = rng.choice([0, 0, 0, 0, 1, 3])
        markers = rng.choice([0, 0, 0, 0, 0, 2])
        self.topic.append(partition, lambda offset: oracle.draw(rng, offset, now_ms, key, k), gap, markers)

    def expected_rows(self, cut: dict[Region, int], version: int) -> dict[int, oracle.Values]:
        """What a read at this cut and table version must return."""
        found: dict[int, oracle.Values] = {}
        for region, position in cut.items():
            found.update(oracle.rows(self.topic.partitions[region.partition].between(0, position)))
        for landed, k in self.user_rows:
            if landed <= version:
                found[k] = {"a": "by hand", "b": k}
        return found

    def user_batch(self, keys: Sequence[int]) -> pa.Table:
        columns = {"k": list(keys), "a": ["by hand"] * len(keys), "b": list(keys)}
        return pa.table(columns, schema=self.contract.rows.table)

    def merged_up_to(self) -> dict[str, int]:
        """Positions that the newest merge covers, by region name."""
        for number in sorted(self.dataset.versions, reverse=True):
            text = self.dataset.versions[number].transaction.properties.get("lancewal.watermarks")
            if text is not None:
                return {name: mark["next"] for name, mark in json.loads(text).items()}
        return {}


class DeadLetters:
    """Dead letters that are acknowledged, or are not."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        self._world.scheduler.switch("dead letters")
        if self._world.faults_of(self._process.group).unavailable("produce", "dead letters"):
            raise KafkaUnavailable("no acknowledgement of a dead letter")
        self._world.checker.rejected.setdefault(region.partition, set()).update(r.offset for r in rejected)


class MemberObserver(SilentObserver):
    """Tells the world what a member holds for durable."""

    def __init__(self, world: World) -> None:
        self._world = world

    def opened(self, region: Region, record: GenerationRecord) -> None:
        self._know(region, record.first)

    def appended(self, entry: Entry) -> None:
        self._know(entry.region, entry.next)

    def _know(self, region: Region, position: int) -> None:
        known = self._world.acknowledged
        known[region.partition] = max(known.get(region.partition, 0), position)

    def failed(self, act: str, cause: object) -> None:
        self._world.note(f"failed {act}: {type(cause).__name__}")


PASSING = (Retry, Refresh)
"""Errors after which a service tries again."""


def _contract(settings: Settings) -> Contract:
    return Contract(
        table_uuid="7e0c9f1e-table",
        topic="orders",
        topic_id="topic-id-1",
        partitions=settings.partitions,
        primary_key=("k",),
        region_key=("k",),
        start=tuple([0] * settings.partitions),
        columns=tuple(Column(name=n, type=t, field_ids=(i,)) for i, (n, t) in enumerate(oracle.COLUMNS.items())),
        history_window_s=settings.history_window_s,
        grace_s=settings.grace_s,
        misrouted=settings.misrouted,
    )
