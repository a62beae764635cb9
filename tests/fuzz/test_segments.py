"""WAL segments and fences: whatever the bytes are, the value that they encode or an error that names the object."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence as SequenceOf
from itertools import pairwise

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Position, Region, Sequence, TopicId
from lancewal_core.names.proto import wal_segment_pb2
from lancewal_core.rows.schema import SYSTEM_FIELDS, RowSchema
from lancewal_core.store.arrow_message import declared_batch, message_length
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_core.wal.segment import (
    FOOTER_SIZE,
    SHARED_ROWS_MAX,
    Fence,
    Segment,
    Trailer,
    decode_segment,
    decode_trailer,
    encode_fence,
    encode_segment,
    trailer_length,
)
from tests.support.fuzzing import damaged, fuzz, memory_bound, outcome

LOG, SEQUENCE = LogId("7f3a-1"), Sequence(4)
KEY = paths.wal_segment(LOG, SEQUENCE)
MIB = 1 << 20
TIME = 1_700_000_000_000
END_MARK = b"\xff\xff\xff\xff\x00\x00\x00\x00"

PLAIN = RowSchema(pa.schema([("id", pa.int64()), ("name", pa.string())]), ("id",), ("id",))
WIDE = RowSchema(
    pa.schema(
        [
            ("id", pa.int64()),
            ("ok", pa.bool_()),
            ("dec", pa.decimal128(12, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("words", pa.list_(pa.string())),
            ("place", pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.binary()))])),
            ("vector", pa.list_(pa.float32(), 3)),
        ]
    ),
    ("id",),
    ("id",),
)


def rows_of(schema: RowSchema, offsets: SequenceOf[int]) -> pa.RecordBatch:
    content = {
        "id": offsets,
        "name": [None if i % 3 else "name" * i for i in offsets],
        "ok": [i % 2 == 0 for i in offsets],
        "dec": [None] * len(offsets),
        "at": [i * 1000 for i in offsets],
        "words": [["a", None] * (i % 3) for i in offsets],
        "place": [{"x": 0.5, "tags": [b"\x00"]} if i % 2 else None for i in offsets],
        "vector": [[1.0, 2.0, 3.0] if i % 2 else None for i in offsets],
        "_offset": offsets,
        "_timestamp": [TIME + i for i in offsets],
        "_op": [0] * len(offsets),
        "_present": [None] * len(offsets),
    }
    return pa.record_batch([pa.array(content[f.name], f.type) for f in schema.wal], schema=schema.wal)


def segment_of(schema: RowSchema, *sizes: int) -> bytes:
    entries = tuple(
        Entry(
            Region("orders", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), partition),
            Position(10),
            Position(13 + size),
            2,
            rows_of(schema, range(10, 10 + size)),
            (RejectedOffset(11 + size, "not_json"),),
        )
        for partition, size in enumerate(sizes)
    )
    return encode_segment(Segment(LOG, SEQUENCE, "ingest-0", entries, 1_700_000_000_000), schema.wal)


SEGMENTS = [
    segment_of(PLAIN),
    segment_of(PLAIN, 0),
    segment_of(PLAIN, 40, 3),
    segment_of(WIDE, 7),
    segment_of(WIDE, 1, 60),
    segment_of(PLAIN, SHARED_ROWS_MAX, 1, 2),
]
FENCES = [encode_fence(Fence(LOG, SEQUENCE, "w", 5, log)) for log in (None, LogId("9c-2"))]
OBJECTS = SEGMENTS + FENCES


def judge(data: bytes) -> Segment | Fence | None:
    """Decode; what comes out has to go back in."""
    read = outcome(lambda: decode_segment(data, KEY), KEY)
    match read:
        case Fence():
            assert decode_segment(encode_fence(read), KEY) == read
        case Segment() if read.entries:
            schema = read.entries[0].rows.schema
            again = encode_segment(read, schema)
            # Not ``==`` of the values: a NaN is in no way equal to itself.
            assert encode_segment(decode_whole(again), schema) == again
        case _:
            pass
    return read


def decode_whole(data: bytes) -> Segment:
    read = decode_segment(data, KEY)
    assert isinstance(read, Segment)
    return read


def seal(body: bytes, table: wal_segment_pb2.WalSegmentTable | bytes) -> bytes:
    """An object with this body and table, and checksums that match."""
    message = table if isinstance(table, bytes) else table.SerializeToString()
    checked = struct.pack("<QIII", len(body), len(message), google_crc32c.value(message), 1)
    return body + message + checked + struct.pack("<I", google_crc32c.value(checked)) + b"LWAL"


def table_of(data: bytes) -> tuple[list[bytes], wal_segment_pb2.WalSegmentTable]:
    """The schema's and the record batches' bytes, and the section table."""
    body, length = struct.unpack_from("<QI", data, len(data) - FOOTER_SIZE)
    table = wal_segment_pb2.WalSegmentTable.FromString(data[body : body + length])
    sections = [table.body.schema, *(batch.section for batch in table.body.batches)]
    return [data[s.start : s.start + s.length] for s in sections], table


def refit(parts: SequenceOf[bytes], table: wal_segment_pb2.WalSegmentTable) -> bytes:
    """The object whose sections are ``parts``: places, checksums and declared sizes are made to fit them."""
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    sections = [table.body.schema, *(batch.section for batch in table.body.batches)]
    for section, part, (start, end) in zip(sections, parts, pairwise(ends), strict=True):
        section.start, section.length, section.checksum = start, end - start, google_crc32c.value(part)
    at = 0
    for batch, part in zip(table.body.batches, parts[1:], strict=True):
        first, *others = table.body.entries[at : at + batch.entries]
        at += batch.entries
        try:
            declared = declared_batch(pa.py_buffer(part))
            first.rows = max(declared.rows - sum(entry.rows for entry in others), 0)
            batch.raw_bytes = declared.raw_bytes
        except (ObjectCorrupt, ValueError):  # declares nothing, or less than nothing: left as it was
            continue
    return seal(b"".join(parts) + END_MARK, table)


def test_refitting_alone_changes_nothing() -> None:
    for data in SEGMENTS:
        assert refit(*table_of(data)) == data


@fuzz(300)
@given(st.binary(max_size=300) | st.binary(max_size=80).map(lambda b: b + b"LWAL"))
def test_any_bytes(data: bytes) -> None:
    assert judge(data) is None


@fuzz(400)
@given(damaged(OBJECTS))
def test_damaged_objects_are_never_other_rows(data: bytes) -> None:
    read = judge(data)
    assert read is None or data in OBJECTS


@fuzz(400)
@given(st.sampled_from(OBJECTS).flatmap(lambda d: damaged([table_of(d)[1].SerializeToString()]).map(lambda t: (d, t))))
def test_a_damaged_table_under_checksums_that_match(case: tuple[bytes, bytes]) -> None:
    data, table = case
    (body,) = struct.unpack_from("<Q", data, len(data) - FOOTER_SIZE)
    with memory_bound(64 * MIB):
        judge(seal(data[:body], table))


@st.composite
def refitted(draw: st.DrawFn) -> bytes:
    parts, table = table_of(draw(st.sampled_from(SEGMENTS)))
    if len(parts) > 2 and draw(st.booleans()):
        parts[1:] = draw(st.permutations(parts[1:]))
    at = draw(st.integers(0, len(parts) - 1))
    others = [part for data in SEGMENTS for part in table_of(data)[0]]
    if draw(st.integers(0, 3)) == 0:
        parts[at] = draw(damaged([parts[at], *others]))
    else:  # Arrow's own frame stays whole, so that what is in it is read
        parts[at] = parts[at][:8] + draw(damaged([parts[at][8:]], in_place=True))
    return refit(parts, table)


@fuzz(700)
@given(refitted())
def test_malformed_arrow_in_a_well_formed_envelope(data: bytes) -> None:
    with memory_bound(64 * MIB):
        judge(data)


@fuzz(200)
@given(damaged(OBJECTS), st.integers(0, 400), st.integers(0, 2**64))
def test_trailers_read_by_range(data: bytes, tail: int, size: int) -> None:
    part = data[-tail:]
    length = outcome(lambda: trailer_length(part, KEY), KEY)
    assert length is None or length >= FOOTER_SIZE
    read = outcome(lambda: decode_trailer(part, KEY, size), KEY)
    assert read is None or isinstance(read, Trailer | Fence)


# -- sizes that are declared, and bombs -----------------------------------------------------------------------------


def bomb(expands_to: int, stated: int, codec: str = "lz4", noise: bool = False) -> bytes:
    """A segment with one entry whose column ``name`` is one text of zeros, stated as ``stated`` bytes when expanded;
    ``noise``: behind 3 MB that cannot be compressed, so that the segment is as large as such an entry may be."""
    more = [pa.field("noise", pa.binary())] if noise else []
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.large_string()), *more, *SYSTEM_FIELDS])
    text = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(struct.pack("<2q", 0, expands_to)), pa.py_buffer(bytes(expands_to))]
    )
    columns = [
        pa.array([10]),
        text,
        *(pa.array([random.Random(1).randbytes(3_000_000)], f.type) for f in more),
        *(pa.array([v], f.type) for v, f in zip((10, TIME + 10, 0, None), SYSTEM_FIELDS, strict=True)),
    ]
    batch = pa.record_batch(columns, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue().to_pybytes()[: -len(END_MARK)]
    begin = message_length(stream[:8])
    sizes = struct.pack("<q", expands_to)
    # Before the bytes of the text, which are behind its borders: the last such number at a buffer's begin.
    at = max(at for at in range(begin, len(stream), 8) if stream[at : at + 8] == sizes)
    message = stream[begin:at] + struct.pack("<q", stated) + stream[at + len(sizes) :]
    _, table = table_of(segment_of(PLAIN, 1))
    return refit([stream[:begin], message], table)


def refused(data: bytes, why: str) -> None:
    with memory_bound(64 * MIB), pytest.raises(ObjectCorrupt, match=why) as raised:
        decode_segment(data, KEY)
    assert KEY in str(raised.value)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("stated", [2**24, 2**33, 2**40, 2**62])
def test_a_stated_size_beyond_the_bytes_allocates_nothing(stated: int, codec: str) -> None:
    refused(bomb(1 << 16, stated, codec), "bytes cannot hold|lies outside")


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("stated", [1, 100, 1 << 16])
def test_bytes_that_expand_beyond_what_they_state(stated: int, codec: str) -> None:
    data = bomb(1 << 28, stated, codec)
    assert len(data) < 4 * MIB
    refused(data, "cannot be read")


def test_a_bomb_that_states_its_size_stays_within_the_ratio_of_the_codec() -> None:
    data = bomb(1 << 28, 1 << 28, "zstd")
    assert len(data) < MIB
    refused(data, "bytes cannot hold")


def test_a_bomb_within_the_ratio_is_a_value() -> None:
    """What keeps within the ratio is allowed, so that the tests above refuse for the reason they name."""
    assert judge(bomb(1 << 16, 1 << 16)) is not None


def test_rows_without_buffers_cost_nothing() -> None:
    """A column of type null has no bytes, so nothing but its other columns limits the number of its rows."""
    parts, table = table_of(segment_of(PLAIN, 40))
    for declared in (2**31, 2**40, 2**62):
        message = parts[1].replace(struct.pack("<q", 40), struct.pack("<q", declared))
        refused(refit([parts[0], message], table), "bytes cannot hold|cannot be read")
