"""How fields of a Protobuf message fill the columns: a tree of messages, fields and cells, which both readers follow.

``columnar`` and ``strict`` read the same trees, so the rules are here once.  A field without a place is passed over: its wire
type is checked, and its length.  What is within is not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)
"""Wire types."""
WIDTHS: Mapping[int, int] = {FIXED32: 4, FIXED64: 8}
"""Bytes of a value of a fixed width, by its wire type."""


@dataclass(frozen=True, slots=True)
class ProtoSkipped:
    """A value for which there is no column."""

    path: str
    column: None = None


@dataclass(frozen=True, slots=True)
class ProtoNumber:
    """An integer.  ``zigzag``: its sign is in the lowest bit."""

    path: str
    column: pa.DataType
    wire: int
    bits: int
    signed: bool
    zigzag: bool
    least: int
    most: int
    """Range of values that the column allows."""
    expected: str
    floating: bool
    """Whether the column has floats."""


@dataclass(frozen=True, slots=True)
class ProtoBool:
    path: str
    column: pa.DataType


@dataclass(frozen=True, slots=True)
class ProtoEnum:
    path: str
    column: pa.DataType
    names: Mapping[int, str]
    """Name of each number, in the order of the numbers.  An alias is not there: the first name of a number counts."""
    zero: str
    """Name that an absent value has, if it has no presence: the first one of the enumeration."""


@dataclass(frozen=True, slots=True)
class ProtoFloat:
    path: str
    column: pa.DataType
    width: int
    """Bytes of a value: 4 for ``float``, 8 for ``double``."""


@dataclass(frozen=True, slots=True)
class ProtoText:
    path: str
    column: pa.DataType


@dataclass(frozen=True, slots=True)
class ProtoUuidText:
    """A uuid as text.  ``blank``: whether an empty text counts as a missing value."""

    path: str
    column: pa.DataType
    blank: bool


@dataclass(frozen=True, slots=True)
class ProtoBytes:
    """Bytes, stored unchanged: in a binary column, or as the items of a vector one after the other."""

    path: str
    column: pa.DataType
    exactly: int | None
    """Length that the column needs; None for any."""
    blank: bool
    """Whether no bytes are a missing value, since the column needs some, and the field has no presence."""


@dataclass(frozen=True, slots=True)
class ProtoMessage:
    """A message that fills a struct."""

    path: str
    column: pa.DataType
    message: Message


@dataclass(frozen=True, slots=True)
class ProtoWrapper:
    """A wrapper message with the value as its only field, such as ``google.protobuf.Int64Value``."""

    path: str
    column: pa.DataType
    message: Message


@dataclass(frozen=True, slots=True)
class ProtoTime:
    """A ``google.protobuf.Timestamp`` or ``Duration``, which has seconds and nanoseconds."""

    path: str
    column: pa.DataType
    message: Message
    kind: Literal["timestamp", "duration"]
    per: int
    """Units of the column in a second."""

    @property
    def seconds(self) -> tuple[int, int]:
        """The smallest and largest number of seconds that the specification allows."""
        return (-62_135_596_800, 253_402_300_799) if self.kind == "timestamp" else (-315_576_000_000, 315_576_000_000)


Cell = (
    ProtoSkipped | ProtoNumber | ProtoBool | ProtoEnum | ProtoFloat | ProtoText | ProtoUuidText | ProtoBytes | ProtoMessage
    | ProtoWrapper | ProtoTime
)  # fmt: skip

Form = Literal["one", "list", "vector", "map"]


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field of a message.  ``cell`` reads the value, or one item if the field is repeated."""

    number: int
    path: str
    wire: int
    """Wire type of a value."""
    cell: Cell
    place: int | None
    """Place of the column or member; None if the field is passed over."""
    column: pa.DataType | None
    """Type of the column or member: of all items, if the field is repeated."""
    form: Form = "one"
    packable: bool = False
    """Whether items may stand in one run of bytes."""
    presence: bool = True
    """Whether an absent value is missing.  Otherwise it is zero, or empty."""
    required: bool = False
    oneof: int | None = None
    """The oneof of the message to which the field belongs."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message.  ``fields`` are in the order of their numbers."""

    path: str
    fields: Sequence[MessageField]
    by_number: Mapping[int, MessageField]
    kept: Sequence[MessageField]
    """The fields that have a place, or are required."""
    names: Sequence[str] = ()
    """Names of the members of the struct, by their places."""


def zero_of(cell: Cell) -> object:
    """Return the cell of a field that has no presence and is absent."""
    match cell:
        case ProtoNumber(floating=False):
            return 0
        case ProtoNumber() | ProtoFloat():
            return 0.0
        case ProtoBool():
            return False
        case ProtoEnum(zero=zero):
            return zero
        case ProtoText():
            return ""
        case ProtoBytes(exactly=None):
            return b""
    return None


def needs_value(field: MessageField) -> bool:
    """Return whether the field has neither presence nor a default cell, so that an absent value must be read or
    refused.
    """
    if field.presence or field.form != "one" or field.place is None or zero_of(field.cell) is not None:
        return False
    return not (isinstance(field.cell, ProtoUuidText | ProtoBytes) and field.cell.blank)
