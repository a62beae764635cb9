"""Parts of key runs: what is written is read, and what is found is what a list of tuples says."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.keys.code import code_keys
from lancewal_core.keys.run import (
    Entries,
    SoughtKeys,
    cut,
    decode_part,
    encode_part,
    find_in_part,
    join_entries,
    sorted_entries,
)
from lancewal_core.rows.murmur2 import hashes

Listed = list[tuple[str, int, int]]


def listed(rng: random.Random, count: int) -> Listed:
    """Keys, some of them several times, with rows and files."""
    return [(f"k{rng.randrange(count)}", rng.randrange(10_000), rng.randrange(3)) for _ in range(count)]


def entries(items: Listed, numbers: bool) -> Entries:
    keys = [int(key[1:]) for key, _, _ in items] if numbers else [key for key, _, _ in items]
    rows, files = (np.array([item[i] for item in items], np.uint32) for i in (1, 2))
    return sorted_entries(code_keys(pa.table({"k": keys})), rows, files)


@pytest.fixture(params=["numbers", "texts", "texts whose hash has 8 bits"])
def numbers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if "8 bits" in request.param:
        monkeypatch.setattr("lancewal_core.keys.code.hashes", lambda keys: hashes(keys) & np.uint32(0xFF))
    return bool(request.param == "numbers")


def find(part: Entries, keys: list[str], numbers: bool) -> Listed:
    column = [int(key[1:]) for key in keys] if numbers else keys
    found = find_in_part(part, SoughtKeys(code_keys(pa.table({"k": column}))))
    return sorted((keys[p], int(r), int(f)) for p, r, f in zip(found.places, found.rows, found.files, strict=True))


@pytest.mark.parametrize(("count", "asked"), [(1, 1), (7, 7), (3000, 3000), (3000, 40), (3000, 5)])
def test_all_entries_of_the_keys_asked_for_are_found(numbers: bool, count: int, asked: int) -> None:
    rng = random.Random(count)
    items = listed(rng, count)
    part = decode_part(pa.py_buffer(encode_part(entries(items, numbers))), "part")
    keys = [f"k{i}" for i in rng.sample(range(2 * count), asked)]
    assert find(part, keys, numbers) == sorted(item for item in items if item[0] in keys)


def test_parts_are_cut_between_numbers_and_joined_again(numbers: bool) -> None:
    whole = entries(listed(random.Random(1), 5000), numbers)
    parts = list(cut(whole, 100))
    assert len(parts) > 1
    for one, next_ in itertools.pairwise(parts):
        assert one.keys.numbers[-1] < next_.keys.numbers[0]
    joined = join_entries(parts)
    assert joined.keys.numbers.tolist() == whole.keys.numbers.tolist()
    assert sorted(zip(joined.rows, joined.files, strict=True)) == sorted(zip(whole.rows, whole.files, strict=True))


def test_regions_go_with_their_entries(numbers: bool) -> None:
    """Through sorting, cutting, joining with a part that knows none, an object's bytes, and the lookup."""
    rng = random.Random(3)
    items = listed(rng, 2000)
    plain = entries(items[:500], numbers)
    keys = [int(key[1:]) for key, _, _ in items[500:]] if numbers else [key for key, _, _ in items[500:]]
    rows, files = (np.array([item[i] for item in items[500:]], np.uint32) for i in (1, 2))
    # A region that the entry's own row and file give.
    regions = ((rows + files) % 4).astype(np.int32) - 1
    parts = list(cut(sorted_entries(code_keys(pa.table({"k": keys})), rows, files, regions), 100))
    joined = join_entries([plain, *parts])
    part = decode_part(pa.py_buffer(encode_part(joined)), "part")
    for asked in ([f"k{i}" for i in range(2000)], ["k7", "k1500"]):
        column = [int(key[1:]) for key in asked] if numbers else asked
        found = find_in_part(part, SoughtKeys(code_keys(pa.table({"k": column}))))
        ours = zip(found.places, found.rows, found.files, found.regions, strict=True)
        expected = [(k, r, f, -1) for k, r, f in items[:500] if k in asked]
        expected += [(k, r, f, (r + f) % 4 - 1) for k, r, f in items[500:] if k in asked]
        assert sorted((asked[p], int(r), int(f), int(g)) for p, r, f, g in ours) == sorted(expected)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"row": pa.array([1], pa.int64())}, "no part has the columns"),
        ({"number": pa.array([None], pa.int64())}, "nulls"),
        ({"more": pa.array([1])}, "no part has the columns"),
        ({"region": pa.array([1])}, "no part has the columns"),
        ({"region": pa.array([None], pa.int32())}, "nulls"),
    ],
)
def test_another_table_is_no_part(changed: dict[str, pa.Array], named: str) -> None:
    right = {"number": pa.array([1]), "row": pa.array([1], pa.uint32()), "file": pa.array([1], pa.uint32())}
    batch = pa.record_batch({**right, **changed})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(ObjectCorrupt, match=f"part, a part of the key index, is corrupt: .*{named}"):
        decode_part(sink.getvalue(), "part")


def test_a_compressed_part_is_refused_before_anything_is_expanded() -> None:
    batch = pa.record_batch({"number": pa.array(np.zeros(1_000_000, np.int64))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    with pytest.raises(ObjectCorrupt, match="compressed"):
        decode_part(sink.getvalue(), "part")
