"""WAL segments and fences: exact round trips, and nothing but a named error for bytes that are not right."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancewal_core import paths
from lancewal_core.errors import FormatUnknown, InvalidInput, InvalidSchema, ObjectCorrupt
from lancewal_core.ids import LogId, Position, Region, Sequence, TopicId
from lancewal_core.proto import wal_segment_pb2
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.wal.segment import (
    FOOTER_SIZE,
    TRAILER_HINT,
    Entry,
    Fence,
    RejectedOffset,
    Segment,
    Trailer,
    decode_entry,
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


def test_other_regions_bytes_are_not_looked_at() -> None:
    segment = two_entries()
    data = bytearray(encode_segment(segment, ROWS.wal))
    trailer = decode_trailer(bytes(data), KEY, len(data))
    assert isinstance(trailer, Trailer)
    data[trailer.entries[0].section.start + 40] ^= 1
    read = decode_segment(bytes(data), KEY, [SOUTH])
    assert isinstance(read, Segment)
    assert read.entries == segment.entries[1:]
    with pytest.raises(ObjectCorrupt):
        decode_segment(bytes(data), KEY, [NORTH])


def test_a_fence_comes_back_as_it_was() -> None:
    for fence in (FENCE, replace(FENCE, writer_log=None)):
        assert decode_segment(encode_fence(fence), KEY) == fence
        assert decode_segment(encode_fence(fence), KEY, [NORTH]) == fence


def test_the_body_is_a_plain_arrow_stream() -> None:
    segment = two_entries()
    with pa.ipc.open_stream(encode_segment(segment, ROWS.wal)) as stream:
        batches = list(stream)
        metadata = stream.schema.metadata
    assert batches == [e.rows for e in segment.entries]
    assert metadata == {b"lancewal.log": LOG.encode(), b"lancewal.sequence": b"4"}


def test_slices_of_a_batch_are_written_alone() -> None:
    whole = batch(list(range(1000)))
    segment = Segment(LOG, SEQUENCE, "w", (entry(NORTH, 501, 520, whole.slice(501, 3)),), 0)
    data = encode_segment(segment, ROWS.wal)
    assert decode_segment(data, KEY) == segment
    assert len(data) < 4000


def test_one_entry_can_be_read_by_ranges() -> None:
    segment = two_entries()
    data = encode_segment(segment, ROWS.wal)
    assert trailer_length(data[-FOOTER_SIZE:], KEY) < TRAILER_HINT
    tail = data[-trailer_length(data[-FOOTER_SIZE:], KEY) :]
    trailer = decode_trailer(tail, KEY, len(data))
    assert isinstance(trailer, Trailer)
    assert decode_trailer(data[-len(tail) - 3 :], KEY, len(data)) == trailer
    schema_part = data[: trailer.schema.length]
    schema = decode_schema(schema_part, trailer.schema, KEY)
    for header, expected in zip(trailer.entries, segment.entries, strict=True):
        part = data[header.section.start : header.section.start + header.section.length]
        assert decode_entry(part, header, schema, KEY) == expected
        assert header.row_count == expected.rows.num_rows
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
    for section in (table.body.schema, *(e.section for e in table.body.entries)):
        section.checksum = google_crc32c.value(body[section.start : section.start + section.length])
    change(table)
    message = table.SerializeToString()
    checked = struct.pack("<QIII", len(body), len(message), google_crc32c.value(message), 1)
    return body + message + checked + struct.pack("<I", google_crc32c.value(checked)) + b"LWAL"


SMALL = encode_segment(two_entries(), ROWS.wal)


def test_rebuilding_changes_nothing_by_itself() -> None:
    assert rebuild(SMALL) == SMALL


CHANGES: dict[str, tuple[Callable[[wal_segment_pb2.WalSegmentTable], object], str]] = {
    "neither kind": (lambda t: t.ClearField("body"), "neither a segment nor a fence"),
    "fence with a body": (lambda t: t.fence.SetInParent(), "a fence, but has a body"),
    "section start": (lambda t: setattr(t.body.entries[1].section, "start", 0), "starts at 0 instead of"),
    "section length": (lambda t: setattr(t.body.entries[0].section, "length", 2**63), "instead of 9223372036854"),
    "empty section": (lambda t: setattr(t.body.schema, "length", 0), "section of 0 bytes"),
    "entry dropped": (lambda t: t.body.entries.pop(), "its sections end at"),
    "entries swapped": (lambda t: t.body.entries.reverse(), "instead of"),
    "rows": (lambda t: setattr(t.body.entries[0], "rows", 4), "declares 5 rows"),
    "rows out of nothing": (lambda t: setattr(t.body.entries[1], "rows", 2**50), "declares 0 rows"),
    "raw bytes": (lambda t: setattr(t.body.entries[0], "raw_bytes", t.body.entries[0].raw_bytes + 8), "declares 5"),
    "raw bytes beyond reason": (lambda t: setattr(t.body.entries[0], "raw_bytes", 2**40), "cannot hold 1099511627776"),
    "region name": (lambda t: setattr(t.body.entries[0], "region", "orders/x"), "is not a region"),
    "region partition": (lambda t: setattr(t.body.entries[0], "region", "orders/x/01"), "is not a region"),
    "hostile topic": (lambda t: setattr(t.body.entries[0], "region", "../x/1"), "is not a region"),
    "region twice": (lambda t: setattr(t.body.entries[0], "region", SOUTH.name), "two entries"),
    "first after the rows": (lambda t: setattr(t.body.entries[0], "first_position", 101), "outside 101 to 110"),
    "next within the rows": (lambda t: setattr(t.body.entries[0], "next_position", 108), "outside 100 to 108"),
    "no range": (lambda t: setattr(t.body.entries[1], "next_position", 7), "covers 7 to 7"),
    "contract version": (lambda t: setattr(t.body.entries[0], "contract_version", 0), "contract version 0"),
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
        one(replace(NORTHERN, rows=batch([]), next=Position(100))),
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
    with pytest.raises(InvalidInput, match="nulls in 'id'"):
        encode_segment(one(replace(NORTHERN, rows=rows)), ROWS.wal)


def test_rows_of_another_schema_are_not_written() -> None:
    with pytest.raises(InvalidSchema, match="not the contract's"):
        encode_segment(one(replace(NORTHERN, rows=batch([100]).drop_columns(["name"]))), ROWS.wal)
    with pytest.raises(InvalidSchema, match="ends with the columns"):
        encode_segment(two_entries(), ROWS.table)
    coded = pa.schema([("tags", pa.list_(pa.dictionary(pa.int8(), pa.string()))), *ROWS.wal])
    with pytest.raises(InvalidSchema, match="'tags' is dictionary encoded"):
        encode_segment(two_entries(), coded)
