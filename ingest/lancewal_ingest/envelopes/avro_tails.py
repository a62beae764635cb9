"""The shape of an event's end in Avro (``tails``).

Two ends of one shape have the same branches, the same lengths of texts, and integers in as many bytes.  So the strict reader
reads them alike.  The bytes that may differ are within texts, floats and integers, and none of these is refused for its value.
Arrays and maps have no shape, nor has an operation that is not one letter.
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
"""Most bytes of an integer that is within its type whatever they are."""


class _Tail:
    """An end of which the shape is made."""

    def __init__(self, data: bytes) -> None:
        self.datum = Datum(data)
        self.lows = np.frombuffer(data, np.uint8).copy()
        self.spans = np.zeros(len(data), np.uint8)

    def may_be(self, begin: int, low: int, span: int) -> None:
        """Let the bytes from ``begin`` to the cursor be in a range."""
        self.lows[begin : self.datum.at], self.spans[begin : self.datum.at] = low, span


def shape_of(data: bytes, fields: Sequence[AvroField], numbers: Mapping[str, Cell]) -> Shape | None:
    """Return the shape of an event's end, which has ``fields``; None if such ends have no shape.  Raises ``Refusal`` if
    the end is malformed.

    ``numbers``: fields whose byte positions the shape records.
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
    """Note which bytes of a value may differ; return whether it has a shape."""
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
