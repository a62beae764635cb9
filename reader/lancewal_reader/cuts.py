"""Cuts of a catalog, for readers: several tables as of one moment.

Guarantees
 1. A cut is read from the catalog once.  All tables that are opened from it are of this one publication, also if a moving
    cut is published again meanwhile.
 2. Each read of such a table is at the cut, unless it names another point itself.  It costs no more requests than a read at
    the snapshot or receipt that the cut names.
 3. If a table cannot be read at the cut any more, the error names the cut: ``CutMissing`` if its snapshot was dropped or its
    folder is gone, ``VersionGone`` or ``OutsideHistoryWindow`` if the windows of a moving cut's table are over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lancewal_core.catalog.catalog import Catalog, found_cut
from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.errors import CutMissing, TableMissing, some_of
from lancewal_core.store.address import place_of, same_place
from lancewal_reader.point.at import CUT, AtCut, no_catalog
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import Table, at_point

_NAMED = 10
"""Most tables that an error names."""


class CutTables(Mapping[str, Table]):
    """The tables of a cut by name, each opened when it is asked for (module docstring)."""

    def __init__(self, cut: Cut, open_table: Callable[[str], Table]) -> None:
        self._cut, self._open = cut, open_table
        self._tables: dict[str, Table] = {}

    @property
    def name(self) -> str:
        """Name of the cut."""
        return self._cut.name

    @property
    def number(self) -> int:
        """Number of this publication of a moving cut; 1 for a kept one."""
        return self._cut.number

    @property
    def holds(self) -> str:
        """``positions``, or ``transactions`` if no transaction of the source is cut in two."""
        return self._cut.holds

    @property
    def asked_ms(self) -> int:
        """Time at which the positions were asked for, in milliseconds since 1970."""
        return self._cut.asked_ms

    def positions(self, name: str) -> dict[int, int]:
        """Return the position of each partition at which the table ``name`` is cut."""
        return positions_of(_entry(self._cut, name))

    def __getitem__(self, name: str) -> Table:
        if name not in self._tables:
            point = point_of_table(self._cut, name)
            try:
                opened = self._open(self._cut.tables[name].uri)
            except TableMissing as error:
                raise CutMissing(
                    f"cut {self.name} is incomplete: its table {name} is gone. {error}", cut=self.name
                ) from error
            self._tables[name] = at_point(opened, point)
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


def open_cut(catalog: Catalog, name: str, open_table: Callable[[str], Table]) -> CutTables:
    """Read a cut from the catalog, and return its tables.  ``open_table`` opens the table at an address.

    ``CutMissing``: there is no such cut.  Errors of the catalog are raised too."""
    return CutTables(found_cut(catalog, name), open_table)


def is_cut(text: str) -> bool:
    """Return whether the text of a point names a cut."""
    return text.strip().startswith(CUT)


def point_at_address(catalog: Catalog | None, text: str, uri: str) -> AtCut:
    """Return the point that ``cut:NAME`` means for the table at an address.

    ``InvalidInput``: there is no catalog.  ``CutMissing``: there is no such cut, or the table is not in it."""
    if catalog is None:
        raise no_catalog(text.strip())
    cut, place = found_cut(catalog, text.strip().removeprefix(CUT)), place_of(uri)
    for name, of in cut.tables.items():
        if same_place(place_of(of.uri), place):
            return point_of_table(cut, name)
    if cut.left_out:
        for entry in catalog.tables().values():
            if entry.name in cut.left_out and same_place(place_of(entry.uri), place):
                raise _not_in(cut, entry.name)
    raise _not_in(cut, uri)


def positions_of(of: CutTable) -> dict[int, int]:
    """Return the position of each partition at which a table is cut, in the order of partitions."""
    return {region.partition: int(at) for region, at in sorted(Receipt.parse(of.receipt).positions.items())}


def point_of_table(cut: Cut, name: str) -> AtCut:
    """Return the point at which the table ``name`` is read in the cut.  ``CutMissing`` if the cut does not have it."""
    of = _entry(cut, name)
    return AtCut(cut.name, cut.number, of.table_uuid, Receipt.parse(of.receipt), of.snapshot)


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
