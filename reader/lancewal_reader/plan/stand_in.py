"""Find an existing version that shows what a version that is gone showed.

Guarantee: ``stand_in(V, cut)`` is a version V' and W(V'), or None.  W(V') is at or below the cut in every region.
Take the rows of V' under the mask of all keys with records between W(V') and the cut, and add the fold of these
records.  The result is exactly what V gave at this cut.

V' is older or newer than V.  Each commit between the two is proven by its transaction, or, if it is a merge, by its record
under ``merges/``.  Only these kinds of commits may be between the two:
 1. merges: what they add is in the delta of the lower version;
 2. compactions, index builds, configuration: they change no row;
 3. follow-ups.
A merge that was rebased over somebody's append may show keys twice until its follow-up has hidden them.  A delta hides them
at once.  Therefore
 4. a follow-up may be between them only together with its merge;
 5. a merge without a follow-up may be between them only if it was rebased over nothing but commits of kind 2;
 6. a merge may be between them only if it leaves the keys in conflict as they were: no delta has the records that a merge
    set aside, or a decision that it brought.

Other commits are *steps*: they changed rows, and no record says how (``Lineage.foreign_steps``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, assert_never

from lancewal_core.errors import InvalidInput, MergedPositionUnknown, ObjectCorrupt, VersionGone
from lancewal_core.names.ids import Position, Region, TableVersion
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.conflicts_ref import PROPERTY_SETTLED, ConflictsRef
from lancewal_core.table.protocol import Table, TransactionGone, TransactionInfo, TransactionUnreadable
from lancewal_core.table.watermarks import (
    PROPERTY_EXPIRY,
    PROPERTY_FOLLOWUP,
    PROPERTY_LOAD,
    PROPERTY_READ_VERSION,
    InForce,
    Watermarks,
    watermarks_of,
)

STEPS_MAX = 200
"""Most versions that are examined in each direction."""
_VERSION = re.compile("[0-9]{1,20}")
_SAME_ROWS = frozenset({"Rewrite", "CreateIndex", "UpdateConfig", "BaseOperation"})
"""Lance's names of commits that change no row.  The binding calls a commit without a class ``BaseOperation``: above all
the reservation of fragment ids."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A version that exists, and its watermarks."""

    version: TableVersion
    in_force: InForce


StepSource = Literal["expiry", "load", "commit", "settle"]
"""Kinds of steps: expiry of rows, a bulk load, a commit of another program, a decision about keys in conflict."""


@dataclass(frozen=True, slots=True)
class ForeignStep:
    """A commit that changed rows otherwise than by records, or several that count as one."""

    before: TableVersion
    """Version right before it."""
    version: TableVersion
    source: StepSource


@dataclass(frozen=True, slots=True)
class _Merge:
    uuid: str | None
    read_version: int | None
    """Version that the merge was computed from; None: the transaction is gone."""
    conflicts: ConflictsRef | None
    """Keys in conflict that are in force after it."""


@dataclass(frozen=True, slots=True)
class _FollowUp:
    merge: str


@dataclass(frozen=True, slots=True)
class _SameRows:
    """A version that changed no row."""


@dataclass(frozen=True, slots=True)
class _Foreign:
    """A version that changed rows in another way, or of which nothing is known."""

    source: StepSource | Literal["restore", "unknown"]


_Commit = _Merge | _FollowUp | _SameRows | _Foreign


def is_at_or_below(in_force: InForce, cut: Mapping[Region, Position]) -> bool:
    """Whether nothing after the cut is merged at these watermarks."""
    return all(region in cut and mark.next <= cut[region] for region, mark in in_force.regions.items())


class Lineage:
    """The commits that made the versions of a table.  Each is read once, since a version never changes.  Those of a range are
    read concurrently."""

    def __init__(self, table: Table, watermarks: Watermarks, tasks: Tasks) -> None:
        self._table = table
        self._watermarks = watermarks
        self._tasks = tasks
        self._commits: dict[int, _Commit] = {}

    def stand_in(self, version: int, cut: Mapping[Region, Position]) -> Pinned | None:
        """Return the nearest older version that can stand in, else the nearest newer one; None if there is none.  See
        the module docstring."""
        below = range(version - 1, max(version - STEPS_MAX, 0), -1)
        found = self._nearest(below, version, cut)
        if found is None:
            newest = self._table.newest().version
            found = self._nearest(range(version + 1, min(version + STEPS_MAX, newest + 1)), version, cut)
        return found

    def same_rows(self, low: int, high: int) -> bool:
        """Whether all versions from ``low``, which exists, to ``high`` are known to show the same rows, at any cut
        that both watermarks are below."""
        behind = range(low + 1, high + 1)
        return not any(isinstance(self._commit(at), _Foreign) for at in behind) and self._leads(low, high)

    def steps(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield the version before and after each commit from ``low`` to ``high`` that may have changed rows.

        A merge and its follow-up are one step, with all commits between them."""
        commits, followed = self._commits_after(low, high)
        version = low + 1
        while version <= high:
            before, end = version - 1, version
            while version <= end:
                commit = commits[version]
                if isinstance(commit, _Merge) and commit.uuid is not None:
                    end = max(end, followed.get(commit.uuid, end))
                version += 1
            if not all(isinstance(commits[at], _SameRows) for at in range(before + 1, end + 1)):
                yield before, end

    def foreign_steps(self, low: int, high: int) -> list[ForeignStep]:
        """Return the steps after version ``low`` up to ``high``, oldest first.

        A merge that was rebased over a step is one too, with its follow-up and all commits between them.  Reads may have shown
        its patches over rows that it did not know.  A follow-up alone is one if its merge is not after ``low``.

        ``VersionGone`` if nothing tells what a commit did.  ``InvalidInput`` if one was a restore: it may have taken back
        records that a reader has passed."""
        commits, followed = self._commits_after(low, high)
        merges = {commit.uuid for commit in commits.values() if isinstance(commit, _Merge)}
        found: list[ForeignStep] = []
        passed = low
        for version, commit in commits.items():
            source: StepSource | None = None
            last = version
            match commit:
                case _Merge(uuid=uuid) if not self._landed_alone(version, commit):
                    source, last = "commit", followed.get(uuid or "", version)
                case _FollowUp(merge=merge) if merge not in merges:
                    source = "commit"
                case _Foreign(source=kind):
                    source = _step_of(kind, version)
                case _:
                    pass
            if source is not None and version > passed:
                found.append(ForeignStep(TableVersion(version - 1), TableVersion(last), source))
                passed = last
        return found

    def _nearest(self, steps: range, version: int, cut: Mapping[Region, Position]) -> Pinned | None:
        """Return the first of these versions that can stand in; None if a foreign commit comes before."""
        for at in steps:
            if isinstance(self._commit(at + 1 if at < version else at), _Foreign):
                return None
            found = self._there(at, cut)
            if found is not None and self._leads(min(at, version), max(at, version)):
                return found
        return None

    def _there(self, version: int, cut: Mapping[Region, Position]) -> Pinned | None:
        """Return the version, if it still exists and holds nothing after the cut."""
        try:
            self._table.at(version)
            in_force = self._watermarks.at(version)
        except (VersionGone, MergedPositionUnknown):
            return None
        holds = in_force.exact and is_at_or_below(in_force, cut)
        return Pinned(TableVersion(version), in_force) if holds else None

    def _leads(self, low: int, high: int) -> bool:
        """Whether the merges and follow-ups after ``low`` up to ``high`` keep rows and conflicts as they are (rules 4
        to 6 of the module docstring).  None of these commits may be foreign."""
        passed, followed = self._commits_after(low, high)
        merges = {version: commit for version, commit in passed.items() if isinstance(commit, _Merge)}
        if not followed.keys() <= {merge.uuid for merge in merges.values()}:
            return False
        named = {merge.conflicts for merge in merges.values()}
        if named and named != {self._conflicts(low)}:
            return False
        return all(merge.uuid in followed or self._landed_alone(at, merge) for at, merge in merges.items())

    def _commits_after(self, low: int, high: int) -> tuple[dict[int, _Commit], dict[str, int]]:
        """Return the commits from there up to ``high`` by version, and for each merge the version of its follow-up."""
        unread = [version for version in range(low + 1, high + 1) if version not in self._commits]
        self._commits.update(zip(unread, self._tasks.map(self._read, unread), strict=True))
        commits = {version: self._commits[version] for version in range(low + 1, high + 1)}
        return commits, {commit.merge: at for at, commit in commits.items() if isinstance(commit, _FollowUp)}

    def _conflicts(self, version: int) -> ConflictsRef | None:
        """Return the keys in conflict that are in force at ``version``; None if they are unknown."""
        try:
            return self._watermarks.at(version).conflicts
        except MergedPositionUnknown:
            return None

    def _landed_alone(self, version: int, merge: _Merge) -> bool:
        """Whether only commits that change no row are between the merge and the version from which it was computed."""
        read_version = merge.read_version
        if read_version is None:
            try:
                read_version = self._watermarks.at(version - 1).version  # no merge is computed from one further below
            except MergedPositionUnknown:
                return False
        return all(isinstance(self._commit(v), _SameRows) for v in range(version - 1, read_version, -1))

    def _commit(self, version: int) -> _Commit:
        if version not in self._commits:
            self._commits[version] = self._read(version)
        return self._commits[version]

    def _read(self, version: int) -> _Commit:
        found = self._table.transaction(version)
        match found:
            case TransactionInfo():
                return _classify(found, version)
            case TransactionUnreadable():
                return _SameRows()  # a compaction that rewrote an index (``watermarks``)
            case TransactionGone():
                return self._recorded(version)
            case _:
                assert_never(found)

    def _recorded(self, version: int) -> _Commit:
        try:
            in_force = self._watermarks.at(version)
        except MergedPositionUnknown:
            return _Foreign("unknown")
        # Without a merge's uuid a person has decided (``Watermarks.decide``): the version is a restore, or unknown.
        return (
            _Merge(in_force.merge, None, in_force.conflicts)
            if in_force.version == version and in_force.merge
            else _Foreign("unknown")
        )


def _step_of(source: StepSource | Literal["restore", "unknown"], version: int) -> StepSource:
    match source:
        case "restore":
            raise InvalidInput(
                f"table version {version}, between the two points, is a restore. It took back rows, and no record says which. "
                f"End one feed at version:{version - 1}, and begin the next at version:{version}; or use the mode net"
            )
        case "unknown":
            raise VersionGone(
                f"table version {version}, between the two points, is gone: a clean-up removed it, and nothing tells what its "
                "commit did. Let clean-ups keep versions for as long as feeds read them",
                version=version,
            )
        case _:
            return source


def _classify(info: TransactionInfo, version: int) -> _Commit:
    if PROPERTY_SETTLED in info.properties:
        return _Foreign("settle")
    in_force = watermarks_of(info, version)
    if in_force is not None:
        read_version = info.properties.get(PROPERTY_READ_VERSION)
        if read_version is not None and _VERSION.fullmatch(read_version) is None:
            raise ObjectCorrupt(f"a merge's transaction is corrupt: its {PROPERTY_READ_VERSION} is not a table version")
        return _Merge(in_force.merge, None if read_version is None else int(read_version), in_force.conflicts)
    if PROPERTY_FOLLOWUP in info.properties:
        return _FollowUp(info.properties[PROPERTY_FOLLOWUP])
    if info.restored is not None:
        return _Foreign("restore")
    if info.operation in _SAME_ROWS:
        return _SameRows()
    if PROPERTY_LOAD in info.properties:
        return _Foreign("load")
    return _Foreign("expiry" if PROPERTY_EXPIRY in info.properties else "commit")
