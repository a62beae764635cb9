"""Ends of events that are alike: one comparison for many of them, instead of a parse of each.

The *end* of an event is the bytes after its row: the source, the operation and times.  In one topic most of these
bytes repeat from event to event.  Texts have the same lengths, and numbers as many digits.

1. A *shape* has a range of values for each byte of an end.  A value *has* the shape if its last bytes are in these
   ranges, and do not begin before its row.
2. Code that knows the format makes a shape from one value.  Every end that has the shape is valid too, and has each
   field at the same place.
3. Bytes that have a shape need not be the whole end of the value.  The row before them must be read, and must stop
   where they begin.
4. Values that have no known shape are left to the caller.  In each call, a few of them become new shapes.
5. Temporary arrays take a few times ``_AT_ONCE`` bytes.  A shape has at most ``TAIL_BYTES_MAX`` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lancewal_ingest.decode.value_decoder import Indexes, Mask

TAIL_BYTES_MAX = 4096
FEW = 16
"""Maximum number of values that are read one by one, because comparing them with shapes does not pay."""
_KNOWN_MAX = 8
_MADE_MAX = 4
_AT_ONCE = 1 << 18
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A range of values for each byte of an end.  A byte is in its range if it is at most ``spans`` above ``lows``."""

    lows: Bytes
    spans: Bytes
    letter: int
    """Index of the operation in the end.  The operation has one byte."""
    numbers: dict[str, slice]
    """Slice of the end that holds each number, by the name of its member or field: the numbers that were asked for."""

    def of(self, data: Bytes, firsts: Indexes, ends: Indexes) -> Mask:
        """Return a mask of the values that have this shape.

        ``data``: the bytes of all values.  ``firsts`` and ``ends``: the indexes in ``data`` where the rows begin, and
        where the values end.
        """
        count = len(self.lows)
        has: Mask = ends - firsts >= count
        places = np.flatnonzero(has)
        if not len(places):
            return has
        windows = np.ndarray((len(data) - count + 1,), f"V{count}", data, strides=(1,))
        rows = max(1, _AT_ONCE // count)
        for begin in range(0, len(places), rows):
            some = places[begin : begin + rows]
            found = windows[ends[some] - count].view(np.uint8).reshape(len(some), count)
            found -= self.lows
            wrong = found > self.spans
            if wrong.any():
                has[some] = ~wrong.any(axis=1)
        return has


class Shapes:
    """Cache of known shapes, the most frequent first.  Several threads may use it: no result depends on its content."""

    def __init__(self) -> None:
        self._known: tuple[Shape, ...] = ()

    def found(
        self, data: Bytes, firsts: Indexes, ends: Indexes, make: Callable[[int], Shape | None]
    ) -> Iterator[tuple[Shape, Indexes]]:
        """Yield each shape with the indexes of the values that have it.  Values in no shape are left out.

        ``data``, ``firsts``, ``ends``: see ``Shape.of``.  ``make``: returns the shape of the value at an index; None
        if it has none.
        """
        left = np.arange(len(ends))
        counts: dict[Shape, int] = {}
        ahead, made = list(self._known), 0
        while len(left) > FEW and (ahead or made < _MADE_MAX):
            shape = ahead.pop(0) if ahead else None
            if shape is None:
                shape, made = make(int(left[0])), made + 1
            if shape is None:
                left = left[1:]
                continue
            has = shape.of(data, firsts[left], ends[left])
            counts[shape] = int(np.count_nonzero(has))
            if counts[shape]:
                yield shape, left[has]
                left = left[~has]
        known = dict.fromkeys([*counts, *self._known])
        self._known = tuple(sorted(known, key=lambda one: -counts.get(one, 0))[:_KNOWN_MAX])


def starting(data: Bytes, begins: Indexes, ends: Indexes, with_: bytes) -> Mask:
    """Return a mask of the values that start with the bytes ``with_``.  ``begins`` and ``ends``: bounds of the values
    in ``data``.
    """
    lows = np.frombuffer(with_, np.uint8)
    return Shape(lows, np.zeros(len(lows), np.uint8), 0, {}).of(data, begins, np.minimum(begins + len(lows), ends))
