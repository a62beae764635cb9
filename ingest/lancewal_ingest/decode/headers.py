"""Kafka headers of many records at once: which of them count for lancewal, and how long they are.

1. No Python code runs for a single header.  Each distinct name is looked at once.
2. A name counts in three cases: it begins with ``lancewal.``, in any case; only a cut dead letter has such a header;
   or the name could not be read.  ``operations`` says what such a header means.  All other headers change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.schema import Op
from lancewal_ingest.decode.operations import OP_HEADER, OPS, counts
from lancewal_kafka.headers import HeaderList, MessageHeaders, bytes_of, text_of

Sizes = npt.NDArray[np.int64]

ASIDE = 255
"""Value in place of an ``Op``, for a record that is examined by itself."""

_PLAIN_VALUES = pa.array([name for name in OPS if name is not None], pa.binary())
_PLAIN_OPS = np.array([*OPS.values(), ASIDE], np.uint8)
"""Operation of each item of ``_PLAIN_VALUES``, and then ``ASIDE``, which stands for any other value of the header."""


class HeaderColumns:
    """The headers of all records, one after the other, and how many each record has."""

    def __init__(self, of_records: Sequence[HeaderList | None]) -> None:
        headers = of_records if isinstance(of_records, MessageHeaders) else MessageHeaders(of_records)
        column = headers.column
        self._ends: Sizes = np.zeros(len(headers) + 1, np.int64)
        """Index of the first header of each record, followed by the number of all headers."""
        self._names, self._values = pa.array([], pa.string()), pa.array([], pa.binary())
        if column is not None:
            ends = column.offsets.to_numpy()
            self._ends = (ends - ends[0]).astype(np.int64)
            self._names = column.keys.slice(ends[0], ends[-1] - ends[0])
            self._values = column.items.slice(ends[0], ends[-1] - ends[0])

    def __bool__(self) -> bool:
        """Whether any record has a header."""
        return len(self._names) > 0

    @cached_property
    def _owners(self) -> Sizes:
        """Index of the record that has each header."""
        return np.repeat(np.arange(len(self._ends) - 1), np.diff(self._ends))

    @cached_property
    def _value_bytes(self) -> Sizes:
        lengths: Sizes = pc.binary_length(self._values).fill_null(0).to_numpy().astype(np.int64)
        return lengths

    def ops(self, *, named: bool = True) -> npt.NDArray[np.uint8]:
        """Return the operation of each record.

        ``ASIDE`` means that the headers must be read one by one: there is another header that lancewal reads, or
        ``lancewal.op`` comes twice.  If ``named`` is false, a single ``lancewal.op`` is ``ASIDE`` too.
        """
        ops = np.full(len(self._ends) - 1, Op.UPSERT, dtype=np.uint8)
        distinct = map(text_of, pc.unique(self._names).cast(pa.binary()).to_pylist())
        if not (meant := list(filter(counts, distinct))):
            return ops
        # ``is_in`` compares bytes: a name that is not UTF-8 is one of these names too.
        names = pa.array([bytes_of(name) for name in meant], pa.binary())
        places = np.flatnonzero(pc.is_in(self._names.cast(pa.binary()), value_set=names).to_numpy(zero_copy_only=False))
        owners, at = self._owners[places], pa.array(places)
        known = pc.index_in(self._values.take(at), value_set=_PLAIN_VALUES).fill_null(len(_PLAIN_VALUES)).to_numpy()
        is_op = pc.equal(self._names.take(at), OP_HEADER).to_numpy(zero_copy_only=False)
        ops[owners] = np.where(is_op, _PLAIN_OPS[known], ASIDE)
        ops[np.bincount(owners, minlength=len(ops)) > int(named)] = ASIDE
        return ops

    def last(self, name: str) -> pa.Array:
        """Return the value of each record's last header of this name, as a binary array; null without one."""
        places = np.flatnonzero(pc.equal(self._names, name).to_numpy(zero_copy_only=False))
        if not len(places):
            return pa.nulls(len(self._ends) - 1, pa.binary())
        owners = self._owners[places]
        at = np.full(len(self._ends) - 1, -1)
        at[owners] = places  # of several places of one record the last one stays
        return self._values.take(pa.array(at, mask=at < 0))

    def lasts(self, names: Iterable[str]) -> dict[str, pa.Array]:
        """Return, for each name, the value of each record's last header of this name."""
        return {name: self.last(name) for name in names}

    def longest(self) -> int:
        """Return an upper bound of the bytes of one record's headers: names in UTF-8, and values."""
        if not len(self._names):
            return 0
        characters = int(pc.max(pc.utf8_length(self._names)).as_py())
        return int(np.diff(self._ends).max()) * (4 * characters + int(self._value_bytes.max()))

    def sizes(self, overhead: int) -> Sizes:
        """Return for each record the characters of its header names, plus the bytes of its header values, plus
        ``overhead`` per header.
        """
        each = pc.utf8_length(self._names).to_numpy() + self._value_bytes + overhead
        sizes: Sizes = np.diff(np.concatenate([[0], np.cumsum(each)])[self._ends])
        return sizes
