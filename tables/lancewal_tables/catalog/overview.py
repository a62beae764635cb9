"""``lancewal catalog list``: each table of a catalog with its rows, its newest version, its lag and where its records stop.

Several tables are looked at at the same time, each as ``lancewal status`` does it.  A table that cannot be opened has
its error in place of these figures.
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
"""Number of tables that are looked at at the same time.  Each table has up to 16 requests to the store under way."""


@dataclass(frozen=True, slots=True)
class TableLine:
    """One table in the list of a catalog.  None stands for an unknown value."""

    name: str
    uri: str
    state: str
    """State of the table's diagnosis (``problem``, ``waits``, ``moving``, ``idle``); ``error`` if it cannot be opened,
    or ``dropped``."""
    rows: int | None = None
    """Rows in the newest version of the Lance table."""
    version: int | None = None
    """The newest version of the Lance table."""
    lag: int | None = None
    """Upper bound of the number of records in Kafka that are not durable.  None if Kafka was not asked, or if the lag
    of a partition is unknown."""
    error: str | None = None
    """Why the table cannot be opened; None if it can, or was dropped."""


def overview(
    catalog: StoredCatalog, settings: Settings, look: Callable[[Settings, str], TableStatus] = table_status
) -> list[TableLine]:
    """Return a line for each table, sorted by name.  Errors of the catalog are raised.  An error of a table is part of
    the table's line.
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
