"""How fields of a Protobuf message fill the columns: messages, fields, and the cells that are not in
``framed.cells``.

A field without a column or member is passed over: its wire type and its length are checked, and its content is not
read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import pyarrow as pa

from lancewal_ingest.decode.framed.cells import (
    BoolCell,
    BytesCell,
    CellGrowth,
    ColumnCell,
    FloatCell,
    NumberCell,
    TextCell,
    UuidTextCell,
    growth_of_items,
    growth_of_symbols,
    growth_together,
    named_in_messages,
)

VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)
"""Wire types."""
WIDTHS: Mapping[int, int] = {FIXED32: 4, FIXED64: 8}
"""Number of bytes of a value of a fixed width, by its wire type."""


@dataclass(frozen=True, slots=True)
class ProtoSkipped:
    """A value for which there is no column."""

    path: str
    column: None = None
    growth: ClassVar[CellGrowth] = (0, 0)


class IntegerForm(NamedTuple):
    """How values of an integer type are encoded."""

    wire: int
    bits: int
    signed: bool
    zigzag: bool
    """Whether the sign is in the lowest bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtoNumber(NumberCell):
    form: IntegerForm


@dataclass(frozen=True, slots=True)
class ProtoEnum(ColumnCell):
    names: Mapping[int, str]
    """Name of each number of the enumeration, in the order of the numbers.  The first name of a number counts;
    aliases are left out."""
    zero: str
    """Name that an absent value has, if it has no presence: the first one of the enumeration."""

    @property
    def growth(self) -> CellGrowth:
        return growth_of_symbols(self.names.values())


@dataclass(frozen=True, slots=True)
class MessageCell(ColumnCell):
    """A value that comes as a message."""

    message: Message

    @property
    def growth(self) -> CellGrowth:
        return self.message.growth


@dataclass(frozen=True, slots=True)
class ProtoMessage(MessageCell):
    """A message that fills a struct."""


@dataclass(frozen=True, slots=True)
class ProtoWrapper(MessageCell):
    """A wrapper message with the value as its only field, such as ``google.protobuf.Int64Value``."""


@dataclass(frozen=True, slots=True)
class ProtoTime(MessageCell):
    """A ``google.protobuf.Timestamp`` or ``Duration``, which has seconds and nanoseconds."""

    kind: Literal["timestamp", "duration"]
    per: int
    """Number of the column's units in a second."""

    @property
    def seconds(self) -> tuple[int, int]:
        """The smallest and largest number of seconds that the specification allows."""
        return (-62_135_596_800, 253_402_300_799) if self.kind == "timestamp" else (-315_576_000_000, 315_576_000_000)


Cell = ColumnCell | ProtoSkipped
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
    """Index of the column in the table, or of the member in its struct; None if the field is passed over."""
    column: pa.DataType | None
    """Type of the column or member.  If the field is repeated, it is the type for all items together."""
    form: Form = "one"
    packable: bool = False
    """Whether several items may be encoded together, as one run of bytes."""
    presence: bool = True
    """Whether an absent value is missing.  Otherwise it is zero, or empty."""
    required: bool = False
    oneof: int | None = None
    """Index of the oneof to which the field belongs; None if it belongs to none."""

    def __str__(self) -> str:
        return named_in_messages(self.path, passed_over=self.place is None)

    @property
    def growth(self) -> CellGrowth:
        if self.form in ("list", "map"):
            return growth_of_items(self.cell.column, self.cell.growth)
        return self.cell.growth


@dataclass(frozen=True, slots=True)
class Message:
    """A message.  ``fields`` are in the order of their numbers."""

    path: str
    fields: Sequence[MessageField]
    by_number: Mapping[int, MessageField]
    kept: Sequence[MessageField]
    """Fields that fill a column or member, or are required."""
    names: Sequence[str] = ()
    """Names of the members of the struct, by their indexes."""

    def __str__(self) -> str:
        return named_in_messages(self.path, passed_over=False) if self.path else "the message"

    @property
    def growth(self) -> CellGrowth:
        return growth_together(field.growth for field in self.fields)


def zero_of(cell: Cell) -> object:
    """Return the cell of an absent field without presence; None if its type has no such cell."""
    match cell:
        case ProtoNumber(floating=False):
            return 0
        case ProtoNumber() | FloatCell():
            return 0.0
        case BoolCell():
            return False
        case ProtoEnum(zero=zero):
            return zero
        case TextCell():
            return ""
        case BytesCell(exactly=None):
            return b""
    return None


def needs_value(field: MessageField) -> bool:
    """Return whether the field has neither presence nor a default cell, so that an absent value must be read or
    refused.
    """
    if field.presence or field.form != "one" or field.place is None or zero_of(field.cell) is not None:
        return False
    return not (isinstance(field.cell, UuidTextCell | BytesCell) and field.cell.blank)
