"""Kept cuts that hold data files of a table, for its status.

The table's own snapshots say of which cut they are, so no catalog is asked.  A snapshot that an interrupted `cut make`
left keeps its files as well, so it is shown.  Snapshots in a folder that was moved are in no cut any more.  A table
without branches costs one listing.
"""

from __future__ import annotations

from lancewal_core.catalog.cut import cut_note
from lancewal_core.errors import LancewalError
from lancewal_core.process.status.report import CutStatus
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.snapshots import Snapshot, readable_snapshots
from lancewal_tables.cuts.held import held_bytes


def kept_cuts(opened: OpenedTable, newest: PinnedTable) -> tuple[CutStatus, ...]:
    """Return the cuts that have a snapshot of the table, by name.  Snapshots that cannot be read are left out."""

    from lancewal_reader.point.receipt import Receipt

    def one(snapshot: Snapshot) -> CutStatus | None:
        try:
            name = cut_note(snapshot.cut, f"snapshot {snapshot.name}").cut
            if Receipt.parse(snapshot.receipt).table_uuid != opened.contract.uuid:
                return None
        except LancewalError:
            return None  # `lancewal snapshot list` names it
        try:
            nbytes = held_bytes(opened.table, snapshot, newest)
        except LancewalError:
            nbytes = None  # it was dropped meanwhile, or the store did not answer
        return CutStatus(name, snapshot.name, nbytes, snapshot.until_ms)

    of_cuts = [snapshot for snapshot in readable_snapshots(opened.table)[0] if snapshot.cut]
    found = [status for status in opened.tasks.map(one, of_cuts) if status is not None] if of_cuts else []
    return tuple(sorted(found, key=lambda status: (status.name, status.snapshot)))
