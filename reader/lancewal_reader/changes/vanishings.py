"""Find the versions in which fragments vanish, between two versions of a table.

Guarantees
 1. All such versions that still exist are found, except those whose vanished fragments come back later, as after a
    restore.
 2. Versions are opened by binary search.  If no fragment vanished from one version to another, those between them are
    not opened.
 3. If versions were removed, nothing tells which commit removed the fragments that vanished there.  They are in no
    result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt

from lancewal_core.errors import VersionGone
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.protocol import (
    PinnedTable,
    RewrittenFragments,
    TransactionGone,
    TransactionInfo,
    TransactionUnreadable,
)

_DELETING = frozenset({"Update", "Delete"})
"""Lance's names of commits in which a fragment vanishes only if all its rows are deleted."""


@dataclass(frozen=True, slots=True)
class Vanishing:
    """A version that lacks some fragments of the previous version."""

    version: int
    vanished: frozenset[int]
    rewritten: tuple[RewrittenFragments, ...]
    """Groups of vanished fragments, each with the files of the fragments that replaced it."""
    only_deletes: bool
    """Whether all rows of vanished fragments were deleted, except those of fragments in ``rewritten``."""
    unproven: str
    """Why the rows of vanished fragments may not be followed: a clause for a message."""


def vanishings(opened: OpenedTable, older: PinnedTable, newer: PinnedTable) -> Sequence[Vanishing]:
    """Return the versions after ``older``, up to and including ``newer``, in which fragments vanish."""
    between: Sequence[int] = range(older.version + 1, newer.version)
    try:
        return _found(opened, older, newer, between)
    except VersionGone:
        there = sorted(version for version in opened.table.versions() if version in between)
    try:
        return _found(opened, older, newer, there)
    except VersionGone:
        return ()  # a clean-up is at work: nothing is known


def _found(opened: OpenedTable, older: PinnedTable, newer: PinnedTable, between: Sequence[int]) -> Sequence[Vanishing]:
    """``between``: versions between both that exist, in order."""
    versions = [int(older.version), *between, int(newer.version)]
    last = len(versions) - 1
    ids = {0: older.fragment_ids(), last: newer.fragment_ids()}
    ranges, found = [(0, last)], dict[int, npt.NDArray[np.int64]]()
    while ranges:
        vanished = {(a, b): np.setdiff1d(ids[a], ids[b], assume_unique=True) for a, b in ranges}
        ranges = [(a, b) for a, b in ranges if len(vanished[a, b])]
        found |= {versions[b]: vanished[a, b] for a, b in ranges if versions[b] == versions[a] + 1}
        middles = [(a + b) // 2 for a, b in ranges if b > a + 1]
        there = opened.tasks.map(lambda middle: opened.table.at(versions[middle]).fragment_ids(), middles)
        ids |= dict(zip(middles, there, strict=True))
        ranges = [half for a, b in ranges if b > a + 1 for half in ((a, (a + b) // 2), ((a + b) // 2, b))]

    def vanishing(version: int) -> Vanishing:
        info = opened.table.transaction(version)
        gone = frozenset(found[version].tolist())
        match info:
            case TransactionInfo():
                why = f"its commit ({info.operation}) does not prove it"
                return Vanishing(version, gone, info.rewritten, info.operation in _DELETING, why)
            case TransactionUnreadable():
                why = "its commit cannot be read, as that of a compaction that rewrote an index"
            case TransactionGone():
                why = "its commit is gone"
            case _:
                assert_never(info)
        return Vanishing(version, gone, (), only_deletes=False, unproven=why)

    return opened.tasks.map(vanishing, sorted(found))
