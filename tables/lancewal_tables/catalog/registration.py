"""Entries of tables that exist: ``lancewal catalog register`` and ``forget``.

Guarantees
 1. An entry is written once the table's contract has the name, and has the values of the contract.
 2. A name stays with its table until the entry is removed (``forget``).  One exception: the table of an active entry no
    longer lies at the entry's address, so the name is free.  The name is not free if an empty local folder lies there,
    or is the nearest folder above: it may be a mount point without its disk.
 3. A table whose folder was moved or copied first becomes a table of its own with a new uuid (``define.move``).
    ``Registered.former_uuid`` is the uuid that it had.
 4. If a folder was moved, the caller must name the kept cuts that hold the table; otherwise nothing is changed
    (``cuts_of_table``).

Steps, each of which may be repeated: after a crash the same command continues.
 1. Check that the name is free or the table's own, and that the caller names the kept cuts that will lack the table.
 2. If the contract names another place, register the move.
 3. Put a version of the contract with the name.
 4. Write the entry by compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lancewal_core.catalog.catalog import StoredCatalog, change_table, found_table
from lancewal_core.catalog.entry import TableEntry, entry_of, says_the_same
from lancewal_core.catalog.table_name import table_name
from lancewal_core.errors import CatalogRefused, InvalidInput, NotALancewalTable, TableExists, TableMissing
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.failpoints import point
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import local_folder, place_of, same_place
from lancewal_core.table.checks import check_place
from lancewal_core.table.contract import Contract, change_contract, read_contract
from lancewal_tables.catalog.cuts_of_table import check_cuts, check_move
from lancewal_tables.define.move import move_table


@dataclass(frozen=True, slots=True)
class Registered:
    """Result of ``register_table``: the catalog entry, which was written or existed already."""

    entry: TableEntry
    moved_from: str | None = None
    """Place from which the folder was moved or copied; None if the contract named ``table.uri`` already."""
    former_uuid: str | None = None
    """Uuid that the table had at ``moved_from``.  From now on only a table at that place has it.  None if the folder
    was not moved or copied."""
    lacking: tuple[str, ...] = ()
    """Names of the kept cuts that lack the table, because its folder was moved."""
    changed: bool = True
    """False if the contract and the entry had these values already, so that nothing was written."""


def register_table(catalog: StoredCatalog, settings: Settings, name: str, of_cuts: Collection[str] = ()) -> Registered:
    """Add the lancewal table at ``table.uri`` to the catalog as ``name`` (steps 1 to 4).

    ``of_cuts``: names of kept cuts that may lose the table because its folder was moved.  Raises ``InvalidInput`` if a
    kept cut that would lose the table is not named.  Raises ``TableExists`` if the name belongs to another table, or if
    the table has another name in the catalog.  Raises ``TableMissing`` or ``NotALancewalTable`` if there is no such
    table.  Raises the errors of ``move_table`` too.
    """
    table_name(name)
    address = Address.of(settings)
    contract = before = address.contract()
    # Step 1
    known = catalog.table(name)
    check_free(catalog, settings, known)
    _check_no_other_name(catalog, contract, name, address.uri)
    lacking = check_move(settings, catalog, contract, of_cuts)
    # Step 2
    moved_from = former_uuid = None
    if contract.place is not None and not same_place(contract.place, place_of(address.uri)):
        moved_from, former_uuid = contract.place, contract.table_uuid
        move_table(settings, moved_from)
    # Step 3
    contract = give_name(address, name)
    # Step 4
    entry = put_entry(catalog, settings, name, contract)
    changed = contract != before or known is None or not says_the_same(known, entry)
    return Registered(entry, moved_from, former_uuid, lacking, changed)


def give_name(address: Address, name: str) -> Contract:
    """Write ``name`` into the table's contract, and return the contract.  Its other terms stay.

    Raises ``TableElsewhere`` if the contract names another place.  Raises ``NotALancewalTable`` if there is no
    contract.
    """
    store = address.store()
    contract = read_contract(store, address.uri)

    def decide(newest: Contract) -> Contract | None:
        check_place(address.uri, newest)
        if newest.name == name:
            return None
        return newest.model_copy(update={"format": 2, "version": newest.version + 1, "name": name})

    return change_contract(store, SystemClock(), contract, decide)


def put_entry(catalog: StoredCatalog, settings: Settings, name: str, contract: Contract) -> TableEntry:
    """Write the catalog entry of the table at ``table.uri``, from its contract, and return it.  Raises ``TableExists``
    in the cases of ``check_free``.

    Raises ``CatalogRefused`` if the catalog accepted the entry but does not show it.
    """
    new = entry_of(contract, name, settings.table.uri)

    def decide(found: TableEntry | None) -> TableEntry:
        check_free(catalog, settings, found)
        return found if found is not None and says_the_same(found, new) else new

    with point("catalog.swap", table=name):
        written = change_table(catalog, name, decide)
    if catalog.table(name) is None:
        raise CatalogRefused(
            f"the catalog {catalog.where} took the entry of {name}, and does not show it. Perhaps its server finds tables "
            f"by the names of folders in its root. Move the table to the folder {name}.lance in that root. Or switch that "
            'off in the server (in pylance\'s: dir_listing_enabled: "false")'
        )
    return new if written is None or written.table_uuid is None else written


def forget_table(catalog: StoredCatalog, name: str, of_cuts: Collection[str] = ()) -> TableEntry:
    """Remove the catalog entry of a table, and return it.  The table itself does not change.

    ``of_cuts``: names of kept cuts that may lose the table.  Raises ``InvalidInput`` if the table is in another kept
    cut, or if a named cut does not hold it.  Raises it too if the entry was changed meanwhile.  Raises ``TableUnknown``
    if there is no entry.
    """
    entry = found_table(catalog, name)
    check_cuts(catalog, name, entry.table_uuid, of_cuts)

    def decide(found: TableEntry | None) -> None:
        if found is not None and found != entry:
            raise InvalidInput(
                f"another process changed the entry of {name}, which names {found.uri} now. Nothing was removed. To see it, "
                f"run `lancewal catalog show {name}`"
            )

    change_table(catalog, name, decide)
    return entry


def check_free(catalog: StoredCatalog, settings: Settings, entry: TableEntry | None) -> None:
    """Raise ``TableExists`` unless the table at ``table.uri`` may take the name of ``entry`` (guarantee 2).  The name
    is not free if the entry's table was dropped, even if it lies at ``table.uri``."""
    if entry is None:
        return
    if entry.state == "active":
        if same_place(entry.uri, place_of(settings.table.uri)):
            return
        try:
            there = Address.of(settings, entry.uri).contract()
        except (TableMissing, NotALancewalTable):
            if not _looks_unmounted(entry.uri):
                return
            raise TableExists(
                f"in the catalog {catalog.where}, {entry.name} is the table at {entry.uri}, where an empty folder may be a "
                f"mount point: mount the disk. If the table is gone, run `lancewal catalog forget {entry.name}` first"
            ) from None
        if entry.table_uuid not in (None, there.table_uuid):
            return
    what = "is" if entry.state == "active" else "was dropped, and its entry still names"
    raise TableExists(
        f"in the catalog {catalog.where}, {entry.name} {what} the table at {entry.uri}: choose another name, or run "
        f"`lancewal catalog forget {entry.name}` first"
    )


def _looks_unmounted(uri: str) -> bool:
    """Return whether ``uri`` may be on a disk that is not mounted: a local folder that is empty, or the nearest folder
    above is.  Such a folder also counts if it cannot be listed."""
    folder = local_folder(uri)
    there = None if folder is None else next((one for one in (folder, *folder.parents) if one.is_dir()), None)
    if there is None:
        return False
    try:
        return not any(there.iterdir())
    except OSError:
        return True  # nobody knows what lies there


def _check_no_other_name(catalog: StoredCatalog, contract: Contract, name: str, uri: str) -> None:
    other = contract.name
    if other is None or other == name:
        return
    entry = catalog.table(other)
    if entry is not None and same_place(entry.uri, place_of(uri)):
        raise TableExists(
            f"the table at {uri} has the name {other} in the catalog {catalog.where}: to give it the name {name}, run "
            f"`lancewal catalog forget {other}` first"
        )
