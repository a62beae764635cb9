"""Rows of one contract as rows of a later one, by field ids.

This is independent of the product's own conversion, which ``verify`` checks: nested values go through plain Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.rows.column_types import stored_array, stored_type
from lancewal_core.rows.schema import PRESENT
from lancewal_core.table.contract import Contract
from lancewal_reader.forms.narrow_times import PER_SECOND


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field within one."""

    name: str
    type: pa.DataType
    id: int
    within: tuple[Field, ...]


def fields_of(contract: Contract) -> tuple[Field, ...]:
    """Return the columns of a contract, with the ids that their fields had when they were added."""
    return fields(contract.rows.table, {column.name: column.ids for column in contract.columns})


def fields(schema: pa.Schema, ids: Mapping[str, Sequence[int]]) -> tuple[Field, ...]:
    """Return the columns of a schema; ``ids`` has those of each column's fields, depth first."""
    return tuple(_field(one.name, one.type, iter(ids[one.name])) for one in schema if one.name in ids)


def _field(name: str, type_: pa.DataType, ids: Iterator[int]) -> Field:
    own = next(ids)
    inner = list(type_) if pa.types.is_struct(type_) else [type_.value_field] if pa.types.is_list(type_) else []
    if pa.types.is_map(type_):
        inner = [type_.field(0)]
    return Field(name, type_, own, tuple(_field(one.name, one.type, ids) for one in inner))


def by_ids(rows: pa.RecordBatch, written: Sequence[Field], wanted: Sequence[Field]) -> pa.RecordBatch:
    """Return ``rows`` with the columns ``wanted`` instead of the columns ``written``; other columns stay.  A wanted
    column that is not among ``written`` is null."""
    if tuple(written) == tuple(wanted):
        return rows
    old = {field.id: field for field in written}
    arrays: list[pa.Array] = []
    for field in wanted:
        before = old.get(field.id)
        arrays.append(
            pa.nulls(rows.num_rows, field.type) if before is None else _column(rows.column(before.name), before, field)
        )
    names = {field.name for field in written}
    kept = [(name, column) for name, column in zip(rows.schema.names, rows.columns, strict=True) if name not in names]
    for name, column in kept:
        arrays.append(_present(column, written, wanted) if name == PRESENT else column)
    return pa.RecordBatch.from_arrays(arrays, names=[*(field.name for field in wanted), *(name for name, _ in kept)])


def _column(column: pa.Array, old: Field, new: Field) -> pa.Array:
    if (old.type, old.within) == (new.type, new.within):
        return column
    if not new.within:
        return column.cast(new.type)
    values = column.cast(stored_type(old.type)).to_pylist()
    return stored_array([_value(value, old, new) for value in values], new.type)


def _value(value: object, old: Field, new: Field) -> object:
    if isinstance(value, list) and new.within:
        return [_value(item, old.within[0], new.within[0]) for item in value]
    if isinstance(value, dict):
        before = {field.id: field for field in old.within}
        return {
            field.name: _value(value[before[field.id].name], before[field.id], field) if field.id in before else None
            for field in new.within
        }
    if (
        isinstance(value, int)
        and old.type != new.type
        and (pa.types.is_timestamp(new.type) or pa.types.is_time(new.type))
    ):
        return value * PER_SECOND[new.type.unit] // PER_SECOND[old.type.unit]
    return value


def _present(column: pa.Array, written: Sequence[Field], wanted: Sequence[Field]) -> pa.Array:
    """Return the bitmaps of patches with the bits of the wanted columns."""
    places = {field.id: place for place, field in enumerate(written)}
    width = (len(wanted) + 7) // 8

    def moved(bits: bytes | None) -> bytes | None:
        if bits is None:
            return None
        number = int.from_bytes(bits, "little")
        of_wanted = (places.get(field.id) for field in wanted)
        set_ = sum(1 << at for at, place in enumerate(of_wanted) if place is not None and number >> place & 1)
        return set_.to_bytes(width, "little")

    return pa.array([moved(bits) for bits in column.to_pylist()], pa.binary())
