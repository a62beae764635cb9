"""Translate column types to those of Spark, and cast batches to them.

=========================================  =============================================
column type                                Spark type
=========================================  =============================================
bool, int8..int64, float32, float64        boolean, byte..long, float, double
uint8, uint16, uint32                      short, int, long
uint64                                     decimal(20, 0)
string, binary, date32, decimal128(p, s)   string, binary, date, decimal(p, s)
large_string, large_binary                 string, binary
fixed_size_binary[n]                       binary
uuid                                       string (36 characters in lower case)
time32[s|ms], time64[us|ns]                string (HH:MM:SS, with all digits of the unit)
duration[s|ms|us|ns]                       interval day to second (microseconds; finer digits are floored)
timestamp[s|ms|us|ns, UTC]                 timestamp (microseconds; finer digits are floored)
timestamp[s|ms|us|ns]                      timestamp_ntz (likewise)
list<t>, fixed_size_list<t>[n]             array<t>
map<string, t>                             map<string, t>
struct<...>                                struct<...>
=========================================  =============================================

Spark checks the Arrow schema of a task's first batch only and trusts the rest, so every batch is cast to one target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lancewal_core.errors import InvalidInput
from lancewal_reader.forms.narrow_times import narrow

_PLAIN: dict[pa.DataType, DataType] = {
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.uint8(): ShortType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
    pa.uint64(): DecimalType(20, 0),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.large_string(): StringType(),
    pa.large_binary(): BinaryType(),
    pa.uuid(): StringType(),
}
_WIDER: dict[type[DataType], tuple[type[DataType], ...]] = {
    ByteType: (ShortType, IntegerType, LongType),
    ShortType: (IntegerType, LongType),
    IntegerType: (LongType,),
    FloatType: (DoubleType,),
}


def spark_type(type_: pa.DataType) -> DataType:
    """Return the Spark type of a column type.  Raises ``InvalidInput`` if there is none."""
    if type_ in _PLAIN:
        return _PLAIN[type_]
    if pa.types.is_decimal128(type_):
        return DecimalType(type_.precision, type_.scale)
    if pa.types.is_timestamp(type_):
        return TimestampNTZType() if type_.tz is None else TimestampType()
    if pa.types.is_fixed_size_binary(type_):
        return BinaryType()
    if pa.types.is_time(type_):  # PySpark's own type of this kind came with 4.1
        return StringType()
    if pa.types.is_duration(type_):
        return DayTimeIntervalType()
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return ArrayType(spark_type(type_.value_type))
    if pa.types.is_map(type_):
        return MapType(spark_type(type_.key_type), spark_type(type_.item_type))
    if pa.types.is_struct(type_):
        return StructType([StructField(member.name, spark_type(member.type)) for member in type_])
    raise InvalidInput(f"type {type_} has no counterpart in Spark")


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of these columns."""
    return StructType([StructField(field.name, spark_type(field.type), field.nullable) for field in schema])


def check_user_schema(wanted: StructType, whole: pa.Schema) -> None:
    """Raise ``InvalidInput`` unless ``wanted`` names columns of the table, each with its type or a wider number."""
    names = [field.name for field in wanted]
    unknown = [name for name in names if name not in whole.names]
    if unknown or not names or len(set(names)) != len(names):
        raise InvalidInput(f"schema with columns {names}: name each wanted column once; the table has {whole.names}")
    for field in wanted:
        own = whole.field(field.name)
        if not _fits(spark_type(own.type), field.dataType):
            raise InvalidInput(
                f"column {field.name!r} has type {spark_type(own.type).simpleString()} in Spark, the schema given says "
                f"{field.dataType.simpleString()}: use this type or a wider number, and cast afterwards"
            )
        if own.nullable and not field.nullable:
            raise InvalidInput(f"column {field.name!r} may be null, the schema given says NOT NULL")


def target_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of batches of ``schema``."""
    # PySpark 4.0 has no other zone, and takes none.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def to_target(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Cast the batch to ``target``; columns are matched by name.  Raises ``pyarrow.ArrowInvalid`` for a time that
    microseconds cannot hold.
    """
    columns: Sequence[pa.Array] = [narrow(batch.column(field.name), field.type) for field in target]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def to_targets(batches: Iterable[pa.RecordBatch], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches that have rows, each cast as ``to_target`` does."""
    for batch in batches:
        if batch.num_rows:
            yield to_target(batch, target)


def _fits(own: DataType, wanted: DataType) -> bool:
    """Whether ``wanted`` is ``own`` or holds every value of it.  Inner parts of ``wanted`` must be nullable."""
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        return wanted.containsNull and _fits(own.elementType, wanted.elementType)
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        return own.names == wanted.names and all(
            b.nullable and _fits(a.dataType, b.dataType) for a, b in zip(own, wanted, strict=True)
        )
    return own == wanted or isinstance(wanted, _WIDER.get(type(own), ()))
