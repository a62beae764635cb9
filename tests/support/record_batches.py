"""Record batches built by hand, and sent by Kafka's wire protocol: what a producer controls, and no client refuses.

A broker checks a batch's magic, checksum, sizes and offsets.  It looks neither into keys and values nor into headers.
"""

from __future__ import annotations

import gzip
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import google_crc32c

NOW_MS = 1_800_000_000_000
_PRODUCE, _VERSION = 0, 7
GZIP, TRANSACTIONAL, CONTROL = 1, 1 << 4, 1 << 5
"""Attributes of a batch."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record of a batch.  Header names are bytes, since no broker asks for UTF-8."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp_ms: int = NOW_MS
    attributes: int = 0
    header_count: int | None = None
    """How many headers the record says that it has."""


def batch_of(
    records: Sequence[RawRecord], attributes: int = 0, *, offsets: int | None = None, sequence: int = -1
) -> bytes:
    """A batch of format 2 with its checksum; packed where ``attributes`` name gzip.

    ``offsets``: how many the batch says that it has; ``sequence``: of a producer that nobody knows.
    """
    first_ms = records[0].timestamp_ms
    body = b"".join(_record(record, at, first_ms) for at, record in enumerate(records))
    last_ms = max(record.timestamp_ms for record in records)
    last = (len(records) if offsets is None else offsets) - 1
    producer = -1 if sequence < 0 else 4711
    epoch = -1 if sequence < 0 else 0
    checked = struct.pack(">hiqqqhii", attributes, last, first_ms, last_ms, producer, epoch, sequence, len(records))
    checked += gzip.compress(body) if attributes & GZIP else body
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, google_crc32c.value(checked)) + checked


def send_batch(bootstrap: str, topic: str, partition: int, batch: bytes) -> tuple[int, int]:
    """The error code of the broker's answer, 0 where it took the batch, and the first offset of the batch."""
    host, port = bootstrap.split(":")
    name = topic.encode()
    request = struct.pack(">hhih", _PRODUCE, _VERSION, 1, -1) + struct.pack(">hhi", -1, -1, 30_000)
    request += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, partition, len(batch)) + batch
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _received(connection, 4))
        answer = _received(connection, size)
    at = 4 + 4 + 2 + len(name) + 4 + 4  # correlation, topics, name, partitions, partition
    code, base = struct.unpack_from(">hq", answer, at)
    return int(code), int(base)


def _received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        assert more, "the broker closed the connection"
        found += more
    return found


def _record(record: RawRecord, at: int, first_ms: int) -> bytes:
    held = struct.pack(">B", record.attributes) + _varint(record.timestamp_ms - first_ms) + _varint(at)
    held += (
        _text(record.key)
        + _text(record.value)
        + _varint(len(record.headers) if record.header_count is None else record.header_count)
    )
    for name, value in record.headers:
        held += _varint(len(name)) + name + _text(value)
    return _varint(len(held)) + held


def _text(text: bytes | None) -> bytes:
    return _varint(-1) if text is None else _varint(len(text)) + text


def _varint(number: int) -> bytes:
    """Zigzag, then seven bits a byte."""
    number = ((number << 1) ^ (number >> 63)) & (1 << 64) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
