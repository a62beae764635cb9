"""Columns of a file for types that the first release does not have: what fits keeps its values, all else is refused."""

from __future__ import annotations

from datetime import time, timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from lancewal_core.errors import DuplicateKeys, InvalidSchema
from lancewal_core.rows.schema import RowSchema
from lancewal_tables.define.unique_keys import check_unique_rows
from lancewal_tables.load.columns import conform, fits, repeats_a_key
from lancewal_tables.load.whole import _last_of_each

ID = UUID(int=2**127 + 9)
FIT: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (pa.string(), pa.large_string(), ["", "a\0", None]),
    (pa.large_string(), pa.string(), ["", "a\0", None]),
    (pa.string_view(), pa.large_string(), ["", "a", None]),
    (pa.binary(), pa.binary(2), [b"ab", b"\0\0", None]),
    (pa.large_binary(), pa.binary(2), [b"ab", None]),
    (pa.binary(2), pa.large_binary(), [b"ab", None]),
    (pa.binary(2), pa.binary(2), [b"ab", None]),
    (pa.uuid(), pa.uuid(), [ID, None]),
    (pa.time32("s"), pa.time64("ns"), [time(23, 59, 59), None]),
    (pa.time64("us"), pa.time32("ms"), [time(0, 0, 0, 5000), None]),
    (pa.duration("s"), pa.duration("us"), [timedelta(days=-9), None]),
    (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int64()), [[("a", 1), ("", None)], [], None]),
    (pa.map_(pa.large_string(), pa.time32("s")), pa.map_(pa.string(), pa.time64("us")), [[("a", time(1))], None]),
    (
        pa.list_(pa.map_(pa.string(), pa.string())),
        pa.list_(pa.map_(pa.string(), pa.large_string())),
        [[[("a", "b")], None]],
    ),
    (pa.list_(pa.time32("s")), pa.list_(pa.time64("us")), [[time(1), None], None]),
]
MAPS = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.map_(pa.string(), pa.int8())))]))
CANNOT: list[tuple[pa.DataType, pa.DataType, Any]] = [
    (pa.binary(), pa.binary(2), b"abc"),
    (pa.binary(3), pa.binary(2), b"abc"),
    (pa.time64("us"), pa.time32("ms"), time(0, 0, 0, 1)),
    (pa.duration("us"), pa.duration("s"), timedelta(microseconds=1)),
    (pa.duration("s"), pa.duration("ns"), timedelta(days=10**6)),
    (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int8()), [("a", 1), ("b", 1), ("a", 1)]),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8()), [("a", 128)]),
    (MAPS, MAPS, [{"m": [("x", [("a", 1)]), ("y", None)]}, {"m": [("x", None), ("y", [("b", 1), ("b", 2)])]}]),
]
OTHER = [
    (pa.string(), pa.uuid()),
    (pa.binary(), pa.uuid()),
    (pa.binary(15), pa.uuid()),
    (pa.uuid(), pa.binary(16)),
    (pa.uuid(), pa.string()),
    (pa.int32(), pa.time32("s")),
    (pa.string(), pa.time32("s")),
    (pa.timestamp("s"), pa.time32("s")),
    (pa.int64(), pa.duration("s")),
    (pa.time64("us"), pa.duration("us")),
    (pa.string(), pa.binary(2)),
    (pa.large_binary(), pa.large_string()),
    (pa.map_(pa.int32(), pa.int8()), pa.map_(pa.string(), pa.int8())),
    (pa.list_(pa.struct([("key", pa.string()), ("value", pa.int8())])), pa.map_(pa.string(), pa.int8())),
    (pa.struct([("a", pa.int8())]), pa.map_(pa.string(), pa.int8())),
]


def loaded(values: list[Any], have: pa.DataType, want: pa.DataType) -> pa.Array:
    rows = RowSchema(pa.schema([("id", pa.int64()), ("c", want)]), ("id",), ("id",))
    return conform(pa.record_batch({"c": pa.array(values, have)}), ["c"], rows, "a file").column(0)


@pytest.mark.parametrize(("have", "want", "values"), FIT, ids=str)
def test_types_that_fit_keep_their_values(have: pa.DataType, want: pa.DataType, values: list[Any]) -> None:
    assert fits(have, want)
    found = loaded(values, have, want)
    assert (found.type, found.to_pylist()) == (want, values)


def test_one_key_in_two_maps_is_no_repetition() -> None:
    twice = pa.array([[("a", 1)], [("a", 1)], None, []], pa.map_(pa.string(), pa.int8()))
    assert not repeats_a_key(twice)
    assert not repeats_a_key(twice.slice(1))
    odd = pa.array([[("a", 1), ("a", 2)], [("a", 1)]], pa.map_(pa.string(), pa.int8()))
    assert repeats_a_key(odd)
    assert not repeats_a_key(odd.slice(1))


def test_sixteen_bytes_are_a_uuid() -> None:
    assert fits(pa.binary(16), pa.uuid())
    assert loaded([ID.bytes, None], pa.binary(16), pa.uuid()).to_pylist() == [ID, None]


@pytest.mark.parametrize(("have", "want", "value"), CANNOT, ids=str)
def test_a_value_that_the_column_cannot_hold_is_an_error(have: pa.DataType, want: pa.DataType, value: Any) -> None:
    assert fits(have, want)
    with pytest.raises(InvalidSchema, match="a file cannot be loaded: column 'c'"):
        loaded([value], have, want)


@pytest.mark.parametrize(("have", "want"), OTHER, ids=str)
def test_other_types_do_not_fit(have: pa.DataType, want: pa.DataType) -> None:
    assert not fits(have, want)


def test_keys_of_later_types_that_come_twice() -> None:
    key = {"a": pa.uuid(), "b": pa.binary(1), "c": pa.time32("s")}
    rows = RowSchema(pa.schema([*key.items(), ("v", pa.int64())]), tuple(key), ())
    keys = [(ID, b"a", time(1)), (ID, b"b", time(1)), (ID, b"a", time(2)), (ID, b"a", time(1))]
    table = pa.table({name: pa.array([k[n] for k in keys], type_) for n, (name, type_) in enumerate(key.items())})
    assert _last_of_each(table.append_column("v", pa.array([0, 1, 2, 3])), rows)["v"].to_pylist() == [1, 2, 3]
    for at_once in (1, 100):
        with pytest.raises(DuplicateKeys, match=r"1 primary key .*\(a='80000000-.*b='61', c=.*\) 2 times"):
            check_unique_rows(lambda: iter(table.to_batches()), 4, rows, at_once)
        check_unique_rows(lambda: iter(table.slice(1).to_batches()), 3, rows, at_once)
