"""Choose the fragments that the next round of a compaction rewrites: a pure decision.

 1. *Small* fragments are bundled, the smallest first, whatever lies between them: the order of fragments means
    nothing.  A bundle must be at least ``growth`` times as large as its largest part.  A byte is then rewritten only
    each time its fragment has grown by that factor: about log2(target / adopted size) times in its life.
 2. Else fragments with many *deleted* rows, those with the highest share first, as many as fit.

A *group* is what one task rewrites.  It reads at most ``round_bytes``.  A larger fragment is taken alone, for its
deleted rows, and only if ``oversize`` says so.  It keeps merges waiting for as long as the rewrite takes.

A *round* has up to ``groups_max`` groups, of one reason and without a common fragment.  Each is chosen as if those
before it were not there, so each keeps the rules of a group.  They are written at the same time.

A *choice* is what a round chooses from, and what is left alone.  ``Choice.after`` predicts what the next round would
choose from.  A dry run and a compaction therefore choose by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, islice

from lancewal_core.settings.sections import FlusherSettings
from lancewal_core.table.protocol import Fragment

_DEFAULTS = FlusherSettings()


Group = tuple[Fragment, ...]
"""Fragments that one task rewrites; they become one fragment, or a few."""


def live_bytes(fragment: Fragment) -> int:
    """Estimate the bytes of the fragment's live rows."""
    return fragment.nbytes * fragment.live_rows // max(fragment.physical_rows, 1)


def _deleted_share(fragment: Fragment) -> float:
    return fragment.deleted_rows / max(fragment.physical_rows, 1)


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """Sizes in rows, and in bytes as stored."""

    target_rows: int = _DEFAULTS.compaction_target_rows
    target_bytes: int = _DEFAULTS.compaction_target_bytes
    """A fragment is small below half of either."""
    deleted_share: float = _DEFAULTS.compaction_deleted_ratio
    round_bytes: int = _DEFAULTS.compaction_round_bytes_max
    """Most bytes that one group reads."""
    groups_max: int = 1
    fragments_min: int = 4
    """Fewest small fragments that are worth a group: each group is two requests and a table version."""
    fragments_max: int = 1_000
    """Most fragments of a group: all their files are opened at once."""
    growth: float = 2.0
    oversize: bool = False

    def to_the_end(self) -> CompactionLimits:
        """Return limits for a full compaction: continue while two small fragments fit into one, or a fragment is too
        large.
        """
        return replace(self, fragments_min=2, growth=1.0, oversize=True)

    def halved(self, times: int, bytes_min: int) -> CompactionLimits:
        """Return limits for shorter rounds, which are more likely to land."""
        round_bytes = max(bytes_min, self.round_bytes >> times)
        return replace(self, round_bytes=round_bytes, groups_max=max(1, self.groups_max >> times))

    def small(self, fragment: Fragment) -> bool:
        return fragment.live_rows * 2 < self.target_rows and live_bytes(fragment) * 2 < self.target_bytes


class Reason(StrEnum):
    """Reasons why fragments are rewritten."""

    SMALL = "small"
    DELETED = "deleted"
    INDEXED = "indexed"
    """An index may hold old values of the fragments (``index_doubt``)."""


@dataclass(frozen=True, slots=True)
class Round:
    """Groups that are rewritten at the same time."""

    reason: Reason
    groups: tuple[Group, ...]

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        return tuple(f for group in self.groups for f in group)

    @property
    def nbytes(self) -> int:
        return sum(f.nbytes for f in self.fragments)

    @property
    def live_rows(self) -> int:
        return sum(f.live_rows for f in self.fragments)

    @property
    def deleted_rows(self) -> int:
        return sum(f.deleted_rows for f in self.fragments)


@dataclass(frozen=True, slots=True)
class Choice:
    """Fragments that a round chooses from, and those that it must leave alone."""

    fragments: tuple[Fragment, ...]
    """All fragments of one version, each with its size."""
    left_alone: frozenset[int]
    """Fragments that no round may take, whatever its limits."""
    with_sentinel: bool
    """Whether a round may take the sentinel, if it is no larger than a round."""

    def excluded(self, limits: CompactionLimits) -> frozenset[int]:
        """Fragments that no round with these limits may rewrite."""
        guard = min(self.fragments, key=lambda f: f.fragment_id, default=None)
        if guard is None or (self.with_sentinel and guard.nbytes <= limits.round_bytes):
            return self.left_alone
        return self.left_alone | {guard.fragment_id}

    def next_round(self, limits: CompactionLimits) -> Round | None:
        """Return what to rewrite now; None if nothing is worth rewriting."""
        return next_round(self.fragments, limits, self.excluded(limits))

    def after(self, done: Round, limits: CompactionLimits) -> Choice:
        """Return what the next round would choose from if no other process wrote.  Sizes are estimates."""
        taken = {f.fragment_id for f in done.fragments}
        sizes = [size for group in done.groups for size in _written(group, limits)]
        first = max(f.fragment_id for f in self.fragments) + 1
        new = [Fragment(number, (), rows, 0, nbytes) for number, (rows, nbytes) in enumerate(sizes, first)]
        return replace(self, fragments=(*(f for f in self.fragments if f.fragment_id not in taken), *new))


def next_round(fragments: Sequence[Fragment], limits: CompactionLimits, excluded: Collection[int]) -> Round | None:
    """Return what to rewrite now; None if nothing is worth rewriting.  Fragments in ``excluded`` are left alone."""
    free = [f for f in fragments if f.fragment_id not in excluded]
    for reason, choose in ((Reason.SMALL, _small), (Reason.DELETED, _deleted)):
        groups = tuple(islice(_groups(free, limits, choose), limits.groups_max))
        if groups:
            return Round(reason, groups)
    return None


def _written(group: Group, limits: CompactionLimits) -> Iterator[tuple[int, int]]:
    """Yield rows and bytes of the fragments that the group becomes: none if no row is left, several if it is larger than
    one."""
    rows, nbytes = sum(f.live_rows for f in group), sum(map(live_bytes, group))
    most = max(1, min(limits.target_rows, limits.target_bytes * rows // max(nbytes, 1)))
    for first in range(0, rows, most):
        part = min(most, rows - first)
        yield part, nbytes * part // rows


def _groups(
    free: Sequence[Fragment],
    limits: CompactionLimits,
    choose: Callable[[Sequence[Fragment], CompactionLimits], Sequence[Fragment]],
) -> Iterator[Group]:
    while chosen := choose(free, limits):
        yield tuple(chosen)
        taken = {f.fragment_id for f in chosen}
        free = [f for f in free if f.fragment_id not in taken]


def _small(free: Sequence[Fragment], limits: CompactionLimits) -> Sequence[Fragment]:
    small = sorted((f for f in free if limits.small(f)), key=lambda f: (live_bytes(f), f.fragment_id))
    bundle = small[: _fitting(small, limits)]
    while bundle and live_bytes(bundle[-1]) * limits.growth > sum(map(live_bytes, bundle)):
        bundle.pop()
    return bundle if len(bundle) >= max(limits.fragments_min, 2) else []


def _deleted(free: Sequence[Fragment], limits: CompactionLimits) -> Sequence[Fragment]:
    worn = [f for f in free if f.deleted_rows and _deleted_share(f) >= limits.deleted_share]
    worn.sort(key=lambda f: (-_deleted_share(f), f.fragment_id))
    fitting = [f for f in worn if f.nbytes <= limits.round_bytes]
    return fitting[: max(_fitting(fitting, limits), 1)] or (worn[:1] if limits.oversize else [])


def _fitting(fragments: Sequence[Fragment], limits: CompactionLimits) -> int:
    """Return how many of the fragments, from the first on, fit into a group and into one fragment."""
    sums = zip(
        accumulate(f.nbytes for f in fragments),
        accumulate(f.live_rows for f in fragments),
        accumulate(map(live_bytes, fragments)),
        strict=True,
    )
    fits = [
        nbytes <= limits.round_bytes and rows <= limits.target_rows and live <= limits.target_bytes
        for nbytes, rows, live in sums
    ]
    return min(sum(fits), limits.fragments_max)  # sums only grow: once one does not fit, no later one does
