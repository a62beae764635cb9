"""A log: one writer, one end.  What a walk shows is exactly what was durable before the end, whoever races."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pytest

from lancewal_core.errors import ObjectMissing, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, OwnerId, Position, Region, Sequence, TopicId
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.rows.schema import OFFSET, RowSchema
from lancewal_core.store.object_store import ObjectStore, PutOutcome
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.log_end import WalkOn, confirm_end, end_log
from lancewal_core.wal.segment import Fence, Segment, Trailer, decode_segment, encode_fence
from lancewal_core.wal.segment_cache import SegmentCache
from lancewal_core.wal.walk import Walk, walk, walk_cached, walk_trailers
from lancewal_core.wal.writer import Durable, FencedOut, LogWriter, Occupied, Unsettled
from tests.support.scripted import InlineTasks, ManualClock, ScriptedStore
from tests.twins.faults import ListFault, PutFault, RandomFaults, Rates
from tests.twins.memory_store import MemoryBucket, MemoryStore
from tests.twins.scheduler import Scheduler
from tests.twins.sim_clock import SimClock

LOG = LogId("log-a")
SCHEMA = RowSchema(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",), ("k",))
NORTH = Region("orders", TopicId("topic-id-1"), 0)
SOUTH = Region("orders", TopicId("topic-id-1"), 1)
TASKS = InlineTasks()
T = TypeVar("T")
A = TypeVar("A")


def key(sequence: int) -> str:
    return paths.wal_segment(LOG, Sequence(sequence))


def entry(region: Region, first: int, count: int = 1) -> Entry:
    rows = [{"k": o, "v": f"v{o}", "_offset": o, "_timestamp": 0, "_op": 0} for o in range(first, first + count)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA.wal)
    return Entry(region, Position(first), Position(first + count), 1, batch, ())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> ScriptedStore:
    return ScriptedStore(clock)


@pytest.fixture
def writer(store: ScriptedStore, clock: ManualClock) -> LogWriter:
    return LogWriter(store, clock, LOG, OwnerId("ours"), SCHEMA.wal)


@pytest.fixture
def threads() -> Iterator[ThreadTasks]:
    tasks = ThreadTasks()
    yield tasks
    tasks.close()


def fence(store: ScriptedStore, sequence: int, by: str = "theirs") -> Fence:
    put = Fence(LOG, Sequence(sequence), by, 5)
    store.plain.put_if_absent(key(sequence), encode_fence(put))
    return put


def from_store(store: ObjectStore) -> WalkOn[Segment]:
    return partial(walk, store, TASKS, LOG)


def fill(writer: LogWriter, count: int, region: Region = NORTH) -> None:
    for _ in range(count):
        assert isinstance(writer.put([entry(region, int(writer.next_unsent))]), Durable)


# -- writing -----------------------------------------------------------------------------------------------------


def test_segments_are_numbered_without_holes(store: ScriptedStore, writer: LogWriter) -> None:
    for sequence in range(3):
        assert (writer.next_unsent, writer.settled) == (sequence, True)
        outcome = writer.put([entry(NORTH, sequence), entry(SOUTH, 10 * sequence, 10)])
        data = store.plain.get(key(sequence))
        assert data is not None
        assert outcome == Durable(Sequence(sequence), len(data))
        stored = decode_segment(data, key(sequence))
        assert isinstance(stored, Segment)
        assert (stored.writer, [e.region for e in stored.entries]) == ("ours", [NORTH, SOUTH])


def test_a_log_is_as_long_as_its_segments_and_one_of_many_entries_counts_as_half_their_root(
    store: ScriptedStore, writer: LogWriter
) -> None:
    for count, length in ((1, 1), (4, 2), (36, 5), (100, 10)):
        assert isinstance(writer.put([entry(replace(NORTH, partition=p), 0) for p in range(count)]), Durable)
        assert writer.length == length
    store.faults.puts.append(PutFault.NEVER_ARRIVED)
    assert isinstance(writer.put([entry(replace(NORTH, partition=p), 0) for p in range(16)]), Unsettled)
    assert writer.length == 12
    assert isinstance(writer.put_again(), Durable)
    assert writer.length == 12


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize(("first", "end"), [(0, 1), (1, 2), (4, 5), (0, 2), (0, 39), (1, 3), (1, 4), (4, 39), (5, 7)])
def test_no_fence_takes_the_place_of_lost_segments(
    store: ScriptedStore, clock: ManualClock, writer: LogWriter, first: int, end: int, fenced: bool
) -> None:
    fill(writer, 40)
    if fenced:
        fence(store, 40)
    for lost in range(first, end):
        store.bucket.delete(key(lost))
    before = store.plain.list("")
    with pytest.raises(ObjectMissing, match=rf"{key(first)}.*lancewal repair segment"):
        end_log(store, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId("new"))
    assert store.plain.list("") == before
    assert fenced or isinstance(writer.put([entry(NORTH, 40)]), Durable)
    assert end_log(store, TASKS, clock, LOG, {NORTH: Sequence(end)}, OwnerId("new")).end == (40 if fenced else 41)


@pytest.mark.parametrize("fault", [PutFault.NEVER_ARRIVED, PutFault.LANDS_LATER, PutFault.REFUSED])
def test_without_a_verdict_the_number_stays_taken(store: ScriptedStore, writer: LogWriter, fault: PutFault) -> None:
    store.faults.puts.append(fault)
    store.faults.landing = False
    assert isinstance(writer.put([entry(NORTH, 0)]), Unsettled)
    assert (writer.next_unsent, writer.settled) == (1, False)
    with pytest.raises(RuntimeError, match="not settled"):
        writer.put([entry(NORTH, 1)])
    store.faults.landing = True
    assert isinstance(writer.put_again(), Durable)
    assert (writer.next_unsent, writer.settled) == (1, True)


def test_putting_again_sends_the_same_bytes(store: ScriptedStore, writer: LogWriter, clock: ManualClock) -> None:
    """Time has passed, yet what an earlier try may have stored is still recognised."""
    store.faults.puts.append(PutFault.LANDS_LATER)
    store.faults.landing = False
    assert isinstance(writer.put([entry(NORTH, 0)]), Unsettled)
    clock.seconds += 100
    store.faults.landing = True
    assert isinstance(writer.put_again(), Durable)
    assert [k for act, k in store.calls if act == "put"] == [key(0)] * 2


def test_what_puts_take_is_the_median_of_the_last_ones(clock: ManualClock) -> None:
    class Slow(ScriptedStore):
        seconds = 0.0

        def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
            clock.seconds += self.seconds
            return super().put_if_absent(key, data)

    slow = Slow(clock)
    writer = LogWriter(slow, clock, LOG, OwnerId("ours"), SCHEMA.wal)
    assert writer.put_s == 0
    for position, (took, median) in enumerate([(3, 3), (1, 2), (1, 1), (1, 1), (1, 1), (9, 1), (9, 1), (9, 9)]):
        slow.seconds = took
        assert isinstance(writer.put([entry(NORTH, position)]), Durable)
        assert writer.put_s == pytest.approx(median)


def test_a_lost_reply_is_settled_at_once(store: ScriptedStore, writer: LogWriter) -> None:
    store.faults.puts.append(PutFault.REPLY_LOST)
    assert isinstance(writer.put([entry(NORTH, 0)]), Durable)
    assert writer.settled


def test_there_is_nothing_to_put_again(writer: LogWriter) -> None:
    with pytest.raises(RuntimeError, match="no unsettled segment"):
        writer.put_again()


def test_a_fence_stops_the_writer_for_good(store: ScriptedStore, writer: LogWriter) -> None:
    fill(writer, 2)
    put = fence(store, 2)
    assert writer.put([entry(NORTH, 2)]) == FencedOut(put)
    assert not writer.settled
    assert writer.put_again() == FencedOut(put)
    assert store.plain.get(key(3)) is None


def test_a_foreign_data_segment_leaves_the_log_no_place(
    store: ScriptedStore, clock: ManualClock, writer: LogWriter
) -> None:
    other = LogWriter(store.plain, clock, LOG, OwnerId("impostor"), SCHEMA.wal)
    assert isinstance(other.put([entry(NORTH, 0)]), Durable)
    met = writer.put([entry(NORTH, 0)])
    assert isinstance(met, Occupied)
    assert "impostor" in str(met.error)
    assert met.error.where["object"] == key(0)
    assert not writer.settled


@pytest.mark.parametrize("garbage", [b"", b"{" * 999, b"LWAL" * 99], ids=["nothing", "braces", "magic"])
def test_what_is_no_segment_leaves_the_log_no_place(store: ScriptedStore, writer: LogWriter, garbage: bytes) -> None:
    fill(writer, 2)
    store.plain.put_if_absent(key(2), garbage)
    for met in (writer.put([entry(NORTH, 2)]), writer.put_again()):
        assert isinstance(met, Occupied)
        assert met.error.where["object"] == key(2)


# -- walking -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 6, 7, 40, 99])
def test_a_walk_finds_the_tail_whatever_its_windows(store: ScriptedStore, writer: LogWriter, count: int) -> None:
    fill(writer, count)
    for start in {0, 1, count // 2, count}:
        walked = walk(store, TASKS, LOG, Sequence(start))
        assert [s.sequence for s in walked.segments] == list(range(start, count))
        assert (walked.end, walked.fence) == (max(count, start), None)


def test_a_walk_asks_for_few_more_than_there_are(store: ScriptedStore, writer: LogWriter) -> None:
    fill(writer, 1)
    store.calls.clear()
    walk(store, TASKS, LOG, Sequence(1))
    assert len(store.calls) <= 2  # the tail alone, as most strong reads see it


class Rounds(InlineTasks):
    """How many calls went out together, each time."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def map(self, call: Callable[[A], T], items: Seq[A]) -> list[T]:
        self.sizes.append(len(items))
        return super().map(call, items)


@pytest.mark.parametrize("grown", [0, 1, 3, 20])
def test_a_walk_of_a_log_that_grows_evenly_asks_once(store: ScriptedStore, writer: LogWriter, grown: int) -> None:
    """Behind what is remembered: as many as it had grown by before, and two, of which the first is the end."""
    cache, tasks = SegmentCache(1 << 30), Rounds()
    fill(writer, 5)
    walk_cached(store, tasks, LOG, Sequence(0), cache)
    for expected in (None, [grown + 2], [grown + 2]):
        fill(writer, grown)
        tasks.sizes.clear()
        walked = walk_cached(store, tasks, LOG, Sequence(0), cache)
        assert (walked.end, len(walked.segments)) == (writer.next_unsent, writer.next_unsent)
        assert expected is None or tasks.sizes == expected


@pytest.mark.parametrize("listing", ListFault)
@pytest.mark.parametrize("trailers", [False, True])
def test_a_long_log_is_read_by_a_listing_whatever_it_leaves_out(
    store: ScriptedStore, writer: LogWriter, listing: ListFault, trailers: bool
) -> None:
    fill(writer, 150)
    tasks = Rounds()
    store.faults.listings.append(listing)
    if trailers:
        found: Walk[Segment | Trailer] = walk_trailers(store, tasks, LOG, Sequence(10))
    else:
        found = walk_cached(store, tasks, LOG, Sequence(10), SegmentCache(1 << 30))
    assert [s.sequence for s in found.segments] == list(range(10, 150))
    assert (found.end, found.fence, found.later) == (150, None, None)
    assert not store.faults.listings
    if listing in (ListFault.NONE, ListFault.SHUFFLED):
        # The first two beside the listing; then what it shows, and two behind that.
        assert tasks.sizes == [2, 2, 140]


def test_what_a_listing_shows_is_not_read_at_once_where_it_is_large(
    store: ScriptedStore, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(writer, 30)
    size = len(store.bucket.get(key(5)) or b"")
    monkeypatch.setattr("lancewal_core.wal.listed._BYTES_AT_ONCE", 10 * size)
    tasks = Rounds()
    assert walk_cached(store, tasks, LOG, Sequence(0), SegmentCache(1 << 30)).end == 30
    assert max(tasks.sizes) <= 12
    monkeypatch.setattr("lancewal_core.wal.listed._BYTES_AT_ONCE", size // 2)
    assert (
        walk_cached(store, tasks, LOG, Sequence(0), SegmentCache(1 << 30)).end == 30
    )  # one of them is read all the same


@pytest.mark.parametrize("before", [0, 2, 7, 8, 50])
def test_before_bounds_a_walk(store: ScriptedStore, writer: LogWriter, before: int) -> None:
    fill(writer, 8)
    store.calls.clear()
    walked = walk(store, TASKS, LOG, Sequence(2), before=Sequence(before))
    assert [s.sequence for s in walked.segments] == list(range(2, min(before, 8)))
    assert walked.end == max(2, min(before, 8))
    assert all(k < key(before) for _, k in store.calls)


def test_a_hole_and_a_fence_both_end_a_walk(store: ScriptedStore, writer: LogWriter) -> None:
    fill(writer, 6)
    store.bucket.delete(key(3))
    assert walk(store, TASKS, LOG, Sequence(0)).end == 3
    put = fence(store, 3)
    walked = walk(store, TASKS, LOG, Sequence(1))
    assert [s.sequence for s in walked.segments] == [1, 2]
    assert (walked.end, walked.fence) == (3, put)


@pytest.mark.parametrize("lost", range(7))
def test_a_walk_says_that_a_later_segment_is_there(store: ScriptedStore, writer: LogWriter, lost: int) -> None:
    fill(writer, 8)
    store.bucket.delete(key(lost))
    walked = walk(store, TASKS, LOG, Sequence(0))
    assert (walked.end, walked.later) == (lost, lost + 1)
    assert walk(store, TASKS, LOG, Sequence(0), before=Sequence(lost + 1)).later is None


def test_a_segment_that_came_between_two_gets_is_no_hole(store: ScriptedStore, writer: LogWriter) -> None:
    """GETs of a window run at the same time: the first may come before its PUT, the second after its own."""
    fill(writer, 2)
    put = store.bucket.get(key(0))
    assert put is not None
    store.bucket.delete(key(0))
    store.before("get", key(1), lambda: store.bucket.put(key(0), put, 0))
    walked = walk(store, TASKS, LOG, Sequence(0))
    assert ([s.sequence for s in walked.segments], walked.end, walked.later) == ([0, 1], 2, None)


@pytest.mark.parametrize("listing", ListFault)
def test_no_listing_makes_a_later_number_of_nothing(
    store: ScriptedStore, clock: ManualClock, writer: LogWriter, listing: ListFault
) -> None:
    """Beside the log lie others, and what is no segment; what lay before has been trimmed."""
    fill(writer, 8)
    other = LogWriter(store.plain, clock, LogId("log-b"), OwnerId("other"), SCHEMA.wal)
    fill(other, 20)
    store.plain.put_if_absent(f"{paths.log_prefix(LOG)}note.txt", b"of an operator")
    for trimmed in range(5):
        store.bucket.delete(key(trimmed))
    store.faults.listings.append(listing)
    walked = walk(store, TASKS, LOG, Sequence(5))
    assert confirm_end(store, walked, from_store(store)) == walked
    assert not store.faults.listings


@pytest.mark.parametrize(("listing", "found"), [(ListFault.SHUFFLED, True), (ListFault.PARTIAL, False)])
def test_a_later_number_is_found_where_a_listing_shows_it(
    store: ScriptedStore, writer: LogWriter, listing: ListFault, found: bool
) -> None:
    fill(writer, 8)
    for lost in (1, 2, 3):
        store.bucket.delete(key(lost))
    walked = walk(store, TASKS, LOG, Sequence(0))
    assert (walked.end, walked.later) == (1, None)
    store.faults.listings.append(listing)
    after = confirm_end(store, walked, from_store(store))
    assert (after.segments, after.end, after.later) == (walked.segments, 1, 4 if found else None)


def test_a_later_number_that_was_there_counts(store: ScriptedStore, writer: LogWriter) -> None:
    """However old a listing is."""
    fill(writer, 3)
    walked = walk(store, TASKS, LOG, Sequence(3))
    fill(writer, 2)
    for lost in (3, 4):
        store.bucket.delete(key(lost))
    assert confirm_end(store, walked, from_store(store)) == walked
    store.faults.listings.append(ListFault.STALE)
    assert confirm_end(store, walked, from_store(store)).later == 4


def test_lost_segments_that_are_put_back_between_a_walk_and_its_listing_are_walked(
    store: ScriptedStore, clock: ManualClock, writer: LogWriter
) -> None:
    """Whoever asked for them before has not seen what lies behind them: it was durable all the same."""
    fill(writer, 9)
    held = {n: store.bucket.get(key(n)) or b"" for n in range(9)}
    for lost, back, end, later in (
        ((3, 4, 5), (3, 4, 5), 9, None),
        ((3, 4, 5), (3, 4), 5, 6),
        ((3, 4, 5), (4, 5), 3, 4),
        ((3, 4, 5, 7), (3, 4, 5), 7, 8),
    ):
        for n in lost:
            store.bucket.delete(key(n))
        walked = walk(store, TASKS, LOG, Sequence(0))
        assert (walked.end, walked.later) == (3, None)
        for n in back:
            store.bucket.put(key(n), held[n], 0)
        after = confirm_end(store, walked, from_store(store))
        assert ([s.sequence for s in after.segments], after.end, after.later) == (list(range(end)), end, later)
        for n in lost:
            store.bucket.put(key(n), held[n], 0)
    for n in (3, 4, 5):
        store.bucket.delete(key(n))
    walked = walk(store, TASKS, LOG, Sequence(0))
    for n in (3, 4, 5):
        store.bucket.put(key(n), held[n], 0)
    fence(store, 9)
    after = confirm_end(store, walked, from_store(store))
    assert (after.end, after.later, after.fence is not None) == (9, None, True)


def test_a_walk_goes_on_no_further_than_one_listing_shows(store: ScriptedStore, writer: LogWriter) -> None:
    """Else it would run behind a writer that is faster than the listing."""
    fill(writer, 3)
    walked = walk(store, TASKS, LOG, Sequence(0))
    fill(writer, 3)
    store.after("list", paths.log_prefix(LOG), lambda: fill(writer, 3), 1)
    after = confirm_end(store, walked, from_store(store))
    assert ([s.sequence for s in after.segments], after.end, after.later) == (list(range(6)), 6, None)


@pytest.mark.parametrize("act", ["before", "after"])
def test_segments_that_come_between_a_walk_and_its_listing_are_no_loss(
    store: ScriptedStore, clock: ManualClock, writer: LogWriter, act: str
) -> None:
    fill(writer, 3)
    walked = walk(store, TASKS, LOG, Sequence(0))
    getattr(store, act)("list", paths.log_prefix(LOG), lambda: fill(writer, 3), 2)
    after = confirm_end(store, walked, from_store(store))
    assert after.later is None
    assert ([s.sequence for s in after.segments], after.end) == (list(range(after.end)), 6 if act == "before" else 3)
    ended = end_log(store, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId("new"))
    assert ([s.sequence for s in ended.segments], ended.end) == (list(range(9)), 9)


def test_a_fence_needs_no_listing(store: ScriptedStore, clock: ManualClock, writer: LogWriter) -> None:
    fill(writer, 2)
    put = fence(store, 2)
    store.fail("list", "")
    assert end_log(store, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId("new")).fence == put


def test_regions_limit_what_is_decoded(store: ScriptedStore, writer: LogWriter) -> None:
    writer.put([entry(NORTH, 0), entry(SOUTH, 5, 3)])
    writer.put([entry(SOUTH, 8)])
    walked = walk(store, TASKS, LOG, Sequence(0), regions=(NORTH,))
    assert [[e.region for e in s.entries] for s in walked.segments] == [[NORTH], []]


def test_an_unanswered_get_is_not_the_tail(store: ScriptedStore, writer: LogWriter) -> None:
    fill(writer, 4)
    store.fail("get", key(2))
    with pytest.raises(StoreUnavailable):
        walk(store, TASKS, LOG, Sequence(0))


def test_trailers_say_what_segments_say(store: ScriptedStore, writer: LogWriter, threads: ThreadTasks) -> None:
    rng = random.Random(4)
    at = {NORTH: 0, SOUTH: 1000}
    for _ in range(45):
        entries = []
        for region in rng.sample([NORTH, SOUTH], rng.randint(1, 2)):
            count = rng.randint(1, 4)
            entries.append(entry(region, at[region], count))
            at[region] += count
        assert isinstance(writer.put(entries), Durable)
    fence(store, 45)
    for start in (0, 7, 44, 45):
        whole = walk(store, threads, LOG, Sequence(start))
        trailers = walk_trailers(store, threads, LOG, Sequence(start))
        assert (whole.log, whole.end, whole.fence) == (trailers.log, trailers.end, trailers.fence)
        assert [
            (s.sequence, s.writer, [(e.region, e.first, e.next, e.rows.num_rows, e.rejected) for e in s.entries])
            for s in whole.segments
        ] == [
            (t.sequence, t.writer, [(e.region, e.first, e.next, e.row_count, e.rejected) for e in t.entries])
            for t in trailers.segments
        ]


def test_a_cached_walk_reads_only_what_is_new(store: ScriptedStore, writer: LogWriter) -> None:
    cache = SegmentCache(1 << 20)
    fill(writer, 10)
    assert walk_cached(store, TASKS, LOG, Sequence(0), cache) == walk(store, TASKS, LOG, Sequence(0))
    fill(writer, 1)
    store.calls.clear()
    assert walk_cached(store, TASKS, LOG, Sequence(0), cache) == walk(store.plain, TASKS, LOG, Sequence(0))
    assert all(k >= key(10) for _, k in store.calls)
    put = fence(store, 11)
    assert walk_cached(store, TASKS, LOG, Sequence(0), cache).fence == put


def segments_kept(cache: SegmentCache) -> list[int]:
    return [n for n in range(20) if cache.get(key(n)) is not None]


def test_what_has_no_room_in_a_cache_is_read_by_each_plan_and_nothing_else(
    store: ScriptedStore, writer: LogWriter
) -> None:
    """A plan goes over a log from its first segment on: were that let go of for the last, the next would read all again."""
    fill(writer, 6)
    one = SegmentCache(1 << 20)
    walk_cached(store, TASKS, LOG, Sequence(0), one)
    cache = SegmentCache(one._bytes // 2)
    whole = walk(store.plain, TASKS, LOG, Sequence(0)).segments
    said = walk_trailers(store.plain, TASKS, LOG, Sequence(0)).segments
    for _ in range(3):
        store.calls.clear()
        cache.next_plan()
        found = walk_cached(store, TASKS, LOG, Sequence(0), cache)
        assert found.segments == (*whole[:3], *said[3:]), "of what has no room no rows are in memory"
        assert found.end == 6
        assert segments_kept(cache) == [0, 1, 2]
    assert all(k >= key(3) for _, k in store.calls)


def test_what_two_plans_have_not_asked_for_makes_room(store: ScriptedStore, writer: LogWriter) -> None:
    fill(writer, 3)
    cache = SegmentCache(1 << 20)
    walk_cached(store, TASKS, LOG, Sequence(0), cache)
    cache = SegmentCache(cache._bytes + 100)
    for start, kept in ((0, [0, 1, 2]), (2, [0, 1, 2]), (2, [2, 3]), (2, [2, 3, 4])):
        cache.next_plan()
        walk_cached(store, TASKS, LOG, Sequence(start), cache)
        assert [n for n in range(20) if key(n) in cache._segments] == kept
        if start:
            fill(writer, 1)


def test_a_batch_that_entries_share_is_counted_once(store: ScriptedStore, writer: LogWriter) -> None:
    """It is in memory once; and to count the part of each entry took longer than to decode them."""
    regions = [Region("orders", TopicId("id"), number) for number in range(50)]
    assert isinstance(writer.put([entry(region, 0) for region in regions]), Durable)
    cache = SegmentCache(1 << 20)
    (segment,) = walk_cached(store, TASKS, LOG, Sequence(0), cache).segments
    assert isinstance(segment, Segment)
    sizes = {e.rows.column(OFFSET).buffers()[1].address: e.rows.get_total_buffer_size() for e in segment.entries}
    assert (len(segment.entries), len(sizes)) == (50, 1)
    assert cache._bytes == 1000 + 50 * 300 + sum(sizes.values())
    for nbytes, expected in ((cache._bytes - 1, None), (cache._bytes, segment)):
        small = SegmentCache(nbytes)
        small.add(key(0), segment)
        assert small.get(key(0)) == expected


# -- ending ------------------------------------------------------------------------------------------------------


def test_the_end_is_a_fence_behind_the_last_segment(
    store: ScriptedStore, clock: ManualClock, writer: LogWriter
) -> None:
    fill(writer, 3)
    walked = end_log(store, TASKS, clock, LOG, {NORTH: Sequence(1)}, OwnerId("new"))
    assert ([s.sequence for s in walked.segments], walked.end) == ([1, 2], 3)
    assert walked.fence is not None
    assert (walked.fence.writer, walked.fence.sequence) == ("new", 3)
    assert writer.put([entry(NORTH, 3)]) == FencedOut(walked.fence)


def test_a_log_that_had_ended_keeps_its_fence(store: ScriptedStore, clock: ManualClock, writer: LogWriter) -> None:
    fill(writer, 2)
    first = end_log(store, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId("one"))
    puts = sum(act == "put" for act, _ in store.calls)
    again = end_log(store, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId("two"))
    assert again == first
    assert sum(act == "put" for act, _ in store.calls) == puts


def test_segments_that_come_before_the_fence_are_in_the_walk(
    store: ScriptedStore, clock: ManualClock, writer: LogWriter
) -> None:
    """Twice the writer is faster than the fence that was already on its way."""
    fill(writer, 2)

    def write() -> None:
        assert isinstance(writer.put([entry(NORTH, int(writer.next_unsent))]), Durable)

    other = ScriptedStore(clock, store.bucket)
    other.before("put", key(2), write)
    other.before("put", key(3), write)
    walked = end_log(other, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId("new"))
    assert [s.sequence for s in walked.segments] == [0, 1, 2, 3]
    assert (walked.end, walked.fence and walked.fence.writer) == (4, "new")


def test_another_claimer_s_fence_in_between_is_the_end(
    store: ScriptedStore, clock: ManualClock, writer: LogWriter
) -> None:
    fill(writer, 1)
    store.before("put", key(1), lambda: fence(store, 1, "faster"))
    walked = end_log(store, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId("new"))
    assert (walked.end, walked.fence and walked.fence.writer) == (1, "faster")


@pytest.mark.parametrize("fault", [PutFault.NEVER_ARRIVED, PutFault.LANDS_LATER, PutFault.REFUSED, PutFault.REPLY_LOST])
def test_a_fence_without_a_verdict_is_tried_until_the_log_has_ended(
    store: ScriptedStore, clock: ManualClock, writer: LogWriter, fault: PutFault
) -> None:
    fill(writer, 1)
    store.faults.puts.append(fault)
    walked = end_log(store, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId("new"))
    data = store.plain.get(key(1))
    assert data is not None
    assert decode_segment(data, key(1)) == walked.fence
    assert [s.sequence for s in walked.segments] == [0]


def test_a_segment_that_lands_while_the_fence_has_no_verdict_is_in_the_walk(
    store: ScriptedStore, clock: ManualClock, writer: LogWriter
) -> None:
    store.faults.puts.append(PutFault.LANDS_LATER)
    store.faults.landing = False
    assert isinstance(writer.put([entry(NORTH, 0)]), Unsettled)
    other = ScriptedStore(clock, store.bucket)
    other.faults.landing = False
    other.faults.puts.append(PutFault.NEVER_ARRIVED)
    other.after("put", key(0), lambda: setattr(other.faults, "landing", True))
    walked = end_log(other, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId("new"))
    assert ([s.sequence for s in walked.segments], walked.end) == ([0], 1)
    assert isinstance(writer.put_again(), Durable)


def test_no_verdict_on_the_fence_for_long(store: ScriptedStore, clock: ManualClock) -> None:
    store.faults.puts.extend([PutFault.NEVER_ARRIVED] * 100)
    with pytest.raises(StoreUnavailable, match=key(0)):
        end_log(store, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId("new"))


@pytest.mark.in_turns("seed", each=4)
@pytest.mark.parametrize("seed", range(40))
def test_writer_and_claimers_race(seed: int) -> None:
    """All claimers see the same end, and before it lies exactly what the writer knows to be durable."""
    rng = random.Random(seed)
    scheduler = Scheduler(str(seed), stay=rng.choice([0.0, 0.5, 0.9]))
    clock = SimClock(scheduler)
    bucket = MemoryBucket()
    durable: list[int] = []
    stopped: list[FencedOut] = []
    ends: list[tuple[int, list[int]]] = []

    def client() -> MemoryStore:
        faults = RandomFaults(random.Random(rng.random()), Rates(put=0.3, unavailable=0.0, lands=0.3))
        return MemoryStore(clock, bucket, faults, scheduler.switch)

    def write(store: MemoryStore) -> None:
        writer = LogWriter(store, clock, LOG, OwnerId("ours"), SCHEMA.wal)
        while not stopped:
            outcome = writer.put([entry(NORTH, int(writer.next_unsent))]) if writer.settled else writer.put_again()
            if isinstance(outcome, Durable):
                durable.append(outcome.sequence)
            elif isinstance(outcome, FencedOut):
                stopped.append(outcome)

    def claim(store: MemoryStore, name: str, after: int) -> None:
        scheduler.wait(lambda: len(durable) >= after or bool(stopped), None, "claim")
        walked = end_log(store, TASKS, clock, LOG, {NORTH: Sequence(0)}, OwnerId(name))
        ends.append((walked.end, [s.sequence for s in walked.segments]))

    scheduler.spawn("writer", partial(write, client()))
    for i in range(3):
        scheduler.spawn(f"claimer {i}", partial(claim, client(), f"c{i}", rng.randint(0, 8)))
    scheduler.run(lambda: len(ends) == 3 and bool(stopped), 20_000)
    assert ends == [(len(durable), list(range(len(durable))))] * 3
    assert durable == list(range(len(durable)))
