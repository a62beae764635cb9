"""One simulated deployment: a topic, a store, a table, and the processes that use them, all under one scheduler.

A *process* is a group of actors with its own clients, clock and random ids; it calls lancewal's own modules.  Its
memory is lost when it dies; the topic, the bucket and the data set stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa

from lancewal_core.errors import ContractMismatch, Refresh, Retry
from lancewal_core.names import paths
from lancewal_core.names.ids import Making, Region
from lancewal_core.process.tasks import Tasks
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.states import RegionStates
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.table.contract import Column, Contract, WrittenContracts, encode_contract
from lancewal_core.table.watermarks import PROPERTY_EXPIRY, TABLE_UUID, Watermarks
from lancewal_ingest.registry.registry import Registry
from lancewal_reader.point.receipt import Receipt
from tests.simulation import oracle, swarm
from tests.simulation.by_hand import ByHand
from tests.simulation.checked_catalog import CheckedCatalog
from tests.simulation.checker import Checker, require
from tests.simulation.columns import Columns, names_of
from tests.simulation.delays import Delayed
from tests.simulation.losses import Losses, WithWhatIsLost
from tests.simulation.memory_kafka import MemoryGroup, MemoryTopic
from tests.simulation.settings import EXPIRED_PER_S, Settings
from tests.twins.faults import Faults, RandomFaults
from tests.twins.memory_store import MemoryBucket, MemoryStore
from tests.twins.memory_table import MemoryDataset, MemoryTable
from tests.twins.scheduler import Scheduler
from tests.twins.sim_clock import EPOCH_MS, SimClock
from tests.twins.sim_tasks import SimTasks

if TYPE_CHECKING:
    from tests.simulation.feeds import Feed
    from tests.simulation.keeping import Kept
    from tests.simulation.subscribing import Subscribed

MAX_SKEW_MS = 3000
"""Of a process's clock."""


@dataclass(frozen=True, slots=True)
class Process:
    """What one process incarnation works with."""

    name: str
    group: str
    store: MemoryStore
    table: MemoryTable
    states: RegionStates
    watermarks: Watermarks
    tasks: Tasks
    clock: SimClock
    rng: Random
    new_id: Callable[[], str]

    def opened(self, contract: Contract) -> OpenedTable:
        """What its contexts build on."""
        contracts = WrittenContracts(self.store)
        return OpenedTable(
            self.store, self.table, self.states, self.watermarks, self.tasks, self.clock, contract, contracts
        )


class World:
    """Everything of one run.  ``seed`` and ``settings`` decide it completely."""

    def __init__(self, seed: int, settings: Settings | None = None, scheduler: Scheduler | None = None) -> None:
        self.seed = seed
        asked = settings or Settings()
        self.settings = swarm.drawn(asked, Random(f"{seed}/swarm")) if asked.swarm else asked
        self.rng = Random(f"{seed}/world")
        stay = self.settings.stay
        if stay is None:
            stay = self.rng.choice([0.0, 0.5, 0.8, 0.95])
        self.scheduler = scheduler or Scheduler(str(seed), stay=stay)
        self.topic = self.new_topic()
        self.refused_letters: set[tuple[int, int]] = set()
        """Partitions and offsets of records that the dead-letter topic does not take."""
        self.acknowledged: dict[int, int] = {}
        """Highest durable position that a member reported, by partition."""
        self.durable: list[tuple[int, int, int]] = []
        """When each of these was reported first, in true time; partition and position."""
        self.group = MemoryGroup(self.settings.partitions, self._check_commit)
        self.consumer_group = ""
        """Of members that begin now; empty: nobody compares it with the contract's."""
        self.bucket = MemoryBucket()
        self.losses = Losses(self.bucket)
        self.contract = _contract(self.settings)
        self.registry: Registry | None = None
        """The schema registry of members that begin now; None: values name no schemas."""
        self.dataset = MemoryDataset(self.contract.rows.table, {TABLE_UUID: self.contract.table_uuid})
        self.faults = RandomFaults(Random(f"{seed}/faults"), self.settings.rates)
        self.writer_of: dict[str, str] = {}
        self.by_hand = ByHand()
        self.renamed_by_user = 0
        """How often a user has renamed a column of the contract."""
        self.taken_by_user: set[int] = set()
        """Versions that a user's clean-up has removed."""
        self.restored: int | None = None
        """The version by which a user restored an older one."""
        self.reads: list[tuple[Receipt, dict[int, oracle.Values]]] = []
        """What readers got, by receipt."""
        self.feeds: list[Feed] = []
        """Change feeds between those."""
        self.taken: dict[int, frozenset[int]] = {}
        """Keys of the rows that an expiry or a user's delete took, by its version."""
        self.snapshots: dict[str, Kept] = {}
        """Those that were made, by name."""
        self.catalog = CheckedCatalog()
        """Holds the cuts."""
        self.subscriptions: dict[str, Subscribed] = {}
        """Those that somebody has begun to create, by name."""
        self.produced = False
        self.bodies: dict[str, Callable[[World, Process], None]] = {}
        """Main loop of each process group."""
        self.events: list[str] = []
        self.counts: dict[str, int] = {}
        self.incarnation: dict[str, str] = {}
        """Name of the newest process of each group."""
        self._incarnations = 0
        clock = SimClock(self.scheduler)
        self.dataset.now_ms = clock.now_ms
        self.dataset.clock_error_ms = _error_of_a_committer
        self.dataset.stored_ms[1] = clock.now_ms()
        self.dataset.told.append(self._landed)
        store = WithWhatIsLost(clock, self.bucket, self.losses)
        store.put_if_absent(paths.contract_version(1, None), encode_contract(self.contract))
        table = MemoryTable(self.dataset)
        tasks = SimTasks(self.scheduler, Random(0), 0.0)
        self.checker = Checker(
            OpenedTable.over(store, table, self.contract, tasks, clock), table, self.topic, self.writer_of
        )
        self.columns: Columns | None = None
        """Where columns change."""
        if self.settings.changers:
            self.columns = self.checker.columns = Columns(self.dataset, self.topic, {1: self.contract})
            self.bucket.told.append(self._stored)

    def _stored(self, key: str, data: bytes) -> None:
        assert self.columns is not None
        contract = self.columns.stored(key, data, EPOCH_MS + int(self.scheduler.now * 1000))
        if contract is not None:
            self.contract = contract
            self.checker.follow(contract)

    # -- processes -----------------------------------------------------------------------------------------------

    def process(self, group: str) -> Process:
        """A fresh incarnation of a process."""
        self._incarnations += 1
        name = f"{group}.{self._incarnations}"
        rng = self.draws(name)
        clock = SimClock(self.scheduler, skew_ms=rng.choice([0, 0, -MAX_SKEW_MS, MAX_SKEW_MS]))
        switch = self.scheduler.switch
        faults = self._delayed(name, group, self.faults_of(group))
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
            name,
            group,
            store,
            table,
            RegionStates(store, clock, self.contract.regions_per_page, self.contract.making, tasks, new_id),
            Watermarks(store, table, self.contract.making),
            tasks,
            clock,
            rng,
            new_id,
        )

    def new_topic(self) -> MemoryTopic:
        """The topic of a world that begins."""
        return MemoryTopic("orders", "topic-id-1", self.settings.partitions)

    def draws(self, name: str) -> Random:
        """What a process draws from."""
        return Random(f"{self.seed}/{name}")

    def faults_of(self, group: str) -> Faults:
        """What goes wrong for a process."""
        return self.faults

    def _delayed(self, name: str, group: str, faults: Faults) -> Faults:
        delays = [delay for delay in self.settings.delays if delay.group == group]
        if not delays:
            return faults

        def sleep(seconds: float) -> None:
            if self.faults.enabled:
                self.scheduler.sleep(seconds)

        return Delayed(faults, delays, Random(f"{self.seed}/{name}/delays"), sleep)

    def tasks_of(self, name: str) -> Tasks:
        """How a process runs what it does beside its main loop."""
        return SimTasks(self.scheduler, Random(f"{self.seed}/{name}/tasks"))

    # -- what processes report -----------------------------------------------------------------------------------

    def note(self, event: str) -> None:
        self.counts[event] = self.counts.get(event, 0) + 1

    def know(self, partition: int, position: int) -> None:
        """A member reports what is durable."""
        if self.acknowledged.get(partition, -1) < position:
            self.acknowledged[partition] = position
            self.durable.append((EPOCH_MS + int(self.scheduler.now * 1000), partition, position))

    def durable_at(self, ms: int) -> dict[int, int]:
        """What was known to be durable at a time, as ``acknowledged``."""
        return {partition: position for at, partition, position in self.durable if at <= ms}

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
        patches = k >= self.settings.shared_keys and not self.settings.expirers
        late_ms = 250 if self.settings.travellers else 0

        def make(offset: int) -> oracle.Record:
            types = oracle.COLUMNS if self.columns is None else self.columns.of_producers(rng)
            return oracle.draw(rng, offset, now_ms - offset * 37 % 4 * late_ms, key, k, patches, types)

        self.topic.append(partition, make, gap, markers)

    def check_rows(
        self, batches: Iterable[pa.RecordBatch], cut: Mapping[Region, int], version: int, where: str
    ) -> dict[int, oracle.Values]:
        """What a read at this cut and table version returned must be the oracle's rows (I2); its rows by key."""
        if self.columns is not None:
            return self._check_changed(self.columns, batches, cut, version, where)
        expected = self.rows_at(cut, version)
        found, _ = self.by_hand.split(batches, version)
        require(found == expected, f"I2 {where}: rows", found, "expected", expected)
        return found

    def rows_at(self, cut: Mapping[Region, int], version: int) -> dict[int, oracle.Values]:
        """The rows of the records up to this cut over a table version, and the user's own."""
        found: dict[int, oracle.Values] = {}
        merged: dict[int, int] = {}
        steps = [(self.merged_by(at), self.taken[at]) for at in sorted(self.taken) if at <= version]
        ends = {r.partition: max(n for of, n in cut.items() if of.partition == r.partition) for r in cut}
        for positions, taken in [*steps, (ends, frozenset[int]())]:  # a topic made anew has the former one's records
            for partition, position in positions.items():
                records = self.topic.partitions[partition].between(merged.get(partition, 0), position)
                found = oracle.rows(records, found)
            merged = positions
            found = {k: values for k, values in found.items() if k not in taken}
        gone = frozenset[int]().union(*(taken for _, taken in steps))
        own = {k: values for k, values in self.by_hand.own_rows(version).items() if k not in gone}
        return {**found, **own}

    def _landed(self, version: int) -> None:
        """Note which rows a commit takes otherwise than by records.  Only those expire whose time is over."""
        made = self.dataset.versions[version].transaction
        expiry = PROPERTY_EXPIRY in made.properties
        if not expiry and made.operation != "Delete":
            return
        before, after = ({int(str(row["k"])): row for row in self.rows_of(at)} for at in (version - 1, version))
        gone = before.keys() - after.keys()
        self.taken[version] = frozenset(gone)
        if expiry:
            over = int(self.scheduler.now * 1000 + MAX_SKEW_MS) * EXPIRED_PER_S // 1000
            young = [k for k in gone if not isinstance(at := before[k]["b"], int) or at >= over]
            require(not young, "rows expire that are not old enough:", young, before)

    def _check_changed(
        self, columns: Columns, batches: Iterable[pa.RecordBatch], cut: Mapping[Region, int], version: int, where: str
    ) -> dict[int, oracle.Values]:
        positions = {region.partition: position for region, position in cut.items()}
        records = [
            columns.meant(p, record) for p, n in positions.items() for record in self.topic.partitions[p].between(0, n)
        ]
        shown = columns.shown(version, self.merged_by(version), positions)
        read = list(batches)
        for batch in read:
            names = [names_of(field.name, field.type) for field in batch.schema if field.name != "k"]
            expected_names = [part.names() for part in shown.parts]
            require(names == expected_names, f"{where}: columns", names, "expected", expected_names)
        found, _ = self.by_hand.split(read, version)
        seen = columns.without_dropped(columns.by_field(found, shown))
        expected = columns.without_dropped(columns.rows(records, shown))
        require(seen == expected, f"I2 {where}: rows", seen, "expected", expected, shown.parts)
        return found

    def user_batch(self, keys: Sequence[int]) -> pa.Table:
        columns = {"k": list(keys), "a": ["by hand"] * len(keys), "b": list(keys)}
        return pa.table(columns, schema=self.contract.rows.table)

    def check_gone(self, version: int, where: str) -> None:
        """A version that is gone was removed by a user, or had not been the newest for the version window."""
        newer = [number for number in self.dataset.stored_ms if number > version]
        if version in self.dataset.versions or version in self.taken_by_user or not newer:
            return
        age_ms = EPOCH_MS + int(self.scheduler.now * 1000) - self.dataset.stored_ms[min(newer)]
        window_ms = self.contract.history_window_s * 1000 - MAX_SKEW_MS
        require(age_ms >= window_ms, f"{where}: version {version} is gone within the window, after ms", age_ms)

    def check_misfits(self, error: ContractMismatch) -> None:
        """Columns do not fit only where others have changed those of the contract."""
        require(self.renamed_by_user > 0 or self.restored is not None, "nobody has changed columns, but", error)

    def merged_by(self, version: int) -> dict[int, int]:
        """Positions that a version covers, by partition, where no old one was restored."""
        for landed in reversed(self.dataset.landed):
            text = landed.transaction.properties.get("lancewal.watermarks")
            if landed.number <= version and text is not None:
                by_name = _positions(text)
                return {r.partition: by_name[r.name] for r in self.contract.regions if r.name in by_name}
        return {}

    def rows_of(self, version: int) -> list[dict[str, object]]:
        """Rows of a version as it stands."""
        pinned = self.checker.table.at(version)
        batches = list(pinned.scan(self.contract.rows.table.names))
        return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: int(row["k"]))

    def merged_up_to(self) -> dict[str, int]:
        """Positions that the newest merge covers, by region name; of one that a clean-up has taken, where it has left none."""
        there = [self.dataset.versions[number] for number in sorted(self.dataset.versions, reverse=True)]
        for version in (*there, *reversed(self.dataset.landed)):
            text = version.transaction.properties.get("lancewal.watermarks")
            if text is not None:
                return _positions(text)
        return {}


@lru_cache(maxsize=64)
def _positions(text: str) -> dict[str, int]:
    return {name: mark["next"] for name, mark in json.loads(text).items()}


def _error_of_a_committer(version: int) -> int:
    """Clocks of those who commit are wrong, too."""
    return (0, 0, -MAX_SKEW_MS, MAX_SKEW_MS)[version * 7 % 4]


PASSING = (Retry, Refresh)
"""Errors after which a service tries again."""


def _contract(settings: Settings) -> Contract:
    return Contract(
        table_uuid=f"7e0c9f1e-{settings.making}",
        making=Making(settings.making),
        topic="orders",
        topic_id="topic-id-1",
        partitions=settings.partitions,
        regions_per_page=2,
        primary_key=("k",),
        patches=not settings.expirers,
        region_key=() if settings.key_format == "bytes" else ("k",),
        key_format=settings.key_format,
        start=tuple([0] * settings.partitions),
        columns=tuple(Column(name=n, type=t, field_ids=(i,)) for i, (n, t) in enumerate(oracle.COLUMNS.items())),
        history_window_s=settings.history_window_s,
        version_window_s=0,
        subscription_hold_s_max=settings.subscription_hold_s_max,
        grace_s=settings.grace_s,
        on_misrouted=settings.on_misrouted,
        on_bad_record=settings.on_bad_record,
    )
