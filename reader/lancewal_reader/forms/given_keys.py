"""Primary keys and region keys that Python programs pass.

A value that its column cannot hold exactly is refused (``InvalidInput``).  Truncated or rounded, it would find another
key's row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any, cast

import numpy as np
import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.fold import key_codes
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Contract
from lancewal_reader.forms.narrow_times import PER_SECOND
from lancewal_reader.forms.sql_literals import literal

_TAKEN_AS_THEY_ARE = frozenset({int, str, bytes})
"""Types of values that Arrow converts exactly, or refuses."""


def keys_of(schema: RowSchema, keys: object, said: str = "keys") -> pa.Table:
    """Return a user's keys, without duplicates, in the order given.  Raises ``InvalidInput`` if the argument is not a
    list of keys.  ``said`` is the argument's name in errors.
    """
    names = list(schema.primary_key)
    if hasattr(keys, "columns") and hasattr(keys, "__arrow_c_stream__"):  # a DataFrame, which is a list of its names
        keys = pa.table(keys)
    if isinstance(keys, pa.Table | pa.RecordBatch):
        lacking = [name for name in names if name not in keys.schema.names]
        if lacking:
            raise InvalidInput(
                f"{said}: column {lacking[0]!r} of the primary key {names} is not among {keys.schema.names}"
            )
        columns = [keys.column(name) for name in names]
    else:
        columns = _columns(names, keys, said)
    arrays = [_array(schema, name, column, said) for name, column in zip(names, columns, strict=True)]
    table = pa.table(arrays, schema=schema.key)
    first = np.unique(key_codes(table), return_index=True)[1]
    return table if len(first) == table.num_rows else table.take(pa.array(np.sort(first)))


@dataclass(frozen=True, slots=True)
class RegionKey:
    """One value of the region key.  ``encoded`` is the Kafka key of its records, which determines their partition."""

    values: pa.Table
    encoded: bytes

    @property
    def filter(self) -> str:
        """Condition in SQL for the rows that have this region key."""
        return " AND ".join(f"`{name}` = {literal(self.values[name][0])}" for name in self.values.schema.names)

    def check(self, keys: pa.Table) -> None:
        """Raise ``InvalidInput`` if one of ``keys`` belongs to another region key."""
        own = KeySet(self.values).contains([keys[name] for name in self.values.schema.names])
        if not own.all():
            other = keys.filter(pa.array(~own)).slice(0, 1).to_pylist()[0]
            raise InvalidInput(
                f"keys: {other!r} does not have the value of region_key, {self.values.to_pylist()[0]!r}. Name only "
                "keys with this value, or leave region_key out"
            )


def region_key_of(contract: Contract, value: object) -> RegionKey:
    """Return the region key that a user gave.  Raises ``InvalidInput`` if the table cannot have this region key."""
    if (codec := contract.key_codec) is None or not contract.rows_tell_partition:
        raise InvalidInput(
            f"region_key: rows of this table do not show their partition ({contract.why_rows_do_not_tell}), so all "
            "unmerged rows are read. Leave region_key out"
        )
    names = contract.region_key
    values = keys_of(RowSchema(contract.rows.columns, names, names), [value], "region_key")
    encoded = codec.encode_batch([values[name].combine_chunks() for name in names])[0].as_py()
    if encoded is None:
        raise InvalidInput(f"region_key: {value!r} has no encoding as a record's key")
    return RegionKey(values, encoded)


def _columns(names: Sequence[str], keys: object, said: str) -> list[list[object]]:
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise InvalidInput(f"keys: expected a list of keys, not {keys!r}; for one key write [key]")
    rows: list[Sequence[object]] = []
    for key in keys:
        if isinstance(key, tuple | list):
            rows.append(key)
        elif isinstance(key, Mapping):
            if set(key) != set(names):
                raise InvalidInput(f"{said}: {key!r} does not name the columns {names}")
            rows.append([key[name] for name in names])
        else:
            rows.append([key])
        if len(rows[-1]) != len(names):
            count = "1 value" if len(rows[-1]) == 1 else f"{len(rows[-1])} values"
            raise InvalidInput(f"{said}: {key!r} has {count}; expected one for each column of {names}")
    return [[row[n] for row in rows] for n in range(len(names))]


def _array(schema: RowSchema, name: str, column: object, said: str) -> pa.Array:
    type_ = schema.table.field(name).type
    try:
        array, as_given = (
            _cast(column, type_) if isinstance(column, pa.Array | pa.ChunkedArray) else _made(column, type_)
        )
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"{said}: column {name!r} takes {type_}: {error}") from error
    if array.null_count:
        raise InvalidInput(f"{said}: a key has no value in column {name!r}")
    if not as_given:
        raise InvalidInput(
            f"{said}: column {name!r} takes {type_}, which does not hold a value as it was given: no row has it"
        )
    return array


def _cast(column: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> tuple[pa.Array, bool]:
    """Return the column cast to the key's type, and whether nothing is lost by the cast.  A date loses the time of
    day, for example."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    fitted = array.cast(type_)
    return fitted, bool(array.type == type_ or fitted.cast(array.type).equals(array))


def _made(values: object, type_: pa.DataType) -> tuple[pa.Array, bool]:
    given = cast("list[object]", values)
    if any(issubclass(kind, pa.Scalar) for kind in set(map(type, given))):
        given = [value.as_py() if isinstance(value, pa.Scalar) else value for value in given]
    made = pa.array(given, type_)
    return made, set(map(type, given)) <= _TAKEN_AS_THEY_ARE or all(_is_exact(value, type_) for value in given)


def _is_exact(value: Any, type_: pa.DataType) -> bool:
    """Whether Arrow converts a value exactly.  It silently truncates fractions of numbers and of times."""
    if isinstance(value, datetime):
        cut = value.microsecond * 1000 + getattr(value, "nanosecond", 0)  # times of pandas have nanoseconds
        if pa.types.is_timestamp(type_):
            return bool(cut % (10**9 // PER_SECOND[type_.unit]) == 0)
        return (value.hour, value.minute, value.second, cut) == (0, 0, 0, 0)
    if isinstance(value, time) and pa.types.is_time(type_):
        return bool(value.microsecond * 1000 % (10**9 // PER_SECOND[type_.unit]) == 0)
    if pa.types.is_integer(type_) and type(value) is not int:
        return value is None or bool(value == int(value))
    return True
