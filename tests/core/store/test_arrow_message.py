"""What a record batch message declares, against pyarrow's own view of the same batch."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.store.arrow_message import declared_batch, message_length


def message_of(batch: pa.RecordBatch, compression: str | None) -> pa.Buffer:
    """The batch's encapsulated message: what lies between the schema and the end mark of a stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    start = message_length(stream.slice(0, 8).to_pybytes())
    return stream.slice(start, stream.size - start - 8)


def raw_size(batch: pa.RecordBatch) -> int:
    """Bytes that the three columns of ``batches`` need: validity bits where there are nulls, offsets, values."""
    rows: int = batch.num_rows
    bits = -(-rows // 8)
    numbers, texts, _ = (column.to_pylist() for column in batch.columns)
    validity = bits if None in numbers else 0
    text = 4 * (rows + 1) + sum(len(value.encode()) for value in texts)
    return validity + 8 * rows + text + bits


batches = st.lists(st.tuples(st.none() | st.integers(0, 9), st.text(max_size=4), st.booleans()), min_size=1).map(
    lambda rows: pa.record_batch(
        [
            pa.array([row[0] for row in rows], pa.int64()),
            pa.array([row[1] for row in rows], pa.string()),
            pa.array([row[2] for row in rows], pa.bool_()),
        ],
        names=["number", "text", "flag"],
    )
)


@given(batches)
def test_rows_and_raw_bytes_are_those_of_the_batch(batch: pa.RecordBatch) -> None:
    declared = declared_batch(message_of(batch, "lz4"))
    assert declared.rows == batch.num_rows
    assert declared.raw_bytes == raw_size(batch)


def test_an_uncompressed_message_declares_what_it_holds() -> None:
    batch = pa.record_batch([pa.array(range(1000), pa.int64())], names=["number"])
    assert declared_batch(message_of(batch, None)).raw_bytes == 8000


BATCH = pa.record_batch([pa.array(range(100), pa.int64()), pa.array(["word"] * 100)], names=["number", "text"])
MESSAGE = message_of(BATCH, "lz4").to_pybytes()


def test_a_schema_is_no_record_batch() -> None:
    with pytest.raises(ObjectCorrupt, match="is not a record batch"):
        declared_batch(BATCH.schema.serialize())


def test_the_body_is_exactly_what_is_declared() -> None:
    for data in (MESSAGE[:-8], MESSAGE + b"\x00" * 8):
        with pytest.raises(ObjectCorrupt, match="declares a body of another size"):
            declared_batch(pa.py_buffer(data))


def test_buffers_lie_inside_the_body() -> None:
    body_start = message_length(MESSAGE)
    compressed = struct.pack("<q", pa.Codec("lz4").compress(pa.array(range(100), pa.int64()).buffers()[1]).size + 8)
    assert MESSAGE[:body_start].count(compressed) == 1
    for length in (-8, len(MESSAGE), 2**62):
        data = MESSAGE[:body_start].replace(compressed, struct.pack("<q", length)) + MESSAGE[body_start:]
        with pytest.raises(ObjectCorrupt, match="lies outside"):
            declared_batch(pa.py_buffer(data))


def test_a_stated_size_is_not_negative() -> None:
    assert MESSAGE.count(struct.pack("<q", 800)) == 1
    with pytest.raises(ObjectCorrupt, match="states a size of -2"):
        declared_batch(pa.py_buffer(MESSAGE.replace(struct.pack("<q", 800), struct.pack("<q", -2))))


def test_a_buffer_that_was_left_as_it_is_counts_with_its_own_size() -> None:
    plain = MESSAGE.replace(struct.pack("<q", 800), struct.pack("<q", -1))
    compressed = pa.Codec("lz4").compress(pa.array(range(100), pa.int64()).buffers()[1]).size
    before = declared_batch(pa.py_buffer(MESSAGE)).raw_bytes
    assert declared_batch(pa.py_buffer(plain)).raw_bytes == before - 800 + compressed


@given(st.data())
def test_any_bytes_give_an_answer_or_a_named_error(data: st.DataObject) -> None:
    damaged = bytearray(MESSAGE[: data.draw(st.integers(0, len(MESSAGE)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, min(len(damaged), 300) - 1))] = data.draw(st.integers(0, 255))
    try:
        declared = declared_batch(pa.py_buffer(bytes(damaged)))
    except ObjectCorrupt:
        return
    assert declared.raw_bytes >= 0
