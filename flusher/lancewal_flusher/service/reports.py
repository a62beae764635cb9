"""Reports of a table's state to a catalog in PostgreSQL, where SQL tools read them.

Guarantees
 1. The table's turns never wait for the catalog.  They only store the newest report, and a separate thread sends it.
 2. A report is sent at most every ``EVERY_S`` seconds, and only if it differs from the one sent before.  If several
    are stored meanwhile, only the newest is sent.  While nothing changes, the thread asks every ``ASK_S`` seconds
    which server answers.
 3. While the catalog does not answer, ``problem`` and a metric say so, and the newest report waits.  Nothing else changes:
    the table is ready, and merges go on.
 4. If another server answers than the one that took the previous report, or the server has another timeline, that is
    logged.  The catalog may then have lost its newest changes.  The previous report may come from another process.
    Before its next report the thread compares the catalog with the folders and mends what they prove
    (``catalog.check``).  It logs each difference, except for tables that this flusher cannot read.  A check that
    fails is repeated, ``CHECKS_MAX`` times in all.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from lancewal_core.catalog.report import Server, TableReport
from lancewal_core.errors import kind_of
from lancewal_core.process.clock import Clock
from lancewal_flusher.service.backlog import Backlog
from lancewal_flusher.service.metrics import FlusherMetrics

if TYPE_CHECKING:
    from lancewal_flusher.catalog.check import CatalogFinding

EVERY_S = 10.0
"""Least seconds between two reports, also while the catalog does not answer."""
ASK_S = 60.0
"""Seconds without a new report after which the thread asks the catalog which server answers."""
CHECKS_MAX = 5
"""Largest number of attempts to check the catalog after one failover: the flusher may lack the right to list the
root."""


class ReportedTo(Protocol):
    """A catalog that takes reports: ``PostgresCatalog``."""

    def reported_to(self, table_uuid: str) -> Server | None: ...

    def report(self, report: TableReport, server: Server) -> None: ...

    def server(self) -> Server: ...


Check = Callable[[], "Sequence[CatalogFinding]"]
"""Function that compares the catalog with the folders, corrects entries that folders prove, and returns the
differences."""


class CatalogReports:
    """Sender of a table's status reports to a catalog, in a thread that runs inside ``with``.  ``table_uuid`` names the
    table in them.
    """

    def __init__(
        self, catalog: ReportedTo, check: Check, table_uuid: str, metrics: FlusherMetrics, clock: Clock
    ) -> None:
        self._catalog, self._check, self._table_uuid = catalog, check, table_uuid
        self._metrics, self._clock = metrics, clock
        self._newest: TableReport | None = None
        self._left = threading.Event()
        self._over = threading.Event()
        self._silent_since: float | None = None
        self._server: Server | None = None
        self._checks_left = 0
        self.problem: str | None = None
        """Text that says why the catalog accepts no report; None while it accepts them."""

    def leave(self, backlog: Backlog) -> None:
        """Store the table's state as the next report, and return at once."""
        since_ms = min(backlog.waits_since_ms.values(), default=None)
        self._newest = TableReport(
            self._table_uuid,
            backlog.version,
            max(backlog.merged_ms.values(), default=None),
            0.0 if since_ms is None else max(0.0, (self._clock.now_ms() - since_ms) / 1000),
        )
        self._left.set()

    def __enter__(self) -> Self:
        self._metrics.catalog_silent(self._silent_s)
        threading.Thread(target=self._run, name="lancewal-catalog", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._left.set()

    def _run(self) -> None:
        sent: TableReport | None = None
        asked = -math.inf
        while not self._over.is_set():
            self._left.wait(ASK_S)
            self._left.clear()
            report, now = self._newest, self._clock.monotonic()
            if report is None or (report == sent and now - asked < ASK_S) or self._over.is_set():
                continue
            asked = now
            if self._sent(None if report == sent else report):
                sent = report
            else:
                self._left.set()  # the newest waits
                asked = -math.inf
            self._over.wait(EVERY_S)

    def _sent(self, report: TableReport | None) -> bool:
        """Send a report; None: only ask which server answers.  Return False if that must be repeated."""
        try:
            server = self._catalog.server()
            if self._server is None:
                self._server = self._catalog.reported_to(self._table_uuid)
            if self._server not in (None, server):
                self._metrics.events.catalog_went_back(system=server.system, timeline=server.timeline)
                self._checks_left = CHECKS_MAX
            self._server = server
            if not self._checked():
                return False
            if report is not None:
                self._catalog.report(report, server)
        except Exception as error:  # the thread must not end: nobody would see that no report comes
            self._failed(error)
            return False
        if self.problem is not None:
            self._metrics.events.catalog_answers_again()
        self._silent_since, self.problem = None, None
        return True

    def _checked(self) -> bool:
        """Compare the catalog with the folders if a failover was seen.  Return False if that failed and must be
        repeated.
        """
        if not self._checks_left:
            return True
        try:
            found = self._check()
        except Exception as error:  # reports go on
            self._checks_left -= 1
            self._metrics.events.catalog_check_failed(kind=kind_of(error), error=str(error), left=self._checks_left)
            return not self._checks_left
        self._checks_left = 0
        for one in found:
            if one.kind == "unreadable":
                continue
            self._metrics.events.catalog_differs(name=one.name, kind=one.kind, mended=one.mended, text=one.text)
        return True

    def _failed(self, error: Exception) -> None:
        if self._silent_since is None:
            self._silent_since = self._clock.monotonic()
            self._metrics.events.catalog_silent(kind=kind_of(error), error=str(error))
        self.problem = f"{kind_of(error)}: {error}"

    def _silent_s(self) -> float:
        since = self._silent_since
        return 0.0 if since is None else self._clock.monotonic() - since
