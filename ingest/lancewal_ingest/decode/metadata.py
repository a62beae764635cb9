"""Columns that are filled from Kafka's metadata of each record (``Column.metadata``).

Columns from the envelope of values are filled elsewhere (``envelopes.event_rows``).  Here they only count for patches
and growth.

1. A cell follows from the record alone: its topic's name, partition, offset, time, key and headers.  So a record that
   is read again gives the same cell, in whatever batch it comes.
2. An upsert and a patch set these columns.  The bitmap of a patch (``DecodedPart.present``) has them.  A delete sets
   none.
3. Of several headers of one name the last one counts, as for Kafka's ``Headers.lastHeader``.  A record without the
   header, without a key or without a time gives null.  (Kafka's time of such a record is -1.)  A time after the year
   9999, which Python and JSON do not hold, gives null too: a producer may have given microseconds.
4. A key or header that a string column cannot hold, since it is not UTF-8, gives null, and is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.settings.sections import is_of_envelope
from lancewal_ingest.decode.headers import HeaderColumns
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.decode.part import DecodedPart, present_bitmap, present_column
from lancewal_ingest.decode.value_decoder import Weights, mask_of
from lancewal_ingest.decode.weight import lengths
from lancewal_kafka.records import Records

Partitions = npt.NDArray[np.int32]
_HEADER = "kafka.header."
_END_MS = 253_402_300_800_000
"""Milliseconds from 1970 to the year 10000."""


class MetadataColumns:
    """The columns of one table that are filled from metadata."""

    def __init__(self, rows: RowSchema, sources: Mapping[str, str], topic: str) -> None:
        """``sources``: the kind of metadata, such as ``kafka.offset``, for each such column, by the column's name."""
        self._rows = rows
        self._sources = {
            rows.columns.get_field_index(name): source for name, source in sources.items() if not is_of_envelope(source)
        }
        self._topic = topic
        self._bits = np.frombuffer(present_bitmap(rows, sources), np.uint8)
        self._keys = sum(source == "kafka.key" for source in sources.values())
        self._headers = sum(source.startswith(_HEADER) for source in sources.values())
        self._fixed_bytes = len(topic.encode()) * sum(source == "kafka.topic" for source in sources.values())
        self._fixed_bytes += sum(source == "envelope.op" for source in sources.values())
        self._any = bool(sources)

    def __bool__(self) -> bool:
        return self._any

    def arrays(
        self, records: Records, headers: HeaderColumns, lies: Partitions
    ) -> Mapping[int, tuple[pa.Array, pa.Array | None]]:
        """Return the values of these columns for all records of a batch, by the column's index in the schema.

        A value is a pair of arrays with an item for each record.  The first has the cells.  The second says which
        cells are not UTF-8; None if all are.

        ``lies``: the partition in which each record lies.
        """
        return {
            place: self._cells(source, self._rows.columns.field(place).type, records, headers, lies)
            for place, source in self._sources.items()
        }

    def fill(
        self, part: DecodedPart, arrays: Mapping[int, tuple[pa.Array, pa.Array | None]], counts: Counter[OtherName]
    ) -> DecodedPart:
        """Return the rows of ``part`` with these columns filled in.

        ``arrays``: the result of the method ``arrays`` for the whole batch.  ``part.indexes`` has the index of each
        row's record in the batch.

        ``counts`` gets the number of cells that are null since they are not UTF-8.
        """
        indexes, columns = pa.array(part.indexes), list(part.columns)
        for place, (cells, bad) in arrays.items():
            columns[place] = cells.take(indexes)
            if bad is not None:
                sets = part.ops.to_numpy() != Op.DELETE
                number = int((mask_of(bad.take(indexes)) & sets).sum())
                if number:
                    counts[OtherName("not_utf8", self._rows.columns.names[place])] += number
        return replace(part, columns=columns, present=self._with_bits(part.present))

    def growth(self, records: Records, headers: HeaderColumns | None) -> Weights | int:
        """Return an upper bound of the bytes that each record's metadata columns take beyond slots of fixed size.

        ``headers``: those of the records; None if no record has any.
        """
        grown: Weights | int = self._fixed_bytes
        if self._keys:
            grown = grown + self._keys * lengths(records.keys)
        if self._headers and headers is not None:
            grown = grown + self._headers * headers.sizes(0)
        return grown

    def largest(self, record_bytes_max: int) -> int:
        """Return an upper bound of ``growth`` for any record of at most ``record_bytes_max``."""
        return self._fixed_bytes + (self._keys + self._headers) * record_bytes_max

    def _cells(
        self, source: str, type_: pa.DataType, records: Records, headers: HeaderColumns, lies: Partitions
    ) -> tuple[pa.Array, pa.Array | None]:
        match source:
            case "kafka.topic":
                return pa.repeat(pa.scalar(self._topic, type_), len(records)), None
            case "kafka.partition":
                return pa.array(lies, type_), None
            case "kafka.offset":
                return pa.array(np.fromiter(records.offsets, np.int64, len(records))), None
            case "kafka.timestamp":
                times = np.fromiter(records.timestamps, np.int64, len(records))
                return as_times(times).cast(type_), None
            case "kafka.key":
                cells = pa.array(records.keys, pa.binary())
            case _:
                cells = headers.last(source.removeprefix(_HEADER))
        return (cells, None) if pa.types.is_binary(type_) else _as_text(cells)

    def _with_bits(self, present: pa.Array) -> pa.Array:
        """Return the bitmaps of patches, with these columns among those that the patches carry."""
        if present.null_count == len(present):
            return present
        bitmaps = np.frombuffer(b"".join(present.drop_null().to_pylist()), np.uint8).reshape(-1, len(self._bits))
        return present_column(mask_of(present.is_valid()), bitmaps | self._bits)


def as_times(times: npt.NDArray[np.int64]) -> pa.Array:
    """Return times in milliseconds since 1970, with null in place of times before 1970 and after the year 9999."""
    return pa.array(times, mask=(times < 0) | (times >= _END_MS))


def _as_text(cells: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    try:
        return cells.cast(pa.string()), None
    except pa.ArrowInvalid:
        texts = list(map(_text, cells.to_pylist()))
        found = pa.array(texts, pa.string())
        return found, pa.array(mask_of(found.is_null()) & mask_of(cells.is_valid()))


def _text(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None
