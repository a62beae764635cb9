"""Decoding of payloads whose schemas have fields: columnar, and payload by payload where that cannot decide.

Guarantees, beside those of ``payloads``
1. Rows and refusals are those that the format's strict reader alone would give.
2. A chunk has at most ``CHUNK_ROWS`` payloads, and at most ``CHUNK_BYTES`` or one payload, unless the caller of
   ``chunks`` gives another limit.  So temporaries stay small.
3. Columns without a field in the writer schema are null, or have their default in an upsert.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import Op, RowSchema
from lancewal_ingest.decode.framed.assembly import array_of
from lancewal_ingest.decode.framed.cursors import Cursors
from lancewal_ingest.decode.framed.mapping import Mapped
from lancewal_ingest.decode.framed.payloads import Payloads
from lancewal_ingest.decode.json.defaults import Defaults, filled
from lancewal_ingest.decode.naming import Naming, OtherName
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import DecodedValues, Ops, RefusedValue, mask_of
from lancewal_ingest.decode.weight import split

Chunk = tuple[npt.NDArray[np.int64], Cursors]
"""Indexes of the payloads of one chunk, and their cursors."""
CHUNK_ROWS = 16384
CHUNK_BYTES = 1 << 20
SINGLY_BYTES = 1 << 20
"""Bytes of payloads that are decoded one by one at a time, because Python values take many times the bytes."""
_SPARSE = 4
"""If less than one of so many bytes belongs to payloads, the payloads are copied together first."""


class TypedFormat:
    """The part of a ``FramedFormat`` that Avro and Protobuf share.

    Raises ``InvalidSchema`` at once if a default is not a value of its column, before any schema is known.
    """

    schemas_have_fields = True
    tells_operations = False

    def __init__(self, rows: RowSchema, naming: Naming) -> None:
        self._rows = rows
        self._naming = naming
        Defaults(rows.called(naming.fields), naming)  # for its error


class TypedPayloads(ABC):
    """``PayloadDecoder`` of one writer schema.  Sub-classes add the columnar reader and the strict one."""

    tells_presence = tells_null = False
    steps_max = 0
    """Initial ``Cursors.steps_left`` of each chunk."""

    def __init__(
        self, mapped: Mapped[Any], held: Collection[int], growth: tuple[int, int], rows: RowSchema, naming: Naming
    ) -> None:
        """``mapped``: the cells of the writer schema's fields.  ``held``: the indexes of the columns for which the
        schema has a field.  ``growth``: without defaults.  ``rows``: the columns, by their present names
        (``naming``).
        """
        self._rows = rows
        self._mapped = mapped
        self._held = frozenset(held)
        self.refuses_all = mapped.refusal is not None
        """Whether every payload is refused, since the schema has a field without a column."""
        names = rows.columns.names
        self.fills: Collection[str] = frozenset(names[place] for place in self._held)
        defaults = Defaults(rows, naming)
        self._defaults = defaults.arrays
        self.growth = growth[0], growth[1] + defaults.nbytes
        columns = {present: column for column, present in naming.fields.items()}
        self._keys = {names.index(key): columns.get(key, key) for key in rows.primary_key}
        self.single_records = 0
        """Number of payloads that were decoded one by one so far, bad ones included."""

    @abstractmethod
    def read_columns(self, cursors: Cursors) -> dict[int, pa.Array]:
        """Return the array of each column in ``held``.  The array holds no valid cell for rows in ``Cursors.doubtful``."""

    @abstractmethod
    def read_one(self, data: bytes, keys: Mapping[int, str], other_names: Counter[OtherName]) -> Mapping[int, Any]:
        """Read one payload with the strict reader, and return the cell of each column in ``held``.  Raises ``Refusal``
        if the payload is bad.

        ``keys``: the name of each primary key column, by its index.  ``other_names`` counts the former, dropped and
        unknown names that this payload uses.
        """

    def finished(self, columns: dict[int, pa.Array], ops: Ops) -> pa.Array:
        """Return the ``present`` bitmaps of rows with these columns.  May change ``columns``."""
        return pa.nulls(len(ops), pa.binary())

    def decode(self, payloads: Payloads, ops: Ops, opened: Iterable[Chunk] | None = None) -> DecodedValues:
        """Decode payloads (``PayloadDecoder.decode``).  ``opened``: the ``chunks`` of the payloads, if the caller has
        split them already.
        """
        refused_alike = self._mapped.all_refused(len(payloads.starts))
        if refused_alike is not None:
            return refused_alike
        parts: list[DecodedPart] = []
        singly: list[npt.NDArray[np.int64]] = []
        for chosen, cursors in chunks(payloads, self.steps_max) if opened is None else opened:
            columns = self.read_columns(cursors)
            doubtful = cursors.doubtful
            for key in self._keys:
                if columns[key].null_count:
                    doubtful |= mask_of(columns[key].is_null())
            if doubtful.any():
                singly.append(chosen[doubtful])
                kept = pa.array(~doubtful)
                columns = {place: column.filter(kept) for place, column in columns.items()}
                chosen = chosen[~doubtful]
            if len(chosen):
                parts.append(self._part(chosen, columns, ops[chosen]))
        refused: Sequence[RefusedValue] = []
        other_names = Counter[OtherName]()
        if singly:
            found = self.one_by_one(payloads, np.concatenate(singly), ops)
            parts += found.parts
            refused = found.refused
            other_names.update(found.other_names)
        other_names.update(self._mapped.uses(sum(len(part.indexes) for part in parts)))
        return DecodedValues(parts, refused, other_names)

    def one_by_one(self, payloads: Payloads, places: npt.NDArray[np.int64], ops: Ops) -> DecodedValues:
        """Decode the payloads at ``places`` with the strict reader.  The result's ``other_names`` counts only names
        that these payloads use.
        """
        other_names = Counter[OtherName]()
        parts: list[DecodedPart] = []
        refused: list[RefusedValue] = []
        self.single_records += len(places)
        for some in split(places, payloads.ends[places] - payloads.starts[places], SINGLY_BYTES):
            good: list[int] = []
            rows: list[Mapping[int, Any]] = []
            for place in some.tolist():
                data = payloads.data[payloads.starts[place] : payloads.ends[place]].tobytes()
                try:
                    rows.append(self.read_one(data, self._keys, other_names))
                    good.append(place)
                except Refusal as refusal:
                    refused.append(RefusedValue.of(place, refusal))
            if not good:
                continue
            types = self._rows.columns.types
            columns = {place: array_of([row[place] for row in rows], types[place]) for place in self._held}
            parts.append(self._part(np.array(good, np.int64), columns, ops[good]))
        return DecodedValues(parts, refused, other_names)

    def _part(self, indexes: npt.NDArray[np.int64], columns: dict[int, pa.Array], ops: Ops) -> DecodedPart:
        """Return the rows of the payloads at ``indexes``, which have these columns and operations."""
        present = self.finished(columns, ops)
        arrays = [
            columns[place] if place in columns else self._missing(place, ops)
            for place in range(len(self._rows.columns))
        ]
        return DecodedPart(indexes, arrays, pa.array(ops), present)

    def _missing(self, place: int, ops: Ops) -> pa.Array:
        """Return the cells of a column without a field."""
        default, nulls = self._defaults.get(place), pa.nulls(len(ops), self._rows.columns.field(place).type)
        return nulls if default is None else filled(nulls, default, ops == Op.UPSERT)


def chunks(payloads: Payloads, steps_max: int, nbytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Split payloads into chunks.  ``steps_max``: the ``Cursors.steps_left`` of each chunk.  ``nbytes``: the limit of a
    chunk with several payloads.
    """
    starts, ends = payloads.starts, payloads.ends
    begin = 0
    while begin < len(starts):
        end = int(np.searchsorted(ends, starts[begin] + nbytes, side="right"))
        end = min(max(end, begin + 1), begin + CHUNK_ROWS)
        own, first = slice(begin, end), starts[begin]
        data, at, stop = payloads.data[first : ends[end - 1]], starts[own] - first, ends[own] - first
        taken = stop - at
        if len(data) > _SPARSE * (int(taken.sum()) + CHUNK_ROWS):
            data = np.concatenate([data[a:b] for a, b in zip(at.tolist(), stop.tolist(), strict=True)])
            stop = np.cumsum(taken)
            at = stop - taken
        yield np.arange(begin, end), Cursors(data, at, stop, steps_max)
        begin = end
