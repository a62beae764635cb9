"""A comparison that cannot fail would make the demonstration worthless."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lancewal_demo.comparison import compare

EXPECTED = pa.table({"key": [1, 2, 3], "value": ["a", None, "c"], "mean": [0.1, 1 / 3, None]})


def changed(column: str, row: int, value: object) -> pa.Table:
    rows = EXPECTED.to_pylist()
    rows[row][column] = value
    return pa.Table.from_pylist(rows, EXPECTED.schema)


def test_order_and_further_columns_do_not_matter() -> None:
    found = EXPECTED.take([2, 0, 1]).append_column("further", pa.array([1, 2, 3]))
    result = compare("it", EXPECTED, found)
    assert result.holds
    assert str(result) == "equal: it: 3 rows, 9 cells"


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [("value", 0, "b"), ("value", 1, ""), ("value", 0, None), ("mean", 1, 0.3333333333333334), ("key", 2, 4)],
)
def test_one_different_cell_is_seen(column: str, row: int, value: object) -> None:
    result = compare("it", EXPECTED, changed(column, row, value))
    assert not result.holds
    assert (result.missing, result.surplus) == (1, 1)
    assert "DIFFERENT: it: of 3 rows 1 missing, 1 too many" in str(result)


def test_a_row_that_is_there_twice_is_seen() -> None:
    result = compare("it", EXPECTED, pa.concat_tables([EXPECTED, EXPECTED.slice(1, 1)]))
    assert (result.missing, result.surplus) == (0, 1)
    assert "surplus {'key': 2" in str(result)


def test_a_row_that_is_not_there_is_seen() -> None:
    result = compare("it", EXPECTED, EXPECTED.slice(1))
    assert (result.missing, result.surplus) == (1, 0)
