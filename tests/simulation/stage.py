"""A world in which nothing happens by chance: processes act one after the other, and a *cue* lets another act within one.

Everything runs in the calling thread.  A cue stands before one call of a process at a boundary (store, table, Kafka), by
the act and a part of the object's key; when the process comes there, the cue's call runs whole, then the process goes on.
So an interleaving is written down as it is: "before A puts its segment, B takes over".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, Literal, TypeVar

from lancewal_core.ids import Region
from lancewal_core.murmur2 import partition_of
from lancewal_core.region_key import encode_region_key
from lancewal_core.tasks import Task
from lancewal_core.testing.faults import CommitFault, Faultless, ListFault, PutFault
from lancewal_core.testing.scheduler import Scheduler
from lancewal_core.testing.sim_clock import EPOCH_MS
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.gc import GarbageReport, GarbageState, collect_garbage
from lancewal_flusher.plan import MergeLimits
from lancewal_flusher.round import RoundReport, SealedSince, run_round
from lancewal_ingest.policy import SealPolicy
from lancewal_ingest.worker import IngestWorker
from tests.simulation import oracle
from tests.simulation.actors import Reading, flusher_context
from tests.simulation.checker import require, rows_of
from tests.simulation.memory_kafka import MemorySource
from tests.simulation.world import USER_KEYS, Process, Settings, World

T = TypeVar("T")
A = TypeVar("A")
S = TypeVar("S")

NEVER = SealPolicy(nbytes=1 << 60, rows=1 << 60, age_s=1e12, log_distance=1 << 60)
ALWAYS = SealPolicy(rows=1, log_distance=1)


class Crashed(Exception):
    """The process died at a cue."""


def crash() -> None:
    """What a cue calls where the process is to die."""
    raise Crashed


@contextmanager
def stops(error: type[Exception]) -> Iterator[None]:
    """What is done within ends by this error."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was expected")


class _First(Random):
    """No draws: the first of a choice, the most of a range, everything in its order."""

    def random(self) -> float:
        return 0.0

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        return b

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        return list(population)[:k]


class _Alone(Scheduler):
    """No actors: whoever waits lets the time pass."""

    def wait(self, condition: Callable[[], bool] | None, timeout_s: float | None, label: str) -> None:
        self.now += timeout_s or 0.0


class _DoneTask(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._result: list[T] = []
        self._error: Exception | None = None
        try:
            self._result.append(call())
        except Exception as error:
            self._error = error

    def done(self) -> bool:
        return True

    def wait(self, timeout_s: float) -> None:
        pass

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


class AtOnce:
    """``Tasks`` that are done when they are started."""

    def start(self, call: Callable[[], T]) -> Task[T]:
        return _DoneTask(call)

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        return [call(item) for item in items]


@dataclass(slots=True)
class _Cue:
    act: str
    what: str
    passings: int
    """Passings that are still to come, this one included."""
    call: Callable[[], object]


@dataclass(slots=True)
class Script(Faultless):
    """The cues of one process, and the faults that it meets, in order."""

    cues: list[_Cue] = field(default_factory=list)
    puts: list[tuple[str, PutFault]] = field(default_factory=list)
    """Part of a key, and what happens to the next put of such a key."""
    commits: list[CommitFault] = field(default_factory=list)
    listings: dict[str, ListFault] = field(default_factory=dict)
    """By part of a prefix, every listing of it; ``PARTIAL`` shows nothing at all."""
    down: list[tuple[str, str]] = field(default_factory=list)
    """Acts and parts of keys that fail once each."""

    def before(self, act: str, what: str, call: Callable[[], object], passing: int = 1) -> None:
        self.cues.append(_Cue(act, what, passing, call))

    def clear(self) -> None:
        """From now on nothing happens."""
        for part in (self.cues, self.puts, self.commits, self.listings, self.down):
            part.clear()

    def unavailable(self, act: str, what: str) -> bool:
        self._pass(act, what)
        return _taken(self.down, lambda item: item[0] == act and item[1] in what) is not None

    def put(self, key: str) -> PutFault:
        self._pass("put", key)
        found = _taken(self.puts, lambda item: item[0] in key)
        return PutFault.NONE if found is None else found[1]

    def commit(self) -> CommitFault:
        self._pass("commit", "table")
        return self.commits.pop(0) if self.commits else CommitFault.NONE

    def listing(self, prefix: str) -> ListFault:
        return next((fault for text, fault in self.listings.items() if text in prefix), ListFault.NONE)

    def some(self, items: Sequence[S]) -> list[S]:
        return []

    def _pass(self, act: str, what: str) -> None:
        for cue in [c for c in self.cues if c.act == act and c.what in what]:
            cue.passings -= 1
            if cue.passings == 0:
                self.cues.remove(cue)
                cue.call()


def _taken(items: list[S], wanted: Callable[[S], bool]) -> S | None:
    found = next((item for item in items if wanted(item)), None)
    if found is not None:
        items.remove(found)
    return found


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
        self, partitions: int = 2, history_window_s: int = 4, misrouted: Literal["stop", "dlq"] = "stop"
    ) -> None:
        self.scripts: dict[str, Script] = {}
        settings = Settings(partitions=partitions, history_window_s=history_window_s, stay=0.0, misrouted=misrouted)
        super().__init__(0, settings, _Alone("stage"))

    def draws(self, name: str) -> Random:
        return _First()

    def faults_of(self, group: str) -> Script:
        return self.scripts.setdefault(group, Script())

    def tasks_of(self, name: str) -> AtOnce:
        return AtOnce()

    # -- members -------------------------------------------------------------------------------------------------

    def member(self, name: str, *partitions: int, bad_records: Literal["dlq", "stop"] = "dlq") -> Member:
        """A member that has opened these partitions."""
        process = self.process(name)
        worker, source = self.worker(process, bad_records)
        worker._seal_policy = NEVER
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

    def step(self, member: Member, times: int = 1) -> None:
        for _ in range(times):
            self.scheduler.now += 0.05
            member.worker.step(0.1)

    def append(self, member: Member, partition: int, records: int = 1) -> None:
        """Records with new keys are produced, and the member makes them durable."""
        self.send(partition, records)
        self.step(member, 2)

    def seal(self, member: Member) -> None:
        """The member seals what has entries, re-anchors what has none, and flushes."""
        member.worker._seal_policy = ALWAYS
        self.step(member)
        member.worker._seal_policy = NEVER
        self.step(member, 4)

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
                self._send(partition, k, markers)
        return keys

    def _send(self, partition: int, k: int, markers: int) -> None:
        now_ms = EPOCH_MS + int(self.scheduler.now * 1000)
        key = encode_region_key(k)
        self.topic.append(partition, lambda offset: oracle.upsert(offset, now_ms, key, k), 0, markers)

    def _sent(self, partition: int) -> set[int]:
        return {record.k for record in self.topic.partitions[partition].records}

    # -- table, readers, and what must hold ----------------------------------------------------------------------

    def user_appends(self, *keys: int) -> None:
        """The user appends rows: keys of their own, or keys of the topic, which Kafka's rows win over."""
        version = self.checker.table.append(self.user_batch(keys))
        self.user_rows += [(version, k) for k in keys if k >= USER_KEYS]

    def flushed(self, *partitions: int) -> tuple[Member, FlusherContext, FlusherContext]:
        """A member that has flushed a generation behind a merged one; its flusher, and another."""
        a, f, g = self.member("a", 0, 1), self.flusher("f"), self.flusher("g")
        for merged in (True, False):
            for partition in partitions:
                self.append(a, partition)
            self.seal(a)
            if merged:
                self.round(f)
        return a, f, g

    def flusher(self, name: str) -> FlusherContext:
        return flusher_context(self, self.process(name))

    def round(self, context: FlusherContext) -> RoundReport:
        return run_round(context, MergeLimits(), SealedSince(), sealed_grace_s=0.0)

    def collect(self, context: FlusherContext, state: GarbageState | None = None) -> GarbageReport:
        """Trim what the history window allows, and delete it when the grace period is over."""
        state = state or GarbageState()
        self.scheduler.now += self.settings.history_window_s + 1
        collect_garbage(context, state)
        self.scheduler.now += self.settings.grace_s + 1
        return collect_garbage(context, state)

    def reader(self, name: str) -> Reading:
        return Reading(self, self.process(name))

    def region(self, partition: int) -> Region:
        return self.contract.regions[partition]

    def check(self) -> None:
        """Indexes, logs and snapshots are as they must be, and a reader that begins now sees what it must."""
        self.checker.check(self.acknowledged)
        self.reader("audience").read("strong")

    def check_table(self) -> None:
        """The table holds what its watermarks say."""
        newest, in_force = self.process("audience").watermarks.newest()
        cut = {region: int(mark.next) for region, mark in in_force.regions.items()}
        found = rows_of(newest.scan(self.contract.rows.table.names))
        expected = self.expected_rows(cut, newest.version)
        require(found == expected, "the table holds", found, "expected", expected)
