"""The merge on real Lance tables: what a plain reader sees equals the model, whatever came between plan and commit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import (
    ContractMismatch,
    LancewalError,
    MergedPositionUnknown,
    MergeUnproven,
    TableReplaced,
    TableRestored,
)
from lancewal_core.region.states import RegionStates
from lancewal_core.settings.load import Settings
from lancewal_core.table.protocol import fragment_files
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.merge.first_seen import FirstSeen
from lancewal_flusher.merge.merge import Merged, MergeResult, NothingToMerge, merge_next
from lancewal_flusher.merge.plan import MergeLimits, deletion_bytes, unmerged
from lancewal_flusher.service.limits import merge_limits
from tests.support.flusher_tables import (
    COLUMNS,
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
from tests.support.scripted import ManualClock


@pytest.fixture
def filled(table: FlusherTable) -> FlusherTable:
    """Two regions with a fragment each: ids 0 to 9."""
    table.generation(0, upserts(range(10)))
    table.round()
    table.generation(1, upserts(range(10)))
    table.round()
    assert len(table.dataset.get_fragments()) == 2
    table.check()
    return table


def scripted(table: FlusherTable) -> ScriptedTable:
    return ScriptedTable(table.uri)


def file_names(table: FlusherTable) -> set[str]:
    return {f.path for fragment in table.dataset.get_fragments() for f in fragment.metadata.files}


# -- what a merge makes of generations -------------------------------------------------------------------------


def test_a_large_generation_is_adopted_as_it_is(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(5, 2_005), a=1), segments=3)
    flushed = filled.flushed(0, 2)
    report = filled.round()
    (merge,) = report.merges
    assert (merge.rows_adopted, merge.rows_written, merge.rows_replaced) == (2_000, 0, 5)
    assert {name for f in flushed.fragments for name in fragment_files(f)} <= file_names(filled)
    filled.check()


def test_several_small_generations_become_one_fragment(filled: FlusherTable) -> None:
    for n in range(4):
        filled.generation(0, [upsert(n, a=100 + n), upsert(50, a=n), delete(9 - n)])
    before = len(filled.dataset.get_fragments())
    report = filled.round(COMBINE)
    (merge,) = report.merges
    assert merge.generations == {filled.regions[0]: (2, 3, 4, 5)}
    assert (merge.rows_adopted, merge.rows_written) == (0, 5)
    assert len(filled.dataset.get_fragments()) == before + 1
    assert filled.states(0) == ["MERGED"] * 5
    filled.check()


def test_a_large_one_ends_what_is_combined(filled: FlusherTable) -> None:
    filled.generation(0, [upsert(1, a=1)])
    filled.generation(0, [upsert(1, a=2), delete(2)])
    filled.generation(0, upserts(range(1, 100), a=3))
    filled.generation(0, [delete(1)])
    report = filled.round(OPEN_ROWS.__class__(adopt_rows=50))
    assert [list(m.generations.values()) for m in report.merges] == [[(2, 3)], [(4,)], [(5,)]]
    filled.check()


def test_small_generations_of_many_regions_become_one_fragment(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, partitions=8)
    limits = MergeLimits(adopt_rows=50, adopt_small_max=3)
    for partition in range(8):
        table.generation(partition, upserts(range(3 * partition, 3 * partition + 3)))
    (merge,) = table.round(limits).merges
    assert (merge.rows_adopted, merge.rows_written) == (0, 24)
    assert len(table.dataset.get_fragments()) == 1
    table.check()
    # A large one is adopted beside them, and deletes and patches of small ones are taken as ever.
    table.generation(0, upserts(range(60), a=1))
    for partition in range(1, 6):
        first = 3 * partition
        table.generation(partition, [upsert(first, a=1), delete(first + 1), patch(first + 2, s="new"), upsert(77)])
    (merge,) = table.round(limits).merges
    assert (merge.rows_adopted, merge.rows_written) == (60, 15)
    assert len(table.dataset.get_fragments()) == 3
    table.check()
    # No more than may be adopted: none is written a second time.
    for partition in range(3):
        table.generation(partition, [upsert(1, a=2)])
    (merge,) = table.round(limits).merges
    assert (merge.rows_adopted, merge.rows_written) == (3, 0)
    table.check()
    table.close()


def test_of_many_regions_as_much_is_combined_as_bytes_allow(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, partitions=6)
    for partition in range(6):
        table.generation(partition, upserts(range(4 if partition < 4 else 40)))
    sizes = [s.nbytes for s in (table.flushed(partition, 1) for partition in range(6))]
    (merge,) = table.round(MergeLimits(adopt_small_max=2, combine_bytes=sum(sizes[:4]) + sizes[4] // 2)).merges
    assert (merge.rows_adopted, merge.rows_written) == (80, 16)
    assert len(table.dataset.get_fragments()) == 3
    table.check()
    table.close()


def test_regions_share_a_commit(filled: FlusherTable) -> None:
    filled.generation(0, [upsert(3, a=3), delete(4)])
    filled.generation(1, [upsert(3, a=33), delete(5), patch(6, a=66)])
    before = filled.dataset.version
    report = filled.round()
    assert set(report.merges[0].generations) == set(filled.regions)
    assert filled.dataset.version == before + 1
    filled.check()


def test_patches_are_completed_from_the_table(filled: FlusherTable) -> None:
    filled.generation(
        0,
        [
            patch(1, a=7),  # base in the table
            patch(2, s=None),  # set to null, the rest stays
            patch(3, tags=["x", None]),
            patch(500, s="absent"),  # no base: nulls
            upsert(501, a=1),
            patch(501, s="new"),  # base in the same generation
            delete(4),
            patch(4, a=44),  # base deleted before
        ],
    )
    filled.round()
    filled.check()
    assert filled.model["r0", 1] == {"region": "r0", "id": 1, "a": 7, "s": "s1", "tags": ["t1"]}


def test_patches_of_a_compacted_table_with_stable_row_ids(tmp_path: Path) -> None:
    """Row ids and addresses differ there."""
    table = FlusherTable(tmp_path, stable_row_ids=True)
    table.generation(0, upserts(range(10)))
    table.round()
    table.generation(0, [*upserts(range(5, 15), a=1), delete(2)])
    table.round()
    table.dataset.optimize.compact_files(target_rows_per_fragment=1_000)
    table.generation(0, [patch(1, a=7), patch(7, s="x"), patch(14, a=None), patch(2, a=2)])
    table.round()
    table.check()
    table.close()


@pytest.mark.parametrize("limits", [OPEN_ROWS, COMBINE])
def test_patches_over_several_generations(filled: FlusherTable, limits: Any) -> None:
    filled.generation(0, [patch(1, a=10), patch(2, a=20)])
    filled.generation(0, [patch(1, s="ten"), delete(2)])
    filled.generation(0, [patch(2, s="again"), patch(1, tags=[])])
    filled.round(limits)
    filled.check()


def test_deletes_of_present_and_absent_keys(filled: FlusherTable) -> None:
    filled.generation(0, [delete(1), delete(2), delete(777)])
    report = filled.round()
    assert (report.merges[0].keys_deleted, report.merges[0].rows_replaced) == (3, 2)
    filled.check()


def test_a_delete_of_an_absent_key_alone_moves_the_watermark(filled: FlusherTable) -> None:
    filled.generation(0, [delete(777)])
    (merge,) = filled.round().merges
    assert merge.rows_replaced == 0
    assert filled.states(0) == ["MERGED", "MERGED"]
    filled.check()


@pytest.mark.parametrize("partition", [0, 1])
def test_a_fragment_without_rows_goes_away(filled: FlusherTable, partition: int) -> None:
    """Partition 0 holds the sentinel."""
    sentinel = min(f.fragment_id for f in filled.dataset.get_fragments())
    filled.generation(partition, [delete(i) for i in range(10)])
    filled.round()
    left = [f.fragment_id for f in filled.dataset.get_fragments()]
    assert len(left) == 1
    assert (sentinel in left) == (partition == 1)
    filled.check()
    filled.generation(partition, upserts(range(3, 6)))
    filled.round()
    filled.check()


def test_first_and_second_merge_of_an_empty_table(table: FlusherTable) -> None:
    assert table.dataset.get_fragments() == []
    table.generation(0, [upsert(1, a=1), delete(2), patch(3, a=3)])
    table.generation(1, upserts(range(3)))
    assert len(table.round().merges) == 1
    table.check()
    table.generation(0, [upsert(1, a=2), patch(3, s="x"), delete(77)])
    assert len(table.round().merges) == 1
    table.check()


def test_only_deletes_into_an_empty_table(table: FlusherTable) -> None:
    table.generation(0, [delete(1), delete(2)])
    assert len(table.round().merges) == 1
    assert table.states(0) == ["MERGED"]
    table.check()


def test_all_rows_deleted_and_inserted_again(filled: FlusherTable) -> None:
    for partition in (0, 1):
        filled.generation(partition, [delete(i) for i in range(10)])
    filled.round()
    filled.check()
    assert filled.dataset.get_fragments() == []
    filled.generation(0, upserts(range(4), a=5))
    filled.round()
    filled.check()
    filled.generation(0, upserts(range(2, 8), a=6))
    filled.round()
    filled.check()


@pytest.mark.parametrize("limits", [OPEN_ROWS, COMBINE])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("stable_row_ids", [True, False])
def test_scalar_indexes_stay_right(tmp_path: Path, limits: Any, before: bool, stable_row_ids: bool) -> None:
    """``before``: the indexes are made while the table has no fragment."""
    table = FlusherTable(tmp_path, stable_row_ids=stable_row_ids)

    def index() -> None:
        table.dataset.create_scalar_index("a", "BTREE")
        table.dataset.create_scalar_index("id", "BTREE")

    if before:
        index()
    table.generation(0, upserts(range(100), a=1))
    table.round()
    if not before:
        index()
    for n in range(3):
        table.generation(0, [*upserts(range(10 * n, 10 * n + 20), a=n + 2), delete(90 + n), patch(80 + n, a=50)])
        table.generation(1, upserts(range(n * 5, n * 5 + 10), a=n))
        table.round(limits)
        table.check()
        if n == 1:
            table.dataset.optimize.optimize_indices()
        assert {i.name for i in table.dataset.describe_indices()} == {"a_idx", "id_idx"}
        for column in ("a", "id"):
            for value in (0, 1, 2, 3, 4, 5, 15, 50, 80, 91):
                found = table.dataset.to_table(filter=f"{column} = {value}", columns=["region", "id"]).to_pylist()
                want = sorted(key for key, row in table.model.items() if row[column] == value)
                assert sorted((r["region"], r["id"]) for r in found) == want, (n, column, value)
    table.close()


def test_nothing_waits(filled: FlusherTable) -> None:
    version = filled.dataset.version
    assert isinstance(merge_next(filled.context(), OPEN_ROWS), NothingToMerge)
    filled.generation(0, [upsert(1)], flush=False)
    assert isinstance(merge_next(filled.context(), OPEN_ROWS), NothingToMerge)
    assert filled.dataset.version == version


# -- the commit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [True, False])
def test_the_reply_was_lost(tmp_path: Path, empty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = FlusherTable(tmp_path)
    if not empty:
        table.generation(1, upserts(range(5)))
        table.round()
    table.generation(0, [*upserts(range(10)), delete(4)])
    commit = lance.LanceDataset.commit

    def lose(*arguments: Any, **options: Any) -> Any:
        commit(*arguments, **options)
        raise OSError("connection reset")

    monkeypatch.setattr(lance.LanceDataset, "commit", lose)
    before = table.dataset.version
    result = merge_next(table.context(), OPEN_ROWS)
    assert isinstance(result, Merged)
    assert result.version == before + 1
    monkeypatch.undo()
    report = table.round()
    assert report.merges == ()
    assert table.dataset.version == before + 1
    table.check()
    table.close()


def test_the_request_was_lost(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(5, 15), a=1))
    lossy = scripted(filled)
    lossy.lose_request = 2
    report = filled.round(context=filled.context(lossy))
    assert len(report.refused) == 2
    assert len(report.merges) == 1
    filled.check()


def test_a_user_appends_a_new_key_in_between(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(5, 15), a=1))
    raced = scripted(filled)
    raced.before = [lambda: filled.user_append(0, [100, 101], in_model=True)]
    report = filled.round(context=filled.context(raced))
    (merge,) = report.merges
    assert merge.version > merge.read_version + 1
    assert report.refused == ()
    assert [f.rows_hidden for f in report.finished] == [0]
    assert merge.version in filled.finished()
    filled.check()


def test_a_user_deletes_in_a_fragment_of_the_merge_in_between(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(5, 15), a=1))
    raced = scripted(filled)
    raced.before = [lambda: filled.user_delete(0, 1)]
    report = filled.round(context=filled.context(raced))
    assert (len(report.refused), len(report.merges)) == (1, 1)
    filled.check()


def test_a_user_updates_a_key_of_the_merge_in_between(filled: FlusherTable) -> None:
    filled.generation(0, [patch(5, a=1)])

    def update() -> None:
        filled.dataset.update({"s": "'by hand'"}, where="region = 'r0' and id = 5")
        filled.model["r0", 5]["s"] = "by hand"  # and the patch applies to that

    raced = scripted(filled)
    raced.before = [update]
    report = filled.round(context=filled.context(raced))
    assert (len(report.refused), len(report.merges)) == (1, 1)
    filled.check()


def test_a_user_updates_elsewhere_in_between(filled: FlusherTable) -> None:
    """Partition 0 holds the sentinel, so the fragments of 1 are free: the merge is rebased."""
    filled.generation(0, upserts(range(5, 15), a=1))
    raced = scripted(filled)
    raced.before = [lambda: filled.user_delete(1, 3)]
    report = filled.round(context=filled.context(raced))
    (merge,) = report.merges
    assert report.refused == ()
    assert merge.version > merge.read_version + 1
    filled.check()


def test_an_index_is_built_in_between(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(5, 15), a=1))
    raced = scripted(filled)
    raced.before = [lambda: filled.dataset.create_scalar_index("id", "BTREE")]
    report = filled.round(context=filled.context(raced))
    assert (report.refused, len(report.merges)) == ((), 1)
    filled.check()
    for id in range(16):
        assert filled.dataset.count_rows(f"id = {id}") == sum(key[1] == id for key in filled.model)


def test_a_compaction_in_between(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(5, 15), a=1))
    raced = scripted(filled)
    raced.before = [lambda: filled.dataset.optimize.compact_files(target_rows_per_fragment=1_000)]
    report = filled.round(context=filled.context(raced))
    assert (len(report.refused), len(report.merges)) == (1, 1)
    filled.check()


def test_a_compaction_that_rewrites_an_index_is_no_merge(filled: FlusherTable) -> None:
    filled.dataset.create_scalar_index("id", "BTREE")
    for n in range(3):
        filled.generation(0, upserts(range(n, n + 5), a=n))
        filled.round()
    filled.dataset.optimize.compact_files(target_rows_per_fragment=1_000)
    filled.generation(0, upserts(range(3, 30), a=9))
    filled.round()
    filled.check()


def test_endless_refusals_end_the_round(filled: FlusherTable) -> None:
    filled.generation(0, [upsert(1, a=1)])
    raced = scripted(filled)
    raced.lose_request = 1_000
    report = filled.round(context=filled.context(raced))
    assert (len(report.refused), report.merges, report.left) == (8, (), None)
    filled.round()
    filled.check()


# -- two flushers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("limits", [OPEN_ROWS, COMBINE])
def test_two_flushers_from_one_version(tmp_path: Path, empty: bool, limits: Any) -> None:
    """New keys only: nothing but the sentinel (or the strict commit) stands between them and doubled rows."""
    table = FlusherTable(tmp_path)
    if not empty:
        table.generation(1, upserts(range(5)))
        table.round()
    table.generation(0, upserts(range(10)))
    late = scripted(table)
    late.before = [lambda: table.round(limits)]
    result = merge_next(table.context(late), limits)
    assert isinstance(result, Refused)
    table.round(limits)
    table.check()
    assert table.states(0) == ["MERGED"]
    table.close()


def test_a_zombie_wakes_up_long_after(filled: FlusherTable) -> None:
    """Between its plan and its commit: merges, removal of its sentinel, appends, a compaction, a clean-up."""
    filled.generation(0, upserts(range(100, 110)))

    def meanwhile() -> None:
        filled.round()
        filled.generation(0, [delete(i) for i in range(10)])  # all rows of the sentinel
        filled.round()
        filled.generation(1, upserts(range(3), a=3))
        filled.round()
        filled.user_append(0, [999], in_model=True)
        filled.dataset.optimize.compact_files(target_rows_per_fragment=1_000)
        filled.round()

    zombie = scripted(filled)
    zombie.before = [meanwhile]
    context = filled.context(zombie)
    assert isinstance(merge_next(context, OPEN_ROWS), Refused)
    filled.check()
    filled.generation(0, upserts(range(105, 120), a=4))
    filled.round(context=context)
    filled.check()


def test_a_clean_up_at_the_very_last_moment(filled: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance must look for the version read by itself: nothing that we check before the commit is enough."""
    filled.generation(0, upserts(range(100, 110)))
    commit = lance.LanceDataset.commit

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        filled.round()
        filled.user_append(1, [500], in_model=True)
        filled.clean_up()  # the version read, and the other one's merge
        return commit(*arguments, **options)

    monkeypatch.setattr(lance.LanceDataset, "commit", late)
    with contextlib.suppress(LancewalError):
        merge_next(filled.context(), OPEN_ROWS)
    filled.round()
    filled.check()


def test_a_zombie_wakes_up_after_a_clean_up(filled: FlusherTable) -> None:
    """The versions that it must be compared with are gone, and its own too."""
    filled.generation(0, upserts(range(100, 110)))

    def meanwhile() -> None:
        filled.round()
        filled.clean_up()

    zombie = scripted(filled)
    zombie.before = [meanwhile]
    assert isinstance(merge_next(filled.context(zombie), OPEN_ROWS), Refused)
    filled.check()


def test_an_unproven_merge_stops_everything(filled: FlusherTable) -> None:
    """The one hole: a tagged version keeps Lance from refusing.  It is found right away, and again by every flusher."""
    filled.generation(0, upserts(range(100, 110)))

    def meanwhile() -> None:
        filled.dataset.tags.create("keep", filled.dataset.version)
        filled.round()
        filled.user_append(1, [500], in_model=True)
        filled.clean_up()

    zombie = scripted(filled)
    zombie.before = [meanwhile]
    with pytest.raises(MergeUnproven, match="is a merge too"):
        merge_next(filled.context(zombie), OPEN_ROWS)
    version = filled.dataset.version
    assert len(filled.rows()) == len(filled.model) + 10, "the rows are doubled: that is what must be found"
    filled.generation(0, upserts(range(3), a=8))
    for _ in range(2):
        with pytest.raises(MergeUnproven):
            filled.round()
    assert filled.dataset.version == version
    assert filled.states(0)[-1] == "FLUSHED"
    assert version not in filled.finished()


def test_a_gap_between_plan_and_landing_is_unproven(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(100, 110)))

    def meanwhile() -> None:
        filled.dataset.tags.create("keep", filled.dataset.version)
        filled.user_append(1, [500], in_model=True)
        filled.user_append(1, [501], in_model=True)
        filled.clean_up()  # takes the first append

    zombie = scripted(filled)
    zombie.before = [meanwhile]
    context = filled.context(zombie)
    with pytest.raises(MergeUnproven, match="cannot be proven"):
        merge_next(context, OPEN_ROWS)
    with pytest.raises(MergeUnproven, match="cannot be proven"):
        filled.round()
    assert filled.states(0) == ["MERGED", "FLUSHED"]


def test_a_gap_that_a_checkpoint_covers_is_proven(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(100, 110)))

    def meanwhile() -> None:
        filled.dataset.tags.create("keep", filled.dataset.version)
        filled.user_append(1, [500], in_model=True)
        filled.user_append(1, [501], in_model=True)
        context = filled.context()
        newest = context.table.newest().version
        context.watermarks.record(context.watermarks.at(newest), newest, "checkpoint")
        filled.clean_up()

    zombie = scripted(filled)
    zombie.before = [meanwhile]
    report = filled.round(context=filled.context(zombie))
    assert len(report.merges) == 1
    filled.check()


# -- what stops a flusher --------------------------------------------------------------------------------------


def test_a_key_column_that_a_user_declares_nullable_stops(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(3), a=1))
    filled.dataset.alter_columns({"path": "id", "nullable": True})
    with pytest.raises(ContractMismatch, match=r"column 'id' is nullable.*alter_columns\(.*False"):
        filled.round()
    filled.dataset.alter_columns({"path": "id", "nullable": False})
    filled.round()
    filled.check()


def test_a_column_that_a_user_declares_not_nullable_stops(filled: FlusherTable) -> None:
    filled.generation(0, [upsert(3, s="no a")])
    filled.generation(0, [upsert(4, s="no a")], flush=False)
    filled.dataset.alter_columns({"path": "a", "nullable": False})
    with pytest.raises(ContractMismatch, match=r"column 'a' is not nullable.*alter_columns\(.*True"):
        filled.round()
    filled.begin_anew()
    filled.flush(0)  # ingest goes on
    filled.dataset.alter_columns({"path": "a", "nullable": True})
    filled.round()
    filled.check()


def test_a_restore_stops(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(3), a=1))
    filled.round()
    old: Any = lance.dataset(filled.uri, version=filled.dataset.version - 1)
    old.restore()
    filled.generation(0, upserts(range(3), a=2))
    with pytest.raises(TableRestored):
        filled.round()


def test_a_restore_in_between_refuses_and_stops(filled: FlusherTable) -> None:
    filled.generation(0, upserts(range(3), a=1))

    def restore() -> None:
        old: Any = lance.dataset(filled.uri, version=filled.dataset.version - 1)
        old.restore()

    raced = scripted(filled)
    raced.before = [restore]
    with pytest.raises(TableRestored):
        filled.round(context=filled.context(raced))
    assert filled.states(0) == ["MERGED", "FLUSHED"]


def test_an_overwrite_stops(filled: FlusherTable) -> None:
    lance.write_dataset(filled.user_rows(0, [1]), filled.uri, mode="overwrite")
    with pytest.raises((TableReplaced, ContractMismatch)):
        filled.round()


def test_a_table_recreated_at_the_same_place_stops(filled: FlusherTable, tmp_path: Path) -> None:
    """Its versions have the same numbers as those that the merge records are about."""
    import shutil

    for name in ("data", "_versions", "_transactions", "_deletions", "_indices"):
        shutil.rmtree(Path(filled.uri) / name, ignore_errors=True)
    lance.write_dataset(COLUMNS.empty_table(), filled.uri, schema=COLUMNS, mode="create")
    for n in range(6):
        lance.write_dataset(filled.user_rows(0, [n]), filled.uri, mode="append")
    filled.generation(0, upserts(range(3), a=2))
    with pytest.raises(TableReplaced, match="uuid"):
        filled.round()


def test_watermarks_that_were_cleaned_up_stop(filled: FlusherTable) -> None:
    """A merge without a record (a crash), then appends and a clean-up before the next flusher."""
    filled.generation(0, upserts(range(3), a=2))
    assert isinstance(merge_next(filled.context(), OPEN_ROWS), Merged)
    filled.user_append(1, [100], in_model=True)
    for version in filled.recorded():
        from lancewal_core.names import paths
        from lancewal_core.names.ids import TableVersion

        filled.store.delete([paths.merge_record(TableVersion(version), None)])
    filled.clean_up()
    with pytest.raises(MergedPositionUnknown):
        filled.round()


def test_clean_ups_between_rounds_never_open_a_gap(table: FlusherTable) -> None:
    """Also before the first merge."""
    for n in range(4):
        table.user_append(1, [100 + n], in_model=True)
        table.round()
        table.user_append(1, [200 + n], in_model=True)
        table.round()
        table.clean_up()
        if n:
            table.generation(0, upserts(range(n, n + 3), a=n))
        table.round()
        table.clean_up()
        table.check()


def test_an_index_that_is_lost_stops(filled: FlusherTable) -> None:
    import shutil

    from lancewal_core.errors import StoreInconsistent
    from lancewal_core.names import paths

    shutil.rmtree(Path(filled.uri) / paths.pages_prefix(None))
    assert (
        RegionStates(filled.store, filled.context().clock, 128, None).read([filled.regions[0]]).get(filled.regions[0])
        is None
    )
    with pytest.raises(StoreInconsistent, match="orders/topic-id-1/0"):
        filled.round()


# -- columns ---------------------------------------------------------------------------------------------------


def rename(table: FlusherTable) -> None:
    table.dataset.alter_columns({"path": "s", "name": "text"})


def drop(table: FlusherTable) -> None:
    table.dataset.drop_columns(["s"])


def make_anew(table: FlusherTable) -> None:
    table.dataset.drop_columns(["s"])
    table.dataset.add_columns({"s": "cast(null as string)"})


def add(table: FlusherTable) -> None:
    table.dataset.add_columns({"extra": "1"})


def widen(table: FlusherTable) -> None:
    table.dataset.alter_columns({"path": "a", "data_type": pa.int32()})


CHANGES = {
    rename: "'s' is missing.*|'text' is not in the contract",
    drop: "column 's' is missing",
    make_anew: "column 's' has field ids",
    add: "column 'extra' is not in the contract",
    widen: "column 'a' has type int32, the contract says int64",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_whose_columns_changed_is_not_merged_into(filled: FlusherTable, change: Any) -> None:
    filled.generation(0, upserts(range(3), a=2))
    change(filled)
    version = filled.dataset.version
    filled.generation(1, upserts(range(3), a=2))  # its rows fit once the table is changed back
    filled.begin_anew()
    filled.generation(1, upserts(range(3), a=3))  # a process that has begun since
    with pytest.raises(ContractMismatch, match=CHANGES[change]):
        filled.round()
    with pytest.raises(ContractMismatch, match=CHANGES[change]):
        merge_next(filled.context(), OPEN_ROWS)
    assert filled.dataset.version == version


def swap(table: FlusherTable) -> None:
    for old, new in (("id", "x"), ("a", "id"), ("x", "a")):
        table.dataset.alter_columns({"path": old, "name": new})


@pytest.mark.parametrize("begun", ["before", "since"])
def test_columns_swapped_and_back_around_a_flush(filled: FlusherTable, begun: str) -> None:
    """By their names the rows would fit; a version takes columns of their file by field ids."""
    filled.generation(0, upserts(range(10, 13), a=2), flush=False)
    if begun == "since":
        filled.begin_anew()
    swap(filled)
    filled.flush(0)
    swap(filled)
    filled.round()
    filled.check()


@pytest.mark.parametrize("change", [rename, drop])
def test_columns_changed_in_between(filled: FlusherTable, change: Any) -> None:
    """Lance rebases the merge over it.  The landing is recorded, named, and nothing is built on it."""
    filled.generation(0, upserts(range(3), a=2))
    raced = scripted(filled)
    raced.before = [lambda: change(filled)]
    with pytest.raises(ContractMismatch, match=f"version {filled.dataset.version + 2}"):
        filled.round(context=filled.context(raced))
    version = filled.dataset.version
    assert version in filled.recorded()
    assert version not in filled.finished()
    with pytest.raises(ContractMismatch):
        filled.round()
    if change is rename:  # the way back
        filled.dataset.alter_columns({"path": "text", "name": "s"})
        filled.round()
        assert version in filled.finished()
        filled.check()


@pytest.mark.parametrize("change", [add, widen])
def test_columns_added_or_retyped_in_between_refuse(filled: FlusherTable, change: Any) -> None:
    filled.generation(0, upserts(range(3), a=2))
    raced = scripted(filled)
    raced.before = [lambda: change(filled)]
    with pytest.raises(ContractMismatch):
        filled.round(context=filled.context(raced))
    assert filled.states(0) == ["MERGED", "FLUSHED"]


# -- anything at all -------------------------------------------------------------------------------------------


@pytest.mark.in_turns("hash_bits", "seed", each=2)
@pytest.mark.usefixtures("hash_bits")
@pytest.mark.parametrize("seed", range(3))
def test_random_histories(tmp_path: Path, seed: int) -> None:
    """Random operations, limits, users and losses: after each round the table equals the model."""
    import random

    rng = random.Random(seed)
    table = FlusherTable(tmp_path, partitions=3, stable_row_ids=seed % 2 == 1)

    def operation() -> Operation:
        id = rng.randrange(40)
        return rng.choice(
            [
                upsert(id, a=rng.randrange(1_000), s=rng.choice([None, "x", "y"])),
                patch(id, **{name: rng.choice([None, 1]) for name in rng.sample(["a"], rng.randrange(2))}),
                patch(id, s=f"p{rng.randrange(100)}"),
                delete(id),
            ]
        )

    scripted_table = ScriptedTable(table.uri)
    context = table.context(scripted_table)
    for step in range(12):
        for partition in range(3):
            for _ in range(rng.randrange(3)):
                table.generation(partition, [operation() for _ in range(rng.randrange(1, 30))])
        match rng.randrange(6):
            case 0:
                id = 1_000 + step
                scripted_table.before = [lambda id=id: table.user_append(0, [id], in_model=True)]  # type: ignore[misc] # no type for a default
            case 1:
                scripted_table.before = [table.round]
            case 2:
                scripted_table.lose_request = 1
            case 3:
                table.dataset.optimize.compact_files(target_rows_per_fragment=1_000)
            case 4:
                context = table.context(scripted_table)
            case _:
                table.clean_up()
        table.round(OPEN_ROWS.__class__(adopt_rows=rng.choice([1, 10, 1_000])), context=context)
        table.check()
    table.close()


# -- deletion vectors --------------------------------------------------------------------------------------------


def deletion_files(table: FlusherTable) -> dict[int, str | None]:
    return {f.fragment_id: f.deletion_file() for f in table.dataset.get_fragments()}


def test_a_fragment_whose_rows_are_hidden_already_keeps_its_deletion_vector(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    table.generation(0, upserts(range(5), a=1))
    table.round()
    before = deletion_files(table)
    table.generation(0, upserts(range(4), a=2))  # each lies in both fragments, live in the second alone
    (merge,) = table.round().merges
    after = deletion_files(table)
    assert merge.rows_replaced == 4
    assert after[0] == before[0] is not None
    assert after[1] != before[1]
    table.check()


def test_a_key_that_was_deleted_and_comes_again_changes_no_deletion_vector(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    table.generation(0, [delete(7), delete(8)])
    table.round()
    before = deletion_files(table)
    table.generation(0, [upsert(7, a=7), patch(8, a=8)])
    (merge,) = table.round().merges
    assert merge.rows_replaced == 0
    assert {i: deletion_files(table)[i] for i in before} == before
    table.check()


# -- merges that are put off -------------------------------------------------------------------------------------


ONE_OF_EACH = [upsert(start, a=1) for start in range(0, 60, 10)]


def _waiting_for_more(table: FlusherTable) -> tuple[ManualClock, Callable[[], MergeResult]]:
    """Six fragments of ten rows, and a flusher that waits 30 s with an upsert of ``ONE_OF_EACH``."""
    clock = ManualClock()
    context = replace(table.context(), clock=clock)
    for start in range(0, 60, 10):
        table.generation(0, upserts(range(start, start + 10)))
        table.round()
    return clock, partial(merge_next, context, MergeLimits(adopt_rows=1, defer_s=30), FirstSeen())


def test_a_merge_that_would_write_mostly_deletion_vectors_waits_for_more(table: FlusherTable) -> None:
    clock, merge = _waiting_for_more(table)
    version = table.dataset.version
    table.generation(0, ONE_OF_EACH)
    for waited_s in (0, 10, 29):
        clock.seconds = waited_s
        left = merge()
        assert isinstance(left, NothingToMerge)
        assert left.deferred
        assert [len(records) for records in unmerged(left.states, left.in_force).values()] == [1]
    assert table.dataset.version == version
    clock.seconds = 30
    assert isinstance(merge(), Merged)
    table.check()


def test_a_region_that_waits_for_a_repair_makes_no_other_hurry(table: FlusherTable) -> None:
    clock, merge = _waiting_for_more(table)
    table.generation(1, upserts(range(5)))
    damaged = Path(table.uri) / table.flushed(1, 1).key
    damaged.write_bytes(damaged.read_bytes()[:-3])
    assert isinstance(merge(), NothingToMerge)
    clock.seconds = 1_000
    table.generation(0, ONE_OF_EACH)
    left = merge()
    assert isinstance(left, NothingToMerge)
    assert left.deferred
    assert list(left.left) == [table.regions[1]]
    clock.seconds = 1_030
    assert isinstance(merge(), Merged)


@pytest.mark.parametrize(("defer_s", "freshness_target_s", "expected"), [(60.0, 10.0, 10.0), (5.0, 10.0, 5.0)])
def test_no_merge_waits_longer_than_the_table_may_be_stale(
    table: FlusherTable, defer_s: float, freshness_target_s: float, expected: float
) -> None:
    settings = Settings.model_validate({"flusher": {"merge_defer_s": defer_s}})
    contract = table.contract.model_copy(update={"freshness_target_s": freshness_target_s})
    assert merge_limits(settings, contract).defer_s == expected


def test_a_merge_of_mostly_rows_does_not_wait(table: FlusherTable) -> None:
    limits = MergeLimits(adopt_rows=1, defer_s=30)
    table.generation(0, upserts(range(1000)))
    assert isinstance(merge_next(table.context(), limits), Merged)
    table.round()
    table.generation(0, upserts(range(900, 2000), a=1))
    assert isinstance(merge_next(table.context(), limits), Merged)
    table.check()


def test_the_size_of_deletion_vectors_is_about_what_lance_writes(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, partitions=1)
    table.user_append(0, range(200_000), in_model=False)
    folder = Path(table.uri) / "_deletions"
    for rows in (10, 1_000, 5_000, 100_000):
        (fragment,) = table.dataset.get_fragments()
        before = set(folder.glob("*"))
        fragment.delete_rows(list(range(0, 2 * rows, 2)))
        (written,) = set(folder.glob("*")) - before
        pinned = table.context().table.newest()
        estimated = deletion_bytes(pinned.fragments(), {fragment.fragment_id: rows})
        assert 0.4 < estimated / written.stat().st_size < 2.5, (rows, estimated, written.stat().st_size)
    table.close()
