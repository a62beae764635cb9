"""Columns of one contract as columns of a later one.

Fields are told apart by their ids (``RowSchema.ids``), never by name.  A renamed field keeps its id.  A field that was
dropped and added again has another one.

Promises, for each field of the later contract, also within lists and structs:

 1. A field that the earlier contract has keeps its values, in the later contract's type.  Only types that ``widens``
    allows differ, so every value stays the same value.
 2. A field that the earlier contract lacks is null.  A patch of the earlier contract does not set such a column.
 3. Fields that the later contract lacks are left out.  A patch that set nothing else still is a patch of its key.
 4. Nulls stay nulls: a struct that is null is not a struct of nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from lancewal_core.rows.schema import RowSchema

_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_UNITS = ("s", "ms", "us")
"""Units of time, coarse to fine.  ``ns`` is not among them: it has no values for years before 1678 or after 2261."""
_TIME_UNITS = (*_UNITS, "ns")
"""Units of times of day, coarse to fine.  Each holds a whole day."""


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether every value of the type ``old`` that a record can bring is also a value of the type ``new``.

    Both are plain types.  Lists and structs widen by their fields, vectors by their items.
    """
    if old == new:
        return True
    if new in _SIGNED and (old in _SIGNED or old in _UNSIGNED):
        return bool(old.bit_width < new.bit_width)
    if new in _UNSIGNED and old in _UNSIGNED:
        return bool(old.bit_width < new.bit_width)
    if pa.types.is_float32(old):
        return bool(pa.types.is_float64(new))
    if pa.types.is_decimal128(old) and pa.types.is_decimal128(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if pa.types.is_timestamp(old) and pa.types.is_timestamp(new):
        finer = old.unit in _UNITS and new.unit in _UNITS[_UNITS.index(old.unit) :]
        return bool(old.tz == new.tz and finer)
    if pa.types.is_time(old) and pa.types.is_time(new):
        return _TIME_UNITS.index(old.unit) < _TIME_UNITS.index(new.unit)
    if old == pa.string():
        return bool(new == pa.large_string())
    if old == pa.binary() or pa.types.is_fixed_size_binary(old):
        return bool(new == pa.large_binary() or new == pa.binary())
    if pa.types.is_fixed_size_list(old) and pa.types.is_fixed_size_list(new):
        return old.list_size == new.list_size and widens(old.value_type, new.value_type)
    return False


@dataclass(frozen=True, slots=True)
class Tree:
    """A field with its id and the fields within it.  A column is such a field."""

    name: str
    type: pa.DataType
    id: int
    within: tuple[Tree, ...]

    def all(self) -> Iterator[Tree]:
        """Yield the field and all within it, depth first."""
        yield self
        for tree in self.within:
            yield from tree.all()

    def member(self, id_: int) -> int | None:
        """Return the index of the member with this id."""
        return next((place for place, tree in enumerate(self.within) if tree.id == id_), None)


def trees(rows: RowSchema) -> tuple[Tree, ...]:
    """Return the columns with their ids; ``ValueError`` if ``RowSchema.ids`` does not have one for each field."""
    return tuple([tree_of(field, ids) for field, ids in zip(rows.columns, rows.ids, strict=True)])


def tree_of(field: pa.Field, ids: Sequence[int]) -> Tree:
    """Return a column with the ids of its fields, depth first; ``ValueError`` if these are not one for each field.

    A negative id (``taken_whole``) stands for a field with all that is in it."""
    left = iter(ids)
    try:
        tree = _tree(field, left)
    except StopIteration:
        raise ValueError(f"column {field.name!r} has {len(ids)} field ids, and more fields than that") from None
    if next(left, None) is not None:
        raise ValueError(f"column {field.name!r} has {len(ids)} field ids, and fewer fields than that")
    return tree


def holding(tree: Tree, within: Sequence[Tree]) -> Tree:
    """Return the list or struct ``tree`` with the fields ``within`` in place of its own."""
    if pa.types.is_list(tree.type):
        item = tree.type.value_field
        return replace(tree, type=pa.list_(item.with_type(within[0].type)), within=tuple(within))
    return replace(tree, type=pa.struct([(member.name, member.type) for member in within]), within=tuple(within))


def with_leaves(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """Return the field with ``change`` applied to each field in it that holds no other fields.  The field itself may be
    such a field.
    """
    if not tree.within:
        return change(tree)
    within = tuple([with_leaves(member, change) for member in tree.within])
    # A field of another program may hold others in a way that contracts do not know: it stays as it is.
    return tree if within == tree.within else holding(tree, within)


def taken_whole(id_: int) -> int:
    """Return the negative id that stands for a field of another program, with all that is in it.  ``id_`` is Lance's
    id of the field.  No field of a contract has a negative id."""
    return ~id_


def fields_within(type_: pa.DataType) -> list[pa.Field]:
    """Return the fields of a list, map or struct that have ids of their own.  The items of a vector have none."""
    if pa.types.is_struct(type_):
        return list(type_)
    if pa.types.is_map(type_):
        return [pa.field("entries", pa.struct([type_.key_field, type_.item_field]))]
    return [type_.value_field] if pa.types.is_list(type_) else []


def _tree(field: pa.Field, ids: Iterator[int]) -> Tree:
    own = next(ids)
    if own < 0:
        return Tree(field.name, field.type, own, ())
    return Tree(field.name, field.type, own, tuple([_tree(child, ids) for child in fields_within(field.type)]))


@dataclass(frozen=True, slots=True)
class Carry:
    """Conversion of rows from the columns of one contract to those of a later one."""

    wanted: RowSchema
    sources: tuple[tuple[Tree | None, Tree], ...]
    """For each wanted column: the earlier column that it comes from, or None if it is new, and the wanted column."""
    places: tuple[int, ...]
    """For each wanted column the index of the earlier column that it comes from; -1 if it is new."""

    def columns(self, rows: pa.Table | pa.RecordBatch) -> list[pa.Array | pa.ChunkedArray]:
        """Return the wanted columns of ``rows``, which have the earlier columns under their earlier names."""
        return [
            pa.nulls(rows.num_rows, new.type) if old is None else _carried(rows.column(old.name), old, new)
            for old, new in self.sources
        ]


@lru_cache(maxsize=256)
def carry(written: RowSchema, wanted: RowSchema) -> Carry | None:
    """Return the conversion from the columns ``written`` to the columns ``wanted``.

    Return None if there is none.  Then the ids are not one for each field, the keys differ, or a field's type is
    neither equal nor wider.
    """
    try:
        earlier, later = trees(written), trees(wanted)
    except ValueError:
        return None
    if _keys(written, earlier) != _keys(wanted, later):
        return None
    old = {tree.id: (place, tree) for place, tree in enumerate(earlier)}
    sources, places = [], []
    for new in later:
        place, before = old.get(new.id, (-1, None))
        if before is not None and not _may_become(before, new):
            return None
        sources.append((before, new))
        places.append(place)
    return Carry(wanted, tuple(sources), tuple(places))


def _keys(rows: RowSchema, columns: Sequence[Tree]) -> object:
    by_name = {tree.name: tree for tree in columns}
    return [by_name[name] for name in rows.primary_key], rows.region_key


def _may_become(old: Tree, new: Tree) -> bool:
    if not old.within and not new.within:
        return widens(old.type, new.type)
    if pa.types.is_map(old.type) or pa.types.is_map(new.type):
        return bool(old.type == new.type)  # what is within a map never changes
    if pa.types.is_struct(old.type) and pa.types.is_struct(new.type):
        was = {tree.id: tree for tree in old.within}
        return all(_may_become(was[member.id], member) for member in new.within if member.id in was)
    if pa.types.is_list(old.type) and pa.types.is_list(new.type):
        return old.within[0].id == new.within[0].id and _may_become(old.within[0], new.within[0])
    return False


def _carried(column: pa.Array | pa.ChunkedArray, old: Tree, new: Tree) -> pa.Array | pa.ChunkedArray:
    if (old.type, old.within) == (new.type, new.within):  # both have one id: their own
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_array(chunk, old, new) for chunk in column.chunks], new.type)
    return _array(column, old, new)


def _array(array: pa.Array, old: Tree, new: Tree) -> pa.Array:
    if not new.within:
        return _wider(array, new.type)
    if pa.types.is_struct(new.type):
        members = []
        for member in new.within:
            place = old.member(member.id)
            members.append(
                pa.nulls(len(array), member.type)
                if place is None
                else _array(array.field(place), old.within[place], member)
            )
        return pa.StructArray.from_arrays(members, fields=list(new.type), mask=array.is_null())
    items = _array(array.values, old.within[0], new.within[0])
    return pa.Array.from_buffers(
        new.type, len(array), array.buffers()[:2], array.null_count, array.offset, children=[items]
    )


def _wider(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast plain values or vectors; ``pa.ArrowInvalid`` for a time that has no value in the finer unit."""
    if array.type == type_:
        return array
    if not pa.types.is_fixed_size_list(type_):
        return array.cast(type_)
    items = array.values.cast(
        type_.value_type
    )  # also those of null vectors, which a cast of the vector would leave out
    return pa.Array.from_buffers(
        type_, len(array), array.buffers()[:1], array.null_count, array.offset, children=[items]
    )
