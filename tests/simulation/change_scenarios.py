"""Interleavings between the two ends of a change feed."""

from __future__ import annotations

import json
from collections.abc import Callable

from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.schema import Op
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.upkeep.expiry import Expired, OldestTimes, expire_next
from tests.simulation import oracle
from tests.simulation.checker import require
from tests.simulation.expiring import TTL
from tests.simulation.feeds import MODES, FeedReading
from tests.simulation.stage import Member, Stage
from tests.simulation.user import delete_rows
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


def rows_expire_between_the_reads() -> None:
    """A merged row expires, and its key gets another row in the log; no record tells that."""
    stage, a, f, k = _merged()
    _read(stage)
    _expire(stage, f)
    _read(stage)
    _send(stage, a, k)
    _read(stage)
    _changes(stage)


def row_expires_that_the_log_renews() -> None:
    """A merged row expires, when a reader has passed a newer one of its key, which is not merged."""
    stage, a, f, k = _merged()
    _send(stage, a, k)
    _read(stage)
    _expire(stage, f)
    _read(stage)
    _send(stage, a, k)
    _read(stage)
    _changes(stage)


def user_deletes_a_row_under_a_patch() -> None:
    """A user deletes a merged row, of which the log has a patch: nulls are left."""
    stage, a, f, k = _merged()
    now_ms, key = EPOCH_MS, encode_region_key(k)
    value, patch = json.dumps({"k": k, "a": "patch"}).encode(), [("lancewal.op", b"patch")]
    _read(stage)
    stage.topic.append(0, lambda at: oracle.Record(at, now_ms, key, value, [*patch], Op.PATCH, k, {"a": "patch"}))
    stage.step(a, 2)
    _read(stage)
    require(delete_rows(stage, [k]), "nothing was deleted")
    _read(stage)
    stage.seal(a)
    stage.round(f)
    _read(stage)
    _changes(stage)


def feed_is_asked_for_again_after_a_merge() -> None:
    """Between two calls everything is merged and compacted, and the versions of the first one go."""
    stage, a, f, k = _merged()
    _read(stage)
    _send(stage, a, k)
    stage.append(a, 0)
    stage.seal(a)
    stage.round(f)
    _read(stage)
    _send(stage, a, k)
    _read(stage)
    _changes(stage)
    stage.seal(a)
    stage.round(f)
    stage.checker.table.compact()
    stage.checker.table.remove_versions([seen[0].version for seen in stage.reads])
    _again(stage)
    require(bool(stage.counts.get("changes all again")), "nothing stands in:", stage.counts)
    _changes(stage)


def feed_is_asked_for_again_after_a_trim() -> None:
    """Between two calls the records of the feed are trimmed, which were merged before; its versions stay."""
    stage, a, f, k = _merged()
    _read(stage)
    _send(stage, a, k)
    stage.seal(a)
    stage.round(f)
    _read(stage)
    _changes(stage)
    for _ in range(2):
        stage.append_and_seal(a, 0)
        stage.round(f)
    stage.collect(f)
    _again(stage)
    gone = stage.counts.get("changes all: OutsideHistoryWindow")
    require(bool(gone), "nothing is gone:", stage.counts)


def _merged() -> tuple[Stage, Member, FlusherContext, int]:
    """The same, with a flusher that has merged the row."""
    stage, a, k = _stage()
    f = stage.flusher("f")
    stage.seal(a)
    stage.round(f)
    return stage, a, f, k


def _expire(stage: Stage, f: FlusherContext) -> None:
    """A minute passes, and all rows expire that are merged."""
    stage.scheduler.now += 60
    require(isinstance(expire_next(f, TTL, OldestTimes()), Expired), "no row has expired")


def _send(stage: Stage, a: Member, k: int) -> None:
    """A row of this key is durable."""
    stage.send_again(0, k)
    stage.step(a, 2)


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
    """Compare the feeds between each two reads, and between each three."""
    feeds = FeedReading(stage, stage.process("changes"))
    for at, end in enumerate(stage.reads):
        for begin, start in enumerate(stage.reads[: at + 1]):
            for mode in MODES:
                feeds.compare(start, end, mode)
                for middle in stage.reads[begin + 1 : at]:
                    feeds.adjoin(start, middle, end, mode)


def _again(stage: Stage) -> None:
    """Ask for all these feeds again."""
    feeds = FeedReading(stage, stage.process("again"))
    for feed in stage.feeds:
        feeds.again(feed)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    row_is_merged_as_deleted: ("what was unmerged has not changed", "instead of"),
    row_is_deleted_in_the_log: ("records behind the start change nothing", "instead of"),
    row_is_merged_between_the_reads: ("rows that have come are not compared", "instead of"),
    version_of_the_end_is_gone: ("a feed ends where another version does", "another end"),
    rows_expire_between_the_reads: ("an expiry changes no row", "instead of"),
    row_expires_that_the_log_renews: ("a step is where its version has merged", "there was|is not"),
    user_deletes_a_row_under_a_patch: ("rows that have gone are not compared", "instead of|there was"),
    feed_is_asked_for_again_after_a_merge: ("sequences begin anew", "the sequence of"),
    feed_is_asked_for_again_after_a_trim: ("what is trimmed changed nothing", "asked again"),
}
