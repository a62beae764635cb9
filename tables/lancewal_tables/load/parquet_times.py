"""Times and dates in Parquet files that Spark has written: INT96, and Spark's legacy calendar.

Guarantees
 1. An INT96 time is read exactly, or the file is refused.  pyarrow reads INT96 as nanoseconds, which wrap beyond the years
    1677 to 2262, or in coarser units, which cut digits.  So each time is read as nanoseconds, microseconds and
    milliseconds, and the three are compared.
 2. An INT96 time from Spark is an instant, and fits a column in UTC.  One from another writer has no zone, and fits a
    column without a zone.
 3. If Spark marks a file as written by the legacy calendar, dates and times from before the calendars agree are refused.
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
"""1582-10-15 in days since 1970.  From this day on, Spark's legacy calendar and today's have the same dates."""
_AGREE_S = -2_208_988_800
"""1900-01-01 in seconds since 1970.  Earlier times depend on zones as well; Spark uses the same bound."""
_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

Batches = Callable[[str], Iterator[pa.RecordBatch]]
"""A function that reads the file's batches, with INT96 times in the unit that is its argument."""


def readable_schema(file: Any, rows: RowSchema) -> pa.Schema:
    """Return the file's columns, in which INT96 times from Spark have the zone of the table's column."""
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
    """Return the names of the columns that have an INT96 time at any depth."""
    stored = _stored(file)
    return frozenset(f.name for f in file.schema_arrow if "INT96" in [next(stored) for _ in range(_leaves(f.type))])


def exact_batches(
    file: Any, batches: Batches, names: Sequence[str], rows: RowSchema, shown: str
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the columns ``names``, with exact times.

    ``InvalidSchema`` names the column and the file (``shown``) of a time that cannot be read exactly."""
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
    """Return what is wrong with the times of a column; an empty text if they are exact.

    ``readings``: the column read as nanoseconds, microseconds and milliseconds.  ``fraction``: nanoseconds are wanted.
    """
    for fine, micros, millis in zip(*map(_leaf_arrays, readings), strict=True):
        if fine.type == micros.type:
            continue  # not an INT96 time
        ns, us, ms = (leaf.cast(pa.int64()).fill_null(0).to_numpy() for leaf in (fine, micros, millis))
        if not ((us // 1000 == ms) & ((ns // 1000 == us) | (not fraction))).all():
            unit = "nanoseconds cannot hold: they end in 2262" if fraction else "microseconds cannot hold"
            return f"a time that {unit}"
        if not fraction and (ns != us * 1000).any():  # both wrap alike
            return "a time that has nanoseconds, and the table's column has none"
    return ""


@dataclass(frozen=True, slots=True)
class _Calendar:
    """The kinds of times in a file that may be of Spark's legacy calendar, decided as Spark's own reader does."""

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
        """Return whether a value of the legacy calendar is from before the calendars agree.

        Spark never rebased times without a zone, other than INT96."""
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
    """Return an iterator over the physical type of each leaf, in the order of the schema."""
    return iter([file.schema.column(i).physical_type for i in range(len(file.schema))])


def _leaves(type_: pa.DataType) -> int:
    inner = range(type_.num_fields)
    return sum(_leaves(type_.field(i).type) for i in inner) if inner else 1


def _zoned(have: pa.DataType, want: pa.DataType, stored: Iterator[str]) -> pa.DataType:
    """Return the type ``have``, in which each INT96 time has the zone of ``want``.

    ``stored``: iterates over the physical types of the leaves."""
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
    """Yield the arrays of the innermost values, without values below a null."""
    if pa.types.is_struct(column.type):
        for member in column.flatten():
            yield from _leaf_arrays(member)
    elif (
        pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
    ):
        yield from _leaf_arrays(column.flatten())
    else:
        yield column
