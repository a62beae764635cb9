"""Sizes that encapsulated Arrow IPC record batch messages declare, read without decompressing anything.

A compressed buffer begins with its decompressed size, and Arrow allocates that many bytes.  So a reader that wants a
limit must check the size first.  pyarrow does not show the size.  This module reads the few flatbuffer fields that
lead to it, by the Arrow columnar format's ``Message.fbs`` (tables ``Message`` and ``RecordBatch``, struct
``Buffer``).  Bytes that are not one whole message raise ``ObjectCorrupt``; the caller adds the object's name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lancewal_core.errors import ObjectCorrupt

_CONTINUATION = b"\xff\xff\xff\xff"
_FILE_MAGIC = b"ARROW1"
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_RECORD_BATCH = 3
"""Number of a record batch in the union ``MessageHeader`` of ``Message.fbs``."""
_DICTIONARY_BATCH = 2
"""Number of a dictionary batch in the union ``MessageHeader`` of ``Message.fbs``.  Its second field is a record
batch."""
_DICTIONARIES, _RECORD_BATCHES = 2, 3
"""Slots of the table ``Footer`` (``File.fbs``) with the blocks of dictionaries and of record batches."""
_PAIR = struct.Struct("<qq")
_BLOCK = struct.Struct("<qi4xq")
"""Layout of the struct ``Block`` (``File.fbs``): the offset of a message in the file, the length of its metadata, and
the length of its body."""
LZ4_RATIO_MAX = 256
"""Largest ratio by which an lz4 block can expand: one byte of a length field adds at most 255."""
_NOT_COMPRESSED = -1
"""Size that a buffer states if it is not compressed although the batch is."""


@dataclass(frozen=True, slots=True)
class DeclaredBatch:
    """Sizes that a record batch message declares."""

    rows: int
    raw_bytes: int
    """Sum of its buffers' sizes after decompression."""


def message_length(start: bytes) -> int:
    """Return the length in bytes of an encapsulated message *without body*, such as a schema, from its first 8
    bytes."""
    if len(start) < 8 or start[:4] != _CONTINUATION:
        raise ObjectCorrupt("an Arrow message does not start with its continuation marker")
    metadata_length: int = struct.unpack_from("<i", start, 4)[0]
    if metadata_length <= 0:
        raise ObjectCorrupt(f"an Arrow message declares an impossible length of its metadata: {metadata_length} bytes")
    return 8 + metadata_length


def declared_batch(message: pa.Buffer) -> DeclaredBatch:
    """Return the sizes that ``message`` declares.  It must be exactly one record batch message, metadata and body."""
    body_start = message_length(message.slice(0, min(8, message.size)).to_pybytes())
    if body_start > message.size:
        raise ObjectCorrupt("an Arrow message is shorter than its metadata")
    metadata = message.slice(8, body_start - 8).to_pybytes()
    body = memoryview(message)[body_start:]
    try:
        return _read(metadata, len(body), lambda at: body[at : at + 8])
    except struct.error as error:
        raise ObjectCorrupt("an Arrow message's metadata points outside itself") from error


def declared_in_file(read: Callable[[int, int], bytes], size: int) -> Iterator[tuple[int, DeclaredBatch]]:
    """Yield for each batch in an Arrow file of ``size`` bytes the bytes of its body, and the sizes that it declares;
    dictionaries too.

    ``read(start, end)`` gives bytes of the file.  Only the first 8 bytes of each buffer are read from the bodies.
    """
    end = read(max(size - 10, 0), size)
    if len(end) < 10 or end[4:] != _FILE_MAGIC:
        raise ObjectCorrupt("it is not an Arrow file")
    try:
        footer = read(max(size - 10 - struct.unpack_from("<i", end)[0], 0), size - 10)
        table = _Table(footer, _unsigned(footer, 0))
        for slot in (_DICTIONARIES, _RECORD_BATCHES):
            for at, length, body in table.structs(slot, _BLOCK):
                if min(at, length - 8, body) < 0 or at + length + body > size:
                    raise ObjectCorrupt("a record batch lies outside the file")
                metadata = read(at, at + length)[8:]
                head = partial(_eight_bytes, read, at + length)
                yield body, _read(metadata, body, head, dictionary=slot == _DICTIONARIES)
    except struct.error as error:
        raise ObjectCorrupt("an Arrow file's footer points outside itself") from error


def _eight_bytes(read: Callable[[int, int], bytes], body_start: int, place: int) -> bytes:
    """Return 8 bytes of a file, from ``place`` in the body that begins at ``body_start``."""
    return read(body_start + place, body_start + place + 8)


def stream_of_file(file: pa.Buffer) -> pa.Buffer:
    """Return the IPC stream inside an Arrow file, without the footer.  Nobody has checked the footer's offsets of
    batches."""
    start = file.to_pybytes().find(_CONTINUATION)
    footer_length: int = struct.unpack("<i", file.slice(max(file.size - 10, 0), 4).to_pybytes().ljust(4, b"\0"))[0]
    end = file.size - 10 - footer_length
    if file.slice(0, 6).to_pybytes() != _FILE_MAGIC or not 0 < start < end <= file.size:
        raise ObjectCorrupt("it is not an Arrow file")
    return file.slice(start, end - start)


def declared_stream(stream: pa.Buffer) -> DeclaredBatch:
    """Return the sum of the sizes that the record batches of an IPC stream declare.

    The stream must have a schema, nothing but record batches, and the end mark."""
    at = message_length(stream.slice(0, min(8, stream.size)).to_pybytes())
    rows = raw_bytes = 0
    while at + len(END_OF_STREAM) < stream.size:
        rest = stream.slice(at)
        body_start = message_length(rest.slice(0, 8).to_pybytes())
        if body_start > rest.size:
            raise ObjectCorrupt("an Arrow message is shorter than its metadata")
        metadata = rest.slice(8, body_start - 8).to_pybytes()
        try:
            length = body_start + _Table(metadata, _unsigned(metadata, 0)).scalar(3, "<q")
        except struct.error as error:
            raise ObjectCorrupt("an Arrow message's metadata points outside itself") from error
        if not body_start <= length <= rest.size:
            raise ObjectCorrupt(f"an Arrow message of {length} bytes does not fit into its stream")
        declared = declared_batch(rest.slice(0, length))
        rows, raw_bytes, at = rows + declared.rows, raw_bytes + declared.raw_bytes, at + length
    if at > stream.size or stream.slice(at).to_pybytes() != END_OF_STREAM:
        raise ObjectCorrupt("an Arrow stream has no end mark")
    return DeclaredBatch(rows, raw_bytes)


def _read(
    metadata: bytes, body: int, head: Callable[[int], bytes | memoryview], *, dictionary: bool = False
) -> DeclaredBatch:
    """Return the sizes that a message's metadata declare.  ``body`` is the length of its body, ``head`` returns 8 bytes
    of it from a place."""
    table = _Table(metadata, _unsigned(metadata, 0))
    kind = table.scalar(1, "<B")
    if kind != _RECORD_BATCH and not (dictionary and kind == _DICTIONARY_BATCH):
        raise ObjectCorrupt("an Arrow message is not a record batch")
    if table.scalar(3, "<q") != body:
        raise ObjectCorrupt(f"an Arrow message declares a body of another size than its {body} bytes")
    batch = table.table(2)
    if batch is not None and kind == _DICTIONARY_BATCH:
        batch = batch.table(1)
    if batch is None:
        raise ObjectCorrupt("an Arrow record batch message has no header")
    compressed = batch.table(3) is not None
    raw_bytes = 0
    for offset, length in batch.structs(2, _PAIR):
        if offset < 0 or length < 0 or offset + length > body:
            raise ObjectCorrupt(f"an Arrow buffer at {offset} of {length} bytes lies outside the message's body")
        raw_bytes += _raw_length(head, offset, length) if compressed else length
    return DeclaredBatch(batch.scalar(0, "<q"), raw_bytes)


def _raw_length(head: Callable[[int], bytes | memoryview], offset: int, length: int) -> int:
    if length == 0:
        return 0
    stated: int = struct.unpack("<q", head(offset)[: min(length, 8)])[0]
    if stated == _NOT_COMPRESSED:
        return length - 8
    if stated < 0:
        raise ObjectCorrupt(f"an Arrow buffer states a size of {stated} bytes, which is impossible")
    return stated


def _unsigned(data: bytes, at: int) -> int:
    value: int = struct.unpack_from("<I", data, at)[0]
    return value


class _Table:
    """A flatbuffer table; fields are named by their slot in the schema file.  Reads outside raise ``struct.error``."""

    __slots__ = ("_at", "_data", "_slots_at", "_slots_end")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._slots_at = at - struct.unpack_from("<i", data, at)[0]
        if self._slots_at < 0:
            raise ObjectCorrupt("an Arrow message's metadata points outside itself")
        self._slots_end = self._slots_at + struct.unpack_from("<H", data, self._slots_at)[0]

    def _field(self, slot: int) -> int | None:
        """Return the place of the field's value; ``None`` if the field has its default."""
        entry = self._slots_at + 4 + 2 * slot
        if entry + 2 > self._slots_end:
            return None
        offset: int = struct.unpack_from("<H", self._data, entry)[0]
        return self._at + offset if offset else None

    def scalar(self, slot: int, form: str) -> int:
        field = self._field(slot)
        value: int = 0 if field is None else struct.unpack_from(form, self._data, field)[0]
        return value

    def table(self, slot: int) -> _Table | None:
        field = self._field(slot)
        return None if field is None else _Table(self._data, field + _unsigned(self._data, field))

    def structs(self, slot: int, form: struct.Struct) -> list[tuple[int, ...]]:
        """Return a vector of structs of the layout ``form``; empty if the field is not there."""
        field = self._field(slot)
        if field is None:
            return []
        at = field + _unsigned(self._data, field)
        end = at + 4 + form.size * _unsigned(self._data, at)
        if end > len(self._data):
            raise ObjectCorrupt("an Arrow message's metadata points outside itself")
        return list(form.iter_unpack(self._data[at + 4 : end]))
