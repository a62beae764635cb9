"""Snapshots that are left over: made for a cut of this catalog that has no such record.

A maker that died leaves them, and so does one that still runs: between its snapshots and its record nothing tells the two
apart.  Whoever drops those of a running maker makes it fail by name.  Snapshots that were made for another catalog are
left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.cut_note import CutNote, cut_note
from lancewal_core.errors import Corrupt
from lancewal_core.table.protocol import Branch, Table
from lancewal_core.table.snapshots import cut_of
from lancewal_flusher.garbage.snapshots import drop_same


@dataclass(frozen=True, slots=True)
class OfCut:
    """A snapshot of a table, finished or not, that says of which cut it is."""

    branch: Branch
    note: CutNote


def snapshots_of_cuts(table: Table, where: str) -> list[OfCut]:
    """Return the snapshots of a table that were made for cuts of the catalog ``where``.  A note that cannot be read is passed
    over: `lancewal snapshot list` names it."""
    found = []
    for branch in table.branches():
        text = cut_of(branch)
        try:
            note = cut_note(text, f"snapshot {branch.name}") if text else None
        except Corrupt:
            continue
        if note is not None and note.catalog == where:
            found.append(OfCut(branch, note))
    return found


def drop_left_over(table: Table, where: str, instead_of: Cut | str) -> list[str]:
    """Drop the snapshots that earlier makings of a cut have left over, and return their names.

    ``instead_of`` is the cut of that name, whose own snapshots stay, or the name if there is no cut."""
    name, kept = (instead_of, None) if isinstance(instead_of, str) else (instead_of.name, instead_of.write_id)
    old = [one for one in snapshots_of_cuts(table, where) if one.note.cut == name and one.note.write_id != kept]
    return [one.branch.name for one in old if drop_same(table, one.branch.name, one.branch.notes)]
