"""Compaction on a local Spark with two cores: the same fragments as on threads, and the rows of a dict."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lancewal_core.errors import RewriteFailed, SparkJobFailed, VersionGone
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.clock import SystemClock
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.unnamed_data_files import UNNAMED_AFTER_MS, find_unnamed
from lancewal_flusher.service.upkeep import CompactionReport, Upkeep
from lancewal_flusher.tasks.merge_task import FragmentResult, FragmentTask
from lancewal_flusher.tasks.rewrite_task import RewriteTask, Rewritten
from lancewal_flusher.tasks.runner import Runner
from lancewal_flusher.tasks.spark_runner import SparkRunner
from lancewal_flusher.upkeep.compact_all import CompactionSummary, compact_to_the_end, look
from lancewal_flusher.upkeep.compaction import Compacted, CompactionResult, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.index_plan import IndexLimits
from tests.support.flusher_tables import FlusherTable, delete, patch, upserts
from tests.support.spark import LocalSpark
from tests.support.spark_gate import Broken, Gate

pytestmark = pytest.mark.spark

LIMITS = CompactionLimits(target_rows=100, fragments_min=2, growth=1.0, groups_max=4)
"""Five fragments of twenty rows are a group."""


def filled(folder: Path) -> FlusherTable:
    """The sentinel, fifteen fragments of twenty rows, some hidden in three of them, and two small ones; nothing waits."""
    made = FlusherTable(folder)
    for number in range(16):
        made.generation(number % 2, upserts(range(20 * number, 20 * number + 20)))
        made.round()
    made.generation(0, [delete(45), *upserts(range(80, 85), a=1), patch(121, s="p")])
    made.round()
    return made


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = filled(tmp_path)
    yield made
    made.close()


@dataclass(slots=True)
class Changed:
    """A runner whose tasks are changed on their way to another."""

    inner: Runner
    change: Callable[[list[Any]], Sequence[Any]]

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        raise AssertionError("a compaction merges nothing")

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        return self.inner.rewrite(self.change(list(tasks)))


def on(table: FlusherTable, runner: Runner) -> FlusherContext:
    return replace(table.context(), runner=runner)


def compact(table: FlusherTable, runner: Runner) -> CompactionResult:
    return compact_next(on(table, runner), LIMITS, FileSizes(), with_sentinel=False)


def contents(table: FlusherTable) -> list[list[tuple[str, int]]]:
    """Keys of each fragment, in the order of their ids."""
    return [
        sorted((row["region"], row["id"]) for row in f.to_table(columns=["region", "id"]).to_pylist())
        for f in table.dataset.get_fragments()
    ]


def files(table: FlusherTable) -> set[str]:
    return {file.name for file in (Path(table.uri) / "data").iterdir()}


def named_files(table: FlusherTable) -> set[str]:
    """By any version."""
    dataset = table.dataset
    versions = [dataset.checkout_version(v["version"]) for v in dataset.versions()]
    return {file.path for old in versions for f in old.get_fragments() for file in f.metadata.files}


def test_the_same_fragments_as_on_threads(
    spark: LocalSpark, table: FlusherTable, runner: SparkRunner, tmp_path: Path
) -> None:
    before = {id for id in (f.fragment_id for f in table.dataset.get_fragments()) if id}
    version = table.dataset.version
    done = compact(table, runner)
    assert isinstance(done, Compacted)
    assert (done.version, done.fragments_before, done.fragments_after) == (version + 1, len(before), 3)
    table.check()
    tasks = spark.tasks()
    assert [task.kind for task in tasks] == ["compaction"] * 3
    assert os.getpid() not in {task.pid for task in tasks}
    # The small and the worn ones with two of the others, and ten in hundreds.
    assert [len(keys) for keys in contents(table)] == [20, 99, 100, 100]
    (tmp_path / "threads").mkdir()
    other = filled(tmp_path / "threads")
    here = compact(other, other.context().runner)
    assert isinstance(here, Compacted)
    assert contents(other) == contents(table)
    assert replace(here, bytes_written=0) == replace(done, bytes_written=0)
    other.check()
    # Merges go on upon it.
    table.generation(0, [*upserts(range(30, 90), a=7), delete(120)])
    table.round()
    table.check()
    other.close()


def test_to_the_end(table: FlusherTable, runner: SparkRunner) -> None:
    context = on(table, runner)
    foreseen = look(context, LIMITS, with_sentinel=True)
    assert isinstance(foreseen, CompactionSummary)
    done = compact_to_the_end(context, LIMITS, with_sentinel=True)
    assert (done.rounds, done.fragments_after, done.rows_dropped) == (1, 4, 7)
    assert (foreseen.rounds, foreseen.fragments_after, foreseen.rows_dropped) == (1, 4, 7)
    table.check()


def test_groups_at_the_same_time(table: FlusherTable, runner: SparkRunner, gate: Gate, seen_meanwhile: None) -> None:
    """One is held, and the others go on; progress is shown; the tasks lie on the store meanwhile."""
    gated = Changed(runner, lambda tasks: [gate.before(tasks[0]), *tasks[1:]])
    with capture_logs() as logs, ThreadPoolExecutor(1) as pool:
        compacting = pool.submit(compact, table, gated)
        gate.held()
        assert len(list(table.store.list(paths.PARCELS))) == 1
        while not any(line["event"] == "tasks_progressed" and line["done_tasks"] == 2 for line in list(logs)):
            assert not compacting.done()
            time.sleep(0.01)
        gate.open()
        assert isinstance(compacting.result(), Compacted)
    assert {(line["runner"], line["tasks"]) for line in logs if line["event"] == "tasks_progressed"} == {("spark", 3)}
    assert list(table.store.list(paths.PARCELS)) == []
    table.check()


def test_a_python_worker_killed_in_the_middle(
    spark: LocalSpark, table: FlusherTable, runner: SparkRunner, gate: Gate
) -> None:
    """It has written one group: that task runs again, and the first file is nobody's."""
    # Two slices: the first one has the tasks 0 and 2.
    gated = Changed(replace(runner, slices_max=2), lambda tasks: [tasks[0], tasks[1], gate.before(tasks[2])])
    with ThreadPoolExecutor(1) as pool:
        compacting = pool.submit(compact, table, gated)
        killed = gate.held()
        assert killed in {task.pid for task in spark.tasks()}
        os.kill(killed, signal.SIGKILL)
        assert isinstance(compacting.result(), Compacted)
    table.check()
    orphans = files(table) - named_files(table)
    assert len(orphans) == 1
    tomorrow = SystemClock().now_ms() + UNNAMED_AFTER_MS + 1_000
    table.clean_up()  # what is named by old versions alone goes, and leaves the orphan
    unnamed = find_unnamed(table.context(), [], tomorrow)
    assert unnamed is not None
    assert unnamed.files == 1
    table.clean_up(delete_unverified=True)
    assert files(table) == named_files(table)
    table.check()


class Failing:
    """Ways for a task to fail on an executor, and to be whole again."""

    def __init__(self, table: FlusherTable) -> None:
        last = table.dataset.get_fragments()[-1].metadata.files[0].path
        self._file = Path(table.uri) / "data" / last
        self._whole = self._file.read_bytes()

    def damage(self) -> None:
        self._file.write_bytes(bytes(len(self._whole)))

    def mend(self) -> None:
        self._file.write_bytes(self._whole)


def upkeep(table: FlusherTable, runner: Runner) -> Callable[[], CompactionReport]:
    return partial(Upkeep(LIMITS, IndexLimits()).compact, on(table, runner))


def landed(report: CompactionReport) -> Compacted:
    assert isinstance(report.compaction, Compacted)
    return report.compaction


def test_a_task_that_fails_leaves_the_table_as_it_is(table: FlusherTable, runner: SparkRunner) -> None:
    """Of its round nothing lands, also not the groups that are written; the next one goes on."""
    service, broken = upkeep(table, runner), Failing(table)
    version = table.dataset.version
    broken.damage()
    with pytest.raises(RewriteFailed, match="on a Spark executor: fragments"):
        service()
    assert table.dataset.version == version
    assert len(files(table) - named_files(table)) == 2
    broken.mend()
    table.check()
    assert landed(service()).fragments_after == 3
    table.check()


def test_a_job_that_spark_gives_up(table: FlusherTable, runner: SparkRunner) -> None:
    version = table.dataset.version
    lost: Any = Broken("no such thing")
    with pytest.raises(SparkJobFailed, match="Spark gave up the tasks of a compaction: RuntimeError: no such thing"):
        upkeep(table, Changed(runner, lambda tasks: [*tasks[1:], lost]))()
    assert table.dataset.version == version
    assert landed(upkeep(table, runner)()).fragments_after == 3
    table.check()


def test_a_version_that_is_gone(table: FlusherTable, runner: SparkRunner) -> None:
    gone = Changed(runner, lambda tasks: [tasks[0], *(replace(t, version=TableVersion(900)) for t in tasks[1:])])
    with pytest.raises(VersionGone, match="on a Spark executor: version 900"):
        gone.rewrite(tasks_of(table))
    result = compact(table, gone)
    assert isinstance(result, Refused)
    assert isinstance(compact(table, runner), Compacted)
    table.check()


def tasks_of(table: FlusherTable) -> list[RewriteTask]:
    """The tasks of the round that is due."""
    seen: list[RewriteTask] = []

    class Stop(Exception):
        pass

    def stop(tasks: list[RewriteTask]) -> Sequence[RewriteTask]:
        seen.extend(tasks)
        raise Stop

    with pytest.raises(Stop):
        compact(table, Changed(table.context().runner, stop))
    return seen
