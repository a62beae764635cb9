"""Partitioners agree with plain ones, for arrays in any form; keys tell which of them has placed them."""

from __future__ import annotations

import binascii
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import InvalidInput, InvalidSettings
from lancewal_core.record_keys.key_choices import Partitioner
from lancewal_core.record_keys.partitioner import HASHING, partition_of, partitions_of, that_places
from lancewal_core.record_keys.why_misrouted import other_partitioner

OF_GO: dict[str, Any] = json.loads((Path(__file__).parent / "go_partitions.json").read_bytes())


def plain(key: bytes, partitions: int, partitioner: str) -> int:
    if partitioner == "crc32":
        return binascii.crc32(key) % partitions if key else -1
    state = 2166136261
    for byte in key:
        state = (state ^ byte) * 16777619 % 2**32
    return abs(state - 2**32 if state >= 2**31 else state) % partitions


@pytest.mark.parametrize("partitioner", ["crc32", "fnv1a"])
@given(keys=st.lists(st.none() | st.binary(max_size=40), max_size=100), partitions=st.integers(1, 2**31 - 1))
def test_arrays(partitioner: Partitioner, keys: list[bytes | None], partitions: int) -> None:
    expected = [-1 if key is None else plain(key, partitions, partitioner) for key in keys]
    assert [-1 if key is None else partition_of(key, partitions, partitioner) for key in keys] == expected
    for type_ in (pa.binary(), pa.large_binary()):
        assert partitions_of(pa.array(keys, type_), partitions, partitioner).tolist() == expected
        within = pa.array([b"before", *keys, b"behind"], type_)[1:-1]
        assert partitions_of(within, partitions, partitioner).tolist() == expected


@pytest.mark.parametrize("partitioner", ["crc32", "fnv1a"])
def test_many_keys_of_many_lengths(partitioner: Partitioner) -> None:
    random_ = random.Random(7)
    keys = [random_.randbytes(random_.choice([0, 1, 7, 8, 36, 300])) for _ in range(5_000)]
    found = partitions_of(pa.array(keys, pa.binary()), 551, partitioner)
    assert found.tolist() == [plain(key, 551, partitioner) for key in keys]


def test_fnv1a_of_the_smallest_number() -> None:
    """Its sign cannot be taken off in 32 bits; Sarama and librdkafka end at the same partition."""
    key = b"qqk42v"
    assert _state(key) == 2**31
    assert partition_of(key, 551, "fnv1a") == plain(key, 551, "fnv1a") == 2**31 % 551


def _state(key: bytes) -> int:
    state = 2166136261
    for byte in key:
        state = (state ^ byte) * 16777619 % 2**32
    return state


@pytest.mark.parametrize(
    ("client", "partitioner"),
    [
        ("sarama default", "fnv1a"),
        ("sarama reference", None),
        ("sarama ConsistentCRC", "crc32"),
        ("kafka-go Hash", "fnv1a"),
        ("kafka-go ReferenceHash", None),
        ("kafka-go CRC32Balancer", "crc32"),
        ("kafka-go Murmur2Balancer", "murmur2"),
        ("franz-go default", "murmur2"),
        ("franz-go SaramaCompatHasher", "fnv1a"),
    ],
)
def test_where_clients_of_go_put_keys(client: str, partitioner: Partitioner | None) -> None:
    """The keys that Go's clients wrote to a broker, the empty one and one with the smallest hash among them.

    Reference hashes take other bits of a negative number: no partitioner of lancewal is theirs."""
    lie = OF_GO["partitions"][client]
    keyed = [(bytes.fromhex(key), at) for key, at in zip(OF_GO["keys"], lie, strict=True) if key is not None]
    assert {b"", b"qqk42v"} <= {key for key, _ in keyed}
    placed = {one: [partition_of(key, 12, one) for key, _ in keyed] for one in HASHING}
    if partitioner == "crc32":  # an empty key goes anywhere
        placed["crc32"] = [at if said == -1 else said for said, (_, at) in zip(placed["crc32"], keyed, strict=True)]
    assert [one for one, said in placed.items() if said == [at for _, at in keyed]] == [partitioner] * bool(partitioner)


@pytest.mark.parametrize("partitioner", HASHING)
@pytest.mark.parametrize("partitions", [0, -1, 2**31])
def test_no_topic_has_such_a_number(partitioner: Partitioner, partitions: int) -> None:
    with pytest.raises(InvalidSettings, match=f"a topic cannot have {partitions} partitions"):
        partition_of(b"k", partitions, partitioner)


def test_none_places_no_key() -> None:
    assert partitions_of(pa.array([b"a", None]), 7, "none").tolist() == [-1, -1]
    with pytest.raises(InvalidInput, match="expected one of murmur2, crc32, fnv1a"):
        partition_of(b"a", 7, "none")


@pytest.mark.parametrize("partitioner", HASHING)
def test_keys_tell_their_partitioner(partitioner: Partitioner) -> None:
    keys = [key for key in (b"key %d" % n for n in range(1_000)) if partition_of(key, 12, partitioner) == 5][:30]
    placed = [(key, 5) for key in keys]
    assert that_places(placed, 12) == partitioner
    assert that_places([(key, 6) for key in keys], 12) is None
    assert that_places([*placed, (b"key x", 5)], 12) is None
    assert that_places(placed[:3], 12) is None, "so few may lie there by chance"
    assert that_places([(key, 0) for key in keys * 2], 1) is None, "with one partition all of them do"
    assert that_places([], 12) is None
    elsewhere = [(b"%d" % n, partition_of(b"%d" % n, 12, partitioner)) for n in range(9)]
    assert that_places(elsewhere, 12) == partitioner
    assert that_places([*elsewhere, (b"x", 12)], 12) is None
    said = other_partitioner([*placed, (None, 3)], 12, "murmur2")
    assert said == (
        None
        if partitioner == "murmur2"
        else f"All of the 30 keys around it lie where {partitioner} puts them. Make the table with "
        f"table.partitioner: {partitioner}"
    )
