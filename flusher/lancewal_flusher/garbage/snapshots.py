"""Drop named snapshots: by name, or because their time is over.

Guarantees
 1. Only branches that lancewal has made are dropped: a user's branch does not have lancewal's notes.  A drop by name also
    removes the remains of a ``create`` that died before it wrote notes; Lance knows no branch of them.
 2. Without a name, a snapshot is dropped if its time is over, by the clock of the process that looks.  The same holds for
    a snapshot that was begun a day ago and never completed, and for one of several that were to be made together, if
    another one of them cannot be made.  A snapshot that was made again under its name stays, unless this happens
    between a look and the drop right after it.

A read of the snapshot that is under way meets files that are gone: ``SnapshotMissing`` or ``VersionGone``, no wrong
row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lancewal_core.errors import Corrupt, InvalidInput, SnapshotMissing
from lancewal_core.table.protocol import Branch, StoredTable
from lancewal_core.table.snapshots import (
    Snapshot,
    begun_ms,
    check_name,
    has_notes,
    is_ours,
    snapshot_of,
    snapshots_there,
)

BEGUN_MAX_MS = 24 * 3600 * 1000


def drop_snapshot(table: StoredTable, name: str, *, look_only: bool = False) -> None:
    """Drop a snapshot by name.  With ``look_only``, only check that it exists.

    Raises ``SnapshotMissing`` if there is none.  Raises ``InvalidInput`` if the name is that of a user's branch, or not
    valid for snapshots.
    """
    branch = table.find_branch(name)
    if branch is not None and not is_ours(branch):
        raise InvalidInput(f"branch {name} is not a snapshot: delete it with Lance, dataset.branches.delete({name!r})")
    check_name(name)  # without a branch, its remains are looked for in a folder of that name
    if look_only and branch is not None:
        return
    if look_only or not table.drop_branch(name):
        raise SnapshotMissing(f"there is no snapshot {name!r}: {snapshots_there(table)}", snapshot=name)


def drop_made(table: StoredTable, made: Snapshot) -> bool:
    """Drop exactly this snapshot, not another one with its name.  Return whether it still existed."""
    return drop_same(table, made.name, made.notes())


def drop_same(table: StoredTable, name: str, notes: Mapping[str, str]) -> bool:
    """Drop the snapshot with this name if it still has exactly these notes.  Return whether it existed."""
    return has_notes(table, name, notes) and table.drop_branch(name)


def overdue(table: StoredTable, now_ms: int) -> Sequence[str]:
    """Return the names of the snapshots that have expired."""
    return [branch.name for branch in table.branches() if is_over(branch, now_ms)]


def drop_overdue(table: StoredTable, now_ms: int) -> tuple[str, ...]:
    """Drop the snapshots that have expired, and return their names.  Each is checked again right before its drop,
    because earlier drops take time.
    """
    return tuple(name for name in overdue(table, now_ms) if _drop_if_over(table, name, now_ms))


def _drop_if_over(table: StoredTable, name: str, now_ms: int) -> bool:
    branch = table.find_branch(name)
    return branch is not None and is_over(branch, now_ms) and table.drop_branch(name)


def is_over(branch: Branch, now_ms: int) -> bool:
    """Return whether a snapshot has expired."""
    try:
        begun, made = begun_ms(branch), snapshot_of(branch)
    except Corrupt:
        return False  # nobody knows until when; whoever lists them is told
    if begun is not None:
        return now_ms - begun > BEGUN_MAX_MS
    return made is not None and made.until_ms is not None and made.until_ms <= now_ms
