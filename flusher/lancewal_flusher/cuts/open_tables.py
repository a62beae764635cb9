"""Keep the tables of a moving cut open, and note the errors of those that cannot be opened.  A *look* compares the
open tables with the catalog.

Guarantees
 1. A table stays open only while its entry in the catalog matches a pattern of the cut, and has not changed since the
    table was opened.
 2. Each table that matches a pattern is open, or has a fault: the text of the error.  The next look tries to open a
    table with a fault.
 3. If an error of the catalog ends a look, faults and uuids stay as they were.  Otherwise a table with a fault would
    drop out of the cut although nobody removed it.
 4. If a table's store does not answer a look, the table stays open.

Every ``LOOK_S`` seconds a look lists the catalog, and sends two requests for each open table.  They ask for version 1
of the contract, and for the version after the known one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from lancewal_core.catalog.catalog import StoredCatalog, tables_named
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.errors import LancewalError, Retry, or_error
from lancewal_core.names.ids import Position
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.contract import newer_contract
from lancewal_core.table.presence import check_present
from lancewal_flusher.cuts.positions import CutMember, durable_now
from lancewal_flusher.cuts.visible_positions import VisiblePositions

LOOK_S = 60.0
"""Seconds between two looks at the catalog's list of tables, and at each open table, which costs two requests.  A
list of 10,000 tables takes half a second."""


@dataclass(slots=True)
class TableOfCut:
    """An open table, with the catalog entry by which it was found."""

    entry: TableEntry
    member: CutMember
    stack: ExitStack
    visible: VisiblePositions
    reached: dict[int, Position] = field(default_factory=dict)
    """Durable position of each partition, as last read."""
    planned_at: float | None = None
    """When a receipt of the table was last made, in monotonic seconds; None if none was made."""

    @property
    def window_s(self) -> float:
        """Seconds for which a receipt of the table is certainly readable: the shorter of the history window and the
        version window.
        """
        return min(self.member.contract.history_window_s, self.member.contract.version_window_s)

    def is_outdated(self) -> bool:
        """Return whether the table has a newer contract.  Raises the errors of ``check_present`` and
        ``newer_contract``.
        """
        store, contract = self.member.context.store, self.member.contract
        check_present(store, contract)
        return newer_contract(store, contract) is not None

    def durable(self, wanted: Mapping[int, Position]) -> dict[int, Position]:
        """Return for each partition in ``wanted`` the position up to which a strong read sees records.

        A partition that has reached its position in ``wanted`` is not read again.  Such a read would go back through
        the segments of all other partitions.
        """
        regions = self.member.contract.regions
        left = [region for region in regions if self.reached.get(region.partition, -1) < wanted[region.partition]]
        seen = self.visible.look(left)
        if len(seen) < len(left):  # nobody has claimed a partition, or all of it is trimmed
            self.reached = durable_now(self.member)
        else:
            self.reached |= {region.partition: position for region, position in seen.items()}
        return dict(self.reached)


class TablesOfCut:
    """The open tables of one cut.  ``open_table`` opens the table of a catalog entry, and registers its closing with
    the stack that it is given.
    """

    def __init__(
        self,
        catalog: StoredCatalog,
        patterns: tuple[str, ...],
        open_table: Callable[[TableEntry, ExitStack], CutMember],
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        self._catalog, self._patterns, self._open_table = catalog, patterns, open_table
        self._tasks, self._clock = tasks, clock
        self.by_name: dict[str, TableOfCut] = {}
        self.faults: dict[str, str] = {}
        """Error text of each table that could not be opened, checked or asked for positions, by name."""
        self.uuids: dict[str, str | None] = {}
        """Uuid of each matching table at the last look, by name, also of tables that could not be opened; None if it
        is unknown."""
        self._looked_at: float | None = None

    @property
    def members(self) -> list[CutMember]:
        return [one.member for one in self.by_name.values()]

    def close(self) -> None:
        """Close all tables."""
        for name in list(self.by_name):
            self._close(name)

    def fail(self, name: str, error: LancewalError) -> None:
        """Record the error of a table as its fault, and close the table.  The next look opens it again, perhaps with
        a newer contract.
        """
        self.faults[name] = why(error)
        self._close(name)

    def look(self) -> None:
        """Open the tables that match the patterns now, and close those that were dropped, forgotten or moved.

        Every ``LOOK_S`` seconds a call reads the catalog and checks the open tables.  Calls in between do something
        only if a table has a fault: they read the catalog, and open tables that are not open.
        """
        now = self._clock.monotonic()
        due = self._looked_at is None or now - self._looked_at >= LOOK_S
        if not due and not self.faults:
            return
        entries = tables_named(self._catalog, self._patterns)
        for name, one in list(self.by_name.items()):
            if entries.get(name) != one.entry:
                self._close(name)
        faults = self._look_at_tables() if due else {}
        joined = [entry for name, entry in entries.items() if name not in self.by_name.keys() | faults.keys()]
        opened_each = self._tasks.map(lambda entry: or_error(lambda: self._opened(entry)), joined)
        for entry, opened in zip(joined, opened_each, strict=True):
            if isinstance(opened, LancewalError):
                faults[entry.name] = why(opened)
            else:
                self.by_name[entry.name] = opened
        self.faults = faults
        if due:
            self._looked_at = now
        self.uuids = {name: entry.table_uuid for name, entry in entries.items()}
        self.uuids |= {name: one.member.contract.table_uuid for name, one in self.by_name.items()}

    def _look_at_tables(self) -> dict[str, str]:
        """Close the open tables that have a newer contract, and those with an error.  Return the error's text for
        each of the latter, by name.  A transient error closes no table.
        """
        answers = self._tasks.map(lambda one: or_error(one.is_outdated), list(self.by_name.values()))
        faults: dict[str, str] = {}
        for name, answer in zip(list(self.by_name), answers, strict=True):
            if isinstance(answer, LancewalError) and not isinstance(answer, Retry):
                faults[name] = why(answer)
            if name in faults or answer is True:
                self._close(name)
        return faults

    def _opened(self, entry: TableEntry) -> TableOfCut:
        with ExitStack() as stack:
            member = self._open_table(entry, stack)
            visible = VisiblePositions(member.context.store, member.context.states, self._clock, seldom=True)
            return TableOfCut(entry, member, stack.pop_all(), visible)

    def _close(self, name: str) -> None:
        self.by_name.pop(name).stack.close()


def why(error: LancewalError) -> str:
    """Return the text of an error without lone surrogates and NULs, which JSON and PostgreSQL cannot store."""
    text = f"{error.kind}: {error}".encode(errors="backslashreplace").decode()
    return text.replace("\0", r"\x00")
