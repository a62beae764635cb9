"""The commits that made the versions of a table, and which of them changed rows.

The transaction of a version says what its commit did.  If the transaction is gone, a record under ``merges/`` still
tells that the commit was a merge.  Commits are
 1. merges,
 2. commits that change no row: compactions, index builds, configuration,
 3. follow-ups, each of which hides rows that its merge did not know,
 4. *foreign* commits: they changed rows in another way, or nothing tells what they did.

Feeds of changes go from version to version by ``steps``, and from one foreign commit to the next by ``foreign_steps``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, assert_never

from lancewal_core.errors import InvalidInput, MergedPositionUnknown, ObjectCorrupt, VersionGone
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.conflicts_ref import PROPERTY_SETTLED, ConflictsRef
from lancewal_core.table.protocol import StoredTable, TransactionGone, TransactionInfo, TransactionUnreadable
from lancewal_core.table.watermarks import (
    PROPERTY_EXPIRY,
    PROPERTY_FOLLOWUP,
    PROPERTY_LOAD,
    PROPERTY_READ_VERSION,
    Watermarks,
    watermarks_of,
)

_VERSION = re.compile("[0-9]{1,20}")
_SAME_ROWS = frozenset({"Rewrite", "CreateIndex", "UpdateConfig", "BaseOperation"})
"""Lance's names of commits that change no row.  The binding calls a commit without a class ``BaseOperation``: above all
the reservation of fragment ids."""


StepSource = Literal["expiry", "load", "commit", "settle"]
"""Kinds of steps: expiry of rows, a bulk load, a commit of another program, a decision about keys in conflict."""


@dataclass(frozen=True, slots=True)
class ForeignStep:
    """A commit that changed rows independently of records, or several such commits that count as one."""

    before: TableVersion
    """Table version right before the step."""
    version: TableVersion
    source: StepSource


@dataclass(frozen=True, slots=True)
class Merge:
    uuid: str | None
    read_version: int | None
    """Table version that the merge was computed from.  None: unknown, since the transaction is gone or does not say
    it.
    """
    conflicts: ConflictsRef | None
    """Reference to the keys in conflict that are in force after the merge."""


@dataclass(frozen=True, slots=True)
class FollowUp:
    merge: str


@dataclass(frozen=True, slots=True)
class SameRows:
    """A version whose commit changed no row."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A version whose commit changed rows independently of records, or did something unknown."""

    source: StepSource | Literal["restore", "unknown"]


Commit = Merge | FollowUp | SameRows | Foreign


class Lineage:
    """The commits of a table.  Each is read once, because a version never changes.  The commits of a range are read
    concurrently.
    """

    def __init__(self, table: StoredTable, watermarks: Watermarks, tasks: Tasks) -> None:
        self.table = table
        self.watermarks = watermarks
        self._tasks = tasks
        self._commits: dict[int, Commit] = {}

    @classmethod
    def of(cls, opened: OpenedTable) -> Lineage:
        """Return the lineage of an open table."""
        return cls(opened.table, opened.watermarks, opened.tasks)

    def steps(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield the versions before and after each commit from ``low`` to ``high`` that may have changed rows.

        A merge, its follow-up and all commits between them are one step.
        """
        commits, followed = self.commits_after(low, high)
        version = low + 1
        while version <= high:
            before, end = version - 1, version
            while version <= end:
                commit = commits[version]
                if isinstance(commit, Merge) and commit.uuid is not None:
                    end = max(end, followed.get(commit.uuid, end))
                version += 1
            if not all(isinstance(commits[at], SameRows) for at in range(before + 1, end + 1)):
                yield before, end

    def foreign_steps(self, low: int, high: int) -> list[ForeignStep]:
        """Return the steps after version ``low`` up to ``high`` that changed rows independently of records, oldest
        first.

        A merge that was rebased over such a step counts as one too, with its follow-up and all commits between them.
        Reads may have shown the merge's patches over rows that the merge did not know.  A follow-up alone counts if
        its merge is not after ``low``.

        Raises ``VersionGone`` if nothing shows what a commit did.  Raises ``InvalidInput`` for a restore, which may
        have undone records that a reader has passed.
        """
        commits, followed = self.commits_after(low, high)
        merges = {commit.uuid for commit in commits.values() if isinstance(commit, Merge)}
        found: list[ForeignStep] = []
        passed = low
        for version, commit in commits.items():
            source: StepSource | None = None
            last = version
            match commit:
                case Merge(uuid=uuid) if not self.landed_alone(version, commit):
                    source, last = "commit", followed.get(uuid or "", version)
                case FollowUp(merge=merge) if merge not in merges:
                    source = "commit"
                case Foreign(source=kind):
                    source = _step_of(kind, version)
                case _:
                    pass
            if source is not None and version > passed:
                found.append(ForeignStep(TableVersion(version - 1), TableVersion(last), source))
                passed = last
        return found

    def commits_after(self, low: int, high: int) -> tuple[dict[int, Commit], dict[str, int]]:
        """Return the commits after ``low`` up to ``high`` by version, and for each merge the version of its follow-up."""
        unread = [version for version in range(low + 1, high + 1) if version not in self._commits]
        self._commits.update(zip(unread, self._tasks.map(self._read, unread), strict=True))
        commits = {version: self._commits[version] for version in range(low + 1, high + 1)}
        return commits, {commit.merge: at for at, commit in commits.items() if isinstance(commit, FollowUp)}

    def landed_alone(self, version: int, merge: Merge) -> bool:
        """Whether only commits that change no row lie between the merge and the version from which the merge was
        computed.
        """
        read_version = merge.read_version
        if read_version is None:
            try:
                read_version = self.watermarks.at(version - 1).version  # no merge is computed from one further below
            except MergedPositionUnknown:
                return False
        return all(isinstance(self.commit(v), SameRows) for v in range(version - 1, read_version, -1))

    def commit(self, version: int) -> Commit:
        if version not in self._commits:
            self._commits[version] = self._read(version)
        return self._commits[version]

    def _read(self, version: int) -> Commit:
        found = self.table.transaction(version)
        match found:
            case TransactionInfo():
                return _classify(found, version)
            case TransactionUnreadable():
                return SameRows()  # a compaction that rewrote an index (``watermarks``)
            case TransactionGone():
                return self._recorded(version)
            case _:
                assert_never(found)

    def _recorded(self, version: int) -> Commit:
        try:
            in_force = self.watermarks.at(version)
        except MergedPositionUnknown:
            return Foreign("unknown")
        # Without a merge's uuid a person has decided (``Watermarks.decide``): the version is a restore, or unknown.
        return (
            Merge(in_force.merge, None, in_force.conflicts)
            if in_force.version == version and in_force.merge
            else Foreign("unknown")
        )


def _step_of(source: StepSource | Literal["restore", "unknown"], version: int) -> StepSource:
    match source:
        case "restore":
            raise InvalidInput(
                f"table version {version}, between the two points, is a restore. It took back rows, and no record says which. "
                f"End one feed at version:{version - 1}, and begin the next at version:{version}. Or use mode 'net'"
            )
        case "unknown":
            raise VersionGone(
                f"table version {version}, between the two points, is gone: a clean-up removed it, and nothing tells what its "
                "commit did. Let clean-ups keep versions for as long as feeds read them",
                version=version,
            )
        case _:
            return source


def _classify(info: TransactionInfo, version: int) -> Commit:
    if PROPERTY_SETTLED in info.properties:
        return Foreign("settle")
    in_force = watermarks_of(info, version)
    if in_force is not None:
        read_version = info.properties.get(PROPERTY_READ_VERSION)
        if read_version is not None and _VERSION.fullmatch(read_version) is None:
            raise ObjectCorrupt(f"a merge's transaction is corrupt: its {PROPERTY_READ_VERSION} is not a table version")
        return Merge(in_force.merge, None if read_version is None else int(read_version), in_force.conflicts)
    if PROPERTY_FOLLOWUP in info.properties:
        return FollowUp(info.properties[PROPERTY_FOLLOWUP])
    if info.restored is not None:
        return Foreign("restore")
    if info.operation in _SAME_ROWS:
        return SameRows()
    if PROPERTY_LOAD in info.properties:
        return Foreign("load")
    return Foreign("expiry" if PROPERTY_EXPIRY in info.properties else "commit")
