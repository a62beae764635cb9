"""Upper bound of the memory that rows of a message take beyond their slots of fixed size (``PayloadDecoder.growth``).

A byte of a payload lies in at most one text, or it is the only byte of an item.  Names of enumerations
take no bytes of the payload.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lancewal_ingest.decode.framed.protobuf.cells import (
    Cell,
    Message,
    MessageField,
    ProtoBytes,
    ProtoEnum,
    ProtoMessage,
    ProtoText,
    ProtoWrapper,
)
from lancewal_ingest.decode.weight import slot_bits

Growth = tuple[int, int]
"""Bytes for each byte of a payload, and bytes for each payload."""


def growth_of(message: Message) -> Growth:
    """Return an upper bound of the memory of rows of this message, beyond slots of fixed size."""
    return _together(field for field in message.fields if field.place is not None)


def _together(fields: Iterable[MessageField]) -> Growth:
    found = [_of_field(field) for field in fields]
    return max((factor for factor, _ in found), default=0), sum(each for _, each in found)


def _of_field(field: MessageField) -> Growth:
    factor, each = _of_cell(field.cell)
    if field.form in ("list", "map"):
        return -(-slot_bits(_item(field)) // 8) + factor + each, 0
    return factor, each


def _item(field: MessageField) -> pa.DataType:
    return field.cell.column


def _of_cell(cell: Cell) -> Growth:
    match cell:
        case ProtoText() | ProtoBytes(exactly=None):
            return 1, 0
        case ProtoEnum(names=names):
            return 0, max(map(len, names.values()), default=0)
        case ProtoMessage(message=message) | ProtoWrapper(message=message):
            return _together(field for field in message.fields if field.place is not None)
    return 0, 0
