"""The parts of a flusher process that its tables share: HTTP side, threads, budgets, metrics, the loop.

Guarantees
 1. Tables run their turns one after the other.  So only one merge runs at a time, and it may use all memory that is
    meant for merges.
 2. A table whose turn raises stops, and ``/readyz`` names it.  The others go on.  Once none is left, or the process is told
    to stop, the first of these errors is raised.
 3. The process is ready once each of its tables is.  ``/status`` shows the first of them.

A process works on one table until settings can name several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from lancewal_core.errors import LancewalError, Problem
from lancewal_core.open import Address
from lancewal_core.process.clock import Clock, SystemClock, sleep_unless
from lancewal_core.process.health import Health, HealthServer
from lancewal_core.process.service_metrics import ProcessRegistry
from lancewal_core.process.start import Start
from lancewal_core.process.status.board import LOOKED_AT_S, StatusBoard
from lancewal_core.settings.load import Settings
from lancewal_core.table.checks import former_setting
from lancewal_core.table.proof.store_proof import check_way
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.open import Threads, open_on
from lancewal_flusher.service.metrics import FlusherMetrics
from lancewal_flusher.service.table import LOOP_LIMIT_S, FlusherTable


class FlusherProcess:
    """A flusher process and its tables.  ``stopping``: whether the process was told to stop.  ``stack`` ends its
    threads.
    """

    def __init__(
        self, settings: Settings, stopping: Callable[[], bool], stack: ExitStack, clock: Clock | None = None
    ) -> None:
        self.clock = SystemClock() if clock is None else clock
        self.registry = ProcessRegistry()
        self.health = Health(self.clock, self.problems, LOOP_LIMIT_S, waits=self._waits, beside=self._beside)
        self._settings = settings
        self._asked_to_stop = stopping
        self._threads = Threads.of(settings, stack)
        self._board = StatusBoard(self.clock)
        self._start = Start(self.clock, self.stopping)
        self._tables: list[FlusherTable] = []
        self._stopped: list[tuple[FlusherTable, LancewalError]] = []

    def listen(self, stack: ExitStack) -> int:
        """Start the HTTP server, which answers probes at once.  Return the port."""
        http = self._settings.http
        server = HealthServer(http.host, http.flusher_port, self.registry, self.health, self._board.answer)
        return stack.enter_context(server).port

    def stopping(self) -> bool:
        """Whether the process was told to stop.  Each call also tells ``health`` that the loop is alive."""
        self.health.beat()
        return self._asked_to_stop()

    def metrics(self, settings: Settings, port: int | None = None) -> FlusherMetrics:
        """Return new metrics of a table, in the registry of the process."""
        name, per_partition = Address.of(settings).name, settings.metrics.per_partition
        metrics = FlusherMetrics(
            self.clock, name, FlusherEvents(table=name), per_partition=per_partition, registry=self.registry
        )
        metrics.port = port
        return metrics

    def open(self, settings: Settings, metrics: FlusherMetrics, stack: ExitStack) -> FlusherTable:
        """Open and check the table in these settings.  ``stack`` closes it."""
        address = Address.of(settings)
        context = open_on(settings, self._threads, stack, store=metrics.observed(address.store()))
        metrics.called(address.name_of(context.contract))
        check_way(address.way(), context.new_id())
        contract = context.contract
        what = {"topic": contract.topic, "table": contract.table_uuid, "runner": settings.flusher.runner}
        former = former_setting(settings, contract, context.store)
        if former is not None:
            metrics.events.columns_setting_former(contract_version=former)
        metrics.started(contract.version, contract.partitions, contract.topic_id, address.uri, what)
        table = FlusherTable(settings, context, metrics, self.stopping)
        table.control.read_or_raise()
        return table

    def open_when_it_can(
        self, found: Callable[[], Settings], metrics: FlusherMetrics, stack: ExitStack
    ) -> FlusherTable | None:
        """Open the table whose settings ``found`` returns.  Retry while the error may be transient
        (``process.start``).  Return None if the process is told to stop before the table is open.
        """
        return self._start.run(
            lambda opened: self.open(found(), metrics, opened),
            stack,
            lambda error, again_s: metrics.failed("start", error, again_s),
        )

    def add(self, table: FlusherTable) -> None:
        """Add a table to work on."""
        self._tables.append(table)
        self.health.beat()

    def work(self) -> None:
        """Run the turns of all tables again and again, until told to stop or until no table is left.  Afterwards no
        work is running.

        Raises the first error that stopped a table.
        """
        working = list(self._tables)
        with ExitStack() as ending:
            for table in working:
                ending.callback(table.end)
            while working and not self.stopping():
                waits_s = []
                for table in list(working):
                    try:
                        waits_s.append(table.take_turns())
                    except LancewalError as error:
                        working.remove(table)
                        self._stopped.append((table, error))
                if working:
                    self._wait(min(waits_s))
            for table in working:
                table.metrics.events.service_stopping()
            if self._stopped:
                raise self._stopped[0][1]

    def problems(self) -> Sequence[Problem]:
        """Return the reasons why the process is not ready; empty if it is ready."""
        if not self._tables:
            return [self._start.why_not_ready()]
        stopped = [Problem.of(error, f"{table.settings.table.uri} stopped") for table, error in self._stopped]
        return [*stopped, *(problem for table in self._tables for problem in table.problems())]

    def _waits(self) -> bool:
        """Whether the loop may be blocked by something that a restart does not repair."""
        return not self._tables or any(table.silent for table in self._tables)

    def _beside(self) -> Sequence[tuple[str, float]]:
        """Return the names of parallel turns that are running, and for how many seconds each has been running."""
        return [found for table in self._tables for found in table.turns.beside()]

    def _wait(self, wait_s: float) -> None:
        """Sleep for ``wait_s`` seconds, until a table is gone, or until the process is told to stop.  Meanwhile
        update the status board as often as it is due.
        """
        until = self.clock.monotonic() + wait_s
        while True:
            if self._board.due():
                self._board.show(self._tables[0].shown(self.health.ready()))
            left_s = until - self.clock.monotonic()
            if left_s <= 0 or self.stopping() or any(table.presence.gone for table in self._tables):
                return
            sleep_unless(self.stopping, self.clock, min(left_s, LOOKED_AT_S))
