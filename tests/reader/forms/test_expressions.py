"""Filters by expressions of ``pyarrow.compute``: the rows that DuckDB finds by the same condition, merged or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.schema import Op
from lancewal_reader.table import Table, open_table
from tests.support.flusher_tables import KeyedTable, Operation
from tests.support.pipeline import EVERY_TYPE, Key, Pipeline

f = pc.field


def of(value: Any, type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(value, type_)


NOON = datetime(2020, 2, 29, 12, tzinfo=UTC)
CASES: list[tuple[pc.Expression, str]] = [
    (f("a") > 0, "a > 0"),
    (f("a") == 7, "a = 7"),
    (f("a") > -(2**63), "a > -9223372036854775807 - 1"),
    ((f("a") > 0) & (f("id") < 15), "a > 0 AND id < 15"),
    ((f("a") < 0) | f("ok"), "a < 0 OR ok"),
    (~(f("a") == 7), "NOT (a = 7)"),
    (~(f("region") == "r3"), "region <> 'r3'"),
    (f("region").isin(["r1", "r2", "r5"]), "region IN ('r1', 'r2', 'r5')"),
    (~f("id").isin([1, 2, 3]), "id NOT IN (1, 2, 3)"),
    (f("s").is_null(), "s IS NULL"),
    (f("s").is_valid(), "s IS NOT NULL"),
    (pc.starts_with(f("region"), "r1"), "region LIKE 'r1%'"),
    (pc.ends_with(f("s"), "b"), "s LIKE '%b'"),
    (pc.match_substring(f("s"), "'"), "contains(s, '''')"),
    (f("s") == "a'b", "s = 'a''b'"),
    (f("s").isin(["ähre", None]), "s IS NULL OR s = 'ähre'"),
    (~f("s").isin(["ähre", ""]), "s IS NULL OR s NOT IN ('ähre', '')"),
    (f("a").is_null() | (f("a") != 3), "a IS NULL OR a <> 3"),
    (f("f") > 1e-300, "f > 0"),
    (f("a") >= f("id"), "a >= id"),
    (f("ok"), "ok"),
    (~f("ok"), "NOT ok"),
    (f("i8") > of(0, pa.int8()), "i8 > 0"),
    (f("u8") > of(100, pa.uint8()), "u8 > 100"),
    (f("u32") > of(1 << 31, pa.uint32()), "u32 > 2147483648"),
    (f("u64") > of(1 << 63, pa.uint64()), "u64 > 9223372036854775808"),
    (f("f") > 0.5, "f > 0.5"),
    (f("f4") <= of(0.5, pa.float32()), "f4 <= 0.5"),
    (f("dec") > of(Decimal("0.50"), pa.decimal128(12, 2)), "dec > 0.50"),
    (f("bin") == b"", "bin = ''::BLOB"),
    (f("day") >= of(date(2020, 1, 1), pa.date32()), "day >= DATE '2020-01-01'"),
    (f("at") >= of(NOON, pa.timestamp("us", tz="UTC")), "\"at\" >= TIMESTAMPTZ '2020-02-29 12:00:00+00'"),
    (f("at") < of(NOON, pa.timestamp("ms", tz="Asia/Tokyo")), "\"at\" < TIMESTAMPTZ '2020-02-29 12:00:00+00'"),
    (f("fine") < of(NOON, pa.timestamp("ns", tz="UTC")), "fine::TIMESTAMPTZ < TIMESTAMPTZ '2020-02-29 12:00:00+00'"),
    (f("local") < of(NOON.replace(tzinfo=None), pa.timestamp("us")), "local < TIMESTAMP '2020-02-29 12:00:00'"),
    (f("st", "x") > of(0, pa.int32()), "st.x > 0"),
    (f("day") < of(2**31 - 1, pa.int32()).cast(pa.date32()), "day < DATE '12000-01-01'"),
    (f("day") > of(-(2**31), pa.int32()).cast(pa.date32()), "day > DATE '0006-01-01 (BC)'"),
    (f("local") < of(2**62, pa.timestamp("us")), "local < TIMESTAMP '12000-01-01 00:00:00'"),
    (f("at") > of(-(2**52), pa.timestamp("ms", "UTC")), "\"at\" > TIMESTAMPTZ '0001-01-01 00:00:00+00'"),
]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path_factory.mktemp("expressions"), EVERY_TYPE, seed=9)
    made.produce(500)
    made.merge_all()
    made.produce(150)
    made.ingest()
    yield made
    made.close()


@pytest.fixture(scope="module")
def table(pipeline: Pipeline) -> Table:
    return open_table(pipeline.uri)


@pytest.fixture(scope="module")
def rows(pipeline: Pipeline) -> pa.Table:
    return pa.Table.from_pylist(list(pipeline.oracle.values()), EVERY_TYPE)


def found_by_duckdb(rows: pa.Table, condition: str) -> set[Key]:
    return set(duckdb.from_arrow(rows).filter(condition).project("region, id").fetchall())


@pytest.mark.parametrize(("expression", "condition"), CASES, ids=[condition for _, condition in CASES])
def test_the_rows_that_pass(rows: pa.Table, table: Table, expression: pc.Expression, condition: str) -> None:
    expected = found_by_duckdb(rows, condition)
    assert 0 < len(expected) < rows.num_rows
    found = table.to_arrow(["region", "id", "a"], filter=expression)
    assert {(row["region"], row["id"]) for row in found.to_pylist()} == expected
    assert found.num_rows == len(expected)
    assert table.count_rows(expression) == len(expected)


def test_nanoseconds_count(tmp_path: Path) -> None:
    """Merged and unmerged: two rows of which only the last nanosecond differs, and one of a whole microsecond."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("ns", "UTC"))])
    made = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",))
    values = pa.array([1_700_000_000_123_456_000 + rest for rest in (788, 789, 0)] + [-1], columns.field("at").type)
    for base in (0, 10):
        rows = [Operation(Op.UPSERT, (base + at,), {"at": value}) for at, value in enumerate(values)]
        made.generation(0, rows, flush=not base)
        made.round() if not base else None
    table = open_table(made.uri)

    def ids(filter: pc.Expression) -> list[int]:
        return [id for id in sorted(table.to_arrow(["id"], filter)["id"].to_pylist()) if id < 10]

    for at, value in enumerate(values):
        assert ids(f("at") == value) == ids(f("at").isin(values[at : at + 1])) == [at]
        assert sorted(ids(f("at") < value) + ids(f("at") >= value)) == [0, 1, 2, 3]
        assert ids(f("at") <= value) == [other for other in range(4) if values[other].value <= value.value]
        assert table.count_rows(f("at") > value) == 2 * sum(other.value > value.value for other in values)
    made.close()


def test_conditions_in_one_another(rows: pa.Table, table: Table) -> None:
    rng = Random(3)

    def made(depth: int) -> tuple[pc.Expression, str]:
        if not depth or rng.random() < 0.2:
            return rng.choice(CASES)
        (one, first), (other, second) = made(depth - 1), made(depth - 1)
        match rng.randrange(3):
            case 0:
                return one & other, f"({first}) AND ({second})"
            case 1:
                return one | other, f"({first}) OR ({second})"
            case _:
                return ~one, f"NOT ({first})"

    for _ in range(15):
        expression, condition = made(4)
        found = {(row["region"], row["id"]) for row in table.to_arrow(["region", "id"], expression).to_pylist()}
        assert found == found_by_duckdb(rows, condition), condition


@pytest.mark.parametrize("join", [or_, and_])
@pytest.mark.parametrize("from_the_right", [False, True])
def test_a_chain_is_no_nesting(rows: pa.Table, table: Table, join: Callable[..., Any], from_the_right: bool) -> None:
    compared = [f("id") == 2 * n if join is or_ else f("id") != 2 * n for n in range(400)]
    chain = reduce(lambda made, one: join(one, made) if from_the_right else join(made, one), compared)
    expected = found_by_duckdb(rows, f"id % 2 = {int(join is and_)}")
    assert 0 < len(expected) < rows.num_rows
    assert {(row["region"], row["id"]) for row in table.to_arrow(["region", "id"], chain).to_pylist()} == expected


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (f("a") + 1 > 3, "cannot have 'add_checked'; write the filter as text, in SQL"),
        (f("a").cast("float64") > 3, "cannot have 'cast'"),
        (f("a") == pa.scalar(None, pa.int64()), "a null as a literal"),
        (f("f") > float("nan"), "a literal nan of type double"),
        (f("f") < float("inf"), "a literal inf of type double"),
        (f("f").is_null(nan_is_null=True), "'is_null' with these options"),
        (pc.starts_with(f("s"), "A", ignore_case=True), "'starts_with' with these options"),
        (pc.is_in(f("a"), pa.array([1]), skip_nulls=True), "'is_in' with these options"),
        (f("tags") == pa.scalar(["x"]), "a literal .* of type list"),
        (f("nope") > 3, "filter '.*nope.*' is not accepted"),
        (f("a"), "filter '`a`' is not accepted"),
        (f("a`b") > 3, "a column 'a`b'"),
        (pc.field(0) > 3, "an expression cannot have"),
        (
            reduce(lambda made, n: ~made, range(3_000), f("a") == 1),
            "more than 40 expressions are nested in one another",
        ),
    ],
)
def test_what_an_expression_cannot_say(table: Table, expression: pc.Expression, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        table.to_arrow(filter=expression)
    with pytest.raises(InvalidInput, match=said):
        table.count_rows(expression)


def test_wherever_a_filter_is_taken(pipeline: Pipeline, table: Table) -> None:
    expression, condition = f("a") > 0, "a > 0"
    expected = sorted(table.to_arrow(["id"], condition)["id"].to_pylist())
    assert sorted(table.scan(["id"], expression).to_arrow()["id"].to_pylist()) == expected
    assert sorted(table.to_pandas(["id"], expression)["id"]) == expected
    assert table.head(3, ["a"], expression).num_rows == 3
    assert all(a > 0 for a in table.head(3, ["a"], expression)["a"].to_pylist())
    assert table.count_rows(expression, consistency="eventual") == table.count_rows(condition, consistency="eventual")
    found, same = (
        table.search([0.0] * 3, vector_column="vec", filter=filter, limit=7, exact=True).to_arrow()
        for filter in (expression, condition)
    )
    assert found.equals(same)
