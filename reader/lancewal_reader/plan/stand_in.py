"""Find an existing table version that can replace a version that is gone, since both show the same rows.

Guarantee: ``stand_in(V, cut)`` is a version V' and its watermarks W(V'), or None.  W(V') is at or below the cut in
every region.  Take the rows of V' under the mask of all keys with records between W(V') and the cut, and add the fold
of these records.  The result is exactly what V gave at this cut.

V' is older or newer than V.  Only these kinds of commits (``lineage``) may be between the two:
 1. merges: what they add is in the delta of the lower version;
 2. commits that change no row;
 3. follow-ups.
A merge that was rebased over somebody's append may show keys twice until its follow-up has hidden them.  A delta hides them
at once.  Therefore
 4. a follow-up may be between them only together with its merge;
 5. a merge without a follow-up may be between them only if it was rebased over nothing but commits of kind 2;
 6. a merge may be between them only if it leaves the keys in conflict as they were: no delta has the records that a merge
    set aside, or a decision that it brought.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lancewal_core.errors import MergedPositionUnknown, VersionGone
from lancewal_core.names.ids import Position, Region, TableVersion
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.watermarks import InForce
from lancewal_reader.plan.lineage import Foreign, Lineage, Merge

STEPS_MAX = 200
"""Maximum distance to a replacement, in versions older or newer than the missing one."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A version that exists, and its watermarks."""

    version: TableVersion
    in_force: InForce


def is_at_or_below(in_force: InForce, cut: Mapping[Region, Position]) -> bool:
    """Whether these watermarks contain no record after the cut."""
    return all(region in cut and mark.next <= cut[region] for region, mark in in_force.regions.items())


def stand_in(lineage: Lineage, version: int, cut: Mapping[Region, Position]) -> Pinned | None:
    """Return a version that shows the same rows as ``version`` at ``cut``: the nearest older one, or else the nearest
    newer one.  None if there is none.
    """
    below = range(version - 1, max(version - STEPS_MAX, 0), -1)
    found = _nearest(lineage, below, version, cut)
    if found is None:
        newest = lineage.table.newest().version
        found = _nearest(lineage, range(version + 1, min(version + STEPS_MAX, newest + 1)), version, cut)
    return found


def same_rows(lineage: Lineage, low: int, high: int) -> bool:
    """Whether all versions from ``low`` to ``high`` certainly show the same rows, at any cut above both watermarks.
    Either version may be gone.
    """
    passed, followed = lineage.commits_after(low, high)
    merges = {version: commit for version, commit in passed.items() if isinstance(commit, Merge)}
    if any(isinstance(commit, Foreign) for commit in passed.values()):
        return False
    if not followed.keys() <= {merge.uuid for merge in merges.values()}:
        return False
    named = {merge.conflicts for merge in merges.values()}
    if named and named != {_conflicts(lineage, low)}:
        return False
    return all(merge.uuid in followed or lineage.landed_alone(at, merge) for at, merge in merges.items())


def _nearest(lineage: Lineage, steps: range, version: int, cut: Mapping[Region, Position]) -> Pinned | None:
    """Return the first version in ``steps`` that shows the rows of ``version`` at ``cut``.  Return None if there is
    none, or if a commit that changed rows independently of records (``Foreign``) comes before it.
    """
    for at in steps:
        if isinstance(lineage.commit(at + 1 if at < version else at), Foreign):
            return None
        found = _there(lineage, at, cut)
        if found is not None and same_rows(lineage, min(at, version), max(at, version)):
            return found
    return None


def _there(lineage: Lineage, version: int, cut: Mapping[Region, Position]) -> Pinned | None:
    """Return the version with its watermarks; None if it is gone, or if it holds records after the cut."""
    try:
        lineage.table.at(version)
        in_force = lineage.watermarks.at(version)
    except (VersionGone, MergedPositionUnknown):
        return None
    holds = in_force.exact and is_at_or_below(in_force, cut)
    return Pinned(TableVersion(version), in_force) if holds else None


def _conflicts(lineage: Lineage, version: int) -> ConflictsRef | None:
    """Return the keys in conflict that are in force at ``version``; None if they are unknown."""
    try:
        return lineage.watermarks.at(version).conflicts
    except MergedPositionUnknown:
        return None
