"""Kafka headers of many records at once: which of them count for lancewal, and how long they are.

1. No Python function is called for a single record.  A header costs Python code only if it counts, if ``last`` asks for
   it, or if any value is null.  Each distinct name is looked at once.
2. A name counts if it begins with ``lancewal.``, in any case, if it is one that only a cut dead letter has, or if it
   could not be read.  ``operations`` says what such a header means.  All other headers change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import Op
from lancewal_ingest.decode.operations import OP_HEADER, OPS, Headers, counts

Sizes = npt.NDArray[np.int64]

ASIDE = 255
"""Value in place of an ``Op``, for a record that is examined by itself."""


class _PlainOps(dict[tuple[str, bytes | None], int]):
    """Operation of a header; ``ASIDE`` for each other header than a valid ``lancewal.op``."""

    def __missing__(self, header: tuple[str, bytes | None]) -> int:
        return ASIDE


_PLAIN = _PlainOps({(OP_HEADER, name): int(op) for name, op in OPS.items()})
_NAME, _VALUE = itemgetter(0), itemgetter(1)


class HeaderColumns:
    """The headers of all records, one after the other, and how many each record has."""

    def __init__(self, of_records: Sequence[Headers]) -> None:
        self._numbers = np.fromiter(map(len, [headers or () for headers in of_records]), np.int64, len(of_records))
        self._headers = list(chain.from_iterable(filter(None, of_records)))

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(map(_NAME, self._headers))

    @cached_property
    def _value_bytes(self) -> Sizes:
        values = map(_VALUE, self._headers)
        with suppress(TypeError):  # a value is null
            return np.fromiter(map(len, values), np.int64, len(self._headers))
        return np.fromiter((len(value or b"") for _, value in self._headers), np.int64, len(self._headers))

    def ops(self) -> npt.NDArray[np.uint8]:
        """Return the operation of each record that has no header that counts but one ``lancewal.op``; else ``ASIDE``."""
        ops = np.full(len(self._numbers), Op.UPSERT, dtype=np.uint8)
        distinct = self._names
        if not (meant := set(filter(counts, distinct))):
            return ops
        owners, headers = np.repeat(np.arange(len(ops)), self._numbers), self._headers
        if meant != distinct:
            places = np.flatnonzero(np.fromiter(map(meant.__contains__, map(_NAME, headers)), np.bool_, len(headers)))
            owners, headers = owners[places], [headers[place] for place in places.tolist()]
        ops[owners] = list(map(_PLAIN.__getitem__, headers))
        ops[np.bincount(owners, minlength=len(ops)) > 1] = ASIDE
        return ops

    def last(self, name: str) -> pa.Array:
        """Return the value of each record's last header of this name, as a binary array; null without one."""
        found = np.fromiter(map(name.__eq__, map(_NAME, self._headers)), np.bool_, len(self._headers))
        places = np.flatnonzero(found)
        owners = np.repeat(np.arange(len(self._numbers)), self._numbers)[places]
        lasts = np.flatnonzero(np.diff(owners, append=-1))  # owners ascend: the last place of each
        at = np.full(len(self._numbers), len(lasts))
        at[owners[lasts]] = np.arange(len(lasts))
        values = [self._headers[place][1] for place in places[lasts].tolist()]
        return pa.array([*values, None], pa.binary()).take(pa.array(at))

    def longest(self) -> int:
        """Return a number of bytes that the headers of no record exceed: names in UTF-8, and values."""
        if not self._headers:
            return 0
        return int(self._numbers.max() * (4 * max(map(len, self._names)) + self._value_bytes.max()))

    def sizes(self, overhead: int) -> Sizes:
        """Return the characters of names and bytes of values of each record, and ``overhead`` for each of its headers."""
        each = np.fromiter(map(len, map(_NAME, self._headers)), np.int64, len(self._headers)) + overhead
        each += self._value_bytes
        ends = np.concatenate([[0], np.cumsum(self._numbers)])
        sizes: Sizes = np.diff(np.concatenate([[0], np.cumsum(each)])[ends])
        return sizes
