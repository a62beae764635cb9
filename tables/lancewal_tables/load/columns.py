"""Columns of a file to be loaded: check that they fit the contract's columns, and convert values to the contract's
types.

Guarantee: a value that is loaded equals the value in the file.  A value that a type of the contract cannot hold is an
error.  No value is rounded, cut or made null.

These types fit:
 - the same type
 - an integer, or a decimal of scale 0, into any integer
 - a float into a wider one
 - decimals and times of another scale or unit, as far as each value fits; times with a zone only into times with a zone
 - large, view and dictionary forms of strings and binaries; binaries of a fixed size, also as uuids
 - times of day, and durations, of another unit, as far as each value fits
 - lists, structs and maps whose parts fit, if no map has a key twice

Any other type is refused, such as a text that looks like a number.  A person who knows the meaning must convert the
column.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidSchema, counted
from lancewal_core.rows.column_types import format_type, has_map
from lancewal_core.rows.equal_cells import entries_of
from lancewal_core.rows.schema import RowSchema

_TEXTS = (pa.string(), pa.large_string())
_BINARIES = (pa.binary(), pa.large_binary())
_SHOWN = 10
_TYPE_SHOWN = 200


def check_columns(found: pa.Schema, rows: RowSchema, where: str, int96: frozenset[str] = frozenset()) -> None:
    """Raise ``InvalidSchema`` if columns of the file ``where`` are missing, unknown, duplicate, or of a type that does not
    fit.

    ``int96``: names of columns with Parquet's INT96 times, which Arrow shows as nanoseconds without a zone.
    """
    problems = [f"column {name!r} is missing" for name in rows.table.names if name not in found.names]
    for name in dict.fromkeys(found.names):
        if name not in rows.table.names:
            problems.append(f"column {name!r} is not in the table, or holds Kafka's metadata: leave it out")
        elif found.names.count(name) > 1:
            problems.append(f"column {name!r} is there more than once")
        else:
            have, want = found.field(name).type, rows.table.field(name).type
            if not fits(have, want):
                type_ = str(have) if len(str(have)) <= _TYPE_SHOWN else f"{str(have)[:_TYPE_SHOWN]}..."
                shown = f"type {type_}, of INT96," if name in int96 else f"type {type_},"
                problems.append(f"column {name!r} has {shown} the table has {format_type(want)}: convert it first")
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise InvalidSchema(f"{where} cannot be loaded: {'; '.join(problems[:_SHOWN])}{more}", file=where)


def fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Return whether a file's column of type ``have`` can be loaded into a column of type ``want``, by the rules of the
    module docstring."""
    types = pa.types
    if have == want:
        return True
    if types.is_dictionary(have):
        return fits(have.value_type, want)
    if want in _TEXTS:
        return bool(have in _TEXTS or types.is_string_view(have))
    if want in _BINARIES or types.is_fixed_size_binary(want):
        return bool(have in _BINARIES or types.is_binary_view(have) or types.is_fixed_size_binary(have))
    if want == pa.uuid():
        return bool(have == pa.binary(16))
    if types.is_time(want):
        return bool(types.is_time(have))
    if types.is_duration(want):
        return bool(types.is_duration(have))
    if types.is_integer(want):
        return bool(types.is_integer(have) or (types.is_decimal(have) and have.scale == 0))  # Spark's uint64
    if types.is_floating(want):
        return bool(types.is_floating(have) and have.bit_width <= want.bit_width)
    if types.is_decimal(want):
        return bool(types.is_decimal(have))
    if types.is_timestamp(want):
        return bool(types.is_timestamp(have) and (have.tz is None) == (want.tz is None))
    if types.is_fixed_size_list(want):
        sized = types.is_fixed_size_list(have) and have.list_size == want.list_size
        return bool(sized or _is_list(have)) and fits(have.value_type, want.value_type)
    if types.is_map(want):
        return bool(types.is_map(have) and fits(have.key_type, want.key_type) and fits(have.item_type, want.item_type))
    if types.is_list(want):
        return bool(_is_list(have) or types.is_fixed_size_list(have)) and fits(have.value_type, want.value_type)
    if types.is_struct(want):
        same = types.is_struct(have) and [f.name for f in have] == [f.name for f in want]
        return bool(same and all(fits(a.type, b.type) for a, b in zip(have, want, strict=True)))
    return False


def conform(batch: pa.RecordBatch, names: Sequence[str], rows: RowSchema, where: str) -> pa.RecordBatch:
    """Return the columns ``names`` of a batch, cast to the table's types, which must fit (``fits``).

    ``InvalidSchema`` names the column and the file ``where`` of a value that cannot be cast, or of a null in the key."""
    columns = []
    for name in names:
        field = rows.table.field(name)
        column = batch.column(name)
        try:
            column.validate(full=True)  # text that is not UTF-8 would spoil every query of the column
            columns.append(_cast(column, field.type))
            if has_map(field.type) and repeats_a_key(columns[-1]):
                raise pa.ArrowInvalid("a map has a key twice")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            # Arrow's own message holds the value.
            raise InvalidSchema(
                f"{where} cannot be loaded: column {name!r} of type {column.type} has a value that "
                f"{format_type(field.type)} cannot hold, or that is damaged",
                file=where,
            ) from error
        if not field.nullable and columns[-1].null_count:  # only now: a dictionary may have a null among its values
            raise InvalidSchema(
                f"{where} cannot be loaded: column {name!r} of the primary key is null in "
                f"{counted(columns[-1].null_count, 'row')}",
                file=where,
            )
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([rows.table.field(name) for name in names]))


def _cast(column: pa.Array, want: pa.DataType) -> pa.Array:
    if column.type == want:
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return pc.cast(column, want)


def repeats_a_key(array: pa.Array) -> bool:
    """Return whether a map in the array, at any depth, has a key twice."""
    type_ = array.type
    if not has_map(type_):
        return False
    if pa.types.is_struct(type_):
        return any(map(repeats_a_key, array.flatten()))
    if pa.types.is_list(type_):
        return repeats_a_key(array.flatten())
    entries = entries_of(array)
    keys, items = entries.flatten().flatten()
    owners = pc.list_parent_indices(entries)
    distinct = pa.table([owners, keys], ["owner", "key"]).group_by(["owner", "key"]).aggregate([]).num_rows
    return distinct < len(keys) or repeats_a_key(items)


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))
