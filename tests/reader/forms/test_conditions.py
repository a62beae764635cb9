"""Filters as text: whole, exact and bounded.  The oracle is Python's own decimals, integers and dates."""

from __future__ import annotations

import math
import operator
import re
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.table.lance.errors import reading
from lancewal_reader.forms.conditions.grammar import for_lance
from lancewal_reader.forms.expressions import sql_of
from lancewal_reader.reading.filter import check_filter, filter_rows

_FARE = pa.decimal128(10, 2)
_DAY = date(2026, 1, 2)
_EPOCH = datetime(1970, 1, 1)
ROWS = pa.table(
    {
        "n": pa.array(range(4), pa.int64()),
        "u8": pa.array([1, 200, 3, None], pa.uint8()),
        "u64": pa.array([2**64 - 1, 0, 2**63, None], pa.uint64()),
        "fare": pa.array([Decimal("2.50"), Decimal("-1.00"), Decimal("0.01"), None], _FARE),
        "fine": pa.array([Decimal("0.1234567890123456789"), None, Decimal(1), Decimal(-1)], pa.decimal128(38, 19)),
        "Day": pa.array([_DAY, date(1, 1, 1), date(9999, 12, 31), None]),
        "s": pa.array([0, 1_767_312_000, -1, None], pa.timestamp("s")),
        "ms": pa.array([0, 1_767_312_000_001, -1, None], pa.timestamp("ms", "UTC")),
        "us": pa.array([0, 1_767_312_000_000_001, -1, None], pa.timestamp("us", "UTC")),
        "ns": pa.array([0, 1_767_312_000_000_000_001, -1, None], pa.timestamp("ns")),
        "text": ["a", "it's", None, "`b`"],
        "st": pa.array(
            [{"Cost": Decimal("2.50"), "at": 1}, None, {"Cost": None, "at": -1}, {"Cost": Decimal("9.99"), "at": 0}],
            pa.struct([("Cost", _FARE), ("at", pa.timestamp("s"))]),
        ),
        "tags": pa.array([[Decimal("2.50")], [], None, [None]], pa.list_(_FARE)),
        "ok": [True, False, None, True],
        "f": pa.array([0.5, 1.0, None, 0.0], pa.float32()),
        "raw": [b"a", b"", None, b"b"],
        "words": [["a"], [], None, ["b"]],
    }
)


DATASET = lance.write_dataset(ROWS, "memory://conditions")


def found(filter: str) -> list[int]:
    """Rows that pass."""
    passed: list[int] = (
        DATASET.scanner(columns=["n"], filter=for_lance(ROWS.schema, filter)).to_table()["n"].to_pylist()
    )
    return passed


@pytest.mark.parametrize(
    "rest",
    [
        *(
            " AN fare > 2",
            ", fare > 2",
            " LIMIT 5",
            " xyz",
            ")",
            "; n = 2",
            ";;",
            " fare > 2",
            " = 1",
            " OR",
            " ORDER BY n",
        ),
        *(" FROM t", " GROUP BY n", "\x00", " /* open", " 'a'", " `n`", " AS x", "::", " UNION SELECT 1", " -- x\n, n"),
    ],
)
def test_nothing_may_follow_the_expression(rest: str) -> None:
    with pytest.raises(InvalidInput, match="is not accepted"):
        check_filter(ROWS.schema, "n = 1" + rest)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ("n = 1;", [1]),
        ("n = 1 -- OR n = 2", [1]),
        ("n = 1 /* OR ' */ OR n = 3", [1, 3]),
        ("text = 'it''s' OR text = '`b`'", [1, 3]),
        ('text = "it\'s"', [1]),
        ("N = 1 or not (`n` < 3)", [1, 3]),
        ("n = 1 OR n = 2 AND n = 3", [1]),
        ("NOT n = 1 AND n <> 2", [0, 3]),
        ("n - 1 - 1 = 0", [2]),
        ("n - (1 - 1) = 1 AND n % 2 = 1", [1]),
        ("n NOT IN (1, 2) AND n NOT BETWEEN 3 AND 4", [0]),
        ("n IS NOT DISTINCT FROM 1 AND n = 1 OR 3 IS DISTINCT FROM n AND n = 2", [1, 2]),
        ("(n = 1) IS NOT DISTINCT FROM TRUE OR n = 2", [1, 2]),
        ("n + 1 << 1 + 1 = 8 OR 1 << n = 8 OR n >> 1 << 1 <> n AND n < 2", [1, 3]),
        ("text IS NOT NULL AND text NOT LIKE '%b%' AND starts_with(lower(text), 'a')", [0]),
    ],
)
def test_whole_expressions(filter: str, expected: list[int]) -> None:
    assert found(filter) == expected


_SIGNS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _values(column: str) -> list[Any]:
    """Decimals, or nanoseconds since 1970 of days and times."""
    values = pc.struct_field(ROWS["st"], column[3:]) if column.startswith("st.") else ROWS[column]
    if pa.types.is_timestamp(values.type):
        unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[values.type.unit]
        return [None if value is None else value * unit for value in values.cast(pa.int64()).to_pylist()]
    if pa.types.is_date(values.type):
        return [
            None if value is None else (value - _EPOCH.date()).days * 86_400 * 10**9 for value in values.to_pylist()
        ]
    return [None if value is None else Decimal(value) for value in values.to_pylist()]


def _moment(ns: int) -> str:
    return f"{_EPOCH + timedelta(seconds=ns // 10**9)}.{ns % 10**9:09}"


def _cases() -> list[tuple[str, Any, list[str]]]:
    """A column, a value and the forms of the value as literals."""
    cases: list[tuple[str, Any, list[str]]] = []
    for column in ("fare", "fine", "st.Cost", "ST.cost", "FARE", "`fare`"):
        for digits in (
            "2.50",
            "2.5",
            "2.505",
            "2",
            "-1",
            "-1.004",
            "0.1234567890123456789",
            "0.12345678901234567891",
            "9.99",
        ):
            scale = len(digits.partition(".")[2])
            cast = f"CAST({digits} AS decimal(38, {scale}))"
            texts = [digits, f"'{digits}'", cast, f"'{digits}'::DECIMAL(38,{scale})", f"decimal '{digits}'"]
            cases.append((column, Decimal(digits), texts))
    for column in ("Day", "s", "ms", "us", "ns", "st.at", "day"):
        for ns in (0, 500_000_000, -500_000_000, 1_767_312_000 * 10**9, 1_767_312_000_000_000_001, 1, -1, 10**9):
            text = _moment(ns)
            texts = [f"timestamp '{text}'", f"'{text}'", f"CAST('{text}' AS TIMESTAMP)", f"'{text}Z'::timestamp"]
            cases.append((column, ns, [*texts, f"to_timestamp_nanos({ns})"]))
        day = 1_767_312_000 * 10**9
        cases.append((column, day, ["date '2026-01-02'", "'2026-01-02'", "'2026-01-02T01:00:00+01:00'"]))
    return cases


@pytest.mark.parametrize("column", sorted({case[0] for case in _cases()}))
def test_literals_compare_exactly(column: str) -> None:
    rng = Random(column)
    exact = {"ST.cost": "st.Cost", "FARE": "fare", "`fare`": "fare", "day": "Day"}.get(column, column)
    values = _values(exact)
    for _, value, texts in (case for case in _cases() if case[0] == column):
        for text in texts:
            sign = rng.choice(list(_SIGNS))
            expected = [n for n, held in enumerate(values) if held is not None and _SIGNS[sign](held, value)]
            assert found(f"{column} {sign} {text}") == expected, (sign, text)
            assert found(f"{text} {_TURNED[sign]} {column}") == expected, (sign, text)
            denied = [n for n, held in enumerate(values) if held is not None and n not in expected]
            assert found(f"NOT {column} {sign} {text}") == denied, (sign, text)
            equal = [n for n, held in enumerate(values) if held == value]
            assert found(f"{column} IN ({text}, {text})") == equal, text
            assert found(f"{column} NOT IN ({text})") == [
                n for n, held in enumerate(values) if held is not None and held != value
            ]
            assert found(f"{column} BETWEEN {text} AND {text}") == equal, text
            assert found(f"{column} IS NOT DISTINCT FROM {text}") == equal, text


def test_expressions_of_pyarrow_compare_exactly() -> None:
    late = pa.scalar(500, pa.timestamp("ms"))
    assert found(sql_of(pc.field("s") < late)) == [0, 2]
    assert found(sql_of(pc.field("st", "at") < late)) == [2, 3]
    assert found(sql_of(pc.field("fare") > pa.scalar(Decimal("2.499"), pa.decimal128(20, 3)))) == [0]
    assert found(
        sql_of(pc.field("fare").isin(pa.array([Decimal("2.505"), Decimal("2.500")], pa.decimal128(20, 3))))
    ) == [0]
    assert found(sql_of(pc.field("Day") < pa.scalar(datetime(2026, 1, 2, 12), pa.timestamp("us")))) == [0, 1]


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ("u64 = 18446744073709551615", [0]),
        ("u64 IN (18446744073709551615, 9223372036854775808)", [0, 2]),
        ("n > -9223372036854775808 AND n = 2.0", [2]),
        ("fare + 0.005 = 2.505", [0]),
        ("fare + 0.005 > '2.5049'", [0]),
        ("2.505 NOT IN (fare)", [0, 1, 2]),
        ("2.50 IN (fine, fare) OR '2026-01-02' IN (day)", [0]),
        ("200 NOT IN (n, u8) OR 2 IN (n, 1)", [0, 2]),
        ("ns IN ('2026-01-02 00:00:00.000000001', '1970-01-01') AND ns NOT IN (date '2026-01-02')", [0, 1]),
        ("n + 2.0 > 4.5 OR n * 1.0 / 4 = 0.25", [1, 3]),
        (
            "replace(text, 'it', 'a') = 'a''s' OR lpad(text, 3, '-') = '--a' OR translate(text, 'b`', 'ax') = 'xax'",
            [0, 1, 3],
        ),
        ("concat(text" + ", text, '-'" * 40 + f") = 'a{'a-' * 40}' OR ifnull(text, 'none') = 'none'", [0, 2]),
        ("coalesce(fare, 7) = 7", [3]),
        ("array_has(tags, 2.5) OR array_has_any(tags, [2.50, '1'])", [0]),
        ("0.1 = 0.10000000000000000000000000000000000001", []),
        ("s < now() AND NOT ns > current_timestamp", [0, 1, 2]),
        ("CAST(Day AS STRING) = '2026-01-02'", [0]),
        ("date_part('year', day) = 2026 AND s::date = '1970-01-01'", [0]),
    ],
)
def test_values_beside_others(filter: str, expected: list[int]) -> None:
    assert found(filter) == expected


@pytest.mark.parametrize(
    ("filter", "column", "type_"),
    [
        ("n > 2.5", "n", "int64"),
        ("u8 > 300", "u8", "uint8"),
        ("u8 IN (1, 300)", "u8", "uint8"),
        ("u8 = -1", "u8", "uint8"),
        ("n = '2'", "n", "int64"),
        ("n = 99999999999999999999", "n", "int64"),
        ("fare > 'much'", "fare", "decimal128(10, 2)"),
        ("fare < 100000000", "fare", "decimal128(10, 2)"),
        ("fare = 1e300", "fare", "decimal128(10, 2)"),
        ("fare = date '2026-01-02'", "fare", "decimal128(10, 2)"),
        ("day = '2 January'", "Day", "date32[day]"),
        ("day = '2026-02-30'", "Day", "date32[day]"),
        ("day > 2026", "Day", "date32[day]"),
        ("s > 1767312000", "s", "timestamp[s]"),
        ("ns < timestamp '9999-01-01'", "ns", "timestamp[ns]"),
        ("text = 5", "text", "string"),
        ("st.cost = 'x'", "st`.`Cost", "decimal128(10, 2)"),
        ("text = true", "text", "string"),
        ("n <> false", "n", "int64"),
        ("f > 'much'", "f", "float"),
        ("f = true", "f", "float"),
        ("ok = 1", "ok", "bool"),
        ("ok IN ('true')", "ok", "bool"),
        ("ok BETWEEN 0 AND 1", "ok", "bool"),
        ("raw = 'a'", "raw", "binary"),
        ("s >= 2026-01-05", "s", "timestamp[s]"),
        ("2026-01-05 < day", "Day", "date32[day]"),
    ],
)
def test_an_error_shows_the_type_and_an_example_that_works(filter: str, column: str, type_: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        check_filter(ROWS.schema, filter)
    assert f"`{column}`, whose type is {type_}. " in str(raised.value)
    assert found(str(raised.value).rpartition("An example that works: ")[2]) is not None


@pytest.mark.parametrize("filter", ["array_contains(words, 5)", "words[1] = 5", "array_has_any(words, [5])"])
def test_an_error_about_items_shows_an_item(filter: str) -> None:
    with pytest.raises(InvalidInput, match=r"`words`\[1\], whose type is string\.") as raised:
        check_filter(ROWS.schema, filter)
    assert found(str(raised.value).rpartition("An example that works: ")[2]) == []


@pytest.mark.parametrize("filter", ["st = 5", "'a' = words", "tags IN (1)", "words > 'a'"])
def test_a_literal_beside_a_nested_column_is_refused(filter: str) -> None:
    with pytest.raises(InvalidInput, match=r"Compare a member or an item of it, such as place\.lat or tags\[1\]$"):
        check_filter(ROWS.schema, filter)


def test_a_quote_that_is_never_closed_is_named() -> None:
    for filter in ("text = 'a", 'text = "a', "`text = 'a'"):
        with pytest.raises(InvalidInput, match=r"the quote in .* is never closed$"):
            check_filter(ROWS.schema, filter)


@pytest.mark.parametrize("filter", ["n", "n LIKE '1%'", "NOT n", "ok AND n", "lower(n) = 'a'", "n IS TRUE"])
def test_what_lance_says_of_a_filter_is_shown_without_its_own_source(filter: str) -> None:
    with pytest.raises(InvalidInput, match="is not accepted: ") as raised:
        check_filter(ROWS.schema, filter)
    assert not re.search(r"Invalid user input|during planning|\.rs:", str(raised.value))


@pytest.mark.parametrize(
    ("filter", "why"),
    [
        ("10 / n > 1", "Divide by zero"),
        ("CAST(text AS INT) = 1", "Cannot cast string 'a' to value of Int32 type"),
        ("text = n", "Cannot cast string 'a' to value of Int64 type"),
        ("to_date(text) > date '2026-01-01'", "Error parsing|Unable to cast"),
        ("date_part('foo', s) > 1", "Date part 'foo' not supported"),
    ],
)
def test_a_filter_that_fails_on_a_row_is_refused(filter: str, why: str) -> None:
    condition = check_filter(ROWS.schema, filter)
    with pytest.raises(InvalidInput, match=rf"the filter fails on a row: {why}"):
        filter_rows(ROWS, condition, ["n"])
    with pytest.raises(InvalidInput, match=rf"the filter fails on a row: {why}"), reading("scanning"):
        list(DATASET.scanner(columns=["n"], filter=condition).to_batches())


@pytest.mark.parametrize(
    "filter",
    [
        "fare = CAST('2.505' AS DECIMAL(10, 2))",
        "round(fare, 1) = 2.5",
        "Day = date '2026-01-02 10:00'",
        "n = CAST('2.5' AS BIGINT)",
    ],
)
def test_a_value_that_a_type_would_cut_is_refused(filter: str) -> None:
    with pytest.raises(InvalidInput, match=r"not exactly a value|through a float"):
        check_filter(ROWS.schema, filter)


HOSTILE = [
    "+".join(["n"] * 20_000) + " > 1",
    " OR ".join(["n = 1"] * 100_001),
    " AND ".join(["n = 1"] * 100_001),
    "repeat(text, 100000000) = ''",
    "array_repeat(text, 1000000000) IS NULL",
    "n" + "::bigint" * 2_000 + " = 1",
    "(" * 5_000 + "n = 1" + ")" * 5_000,
    "NOT " * 5_000 + "n = 1",
    "-" + " -" * 5_000 + "n = 1",
    "abs(" * 1_000 + "n" + ")" * 1_000 + " = 1",
    "n = 1" + " IS TRUE" * 5_000,
    "||".join(["text"] * 5_000) + " = ''",
    "n = 1 OR (" * 2_000 + "n = 1" + ")" * 2_000,
    "text = " + "[" * 5_000,
    "tags" + "[1]" * 5_000 + " = 1",
    "lpad(text, 1000000000) = ''",
    "rpad(text, n) = ''",
    "replace(text, '', 'ab') = ''",
    "replace(replace(text, 'a', 'aa'), 'a', 'aa') = ''",
    f"concat({', '.join(['text'] * 101)}) = ''",
    "(" * 20 + "n = 1" + " BETWEEN false AND true)" * 20,
    "coalesce(" * 20 + "text" + ", text)" * 20 + " = text",
    "(" * 3 + " OR ".join(["n = 1"] * 2_000) + ") BETWEEN false AND true)" * 3,
    " OR ".join(f"n{' + n' * 100} = {n}" for n in range(1_000)),
    f"1 IN ({', '.join(['n'] * 6_000)})",
    f"n IN ({', '.join(['n'] * 6_000)})",
    "n = $$a$$",
    "n = ?",
    "text = N'a'",
    "n = '" + "'" * 1_000_001,
    "n = " + "9" * 100_000,
    "n = 1e999999999",
    "n IN (" + "9" * 10_000 + ")",
]


def test_hostile_filters_are_refused() -> None:
    for filter in HOSTILE:
        with pytest.raises(InvalidInput, match="is not accepted"):
            check_filter(ROWS.schema, filter)


def test_the_largest_filters_that_pass_do_not_end_the_process() -> None:
    """In a process of its own, which Lance would end by a signal."""
    largest = [
        " OR ".join(f"n = {n} + {n}" for n in range(5_000)),
        "(" * 6 + "ok" + " BETWEEN false AND true)" * 6,
        "coalesce(" * 5 + "text" + ", text)" * 5 + " = text",
        f"n IN ({', '.join(['n'] * 4_999)})",
        f"1 IN ({', '.join(['n'] * 4_999)})",
        "n = 1 AND (" * 15 + " OR ".join(["n" + " + 1" * 100 + " > 1"] * 2) + ")" * 15,
        "abs(" * 39 + "n" + ")" * 39 + " = 1",
        "NOT " * 40 + "n = 1",
        " OR ".join(["n" + "::bigint::int" * 4 + " = 1"] * 5),
        "||".join(["text"] * 16) + " = ''",
    ]
    code = (
        "import sys, pyarrow as pa\n"
        "from lancewal_core.errors import InvalidInput\n"
        "from lancewal_reader.reading.filter import check_filter, filter_rows\n"
        "rows = pa.table({'n': [1], 'text': ['a'], 'ok': [True]})\n"
        "for filter in sys.stdin.read().split('\\n'):\n"
        "    filter_rows(rows, check_filter(rows.schema, filter), ['n'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="\n".join(largest), text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]


@pytest.mark.parametrize(
    "items", [[str(n) for n in range(50_000)], [f"'key {n}, ('')'" for n in range(50_000)]], ids=["n", "text"]
)
def test_a_long_list_is_read_at_once(items: list[str], request: pytest.FixtureRequest) -> None:
    """As text, and not word by word: a million keys take a second."""
    column = request.node.callspec.id
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        made = for_lance(ROWS.schema, f"{column} IN ({', '.join(items)})")
    finally:
        sys.setprofile(None)
    assert made == f"`{column}` IN ({', '.join(items)})"
    assert calls < 1_000


_PAGES = [Path("README.md"), *sorted(Path("docs").rglob("*.md"))]
_SHOWN = re.compile(r"""filter="([^"]+)"|--filter "([^"]+)"|--filter '([^']+)'""")


def test_every_filter_that_a_page_shows_passes() -> None:
    schema = pa.schema(
        [
            *[(name, pa.string()) for name in ("city", "status", "region", "body")],
            *[(name, pa.int64()) for name in ("id", "a", "unit price")],
            *[(name, pa.decimal128(18, 4)) for name in ("price", "amount", "total", "fare", "balance")],
            *[("embedding", pa.list_(pa.float32(), 3)), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))],
        ]
    )
    root = Path(__file__).parents[3]
    shown = {"".join(found) for page in _PAGES for found in _SHOWN.findall((root / page).read_text())}
    reader = (root / "docs/reference/reader.md").read_text()
    row = next(line for line in reader.splitlines() if line.startswith("| `filter` | a condition"))
    shown |= {
        twice or once for twice, once in re.findall(r"`` (.+?) ``|`([^`]+)`", row) if re.search("[=><]", twice or once)
    }
    assert len(shown) >= 10
    for filter in shown:
        check_filter(schema, filter)


def test_a_time_has_an_offset_or_is_in_utc() -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    rows = pa.table({"n": [1], "at": pa.array([noon], pa.timestamp("us", "UTC"))})
    for text in (
        "2026-01-02 12:00",
        "2026-01-02T12:00:00.000Z",
        "2026-01-02 14:30:00+02:30",
        "2026-01-02 04:00:00-0800",
    ):
        assert filter_rows(rows, check_filter(rows.schema, f"at = '{text}'"), ["n"]).num_rows == 1, text


_MOMENTS = (-1, 0, 1, 1_000, 999_999, 1_000_000, 1_000_001, 253_402_300_799_000_000)
"""Microseconds since 1970; the last one is in the year 9999."""
_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
_SIGNS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("units", [(a, b) for a in _PER_UNIT for b in _PER_UNIT])
def test_times_of_two_units_compare_exactly(units: tuple[str, str], zone: str | None) -> None:
    a, b = ([moment // _PER_UNIT[unit] for moment in _MOMENTS] for unit in units)
    pairs = [(x, y) for x in a for y in b]
    types = [pa.timestamp(unit, zone) for unit in units]
    columns = {
        name: pa.array(side, type_) for name, side, type_ in zip("ab", zip(*pairs, strict=True), types, strict=True)
    }
    rows = pa.table({"n": range(len(pairs)), **columns})
    exact = [(x * _PER_UNIT[units[0]], y * _PER_UNIT[units[1]]) for x, y in pairs]
    dataset = lance.write_dataset(rows, "memory://two-units")

    def holds(condition: str) -> list[int]:
        found: list[int] = dataset.to_table(["n"], filter=for_lance(rows.schema, condition))["n"].to_pylist()
        return found

    for sign, compare in _SIGNS.items():
        assert holds(f"a {sign} b") == [n for n, (x, y) in enumerate(exact) if compare(x, y)], sign
    alike = [n for n, (x, y) in enumerate(exact) if x == y]
    assert holds("a BETWEEN b AND b") == holds("a IS NOT DISTINCT FROM b") == holds("nullif(a, b) IS NULL") == alike
    assert holds("coalesce(a, b) = b") == alike
    assert holds("greatest(a, b) = b") == [n for n, (x, y) in enumerate(exact) if y >= x]
    assert holds("to_timestamp_micros(a) < b") == [n for n, (x, y) in enumerate(exact) if x < y]
    assert holds("now() > a") == [n for n, (x, _) in enumerate(exact) if x < 10**15]
    if _PER_UNIT[units[0]] > _PER_UNIT[units[1]]:
        with pytest.raises(InvalidInput, match="different units"):
            holds("a IN (b)")
    else:
        assert holds("a IN (b)") == alike


def test_choices_between_types_are_exact_or_refused() -> None:
    wide = pa.table(
        {
            "i8": pa.array([1, None, 7], pa.int8()),
            "i64": pa.array([300, 300, -5], pa.int64()),
            "u8": pa.array([None, 3, 200], pa.uint8()),
            "d2": pa.array([Decimal("1.00"), None, None], pa.decimal128(10, 2)),
            "d4": pa.array([Decimal("1.0050"), Decimal("1.0050"), Decimal("1.0049")], pa.decimal128(12, 4)),
            "n": range(3),
        }
    )
    dataset = lance.write_dataset(wide, "memory://choices")

    def holds(condition: str) -> list[int]:
        found: list[int] = dataset.to_table(["n"], filter=for_lance(wide.schema, condition))["n"].to_pylist()
        return found

    assert holds("coalesce(i8, i64) = 300") == [1]
    assert holds("greatest(i8, i64) > 200") == [0, 1]
    assert holds("coalesce(u8, i64) = 300") == [0]
    assert holds("least(u8, i64) < 0") == [2]
    for choice in ("coalesce(d2, d4)", "greatest(d4, d2)", "coalesce(i8, d4)"):
        with pytest.raises(InvalidInput, match="has arguments of several types"):
            holds(f"{choice} = 1.005")
    assert holds("coalesce(CAST(d2 AS DECIMAL(12, 4)), d4) = 1.005") == [1]
    assert holds("coalesce(CAST(d2 AS DECIMAL(12, 4)), d4) < 1.005") == [0, 2]


@pytest.mark.parametrize("type_", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()])
def test_integers_of_few_bits_are_computed_in_64(type_: pa.DataType) -> None:
    least = 0 if pa.types.is_unsigned_integer(type_) else -(2 ** (type_.bit_width - 1))
    most = least + 2**type_.bit_width - 1
    sides = [x for x in (least, -1, 0, 3, most) if x >= least]
    pairs = [(x, y) for x in sides for y in (least, 2, most) if x * y < 2**63]
    a, b = (pa.array(side, type_) for side in zip(*pairs, strict=True))
    rows = pa.table({"n": range(len(pairs)), "a": a, "b": b})
    dataset = lance.write_dataset(rows, "memory://few-bits")
    conditions: dict[str, list[bool]] = {
        "a * b - a * b = 0": [True for _ in pairs],
        f"a + b + a + b = {4 * most}": [x == y == most for x, y in pairs],
        "(a % 100) * (b % 100) > 5": [math.fmod(x, 100) * math.fmod(y, 100) > 5 for x, y in pairs],
    }
    for limit in (-1, 0, most):
        conditions[f"a + b > {limit}"] = [x + y > limit for x, y in pairs]
        conditions[f"a - b > {limit}"] = [x - y > limit for x, y in pairs]
        conditions[f"a * b > {limit}"] = [x * y > limit for x, y in pairs]
    if least:
        conditions[f"-a = {most + 1}"] = [x == least for x, _ in pairs]
    for condition, holds in conditions.items():
        found = dataset.to_table(["n"], filter=for_lance(rows.schema, condition))["n"].to_pylist()
        assert found == [n for n, held in enumerate(holds) if held], condition


@pytest.mark.parametrize(
    ("filter", "shown"),
    [
        ("n = CAST(2000000000 AS DATE)", "CAST(2000000000 AS DATE)"),
        ("ns < CAST(-2147483648 AS DATE)", "CAST(-2147483648 AS DATE)"),
        ("n = to_timestamp_seconds(9000000000000)", "to_timestamp_micros(9000000000000000000)"),
        ("n = date '9999-12-31'", "timestamp '9999-12-31 00:00:00.000000'"),
    ],
)
def test_a_day_of_any_year_is_refused_by_what_it_is(filter: str, shown: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"{shown} is not a literal that compares exactly")):
        for_lance(ROWS.schema, filter)


def test_an_expression_with_a_day_that_its_column_cannot_hold_is_refused() -> None:
    day = pa.scalar(2**31 - 1, pa.int32()).cast(pa.date32())
    with pytest.raises(InvalidInput, match="compares exactly with `ns`"):
        for_lance(ROWS.schema, sql_of(pc.field("ns") < day))


def test_a_time_beside_one_of_unknown_type_cuts_nothing() -> None:
    rows = pa.table({"text": ["1970-01-01T00:00:00.000005500", "1970-01-01T00:00:00.000005"], "n": [0, 1]})
    dataset = lance.write_dataset(rows, "memory://times")
    for literal in ("timestamp '1970-01-01 00:00:00.000005'", "to_timestamp_micros(5)"):
        for condition in (
            f"coalesce(to_timestamp(text), {literal}) = {literal}",
            f"nullif(to_timestamp(text), {literal}) IS NULL",
            f"greatest(to_timestamp(text), {literal}) = {literal}",
        ):
            found = dataset.to_table(["n"], filter=for_lance(rows.schema, condition))["n"].to_pylist()
            assert found == [1], condition
