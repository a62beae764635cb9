"""Reports to a catalog in PostgreSQL: SQL tools see them, and the flusher works on without the catalog."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from lancewal_core.catalog.postgres import connections, parameters
from lancewal_core.catalog.report import Server, TableReport
from lancewal_core.errors import CatalogUnavailable, StoreUnavailable
from lancewal_core.names.ids import TableVersion
from lancewal_core.region.state import GenerationState
from lancewal_core.settings.load import Settings
from lancewal_core.table.watermarks import NOTHING_MERGED
from lancewal_flusher.catalog.check import CatalogFinding
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.service import reports
from lancewal_flusher.service.backlog import Backlog
from lancewal_flusher.service.process import FlusherProcess
from lancewal_flusher.service.table import FlusherTable
from tests.simulation.stage import Stage
from tests.support.postgres import DATABASE, PASSWORD, OneAnswer, PostgresServer
from tests.support.scrapes import by_table
from tests.support.scripted import ManualClock
from tests.support.tcp_fault_proxy import Damage

AWAITED_S = 60.0
SILENT = "lancewal_flusher_catalog_silent_seconds"


class Flusher:
    """A flusher of a table with a generation that waits, whose settings name the catalog ``url``."""

    def __init__(self, url: str, stack: ExitStack, root: str = "") -> None:
        self.clock = ManualClock()
        self.ends_at = 0.0
        self.process = FlusherProcess(Settings(), lambda: self.clock.monotonic() >= self.ends_at, stack, self.clock)
        self.stage = Stage()
        _, context, _ = self.stage.flushed(0)
        catalog = {"kind": "postgres", "url": url, "password": PASSWORD, "root": root}
        settings = Settings.model_validate({"table": {"uri": "memory/t"}, "catalog": catalog})
        metrics = self.process.metrics(settings)
        self.table = FlusherTable(
            settings, replace(context, events=FlusherEvents(table="t")), metrics, self.process.stopping
        )
        self.table.watch(stack)
        self.process.add(self.table)

    def works(self) -> None:
        self.ends_at = self.clock.monotonic() + 30
        self.process.work()

    def merged(self) -> bool:
        context = self.stage.flusher("look")
        states = {r.state for state in context.read_states().values() for r in state.generations}
        return states <= {GenerationState.MERGED, GenerationState.OPEN}

    def problems(self) -> list[str]:
        return list(self.table.shown(self.process.problems()).problems)


@contextmanager
def flusher(url: str) -> Iterator[Flusher]:
    with ExitStack() as stack:
        yield Flusher(url, stack)


def until(seen: Callable[[], object]) -> None:
    began = time.monotonic()
    while not seen():
        assert time.monotonic() - began < AWAITED_S
        time.sleep(0.01)


def sound(running: Flusher) -> bool:
    """Whether the status names no problem."""
    return not running.problems()


def reported(server: PostgresServer) -> list[tuple[Any, ...]]:
    return server.run("SELECT table_uuid, merged_version, lag_seconds FROM lancewal.reports", DATABASE)


def test_the_newest_merge_is_reported(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "EVERY_S", 0.01)
    with flusher(postgres.database()) as running:
        running.works()
        assert running.merged()
        wanted = (running.table.context.contract.table_uuid, running.table.context.table.newest().version, 0.0)
        until(lambda: reported(postgres) == [wanted])
        assert running.problems() == []


def test_a_catalog_that_takes_no_reports_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server hangs, is gone, is read-only or full, or its answers end after so many bytes."""
    monkeypatch.setattr(connections, "STATEMENT_S", 0.5)
    monkeypatch.setattr(parameters, "CONNECT_S", 2)
    monkeypatch.setattr(reports, "EVERY_S", 0.05)
    with PostgresServer() as server, OneAnswer(server.url()) as proxy:
        url = proxy.through(server.database())

        def cut() -> None:
            proxy.damage = Damage("cut", "answer", 600)  # after the log-in
            proxy.reset_all()

        def pass_on() -> None:
            proxy.damage = None

        for harm, mend, said in (
            (server.pause, server.resume, "does not answer"),
            (server.kill, server.start, "does not answer"),
            (server.refuse_writes, server.take_writes, "takes no writes"),
            (server.fill, server.make_room, "is full"),
            (cut, pass_on, "does not answer"),
        ):
            with flusher(url) as running:
                harm()
                running.works()
                assert running.merged()
                assert running.process.problems() == []
                until(running.problems)
                (problem,) = running.problems()
                assert said in problem
                assert PASSWORD not in problem
                running.table.context.clock.sleep(5)
                assert by_table(running.process.registry, SILENT)["t"] >= 5
                mend()
                until(partial(sound, running))
                until(lambda: reported(server))
                assert by_table(running.process.registry, SILENT) == {"t": 0.0}
            server.run("DELETE FROM lancewal.reports", DATABASE)


class Slow:
    """A catalog that answers when the test lets it."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked, self.may = threading.Semaphore(0), threading.Semaphore(0)
        self.taken: list[int] = []
        self.fails = False
        self.now = Server(1, 1)

    def server(self) -> Server:
        return self.now

    def reported_to(self, table_uuid: str) -> Server | None:
        return None

    def report(self, report: TableReport, server: Server) -> None:
        self.asked.release()
        assert self.may.acquire(timeout=AWAITED_S)
        if self.fails:
            raise self.error
        self.taken.append(report.merged_version)

    def answers(self, *, fails: bool = False) -> None:
        """Let one report through, or fail."""
        assert self.asked.acquire(timeout=AWAITED_S)
        self.fails = fails
        self.may.release()


def backlog(version: int) -> Backlog:
    return Backlog(TableVersion(version), NOTHING_MERGED, {}, {})


@pytest.mark.parametrize("error", [CatalogUnavailable("away"), ValueError("odd")])
def test_of_reports_that_wait_the_newest_is_sent_and_faults_are_named_once(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "EVERY_S", 0.0)
    catalog = Slow(error)
    with ExitStack() as stack, capture_logs() as logged:
        metrics = Flusher("postgresql://127.0.0.1:1/x", stack).table.metrics
        sends = stack.enter_context(reports.CatalogReports(catalog, list, "u1", metrics, ManualClock()))
        sends.leave(backlog(1))
        assert catalog.asked.acquire(timeout=AWAITED_S)
        for version in (2, 3, 4):  # nobody waits for the one under way
            sends.leave(backlog(version))
        catalog.asked.release()
        catalog.answers()
        for fails in (True, True, False):
            catalog.answers(fails=fails)
        until(lambda: catalog.taken == [1, 4])
        until(lambda: sends.problem is None)
        catalog.now = Server(1, 2)
        sends.leave(backlog(4))  # no other than before
        until(lambda: not sends._left.is_set())
        sends.leave(backlog(5))
        catalog.answers()
        until(lambda: catalog.taken == [1, 4, 5])
        until(lambda: any(line["event"] == "catalog_went_back" for line in logged))
    names = [line["event"] for line in logged if line["event"].startswith("catalog")]
    assert names == ["catalog_silent", "catalog_answers_again", "catalog_went_back"]


@pytest.mark.parametrize("error", [StoreUnavailable("no right to list"), ValueError("odd")])
def test_a_check_that_cannot_be_done_is_given_up(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flusher may not list the root.  Each failover is another reason to try; reports go on."""
    monkeypatch.setattr(reports, "EVERY_S", 0.0)
    catalog = Slow(CatalogUnavailable("away"))

    def check() -> list[CatalogFinding]:
        raise error

    with ExitStack() as stack, capture_logs() as logged:
        metrics = Flusher("postgresql://127.0.0.1:1/x", stack).table.metrics
        sends = stack.enter_context(reports.CatalogReports(catalog, check, "u1", metrics, ManualClock()))

        def left() -> list[int]:
            return [line["left"] for line in logged if line["event"] == "catalog_check_failed"]

        for timeline in (1, 2, 3):
            catalog.now = Server(1, timeline)
            sends.leave(backlog(timeline))
            catalog.answers()
            until(lambda timeline=timeline: left() == [4, 3, 2, 1, 0] * (timeline - 1))  # type: ignore[misc] # bound now
        sends.leave(backlog(4))  # no check is due
        catalog.answers()
        until(lambda: catalog.taken[-1] == 4)
        assert left() == [4, 3, 2, 1, 0] * 2


def test_tables_that_the_flusher_cannot_read_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "EVERY_S", 0.0)
    catalog = Slow(CatalogUnavailable("away"))
    found = [CatalogFinding(kind, f"s3://lake/{kind}", kind, "why") for kind in ("unreadable", "no-entry")]
    with ExitStack() as stack, capture_logs() as logged:
        metrics = Flusher("postgresql://127.0.0.1:1/x", stack).table.metrics
        sends = stack.enter_context(reports.CatalogReports(catalog, lambda: found, "u1", metrics, ManualClock()))
        for system in (1, 2):
            catalog.now = Server(system, 1)
            sends.leave(backlog(system))
            catalog.answers()
        until(lambda: any(line["event"] == "catalog_differs" for line in logged))
    assert [line["name"] for line in logged if line["event"] == "catalog_differs"] == ["no-entry"]


def test_a_failover_while_no_flusher_ran_is_seen(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report before was taken by another timeline.  The next process no longer sees a difference."""
    monkeypatch.setattr(reports, "EVERY_S", 0.01)
    url = postgres.database()
    names: list[list[str]] = []
    for number in range(3):
        with capture_logs() as logged, flusher(url) as running:
            running.works()
            until(lambda: reported(postgres))
            until(lambda running=running: running.table._reports._server is not None)  # type: ignore[misc] # bound now
        names.append([line["event"] for line in logged if line["event"].startswith("catalog")])
        if not number:
            postgres.run("UPDATE lancewal.reports SET timeline = timeline + 1", DATABASE)
    assert names == [[], ["catalog_went_back"], []]
