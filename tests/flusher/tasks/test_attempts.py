"""Tasks that are tried several times, also at the same time: as Spark does after a failure, and by speculation."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks.merge_task import FragmentResult, FragmentTask
from lancewal_flusher.tasks.rewrite_task import RewriteTask, Rewritten
from lancewal_flusher.tasks.runner import Runner
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from tests.support.flusher_tables import FlusherTable, delete, patch, upsert, upserts

COMPACTION = CompactionLimits(fragments_min=3, growth=1.0)
Result = TypeVar("Result")


class AttemptsAtOnce:
    """Two attempts of each task at the same time, then a third; the result of one of them counts."""

    def __init__(self, runner: Runner, seed: int) -> None:
        self._runner = runner
        self._rng = random.Random(seed)
        self.attempts = 0

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        return [self._attempts(lambda task=task: self._runner.run([task])) for task in tasks]  # type: ignore[misc]

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        return [self._attempts(lambda task=task: self._runner.rewrite([task])) for task in tasks]  # type: ignore[misc]

    def _attempts(self, attempt: Callable[[], list[Result]]) -> Result:
        with ThreadPoolExecutor(2) as threads:
            found = [running.result() for running in [threads.submit(attempt) for _ in range(2)]]
        found.append(attempt())
        self.attempts += len(found)
        (result,) = self._rng.choice(found)
        return result


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_any_attempt_of_a_task_may_count(tmp_path: Path, stable_row_ids: bool) -> None:
    table = FlusherTable(tmp_path, stable_row_ids=stable_row_ids)
    rng = random.Random(7)
    runner = AttemptsAtOnce(table.context().runner, 7)

    def context() -> FlusherContext:
        return replace(table.context(), runner=runner)

    limits = MergeLimits(adopt_rows=5, in_place_rows=1)
    for first in range(0, 60, 20):
        table.generation(0, upserts(range(first, first + 20)))
        run_round(context(), limits, RoundState(), 0.0)
    compactions = 0
    for number in range(12):
        ids = rng.sample(range(60), 9)
        patches = [patch(i, s=str(number)) for i in ids[4:7]] if number % 2 else []
        table.generation(0, [*(upsert(i, a=number) for i in ids[:4]), *patches, delete(ids[7])])
        run_round(context(), limits, RoundState(), 0.0)
        table.check()
        if number % 4 == 3:
            found = compact_next(context(), COMPACTION, FileSizes(), with_sentinel=True)
            compactions += isinstance(found, Compacted)
            table.check()
    assert runner.attempts > 50
    assert compactions == 3
    table.close()
