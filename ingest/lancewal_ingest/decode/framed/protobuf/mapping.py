"""Cells of a Protobuf message for the columns of a contract, by the rules of ``framed.mapping``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from lancewal_core.rows.schema import RowSchema
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
from lancewal_ingest.decode.framed.protobuf.cells import (
    FIXED32,
    FIXED64,
    GROUP,
    LENGTH,
    VARINT,
    Cell,
    Form,
    IntegerForm,
    Message,
    MessageField,
    ProtoEnum,
    ProtoMessage,
    ProtoNumber,
    ProtoSkipped,
    ProtoTime,
    ProtoWrapper,
)
from lancewal_ingest.decode.framed.protobuf.column_of import UNITS, ProtoColumnTypes, is_wrapper, time_of, type_name
from lancewal_ingest.decode.framed.protobuf.schema import is_map_entry, map_parts
from lancewal_ingest.decode.naming import Names, Naming

_F = FieldDescriptor
_NUMBERS: Mapping[int, IntegerForm] = {
    _F.TYPE_INT32: IntegerForm(VARINT, 32, True, False),
    _F.TYPE_INT64: IntegerForm(VARINT, 64, True, False),
    _F.TYPE_UINT32: IntegerForm(VARINT, 32, False, False),
    _F.TYPE_UINT64: IntegerForm(VARINT, 64, False, False),
    _F.TYPE_SINT32: IntegerForm(VARINT, 32, True, True),
    _F.TYPE_SINT64: IntegerForm(VARINT, 64, True, True),
    _F.TYPE_FIXED32: IntegerForm(FIXED32, 32, False, False),
    _F.TYPE_FIXED64: IntegerForm(FIXED64, 64, False, False),
    _F.TYPE_SFIXED32: IntegerForm(FIXED32, 32, True, False),
    _F.TYPE_SFIXED64: IntegerForm(FIXED64, 64, True, False),
}
_WIRES: Mapping[int, int] = {
    **{type_: form.wire for type_, form in _NUMBERS.items()},
    _F.TYPE_BOOL: VARINT,
    _F.TYPE_ENUM: VARINT,
    _F.TYPE_FLOAT: FIXED32,
    _F.TYPE_DOUBLE: FIXED64,
    _F.TYPE_STRING: LENGTH,
    _F.TYPE_BYTES: LENGTH,
    _F.TYPE_MESSAGE: LENGTH,
    _F.TYPE_GROUP: GROUP,
}


def mapped(writer: Descriptor, rows: RowSchema, naming: Naming) -> tuple[Mapped[MessageField], Message]:
    """Return the mapped fields of a message, and the message with only these fields.

    ``rows``: the columns, by their present names (``naming``).  Raises ``SchemaUnusable`` if the fields cannot fill
    the columns.
    """
    mapper = FieldMapper[FieldDescriptor](rows, naming, ProtoColumnTypes().of)
    found = mapper.mapped([(field.name, field) for field in writer.fields], _Cells(mapper).field)
    return found, _message("", found.members)


def _message(path: str, fields: Sequence[MessageField], names: Sequence[str] = ()) -> Message:
    ordered = sorted(fields, key=lambda field: field.number)
    kept = [field for field in ordered if field.place is not None or field.required]
    return Message(path, ordered, {field.number: field for field in ordered}, kept, names)


class _Cells:
    def __init__(self, mapper: FieldMapper[FieldDescriptor]) -> None:
        self._mapper = mapper

    def fields(self, message: Descriptor, level: Level) -> list[MessageField]:
        given = [(field.name, field) for field in message.fields]
        return self._mapper.members(given, level, self.field)

    def field(self, placed: PlacedField[FieldDescriptor]) -> MessageField:
        field, column, path = placed.type, placed.column, placed.path
        form: Form = "one"
        cell: Cell | None
        if column is None:
            cell = ProtoSkipped(path)
        elif not field.is_repeated:
            cell = self._value(field, column, placed.names, path)
        elif (parts := map_parts(field)) is not None:
            form = "map"
            cell = self._entry(parts, column, placed.names, path)
        else:
            form = "vector" if pa.types.is_fixed_size_list(column) else "list"
            whole = pa.types.is_list(column) or form == "vector"
            cell = self._value(field, column.value_type, placed.names, f"{path}[]") if whole else None
        if cell is None:
            raise mismatch(column, path, type_name(field))
        wire = _WIRES[field.type]
        return MessageField(
            field.number,
            path,
            wire,
            cell,
            placed.place,
            column,
            form,
            field.is_repeated and wire in (VARINT, FIXED32, FIXED64),
            field.has_presence,
            field.is_required,
            None if field.containing_oneof is None else field.containing_oneof.index,
        )

    def _entry(
        self, parts: tuple[FieldDescriptor, FieldDescriptor], column: pa.DataType, names: Names | None, path: str
    ) -> ProtoMessage | None:
        key, value = parts
        if not pa.types.is_map(column) or column.key_type != pa.string() or key.type != _F.TYPE_STRING:
            return None
        pair = pa.struct([column.key_field, column.item_field])
        cell = self._value(value, column.item_type, names, f"{path}[]")
        if cell is None:
            return None
        # An entry without a key or value has zero or an empty value in its place, whatever the syntax of the file is.
        first = MessageField(1, path, LENGTH, TextCell(path, pa.string()), 0, pair[0].type, presence=False)
        second = MessageField(2, f"{path}[]", _WIRES[value.type], cell, 1, pair[1].type, presence=False)
        return ProtoMessage(path, pair, _message(path, [first, second], names=("key", "value")))

    def _value(self, field: FieldDescriptor, column: pa.DataType, names: Names | None, path: str) -> Cell | None:
        """Return the cell of one value of a field; None if the column cannot take it."""
        if field.type == _F.TYPE_MESSAGE and field.message_type is not None:
            return self._of_message(field.message_type, column, names, path)
        if field.enum_type is not None:
            symbols: dict[int, str] = {}
            for one in field.enum_type.values:
                symbols.setdefault(one.number, one.name)
            first = field.enum_type.values[0].name
            return ProtoEnum(path, column, dict(sorted(symbols.items())), first) if column in TEXTS else None
        return _plain(field, column, path)

    def _of_message(self, message: Descriptor, column: pa.DataType, names: Names | None, path: str) -> Cell | None:
        if pa.types.is_struct(column):
            fields = self.fields(message, Level(column, names, path))
            return ProtoMessage(path, column, _message(path, fields, names=column.names))
        if is_wrapper(message):
            value = message.fields_by_number[1]
            cell = self._value(value, column, names, path)
            if cell is None:
                return None
            only = MessageField(1, path, _WIRES[value.type], cell, 0, column, presence=False)
            return ProtoWrapper(path, column, _message(path, [only]))
        time = time_of(message)
        if time is None:
            return None
        timestamp = time == "timestamp"
        if timestamp and not (pa.types.is_timestamp(column) and column.tz is not None):
            return None
        if not timestamp and not pa.types.is_duration(column):
            return None
        parts = [
            MessageField(field.number, path, VARINT, cell, place, cell.column, presence=False)
            for place, (field, type_) in enumerate(zip(message.fields, (pa.int64(), pa.int32()), strict=True))
            if (cell := _integer(field.type, type_, path)) is not None
        ]
        return ProtoTime(path, column, _message(path, parts), time, UNITS[column.unit])


def _plain(field: FieldDescriptor, column: pa.DataType, path: str) -> Cell | None:
    type_ = field.type
    # The value of a wrapper, and that of an entry of a map, are there if the wrapper or entry is.
    of = field.containing_type
    alone = of is not None and (is_wrapper(of) or is_map_entry(of))
    blank = not (field.has_presence or field.is_repeated or alone)
    if type_ in _NUMBERS:
        return _integer(type_, column, path)
    if type_ == _F.TYPE_BOOL:
        return BoolCell(path, column) if pa.types.is_boolean(column) else None
    if type_ in (_F.TYPE_FLOAT, _F.TYPE_DOUBLE):
        width = 4 if type_ == _F.TYPE_FLOAT else 8
        return FloatCell(path, column, width) if holds_floats(column, width) else None
    if type_ == _F.TYPE_STRING:
        if column == pa.uuid():
            return UuidTextCell(path, column, blank)
        return TextCell(path, column) if column in TEXTS else None
    return _bytes(column, path, blank=blank) if type_ == _F.TYPE_BYTES else None


def _integer(type_: int, column: pa.DataType, path: str) -> ProtoNumber | None:
    form = _NUMBERS[type_]
    half = 1 << (form.bits - 1)
    all_ = range(-half, half) if form.signed else range(2 * half)
    own = integers_of(column)
    if own is None:
        return None
    least, most = max(all_.start, own.start), min(all_.stop, own.stop) - 1
    expected = f"a number from {least} to {most}"
    floating = bool(pa.types.is_floating(column))
    return ProtoNumber(path, column, least, most, expected, floating, form=form)


def _bytes(column: pa.DataType, path: str, *, blank: bool) -> BytesCell | None:
    if column in BINARIES:
        return BytesCell(path, column, None)
    exactly = 16 if column == pa.uuid() else size_of(column)
    return None if exactly is None else BytesCell(path, column, exactly, blank=blank)
