"""Rows that an index of vectors cannot take, because a vector's squared length is beyond float32.  They are named by
their keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lancewal_core.errors import VersionGone, counted
from lancewal_core.rows.column_types import shown_rows
from lancewal_core.table.protocol import PinnedTable

KEYS_SHOWN = 5


def row_keys(pinned: PinnedTable, addresses: Sequence[int], primary_key: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of the first few of these rows, as texts; empty if a compaction has moved the rows since."""
    try:
        found = pinned.take(pa.array(np.array(addresses[:KEYS_SHOWN], np.uint64)), primary_key)
    except VersionGone:
        return ()
    return tuple(", ".join(f"{name}={value!r}" for name, value in row.items()) for row in shown_rows(found))


def far_text(rows: int, keys: Sequence[str]) -> str:
    """Return a sentence about vectors that an index cannot hold, with advice."""
    more = " and others" if rows > len(keys) else ""
    which = f": {'; '.join(keys)}{more}" if keys else ""
    return (
        f"the squared length of the vector is beyond float32 in {counted(rows, 'row')}, which the index cannot take{which}. "
        "Correct these records, or send them with a null vector"
    )
