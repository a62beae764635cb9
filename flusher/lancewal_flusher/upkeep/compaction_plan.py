"""Choose the fragments that the next round of a compaction rewrites: a pure decision.

 1. *Small* fragments are rewritten together as a bundle, the smallest first.  They need not be neighbours, because
    the order of fragments has no meaning.  A bundle must be at least ``growth`` times as large as its largest part.
    A byte is then rewritten only each time its fragment has grown by that factor: about log2(target / adopted size)
    times in its life.
 2. If there is no such bundle: fragments with many *deleted* rows, those with the highest share first, as many as
    fit.

A *group* is what one task rewrites.  It reads at most ``round_bytes``.  A larger fragment is taken alone, for its
deleted rows, and only if ``oversize`` says so.  It keeps merges waiting for as long as the rewrite takes.

A *round* has up to ``groups_max`` groups, of one reason and without a common fragment.  Each group is chosen from the
fragments that earlier groups have left, so each keeps the rules of a group.  They are written at the same time.

A *choice* (``Choice``) has the fragments from which a round chooses, and those that it must leave alone.
``Choice.after`` predicts the fragments from which the next round would choose.  So a dry run and a compaction choose
by the same rules.
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
    """Limits of compaction.  Sizes are numbers of rows, or bytes of stored files.  ``growth`` and ``oversize``: see
    the module docstring.
    """

    target_rows: int = _DEFAULTS.compaction_target_rows
    target_bytes: int = _DEFAULTS.compaction_target_bytes
    """Target size of a fragment in bytes.  A fragment is small if its live rows are fewer than half of
    ``target_rows``, and their bytes less than half of ``target_bytes``."""
    deleted_share: float = _DEFAULTS.compaction_deleted_ratio
    round_bytes: int = _DEFAULTS.compaction_round_bytes_max
    """Largest number of bytes of fragments in one group; see ``oversize`` for the exception."""
    groups_max: int = 1
    fragments_min: int = 4
    """Fewest small fragments that are worth a group, because each group costs two requests, and each round a table
    version."""
    fragments_max: int = 1_000
    """Largest number of fragments of a group, because all their files are open at the same time."""
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
    """Fragments from which a round chooses, and those that it must leave alone."""

    fragments: tuple[Fragment, ...]
    """All fragments of one version, each with its size."""
    left_alone: frozenset[int]
    """Ids of fragments that no round may rewrite, whatever its limits."""
    with_sentinel: bool
    """Whether a round may rewrite the sentinel, if it is no larger than ``CompactionLimits.round_bytes``."""

    def excluded(self, limits: CompactionLimits) -> frozenset[int]:
        """Return the ids of fragments that no round with these limits may rewrite."""
        guard = min(self.fragments, key=lambda f: f.fragment_id, default=None)
        if guard is None or (self.with_sentinel and guard.nbytes <= limits.round_bytes):
            return self.left_alone
        return self.left_alone | {guard.fragment_id}

    def next_round(self, limits: CompactionLimits) -> Round | None:
        """Return what to rewrite now; None if nothing is worth rewriting."""
        return next_round(self.fragments, limits, self.excluded(limits))

    def after(self, done: Round, limits: CompactionLimits) -> Choice:
        """Return the choice for the round after ``done``, if no other process writes.  Sizes are estimates."""
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
    """Yield rows and bytes of the fragments that rewriting the group gives.  There are none if no row is left, and
    several if the rows exceed the size of one."""
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
