"""WAL segments and fences: exact round trips, and nothing but a named error for bytes that are not right."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancewal_core.errors import FormatUnknown, InvalidInput, InvalidSchema, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Position, Region, Sequence, TopicId
from lancewal_core.names.proto import wal_segment_pb2
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.wal.entry import Entry, NoRowYet, RejectedOffset, kept_bytes
from lancewal_core.wal.segment import (
    FOOTER_SIZE,
    SHARED_ROWS_MAX,
    TRAILER_HINT,
    Fence,
    Segment,
    Trailer,
    decode_batch,
    decode_schema,
    decode_segment,
    decode_trailer,
    encode_fence,
    encode_segment,
    trailer_length,
)

ROWS = RowSchema(
    pa.schema([("id", pa.int64()), ("name", pa.string()), ("vector", pa.list_(pa.float32(), 2))]), ("id",), ("id",)
)
LOG = LogId("7f3a-1")
SEQUENCE = Sequence(4)
KEY = paths.wal_segment(LOG, SEQUENCE)
NORTH = Region("orders", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 0)
SOUTH = Region("orders", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 17)


def batch(offsets: list[int], names: list[str | None] | None = None) -> pa.RecordBatch:
    """Rows with these offsets; every third is a patch and every fourth a delete."""
    ops = [Op.PATCH if i % 3 == 2 else Op.DELETE if i % 4 == 3 else Op.UPSERT for i in range(len(offsets))]
    columns = {
        "id": [offset * 10 for offset in offsets],
        "name": names if names is not None else [f"name {offset}" for offset in offsets],
        "vector": [None if op is Op.DELETE else [0.5, float(i)] for i, op in enumerate(ops)],
        "_offset": offsets,
        "_timestamp": [1_700_000_000_000 + offset for offset in offsets],
        "_op": [int(op) for op in ops],
        "_present": [b"\x03" if op is Op.PATCH else None for op in ops],
    }
    return pa.record_batch([pa.array(columns[f.name], f.type) for f in ROWS.wal], schema=ROWS.wal)


def entry(region: Region, first: int, next_: int, rows: pa.RecordBatch, *rejected: RejectedOffset) -> Entry:
    return Entry(region, Position(first), Position(next_), 2, rows, rejected)


def two_entries() -> Segment:
    north = entry(NORTH, 100, 110, batch([100, 101, 103, 104, 108]), RejectedOffset(102, "not_json"))
    south = entry(SOUTH, 7, 9, batch([]))
    return Segment(LOG, SEQUENCE, "ingest-0", (north, south), 1_700_000_000_000)


FENCE = Fence(LOG, SEQUENCE, "ingest-1", 1_700_000_000_500, LogId("9c-2"))


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    entries = []
    for partition in draw(st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=4)):
        first = draw(st.integers(0, 2**62))
        next_ = first + draw(st.integers(1, 60))
        offsets = sorted(draw(st.sets(st.integers(first, next_ - 1), max_size=12)))
        bad = {offset for offset in offsets if draw(st.booleans())}
        good = [offset for offset in offsets if offset not in bad]
        names = draw(st.lists(st.none() | st.text(max_size=5), min_size=len(good), max_size=len(good)))
        small = [offset % 1_000_000 for offset in good]  # Timestamps and keys of ``batch`` need not be offsets.
        rows = batch(small, names)
        at = rows.schema.get_field_index("_offset")
        rows = rows.set_column(at, ROWS.wal.field("_offset"), pa.array(good, pa.int64()))
        region = Region("t", TopicId("id"), partition)
        entries.append(entry(region, first, next_, rows, *(RejectedOffset(o, "bad") for o in sorted(bad))))
    return Segment(
        LOG, SEQUENCE, draw(st.text("ab.-_0", min_size=3, max_size=8)), tuple(entries), draw(st.integers(0, 2**60))
    )


@given(segments())
def test_a_segment_comes_back_as_it_was_and_its_bytes_are_stable(segment: Segment) -> None:
    data = encode_segment(segment, ROWS.wal)
    read = decode_segment(data, KEY)
    assert read == segment
    assert isinstance(read, Segment)
    for decoded in read.entries:
        assert decoded.rows.schema.equals(ROWS.wal, check_metadata=True)
    assert encode_segment(segment, ROWS.wal) == data


@given(segments(), st.data())
def test_only_wanted_regions_are_read(segment: Segment, data: st.DataObject) -> None:
    wanted = {e.region for e in segment.entries if data.draw(st.booleans())} | {NORTH}
    read = decode_segment(encode_segment(segment, ROWS.wal), KEY, wanted)
    assert read == replace(segment, entries=tuple(e for e in segment.entries if e.region in wanted))


def one_batch_each() -> Segment:
    """Entries too large to share a batch."""
    size = SHARED_ROWS_MAX // 2 + 1
    entries = (entry(region, 0, size, batch(list(range(size)))) for region in (NORTH, SOUTH))
    return Segment(LOG, SEQUENCE, "ingest-0", tuple(entries), 0)


def test_batches_without_a_wanted_region_are_not_looked_at() -> None:
    segment = one_batch_each()
    data = bytearray(encode_segment(segment, ROWS.wal))
    trailer = decode_trailer(bytes(data), KEY, len(data))
    assert isinstance(trailer, Trailer)
    assert [len(held.entries) for held in trailer.batches] == [1, 1]
    data[trailer.batches[0].section.start + 40] ^= 1
    read = decode_segment(bytes(data), KEY, [SOUTH])
    assert isinstance(read, Segment)
    assert read.entries == segment.entries[1:]
    with pytest.raises(ObjectCorrupt):
        decode_segment(bytes(data), KEY, [NORTH])


def small_entries(count: int, rows: int, first: int = 100) -> Segment:
    """Entries of as many partitions, with equal offsets."""
    held = batch(list(range(first, first + rows)))
    entries = (entry(Region("orders", NORTH.topic_id, p), first, first + rows, held) for p in range(count))
    return Segment(LOG, SEQUENCE, "ingest-0", tuple(entries), 1_700_000_000_000)


def test_small_entries_cost_what_their_rows_cost() -> None:
    """A batch by itself costs about a kilobyte."""
    one = small_entries(1, 512)
    many = small_entries(256, 2)
    alone, together = (len(encode_segment(segment, ROWS.wal)) for segment in (one, many))
    assert together < alone + 256 * 100
    assert decode_segment(encode_segment(many, ROWS.wal), KEY) == many


@given(st.lists(st.sampled_from([0, 1, 700, SHARED_ROWS_MAX - 1, SHARED_ROWS_MAX, SHARED_ROWS_MAX + 1]), max_size=6))
@settings(max_examples=40)
def test_entries_share_batches_of_bounded_size(sizes: list[int]) -> None:
    whole = batch(list(range(SHARED_ROWS_MAX + 1)))
    entries = (
        entry(Region("orders", NORTH.topic_id, p), 0, size + 1, whole.slice(0, size)) for p, size in enumerate(sizes)
    )
    segment = Segment(LOG, SEQUENCE, "w", tuple(entries), 0)
    data = encode_segment(segment, ROWS.wal)
    trailer = decode_trailer(data, KEY, len(data))
    assert isinstance(trailer, Trailer)
    held = [[header.row_count for header in part.entries] for part in trailer.batches]
    assert [count for counts in held for count in counts] == sizes
    assert all(len(counts) == 1 or sum(counts) <= SHARED_ROWS_MAX for counts in held)
    assert all(sum(left) + right[0] > SHARED_ROWS_MAX for left, right in pairwise(held))
    assert sum(header.nbytes for header in trailer.entries) <= len(data)
    for wanted in segment.entries:
        alone = decode_segment(data, KEY, [wanted.region])
        assert isinstance(alone, Segment)
        assert alone.entries == (wanted,)


def test_entries_that_share_a_batch_are_no_batches_themselves() -> None:
    """A slice takes some kilobytes, however few its rows."""
    read = decode_segment(encode_segment(small_entries(256, 2), ROWS.wal), KEY)
    assert isinstance(read, Segment)
    (batch,) = {id(entry.range.batch): entry.range.batch for entry in read.entries}.values()
    assert [(entry.range.begin, entry.range.row_count) for entry in read.entries] == [(2 * n, 2) for n in range(256)]
    assert kept_bytes(read.entries) == batch.get_total_buffer_size()


def test_an_entry_keeps_no_other_regions_rows_in_memory() -> None:
    data = encode_segment(small_entries(256, 8), ROWS.wal)
    before = pa.total_allocated_bytes()
    read = decode_segment(data, KEY, [NORTH])
    assert isinstance(read, Segment)
    assert pa.total_allocated_bytes() - before < 20_000  # a batch of 2,048 such rows takes some 100 kB


def test_damage_of_a_shared_batch_names_who_is_in_it() -> None:
    data = bytearray(encode_segment(small_entries(5, 2), ROWS.wal))
    trailer = decode_trailer(bytes(data), KEY, len(data))
    assert isinstance(trailer, Trailer)
    data[trailer.batches[0].section.start + 40] ^= 1
    with pytest.raises(ObjectCorrupt, match="checksum"):
        decode_segment(bytes(data), KEY, [SOUTH, NORTH])


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=6))
def test_the_trailer_says_between_which_times_the_rows_of_each_entry_lie(times: list[list[int]]) -> None:
    entries = []
    for partition, some in enumerate(times):
        rows = batch(list(range(len(some))))
        at = rows.schema.get_field_index("_timestamp")
        rows = rows.set_column(at, ROWS.wal.field("_timestamp"), pa.array(some, ROWS.wal.field("_timestamp").type))
        entries.append(entry(Region("orders", NORTH.topic_id, partition), 0, 9, rows))
    segment = Segment(LOG, SEQUENCE, "w", tuple(entries), 0)
    data = encode_segment(segment, ROWS.wal)
    trailer = decode_trailer(data, KEY, len(data))
    assert isinstance(trailer, Trailer)
    expected = [RecordTimes(min(some), max(some)) if some else None for some in times]
    assert [header.record_times for header in trailer.entries] == expected
    assert [RecordTimes.of([e.rows]) for e in entries] == expected
    assert RecordTimes.of(e.rows for e in entries) == RecordTimes.joined(expected)
    assert decode_segment(data, KEY) == segment


@given(st.lists(st.lists(st.sampled_from(Op), max_size=4), max_size=6))
def test_the_trailer_says_which_entries_only_delete(ops: list[list[Op]]) -> None:
    entries = []
    for partition, some in enumerate(ops):
        rows = batch(list(range(len(some))))
        at = rows.schema.get_field_index("_op")
        rows = rows.set_column(at, ROWS.wal.field("_op"), pa.array(some, ROWS.wal.field("_op").type))
        rows = pa.concat_batches([batch([8]), rows, batch([9])]).slice(1, len(some))
        entries.append(entry(Region("orders", NORTH.topic_id, partition), 0, 9, rows))
    data = encode_segment(Segment(LOG, SEQUENCE, "w", tuple(entries), 0), ROWS.wal)
    trailer = decode_trailer(data, KEY, len(data))
    assert isinstance(trailer, Trailer)
    expected = [set(some) == {Op.DELETE} for some in ops]
    assert [header.deletes_only for header in trailer.entries] == expected
    assert [one.deletes_only for one in entries] == expected
    has_row = not {*itertools.chain(*ops)} <= {Op.DELETE}
    assert [NoRowYet.of(trailer.entries), NoRowYet.of(entries)] == [None if has_row else NoRowYet()] * 2


def test_a_fence_comes_back_as_it_was() -> None:
    for fence in (FENCE, replace(FENCE, writer_log=None)):
        assert decode_segment(encode_fence(fence), KEY) == fence
        assert decode_segment(encode_fence(fence), KEY, [NORTH]) == fence


def test_the_body_is_a_plain_arrow_stream() -> None:
    segment = two_entries()
    with pa.ipc.open_stream(encode_segment(segment, ROWS.wal)) as stream:
        batches = list(stream)
        metadata = stream.schema.metadata
    assert batches == [pa.concat_batches([e.rows for e in segment.entries])]
    assert metadata == {b"lancewal.log": LOG.encode(), b"lancewal.sequence": b"4"}


def test_slices_of_a_batch_are_written_alone() -> None:
    whole = batch(list(range(1000)))
    segment = Segment(LOG, SEQUENCE, "w", (entry(NORTH, 501, 520, whole.slice(501, 3)),), 0)
    data = encode_segment(segment, ROWS.wal)
    assert decode_segment(data, KEY) == segment
    assert len(data) < 4000


def test_one_entry_can_be_read_by_ranges() -> None:
    segment = one_batch_each()
    data = encode_segment(segment, ROWS.wal)
    assert trailer_length(data[-FOOTER_SIZE:], KEY) < TRAILER_HINT
    tail = data[-trailer_length(data[-FOOTER_SIZE:], KEY) :]
    trailer = decode_trailer(tail, KEY, len(data))
    assert isinstance(trailer, Trailer)
    assert decode_trailer(data[-len(tail) - 3 :], KEY, len(data)) == trailer
    schema_part = data[: trailer.schema.length]
    schema = decode_schema(schema_part, trailer.schema, KEY)
    for header, expected in zip(trailer.batches, segment.entries, strict=True):
        part = data[header.section.start : header.section.start + header.section.length]
        assert decode_batch(part, header, schema, KEY) == [expected]
        assert header.entries[0].row_count == expected.rows.num_rows
    with pytest.raises(ObjectCorrupt, match="do not hold the trailer"):
        decode_trailer(tail[1:], KEY, len(data))
    with pytest.raises(ObjectCorrupt, match=f"has {len(data) + 1} bytes"):
        decode_trailer(tail, KEY, len(data) + 1)
    with pytest.raises(ObjectCorrupt, match="checksum"):
        decode_schema(schema_part[:-1], trailer.schema, KEY)


# -- damage ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [encode_segment(two_entries(), ROWS.wal), encode_fence(FENCE)], ids=["data", "fence"])
class TestDamage:
    def test_every_truncation(self, data: bytes) -> None:
        for length in range(len(data)):
            with pytest.raises(ObjectCorrupt, match=KEY):
                decode_segment(data[:length], KEY)

    def test_every_flipped_byte(self, data: bytes) -> None:
        for at in range(len(data)):
            for bits in (0x01, 0x80, 0xFF):
                damaged = bytearray(data)
                damaged[at] ^= bits
                with pytest.raises(ObjectCorrupt, match=KEY):
                    decode_segment(bytes(damaged), KEY)

    def test_added_bytes(self, data: bytes) -> None:
        for longer in (data + b"\x00", b"\x00" + data, data + data, data[:20] + data):
            with pytest.raises(ObjectCorrupt, match=KEY):
                decode_segment(longer, KEY)

    def test_under_another_key(self, data: bytes) -> None:
        for key in (
            paths.wal_segment(LOG, Sequence(SEQUENCE + 1)),
            paths.wal_segment(LogId("other"), SEQUENCE),
            "not/a/segment",
        ):
            with pytest.raises(ObjectCorrupt, match=key):
                decode_segment(data, key)

    def test_a_later_format_version_is_named(self, data: bytes) -> None:
        checked = data[-28:-12] + struct.pack("<I", 2)
        later = data[:-28] + checked + struct.pack("<I", google_crc32c.value(checked)) + b"LWAL"
        with pytest.raises(FormatUnknown, match="version 2") as raised:
            decode_segment(later, KEY)
        assert KEY in str(raised.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ObjectCorrupt):
        decode_segment(data, KEY)
    with pytest.raises(ObjectCorrupt):
        decode_segment(data + b"LWAL", KEY)


# -- malformed content under checksums that match --------------------------------------------------------------


def rebuild(
    data: bytes,
    change: Callable[[wal_segment_pb2.WalSegmentTable], None] = lambda table: None,
    body: bytes | None = None,
) -> bytes:
    """The object with a changed table or body, and every checksum made to match again."""
    body_length, table_length = struct.unpack_from("<QI", data, len(data) - 28)
    table = wal_segment_pb2.WalSegmentTable.FromString(data[body_length : body_length + table_length])
    body = data[:body_length] if body is None else body
    for section in (table.body.schema, *(b.section for b in table.body.batches)):
        section.checksum = google_crc32c.value(body[section.start : section.start + section.length])
    change(table)
    message = table.SerializeToString()
    checked = struct.pack("<QIII", len(body), len(message), google_crc32c.value(message), 1)
    return body + message + checked + struct.pack("<I", google_crc32c.value(checked)) + b"LWAL"


SMALL = encode_segment(two_entries(), ROWS.wal)


def test_rebuilding_changes_nothing_by_itself() -> None:
    assert rebuild(SMALL) == SMALL


def set_times(entry: wal_segment_pb2.WalSegmentTable.Entry, low: int | None, high: int | None) -> None:
    entry.ClearField("record_time_min_ms")
    entry.ClearField("record_time_max_ms")
    if low is not None and high is not None:
        entry.record_time_min_ms, entry.record_time_max_ms = low, high


def grow(entry: wal_segment_pb2.WalSegmentTable.Entry) -> None:
    entry.rows = 2**50
    set_times(entry, 0, 9)


def move_a_row(body: wal_segment_pb2.WalSegmentTable.Body) -> None:
    body.entries[0].rows -= 1
    body.entries[1].rows += 1
    set_times(body.entries[1], 0, 9)


CHANGES: dict[str, tuple[Callable[[wal_segment_pb2.WalSegmentTable], object], str]] = {
    "neither kind": (lambda t: t.ClearField("body"), "neither a segment nor a fence"),
    "fence with a body": (lambda t: t.fence.SetInParent(), "a fence, but has a body"),
    "section start": (lambda t: setattr(t.body.batches[0].section, "start", 0), "starts at 0 instead of"),
    "section length": (lambda t: setattr(t.body.batches[0].section, "length", 2**63), "its body at"),
    "empty section": (lambda t: setattr(t.body.schema, "length", 0), "section of 0 bytes"),
    "entry dropped": (lambda t: t.body.entries.pop(), "hold 2 entries, but the table has only 1"),
    "batch dropped": (lambda t: t.body.batches.pop(), "2 of its 2 entries are in no record batch"),
    "batch of fewer": (lambda t: setattr(t.body.batches[0], "entries", 1), "1 of its 2 entries are in no"),
    "batch of none": (lambda t: t.body.batches.add(), "hold 0 entries"),
    "rows": (lambda t: setattr(t.body.entries[0], "rows", 4), "declares 5 rows"),
    "rows of another entry": (lambda t: move_a_row(t.body), "17' have offsets 108 to 108"),
    "rows out of nothing": (lambda t: grow(t.body.entries[1]), "declares 5 rows"),
    "raw bytes": (lambda t: setattr(t.body.batches[0], "raw_bytes", t.body.batches[0].raw_bytes + 8), "declares 5"),
    "raw bytes beyond reason": (lambda t: setattr(t.body.batches[0], "raw_bytes", 2**40), "cannot hold 1099511627776"),
    "record times of other rows": (lambda t: setattr(t.body.entries[0], "record_time_max_ms", 9**14), "record times"),
    "record times of no rows": (lambda t: set_times(t.body.entries[1], 1, 2), "has 0 rows, and record times"),
    "rows without record times": (
        lambda t: set_times(t.body.entries[0], None, None),
        "has 5 rows, and record times None",
    ),
    "record times reversed": (lambda t: set_times(t.body.entries[0], 2, 1), "has 5 rows, and record times"),
    "deletes that are none": (lambda t: setattr(t.body.entries[0], "deletes_only", True), "are not all deletes"),
    "one record time": (lambda t: t.body.entries[0].ClearField("record_time_max_ms"), "has 5 rows, and record times"),
    "region name": (lambda t: setattr(t.body.entries[0], "region", "orders/x"), "is not a region"),
    "region partition": (lambda t: setattr(t.body.entries[0], "region", "orders/x/01"), "is not a region"),
    "hostile topic": (lambda t: setattr(t.body.entries[0], "region", "../x/1"), "is not a region"),
    "region twice": (lambda t: setattr(t.body.entries[0], "region", SOUTH.name), "two entries"),
    "first after the rows": (lambda t: setattr(t.body.entries[0], "first_position", 101), "outside 101 to 110"),
    "next within the rows": (lambda t: setattr(t.body.entries[0], "next_position", 108), "outside 100 to 108"),
    "range beyond Kafka's": (
        lambda t: setattr(t.body.entries[1], "next_position", 2**63),
        "positions, 7 to 922337203685477",
    ),
    "no range": (lambda t: setattr(t.body.entries[1], "next_position", 7), "positions, 7 to 7"),
    "contract version": (lambda t: setattr(t.body.entries[0], "contract_version", 0), "contract version, 0"),
    "rejected outside": (lambda t: setattr(t.body.entries[0].rejected[0], "offset", 110), "rejected offsets"),
    "rejected twice": (lambda t: t.body.entries[0].rejected.append(t.body.entries[0].rejected[0]), "do not ascend"),
}


@pytest.mark.parametrize(("change", "problem"), CHANGES.values(), ids=CHANGES.keys())
def test_a_wrong_table_is_refused(change: Callable[[wal_segment_pb2.WalSegmentTable], object], problem: str) -> None:
    with pytest.raises(ObjectCorrupt, match=problem) as raised:
        decode_segment(rebuild(SMALL, lambda table: (change(table), None)[1]), KEY)
    assert KEY in str(raised.value)


def body_of(data: bytes) -> bytes:
    return data[: struct.unpack_from("<Q", data, len(data) - 28)[0]]


@settings(max_examples=400)
@given(st.data())
def test_malformed_arrow_is_refused_or_read_as_sound_rows(data: st.DataObject) -> None:
    """With matching checksums a changed byte can be a legal value; then rows are sound, and nothing crashes."""
    body = bytearray(body_of(SMALL))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode_segment(rebuild(SMALL, body=bytes(body)), KEY)
    except ObjectCorrupt:
        return
    assert isinstance(read, Segment)
    for decoded in read.entries:
        decoded.rows.validate(full=True)
        assert decoded.rows.equals(decoded.rows) in (True, False)  # Touches every value; NaN is unequal to itself.


def test_a_decompression_bomb_is_refused_before_anything_is_allocated() -> None:
    rows = batch(list(range(5000)), ["x" * 50] * 5000)
    data = encode_segment(Segment(LOG, SEQUENCE, "w", (entry(NORTH, 0, 5000, rows),), 0), ROWS.wal)
    body = body_of(data)
    size = rows.column(1).buffers()[2].size
    assert body.count(struct.pack("<q", size)) >= 1
    bomb = body.replace(struct.pack("<q", size), struct.pack("<q", 2**40))
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    with pytest.raises(ObjectCorrupt, match="declares 5000 rows and"):
        decode_segment(rebuild(data, body=bomb), KEY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * len(data)
    assert pa.total_allocated_bytes() <= before  # what earlier tests left may be collected meanwhile


def test_rows_of_a_foreign_schema_are_refused() -> None:
    """A well-formed object whose Arrow schema is not that of a WAL batch."""
    foreign = pa.schema([("id", pa.int64()), ("word", pa.dictionary(pa.int8(), pa.string()))])
    for schema in (foreign, pa.schema([*foreign, *list(ROWS.wal)[-4:]])):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema):
            pass
        body = sink.getvalue().to_pybytes()

        def only_schema(table: wal_segment_pb2.WalSegmentTable, body: bytes = body) -> None:
            table.body.ClearField("entries")
            table.body.ClearField("batches")
            table.body.schema.length = len(body) - 8
            table.body.schema.checksum = google_crc32c.value(body[:-8])

        with pytest.raises(ObjectCorrupt, match="schema cannot be read"):
            decode_segment(rebuild(SMALL, only_schema, body), KEY)


# -- what is not written ---------------------------------------------------------------------------------------


NORTHERN = two_entries().entries[0]


def one(changed: Entry) -> Segment:
    return Segment(LOG, SEQUENCE, "w", (changed,), 0)


@pytest.mark.parametrize(
    "segment",
    [
        one(replace(NORTHERN, first=Position(101))),
        one(replace(NORTHERN, next=Position(108))),
        one(replace(NORTHERN, first=Position(-1))),
        one(replace(NORTHERN, contract_version=0)),
        one(replace(NORTHERN, rejected=(RejectedOffset(99, "x"),))),
        one(replace(NORTHERN, rejected=(RejectedOffset(104, "x"), RejectedOffset(103, "x")))),
        one(replace(NORTHERN, held=batch([]), next=Position(100))),
        replace(two_entries(), entries=two_entries().entries[:1] * 2),
        replace(two_entries(), log=LogId("..")),
        replace(two_entries(), sequence=Sequence(-1)),
    ],
)
def test_a_broken_segment_is_not_written(segment: Segment) -> None:
    with pytest.raises(InvalidInput):
        encode_segment(segment, ROWS.wal)


def test_a_null_in_a_column_that_has_none_is_not_written() -> None:
    rows = batch([100, 101])
    rows = rows.set_column(0, ROWS.wal.field("id"), pa.array([1, None], pa.int64()))
    with pytest.raises(InvalidInput, match="nulls in column 'id'"):
        encode_segment(one(replace(NORTHERN, held=rows)), ROWS.wal)


def test_rows_of_another_schema_are_not_written() -> None:
    with pytest.raises(InvalidSchema, match="not the contract's"):
        encode_segment(one(replace(NORTHERN, held=batch([100]).drop_columns(["name"]))), ROWS.wal)
    with pytest.raises(InvalidSchema, match="ends with the columns"):
        encode_segment(two_entries(), ROWS.table)
    coded = pa.schema([("tags", pa.list_(pa.dictionary(pa.int8(), pa.string()))), *ROWS.wal])
    with pytest.raises(InvalidSchema, match="'tags' is dictionary encoded"):
        encode_segment(two_entries(), coded)
