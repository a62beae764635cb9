"""Send a commit, and find out whether and at which version it landed.

Guarantees
 1. ``send`` returns the version at which the commit landed, or ``Refused`` if it did not land, or raises
    ``CommitUnknown``.  A refused commit never disturbs a later commit.  If the reply was lost, ``send`` searches the
    versions for the commit's uuid.
 2. The watermarks in force stay known if a clean-up leaves only the newest version, after any number of lancewal's
    commits in a row.  ``checkpoint`` before each commit ensures this; it raises what reading watermarks raises.  After
    two commits of others in a row, such a clean-up makes the watermarks unknown.
 3. ``prove`` returns only if no merge lies between the version that a merge, or a part of a load, was computed from
    and its own.
 4. Lance compares a commit with the versions above the one it was computed from, as far as these still exist.  A tag
    may keep the version read while a clean-up takes versions above it.  The commit could then undo what the missing
    versions changed in a fragment.  ``send`` therefore refuses if one of these versions is gone.  A clean-up may also
    take such a version while ``send`` runs.  ``send`` then raises ``MergeUnproven`` if the commit undid a change
    (``check_nothing_undone``).  The check passes if a version that it needs is gone.  Files of a column that was
    dropped in between do not count.  Finishing a merge repeats the check.
 5. ``send`` checks right before the commit that the table is still at its place (``check_present``).  If another
    table was made there and has a version of this number, Lance would commit into that table.  The check misses a
    table that is made between check and commit.

A commit without a reply may still land after ``send`` has returned ``Refused``.  The sentinel makes that harmless.
Either the commit lands before our next commit, which is then refused, or it is refused itself.

If the version read is gone, Lance most likely refuses the commit, but its answer proves nothing.  ``send`` then also
returns ``Refused`` for a commit that may have landed in a version that is gone by now.  The next plan starts from the
newest version.  That version shows what has landed: a merge by the watermarks, others by the rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import assert_never

from lancewal_core.errors import ATTACH_A_COPY, CommitUnknown, MergedPositionUnknown, MergeUnproven, VersionGone
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.failpoints import point
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.presence import check_present
from lancewal_core.table.protocol import (
    CommitLost,
    Committed,
    Conflicted,
    Fragment,
    PinnedTable,
    RowNumbers,
    TableCommit,
    TransactionGone,
    TransactionInfo,
    TransactionUnreadable,
    version_exists,
    without_fields,
)
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.context import FlusherContext


class Why(StrEnum):
    """Reasons why a commit, or the planning before it, was refused."""

    CONFLICT = "conflict"
    """Another commit landed first and conflicts."""
    LOST = "lost"
    """The commit's reply was lost, and it is in no version."""
    CLEANED_UP = "cleaned-up"
    """A clean-up removed a version or files that the commit needs."""
    UNFINISHED = "unfinished"
    """The merge in force must be finished first."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A commit that did not land, or that the planning before it gave up.  ``reason``: text for people; ``why``: its
    kind.
    """

    reason: str
    why: Why = Why.CONFLICT
    perhaps_landed: bool = False
    """Whether the commit may have landed after all.  This cannot be found out, because the version that it was
    computed from is gone.  If it landed, the newest version has its rows."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A commit that landed.  ``pinned`` is its version, or None if Lance did not return it."""

    version: TableVersion
    pinned: PinnedTable | None = None


def send(context: FlusherContext, commit: TableCommit, uuid_property: str) -> Landed | Refused:
    """Send a commit to Lance, and find out whether it landed.  ``uuid_property``: the name of the property with the
    commit's uuid.

    Raises ``CommitUnknown`` if this cannot be found out now.  The watermarks tell the next round whether a merge
    landed.  Raises ``TableMissing`` or ``TableReplaced`` if the table was deleted; then nothing is committed.
    """
    checkpoint(context, commit.read_version)
    gone = _first_gone(context, commit.read_version)
    if gone == commit.read_version:
        return Refused(f"version {gone}, which the commit was computed from, was cleaned up", Why.CLEANED_UP)
    if gone is not None:
        return Refused(
            f"version {gone} was cleaned up: it is unknown what it changed in fragments of version {commit.read_version}",
            Why.CLEANED_UP,
        )
    check_present(context.store, context.contract)
    with point("commit.send", read_version=commit.read_version):
        outcome = context.table.commit(commit)
    with point("commit.recv", read_version=commit.read_version):
        pass
    landed: TableVersion | None
    pinned: PinnedTable | None = None
    match outcome:
        case Committed(version=version):
            landed, pinned = version, outcome.pinned
        case Conflicted(reason=reason):
            return Refused(reason)
        case CommitLost(cause=cause):
            try:
                landed = _find(context, commit.read_version, uuid_property, commit.properties[uuid_property])
            except CommitUnknown as error:
                if version_exists(context.table, commit.read_version):
                    raise
                return Refused(f"the version read was cleaned up: {error}", Why.CLEANED_UP, perhaps_landed=True)
            if landed is None:
                return Refused(f"the commit did not land: {cause}", Why.LOST)
        case _:
            assert_never(outcome)
    check_nothing_undone(context, commit.read_version, landed)
    return Landed(landed, pinned)


def checkpoint(context: FlusherContext, version: TableVersion) -> None:
    """Record the watermarks at a version before lancewal adds a commit of its own to that version.

    Without the record, a clean-up could leave only the last of two such commits, which has no watermarks.  Raises
    ``StoreUnavailable`` while it is uncertain whether the record is stored.
    """
    in_force = context.watermarks.at(version)
    if in_force.version != version:
        context.watermarks.recorded(in_force, version, "checkpoint")


def prove(context: FlusherContext, read_version: TableVersion, version: TableVersion, what: str = "merge") -> None:
    """Raise ``MergeUnproven`` unless it is proven that no other merge lies between ``read_version`` and ``version``
    (guarantee 3).  ``what``: the kind of the commit at ``version``, for the message.
    """
    if version == read_version + 1:
        return
    computed = f"table version {version} is a {what} computed at version {read_version}"
    doubt = f"rows of both may be there, keys twice: `lancewal verify` names them. To go on, {ATTACH_A_COPY}"
    try:
        before = context.watermarks.at(version - 1)
    except MergedPositionUnknown as error:
        raise MergeUnproven(
            f"{computed}. That no other merge came in between cannot be proven: {error}; {doubt}", version=version
        ) from error
    if before.version > read_version:
        raise MergeUnproven(f"{computed}, but version {before.version} is a merge too: {doubt}", version=version)


def _first_gone(context: FlusherContext, version: TableVersion) -> TableVersion | None:
    """Return the lowest version, from ``version`` to the newest, that a clean-up has removed; None if all exist."""
    asked = [TableVersion(v) for v in range(version, context.table.newest().version)]
    if not asked:
        return None
    exist = context.tasks.map(lambda v: version_exists(context.table, v), asked)
    return next((v for v, exists in zip(asked, exist, strict=True) if not exists), None)


def check_nothing_undone(context: FlusherContext, read_version: TableVersion, version: TableVersion) -> None:
    """Raise ``MergeUnproven`` if the commit at ``version`` undid changes of versions in between (guarantee 4).

    The check needs three versions: the one read, the one below the commit, and the commit's.  If one is gone, it
    passes.
    """
    if version == read_version + 1:
        return
    try:
        read, below, landed = (context.table.at(TableVersion(v)) for v in (read_version, version - 1, version))
        ids = frozenset(chain.from_iterable(landed.field_ids.values()))
        before = {f.fragment_id: f for f in read.fragments()}
        left = {f.fragment_id: f for f in below.fragments()}
        now = {f.fragment_id for f in landed.fragments()}
        changed = [i for i, fragment in before.items() if left.get(i) != fragment]
        changed = [i for i in changed if i not in left or _shown(read, i, ids) != _shown(below, i, ids)]
        undone = [
            i
            for i in changed
            if (i in left) != (i in now) or (i in now and _shown(below, i, ids) != _shown(landed, i, ids))
        ]
    except VersionGone:
        return
    if undone:
        raise MergeUnproven(
            f"table version {version} was computed at version {read_version}. It undoes what versions in between did "
            f"to fragments {undone[:5]}, since a clean-up removed these versions too early. Rows may be there twice, "
            f"or be back. Restore version {version - 1}, and have clean-ups keep versions that are younger than an "
            "hour",
            version=version,
        )


def _shown(pinned: PinnedTable, fragment_id: int, ids: Collection[int]) -> object:
    """Return a fragment's JSON, parsed, without dropped columns in its files.  ``ids``: the ids of the table's
    fields.

    Dropping a column removes the data files that hold only this column.  A commit that was computed before the drop
    brings these files back, without effect."""
    fragment = pinned.fragment_json(fragment_id)
    held = {i for file in json.loads(fragment)["files"] for i in file["fields"]}
    return json.loads(without_fields(fragment, held.difference(ids)))


def is_finished(context: FlusherContext, in_force: InForce) -> bool:
    """Whether the merge that set these watermarks is finished (``merge.finish``).  True also if no merge set them.

    True is cached, because a finished merge stays finished, and its ``finished`` object is never deleted.
    """
    if in_force.version == 0 or in_force.merge is None:
        return True
    if (in_force.version, in_force.merge) in context.finished:
        return True
    if context.store.get(paths.merge_finished(in_force.version, context.contract.making)) is None:
        return False
    remember_finished(context, in_force)
    return True


def newest_finished(context: FlusherContext) -> PinnedTable | Refused:
    """Open the newest version.  Return ``Refused`` if its merge is not finished.  Raises the errors of ``check_fit``."""
    pinned = context.table.newest()
    check_fit(context.store, pinned, context.contract)
    in_force = context.watermarks.at(pinned.version)
    if not is_finished(context, in_force):
        return Refused(f"the merge of table version {in_force.version} is not finished yet", Why.UNFINISHED)
    return pinned


def remember_finished(context: FlusherContext, in_force: InForce) -> None:
    """Record for ``is_finished`` that the ``finished`` object of this merge is stored."""
    context.finished.clear()
    context.finished.add((in_force.version, in_force.merge))


def sentinel(fragments: Sequence[Fragment]) -> Fragment | None:
    """Return the sentinel: the fragment with the lowest id, which every merge lists as changed.  Return None without
    fragments.
    """
    return min(fragments, key=lambda f: f.fragment_id, default=None)


Changed = Mapping[int, str | None]
"""New JSON of each changed fragment, by fragment id; None if no row of the fragment is left."""


def hide(pinned: PinnedTable, rows: Mapping[int, RowNumbers]) -> Changed:
    """Write a deletion vector for each of these fragments that hides these physical rows.  The vectors take effect with
    the next commit.
    """
    return {fragment_id: pinned.hide_rows(fragment_id, rows[fragment_id]) for fragment_id in sorted(rows)}


def commit_of(
    pinned: PinnedTable, new: Sequence[str], changed: Changed, properties: Mapping[str, str], *, strict: bool = False
) -> TableCommit:
    """Return a commit of new and changed fragments, computed from ``pinned``.  ``new``: JSON.  ``strict``: as in
    ``TableCommit``.
    """
    updated = tuple(text for text in changed.values() if text is not None)
    removed = tuple(fragment_id for fragment_id, text in changed.items() if text is None)
    return TableCommit(pinned.version, tuple(new), updated, removed, properties, strict)


def fenced(pinned: PinnedTable, new: Sequence[str], changed: Changed, properties: Mapping[str, str]) -> TableCommit:
    """Return a commit that conflicts with merges, because it always lists the sentinel."""
    guard = sentinel(pinned.fragments())
    if guard is not None and guard.fragment_id not in changed:
        changed = {**changed, guard.fragment_id: pinned.fragment_json(guard.fragment_id)}
    return commit_of(pinned, new, changed, properties, strict=not pinned.fragments())


def missing_files(context: FlusherContext, names: Collection[str]) -> set[str]:
    """Return the data files that do not exist.  Each file is checked by its own request."""
    asked = sorted(names)
    looks = context.tasks.map(lambda name: context.table.files_missing([name]), asked) if asked else []
    return {name for found in looks for name in found}


def lost_files(context: FlusherContext, names: Collection[str]) -> set[str]:
    """Return the data files that do not exist although the newest version needs them."""
    missing = missing_files(context, names)
    if missing:  # others may have replaced them since, and a clean-up has come: then nobody misses them
        missing &= {name for f in context.table.newest().fragments() for name in f.files}
    return missing


def _find(context: FlusherContext, read_version: TableVersion, key: str, uuid: str) -> TableVersion | None:
    newest = context.table.newest().version
    for version in range(read_version + 1, newest + 1):
        found = context.table.transaction(version)
        match found:
            case TransactionInfo():
                if found.properties.get(key) == uuid:
                    return TableVersion(version)
            case TransactionUnreadable():
                pass  # not ours: our own commits can be read, since our ``Rewrite`` names no index
            case TransactionGone():
                raise CommitUnknown(
                    f"whether commit {uuid}, computed at version {read_version}, landed is unknown: version {version} is "
                    "gone already. The next round learns it from the merged positions",
                    version=version,
                )
            case _:
                assert_never(found)
    return None
