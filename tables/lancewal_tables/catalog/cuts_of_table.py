"""Kept cuts that hold a table and would lack it after a command.  The user must name each of them to the command
(``--cut``).

The cuts lack a table that was dropped, forgotten (`lancewal catalog forget`) or moved.  A moved folder contains the
table's snapshots, but they cannot be read at the new place.  Lance keeps the address of the table's files in each
branch.  Only moving the folder back makes them readable.
"""

from __future__ import annotations

from collections.abc import Collection

from lancewal_core.catalog.catalog import StoredCatalog, cuts_of
from lancewal_core.catalog.cut import cut_note
from lancewal_core.errors import InvalidInput, LancewalError, TableMissing
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import place_of, same_place
from lancewal_core.table.contract import Contract, newest_contract
from lancewal_core.table.snapshots import cut_of
from lancewal_flusher.garbage.snapshots import is_over


def check_cuts(
    catalog: StoredCatalog | None,
    table: str,
    table_uuid: str | None,
    named: Collection[str],
    elsewhere: Collection[str] = (),
    advice: str = "Drop",
) -> None:
    """Raise ``InvalidInput`` unless ``named`` lists exactly the kept cuts that hold the table.

    ``table``: the name or address of the table.  ``named``: the cuts that the command names.  ``elsewhere``: names of
    cuts in other catalogs that hold the table.  An expired cut may be named, but need not be, because garbage
    collection drops its snapshots.  ``advice``: the words before "the cuts" in the error.
    """
    kept = [] if catalog is None else cuts_of(catalog, table, table_uuid)
    for cut in sorted(set(named) - {one.name for one in kept} - set(elsewhere)):
        raise InvalidInput(
            f"--cut {cut}: there is no kept cut of this name that has the table {table}. Nothing was changed"
        )
    now_ms = SystemClock().now_ms()
    held = {one.name for one in kept if not one.is_over(now_ms)}
    left = sorted((held | set(elsewhere)) - set(named))
    if left:
        raise InvalidInput(
            f"the table {table} is in kept cuts, which would lack it: {', '.join(left)}. Nothing was changed. {advice} "
            f"the cuts first (`lancewal cut drop {left[0]}`), or add {' '.join(f'--cut {cut}' for cut in left)}"
        )


def check_kept_cuts(
    settings: Settings, catalog: StoredCatalog | None, contract: Contract, named: Collection[str], advice: str = "Drop"
) -> None:
    """Raise ``InvalidInput`` unless ``named`` lists exactly the kept cuts that hold the table at ``table.uri``.

    The catalog knows its own cuts.  The table's snapshots show cuts of other catalogs.
    """
    elsewhere = _cuts_of_snapshots(settings, None if catalog is None else catalog.where)
    check_cuts(catalog, settings.table.uri, contract.table_uuid, named, elsewhere, advice)


def check_move(
    settings: Settings, catalog: StoredCatalog | None, contract: Contract, named: Collection[str]
) -> tuple[str, ...]:
    """Return the kept cuts that will lack the table once it is registered at ``table.uri``, to which its folder was
    moved.

    Raises ``InvalidInput`` unless ``named`` lists them all.  If the folder was copied, cuts lose nothing, because the
    original is still at the place that the contract names.  If the contract names ``table.uri`` already, cuts lose
    nothing either: an interrupted command that is run again returns no cuts.
    """
    place, here = contract.place, place_of(settings.table.uri)
    if place is None or same_place(place, here):
        return ()
    if _lies_at(settings, place, contract.table_uuid):
        check_cuts(None, here, contract.table_uuid, named)
        return ()
    back = f"To keep them, move the folder back to {place}: snapshots cannot be read elsewhere. Or drop"
    check_kept_cuts(settings, catalog, contract, named, back)
    return tuple(sorted(set(named)))


def _lies_at(settings: Settings, place: str, table_uuid: str) -> bool:
    """Return whether the table lies at ``place``, in use or dropped.  False also if the place does not answer: it may
    be gone for good, so the caller must name the cuts."""
    try:
        found = newest_contract(Address.of(settings, place).store())
    except LancewalError:
        return False
    return found is not None and found.table_uuid == table_uuid


def _cuts_of_snapshots(settings: Settings, but_of: str | None) -> set[str]:
    """Return the names of the cuts for which the table's snapshots were made.  Cuts of the catalog at ``but_of`` and
    expired cuts are left out."""
    try:
        branches = Address.of(settings).table().branches()
    except TableMissing:
        return set()  # its deletion has begun
    now_ms = SystemClock().now_ms()
    stay = [branch for branch in branches if cut_of(branch) and not is_over(branch, now_ms)]
    notes = [cut_note(cut_of(branch), f"snapshot {branch.name}") for branch in stay]
    return {note.cut for note in notes if but_of is None or not same_place(note.catalog, but_of)}
