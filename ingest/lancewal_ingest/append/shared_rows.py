"""Rows of several regions in one record batch, as they were decoded together, until each region has its own.

To copy a region's part as it comes costs more than to decode it.  To keep it as a slice costs no less.  A slice is a
dozen small Arrow objects.  They are looked up and freed one by one when all else has driven them out of the
processor's caches.  A part is therefore a place in its batch, and several parts of a region are copied together.
Until then the whole batch stays in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from lancewal_core.rows.row_range import RowRange, slices


class SharedPart(NamedTuple):
    """Consecutive rows of a batch."""

    range: RowRange
    nbytes: int
    """Share of the batch, in memory."""


def own_rows_of(parts: Sequence[SharedPart]) -> pa.RecordBatch:
    """A copy of these rows, of one part at least, in their order."""
    found = slices(part.range for part in parts)
    return pa.concat_batches([*found, found[0].slice(0, 0)])  # of one batch alone it is no copy
