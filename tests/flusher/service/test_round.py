"""Rounds: orphans, marks, checkpoints, stopping, and several flushers and an ingest at the same time."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.errors import ObjectCorrupt, ObjectMissing
from lancewal_core.names.ids import Region
from lancewal_core.names.paths import WAL
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region import generation_entries
from lancewal_core.region.flush import rebuild_flush
from lancewal_core.region.pages.state_page import PageRecord, decode_page, encode_page
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.watermarks import Watermarks
from lancewal_flusher.merge import inputs as merge_inputs
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import Merged, merge_next
from lancewal_flusher.merge.plan import MergeLimits, choose
from lancewal_flusher.service import round as rounds
from lancewal_flusher.service.backlog import BacklogReader
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks.runner import ThreadRunner
from tests.support.flusher_tables import COMBINE, OPEN_ROWS, FlusherTable, ScriptedTable, delete, patch, upsert, upserts
from tests.support.indexes import flip_record, page_versions


class TestClock:
    """Time that a test moves."""

    __test__ = False

    def __init__(self) -> None:
        self.now = 1_000.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_sealed_generations_are_left_to_their_ingest_for_a_while(table: FlusherTable) -> None:
    clock = TestClock()
    context = replace(table.context(), clock=clock)
    state = RoundState()
    table.generation(0, upserts(range(5)), flush=False)
    table.generation(0, [delete(3)], flush=False)
    table.generation(1, upserts(range(3)), flush=False)
    assert run_round(context, OPEN_ROWS, state, 60).flushed == 0
    clock.now += 59
    assert run_round(context, OPEN_ROWS, state, 60).flushed == 0
    table.flush(1)  # its ingest is alive
    clock.now += 2
    report = run_round(context, OPEN_ROWS, state, 60)
    assert report.flushed == 2
    table.check()
    assert table.states(0) == ["MERGED", "MERGED"]
    run_round(context, OPEN_ROWS, state, 60)
    assert state.sealed.seen == {}


def test_a_report_holds_no_version_of_the_table(table: FlusherTable) -> None:
    """Rounds of a thousand merges are reported: each version has a list of fragments and caches of its own."""
    table.generation(0, upserts(range(5)))
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 60)
    assert [merge.proven for merge in report.merges] == [None]


def test_a_quiet_round_asks_once_for_the_newest_version(table: FlusherTable) -> None:
    """It is a listing."""

    class Asked(LanceTable):
        times = 0

        def newest(self) -> LancePinnedTable:
            self.times += 1
            return super().newest()

    asked, state = Asked(table.uri), RoundState()
    context = table.context(asked)
    table.generation(0, upserts(range(5)))
    assert len(run_round(context, OPEN_ROWS, state, 60).merges) == 1
    before = asked.times
    assert run_round(context, OPEN_ROWS, state, 60).left is not None
    assert asked.times == before + 1
    # Somebody else's commit: its file is indexed by the next round.
    table.user_append(1, range(5), in_model=True)
    assert sum(kept.indexed for kept in run_round(context, OPEN_ROWS, state, 60).upkeep) == 5
    table.check()


def test_an_orphan_whose_log_is_gone_stops(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5)), flush=False)
    table.take_away(WAL)
    with pytest.raises(ObjectMissing):
        table.round()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_region_that_has_lost_its_log_holds_up_no_other(table: FlusherTable, lost: int) -> None:
    table.generation(lost, upserts(range(5)), flush=False)
    table.generation(1 - lost, upserts(range(5)))
    held = table.take_away(WAL)
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0)
    assert list(report.held) == [table.regions[lost]]
    assert [list(merge.generations) for merge in report.merges] == [[table.regions[1 - lost]]]
    with pytest.raises(ObjectMissing, match="repair segment"):
        report.raise_held()
    table.put_back(held)
    assert run_round(table.context(), OPEN_ROWS, RoundState(), 0).held == {}
    table.check()


@pytest.mark.parametrize("lost", [True, False])
def test_a_region_whose_flush_is_damaged_holds_up_no_other(table: FlusherTable, lost: bool) -> None:
    """Lost together with the entries that would make it anew; or other bytes than were written."""
    table.generation(0, upserts(range(5)))
    table.generation(1, upserts(range(5)))
    key = table.record(0, 1).flush
    assert key is not None
    data = table.store.get(key)
    assert data is not None
    held = table.take_away(WAL)
    table.store.delete([key])
    if not lost:
        table.store.put_if_absent(key, data[:-3])
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0)
    assert list(report.held) == [table.regions[0]]
    assert [list(merge.generations) for merge in report.merges] == [[table.regions[1]]]
    with pytest.raises(ObjectMissing if lost else ObjectCorrupt, match=key):
        report.raise_held()
    table.store.delete([key])
    table.put_back({**held, key: data})
    assert run_round(table.context(), OPEN_ROWS, RoundState(), 0).held == {}
    table.check()


def test_damage_behind_what_the_same_round_flushes_is_named(table: FlusherTable) -> None:
    """That flush changes the index of the region, as a seal and the marks of a merge do."""
    table.generation(0, upserts(range(5)), flush=False)
    before = {info.key for info in table.store.list(WAL)}
    table.generation(0, upserts(range(5, 9)), flush=False)
    table.store.delete([info.key for info in table.store.list(WAL) if info.key not in before])
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0)
    assert report.flushed == 1
    assert table.states(0) == ["MERGED", "SEALED"]
    assert list(report.held) == [table.regions[0]]


def test_what_vanishes_while_a_merge_is_planned_is_no_damage(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean-up, or another flusher's merge and garbage collection, came between the look at it and the read."""
    table.generation(0, upserts(range(5)))
    vanishing = [table.flushed(0, 1)]

    def late(*arguments: Any) -> Any:
        while vanishing:
            table.remove_files(vanishing.pop())
        return choose(*arguments)

    monkeypatch.setattr(merge_inputs, "choose", late)
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0)
    assert report.held == {}
    assert table.states(0) == ["MERGED"]
    table.check()


def test_a_damaged_log_of_what_another_has_rebuilt_is_no_damage(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.generation(0, upserts(range(5)))
    table.remove_files(table.flushed(0, 1))
    rebuild = rebuild_flush

    def late(*arguments: Any) -> Any:
        rebuild(*arguments)  # the other one, first
        table.put_back({name: data[:-3] for name, data in table.take_away(WAL).items()})
        return rebuild(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(merge_inputs, "rebuild_flush", late)
        assert merge_next(table.context(), OPEN_ROWS).left == {}  # type: ignore[union-attr] # refused: no such field
    table.round()
    table.check()


def test_an_orphan_that_another_flushes_from_memory_is_no_damage(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is damaged; its ingest has the rows and was only slow."""
    table.generation(0, upserts(range(5)), flush=False)
    folds = generation_entries.entries_of

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        table.flush(0)  # the other one, first
        table.put_back({name: data[:-3] for name, data in table.take_away(WAL).items()})
        return folds(*arguments)

    monkeypatch.setattr(generation_entries, "entries_of", late)
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0)
    assert report.held == {}
    assert table.states(0) == ["MERGED"]
    table.check()


def test_marks_are_repaired(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.generation(0, upserts(range(5)))
    table.generation(1, upserts(range(5)))
    with monkeypatch.context() as patched:
        patched.setattr(rounds, "mark", lambda *_: None)
        table.round()
    assert table.states(0) == ["FLUSHED"]
    report = table.round()
    assert report.merges == ()
    assert table.states(0) == table.states(1) == ["MERGED"]
    assert table.record(0, 1).merged_version == table.dataset.version


def test_only_finished_merges_are_marked(table: FlusherTable) -> None:
    """Another flusher's merge lands, unfinished, right after our round has finished what there was."""
    table.generation(1, upserts(range(5)))
    table.round()
    table.generation(0, upserts(range(5)))
    context = table.context()
    finish = finish_newest
    settled: list[object] = []

    def land(*arguments: Any) -> Any:
        result = finish(*arguments)
        if not settled:
            settled.append(result)
            other = ScriptedTable(table.uri)
            other.before = [lambda: table.user_append(0, [3], in_model=False)]
            assert isinstance(merge_next(table.context(other), OPEN_ROWS), Merged)
            assert table.states(0) == ["FLUSHED"]
        return result

    marked = []
    mark = rounds.mark

    def spy(*arguments: Any) -> None:
        mark(*arguments)
        marked.append(
            (table.states(0)[0], bool(set(table.finished()) & {table.dataset.version - 1, table.dataset.version}))
        )

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rounds, "finish_newest", land)
        patched.setattr(rounds, "mark", spy)
        run_round(context, OPEN_ROWS, RoundState(), 0)
    assert marked[0] == ("FLUSHED", False), "the first marks come before the other's merge is finished"
    assert marked[-1][0] == "MERGED"
    table.check()


def test_a_checkpoint_for_every_version_and_no_request_for_the_same(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = table.context()
    puts: list[str] = []
    put = type(table.store).put_if_absent

    def count(self: Any, key: str, data: bytes) -> Any:
        puts.append(key)
        return put(self, key, data)

    table.user_append(0, [1], in_model=True)
    table.round(context=context)
    assert table.dataset.version in table.recorded()
    monkeypatch.setattr(type(table.store), "put_if_absent", count)
    for _ in range(3):
        table.round(context=context)
    assert puts == []
    monkeypatch.undo()
    assert Watermarks(table.store, table.context().table, None).at(table.dataset.version).version == 0


def test_stopping_ends_after_the_merge_under_way(table: FlusherTable) -> None:
    for n in range(3):
        table.generation(0, upserts(range(n, n + 3), a=n))
    stops = iter([False, True])
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0, lambda: next(stops))
    assert (len(report.merges), report.left) == (1, None)
    assert table.states(0) == ["MERGED", "FLUSHED", "FLUSHED"]
    table.round()
    table.check()


def test_where_generations_come_as_fast_as_they_are_merged_a_round_ends(table: FlusherTable) -> None:
    asked = 0

    def enough() -> bool:
        nonlocal asked
        asked += 1
        assert asked < 10, "the round goes on for ever"
        table.generation(0, upserts(range(asked, asked + 3)))
        return asked == 3

    table.generation(0, upserts(range(5)))
    report = run_round(table.context(), OPEN_ROWS, RoundState(), 0, enough=enough)
    assert len(report.merges) == 3
    assert report.left is None
    assert table.states(0) == ["MERGED", "MERGED", "MERGED", "FLUSHED"]
    # What comes late does not keep a round from merging at all.
    assert len(run_round(table.context(), OPEN_ROWS, RoundState(), 0, enough=lambda: True).merges) == 1
    table.check()


def test_a_flush_that_another_flusher_rebuilds_is_taken_next_time(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:

    table.generation(0, upserts(range(5)))
    table.generation(1, upserts(range(5)))
    table.remove_files(table.flushed(0, 1))
    rebuild = rebuild_flush

    def lose(*arguments: Any) -> Any:
        rebuild(*arguments)  # the other one, first
        return rebuild(*arguments)

    monkeypatch.setattr(merge_inputs, "rebuild_flush", lose)
    context = table.context()
    first = merge_next(context, OPEN_ROWS)
    assert isinstance(first, Merged)
    assert set(first.generations) == {table.regions[1]}
    table.round(context=context)
    table.check()


def test_a_clean_up_while_a_merge_is_planned(table: FlusherTable) -> None:
    """Its version goes away under it: it is planned again."""
    table.generation(0, upserts(range(10)))
    table.round()
    table.generation(0, upserts(range(5, 15), a=1))
    context = table.context()
    cleaned: list[bool] = []

    class LateRunner(ThreadRunner):
        def run(self, tasks: Any) -> Any:
            if not cleaned:
                cleaned.append(True)
                table.user_delete(0, 0)
                table.clean_up()
            return super().run(tasks)

    report = run_round(replace(context, runner=LateRunner(context.table, table.tasks)), OPEN_ROWS, RoundState(), 0)
    assert (len(report.refused), len(report.merges)) == (1, 1)
    table.check()


def test_a_data_file_of_the_table_that_is_gone_stops(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    for name in table.context().table.newest().fragments()[0].files:
        (Path(table.uri) / "data" / name).unlink()
    table.generation(0, [patch(5, a=1)])  # what it does not carry is read from that file
    with pytest.raises(ObjectMissing, match="refers to a file that is gone"):
        table.round()


@pytest.mark.parametrize("limits", [OPEN_ROWS, COMBINE])
def test_flushers_and_ingest_at_the_same_time(tmp_path: Path, limits: MergeLimits) -> None:
    """Three flushers run rounds while generations arrive; nothing is lost, nothing is there twice."""
    table = FlusherTable(tmp_path, partitions=3)
    ended = threading.Event()
    errors: list[BaseException] = []
    landed: list[tuple[Region, tuple[int, ...]]] = []

    def flush() -> None:
        from lancewal_core.errors import Refresh, Retry

        tasks = ThreadTasks()
        base = table.context()
        context = replace(base, tasks=tasks, runner=ThreadRunner(base.table, tasks))
        state = RoundState()
        while not errors:
            last = ended.is_set()
            try:
                report = run_round(context, limits, state, 1_000)
                landed.extend(item for m in report.merges for item in m.generations.items())
                if last and report.left is not None:
                    break
            except (Refresh, Retry):
                continue
            except BaseException as error:
                errors.append(error)
        tasks.close()

    threads = [threading.Thread(target=flush) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(12):
        for partition in range(3):
            table.generation(partition, [*upserts(range(n, n + 6), a=n), delete(n + 1), upsert(1_000 + n)])
    ended.set()
    for thread in threads:
        thread.join(120)
    assert errors == []
    table.check()
    taken = sorted((region, g) for region, generations in landed for g in generations)
    assert taken == [(region, g) for region in table.regions for g in range(1, 13)]
    for partition in range(3):
        assert table.states(partition) == ["MERGED"] * 12
    table.close()


def test_limits_and_combining(table: FlusherTable) -> None:
    """``combine_changes`` bounds what one region puts into one merge."""
    for n in range(5):
        table.generation(0, upserts(range(10 * n, 10 * n + 10), a=n))
    report = table.round(MergeLimits(adopt_rows=1_000, combine_changes=20))
    assert [m.generations[table.regions[0]] for m in report.merges] == [(1, 2), (3, 4), (5,)]
    table.check()


@pytest.mark.parametrize("harm", ["its record", "its record, lost", "the whole page"])
def test_a_region_whose_state_is_damaged_holds_up_no_other(tmp_path: Path, harm: str) -> None:
    """What follows is merged too: of a region in the same page, unless that is damaged, and of one in another."""
    table = FlusherTable(tmp_path, partitions=3, regions_per_page=2)
    damaged, neighbour, elsewhere = range(3)
    for partition in range(3):
        table.generation(partition, upserts(range(5)))
    table.round()
    for partition in range(3):
        table.generation(partition, [upsert(3, a=30), delete(4)])
    path = page_versions(table.store, table.uri, table.regions[damaged], 2)[0]
    whole = path.read_bytes()
    page = decode_page(whole, path.name)
    match harm:
        case "its record":
            flip_record(path, damaged)
        case "its record, lost":
            path.write_bytes(encode_page(page.with_records({damaged: PageRecord(b"", 1)})))
        case _:
            path.write_bytes(whole[:8])
    left = {damaged, neighbour} if harm == "the whole page" else {damaged}
    context, state = table.context(), RoundState()
    report = run_round(context, OPEN_ROWS, state, 0)
    assert {region.partition for region in report.held} == left
    assert all(isinstance(error, ObjectCorrupt) for error in report.held.values())
    assert harm == "the whole page" or f"region {table.regions[damaged].name}" in str(
        report.held[table.regions[damaged]]
    )
    backlog = BacklogReader(context).after(report)
    assert {region.partition for region in backlog.waiting} == {0, 1, 2} - left
    going_on = {neighbour, elsewhere} - left
    for partition in going_on:
        assert table.states(partition)[-1] == "MERGED"
        table.generation(partition, [upsert(7, a=70)])
    report = run_round(context, OPEN_ROWS, state, 0)
    assert {region.partition for region in report.held} == left
    assert [sorted(r.partition for r in merge.generations) for merge in report.merges] == [sorted(going_on)]
    in_force = context.watermarks.newest()[1]
    assert [in_force.generation(region) for region in table.regions] == [1 if p in left else 3 for p in range(3)]
    # The record as it was takes the place of the damaged one, in the newest version.
    newest = page_versions(table.store, table.uri, table.regions[damaged], 2)[0]
    if harm == "the whole page":
        newest.write_bytes(whole)
    else:
        kept = decode_page(newest.read_bytes(), newest.name)
        newest.write_bytes(encode_page(kept.with_records({damaged: page.records[damaged]})))
    assert run_round(context, OPEN_ROWS, state, 0).held == {}
    table.check()
    assert all(table.states(partition)[-1] == "MERGED" for partition in range(3))


def test_a_merge_of_other_regions_is_finished_without_the_damaged_one(table: FlusherTable) -> None:
    """It looks for keys that a user has added beside them: for that it needs the generations that it took, and no more."""
    table.generation(1, upserts(range(5)))
    table.round()
    table.generation(0, upserts(range(5)))
    table.generation(1, upserts(range(5, 10)))
    flip_record(page_versions(table.store, table.uri, table.regions[0])[0], 0)
    merging = ScriptedTable(table.uri)
    merging.before.append(lambda: table.user_append(1, [7], in_model=False))
    context = table.context(merging)
    result = merge_next(context, OPEN_ROWS)
    assert isinstance(result, Merged)
    assert set(result.left) == {table.regions[0]}
    settled = finish_newest(table.context())
    assert settled.finished is not None
    assert settled.finished.rows_hidden == 1
