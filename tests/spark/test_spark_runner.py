"""The flusher's Spark runner on a local Spark with two cores: the thread runner and a dict say what must come out."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lancewal_core.errors import ObjectMissing, SparkJobFailed, SparkStopped, VersionGone
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.tasks import spark_session
from lancewal_flusher.tasks.merge_task import FragmentResult, FragmentTask
from lancewal_flusher.tasks.rewrite_task import RewriteTask, Rewritten
from lancewal_flusher.tasks.runner import Runner, ThreadRunner
from lancewal_flusher.tasks.spark_runner import SparkRunner
from tests.support.flusher_tables import FlusherTable, delete, patch, upsert, upserts
from tests.support.spark import LocalSpark, spark_runner
from tests.support.spark_gate import Broken, Gate

pytestmark = pytest.mark.spark


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Four fragments; changes that touch all of them wait."""
    made = FlusherTable(tmp_path)
    for first in (0, 100):
        for partition in (0, 1):
            made.generation(partition, upserts(range(first, first + 100)))
            made.round()
    assert len(made.dataset.get_fragments()) == 4
    for partition in (0, 1):
        changes = [upsert(5, a=1), patch(6, s="p"), delete(7), upsert(105, a=2), delete(106), patch(999, a=3)]
        made.generation(partition, [*changes, upsert(1_000, a=4)])
    yield made
    made.close()


@dataclass(slots=True)
class Changed:
    """A runner whose tasks are changed on their way to another."""

    inner: Runner
    change: Callable[[list[FragmentTask]], Sequence[FragmentTask]] = list
    tasks: list[FragmentTask] = field(default_factory=list)

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        self.tasks = list(tasks)
        return self.inner.run(self.change(list(tasks)))

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        raise AssertionError("a merge compacts nothing")


def flusher(table: FlusherTable, runner: Runner) -> FlusherContext:
    return replace(table.context(), runner=runner)


def deletion_files(table: FlusherTable) -> set[str]:
    return {file.name for file in (Path(table.uri) / "_deletions").iterdir()}


def named_deletion_files(table: FlusherTable) -> int:
    return sum(f.metadata.deletion_file is not None for f in table.dataset.get_fragments())


def parcels(table: FlusherTable) -> list[str]:
    return [info.key for info in table.store.list(paths.PARCELS)]


def test_a_merge_on_executors_equals_the_model(spark: LocalSpark, table: FlusherTable, runner: SparkRunner) -> None:
    report = table.round(context=flusher(table, runner))
    assert sum(merge.rows_replaced for merge in report.merges) == 2 * 5
    table.check()
    assert named_deletion_files(table) == len(deletion_files(table)) == 4
    tasks = spark.tasks()
    assert [task.kind for task in tasks] == ["merge"] * 4
    assert len({task.pid for task in tasks}) >= 2
    assert os.getpid() not in {task.pid for task in tasks}


def test_many_patches_are_written_in_place(spark: LocalSpark, tmp_path: Path) -> None:
    table = FlusherTable(tmp_path)
    for partition in (0, 1):
        table.generation(partition, upserts(range(6_000)))
    table.round()
    spark.tasks()
    for partition in (0, 1):
        patches = [patch(id, a=id) for id in range(5_000)]
        table.generation(partition, [*patches, upsert(5_500, a=1), delete(5_600)])
    report = table.round(context=flusher(table, spark_runner(spark, table)))
    assert sum(merge.rows_in_place for merge in report.merges) == 2 * 5_000
    table.check()
    assert sorted(f.num_deletions for f in table.dataset.get_fragments()) == [0, 0, 2, 2]
    assert os.getpid() not in {task.pid for task in spark.tasks()}
    table.close()


@pytest.mark.parametrize("slices_max", [200, 3])
def test_results_are_those_of_threads(table: FlusherTable, runner: SparkRunner, slices_max: int) -> None:
    seen = Changed(ThreadRunner(table.context().table, table.tasks))
    expected: list[FragmentResult] = []

    class Threads:
        def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
            expected.extend(seen.run(tasks))
            return list(expected)

        rewrite = seen.rewrite

    table.round(context=flusher(table, Threads()))
    found = replace(runner, slices_max=slices_max).run(seen.tasks)
    assert [about(result) for result in found] == [about(result) for result in expected]
    assert any(result.base is not None and result.base.num_rows for result in found)
    assert runner.run([]) == []


def about(result: FragmentResult) -> tuple[Any, ...]:
    """Without the name of the deletion file, which is new each time."""
    base = None if result.base is None else result.base.sort_by("id").to_pylist()
    return result.fragment_id, result.hits, result.updated is None, base


def test_large_parcels_lie_on_the_store_meanwhile(
    table: FlusherTable, runner: SparkRunner, gate: Gate, seen_meanwhile: None
) -> None:
    """And progress is shown, which needs a merge that takes a while."""
    gated = Changed(runner, lambda tasks: [gate.before(tasks[0]), *tasks[1:]])
    with capture_logs() as logs, ThreadPoolExecutor(1) as pool:
        merging = pool.submit(table.round, context=flusher(table, gated))
        gate.held()
        assert len(parcels(table)) == 1
        while not any(line["event"] == "tasks_progressed" and line["done_tasks"] == 3 for line in list(logs)):
            assert not merging.done()
            time.sleep(0.01)
        gate.open()
        merging.result()
    assert {(line["runner"], line["tasks"]) for line in logs if line["event"] == "tasks_progressed"} == {("spark", 4)}
    assert parcels(table) == []
    table.check()


def test_a_python_worker_killed_in_the_middle(
    spark: LocalSpark, table: FlusherTable, runner: SparkRunner, gate: Gate
) -> None:
    """It has hidden rows of one fragment: that task runs again and writes a second file, which no version names."""
    # Two slices: the first one has the tasks 0 and 2.
    gated = Changed(replace(runner, slices_max=2), lambda tasks: [tasks[0], tasks[1], gate.before(tasks[2]), tasks[3]])
    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(table.round, context=flusher(table, gated))
        killed = gate.held()
        assert killed in {task.pid for task in spark.tasks()}
        os.kill(killed, signal.SIGKILL)
        merging.result()
    table.check()
    assert named_deletion_files(table) == 4
    assert len(deletion_files(table)) == 5


def test_errors_keep_their_kind(table: FlusherTable, runner: SparkRunner) -> None:
    gone = Changed(runner, lambda tasks: [tasks[0], *(replace(t, version=TableVersion(900)) for t in tasks[1:])])
    context = flusher(table, gone)
    with pytest.raises(VersionGone, match="on a Spark executor: version 900"):
        runner.run([replace(task, version=TableVersion(900)) for task in tasks_of(table)])
    # The merge takes it for what it is with threads: its version is there, so something of it is missing.
    with pytest.raises(ObjectMissing):
        table.round(context=context)
    table.round()
    table.check()


def tasks_of(table: FlusherTable) -> list[FragmentTask]:
    """The tasks of the merge that waits."""

    class Stop(Exception):
        pass

    def stop(_: list[FragmentTask]) -> Sequence[FragmentTask]:
        raise Stop

    seen = Changed(ThreadRunner(table.context().table, table.tasks), stop)
    with pytest.raises(Stop):
        table.round(context=flusher(table, seen))
    return seen.tasks


def test_a_job_that_spark_gives_up_is_a_fault_that_may_pass(table: FlusherTable, runner: SparkRunner) -> None:
    broken: Any = Broken("no such thing")
    failing = Changed(runner, lambda tasks: [broken, *tasks[1:]])
    version = table.dataset.version
    with pytest.raises(SparkJobFailed, match="RuntimeError: no such thing"):
        table.round(context=flusher(table, failing))
    assert table.dataset.version == version
    table.round(context=flusher(table, runner))
    table.check()


def test_a_session_that_has_ended_ends_the_flusher(
    table: FlusherTable, runner: SparkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: Any = Broken("x")
    monkeypatch.setattr("lancewal_flusher.tasks.spark_runner.is_stopped", lambda _: True)
    with pytest.raises(SparkStopped, match="start the flusher again"):
        runner.run([broken])
    monkeypatch.undo()
    assert not spark_session.is_stopped(runner.session())
