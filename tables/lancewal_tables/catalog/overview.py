"""``lancewal catalog list``: each table of a catalog with its rows, its newest version, its lag and where its records stop.

Tables are looked at several at a time, as ``lancewal status`` looks at one.  A table that cannot be opened has its error in
place of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.errors import LancewalError
from lancewal_core.process.status.report import TableStatus
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_tables.status.status import table_status

TABLES_AT_ONCE = 8
"""Tables looked at at a time.  Each has up to 16 requests under way."""


@dataclass(frozen=True, slots=True)
class TableLine:
    """One table in the list of a catalog.  None stands for an unknown value."""

    name: str
    uri: str
    state: str
    """State of its diagnosis (``problem``, ``waits``, ``moving``, ``idle``), ``error``, or ``dropped``."""
    rows: int | None = None
    """Rows in the newest version of the Lance table."""
    version: int | None = None
    """The newest version of the Lance table."""
    lag: int | None = None
    """Records in Kafka that are not durable, at most; None if Kafka was not asked or a partition has no owner."""
    error: str | None = None
    """Why the table cannot be opened."""


def overview(
    catalog: StoredCatalog, settings: Settings, look: Callable[[Settings, str], TableStatus] = table_status
) -> list[TableLine]:
    """Return a line for each table, sorted by name.  Errors of the catalog are raised; errors of tables are part of
    their lines.
    """

    def line(entry: TableEntry) -> TableLine:
        if entry.state == "dropped":
            return TableLine(entry.name, entry.uri, "dropped")
        try:
            status = look(settings, entry.uri)
        except LancewalError as error:
            return TableLine(entry.name, entry.uri, "error", error=f"{error.kind}: {error}")
        lags = [partition.lag for partition in status.partitions]
        known = [lag for lag in lags if lag is not None]
        return TableLine(
            entry.name,
            entry.uri,
            status.diagnosis.state.value,
            status.table_rows,
            status.table_version,
            sum(known) if len(known) == len(lags) else None,
        )

    with closing(ThreadTasks(io_threads=TABLES_AT_ONCE)) as tasks:
        return tasks.map(line, list(catalog.tables().values()))


def worst_first(lines: Sequence[TableLine]) -> list[TableLine]:
    """Sort tables: first those that cannot be opened, then those with an unknown lag, then the others by lag, the
    largest first.  Dropped tables come last.
    """

    def rank(line: TableLine) -> tuple[int, int]:
        if line.state == "dropped":
            return 3, 0
        if line.error is not None:
            return 0, 0
        return (1, 0) if line.lag is None else (2, -line.lag)

    return sorted(lines, key=rank)
