"""Merged rows that two versions of a table do not share.

Guarantees
 1. A row that is live in the first version, and not in ``gone``, is live in the second one.  It is not in ``come`` there,
    and its cells in the wanted columns are equal.
 2. The same holds for rows of the second version.
 3. Rows with equal cells may be in ``gone`` and ``come``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.protocol import Fragment, PinnedTable

Addresses = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Between:
    """Rows that two versions do not share, as row addresses that ascend."""

    gone: Addresses
    """Rows live in the first version."""
    come: Addresses
    """Rows live in the second version."""
    compared_fragments: int
    """Fragments all of whose rows are given, since nothing shows where they came from or went."""


def between(
    opened: OpenedTable, before: PinnedTable, after: PinnedTable, rows: RowSchema, columns: Sequence[str]
) -> Between:
    """Return which rows of two versions are not shared.  Either version may be the newer one.

    ``columns``: names of the wanted columns in ``rows``, whose ids say which columns of the versions these are."""
    gone = _live(before, before.fragments())
    come = _live(after, after.fragments())
    return Between(gone, come, len(before.fragments()) + len(after.fragments()))


def _live(pinned: PinnedTable, fragments: Sequence[Fragment]) -> Addresses:
    """Return the addresses of the live rows of these fragments."""
    found = [np.zeros(0, np.uint64)]
    for fragment in fragments:
        live = np.ones(fragment.physical_rows, np.bool_)
        if fragment.deleted_rows:
            live[pinned.hidden_rows(fragment.fragment_id)] = False
        found.append(np.flatnonzero(live).astype(np.uint64) | np.uint64(fragment.fragment_id << 32))
    return np.concatenate(found)
