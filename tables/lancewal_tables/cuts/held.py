"""Check whether each table of a cut can be read at it, and how many bytes the cut's snapshots keep from deletion."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lancewal_core.catalog.cut import Cut
from lancewal_core.errors import LancewalError
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.protocol import PinnedTable, StoredTable
from lancewal_core.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class HeldByCut:
    """State of one table in a cut."""

    nbytes: int | None = None
    """Bytes of the data files that the table's snapshot has and its newest version does not.  None if the table cannot
    be read, or for a moving cut, which has no snapshots."""
    fault: str = ""
    """Kind and text of the error with which a read of the table at the cut fails; empty if the table can be read."""


def look_at(cut: Cut, open_table: Callable[[str], OpenedTable], tasks: Tasks) -> Mapping[str, HeldByCut]:
    """Return the state of each table of the cut.  ``open_table`` opens the table at an address."""
    from lancewal_reader.cuts import readable_at

    def look(name: str) -> HeldByCut:
        try:
            opened, kept = readable_at(cut, name, open_table)
            return HeldByCut(None if kept is None else _held(kept, opened.table.newest()))
        except LancewalError as error:
            return HeldByCut(fault=f"{error.kind}: {error}")

    return dict(zip(cut.tables, tasks.map(look, list(cut.tables)), strict=True))


def held_bytes(table: StoredTable, snapshot: Snapshot, newest: PinnedTable) -> int:
    """Return the bytes of the data files that the snapshot has and the version ``newest`` does not."""
    return _held(table.branch(snapshot.name).at(snapshot.branch_version), newest)


def _held(kept: PinnedTable, newest: PinnedTable) -> int:
    return sum(size for _, size in _files(kept).items() - _files(newest).items())


def _files(pinned: PinnedTable) -> dict[str, int]:
    """Return the sizes in bytes of a version's data files, by path; 0 if Lance has not recorded the size."""
    files = [file for one in pinned.fragments() for file in json.loads(pinned.fragment_json(one.fragment_id))["files"]]
    return {file["path"]: file.get("file_size_bytes") or 0 for file in files}
