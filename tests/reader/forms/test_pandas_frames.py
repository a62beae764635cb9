"""Rows in pandas, against the Python values that they were made of: no digit is lost, and dtypes follow from the schema."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_reader.forms.pandas_frames import pandas_frame
from tests.support.pipeline import EVERY_TYPE, random_value

BIG = 2**53 + 1
FINE = pa.schema([pa.field("ns", pa.timestamp("ns")), pa.field("secs", pa.timestamp("s", "UTC")), *EVERY_TYPE])
KEYS = pa.schema([pa.field(field.name, field.type, nullable=False) for field in FINE])
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def plain(value: Any) -> Any:
    """As Arrow gives it to Python."""
    match value:
        case np.ndarray():
            return value.tolist()
        case list():
            return [plain(item) for item in value]
        case float() if math.isnan(value):
            return "NaN"
    return None if value is None or value is pd.NA or value is pd.NaT else value


def values_of(frame: pd.DataFrame) -> dict[str, list[Any]]:
    return {name: [plain(value) for value in frame[name].tolist()] for name in frame.columns}


@pytest.mark.parametrize("name", INTEGERS)
def test_a_null_costs_no_digit(name: str) -> None:
    type_ = getattr(pa, name)()
    top = 2 ** (type_.bit_width - (0 if name.startswith("u") else 1)) - 1
    numbers = [top, None, top - 1, min(BIG, top)]
    deep = [{"n": n, "all": numbers, "in": {"n": n}} for n in numbers]
    members = pa.struct([("n", type_), ("all", pa.list_(type_)), ("in", pa.struct([("n", type_)]))])
    columns = {
        "n": pa.array(numbers, type_),
        "all": pa.array([numbers, None, [], [None]], pa.list_(type_)),
        "one": pa.array([None, *deep[1:]], members),
        "some": pa.array([deep, None, [None], []], pa.list_(members)),
        "lists": pa.array([[numbers, None], [], None, [[]]], pa.list_(pa.list_(type_))),
    }
    rows = pa.table(columns)
    found = values_of(pandas_frame(rows))
    assert found == {
        "n": numbers,
        "all": [numbers, None, [], [None]],
        "one": [None, *deep[1:]],
        "some": [deep, None, [None], []],
        "lists": [[numbers, None], [], None, [[]]],
    }
    assert str(pandas_frame(rows)["n"].dtype) == name.replace("i", "I", 1).replace("uI", "UI")


@pytest.mark.parametrize("schema", [FINE, KEYS], ids=["nullable", "not nullable"])
def test_every_type_keeps_its_values_and_its_dtype(schema: pa.Schema) -> None:
    rng = random.Random(3)
    nulls = 0.4 if schema is FINE else 0
    rows = [
        {f.name: random_value(rng, f.type, nulls if f.nullable else 0) for f in schema if f.name not in ("ns", "secs")}
        for _ in range(120)
    ]
    for row in rows:
        row["ns"] = None if rng.random() < nulls else pd.Timestamp(rng.randrange(-(2**60), 2**60), unit="ns")
        row["secs"] = row["at"] and row["at"].replace(microsecond=0)
    table = pa.Table.from_pylist(rows, schema)
    frame = pandas_frame(table)
    expected = {name: [plain(value) for value in table.column(name).to_pylist()] for name in schema.names}
    assert values_of(frame) == expected
    dtypes = frame.dtypes.to_dict()
    for part in (table.slice(0, 0), table.slice(0, 1), pa.concat_tables([table.slice(7, 9), table.slice(50)])):
        assert pandas_frame(part).dtypes.to_dict() == dtypes
    assert pandas_frame(table.select([])).shape == (120, 0)
    if schema is KEYS:
        assert dtypes == table.to_pandas().dtypes.to_dict()  # what pyarrow gives where no row has a null
    else:
        nothing = pa.Table.from_pylist([{"region": "r", "id": 1}] * 3, schema)
        assert pandas_frame(nothing).dtypes.to_dict() == dtypes
        wanted = {
            "id": "int64",
            "region": "object",
            "a": "Int64",
            "u64": "UInt64",
            "ok": "boolean",
            "f": "Float64",
            "f4": "Float32",
            "s": "string",
            "day": "object",
            "bin": "object",
            "dec": "object",
            "vec": "object",
            "at": "datetime64[us, UTC]",
            "ns": "datetime64[ns]",
            "secs": "datetime64[s, UTC]",
            "sts": "object",
        }
        assert {name: str(dtypes[name]) for name in wanted} == wanted


def test_a_nan_is_no_null() -> None:
    frame = pandas_frame(pa.table({"f": pa.array([1.5, float("nan"), None])}))
    assert values_of(frame) == {"f": [1.5, "NaN", None]}
    assert frame["f"].isna().tolist() == [False, False, True]


def test_a_vector_is_an_array_of_its_type() -> None:
    vectors = [[1.5, 2.5], None, [0.1, -0.0]]
    rows = pa.table({"v": pa.array(vectors, pa.list_(pa.float32(), 2)), "b": pa.array(
        [[1, 2], None, [255, 0]], pa.list_(pa.uint8(), 2))}).slice(1)  # fmt: skip
    frame = pandas_frame(rows)
    assert frame["v"][0] is None
    assert frame["v"][1].dtype == np.float32
    assert frame["v"][1].tolist() == [np.float32(0.1), -0.0]
    assert frame["b"][1].dtype == np.uint8
    holed = pa.table(
        {"b": pa.array([[1, None], None, [255, 0]], pa.list_(pa.uint8(), 2))}
    )  # only files have such a one
    assert pandas_frame(holed)["b"].tolist() == [[1, None], None, [255, 0]]


def test_a_time_that_pandas_takes_for_none_is_refused() -> None:
    rows = pa.table({"t": pa.array([-(2**63), 5], pa.timestamp("ns"))})
    with pytest.raises(InvalidInput, match=r"column 't' .* which pandas reads as NaT.*to_arrow"):
        pandas_frame(rows)
    assert pandas_frame(rows.slice(1))["t"].tolist() == [pd.Timestamp(5)]


def test_numpys_dtypes_are_those_of_arrow() -> None:
    rows = pa.table({"n": pa.array([BIG, None]), "l": pa.array([[1], None])})
    frame = pandas_frame(rows, "numpy")
    assert frame["n"].dtype == np.float64
    assert frame["l"][0].dtype == np.int64
    with pytest.raises(InvalidInput, match="dtypes='arrow': expected 'nullable' or 'numpy'"):
        pandas_frame(rows, "arrow")  # type: ignore[arg-type] # what a user may give
