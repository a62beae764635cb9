"""Named snapshots: branches of the Lance table whose metadata say which state of the table they hold.

The *notes* of a branch are its metadata, a text for each name.  Plain Lance shows them (``dataset.branches.list()``):

==========================
============================================================================================== ``lancewal.snapshot``
format version of these notes, ``1``; ``begun`` while the snapshot is being made ``lancewal.receipt``        receipt
of the read whose rows the snapshot has (``lw1...``) ``lancewal.version``        the branch's version with these rows
``lancewal.created_at``     time when the snapshot was made; while it is being made, when this began
``lancewal.maker``          while the snapshot is being made: random id of the attempt that makes it
``lancewal.until``          time from which garbage collection drops the snapshot; without this note, never
``lancewal.left_out``       JSON: what the read left out because of keys in conflict, if anything ``lancewal.cut``
JSON: the cut of a catalog that the snapshot belongs to, if any (``lancewal_core.catalog.cut``) ``lancewal.left_over``
``1`` once a process began to drop the snapshot, since its cut had no record in the catalog ==========================
==============================================================================================

A branch without ``lancewal.snapshot`` is a user's branch, not a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lancewal_core.errors import Corrupt, FormatUnknown, InvalidInput, ObjectCorrupt, some_of
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.clock import ms_since_1970, utc_text
from lancewal_core.store.json_object import JsonFault, JsonObject
from lancewal_core.table.protocol import Branch, StoredTable

NOTE = "lancewal.snapshot"
_FORMAT = "1"
_BEGUN = "begun"
_RECEIPT = "lancewal.receipt"
_VERSION = "lancewal.version"
_CREATED = "lancewal.created_at"
_UNTIL = "lancewal.until"
_LEFT_OUT = "lancewal.left_out"
_CUT = "lancewal.cut"
_LEFT_OVER = "lancewal.left_over"
_MAKER = "lancewal.maker"
_YEAR_10000_MS = 253_402_300_800_000
NAME_MAX = 64
_NAMED_MAX = 20
NAME_FORM = (
    f"1 to {NAME_MAX} characters of [a-zA-Z0-9._-], not 'main' nor *.lock, no dot first or last, no two in a row"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A named snapshot.  ``version`` is the table's version at which its branch begins.  ``branch_version`` is the
    branch's version with the snapshot's rows."""

    name: str
    version: TableVersion
    branch_version: TableVersion
    receipt: str
    """Text of the receipt.  A read at this receipt has the rows of the snapshot."""
    created_ms: int
    until_ms: int | None
    """Time from which garbage collection drops the snapshot, in milliseconds since 1970; None: never."""
    waiting: int = 0
    """Number of keys in conflict that waited for a person's decision when the snapshot was made."""
    unmerged: int = 0
    """Number of keys in conflict whose unmerged records the snapshot leaves out."""
    partitions: tuple[int, ...] = ()
    """Partitions through which records of the ``unmerged`` keys came."""
    cut: str = ""
    """The note ``lancewal.cut``: JSON about the cut that the snapshot belongs to; empty if it belongs to none."""

    def notes(self) -> dict[str, str]:
        """Return the notes of the snapshot's branch."""
        found = {
            NOTE: _FORMAT,
            _RECEIPT: self.receipt,
            _VERSION: str(self.branch_version),
            _CREATED: utc_text(self.created_ms),
        }
        if self.until_ms is not None:
            found[_UNTIL] = utc_text(self.until_ms)
        if self.waiting or self.unmerged:
            left = {"waiting": self.waiting, "unmerged": self.unmerged, "partitions": list(self.partitions)}
            found[_LEFT_OUT] = json.dumps(left)
        return found | _of_cut(self.cut)


def check_until(until_ms: int) -> int:
    """Return ``until_ms``.  Raise ``InvalidInput`` if it lies after the year 9999, since no note can hold such a
    time."""
    if until_ms >= _YEAR_10000_MS:
        raise InvalidInput("the snapshot would be kept until after the year 9999. Leave out --for to keep it for ever")
    return until_ms


def begun(now_ms: int, maker: str, cut: str = "") -> dict[str, str]:
    """Return the notes of a branch that is to become a snapshot.  ``maker``: random id of the attempt.  ``cut``: as in
    ``Snapshot``."""
    return {NOTE: _BEGUN, _CREATED: utc_text(now_ms), _MAKER: maker} | _of_cut(cut)


def _of_cut(cut: str) -> dict[str, str]:
    return {_CUT: cut} if cut else {}


def cut_of(branch: Branch) -> str:
    """Return the note about the cut that a finished or unfinished snapshot belongs to; empty if it belongs to none."""
    return branch.notes.get(_CUT, "")


def marked_left_over(notes: Mapping[str, str]) -> dict[str, str]:
    """Return ``notes`` with the note that a process has begun to drop the snapshot, since its cut has no record."""
    return {**notes, _LEFT_OVER: "1"}


def is_ours(branch: Branch) -> bool:
    return NOTE in branch.notes


def is_unfinished(branch: Branch) -> bool:
    """Return whether the branch is to become a snapshot: it is being made, or the process that made it died."""
    return branch.notes.get(NOTE) == _BEGUN


def begun_ms(branch: Branch) -> int | None:
    """Return when an unfinished snapshot was begun, in milliseconds since 1970; None for every other branch."""
    return _ms(branch, _CREATED) if is_unfinished(branch) else None


def snapshot_of(branch: Branch) -> Snapshot | None:
    """Return the snapshot of a branch; None if the branch is a user's, or its snapshot is not finished.

    Raise ``FormatUnknown`` for a snapshot of a later release, and ``ObjectCorrupt`` for one with damaged notes."""
    form = branch.notes.get(NOTE)
    if form is None or form == _BEGUN:
        return None
    if form != _FORMAT:
        raise FormatUnknown(
            f"snapshot {branch.name!r}: this release does not read format {form[:20]!r}: upgrade lancewal"
        )
    receipt, version = branch.notes.get(_RECEIPT), branch.notes.get(_VERSION, "")
    if receipt is None or not version.isascii() or not version.isdigit():
        raise ObjectCorrupt(
            f"snapshot {branch.name!r}: its branch's metadata have no {_RECEIPT!r}, or no number as {_VERSION!r}"
        )
    until = _ms(branch, _UNTIL) if _UNTIL in branch.notes else None
    try:
        left = JsonObject.parse(branch.notes.get(_LEFT_OUT, '{"waiting": 0, "unmerged": 0, "partitions": []}'))
        counts = left.whole("waiting"), left.whole("unmerged"), tuple(left.wholes("partitions"))
    except JsonFault as error:
        raise ObjectCorrupt(f"snapshot {branch.name!r}: {_LEFT_OUT!r} cannot be read: {error}") from error
    created = _ms(branch, _CREATED)
    at = TableVersion(int(version))
    return Snapshot(branch.name, branch.version, at, receipt, created, until, *counts, cut=cut_of(branch))


def snapshots(table: StoredTable) -> Sequence[Snapshot]:
    """Return all finished snapshots, sorted by name.  Raise the error of the first snapshot that is damaged or of a
    later release."""
    found, faults = readable_snapshots(table)
    if faults:
        raise faults[0]
    return found


def readable_snapshots(table: StoredTable) -> tuple[Sequence[Snapshot], Sequence[Corrupt]]:
    """Return the snapshots that can be read, and the faults of the others."""
    found: list[Snapshot] = []
    faults: list[Corrupt] = []
    for branch in table.branches():
        try:
            snapshot = snapshot_of(branch)
        except Corrupt as fault:
            faults.append(fault)
        else:
            found += [] if snapshot is None else [snapshot]
    return found, faults


def snapshots_there(table: StoredTable) -> str:
    """Return a text that names the existing snapshots, for the error about a name that does not exist.

    Only names are read, so that a damaged snapshot does not hide that error.  If some branch cannot be read, the text
    also says so, since that branch may be the one that was asked for."""
    names = sorted(branch.name for branch in table.branches() if branch.notes.get(NOTE, _BEGUN) != _BEGUN)
    there = f"there are {some_of(names, _NAMED_MAX)}" if names else "there are none"
    fault = table.names_fault()
    return there if fault is None else f"{there}; {fault}"


def has_notes(table: StoredTable, name: str, notes: Mapping[str, str]) -> bool:
    """Return whether the branch ``name`` still has exactly these notes.  If not, the snapshot may have been dropped,
    and its name used again."""
    branch = table.find_branch(name)
    return branch is not None and branch.notes == notes


def check_name(name: str) -> str:
    """Return ``name``.  Raise ``InvalidInput`` if no snapshot may have it.  The name becomes part of a path, and the
    name of a Lance branch.
    """
    plain = all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
    dots = ".." in name or name.strip(".") != name or name.endswith(".lock")
    if not plain or not 0 < len(name) <= NAME_MAX or name == "main" or dots:
        raise InvalidInput(f"{name[:NAME_MAX]!r} is not a valid snapshot name: {NAME_FORM}")
    return name


def _ms(branch: Branch, key: str) -> int:
    text = branch.notes.get(key, "")
    try:
        return ms_since_1970(datetime.fromisoformat(text))
    except (ValueError, TypeError) as error:
        raise ObjectCorrupt(f"snapshot {branch.name!r}: {key} {text[:40]!r} is not a time") from error


def about(snapshot: Snapshot) -> Mapping[str, object]:
    """Return the members of a snapshot in reports, such as ``--json`` output."""
    return {
        "name": snapshot.name,
        "version": snapshot.version,
        "receipt": snapshot.receipt,
        "created_at": utc_text(snapshot.created_ms),
        "keys_left_out": snapshot.waiting + snapshot.unmerged,
        "until": None if snapshot.until_ms is None else utc_text(snapshot.until_ms),
    }
