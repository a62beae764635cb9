"""``lancewal catalog check``: compare the entries of a catalog with contracts and folders.

The contract counts if an entry and a contract differ.  With ``mend`` an entry is written if a folder proves it.  Such a
folder has a contract that names this place, and the name of the entry or none.  Nothing else is changed: no entry is
removed, no contract and no table is touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from lancewal_core.catalog.catalog import Catalog, change_table
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.errors import LancewalError, NotALancewalTable, TableDropped, TableMissing
from lancewal_core.open import Address
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.store.place import place_of, same_place
from lancewal_core.table.contract import Contract
from lancewal_tables.catalog.registration import entry_of
from lancewal_tables.catalog.root import tables_below

_TABLES_AT_ONCE = 16
"""Contracts read at a time."""


@dataclass(frozen=True, slots=True)
class CatalogFinding:
    """A difference between the catalog and a table."""

    name: str
    uri: str
    kind: str
    """``table-missing``, ``dropped``, ``other-uuid``, ``other-topic``, ``other-name``, ``other-place``, ``no-entry`` or
    ``unreadable``."""
    text: str
    """The difference, and what a person does."""
    mended: bool = False
    """Whether the entry that the folder proves was written."""


@dataclass(frozen=True, slots=True)
class _Found:
    finding: CatalogFinding
    before: TableEntry | None = None
    proved: TableEntry | None = None
    """The entry that the folder proves."""


Read = Contract | LancewalError


def check_catalog(catalog: Catalog, settings: Settings, *, mend: bool = False) -> list[CatalogFinding]:
    """Return every difference, by name.  ``mend``: write the entries that folders prove.

    Dropped tables are left out.  Errors of the catalog, and of a listing of its root, are raised."""

    def read(uri: str) -> Read:
        try:
            return Address.of(settings, uri).contract()
        except LancewalError as error:
            return error

    entries = catalog.tables()
    below = {} if catalog.root is None else tables_below(catalog.root, settings)
    known = [entry.uri for entry in entries.values()]
    new = {name: uri for name, uri in below.items() if not any(same_place(place_of(uri), at) for at in known)}
    active = [entry for entry in entries.values() if entry.state == "active"]
    with closing(ThreadTasks(io_threads=_TABLES_AT_ONCE)) as tasks:
        contracts = tasks.map(read, [*(entry.uri for entry in active), *new.values()])
    compared = [_compared(entry, contract) for entry, contract in zip(active, contracts, strict=False)]
    found = [one for one in compared if one is not None]
    found += _without_entry(new, contracts[len(active) :], entries)
    return sorted(
        (_mended(catalog, one) if mend else one.finding for one in found), key=lambda one: (one.name, one.uri)
    )


def _compared(entry: TableEntry, contract: Read) -> _Found | None:
    """Return the first difference between an entry and the contract at its address."""

    def finding(kind: str, text: str) -> CatalogFinding:
        return CatalogFinding(entry.name, entry.uri, kind, text)

    forget = f"`lancewal catalog forget {entry.name}`"
    if isinstance(contract, TableMissing | NotALancewalTable):
        moved = f"If its folder was moved, `lancewal catalog register {entry.name} -t ADDRESS`. If it is gone, {forget}"
        return _Found(finding("table-missing", f"there is no lancewal table at {entry.uri}. {moved}"))
    if isinstance(contract, TableDropped):
        return _Found(
            finding("dropped", f"{contract}. `lancewal table drop -t {entry.uri}` mends the entry, which says active")
        )
    if isinstance(contract, LancewalError):
        return _Found(finding("unreadable", f"the contract cannot be read: {contract.kind}: {contract}"))
    if contract.place is not None and not same_place(contract.place, place_of(entry.uri)):
        return _Found(
            finding(
                "other-place",
                f"the contract is that of the table at {contract.place}, whose folder was moved or copied: "
                f"`lancewal catalog register {entry.name} -t {entry.uri}` makes it a table of its own",
            )
        )
    if contract.name not in (None, entry.name):
        return _Found(
            finding(
                "other-name",
                f"the contract calls the table {contract.name}. To keep that name, {forget}; to keep this one, "
                f"`lancewal catalog register {entry.name} -t {entry.uri}`",
            )
        )
    proved = entry_of(contract, entry.name, entry.uri)
    for kind, ours, theirs in (
        ("other-uuid", entry.table_uuid, contract.table_uuid),
        ("other-topic", entry.topic, contract.topic),
    ):
        if ours != theirs:
            term = kind.removeprefix("other-")
            mend = "`lancewal catalog check --mend` takes the contract's"
            text = f"the entry has the {term} {ours}, the contract {theirs}. {mend}"
            return _Found(finding(kind, text), entry, proved)
    return None


def _without_entry(
    new: Mapping[str, str], contracts: list[Read], entries: Mapping[str, TableEntry]
) -> Iterator[_Found]:
    """Yield the lancewal tables in the root that have no entry.  A Lance table without a contract is not lancewal's."""
    taken = set(entries)
    for (folder_name, uri), contract in zip(new.items(), contracts, strict=True):
        if isinstance(contract, TableMissing | NotALancewalTable):
            continue
        if isinstance(contract, LancewalError):
            text = f"the contract cannot be read: {contract.kind}: {contract}"
            yield _Found(CatalogFinding(folder_name, uri, "unreadable", text))
            continue
        name = contract.name or folder_name
        here = contract.place is None or same_place(contract.place, place_of(uri))
        if here and name not in taken:
            taken.add(name)
            text = "the table has no entry. `lancewal catalog check --mend` adds it"
            yield _Found(CatalogFinding(name, uri, "no-entry", text), None, entry_of(contract, name, uri))
        else:
            why = (
                f"the name {name} leads to another table"
                if here
                else f"its contract is that of a table at {contract.place}"
            )
            text = f"the table has no entry, and {why}: `lancewal catalog register NAME -t {uri}` adds it"
            yield _Found(CatalogFinding(folder_name, uri, "no-entry", text))


def _mended(catalog: Catalog, one: _Found) -> CatalogFinding:
    """Write the entry that the folder proves, unless somebody has changed it meanwhile."""
    if one.proved is None:
        return one.finding
    changed = change_table(catalog, one.finding.name, lambda found: one.proved if found == one.before else found)
    if changed != one.proved:
        return one.finding
    return replace(
        one.finding, text=f"the entry now leads to {one.proved.uri}, as the contract there proves", mended=True
    )
