"""Entries and kept cuts that the folders of tables prove, and what cuts lack.

A contract proves the entry of its table.  The notes of snapshots prove a cut, if each of its tables has its snapshot.
A copy of a table's folder has its snapshots too.  Their receipts are of the table at the former place.  So the snapshots of a
copy prove no cut, also once it is a table of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from lancewal_core.catalog.cut import Cut, CutNote, CutTable, cut_note
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.errors import Corrupt, InvalidInput, LancewalError, or_error
from lancewal_core.open import Address, open_at
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import place_of, same_place
from lancewal_core.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class ProvedTable:
    """A table as its folder proves it: its catalog entry, and its snapshots."""

    entry: TableEntry
    snapshots: Sequence[Snapshot]


def proved_cuts(tables: Iterable[ProvedTable]) -> tuple[list[Cut], list[str]]:
    """Return the cuts all of whose snapshots exist, the newest first, and findings about other cuts."""
    notes: dict[tuple[str, str], CutNote] = {}
    parts: dict[tuple[str, str], dict[str, tuple[CutTable, Snapshot]]] = defaultdict(dict)
    findings: list[str] = []
    for table in tables:
        for snapshot in table.snapshots:
            if not snapshot.cut:
                continue
            try:
                note = cut_note(snapshot.cut, f"snapshot {snapshot.name}")
                part = _part(table.entry, snapshot)
            except (Corrupt, InvalidInput, ValidationError) as error:
                findings.append(
                    f"{table.entry.name}: the notes of snapshot {snapshot.name} prove no cut: {_said(error)}"
                )
                continue
            making = note.cut, note.write_id
            notes[making] = note
            if part is not None:
                parts[making][note.table] = part, snapshot
    cuts = []
    for (name, write_id), note in notes.items():
        members = parts[name, write_id]
        missing = sorted(set(note.tables) - members.keys())
        if missing:
            findings.append(f"cut {name}: no snapshot of it was found in {', '.join(missing)}")
            continue
        proved = {table: members[table][0] for table in note.tables}
        try:
            cuts.append(note.record(proved, [snapshot for _, snapshot in members.values()]))
        except ValidationError as error:
            findings.append(f"cut {name}: the notes of its snapshots prove no cut: {_said(error)}")
    return sorted(cuts, key=lambda cut: (-cut.asked_ms, cut.name)), findings


def faults_of_cuts(
    members: Sequence[tuple[Cut, str]], settings: Settings, tasks: Tasks
) -> Sequence[LancewalError | None]:
    """Read each table at its cut.  Return the error of each read, or None.  A table is given by its name in the cut."""
    from lancewal_reader.cuts import readable_at

    def open_table(uri: str) -> OpenedTable:
        return open_at(Address.of(settings, uri), tasks, SystemClock())

    def look(member: tuple[Cut, str]) -> LancewalError | None:
        found = or_error(lambda: readable_at(*member, open_table))
        return found if isinstance(found, LancewalError) else None

    return tasks.map(look, members)


def _part(entry: TableEntry, snapshot: Snapshot) -> CutTable | None:
    """Return the state that a snapshot keeps for a cut; None if its receipt is of another table (module docstring)."""
    from lancewal_reader.point.receipt import Receipt

    receipt = Receipt.parse(snapshot.receipt)
    if receipt.table_uuid != entry.table_uuid or not same_place(receipt.place, place_of(entry.uri)):
        return None
    uuid = receipt.table_uuid
    return CutTable(uri=entry.uri, table_uuid=uuid, receipt=snapshot.receipt, snapshot=snapshot.name)


def _said(error: Corrupt | InvalidInput | ValidationError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{first['loc']}: {first['msg']}"
