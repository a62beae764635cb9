"""Snapshots that are *left over*: made for a cut whose record is not in this catalog.

The *maker* is the process that runs `cut make`.  It makes the snapshots first, and writes the cut's record last.  So
between the two nothing tells the snapshots of a dead maker from those of a running one.  Snapshots for another catalog
are not touched.  Snapshots for this catalog, made under another name of its host, are not touched either.

Guarantee: a snapshot that is dropped here is not needed by a cut of the catalog, even if the maker still runs.  A maker
that writes its record after step 3 finds the mark of step 2, and removes the record again.  If it dies before, or gets
no answer, the cut stays and is incomplete.  `cut show` then names the table.

Unfinished snapshots are not marked.  Garbage collection drops them a day after they were begun.  The reason: a mark
replaces all notes of a branch.  If the maker finished its snapshot right before the mark, the mark would make a
snapshot of a complete cut unfinished again.

Steps of a drop
 1. Look in the catalog whether the cut of that name is the one that the snapshot was made for.  If so, or if the
    snapshot is unfinished, keep the snapshot and stop.
 2. Mark the snapshot as left over, in the metadata of its branch.
 3. Look at the catalog once more.  If the cut is there now, stop; a mark on a snapshot of an existing cut has no
    effect.
 4. Drop the snapshot, if it still has the mark.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.cut import CutNote, cut_note, snapshots_begin
from lancewal_core.errors import Corrupt
from lancewal_core.store.address import same_place
from lancewal_core.table.protocol import Branch, StoredTable
from lancewal_core.table.snapshots import cut_of, has_notes, is_unfinished, marked_left_over
from lancewal_flusher.garbage.snapshots import drop_same


@dataclass(frozen=True, slots=True)
class OfCut:
    """A snapshot of a table, finished or not, with a note about the cut for which it was made."""

    branch: Branch
    note: CutNote


def snapshots_of_cuts(table: StoredTable, where: str, name: str | None = None) -> list[OfCut]:
    """Return the snapshots of a table that were made for cuts of the catalog ``where``; with ``name``, only for the cut
    of this name.

    A snapshot whose note cannot be read is left out.  `lancewal snapshot list` names it.
    """
    found = []
    for branch in table.branches("" if name is None else snapshots_begin(name)):
        text = cut_of(branch)
        try:
            note = cut_note(text, f"snapshot {branch.name}") if text else None
        except Corrupt:
            continue
        if note is not None and same_place(note.catalog, where) and name in (None, note.cut):
            found.append(OfCut(branch, note))
    return found


def drop_left_over(catalog: StoredCatalog, table: StoredTable, name: str) -> list[str]:
    """Drop the snapshots of a table that interrupted attempts to make the cut ``name`` have left.  Return their names."""
    of_name = snapshots_of_cuts(table, catalog.where, name)
    return [one.branch.name for one in of_name if drop_if_left_over(catalog, table, one)]


def drop_if_left_over(catalog: StoredCatalog, table: StoredTable, one: OfCut) -> bool:
    """Drop the snapshot if no cut refers to it.  Return whether it was dropped."""
    name, notes = one.branch.name, one.branch.notes
    # Step 1
    if is_unfinished(one.branch) or _is_recorded(catalog, one) or not has_notes(table, name, notes):
        return False
    # Step 2
    marked = marked_left_over(notes)
    table.note_branch(name, marked)
    # Steps 3 and 4
    return not _is_recorded(catalog, one) and drop_same(table, name, marked)


def _is_recorded(catalog: StoredCatalog, one: OfCut) -> bool:
    cut = catalog.cut(one.note.cut)
    return cut is not None and cut.write_id == one.note.write_id
