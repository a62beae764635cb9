"""Decodes consumed records into a WAL batch, columnar where that is safe and record by record where it is not.

1. The result, rows and rejections, is always the one that ``reference`` alone would give.
2. A batch of good records costs about one pass of Arrow's JSON reader.
3. Few bad records cost little: the batch is halved around them down to ``SINGLY_MAX`` records.
4. At once it decodes records that weigh ``PIECE_BYTES`` (``weight``), or, record by record, ``SINGLY_BYTES`` of values: as
   Python objects a value is many times as large.
5. A row that no segment can hold is none: its record is ``too_large``, whatever lies around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import OFFSET, Op, RowSchema, check_row_schema
from lancewal_core.store.object_limits import SEGMENT_ROWS_BYTES_MAX
from lancewal_ingest.decode.json.columnar import ColumnReader, without
from lancewal_ingest.decode.json.hazards import has_decimals, hazardous
from lancewal_ingest.decode.json.presence import PresenceReader
from lancewal_ingest.decode.json.reference import KeyDecoder, ReferenceDecoder
from lancewal_ingest.decode.json.types import check_json_types
from lancewal_ingest.decode.operations import OP_HEADER, OPS, Headers, op_of, record_bytes
from lancewal_ingest.decode.outcomes import TOO_LARGE, Decoded, Refusal, Rejected
from lancewal_ingest.decode.part import Part, assemble
from lancewal_ingest.decode.weight import RecordWeights, pieces
from lancewal_kafka.records import Records

SINGLY_MAX = 64
"""A part of at most this many records that Arrow refuses is decoded record by record."""

PIECE_BYTES = 32 << 20
"""As much as a segment takes: what is in one is decoded in one piece."""
SINGLY_BYTES = 1 << 20
ROW_BYTES_MAX = SEGMENT_ROWS_BYTES_MAX
"""A larger row fits into no segment."""

_ASIDE = 255
"""Instead of an ``Op``: the reference path decides."""

_UPSERT = int(Op.UPSERT)

_PLAIN_HEADER = {(OP_HEADER, name): int(op) for name, op in OPS.items()}
_PLAIN_HEADER_BYTES = max(record_bytes(None, None, [header]) for header in _PLAIN_HEADER)


class Decoder:
    """Decoder of one table's JSON values.

    ``key_decoder`` gives the primary key's values for a Kafka key; None when the Kafka key does not hold all of it.
    Raises ``SchemaError`` for columns that have no JSON form.
    """

    def __init__(
        self, rows: RowSchema, *, patches: bool, record_bytes_max: int, key_decoder: KeyDecoder | None
    ) -> None:
        check_row_schema(rows)
        check_json_types(rows.columns)
        self._rows = rows
        self._patches = patches
        self._record_bytes_max = record_bytes_max
        self._columns = ColumnReader(rows)
        self._decimals = any(has_decimals(field.type) for field in rows.columns)
        self._presence = PresenceReader(rows)
        self._weights = RecordWeights(rows)
        self._reference = ReferenceDecoder(
            rows, patches=patches, record_bytes_max=record_bytes_max, key_decoder=key_decoder
        )
        self.columnar_records = 0
        """Records that took the fast path so far."""
        self.single_records = 0
        """Records that were decoded one by one so far, bad ones included."""

    def decode(self, records: Records) -> Decoded:
        """Rows and rejected records of ``records``, both in offset order."""
        ops = self._ops(records)
        together = np.flatnonzero(ops != _ASIDE)
        singly = np.flatnonzero(ops == _ASIDE).tolist()
        parts: list[Part] = []
        ahead = self._pieces(records, together)
        while ahead:
            indexes = ahead.pop()
            part, doubtful = self._part(records, indexes, ops)
            if part is not None:
                parts.append(part)
                singly.extend(doubtful)
            elif len(indexes) <= SINGLY_MAX:
                singly.extend(indexes.tolist())
            else:
                middle = len(indexes) // 2
                ahead += [indexes[:middle], indexes[middle:]]
        rejected: list[Rejected] = []
        singly.sort()
        for few in _singly_pieces(records, singly) or ([] if parts else [[]]):
            part, refused = self._reference.decode(records, few)
            parts.append(part)
            rejected += refused
        self.single_records += len(singly)
        self.columnar_records += len(records) - len(singly)
        rows = assemble(self._rows, records, parts)
        if rows.nbytes > ROW_BYTES_MAX // 2:
            rows, large = _without_large(rows)
            rejected = sorted([*rejected, *large], key=lambda letter: letter.offset)
        return Decoded(rows, tuple(rejected))

    def _pieces(self, records: Records, indexes: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        if len(indexes) == 0 or self._weights.fit(records, PIECE_BYTES):
            return [indexes] if len(indexes) else []
        return np.split(indexes, pieces(self._weights.each(records)[indexes], PIECE_BYTES)[:-1])

    def _ops(self, records: Records) -> npt.NDArray[np.uint8]:
        """Each record's ``Op``, or ``_ASIDE`` for what is not plainly a value with an operation."""
        if any(records.headers):
            ops = np.array(_plain_ops(records.headers), dtype=np.uint8)
            for index in np.flatnonzero(ops == _ASIDE).tolist():
                ops[index] = self._op_of_many(records, index)
            if not self._patches:
                ops[ops == Op.PATCH] = _ASIDE
        else:
            ops = np.zeros(len(records), dtype=np.uint8)
        if None in records.values:
            ops[[value is None for value in records.values]] = _ASIDE
        if self._may_be_too_large(records):
            sizes = map(record_bytes, records.keys, records.values, records.headers)
            ops[[size > self._record_bytes_max for size in sizes]] = _ASIDE
        if self._decimals:
            ops[hazardous(records.values)] = _ASIDE
        return ops

    def _op_of_many(self, records: Records, index: int) -> int:
        headers = records.headers[index]
        if record_bytes(records.keys[index], records.values[index], headers) > self._record_bytes_max:
            return _ASIDE
        try:
            op = op_of(headers)
        except Refusal:
            return _ASIDE
        return int(Op.UPSERT if op is None else op)

    def _may_be_too_large(self, records: Records) -> bool:
        # A bound that is cheap for small keys: all of them together.  Longer headers went through _op_of_many.
        keys = len(b"".join(filter(None, records.keys)))
        value = max(map(len, filter(None, records.values)), default=0)
        return keys + value + _PLAIN_HEADER_BYTES > self._record_bytes_max

    def _part(
        self, records: Records, indexes: npt.NDArray[np.int64], ops: npt.NDArray[np.uint8]
    ) -> tuple[Part | None, list[int]]:
        """Rows of the records at ``indexes``, and the indexes that stay doubtful.  None: split and try again."""
        whole = len(indexes) == len(records)
        # Null values went aside.
        values = cast("list[bytes]", records.values if whole else [records.values[i] for i in indexes.tolist()])
        columns = self._columns.read(values)
        if columns is None:
            return None, []
        ops = ops[indexes]
        arrays = self._only_keys(columns.arrays, ops == Op.DELETE)
        patches = ops == Op.PATCH
        if patches.any():
            present = self._presence.read(columns.arrays, patches, values)
        else:
            present = pa.nulls(len(indexes), pa.binary())
        if columns.doubtful is None:
            return Part(indexes, arrays, pa.array(ops), present), []
        kept = without([*arrays, pa.array(ops), present], columns.doubtful)
        part = Part(indexes[~columns.doubtful], kept[:-2], kept[-2], kept[-1])
        return part, indexes[columns.doubtful].tolist()

    def _only_keys(self, arrays: Sequence[pa.Array], deletes: npt.NDArray[np.bool_]) -> Sequence[pa.Array]:
        if not deletes.any():
            return arrays
        places = pa.array(np.arange(len(deletes)), mask=deletes)
        names = self._rows.columns.names
        keys = self._rows.primary_key
        return [a if name in keys else a.take(places) for name, a in zip(names, arrays, strict=True)]


def _without_large(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Rejected]]:
    """``rows`` without those that are larger than ``ROW_BYTES_MAX``, and these as rejected records."""
    sizes = [pa.ipc.get_record_batch_size(rows.slice(place, 1)) for place in range(rows.num_rows)]
    fits = np.array(sizes) <= ROW_BYTES_MAX
    expected = f"expected a record whose row takes at most {ROW_BYTES_MAX} bytes"
    offsets = rows.column(OFFSET).filter(pa.array(~fits)).to_pylist()
    return rows.filter(pa.array(fits)), [Rejected(offset, TOO_LARGE, expected) for offset in offsets]


def _singly_pieces(records: Records, indexes: list[int]) -> list[list[int]]:
    """``indexes`` in pieces of at most ``SINGLY_BYTES`` of values."""
    if not indexes:
        return []
    sizes = np.array([len(records.values[index] or b"") for index in indexes])
    ends = pieces(sizes, SINGLY_BYTES)
    return [indexes[begin:end] for begin, end in pairwise([0, *ends])]


def _plain_ops(of_records: Sequence[Headers]) -> list[int]:
    """The operation where there is no header but ``lancewal.op``, else ``_ASIDE``."""
    # One comprehension without calls of Python code: it runs for every record.
    plain = _PLAIN_HEADER.get
    return [
        _UPSERT if not headers else plain(headers[0], _ASIDE) if len(headers) == 1 else _ASIDE for headers in of_records
    ]
