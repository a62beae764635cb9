"""The sum of keys is that of their values in their order, whatever holds them, and its bytes are fixed: it is stored."""

from __future__ import annotations

import struct
from uuid import UUID

import google_crc32c
import pyarrow as pa

from lancewal_core.region.flushes.key_checksum import key_sum

KEYS = pa.table(
    {
        "name": pa.array(["a", "", "zwölf", "日本", "b"]),
        "raw": pa.array([b"\x00", b"x" * 20, b"", b"1", b"2"]),
        "id": pa.array([1, -2, 3, 2**40, 5], pa.int64()),
        "day": pa.array([0, 1, 2, 3, 20_000], pa.int32()).cast(pa.date32()),
        "ok": pa.array([True, False, False, True, True]),
    }
)


def test_its_bytes() -> None:
    texts = [b"a", b"", "zwölf".encode(), "日本".encode(), b"b"]
    raws = [b"\x00", b"x" * 20, b"", b"1", b"2"]
    none = struct.pack("<q", 0)
    expected = b"".join(
        [
            *(none, struct.pack("<5q", *map(len, texts)), *texts),
            *(none, struct.pack("<5q", *map(len, raws)), *raws),
            *(none, struct.pack("<5q", 1, -2, 3, 2**40, 5)),
            *(none, struct.pack("<5i", 0, 1, 2, 3, 20_000)),
            *(none, bytes([1, 0, 0, 1, 1])),
        ]
    )
    assert key_sum(KEYS) == google_crc32c.value(expected)


def test_bytes_of_later_types() -> None:
    """Of texts and binaries with their lengths, of all else as the values lie in memory."""
    ids, none = [UUID(int=1), UUID(int=2**128 - 1)], struct.pack("<q", 0)
    keys = pa.table(
        {
            "id": pa.array(ids, pa.uuid()),
            "fix": pa.array([b"ab", b"\0\0"], pa.binary(2)),
            "clock": pa.array([1, 86_399], pa.int32()).cast(pa.time32("s")),
            "fine": pa.array([1, 2**40], pa.int64()).cast(pa.time64("ns")),
            "text": pa.array(["", "ä"], pa.large_string()),
            "data": pa.array([b"\0", b""], pa.large_binary()),
        }
    )
    expected = [none, *(one.bytes for one in ids), none, b"ab\0\0", none, struct.pack("<2i", 1, 86_399)]
    expected += [none, struct.pack("<2q", 1, 2**40), none, struct.pack("<2q", 0, 2), "ä".encode()]
    expected += [none, struct.pack("<2q", 1, 0), b"\0"]
    assert key_sum(keys) == google_crc32c.value(b"".join(expected))
    assert key_sum(pa.concat_tables([keys.slice(1), keys]).slice(1)) == key_sum(keys)


def test_batches_and_slices_make_no_difference() -> None:
    padded = pa.concat_tables([KEYS.slice(3), KEYS, KEYS.slice(0, 2)])
    for other in (
        pa.concat_tables([KEYS.slice(0, 2), KEYS.slice(2, 0), KEYS.slice(2)]),
        padded.slice(2, 5),
        padded.combine_chunks().slice(2, 5),
    ):
        assert other.equals(KEYS)
        assert key_sum(other) == key_sum(KEYS)


def test_every_change_shows() -> None:
    sums = {key_sum(KEYS), key_sum(KEYS.slice(1)), key_sum(KEYS.take([1, 0, 2, 3, 4])), key_sum(KEYS.slice(0, 0))}
    for name, values in {
        "name": ["", "a", "zwölf", "日本", "b"],
        "raw": [b"\x01", b"x" * 20, b"", b"1", b"2"],
        "id": [1, -2, 3, 2**40 + 1, 5],
        "ok": [True, False, True, True, True],
    }.items():
        at = KEYS.schema.get_field_index(name)
        sums.add(key_sum(KEYS.set_column(at, name, pa.array(values, KEYS.schema.field(name).type))))
    nulls = pa.array([1, None, 3, 2**40, 5], pa.int64())
    sums.add(key_sum(KEYS.set_column(2, "id", nulls)))
    assert len(sums) == 9
