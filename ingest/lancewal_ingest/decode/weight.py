"""The memory budget: the weight of a consumed record, before it is a row, while it becomes one, and as one.

Guarantees
 1. A record weighs what it takes as it came, or what its row may take, whichever is more.  In the row a column of
    fixed size counts in full, whatever the record says of it (a null vector has the vector's width in Arrow).  Beyond
    that the format of the values says what a row may take (``value_decoder.Growth``).
 2. A weight follows from the record and the contract alone.  What is cut by weight is therefore cut at the same
    records again.
 3. A poll asks for no more records than fit into the room that is left, if each weighs what the worker expects.
    Before the first poll that is what the largest allowed record weighs.  Then it is the mean of the last poll, but
    no less than half of what was expected there.
 4. A segment, and what is decoded at once, weighs at most ``segment_bytes``, or is one record.  What entries take
    beside rows counts for the segment, but for the last.  A generation weighs at most ``policy.GENERATION_BYTES_MAX``
    and a segment.  No column of a batch, or of a generation that is folded, thus comes near the 2 GiB at which
    Arrow's offsets end.
 5. Kafka's client has its own part (``lancewal_kafka.clients``): what it has fetched ahead, and what one answer of
    the broker may unpack to.
 6. What waits, what is in flight (twice: values and text, then rows and segment), OPEN generations, and what flushes
    take, together stop consumption at the budget without that part.

Two things are not bounded by it.  One is a batch of Kafka's that unpacks to more than that part.  Its client unpacks
a batch whole.  It unpacks zstd up to ``receive.message.max.bytes``, which is three quarters of that part.  It unpacks
gzip and lz4 as far as the topic lets them come (``batch_check``).  The other is a batch of a great many records of
few bytes: each takes the client some 320 bytes beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lancewal_core.rows.schema import SYSTEM_FIELDS, RowSchema
from lancewal_ingest.decode.value_decoder import Growth, Weights
from lancewal_kafka.records import Records

RECORD_OVERHEAD = 200
"""Bytes that a consumed record costs beside what is in it: Python objects for value, key, headers and list places."""
_HEADER_OVERHEAD = 200
"""Overhead for each header of a record: a tuple, a text and bytes."""
_FIELD_BYTES = 128
"""Bytes that a column, nested ones too, takes in each entry of a segment beside its values: places of its buffers, and
padding."""


class RecordWeights:
    """Weights of the records of one table."""

    def __init__(self, rows: RowSchema, growth: Growth) -> None:
        bits = sum(slot_bits(field.type) for field in [*rows.columns, *SYSTEM_FIELDS])
        self._row_bytes = -(-bits // 8) + rows.present_bytes
        """Bytes that every row takes, whatever its record holds."""
        self._growth = growth
        self.entry_bytes = _FIELD_BYTES * sum(_fields(field.type) for field in [*rows.columns, *SYSTEM_FIELDS])
        """Bytes that an entry of a segment takes beside its rows."""

    def each(self, records: Records) -> Weights:
        """The weight of each record, in bytes."""
        came = lengths(records.values) + lengths(records.keys) + RECORD_OVERHEAD
        if any(records.headers):
            came += np.fromiter(map(_headers_bytes, records.headers), np.int64, len(records))
        weights: Weights = np.maximum(came, self._row_bytes + self._growth.each(records.values))
        return weights

    def largest(self, record_bytes_max: int) -> int:
        """The weight of a record of ``record_bytes_max``, in its value."""
        return max(record_bytes_max + RECORD_OVERHEAD, self._row_bytes + self._growth.largest(record_bytes_max))

    def fit(self, records: Records, nbytes: int) -> bool:
        """Whether these records together weigh at most ``nbytes`` as rows; cheap to compute."""
        return len(records) * self._row_bytes + int(self._growth.each(records.values).sum()) <= nbytes


def pieces(weights: Weights, nbytes: int) -> list[int]:
    """Return where pieces of at most ``nbytes`` end, each as long as it can be, and of one record at least."""
    sums, ends, begin = np.cumsum(weights), [], 0
    while begin < len(weights):
        before = int(sums[begin - 1]) if begin else 0
        begin = max(begin + 1, int(np.searchsorted(sums, before + nbytes, side="right")))
        ends.append(begin)
    return ends


def lengths(texts: Sequence[bytes | None]) -> Weights:
    """Return the length of each text; 0 where there is none."""
    present = [text or b"" for text in texts] if None in texts else texts
    return np.fromiter(map(len, present), np.int64, len(texts))  # type: ignore[arg-type] # None is replaced


def _headers_bytes(headers: list[tuple[str, bytes | None]] | None) -> int:
    return sum(len(name) + len(value or b"") + _HEADER_OVERHEAD for name, value in headers or ())


def _fields(type_: pa.DataType) -> int:
    return 1 + sum(_fields(type_.field(i).type) for i in range(type_.num_fields))


def slot_bits(type_: pa.DataType) -> int:
    """Bits that each value takes in Arrow, null or not, with the one that says whether it is."""
    if pa.types.is_fixed_size_list(type_):
        return 1 + int(type_.list_size) * slot_bits(type_.value_type)
    if pa.types.is_struct(type_):
        return 1 + sum(slot_bits(child.type) for child in type_)
    if pa.types.is_list(type_) or pa.types.is_string(type_) or pa.types.is_binary(type_):
        return 1 + 32
    return 1 + int(type_.bit_width)
