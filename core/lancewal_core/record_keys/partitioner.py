"""Partitioners of Kafka's clients: the partition that a producer chooses for a key, for one key and for whole Arrow
arrays.

| partitioner | who uses it | a key without bytes |
|---|---|---|
| ``murmur2`` | Java's producers, kafkajs; librdkafka's ``murmur2_random`` | is hashed like any other |
| ``crc32`` | librdkafka's default, ``consistent_random`` | goes to a random partition |
| ``fnv1a`` | Sarama's default; librdkafka's ``fnv1a_random`` | is hashed like any other |
| ``none`` | producers that choose partitions in any other way | |

A record without a key goes to a random partition in all of them.  If the choice is random, the result is
``NO_PARTITION``: no partition is right.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.record_keys.key_choices import Partitioner
from lancewal_core.rows import murmur2
from lancewal_core.rows.byte_view import byte_view
from lancewal_core.rows.murmur2 import FEW_ROWS, NO_PARTITION

HASHING: tuple[Partitioner, ...] = ("murmur2", "crc32", "fnv1a")
"""Partitioners that choose the partition by a hash of the key's bytes."""

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193
_CERTAIN = 10_000
"""Least number of ways to distribute the keys over the partitions.  With fewer, keys may lie by chance where a
partitioner would put them."""


def partition_of(key: bytes, partitions: int, partitioner: Partitioner = "murmur2") -> int:
    """Return the partition that a producer chooses for a key in a topic of ``partitions`` partitions; -1 if the choice
    is random.

    Raises ``InvalidSettings`` for an impossible number of partitions, and ``InvalidInput`` for the partitioner
    ``none``.
    """
    match partitioner:
        case "murmur2":
            return murmur2.partition_of(key, partitions)
        case "crc32" | "fnv1a":
            return int(partitions_of(pa.array([key], pa.binary()), partitions, partitioner)[0])
        case _:
            raise InvalidInput(f"partitioner {partitioner!r} places no key; expected one of {', '.join(HASHING)}")


def partitions_of(keys: pa.Array, partitions: int, partitioner: Partitioner) -> npt.NDArray[np.int32]:
    """Return ``partition_of`` for each key of a (large_)binary or (large_)string array, as int32.

    The result is -1 for a null, and for every key if the partitioner is ``none``.
    """
    if partitioner == "murmur2":
        return murmur2.partitions_of(keys, partitions)
    if partitioner == "none":
        return np.full(len(keys), NO_PARTITION, np.int32)
    murmur2.check_count(partitions)
    if partitioner == "crc32":
        placed, by_chance = _crc32(keys), byte_view(keys).lengths == 0
    else:
        placed, by_chance = _fnv1a(keys), np.zeros(len(keys), np.bool_)
    found = (placed % np.uint32(partitions)).astype(np.int32)
    found[by_chance | keys.is_null().to_numpy(zero_copy_only=False)] = NO_PARTITION
    return found


def that_places(placed: Collection[tuple[bytes, int]], partitions: int) -> Partitioner | None:
    """Return the only partitioner that would put all keys into their actual partitions.

    Return None if there is none, or several, or so few keys that it may be chance.  ``placed``: keys, each with its
    partition.
    """
    distinct = sorted(set(placed))
    if partitions ** min(len(distinct), 64) < _CERTAIN:
        return None
    keys, lie = pa.array([key for key, _ in distinct], pa.binary()), np.array([lies for _, lies in distinct])
    found = [one for one in HASHING if (partitions_of(keys, partitions, one) == lie).all()]
    return found[0] if len(found) == 1 else None


def _crc32(keys: pa.Array) -> npt.NDArray[np.uint32]:
    large = pa.types.is_large_string(keys.type) or pa.types.is_large_binary(keys.type)
    texts = keys.cast(pa.large_binary() if large else pa.binary()).fill_null(b"").to_pylist()
    return np.fromiter(map(zlib.crc32, texts), np.uint32, len(texts))


def _fnv1a(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the FNV-1a hashes of 32 bits as Sarama and librdkafka use them: the absolute value of the signed number."""
    view = byte_view(keys)
    if len(keys) == 0:
        return np.zeros(0, np.uint32)
    order = np.argsort(-view.lengths, kind="stable")  # rows that still have bytes are a prefix
    starts, lengths = view.borders[:-1][order], view.lengths[order]
    state = np.full(len(order), _FNV_OFFSET, np.uint32)
    at, rows = 0, int(np.searchsorted(-lengths, 0, side="left"))
    while rows >= FEW_ROWS:
        state[:rows] = (state[:rows] ^ view.data[starts[:rows] + at]) * np.uint32(_FNV_PRIME)
        at += 1
        rows = int(np.searchsorted(-lengths, -at, side="left"))
    for row in range(rows):
        rest = view.data[starts[row] + at : starts[row] + lengths[row]].tobytes()
        state[row] = _fnv1a_on(int(state[row]), rest)
    signed = state.view(np.int32).astype(np.int64)
    found = np.empty(len(order), np.uint32)
    found[order] = np.abs(signed).astype(np.uint32)
    return found


def _fnv1a_on(state: int, rest: bytes) -> int:
    for byte in rest:
        state = ((state ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return state
