"""Mapping of the fields of a writer schema to the columns of a contract, by their names.

1. A field belongs to the column that has its name as present name, otherwise to the column that has it as former name
   (``naming``).  Members of structs follow the same rule.  Aliases in the schema, and its defaults, change nothing.
2. A field without a column is passed over if the contract passes its name over, and is unknown otherwise.
3. A column takes values of a type whose values it may hold exactly.  Integers and times are compared value by value.
   Floats and decimals only become wider.
4. If a schema has unknown fields, every payload is refused, without an error.  If its values cannot fill the columns
   for another reason, ``SchemaUnusable`` is raised.

The format says which cells a type fills.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa

from lancewal_core.rows.column_types import integer_range
from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.framed.payloads import SchemaUnusable
from lancewal_ingest.decode.naming import Names, Naming, OtherName
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.value_decoder import DecodedValues, RefusedValue

T = TypeVar("T")
M = TypeVar("M")
TEXTS = (pa.string(), pa.large_string())
BINARIES = (pa.binary(), pa.large_binary())
_FLOAT_DIGITS = {2: 11, 4: 24, 8: 53}
"""Bits of the integers that floats of so many bytes hold without a gap."""


@dataclass(frozen=True, slots=True)
class Level:
    """The columns of a table, or the members of one struct."""

    fields: pa.Schema | pa.StructType
    names: Names | None
    path: str = ""
    """Path of the struct; empty for the columns."""


class PlacedField(NamedTuple, Generic[T]):
    """A field of a writer schema, and the index of its column or member."""

    type: T
    place: int | None
    """Index of the column among all columns of the table, or of the member in its struct; None for a field that is
    passed over."""
    path: str
    """Path of the column or member for messages, by the table's names; of the field, if it is passed over."""
    column: pa.DataType | None
    names: Names | None


@dataclass(frozen=True, slots=True)
class Mapped(Generic[M]):
    """Result of mapping a writer schema to the columns of a contract."""

    members: Sequence[M]
    """Result of ``make`` for each field, in the writer's order.  Empty if some fields are unknown and others do not
    fit."""
    refusal: Refusal | None
    """Refusal of every payload, since there are unknown fields; None if payloads can be rows."""
    new_fields: Mapping[str, pa.DataType]
    used: Sequence[OtherName]
    """Names that each row uses and that are not present names."""

    def all_refused(self, count: int) -> DecodedValues | None:
        """Return a result that refuses all ``count`` payloads if the schema has unknown fields; None otherwise."""
        if self.refusal is None:
            return None
        every = [RefusedValue.of(place, self.refusal) for place in range(count)]
        return DecodedValues([], every, {}, self.new_fields)

    def uses(self, rows: int) -> Counter[OtherName]:
        """Return how often ``rows`` rows use each former, dropped or unknown name."""
        return Counter({name: times * rows for name, times in Counter(self.used).items() if rows})


class FieldMapper(Generic[T]):
    """Mapping of the fields of one writer schema.

    ``rows``: the columns, by their present names (``naming``).  ``column_of`` returns the type of a column that holds
    every value of a field's type; None if there is no such column.
    """

    def __init__(self, rows: RowSchema, naming: Naming, column_of: Callable[[T], pa.DataType | None]) -> None:
        self._rows = rows
        self._columns = Level(naming.in_values(rows).columns, naming.names)
        self._column_of = column_of
        self._called: Mapping[str, str] = {present: column for column, present in naming.fields.items()}
        """The table's name of each column that has another present name."""
        self._unknown: list[str] = []
        self._new_fields: dict[str, pa.DataType] = {}
        self._used: list[OtherName] = []
        self._held: set[int] = set()

    def mapped(self, fields: Iterable[tuple[str, T]], make: Callable[[PlacedField[T]], M]) -> Mapped[M]:
        """Call ``make`` for each field at the top level, and return the results.  Raises ``SchemaUnusable`` if all
        fields are known and cannot fill the columns.
        """
        made: list[M] = []
        try:
            made = self.members(fields, self._columns, make)
            names = self._rows.columns.names
            missing = [key for key in self._rows.primary_key if names.index(key) not in self._held]
            if missing:
                name = self._called.get(missing[0], missing[0])
                message = f"column {name!r}: expected a field for it, because it is in the primary key"
                raise SchemaUnusable(message, "missing_key")
        except SchemaUnusable:
            if not self._unknown:
                raise
        refusal = None
        if self._unknown:
            columns = [self._called.get(name, name) for name in self._columns.fields.names]
            message = f"expected a schema with no other fields than the columns {columns}"
            refusal = Refusal("unknown_column", message, self._unknown[0])
        return Mapped(made, refusal, self._new_fields, self._used)

    def members(self, fields: Iterable[tuple[str, T]], level: Level, make: Callable[[PlacedField[T]], M]) -> list[M]:
        """Call ``make`` for each field, and return the results.  After the last field, raise the first
        ``SchemaUnusable`` that occurred.
        """
        given = list(fields)
        at = {one.name: place for place, one in enumerate(level.fields)}
        twice = None if level.names is None else level.names.twice([name for name, _ in given])
        if twice is not None:
            where = f"column {level.path!r}: " if level.path else ""
            message = (
                f"{where}expected each field once, and by one of its names. The field {twice!r} has another name of a "
                "field that is there too"
            )
            raise SchemaUnusable(message, "duplicate_member")
        # Unknown fields are looked for first: they decide before types do.
        placed = [(name, type_, self._place(name, type_, at, level)) for name, type_ in given]
        first: SchemaUnusable | None = None
        made: list[M] = []
        for name, type_, place in placed:
            if place is None:
                made.append(make(PlacedField(type_, None, self._path(name, level), None, None)))
                continue
            column = level.fields.field(place)
            path = self._path(column.name, level) if level.path else self._called.get(column.name, column.name)
            within = None if level.names is None else level.names.present[column.name]
            if not level.path:
                place = self._rows.columns.get_field_index(column.name)
                self._held.add(place)
            try:
                made.append(make(PlacedField(type_, place, path, column.type, within)))
            except SchemaUnusable as unusable:
                first = first or unusable
        if first is not None:
            raise first
        return made

    def _path(self, name: str, level: Level) -> str:
        return f"{level.path}.{name}" if level.path else name

    def _place(self, name: str, type_: T, at: Mapping[str, int], level: Level) -> int | None:
        if level.names is None:
            if name in at:
                return at[name]
        elif name in level.names.present:
            return at[name]
        else:
            use = level.names.use_of(name)
            if use is not None:
                self._used.append(OtherName(use.use, self._path(use.path, level)))
                return at[level.names.former[name]] if use.use == "former" else None
        self._unknown.append(self._path(name, level))
        if not level.path:
            column = self._column_of(type_)
            if column is not None:
                self._new_fields[name] = column
        return None


def integers_of(column: pa.DataType) -> range | None:
    """Return the range of integers that a numeric column holds exactly; None for any other column."""
    if pa.types.is_integer(column):
        return integer_range(column)
    if not pa.types.is_floating(column):
        return None
    digits = _FLOAT_DIGITS[column.bit_width // 8]
    return range(-(1 << digits), (1 << digits) + 1)


def holds_floats(column: pa.DataType, width: int) -> bool:
    """Return whether a column holds all floats of ``width`` bytes."""
    return column in ((pa.float32(), pa.float64()) if width == 4 else (pa.float64(),))


def size_of(column: pa.DataType) -> int | None:
    """Return the number of bytes of each value in a column of vectors or of bytes of a fixed length; None for any
    other column.
    """
    if pa.types.is_fixed_size_binary(column):
        return int(column.byte_width)
    if pa.types.is_fixed_size_list(column):
        return int(column.list_size * column.value_type.bit_width // 8)
    return None


def mismatch(column: pa.DataType, path: str, found: str) -> SchemaUnusable:
    """Return the error for a field whose type does not fit its column.  ``found``: a description of the field's type."""
    return SchemaUnusable(f"column {path!r}: expected a type that fits {column}; the schema has {found}", "type")
