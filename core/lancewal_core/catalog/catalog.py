"""The interface that each kind of catalog implements, and the changes that are made through it.

Guarantees of a ``StoredCatalog``
 1. ``tables`` shows all entries as they were at one moment.  ``cuts`` shows each cut as it was at one moment of the
    call.  ``Corrupt`` names an entry or a cut that cannot be read.  Until it is repaired nobody knows which tables kept
    cuts hold.
 2. ``swap_table`` and ``swap_cut`` replace ``instead_of`` by ``new`` and return ``True`` if the catalog held
    ``instead_of`` right before.  ``None`` stands for no entry.  Otherwise they change nothing and return ``False``.
    Entries are compared by their ``write_id``, which is new for each version.
 3. A lost reply is recognised: a repeated swap returns ``True`` if the catalog holds ``new``.  ``CatalogUnavailable``
    or ``StoreUnavailable``: no answer came, and the swap may still be done.  After ``CatalogRefused`` and each other
    ``ActionNeeded`` nothing is changed.
 4. A read after a swap that has returned shows its result, or a later one.

A catalog does not check the tables that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.table_name import matcher
from lancewal_core.errors import CatalogRefused, CutMissing, InvalidInput, TableUnknown
from lancewal_core.names.words import cut_name

TRIES_MAX = 20
"""Largest number of refusals in a row of a swap, while the catalog shows the entry that the swap expects.  A single
refusal is possible: another client may have changed the entry and changed it back."""


class StoredCatalog(Protocol):
    """A catalog.  Every method may raise ``CatalogUnavailable`` or ``StoreUnavailable``."""

    @property
    def where(self) -> str:
        """Address of the catalog without secrets, for messages and for notes of snapshots.  It is different for any two
        catalogs.
        """

    @property
    def root(self) -> str | None:
        """Address below which new tables lie; None: each new table needs an address."""

    def tables(self) -> Mapping[str, TableEntry]:
        """Return all entries by name, in the order of names."""

    def table(self, name: str) -> TableEntry | None:
        """Return the entry of one table; None if there is none."""

    def swap_table(self, name: str, instead_of: TableEntry | None, new: TableEntry | None) -> bool: ...

    @property
    def keeps_cuts(self) -> bool:
        """Whether the catalog can hold cuts.  If not, ``swap_cut`` raises ``CatalogRefused``."""

    def cuts(self) -> Mapping[str, Cut]:
        """Return all cuts by name, in the order of names."""

    def cut(self, name: str) -> Cut | None:
        """Return one cut; None if there is none."""

    def swap_cut(self, name: str, instead_of: Cut | None, new: Cut | None) -> bool:
        """Replace the cut ``instead_of`` by ``new``; None stands for no cut.  A cut stays kept or moving until it is
        dropped.
        """


def found_table(catalog: StoredCatalog, name: str) -> TableEntry:
    """Return the entry of the table ``name``, in any state.  Raises ``TableUnknown`` if there is none."""
    entry = catalog.table(name)
    if entry is None:
        raise TableUnknown(
            f"the catalog {catalog.where} has no table {name}. `lancewal catalog list` shows its tables, and "
            f"`lancewal catalog register {name} -t ADDRESS` adds one",
            table=name,
        )
    return entry


def found_cut(catalog: StoredCatalog, name: str) -> Cut:
    """Return the cut ``name``.  Raises ``CutMissing`` if there is none.  Raises ``CatalogRefused`` if the catalog keeps
    no cuts.
    """
    cut_name(name)
    check_keeps_cuts(catalog)
    cut = catalog.cut(name)
    if cut is None:
        raise CutMissing(
            f"the catalog {catalog.where} has no cut {name}: `lancewal cut list` shows its cuts, and `lancewal cut make "
            f"{name} --tables PATTERN` makes one",
            cut=name,
        )
    return cut


def check_keeps_cuts(catalog: StoredCatalog) -> None:
    """Raise ``CatalogRefused`` if the catalog keeps no cuts."""
    if not catalog.keeps_cuts:
        raise CatalogRefused(
            f"the catalog {catalog.where} keeps no cuts: set catalog.root to a folder for them. In Python and Spark, name "
            "that folder as the catalog"
        )


def cuts_of(catalog: StoredCatalog, name: str, table_uuid: str | None) -> list[Cut]:
    """Return the kept cuts that hold the table, including expired ones.

    Tables in cuts are compared by uuid, whatever their names are now.  If ``table_uuid`` is None, they are compared by
    name.
    """

    def has(cut: Cut) -> bool:
        if table_uuid is None:
            return name in cut.tables
        return any(of.table_uuid == table_uuid for of in cut.tables.values())

    return [cut for cut in catalog.cuts().values() if not cut.moving and has(cut)]


def tables_named(catalog: StoredCatalog, patterns: tuple[str, ...]) -> dict[str, TableEntry]:
    """Return the active tables that match one of the patterns; empty if none does.  Raises ``InvalidInput`` if a
    pattern is malformed.
    """
    of = [matcher(pattern) for pattern in patterns]
    return {
        name: entry
        for name, entry in sorted(catalog.tables().items())
        if entry.state == "active" and any(one.fullmatch(name) for one in of)
    }


def tables_matching(catalog: StoredCatalog, patterns: tuple[str, ...]) -> dict[str, TableEntry]:
    """Return the active tables that match one of the patterns.  Raises ``InvalidInput`` if a pattern is malformed, or
    matches no table.
    """
    found = tables_named(catalog, patterns)
    for pattern in patterns:
        if not any(matcher(pattern).fullmatch(name) for name in found):
            raise InvalidInput(
                f"no table of the catalog {catalog.where} is named {pattern}: `lancewal catalog list` shows its tables"
            )
    return found


def change_table(
    catalog: StoredCatalog, name: str, decide: Callable[[TableEntry | None], TableEntry | None]
) -> TableEntry | None:
    """Replace the entry of a table by the result of ``decide``, and return the new entry.  None stands for no entry.

    ``decide`` gets the present entry.  It may raise, and is called again if another process has changed the entry
    meanwhile.  An unchanged entry is not written.  Raises ``CatalogRefused`` if the catalog refuses the change again
    and again, although it still shows the expected entry.
    """
    seen, tries = None, 0
    while tries < TRIES_MAX:
        found = catalog.table(name)
        seen, tries = found, tries + 1 if found == seen else 1
        new = decide(found)
        if new == found or catalog.swap_table(name, found, new):
            return new
    shown = "no such entry" if seen is None else f"it at {seen.uri}"
    raise CatalogRefused(
        f"the catalog {catalog.where} refused {TRIES_MAX} times to change the entry of {name}, and still shows "
        f"{shown}. The entry was not changed. Perhaps the server itself chooses the folders of tables in its root. "
        """Switch that off (pylance's server: dir_listing_enabled: "false")"""
    )
