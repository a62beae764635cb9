"""Accidents around a merge."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from lancewal_core.errors import (
    CommitUnknown,
    MergeUnproven,
    ObjectCorrupt,
    ObjectMissing,
    PlanRetriesExhausted,
    StoreInconsistent,
    TableRestored,
)
from lancewal_core.keys.catalog import RECENT_S
from lancewal_core.names import paths
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.schema import Op
from lancewal_flusher.commit.send import checkpoint
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState
from tests.simulation.checker import require
from tests.simulation.merge_scenarios import late_commit_after_a_clean_up
from tests.simulation.mutations import compare_with_what_exists
from tests.simulation.oracle import Record
from tests.simulation.script import Crashed, crash, stops
from tests.simulation.stage import Stage
from tests.support.flushes import flush_objects
from tests.twins.faults import CommitFault


def version_is_cleaned_up_under_a_plan() -> None:
    """A merge is planned on a version that a clean-up then removes: it is planned again."""
    stage = Stage()
    _, f, g = stage.flushed(0, 1)
    _lose_key_index(stage)  # so that the table is scanned

    def clean_up() -> None:
        stage.user_appends(5_000)
        stage.round(g)
        stage.checker.table.cleanup(keep=1)

    stage.scripts["f"].before("at", "table", clean_up)
    report = stage.round(f)
    require(any("cleaned up" in refused.reason for refused in report.refused), "F planned on:", report)
    stage.check_table()
    stage.check()


def _lose_key_index(stage: Stage) -> None:
    """Also for processes that know of it."""
    stage.scheduler.sleep(RECENT_S + 1)
    for info in stage.bucket.listing(paths.key_catalog_prefix(stage.contract.making)):
        stage.bucket.delete(info.key)


def table_loses_a_data_file() -> None:
    """A data file of the table itself is gone, and with it what the key index knew of it: the flusher stops by name."""
    stage = Stage()
    _, f, _ = stage.flushed(0)
    _lose_key_index(stage)
    stage.dataset.files.pop(stage.dataset.newest.fragments[0].file)
    with stops(ObjectMissing):
        stage.round(f)


def merge_before_is_not_finished() -> None:
    """Between F's merge and its next look, G merges and dies before it has finished: F finishes that merge first."""
    stage = Stage()
    a, f, g = stage.flushed(0)
    script = stage.scripts["g"]
    script.before("put", ".finished", crash)

    def merge_and_die() -> None:
        with suppress(Crashed):
            stage.round(g)

    def another_generation() -> None:
        stage.append_and_seal(a, 0)
        stage.scripts["f"].before("newest", "table", merge_and_die)

    stage.scripts["f"].before("put", ".finished", another_generation)
    report = stage.round(f)
    require(any("not finished yet" in refused.reason for refused in report.refused), "F built on it:", report)
    require(len(report.finished) == 2, "F finished both merges:", report)
    stage.check_table()
    stage.check()


def merge_waits_for_more() -> None:
    """A merge that would write more of deletion vectors than of rows is put off: readers see its rows all the same, and
    it is made when its time is over."""
    stage = Stage()
    a, f, _ = stage.flushed(0)
    stage.round(f)
    k = stage.topic.partitions[0].records[-1].k
    stage.send_again(0, k)
    stage.step(a, 2)
    stage.seal(a)
    limits, state = MergeLimits(defer_s=5.0), RoundState()
    for _ in range(2):
        left = stage.round(f, limits, state).left
        require(left is not None and left.deferred, "the merge was not put off:", left)
        stage.check()
        stage.scheduler.now += 2.0
    stage.scheduler.now += 2.0
    report = stage.round(f, limits, state)
    require(len(report.merges) == 1, "after its time the merge was not made:", report)
    stage.check_table()
    stage.check()


def flush_files(stage: Stage, partition: int) -> list[str]:
    return flush_objects(stage.checker.store, stage.region(partition))


def flushes_are_lost() -> None:
    """The description of one flush, and the data files of another, are gone: both are made anew from the log."""
    stage = Stage()
    a, f, _ = stage.flushed(0, 1)
    named = {name for version in stage.dataset.versions.values() for f in version.fragments for name in f.files}
    for name in [name for name in stage.dataset.files if name not in named]:
        stage.dataset.files.pop(name)
    for key in flush_files(stage, 0):
        stage.bucket.delete(key)
    stage.check()
    stage.round(f)
    stage.check_table()
    stage.append(a, 0)
    stage.check()


def deletes_of_a_flush_are_lost() -> None:
    """The file of the keys that a flush deletes is gone: the flush is made anew from the log."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    (k,) = stage.send(0)
    stage.topic.append(0, lambda offset: Record(offset, 0, encode_region_key(k), None, None, Op.DELETE, k, {}))
    stage.append_and_seal(a, 0)
    (deletes,) = [key for key in flush_files(stage, 0) if key.endswith("deletes.arrow")]
    stage.bucket.delete(deletes)
    stage.round(f)
    stage.check_table()
    stage.check()


def flush_and_log_are_lost() -> None:
    """Neither the flush nor its WAL entries are there any more: the flusher stops, and says which."""
    stage = Stage()
    _, f, _ = stage.flushed(0)
    for key in [*flush_files(stage, 0), *(info.key for info in stage.bucket.listing(paths.WAL))]:
        stage.bucket.delete(key)
    with stops(ObjectMissing):
        stage.round(f)


def flush_is_damaged() -> None:
    """Its description, or the keys that it deletes: its region is left, the other one merged; once repaired, all goes on."""
    _one_damaged("manifest.json", together=False, merged=[False, True])
    _one_damaged("manifest.json", together=True, merged=[False, False])
    _one_damaged("deletes.arrow", together=True, merged=[False, True])


def _one_damaged(name: str, *, together: bool, merged: list[bool]) -> None:
    """``merged``: which regions are, of the one that has deletes and of another."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    (k,) = stage.send(0)
    stage.topic.append(0, lambda offset: Record(offset, 0, encode_region_key(k), None, None, Op.DELETE, k, {}))
    for partitions in [(0, 1)] if together else [(0,), (1,)]:
        stage.append_and_seal(a, *partitions)
    (key,) = [key for key in flush_files(stage, 0) if key.endswith(name)]
    whole = stage.bucket.get(key) or b""
    stage.bucket.delete(key)
    stage.bucket.put(key, whole[:-3], 0)
    with stops(ObjectCorrupt):
        stage.round(f)
    in_force = f.watermarks.newest()[1]
    found = [in_force.generation(region) > 0 for region in (stage.region(0), stage.region(1))]
    require(found == merged, f"{name}: merged of the damaged region, and of the other:", found)
    stage.bucket.delete(key)
    stage.bucket.put(key, whole, 0)
    stage.round(f)
    stage.check_table()
    stage.check()


def another_rebuilds_it_first() -> None:
    """F finds a flush lost; while it makes it anew, G has done so, and merges it."""
    _overtaken_rebuild(trimmed=False)


def another_merges_and_trims_it_first() -> None:
    """F finds a flush lost; before it reads the log, G has rebuilt it, merged it, and trimmed everything."""
    _overtaken_rebuild(trimmed=True)


def _overtaken_rebuild(trimmed: bool) -> None:
    stage = Stage()
    a, f, g = stage.flushed(0)
    stage.append_and_seal(a, 0)
    for key in flush_files(stage, 0):
        stage.bucket.delete(key)

    def overtake() -> None:
        stage.round(g)
        stage.append_and_seal(a, 0)
        if trimmed:
            stage.collect(g)

    stage.scripts["f"].before(*(("get", f"wal/{a.log}") if trimmed else ("put", "/pages/")), overtake)
    for _ in range(3):
        stage.round(f)
    stage.check_table()
    stage.check()


def commit_s_fate_is_cleaned_away() -> None:
    """A commit's reply is lost, and the versions that could tell of it are cleaned up, but for the one that it read."""
    stage, f = _cleaned_away(tagged=True)
    with stops(CommitUnknown):
        stage.round(f)
    stage.round(f)
    stage.check_table()
    stage.check()


def version_read_is_cleaned_away_with_a_commit_s_fate() -> None:
    """The same, and the version read goes too: it is planned again, and the watermarks say that it has landed."""
    stage, f = _cleaned_away(tagged=False)
    report = stage.round(f)
    require(any("cleaned up" in refused.reason for refused in report.refused), "F planned on:", report)
    require(not report.merges, "F merged twice:", report)
    stage.check_table()
    stage.check()


def _cleaned_away(*, tagged: bool) -> tuple[Stage, FlusherContext]:
    stage = Stage()
    _, f, g = stage.flushed(0)
    if tagged:
        stage.checker.table.tag(stage.dataset.newest.number)
    script = stage.scripts["f"]
    script.commits.append(CommitFault.REPLY_LOST)

    def clean_up() -> None:
        stage.round(g)
        stage.user_appends(5_000)
        stage.round(g)
        stage.checker.table.cleanup(keep=1)

    script.before("commit", "table", lambda: script.before("transaction", "table", clean_up))
    return stage, f


def versions_below_a_merge_are_cleaned_away() -> None:
    """The user appends below a merge and cleans up before it is proven: it cannot be, so nothing is marked or trimmed."""
    stage = Stage()
    _, f, g = stage.flushed(0)

    def append_and_clean_up() -> None:
        stage.user_appends(5_000)
        stage.scripts["f"].before(
            "get", paths.merges_prefix(stage.contract.making), lambda: stage.checker.table.cleanup(keep=1)
        )  # of the proof

    stage.scripts["f"].before("commit", "table", append_and_clean_up)
    with stops(MergeUnproven):
        stage.round(f)
    with stops(MergeUnproven):
        stage.round(g)
    stage.checker.check(stage.acknowledged)


def tag_keeps_what_a_merge_was_planned_on() -> None:
    """F's commit arrives when a clean-up has left the tagged version that it was planned on, and not the one above, in which
    the user deleted a row: that row is back, which F says, and so does whoever comes next."""
    stage = Stage()
    stage.user_appends(5_000, 5_001)
    _, f, g = stage.flushed(0)

    def delete_and_clean_up() -> None:
        table = stage.checker.table
        table.tag(table.newest().version)
        table.delete_where("k", [5_000])
        stage.user_appends(5_002)
        checkpoint(g, table.newest().version)
        table.cleanup(keep=1)

    stage.scripts["f"].before("commit", "table", delete_and_clean_up)
    with stops(MergeUnproven):
        stage.round(f)
    with stops(MergeUnproven):
        stage.round(g)


def tag_keeps_what_a_merge_is_planned_on() -> None:
    """The same before F sends its commit: it sends none, and plans again."""
    stage = Stage()
    a, f, g = stage.flushed(0)
    stage.round(f)
    stage.send_again(0, stage.topic.partitions[0].records[-1].k)
    stage.step(a, 2)
    stage.seal(a)

    def append_and_clean_up() -> None:
        table = stage.checker.table
        table.tag(table.newest().version)
        stage.user_appends(5_000)
        stage.user_appends(5_001)
        checkpoint(g, table.newest().version)
        table.cleanup(keep=1)

    stage.scripts["f"].before("hide rows", "table", append_and_clean_up)
    report = stage.round(f)
    require(any("was cleaned up" in refused.reason for refused in report.refused), "F sent its commit:", report)
    stage.check_table()
    stage.check()


def reply_of_a_commit_is_lost() -> None:
    """A merge lands above a compaction that cannot be read, and its reply is lost: it is found by its uuid."""
    stage = Stage()
    _, f, _ = stage.flushed(0)
    stage.user_appends(5_000)

    def compact() -> None:
        table = stage.checker.table
        table.create_index()
        table.compact([stage.dataset.newest.fragments[-1].fragment_id])

    script = stage.scripts["f"]
    script.before("commit", "table", compact)
    script.commits.append(CommitFault.REPLY_LOST)
    report = stage.round(f)
    behind = [merge.version > merge.read_version + 1 for merge in report.merges]
    require(behind == [True], "the merge is found:", report)
    stage.check_table()
    stage.check()


def table_compares_too_little() -> None:
    """Were a table to accept a late merge, everything would stop before anything is marked or trimmed."""
    with pytest.MonkeyPatch.context() as patch, stops(MergeUnproven):
        compare_with_what_exists(patch)
        late_commit_after_a_clean_up()


def table_is_restored() -> None:
    """Somebody restores an old version: merges, trimming and strong reads stop; eventual ones
    and ingest go on, and nothing is lost."""
    stage = Stage()
    a, f, _ = stage.flushed(0, 1)
    b = stage.member("b")
    stage.checker.table.restore(1)
    for act in (lambda: stage.round(f), lambda: stage.collect(f), lambda: stage.reader("r").read("strong")):
        with stops(TableRestored):
            act()
    stage.reader("e").read("eventual")
    stage.take_over(a, b, 0, 1)
    stage.append(b, 0)
    stage.append(b, 1)
    require(not b.worker.stopped, "ingest stopped:", b.worker.stopped)
    stage.checker.check(stage.acknowledged)


def index_is_deleted() -> None:
    """An operator deletes the page that a region's index lies in: nobody takes that for a region that is new."""
    stage = Stage()
    a, _, g = stage.flushed(0, 1)
    b, reader = stage.member("b"), stage.reader("r")
    for info in stage.bucket.listing(paths.page_prefix(stage.page(0))):
        stage.bucket.delete(info.key)
    state = GarbageState()
    with stops(StoreInconsistent):
        stage.round(stage.flusher("h"))
    with stops(StoreInconsistent):
        collect_garbage(g, state)
    with stops(PlanRetriesExhausted):
        reader.read("strong")
    stage.take_over(a, b, 0)
    require(stage.counts.get("failed open: StoreInconsistent") == 1, "B opened it:", stage.counts)


ACCIDENTS: list[Callable[[], None]] = [
    version_is_cleaned_up_under_a_plan,
    merge_before_is_not_finished,
    merge_waits_for_more,
    table_loses_a_data_file,
    flushes_are_lost,
    deletes_of_a_flush_are_lost,
    flush_and_log_are_lost,
    flush_is_damaged,
    another_rebuilds_it_first,
    another_merges_and_trims_it_first,
    commit_s_fate_is_cleaned_away,
    version_read_is_cleaned_away_with_a_commit_s_fate,
    versions_below_a_merge_are_cleaned_away,
    tag_keeps_what_a_merge_was_planned_on,
    tag_keeps_what_a_merge_is_planned_on,
    reply_of_a_commit_is_lost,
    table_compares_too_little,
    table_is_restored,
    index_is_deleted,
]
