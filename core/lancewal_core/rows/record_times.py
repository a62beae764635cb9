"""The lowest and highest record time of rows: Kafka's timestamps, in milliseconds since 1970, UTC.

Records that are not rows (rejected or passed over) do not count.  Times need not ascend with offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.schema import TIMESTAMP


class RecordTimes(NamedTuple):
    """The lowest and the highest record time of at least one row, in milliseconds since 1970."""

    min_ms: int
    max_ms: int

    @staticmethod
    def of(batches: Iterable[pa.RecordBatch]) -> RecordTimes | None:
        """Return the times of the rows of WAL batches; None if there are no rows."""
        columns = [batch.column(TIMESTAMP).cast(pa.int64()) for batch in batches if batch.num_rows]
        if not columns:
            return None
        found = pc.min_max(pa.chunked_array(columns))
        return RecordTimes(found["min"].as_py(), found["max"].as_py())

    @staticmethod
    def joined(parts: Iterable[RecordTimes | None]) -> RecordTimes | None:
        """Return the times of all parts together; None if no part has rows."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        return RecordTimes(min(part.min_ms for part in known), max(part.max_ms for part in known))


def part_starts(counts: Sequence[int]) -> list[int]:
    """Return the index of the first row of each part that has rows.  Parts follow each other; ``counts`` has the
    number of rows of each."""
    return [start for start, count in zip(accumulate(counts, initial=0), counts, strict=False) if count]


def times_of_parts(rows: pa.RecordBatch, counts: Sequence[int]) -> list[RecordTimes | None]:
    """Return the record times of each part of a WAL batch; None for a part without rows.  Parts follow each other;
    ``counts`` has the number of rows of each."""
    if not rows.num_rows:
        return [None] * len(counts)
    times = rows.column(TIMESTAMP).cast(pa.int64()).to_numpy()
    starts = part_starts(counts)
    lows, highs = np.minimum.reduceat(times, starts).tolist(), np.maximum.reduceat(times, starts).tolist()
    found = map(RecordTimes, lows, highs)
    return [next(found) if count else None for count in counts]
