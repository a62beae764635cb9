"""Times that lose digits on their way to Spark, against Python's integers, which floor."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lancewal_reader.forms.plain_rows import plain_rows
from lancewal_reader.spark.types import spark_schema, target_schema, to_target

INT64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3000, 3000))
TIME = st.one_of(st.none(), INT64)
ROW = st.fixed_dictionaries(
    {
        "at": TIME,
        "local": TIME,
        "all": st.one_of(st.none(), st.lists(TIME, max_size=3)),
        "one": st.one_of(st.none(), st.fixed_dictionaries({"at": TIME, "all": st.lists(TIME, max_size=2)})),
        "deep": st.one_of(st.none(), st.lists(st.fixed_dictionaries({"at": TIME, "n": TIME}), max_size=2)),
    }
)


def schema(zoned: pa.DataType, local: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            ("at", zoned),
            ("local", local),
            ("all", pa.list_(zoned)),
            ("one", pa.struct([("at", local), ("all", pa.list_(local))])),
            ("deep", pa.list_(pa.struct([("at", zoned), ("n", pa.int64())]))),
        ]
    )


FINE = schema(pa.timestamp("ns", "UTC"), pa.timestamp("ns"))
NUMBERS = schema(pa.int64(), pa.int64())  # Arrow gives Python no times beyond the year 9999


def floored(value: Any, path: str = "") -> Any:
    match value:
        case dict():
            return {name: floored(item, name) for name, item in value.items()}
        case list():
            return [floored(item, path) for item in value]
        case int() if path != "n":
            return value // 1000
    return value


EDGES = [-(2**63), 2**63 - 1, -999_999_999, -1001, -1000, -999, -1, 0, 1, 999, 1000, None]


@given(st.lists(ROW, max_size=12), st.integers(0, 5), st.integers(0, 12))
@example(
    [{"at": t, "local": t, "all": [t], "one": {"at": t, "all": [t]}, "deep": [{"at": t, "n": t}]} for t in EDGES], 1, 9
)
def test_nanoseconds_are_floored_in_every_form(rows: list[dict[str, Any]], first: int, count: int) -> None:
    """Whole batches and slices of them, nulls, lists, structs; other 64 bit numbers stay as they are."""
    whole = pa.RecordBatch.from_pylist(rows, NUMBERS).cast(FINE)
    for batch, given_rows in ((whole, rows), (whole.slice(first, count), rows[first : first + count])):
        found = to_target(batch, target_schema(spark_schema(FINE)))
        found.validate(full=True)
        assert found.cast(NUMBERS).to_pylist() == [floored(row) for row in given_rows]


@pytest.mark.parametrize(("unit", "per_us"), [("s", 10**6), ("ms", 10**3), ("us", 1)])
def test_coarser_times_keep_their_moment_or_stop(unit: str, per_us: int) -> None:
    type_ = pa.timestamp(unit)
    made = pa.schema([("at", type_)])
    last = (2**63 - 1) // per_us
    batch = pa.record_batch([pa.array([-last, -1, 0, None, last], type_)], made)
    found = to_target(batch, target_schema(spark_schema(made))).column(0).cast(pa.int64()).to_pylist()
    assert found == [-last * per_us, -per_us, 0, None, last * per_us]
    if per_us > 1:
        beyond = pa.record_batch([pa.array([last + 1], type_)], made)
        with pytest.raises(pa.ArrowInvalid):
            to_target(beyond, target_schema(spark_schema(made)))


def test_times_in_maps_are_floored_too() -> None:
    times = pa.map_(pa.string(), pa.timestamp("ns"))
    stored = pa.map_(pa.string(), pa.int64())
    rows = [[("x", -1)], None, [], [("a", -1001), ("b", None)], [("c", 1999)]]
    column = pa.array(rows, stored).cast(times)
    target = target_schema(spark_schema(pa.schema([("m", times)])))
    for begin in range(len(rows)):
        found = to_target(pa.record_batch({"m": column.slice(begin)}), target).column(0)
        found.validate(full=True)
        expected = [row and [(key, at and at // 1000) for key, at in row] for row in rows[begin:]]
        assert found.cast(stored).to_pylist() == expected


def test_a_map_of_another_program_that_has_a_key_twice_is_shown_as_pairs() -> None:
    column = pa.array([[("a", 1), ("a", 2)], [("b", 1)], []], pa.map_(pa.string(), pa.int64()))
    assert [row["m"] for row in plain_rows(pa.record_batch({"m": column}))] == [[["a", 1], ["a", 2]], {"b": 1}, {}]
