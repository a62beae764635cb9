"""Finishing a merge on real Lance tables: rows that users appended in between, files lost before the commit, crashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_core.errors import MergeUnproven, ObjectMissing, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.process import failpoints
from lancewal_core.process.failpoints import FailpointError
from lancewal_core.region.states import RegionStates
from lancewal_core.store.object_store import PutOutcome, PutUnknown
from lancewal_core.table.lance import row_files
from lancewal_core.table.protocol import CommitOutcome, TableCommit, TransactionInfo, fragment_files
from lancewal_core.table.watermarks import PROPERTY_FOLLOWUP, PROPERTY_WATERMARKS, InForce
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import Merged, merge_next
from tests.support.flusher_tables import COMBINE, OPEN_ROWS, FlusherTable, ScriptedTable, delete, patch, upsert, upserts


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Two regions with a fragment each: ids 0 to 9."""
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(10)))
    made.round()
    made.generation(1, upserts(range(10)))
    made.round()
    yield made
    made.close()


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Arm a failpoint; the empty text disarms."""

    def arm(spec: str) -> None:
        failpoints.configure({"LANCEWAL_FAILPOINT": f"{spec}=error", "LANCEWAL_TESTING": "1"} if spec else {})

    yield arm
    failpoints.configure({})


def raced(table: FlusherTable, *between: Callable[[], object]) -> ScriptedTable:
    scripted = ScriptedTable(table.uri)
    scripted.before = list(between)
    return scripted


def newest_transaction(table: FlusherTable) -> TransactionInfo:
    found = table.context().table.transaction(table.dataset.version)
    assert isinstance(found, TransactionInfo)
    return found


# -- rows that users append between plan and commit ------------------------------------------------------------


def test_a_file_of_others_that_must_be_searched_is_gone(table: FlusherTable) -> None:
    """Damage, which a service waits for: nothing is taken for finished that could not be looked through."""
    table.generation(0, upserts(range(5, 15), a=1))
    appending = raced(table, lambda: table.user_append(0, [7], in_model=False))
    assert isinstance(merge_next(table.context(appending), OPEN_ROWS), Merged)
    version = table.dataset.version
    (appended,) = lance.dataset(table.uri, version=version - 1).get_fragments()[-1].data_files()
    file = Path(table.uri) / "data" / appended.path
    data = file.read_bytes()
    file.unlink()
    with pytest.raises(ObjectMissing, match=f"version {version} refers to a file that is gone"):
        finish_newest(table.context())
    assert version not in table.finished()
    file.write_bytes(data)
    finished = finish_newest(table.context()).finished
    assert finished is not None
    assert finished.rows_hidden == 1
    table.check()


def test_the_same_key_appended_in_between_is_hidden(table: FlusherTable) -> None:
    table.generation(0, [*upserts(range(5, 15), a=1), patch(3, a=3), delete(4), delete(88)])

    def append() -> None:
        table.user_append(0, [7, 14, 3, 4, 88], in_model=False)  # Kafka's rows and deletes win
        table.user_append(0, [300], in_model=True)

    report = table.round(context=table.context(raced(table, append)))
    (merge,) = report.merges
    (finished,) = report.finished
    assert (finished.version, finished.rows_hidden) == (merge.version, 5)
    assert merge.version in table.finished()
    properties = newest_transaction(table).properties
    assert properties[PROPERTY_FOLLOWUP]
    assert PROPERTY_WATERMARKS not in properties
    table.check()
    assert table.round().finished == ()
    table.check()


@pytest.mark.parametrize("comes_back", ["restored", "updated"])
def test_an_appended_key_that_comes_back_shows_twice_until_kafkas_next_row(
    table: FlusherTable, fail: Callable[[str], None], comes_back: str
) -> None:
    """By a restore to a version below the follow-up, or by an update before it: what the conflicts page says."""
    table.generation(0, [upsert(7, a=1)])
    context = table.context(raced(table, lambda: table.user_append(0, [7], in_model=False)))
    if comes_back == "restored":
        (merge,) = table.round(context=context).merges
        table.check()
        table.dataset.checkout_version(merge.version).restore()
        marks = table.context().watermarks
        merged = marks.at(merge.version).regions
        marks.decide(InForce(TableVersion(table.dataset.version), None, merged), "keep")  # `repair restored`
    else:
        fail("merges.put:before")
        with pytest.raises(FailpointError):
            table.round(context=context)
        fail("")
        table.dataset.update({"a": "a + 100"}, where="region = 'r0' and id = 7")
    table.round()
    assert table.dataset.count_rows("region = 'r0' and id = 7") == 2
    table.generation(0, [upsert(7, a=2)])
    table.round()
    table.check()


@pytest.mark.parametrize("equal", [False, True], ids=["other values", "Kafka's own values"])
def test_appended_rows_are_hidden_where_a_compaction_has_moved_them(
    table: FlusherTable, fail: Callable[[str], None], equal: bool
) -> None:
    table.generation(0, [*upserts(range(5, 15), a=-1 if equal else 1), delete(4)])
    context = table.context(raced(table, lambda: table.user_append(0, [7, 14, 4], in_model=False)))
    fail("merges.put:before")
    with pytest.raises(FailpointError):
        table.round(context=context)
    fail("")
    before = table.dataset.count_rows()
    table.dataset.optimize.compact_files(target_rows_per_fragment=1_000, materialize_deletions_threshold=0.0)
    fail("followup.commit:after")  # done twice: the first time nobody hears of it
    with pytest.raises(FailpointError):
        finish_newest(table.context())
    fail("")
    finish_newest(table.context())
    assert table.dataset.count_rows() == before - 3
    table.check()


def test_a_whole_fragment_of_appended_rows_goes_away(table: FlusherTable) -> None:
    table.generation(0, upserts(range(20, 25), a=1))
    table.round(context=table.context(raced(table, lambda: table.user_append(0, [20, 21], in_model=False))))
    table.check()
    assert len(table.dataset.get_fragments()) == 3


def test_combined_generations_hide_appended_rows(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5, 15), a=1))
    table.generation(0, [delete(6), patch(7, s="x")])
    report = table.round(COMBINE, table.context(raced(table, lambda: table.user_append(0, [6, 7, 14], in_model=False))))
    assert [f.rows_hidden for f in report.finished] == [3]
    table.check()


def test_keys_of_another_region_stay(table: FlusherTable) -> None:
    table.generation(0, upserts(range(20, 25), a=1))
    report = table.round(context=table.context(raced(table, lambda: table.user_append(1, [20, 21], in_model=True))))
    assert [f.rows_hidden for f in report.finished] == [0]
    table.check()


def test_appended_before_the_plan_is_replaced_by_the_merge(table: FlusherTable) -> None:
    table.user_append(0, [20, 5], in_model=False)
    table.generation(0, upserts([5, 20], a=1))
    table.round()
    table.check()


def test_a_crash_before_the_follow_up(table: FlusherTable) -> None:
    """The next flusher finishes it, before it merges or marks anything."""
    table.generation(0, upserts(range(5, 15), a=1))
    result = merge_next(table.context(raced(table, lambda: table.user_append(0, [7], in_model=False))), OPEN_ROWS)
    assert isinstance(result, Merged)
    assert result.version not in table.finished()
    table.generation(0, [upsert(200)])
    refused = merge_next(table.context(), OPEN_ROWS)
    assert isinstance(refused, Refused)
    assert "not finished" in refused.reason
    report = table.round()
    assert [f.rows_hidden for f in report.finished] == [1, 0]
    table.check()
    assert table.states(0) == ["MERGED"] * 3


def test_versions_below_the_merge_cleaned_up_before_it_is_finished(table: FlusherTable) -> None:
    """What finishing needs stands in the merge's own transaction; the proof rests on a checkpoint."""
    table.generation(0, upserts(range(5, 15), a=1))

    def append() -> None:
        table.user_append(0, [7, 8], in_model=False)
        context = table.context()
        newest = context.table.newest().version
        context.watermarks.record(context.watermarks.at(newest), newest, "checkpoint")

    assert isinstance(merge_next(table.context(raced(table, append)), OPEN_ROWS), Merged)
    table.clean_up()
    report = table.round()
    assert [f.rows_hidden for f in report.finished] == [2]
    table.check()


def test_an_unfinished_merge_whose_version_is_gone_stops(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5, 15), a=1))
    assert isinstance(merge_next(table.context(), OPEN_ROWS), Merged)
    table.user_append(1, [100], in_model=True)
    table.clean_up()
    with pytest.raises(MergeUnproven, match="never finished"):
        table.round()
    assert table.states(0) == ["MERGED", "FLUSHED"]


def test_the_follow_up_is_planned_again_after_a_conflict(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5, 15), a=1))
    scripted = raced(
        table,
        lambda: table.user_append(0, [7, 8], in_model=False),
        lambda: table.user_delete(0, 0),  # before the follow-up: in the sentinel
    )
    report = table.round(context=table.context(scripted))
    assert [f.rows_hidden for f in report.finished] == [2]
    table.check()


def test_the_follow_ups_reply_is_lost(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.generation(0, upserts(range(5, 15), a=1))
    context = table.context(raced(table, lambda: table.user_append(0, [7, 8], in_model=False)))
    assert isinstance(merge_next(context, OPEN_ROWS), Merged)
    commit = lance.LanceDataset.commit

    def lose(*arguments: Any, **options: Any) -> Any:
        commit(*arguments, **options)
        raise OSError("connection reset")

    monkeypatch.setattr(lance.LanceDataset, "commit", lose)
    before = table.dataset.version
    finished = finish_newest(context).finished
    assert finished is not None
    assert finished.rows_hidden == 2
    assert table.dataset.version == before + 1
    table.check()


def test_two_flushers_finish_the_same_merge(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5, 15), a=1))
    scripted = raced(
        table,
        lambda: table.user_append(0, [7, 8], in_model=False),
        table.round,  # the other one finishes (and goes on) before our follow-up
    )
    table.round(context=table.context(scripted))
    table.check()
    followups = [
        version
        for version in range(1, table.dataset.version + 1)
        if isinstance(info := table.context().table.transaction(version), TransactionInfo)
        and PROPERTY_FOLLOWUP in info.properties
    ]
    assert len(followups) == 1


@pytest.mark.parametrize("known", [False, True])
def test_a_flusher_that_finishes_what_is_finished_and_trimmed(tmp_path: Path, known: bool) -> None:
    """It asked whether the merge is finished, and then another one finished it, merged on, and trimmed all of it: before or
    after the slow one has read which generations it took."""
    table = FlusherTable(tmp_path, history_window_s=0, grace_s=0)
    table.generation(0, upserts(range(10)))
    table.round()
    table.generation(0, upserts(range(5, 15), a=1))
    slow = table.context(raced(table, lambda: table.user_append(0, [7], in_model=False)))
    assert isinstance(merge_next(slow, OPEN_ROWS), Merged)
    read = RegionStates.read
    garbage = GarbageState()

    def late(states: RegionStates, regions: Any) -> Any:
        patched.undo()
        seen = read(states, regions)
        table.round()
        table.generation(0, [upsert(1, a=9)])
        table.round()
        for _ in range(2):
            collect_garbage(table.context(), garbage)
        assert next(r.generation for r in table.index(0).generations) > 2
        return seen if known else read(states, regions)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RegionStates, "read", late)
        assert finish_newest(slow).finished is None
    table.check()
    table.close()


def test_a_follow_up_that_loses_every_race_is_tried_by_the_next_round(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5, 15), a=1))
    scripted = raced(table, lambda: table.user_append(0, [7], in_model=False))
    context = table.context(scripted)
    assert isinstance(merge_next(context, OPEN_ROWS), Merged)
    scripted.lose_request = 100
    with pytest.raises(StoreUnavailable, match=r"was refused .* times"):
        finish_newest(context)
    assert table.states(0) == ["MERGED", "FLUSHED"]
    table.round()
    table.check()


# -- files lost ------------------------------------------------------------------------------------------------


def test_flush_files_lost_before_the_merge_are_rebuilt(table: FlusherTable) -> None:
    table.generation(0, [*upserts(range(5, 15), a=1), delete(1), patch(2, a=2)], segments=3)
    before = table.record(0, 2).flush
    table.remove_files(table.flushed(0, 2))
    table.round()
    assert table.record(0, 2).flush != before
    table.check()


@pytest.mark.parametrize("file", list(paths.FlushFile))
def test_flush_objects_lost_before_the_merge_are_rebuilt(table: FlusherTable, file: paths.FlushFile) -> None:
    table.generation(0, [*upserts(range(5, 15), a=1), delete(1), patch(2, a=2)])
    key = table.record(0, 2).flush
    assert key is not None
    folder = key.rpartition("/")[0]
    table.store.delete([f"{folder}/{file.value}"])
    table.round()
    table.check()


def test_a_clean_up_of_unverified_files_before_the_merge(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5, 15), a=1))
    table.generation(1, [delete(3)])
    table.clean_up(delete_unverified=True)
    with pytest.raises(ObjectMissing):
        list(table.context().table.read_unadopted(table.flushed(0, 2).fragments, ["id"]))
    table.round()
    table.check()


def test_a_lost_flush_whose_log_is_gone_too_stops(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5, 15), a=1))
    table.remove_files(table.flushed(0, 2))
    table.take_away(paths.WAL)
    with pytest.raises(ObjectMissing, match="cannot be rebuilt"):
        table.round()
    assert table.states(0) == ["MERGED", "FLUSHED"]


def test_adopted_files_lost_between_check_and_commit_are_rebuilt(table: FlusherTable) -> None:
    table.generation(0, [*upserts(range(5, 15), a=1), delete(2)])
    table.generation(1, upserts(range(8, 12), a=1))
    report = table.round(context=table.context(raced(table, lambda: table.clean_up(delete_unverified=True))))
    assert [(f.rows_hidden, f.fragments_rebuilt) for f in report.finished] == [(0, 2)]
    table.check()
    table.generation(0, upserts(range(9, 12), a=2))
    table.round()
    table.check()


def test_adopted_files_lost_and_all_older_versions_cleaned_up(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5, 15), a=1))
    context = table.context(raced(table, lambda: table.clean_up(delete_unverified=True)))
    assert isinstance(merge_next(context, OPEN_ROWS), Merged)
    table.clean_up()
    report = table.round()
    assert [f.fragments_rebuilt for f in report.finished] == [1]
    table.check()


def test_one_of_several_adopted_files_is_lost(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush is rebuilt as a whole: none of its other files may stay beside."""
    monkeypatch.setattr(row_files, "ROWS_PER_FILE", 100)
    table.generation(0, upserts(range(5, 355), a=1))
    flushed = table.flushed(0, 2)
    assert len(flushed.fragments) == 4
    name = fragment_files(flushed.fragments[1])[0]

    def lose() -> None:
        (Path(table.uri) / "data" / name).unlink()
        table.user_append(0, [7], in_model=False)

    report = table.round(context=table.context(raced(table, lose)))
    assert [(f.rows_hidden, f.fragments_rebuilt) for f in report.finished] == [(1, 4)]
    table.check()


def test_adopted_files_lost_with_their_log_are_named(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5, 15), a=1))

    def lose() -> None:
        table.clean_up(delete_unverified=True)
        table.take_away(paths.WAL)

    context = table.context(raced(table, lose))
    for _ in range(2):  # and again, until they are back
        with pytest.raises(ObjectMissing, match="repair segment"):
            table.round(context=context)
    assert table.states(0) == ["MERGED", "FLUSHED"]


def test_lost_files_that_nothing_explains_stop(table: FlusherTable) -> None:
    """Rows that the merge itself wrote; only a person can help."""
    table.generation(0, [upsert(5, a=1)])
    table.generation(0, [upsert(6, a=1)])
    context = table.context(raced(table, lambda: table.clean_up(delete_unverified=True)))
    with pytest.raises(ObjectMissing, match="data files that are gone"):
        table.round(COMBINE, context)
    assert table.states(0) == ["MERGED", "FLUSHED", "FLUSHED"]


def test_files_that_nobody_needs_any_more_are_not_missed(table: FlusherTable) -> None:
    """The flusher slept right behind its commit; meanwhile a user has deleted the merge's rows, and a clean-up has come."""

    class Slow(ScriptedTable):
        def commit(self, commit: TableCommit) -> CommitOutcome:
            outcome = super().commit(commit)
            if PROPERTY_WATERMARKS in commit.properties:
                table.dataset.delete("region = 'r0' and id in (5, 6)")
                table.clean_up()
            return outcome

    table.generation(0, [upsert(5, a=1)])
    table.generation(0, [upsert(6, a=1)])
    report = table.round(COMBINE, table.context(Slow(table.uri)))
    assert [f.rows_hidden for f in report.finished] == [0]
    assert table.states(0) == ["MERGED", "MERGED", "MERGED"]
    for id in (5, 6):
        del table.model[table.key(0, id)]
    table.check()


# -- crashes ---------------------------------------------------------------------------------------------------

STEPS = [
    "plan.pin:before",
    "plan.pin:after",
    "dv.write:before",
    "dv.write:after",
    "fragment.write:before",
    "fragment.write:after",
    "commit.send:before",
    "commit.send:after",
    "commit.recv:after",
    "merges.put:before",
    "merges.put:after",
    "followup.commit:before",
    "followup.commit:after",
    "merged.cas:before",
    "merged.cas:after",
    "keys.cas:before",
    "keys.cas:after",
]


@pytest.mark.parametrize("step", STEPS)
def test_the_next_round_repairs_a_crash_at(table: FlusherTable, fail: Callable[[str], None], step: str) -> None:
    table.generation(0, [*upserts(range(5, 15), a=1), patch(3, a=3), delete(4)])
    table.generation(1, [patch(3, a=30)])
    context = table.context(raced(table, lambda: table.user_append(0, [7, 4], in_model=False)))
    fail(step)
    with pytest.raises(FailpointError):
        table.round(context=context)
    fail("")
    table.round()
    table.check()
    merge = max(table.finished())
    assert merge in table.recorded(), "also where the record was missing"
    assert table.states(0) == ["MERGED", "MERGED"]
    assert table.states(1) == ["MERGED", "MERGED"]
    before = table.dataset.version
    report = table.round()
    assert (report.merges, report.finished, table.dataset.version) == ((), (), before)


def test_the_finished_object_is_not_written_before_its_time(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that refuses exactly this object: everything else is done, nothing is marked."""
    table.generation(0, upserts(range(5, 15), a=1))
    context = table.context(raced(table, lambda: table.user_append(0, [7], in_model=False)))
    put = type(table.store).put_if_absent

    def refuse(self: Any, key: str, data: bytes) -> Any:
        if key.endswith(".finished.json"):
            raise StoreUnavailable("503")
        return put(self, key, data)

    monkeypatch.setattr(type(table.store), "put_if_absent", refuse)
    with pytest.raises(StoreUnavailable, match=r"finished\.json"):
        table.round(context=context)
    assert table.states(0) == ["MERGED", "FLUSHED"]
    table.check()
    monkeypatch.undo()
    report = table.round()
    assert [f.rows_hidden for f in report.finished] == [0]
    assert table.states(0) == ["MERGED", "MERGED"]
    table.check()


def test_a_record_that_says_otherwise_is_named(table: FlusherTable) -> None:
    from lancewal_core.errors import ObjectCorrupt

    table.generation(0, [upsert(1, a=1)])
    version = TableVersion(table.dataset.version + 1)
    old = table.store.get(paths.merge_record(TableVersion(table.dataset.version), None))
    assert old is not None
    table.store.put_if_absent(paths.merge_record(version, None), old)
    with pytest.raises(ObjectCorrupt, match="other merged positions"):
        table.round()


def test_the_rebuilt_flush_is_the_one_that_is_named(table: FlusherTable) -> None:
    table.generation(0, [*upserts(range(5, 15), a=1), delete(1)])
    old = table.flushed(0, 2)
    table.remove_files(old)
    table.round()
    new = table.flushed(0, 2)
    assert (new.key == old.key, new.rows) == (False, old.rows)


def test_a_merge_is_finished_behind_its_record_only(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two commits of users on top, and a clean-up that takes what is finished, would leave nobody who knows W."""
    table.generation(0, upserts(range(3), a=1))
    context = table.context()
    real, lost = type(context.store).put_if_absent, [True]

    def put_if_absent(store: Any, key: str, data: bytes) -> PutOutcome:
        if lost and paths.parse_merge_record(key) == table.dataset.version:
            return PutUnknown("no reply")
        return real(store, key, data)

    monkeypatch.setattr(type(context.store), "put_if_absent", put_if_absent)
    with pytest.raises(StoreUnavailable, match="it is unknown whether"):
        table.round(context=context)
    version = table.dataset.version
    assert version not in table.finished()
    lost.clear()
    table.round()
    assert version in table.finished()
    for id in (300, 301):
        table.user_append(0, [id], in_model=True)
    table.dataset.cleanup_old_versions(retain_versions=2, older_than=timedelta(0))
    table.check()
    assert table.context().watermarks.newest()[1].version == version
