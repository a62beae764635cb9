"""Times and dates in Parquet files, as Spark writes them: INT96, and its former calendar.

Guarantees
 1. An INT96 is read exactly, or refused as one.  pyarrow reads it as nanoseconds, which wrap beyond the years 1677 to 2262,
    or as microseconds, which cut digits: it is read as both, and as milliseconds, which do neither where a column needs them.
 2. An INT96 of Spark is an instant, and fits a column in UTC.  Others name no zone, and fit one without.
 3. Where Spark marks a file as written by the former calendar, dates and times of before the calendars agree are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import RowSchema

_SPARK = b"org.apache.spark.version"
_AGREE_DAY = -141_427
"""1582-10-15, from which on both calendars have the same days."""
_AGREE_S = -2_208_988_800
"""1900-01-01: times of earlier years depend on zones as well, for which Spark takes the same bound."""
_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

Batches = Callable[[str], Iterator[pa.RecordBatch]]
"""The file's batches, with each INT96 as a time of this unit."""


def readable_schema(file: Any, rows: RowSchema) -> pa.Schema:
    """The file's columns; an INT96 of Spark has the zone that the table's column has."""
    schema: pa.Schema = file.schema_arrow
    if _SPARK not in _metadata(file):
        return schema
    stored = _stored(file)
    fields = []
    for field in schema:
        want = rows.table.field(field.name).type if field.name in rows.table.names else field.type
        fields.append(field.with_type(_zoned(field.type, want, stored)))
    return pa.schema(fields)


def columns_of_int96(file: Any) -> frozenset[str]:
    """Columns with an INT96 at any depth."""
    stored = _stored(file)
    return frozenset(f.name for f in file.schema_arrow if "INT96" in [next(stored) for _ in range(_leaves(f.type))])


def exact_batches(
    file: Any, batches: Batches, names: Sequence[str], rows: RowSchema, shown: str
) -> Iterator[pa.RecordBatch]:
    """Yield these columns of the file, each time exactly.  ``InvalidSchema`` names column and file."""
    int96 = sorted(columns_of_int96(file) & set(names))
    calendar = _Calendar.of(file)
    for fine, *coarser in zip(*map(batches, ("ns", "us", "ms") if int96 else ("ns",)), strict=True):
        exact = fine
        for name in int96:
            fraction = _has_nanoseconds(rows.table.field(name).type)
            wrong = _wrong_int96([batch.column(name) for batch in (fine, *coarser)], fraction)
            if wrong:
                raise InvalidSchema(f"{shown} cannot be loaded: column {name!r} is INT96, with {wrong}", file=shown)
            if not fraction:
                exact = exact.set_column(exact.schema.get_field_index(name), name, coarser[0].column(name))
        for name in names:
            if calendar.differs(exact.column(name), name in int96):
                raise InvalidSchema(
                    f"{shown} cannot be loaded: Spark wrote it by its legacy calendar, and column {name!r} has a value of "
                    "before the calendars agree. Write it with spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED and "
                    "spark.sql.parquet.int96RebaseModeInWrite=CORRECTED",
                    file=shown,
                )
        yield exact


def _wrong_int96(readings: Sequence[pa.Array], fraction: bool) -> str:
    """Return what is wrong with a column that was read as nanoseconds, microseconds and milliseconds; nothing if all is
    right.

    ``fraction``: its nanoseconds are wanted.
    """
    for fine, micros, millis in zip(*map(_leaf_arrays, readings), strict=True):
        if fine.type == micros.type:
            continue  # no INT96
        ns, us, ms = (leaf.cast(pa.int64()).fill_null(0).to_numpy() for leaf in (fine, micros, millis))
        if not ((us // 1000 == ms) & ((ns // 1000 == us) | (not fraction))).all():
            unit = "nanoseconds cannot hold: they end in 2262" if fraction else "microseconds cannot hold"
            return f"a time that {unit}"
        if not fraction and (ns != us * 1000).any():  # both wrap alike
            return "a time that has nanoseconds, and the table's column has none"
    return ""


@dataclass(frozen=True, slots=True)
class _Calendar:
    """Values of a file that may be of Spark's former calendar, as Spark's own reader takes it."""

    times: bool
    int96: bool

    @classmethod
    def of(cls, file: Any) -> _Calendar:
        known = _metadata(file)
        version = re.match(rb"(\d+)\.(\d+)", known.get(_SPARK, b""))
        written = (int(version[1]), int(version[2])) if version else (99, 0)
        return cls(
            written < (3, 0) or b"org.apache.spark.legacyDateTime" in known,
            written < (3, 1) or b"org.apache.spark.legacyINT96" in known,
        )

    def differs(self, column: pa.Array, int96: bool) -> bool:
        """Whether a value is of before the calendars agree.  Spark never rebased times without a zone."""
        if not (self.times or self.int96):
            return False
        return any(
            _is_of_before(leaf) and (self.int96 and int96 if _is_naive(leaf.type) else self.times)
            for leaf in _leaf_arrays(column)
        )


def _is_of_before(leaf: pa.Array) -> bool:
    if pa.types.is_date32(leaf.type):
        return bool(pc.any(pc.less(leaf.cast(pa.int32()), _AGREE_DAY)).as_py())
    if not pa.types.is_timestamp(leaf.type):
        return False
    return bool(pc.any(pc.less(leaf.cast(pa.int64()), _AGREE_S * _PER_S[leaf.type.unit])).as_py())


def _metadata(file: Any) -> dict[bytes, bytes]:
    return file.metadata.metadata or {}


def _stored(file: Any) -> Iterator[str]:
    """The physical type of each leaf, in the order of the schema."""
    return iter([file.schema.column(i).physical_type for i in range(len(file.schema))])


def _leaves(type_: pa.DataType) -> int:
    inner = range(type_.num_fields)
    return sum(_leaves(type_.field(i).type) for i in inner) if inner else 1


def _zoned(have: pa.DataType, want: pa.DataType, stored: Iterator[str]) -> pa.DataType:
    """``have``, and each INT96 in it with the zone that ``want`` has there."""
    if not have.num_fields:
        in_zone = next(stored) == "INT96" and pa.types.is_timestamp(want) and want.tz is not None
        return pa.timestamp("ns", want.tz) if in_zone else have
    alike = have.num_fields == want.num_fields
    inner = [
        have.field(i).with_type(_zoned(have.field(i).type, want.field(i).type if alike else have.field(i).type, stored))
        for i in range(have.num_fields)
    ]
    if pa.types.is_struct(have):
        return pa.struct(inner)
    return pa.list_(inner[0]) if pa.types.is_list(have) else have


def _has_nanoseconds(type_: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_):
        return bool(type_.unit == "ns")
    return any(_has_nanoseconds(type_.field(i).type) for i in range(type_.num_fields))


def _is_naive(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.tz is None)


def _leaf_arrays(column: pa.Array) -> Iterator[pa.Array]:
    """Return the innermost values, without those below a null."""
    if pa.types.is_struct(column.type):
        for member in column.flatten():
            yield from _leaf_arrays(member)
    elif (
        pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
    ):
        yield from _leaf_arrays(column.flatten())
    else:
        yield column
