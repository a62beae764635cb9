"""The strict reader: one payload at a time, in plain Python.  It defines the right result; ``columnar`` is compared
with it.

Guarantees
1. ``read_message`` returns the cells of a payload, or raises ``Refusal``.  It reads each byte a fixed number of times
   for each level of nested columns.
2. A payload is ``malformed`` if its bytes are not one message of the schema: a tag or number that is too long or
   outside its type, a tag with number 0 or with a wire type that does not exist, a field in another wire type than
   its own, a length that exceeds the bytes that remain, a number that its enumeration has no name for, a boolean that
   is neither 0 nor 1, text that is not UTF-8, a required field that is missing, a group that does not end.
3. As the specification has it, the last value of a field counts, messages of one field are merged, items add up, and
   a member of a oneof clears the others.  A map with a repeated key is refused all the same.
4. Field numbers that the schema does not have are passed over and counted.  Groups are passed over too, at most
   ``DEPTH_MAX`` deep.
5. A refusal of another kind comes from a cell that its column cannot hold.  ``malformed`` and ``too_deep`` go first.
6. A message names the path of the cell, and holds nothing of the payload.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lancewal_ingest.decode.framed.assembly import (
    REFUSED,
    ValueBytes,
    check_row,
    distinct_entries,
    items_of,
    malformed,
    number_of,
    read_bytes,
    read_float,
    read_text,
    read_uuid,
)
from lancewal_ingest.decode.framed.cells import BoolCell, BytesCell, FloatCell, TextCell, UuidTextCell
from lancewal_ingest.decode.framed.protobuf.cells import (
    END_GROUP,
    FIXED32,
    FIXED64,
    GROUP,
    LENGTH,
    VARINT,
    WIDTHS,
    Message,
    MessageCell,
    MessageField,
    ProtoEnum,
    ProtoMessage,
    ProtoNumber,
    ProtoTime,
    ProtoWrapper,
    zero_of,
)
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.decode.outcomes import Refusal

DEPTH_MAX = 64
"""Maximum number of groups inside each other, in a value that is passed over."""
_TAG_BYTES_MAX = 5
_UNKNOWN_MAX = 100
"""Maximum number of unknown field numbers of a payload that have a count each.  Further ones are counted together."""
_FORMS = {
    (FIXED32, False): struct.Struct("<I"),
    (FIXED32, True): struct.Struct("<i"),
    (FIXED64, False): struct.Struct("<Q"),
    (FIXED64, True): struct.Struct("<q"),
}


_Values = dict[int, tuple[Any, Refusal | None]]
"""Value of each field, by the field's number, with the refusal if its column cannot hold the value."""
_Tags = dict[int, "array[int]"]
"""Indexes in the payload of the tags of each field, by the field's number."""


class Payload(ValueBytes):
    """The bytes of one payload, and the index of the next byte to read."""

    __slots__ = ("end", "other_names", "sizes")

    def __init__(self, pieces: Sequence[bytes], other_names: Counter[OtherName]) -> None:
        """``pieces``: the values of one message field, nearly always one.  Several are merged.  No value within
        crosses from one piece to the next.
        """
        super().__init__(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        self.sizes: Sequence[int] = array("I", map(len, pieces))
        self.end = len(self.data)
        """End of the message, or of the run of items, that is being read."""
        self.other_names = other_names

    def count(self, path: str) -> None:
        """Count a field number that the schema does not have."""
        name = OtherName("unknown", path)
        if name not in self.other_names and len(self.other_names) >= _UNKNOWN_MAX:
            name = OtherName("unknown", "...")
        self.other_names[name] += 1

    def varint(self, of: object) -> int:
        """Return the next integer, which has at most 64 bits."""
        at = self.at
        if at < self.end and (first := self.data[at]) < 0x80:
            self.at = at + 1
            return first
        return self.long_varint(self.end, of)

    length = varint

    def tag(self, of: object) -> tuple[int, int]:
        """Return the number and the wire type of the next field."""
        begin = self.at
        tag = self.varint(of)
        if tag >> 32 or self.at - begin > _TAG_BYTES_MAX or not tag >> 3:
            malformed(of, "a tag of 32 bits, of at most 5 bytes, with a number above 0")
        return tag >> 3, tag & 7

    def bytes(self, size: int, of: object) -> bytes:
        begin = self.at
        self.skip(size, of)
        return self.data[begin : self.at]

    def skip(self, size: int, of: object) -> None:
        if size > self.end - self.at:
            malformed(of, "a length of at most the bytes that remain")
        self.at += size


def read_message(
    message: Message, data: bytes, keys: Mapping[int, str], other_names: Counter[OtherName]
) -> dict[int, Any]:
    """Return the cell of each column that the message has, by the column's index.

    ``keys``: the name of each primary key column, by its index.  If the message becomes a row, field numbers that the
    schema does not have are added to ``other_names``.
    """
    payload = Payload((data,), Counter())
    cells = _read(message, payload)
    check_row(cells, keys, payload)
    if payload.other_names:
        other_names.update(payload.other_names)
    return cells


def _read(message: Message, payload: Payload) -> dict[int, Any]:
    """Return the cells of a message, by the indexes of their columns or members.

    Values of messages and of repeated fields are read at the end.  Until then, the indexes of their tags are kept.
    """
    values: _Values = {}
    later: _Tags = {}
    seen: set[int] = set()
    of_oneof: dict[int, int] = {}
    by_number = message.by_number
    for begin in _tags(payload):
        number, wire = payload.tag(message)
        field = by_number.get(number)
        if field is None:
            _pass(payload, number, wire, message)
            payload.count(f"{message.path}.{number}" if message.path else str(number))
            continue
        if wire != field.wire and not (field.packable and wire == LENGTH):
            malformed(field, f"the wire type {field.wire}, which is that of its type in the schema")
        if field.oneof is not None:
            last = of_oneof.get(field.oneof)
            if last is not None and last != number:
                values.pop(last, None)
                seen.discard(last)
                if (tags := later.pop(last, None)) is not None:
                    _check(by_number[last], payload, tags)
            of_oneof[field.oneof] = number
        seen.add(number)
        if field.place is None:
            _pass(payload, number, wire, field)
        elif field.form != "one" or isinstance(field.cell, MessageCell):
            later.setdefault(number, array("I")).append(begin)
            _pass(payload, number, wire, field)
        else:
            # A value that its column cannot hold matters only if it is the last one of its field.
            found = _READERS[type(field.cell)](field.cell, payload)
            values[number], payload.late = (found, payload.late), None
    cells: dict[int, Any] = {}
    for field in message.kept:
        if field.required and field.number not in seen:
            malformed(field, "a value, because the field is required")
        if field.place is not None:
            cells[field.place] = _cell(field, payload, values, later)
    return cells


def _tags(payload: Payload) -> Iterator[int]:
    """Yield the index of each tag.  A value ends within the piece that has its tag."""
    payload.end = 0
    for size in payload.sizes:
        payload.end += size
        while payload.at < payload.end:
            yield payload.at


def _check(field: MessageField, payload: Payload, tags: array[int]) -> None:
    """Read a message that does not count, since another member of its oneof came after it.  Raises ``Refusal`` if it
    is not well-formed.
    """
    at = payload.at
    _whole(field, payload, list(_runs(payload, tags)))
    payload.at, payload.late = at, None


def _cell(field: MessageField, payload: Payload, values: _Values, later: _Tags) -> Any:
    tags = later.get(field.number)
    if field.form != "one":
        return _items(field, payload, tags)
    if tags is not None:
        return _whole(field, payload, list(_runs(payload, tags)))
    if field.number in values:
        found, late = values[field.number]
        payload.late = payload.late or late
        return found
    return None if field.presence else _zero(field, payload)


def _zero(field: MessageField, payload: Payload) -> Any:
    """Return the cell of an absent value without presence."""
    match field.cell:
        case MessageCell():
            return _whole(field, payload, (b"",))
        case UuidTextCell(blank=False) | BytesCell(exactly=int(), blank=False):
            return payload.refuse("type", field.path, "a value of the size that the column needs")
    return zero_of(field.cell)


def _whole(field: MessageField, payload: Payload, pieces: Sequence[bytes]) -> Any:
    """Return the cell of a message.

    ``pieces``: all values of its field, which are merged.
    """
    within = Payload(pieces, payload.other_names)
    found = _READERS[type(field.cell)](field.cell, within)
    payload.late = payload.late or within.late
    return found


def _runs(payload: Payload, tags: array[int]) -> Iterator[bytes]:
    """Yield the bytes of the value after each tag.  Their lengths are valid, since these values were passed over
    before.
    """
    for place in tags:
        payload.at = place
        payload.tag("")
        yield payload.run("")


def _items(field: MessageField, payload: Payload, tags: array[int] | None) -> Any:
    item, column = field.cell, field.column
    type_ = item.column
    if isinstance(item, FloatCell) and tags is not None:
        found = _floats(item, field, payload, tags)
    else:
        given = iter(()) if tags is None else _each(field, payload, tags)
        found = items_of((None if one is REFUSED else one for one in given), type_)
    if field.form == "list":
        return found
    if field.form == "map":
        return distinct_entries(found, field.path, payload)
    if not len(found):
        return None  # no vector is empty, so an empty one is missing
    if len(found) != column.list_size or found.null_count:  # type: ignore[union-attr]  # a vector has a column
        return payload.refuse("type", field.path, f"{column.list_size} items")  # type: ignore[union-attr]  # likewise
    return found.to_numpy()


def _each(field: MessageField, payload: Payload, tags: array[int]) -> Iterator[Any]:
    """Yield the items of a repeated field."""
    read, cell = _READERS[type(field.cell)], field.cell
    message = isinstance(cell, MessageCell)
    end, empty = payload.end, REFUSED
    for place in tags:
        payload.at, payload.end = place, end
        _, wire = payload.tag(field)
        if message:
            data = payload.run(field)
            if data or empty is REFUSED:
                found = _whole(field, payload, (data,))
                if not data:
                    empty = found  # very many empty messages are one cell
                yield found
            else:
                yield empty
        elif wire != LENGTH or not field.packable:
            yield read(cell, payload)
        else:
            size = payload.varint(field)
            payload.end = payload.at + size
            while payload.at < payload.end:
                yield read(cell, payload)
    payload.at = payload.end = end


def _floats(cell: FloatCell, field: MessageField, payload: Payload, tags: array[int]) -> pa.Array:
    form, runs = np.dtype(f"<f{cell.width}"), []
    for place in tags:
        payload.at = place
        _, wire = payload.tag(field)
        size = payload.varint(field) if wire == LENGTH else cell.width
        if size % cell.width:
            malformed(field, f"items of {cell.width} bytes each")
        runs.append(payload.bytes(size, field))
    payload.at = payload.end
    return pa.array(np.frombuffer(b"".join(runs), form), cell.column)


def _number(cell: ProtoNumber, payload: Payload) -> object:
    wire, bits, signed, zigzag = cell.form
    if wire != VARINT:
        return number_of(cell, _FORMS[wire, signed].unpack(payload.bytes(WIDTHS[wire], cell))[0], payload)
    value = payload.varint(cell)
    if signed and not zigzag:
        value -= (value >> 63) << 64
        fits = value >> (bits - 1) in (0, -1)
    else:
        fits = not value >> bits
    if not fits:
        malformed(cell, f"an integer of {bits} bits")
    return number_of(cell, (value >> 1) ^ -(value & 1) if zigzag else value, payload)


def _bool(cell: BoolCell, payload: Payload) -> bool:
    value = payload.varint(cell)
    if value > 1:
        malformed(cell, "a boolean, which is 0 or 1")
    return value == 1


def _symbol(cell: ProtoEnum, payload: Payload) -> str:
    value = payload.varint(cell)
    value -= (value >> 63) << 64
    name = cell.names.get(value)
    if name is None:
        malformed(cell, "a number of its enumeration")
    return name


def _struct(cell: ProtoMessage, payload: Payload) -> dict[str, Any]:
    found = _read(cell.message, payload)
    return {cell.message.names[place]: value for place, value in found.items() if value is not REFUSED}


def _wrapper(cell: ProtoWrapper, payload: Payload) -> Any:
    return _read(cell.message, payload)[0]


def _time(cell: ProtoTime, payload: Payload) -> object:
    found = _read(cell.message, payload)
    seconds, nanos = found[0], found[1]
    least, most = cell.seconds
    signed = cell.kind == "duration"
    if not least <= seconds <= most or not (-999_999_999 if signed else 0) <= nanos <= 999_999_999:
        return payload.refuse("range", cell.path, f"a {cell.kind} as its specification has it")
    if signed and seconds * nanos < 0:
        return payload.refuse("range", cell.path, "a duration whose seconds and nanoseconds have one sign")
    value, rest = divmod((seconds * 10**9 + nanos) * cell.per, 10**9)
    if rest or not -(1 << 63) <= value < 1 << 63:
        return payload.refuse("range", cell.path, f"a {cell.kind} that {cell.column} holds exactly")
    return value


def _pass(payload: Payload, number: int, wire: int, of: object) -> None:
    """Pass over the value of a field whose tag has been read."""
    match wire:
        case 0:
            payload.varint(of)
        case 1:
            payload.skip(8, of)
        case 2:
            payload.skip(payload.varint(of), of)
        case 5:
            payload.skip(4, of)
        case 3:
            _pass_group(payload, number, of)
        case _:
            malformed(of, "a wire type that exists, and the end of a group only after its begin")


def _pass_group(payload: Payload, number: int, of: object) -> None:
    open_ = [number]
    while open_:
        inner, wire = payload.tag(of)
        if wire == GROUP:
            open_.append(inner)
            if len(open_) > DEPTH_MAX:
                raise Refusal("too_deep", f"{of}: expected at most {DEPTH_MAX} groups inside each other")
        elif wire == END_GROUP:
            if open_.pop() != inner:
                malformed(of, "the end of a group after its begin")
        else:
            _pass(payload, inner, wire, of)


_READERS: Mapping[type, Callable[[Any, Payload], Any]] = {
    ProtoNumber: _number,
    BoolCell: _bool,
    ProtoEnum: _symbol,
    FloatCell: read_float,
    TextCell: read_text,
    UuidTextCell: read_uuid,
    BytesCell: read_bytes,
    ProtoMessage: _struct,
    ProtoWrapper: _wrapper,
    ProtoTime: _time,
}
