"""Scan of the key columns for the live rows of a table version that have given keys.

The scan serves fragments that the key index does not cover (``live``).  It also serves callers without an index:
readers, and code that looks for rows which other processes have added since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.key_set import KeySet
from lancewal_core.table.protocol import ROW_ADDRESS, PinnedTable


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows as parallel arrays: their addresses, and the indexes of their keys in the ``KeySet``."""

    addresses: npt.NDArray[np.uint64]
    places: npt.NDArray[np.int64]


def find_keys(pinned: PinnedTable, keys: KeySet, fragment_ids: Sequence[int] | None = None) -> FoundRows:
    """Return the live rows whose key is in ``keys``, in all fragments or in ``fragment_ids``.  A key may have several
    rows."""
    addresses: list[npt.NDArray[np.uint64]] = [np.zeros(0, np.uint64)]
    places: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    if len(keys):
        batches = pinned.scan(keys.names, fragment_ids=fragment_ids, with_row_address=True, batch_rows=65_536)
        for group in groups(batches, keys.group_rows):
            found = keys.places([group[name] for name in keys.names])
            hit = np.flatnonzero(found >= 0)
            if len(hit):
                addresses.append(group[ROW_ADDRESS].to_numpy()[hit].astype(np.uint64))
                places.append(found[hit])
    return FoundRows(np.concatenate(addresses), np.concatenate(places))


def groups(batches: Iterator[pa.RecordBatch], rows: int, nbytes: int = 64 << 20) -> Iterator[pa.Table]:
    """Yield the batches' rows in tables of at least ``rows`` rows or ``nbytes`` bytes; the last table may be smaller."""
    gathered: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        gathered.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= rows or size >= nbytes:
            yield pa.Table.from_batches(gathered)
            gathered, count, size = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered)
