"""``lancewal catalog check``: compare the entries and kept cuts of a catalog with the folders of the tables.

If an entry and a contract differ, the contract is right.  With ``mend`` the check writes each entry that a folder
*proves*.  Such a folder has a contract that names this place, and the name of the entry or no name.  The check
changes nothing else: no entry is removed, no contract and no table is changed.

A kept cut that the catalog lacks, although all its snapshots exist, is a finding.  ``lancewal catalog rebuild``
restores the cut.  A check must not restore it, because another command may just be making or dropping the cut.

If a table cannot be read at a kept cut, that is a finding too, with the error of the read.  ``mend`` does not repair
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from lancewal_core.catalog.catalog import StoredCatalog, change_table
from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.entry import TableEntry, entry_of
from lancewal_core.errors import CutMissing, LancewalError, NotALancewalTable, TableDropped, TableMissing
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import Tasks, ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import one_text, place_of, same_place
from lancewal_core.table.contract import Contract
from lancewal_core.table.snapshots import Snapshot, readable_snapshots
from lancewal_flusher.catalog.below import tables_below
from lancewal_flusher.catalog.proved import ProvedTable, faults_of_cuts, proved_cuts

_TABLES_AT_ONCE = 16
"""How many contracts of tables a check reads at the same time."""


@dataclass(frozen=True, slots=True)
class CatalogFinding:
    """A difference between the catalog and a table, or a kept cut that is missing or incomplete."""

    name: str
    """Name of the table or the cut."""
    uri: str
    """Address of the table; empty if the catalog lacks the cut."""
    kind: str
    """Kind of the finding: ``table-missing``, ``dropped``, ``other-uuid``, ``other-topic``, ``other-name``,
    ``other-place``, ``no-entry``, ``no-cut``, ``incomplete-cut`` or ``unreadable``."""
    text: str
    """Text that says what differs, and what a person can do about it."""
    mended: bool = False
    """Whether the check has corrected the catalog's entry."""


@dataclass(frozen=True, slots=True)
class _Found:
    finding: CatalogFinding
    before: TableEntry | None = None
    proved: TableEntry | None = None
    """The entry that the contract in the table's folder proves; None if nothing can be mended."""


@dataclass(frozen=True, slots=True)
class _Read:
    """Content of a table's folder: the contract, or the error of reading it, and the readable snapshots."""

    contract: Contract | LancewalError
    snapshots: Sequence[Snapshot] = ()


def check_catalog(catalog: StoredCatalog, settings: Settings, *, mend: bool = False) -> list[CatalogFinding]:
    """Compare the catalog with the tables' folders, and return the findings, sorted by name.  ``mend``: write the
    entries that folders prove.

    Entries of dropped tables are not checked.  Raises errors of the catalog, and of listing its root.
    """

    def read(uri: str) -> _Read:
        try:
            address = Address.of(settings, uri)
            contract = address.contract()
        except LancewalError as error:
            return _Read(error)
        try:
            return _Read(contract, readable_snapshots(address.table())[0])
        except LancewalError:
            return _Read(contract)  # its cuts are not known

    entries = catalog.tables()
    below = {} if catalog.root is None else tables_below(catalog.root, settings)
    known = {one_text(entry.uri) for entry in entries.values()}
    new = {name: uri for name, uri in below.items() if one_text(place_of(uri)) not in known}
    active = [entry for entry in entries.values() if entry.state == "active"]
    named = [*((entry.name, entry.uri) for entry in active), *new.items()]
    with closing(ThreadTasks(io_threads=_TABLES_AT_ONCE)) as tasks:
        folders = dict(zip(named, tasks.map(read, [uri for _, uri in named]), strict=True))
        cuts = catalog.cuts()  # after the folders: a cut that is made meanwhile was not lost
        found = list(_cuts_incomplete(catalog, cuts, settings, tasks))
    compared = [_compared(entry, folders[entry.name, entry.uri].contract) for entry in active]
    found += [one for one in compared if one is not None]
    found += _without_entry({of: folders[of].contract for of in new.items()}, entries)
    found += _cuts_missing(cuts, folders)
    return sorted(
        (_mended(catalog, one) if mend else one.finding for one in found), key=lambda one: (one.name, one.uri)
    )


def _cuts_missing(there: Mapping[str, Cut], folders: Mapping[tuple[str, str], _Read]) -> Iterator[_Found]:
    """Yield the kept cuts that snapshots prove, that have not expired, and that the catalog lacks."""
    tables = [
        ProvedTable(entry_of(folder.contract, name, uri), folder.snapshots)
        for (name, uri), folder in folders.items()
        if isinstance(folder.contract, Contract)
    ]
    for cut in _in_time(proved_cuts(tables)[0]):
        if cut.name not in there:
            snapshot = next(iter(cut.tables.values())).snapshot
            text = (  # `lancewal cut drop` would look only at snapshots that were made for this catalog
                f"its snapshots of {', '.join(cut.tables)} are there, and the catalog does not have the cut. If it was lost, "
                f"`lancewal catalog rebuild` brings it back; if it was dropped, `lancewal snapshot drop {snapshot} -t TABLE` "
                "drops the snapshot of each of these tables"
            )
            yield _Found(CatalogFinding(cut.name, "", "no-cut", text))


def _in_time(cuts: Iterable[Cut]) -> list[Cut]:
    """Return those of the cuts that are kept cuts and have not expired."""
    now_ms = SystemClock().now_ms()
    return [cut for cut in cuts if not cut.moving and not cut.is_over(now_ms)]


def _cuts_incomplete(
    catalog: StoredCatalog, cuts: Mapping[str, Cut], settings: Settings, tasks: Tasks
) -> Iterator[_Found]:
    """Yield a finding for each table that cannot be read at a kept cut, if the cut has not expired."""
    members = [(cut, name) for cut in _in_time(cuts.values()) for name in cut.tables]
    for (cut, name), fault in zip(members, faults_of_cuts(members, settings, tasks), strict=True):
        if fault is None or catalog.cut(cut.name) != cut:  # it may have been dropped meanwhile
            continue
        uri = cut.tables[name].uri
        if isinstance(fault, CutMissing | TableDropped):
            yield _Found(CatalogFinding(cut.name, uri, "incomplete-cut", f"{fault.kind}: {fault}"))
        else:
            text = f"it is unknown whether the cut has its table {name}: {fault.kind}: {fault}"
            yield _Found(CatalogFinding(cut.name, uri, "unreadable", text))


def _compared(entry: TableEntry, contract: Contract | LancewalError) -> _Found | None:
    """Return the first difference between an entry and the contract at its address."""

    def found(kind: str, text: str) -> _Found:
        return _Found(CatalogFinding(entry.name, entry.uri, kind, text))

    forget = f"`lancewal catalog forget {entry.name}`"
    if isinstance(contract, TableMissing | NotALancewalTable):
        moved = f"If its folder was moved, `lancewal catalog register {entry.name} -t ADDRESS`. If it is gone, {forget}"
        return found("table-missing", f"there is no lancewal table at {entry.uri}. {moved}")
    if isinstance(contract, TableDropped):
        return found(
            "dropped", f"{contract}. `lancewal table drop -t {entry.uri}` corrects the entry, which says active"
        )
    if isinstance(contract, LancewalError):
        return found("unreadable", f"the contract cannot be read: {contract.kind}: {contract}")
    if contract.place is not None and not same_place(contract.place, place_of(entry.uri)):
        return found(
            "other-place",
            f"the contract is that of the table at {contract.place}, whose folder was moved or copied: "
            f"`lancewal catalog register {entry.name} -t {entry.uri}` makes it a table of its own",
        )
    if contract.name not in (None, entry.name):
        return found(
            "other-name",
            f"the contract calls the table {contract.name}. To keep that name, {forget}; to keep this one, "
            f"`lancewal catalog register {entry.name} -t {entry.uri}`",
        )
    if entry.table_uuid is None:
        return None  # the catalog tells no more than the address
    proved = entry_of(contract, entry.name, entry.uri)
    for kind, ours, theirs in (
        ("other-uuid", entry.table_uuid, contract.table_uuid),
        ("other-topic", entry.topic, contract.topic),
    ):
        if ours != theirs:
            term = kind.removeprefix("other-")
            mend = "`lancewal catalog check --mend` takes the contract's"
            text = f"the entry has the {term} {ours}, the contract {theirs}. {mend}"
            return replace(found(kind, text), before=entry, proved=proved)
    return None


def _without_entry(
    new: Mapping[tuple[str, str], Contract | LancewalError], entries: Mapping[str, TableEntry]
) -> Iterator[_Found]:
    """Yield a finding for each lancewal table in the root that has no entry.  Lance tables without a contract are not
    lancewal's.  Dropped tables are left out, because `lancewal catalog forget` may have removed their entries."""
    taken = set(entries)
    for (folder_name, uri), contract in new.items():
        if isinstance(contract, TableMissing | NotALancewalTable | TableDropped):
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


def _mended(catalog: StoredCatalog, one: _Found) -> CatalogFinding:
    """Write the entry that the folder proves, unless another process has changed the entry since it was read.  Return
    the finding, marked as mended if the entry was written.
    """
    if one.proved is None:
        return one.finding
    changed = change_table(catalog, one.finding.name, lambda found: one.proved if found == one.before else found)
    if changed != one.proved:
        return one.finding
    return replace(
        one.finding, text=f"the entry now leads to {one.proved.uri}, as the contract there proves", mended=True
    )
