"""``KeySet`` against a dict, for one to three key columns of any key type."""

from __future__ import annotations

import datetime
import itertools
import pickle
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.key_set import KeySet

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-3, 3)),
    "u": (pa.uint8(), st.integers(0, 3)),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "ä"])),
    "b": (pa.binary(), st.sampled_from([b"", b"\x00", b"\xff"])),
    "ok": (pa.bool_(), st.booleans()),
    "id": (pa.uuid(), st.sampled_from([UUID(int=0), UUID(int=1), UUID(int=2**128 - 1)])),
    "fix": (pa.binary(1), st.sampled_from([b"\x00", b"a", b"\xff"])),
    "clock": (pa.time32("s"), st.sampled_from([datetime.time(0), datetime.time(0, 0, 1)])),
    "ls": (pa.large_string(), st.sampled_from(["", "a", "b"])),
    "lb": (pa.large_binary(), st.sampled_from([b"", b"\x00"])),
    "day": (pa.date32(), st.sampled_from([datetime.date(1960, 1, 1), datetime.date(2020, 1, 1)])),
    "at": (pa.timestamp("us"), st.sampled_from([datetime.datetime(2020, 1, day) for day in (1, 2)])),
}


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]], list[tuple[Any, ...]], int]:
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3, unique=True))
    key = st.tuples(*(TYPES[name][1] for name in names))
    return (
        names,
        draw(st.lists(key, max_size=8, unique=True)),
        draw(st.lists(key, max_size=12)),
        draw(st.integers(0, 12)),
    )


def table(names: list[str], rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table({name: pa.array([row[i] for row in rows], TYPES[name][0]) for i, name in enumerate(names)})


@given(cases())
def test_places_and_contains_are_the_dicts(
    case: tuple[list[str], list[tuple[Any, ...]], list[tuple[Any, ...]], int],
) -> None:
    names, keys, rows, cut = case
    places = {key: place for place, key in enumerate(keys)}
    # Two chunks on either side: columns of a table come so.
    found = KeySet(pa.concat_tables([table(names, keys[: cut // 2]), table(names, keys[cut // 2 :])]))
    chunked = pa.concat_tables([table(names, rows[:cut]), table(names, rows[cut:])])
    assert len(found) == len(keys)
    assert found.places(chunked.columns).tolist() == [places.get(row, -1) for row in rows]
    assert found.contains(chunked.columns).tolist() == [row in places for row in rows]
    sent = pickle.loads(pickle.dumps(found, 5))
    assert sent.names == names
    assert sent.places(chunked.columns).tolist() == found.places(chunked.columns).tolist()


def test_a_set_pickles_as_its_keys() -> None:
    keys = pa.table({"id": range(100_000), "s": [str(id) for id in range(100_000)]})
    assert len(pickle.dumps(KeySet(keys), 5)) < 1.1 * keys.nbytes
    part = KeySet(keys.slice(500, 10))
    assert len(pickle.dumps(part, 5)) < 2_000
    assert pickle.loads(pickle.dumps(part, 5)).places(keys.slice(498, 4).columns).tolist() == [-1, -1, 0, 1]


@given(st.sets(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.integers(0, 1)), max_size=10), st.integers(1, 3))
def test_no_two_keys_are_taken_for_each_other(keys: set[tuple[int, str, int]], columns: int) -> None:
    names = ["i", "s", "u"][:columns]
    wanted = sorted({key[:columns] for key in keys})
    every = sorted({key[:columns] for key in itertools.product(range(4), "abcd", range(3))})
    found = KeySet(table(names, wanted)).places(table(names, every).columns)
    assert found.tolist() == [wanted.index(row) if row in wanted else -1 for row in every]
