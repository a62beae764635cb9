r"""Values that Arrow's JSON reader must not be given, because it would read outside its own tables.

pyarrow 26.0.1 looks up the power of ten for a decimal's scale (its digits after the point, less its exponent).  It
does not check whether its table has that power.  ``1e-999999999``, as number or string, ends the process, and the
result of ``1e-1000`` is undefined.  A scale of at most 76 is safe, so a value is *hazardous* if it holds

* a number with an exponent below -38, or
* 39 digits after a point, or
* an escaped character of a number, which could hide either of these in a string.

Guarantee: no hazardous value of a table with decimal columns reaches the reader.  The reference path decides on it.
Harmless values that look hazardous (a string of such digits) only cost time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

_BEFORE = 100
"""Bytes before an exponent that are examined.  A longer run of digits counts as hazardous."""
_LOOKS_MAX = 32
"""Largest number of exponents below -38 of one value that are examined.  A value with more of them counts as
hazardous."""
_EXPONENT = re.compile(rb"[eE]-0*(?:39|[4-9][0-9]|[1-9][0-9][0-9])")
_NUMBER = re.compile(rb"(?:\A|[\s:,\[\"])[-+]?[0-9]*\.?[0-9]*\Z")
"""Text before the exponent of a number that begins a JSON value or string."""
_ESCAPED = re.compile(rb"\\u00(?:3[0-9]|[46]5|2[bBdDeE])")
_FRACTION = b"." + b"0" * 39
_DIGITS_TO_0 = bytes(ord("0") if chr(code).isdigit() and code < 128 else code for code in range(256))


def has_decimals(type_: pa.DataType) -> bool:
    """Return whether ``type_`` is a decimal type or contains one."""
    if pa.types.is_decimal(type_):
        return True
    return any(has_decimals(type_.field(i).type) for i in range(type_.num_fields))


def hazardous(values: Sequence[bytes | None]) -> list[int]:
    """Return the indexes of the hazardous values.  They are not sorted, and an index may be repeated."""
    text = b"\n".join([value or b"" for value in values])
    ends = np.cumsum([1 + len(value or b"") for value in values])
    found: list[int] = []
    for marks, searched, dangerous in (
        ((b"e-", b"E-"), text, _Exponents(text)),
        ((_FRACTION,), text.translate(_DIGITS_TO_0), lambda at, value: True),
        ((b"\\u00",), text, lambda at, value: _ESCAPED.match(text, at) is not None),
    ):
        for mark in marks:
            # A plain search, since every byte of a consumed batch goes through it.
            at = searched.find(mark)
            while at >= 0:
                value = int(np.searchsorted(ends, at, side="right"))
                if dangerous(at, value):
                    found.append(value)
                    at = int(ends[value]) - len(mark)  # enough is known of this one
                at = searched.find(mark, at + len(mark))
    return found


class _Exponents:
    """Test whether the text at a place is the exponent, below -38, of a number.

    After ``_LOOKS_MAX`` such exponents in one value the answer is yes without examining more."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._looks = (-1, 0)

    def __call__(self, at: int, value: int) -> bool:
        if not _EXPONENT.match(self._text, at):
            return False
        of, looks = self._looks
        self._looks = value, looks + 1 if of == value else 1
        return self._looks[1] > _LOOKS_MAX or bool(_NUMBER.search(self._text[max(0, at - _BEFORE) : at]))
