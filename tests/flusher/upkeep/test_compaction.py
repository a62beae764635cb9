"""Compaction on real Lance tables, beside merges, users and clean-ups: no row comes back, none is lost, none is doubled."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_core.errors import ObjectMissing
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import (
    CommitLost,
    CommitOutcome,
    Committed,
    RewriteBounds,
    TableCommit,
    TransactionInfo,
)
from lancewal_core.table.watermarks import PROPERTY_WATERMARKS
from lancewal_flusher.commit.other_commits import PROPERTY_COMPACTION
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.merge.merge import Merged, merge_next
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.service.upkeep import Upkeep
from lancewal_flusher.upkeep.compact_all import compact_to_the_end
from lancewal_flusher.upkeep.compaction import Compacted, CompactionResult, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits, Reason
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.indexes import extend_indexes
from tests.support.flusher_tables import COMBINE, OPEN_ROWS, FlusherTable, ScriptedTable, delete, patch, upserts

LIMITS = replace(CompactionLimits(), fragments_min=2, growth=1.0)


def filled(folder: Path, stable_row_ids: bool = False) -> FlusherTable:
    """Five fragments of ten rows: ids 0 to 49, half of those of the third one hidden."""
    made = FlusherTable(folder, stable_row_ids=stable_row_ids)
    for n in range(5):
        made.generation(0, upserts(range(10 * n, 10 * n + 10)))
        made.round()
    made.generation(0, [delete(id) for id in range(20, 25)])
    made.round()
    return made


@pytest.fixture
def stable_row_ids() -> bool:
    return False


@pytest.fixture
def table(tmp_path: Path, stable_row_ids: bool) -> Iterator[FlusherTable]:
    made = filled(tmp_path, stable_row_ids)
    yield made
    made.close()


both_kinds_of_ids = pytest.mark.parametrize("stable_row_ids", [False, True])


class Raced(ScriptedTable):
    """Acts also between reading fragments and the commit of what was written anew."""

    def __init__(self, uri: str, *behind_rewrite: Callable[[], object]) -> None:
        super().__init__(uri)
        self._behind = list(behind_rewrite)

    def rewrite(self, version: int, fragment_ids: Sequence[int], bounds: RewriteBounds) -> tuple[str, ...]:
        written = super().rewrite(version, fragment_ids, bounds)
        if self._behind:
            self._behind.pop(0)()
        return written


def compact(
    table: FlusherTable,
    lance_table: LanceTable | None = None,
    limits: CompactionLimits = LIMITS,
    *,
    sentinel: bool = False,
) -> CompactionResult:
    return compact_next(table.context(lance_table), limits, FileSizes(), with_sentinel=sentinel)


def fragment_ids(table: FlusherTable) -> list[int]:
    return sorted(f.fragment_id for f in table.dataset.get_fragments())


# -- what a round does -----------------------------------------------------------------------------------------


@both_kinds_of_ids
def test_a_round_leaves_the_rows_and_the_sentinel(table: FlusherTable) -> None:
    before = table.dataset.version
    done = compact(table)
    assert isinstance(done, Compacted)
    assert (done.reason, done.fragments_before, done.fragments_after) == (Reason.SMALL, 4, 1)
    assert (done.rows, done.rows_dropped) == (35, 5)
    assert done.version == before + 1
    table.check()
    assert fragment_ids(table)[0] == 0
    assert len(fragment_ids(table)) == 2
    info = table.context().table.transaction(done.version)
    assert isinstance(info, TransactionInfo)
    assert PROPERTY_COMPACTION in info.properties
    assert PROPERTY_WATERMARKS not in info.properties
    assert compact(table) is None


def test_with_the_sentinel_everything_becomes_one(table: FlusherTable) -> None:
    assert isinstance(compact(table, sentinel=True), Compacted)
    assert len(fragment_ids(table)) == 1
    table.check()
    table.generation(0, upserts(range(15, 60), a=7))  # the new sentinel does what the old one did
    table.generation(0, [delete(3), patch(4, a=8)])
    table.round()
    table.check()


def test_the_sentinel_only_in_a_bounded_round(table: FlusherTable) -> None:
    table.generation(0, [delete(id) for id in range(5)])
    table.round()
    small = replace(LIMITS, round_bytes=100, oversize=True)
    assert isinstance(compact(table, limits=small, sentinel=True), Compacted)  # the third fragment
    assert compact(table, limits=small, sentinel=True) is None
    assert 0 in fragment_ids(table)
    table.check()


def test_merges_go_on_upon_it(table: FlusherTable) -> None:
    watermark = table.context().watermarks.newest()[1]
    compact(table)
    assert table.context().watermarks.newest()[1] == watermark
    table.generation(0, [*upserts(range(5, 25), a=1), delete(40), patch(41, a=5)])
    report = table.round()
    assert (len(report.merges), report.refused) == (1, ())
    assert report.merges[0].rows_replaced == 17
    table.check()


def test_all_rows_of_a_fragment_are_gone(table: FlusherTable) -> None:
    table.user_delete(0, 30)
    table.dataset.delete("id >= 25 and id < 40")
    table.model = {key: row for key, row in table.model.items() if not 25 <= key[1] < 40}
    assert isinstance(compact(table), Compacted)
    table.check()


# -- what comes in between -------------------------------------------------------------------------------------


@both_kinds_of_ids
def test_a_merge_that_hides_rows_there_wins(table: FlusherTable) -> None:
    table.generation(0, [delete(30), *upserts([31], a=9)])
    before = compact(table, Raced(table.uri, table.round))
    assert isinstance(before, Refused)
    table.check()
    assert isinstance(compact(table), Compacted)
    table.check()


def test_a_merge_elsewhere_stands(table: FlusherTable) -> None:
    table.generation(0, [delete(1), *upserts(range(100, 110))])
    done = compact(table, Raced(table.uri, table.round))
    assert isinstance(done, Compacted)
    table.check()


@both_kinds_of_ids
def test_a_merge_that_was_planned_before_it(table: FlusherTable) -> None:
    """New keys only: it is rebased; a hit in a fragment that was written anew: it is refused, and planned again."""
    for operations, landed in ((upserts(range(200, 210)), True), ([delete(33)], False)):
        table.generation(0, operations)
        raced = ScriptedTable(table.uri)
        raced.before = [lambda: compact(table)]
        result = merge_next(table.context(raced), OPEN_ROWS)
        assert isinstance(result, Merged if landed else Refused)
        table.round()
        table.check()
        table.generation(0, upserts(range(300, 310)))
        table.round()


@both_kinds_of_ids
def test_hidden_rows_do_not_come_back_by_a_clean_up(table: FlusherTable) -> None:
    """Versions in between that are gone are not compared with: only the version read, asked for by URI, says so."""

    def meanwhile() -> None:
        table.round()
        table.user_append(1, [500], in_model=True)
        table.clean_up()

    table.generation(0, [delete(30)])
    assert isinstance(compact(table, Raced(table.uri, meanwhile)), Refused)
    table.check()


def test_the_version_goes_before_the_fragments_are_read(table: FlusherTable) -> None:
    class Slow(LanceTable):
        def rewrite(self, version: int, fragment_ids: Sequence[int], bounds: RewriteBounds) -> tuple[str, ...]:
            table.user_append(1, [500], in_model=True)
            table.clean_up()
            return super().rewrite(version, fragment_ids, bounds)

    assert isinstance(compact(table, Slow(table.uri)), Refused)
    table.check()


def test_groups_land_together_or_not_at_all(table: FlusherTable) -> None:
    """A merge that hides a row in one of them refuses all; the turn behind takes one group, and then several again."""
    limits = replace(LIMITS, target_rows=25, groups_max=2)
    for n in range(5, 9):
        table.generation(0, upserts(range(10 * n, 10 * n + 10)))
        table.round()
    raced = Raced(table.uri, table.round)
    upkeep = Upkeep(limits, IndexLimits())
    table.generation(0, [delete(70)])
    sizes = []
    for _ in range(3):
        done = upkeep.compact(table.context(raced)).compaction
        sizes.append((done.fragments_before, done.fragments_after) if isinstance(done, Compacted) else None)
        table.check()
    assert sizes == [None, (3, 1), (4, 2)]


def test_two_compactions_of_the_same_fragments(table: FlusherTable) -> None:
    assert isinstance(compact(table, Raced(table.uri, lambda: compact(table))), Refused)
    table.check()


@pytest.mark.parametrize("arrived", [True, False])
def test_the_reply_is_lost(table: FlusherTable, arrived: bool) -> None:
    class Silent(LanceTable):
        def commit(self, commit: TableCommit) -> CommitOutcome:
            if arrived:
                super().commit(commit)
                table.user_append(1, [500], in_model=True)
            return CommitLost("timed out")

    done = compact(table, Silent(table.uri))
    assert isinstance(done, Compacted if arrived else Refused)
    table.check()


def test_files_that_a_clean_up_takes_before_the_commit_are_written_again(table: FlusherTable) -> None:
    raced = ScriptedTable(table.uri)
    raced.before = [lambda: table.clean_up(delete_unverified=True)]
    assert isinstance(compact(table, raced), Compacted)
    table.check()


def test_files_that_cannot_be_written_again_are_named(table: FlusherTable) -> None:
    """A merge has hidden rows in the broken fragment, by its key index alone, before anybody has looked at the files."""

    class Taken(LanceTable):
        def commit(self, commit: TableCommit) -> CommitOutcome:
            if commit.read_version == before:
                table.clean_up(delete_unverified=True)
            return super().commit(commit)

        def files_missing(self, files: Sequence[str]) -> Sequence[str]:
            pinned = self.newest()
            if pinned.version == before + 1:
                changed = pinned.hide_rows(pinned.fragments()[-1].fragment_id, [0])
                assert changed is not None
                assert isinstance(
                    super().commit(TableCommit(pinned.version, (), (changed,), (), {}, strict=False)), Committed
                )
            return super().files_missing(files)

    before, rows = table.dataset.version, table.rows()
    with pytest.raises(ObjectMissing, match=f"Restore version {before}, before a clean-up"):
        compact(table, Taken(table.uri))
    old: Any = lance.dataset(table.uri, version=before)
    assert old.to_table().to_pylist() == rows


def test_a_process_that_dies_before_it_looks_for_its_files(table: FlusherTable) -> None:
    """Nobody writes them again; the next round names them, and the version read has the rows."""

    class Died(BaseException):
        pass

    class Dying(ScriptedTable):
        def files_missing(self, files: Sequence[str]) -> Sequence[str]:
            raise Died

    version, rows = table.dataset.version, table.rows()
    dying = Dying(table.uri)
    dying.before = [lambda: table.clean_up(delete_unverified=True)]
    with pytest.raises(Died):
        compact(table, dying)
    assert table.dataset.version == version + 1
    table.generation(0, [delete(12)])
    with pytest.raises(ObjectMissing, match=f"version {version + 1} refers to a file that is gone"):
        table.round()
    assert isinstance(compact(table, sentinel=True), Refused)
    old: Any = lance.dataset(table.uri, version=version)
    assert old.to_table().to_pylist() == rows
    old.restore()
    assert table.rows() == rows


def test_files_that_others_have_replaced_since_are_not_missed(table: FlusherTable) -> None:
    class Late(ScriptedTable):
        def files_missing(self, files: Sequence[str]) -> Sequence[str]:
            if self.before:
                self.before.pop(0)()
            return super().files_missing(files)

    def others() -> None:
        assert isinstance(compact(table, sentinel=True), Compacted)
        table.clean_up(delete_unverified=True)

    late = Late(table.uri)
    late.before = [lambda: None, others]  # one for the commit
    assert isinstance(compact(table, late), Compacted)
    table.check()


def test_a_merge_that_is_not_finished_is_waited_for(table: FlusherTable) -> None:
    table.generation(0, upserts(range(100, 110)))
    assert isinstance(merge_next(table.context(), OPEN_ROWS), Merged)
    done = compact(table)
    assert isinstance(done, Refused)
    assert "not finished" in done.reason
    table.round()
    assert isinstance(compact(table), Compacted)
    table.check()


def test_appended_rows_are_hidden_also_where_they_were_written_anew(table: FlusherTable) -> None:
    """A merge passes an append of its keys; a compaction that began below the merge takes that fragment and lands above
    it, before the merge is finished: the follow-up looks where the rows are by now."""
    compacted: list[object] = []

    class Passing(LanceTable):
        def commit(self, commit: TableCommit) -> CommitOutcome:
            table.user_append(0, [105, 106], in_model=False)
            table.user_append(0, [900], in_model=True)
            landed: list[CommitOutcome] = []
            behind = Raced(table.uri, lambda: landed.append(LanceTable.commit(self, commit)))
            compacted.append(compact(table, behind))
            return landed[0]

    table.generation(0, upserts(range(100, 110)))
    assert isinstance(merge_next(table.context(Passing(table.uri)), OPEN_ROWS), Merged)
    assert isinstance(compacted[0], Compacted)
    report = table.round()
    assert [f.rows_hidden for f in report.finished] == [2]
    table.check()


# -- to the end, beside a flusher ------------------------------------------------------------------------------


def test_to_the_end_nothing_is_left(table: FlusherTable) -> None:
    done = compact_to_the_end(table.context(), CompactionLimits(), with_sentinel=False)
    assert (done.rounds, done.fragments_before, done.fragments_after) == (1, 5, 2)
    assert done.rows_dropped == 5
    done = compact_to_the_end(table.context(), CompactionLimits(), with_sentinel=True)
    assert (done.rounds, done.fragments_after) == (1, 1)
    assert compact_to_the_end(table.context(), CompactionLimits(), with_sentinel=True).rounds == 0
    table.check()


def test_a_clean_up_behind_several_commits_in_a_row_leaves_what_is_in_force_known(table: FlusherTable) -> None:
    """Compactions and index builds say nothing of watermarks; no flusher's round comes in between."""
    lance.dataset(table.uri).create_scalar_index("a", "BTREE")
    before = table.dataset.version
    for _ in range(2):
        assert isinstance(compact(table, None, replace(LIMITS, fragments_max=2), sentinel=True), Compacted)
    assert extend_indexes(table.context(), IndexLimits(), at_once=True)
    assert table.dataset.version == before + 3
    table.generation(0, [delete(1)])
    table.clean_up()
    table.round()
    table.check()


def test_random_merges_and_compactions(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    table = FlusherTable(tmp_path, stable_row_ids=rng.random() < 0.5)
    for _ in range(25):
        ids = rng.sample(range(60), rng.randrange(1, 15))
        operations = [rng.choice([delete(i), patch(i, a=i), *upserts([i], a=rng.randrange(9))]) for i in ids]
        table.generation(rng.randrange(2), operations)
        act = rng.choice(["merge", "merge", "between", "behind"])
        limits = replace(LIMITS, round_bytes=rng.choice([2_000, 1 << 20]), deleted_share=rng.choice([0.01, 0.5]))
        limits = replace(limits, fragments_max=rng.choice([2, 1_000]), groups_max=3)
        match act:
            case "merge":
                table.round(rng.choice([OPEN_ROWS, COMBINE]))
            case "between":
                compact(table, Raced(table.uri, table.round), limits, sentinel=rng.random() < 0.5)
            case _:
                raced = ScriptedTable(table.uri)
                raced.before = [lambda limits=limits: compact(table, None, limits, sentinel=True)]  # type: ignore[misc] # no type for a default
                table.round(context=table.context(raced))
        compact(table, None, limits, sentinel=True)
        if rng.random() < 0.2:
            table.clean_up()
    table.round()
    table.check()
    table.close()


def test_merges_and_compactions_of_two_flushers_flat_out(tmp_path: Path) -> None:
    """A flusher that merges without end beside compactions without end: each lands again and again, and nothing is lost."""
    table = filled(tmp_path)
    ending = threading.Event()
    compactions: list[Compacted] = []

    def compacting() -> None:
        context = table.context()
        while not ending.is_set():
            result = compact_next(context, LIMITS, FileSizes(), with_sentinel=False)
            if isinstance(result, Compacted):
                compactions.append(result)

    thread = threading.Thread(target=compacting)
    thread.start()
    merges = 0
    context = table.context()
    try:
        for number in range(400):
            table.generation(number % 2, [*upserts([1_000 + number]), delete(number % 50)])
            merges += len(run_round(context, OPEN_ROWS, RoundState(), 60.0).merges)
            if merges >= 10 and len(compactions) >= 5:
                break
    finally:
        ending.set()
        thread.join(60)
    table.round()
    assert merges >= 10
    assert len(compactions) >= 5
    table.check()
    table.close()
