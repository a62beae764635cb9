"""The flusher on Spark as people run it: by Spark Connect, with executors that can be killed, and by spark-submit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml
from pyspark.sql.connect.session import SparkSession as ConnectSession
from structlog.testing import capture_logs

from lancewal_core.process.clock import SystemClock
from lancewal_flusher.tasks.merge_task import FragmentResult, FragmentTask
from lancewal_flusher.tasks.rewrite_task import RewriteTask, Rewritten
from lancewal_flusher.tasks.spark_runner import SparkRunner
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from tests.flusher.commands.test_compact import dies_before_its_commit
from tests.public.test_public_names import programs
from tests.spark.test_spark_page import ADDRESS, PAGE, SERVER, made_table
from tests.support.flusher_tables import FlusherTable, delete, patch, upserts
from tests.support.spark import QUICK_START, spark_environment
from tests.support.spark_connect import ConnectServer, connect_server
from tests.support.spark_gate import Gate

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
import sys
from lancewal_core.cli import program as cli
sys.exit(cli.run(sys.argv[1:]))
"""
"""``lancewal`` as installed."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with connect_server(tmp_path_factory.mktemp("connect")) as started:
        yield started


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Four fragments; changes that touch all of them wait."""
    made = FlusherTable(tmp_path)
    for first in (0, 100):
        for partition in (0, 1):
            made.generation(partition, upserts(range(first, first + 100)))
            made.round()
    for partition in (0, 1):
        made.generation(partition, [*upserts(range(90, 110), a=1), delete(3), patch(103, s="p"), patch(999, a=3)])
    yield made
    made.close()


@contextmanager
def connected(server: ConnectServer) -> Iterator[Any]:
    """A session beside the classic one of this process."""
    session = ConnectSession.builder.remote(server.remote).create()
    try:
        yield session
    finally:
        session.stop()


def java_above(pid: int) -> int:
    """The executor that a Python worker belongs to: worker, daemon, Java."""
    while "java" not in Path(f"/proc/{pid}/comm").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def test_an_executor_killed_in_the_middle(
    server: ConnectServer, table: FlusherTable, gate: Gate, seen_meanwhile: None
) -> None:
    """And progress is shown while its last task is held."""
    with connected(server) as session, ThreadPoolExecutor(1) as pool, capture_logs() as logs:
        runner = SparkRunner(lambda: session, table.uri, table.store, table.tasks, SystemClock(), slice_rows=1)

        class Gated:
            def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
                return runner.run([*tasks[:-1], gate.before(tasks[-1])])

            def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
                return runner.rewrite([*tasks[:-1], gate.before(tasks[-1])])

        merging = pool.submit(table.round, context=replace(table.context(), runner=Gated()))
        executor = java_above(gate.held())
        while not any(
            line["event"] == "tasks_progressed" and line["done_tasks"] == line["tasks"] - 1 for line in list(logs)
        ):
            assert not merging.done()
            time.sleep(0.01)
        os.kill(executor, signal.SIGKILL)
        merging.result()
    assert {line["runner"] for line in logs if line["event"] == "tasks_progressed"} == {"spark"}
    table.check()
    assert table.states(0) == table.states(1) == ["MERGED"] * 3


def test_an_executor_killed_in_the_middle_of_a_compaction(
    server: ConnectServer, table: FlusherTable, gate: Gate
) -> None:
    table.round()
    with connected(server) as session, ThreadPoolExecutor(1) as pool:
        runner = SparkRunner(lambda: session, table.uri, table.store, table.tasks, SystemClock(), slice_rows=1)

        class Gated:
            run = runner.run

            def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
                return runner.rewrite([*tasks[:-1], gate.before(tasks[-1])])

        limits = CompactionLimits(target_rows=250, fragments_min=2, growth=1.0, groups_max=4)
        context = replace(table.context(), runner=Gated())
        compacting = pool.submit(compact_next, context, limits, FileSizes(), with_sentinel=True)
        os.kill(java_above(gate.held()), signal.SIGKILL)
        done = compacting.result()
    assert isinstance(done, Compacted)
    table.check()


def test_a_compaction_that_dies_before_its_commit(server: ConnectServer, table: FlusherTable) -> None:
    """On executors: it leaves nothing but files that no version names, and the next one goes on."""
    table.round()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SPARK_REMOTE": server.remote}
    dies_before_its_commit(table, environment, "spark")


def run(command: Sequence[str | Path], table: FlusherTable, environment: dict[str, str], **flusher: Any) -> list[str]:
    """Run a program to its end, with these settings of the flusher; the lines that it wrote."""
    file = Path(table.uri).parent / "settings.yaml"
    file.write_text(
        yaml.safe_dump({"table": {"uri": table.uri}, "http": {"ingest_port": 0, "flusher_port": 0}, "flusher": flusher})
    )
    ended = subprocess.run(
        [*command, "--config", file],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    # spark-submit writes to its own standard output what the script writes to standard error.
    return [*ended.stdout.splitlines(), *ended.stderr.splitlines()]


def logged(lines: Sequence[str], event: str) -> list[dict[str, Any]]:
    """These lines of the log."""
    return [found for line in lines if line.startswith("{") and (found := json.loads(line))["event"] == event]


def test_a_program_by_spark_connect(server: ConnectServer, table: FlusherTable) -> None:
    before = server.event_log.read_text() if server.event_log.exists() else ""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SPARK_REMOTE": server.remote}
    lines = run([sys.executable, "-c", PROGRAM, "merge", "--runner", "spark"], table, environment)
    assert [line["runner"] for line in logged(lines, "service_started")] == ["spark"]
    assert len(logged(lines, "merge_landed")) == 1
    table.check()
    events = [json.loads(line) for line in server.event_log.read_text()[len(before) :].splitlines()]
    assert {(e["point"], e["when"]) for e in events} >= {("spark.task", "after"), ("dv.write", "after")}


def test_the_program_of_the_page_for_readers_by_spark_connect(server: ConnectServer, tmp_path: Path) -> None:
    made = made_table(tmp_path)
    (program,) = [program for program in programs(PAGE.read_text(encoding="utf-8")) if SERVER in program]
    said = """
import json
print(json.dumps([everything, {row["status"]: row["count"] for row in by_status.to_pylist()}]))
remote.stop()
"""
    # In a process of its own: from then on a process is a client of Connect, by its environment.
    done = subprocess.run(
        [sys.executable, "-c", program.replace(ADDRESS, made.uri).replace(SERVER, server.remote) + said],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [20, {"open": 15, "paid": 5}]
    made.close()


def by_spark_submit(
    program: Sequence[str], options: Sequence[str], table: FlusherTable, folder: Path, **flusher: Any
) -> tuple[list[str], list[dict[str, Any]]]:
    """Submit the script of ``program`` as people do; the lines that it wrote, and the events of all its processes."""
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM, "flusher", "spark-script", *program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "spark").mkdir()
    events = folder / "spark" / "events.jsonl"
    submit: list[str | Path] = [Path(pyspark.__file__).parent / "bin" / "spark-submit"]
    submit += ["--master", "local[2]", "--driver-memory", "512m"]
    local = {"driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1"}
    for name, value in {"ui.enabled": "false", "driver.extraJavaOptions": QUICK_START, **local}.items():
        submit += ["--conf", f"spark.{name}={value}"]
    environment = {**spark_environment(folder / "spark"), "LANCEWAL_EVENT_LOG": str(events)}
    lines = run([*submit, printed.stdout.strip(), *options], table, environment, **flusher)
    return lines, [json.loads(line) for line in events.read_text().splitlines()]


def test_a_program_by_spark_submit(table: FlusherTable, tmp_path: Path) -> None:
    lines, events = by_spark_submit(["merge"], [], table, tmp_path)
    assert len(logged(lines, "merge_landed")) == 1
    table.check()
    driver = {e["pid"] for e in events if e["point"] == "commit.send"}
    assert len(driver) == 1
    assert driver.isdisjoint(e["pid"] for e in events if e["point"] == "dv.write")


@pytest.mark.in_turns
def test_a_compaction_by_spark_submit(table: FlusherTable, tmp_path: Path) -> None:
    """Small and worn fragments, in two groups: rows are those of the dict before and after."""
    for partition in (0, 1):
        table.generation(partition, [*upserts(range(200, 280)), *(delete(id) for id in range(150, 190))])
    table.round()
    table.check()
    version, before = table.dataset.version, table.dataset.get_fragments()
    hidden = sum(f.num_deletions for f in before[1:])
    assert (len(before), hidden > 100) == (9, True)
    lines, events = by_spark_submit(["compact"], [], table, tmp_path, compaction_target_rows=300)
    (landed,) = logged(lines, "compaction_landed")
    assert (landed["version"], landed["fragments_before"], landed["dropped_rows"]) == (version + 1, 8, hidden)
    after = table.dataset.get_fragments()
    assert len(after) == 1 + landed["fragments_after"] < len(before)
    assert f"compacted in 1 round: {len(before)} fragments to {len(after)}, " in "\n".join(lines)
    assert [f.num_deletions for f in after[1:]] == [0] * landed["fragments_after"]
    table.check()
    driver = {e["pid"] for e in events if e["point"] == "commit.send"}
    writers = [e["pid"] for e in events if (e["point"], e["when"]) == ("fragment.write", "after")]
    assert (len(driver), len(writers)) == (1, 2)
    assert driver.isdisjoint(writers)
