"""The code of keys: equal exactly if the keys are equal, whatever the columns' types and values."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancewal_core.keys.code import CodedKeys, code_keys, is_number, join_keys

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(datetime.UTC))),
    "string": (pa.string(), st.text(alphabet=":;01a\x00é", max_size=4)),
    "time32": (pa.time32("ms"), st.times().map(lambda clock: clock.replace(microsecond=5_000))),
    "time64": (pa.time64("us"), st.times()),
    "uuid": (pa.uuid(), st.uuids()),
    "fixed": (pa.binary(2), st.binary(min_size=2, max_size=2) | st.sampled_from([b"1:", b"::", b";;"])),
    "large_string": (pa.large_string(), st.text(alphabet=":;01a\x00é", max_size=4)),
    "large_binary": (pa.large_binary(), st.binary(max_size=3) | st.sampled_from([b"1:", b":", b";", b"12:"])),
    "binary": (pa.binary(), st.binary(max_size=3) | st.sampled_from([b"1:", b":", b";", b"12:"])),
}


NUMBERS = {pa.int8().id, pa.int64().id, pa.uint64().id, pa.date32().id, pa.timestamp("us").id, pa.time32("s").id}
NUMBERS.add(pa.time64("us").id)
"""Types of which a key of one column is its own number."""


@st.composite
def key_tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(TYPES[name][1] for name in names)), min_size=1, max_size=30))
    rows += draw(st.lists(st.sampled_from(rows), max_size=5))  # some keys twice
    columns = [pa.array([row[i] for row in rows], TYPES[name][0]) for i, name in enumerate(names)]
    return pa.table(columns, names=[f"k{i}" for i in range(len(names))])


def codes(coded: CodedKeys) -> list[tuple[int, bytes | None]]:
    texts = [None] * len(coded) if coded.texts is None else coded.texts.to_pylist()
    return list(zip(coded.numbers.tolist(), texts, strict=True))


@settings(max_examples=300, deadline=None)
@given(key_tables())
def test_codes_are_equal_exactly_if_keys_are(keys: pa.Table) -> None:
    rows = [tuple(row.values()) for row in keys.to_pylist()]
    coded = codes(code_keys(keys))
    for row, code in zip(rows, coded, strict=True):
        for other, other_code in zip(rows, coded, strict=True):
            assert (row == other) == (code == other_code), (row, other)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_one_integer_like_column_is_its_own_number(name: str) -> None:
    schema = pa.schema([pa.field("k", TYPES[name][0])])
    assert is_number(schema) == (TYPES[name][0].id in NUMBERS)


def test_numbers_keep_the_order_of_keys() -> None:
    keys = pa.table({"k": pa.array([-5, 2**40, 0, 7])})
    assert code_keys(keys).numbers.tolist() == [-5, 2**40, 0, 7]


def test_keys_can_be_joined_and_taken() -> None:
    first, second = (code_keys(pa.table({"k": texts})) for texts in (["a", "b"], ["c"]))
    joined = join_keys([first, second])
    assert codes(joined) == codes(first) + codes(second)
    assert codes(joined.take(pa.array([2, 0]).to_numpy())) == [codes(second)[0], codes(first)[0]]
