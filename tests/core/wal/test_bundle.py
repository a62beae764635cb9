"""Bundles: exact copies, refused where they are not right, and used for no segment but the ones that they copy."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import TypeVar

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import FormatUnknown, InvalidInput, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, OwnerId, Position, Region, Sequence, TopicId
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.object_store import ObjectInfo
from lancewal_core.wal.bundle import SEGMENTS_MAX, Bundle, Copy, decode_bundle, encode_bundle
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.segment import Segment, Trailer, decode_segment, encode_segment
from lancewal_core.wal.segment_cache import SegmentCache
from lancewal_core.wal.walk import Walk, walk, walk_cached
from lancewal_core.wal.writer import Durable, LogWriter
from tests.support.scripted import InlineTasks, ManualClock, ScriptedStore
from tests.twins.faults import ListFault

LOG, OTHER = LogId("log-a"), LogId("log-b")
SCHEMA = RowSchema(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",), ("k",))
REGIONS = [Region("orders", TopicId("topic-id-1"), partition) for partition in range(4)]
T = TypeVar("T")
A = TypeVar("A")


def entry(region: Region, first: int, count: int = 1, rejected: Seq[int] = ()) -> Entry:
    offsets = [o for o in range(first, first + count) if o not in rejected]
    columns = {
        "k": offsets,
        "v": [f"v{o}" for o in offsets],
        "_offset": offsets,
        "_timestamp": offsets,
        "_op": [0] * len(offsets),
        "_present": [None] * len(offsets),
    }
    batch = pa.record_batch([pa.array(columns[f.name], f.type) for f in SCHEMA.wal], schema=SCHEMA.wal)
    bad = tuple(RejectedOffset(offset, "not_json") for offset in rejected)
    return Entry(region, Position(first), Position(first + count), 1, batch, bad)


@st.composite
def runs(draw: st.DrawFn) -> list[Copy]:
    """Segments in a row, each with an entry of some of the regions, the larger ones with many rows."""
    first, reached = draw(st.integers(0, 2**40)), dict.fromkeys(REGIONS, 0)
    copies = []
    for number in range(draw(st.integers(1, 6))):
        entries = []
        for region in sorted(draw(st.sets(st.sampled_from(REGIONS)))):
            count = draw(st.sampled_from([1, 2, 900]))
            bad = [reached[region]] if draw(st.booleans()) else []
            entries.append(entry(region, reached[region], count, bad))
            reached[region] += count
        segment = Segment(LOG, Sequence(first + number), "ours", tuple(entries), draw(st.integers(0, 2**50)))
        copies.append(Copy(segment, draw(st.integers(0, 2**30)), draw(st.text(max_size=40))))
    return copies


@given(runs())
def test_copies_come_back_as_they_were(copies: list[Copy]) -> None:
    first = copies[0].segment.sequence
    expected = Bundle(LOG, first, "ours", tuple(copies))
    data = encode_bundle(copies, SCHEMA.wal)
    assert decode_bundle(data, expected.key) == expected
    assert encode_bundle(copies, SCHEMA.wal) == data


def test_rows_of_a_region_lie_together_and_the_bundle_is_smaller_than_its_segments() -> None:
    segments = [Segment(LOG, Sequence(n), "ours", tuple(entry(region, n) for region in REGIONS), 5) for n in range(32)]
    stored = [encode_segment(segment, SCHEMA.wal) for segment in segments]
    data = encode_bundle([Copy(s, len(d), "e") for s, d in zip(segments, stored, strict=True)], SCHEMA.wal)
    with pa.ipc.open_stream(data) as stream:
        assert [batch["_offset"].to_pylist() for batch in stream] == [list(range(32)) * len(REGIONS)]
    assert len(data) < sum(map(len, stored)) / 4


@pytest.mark.parametrize(
    "change",
    [
        lambda copies: [],
        lambda copies: copies * SEGMENTS_MAX,
        lambda copies: [copies[0], copies[2]],
        lambda copies: [copies[1], copies[0]],
        lambda copies: [copies[0], replace(copies[1], segment=replace(copies[1].segment, log=OTHER))],
        lambda copies: [copies[0], replace(copies[1], segment=replace(copies[1].segment, writer="theirs"))],
    ],
)
def test_what_is_no_run_of_a_log_is_not_written(change: Callable[[list[Copy]], list[Copy]]) -> None:
    copies = [Copy(Segment(LOG, Sequence(n), "ours", (entry(REGIONS[0], n),), 5), 9, "e") for n in range(3)]
    with pytest.raises(InvalidInput):
        encode_bundle(change(copies), SCHEMA.wal)


def test_a_bundle_is_taken_under_its_own_key_alone() -> None:
    copies = [Copy(Segment(LOG, Sequence(n), "ours", (entry(REGIONS[0], n),), 5), 9, "e") for n in range(4, 8)]
    data = encode_bundle(copies, SCHEMA.wal)
    for log, first, last in ((OTHER, 4, 7), (LOG, 3, 6), (LOG, 4, 8), (LOG, 3, 7)):
        with pytest.raises(ObjectCorrupt, match="it says that it copies segments 4 to 7 of log 'log-a'"):
            decode_bundle(data, paths.wal_bundle(log, Sequence(first), Sequence(last)))
    with pytest.raises(ObjectCorrupt, match="it is neither a segment nor a fence"):
        decode_segment(data, paths.wal_segment(LOG, Sequence(4)))
    segment = encode_segment(copies[0].segment, SCHEMA.wal)
    with pytest.raises(ObjectCorrupt, match="it is not a bundle; readers ignore it"):
        decode_bundle(segment, paths.wal_bundle(LOG, Sequence(4), Sequence(7)))


# -- reading a log by its bundles --------------------------------------------------------------------------------


class Log:
    """40 segments of a log, and bundles of 10."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = ScriptedStore(self.clock)
        writer = LogWriter(self.store, self.clock, LOG, OwnerId("ours"), SCHEMA.wal)
        self.copies: list[Copy] = []
        for n in range(40):
            entries = (entry(REGIONS[n % 3], n), entry(REGIONS[3], n))
            durable = writer.put(entries)
            assert isinstance(durable, Durable)
            assert durable.etag is not None
            segment = Segment(LOG, durable.sequence, "ours", entries, durable.written_at_ms)
            self.copies.append(Copy(segment, durable.size, durable.etag))
        for first in range(0, 40, 10):
            self.put(self.copies[first : first + 10])

    def put(self, copies: Seq[Copy], log: LogId = LOG) -> str:
        first, last = copies[0].segment.sequence, copies[-1].segment.sequence
        key = paths.wal_bundle(log, first, last)
        self.store.plain.delete([key])
        self.store.plain.put_if_absent(key, encode_bundle(copies, SCHEMA.wal))
        return key

    def bundle(self, first: int) -> str:
        return paths.wal_bundle(LOG, Sequence(first), Sequence(first + 9))

    def key(self, number: int) -> str:
        return paths.wal_segment(LOG, Sequence(number))

    def read(self, start: int = 0, cache: SegmentCache | None = None) -> tuple[Walk[Segment | Trailer], list[str]]:
        """The walk, and what it has got beside the two that it begins with and the two at the end."""
        self.store.calls.clear()
        walked = walk_cached(self.store, InlineTasks(), LOG, Sequence(start), cache or SegmentCache(1 << 30))
        first = {self.key(start), self.key(start + 1), self.key(walked.end), self.key(walked.end + 1)}
        return walked, [key for act, key in self.store.calls if act == "get" and key not in first]

    def plain(self, start: int = 0) -> Walk[Segment]:
        return walk(self.store.plain, InlineTasks(), LOG, Sequence(start))


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.parametrize("start", [0, 1, 7, 8, 9, 10, 25, 39])
def test_a_log_is_read_by_its_bundles(log: Log, start: int) -> None:
    walked, got = log.read(start)
    assert walked == log.plain(start)
    wanted = [first for first in range(0, 40, 10) if first + 10 - max(first, start + 2) >= 2]
    alone = [9] if start == 7 else []
    assert sorted(got) == sorted([*map(log.bundle, wanted), *map(log.key, alone)])


def test_what_was_read_by_a_bundle_is_remembered(log: Log) -> None:
    cache = SegmentCache(1 << 30)
    walked, _ = log.read(0, cache)
    assert log.read(0, cache) == (walked, [])
    held = [e.rows for s in walked.segments for e in s.entries if isinstance(e, Entry)]
    kept = {rows.column("_offset").buffers()[1].address: rows for rows in held}
    assert len(kept) == 6  # of four bundles a batch each, and of the first two segments
    rows = sum(rows.get_total_buffer_size() for rows in kept.values())
    assert 30 * 1000 <= cache._bytes - 300 * len(held) <= 40 * 1000 + rows


def test_a_bundle_that_has_more_bytes_than_what_is_wanted_of_it_is_not_asked_for(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first nine and of the last only a few segments are wanted, or it is large for what it is."""
    monkeypatch.setattr("lancewal_core.wal.listed._BYTES_A_REQUEST", -3 * log.copies[0].size)
    walked, got = log.read(5)
    assert walked == log.plain(5)
    assert sorted(got) == sorted([*map(log.key, (7, 8, 9)), *map(log.bundle, (10, 20, 30))])


def test_segments_behind_the_last_bundle_are_read_beside_it(log: Log) -> None:
    log.store.plain.delete([log.bundle(30), log.bundle(20)])
    walked, got = log.read()
    assert walked == log.plain()
    assert sorted(got) == sorted([log.bundle(0), log.bundle(10), *map(log.key, range(20, 40))])


@pytest.mark.parametrize("fault", [ListFault.PARTIAL, ListFault.STALE])
def test_a_listing_that_leaves_out_bundles_or_segments_costs_time_alone(log: Log, fault: ListFault) -> None:
    log.store.faults.listings.append(fault)
    walked, got = log.read()
    assert walked == log.plain()
    assert len(got) > 4


def damage_bytes(log: Log, key: str) -> None:
    data = log.store.bucket.get(key)
    assert data is not None
    log.store.plain.delete([key])
    log.store.plain.put_if_absent(key, data[:40] + bytes([data[40] ^ 1]) + data[41:])


def later_format(log: Log, key: str) -> None:
    data = log.store.bucket.get(key)
    assert data is not None
    checked = data[-28:-12] + (2).to_bytes(4, "little")
    log.store.plain.delete([key])
    changed = data[:-28] + checked + google_crc32c.value(checked).to_bytes(4, "little") + data[-4:]
    with pytest.raises(FormatUnknown):
        decode_bundle(changed, key)
    log.store.plain.put_if_absent(key, changed)


def lost(log: Log, key: str) -> None:
    log.store.before("get", key, lambda: log.store.plain.delete([key]))


def unavailable(log: Log, key: str) -> None:
    log.store.fail("get", key)


def of_another_log(log: Log, key: str) -> None:
    of = [replace(copy, segment=replace(copy.segment, log=OTHER)) for copy in log.copies[10:20]]
    log.store.plain.delete([key])
    log.store.plain.put_if_absent(key, encode_bundle(of, SCHEMA.wal))


def of_other_numbers(log: Log, key: str) -> None:
    log.store.plain.delete([key])
    log.store.plain.put_if_absent(key, encode_bundle(log.copies[11:21], SCHEMA.wal))


@pytest.mark.parametrize("harm", [damage_bytes, later_format, lost, unavailable, of_another_log, of_other_numbers])
def test_a_bundle_that_cannot_be_used_costs_time_alone(log: Log, harm: Callable[[Log, str], None]) -> None:
    harm(log, log.bundle(10))
    walked, got = log.read()
    assert walked == log.plain()
    assert sorted(got) == sorted([*map(log.bundle, range(0, 40, 10)), *map(log.key, range(10, 20))])


def test_a_segment_that_was_put_in_another_s_place_is_read_itself(log: Log) -> None:
    """As by a repair that has given up records; of the very same size."""
    given_up = Segment(LOG, Sequence(14), "them", (entry(REGIONS[2], 14, 1), entry(REGIONS[3], 14)), 5)
    before = log.store.bucket.get(log.key(14))
    assert before is not None
    log.store.plain.delete([log.key(14)])
    data = encode_segment(given_up, SCHEMA.wal)
    log.store.plain.put_if_absent(log.key(14), data)
    # As if the bundle had been made of an object of that size.
    log.put([*log.copies[10:14], replace(log.copies[14], size=len(data)), *log.copies[15:20]])
    walked, got = log.read()
    assert walked == log.plain()
    assert walked.segments[14] == given_up
    assert log.key(14) in got
    assert not {log.key(13), log.key(15)} & set(got)


def test_a_store_that_tells_no_entity_tags_has_no_use_for_bundles(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = ScriptedStore.list

    def untagged(
        self: ScriptedStore, prefix: str, limit: int | None = None, after: str | None = None
    ) -> list[ObjectInfo]:
        return [replace(info, etag=None) for info in listing(self, prefix, limit, after)]

    monkeypatch.setattr(ScriptedStore, "list", untagged)
    walked, _ = log.read()
    assert walked == log.plain()


def test_a_lost_segment_is_lost_though_a_bundle_has_a_copy(log: Log) -> None:
    """Whoever flushes its generation will not find it: no reader shows rows of it that a repair may give up."""
    log.store.plain.delete([log.key(14)])
    walked, _ = log.read()
    assert (walked.end, walked.later) == (14, 15)


def test_bundles_alone_are_no_log(log: Log) -> None:
    log.store.plain.delete([log.key(number) for number in range(40)])
    walked, got = log.read()
    assert (walked.segments, walked.end, walked.later, got) == ((), 0, None, [])
