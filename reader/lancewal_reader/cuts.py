"""Cuts of a catalog, for readers: several tables as of one moment.

Guarantees
 1. A cut is read from the catalog once.  All tables that are opened from it are of this one publication, even if a
    moving cut is published again in between.
 2. Each read of such a table is at the cut, unless it names another point itself.  It costs no more requests than a read at
    the snapshot or receipt that the cut names.
 3. If a table cannot be read at the cut any more, the error names the cut and the table: ``CutMissing`` if its
    snapshot was dropped, or its folder is gone or was moved, ``VersionGone`` or ``OutsideHistoryWindow`` if the
    windows of a moving cut's table have passed.  ``TableDropped`` says that the table was dropped.
 4. Each entry point gives the same errors.  Python, commands and Spark open a table of a cut by ``of_cut``, and plan
    its reads by ``plan.at_point``.  `cut show` and `catalog check` do so too (``readable_at``).
 5. A name means the table that had it when the cut was made, also if the catalog knows another one by it, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from lancewal_core.catalog.catalog import StoredCatalog, found_cut
from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.catalog.named import may_be_name
from lancewal_core.errors import CutMissing, NotALancewalTable, TableMissing, VersionGone, some_of
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.store.address import place_of, same_place
from lancewal_core.table.protocol import PinnedTable
from lancewal_reader.plan.at_point import check_uuid_of_cut, plan_at_point
from lancewal_reader.plan.strong import PlanContext
from lancewal_reader.point.at import CUT, AtCut, no_catalog
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import Table, at_point

T = TypeVar("T")
_NAMED = 10
"""Largest number of tables that an error names."""


class CutTables(Mapping[str, Table]):
    """The tables of a cut by name.  Each table is opened when it is accessed."""

    def __init__(self, cut: Cut, open_table: Callable[[str], Table]) -> None:
        self._cut, self._open = cut, open_table
        self._tables: dict[str, Table] = {}

    @property
    def name(self) -> str:
        """Name of the cut."""
        return self._cut.name

    @property
    def number(self) -> int:
        """Number of this publication of a moving cut; always 1 for a kept cut."""
        return self._cut.number

    @property
    def holds(self) -> str:
        """``positions``, or ``transactions`` if the cut splits no transaction of the source database."""
        return self._cut.holds

    @property
    def asked_ms(self) -> int:
        """Time at which the cut's positions were read from their source, in milliseconds since 1970."""
        return self._cut.asked_ms

    def positions(self, name: str) -> dict[int, int]:
        """Return the position of each partition up to which the cut has the records of table ``name``."""
        return positions_of(_entry(self._cut, name))

    def __getitem__(self, name: str) -> Table:
        if name not in self._tables:
            point = point_of_table(self._cut, name)
            self._tables[name] = at_point(of_cut(point, self._cut.tables[name].uri, self._open), point)
        return self._tables[name]

    def __contains__(self, name: object) -> bool:
        return name in self._cut.tables

    def get(self, name: str, default: Any = None) -> Any:
        """Return the table ``name``, or ``default`` if the cut does not have it."""
        return self[name] if name in self._cut.tables else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._cut.tables)

    def __len__(self) -> int:
        return len(self._cut.tables)

    def __repr__(self) -> str:
        return f"<lancewal.CutTables {self.name}: {', '.join(self)}>"


def open_cut(catalog: StoredCatalog, name: str, open_table: Callable[[str], Table]) -> CutTables:
    """Read a cut from the catalog, and return its tables.  ``open_table`` opens the table at an address.

    Raises ``CutMissing`` if there is no such cut, and the catalog's errors.
    """
    return CutTables(found_cut(catalog, name), open_table)


def is_cut(text: str) -> bool:
    """Return whether the text of a point names a cut."""
    return text.strip().startswith(CUT)


def table_in_cut(
    catalog: StoredCatalog | None, text: str, table: str, find_address: Callable[[], str]
) -> tuple[str, AtCut]:
    """Return the address of a table, and the point that ``cut:NAME`` stands for in that table.

    ``table`` is the name or address that the user gave.  If the cut does not have this name, ``find_address`` returns
    the table's address.  Raises ``InvalidInput`` without a catalog.  Raises ``CutMissing`` if there is no such cut, or
    if the table is not in it.
    """
    if catalog is None:
        raise no_catalog(text.strip())
    cut = found_cut(catalog, text.strip().removeprefix(CUT))
    if may_be_name(table) and (table in cut.tables or table in cut.left_out):
        return _entry(cut, table).uri, point_of_table(cut, table)
    uri = find_address()
    place = place_of(uri)
    for name, of in cut.tables.items():
        if same_place(place_of(of.uri), place):
            return uri, point_of_table(cut, name)
    entries = catalog.tables().values() if cut.left_out else ()
    left_out = (one.name for one in entries if one.name in cut.left_out and same_place(place_of(one.uri), place))
    raise _not_in(cut, next(left_out, uri))


def of_cut(at: AtCut, uri: str, open_table: Callable[[str], T]) -> T:
    """Open the table of a cut at its address.  Raises ``CutMissing`` if no table is there."""
    try:
        return open_table(uri)
    except (TableMissing, NotALancewalTable) as error:
        raise at.incomplete(
            f"There is no lancewal table at {uri} any more. If its folder was moved, and nobody has registered it elsewhere, "
            f"move it back. Otherwise drop the cut (`lancewal cut drop {at.name}`), and make it again"
        ) from error


def readable_at(
    cut: Cut, name: str, open_table: Callable[[str], OpenedTable]
) -> tuple[OpenedTable, PinnedTable | None]:
    """Return a table of the cut, and the version that its snapshot keeps.  Raises the errors of a read at the cut.

    ``open_table`` opens the table at an address.  For a moving cut the returned version is None, and only the table is
    checked.
    """
    at, uri = point_of_table(cut, name), cut.tables[name].uri
    opened = of_cut(at, uri, open_table)
    check_uuid_of_cut(opened.contract, at, place_of(uri))
    if at.kept_by is None:
        return opened, None
    plan = plan_at_point(PlanContext(*opened.parts, cache=None), at, place_of(uri))
    try:
        return opened, plan.pin(opened.table)
    except VersionGone as error:
        raise at.without_version(error) from error


def positions_of(of: CutTable) -> dict[int, int]:
    """Return the position of each partition up to which a cut has the table's records, sorted by partition."""
    return {region.partition: int(at) for region, at in sorted(Receipt.parse(of.receipt).positions.items())}


def point_of_table(cut: Cut, name: str) -> AtCut:
    """Return the point at which a cut reads the table ``name``.  Raises ``CutMissing`` if the cut does not have the
    table.
    """
    of = _entry(cut, name)
    return AtCut(cut.name, cut.number, name, of.table_uuid, Receipt.parse(of.receipt), of.snapshot)


def _entry(cut: Cut, name: str) -> CutTable:
    of = cut.tables.get(name)
    if of is None:
        raise _not_in(cut, name)
    return of


def _not_in(cut: Cut, table: str) -> CutMissing:
    left = cut.left_out.get(table)
    why = f": it was left out, since {left}" if left else ""
    return CutMissing(
        f"cut {cut.name} does not have the table {table}{why}. It has {some_of(list(cut.tables), _NAMED)}", cut=cut.name
    )
