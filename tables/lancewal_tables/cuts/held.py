"""Look at a kept cut: whether each of its snapshots is there, and what they hold in bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.errors import CutMissing, LancewalError
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.protocol import PinnedTable, Table
from lancewal_core.table.snapshots import Snapshot, snapshot_of
from lancewal_core.table.watermarks import TABLE_UUID


@dataclass(frozen=True, slots=True)
class HeldByCut:
    """State of one table in a cut."""

    nbytes: int | None = None
    """Bytes of data files that the snapshot names and the newest table does not; None if that is unknown."""
    fault: str = ""
    """Why the table cannot be read at the cut; empty if it can."""


def look_at(cut: Cut, open_table: Callable[[str], Table], tasks: Tasks) -> Mapping[str, HeldByCut]:
    """Return the state of each table of the cut.  ``open_table`` opens the table at an address."""

    def look(name: str) -> HeldByCut:
        try:
            return _look(cut.tables[name], open_table(cut.tables[name].uri))
        except LancewalError as error:
            return HeldByCut(fault=f"{error.kind}: {error}")

    return dict(zip(cut.tables, tasks.map(look, list(cut.tables)), strict=True))


def _look(of: CutTable, table: Table) -> HeldByCut:
    newest = table.newest()
    found = newest.config.get(TABLE_UUID)
    if found != of.table_uuid:
        raise CutMissing(f"at {of.uri} there is now the table with uuid {found}, the cut is of {of.table_uuid}")
    if of.snapshot is None:
        return HeldByCut()
    branch = table.find_branch(of.snapshot)
    snapshot = None if branch is None else snapshot_of(branch)
    if snapshot is None or snapshot.receipt != of.receipt:
        raise CutMissing(f"its snapshot {of.snapshot} was dropped")
    return HeldByCut(held_bytes(table, snapshot, newest))


def held_bytes(table: Table, snapshot: Snapshot, newest: PinnedTable) -> int:
    """Return the bytes of data files that the snapshot names and the newest version does not."""
    held = _files(table.branch(snapshot.name).at(snapshot.branch_version)).items() - _files(newest).items()
    return sum(size for _, size in held)


def _files(pinned: PinnedTable) -> dict[str, int]:
    """Return the data files of a version, with their sizes in bytes as far as recorded."""
    files = [file for one in pinned.fragments() for file in json.loads(pinned.fragment_json(one.fragment_id))["files"]]
    return {file["path"]: file.get("file_size_bytes") or 0 for file in files}
