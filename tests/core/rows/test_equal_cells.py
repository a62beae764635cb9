"""Cells of two columns against a comparison of their values in Python, bit by bit."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.equal_cells import equal_cells, equal_rows

FLOATS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf")])
TEXTS = st.sampled_from(["", "a", "ab", "\x00"])
ENTRY = st.tuples(TEXTS, st.none() | st.lists(FLOATS, max_size=2))
PAIR = st.tuples(TEXTS, FLOATS)
MEMBERS = pa.struct([("x", pa.float32()), ("l", pa.list_(pa.string()))])
TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.sampled_from([0, -1, 2**63 - 1, -(2**63)])),
    (pa.uint8(), st.sampled_from([0, 255])),
    (pa.bool_(), st.booleans()),
    (pa.float64(), FLOATS),
    (pa.float32(), FLOATS),
    (pa.float16(), FLOATS.map(np.float16)),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.binary(), TEXTS.map(str.encode)),
    (pa.binary(2), st.sampled_from([b"ab", b"\x00\x00"])),
    (pa.decimal128(5, 2), st.sampled_from([Decimal("0"), Decimal("1.50"), Decimal("-1.50")])),
    (pa.timestamp("us", tz="UTC"), st.sampled_from([dt.datetime(1969, 1, 1), dt.datetime(2026, 1, 1)])),
    (pa.date32(), st.sampled_from([dt.date(1969, 1, 1), dt.date(2026, 1, 1)])),
    (pa.time64("us"), st.sampled_from([dt.time(0), dt.time(1, 2, 3, 4)])),
    (pa.uuid(), st.sampled_from([UUID(int=0), UUID(int=1)])),
    (pa.duration("s"), st.sampled_from([dt.timedelta(0), dt.timedelta(-1)])),
    (pa.large_binary(), TEXTS.map(str.encode)),
    (pa.list_(pa.float32(), 2), st.lists(st.none() | FLOATS, min_size=2, max_size=2)),
    (pa.list_(pa.list_(pa.string())), st.lists(st.none() | st.lists(st.none() | TEXTS, max_size=2), max_size=2)),
    (pa.large_list(pa.int8()), st.lists(st.none() | st.integers(0, 1), max_size=2)),
    (MEMBERS, st.fixed_dictionaries({"x": st.none() | FLOATS, "l": st.none() | st.lists(TEXTS, max_size=2)})),
    (pa.map_(pa.string(), pa.int8()), st.lists(st.tuples(TEXTS, st.none() | st.integers(0, 1)), max_size=1)),
    (
        pa.map_(pa.string(), pa.list_(pa.float64())),
        st.lists(st.tuples(TEXTS, st.none() | st.lists(FLOATS, max_size=2)), max_size=2),
    ),
    (
        pa.list_(pa.map_(pa.string(), pa.float32())),
        st.lists(st.none() | st.lists(st.tuples(TEXTS, FLOATS), max_size=2), max_size=2),
    ),
    (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    (pa.null(), st.none()),
]


def _told_apart(value: Any) -> object:
    """Return a value that is equal for cells that a reader cannot tell apart."""
    if isinstance(value, float | np.floating):
        return "nan" if value != value else struct.pack("d", float(value))
    if isinstance(value, dict):
        return tuple((name, _told_apart(member)) for name, member in value.items())
    if isinstance(value, list | tuple):
        return tuple(_told_apart(item) for item in value)
    return type(value).__name__, value


@pytest.mark.parametrize(
    ("type_", "values"), TYPES, ids=lambda found: str(found) if isinstance(found, pa.DataType) else ""
)
@given(data=st.data())
def test_cells_are_equal_if_their_values_cannot_be_told_apart(
    type_: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    pairs = data.draw(st.lists(st.tuples(st.none() | values, st.none() | values), max_size=6))
    same = data.draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    one = [a for a, _ in pairs]
    other = [a if equal else b for (a, b), equal in zip(pairs, same, strict=True)]
    begin = data.draw(st.integers(0, len(pairs)))
    a, b = pa.array(one, type_), pa.array(other, type_)
    expected = [_told_apart(x) == _told_apart(y) for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)]
    assert equal_cells(a, b).tolist() == expected
    assert equal_cells(a.slice(begin), b.slice(begin)).tolist() == expected[begin:]
    divided = pa.chunked_array([a.slice(0, begin), a.slice(begin)], type_)
    whole = pa.chunked_array([b], type_)
    assert equal_cells(divided, whole).tolist() == expected
    assert equal_cells(whole, divided).tolist() == expected


def test_rows_are_equal_if_all_their_cells_are() -> None:
    one = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
    other = pa.table({"a": [1, 2, 4], "b": ["x", "y", "z"]})
    assert equal_rows(one, other).tolist() == [True, False, False]
