"""Weight of a consumed record: an upper bound of its bytes in memory, as consumed, while it is decoded, and as a row.

Guarantees
 1. The weight is the size of the consumed record or of its row, whichever is more.  In the row, a column of fixed size
    counts in full, whatever the record holds (a null vector has the vector's width in Arrow).  For all other columns
    the format of the values gives a bound (``value_decoder.Growth``).
 2. A weight depends only on the record and the contract.  So records that are read again are divided into the same
    pieces by weight.
 3. A poll asks for no more records than fit into the room that is left, if each has the weight that the worker
    expects.  Before the first poll that is the weight of the largest allowed record.  Then it is the mean of the last
    poll, but no less than half of the weight expected there.
 4. A segment, and the records decoded at once, weigh at most ``segment_bytes``, or are one record.  The bytes that
    entries take in addition to rows count for the segment, except for the last entry.  A generation weighs at most
    ``policy.GENERATION_BYTES_MAX`` and a segment.  Thus no column of a batch, or of a folded generation, comes near
    the 2 GiB at which Arrow's offsets end.
 5. Kafka's client has a share of its own (``lancewal_kafka.clients``): for records fetched ahead, and for one unpacked
    answer of the broker.
 6. Consumption stops when the rest of the budget is full.  Waiting records, records in flight (twice: values and text,
    then rows and segment), OPEN generations and flushes count.

The budget does not bound two things.  One is a batch that unpacks to more than the share of Kafka's client, which
unpacks a batch whole.  The client unpacks zstd up to ``receive.message.max.bytes``, three quarters of its share.  It
unpacks gzip and lz4 to any size that the topic allows (``batch_check``).  The other is a batch of very many small
records: each takes about 320 bytes more in the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import SYSTEM_FIELDS, RowSchema
from lancewal_ingest.decode.headers import HeaderColumns
from lancewal_ingest.decode.value_decoder import Growth, Indexes, Weights
from lancewal_kafka.records import Records

PIECE_BYTES = 32 << 20
"""Weight in bytes of the records that are decoded in one piece: as much as a segment takes."""
RECORD_OVERHEAD = 200
"""Bytes of a consumed record in addition to its content: Python objects for value, key and headers, and list slots."""
_HEADER_OVERHEAD = 200
"""Bytes of each header in addition to its content, as the client gives it: a tuple, a string and a bytes object."""
_FIELD_BYTES = 128
"""Bytes of a column, or of a nested one, in each entry of a segment in addition to its values: buffer descriptors and
padding."""


class Metadata(Protocol):
    """Bounds of the memory that columns of metadata take in rows, in addition to their slots of fixed size."""

    def growth(self, records: Records, headers: HeaderColumns | None) -> Weights | int: ...

    def largest(self, record_bytes_max: int) -> int: ...


class RecordWeights:
    """Computes the weights of the records of one table."""

    def __init__(
        self, rows: RowSchema, growth: Growth, metadata: Metadata | None = None, keys: Growth | None = None
    ) -> None:
        """``keys``: growth of the rows that records without a value delete; None if such rows take no more memory than
        their keys.
        """
        bits = sum(slot_bits(field.type) for field in [*rows.columns, *SYSTEM_FIELDS])
        self.row_bytes = -(-bits // 8) + rows.present_bytes
        """Bytes of the slots of fixed size, which every row takes whatever its record holds."""
        self._growth = growth
        self._metadata = metadata
        self._keys = keys
        self.entry_bytes = _FIELD_BYTES * sum(_fields(field.type) for field in [*rows.columns, *SYSTEM_FIELDS])
        """Bytes that an entry of a segment takes in addition to its rows."""

    def each(self, records: Records) -> Weights:
        """Return the weight of each record, in bytes."""
        came = lengths(records.values) + lengths(records.keys) + RECORD_OVERHEAD
        headers = _headers(records)
        if headers is not None:
            came += headers.sizes(_HEADER_OVERHEAD)
        weights: Weights = np.maximum(came, self.row_bytes + self._grown(records, headers))
        return weights

    def largest(self, record_bytes_max: int) -> int:
        """Return an upper bound of the weight, in bytes, of a record of at most ``record_bytes_max``.  The overhead
        of headers is not in it.
        """
        grown = max(each.largest(record_bytes_max) for each in (self._growth, self._keys) if each is not None)
        grown += 0 if self._metadata is None else self._metadata.largest(record_bytes_max)
        return max(record_bytes_max + RECORD_OVERHEAD, self.row_bytes + grown)

    def fit(self, records: Records, nbytes: int) -> bool:
        """Return whether these records become rows of at most ``nbytes`` together.  This is cheaper than ``each``."""
        wanted = self._metadata is not None or self._growth.headers or self._keys is not None
        headers = _headers(records) if wanted else None
        return len(records) * self.row_bytes + int(self._grown(records, headers).sum()) <= nbytes

    def _grown(self, records: Records, headers: HeaderColumns | None) -> Weights:
        named = {} if headers is None else headers.lasts(self._growth.headers)
        grown = self._growth.each(records.values, named)
        if self._keys is not None and None in records.values:
            named = {} if headers is None else headers.lasts(self._keys.headers)
            deletes = np.array([value is None for value in records.values])
            grown = np.where(deletes, self._keys.each(records.keys, named), grown)
        return grown if self._metadata is None else grown + self._metadata.growth(records, headers)


def _headers(records: Records) -> HeaderColumns | None:
    """Return the headers of the records; None if no record has any."""
    return HeaderColumns(records.headers) or None


def pieces(weights: Weights, nbytes: int) -> list[int]:
    """Divide records into pieces that weigh at most ``nbytes``, and return the end index of each piece.

    Each piece is as long as possible.  It has at least one record, even one that weighs more than ``nbytes``.
    """
    sums, ends, begin = np.cumsum(weights), [], 0
    while begin < len(weights):
        before = int(sums[begin - 1]) if begin else 0
        begin = max(begin + 1, int(np.searchsorted(sums, before + nbytes, side="right")))
        ends.append(begin)
    return ends


def split(places: Indexes, weights: Weights, nbytes: int) -> list[Indexes]:
    """Return ``places``, at least one, divided into ``pieces`` by their weights."""
    return np.split(places, pieces(weights, nbytes)[:-1])


def lengths(texts: Sequence[bytes | None]) -> Weights:
    """Return the length in bytes of each text; 0 for None."""
    present = [text or b"" for text in texts] if None in texts else texts
    return np.fromiter(map(len, present), np.int64, len(texts))  # type: ignore[arg-type] # None is replaced


def _fields(type_: pa.DataType) -> int:
    return 1 + sum(_fields(type_.field(i).type) for i in range(type_.num_fields))


def slot_bits(type_: pa.DataType) -> int:
    """Return the bits that each value takes in Arrow at a fixed size, null or not, including its validity bit."""
    if pa.types.is_fixed_size_list(type_):
        return 1 + int(type_.list_size) * slot_bits(type_.value_type)
    if pa.types.is_struct(type_):
        return 1 + sum(slot_bits(child.type) for child in type_)
    if pa.types.is_list(type_) or pa.types.is_map(type_) or pa.types.is_string(type_) or pa.types.is_binary(type_):
        return 1 + 32
    if pa.types.is_large_string(type_) or pa.types.is_large_binary(type_):
        return 1 + 64
    return 1 + int(type_.bit_width)
