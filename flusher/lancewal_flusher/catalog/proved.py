"""Find the catalog entries and kept cuts that the folders of tables prove, and the tables that cannot be read at
cuts.

A contract proves the entry of its table.  Snapshots that were made for a cut have a note that describes the cut.
These notes prove the cut if each of the cut's tables has its snapshot.  A copy of a table's folder contains the
snapshots too, but their receipts name the original place.  So snapshots in a copy prove no cut, even if the copy
became a table of its own.
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
    """Return the cuts that have all their snapshots, newest first.  Also return texts that say why other cuts are not
    proven.
    """
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
    """Plan a read of each table at its cut.  Return the error of each plan, or None.  ``members``: pairs of a cut and
    the name of a table in it.
    """
    from lancewal_reader.cuts import readable_at

    def open_table(uri: str) -> OpenedTable:
        return open_at(Address.of(settings, uri), tasks, SystemClock())

    def look(member: tuple[Cut, str]) -> LancewalError | None:
        found = or_error(lambda: readable_at(*member, open_table))
        return found if isinstance(found, LancewalError) else None

    return tasks.map(look, members)


def _part(entry: TableEntry, snapshot: Snapshot) -> CutTable | None:
    """Return the table of a cut that a snapshot keeps; None if the snapshot's receipt belongs to another table (a
    copy).
    """
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
