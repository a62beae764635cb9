"""A page that many processes read and swap, of which any may freeze for days between two requests, while a collector deletes
old versions: an observer of the bucket knows every version that there ever was, and is asked by nobody.

Rules, each a ``Violation`` where it is broken
 1. A version that lands at the next number follows from the one before: each record that differs is one step on (P2).
 2. What a process is told to be newest, by a read or by a swap that declines, was the newest at some moment of the call; so it
    is no *stray*, an object at a number that had been used before (P6).
 3. What a swap says is done lies in a version that landed at the next number.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TypeVar

from lancewal_core.errors import StoreInconsistent, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, OwnerId, Page, Position, Region, Sequence, TopicId
from lancewal_core.process.tasks import Task
from lancewal_core.region.pages.state_page import StatePage, decode_page
from lancewal_core.region.state import RegionState
from lancewal_core.region.states import RegionStates, page_family, state_in
from lancewal_core.region.transitions import Claimant, first_claim
from lancewal_flusher.garbage import find
from tests.twins.faults import RandomFaults, Rates
from tests.twins.memory_store import MemoryBucket, MemoryStore
from tests.twins.scheduler import Scheduler

T = TypeVar("T")
A = TypeVar("A")
PER_PAGE = 2
REGIONS = tuple(Region("orders", TopicId("topic-id-1"), p) for p in range(3))
PAGES = tuple(dict.fromkeys(Page.of(region, PER_PAGE, None) for region in REGIONS))
DAY_S = 24 * 3600.0
VERSIONS_KEPT = 2
"""The hundred that garbage collection keeps would hide what is to be seen here."""


class Violation(AssertionError):
    """A rule of the world is broken."""


def require(holds: object, *why: object) -> None:
    if not holds:
        raise Violation(*why)


def steps_of(state: RegionState) -> int:
    return state.generations[-1].first_sequence


def one_step_on(region: Region, found: RegionState | None, write_id: str) -> RegionState:
    if found is None:
        return first_claim(region, 1, Position(0), Claimant(OwnerId("o"), LogId("l"), Sequence(1)), write_id)
    newest = found.generations[-1]
    moved = replace(newest, first_sequence=Sequence(newest.first_sequence + 1))
    return replace(found, generations=(*found.generations[:-1], moved), write_id=write_id)


class WatchedBucket(MemoryBucket):
    """See the module docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.chains: dict[Page, list[StatePage]] = {page: [] for page in PAGES}
        self.done: set[str] = set()
        """Write ids of records that landed."""
        self.strays = 0

    def put(self, key: str, data: bytes, now_ms: int) -> str | None:
        etag = super().put(key, data, now_ms)
        if etag is None:
            return None
        page, version = paths.parse_page_version(key) or (PAGES[0], 0)
        content, chain = decode_page(data, key), self.chains[page]
        if version != len(chain) + 1:
            self.strays += 1
            return etag
        before = chain[-1].records if chain else {}
        for partition, record in content.records.items():
            if partition in before and before[partition] == record:
                continue
            region = Region(page.topic, page.topic_id, partition)
            was = state_in(chain[-1], region, key) if chain else None
            state = state_in(content, region, key)
            require(state is not None, "a record left", key)
            assert state is not None
            require(steps_of(state) == (0 if was is None else steps_of(was)) + 1, "not a step on:", key, was, state)
            self.done.add(state.write_id)
        require(set(before) <= set(content.records), "a region left the page", key)
        chain.append(content)
        return etag

    def indexes(self, region: Region, since: int) -> list[RegionState | None]:
        """What the region's index was, from the ``since``-th version of its page on."""
        page = Page.of(region, PER_PAGE, None)
        chain = self.chains[page]
        found: list[RegionState | None] = [None] if since == 0 else []
        return found + [state_in(content, region, "chain") for content in chain[max(since - 1, 0) :]]


class TwoClocks:
    """Both are a process's own, and either may be wrong after it slept."""

    def __init__(self, scheduler: Scheduler, skew_ms: int) -> None:
        self._scheduler = scheduler
        self.skew_ms = skew_ms
        self.stood_s = 0.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.skew_ms + int(self._scheduler.now * 1000)

    def monotonic(self) -> float:
        return self._scheduler.now - self.stood_s

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)


class AnyOrder:
    """What goes out at once reaches the store one by one, in whatever order."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def start(self, call: Callable[[], T]) -> Task[T]:
        raise NotImplementedError

    def map(self, call: Callable[[A], T], items: Seq[A]) -> list[T]:
        found = {n: call(items[n]) for n in self._rng.sample(range(len(items)), len(items))}
        return [found[n] for n in range(len(items))]


@dataclass
class World:
    """One run: ``run`` lets it go for so many requests."""

    seed: int
    freezes: float = 0.01
    """Of how many switches."""
    sweeps_s: float = 2000
    """Between two rounds of a sweeper at most."""
    bucket: WatchedBucket = field(default_factory=WatchedBucket)
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.scheduler = Scheduler(str(self.seed), stay=self.rng.choice([0.0, 0.7]))
        self.ids = 0

    def run(self, switches: int) -> None:
        # Few processes and long pauses, or many that meet at one page.
        pause_s = self.rng.choice([1.0, 300.0, 1500.0])
        for number in range(self.rng.choice([2, 3, 5])):
            self._spawn(f"p{number}", lambda store, clock, name: self._swapper(store, clock, pause_s))
        for number in range(self.rng.choice([1, 1, 2])):
            self._spawn(f"sweeper{number}", lambda store, clock, name: self._sweeper(store, clock))
        try:
            end = self.scheduler.switches + switches
            self.scheduler.run(lambda: self.scheduler.switches >= end)
        finally:
            self.scheduler.close()

    def _spawn(self, name: str, body: Callable[[MemoryStore, TwoClocks, str], None]) -> None:
        rng = Random(f"{self.seed}/{name}")
        clock = TwoClocks(self.scheduler, rng.randint(-3000, 3000))

        def switch(label: str) -> None:
            if rng.random() < self.freezes:
                self._freeze(name, clock, rng)
            self.scheduler.switch(label)

        faults = RandomFaults(rng, Rates(put=0.15, listing=0.0, unavailable=0.01))
        store = MemoryStore(clock, self.bucket, faults, switch)
        self.scheduler.spawn(name, lambda: body(store, clock, name))

    def _freeze(self, name: str, clock: TwoClocks, rng: Random) -> None:
        seconds = rng.choice([40.0, 1000.0, 5000.0, 9 * DAY_S])
        self.scheduler.pause(name, seconds)
        match rng.choice(["stood still", "put back", "right"]):
            case "stood still":
                clock.stood_s += seconds
            case "put back":
                clock.skew_ms -= int(seconds * 1000)
        self.note("froze")

    def note(self, event: str) -> None:
        self.counts[event] = self.counts.get(event, 0) + 1

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:08x}"

    def _swapper(self, store: MemoryStore, clock: TwoClocks, pause_s: float) -> None:
        rng = Random(self.rng.random())
        indexes = RegionStates(store, clock, PER_PAGE, None, AnyOrder(rng), self.new_id)
        while True:
            regions = rng.sample(REGIONS, rng.choice([1, 1, 2, 3]))
            since = {region: len(self.bucket.chains[Page.of(region, PER_PAGE, None)]) for region in regions}
            try:
                if rng.random() < 0.4:
                    found = indexes.read(regions)
                    for region in regions:
                        self._was_newest("read", region, found.get(region), since[region])
                else:
                    declines = {region for region in regions if rng.random() < 0.2}
                    decisions = {region: self._decision(region, region in declines) for region in regions}
                    for region, (ours, state) in indexes.swap(decisions).items():
                        if ours:
                            assert state is not None
                            require(state.write_id in self.bucket.done, "told to be done:", region, state)
                            self.note("swapped")
                        else:
                            self._was_newest("declined", region, state, since[region])
            except (StoreUnavailable, StoreInconsistent) as error:
                self.note(type(error).__name__)
            if rng.random() < 0.05:
                indexes = RegionStates(store, clock, PER_PAGE, None, None, self.new_id)
            clock.sleep(rng.random() * pause_s)

    def _decision(self, region: Region, declines: bool) -> Callable[[RegionState | None], RegionState | None]:
        return lambda found: None if declines else one_step_on(region, found, self.new_id())

    def _was_newest(self, what: str, region: Region, state: RegionState | None, since: int) -> None:
        require(state in self.bucket.indexes(region, since), what, region, state)
        self.note(what)

    def _sweeper(self, store: MemoryStore, clock: TwoClocks) -> None:
        rng = Random(self.rng.random())
        while True:
            try:
                for page in PAGES:
                    is_old = partial(find._page_is_old, clock.now_ms(), False)
                    old = find._listed_old_versions(store, page_family(page), is_old, VERSIONS_KEPT)
                    store.delete(old)
                    self.counts["deleted"] = self.counts.get("deleted", 0) + len(old)
            except StoreUnavailable:
                self.note("sweep failed")
            clock.sleep(rng.random() * self.sweeps_s)
