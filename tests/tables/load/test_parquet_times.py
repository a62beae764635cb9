"""INT96 and Spark's former calendar in Parquet files, against Python's integers.

A file is written by pyarrow, which makes INT96 of nanoseconds alone: the twelve bytes of each time are then set by hand.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import RowSchema
from lancewal_tables.load.files import find_files

SPARK = {"org.apache.spark.version": "3.5.1"}
LEGACY = {"org.apache.spark.legacyDateTime": "", "org.apache.spark.legacyINT96": "", "org.apache.spark.timeZone": "UTC"}
AT = pa.timestamp("us", "UTC")
DAY_NS = 86_400 * 10**9


def ns_of(text: str, digits: int = 0) -> int:
    """``digits``: nanoseconds beyond the microsecond."""
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return ((moment.days * 86_400 + moment.seconds) * 10**6 + moment.microseconds) * 1000 + digits


FIRST, LAST = ns_of("0001-01-01"), ns_of("9999-12-31 23:59:59.999999")
EDGES = [
    FIRST,
    LAST,
    ns_of("1969-12-31 23:59:59.999999"),
    0,
    ns_of("2026-01-02 03:04:05.123456"),
    ns_of("1582-10-14"),
    None,
]
HELD = [-(2**63), 2**63 - 1, -1, 1, 999, 1000, ns_of("2026-01-02 03:04:05.123456", 789), None]
"""What 64 bits of nanoseconds have."""


def write(path: Path, times: list[int | None], made: str = "at", metadata: dict[str, str] = SPARK) -> Path:
    """``times``: nanoseconds since 1970, of any size, one a row; ``made`` says in which form the column has them."""
    kind = pa.timestamp("ns")
    stand_in = [None if t is None else 10**15 + i for i, t in enumerate(times)]
    column: pa.Array = pa.array(stand_in, pa.int64()).cast(kind)
    if made == "list":
        column = pa.ListArray.from_arrays(list(range(len(times) + 1)), column)
    elif made == "struct":
        column = pa.StructArray.from_arrays([column, pa.array(range(len(times)))], ["at", "n"])
    put(path, pa.table({"id": pa.array(range(len(times)), pa.int64()), "at": column}), metadata)
    data = path.read_bytes()
    for was, wanted in zip(stand_in, times, strict=True):
        if was is not None and wanted is not None:
            assert data.count(int96(was)) == 1
            data = data.replace(int96(was), int96(wanted))
    path.write_bytes(data)
    return path


def put(path: Path, rows: pa.Table, metadata: dict[str, str]) -> None:
    """As Spark does: without pyarrow's own schema."""
    plain: dict[str, Any] = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    with pq.ParquetWriter(
        path,
        rows.schema,
        use_deprecated_int96_timestamps=rows.schema.field("at").type != AT,
        store_schema=False,
        **plain,
    ) as to:
        to.write_table(rows)
        to.add_key_value_metadata(metadata)


def int96(ns: int) -> bytes:
    """Nanoseconds of the day, then the Julian day; as Hive and Spark have them."""
    days, rest = divmod(ns, DAY_NS)
    return struct.pack("<qi", rest, days + 2_440_588)


def row_schema(schema: pa.Schema) -> RowSchema:
    return RowSchema(schema, ("id",), ("id",))


def table(type_: pa.DataType, made: str = "at") -> RowSchema:
    forms = {"at": type_, "list": pa.list_(type_), "struct": pa.struct([("at", type_), ("n", pa.int64())])}
    return row_schema(pa.schema([("id", pa.int64()), ("at", forms[made])]))


def loaded(path: Path, rows: RowSchema, made: str = "at", *, backwards: bool = False) -> list[Any]:
    """The times, as numbers of their unit."""
    (file,) = find_files([str(path)], {})
    file.check(rows)
    column = pa.Table.from_batches(file.batches(["id", "at"], rows, backwards=backwards))["at"].combine_chunks()
    assert column.type == rows.table.field("at").type
    if made == "list":
        column = column.values
    elif made == "struct":
        column = column.field("at")
    found: list[Any] = column.cast(pa.int64()).to_pylist()
    return found


@pytest.mark.parametrize("made", ["at", "list", "struct"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_microseconds_hold_an_int96_of_all_years(tmp_path: Path, zone: str | None, made: str) -> None:
    path = write(tmp_path / "f.parquet", EDGES, made)
    rows = table(pa.timestamp("us", zone), made)
    assert loaded(path, rows, made) == [None if t is None else t // 1000 for t in EDGES]
    assert loaded(path, rows, made, backwards=True) == [None if t is None else t // 1000 for t in EDGES]
    whole = [t for t in EDGES if t is None or t % 10**9 == 0]
    path = write(tmp_path / "g.parquet", whole, made)
    assert loaded(path, table(pa.timestamp("s", zone), made), made) == [
        None if t is None else t // 10**9 for t in whole
    ]


@pytest.mark.parametrize("made", ["at", "list", "struct"])
def test_nanoseconds_hold_an_int96_of_theirs_and_no_other(tmp_path: Path, made: str) -> None:
    rows = table(pa.timestamp("ns", "UTC"), made)
    assert loaded(write(tmp_path / "f.parquet", HELD, made), rows, made) == HELD
    for beyond in (2**63, -(2**63) - 1, FIRST, LAST, 2**64 + 5):
        path = write(tmp_path / "g.parquet", [0, beyond], made)
        with pytest.raises(InvalidSchema, match=r"column 'at' is INT96, with a time that nanoseconds cannot hold"):
            loaded(path, rows, made)


@pytest.mark.parametrize("made", ["at", "list", "struct"])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_no_digit_of_an_int96_is_cut(tmp_path: Path, unit: str, made: str) -> None:
    rows = table(pa.timestamp(unit), made)
    for finer in (1, -1, 999, LAST + 1, FIRST + 10**9 + 500):
        with pytest.raises(InvalidSchema, match="column 'at' is INT96, with a time that has nanoseconds"):
            loaded(write(tmp_path / "f.parquet", [0, finer], made), rows, made)
    if unit != "us":
        with pytest.raises(InvalidSchema, match=r"column 'at' .* cannot hold"):
            loaded(write(tmp_path / "g.parquet", [1000], made), rows, made)
    for wild in (2**31 - 2_440_589, -(2**31) - 2_440_588 + 2**20):  # days that 64 bits of microseconds cannot hold
        with pytest.raises(InvalidSchema, match="column 'at' is INT96, with a time that microseconds cannot hold"):
            loaded(write(tmp_path / "h.parquet", [wild * DAY_NS], made), rows, made)


def test_an_int96_of_another_writer_has_no_zone(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", EDGES, metadata={"writer": "another"})
    assert loaded(path, table(pa.timestamp("us"))) == [None if t is None else t // 1000 for t in EDGES]
    with pytest.raises(InvalidSchema, match=r"column 'at' has type timestamp\[ns\], of INT96, the table has .*UTC"):
        loaded(path, table(pa.timestamp("us", "UTC")))


@pytest.mark.parametrize(
    "metadata", [{**SPARK, **LEGACY}, {"org.apache.spark.version": "2.4.8"}], ids=["marked", "2.4"]
)
def test_a_time_of_the_former_calendar_is_refused(tmp_path: Path, metadata: dict[str, str]) -> None:
    later = [ns_of("1900-01-01"), LAST, None]
    rows = table(pa.timestamp("us", "UTC"))
    assert loaded(write(tmp_path / "f.parquet", later, metadata=metadata), rows) == [
        None if t is None else t // 1000 for t in later
    ]
    for before in (ns_of("1899-12-31 23:59:59.999999"), FIRST):
        with pytest.raises(InvalidSchema, match=r"Spark wrote it by its legacy calendar, and column 'at' .*CORRECTED"):
            loaded(write(tmp_path / "g.parquet", [before], metadata=metadata), rows)


def test_a_date_of_the_former_calendar_is_refused(tmp_path: Path) -> None:
    types = {"day": pa.date32(), "at": AT, "local": pa.timestamp("us")}
    rows = row_schema(pa.schema([("id", pa.int64()), *types.items()]))
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({"day": date(1582, 10, 15), "local": datetime(1, 1, 1)}, None),
        ({"day": date(1582, 10, 14)}, "day"),
        ({"at": datetime(1899, 12, 31, tzinfo=UTC)}, "at"),
    ]
    marks = [({"org.apache.spark.version": "4.3.0", **LEGACY}, True), ({"org.apache.spark.version": "4.3.0"}, False)]
    for values, wrong in cases:
        for metadata, marked in marks:
            given = pa.Table.from_pylist([{"id": 1, **values}], rows.table)
            put(tmp_path / "f.parquet", given, metadata)
            (file,) = find_files([str(tmp_path / "f.parquet")], {})
            file.check(rows)
            if wrong and marked:
                with pytest.raises(InvalidSchema, match=f"legacy calendar, and column '{wrong}'"):
                    list(file.batches(rows.table.names, rows))
            else:
                (batch,) = file.batches(rows.table.names, rows)
                assert batch.to_pylist() == given.to_pylist()


def test_a_decimal_of_whole_numbers_is_an_integer(tmp_path: Path) -> None:
    """Spark has no other type for uint64."""
    rows = row_schema(pa.schema([("id", pa.int64()), ("n", pa.uint64())]))
    for numbers, holds in (([2**64 - 1, 0, None], True), ([2**64], False), ([-1], False)):
        column = pa.array(numbers, pa.decimal128(20, 0))
        pq.write_table(pa.table({"id": pa.array(range(len(numbers))), "n": column}), tmp_path / "f.parquet")
        (file,) = find_files([str(tmp_path / "f.parquet")], {})
        file.check(rows)
        if holds:
            assert [n for batch in file.batches(["n"], rows) for n in batch["n"].to_pylist()] == numbers
        else:
            with pytest.raises(InvalidSchema, match=r"column 'n' .* uint64 cannot hold"):
                list(file.batches(["n"], rows))
