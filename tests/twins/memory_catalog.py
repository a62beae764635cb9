"""The in-memory twin of a catalog.  It keeps the guarantees of ``lancewal_core.catalog.catalog`` and no more than those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.entry import TableEntry

T = TypeVar("T", TableEntry, Cut)


class MemoryCatalog:
    """A catalog in this process.  Its clients share one object."""

    keeps_cuts = True

    def __init__(self, where: str = "memory", root: str | None = None) -> None:
        self.where, self.root = where, root
        self._tables: dict[str, TableEntry] = {}
        self._cuts: dict[str, Cut] = {}

    def tables(self) -> Mapping[str, TableEntry]:
        return dict(sorted(self._tables.items()))

    def table(self, name: str) -> TableEntry | None:
        return self._tables.get(name)

    def swap_table(self, name: str, instead_of: TableEntry | None, new: TableEntry | None) -> bool:
        return _swap(self._tables, name, instead_of, new)

    def cuts(self) -> Mapping[str, Cut]:
        return dict(sorted(self._cuts.items()))

    def cut(self, name: str) -> Cut | None:
        return self._cuts.get(name)

    def swap_cut(self, name: str, instead_of: Cut | None, new: Cut | None) -> bool:
        return _swap(self._cuts, name, instead_of, new)


def _swap(held: dict[str, T], name: str, instead_of: T | None, new: T | None) -> bool:
    found = held.get(name)
    if _id(found) == _id(new):
        return True
    if _id(found) != _id(instead_of):
        return False
    if new is None:
        del held[name]
    else:
        held[name] = new
    return True


def _id(entry: TableEntry | Cut | None) -> str | None:
    return None if entry is None else entry.write_id
