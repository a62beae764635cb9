"""Cells of an Avro schema for the columns of a contract, by the rules of ``framed.mapping``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.avro.cells import (
    AvroNumber,
    Cell,
    ChoiceCell,
    DecimalCell,
    EnumCell,
    ItemsCell,
    MapCell,
    Member,
    NullCell,
    SkippedCell,
    StructCell,
    ZonedTextCell,
)
from lancewal_ingest.decode.avro.column_of import AvroColumnTypes
from lancewal_ingest.decode.avro.schema import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroPlain,
    AvroRecord,
    AvroType,
    AvroUnion,
    Logical,
    described,
    named,
    takes_no_bytes,
)
from lancewal_ingest.decode.framed.cells import BoolCell, BytesCell, FloatCell, TextCell, UuidTextCell
from lancewal_ingest.decode.framed.mapping import (
    BINARIES,
    TEXTS,
    FieldMapper,
    Level,
    Mapped,
    PlacedField,
    holds_floats,
    integers_of,
    mismatch,
    size_of,
)
from lancewal_ingest.decode.framed.payloads import SchemaUnusable
from lancewal_ingest.decode.naming import Advice, Names, Naming

_INT = range(-(1 << 31), 1 << 31)
_LONG = range(-(1 << 63), 1 << 63)
_INTEGERS = {"int8": range(-(1 << 7), 1 << 7), "int16": range(-(1 << 15), 1 << 15), "int": _INT, "long": _LONG}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9, "millis": 3, "micros": 6, "nanos": 9}
_DAY_S = 86_400


def mapped(writer: AvroType, rows: RowSchema, naming: Naming) -> Mapped[Member]:
    """Return the cells of a writer schema.  Each cell has the index of its column, or None if the contract passes the
    field over.

    ``rows``: the columns, by their present names (``naming``).  Raises ``SchemaUnusable`` if the schema cannot fill
    the columns.
    """
    if not isinstance(writer, AvroRecord):
        raise SchemaUnusable(f"expected an Avro record, whose fields become columns; the schema is {described(writer)}")
    mapper = FieldMapper[AvroType](rows, naming, AvroColumnTypes().of)
    found = mapper.mapped(writer.fields, _Cells(mapper, naming.advice).member)
    return replace(found, members=_with_bytes(found.members))


class _Cells:
    def __init__(self, mapper: FieldMapper[AvroType], advice: Advice | None) -> None:
        self._mapper = mapper
        self._advice = advice

    def members(self, fields: Iterable[tuple[str, AvroType]], level: Level) -> list[Member]:
        return self._mapper.members(fields, level, self.member)

    def member(self, field: PlacedField[AvroType]) -> Member:
        if field.column is None:
            return SkippedCell(field.type, field.path), None
        return self.cell(field.type, field.column, field.names, field.path), field.place

    def cell(self, type_: AvroType, column: pa.DataType, names: Names | None, path: str) -> Cell:
        """Return the cell of a column for values of a type.  Raises ``SchemaUnusable`` if the column cannot take them."""
        found: Cell | None = None
        match type_:
            case AvroUnion():
                found = self._union(type_, column, names, path)
            case AvroArray(items=items):
                found = self._array(items, column, names, path)
            case AvroMap(values=values) if pa.types.is_map(column) and column.key_type == pa.string():
                pair = pa.struct([column.key_field, column.item_field])
                key, value = TextCell(path, pa.string()), self.cell(values, column.item_type, names, f"{path}[]")
                entry = StructCell(path, pair, [(key, 0), (value, 1)], pair.names)
                found = MapCell(path, column, ItemsCell(path, pa.list_(pair), entry, 1))
            case AvroRecord() if pa.types.is_struct(column):
                level = Level(column, names, path)
                found = StructCell(path, column, _with_bytes(self.members(type_.fields, level)), column.names)
            case AvroEnum(symbols=symbols) if column in TEXTS:
                found = EnumCell(path, column, symbols)
            case AvroFixed(size=size, logical=logical):
                found = _decimal(logical, size, column, path) or _bytes(size, column, path, logical)
            case AvroPlain():
                found = _plain(type_, column, path)
        words = "" if self._advice is None else self._advice.of_type(column, type_)
        if found is None:
            raise mismatch(column, path, described(type_) + (words and f". {words}"))
        if isinstance(found, AvroNumber) and words:
            return replace(found, expected=f"{found.expected}. {words}")
        return found

    def _union(self, union: AvroUnion, column: pa.DataType, names: Names | None, path: str) -> ChoiceCell | None:
        branches, others = union.branches, union.others
        nothing = AvroPlain("null")
        if len(others) == 1:
            cells: list[Cell] = [
                SkippedCell(nothing, path) if named(one) == "null" else self.cell(one, column, names, path)
                for one in branches
            ]
            return ChoiceCell(path, column, cells)
        if not others:
            return ChoiceCell(path, column, [SkippedCell(nothing, path) for _ in branches])
        if not pa.types.is_struct(column):
            return None
        members = [(named(one).rpartition(".")[2], one) for one in others]
        if len({name for name, _ in members}) != len(members):
            return None
        placed = iter(self.members(members, Level(column, names, path)))
        pairs = [(SkippedCell(one, path), None) if named(one) == "null" else next(placed) for one in branches]
        return ChoiceCell(path, column, [cell for cell, _ in pairs], [place for _, place in pairs], column.names)

    def _array(self, items: AvroType, column: pa.DataType, names: Names | None, path: str) -> ItemsCell | None:
        if not (pa.types.is_list(column) or pa.types.is_fixed_size_list(column)):
            return None
        item = self.cell(items, column.value_type, names, f"{path}[]")
        return ItemsCell(path, column, item, 0 if takes_no_bytes(items) else 1)


def _with_bytes(members: Sequence[Member]) -> Sequence[Member]:
    """Return the members, without those that are passed over and take no bytes.  A record may have very many of
    these.
    """
    return [(cell, place) for cell, place in members if not (isinstance(cell, SkippedCell) and takes_no_bytes(cell.of))]


def _plain(type_: AvroPlain, column: pa.DataType, path: str) -> Cell | None:
    match type_.kind:
        case "null":
            return NullCell(path, column)
        case "boolean" if pa.types.is_boolean(column):
            return BoolCell(path, column)
        case "int8" | "int16" | "int" | "long":
            return _number(type_, column, path)
        case "float" | "double":
            width = 4 if type_.kind == "float" else 8
            return FloatCell(path, column, width) if holds_floats(column, width) else None
        case "string" if column in TEXTS:
            return TextCell(path, column)
        case "string" if column == pa.uuid() and type_.logical == Logical("uuid"):
            return UuidTextCell(path, column)
        case "string" if pa.types.is_timestamp(column) and column.tz is not None:
            return ZonedTextCell(path, column) if type_.logical == Logical("zoned-text") else None
        case "bytes":
            return _decimal(type_.logical, None, column, path) or _bytes(None, column, path)
    return None


def _number(type_: AvroPlain, column: pa.DataType, path: str) -> AvroNumber | None:
    long, name = type_.kind == "long", "" if type_.logical is None else type_.logical.name
    all_ = _INTEGERS[type_.kind]
    local, _, unit = name.rpartition("-")
    digits = _DIGITS.get(unit, 0)
    if local == "time" or (local == "clock" and pa.types.is_time(column)):
        all_ = range(_DAY_S * 10**digits)
    times = per = 1
    numbers = integers_of(column)
    if numbers is not None and not (name and pa.types.is_floating(column)):
        own = numbers
    elif pa.types.is_date32(column) and name == "date":
        own = _INT
    elif _is_in_units(column, local):
        shift = _DIGITS[column.unit] - digits
        times, per = 10 ** max(shift, 0), 10 ** max(-shift, 0)
        own = (
            range(_LONG.start * per, (_LONG.stop - 1) * per + 1)
            if per > 1
            else range(-(_LONG.stop // times), (_LONG.stop - 1) // times + 1)
        )
    else:
        return None
    least, most = max(all_.start, own.start), min(all_.stop, own.stop) - 1
    expected = f"a number from {least} to {most}" + (f" that {column} holds exactly" if per > 1 else "")
    floating = bool(pa.types.is_floating(column))
    return AvroNumber(path, column, least, most, expected, floating, times, per, long=long)


def _is_in_units(column: pa.DataType, what: str) -> bool:
    """Return whether the column takes values of the logical type ``what``, such as ``time``, after a conversion to
    its own unit.
    """
    if pa.types.is_timestamp(column):
        return what in ("epoch", "local-timestamp" if column.tz is None else "timestamp")
    return bool(pa.types.is_time(column) and what in ("time", "clock")) or bool(
        pa.types.is_duration(column) and what in ("duration", "clock")
    )


def _decimal(logical: Logical | None, size: int | None, column: pa.DataType, path: str) -> DecimalCell | None:
    if logical is None or logical.name != "decimal" or not pa.types.is_decimal128(column):
        return None
    most = column.precision - column.scale + logical.scale
    precision = logical.precision or most
    wider = column.scale >= logical.scale and most >= precision > 0
    return DecimalCell(path, column, size, precision, logical.scale) if wider else None


def _bytes(size: int | None, column: pa.DataType, path: str, logical: Logical | None = None) -> BytesCell | None:
    if column in BINARIES:
        return BytesCell(path, column, None, size)
    is_uuid = column == pa.uuid() and logical is not None and logical.name == "uuid"
    exactly = 16 if is_uuid else size_of(column)
    return None if exactly is None or exactly != (size or exactly) else BytesCell(path, column, exactly, size)
