"""``lancewal catalog rebuild``: entries and kept cuts of a catalog, from the folders of the tables.

Contracts name the tables, and the notes of snapshots name the cuts.  So an empty catalog gets the entries and kept cuts
of one that was lost, or of a catalog of another kind.  Moving cuts are missing until a flusher publishes them again.  A
dropped table gets an entry too, so that ``table undrop`` finds it by name, unless its deletion has begun.

Guarantees
 1. Nothing that the catalog holds is changed.  An entry or a cut that says something else is a finding.
 2. A cut is written only if each of its tables has its snapshot, and can be read at it.  Otherwise `cut list` would
    show an incomplete cut as if it were complete, and its tables could not be dropped.  If a table of the cut is only
    dropped, the cut is written, since ``table undrop`` makes it complete.  The table is then a finding.
 3. Each table or cut that could not be found or read is a finding that names it.
 4. If a table in use and a dropped table have the same name, the table in use gets it.

Tables are those that Lance lists in the roots, and those that a catalog in a root names at other addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from lancewal_core.catalog.catalog import StoredCatalog, change_table
from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.entry import TableEntry, entry_of, says_the_same
from lancewal_core.catalog.opened import open_directory
from lancewal_core.errors import LancewalError, TableDropped, TableMissing
from lancewal_core.open import Address
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import place_of, same_place, whole_address
from lancewal_core.table.contract import Contract, newest_contract
from lancewal_core.table.snapshots import readable_snapshots
from lancewal_flusher.catalog.below import tables_below
from lancewal_flusher.catalog.proved import ProvedTable, faults_of_cuts, proved_cuts

_TABLES_AT_ONCE = 16
"""Number of tables that are read at the same time."""


@dataclass(slots=True)
class Rebuilt:
    """Names of the entries and cuts that were written, and findings about those that were not."""

    tables: list[str] = field(default_factory=list)
    cuts: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


_Read = ProvedTable | str | None
"""Result of reading an address: a table, or a finding as text.  None: no lancewal table is there, or its deletion has
begun."""


def rebuild(catalog: StoredCatalog, settings: Settings, roots: Sequence[str]) -> Rebuilt:
    """Write the entries and cuts that the folders below ``roots`` prove.  Errors of the catalog and of listing a root
    are raised; errors of tables are findings.
    """
    done, tables = Rebuilt(), dict[str, ProvedTable]()
    with closing(ThreadTasks(io_threads=_TABLES_AT_ONCE)) as tasks:
        named = _named(settings, roots, tasks)
        for found in tasks.map(lambda item: _read(settings, *item), sorted(named.items())):
            match found:
                case str():
                    done.findings.append(found)
                case ProvedTable():
                    _take(tables, found, done)
        for name, table in tables.items():
            _write_entry(catalog, name, table.entry, done)
        cuts, findings = proved_cuts(tables.values())
        done.findings += findings
        for cut in cuts:
            _write_cut(catalog, cut, faults_of_cuts([(cut, name) for name in cut.tables], settings, tasks), done)
    return done


def _named(settings: Settings, roots: Sequence[str], tasks: ThreadTasks) -> Mapping[str, str]:
    """Return the names of the tables by their addresses: the name that the folder has, or a catalog in a root gives."""
    named: dict[str, str] = {}
    for root in (whole_address(root, settings.storage.options) for root in roots):
        entries = open_directory(root, settings.storage.options, tasks).tables()
        named |= {entry.uri: name for name, entry in entries.items() if entry.state == "dropped"}
        named |= {place_of(uri): name for name, uri in tables_below(root, settings).items()}
        named |= {entry.uri: name for name, entry in entries.items() if entry.state == "active"}
    return named


def _take(tables: dict[str, ProvedTable], found: ProvedTable, done: Rebuilt) -> None:
    """Add ``found`` to ``tables`` under its name (guarantee 4).  Two tables in the same state with one name are a
    finding."""
    name, other = found.entry.name, tables.get(found.entry.name)
    if other is None or (other.entry.state, found.entry.state) == ("dropped", "active"):
        tables[name] = found
    elif other.entry.state == found.entry.state:
        done.findings.append(f"{name}: {found.entry.uri} and {other.entry.uri} both have this name")


def _read(settings: Settings, uri: str, name: str) -> _Read:
    try:
        address = Address.of(settings, uri)
        contract = newest_contract(address.store())
        if contract is None or (contract.drop is not None and contract.drop.deleting):
            return None
        if contract.place is not None and not same_place(contract.place, place_of(uri)):
            return (
                f"{name}: the contract at {uri} is that of the table at {contract.place}, whose folder was moved or copied. "
                f"`lancewal catalog register {name} -t {uri}` makes it a table of its own"
            )
        snapshots, faults = readable_snapshots(address.table())
    except TableMissing:
        return None
    except LancewalError as error:
        return f"{name}: the table at {uri} cannot be read: {error.kind}: {error}"
    if faults:
        return f"{name}: a snapshot of the table at {uri} cannot be read: {faults[0]}"
    return ProvedTable(_entry(contract, name, uri), snapshots)


def _entry(contract: Contract, name: str, uri: str) -> TableEntry:
    made = entry_of(contract, contract.name or name, uri)
    return made if contract.drop is None else made.model_copy(update={"state": "dropped"})


def _write_entry(catalog: StoredCatalog, name: str, new: TableEntry, done: Rebuilt) -> None:
    found = change_table(catalog, name, lambda found: new if found is None else found)
    if found is new:
        if new.state == "active" or catalog.table(name) is not None:  # a catalog may keep no entry of a dropped table
            done.tables.append(name)
    elif found is None or says_the_same(found, new) or (new.state == "dropped" and found.uri != new.uri):
        return  # a dropped table may have been forgotten, and its name given to another one
    else:
        done.findings.append(
            f"{name}: the catalog names the table {found.table_uuid or 'of an unknown uuid'} at {found.uri}, {found.state}, "
            f"the contract {new.table_uuid} at {new.uri}, {new.state}. `lancewal catalog check` compares them"
        )


def _write_cut(catalog: StoredCatalog, cut: Cut, faults: Sequence[LancewalError | None], done: Rebuilt) -> None:
    """Write the cut unless one of its tables cannot be read at it (guarantee 2)."""
    lacks = [f"{fault.kind}: {fault}" for fault in faults if fault is not None]
    if any(fault is not None and not isinstance(fault, TableDropped) for fault in faults):
        done.findings += [f"cut {cut.name} was not written: {text}" for text in lacks]
        return
    done.findings += [f"cut {cut.name}: {text}" for text in lacks]
    before = catalog.cut(cut.name)
    if before is None and catalog.swap_cut(cut.name, None, cut):
        done.cuts.append(cut.name)
    elif before is None or before.write_id != cut.write_id:
        done.findings.append(f"cut {cut.name}: the catalog has another cut of this name")
