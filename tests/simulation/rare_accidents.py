"""Accidents that chance brings about rarely, so that no branch of the protocol waits for a seed that does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from lancewal_core.errors import (
    BadRecord,
    ContractChanged,
    DeadLetterRefused,
    Misrouted,
    ObjectMissing,
    PartitionCountChanged,
)
from lancewal_core.names import paths
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.region.flushes.manifest import Flush, FlushPart, encode_flush
from lancewal_core.region.state import GenerationState
from lancewal_core.rows.schema import Op
from lancewal_core.table.contract import encode_contract
from lancewal_core.table.watermarks import TABLE_UUID
from lancewal_flusher.commit.send import Refused, checkpoint
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.merge.merge import Merged, merge_next
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_reader.plan.strong import plan_strong
from tests.simulation.checker import require
from tests.simulation.merge_accidents import flush_files
from tests.simulation.oracle import Headers, Record
from tests.simulation.script import Crashed, crash, stops
from tests.simulation.stage import ALWAYS, NEVER, Stage

# -- what a compaction wrote ---------------------------------------------------------------------------------------


def _two_fragments() -> tuple[Stage, FlusherContext]:
    stage = Stage()
    _, f, _ = stage.flushed(0)
    stage.round(f)
    return stage, f


def _compact(context: FlusherContext) -> Compacted | Refused:
    limits = CompactionLimits(fragments_min=2, growth=1.0, deleted_share=0.2, round_bytes=10**9)
    found = compact_next(context, limits, FileSizes(), with_sentinel=True)
    assert isinstance(found, Compacted | Refused)
    return found


def _lose_newest_file(stage: Stage) -> None:
    stage.dataset.files.pop(stage.dataset.newest.fragments[-1].file)


def compaction_lands() -> None:
    """All that it wrote is there."""
    stage, f = _two_fragments()
    require(isinstance(_compact(f), Compacted), "nothing was compacted")
    stage.check_table()
    stage.check()


def compaction_loses_its_files() -> None:
    """A clean-up takes a file that a compaction has just committed: it is written again."""
    stage, f = _two_fragments()
    stage.scripts["f"].before("files missing", "table", lambda: _lose_newest_file(stage))
    require(isinstance(_compact(f), Compacted), "nothing was compacted")
    require(not stage.checker.table.files_missing([f.file for f in stage.dataset.newest.fragments]), "it is still gone")
    stage.check_table()
    stage.check()


def lost_files_are_replaced_already() -> None:
    """The file is gone because another compaction has written its rows anew: nothing is lost."""
    stage, f = _two_fragments()
    g = stage.flusher("g")

    def compact_again_and_clean_up() -> None:
        stage.user_appends(5_000)
        stage.checker.table.compact()
        checkpoint(g, stage.checker.table.newest().version)
        stage.checker.table.cleanup(keep=1)

    stage.scripts["f"].before("files missing", "table", compact_again_and_clean_up)
    require(isinstance(_compact(f), Compacted), "nothing was compacted")
    stage.check_table()


# -- what lies between a merge's read version and its own ----------------------------------------------------------


def only_settings_change_under_a_merge() -> None:
    """A merge lands above a change of the table's configuration: there are no rows of others to look for."""
    stage = Stage()
    _, f, _ = stage.flushed(0)
    entries = {TABLE_UUID: stage.contract.table_uuid}
    stage.scripts["f"].before("commit", "table", lambda: stage.checker.table.update_config(entries))
    (merge,) = stage.round(f).merges
    require(merge.version > merge.read_version + 1, "it landed right above:", merge)
    stage.check_table()
    stage.check()


def _dies_before_finishing(stage: Stage, f: FlusherContext, *appended: int) -> None:
    """F merges, the user having appended rows meanwhile, and dies before the follow-up."""
    script = stage.scripts["f"]
    script.before("commit", "table", lambda: stage.user_appends(*appended))
    script.before("put", ".finished", crash)
    script.before("commit", "table", crash, passing=2)
    with suppress(Crashed):
        stage.round(f)


def user_compacts_rows_of_their_own() -> None:
    """The user's rows, none with a key of the merge, move before the follow-up: they are left alone."""
    stage = Stage()
    _, f, g = stage.flushed(0)
    _dies_before_finishing(stage, f, 5_000, 5_001)
    stage.checker.table.compact([fragment.fragment_id for fragment in stage.dataset.newest.fragments][1:])
    stage.round(g)
    stage.check_table()
    stage.check()


def version_is_cleaned_up_under_a_follow_up() -> None:
    """While H looks for the user's rows, G has finished the merge and a clean-up takes the version that H reads."""
    stage = Stage()
    _, f, g = stage.flushed(0)
    k = stage.topic.partitions[0].records[-1].k
    _dies_before_finishing(stage, f, k, 5_000)

    def overtake() -> None:
        stage.round(g)
        stage.user_appends(5_001)
        stage.round(g)
        stage.checker.table.cleanup(keep=1)

    stage.faults_of("h").before("scan", "table", overtake)
    stage.round(stage.flusher("h"))
    stage.check_table()
    stage.check()


def user_s_file_is_lost_under_a_follow_up() -> None:
    """The file of the user's rows is gone: who finishes the merge says so."""
    stage = Stage()
    _, f, g = stage.flushed(0)
    k = stage.topic.partitions[0].records[-1].k
    _dies_before_finishing(stage, f, k)
    stage.dataset.files.pop(stage.dataset.newest.fragments[1].file)
    with stops(ObjectMissing):
        stage.round(g)


# -- patches, and fragments that wear out --------------------------------------------------------------------------


def _patch(stage: Stage, partition: int, k: int) -> None:
    key = encode_region_key(k)
    value = b'{"k": %d, "b": 77}' % k
    headers: Headers = [("lancewal.op", b"patch")]
    stage.topic.append(partition, lambda offset: Record(offset, 0, key, value, headers, Op.PATCH, k, {"b": 77}))


def patches_are_merged() -> None:
    """Rows in the table are patched, in place and by new rows; others of their fragments stay."""
    for in_place_rows in (1, 1_000):
        stage = Stage()
        a, f = stage.member("a", 0, 1), stage.flusher("f")
        keys = stage.send(0, 8)
        stage.step(a, 2)
        stage.seal(a)
        stage.round(f)
        for k in keys[:3]:
            _patch(stage, 0, k)
        stage.step(a, 2)
        stage.seal(a)
        (merge,) = stage.round(f, MergeLimits(in_place_rows=in_place_rows)).merges
        require(merge.rows_replaced == 3, "patched are", merge)
        stage.check_table()
        stage.check()


def fragment_wears_out() -> None:
    """Nearly all rows of a fragment are replaced: the merge says that it is worth writing anew; a merge by itself too."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    keys = stage.send(0, 12)
    stage.step(a, 2)
    stage.seal(a)
    stage.round(f)
    worn = []
    for part in (keys[:1], keys[1:11]):
        for k in part:
            stage.send_again(0, k)
        stage.step(a, 2)
        stage.seal(a)
        merge = merge_next(f, MergeLimits(rewrite_bytes=1, adopt_rows=1))
        assert isinstance(merge, Merged)
        worn.append(merge.worn)
        stage.round(f)
    require(worn == [(), (0,)], "worn out are", worn)
    stage.round(f)
    stage.check_table()
    stage.check()


# -- garbage -------------------------------------------------------------------------------------------------------


def attempts_that_lost_are_garbage() -> None:
    """A flush was made anew from the log: the objects of the one before it go, those of one not yet decided stay."""
    stage = Stage(history_window_s=1_000)
    a, f, _ = stage.flushed(0)
    old = flush_files(stage, 0)
    for name in [n for n in stage.dataset.files if n not in {f.file for f in stage.dataset.newest.fragments}]:
        stage.dataset.files.pop(name)
    stage.append(a, 0)
    stage.round(f)
    a.script.down += [("write rows", "table")] * 10
    a.worker._sealing.policy = ALWAYS
    stage.step(a)
    index = stage.checker.states.read([stage.region(0)]).get(stage.region(0))
    assert index is not None
    sealed = next(r for r in index.generations if r.state is GenerationState.SEALED)
    attempt = paths.flush_file("f" * 8, paths.FlushFile.MANIFEST)
    part = FlushPart(
        stage.region(0),
        sealed.generation,
        sealed.first,
        sealed.next or sealed.first,
        0,
        None,
        None,
        0,
    )
    stage.bucket.put(attempt, encode_flush(Flush(attempt, 1, (), (part,))), 0)
    state = GarbageState()
    for _ in range(2):
        collect_garbage(f, state)
        stage.scheduler.now += stage.settings.grace_s + 1
    left = flush_files(stage, 0)
    require(attempt in left, "an attempt that may win was deleted, left are", left)
    require(len(set(old) & set(left)) == 1, "of those there before, the merged one is needed, but left are", left)
    a.worker._sealing.policy = NEVER
    stage.check()


def fence_is_young() -> None:
    """B has ended A's log, all of which is merged: A's fence outlives it, for owners who do not know yet."""
    stage = Stage(history_window_s=0)
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    stage.append_and_seal(a, 0, 1)
    ended = a.log
    stage.take_over(a, b, 0, 1)
    stage.append_and_seal(b, 0, 1)
    stage.round(f)
    stage.append(b, 0)
    stage.collect(f)
    left = [info.key for info in stage.bucket.listing(f"{paths.WAL}{ended}")]
    require(len(left) == 1, "of A's log the fence alone is left, but there are", left)
    stage.check()


def catalog_of_keys_is_damaged() -> None:
    """The key index's catalog cannot be read: no part of it is taken for garbage."""
    stage = Stage()
    _, f, _ = stage.flushed(0)
    stage.round(f)
    for info in stage.bucket.listing(paths.key_catalog_prefix(stage.contract.making)):
        stage.bucket.delete(info.key)
        stage.bucket.put(info.key, b"damaged", 0)
    parts = stage.bucket.listing("_lancewal/keys/")
    require(len(parts) > 1, "there are no parts:", parts)
    state = GarbageState()
    g = stage.flusher("g")
    for _ in range(2):
        collect_garbage(g, state)
        stage.scheduler.now += 10
    require(stage.bucket.listing("_lancewal/keys/") == parts, "parts were deleted, there were", parts)
    stage.check()


def region_is_not_claimed_yet() -> None:
    """Nobody has opened the other partition: there is nothing of it to collect."""
    stage = Stage()
    a, f = stage.member("a", 0), stage.flusher("f")
    stage.append_and_seal(a, 0)
    stage.round(f)
    stage.collect(f)
    stage.check()


# -- members and readers -------------------------------------------------------------------------------------------


def partition_comes_while_consumption_is_held() -> None:
    """A member that is paused gets a partition: it opens it, and takes its records when it goes on."""
    stage = Stage()
    a = stage.member("a", 0)
    a.worker.hold(True)
    stage.give(a, 1)
    stage.step(a, 2)
    stage.send(1)
    stage.step(a, 3)
    require(stage.acknowledged.get(1, 0) == 0, "records were taken, though it is paused:", stage.acknowledged)
    a.worker.hold(False)
    stage.step(a, 3)
    require(stage.acknowledged.get(1, 0) == 1, "not taken:", stage.acknowledged)
    stage.check()


def bad_record_stands_before_a_misrouted_one() -> None:
    """Both stop the partition: the first of them is named."""
    stage = Stage(on_bad_record="stop")
    a = stage.member("a", 0, 1)
    (k,) = stage.send(1)
    log, key = stage.topic.partitions[0], stage.topic.partitions[1].records[0].key
    (own,) = stage.send(0)
    mine = encode_region_key(own)
    stage.topic.append(0, lambda offset: Record(offset, 0, mine, b"no JSON", None, None, own, {}))
    stage.topic.append(0, lambda offset: Record(offset, 0, key, b'{"k": %d}' % k, None, None, k, {}))
    stage.step(a, 3)
    found = a.worker.stopped.get(stage.region(0))
    require(isinstance(found, BadRecord), "stopped by", found)
    require(stage.acknowledged[0] == log.high - 2, "durable up to", stage.acknowledged)


def dead_letters_are_refused() -> None:
    """Of one partition behind a row and a letter that is taken, of another as the first record: both stop right before it."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    key = encode_region_key(stage.send(0)[0])
    for partition, offset in ((0, 1), (0, 2), (1, 0)):
        stage.topic.append(partition, lambda at: Record(at, 0, key, b"no JSON", None, None, 0, {}))
        if offset != 1:
            stage.refused_letters.add((partition, offset))
    stage.step(a, 3)
    for partition, durable in ((0, 2), (1, 0)):
        found = a.worker.stopped.get(stage.region(partition))
        require(isinstance(found, DeadLetterRefused), "stopped by", found)
        require(stage.acknowledged.get(partition, 0) == durable, "durable up to", stage.acknowledged)
    stage.check()


def topic_has_fewer_partitions() -> None:
    """Brokers take none away: it is another topic, or they do not agree yet.  Nothing is written by what they say."""
    stage = Stage()
    a = stage.member("a", 0)
    stage.append(a, 0)
    stage.send(0)
    stage.topic.partitions.pop()
    with stops(PartitionCountChanged):
        stage.step(a, 3)
    require(stage.acknowledged.get(0) == 1, "durable up to", stage.acknowledged)


def stopped_partition_is_another_s() -> None:
    """B takes over a partition that A has stopped; A, which does not hear of it, finds out when it seals what it has: it does
    not open again what goes no further anyway."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    (k,) = stage.send(1)
    key = stage.topic.partitions[1].records[0].key
    stage.topic.append(0, lambda offset: Record(offset, 0, key, b'{"k": %d}' % k, None, None, k, {}))
    stage.step(a, 3)
    require(isinstance(a.worker.stopped.get(stage.region(0)), Misrouted), "A goes on:", a.worker.stopped)
    stage.group.expel(a.process.name, stage.scheduler.now + 1_000)
    stage.give(b, 0)
    stage.step(b)
    stage.seal(a)
    stage.step(a, 3)
    partitions = a.worker._partitions
    require(stage.region(0) not in {*partitions.open, *partitions.to_open}, "A still has it")
    stage.check()


def reader_without_a_cache() -> None:
    """It reads a log's trailers, of a sealed generation as far as that goes; and a table of which all is merged."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0)
    a.script.down += [("write rows", "table")] * 10
    a.worker._sealing.policy = ALWAYS
    stage.step(a)
    a.worker._sealing.policy = NEVER
    stage.append(a, 0)
    stage.append(a, 0)
    reading = stage.reader("r")
    reads = reading.table._reads
    reads.context = replace(reads.context, cache=None)
    reading.read("strong")
    stage.check()


def reader_of_an_unclaimed_table() -> None:
    """Nobody has ever opened a partition: there is no log, and no row."""
    stage = Stage()
    stage.reader("r").read("strong")


def reader_knows_an_older_contract() -> None:
    """The contract has got a newer version, which may know regions that this reader would miss: it takes that up."""
    stage = Stage()
    stage.flushed(0)
    reading = stage.reader("r")
    newer = stage.contract.model_copy(update={"version": 2})
    stage.bucket.put(paths.contract_version(2, newer.making), encode_contract(newer), 0)
    with stops(ContractChanged):
        plan_strong(reading.table._reads.context)
    reading.read("strong")


ACCIDENTS: list[Callable[[], None]] = [
    compaction_lands,
    compaction_loses_its_files,
    lost_files_are_replaced_already,
    only_settings_change_under_a_merge,
    user_compacts_rows_of_their_own,
    version_is_cleaned_up_under_a_follow_up,
    user_s_file_is_lost_under_a_follow_up,
    patches_are_merged,
    fragment_wears_out,
    attempts_that_lost_are_garbage,
    fence_is_young,
    catalog_of_keys_is_damaged,
    region_is_not_claimed_yet,
    partition_comes_while_consumption_is_held,
    bad_record_stands_before_a_misrouted_one,
    dead_letters_are_refused,
    topic_has_fewer_partitions,
    stopped_partition_is_another_s,
    reader_without_a_cache,
    reader_of_an_unclaimed_table,
    reader_knows_an_older_contract,
]
