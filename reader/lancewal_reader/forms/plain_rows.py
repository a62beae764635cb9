"""Convert rows to values of JSON, exactly.  Every value that a table can hold has a form.

=========================  ==========================================================================
column type                value
=========================  ==========================================================================
bool, integers, string     themselves
floats                     numbers; ``"nan"``, ``"inf"`` and ``"-inf"`` as strings, for JSON has none
decimal128                 a string
binaries of any kind       a string in base64
uuid                       a string in lower case
date32, timestamp          a string in ISO 8601, with the fraction that is there; outside the years 1 to
                           9999 ``"<number> <unit> since 1970"``
time32, time64             a string ``HH:MM:SS``, with the fraction that is there
duration                   an integer, a number of the column's units
lists, structs             arrays, objects
map                        an object; an array of pairs if a key is there twice, as other programs may write it
=========================  ==========================================================================
"""

from __future__ import annotations

import base64
import decimal
import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa

from lancewal_core.rows.column_types import stored_type
from lancewal_reader.forms.narrow_times import PER_SECOND


def plain_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows in order, each as a dict of column names and JSON values in column order."""
    # Python's own times end at the year 9999 and at microseconds: so they come as the numbers that are stored.
    columns = [column.cast(stored_type(column.type)).to_pylist() for column in batch.columns]
    types = batch.schema.types
    for row in zip(*columns, strict=True):
        values = [_plain(value, type_) for value, type_ in zip(row, types, strict=True)]
        yield dict(zip(batch.schema.names, values, strict=True))


def _plain(value: Any, type_: pa.DataType) -> Any:
    match value:
        case None:
            return None
        case dict():
            return {member.name: _plain(value[member.name], member.type) for member in type_}
        case list() if pa.types.is_map(type_):
            pairs = [(key, _plain(item, type_.item_type)) for key, item in value]
            return dict(pairs) if len(dict(pairs)) == len(pairs) else [list(pair) for pair in pairs]
        case list():
            return [_plain(item, type_.value_type) for item in value]
        case bytes() if type_ == pa.uuid():
            return str(UUID(bytes=value))
        case bytes():
            return base64.b64encode(value).decode()
        case decimal.Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
        case int() if pa.types.is_timestamp(type_):
            return _time(value, type_)
        case int() if pa.types.is_date32(type_):
            return _date(value)
        case int() if pa.types.is_time(type_):
            return _time(value, pa.timestamp(type_.unit)).partition("T")[2]
    return value


def _time(value: int, type_: pa.TimestampType) -> str:
    seconds, fraction = divmod(value, PER_SECOND[type_.unit])
    nanoseconds = fraction * (10**9 // PER_SECOND[type_.unit])
    try:
        moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    except OverflowError:
        return f"{value} {type_.unit} since 1970"
    digits = f".{nanoseconds:09}" if nanoseconds % 1000 else f".{nanoseconds // 1000:06}" if nanoseconds else ""
    return f"{moment.isoformat()}{digits}{'' if type_.tz is None else '+00:00'}"


def _date(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return f"{days} days since 1970"
