"""Rows of three contracts on Spark: a plan carries the contracts that its rows name, and no executor asks for one.

Once the driver has planned, the table's contracts are taken away: whoever asked for one would fail.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import LancewalError
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks.merge_task import FragmentResult, FragmentTask
from lancewal_flusher.tasks.rewrite_task import RewriteTask, Rewritten
from lancewal_flusher.tasks.runner import Runner, ThreadRunner
from lancewal_flusher.tasks.spark_runner import SparkRunner
from lancewal_flusher.upkeep.compaction import FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_reader.spark.source import TaskPartition, pin_read
from lancewal_reader.table import open_table
from tests.columns.test_merges import flushed, unmerged
from tests.columns.test_reads import of_now
from tests.columns.three_contracts import LARGE, NAMES, ThreeContracts
from tests.support.flusher_tables import COMBINE, OPEN_ROWS
from tests.support.pipeline import Key, Row, by_key
from tests.support.spark import LocalSpark


@contextmanager
def without_contracts(table: ThreeContracts) -> Iterator[None]:
    folder = Path(table.uri) / "_lancewal" / "contract"
    away = folder.with_name("contract-away")
    folder.rename(away)
    try:
        with pytest.raises(LancewalError):
            open_table(table.uri)
        yield
    finally:
        away.rename(folder)


def options(table: ThreeContracts, **more: str) -> dict[str, str]:
    return {"table": table.uri, **more}


def test_tasks_ask_for_no_contract(table: ThreeContracts) -> None:
    """In this process; a plan travels as executors get it."""
    large = {k: row for k, row in table.oracle.items() if (row["n"] or 0) >= LARGE or row["old"] == 5}
    states: list[tuple[Mapping[Key, Row], list[str], dict[str, str]]] = [
        (table.oracle, NAMES[2], {}),
        (large, NAMES[2], {"filter": f"n >= {LARGE} or old = 5"}),
        (of_now(table.moments[0].rows), NAMES[2], {"consistency": "eventual"}),
    ]
    states += [(state.rows, state.names, {"at": str(state.points["receipt"])}) for state in table.moments]
    reads = [(rows, names, pin_read(options(table, **more))) for rows, names, more in states]
    with without_contracts(table):
        for rows, names, read in reads:
            reader: Any = pickle.loads(pickle.dumps(read.reader(read.schema())))
            parts: Sequence[TaskPartition] = pickle.loads(pickle.dumps(list(reader.partitions())))
            found = pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])
            assert found.schema.names == names
            assert by_key(found) == rows


def test_a_dataframe(spark: LocalSpark, table: ThreeContracts) -> None:
    """In processes of executors: of now, and of the second contract."""
    state = table.moments[2]
    now, then = spark.read(table.uri), spark.read(table.uri, at=str(state.points["receipt"]))
    with without_contracts(table):
        for frame, names, rows in ((now, NAMES[2], table.oracle), (then, NAMES[1], state.rows)):
            found = frame.toArrow()
            assert found.schema.names == names
            assert by_key(found) == rows


@dataclass
class Blind:
    """A runner whose tasks run while the contracts are away."""

    table: ThreeContracts
    runner: Runner
    tasks: int = 0

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        with without_contracts(self.table):
            self.tasks += len(tasks)
            return self.runner.run(tasks)

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        with without_contracts(self.table):
            self.tasks += len(tasks)
            return self.runner.rewrite(tasks)


def check_merges(table: ThreeContracts, runner: Runner, limits: Any) -> None:
    """Merges and a compaction by this runner."""
    flushed(table)
    blind = Blind(table, runner)
    while unmerged(table):
        run_round(replace(table.flusher(), runner=blind), limits, RoundState(), 0.0).raise_held()
        assert by_key(open_table(table.uri).to_arrow()) == table.oracle
    assert by_key(lance.dataset(table.uri).to_table()) == table.oracle
    merges = blind.tasks
    assert merges >= 1
    limits = CompactionLimits(fragments_min=2).to_the_end()
    compact_next(replace(table.flusher(), runner=blind), limits, FileSizes(), with_sentinel=True)
    assert blind.tasks > merges
    assert by_key(lance.dataset(table.uri).to_table()) == table.oracle


def test_tasks_of_merges_ask_for_no_contract(table: ThreeContracts) -> None:
    check_merges(table, ThreadRunner(table.table, ThreadTasks(workers=2)), OPEN_ROWS)


def test_merges_on_spark(spark: LocalSpark, table: ThreeContracts) -> None:
    tasks = ThreadTasks(workers=2)
    runner = SparkRunner(lambda: spark.session, table.uri, table.store, tasks, SystemClock(), slice_rows=1)
    check_merges(table, runner, COMBINE)
    tasks.close()
