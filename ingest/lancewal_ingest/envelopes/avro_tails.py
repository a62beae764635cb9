"""Shapes of the ends of Avro events (``tails``).

Two ends of one shape have the same branches, the same lengths of texts, and integers in as many bytes.  So the strict
reader reads them alike.  The bytes that may differ are the operation, and those within texts, bytes, floats and
integers.  None of these is refused for its value.

An end with an array or a map has no shape, and neither has one whose operation is not one byte long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lancewal_ingest.decode.avro.cells import Cell, SkippedCell
from lancewal_ingest.decode.avro.schema import (
    AvroArray,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPlain,
    AvroRecord,
    AvroType,
    AvroUnion,
)
from lancewal_ingest.decode.avro.strict import Datum, read_cell
from lancewal_ingest.envelopes.tails import TAIL_BYTES_MAX, Shape

_ANY, _SEVEN_BITS = 255, 127
_BYTES_OF = {"int": 4, "long": 9}
"""Maximum number of bytes of an integer that is surely within its type's range, whatever the bytes are."""


class _Tail:
    """An end from which a shape is made: a cursor over its bytes, and the range of each byte."""

    def __init__(self, data: bytes) -> None:
        self.datum = Datum(data)
        self.lows = np.frombuffer(data, np.uint8).copy()
        self.spans = np.zeros(len(data), np.uint8)

    def may_be(self, begin: int, low: int, span: int) -> None:
        """Set the range of the bytes from ``begin`` to the cursor: from ``low`` to ``low + span``."""
        self.lows[begin : self.datum.at], self.spans[begin : self.datum.at] = low, span


def shape_of(data: bytes, fields: Sequence[AvroField], numbers: Mapping[str, Cell]) -> Shape | None:
    """Return the shape of an event's end; None if such ends have no shape.  Raises ``Refusal`` if the end is
    malformed.

    ``fields``: the fields in the end.  ``numbers``: those whose byte positions the shape records.
    """
    if len(data) > TAIL_BYTES_MAX:
        return None
    checked = Datum(data)
    for name, type_ in fields:
        read_cell(SkippedCell(type_, name), checked)
    if checked.at != len(data):
        return None
    tail, places, letter = _Tail(data), dict[str, slice](), 0
    for name, type_ in fields:
        begin = tail.datum.at
        if name == "op":
            if tail.datum.number(SkippedCell(type_, name)) != 1:
                return None
            letter = tail.datum.at
            tail.datum.at += 1
            tail.may_be(letter, 0, _SEVEN_BITS)
        elif not _opened(tail, type_):
            return None
        places[name] = slice(begin, tail.datum.at)
    return Shape(tail.lows, tail.spans, letter, {name: places[name] for name in numbers})


def _opened(tail: _Tail, type_: AvroType) -> bool:
    """Read the next value of a type, and note which of its bytes may differ.  Return whether such a value can be part
    of a shape.
    """
    datum, cell, begin = tail.datum, SkippedCell(type_, ""), tail.datum.at
    match type_:
        case AvroRecord(parts=parts):
            return all(_opened(tail, part) for part in parts or ())
        case AvroUnion(branches=branches):
            return _opened(tail, branches[datum.number(cell)])
        case AvroArray() | AvroMap():
            return False
        case AvroPlain(kind="int" | "long" as kind):
            read_cell(cell, datum)
            if datum.at - begin <= _BYTES_OF[kind]:
                tail.may_be(begin, _SEVEN_BITS + 1, _SEVEN_BITS)
                tail.lows[datum.at - 1] = 0
        case AvroPlain(kind="string" | "bytes"):
            size = datum.number(cell)
            begin, datum.at = datum.at, datum.at + size
            tail.may_be(begin, 0, _ANY)
        case AvroFixed() | AvroPlain(kind="float" | "double"):
            read_cell(cell, datum)
            tail.may_be(begin, 0, _ANY)
        case _:
            read_cell(cell, datum)
    return True
