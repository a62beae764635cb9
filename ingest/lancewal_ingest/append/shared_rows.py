"""Rows of several regions in the one record batch they were decoded into, until each region has a batch of its own.

Copying each small part at once would cost more than decoding it.  Keeping each part as an Arrow slice would cost as
much.  A slice is a dozen small objects, which are freed one by one after they have left the processor's caches.  A
part is therefore stored as a range of its batch, and several parts of a region are copied together later.  Until then
the whole batch stays in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from lancewal_core.rows.row_range import RowRange, slices


class SharedPart(NamedTuple):
    """Range of consecutive rows in a batch that several regions share."""

    range: RowRange
    nbytes: int
    """Bytes of the batch that count for this part."""


def own_rows_of(parts: Sequence[SharedPart]) -> pa.RecordBatch:
    """Return a copy of the rows of ``parts``, in their order.  There must be at least one part."""
    found = slices(part.range for part in parts)
    return pa.concat_batches([*found, found[0].slice(0, 0)])  # concat_batches does not copy a single batch
