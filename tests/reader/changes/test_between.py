"""Rows that two versions do not share: exact ones in small cases, and in random histories never too few."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import ContractMismatch, VersionGone
from lancewal_core.table.protocol import (
    ColumnsCommit,
    PinnedTable,
    RewrittenFragments,
    StoredTable,
    TableCommit,
    TransactionInfo,
    TransactionResult,
)
from lancewal_reader.changes import cells
from lancewal_reader.changes.between import Between, between
from tests.conformance.test_table import TwinUser
from tests.reader.changes.histories import History, landed

Groups = tuple[RewrittenFragments, ...]


@pytest.fixture(params=["twin", "lance"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    """Three fragments: keys 0 to 9, 10 to 19, 20 to 29."""
    made = History(None if request.param == "twin" else tmp_path / "table")
    for _ in range(3):
        made.append(10)
    return made


def keys_of(history: History, version: int, addresses: Any) -> list[int]:
    rows = history.rows_of(history.table.at(version), ["k"])
    return sorted(rows[address][0] for address in addresses.tolist())


def changed(history: History, before: int, after: int, **asked: Any) -> tuple[list[int], list[int]]:
    """Keys of rows that have gone and come; the other way round they are the same."""
    found = history.check(before, after)
    back = history.between(after, before, end=after)
    assert (found.gone.tolist(), found.come.tolist()) == (back.come.tolist(), back.gone.tolist())
    assert found.compared_fragments == back.compared_fragments == asked.get("untraced", 0)
    return keys_of(history, before, found.gone), keys_of(history, after, found.come)


def version_of(history: History) -> int:
    return int(history.newest.version)


class Noted:
    """A version that notes which calls of it read something."""

    def __init__(self, pinned: PinnedTable, calls: list[tuple[str, Any]]) -> None:
        self._pinned, self._calls = pinned, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._pinned, name)
        if name not in ("hidden_rows", "take", "scan", "all_rows", "fragment_json"):
            return found

        def noted(asked: Any, columns: Any = None, **more: Any) -> Any:
            self._calls.append((name, asked if columns is None else tuple(columns)))
            return found(asked, **more) if columns is None else found(asked, columns, **more)

        return noted


class NotedTable:
    """A table that notes which versions are opened, and what is read of them."""

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self.calls: list[tuple[str, Any]] = []
        self.opened: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def at(self, version: int) -> PinnedTable:
        self.opened.append(version)
        return cast("PinnedTable", Noted(self._table.at(version), self.calls))


def noted(history: History, before: int, after: int) -> tuple[Between, NotedTable]:
    table = NotedTable(history.table)
    opened = history.opened(cast("StoredTable", table))
    names = list(history.names_of(after).values())
    versions = table.at(before), table.at(after)
    table.opened.clear()
    return between(opened, *versions, history.rows_wanted(after), names), table


# -- fragments that both versions have -------------------------------------------------------------------------------


def test_a_merge_takes_the_place_of_rows(history: History) -> None:
    before = version_of(history)
    history.update([12, 14])
    assert changed(history, before, version_of(history)) == ([12, 14], [12, 14])
    _, seen = noted(history, before, version_of(history))
    assert seen.calls == [("hidden_rows", 1)]  # in the newer version; no data file, and no other fragment
    history.delete([3])
    history.append(2)
    assert changed(history, before, version_of(history)) == ([3, 12, 14], [12, 14, 30, 31])
    assert changed(history, before, before) == ([], [])


def test_no_data_file_is_read_for_rows_that_are_told_apart_by_their_places(tmp_path: Path) -> None:
    history = History(tmp_path / "table")
    for _ in range(3):
        history.append(10)
    before = version_of(history)
    history.update([12, 14])
    merged = version_of(history)
    history.rewrite([0, 2], 7)
    history.delete([4])
    history.compact(1_000)
    for file in (tmp_path / "table" / "data").iterdir():
        file.unlink()
    found = history.between(before, merged)
    assert (len(found.gone), len(found.come)) == (2, 2)
    found = history.between(before, version_of(history))
    assert (len(found.gone), len(found.come), found.compared_fragments) == (3, 2, 0)


def test_deletion_vectors_of_equal_length_are_told_apart(history: History) -> None:
    start = version_of(history)
    history.delete([3])
    one = version_of(history)
    history.restore(start)
    history.delete([5])
    assert changed(history, one, version_of(history)) == ([5], [3])


def test_a_fragment_that_lost_all_its_rows(history: History) -> None:
    before = version_of(history)
    history.delete(range(10))
    history.append(1)
    assert changed(history, before, version_of(history)) == ([*range(10)], [30])


def test_only_columns_that_were_written_are_read(history: History) -> None:
    history.delete([11])
    before = version_of(history)
    history.in_place("n", {2: 100, 3: 100}, at=1)
    assert changed(history, before, version_of(history)) == ([12, 13], [12, 13])
    _, seen = noted(history, before, version_of(history))
    assert {name for name, _ in seen.calls} == {"hidden_rows", "take"}
    assert {asked for name, asked in seen.calls if name == "take"} == {("n",)}
    assert {asked for name, asked in seen.calls if name == "hidden_rows"} == {1}
    # The old values again, by a third file; of another column nothing is asked.
    history.in_place("n", dict(enumerate([None] * 10)), at=0)
    assert len(history.between(before, version_of(history), ["k", "t"]).gone) == 0
    assert len(history.between(before, version_of(history), ["k", "n"]).gone) > 2


def test_columns_that_only_one_version_has(history: History) -> None:
    before = version_of(history)
    history.change({}, {"c": "int32"})
    _, seen = noted(history, before, version_of(history))
    assert seen.calls == []  # no file has the column: it is null in all rows
    history.rewrite([1])
    history.in_place("c", {1: 7}, at=2)
    history.append(1)
    assert changed(history, before, version_of(history)) == ([11], [11, 30])
    _, seen = noted(history, before, version_of(history))
    assert {asked for name, asked in seen.calls if name == "take"} == {("c",), ("k",)}  # keys for a row without it
    history.change({"c": None})
    assert changed(history, before, version_of(history)) == ([], [30])


def test_a_renamed_column_is_the_same_one(history: History) -> None:
    before = version_of(history)
    history.change({"n": "m", "t": "n"})
    _, seen = noted(history, before, version_of(history))
    assert seen.calls == []
    history.in_place("n", {0: 99}, at=0)
    assert changed(history, before, version_of(history)) == ([0], [0])


def test_a_wider_column_has_equal_cells(history: History) -> None:
    before = version_of(history)
    history.widen()
    wide = version_of(history)
    assert changed(history, before, wide) == ([], [])
    history.in_place("n", {4: 2**40}, at=1)
    assert changed(history, before, version_of(history)) == ([14], [14])
    with pytest.raises(ContractMismatch, match=f"version {wide} of the Lance table"):
        history.between(before, wide, end=before)


def test_a_member_that_no_file_has(history: History) -> None:
    before, pinned = version_of(history), history.newest
    type_ = pa.struct([*pinned.schema.field("s").type, ("z", pa.int32())])
    schema = pa.schema([f.with_type(type_) if f.name == "s" else f for f in pinned.schema])
    ids = {**pinned.field_ids, "s": (*pinned.field_ids["s"], 50)}
    history.step(lambda: landed(history.table.change_columns(ColumnsCommit(pinned.version, schema, ids, {}))))
    found, seen = noted(history, before, version_of(history))
    assert (len(found.gone), len(found.come), seen.calls) == (0, 0, [])


def test_many_rows_are_compared_in_portions(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "batch_rows", lambda schema: 4)
    before = version_of(history)
    history.in_place("n", {2: 100, 5: 100, 9: 100}, at=1)
    assert changed(history, before, version_of(history)) == ([12, 15, 19], [12, 15, 19])


def test_members_that_others_have_dropped(history: History) -> None:
    before = version_of(history)
    history.step(lambda: history.user.drop_column("s.x"))
    after = version_of(history)
    found = history.between(before, after)
    assert (len(found.gone), len(found.come)) == (0, 0)
    history.in_place("s", {4: {"y": "another"}}, at=2)
    found = history.between(before, version_of(history))
    assert keys_of(history, before, found.gone) == keys_of(history, version_of(history), found.come) == [24]


# -- compaction ------------------------------------------------------------------------------------------------------

COMPACTIONS: Mapping[str, Callable[[History], None]] = {
    "ours": lambda h: h.rewrite([f.fragment_id for f in h.newest.fragments()], 8),
    "copied": lambda h: h.rewrite([f.fragment_id for f in h.newest.fragments()], 8, copy=True),
    "by others": lambda h: h.compact(1_000),
}


@pytest.mark.parametrize("compaction", COMPACTIONS)
def test_rows_are_followed_through_compactions(history: History, compaction: str) -> None:
    compact = COMPACTIONS[compaction]
    before = version_of(history)
    compact(history)
    assert changed(history, before, version_of(history)) == ([], [])
    history.update([5, 25])
    history.delete([0])
    compact(history)
    assert changed(history, before, version_of(history)) == ([0, 5, 25], [5, 25])
    history.append(2)
    compact(history)
    history.delete([7, 31])
    history.config()
    compact(history)
    assert changed(history, before, version_of(history)) == ([0, 5, 7, 25], [5, 25, 30])
    _, seen = noted(history, before, version_of(history))
    assert {name for name, _ in seen.calls} <= {"hidden_rows"}


def test_columns_in_place_before_and_after_compactions(history: History) -> None:
    before = version_of(history)
    history.in_place("n", {1: 91}, at=0)
    history.rewrite([0, 2])
    history.in_place("t", {4: "x"}, at=-1)
    history.rewrite([1])
    history.in_place("n", {9: 99}, at=-1)
    assert changed(history, before, version_of(history)) == ([1, 4, 19], [1, 4, 19])
    _, seen = noted(history, before, version_of(history))
    taken = {asked for name, asked in seen.calls if name == "take"}
    assert taken == {("n", "t"), ("n",)}


def test_columns_in_place_of_rows_that_became_several_fragments(history: History) -> None:
    before = version_of(history)
    history.in_place("n", {9: 91}, at=1)
    history.delete([2])
    history.rewrite([0, 1, 2], 8)
    assert changed(history, before, version_of(history)) == ([2, 19], [19])
    history.rewrite([5, 6], 5)
    assert changed(history, before, version_of(history)) == ([2, 19], [19])


def test_a_column_of_others_that_was_made_anew_with_the_same_id(history: History) -> None:
    """The id is free once no file holds the old column.  By the id it is the same column, with other values."""
    history.step(lambda: history.user.add_column("c"), c="c")
    history.rewrite([0, 1, 2])
    history.in_place("c", {4: "x"}, at=0)
    before, ids = version_of(history), history.newest.field_ids["c"]
    history.step(lambda: history.user.drop_column("c"), c=None)
    history.rewrite([3])
    history.step(lambda: history.user.add_column("d"), d="d")
    assert history.newest.field_ids["d"] == ids
    found = history.between(before, version_of(history))
    assert keys_of(history, before, found.gone) == keys_of(history, version_of(history), found.come) == [4]


def test_few_versions_are_opened_to_find_a_compaction(history: History) -> None:
    before = version_of(history)
    for _ in range(20):
        history.append(1)
    history.rewrite([0, 1])
    for _ in range(42):
        history.append(1)
    found, seen = noted(history, before, version_of(history))
    assert (len(found.gone), len(found.come), found.compared_fragments) == (0, 62, 0)
    assert len(seen.opened) <= 9 + 2
    before = version_of(history)
    for _ in range(30):
        history.append(1)
    _, seen = noted(history, before, version_of(history))
    assert (seen.opened, seen.calls) == ([], [])


# -- what is given whole ---------------------------------------------------------------------------------------------


def test_a_compaction_that_rewrote_an_index_gives_its_fragments_whole(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    history.user.create_index()
    history.append(1)
    before = version_of(history)
    history.rewrite([0], 1_000)
    assert changed(history, before, version_of(history)) == ([], [])
    history.compact(1_000)
    with caplog.at_level(logging.INFO, "lancewal.reader"):
        gone, come = changed(history, before, version_of(history), untraced=4)
    assert (gone, come) == ([*range(31)], [*range(31)])
    events = [cast("Any", record).lancewal for record in caplog.records]
    told = {"event": "fragments_compared", "from_version": before, "to_version": version_of(history), "fragments": 4}
    assert [{**event, "message": ""} for event in events] == [{**told, "message": ""}] * 2


def test_a_compaction_in_a_version_that_was_removed(history: History) -> None:
    before = version_of(history)
    tag(history, before)
    history.rewrite([0, 1])
    history.append(1)
    removed = version_of(history)
    history.append(1)
    history.rewrite([2])
    history.table.remove_versions([version for version in history.table.versions() if before < version <= removed])
    assert changed(history, before, version_of(history), untraced=2) == ([*range(20)], [*range(20), 30, 31])


def test_a_restore_over_a_compaction(history: History) -> None:
    before = version_of(history)
    history.rewrite([0, 1, 2])
    compacted = version_of(history)
    history.restore(before)
    history.delete([4])
    after = version_of(history)
    assert changed(history, before, after) == ([4], [])
    assert changed(history, compacted, after, untraced=1) == ([*range(30)], [k for k in range(30) if k != 4])
    history.rewrite([0, 1, 2])
    history.update([8])
    assert changed(history, before, version_of(history)) == ([4, 8], [8])  # by the rewrite after the restore


def test_fragments_of_a_branch_may_have_the_same_ids(history: History) -> None:
    start = version_of(history)
    assert history.table.create_branch("b", history.newest.version)
    branch = history.table.branch("b")
    pinned = branch.newest()
    hidden = pinned.hide_rows(1, [4])
    assert hidden is not None
    new = branch.write_rows(history.rows([14]), pinned.field_ids)
    landed(branch.commit(TableCommit(pinned.version, new, (hidden,), (), {}, strict=False)))
    history.append(2)
    ours, theirs = history.newest, branch.newest()
    assert ours.fragment_ids().tolist() == theirs.fragment_ids().tolist()
    names = list(history.names_of(start).values())
    found = between(history.opened(), theirs, ours, history.rows_wanted(start), names)
    assert found.gone.tolist() == [3 << 32]
    assert found.come.tolist() == [1 << 32 | 4, 3 << 32, 3 << 32 | 1]


class Altered(NotedTable):
    """A table whose transactions say something else, or whose versions in between cannot be opened."""

    def __init__(self, history: History, groups: Callable[[Groups], Groups] | None = None) -> None:
        super().__init__(history.table)
        self._groups, self._newest = groups, version_of(history)

    def at(self, version: int) -> PinnedTable:
        if self._groups is None and version < self._newest and self.opened:
            raise VersionGone(f"version {version} is gone", version=version)
        return super().at(version)

    def transaction(self, version: int) -> TransactionResult:
        found = self._table.transaction(version)
        if self._groups is None or not isinstance(found, TransactionInfo):
            return found
        return replace(found, rewritten=self._groups(found.rewritten))


UNPROVEN: Mapping[str, Callable[[Groups], Groups] | None] = {
    "a fragment missing": lambda groups: tuple(replace(g, old_ids=g.old_ids[:-1]) for g in groups),
    "an unknown fragment": lambda groups: tuple(replace(g, old_ids=(*g.old_ids, 99)) for g in groups),
    "an unknown file": lambda groups: tuple(replace(g, new_files=("x.lance",)) for g in groups),
    "a clean-up is at work": None,
}


@pytest.mark.parametrize("unproven", UNPROVEN)
def test_a_step_that_is_not_proven_is_not_taken(history: History, unproven: str) -> None:
    before = version_of(history)
    history.rewrite([0, 2])
    history.append(1)
    history.config()
    after = version_of(history)
    table = Altered(history, UNPROVEN[unproven])
    versions = table.at(before), table.at(after)
    names = list(history.names_of(after).values())
    found = between(history.opened(cast("StoredTable", table)), *versions, history.rows_wanted(after), names)
    assert keys_of(history, before, found.gone) == [*range(10), *range(20, 30)]
    assert keys_of(history, after, found.come) == [*range(10), *range(20, 31)]
    assert found.compared_fragments == 2


# -- random histories ------------------------------------------------------------------------------------------------


@pytest.mark.in_turns("seed", each=2)
@pytest.mark.parametrize("seed", range(6))
def test_random_histories_of_the_twin(seed: int) -> None:
    check_random(History(None, seed), pairs=40)


@pytest.mark.in_turns("seed", "stable_row_ids", each=2)
@pytest.mark.parametrize(("seed", "stable_row_ids"), [(1, False), (2, False), (3, False), (4, True)])
def test_random_histories_of_lance_tables(tmp_path: Path, seed: int, stable_row_ids: bool) -> None:
    check_random(History(tmp_path / "table", seed, stable_row_ids=stable_row_ids), pairs=30)


def check_random(history: History, pairs: int) -> None:
    for _ in range(3):
        history.append()
    for _ in range(14):
        history.random_step()
    newest, chance = version_of(history), random.Random(1)
    checked = 0
    for _ in range(pairs):
        before, after = chance.randint(1, newest), chance.randint(1, newest)
        names = sorted(history.names_of(after))
        columns = names if chance.random() < 0.5 else chance.sample(names, chance.randint(1, len(names)))
        try:
            history.check(before, after, columns)
        except ContractMismatch:
            assert history.wide  # a column of the version before is wider
        else:
            checked += 1
    assert checked > pairs // 2


def tag(history: History, version: int) -> None:
    if isinstance(history.user, TwinUser):
        history.user.table.tag(version)
    else:
        lance.dataset(str(history.folder)).tags.create("kept", version)
