"""Shapes of the ends of JSON events (``tails``).

Two ends of one shape differ only in the letter of the operation and in digits.  The digits are those of numbers, and
those within texts that are values.  The first digit of a number with several digits is never 0.  So other digits
leave the JSON valid.  They change neither names nor what else ``debezium_json.read`` looks at.

Some ends have no shape.  In them a name is repeated or has a dot or a backslash, a blank follows a text, or the
operation is escaped.  An end of more than ``TAIL_BYTES_MAX`` bytes has none either.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from lancewal_ingest.decode.value_decoder import Indexes
from lancewal_ingest.envelopes.tails import TAIL_BYTES_MAX, Bytes, Shape

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][-+.0-9eE]*|[{}\[\]]')
_DIGITS = re.compile(rb"[0-9]+")
_WHOLE = re.compile(rb"-?[0-9]+")
_WHOLE_BYTES_MAX = 18
"""Maximum length in bytes of an integer that ``whole_numbers`` reads.  Any integer of this length fits into 64 bits."""
_ZERO, _NINE = ord("0"), 9
_LETTER, _LETTERS, _LETTER_BYTES = ord("a"), 25, len(b'"c"')


def shape_of(text: bytes, numbers: Collection[str]) -> Shape | None:
    """Return the shape of the end of an event that ``debezium_json.read`` accepted; None if the end has no shape.

    ``text``: the end, which is ``,"source":{`` and all after it.  ``numbers``: members whose byte positions the shape
    records, if they hold integers.
    """
    if len(text) > TAIL_BYTES_MAX:
        return None
    lows = np.frombuffer(text, np.uint8).copy()
    spans = np.zeros(len(text), np.uint8)
    letter, whole = 0, dict[str, slice]()
    names, name, seen = list[str](), "", set[str]()
    for token in _TOKEN.finditer(text):
        begin, end = token.span()
        found = token[0]
        if found in b"{[":
            names.append(name)
        elif found in b"]}":
            names = names[:-1]
        elif found[:1] == b'"' and text[end : end + 1] == b":":
            name = found[1:-1].decode("utf-8", "replace")
            path = ".".join([*names, name])
            if "\\" in name or "." in name or path in seen:
                return None
            seen.add(path)
        elif found[:1] == b'"':
            if text[end : end + 1].isspace():
                return None
            if name == "op" and not names:
                if end - begin != _LETTER_BYTES:
                    return None
                letter, lows[begin + 1], spans[begin + 1] = begin + 1, _LETTER, _LETTERS
            _free(lows, spans, text, begin, end)
        else:
            _free(lows, spans, text, begin, end)
            first = begin + found.startswith(b"-")
            if text[first + 1 : first + 2].isdigit():
                lows[first], spans[first] = _ZERO + 1, _NINE - 1
            path = ".".join([*names, name])
            if path in numbers and _WHOLE.fullmatch(found):
                if len(found) > _WHOLE_BYTES_MAX:
                    return None
                whole[path] = slice(begin, end)
    return Shape(lows, spans, letter, whole) if letter else None


def whole_numbers(data: Bytes, starts: Indexes, shape: Shape, name: str) -> npt.NDArray[np.int64]:
    """Return the integer in the member ``name`` of each end.  ``starts``: the index in ``data`` where each end
    begins.
    """
    place = shape.numbers[name]
    negative = shape.lows[place.start] == ord("-")
    digits = np.arange(place.start + negative, place.stop)
    values = data[starts[:, None] + digits].astype(np.int64) - _ZERO
    found: npt.NDArray[np.int64] = values @ 10 ** np.arange(len(digits))[::-1]
    return -found if negative else found


def _free(lows: Bytes, spans: Bytes, text: bytes, begin: int, end: int) -> None:
    """Allow any digit in place of each digit from ``begin`` to before ``end``."""
    for digits in _DIGITS.finditer(text, begin, end):
        lows[slice(*digits.span())], spans[slice(*digits.span())] = _ZERO, _NINE
