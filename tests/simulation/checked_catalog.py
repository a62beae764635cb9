"""The catalog of a world, which sees that a moving cut never goes back."""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core.catalog.cut import Cut
from lancewal_reader.point.receipt import Receipt
from tests.simulation.checker import require
from tests.twins.memory_catalog import MemoryCatalog


class CheckedCatalog(MemoryCatalog):
    """A catalog in which no moving cut goes back, for as long as it is not dropped.

    What is in ``before`` happens first at a swap, one thing at each.  ``whole`` has the ids of cuts whose makers have looked
    for their snapshots, and ``left_over`` the names of snapshots that somebody took for left over."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: set[str] = set()
        self.left_over: set[str] = set()
        self.before: list[Callable[[], object]] = []

    def swap_cut(self, name: str, instead_of: Cut | None, new: Cut | None) -> bool:
        if self.before:
            self.before.pop()()
        before = self.cut(name)
        swapped = super().swap_cut(name, instead_of, new)
        after = self.cut(name)
        if after is not None and before is not None and after.moving and after.write_id != before.write_id:
            check_not_back(before, after)
        return swapped


def check_not_back(before: Cut, after: Cut) -> None:
    """Nothing that readers see of a moving cut is lower than it was."""
    require(after.number > before.number, f"cut {after.name} goes back to number {after.number} from", before.number)
    for table, of in after.tables.items():
        if table not in before.tables or before.tables[table].table_uuid != of.table_uuid:
            continue
        was, now = (Receipt.parse(cut.tables[table].receipt).positions for cut in (before, after))
        lower = {region.name: (at, now.get(region)) for region, at in was.items() if now.get(region, 0) < at}
        require(not lower, f"cut {after.name} goes back at number {after.number} in {table}:", lower)
