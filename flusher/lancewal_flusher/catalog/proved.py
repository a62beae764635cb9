"""Entries and kept cuts that the folders of tables prove.

A contract proves the entry of its table.  The notes of snapshots prove a cut, if each of its tables has its snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.catalog.cut_note import CutNote, cut_note
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.errors import Corrupt
from lancewal_core.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class ProvedTable:
    """A table by what its folder proves: its entry, and the snapshots in it."""

    entry: TableEntry
    snapshots: Sequence[Snapshot]


def proved_cuts(tables: Mapping[str, ProvedTable]) -> tuple[list[Cut], list[str]]:
    """Return the cuts whose snapshots are all there, the newest first, and findings about others."""
    makings: dict[tuple[str, str], dict[str, tuple[CutNote, CutTable, Snapshot]]] = defaultdict(dict)
    findings: list[str] = []
    for name, table in tables.items():
        for snapshot in table.snapshots:
            if not snapshot.cut:
                continue
            try:
                note = cut_note(snapshot.cut, f"snapshot {snapshot.name} of {name}")
            except Corrupt as error:
                findings.append(f"{name}: {error}")
                continue
            uuid, uri = table.entry.table_uuid, table.entry.uri
            assert uuid is not None, "a contract proves the entry"
            of = CutTable(uri=uri, table_uuid=uuid, receipt=snapshot.receipt, snapshot=snapshot.name)
            makings[note.cut, note.write_id][note.table] = note, of, snapshot
    cuts = []
    for (name, write_id), members in makings.items():
        note = next(iter(members.values()))[0]
        missing = sorted(set(note.tables) - members.keys())
        if missing:
            findings.append(f"cut {name}: no snapshot of it was found in {', '.join(missing)}")
            continue
        ends = [snapshot.until_ms for _, _, snapshot in members.values() if snapshot.until_ms is not None]
        cut = Cut(
            name=name,
            moving=False,
            holds=note.holds,
            tables={table: members[table][1] for table in note.tables},
            asked_ms=note.asked_ms,
            took_ms=note.took_ms,
            made_ms=max(snapshot.created_ms for _, _, snapshot in members.values()),
            until_ms=min(ends, default=None),
            write_id=write_id,
        )
        cuts.append(cut)
    return sorted(cuts, key=lambda cut: (-cut.asked_ms, cut.name)), findings
