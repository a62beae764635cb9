"""A world without chance: processes act one after the other, and a *cue* lets another process act within a call.

Everything runs in the calling thread.  A cue is put before one call of a process to store, table or Kafka.  The call is
named by its operation and a part of the object's key.  When the process makes this call, the cue's function runs
completely first.  So a test writes an interleaving as it is: "before A puts its segment, B takes over".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from lancewal_core.errors import Corrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Page, Region
from lancewal_core.record_keys.key_choices import KeyFormat
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.sections import Policy
from lancewal_core.table.contract import Contract, encode_contract
from lancewal_flusher.context import FlusherContext, by_newest_contract
from lancewal_flusher.garbage.collect import GarbageReport, GarbageState, collect_garbage
from lancewal_flusher.garbage.table_versions import VersionsSeen
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundReport, RoundState, run_round
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.policy import SealDecision, SealPolicy
from lancewal_ingest.service.worker import IngestWorker
from tests.simulation import oracle
from tests.simulation.calm import Alone, AtOnce, First
from tests.simulation.checker import require
from tests.simulation.ingest_side import DeadLetters, ingest_worker
from tests.simulation.memory_kafka import MemorySource
from tests.simulation.reading import Reading
from tests.simulation.rest import check_table
from tests.simulation.script import Script
from tests.simulation.services import flusher_context
from tests.simulation.settings import Settings
from tests.simulation.user import append
from tests.simulation.world import Process, World
from tests.twins.sim_clock import EPOCH_MS

NEVER = SealPolicy(nbytes=1 << 60, rows=1 << 60, age_s=1e12, log_distance=1 << 60)
ALWAYS = SealPolicy(rows=1, log_distance=1)


class _OnlyEmpty(SealPolicy):
    def decide(self, generation: MemTable, now: float, length: float) -> SealDecision:
        return SealDecision.KEEP if generation.entries else SealDecision.REANCHOR


ONLY_EMPTY = _OnlyEmpty()
"""Moves what has no entries."""


@dataclass(frozen=True, slots=True)
class Member:
    """An ingest process on the stage."""

    worker: IngestWorker
    source: MemorySource
    process: Process
    script: Script

    @property
    def log(self) -> str:
        """The log that it writes."""
        return f"{self.worker._writer.log}/"


class Stage(World):
    """See the module docstring."""

    def __init__(
        self,
        partitions: int = 2,
        history_window_s: int = 4,
        on_misrouted: Policy = "stop",
        on_bad_record: Policy = "dead-letter",
        making: str = "making-1",
        key_format: KeyFormat = "canonical",
        columns_change: bool = False,
    ) -> None:
        self.scripts: dict[str, Script] = {}
        self.tasks: dict[str, AtOnce] = {}
        self._raised: list[object] = []
        settings = Settings(
            partitions=partitions, history_window_s=history_window_s, stay=0.0, on_misrouted=on_misrouted,
            on_bad_record=on_bad_record, bundle_segments=4, making=making,
            key_format=key_format, changers=int(columns_change),
        )  # fmt: skip
        super().__init__(0, settings, Alone("stage"))
        self.dataset.clock_error_ms = lambda version: 0

    def draws(self, name: str) -> Random:
        return First()

    def faults_of(self, group: str) -> Script:
        return self.scripts.setdefault(group, Script())

    def tasks_of(self, name: str) -> AtOnce:
        return self.tasks.setdefault(name, AtOnce())

    # -- members -------------------------------------------------------------------------------------------------

    def member(self, name: str, *partitions: int) -> Member:
        """A member that has opened these partitions."""
        process = self.process(name)
        worker, source = ingest_worker(self, process)
        worker._sealing.policy = NEVER
        worker.subscribe()
        member = Member(worker, source, process, self.scripts[name])
        if partitions:
            self.give(member, *partitions)
            self.step(member)
        return member

    def give(self, member: Member, *partitions: int) -> None:
        """The group means these partitions for the member."""
        for partition in partitions:
            self.group.target[partition] = member.process.name

    def take_over(self, dead: Member, heir: Member, *partitions: int) -> None:
        """The session of ``dead`` times out, and ``heir`` opens its partitions."""
        self.group.expel(dead.process.name)
        self.give(heir, *partitions)
        self.step(heir)

    def answer(self, member: Member) -> None:
        """What it asked for and got no answer to (``hang``) is answered."""
        self.tasks[member.process.name].answer()

    def step(self, member: Member, times: int = 1) -> None:
        for _ in range(times):
            self.scheduler.now += 0.05
            member.worker.step(0.1)
            for error in member.worker.refused.values():
                if isinstance(error, Corrupt) and error.where.get("object") not in self._raised:
                    self._raised.append(error.where.get("object"))
                    raise error  # it waits for somebody who repairs that

    def append(self, member: Member, partition: int, records: int = 1) -> None:
        """Records with new keys are produced, and the member makes them durable."""
        self.send(partition, records)
        self.step(member, 2)

    @contextmanager
    def without(self, *keys: str) -> Iterator[None]:
        """These objects are lost, and then put back: nobody has put another in the place of one."""
        lost = {key: self.bucket.get(key) or b"" for key in keys}
        for key in lost:
            self.bucket.delete(key)
        yield
        for key, data in lost.items():
            require(self.bucket.get(key) is None, "there is something in the place of", key)
            self.bucket.put(key, data, 0)

    def seal(self, member: Member) -> None:
        """The member seals what has entries, re-anchors what has none, and flushes."""
        member.worker._sealing.policy = ALWAYS
        self.step(member)
        member.worker._sealing.policy = NEVER
        self.step(member, 4)

    def append_and_seal(self, member: Member, *partitions: int) -> None:
        """A record in each of these partitions, durable, sealed and flushed."""
        for partition in partitions:
            self.append(member, partition)
        self.seal(member)

    def altered(self, contract: Contract) -> None:
        """The table has this contract now."""
        self.contract = contract
        self.checker.follow(contract)

    def alter(self, **terms: object) -> None:
        """Another version of the contract, which members work by once they ``take_up``."""
        new = self.contract.model_copy(update={"version": self.contract.version + 1, **terms})
        self.bucket.put(paths.contract_version(new.version, new.making), encode_contract(new), 0)
        self.altered(new)

    def take_up(self, member: Member) -> None:
        context = member.worker._context
        preparer = Preparer(self.contract, context.drain, context.stored_schemas)
        member.worker.take_up(preparer, DeadLetters(self, member.process))

    # -- the topic -----------------------------------------------------------------------------------------------

    def send(self, partition: int, records: int = 1, markers: int = 0) -> list[int]:
        """Records with new keys, ``markers`` behind each; their keys."""
        keys: list[int] = []
        for k in range(10_000):
            key = encode_region_key(k)
            if len(keys) == records:
                break
            if partition_of(key, self.settings.partitions) == partition and k not in self._sent(partition):
                keys.append(k)
                self.send_again(partition, k, markers)
        return keys

    def send_again(self, partition: int, k: int, markers: int = 0) -> None:
        """Another row for this key."""
        now_ms = EPOCH_MS + int(self.scheduler.now * 1000)
        key = encode_region_key(k)
        self.topic.append(partition, lambda offset: oracle.upsert(offset, now_ms, key, k), 0, markers)

    def send_bad(self, partition: int) -> int:
        """A record that is none, with a key of this partition; its offset."""
        log = self.topic.partitions[partition]
        key, k = log.records[0].key, log.records[0].k
        self.topic.append(partition, lambda offset: oracle.Record(offset, 0, key, b"{", None, None, k, {}))
        return log.records[-1].offset

    def _sent(self, partition: int) -> set[int]:
        return {record.k for record in self.topic.partitions[partition].records}

    # -- table, readers, and what must hold ----------------------------------------------------------------------

    def user_appends(self, *keys: int) -> None:
        """The user appends rows: keys of their own, or keys of the topic, which Kafka's rows win over."""
        append(self, *keys)

    def flushed(self, *partitions: int) -> tuple[Member, FlusherContext, FlusherContext]:
        """A member that has flushed a generation behind a merged one; its flusher, and another."""
        a, f, g = self.member("a", 0, 1), self.flusher("f"), self.flusher("g")
        for merged in (True, False):
            self.append_and_seal(a, *partitions)
            if merged:
                self.round(f)
        return a, f, g

    def flushed_apart(self, *partitions: int) -> tuple[Member, FlusherContext, FlusherContext]:
        """As ``flushed``, each in a flush of its own: a merge takes their files as they are."""
        a, f, g = self.member("a", 0, 1), self.flusher("f"), self.flusher("g")
        for merged in (True, False):
            for partition in partitions:
                self.append_and_seal(a, partition)
            if merged:
                self.round(f)
        return a, f, g

    def flusher(self, name: str) -> FlusherContext:
        return flusher_context(self, self.process(name))

    def round(
        self, context: FlusherContext, limits: MergeLimits | None = None, state: RoundState | None = None
    ) -> RoundReport:
        limits, state = limits or MergeLimits(), state or RoundState()
        report = by_newest_contract(context, lambda c: run_round(c, limits, state, sealed_grace_s=0.0))
        report.raise_held()
        return report

    def collect(self, context: FlusherContext, state: GarbageState | None = None) -> GarbageReport:
        """Trim what the history window allows, and delete it when the grace period is over."""
        state = state or GarbageState()
        self.scheduler.now += self.settings.history_window_s + 1
        collect_garbage(context, state)
        self.scheduler.now += self.settings.grace_s + 1
        return collect_garbage(context, state)

    def expire(self, context: FlusherContext, days: float) -> GarbageReport:
        """A round of garbage collection so much later, which looks after the table's versions, too."""
        self.scheduler.now += days * 24 * 3600
        return collect_garbage(context, GarbageState(versions=VersionsSeen(window_min_ms=0)))

    def reader(self, name: str) -> Reading:
        return Reading(self, self.process(name))

    def region(self, partition: int) -> Region:
        return self.contract.regions[partition]

    def page(self, partition: int) -> Page:
        """The page that the partition's index lies in."""
        return self.contract.page_of(self.region(partition))

    def check(self) -> None:
        """Indexes, logs and flushes are as they must be, and a reader that begins now sees what it must."""
        self.checker.check(self.acknowledged)
        self.reader("audience").read("strong")

    def check_table(self) -> None:
        """The table holds what its watermarks say."""
        in_force = self.process("audience").watermarks.newest()[1]
        check_table(self, {region: int(mark.next) for region, mark in in_force.regions.items()})
