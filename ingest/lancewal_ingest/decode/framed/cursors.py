"""A cursor into each datum of a chunk, and reads at all cursors at once.  A *row* is the datum of one payload.

Guarantees
1. A read costs a few calls of numpy, whatever the number of rows is.
2. A row that a read cannot decide on becomes *doubtful*, whatever its neighbours are.  Its cells mean nothing, and
   its cursor may be anywhere within the buffer.
3. A cursor never goes back.  A cursor that has read beyond its datum stays after the datum's end for good.  So if a
   row is not doubtful, and its cursor is at its end after the last read, the row was read within its own bytes.
4. No read leaves the buffer, which has ``_BEFORE`` bytes before the first datum and ``_AFTER`` after the last one.

``live``: a mask of the rows that a read is for; None if it is for all.  Other rows keep their cursors and give zeros.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_ingest.decode.value_decoder import Mask

Integers = npt.NDArray[np.int64]
"""An integer for each row: an index in the buffer, a size, or a count."""
_BEFORE, _AFTER = 16, 32
_TOP_BITS = np.uint64(0x8080808080808080)
_SEVENS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)


class Cursors:
    """A cursor into each datum of a chunk.  Each read returns one value for every row, and moves the cursors."""

    __slots__ = ("_lasts", "at", "buffer", "data", "depth", "doubtful", "ends", "limit", "steps_left", "words")

    def __init__(self, data: npt.NDArray[np.uint8], starts: Integers, ends: Integers, steps: int) -> None:
        """``starts`` and ``ends``: the bounds of each datum in ``data``, in ascending order.  ``steps``: the initial
        ``steps_left``.
        """
        self.data = np.zeros(_BEFORE + len(data) + _AFTER, np.uint8)
        self.data[_BEFORE : _BEFORE + len(data)] = data
        self.buffer = pa.py_buffer(self.data)
        self.words = np.ndarray((len(self.data) - 7,), "V8", self.data, strides=(1,))
        """The 8 bytes from each index of the buffer on."""
        self.at = starts + _BEFORE
        self.ends = ends + _BEFORE
        self.limit = _BEFORE + len(data) + 1
        """Index after the ends of all datums, which no cursor passes."""
        self.doubtful = np.zeros(len(starts), np.bool_)
        self.steps_left = steps
        """Number of reads that may still be made.  The format says which of its reads count."""
        self._lasts: list[Integers] = []
        """The result of ``lasts``; empty until then.  All cursors of a chunk share it."""
        self.depth = 0
        """Number of types that are being passed over, one inside the other."""

    def some(self, rows: Integers, at: Integers) -> Cursors:
        """Return new cursors for ``rows``, at the positions ``at`` in the buffer.  A row may be listed several times."""
        few = object.__new__(Cursors)
        few.data, few.buffer, few.words, few.limit = self.data, self.buffer, self.words, self.limit
        few._lasts = self._lasts
        few.at, few.ends = at, self.ends[rows]
        few.doubtful = np.zeros(len(rows), np.bool_)
        few.steps_left, few.depth = self.steps_left, self.depth
        return few

    def within(self, sizes: Integers) -> Cursors:
        """Return cursors whose datums are the next ``sizes`` bytes of each row.  ``sizes``: the result of ``room``."""
        inner = self.some(np.arange(len(self)), self.at.copy())
        inner.ends = np.minimum(self.at + sizes, self.limit)
        return inner

    def lasts(self) -> Integers:
        """Return the index of each byte below 0x80, which would be the last byte of an integer.  The indexes are
        computed once for a chunk.
        """
        if not self._lasts:
            self._lasts.append(np.flatnonzero(self.data < 0x80))
        return self._lasts[0]

    def __len__(self) -> int:
        return len(self.at)

    def doubt(self, rows: Mask, live: Mask | None) -> None:
        """Mark rows as doubtful: those in ``rows`` that are live."""
        self.doubtful |= rows if live is None else rows & live

    def move(self, count: int | Integers, live: Mask | None) -> None:
        """Move the cursors of live rows by ``count`` bytes.  If ``count`` may exceed what is left of a datum, the
        caller must check it before (``room``).
        """
        self.at += count if live is None else count * live
        np.minimum(self.at, self.limit, out=self.at)

    def bytes(self, live: Mask | None) -> npt.NDArray[np.uint8]:
        """Return the next byte of each row."""
        found = self.data.take(self.at)
        if live is not None:
            found *= live
        self.move(1, live)
        return found

    def word(self, shift: int | Integers = 0) -> npt.NDArray[np.uint64]:
        """Return the 8 bytes after each cursor as a little endian integer.  ``shift``: the number of bytes to skip
        before them.
        """
        found: npt.NDArray[np.uint64] = self.words[self.at + shift].view("<u8")
        return found

    def varints(self, live: Mask | None) -> npt.NDArray[np.uint64]:
        """Return the next varint of each row, which has at most 64 bits and 10 bytes."""
        first = self.data.take(self.at)
        if live is not None:
            first *= live
        if not len(first) or first.max() < 0x80:
            self.move(1, live)
            return first.astype(np.uint64)
        word = self.word()
        if live is not None:
            word *= live
        tops = ~word & _TOP_BITS
        within = tops ^ (tops - _ONE)  # all bits up to the top bit of the last byte
        counts = (np.bitwise_count(within) >> 3).astype(np.int64)
        word &= within & _SEVENS
        # Seven bits of each byte move together: pairs of bytes, of pairs, and of fours.
        word = (word & np.uint64(0x007F007F007F007F)) | ((word & np.uint64(0x7F007F007F007F00)) >> _ONE)
        word = (word & np.uint64(0x00003FFF00003FFF)) | ((word & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
        word = (word & np.uint64(0x000000000FFFFFFF)) | ((word & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
        long = np.flatnonzero(tops == 0)
        if len(long):
            ninth, tenth = self.data[self.at[long] + 8], self.data[self.at[long] + 9]
            more = ninth >= 0x80
            word[long] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
            word[long] |= np.where(more, tenth, 0).astype(np.uint64) << np.uint64(63)
            counts[long] += 1 + more
            self.doubtful[long[more & (tenth > 1)]] = True
        self.move(counts, live)
        return word

    def numbers(self, live: Mask | None) -> npt.NDArray[np.int64]:
        """Return the next zigzag varint of each row, which has its sign in the lowest bit."""
        return signed(self.varints(live))

    def room(self, sizes: Integers, live: Mask | None) -> Integers:
        """Return ``sizes``, with 0 in place of each size that exceeds what is left of its datum.  Such rows become
        doubtful.
        """
        wrong = (sizes < 0) | (sizes > self.ends - self.at)
        if live is not None:
            wrong &= live
            sizes = sizes * live
        if wrong.any():
            self.doubtful |= wrong
            sizes = np.where(wrong, 0, sizes)
        return sizes

    def runs(self, sizes: Integers) -> pa.Array:
        """Return the next bytes of each row as a binary array, and move the cursors.  ``sizes``: the result of
        ``room``.
        """
        # A cursor after its datum's end would break the order of the borders.  Its size is 0.
        starts = np.minimum(self.at, self.ends)
        stops = starts + sizes
        borders = np.empty(2 * len(stops), np.int32)
        borders[0::2], borders[1::2] = starts, stops
        # Every second slot is a row's, and the slots between are not taken.
        slots = pa.Array.from_buffers(
            pa.binary(), max(2 * len(stops) - 1, 0), [None, pa.py_buffer(borders), self.buffer]
        )
        self.at = self.at + sizes
        return slots.take(pa.array(np.arange(0, 2 * len(stops), 2, dtype=np.int32)))


def signed(word: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the integers of which ``word`` has the zigzag encoding, with the sign in the lowest bit."""
    return (word >> _ONE).view(np.int64) ^ -(word & _ONE).view(np.int64)
