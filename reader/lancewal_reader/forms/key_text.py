"""Primary keys on the command line: texts, in the forms that ``plain_rows`` gives values.

Guarantee: each form that ``plain_rows`` shows of a possible key value is read back as that value.  Any text that is
not a value of the column's type is refused: ``InvalidInput`` says which key, which column and what is expected.

A key of one column is its value as it is, so that a text needs no quotes.  A key of several columns is JSON, a list
in the key's order or an object.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pyarrow as pa

from lancewal_core.cli.output import one_line
from lancewal_core.errors import InvalidInput
from lancewal_core.rows.column_types import integer_range
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.json_object import JsonFault, parse_value
from lancewal_reader.forms.narrow_times import PER_SECOND
from lancewal_reader.forms.plain_rows import plain_rows

_INTEGER = re.compile(r"-?[0-9]{1,30}")
_SINCE = re.compile(r"(-?[0-9]{1,30}) (days|s|ms|us|ns) since 1970")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def keys_of_texts(schema: RowSchema, texts: Sequence[str]) -> pa.Table:
    """Parse texts as primary keys, and return them as a table.  Raises ``InvalidInput`` if a text is not a key of the
    table.
    """
    key, alone = schema.key, len(schema.primary_key) == 1
    rows = [[_of_text(text, key.field(0), text)] if alone else _of_json(text, key) for text in texts]
    columns = [_column(key.field(n), [row[n] for row in rows], texts) for n in range(len(key))]
    return pa.table(columns, schema=key)


def key_of_values(schema: pa.Schema, values: Sequence[object]) -> pa.Table:
    """Return a table with one key, made of JSON values, one for each column of ``schema``.

    Raises ``InvalidInput`` if a value is not valid for its column."""
    text = json.dumps(values)
    columns = [
        _column(field, [_of_value(value, field, text)], [text]) for value, field in zip(values, schema, strict=True)
    ]
    return pa.table(columns, schema)


def without_row(keys: pa.Table, rows: pa.Table) -> list[str]:
    """Return the keys for which ``rows`` has no row, as texts without duplicates.  ``rows`` must have the key columns."""
    names = keys.schema.names
    found = KeySet(rows.select(names).combine_chunks()).contains([keys[name] for name in names])
    lacking = [row for batch in keys.filter(pa.array(~found)).to_batches() for row in plain_rows(batch)]
    return [*dict.fromkeys(one_line(_shown(list(row.values()))) for row in lacking)]


def _shown(values: list[object]) -> str:
    """Return the values of a key as the text of a command line."""
    alone = values[0] if len(values) == 1 else values
    return alone if isinstance(alone, str) else json.dumps(alone, ensure_ascii=False)


def _of_json(text: str, key: pa.Schema) -> list[object]:
    """Return the values of a key of several columns, in the order of the key, from its JSON text."""
    names = key.names
    expected = f"expected JSON, a list of the values of {names} or an object with these names"
    try:
        found = parse_value(text)
    except JsonFault:
        raise InvalidInput(f"key {text!r}: {expected}") from None
    if isinstance(found, dict) and set(found) == set(names):
        values = [found[name] for name in names]
    elif isinstance(found, list) and len(found) == len(names):
        values = found
    else:
        raise InvalidInput(f"key {text!r}: {expected}")
    return [_of_value(value, field, text) for value, field in zip(values, key, strict=True)]


def _of_value(value: object, field: pa.Field, text: str) -> object:
    """Return a JSON value in the form that Arrow accepts for the column: times and days as integers."""
    type_ = field.type
    if pa.types.is_boolean(type_) and isinstance(value, bool):
        return value
    if pa.types.is_integer(type_) and isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and not pa.types.is_boolean(type_) and not pa.types.is_integer(type_):
        return _of_text(value, field, text)
    raise _refused(field, text)


def _of_text(value: str, field: pa.Field, text: str) -> object:
    type_ = field.type
    found: object = None
    if type_ in (pa.string(), pa.large_string()):
        return value
    if type_ in (pa.binary(), pa.large_binary()):
        found = _bytes(value)
    elif pa.types.is_fixed_size_binary(type_):
        data = _bytes(value)
        found = data if data is not None and len(data) == type_.byte_width else None
    elif type_ == pa.uuid():
        found = UUID(value).bytes if _UUID.fullmatch(value) else None
    elif pa.types.is_time(type_):
        time = _TIME.fullmatch(f"1970-01-01 {value}")
        found = None if time is None else _ticks(time, pa.timestamp(type_.unit))
    elif pa.types.is_boolean(type_):
        found = {"true": True, "false": False}.get(value)
    elif pa.types.is_integer(type_):
        found = int(value) if _INTEGER.fullmatch(value) else None
    elif pa.types.is_date32(type_):
        found = _since(value, "days") if _DAY.fullmatch(value) is None else _days(value)
    elif pa.types.is_timestamp(type_):
        found = _since(value, type_.unit) if (time := _TIME.fullmatch(value)) is None else _ticks(time, type_)
    if found is None:
        raise _refused(field, text)
    return found


def _column(field: pa.Field, values: Sequence[object], texts: Sequence[str]) -> pa.Array:
    """Return a key column as an array.  ``values`` has integers for times and days; ``texts`` are shown in errors."""
    type_ = field.type
    numbers = type_
    if pa.types.is_date32(type_) or pa.types.is_time32(type_):
        numbers = pa.int32()
    elif pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
        numbers = pa.int64()
    try:
        return pa.array(values, numbers).cast(type_)
    except (pa.ArrowException, ValueError, OverflowError):
        for value, text in zip(values, texts, strict=True):
            try:
                pa.array([value], numbers)
            except (pa.ArrowException, ValueError, OverflowError):
                raise _refused(field, text) from None
        raise


def _refused(field: pa.Field, text: str) -> InvalidInput:
    return InvalidInput(f"key {text!r}: column {field.name!r} takes {field.type}: expected {_expected(field.type)}")


def _expected(type_: pa.DataType) -> str:
    if type_ in (pa.string(), pa.large_string()):
        return "a text"
    if pa.types.is_fixed_size_binary(type_):
        return f"{type_.byte_width} bytes in base64 with its padding"
    if type_ == pa.uuid():
        return "a uuid such as 123e4567-e89b-12d3-a456-426614174000"
    if pa.types.is_time(type_):
        return f"a time of day such as 12:00:00, no finer than {type_.unit}"
    if type_ in (pa.binary(), pa.large_binary()):
        return "base64 with its padding"
    if pa.types.is_boolean(type_):
        return "true or false"
    if pa.types.is_date32(type_):
        return "a day such as 2026-01-31"
    if pa.types.is_timestamp(type_):
        zone = "" if type_.tz is None else "Z"
        return (
            f"a time such as 2026-01-31T12:00:00{zone}, no finer than {type_.unit}{'' if zone else ', without a zone'}"
        )
    values = integer_range(type_)
    return f"an integer from {values[0]} to {values[-1]}"


def _bytes(value: str) -> bytes | None:
    try:
        found = base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    return found if base64.b64encode(found).decode() == value else None  # unused bits after the last byte must be 0


def _since(value: str, unit: str) -> int | None:
    found = _SINCE.fullmatch(value)
    return int(found[1]) if found is not None and found[2] == unit else None


def _days(value: str) -> int | None:
    try:
        return (date.fromisoformat(value) - _EPOCH.date()).days
    except ValueError:
        return None


def _ticks(time: re.Match[str], type_: pa.TimestampType) -> int | None:
    """Return the time as an integer in the column's unit.  None: it is finer than the unit, it is not a time, or only
    one of text and column has a zone."""
    day, clock, fraction, zone = time.groups()
    if (zone is None) != (type_.tz is None):
        return None
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{zone or '+00:00'}")
        seconds = (moment - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError):
        return None
    ticks, finer = divmod(int((fraction or "").ljust(9, "0")), 10**9 // PER_SECOND[type_.unit])
    return None if finer else seconds * PER_SECOND[type_.unit] + ticks
