"""Drop named snapshots: by name, or because they have expired.

Guarantees
 1. Only branches that lancewal has made are dropped: a user's branch does not have lancewal's notes.  A drop by name
    also removes a folder that Lance does not list as a branch: the remains of a ``create`` that died.
 2. Without a name, a snapshot is dropped if it has expired, by the clock of the process that drops it.  A snapshot
    that was begun more than a day ago and never completed counts as expired.  If several snapshots are made together
    and one fails, those already made are dropped (``drop_made``).  A snapshot that was made again under the same name
    stays, unless that happens between the check and the drop right after it.

A read that is running during the drop ends with ``SnapshotMissing`` or ``VersionGone``.  It never returns wrong rows.
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
    """Return the names of the snapshots that have expired (``is_over``)."""
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
    """Return whether a snapshot has expired: its time is over, or it was begun more than a day ago and never
    completed.  False if its notes cannot be read.
    """
    try:
        begun, made = begun_ms(branch), snapshot_of(branch)
    except Corrupt:
        return False  # nobody knows until when; whoever lists them is told
    if begun is not None:
        return now_ms - begun > BEGUN_MAX_MS
    return made is not None and made.until_ms is not None and made.until_ms <= now_ms
