"""The slow path, which says what is right: record by record, by the rules of ``cells``.

1. Each record becomes one row or one ``Rejected``, which names the first check that failed.
2. An upsert sets every column: absent is null.  A patch sets what it names: ``_present`` has these columns.
3. A delete's value is checked as an upsert's is (so that a full row may be sent); only its primary key is kept.
4. A null value deletes by Kafka key, when a ``key_decoder`` is there to read the primary key from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import Op, RowSchema
from lancewal_ingest.decode.json.cells import CellReader, cell_reader
from lancewal_ingest.decode.json.presence import present_bitmap
from lancewal_ingest.decode.json.strict import parse_object
from lancewal_ingest.decode.operations import op_of, record_bytes
from lancewal_ingest.decode.outcomes import TOO_LARGE, Refusal, Rejected
from lancewal_ingest.decode.part import Part
from lancewal_kafka.records import Records

KeyDecoder = Callable[[bytes], tuple[object, ...] | None]
"""Kafka key -> the primary key's values in ``RowSchema.primary_key`` order, None when it is no key."""


@dataclass(frozen=True, slots=True)
class _Row:
    op: Op
    cells: dict[str, object]
    present: bytes | None


class ReferenceDecoder:
    """Decodes single records; the truth that the columnar path is tested against."""

    def __init__(
        self, rows: RowSchema, *, patches: bool, record_bytes_max: int, key_decoder: KeyDecoder | None
    ) -> None:
        self._rows = rows
        self._patches = patches
        self._record_bytes_max = record_bytes_max
        self._key_decoder = key_decoder
        self._readers: dict[str, CellReader] = {field.name: cell_reader(field.type) for field in rows.columns}

    def decode(self, records: Records, indexes: Iterable[int]) -> tuple[Part, list[Rejected]]:
        """Rows of the records at ``indexes`` (ascending), and those of them that are none."""
        good: list[int] = []
        rows: list[_Row] = []
        rejected: list[Rejected] = []
        for index in indexes:
            try:
                rows.append(self._row(records, index))
            except Refusal as refusal:
                rejected.append(Rejected(records.offsets[index], refusal.kind, str(refusal)))
            else:
                good.append(index)
        columns = [pa.array([row.cells.get(f.name) for row in rows], type=f.type) for f in self._rows.columns]
        part = Part(
            indexes=np.array(good, dtype=np.int64),
            columns=columns,
            ops=pa.array([int(row.op) for row in rows], type=pa.uint8()),
            present=pa.array([row.present for row in rows], type=pa.binary()),
        )
        return part, rejected

    def _row(self, records: Records, index: int) -> _Row:
        key, value, headers = records.keys[index], records.values[index], records.headers[index]
        if record_bytes(key, value, headers) > self._record_bytes_max:
            raise Refusal(TOO_LARGE, f"expected at most {self._record_bytes_max} bytes of key, value and headers")
        named = op_of(headers)
        if named is Op.PATCH and not self._patches:
            raise Refusal("patch_not_allowed", "expected upsert or delete: the table's contract allows no patches")
        if value is None:
            return self._tombstone(named, key)
        op = Op.UPSERT if named is None else named
        members = parse_object(value)
        if not members.keys() <= self._readers.keys():
            raise Refusal("unknown_column", f"expected no members but the columns {list(self._readers)}")
        for name in self._rows.primary_key:
            if members.get(name) is None:
                raise Refusal("missing_key", f"column {name!r}: expected a value, it is in the primary key")
        cells = {name: read(members.get(name), name) for name, read in self._readers.items()}
        match op:
            case Op.UPSERT:
                return _Row(op, cells, None)
            case Op.PATCH:
                return _Row(op, cells, present_bitmap(self._rows, members))
            case Op.DELETE:
                return _Row(op, {name: cells[name] for name in self._rows.primary_key}, None)
            case _:
                assert_never(op)

    def _tombstone(self, named: Op | None, key: bytes | None) -> _Row:
        if named not in (None, Op.DELETE):
            raise Refusal("null_value", "expected a value: only a delete may come without")
        values = self._key_decoder(key) if self._key_decoder is not None and key is not None else None
        if values is None or len(values) != len(self._rows.primary_key) or None in values:
            raise Refusal("null_value", "expected a value: the Kafka key does not give the whole primary key")
        cells = dict(zip(self._rows.primary_key, values, strict=True))
        for name, cell in cells.items():
            try:
                pa.scalar(cell, type=self._rows.columns.field(name).type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                raise Refusal("null_value", f"column {name!r}: the Kafka key does not give a value of it") from None
        return _Row(Op.DELETE, cells, None)
