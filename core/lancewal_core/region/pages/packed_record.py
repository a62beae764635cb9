"""The bytes of a record in a page: a region's state, packed.

Generations of a region have nearly the same fields, so packing reduces them to a sixth.  This matters, since a swap
writes its whole page.  Each record is packed by itself, so that a swap of another region copies it unchanged.

Promises:

1. ``unpack_record(pack_record(data)) == data``.
2. Any changed, missing or added byte is found, before anything is unpacked.
3. An unpacked record has the size that ``unpacked_bytes`` says, which its readers bound (``state_page``).

Layout: crc32c of all that follows, size of the state in bytes (4 bytes each, little endian), the state as one frame of
zstd.
"""

from __future__ import annotations

import struct

import google_crc32c
import pyarrow as pa

_HEAD = struct.Struct("<II")


class RecordBroken(ValueError):
    """A record was not made by ``pack_record``, or is damaged; the text says what is wrong with it."""


def pack_record(data: bytes) -> bytes:
    """Pack ``data``, an encoded state of a region."""
    frame: bytes = pa.compress(data, codec="zstd", asbytes=True)
    rest = struct.pack("<I", len(data)) + frame
    return struct.pack("<I", google_crc32c.value(rest)) + rest


def unpacked_bytes(record: bytes) -> int:
    """Return the size of the unpacked record, without unpacking it; 0 if the record is broken."""
    try:
        return _checked_size(record)
    except RecordBroken:
        return 0


def unpack_record(record: bytes) -> bytes:
    """Inverse of ``pack_record``.  Raises ``RecordBroken`` if the record is damaged."""
    size = _checked_size(record)
    try:
        data: bytes = pa.decompress(record[_HEAD.size :], decompressed_size=size, codec="zstd", asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise RecordBroken(f"a record cannot be unpacked: {error}") from error
    if len(data) != size:
        raise RecordBroken(f"a record unpacks to {len(data)} bytes, but declares {size}")
    return data


def _checked_size(record: bytes) -> int:
    if len(record) < _HEAD.size:
        raise RecordBroken(f"{len(record)} bytes are too few for a record")
    checksum, size = _HEAD.unpack_from(record)
    if checksum != google_crc32c.value(record[4:]):
        raise RecordBroken(f"the checksum does not match the {len(record)} bytes of the record")
    return int(size)
