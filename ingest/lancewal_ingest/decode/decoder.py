"""Decode consumed records into a WAL batch, whatever the format of their values.

1. Each record is one row, one ``Rejected``, or is passed over.  A ``Rejected`` names the first check that failed.
   The order is: size, headers, operation, whether the record needs a value, and then the checks of the format
   (``value_decoder``).  Only the format passes records over.
2. A record without a value deletes the row of its Kafka key, if ``record_keys`` says which row that is.  A value that
   says that it is a delete has the same effect.
3. A row is refused if its Kafka key is that of another row, or has a form that the contract does not list
   (``record_keys``).
4. A delete keeps only the values of the primary key.
5. The format gets records of at most ``PIECE_BYTES`` at a time, by their weight (``weight``).
6. A record whose row is too large for any segment is rejected as ``too_large``, whatever its neighbours are.
7. Columns of metadata are filled from each record (``metadata``), and a format gets the headers that it names.
8. No Python function is called for a single record whose only header that counts is ``lancewal.op`` (``headers``).

Records of several regions may come together: the result for a record does not depend on its neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import Op, RowSchema, check_row_schema
from lancewal_core.store.object_kinds import SEGMENT_ROWS_BYTES_MAX
from lancewal_ingest.decode.headers import ASIDE, HeaderColumns
from lancewal_ingest.decode.metadata import MetadataColumns, Partitions
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.decode.operations import OP_HEADER, op_of, record_bytes
from lancewal_ingest.decode.outcomes import KEY_FORM, TOO_LARGE, WRONG_FORMAT, Decoded, Refusal, Rejected
from lancewal_ingest.decode.part import DecodedPart, assemble
from lancewal_ingest.decode.record_keys import Cells, GivenKeys, RecordKeys, Wrong
from lancewal_ingest.decode.value_decoder import DecodedValues, NamedBy, Ops, Places, RefusedValue, ValueDecoder, joined
from lancewal_ingest.decode.weight import PIECE_BYTES, RecordWeights, split
from lancewal_kafka.records import Records

ROW_BYTES_MAX = SEGMENT_ROWS_BYTES_MAX
"""Largest row in bytes.  A larger row does not fit into any segment."""
_NO_KEY = (
    "expected a record key, without which no delete can say what it deletes. A source table without a primary key has none: "
    "give it one, or set message.key.columns in the connector"
)


class Decoder:
    """Decoder of one table's records.

    ``keys``: reader of the Kafka keys, or None if keys do not identify rows.  ``metadata``: filler of the columns that
    come from Kafka's metadata, or None if the table has no such column.
    """

    def __init__(
        self,
        rows: RowSchema,
        values: ValueDecoder,
        *,
        patches: bool,
        record_bytes_max: int,
        keys: RecordKeys | None,
        metadata: MetadataColumns | None = None,
    ) -> None:
        check_row_schema(rows)
        self._metadata = metadata or None
        self.weights = RecordWeights(rows, values.growth, self._metadata, None if keys is None else keys.growth)
        self._rows = rows
        self._values = values
        self._patches = patches
        self._record_bytes_max = record_bytes_max
        self._keys = keys
        self.names_schemas = values.names_schemas or (keys is not None and keys.names_schemas)
        """Whether values or keys name the schemas that they were written under."""
        self.schemas_have_fields = values.schemas_have_fields
        """Whether the schemas of values list fields, as those of Avro and Protobuf do."""

    def decode(self, records: Records, lies: Partitions | None = None) -> Decoded:
        """Return the rows and the rejections of ``records``, and the counts of records that are passed over.  The
        records may be of several regions.

        ``lies``: the partition in which each record lies.  None: no result depends on it, since no column holds the
        partition, and no schema has several versions.
        """
        headers = HeaderColumns(records.headers)
        # Twice as fast as pa.array over the list.
        offsets = np.fromiter(records.offsets, np.int64, len(records))
        timestamps = np.fromiter(records.timestamps, np.int64, len(records))
        places = Places(np.zeros(len(records), np.int32) if lies is None else lies, offsets)
        rejected: dict[int, Rejected] = {}
        ops, without_row = self._ops(records, headers, rejected)
        values = self._decoded(records, headers, ops, places)
        rejected |= {one.place: self._refused(records, one) for one in values.refused}
        is_row = np.ones(len(records), dtype=np.bool_)
        for passed in values.passed_over.values():
            is_row[passed] = False
        other_names = Counter(values.other_names)
        parts = list(map(self._only_keys, self._with_metadata(values.parts, records, headers, places, other_names)))
        keys = GivenKeys(records.keys)
        if self._keys is not None:
            keys = GivenKeys(records.keys, headers.lasts(self._keys.headers), places)
        deleted = self._deleted(keys, sorted([*without_row, *values.deletes.tolist()]), records, rejected)
        if deleted:
            parts.append(self._deletes(deleted))
        rows = assemble(self._rows, offsets, timestamps, parts)
        is_row[list(rejected)] = False
        if self._keys is not None and rows.num_rows:
            at = np.flatnonzero(is_row)
            given = keys if is_row.all() else keys.some(at)
            wrong = {int(at[place]): why for place, why in self._wrong_keys(self._keys, given, rows).items()}
            rejected |= {index: _rejected(records, index, why) for index, why in wrong.items()}
            if wrong:
                is_row[list(wrong)] = False
                rows = rows.filter(pa.array(is_row[at]))
        if rows.nbytes > ROW_BYTES_MAX // 2:
            fits = _fitting(rows)
            large = np.flatnonzero(is_row)[~fits].tolist()
            why = Refusal(TOO_LARGE, f"expected a record whose row takes at most {ROW_BYTES_MAX} bytes")
            rejected |= {index: _rejected(records, index, why) for index in large}
            is_row[large] = False
            rows = rows.filter(pa.array(fits))
        is_rejected = np.zeros(len(records), dtype=np.bool_)
        is_rejected[list(rejected)] = True
        in_order = tuple(rejected[index] for index in sorted(rejected))
        passed_over = {kind: len(passed) for kind, passed in values.passed_over.items()}
        return Decoded(
            rows, is_row, in_order, is_rejected, other_names, values.new_fields, passed_over, values.changed_ms
        )

    def schemas_of(self, records: Records) -> Sequence[NamedBy]:
        """Return the schemas that the values and keys of records name, each with the indexes of its records."""
        headers = HeaderColumns(records.headers)
        found = [*self._values.schemas_of(records.values, headers.lasts(self._values.headers))]
        if self._keys is not None and self._keys.names_schemas:
            found += self._keys.schemas_of(records.keys, headers.lasts(self._keys.headers))
        return found

    def _ops(self, records: Records, headers: HeaderColumns, rejected: dict[int, Rejected]) -> tuple[Ops, list[int]]:
        """Return each record's ``Op``, and the indexes of the records that have no value and so delete the row of
        their key.

        The format gets no value of a record whose ``Op`` is ``ASIDE``.  Bad records are added to ``rejected``.
        """
        ops, without_value = self._plain_ops(records, headers), list[int]()
        for index in np.flatnonzero(ops == ASIDE).tolist():
            try:
                op = self._op(records, index)
            except Refusal as refusal:
                rejected[index] = _rejected(records, index, refusal)
                continue
            if op is None:
                without_value.append(index)
            else:
                ops[index] = op
        return ops, without_value

    def _decoded(self, records: Records, headers: HeaderColumns, ops: Ops, places: Places) -> DecodedValues:
        """Decode the values with the format, piece by piece, and return the joined results."""
        named = headers.lasts(self._values.headers)
        results = [DecodedValues([], [])]
        for indexes in self._pieces(records, np.flatnonzero(ops != ASIDE)):
            if len(indexes) == len(records):  # nearly always: nothing is copied
                results.append(self._values.decode(cast("list[bytes]", records.values), ops, named, places))
                continue
            # Null values went aside.
            values = cast("list[bytes]", [records.values[index] for index in indexes.tolist()])
            taken = {name: array.take(pa.array(indexes)) for name, array in named.items()}
            results.append(self._values.decode(values, ops[indexes], taken, places.of(indexes)).at(indexes))
        return joined(results)

    def _with_metadata(
        self,
        parts: Sequence[DecodedPart],
        records: Records,
        headers: HeaderColumns,
        places: Places,
        counts: Counter[OtherName],
    ) -> Sequence[DecodedPart]:
        if self._metadata is None:
            return parts
        filled = self._metadata.arrays(records, headers, places.partitions)
        return [self._metadata.fill(part, filled, counts) for part in parts]

    def _refused(self, records: Records, refused: RefusedValue) -> Rejected:
        offset, value = records.offsets[refused.place], records.values[refused.place] or b""
        other = self._values.other_format(value, records.headers[refused.place])
        if other is not None:
            return Rejected(offset, WRONG_FORMAT, other)
        return Rejected(offset, refused.kind, refused.message, refused.found)

    def _pieces(self, records: Records, indexes: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        if len(indexes) == 0 or self.weights.fit(records, PIECE_BYTES):
            return [indexes] if len(indexes) else []
        return split(indexes, self.weights.each(records)[indexes], PIECE_BYTES)

    def _plain_ops(self, records: Records, headers: HeaderColumns) -> Ops:
        """Return each record's ``Op``; ``ASIDE`` if its headers need a look, it has no value, or may be too large."""
        ops = headers.ops(named=not self._values.tells_operations)
        if not self._patches:
            ops[ops == Op.PATCH] = ASIDE
        if None in records.values:
            ops[[value is None for value in records.values]] = ASIDE
        if self._may_be_too_large(records, headers):
            sizes = map(record_bytes, records.keys, records.values, records.headers)
            ops[[size > self._record_bytes_max for size in sizes]] = ASIDE
        return ops

    def _may_be_too_large(self, records: Records, headers: HeaderColumns) -> bool:
        # A bound that is cheap for small keys: all of them together.
        keys = len(b"".join(filter(None, records.keys)))
        value = max(map(len, filter(None, records.values)), default=0)
        return keys + value + headers.longest() > self._record_bytes_max

    def _op(self, records: Records, index: int) -> Op | None:
        """Return the record's operation; None if it has no value and may delete the row of its key.  Raises ``Refusal``."""
        key, value, headers = records.keys[index], records.values[index], records.headers[index]
        if record_bytes(key, value, headers) > self._record_bytes_max:
            raise Refusal(TOO_LARGE, f"expected at most {self._record_bytes_max} bytes of key, value and headers")
        named = op_of(headers, self._values.headers)
        if named is not None and self._values.tells_operations:
            raise Refusal("unknown_op", f"expected no header {OP_HEADER}: the value itself names its operation")
        if named is Op.PATCH and not self._patches:
            raise Refusal("patch_not_allowed", "expected upsert or delete: the table's contract allows no patches")
        if value is not None:
            return Op.UPSERT if named is None else named
        if named not in (None, Op.DELETE):
            raise Refusal("null_value", "expected a value: only a delete may have none")
        return None

    def _deleted(
        self, keys: GivenKeys, indexes: Sequence[int], records: Records, rejected: dict[int, Rejected]
    ) -> dict[int, Cells]:
        """Return the primary keys that the records at ``indexes`` delete, and add those that delete none to ``rejected``."""
        found = dict[int, Cells]()
        if not indexes:
            return found
        given = keys.some(np.array(indexes, np.int64))
        each = [None] * len(indexes) if self._keys is None else self._keys.deleted(given)
        for index, cells in zip(indexes, each, strict=True):
            refusal = cells if isinstance(cells, Refusal) else self._no_delete(cells)
            if records.keys[index] is None and self._values.tells_operations:
                refusal = Refusal(KEY_FORM, _NO_KEY)
            if refusal is not None:
                rejected[index] = _rejected(records, index, refusal)
            elif isinstance(cells, tuple):
                found[index] = cells
        return found

    def _no_delete(self, cells: Cells | None) -> Refusal | None:
        """Return why these cells are not a primary key; None if they are one."""
        if cells is None or len(cells) != len(self._rows.primary_key) or None in cells:
            return Refusal("null_value", "expected a value: the Kafka key does not give the whole primary key")
        for name, cell in zip(self._rows.primary_key, cells, strict=True):
            try:
                pa.scalar(cell, type=self._rows.columns.field(name).type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                return Refusal("null_value", f"column {name!r}: the Kafka key does not give a valid value")
        return None

    def _wrong_keys(self, reader: RecordKeys, given: GivenKeys, rows: pa.RecordBatch) -> Wrong:
        """Return the refusals of keys that do not match their rows, by index.  A missing key is refused too if values
        tell operations.
        """
        wrong = reader.wrong(given, rows)
        if not self._values.tells_operations or None not in given.keys:
            return wrong
        return {**wrong, **{place: Refusal(KEY_FORM, _NO_KEY) for place, key in enumerate(given.keys) if key is None}}

    def _deletes(self, keys: dict[int, Cells]) -> DecodedPart:
        """Return rows that delete the primary keys in ``keys``, by index of the record."""
        by_name = dict(zip(self._rows.primary_key, zip(*keys.values(), strict=True), strict=True))
        absent = [None] * len(keys)
        return DecodedPart(
            indexes=np.array(list(keys), dtype=np.int64),
            columns=[pa.array(by_name.get(field.name, absent), type=field.type) for field in self._rows.columns],
            ops=pa.array([int(Op.DELETE)] * len(keys), type=pa.uint8()),
            present=pa.nulls(len(keys), pa.binary()),
        )

    def _only_keys(self, part: DecodedPart) -> DecodedPart:
        deletes = part.ops.to_numpy() == Op.DELETE
        if not deletes.any():
            return part
        places = pa.array(np.arange(len(deletes)), mask=deletes)
        named = zip(self._rows.columns.names, part.columns, strict=True)
        return replace(part, columns=[a if name in self._rows.primary_key else a.take(places) for name, a in named])


def _rejected(records: Records, index: int, refusal: Refusal) -> Rejected:
    return Rejected(records.offsets[index], refusal.kind, str(refusal), refusal.found)


def _fitting(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return for each row whether it takes at most ``ROW_BYTES_MAX``."""
    sizes = [pa.ipc.get_record_batch_size(rows.slice(place, 1)) for place in range(rows.num_rows)]
    return np.array(sizes) <= ROW_BYTES_MAX
