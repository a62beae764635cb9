"""Complete rows whose unmerged records are patches only, with columns from the table."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.keys.scan import find_keys
from lancewal_core.rows.fold import Folded, complete
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.protocol import PinnedTable


class FindAddresses(Protocol):
    def __call__(self, pinned: PinnedTable, keys: pa.Table) -> npt.NDArray[np.uint64]:
        """Return the addresses of the live rows with these keys, in no order.  The keys are distinct."""


def by_scan(pinned: PinnedTable, keys: pa.Table) -> npt.NDArray[np.uint64]:
    """Find the addresses of keys by a scan (``FindAddresses`` without a key index)."""
    return find_keys(pinned, KeySet(keys)).addresses


def complete_rows(folded: Folded, pinned: PinnedTable, projected: RowSchema, find: FindAddresses = by_scan) -> pa.Table:
    """Return all rows of the delta.  Rows that patches set only in part (state Partial) are completed from the table,
    at the addresses that ``find`` returns.
    """
    if folded.partials.num_rows == 0:
        return folded.rows
    addresses = find(pinned, folded.partials.select(list(projected.primary_key)))
    base = pinned.take(pa.array(addresses), projected.table.names).cast(projected.table)
    return pa.concat_tables([folded.rows, complete(folded.partials, base, projected)])
