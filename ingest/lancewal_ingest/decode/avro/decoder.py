"""Avro as a format of framed values: columnar, and datum by datum where that cannot decide.

Guarantees, beside those of ``payloads``
 1. Rows and refusals are those that ``strict`` alone would give.
 2. A chunk has at most ``CHUNK_ROWS`` datums, and at most ``CHUNK_BYTES`` or one datum.  So temporaries stay small.
 3. Columns without a field in the writer schema are null, or have their default in an upsert.  A field that is null gives
    null.
 4. An Avro datum has all fields of its schema, so it tells nothing about the columns of a patch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.avro.assembly import array_of
from lancewal_ingest.decode.avro.columnar import STEPS_MAX, read_columns
from lancewal_ingest.decode.avro.cursors import Cursors
from lancewal_ingest.decode.avro.growth import growth_of
from lancewal_ingest.decode.avro.mapping import mapped
from lancewal_ingest.decode.avro.schema import named, parse_schema
from lancewal_ingest.decode.avro.strict import read_datum
from lancewal_ingest.decode.framed.payloads import Payloads, check_record
from lancewal_ingest.decode.json.defaults import Defaults
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import DecodedValues, Ops, RefusedValue
from lancewal_ingest.decode.weight import pieces

CHUNK_ROWS = 16384
CHUNK_BYTES = 1 << 20
SINGLY_BYTES = 1 << 20
"""Bytes of datums that are decoded one by one at a time, because Python values take many times the bytes."""
_SPARSE = 4
"""Payloads that are less than one of so many bytes are copied together first."""


class AvroFormat:
    """``FramedFormat`` of Avro."""

    name = "Avro"
    paths = False
    schemas_have_fields = True

    def __init__(self, rows: RowSchema, naming: Naming) -> None:
        self._rows = rows
        self._naming = naming
        self.columns: Sequence[str] = naming.in_values(rows.called(naming.fields)).columns.names
        Defaults(rows.called(naming.fields), naming)  # a default that is not valid is an error before the first schema

    def decoder(self, schema: WriterSchema, path: tuple[int, ...]) -> AvroPayloads:
        return AvroPayloads(schema, self._rows, self._naming)


class AvroPayloads:
    """``PayloadDecoder`` of Avro.  ``SchemaUnusable``: see ``FramedFormat.decoder``."""

    tells_presence = False

    def __init__(self, schema: WriterSchema, rows: RowSchema, naming: Naming) -> None:
        self._rows = rows.called(naming.fields)
        writer = parse_schema(schema)
        check_record(named(writer), naming)
        self._mapped = mapped(writer, self._rows, naming)
        self._held = frozenset(place for _, place in self._mapped.members if place is not None)
        self.unknown: Sequence[str] = tuple(self._mapped.unknown)
        names = self._rows.columns.names
        self.fills: Collection[str] = frozenset(names[place] for place in self._held)
        defaults = Defaults(self._rows, naming)
        self._defaults = {
            names.index(name): pa.array([cell], self._rows.columns.field(name).type)
            for name, cell in defaults.cells.items()
        }
        self.growth = growth_of(self._mapped.members, defaults.nbytes)
        columns = {present: column for column, present in naming.fields.items()}
        self._keys = {names.index(key): columns.get(key, key) for key in self._rows.primary_key}
        self.single_records = 0
        """Number of datums that were decoded one by one so far, bad ones included."""

    def decode(self, payloads: Payloads, ops: Ops) -> DecodedValues:
        count = len(payloads.starts)
        if self._mapped.refusal is not None:
            refused = [_refused(place, self._mapped.refusal) for place in range(count)]
            return DecodedValues([], refused, {}, dict(self._mapped.new_fields))
        parts: list[DecodedPart] = []
        singly: list[npt.NDArray[np.int64]] = []
        for chosen, cursors in _chunks(payloads):
            columns = read_columns(self._mapped.members, cursors)
            doubtful = cursors.doubtful
            for key in self._keys:
                if columns[key].null_count:
                    doubtful |= columns[key].is_null().to_numpy(zero_copy_only=False)
            if doubtful.any():
                singly.append(chosen[doubtful])
                kept = pa.array(~doubtful)
                columns = {place: column.filter(kept) for place, column in columns.items()}
                chosen = chosen[~doubtful]
            if len(chosen):
                parts.append(self._part(chosen, columns, ops[chosen]))
        refused = []
        if singly:
            found, refused = self._singly(payloads, np.concatenate(singly), ops)
            parts += found
        rows = sum(len(part.indexes) for part in parts)
        used = {name: times * rows for name, times in Counter(self._mapped.used).items()} if rows else {}
        return DecodedValues(parts, refused, used)

    def _singly(
        self, payloads: Payloads, places: npt.NDArray[np.int64], ops: Ops
    ) -> tuple[list[DecodedPart], list[RefusedValue]]:
        """Decode datums one by one."""
        parts: list[DecodedPart] = []
        refused: list[RefusedValue] = []
        self.single_records += len(places)
        ends = pieces(payloads.ends[places] - payloads.starts[places], SINGLY_BYTES)
        for begin, end in pairwise([0, *ends]):
            good: list[int] = []
            rows: list[Mapping[int, Any]] = []
            for place in places[begin:end].tolist():
                data = payloads.data[payloads.starts[place] : payloads.ends[place]].tobytes()
                try:
                    rows.append(read_datum(self._mapped.members, data, self._keys))
                    good.append(place)
                except Refusal as refusal:
                    refused.append(_refused(place, refusal))
            if not good:
                continue
            types = self._rows.columns.types
            columns = {place: array_of([row[place] for row in rows], types[place]) for place in self._held}
            parts.append(self._part(np.array(good, np.int64), columns, ops[good]))
        return parts, refused

    def _part(self, indexes: npt.NDArray[np.int64], columns: Mapping[int, pa.Array], ops: Ops) -> DecodedPart:
        """Return the rows of ``indexes``, which have these columns and operations."""
        arrays = [
            columns[place] if place in columns else self._missing(place, ops)
            for place in range(len(self._rows.columns))
        ]
        return DecodedPart(indexes, arrays, pa.array(ops), pa.nulls(len(indexes), pa.binary()))

    def _missing(self, place: int, ops: Ops) -> pa.Array:
        """Return the cells of a column without a field."""
        default = self._defaults.get(place)
        nothing = pa.nulls(1, self._rows.columns.field(place).type)
        if default is None:
            return nothing.take(pa.array(np.zeros(len(ops), np.int64)))
        return pa.concat_arrays([nothing, default]).take(pa.array((ops == Op.UPSERT).astype(np.int64)))


def _refused(place: int, refusal: Refusal) -> RefusedValue:
    return RefusedValue(place, refusal.kind, str(refusal), refusal.found)


def _chunks(payloads: Payloads) -> Iterator[tuple[npt.NDArray[np.int64], Cursors]]:
    """Yield the places of payloads, chunk by chunk, with their cursors."""
    starts, ends = payloads.starts, payloads.ends
    begin = 0
    while begin < len(starts):
        end = int(np.searchsorted(ends, starts[begin] + CHUNK_BYTES, side="right"))
        end = min(max(end, begin + 1), begin + CHUNK_ROWS)
        own, first = slice(begin, end), starts[begin]
        data, at, stop = payloads.data[first : ends[end - 1]], starts[own] - first, ends[own] - first
        taken = stop - at
        if len(data) > _SPARSE * (int(taken.sum()) + CHUNK_ROWS):
            data = np.concatenate([data[a:b] for a, b in zip(at.tolist(), stop.tolist(), strict=True)])
            stop = np.cumsum(taken)
            at = stop - taken
        yield np.arange(begin, end), Cursors(data, at, stop, STEPS_MAX)
        begin = end
