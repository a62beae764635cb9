"""Generations in the same files: a merge adopts these where it takes all of them, else it reads rows out of them.

A dict is the model; the table is a real one.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lancewal_core.errors import InvalidSettings, ObjectMissing
from lancewal_core.names import paths
from lancewal_core.process import failpoints
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.failpoints import FailpointError
from lancewal_core.region.flush import rebuild_flush
from lancewal_core.region.flushes.manifest import FlushedGeneration, encode_flush, read_flush
from lancewal_core.table.lance import row_files
from lancewal_core.table.protocol import fragment_files
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.merge.explain import MergeExplanation, explain
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import Merged, merge_next
from lancewal_flusher.merge.plan import MergeLimits, RegionMerge, adoptable, combined_regions, memory_bytes
from lancewal_flusher.service.round import RoundState, run_round
from tests.support.asked import keys_read
from tests.support.flusher_tables import (
    COMBINE,
    OPEN_ROWS,
    FlusherTable,
    Operation,
    ScriptedTable,
    delete,
    patch,
    upsert,
    upserts,
)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Three regions, of which ids 0 to 9 are in the table."""
    made = FlusherTable(tmp_path, partitions=3)
    made.generations({partition: upserts(range(10)) for partition in range(3)})
    made.round()
    made.check()
    yield made
    made.close()


def is_adopted(table: FlusherTable, flushes: Sequence[FlushedGeneration]) -> bool:
    """Whether the table has the files of a flush, each once."""
    named = [f.path for fragment in table.dataset.get_fragments() for f in fragment.metadata.files]
    files = [name for text in flushes[0].fragments for name in fragment_files(text)]
    found = [name for name in named if name in files]
    assert sorted(found) in ([], sorted(files))
    return bool(found)


def changes(partition: int) -> list[Operation]:
    """Some of each kind, of keys that are there and of keys that are not."""
    first = 3 * partition
    return [
        upsert(first, a=7),
        upsert(20 + first, a=8),
        delete(first + 1),
        delete(50),
        patch(first + 2, s="p"),
        patch(60, a=9),
    ]


def merged(table: FlusherTable, limits: MergeLimits = OPEN_ROWS) -> tuple[int, int]:
    """Rows adopted and written by one round, behind which the table is what the model says."""
    report = table.round(limits)
    table.check()
    return sum(m.rows_adopted for m in report.merges), sum(m.rows_written for m in report.merges)


# -- all parts --------------------------------------------------------------------------------------------------


def test_a_merge_that_takes_all_parts_adopts_their_files(table: FlusherTable) -> None:
    flush = table.generations({partition: changes(partition) for partition in range(3)})
    explained = explain(table.context(), OPEN_ROWS, None)
    assert isinstance(explained, MergeExplanation)
    assert merged(table) == (6, 6) == (explained.rows_adopted, explained.rows_written)
    assert is_adopted(table, flush)
    # Rows are found again where they lie, by keys that the merge has read.
    flush = table.generations({p: [upsert(3 * p, a=1), delete(20 + 3 * p), patch(60, a=2)] for p in (2, 0, 1)})
    assert merged(table) == (3, 3)
    assert is_adopted(table, flush)
    assert {table.states(p)[-1] for p in range(3)} == {"MERGED"}


def test_parts_without_rows_are_parts(table: FlusherTable) -> None:
    flush = table.generations({0: [delete(1)], 1: upserts([5, 6], a=1), 2: [patch(2, a=3)]})
    assert merged(table) == (2, 1)
    assert is_adopted(table, flush)
    table.generations({0: [delete(2)], 1: [delete(7)]})
    assert merged(table) == (0, 0)


def test_files_of_a_flush_are_adopted_together(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "ROWS_PER_FILE", 25)
    flush = table.generations({partition: upserts(range(5, 25 + partition), a=1) for partition in range(3)})
    assert len(flush[0].fragments) == 3
    assert merged(table) == (63, 0)
    assert is_adopted(table, flush)
    table.generations({partition: upserts(range(3, 28, 2), a=2) for partition in range(3)})
    merged(table)


def test_few_flushes_are_adopted_and_more_are_combined(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, partitions=6)
    limits = MergeLimits(adopt_small_max=2, adopt_rows=20)
    for step, most in ((0, 30), (1, 30), (2, 5)):
        pairs = [((0, 1), 2), ((2, 3), 3), ((4, 5), most)]
        for partitions, rows in pairs[step // 2 :]:
            table.generations({partition: upserts(range(rows), a=step) for partition in partitions})
        # Two small ones and a large one; the same; two small ones of three.
        adopted = [(70, 0), (70, 0), (16, 0)][step]
        assert merged(table, limits) == adopted
    for partitions in ((0, 1), (2, 3), (4, 5)):
        table.generations({partition: upserts(range(3), a=4) for partition in partitions})
    before = len(table.dataset.get_fragments())
    assert merged(table, limits) == (0, 18)
    assert len(table.dataset.get_fragments()) <= before + 1
    table.close()


def test_flushes_are_combined_as_far_as_bytes_allow(table: FlusherTable) -> None:
    found = [table.generations({0: upserts(range(n), a=1), 1: upserts(range(n), a=1)}) for n in (3, 30)]
    merges = [RegionMerge(s.region, (s,)) for s in found[0]]
    merges += [RegionMerge(replace(s.region, partition=s.region.partition + 1_000), (s,)) for s in found[1]]
    small = sum(s.nbytes for s in found[0])
    assert len(adoptable(merges)) == 2
    assert not combined_regions(merges, MergeLimits(adopt_small_max=2))
    few = combined_regions(merges, MergeLimits(adopt_small_max=1, combine_bytes=small))
    assert {region.partition for region in few} == {0, 1}
    assert not combined_regions(merges, MergeLimits(adopt_small_max=1, combine_bytes=small - 1))
    assert len(combined_regions(merges, MergeLimits(adopt_small_max=1))) == 4


# -- not all parts ------------------------------------------------------------------------------------------------


def one_at_a_time(flushes: Sequence[FlushedGeneration]) -> MergeLimits:
    return MergeLimits(adopt_rows=1, memory_bytes=max(memory_bytes((flushed,)) for flushed in flushes))


def merge_one(table: FlusherTable, limits: MergeLimits) -> Merged:
    context = table.context()
    done = merge_next(context, limits)
    assert isinstance(done, Merged)
    finish_newest(context)
    return done


def make_anew(table: FlusherTable, partition: int) -> FlushedGeneration:
    """The newest generation is in another flush from now on."""
    context, generation = table.context(), table.index(partition).generations[-2].generation
    found = rebuild_flush(context, table.regions[partition], table.record(partition, generation), context.new_id)
    assert found is not None
    return found


def test_what_a_merge_cannot_hold_is_left_for_the_next(table: FlusherTable) -> None:
    flush = table.generations({0: changes(0), 1: changes(1)})
    done = merge_one(table, one_at_a_time(flush))
    assert (len(done.generations), done.rows_adopted, done.rows_written) == (1, 0, 4)
    assert not is_adopted(table, flush)
    assert merged(table) == (0, 4)
    assert not is_adopted(table, flush)


def test_a_part_that_has_another_flush_by_now(table: FlusherTable) -> None:
    flush = table.generations({0: changes(0), 1: changes(1)})
    other = make_anew(table, 0)
    assert merged(table) == (2, 6)
    assert not is_adopted(table, flush)
    assert is_adopted(table, [other])


def test_a_part_that_was_merged_from_another_flush(table: FlusherTable) -> None:
    flush = table.generations({0: changes(0), 1: changes(1)})
    make_anew(table, 0)
    done = merge_one(table, one_at_a_time(flush))
    assert (list(done.generations), done.rows_adopted) == ([table.regions[0]], 2)
    assert merged(table) == (0, 4)
    assert not is_adopted(table, flush)


def test_a_part_with_another_generation_behind_it(table: FlusherTable) -> None:
    flush = table.generations({0: changes(0), 1: changes(1)})
    table.generation(1, [upsert(3, a=9), delete(23), patch(5, s="q")])
    assert merged(table, MergeLimits()) == (0, 7)
    assert not is_adopted(table, flush)


# -- what is damaged or lost --------------------------------------------------------------------------------------


@pytest.fixture
def fail() -> Iterator[Callable[[str], None]]:
    """Arm a failpoint; the empty text disarms."""

    def arm(spec: str) -> None:
        failpoints.configure({"LANCEWAL_FAILPOINT": f"{spec}=error", "LANCEWAL_TESTING": "1"} if spec else {})

    yield arm
    failpoints.configure({})


def replaced(table: FlusherTable, key: str, data: bytes) -> bytes:
    """What was there before."""
    before = table.store.get(key)
    assert before is not None
    table.store.delete([key])
    table.store.put_if_absent(key, data)
    return before


def other_keys(table: FlusherTable, flush: Sequence[FlushedGeneration], at: int) -> tuple[str, bytes]:
    """The manifest, and what it would be had this part other keys than its rows."""
    known = read_flush(table.store, flush[0].key)
    parts = list(known.parts)
    parts[at] = replace(parts[at], keys_crc32c=parts[at].keys_crc32c ^ 1)
    return known.key, encode_flush(replace(known, parts=tuple(parts)))


def other_deletes(table: FlusherTable, flush: Sequence[FlushedGeneration], at: int) -> tuple[str, bytes]:
    """Of this part."""
    side = flush[at].deletes
    assert side is not None
    data = bytearray(table.store.get(side.key) or b"")
    data[side.start + side.size // 2] ^= 1
    return side.key, bytes(data)


@pytest.mark.parametrize("damage", [other_keys, other_deletes])
@pytest.mark.parametrize("at", range(3))
def test_a_file_is_not_adopted_where_something_of_a_part_is_damaged(
    table: FlusherTable, damage: Callable[[FlusherTable, Sequence[FlushedGeneration], int], tuple[str, bytes]], at: int
) -> None:
    flush = table.generations({partition: changes(partition) for partition in range(3)})
    key, data = damage(table, flush, at)
    before = replaced(table, key, data)
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0.0)
    assert list(report.held) == [table.regions[at]]
    assert sum(m.rows_adopted for m in report.merges) == 0
    assert not is_adopted(table, flush)
    replaced(table, key, before)
    assert merged(table) == (0, 4)
    assert not is_adopted(table, flush)


def test_a_file_that_is_lost_before_the_merge(table: FlusherTable) -> None:
    flush = table.generations({partition: changes(partition) for partition in range(3)})
    table.remove_files(flush[0])
    assert merged(table) == (6, 6)
    assert len({table.flushed(p, 2).key for p in range(3)}) == 3


def test_an_adopted_file_that_is_lost_is_made_anew_for_all_its_regions(table: FlusherTable) -> None:
    table.generations({0: upserts(range(5, 12), a=1), 1: [delete(4)], 2: [*upserts(range(7), a=1), delete(8)]})
    scripted = ScriptedTable(table.uri)
    scripted.before = [lambda: table.clean_up(delete_unverified=True)]
    report = table.round(context=table.context(scripted))
    assert [(f.rows_hidden, f.fragments_rebuilt) for f in report.finished] == [(0, 1)]
    table.check()
    table.generations({0: upserts(range(9, 13), a=2), 1: upserts([4]), 2: [delete(3), upsert(6, a=2)]})
    merged(table)


def test_one_of_several_adopted_files_that_share_parts_is_lost(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch, fail: Callable[[str], None]
) -> None:
    """The flusher dies behind the commit; a user appends keys of the merge; another one finishes."""
    monkeypatch.setattr(row_files, "ROWS_PER_FILE", 25)
    flush = table.generations({partition: upserts(range(5, 25 + partition), a=1) for partition in range(3)})
    scripted = ScriptedTable(table.uri)
    scripted.before = [lambda: table.user_append(2, [7], in_model=False)]
    fail("followup.commit:before")
    with pytest.raises(FailpointError):
        table.round(context=table.context(scripted))
    fail("")
    (name,) = fragment_files(flush[0].fragments[1])
    (Path(table.uri) / "data" / name).unlink()
    report = table.round()
    assert [(f.rows_hidden, f.fragments_rebuilt) for f in report.finished] == [(1, 3)]
    table.check()


def test_keys_to_hide_of_others_are_read_once_for_all_parts(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, *_) = table.generations({partition: changes(partition) for partition in range(3)})
    (second, *_) = table.generations({partition: [delete(4), patch(5, a=partition)] for partition in range(3)})
    scripted = ScriptedTable(table.uri)
    scripted.before = [lambda: table.user_append(1, [3, 4, 5], in_model=False)]
    assert isinstance(merge_next(table.context(scripted), COMBINE), Merged)
    asked = keys_read(table.store, monkeypatch)
    finished = finish_newest(table.context()).finished
    assert finished is not None
    assert finished.rows_hidden == 3
    table.check()
    of_flushes = [key for key in asked if key.startswith(paths.FLUSHES)]
    assert len(of_flushes) == len(set(of_flushes)) == 6
    assert {first.key, second.key} < set(of_flushes)


def test_an_adopted_file_that_is_lost_with_the_log_of_one_region_is_named(table: FlusherTable) -> None:
    table.generations({0: upserts(range(5), a=1), 1: upserts(range(5), a=1)})

    def lose() -> None:
        table.clean_up(delete_unverified=True)
        table.take_away(paths.WAL)

    scripted = ScriptedTable(table.uri)
    scripted.before = [lose]
    with pytest.raises(ObjectMissing, match="repair segment"):
        table.round(context=table.context(scripted))
    assert table.states(0) == table.states(1) == ["MERGED", "FLUSHED"]


@dataclass
class Later(SystemClock):
    """So many days from now."""

    days: int

    def now_ms(self) -> int:
        return super().now_ms() + self.days * 24 * 3600 * 1000

    def monotonic(self) -> float:
        return super().monotonic() + self.days * 24 * 3600


def test_the_folder_of_an_adopted_flush_goes_and_its_file_stays(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, partitions=3, history_window_s=0)
    flush = table.generations({partition: changes(partition) for partition in range(3)})
    table.round()
    assert table.store.get(flush[0].key) is not None
    state = GarbageState()
    for days in range(3):
        collect_garbage(replace(table.context(), clock=Later(days)), state)
    assert table.store.get(flush[0].key) is None
    assert is_adopted(table, flush)
    table.check()
    table.close()


# -- any history --------------------------------------------------------------------------------------------------


@pytest.mark.in_turns("seed", each=2)
@pytest.mark.parametrize("seed", range(4))
def test_any_history(tmp_path: Path, seed: int) -> None:
    """Flushes of any parts, some made anew or lost, and merges that take all of them, some, or several at a time."""
    rng = random.Random(seed)
    table = FlusherTable(tmp_path, partitions=4)
    context, state = table.context(), RoundState()
    adopted = written = 0
    flush: list[FlushedGeneration] = []
    for _ in range(14):
        for _ in range(rng.choice([1, 1, 2])):
            waiting = rng.sample(range(4), rng.randrange(1, 5))
            for partition in waiting:
                some = [one_of(rng, id) for id in rng.sample(range(12), rng.randrange(1, 5))]
                table.generation(partition, some, flush=False)
            together = [partition for partition in waiting if rng.random() < 0.8]
            flush = table.flush_together(*together) if together else []
            for partition in waiting:
                if partition not in together:
                    table.flush(partition)
            match rng.randrange(6):
                case 0 if flush:
                    make_anew(table, together[0])
                case 1 if flush:
                    with contextlib.suppress(FileNotFoundError):
                        table.remove_files(flush[0])
        few = one_at_a_time(flush) if flush and rng.random() < 0.3 else MergeLimits()
        limits = replace(
            few, adopt_rows=rng.choice([1, 5, 1_000]), adopt_small_max=rng.choice([0, 2, 16]), in_place_rows=1
        )
        if rng.random() < 0.3:
            context, state = table.context(), RoundState()
        try:
            report = run_round(context, limits, state, 0.0)
        except InvalidSettings:
            report = run_round(context, replace(limits, memory_bytes=1 << 30), state, 0.0)
        report.raise_held()
        adopted += sum(merge.rows_adopted for merge in report.merges)
        written += sum(merge.rows_written for merge in report.merges)
        table.check()
    assert min(adopted, written) > 10
    table.close()


def one_of(rng: random.Random, id: int) -> Operation:
    a = rng.randrange(99)
    return rng.choice([upsert(id, a=a), upsert(id, a=a, s="new"), patch(id, a=a), patch(id, s=f"s{a}"), delete(id)])
