"""deletes.arrow and patches.arrow under checksums that match: the rows that they hold, or an error that names the file."""

from __future__ import annotations

import struct
from dataclasses import replace

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import or_raised
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Position, Region, TopicId
from lancewal_core.names.paths import FlushFile
from lancewal_core.region.flush_files import _sides
from lancewal_core.region.flushes.manifest import Flush, FlushPart, Stretch
from lancewal_core.rows.fold import partial_schema
from lancewal_core.rows.schema import RowSchema
from tests.support.fuzzing import damaged, fuzz, memory_bound, outcome
from tests.support.scripted import ManualClock, ScriptedStore

MIB = 1 << 20
REGION = Region("orders", TopicId("t"), 0)
ROWS = RowSchema(
    pa.schema([("id", pa.int64()), ("k", pa.string()), ("words", pa.list_(pa.string()))]), ("id", "k"), ("k",)
)
MANIFEST = paths.flush_file("0badcafe", FlushFile.MANIFEST)
DELETES, PATCHES = (paths.flush_file("0badcafe", file) for file in (FlushFile.DELETES, FlushFile.PATCHES))


def stream(table: pa.Table, codec: str = "lz4") -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


GONE = pa.Table.from_pylist([{"id": i, "k": "k" * i} for i in range(30)], ROWS.key)
PARTIAL = pa.Table.from_pylist(
    [{"id": i, "k": "k", "words": ["a", None] if i % 2 else None, "_present": b"\x07"} for i in range(30)],
    partial_schema(ROWS),
)
FILES = [stream(GONE), stream(PARTIAL), stream(GONE, "zstd"), stream(PARTIAL.slice(0, 0))]


def judge(data: bytes, rows: int) -> list[pa.Table | None]:
    """Read ``data`` as what a generation has of both files, behind another, which says so with its size and checksum."""
    side = Stretch(rows, len(data), google_crc32c.value(data))
    part = FlushPart(REGION, Generation(1), Position(0), Position(9), 0, side, side, 0)
    before = replace(part, generation=Generation(2), deletes=Stretch(1, 3, 0), patches=Stretch(1, 3, 0))
    flushed = Flush(MANIFEST, 1, (), (before, part)).generation_of(REGION, Generation(1))
    store = ScriptedStore(ManualClock())
    for key in (DELETES, PATCHES):
        store.bucket.put(key, b"abc" + data + b"d", 0)
    with memory_bound(64 * MIB):
        (gone,) = _sides(store, [flushed], [flushed.deletes], ROWS.key)
        (partials,) = _sides(store, [flushed], [flushed.patches], partial_schema(ROWS))
        found = [outcome(lambda: or_raised(gone), DELETES), outcome(lambda: or_raised(partials), PATCHES)]
    for read, schema in zip(found, (ROWS.key, partial_schema(ROWS)), strict=True):
        if read is not None:
            assert read.schema.equals(schema)
            assert read.num_rows == rows
            read.validate(full=True)
            assert not any(read.column(f.name).null_count for f in schema if not f.nullable)
    return found


def test_the_files_are_sound() -> None:
    assert [t is not None for t in judge(FILES[0], 30)] == [True, False]
    assert [t is not None for t in judge(FILES[1], 30)] == [False, True]


@fuzz(500)
@given(
    damaged(FILES) | damaged(FILES, in_place=True) | st.binary(max_size=100),
    st.sampled_from([30, 30, 30, 0, 31, 2**62]),
)
def test_any_and_damaged_bytes(data: bytes, rows: int) -> None:
    judge(data, rows)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("stated", [16, 1 << 20, 1 << 28, 1 << 40])
def test_bombs(stated: int, codec: str) -> None:
    size = 1 << 28
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("k", pa.large_string(), nullable=False)])
    text = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(struct.pack("<2q", 0, size)), pa.py_buffer(bytes(size))]
    )
    data = stream(pa.Table.from_arrays([pa.array([1]), text], schema=schema), codec)
    at = max(at for at in range(0, len(data), 8) if data[at : at + 8] == struct.pack("<q", size))
    data = data[:at] + struct.pack("<q", stated) + data[at + 8 :]
    assert len(data) < 4 * MIB
    if (stated, codec) == (size, "lz4"):  # within what lz4 can do: 256 times its bytes
        return
    assert judge(data, 1) == [None, None]


def test_the_number_of_rows_is_the_one_in_the_manifest() -> None:
    assert judge(FILES[0], 29) == [None, None]
