"""Interleavings around generations that were flushed together."""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core import paths
from lancewal_core.region.flushes.manifest import read_flush
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState, run_round
from tests.simulation.checker import require
from tests.simulation.stage import Stage

_NEVER_S = 1e9


def flush_of(stage: Stage, partition: int) -> str:
    """The manifest that the newest flushed generation of a partition names."""
    region = stage.region(partition)
    index = stage.checker.indexes.read([region])[region]
    return next(r.snapshot for r in reversed(index.generations) if r.snapshot is not None)


def parts_of_one_flush_are_merged() -> None:
    """Two generations lie in the same files: each is read and merged for itself."""
    stage = Stage()
    _, f, _ = stage.flushed(0, 1)
    parts = read_flush(stage.checker.store, flush_of(stage, 0)).parts
    require({part.region.partition for part in parts} == {0, 1}, "they were not flushed together:", parts)
    stage.check()
    stage.round(f)
    stage.check_table()
    stage.check()


def one_part_is_merged_before_the_other() -> None:
    """Of two generations in the same files one is made anew from the log, and merged; the other is merged later."""
    stage = Stage(partitions=3)
    a, f = stage.member("a", 0, 1, 2), stage.flusher("f")
    stage.append(a, 0)
    stage.append(a, 2)

    def meanwhile() -> None:
        """A stands still between the swaps of two pages: the one tells of the flush, the other does not yet."""
        flush = flush_of(stage, 0)
        for name in list(stage.dataset.files):
            stage.dataset.files.pop(name)
        run_round(f, MergeLimits(), RoundState(), sealed_grace_s=_NEVER_S).raise_damaged()
        require(flush_of(stage, 0) != flush, "it was not made anew:", flush)
        state = GarbageState()
        for _ in range(2):
            collect_garbage(f, state)
            stage.scheduler.now += stage.settings.grace_s + 1
        seen.append(flush)

    seen: list[str] = []
    # The first swap seals it.
    a.script.before("put", paths.page_prefix(stage.page(2)), meanwhile, passing=2)
    stage.seal(a)
    require(seen == [flush_of(stage, 2)], "it names another flush:", flush_of(stage, 2), seen)
    require(stage.bucket.get(seen[0]) is not None, "what it names was deleted:", seen[0])
    stage.check()
    stage.round(f)
    stage.check_table()
    stage.append_and_seal(a, 0, 2)
    stage.round(f)
    stage.check_table()
    stage.check()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    parts_of_one_flush_are_merged: ("a part is adopted with its flush", "I2|twice|live rows"),
    one_part_is_merged_before_the_other: ("a flush that nobody names goes", "what it names was deleted"),
}
