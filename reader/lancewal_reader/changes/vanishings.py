"""Versions in which fragments vanish, between two versions of a table.

Guarantees
 1. All such versions are found, if fragments that have vanished do not come back.  After a restore they do.
 2. Versions are opened by halving: those between two others in which no fragment has vanished are not opened.
 3. A version that was removed hides which commit took the fragments.  Then ``rewritten`` is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lancewal_core.errors import VersionGone
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.protocol import PinnedTable, RewrittenFragments, TransactionInfo

_DELETING = frozenset({"Update", "Delete"})
"""Lance's names of commits in which a fragment vanishes only if all its rows are deleted."""


@dataclass(frozen=True, slots=True)
class Vanishing:
    """A version that lacks some fragments of the version before it."""

    version: int
    vanished: frozenset[int]
    rewritten: tuple[RewrittenFragments, ...]
    """Fragments that took their place."""
    only_deletes: bool
    """Whether vanished fragments have no row that lives on, but for those in ``rewritten``."""


def vanishings(opened: OpenedTable, older: PinnedTable, newer: PinnedTable) -> Sequence[Vanishing]:
    """Return the versions after ``older``, ``newer`` included, in which fragments vanish."""
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
    versions = [int(older.version), *between, int(newer.version)]
    last = len(versions) - 1
    ids = {0: older.fragment_ids(), last: newer.fragment_ids()}
    open_, steps = [(0, last)], []
    while open_:
        vanished = {(a, b): np.setdiff1d(ids[a], ids[b], assume_unique=True) for a, b in open_}
        steps += [pair for pair in open_ if len(vanished[pair]) and pair[1] == pair[0] + 1]
        halved = [(a, (a + b) // 2, b) for a, b in open_ if len(vanished[a, b]) and b > a + 1]
        middles = [middle for _, middle, _ in halved]
        opened_ids = opened.tasks.map(lambda at: opened.table.at(versions[at]).fragment_ids(), middles)
        ids |= dict(zip(middles, opened_ids, strict=True))
        open_ = [pair for a, middle, b in halved for pair in ((a, middle), (middle, b))]

    def vanishing(step: tuple[int, int]) -> Vanishing:
        before, after = step
        vanished = frozenset(np.setdiff1d(ids[before], ids[after], assume_unique=True).tolist())
        version = versions[after]
        info = opened.table.transaction(version) if version == versions[before] + 1 else None
        if not isinstance(info, TransactionInfo):
            return Vanishing(version, vanished, (), only_deletes=False)
        return Vanishing(version, vanished, info.rewritten, info.operation in _DELETING)

    return opened.tasks.map(vanishing, sorted(steps))
