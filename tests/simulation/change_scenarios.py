"""Interleavings between the two ends of a change feed."""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.schema import Op
from tests.simulation import oracle
from tests.simulation.stage import Member, Stage
from tests.twins.sim_clock import EPOCH_MS


def row_is_merged_as_deleted() -> None:
    """A key is unmerged at the first read.  Before the second, its delete has come, and both are merged: nothing is left."""
    stage, a, k = _stage()
    _read(stage)
    _delete(stage, k)
    f = stage.flusher("f")
    stage.step(a, 2)
    stage.seal(a)
    stage.round(f)
    _read(stage)
    _changes(stage)


def row_is_deleted_in_the_log() -> None:
    """The delete is unmerged too, at the second read."""
    stage, a, k = _stage()
    _read(stage)
    _delete(stage, k)
    stage.step(a, 2)
    _read(stage)
    _changes(stage)


def row_is_merged_between_the_reads() -> None:
    """Nothing changes but the place of a row: it is merged, and compacted with others."""
    stage, a, _ = _stage()
    _read(stage)
    f = stage.flusher("f")
    for _ in range(2):
        stage.append_and_seal(a, 1)
        stage.seal(a)
        stage.round(f)
    _read(stage)
    stage.user_appends(5_000)
    _read(stage)
    _changes(stage)


def version_of_the_end_is_gone() -> None:
    """Another version stands in for the one at the end: it has fewer rows merged, and the feed is the same."""
    stage, a, k = _stage()
    f = stage.flusher("f")
    stage.append_and_seal(a, 1)
    stage.round(f)
    _read(stage)
    _delete(stage, k)
    stage.step(a, 2)
    stage.append_and_seal(a, 0)
    stage.round(f)
    _read(stage)
    stage.append_and_seal(a, 0)
    stage.round(f)
    stage.checker.table.remove_versions([stage.reads[-1][0].version])
    _changes(stage)


def _stage() -> tuple[Stage, Member, int]:
    """A member with a row in its log, and the row's key."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0)
    return stage, a, stage.topic.partitions[0].records[0].k


def _delete(stage: Stage, k: int) -> None:
    now_ms = EPOCH_MS + int(stage.scheduler.now * 1000)
    key = encode_region_key(k)
    stage.topic.append(0, lambda offset: oracle.Record(offset, now_ms, key, None, None, Op.DELETE, k, {}))


def _read(stage: Stage) -> None:
    stage.reader(f"r{len(stage.reads)}").read("strong")


def _changes(stage: Stage) -> None:
    """Compare the feeds between each two reads."""
    reading = stage.reader("changes")
    for at, end in enumerate(stage.reads):
        for start in stage.reads[: at + 1]:
            reading.changes(start, end)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    row_is_merged_as_deleted: ("what was unmerged has not changed", "instead of"),
    row_is_deleted_in_the_log: ("records behind the start change nothing", "instead of"),
    row_is_merged_between_the_reads: ("rows that have come are not compared", "instead of"),
    version_of_the_end_is_gone: ("a feed ends where another version does", "another end"),
}
