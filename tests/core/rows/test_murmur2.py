"""murmur2 of one key and of arrays, against librdkafka's own function and against each other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lancewal_core.errors import InvalidSchema, InvalidSettings
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import murmur2, partition_of, partitions_of
from lancewal_core.rows.region_key import RegionKeyCodec

LARGEST = 0x7FFFFFFF
"""A partition count that shows nearly all bits of the hash."""

Oracle = Callable[[bytes, int], int]


@pytest.fixture(scope="module")
def librdkafka() -> Oracle:
    """The partitioner of the C library that the Kafka client carries: independent of everything here."""
    package = Path(confluent_kafka.__file__).parent
    libraries = [*package.parent.glob("confluent_kafka.libs/librdkafka-*"), *package.glob(".dylibs/librdkafka*")]
    if not libraries:
        pytest.skip("this build of confluent-kafka carries no separate librdkafka")
    function = ctypes.CDLL(str(libraries[0])).rd_kafka_msg_partitioner_murmur2
    function.restype = ctypes.c_int32
    pointer = ctypes.c_void_p
    function.argtypes = [pointer, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32, pointer, pointer]
    return lambda key, partitions: int(function(None, key, len(key), partitions, None, None))


# Published in Kafka's own unit tests (UtilsTest), there as signed integers.
@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_known_hashes(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


def test_every_length_like_librdkafka(librdkafka: Oracle) -> None:
    random = np.random.default_rng(1)
    keys = [random.bytes(length) for length in [*range(80), 255, 256, 257, 258, 259, 260, 1000, 4095]]
    for partitions in (1, 2, 3, 7, 12, 1000, LARGEST):
        expected = [librdkafka(key, partitions) for key in keys]
        assert [partition_of(key, partitions) for key in keys] == expected
        assert partitions_of(pa.array(keys), partitions).tolist() == expected


def test_very_long_key_like_librdkafka(librdkafka: Oracle) -> None:
    key = np.random.default_rng(2).bytes(1_000_003)
    assert partition_of(key, LARGEST) == librdkafka(key, LARGEST)
    assert partitions_of(pa.array([b"", key, b"x"]), LARGEST).tolist() == [
        librdkafka(k, LARGEST) for k in (b"", key, b"x")
    ]


@pytest.mark.parametrize("longest", [0, 3, 4, 31, 32, 33, 40, 100])
def test_many_rows_of_mixed_lengths(longest: int, librdkafka: Oracle) -> None:
    random = np.random.default_rng(longest)
    keys = [random.bytes(int(length)) for length in random.integers(0, longest + 1, 2000)]
    assert partitions_of(pa.array(keys), LARGEST).tolist() == [librdkafka(key, LARGEST) for key in keys]


def test_many_rows_of_one_length(librdkafka: Oracle) -> None:
    random = np.random.default_rng(4)
    for length in range(41):
        keys = [random.bytes(length) for _ in range(100)]
        assert partitions_of(pa.array(keys), LARGEST).tolist() == [librdkafka(key, LARGEST) for key in keys]


def test_more_rows_than_are_hashed_at_once(librdkafka: Oracle) -> None:
    random = np.random.default_rng(6)
    keys = [None if number % 100 == 7 else random.bytes(number % 45) for number in range(30_000)]
    expected = [-1 if key is None else librdkafka(key, LARGEST) for key in keys]
    assert partitions_of(pa.array(keys), LARGEST).tolist() == expected
    assert partitions_of(pa.array(keys).slice(5, 20_000), LARGEST).tolist() == expected[5:20_005]


def test_lengths_beyond_sixteen_bits(librdkafka: Oracle) -> None:
    keys = [b"k" * length for length in [70_000, 3, 65_536, 65_535, 0, *range(200)]]
    assert partitions_of(pa.array(keys), LARGEST).tolist() == [librdkafka(key, LARGEST) for key in keys]


@settings(max_examples=200)
@given(
    st.lists(st.none() | st.binary(max_size=45), max_size=200),
    st.integers(0, 50),
    st.integers(0, 200),
    st.sampled_from([pa.binary(), pa.large_binary()]),
    st.integers(1, LARGEST),
)
@example([b"ab", b"ab"] * 60, 1, 100, pa.binary(), 12)
@example([None, b"ab"] * 60, 1, 100, pa.binary(), 12)
def test_arrays_like_single_keys(
    keys: list[bytes | None], start: int, length: int, type_: pa.DataType, partitions: int
) -> None:
    array = pa.array(keys, type_).slice(start, length)
    expected = [-1 if key is None else partition_of(key, partitions) for key in keys[start : start + length]]
    found = partitions_of(array, partitions)
    assert found.dtype == np.int32
    assert found.tolist() == expected


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_strings_are_their_utf8(type_: pa.DataType) -> None:
    texts = ["", "a", "grün", "漢字", "\U0001f409" * 20]
    assert partitions_of(pa.array(texts, type_), 1000).tolist() == [partition_of(t.encode(), 1000) for t in texts]


def test_no_rows() -> None:
    assert partitions_of(pa.array([], pa.binary()), 3).tolist() == []
    assert partitions_of(pa.array([b"abc"]).slice(1), 3).tolist() == []


@pytest.mark.parametrize("partitions", [0, -1, 2**31])
def test_impossible_counts_are_refused(partitions: int) -> None:
    with pytest.raises(InvalidSettings, match=str(partitions)):
        partition_of(b"a", partitions)
    with pytest.raises(InvalidSettings, match=str(partitions)):
        partitions_of(pa.array([b"a"]), partitions)


def test_arrays_without_bytes_are_refused() -> None:
    with pytest.raises(InvalidSchema, match="int64"):
        partitions_of(pa.array([1]), 3)


def test_the_encoded_key_is_hashed() -> None:
    codec = RegionKeyCodec(pa.schema([("name", pa.string()), ("number", pa.int64())]))
    names = ["a", 'q"uote', None, "", "a"]
    numbers = [1, -2, 3, 4, 1]
    found = partitions_of(codec.encode_batch([pa.array(names), pa.array(numbers)]), 101)
    rows = zip(names, numbers, strict=True)
    assert found.tolist() == [-1 if n is None else partition_of(encode_region_key(n, i), 101) for n, i in rows]
