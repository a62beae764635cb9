"""How the JSON decoder reads payloads of a schema: the type of each column in JSON, and the names of members.

1. A column that the schema has no field for is in no payload.  A member of a struct without a field is null.
2. Numbers, decimals and lists are read in the types that they have in JSON, and ``lift`` converts them.  All other
   columns are read in their own types.
3. Only names of the schema's fields are allowed.  Fields that the contract passes over count as *dropped* names here
   (``naming``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.avro.cells import (
    AvroNumber,
    Cell,
    ChoiceCell,
    DecimalCell,
    ItemsCell,
    MapCell,
    StructCell,
    is_null,
)
from lancewal_ingest.decode.avro.schema import AvroArray, AvroField, AvroRecord, AvroType, AvroUnion
from lancewal_ingest.decode.framed.cells import BytesCell, FloatCell
from lancewal_ingest.decode.naming import Form, Names, Naming

ABSENT = pa.bool_()
"""Type in which a column or member is read that no payload has."""


def wire_rows(rows: RowSchema, cells: Mapping[int, Cell]) -> RowSchema:
    """Return the columns with the types in which the JSON decoder reads them.  ``cells``: the cell of each column that
    the schema has, by the column's index.
    """
    types = [wire_type(cells[place]) if place in cells else ABSENT for place in range(len(rows.columns))]
    columns = [field.with_type(type_) for field, type_ in zip(rows.columns, types, strict=True)]
    return RowSchema(pa.schema(columns), rows.primary_key, rows.region_key)


def wire_naming(schema: AvroRecord, rows: RowSchema, cells: Mapping[int, Cell], naming: Naming) -> Naming:
    """Return the names that members of the payload may have.

    ``rows``: the columns, by their present names.  ``cells``: the cell of each column that the schema has, by the
    column's index.
    """
    names = rows.columns.names
    called = _names(schema.fields, naming.in_values(rows).columns, naming.names)
    forms: dict[str, Form] = {
        names[place]: "float_name" for place, cell in cells.items() if isinstance(value_cell(cell), FloatCell)
    }
    absent = frozenset(name for place, name in enumerate(names) if place not in cells)
    present = {name: inner for name, inner in called.present.items() if name not in absent}
    called = Names(present, called.former, called.dropped)
    return Naming(None if called.only_present else called, {}, naming.fields, forms, absent)


def value_cell(cell: Cell) -> Cell:
    """Return the cell of the values that are not null.  For a nullable field, this is the cell of the branch that is
    not null.
    """
    return next(one for one in cell.branches if not is_null(one)) if isinstance(cell, ChoiceCell) else cell


def wire_type(cell: Cell) -> pa.DataType:
    """Return the type in which the JSON decoder reads a cell."""
    cell = value_cell(cell)
    match cell:
        case AvroNumber(long=long):
            return pa.int64() if long else pa.int32()
        case FloatCell(width=width):
            return pa.float32() if width == 4 else pa.float64()
        case DecimalCell():
            return pa.binary()
        case BytesCell(column=column):
            return pa.binary() if pa.types.is_fixed_size_list(column) else column
        case ItemsCell(column=column, item=item):
            if is_float_vector(cell):
                return pa.list_(wire_type(item), column.list_size)
            return pa.list_(wire_type(item))
        case MapCell(entries=ItemsCell(item=StructCell(members=members))):
            return pa.map_(pa.string(), wire_type(members[1][0]))
        case StructCell(column=column):
            held = {place: member for member, place in cell.members if place is not None}
            return pa.struct(
                [
                    pa.field(name, wire_type(held[place]) if place in held else ABSENT)
                    for place, name in enumerate(cell.names)
                ]
            )
    return cell.column


def is_float_vector(cell: ItemsCell) -> bool:
    """Return whether a cell is a vector whose items are floats in JSON.  Then the JSON decoder reads it as a vector."""
    return bool(pa.types.is_fixed_size_list(cell.column)) and isinstance(value_cell(cell.item), FloatCell)


def _names(fields: Sequence[AvroField], level: pa.Schema | pa.StructType, names: Names | None) -> Names:
    """Return the names that payloads may have at one level: those of the schema's fields."""
    by_child: dict[str, AvroType] = {}
    former: dict[str, str] = {}
    dropped: set[str] = set()
    columns = {child.name for child in level}
    for one in fields:
        present = one.name if one.name in columns else None
        if present is None and names is not None and one.name in names.former:
            present = former[one.name] = names.former[one.name]
        if present is None:
            dropped.add(one.name)
        else:
            by_child[present] = one.type
    called = {
        child.name: _inner(child, by_child[child.name], names) if child.name in by_child else None for child in level
    }
    return Names(called, former, frozenset(dropped))


def _inner(child: pa.Field, type_: AvroType, names: Names | None) -> Names | None:
    """Return the names within a column or member that the schema has; None if it is neither a struct nor a list of structs."""
    column = child.type
    while pa.types.is_list(column):
        column = column.value_type
    if not pa.types.is_struct(column):
        return None
    while isinstance(type_, AvroUnion | AvroArray):
        type_ = type_.items if isinstance(type_, AvroArray) else type_.others[0]
    fields = type_.fields if isinstance(type_, AvroRecord) else ()
    return _names(fields, column, None if names is None else names.present.get(child.name))
