"""One suite for the twin and for real Lance tables: whatever the protocols build on is held down here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import ObjectMissing, RewriteFailed, TableMissing, VersionGone
from lancewal_core.names.ids import TableVersion
from lancewal_core.rows.column_types import parse_type
from lancewal_core.table.columns.versions import ids_in_use
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import (
    ROW_ADDRESS,
    AllBut,
    ColumnsCommit,
    CommitLost,
    Committed,
    Conflicted,
    PinnedTable,
    RewriteBounds,
    RewrittenFragments,
    StoredTable,
    TableCommit,
    TransactionGone,
    TransactionInfo,
    TransactionUnreadable,
    columns_mark,
    fields_apart,
    fragment_bytes,
    fragment_files,
    fragment_rows,
    key_file,
)
from tests.twins.memory_table import MemoryDataset, MemoryTable

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": list(keys), "v": [f"v{key}" for key in keys]}, schema=SCHEMA)


class User(Protocol):
    """The table, and what a user does to it beside us."""

    @property
    def table(self) -> StoredTable: ...

    def append(self, rows: pa.Table) -> None: ...

    def delete(self, key: int) -> None: ...

    def compact(self) -> None: ...

    def create_index(self, column: str = "k") -> None: ...

    def update_config(self) -> None: ...

    def add_column(self, name: str) -> None:
        """Add one of texts, all null."""

    def rename_column(self, path: str, name: str) -> None: ...

    def drop_column(self, path: str) -> None: ...

    def restore(self, version: int) -> None: ...

    def overwrite(self, rows: pa.Table) -> None: ...

    def clean_up(self) -> None:
        """Remove all versions but the newest, and all files that no version refers to."""

    def remove_file(self, name: str) -> None: ...


class TwinUser:
    def __init__(self, schema: pa.Schema = SCHEMA) -> None:
        self.table = MemoryTable(MemoryDataset(schema))

    def append(self, rows: pa.Table) -> None:
        self.table.append(rows)

    def delete(self, key: int) -> None:
        self.table.delete_where("k", [key])

    def compact(self) -> None:
        self.table.compact()

    def create_index(self, column: str = "k") -> None:
        self.table.create_index(column)

    def update_config(self) -> None:
        self.table.update_config({"a": "b"})

    def add_column(self, name: str) -> None:
        self.table.add_column(name, "string")

    def rename_column(self, path: str, name: str) -> None:
        self.table.rename_column(path, name)

    def drop_column(self, path: str) -> None:
        self.table.drop_column(path)

    def restore(self, version: int) -> None:
        self.table.restore(version)

    def overwrite(self, rows: pa.Table) -> None:
        self.table.overwrite(rows)

    def clean_up(self) -> None:
        self.table.cleanup(delete_unverified=True)

    def remove_file(self, name: str) -> None:
        del self.table.dataset.files[name]


class LanceUser:
    def __init__(
        self, folder: Path, schema: pa.Schema = SCHEMA, file_format: Any = None, *, stable_row_ids: bool = False
    ) -> None:
        self._folder = folder
        self._uri = str(folder)
        lance.write_dataset(
            schema.empty_table(), self._uri, data_storage_version=file_format, enable_stable_row_ids=stable_row_ids
        )
        self.table = LanceTable(self._uri)

    @property
    def _dataset(self) -> Any:
        return lance.dataset(self._uri)

    def append(self, rows: pa.Table) -> None:
        lance.write_dataset(rows, self._uri, mode="append")

    def delete(self, key: int) -> None:
        self._dataset.delete(f"k = {key}")

    def compact(self) -> None:
        self._dataset.optimize.compact_files(target_rows_per_fragment=1000)

    def create_index(self, column: str = "k") -> None:
        self._dataset.create_scalar_index(column, "BTREE", replace=True)

    def update_config(self) -> None:
        self._dataset.update_config({"a": "b"})

    def add_column(self, name: str) -> None:
        self._dataset.add_columns(pa.field(name, pa.string()))

    def rename_column(self, path: str, name: str) -> None:
        self._dataset.alter_columns({"path": path, "name": name})

    def drop_column(self, path: str) -> None:
        self._dataset.drop_columns([path])

    def restore(self, version: int) -> None:
        old: Any = lance.dataset(self._uri, version=version)
        old.restore()

    def overwrite(self, rows: pa.Table) -> None:
        lance.write_dataset(rows, self._uri, mode="overwrite")

    def clean_up(self) -> None:
        from datetime import timedelta

        self._dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)

    def remove_file(self, name: str) -> None:
        (self._folder / "data" / name).unlink()


@pytest.fixture(params=["twin", "lance"])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> User:
    return TwinUser() if request.param == "twin" else LanceUser(tmp_path / "table")


@pytest.fixture
def filled(user: User) -> User:
    """Two fragments: keys 0 to 9 and 10 to 19."""
    user.append(rows(*range(10)))
    user.append(rows(*range(10, 20)))
    return user


def keys(pinned: PinnedTable) -> list[int]:
    return sorted(k for batch in pinned.scan(["k"]) for k in batch.column("k").to_pylist())


def update(
    pinned: PinnedTable,
    new: Sequence[str] = (),
    updated: Sequence[str] = (),
    removed: Sequence[int] = (),
    **properties: str,
) -> TableCommit:
    return TableCommit(pinned.version, tuple(new), tuple(updated), tuple(removed), properties, strict=False)


def strict(table: StoredTable, pinned: PinnedTable, *new_keys: int) -> TableCommit:
    return replace(update(pinned, table.write_rows(rows(*new_keys))), strict=True)


ADDED = 7
"""Id of a column that ``changed`` adds: above all others."""


def columns_commit(
    pinned: PinnedTable, names: Mapping[str, str], *, added: bool = False, **properties: str
) -> ColumnsCommit:
    """A change to these columns of the version, each with its new name, and perhaps one more, ``n``."""
    fields = [pinned.schema.field(old).with_name(new) for old, new in names.items()]
    ids = {new: pinned.field_ids[old] for old, new in names.items()}
    if added:
        fields, ids = [*fields, pa.field("n", pa.float64())], {**ids, "n": (ADDED,)}
    return ColumnsCommit(pinned.version, pa.schema(fields), ids, properties)


def changed(table: StoredTable, names: Mapping[str, str], *, added: bool = False) -> PinnedTable:
    assert isinstance(table.change_columns(columns_commit(table.newest(), names, added=added)), Committed)
    return table.newest()


def with_sentinel(table: StoredTable, pinned: PinnedTable, *new_keys: int) -> TableCommit:
    return update(pinned, table.write_rows(rows(*new_keys)), [pinned.fragment_json(pinned.fragments()[0].fragment_id)])


# -- reading ---------------------------------------------------------------------------------------------------


def test_a_pin_does_not_move(filled: User) -> None:
    pinned = filled.table.newest()
    filled.append(rows(100))
    filled.delete(3)
    assert keys(pinned) == list(range(20))
    assert keys(filled.table.at(pinned.version)) == list(range(20))
    assert keys(filled.table.newest()) == [0, 1, 2, *range(4, 20), 100]
    assert filled.table.newest().version == pinned.version + 2


def test_versions_have_the_times_of_their_commits(filled: User) -> None:
    filled.append(rows(9))
    versions = sorted(filled.table.versions())
    assert versions == list(range(1, filled.table.newest().version + 1))
    times = [filled.table.commit_time(version) for version in versions]
    assert times == sorted(times)
    filled.clean_up()
    assert set(filled.table.versions()) == {filled.table.newest().version}
    assert filled.table.commit_time(versions[-1]) == times[-1]
    with pytest.raises(VersionGone):
        filled.table.commit_time(versions[0])


def test_an_empty_table_has_version_1_and_no_rows(user: User) -> None:
    pinned = user.table.newest()
    assert (pinned.version, list(pinned.fragments()), keys(pinned)) == (1, [], [])
    assert pinned.schema.names == ["k", "v"]
    empty = pinned.take(pa.array([], pa.uint64()), ["v"])
    assert (empty.num_rows, empty.column_names) == (0, ["v"])


def test_scan_of_some_rows_of_a_fragment(filled: User) -> None:
    """By physical rows: hidden ones are among them, and not given."""
    filled.delete(12)
    pinned = filled.table.newest()
    _, second = (f.fragment_id for f in pinned.fragments())

    def found(rows: range) -> list[int]:
        given: dict[int, int] = {}
        for batch in pinned.scan(["k"], fragment_ids=[second], rows=rows, with_row_address=True):
            given.update(zip(batch["k"].to_pylist(), batch[ROW_ADDRESS].to_pylist(), strict=True))
        assert given == {k: second << 32 | k - 10 for k in given}
        return sorted(given)

    assert (found(range(4)), found(range(4, 10)), found(range(2, 3))) == ([10, 11, 13], [*range(14, 20)], [])


def test_scan_gives_row_addresses_of_live_rows(filled: User) -> None:
    filled.delete(12)
    pinned = filled.table.newest()
    found: dict[str, int] = {}
    for batch in pinned.scan(["v"], with_row_address=True):
        assert batch.schema.names == ["v", ROW_ADDRESS]
        assert batch.schema.field(ROW_ADDRESS).type == pa.uint64()
        found.update(zip(batch.column("v").to_pylist(), batch.column(ROW_ADDRESS).to_pylist(), strict=True))
    first, second = (f.fragment_id for f in pinned.fragments())
    assert found["v3"] == first << 32 | 3
    assert found["v15"] == second << 32 | 5
    assert "v12" not in found
    assert [f.deleted_rows for f in pinned.fragments()] == [0, 1]
    only_second = [k for b in pinned.scan(["k"], fragment_ids=[second]) for k in b.column("k").to_pylist()]
    assert sorted(only_second) == [10, 11, *range(13, 20)]


def test_a_scan_leaves_rows_out_by_their_addresses(filled: User) -> None:
    filled.delete(12)
    pinned = filled.table.newest()
    first, second = (f.fragment_id for f in pinned.fragments())
    without = np.array([first << 32, first << 32 | 9, second << 32 | 3], np.uint64)
    batches = list(pinned.scan(["v"], rows=AllBut(without)))
    assert {tuple(batch.schema.names) for batch in batches} == {("v",)}
    left = [k for k in range(20) if k not in (0, 9, 12, 13)]
    assert sorted(v for batch in batches for v in batch.column("v").to_pylist()) == sorted(f"v{k}" for k in left)
    located = pinned.scan(["k"], fragment_ids=[second], with_row_address=True, rows=AllBut(without))
    found = [row for batch in located for row in batch.to_pylist()]
    assert sorted(row["k"] for row in found) == [k for k in left if k >= 10]
    assert {row[ROW_ADDRESS] - (second << 32) + 10 - row["k"] for row in found} == {0}


def test_take_keeps_the_order_asked_for(filled: User) -> None:
    pinned = filled.table.newest()
    first, second = (f.fragment_id for f in pinned.fragments())
    addresses = [second << 32 | 4, first << 32 | 9, second << 32 | 0, first << 32 | 0]
    taken = pinned.take(pa.array(addresses, pa.uint64()), ["v", "k"])
    assert taken.to_pylist() == [{"v": f"v{k}", "k": k} for k in (14, 9, 10, 0)]


def test_rows_are_taken_beside_a_fragment_whose_file_is_gone(filled: User) -> None:
    first, second = filled.table.newest().fragments()
    filled.remove_file(first.files[0])
    taken = filled.table.newest().take(pa.array([second.fragment_id << 32 | 4], pa.uint64()), ["k"])
    assert taken.to_pylist() == [{"k": 14}]
    with pytest.raises(VersionGone):
        filled.table.newest().take(pa.array([first.fragment_id << 32 | 4], pa.uint64()), ["k"])


def test_taking_a_hidden_row_is_an_error(filled: User) -> None:
    filled.delete(2)
    pinned = filled.table.newest()
    with pytest.raises(VersionGone):
        pinned.take(pa.array([pinned.fragments()[0].fragment_id << 32 | 2], pa.uint64()), ["k"])


# -- deletion vectors ------------------------------------------------------------------------------------------


def test_hidden_rows_disappear_by_the_commit_and_add_up(filled: User) -> None:
    for hidden in ([1, 3], [3, 4]):
        pinned = filled.table.newest()
        fragment = pinned.fragments()[0]
        changed = pinned.hide_rows(fragment.fragment_id, hidden)
        assert changed is not None
        assert fragment_rows(changed) == 10
        assert keys(pinned) == keys(filled.table.newest())
        outcome = filled.table.commit(update(pinned, updated=[changed]))
        assert isinstance(outcome, Committed)
    newest = filled.table.newest()
    assert keys(newest) == [0, 2, *range(5, 20)]
    assert [f.deleted_rows for f in newest.fragments()] == [3, 0]
    assert [f.physical_rows for f in newest.fragments()] == [10, 10]
    assert newest.fragment_ids().tolist() == [f.fragment_id for f in newest.fragments()]
    assert [newest.fragment(f.fragment_id) for f in newest.fragments()] == list(newest.fragments())


def test_hiding_the_last_rows_gives_none_and_the_fragment_is_removed(filled: User) -> None:
    pinned = filled.table.newest()
    fragment = pinned.fragments()[1].fragment_id
    assert pinned.hide_rows(fragment, range(10)) is None
    outcome = filled.table.commit(
        update(pinned, updated=[pinned.fragment_json(pinned.fragments()[0].fragment_id)], removed=[fragment])
    )
    assert isinstance(outcome, Committed)
    assert keys(filled.table.newest()) == list(range(10))


# -- rows that no version refers to ----------------------------------------------------------------------------


def test_unadopted_rows_can_be_read_and_are_adopted_as_they_are(filled: User) -> None:
    table = filled.table
    fragments = table.write_rows(rows(100, 101))
    assert keys(table.newest()) == list(range(20))
    read = pa.Table.from_batches(list(table.read_unadopted(fragments, ["v", "k"])))
    assert read.to_pylist() == [{"v": "v100", "k": 100}, {"v": "v101", "k": 101}]
    pinned = table.newest()
    table.commit(update(pinned, fragments, [pinned.fragment_json(pinned.fragments()[0].fragment_id)]))
    newest = table.newest()
    assert keys(newest) == [*range(20), 100, 101]
    adopted = newest.fragments()[-1]
    assert adopted.files == fragment_files(fragments[0])
    assert adopted.fragment_id > pinned.fragments()[-1].fragment_id


@pytest.mark.parametrize(("start", "stop"), [(0, 14), (0, 3), (2, 5), (3, 14), (9, 10), (10, 14), (11, 13), (4, 4)])
def test_a_range_of_rows_of_files_that_lie_one_behind_the_other(user: User, start: int, stop: int) -> None:
    fragments = [*user.table.write_rows(rows(*range(10))), *user.table.write_rows(rows(*range(10, 14)))]
    read = [row for b in user.table.read_unadopted(fragments, ["v", "k"], range(start, stop)) for row in b.to_pylist()]
    assert read == [{"v": f"v{k}", "k": k} for k in range(start, stop)]


def test_a_lost_file_is_missing_by_name(user: User) -> None:
    kept, lost = user.table.write_rows(rows(1)), user.table.write_rows(rows(2))
    (kept_name,), (lost_name,) = fragment_files(kept[0]), fragment_files(lost[0])
    assert list(user.table.files_missing([kept_name, lost_name])) == []
    user.remove_file(lost_name)
    assert list(user.table.files_missing([kept_name, lost_name])) == [lost_name]
    with pytest.raises(ObjectMissing, match=lost_name):
        list(user.table.read_unadopted([*kept, *lost], ["k"]))


def test_a_clean_up_takes_unadopted_files_with_it(filled: User) -> None:
    fragments = filled.table.write_rows(rows(100))
    filled.clean_up()
    assert list(filled.table.files_missing(fragment_files(fragments[0]))) == list(fragment_files(fragments[0]))


# -- commits ---------------------------------------------------------------------------------------------------


def test_two_strict_first_commits_do_not_both_land(user: User) -> None:
    table, pinned = user.table, user.table.newest()
    early, late = strict(table, pinned, 1, 2), strict(table, pinned, 1, 2)
    assert table.commit(early) == Committed(TableVersion(2))
    assert isinstance(table.commit(late), Conflicted)
    assert keys(table.newest()) == [1, 2]


def test_two_updates_without_a_common_fragment_both_land(filled: User) -> None:
    """The reason for the sentinel."""
    table, pinned = filled.table, filled.table.newest()
    for _ in range(2):
        assert isinstance(table.commit(update(pinned, table.write_rows(rows(100)))), Committed)
    assert keys(table.newest()) == [*range(20), 100, 100]


def test_the_sentinel_makes_the_late_update_conflict(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    early, late = with_sentinel(table, pinned, 100), with_sentinel(table, pinned, 100)
    assert isinstance(table.commit(early), Committed)
    assert isinstance(table.commit(late), Conflicted)
    assert keys(table.newest()) == [*range(20), 100]


UserActs = Callable[[User], object]
#: act, whether an update with the sentinel is rebased over it, whether a strict commit is.
BETWEEN: list[tuple[str, UserActs, bool, bool]] = [
    ("append", lambda u: u.append(rows(50)), True, False),
    ("index", lambda u: u.create_index(), True, True),
    ("config", lambda u: u.update_config(), True, True),
    ("delete of a sentinel's row", lambda u: u.delete(1), False, False),
    ("delete in another fragment", lambda u: u.delete(15), True, False),
    ("compaction", lambda u: u.compact(), False, False),
    ("restore", lambda u: u.restore(1), False, False),
    ("overwrite", lambda u: u.overwrite(rows(7)), False, False),
    ("columns", lambda u: changed(u.table, {"k": "k", "v": "w"}, added=True), True, False),
    ("a column of others", lambda u: u.add_column("w"), False, False),
    ("a column renamed by others", lambda u: u.rename_column("v", "w"), True, False),
    ("a column dropped by others", lambda u: u.drop_column("v"), True, False),
]


@pytest.mark.parametrize(("act", "rebased"), [(a, r) for _, a, r, _ in BETWEEN], ids=[n for n, *_ in BETWEEN])
def test_what_an_update_with_the_sentinel_is_rebased_over(filled: User, act: UserActs, rebased: bool) -> None:
    table, pinned = filled.table, filled.table.newest()
    commit = with_sentinel(table, pinned, 100)
    act(filled)
    before = table.newest()
    expected = [*keys(before), 100] if rebased else keys(before)
    outcome = table.commit(commit)
    assert isinstance(outcome, Committed if rebased else Conflicted), outcome
    newest = table.newest()
    assert keys(newest) == sorted(expected)
    assert newest.version == before.version + rebased
    if rebased:
        assert outcome == Committed(newest.version)
        info = table.transaction(newest.version)
        assert isinstance(info, TransactionInfo)
        assert info.read_version == before.version  # not the version it was computed from


@pytest.mark.parametrize(
    ("act", "rebased"),
    [(a, r) for n, a, _, r in BETWEEN if n not in ("compaction",)],
    ids=[n for n, *_ in BETWEEN if n not in ("compaction",)],
)
def test_what_a_strict_commit_is_rebased_over(user: User, act: UserActs, rebased: bool) -> None:
    table, pinned = user.table, user.table.newest()
    commit = strict(table, pinned, 100)
    act(user)
    outcome = table.commit(commit)
    assert isinstance(outcome, Committed if rebased else Conflicted), outcome


def test_an_update_does_not_pass_a_strict_commit(user: User) -> None:
    table, pinned = user.table, user.table.newest()
    late = update(pinned, table.write_rows(rows(1)))
    assert isinstance(table.commit(strict(table, pinned, 1)), Committed)
    assert isinstance(table.commit(late), Conflicted)


def test_a_strict_commit_does_not_pass_an_update(user: User) -> None:
    table, pinned = user.table, user.table.newest()
    late = strict(table, pinned, 1)
    assert isinstance(table.commit(update(pinned, table.write_rows(rows(1)))), Committed)
    assert isinstance(table.commit(late), Conflicted)


# -- columns ---------------------------------------------------------------------------------------------------


def shown(pinned: PinnedTable) -> list[dict[str, Any]]:
    found = [row for batch in pinned.scan(pinned.schema.names) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["k"])


def test_columns_are_added_renamed_and_put_into_another_order(filled: User) -> None:
    table, before = filled.table, filled.table.newest()
    outcome = table.change_columns(columns_commit(before, {"v": "w", "k": "k"}, added=True, why="test"))
    assert isinstance(outcome, Committed)
    newest = table.newest()
    assert newest.version == outcome.version == before.version + 1
    assert newest.schema.names == ["w", "k", "n"]
    assert newest.schema.field("n").type == pa.float64()
    assert [newest.schema.field(name).nullable for name in newest.schema.names] == [True, False, True]
    assert newest.field_ids == {"w": before.field_ids["v"], "k": before.field_ids["k"], "n": (ADDED,)}
    assert shown(newest) == [{"w": f"v{k}", "k": k, "n": None} for k in range(20)]
    assert newest.take(pa.array([0], pa.uint64()), ["n", "w"]).to_pylist() == [{"n": None, "w": "v0"}]
    assert [f.files for f in newest.fragments()] == [f.files for f in before.fragments()]
    assert shown(before) == [{"k": k, "v": f"v{k}"} for k in range(20)]
    info = table.transaction(newest.version)
    assert isinstance(info, TransactionInfo)
    assert (info.operation, info.properties) == ("Project", {"why": "test"})


def test_the_name_of_a_change_stays_through_other_commits(filled: User) -> None:
    table = filled.table
    before = table.newest()
    assert columns_mark(before) is None
    commit = columns_commit(before, {"k": "k", "v": "v"}, added=True)
    filled.append(rows(100))  # lands between
    assert isinstance(table.change_columns(replace(commit, mark="2-é")), Committed)
    assert columns_mark(table.newest()) == "2-é"
    pinned = table.newest()
    assert_committed(table.commit(update(pinned, table.write_rows(rows(200)))))
    assert columns_mark(table.newest()) == "2-é"
    newest = table.newest()
    commit = replace(columns_commit(newest, {"k": "k", "v": "w"}), mark="3-a..4-b 9 11")
    assert_committed(table.change_columns(commit))
    assert columns_mark(table.newest()) == "3-a..4-b 9 11"
    last = changed(table, {"k": "k"})
    assert columns_mark(last) is None
    assert columns_mark(before) is None


def test_a_dropped_column_is_gone_and_one_of_its_name_has_none_of_its_values(filled: User) -> None:
    table = filled.table
    old = table.newest().field_ids["v"]
    assert shown(changed(table, {"k": "k"})) == [{"k": k} for k in range(20)]
    newest = table.newest()
    again = ColumnsCommit(newest.version, SCHEMA, {**newest.field_ids, "v": (9,)}, {})
    assert isinstance(table.change_columns(again), Committed)
    assert shown(table.newest()) == [{"k": k, "v": None} for k in range(20)]
    assert table.newest().field_ids["v"] != old


@pytest.mark.parametrize("written", ["before", "since"])
def test_rows_of_other_columns_are_adopted_by_ids(filled: User, written: str) -> None:
    """Files that were written before a change and committed after it, and files that lack the added column."""
    table = filled.table
    fragments = table.write_rows(rows(100, 101))
    changed(table, {"k": "k", "v": "w"}, added=True)
    expected: list[dict[str, Any]] = [{"k": 100, "w": "v100", "n": None}, {"k": 101, "w": "v101", "n": None}]
    if written == "since":
        new = pa.table({"k": [100, 101], "w": ["v100", "v101"], "n": [0.5, None]},
                       schema=pa.schema([SCHEMA.field("k"), ("w", pa.string()), ("n", pa.float64())]))  # fmt: skip
        fragments = table.write_rows(new, table.newest().field_ids)
        expected[0]["n"] = 0.5
    pinned = table.newest()
    sentinel = pinned.fragment_json(pinned.fragments()[0].fragment_id)
    assert isinstance(table.commit(update(pinned, fragments, [sentinel])), Committed)
    assert shown(table.newest())[-2:] == expected


def test_rows_of_columns_that_are_gone_keep_the_others(filled: User) -> None:
    table = filled.table
    fragments = table.write_rows(rows(100))
    pinned = changed(table, {"k": "k"}, added=True)
    sentinel = pinned.fragment_json(pinned.fragments()[0].fragment_id)
    assert isinstance(table.commit(update(pinned, fragments, [sentinel])), Committed)
    assert shown(table.newest())[-1] == {"k": 100, "n": None}


def test_an_update_planned_before_a_change_of_columns_lands(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    commit = with_sentinel(table, pinned, 100)
    hidden = pinned.hide_rows(pinned.fragments()[1].fragment_id, [0])
    assert hidden is not None
    commit = replace(commit, updated_fragments=(*commit.updated_fragments, hidden))
    changed(table, {"k": "k", "v": "w"}, added=True)
    assert isinstance(table.commit(commit), Committed)
    assert shown(table.newest()) == [{"k": k, "w": f"v{k}", "n": None} for k in [*range(10), *range(11, 20), 100]]


BESIDE_A_CHANGE: list[tuple[str, UserActs, bool]] = [
    ("append", lambda u: u.append(rows(50)), True),
    ("index", lambda u: u.create_index(), True),
    ("config", lambda u: u.update_config(), True),
    ("delete", lambda u: u.delete(15), True),
    ("compaction", lambda u: u.compact(), True),
    ("update", lambda u: assert_committed(u.table.commit(with_sentinel(u.table, u.table.newest(), 100))), True),
    ("columns", lambda u: changed(u.table, {"k": "k", "v": "w"}), False),
    ("a column of others", lambda u: u.add_column("w"), False),
    ("a column renamed by others", lambda u: u.rename_column("v", "w"), False),
    ("restore", lambda u: u.restore(1), False),
    ("overwrite", lambda u: u.overwrite(rows(7)), False),
]


def assert_committed(outcome: object) -> None:
    assert isinstance(outcome, Committed), outcome


@pytest.mark.parametrize(("act", "rebased"), [c[1:] for c in BESIDE_A_CHANGE], ids=[c[0] for c in BESIDE_A_CHANGE])
def test_what_a_change_of_columns_is_rebased_over(filled: User, act: UserActs, rebased: bool) -> None:
    table, pinned = filled.table, filled.table.newest()
    commit = columns_commit(pinned, {"k": "k", "v": "w"}, added=True)
    act(filled)
    before = table.newest()
    outcome = table.change_columns(commit)
    assert isinstance(outcome, Committed if rebased else Conflicted), outcome
    newest = table.newest()
    assert newest.version == before.version + rebased
    assert keys(newest) == keys(before)
    if rebased:
        assert newest.schema.names == ["k", "w", "n"]


def with_narrow(table: StoredTable) -> PinnedTable:
    """A version with a column n of 32 bits, which is a quarter of k in most rows."""
    pinned = table.newest()
    schema = pa.schema([*pinned.schema, ("n", pa.float32())])
    assert_committed(
        table.change_columns(ColumnsCommit(pinned.version, schema, {**pinned.field_ids, "n": (ADDED,)}, {}))
    )
    pinned = table.newest()
    written = []
    for fragment in pinned.fragments():
        at = np.arange(1, fragment.physical_rows)
        first = next(iter(pinned.all_rows(fragment.fragment_id, ["k"])))["k"][0].as_py()
        values = pa.table({"n": pa.array((first + at) / 4, pa.float32())})
        text = pinned.fragment_json(fragment.fragment_id)
        written.append(pinned.write_columns(fragment.fragment_id, at, values, text))
    if written:
        assert_committed(table.commit(replace(update(pinned, updated=written), columns_written=("n",))))
    return table.newest()


def widening(pinned: PinnedTable) -> ColumnsCommit:
    """Column n gets 64 bits, in all fragments."""
    wide = pa.schema([("n", pa.float64())])
    fragments = tuple(pinned.write_widened(f.fragment_id, wide, {"n": (ADDED + 1,)}) for f in pinned.fragments())
    ids = {**pinned.field_ids, "n": (ADDED + 1,)}
    schema = pa.schema([wide.field("n") if f.name == "n" else f for f in pinned.schema])
    return ColumnsCommit(pinned.version, schema, ids, {"why": "wider"}, fragments=fragments)


def quarters(*ks: int) -> list[dict[str, Any]]:
    return [{"k": k, "v": f"v{k}", "n": k / 4 if k % 10 else None} for k in ks]


def test_a_column_gets_a_wider_type(filled: User) -> None:
    table = filled.table
    with_narrow(table)
    filled.delete(3)
    before = table.newest()
    outcome = table.change_columns(widening(before))
    assert isinstance(outcome, Committed), outcome
    newest = table.newest()
    left = [k for k in range(20) if k != 3]
    assert newest.schema.field("n").type == pa.float64()
    assert newest.field_ids == {**before.field_ids, "n": (ADDED + 1,)}
    assert shown(newest) == shown(before) == quarters(*left)
    assert before.schema.field("n").type == pa.float32()
    info = table.transaction(newest.version)
    assert isinstance(info, TransactionInfo)
    assert (info.operation, info.properties) == ("Merge", {"why": "wider"})
    last = newest.fragments()[-1].fragment_id
    hidden = newest.hide_rows(last, [0])
    assert hidden is not None
    written = newest.write_columns(last, np.array([1]), pa.table({"n": [0.1]}), hidden)
    assert_committed(table.commit(replace(update(newest, updated=[written]), columns_written=("n",))))
    expected = [row | ({"n": 0.1} if row["k"] == 11 else {}) for row in quarters(*left) if row["k"] != 10]
    assert shown(table.newest()) == expected


def test_a_wider_column_of_a_table_without_rows(user: User) -> None:
    assert isinstance(user.table.change_columns(widening(with_narrow(user.table))), Committed)
    assert user.table.newest().schema.field("n").type == pa.float64()


def test_a_wider_column_that_no_file_has(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    schema = pa.schema([*pinned.schema, ("n", pa.float32())])
    commit = ColumnsCommit(pinned.version, schema, {**pinned.field_ids, "n": (ADDED,)}, {})
    assert_committed(table.change_columns(commit))
    assert_committed(table.change_columns(widening(table.newest())))
    assert [row["n"] for row in shown(table.newest())] == [None] * 20


def test_a_wider_column_has_an_id_above_all_others(filled: User) -> None:
    """Else the commit never lands, whatever is tried again."""
    table, pinned = filled.table, with_narrow(filled.table)
    schema = pa.schema([*pinned.schema, ("later", pa.string())])
    later = ColumnsCommit(pinned.version, schema, {**pinned.field_ids, "later": (ADDED + 2,)}, {})
    assert_committed(table.change_columns(later))
    before = table.newest()
    assert not isinstance(table.change_columns(widening(before)), Committed)
    assert table.newest().version == before.version


BESIDE_A_WIDENING: list[tuple[str, UserActs, bool]] = [
    ("append", lambda u: u.append(rows(50)), False),
    ("index", lambda u: u.create_index(), True),
    ("config", lambda u: u.update_config(), True),
    ("delete", lambda u: u.delete(15), False),
    ("compaction", lambda u: u.compact(), False),
    ("update", lambda u: assert_committed(u.table.commit(with_sentinel(u.table, u.table.newest(), 100))), False),
    ("columns", lambda u: changed(u.table, {"k": "k", "v": "w"}), False),
    ("another", lambda u: assert_committed(u.table.change_columns(widening(u.table.newest()))), False),
]


@pytest.mark.parametrize(("act", "rebased"), [c[1:] for c in BESIDE_A_WIDENING], ids=[c[0] for c in BESIDE_A_WIDENING])
def test_what_lands_before_a_wider_column(filled: User, act: UserActs, rebased: bool) -> None:
    table = filled.table
    commit = widening(with_narrow(table))
    act(filled)
    between = table.newest()
    outcome = table.change_columns(commit)
    assert isinstance(outcome, Committed if rebased else Conflicted), outcome
    assert table.newest().version == between.version + rebased


def test_commits_planned_before_a_wider_column_are_refused(filled: User) -> None:
    table, pinned = filled.table, with_narrow(filled.table)
    late = [with_sentinel(table, pinned, 100), update(pinned, table.write_rows(rows(101)))]
    assert isinstance(table.change_columns(widening(pinned)), Committed)
    for commit in late:
        assert isinstance(table.commit(commit), Conflicted)
    assert isinstance(table.change_columns(columns_commit(pinned, {"k": "k", "v": "w"})), Conflicted)


def test_a_change_of_columns_does_not_pass_a_strict_commit(user: User) -> None:
    table, pinned = user.table, user.table.newest()
    assert isinstance(table.commit(strict(table, pinned, 1)), Committed)
    assert isinstance(table.change_columns(columns_commit(pinned, {"k": "k"})), Conflicted)


def test_a_change_of_columns_of_a_version_that_was_cleaned_up(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    commit = columns_commit(pinned, {"k": "k"})
    filled.append(rows(50))
    filled.clean_up()
    assert not isinstance(table.change_columns(commit), Committed)
    assert table.newest().schema.names == ["k", "v"]


def test_columns_in_place_of_a_version_before_a_change(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    fragment = pinned.fragments()[0].fragment_id
    written = pinned.write_columns(fragment, np.array([2]), pa.table({"v": ["new"]}), pinned.fragment_json(fragment))
    commit = replace(update(pinned, updated=[written]), columns_written=("v",))
    changed(table, {"k": "k", "v": "w"})
    assert isinstance(table.commit(commit), Committed)
    assert [row["w"] for row in shown(table.newest())][:4] == ["v0", "v1", "new", "v3"]


def test_columns_in_place_that_no_file_has(filled: User) -> None:
    """A column that was added has a file of its own in a fragment once it was written there."""
    table = filled.table
    pinned = changed(table, {"k": "k", "v": "v"}, added=True)
    first = pinned.fragments()[0].fragment_id
    assert pinned.column_bytes(first, ["n"]) is not None
    written = pinned.write_columns(first, np.array([2, 9]), pa.table({"n": [0.5, 1.5]}), pinned.fragment_json(first))
    commit = replace(update(pinned, updated=[written]), columns_written=("n",))
    assert_committed(table.commit(commit))
    values = {2: 0.5, 9: 1.5}
    assert shown(table.newest()) == [{"k": k, "v": f"v{k}", "n": values.get(k)} for k in range(20)]
    again = table.newest()
    written = again.write_columns(first, np.array([2, 3]), pa.table({"n": [2.0, None]}), again.fragment_json(first))
    assert_committed(table.commit(replace(update(again, updated=[written]), columns_written=("n",))))
    assert [row["n"] for row in shown(table.newest())[:4]] == [None, None, 2.0, None]
    assert [len(f.files) for f in table.newest().fragments()] == [2, 1]


@pytest.mark.parametrize("file_format", ["2.0", "2.1", "2.2"])
def test_nested_columns_in_place_that_no_file_has(tmp_path: Path, file_format: Any) -> None:
    """On Lance alone.  Which fields have a column of their own in a file differs by the format.  Format 2.0 has no structs
    that are null."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"k": [0, 1, 2]}), uri, data_storage_version=file_format)
    types = {
        "l": pa.list_(pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
        "s": pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.date32())]))]),
        "v": pa.list_(pa.float32(), 4),
    }
    if file_format == "2.0":
        del types["s"]
    values = {"l": [{"x": 1, "y": ["z", None]}], "s": {"a": 1, "b": {"c": None}}, "v": [0.5] * 4}
    table = LanceTable(uri)
    pinned = table.newest()
    schema = pa.schema([pinned.schema.field("k"), *types.items()])
    all_ids = {"k": pinned.field_ids["k"], "l": (10, 11, 12, 13, 14), "s": (20, 21, 22, 23), "v": (30,)}
    ids = {name: all_ids[name] for name in schema.names}
    assert_committed(table.change_columns(ColumnsCommit(pinned.version, schema, ids, {})))
    pinned = table.newest()
    written = pinned.write_columns(
        0, np.array([1]), pa.table({n: pa.array([values[n]], t) for n, t in types.items()}), pinned.fragment_json(0)
    )
    assert_committed(table.commit(replace(update(pinned, updated=[written]), columns_written=tuple(types))))
    nulls = dict.fromkeys(types)
    expected = {name: values[name] for name in types}
    assert lance.dataset(uri).to_table().to_pylist() == [{"k": 0} | nulls, {"k": 1} | expected, {"k": 2} | nulls]


def operation(pinned: PinnedTable, table: StoredTable) -> str:
    info = table.transaction(pinned.version)
    assert isinstance(info, TransactionInfo)
    return info.operation


def test_columns_that_others_add_rename_and_drop(filled: User) -> None:
    """Whoever adds a column gets the lowest id above those of the schema and the data files: that of a dropped one."""
    table, pinned = filled.table, filled.table.newest()
    schema = pa.schema([*pinned.schema, ("n", pa.float64())])
    commit = ColumnsCommit(pinned.version, schema, {**pinned.field_ids, "n": (2,)}, {}, mark="2-a")
    assert_committed(table.change_columns(commit))
    late = with_sentinel(table, table.newest(), 100)
    acts: list[tuple[Callable[[], None], str, Mapping[str, tuple[int, ...]]]] = [
        (lambda: filled.rename_column("v", "w"), "Project", {"k": (0,), "w": (1,), "n": (2,)}),
        (lambda: filled.drop_column("n"), "Project", {"k": (0,), "w": (1,)}),
        (lambda: filled.add_column("theirs"), "Merge", {"k": (0,), "w": (1,), "theirs": (2,)}),
        (lambda: filled.drop_column("w"), "Project", {"k": (0,), "theirs": (2,)}),
        (lambda: filled.drop_column("theirs"), "Project", {"k": (0,)}),
        (lambda: filled.add_column("more"), "Merge", {"k": (0,), "more": (2,)}),  # files have 1
    ]
    for act, said, field_ids in acts:
        act()
        newest = table.newest()
        assert (operation(newest, table), newest.field_ids) == (said, field_ids)
        assert columns_mark(newest) == "2-a"
        assert shown(newest)[1] == {name: {"k": 1, "w": "v1"}.get(name) for name in newest.schema.names}
    assert isinstance(table.commit(late), Conflicted)
    assert ids_in_use(table.newest()) == {0, 1, 2}


MEMBERS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("l", pa.list_(pa.struct([("x", pa.int32()), ("t", pa.struct([("y", pa.int32())]))]))),
    ]
)
MEMBER_IDS = {"k": (0,), "s": (1, 2, 3), "l": (4, 5, 6, 7, 8)}
NESTED: list[dict[str, Any]] = [
    {"k": 0, "s": {"a": 1, "b": "x"}, "l": [{"x": 1, "t": {"y": 2}}, None, {"x": None, "t": None}]},
    {"k": 1, "s": None, "l": None},
    {"k": 2, "s": {"a": None, "b": None}, "l": []},
]


@pytest.fixture
def nested(request: pytest.FixtureRequest, tmp_path: Path) -> User:
    """A table with members of structs."""
    made = TwinUser(MEMBERS) if request.param == "twin" else LanceUser(tmp_path / "table", MEMBERS, "2.2")
    made.append(pa.Table.from_pylist(NESTED, MEMBERS))
    return made


on_both = pytest.mark.parametrize("nested", ["twin", "lance"], indirect=True)


Member = tuple[str, tuple[int, ...]]


def members(
    table: StoredTable, of_s: Mapping[str, Member], of_items: Mapping[str, Member], *, wider: bool = False
) -> PinnedTable:
    """A change to these members, by name: type, and ids of the member and all within."""
    pinned = table.newest()
    types = [pa.struct([(name, parse_type(type_)) for name, (type_, _) in of.items()]) for of in (of_s, of_items)]
    schema = pa.schema([pinned.schema.field("k"), ("s", types[0]), ("l", pa.list_(types[1]))])
    own, within = (tuple(i for _, member in of.values() for i in member) for of in (of_s, of_items))
    ids = {"k": (0,), "s": (1, *own), "l": (4, 5, *within)}
    wide = pa.schema([schema.field("s"), schema.field("l")])
    fragments = tuple(pinned.write_widened(f.fragment_id, wide, ids) for f in pinned.fragments()) if wider else None
    assert_committed(table.change_columns(ColumnsCommit(pinned.version, schema, ids, {}, fragments=fragments)))
    assert table.newest().field_ids == ids
    return table.newest()


@on_both
def test_members_are_added_renamed_and_dropped(nested: User) -> None:
    table, before = nested.table, nested.table.newest()
    assert before.field_ids == MEMBER_IDS
    late = table.write_rows(pa.Table.from_pylist([NESTED[0] | {"k": 3}], MEMBERS), before.field_ids)
    of_items: Mapping[str, Member] = {"t": ("struct<y: int32>", (7, 8)), "w": ("int64", (30,))}
    newest = members(table, {"n": ("list<int32>", (20, 21)), "z": ("string", (3,))}, of_items)
    assert shown(newest) == [
        {"k": 0, "s": {"n": None, "z": "x"}, "l": [{"t": {"y": 2}, "w": None}, None, {"t": None, "w": None}]},
        {"k": 1, "s": None, "l": None},
        {"k": 2, "s": {"n": None, "z": None}, "l": []},
    ]
    assert ids_in_use(newest) >= {2, 6}  # those of members that are gone are in a file
    sentinel = newest.fragment_json(0)
    assert_committed(table.commit(update(newest, late, [sentinel])))
    assert shown(table.newest())[3] == shown(newest)[0] | {"k": 3}
    assert shown(before) == NESTED
    # Written in place, the column has a file with the members of now.
    pinned = table.newest()
    new = pa.table({"s": pa.array([{"n": [7], "z": None}], pinned.schema.field("s").type)})
    written = pinned.write_columns(0, np.array([2]), new, pinned.fragment_json(0))
    assert_committed(table.commit(replace(update(pinned, updated=[written]), columns_written=("s",))))
    assert [row["s"] for row in shown(table.newest())[:3]] == [{"n": None, "z": "x"}, None, {"n": [7], "z": None}]
    # Compacted, too.
    rows_before = shown(table.newest())
    nested.compact()
    assert shown(table.newest()) == rows_before


@on_both
def test_a_struct_without_any_member_of_its_files_is_null(nested: User) -> None:
    """So are lists of structs, and nothing in a file says how many items these had."""
    newest = members(nested.table, {"n": ("int64", (20,))}, {"w": ("int64", (30,))})
    assert shown(newest) == [{"k": k, "s": None, "l": None} for k in range(3)]


@on_both
def test_members_get_wider_types(nested: User) -> None:
    """All of the column is written again, and its other members keep their ids."""
    table = nested.table
    nested.delete(1)
    of_items: Mapping[str, Member] = {"x": ("int64", (31,)), "t": ("struct<y: int32>", (7, 8))}
    newest = members(table, {"a": ("int64", (21,)), "b": ("string", (3,))}, of_items, wider=True)
    assert shown(newest) == [NESTED[0], NESTED[2]]
    assert newest.schema.field("s").type.field("a").type == pa.int64()


@on_both
def test_members_that_others_rename_and_drop(nested: User) -> None:
    table = nested.table
    nested.rename_column("s.b", "z")
    nested.drop_column("s.a")
    newest = table.newest()
    assert newest.field_ids == {**MEMBER_IDS, "s": (1, 3)}
    assert operation(newest, table) == "Project"
    assert [row["s"] for row in shown(newest)] == [{"z": "x"}, None, {"z": None}]
    nested.add_column("more")
    assert table.newest().field_ids["more"] == (9,)


def test_rows_that_others_append_after_members_have_changed(tmp_path: Path) -> None:
    """On Lance alone."""
    schema = pa.schema([("k", pa.int64()), ("s", pa.struct([("a", pa.int64()), ("b", pa.string())]))])
    uri = str(tmp_path / "t")
    lance.write_dataset(
        pa.table({"k": [1, 2], "s": [{"a": 1, "b": "x"}, None]}, schema=schema), uri, data_storage_version="2.2"
    )
    table = LanceTable(uri)
    pinned = table.newest()
    own, (s, a, b) = pinned.field_ids["k"], pinned.field_ids["s"]
    new = pa.schema([("k", pa.int64()), ("s", pa.struct([("c", pa.list_(pa.int32())), ("z", pa.string())]))])
    commit = ColumnsCommit(pinned.version, new, {"k": own, "s": (s, 20, 21, b)}, {})
    assert_committed(table.change_columns(commit))
    assert a not in table.newest().field_ids["s"]
    found = lance.dataset(uri).to_table()
    assert found.schema == new
    assert found.to_pylist() == [{"k": 1, "s": {"c": None, "z": "x"}}, {"k": 2, "s": None}]
    lance.write_dataset(pa.table({"k": [3], "s": [{"c": [5], "z": "y"}]}, schema=new), uri, mode="append")
    assert lance.dataset(uri).to_table().to_pylist()[2] == {"k": 3, "s": {"c": [5], "z": "y"}}


def test_a_rebased_update_keeps_the_deletions_of_others(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    changed = pinned.hide_rows(pinned.fragments()[0].fragment_id, [0])
    assert changed is not None
    filled.delete(15)
    assert isinstance(table.commit(update(pinned, table.write_rows(rows(100)), [changed])), Committed)
    assert keys(table.newest()) == [*range(1, 15), *range(16, 20), 100]


def test_a_commit_whose_read_version_was_cleaned_up_does_not_land(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    late = with_sentinel(table, pinned, 100)
    assert isinstance(table.commit(with_sentinel(table, pinned, 100)), Committed)
    filled.clean_up()
    assert isinstance(table.commit(late), Conflicted | CommitLost)
    assert keys(table.newest()) == [*range(20), 100]


# -- fragments written anew -----------------------------------------------------------------------------------

BOUNDS = RewriteBounds(batch_bytes=1 << 20, buffer_bytes=1 << 20, file_rows=1_000, file_bytes=1 << 20, copy=False)


def rewriting(table: StoredTable, pinned: PinnedTable, *ids: int, bounds: RewriteBounds = BOUNDS) -> TableCommit:
    """A commit of the rows of these fragments, written anew."""
    old = tuple(pinned.fragment_json(number) for number in sorted(ids))
    return replace(
        update(pinned, table.rewrite(pinned.version, ids, bounds)), rewritten=old, properties={"lancewal.x": "uuid"}
    )


def ids(pinned: PinnedTable) -> list[int]:
    return [f.fragment_id for f in pinned.fragments()]


@pytest.mark.parametrize("copy", [False, True])
def test_fragments_written_anew_hold_their_live_rows(filled: User, copy: bool) -> None:
    filled.append(rows(20, 21))
    filled.append(rows(30))
    filled.delete(3)
    table, pinned = filled.table, filled.table.newest()
    first, second, third, fourth = ids(pinned)
    commit = rewriting(table, pinned, first, fourth, bounds=replace(BOUNDS, copy=copy))  # no neighbours
    assert keys(table.newest()) == keys(pinned)
    assert table.commit(commit) == Committed(TableVersion(pinned.version + 1))
    newest = table.newest()
    assert keys(newest) == keys(pinned)
    assert ids(newest)[:2] == [second, third]
    (made,) = newest.fragments()[2:]
    assert (made.physical_rows, made.deleted_rows) == (10, 0)
    assert made.fragment_id > fourth
    assert [made.nbytes] == list(table.file_bytes(made.files))
    assert table.transaction(newest.version) == TransactionInfo(
        "Rewrite", pinned.version, {"lancewal.x": "uuid"}, rewritten=(RewrittenFragments((first, fourth), made.files),)
    )


def test_files_whose_pages_are_copied_have_a_size(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    for fragment in table.rewrite(pinned.version, ids(pinned), replace(BOUNDS, copy=True)):
        assert [fragment_bytes(fragment)] == list(table.file_bytes(fragment_files(fragment)))
    with pytest.raises(VersionGone, match=r"nothing\.lance"):
        table.file_bytes(["nothing.lance"])


def test_many_rows_become_several_fragments(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    commit = rewriting(table, pinned, *ids(pinned), bounds=replace(BOUNDS, file_rows=8))
    assert len(commit.new_fragments) in (2, 3)
    assert sum(fragment_rows(text) for text in commit.new_fragments) == 20
    assert isinstance(table.commit(commit), Committed)
    newest = table.newest()
    assert keys(newest) == keys(pinned)
    assert len(set(ids(newest))) == len(commit.new_fragments)
    assert min(ids(newest)) > max(ids(pinned))


def keys_of(pinned: PinnedTable, ids: Sequence[int]) -> list[int]:
    """Keys of the live rows of these fragments, fragment by fragment in their order."""
    found = []
    for number in ids:
        batches = pinned.scan(["k"], fragment_ids=[number], with_row_address=True)
        placed = {a: k for b in batches for k, a in zip(b["k"].to_pylist(), b[ROW_ADDRESS].to_pylist(), strict=True)}
        found += [placed[address] for address in sorted(placed)]
    return found


def check_rewritten(table: StoredTable) -> int:
    """Live rows of the old fragments, in their order, are those of the new ones.  The number of groups."""
    version = table.newest().version
    info = table.transaction(version)
    assert isinstance(info, TransactionInfo)
    assert info.operation == "Rewrite"
    before, after = table.at(version - 1), table.at(version)
    made = {file: f.fragment_id for f in after.fragments() for file in f.files}
    for group in info.rewritten:
        assert keys_of(before, group.old_ids) == keys_of(after, [made[file] for file in group.new_files])
    old = [number for group in info.rewritten for number in group.old_ids]
    assert sorted(old) == sorted(set(ids(before)) - set(ids(after)))
    assert {made[file] for group in info.rewritten for file in group.new_files} == set(ids(after)) - set(ids(before))
    return len(info.rewritten)


@pytest.mark.parametrize("copy", [False, True])
def test_a_rewrite_says_what_took_the_place_of_what_and_keeps_the_order(filled: User, copy: bool) -> None:
    """Also where ids of old fragments do not ascend with their keys, and rows become several fragments."""
    table = filled.table
    for some in (range(40, 30, -1), range(20, 24)):
        filled.append(rows(*some))
    for hidden, first, size in ((3, 0, 8), (35, 1, 5), (11, 0, 100)):
        filled.delete(hidden)
        pinned = table.newest()
        own = ids(pinned)
        bounds = replace(BOUNDS, file_rows=size, copy=copy)
        assert isinstance(table.commit(rewriting(table, pinned, own[-1], own[first], bounds=bounds)), Committed)
        assert check_rewritten(table) == 1
    assert keys(table.newest()) == sorted({*range(10), *range(10, 24), *range(31, 41)} - {3, 35, 11})


def test_a_compaction_by_others_keeps_the_order(filled: User) -> None:
    table = filled.table
    filled.append(rows(*range(40, 30, -1)))
    filled.delete(35)
    pinned = table.newest()
    assert isinstance(table.commit(rewriting(table, pinned, *ids(pinned)[::2])), Committed)
    filled.append(rows(20, 21))
    filled.compact()
    assert check_rewritten(table) == 1


def test_a_compaction_by_others_may_have_several_groups(tmp_path: Path) -> None:
    user = LanceUser(tmp_path / "table")
    for start in range(0, 60, 10):
        user.append(rows(*range(start, start + 10)))
    for key in (3, 14, 15, 44):
        user.delete(key)
    lance.dataset(str(tmp_path / "table")).optimize.compact_files(target_rows_per_fragment=20)
    assert check_rewritten(user.table) > 1


def test_each_deletion_file_of_a_fragment_has_its_name(filled: User) -> None:
    def names() -> list[str | None]:
        return [f.deletion_file for f in filled.table.newest().fragments()]

    version = filled.table.newest().version
    assert names() == [None, None]
    filled.delete(3)
    first, none = names()
    assert (first is not None, none) == (True, None)
    filled.delete(4)
    second, _ = names()
    filled.append(rows(99))
    assert names() == [second, None, None]
    filled.restore(version)
    filled.delete(5)
    third, _ = names()
    assert len({first, second, third, None}) == 4


#: act, whether a rewrite of the second of three fragments is rebased over it.
BESIDE_A_REWRITE: list[tuple[str, UserActs, bool]] = [
    ("append", lambda u: u.append(rows(50)), True),
    ("index", lambda u: u.create_index(), False),
    ("config", lambda u: u.update_config(), True),
    ("delete of one of its rows", lambda u: u.delete(15), False),
    ("delete in another fragment", lambda u: u.delete(1), True),
    ("compaction", lambda u: u.compact(), False),
    ("restore", lambda u: u.restore(1), False),
    ("overwrite", lambda u: u.overwrite(rows(7)), False),
    ("columns", lambda u: changed(u.table, {"k": "k", "v": "w"}, added=True), True),
]


@pytest.mark.parametrize(("act", "rebased"), [c[1:] for c in BESIDE_A_REWRITE], ids=[c[0] for c in BESIDE_A_REWRITE])
def test_what_a_rewrite_is_rebased_over(filled: User, act: UserActs, rebased: bool) -> None:
    filled.append(rows(20, 21))
    table, pinned = filled.table, filled.table.newest()
    commit = rewriting(table, pinned, ids(pinned)[1])
    act(filled)
    before = table.newest()
    outcome = table.commit(commit)
    assert isinstance(outcome, Committed if rebased else Conflicted), outcome
    assert keys(table.newest()) == keys(before)
    assert table.newest().version == before.version + rebased


def test_a_rewrite_beside_updates(filled: User) -> None:
    """A row that a merge hides in a fragment under way makes the rewrite conflict; one elsewhere, and the sentinel, do not."""
    filled.append(rows(20, 21))
    table, pinned = filled.table, filled.table.newest()
    second = ids(pinned)[1]
    late, beside = rewriting(table, pinned, second), rewriting(table, pinned, second)
    assert isinstance(table.commit(with_sentinel(table, pinned, 100)), Committed)
    assert isinstance(table.commit(beside), Committed)
    assert isinstance(table.commit(late), Conflicted)  # by now it is gone
    newest = table.newest()
    third, late = ids(newest)[-1], rewriting(table, newest, *ids(newest)[1:])
    hidden = newest.hide_rows(third, [0])
    assert hidden is not None
    assert isinstance(
        table.commit(update(newest, updated=[newest.fragment_json(newest.fragments()[0].fragment_id), hidden])),
        Committed,
    )
    assert isinstance(table.commit(late), Conflicted)
    assert len(keys(table.newest())) == len(keys(newest)) - 1


def test_an_update_of_what_was_written_anew_conflicts(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    first, second = ids(pinned)
    hidden = pinned.hide_rows(second, [0])
    assert hidden is not None
    late = update(pinned, updated=[pinned.fragment_json(pinned.fragments()[0].fragment_id), hidden])
    other = with_sentinel(table, pinned, 100)
    assert isinstance(table.commit(rewriting(table, pinned, second)), Committed)
    assert isinstance(table.commit(late), Conflicted)
    assert isinstance(table.commit(other), Committed)
    newest = table.newest()
    assert isinstance(table.commit(rewriting(table, newest, first)), Committed)
    assert keys(table.newest()) == [*range(20), 100]


def test_a_rewrite_whose_version_was_cleaned_up_brings_nothing_back(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    late = rewriting(table, pinned, ids(pinned)[1])
    filled.delete(15)
    filled.append(rows(50))
    filled.clean_up()
    assert isinstance(table.commit(late), Conflicted | CommitLost)
    assert 15 not in keys(table.newest())
    with pytest.raises(VersionGone):
        table.rewrite(pinned.version, ids(pinned), BOUNDS)


def test_damage_ends_a_rewrite_and_nothing_else(tmp_path: Path) -> None:
    made = LanceUser(tmp_path / "table")
    made.append(rows(*range(1_000)))
    made.delete(1)
    pinned = made.table.newest()
    (name,) = pinned.fragments()[0].files
    file = tmp_path / "table" / "data" / name
    data = file.read_bytes()
    file.write_bytes(bytes(len(data) // 2) + data[len(data) // 2 :])
    with pytest.raises(RewriteFailed, match=r"fragments \[0\] of version 3"):
        made.table.rewrite(pinned.version, [0], BOUNDS)
    file.unlink()
    with pytest.raises(VersionGone):
        LanceTable(str(tmp_path / "table")).rewrite(pinned.version, [0], BOUNDS)


def test_an_index_covers_what_it_is_extended_to(filled: User) -> None:
    table = filled.table
    assert list(table.newest().indexes()) == []
    filled.create_index()
    pinned = table.newest()
    (index,) = pinned.indexes()
    assert index.segments == (frozenset(ids(pinned)),)
    assert isinstance(table.commit(rewriting(table, pinned, ids(pinned)[1])), Committed)
    filled.append(rows(20, 21))
    (index,) = table.newest().indexes()
    assert index.covered == frozenset(ids(pinned)[:1])
    for merged, expected in ((0, 2), (0, 3), (2, 2)):
        before = table.newest().version
        assert table.extend_index(index.name, merged) == Committed(TableVersion(before + 1))
        (index,) = table.newest().indexes()
        assert index.covered == frozenset(ids(table.newest()))
        assert len(index.segments) == expected
        filled.append(rows(100 + merged + expected))
    version = table.newest().version
    assert table.extend_index(index.name, 0) == Committed(TableVersion(version + 1))
    (index,) = table.newest().indexes()
    assert len(index.segments) == 3
    assert table.extend_index(index.name, 3) == Committed(TableVersion(version + 2))  # nothing is missing
    assert [len(i.segments) for i in table.newest().indexes()] == [1]
    filled.create_index()
    version = table.newest().version
    assert table.extend_index(index.name, 0) == Committed(version)  # nothing to do
    assert table.newest().unrewritable_fragments() == frozenset()


# -- columns in place ------------------------------------------------------------------------------------------


def values(pinned: PinnedTable) -> dict[int, str]:
    return {
        k: v for b in pinned.scan(["k", "v"]) for k, v in zip(*(b.column(n).to_pylist() for n in "kv"), strict=True)
    }


def in_place(
    pinned: PinnedTable, at: int, new: dict[int, str | None], hidden: Sequence[int] = (), files: Sequence[str] = ()
) -> TableCommit:
    """Column ``v`` of a fragment with other values at these physical rows; ``hidden`` rows go, ``files`` come."""
    fragment_id = ids(pinned)[at]
    changed = pinned.hide_rows(fragment_id, hidden) if hidden else pinned.fragment_json(fragment_id)
    assert changed is not None
    column = pa.table({"v": pa.array(list(new.values()), pa.string())})
    written = pinned.write_columns(fragment_id, np.array(list(new)), column, changed)
    guard = [] if at == 0 else [pinned.fragment_json(ids(pinned)[0])]
    return replace(update(pinned, files, [written, *guard]), columns_written=("v",))


def test_columns_written_in_place(filled: User) -> None:
    filled.delete(17)
    table, pinned = filled.table, filled.table.newest()
    (before,) = pinned.fragments()[1].files
    commit = in_place(pinned, 1, {2: "two", 9: None}, hidden=[3], files=table.write_rows(rows(50)))
    assert values(table.newest()) == values(pinned)  # the commit makes it effective
    assert isinstance(table.commit(commit), Committed)
    newest = table.newest()
    expected = {k: f"v{k}" for k in (*range(20), 50) if k not in (13, 17)} | {12: "two", 19: None}
    assert values(newest) == expected
    assert sorted(newest.hidden_rows(ids(newest)[1])) == [3, 7]
    fragment = newest.fragments()[1]
    assert (fragment.fragment_id, fragment.physical_rows, fragment.deleted_rows) == (ids(pinned)[1], 10, 2)
    assert len(fragment.files) == 2
    assert key_file(fragment, newest.field_ids["k"]) == before
    assert key_file(fragment, newest.field_ids["v"]) == fragment_files(commit.updated_fragments[0])[1]
    # Again: the column file before gives way.  And what is written anew as a whole has the newest values.
    assert isinstance(table.commit(in_place(newest, 1, {0: "ten"})), Committed)
    newest = table.newest()
    assert len(newest.fragments()[1].files) == 2
    assert isinstance(table.commit(rewriting(table, newest, *ids(newest)[1:])), Committed)
    assert values(table.newest()) == expected | {10: "ten"}
    assert keys(table.newest()) == sorted(expected)


def test_how_many_bytes_a_column_takes(filled: User) -> None:
    pinned = filled.table.newest()
    both, one = (pinned.column_bytes(ids(pinned)[0], names) for names in (["k", "v"], ["v"]))
    assert both is not None
    assert set(both) == {"k", "v"}
    assert one == {"v": both["v"]}
    assert 0 < both["v"] < sum(both.values()) <= pinned.fragments()[0].nbytes
    assert isinstance(filled.table.commit(in_place(pinned, 0, {1: "a much longer text than there was"})), Committed)
    assert filled.table.newest().column_bytes(ids(pinned)[0], ["v"]) is not None


#: act, whether columns of the second of three fragments written in place are rebased over it.
BESIDE_COLUMNS: list[tuple[str, UserActs, bool]] = [
    ("append", lambda u: u.append(rows(50)), True),
    ("index of another column", lambda u: u.create_index(), True),
    ("index of the column", lambda u: u.create_index("v"), False),
    ("config", lambda u: u.update_config(), True),
    ("delete of one of its rows", lambda u: u.delete(15), False),
    ("delete of a row that it patches", lambda u: u.delete(12), False),
    ("delete in another fragment", lambda u: u.delete(20), True),
    ("compaction", lambda u: u.compact(), False),
    ("restore", lambda u: u.restore(1), False),
    ("overwrite", lambda u: u.overwrite(rows(7)), False),
]


@pytest.mark.parametrize(("act", "rebased"), [c[1:] for c in BESIDE_COLUMNS], ids=[c[0] for c in BESIDE_COLUMNS])
def test_what_columns_in_place_are_rebased_over(filled: User, act: UserActs, rebased: bool) -> None:
    filled.append(rows(20, 21))
    table, pinned = filled.table, filled.table.newest()
    commit = in_place(pinned, 1, {2: "two"})
    act(filled)
    before = table.newest()
    outcome = table.commit(commit)
    assert isinstance(outcome, Committed if rebased else Conflicted), outcome
    assert values(table.newest()) == values(before) | ({12: "two"} if rebased else {})
    assert table.newest().version == before.version + rebased


def test_columns_of_an_index_that_was_there(filled: User) -> None:
    """No merge writes them; of who does, the index no longer covers any fragment of that commit."""
    filled.append(rows(20, 21))
    filled.create_index("v")
    table, pinned = filled.table, filled.table.newest()
    (index,) = pinned.indexes()
    assert index.columns == {"v"}
    assert index.named == (frozenset(ids(pinned)),)
    assert isinstance(table.commit(in_place(pinned, 1, {2: "two"})), Committed)
    newest = table.newest()
    (index,) = newest.indexes()
    assert index.covered == {ids(pinned)[2]}
    v, k = newest.field_ids["v"], newest.field_ids["k"]
    assert [fields_apart(f, v) for f in newest.fragments()] == [False, True, False]
    assert not any(fields_apart(f, k) for f in newest.fragments())
    assert (newest.stable_row_ids, newest.updated_rows()) == (False, frozenset())
    assert table.rebuild_index(index.name) == Committed(TableVersion(newest.version + 1))
    (index,) = table.newest().indexes()
    assert index.segments == (frozenset(ids(newest)),)


def test_columns_in_place_beside_updates(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    late, first = in_place(pinned, 1, {2: "late"}), in_place(pinned, 1, {3: "first"})
    hiding = pinned.hide_rows(ids(pinned)[1], [5])
    assert hiding is not None
    assert isinstance(table.commit(first), Committed)
    assert isinstance(table.commit(late), Conflicted)
    assert isinstance(table.commit(update(pinned, updated=[hiding])), Conflicted)
    assert values(table.newest()) == values(pinned) | {13: "first"}


def test_columns_in_place_of_a_version_that_was_cleaned_up(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    commit = in_place(pinned, 1, {2: "two"})
    filled.delete(12)
    filled.clean_up()
    assert not isinstance(table.commit(commit), Committed)
    assert 12 not in keys(table.newest())


def test_columns_of_a_lost_file_cannot_be_written(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    (name,) = pinned.fragments()[1].files
    filled.remove_file(name)
    with pytest.raises(VersionGone):
        in_place(pinned, 1, {2: "two"})
    assert table.files_missing([name]) == [name]


# -- what made a version ---------------------------------------------------------------------------------------


def test_properties_come_back(filled: User) -> None:
    table, pinned = filled.table, filled.table.newest()
    commit = replace(with_sentinel(table, pinned, 100), properties={"lancewal.merge": "uuid", "x": "{}"})
    table.commit(commit)
    info = table.transaction(table.newest().version)
    assert info == TransactionInfo("Update", pinned.version, {"lancewal.merge": "uuid", "x": "{}"})


def test_operations_are_named(user: User) -> None:
    acts: list[tuple[UserActs, str]] = [
        (lambda u: u.append(rows(*range(5))), "Append"),
        (lambda u: u.append(rows(*range(5, 9))), "Append"),
        (lambda u: u.delete(3), "Delete"),
        (lambda u: u.update_config(), "UpdateConfig"),
        (lambda u: u.compact(), "Rewrite"),
        (lambda u: u.create_index(), "CreateIndex"),
        (lambda u: u.overwrite(rows(1)), "Overwrite"),
        (lambda u: u.restore(2), "Restore"),
    ]
    for act, name in acts:
        act(user)
        info = user.table.transaction(user.table.newest().version)
        assert isinstance(info, TransactionInfo), name
        assert info.operation == name
        assert info.restored == (2 if name == "Restore" else None)
        assert dict(info.properties) == {}


def test_a_compaction_takes_two_versions_and_keeps_the_rows(filled: User) -> None:
    before = filled.table.newest()
    filled.compact()
    after = filled.table.newest()
    assert after.version == before.version + 2
    assert keys(after) == keys(before)
    assert len(after.fragments()) == 1
    assert after.fragments()[0].fragment_id > before.fragments()[-1].fragment_id
    reserved = filled.table.transaction(before.version + 1)
    assert isinstance(reserved, TransactionInfo)
    assert reserved.operation == "BaseOperation"


def test_a_compaction_that_rewrites_an_index_cannot_be_read(filled: User) -> None:
    filled.create_index()
    filled.compact()
    assert filled.table.transaction(filled.table.newest().version) == TransactionUnreadable()


def test_what_a_clean_up_removed_is_gone(filled: User) -> None:
    table, old = filled.table, filled.table.newest()
    filled.delete(1)
    filled.clean_up()
    assert table.transaction(old.version) == TransactionGone()
    with pytest.raises(VersionGone):
        table.at(old.version)
    assert isinstance(table.transaction(table.newest().version), TransactionInfo)
    assert keys(table.newest()) == [0, *range(2, 20)]


def test_a_pin_outlives_a_clean_up_only_as_far_as_its_files(filled: User) -> None:
    pinned = filled.table.newest()
    filled.overwrite(rows(1))
    filled.clean_up()
    with pytest.raises(VersionGone):
        keys(pinned)


def test_a_version_that_is_not_there_yet_is_gone(user: User) -> None:
    with pytest.raises(VersionGone):
        user.table.at(99)
    assert user.table.transaction(99) == TransactionGone()


# -- branches --------------------------------------------------------------------------------------------------


def test_a_branch_goes_on_by_itself_from_its_version(filled: User) -> None:
    table = filled.table
    assert list(table.branches()) == []
    first = table.newest().version
    assert table.create_branch("b", first)
    assert not table.create_branch("b", first)
    branch = table.branch("b")
    pinned = branch.newest()
    assert pinned.version == first
    hidden = pinned.hide_rows(0, [3])
    assert hidden is not None
    outcome = branch.commit(update(pinned, branch.write_rows(rows(3, 300)), [hidden]))
    assert isinstance(outcome, Committed)
    assert outcome.version == first + 1
    filled.append(rows(50))
    assert keys(branch.newest()) == [*range(20), 300]
    assert keys(branch.at(first)) == list(range(20))
    assert keys(table.newest()) == [*range(20), 50]
    (found,) = table.branches()
    assert (found.name, found.version, found.notes) == ("b", first, {})
    assert table.find_branch("b") == found
    assert [table.find_branch(name) for name in ("", "B", "b/b", "..", "b" * 5_000, "\udcff", "%62")] == [None] * 7
    table.note_branch("b", {"lancewal.x": "1", "y": "2"})
    table.note_branch("b", {"lancewal.x": "3"})
    assert table.branches()[0].notes == {"lancewal.x": "3"}
    assert table.find_branch("b") == table.branches()[0]


def test_branches_are_found_by_the_beginning_of_their_names(filled: User) -> None:
    table = filled.table
    for name in ("june-1", "june-2", "june.1", "july-1"):
        assert table.create_branch(name, table.newest().version)
    table.note_branch("june-2", {"lancewal.x": "1"})
    found = table.branches("june-")
    assert [(branch.name, branch.notes) for branch in found] == [("june-1", {}), ("june-2", {"lancewal.x": "1"})]
    assert list(found) == [branch for branch in table.branches() if branch.name.startswith("june-")]
    assert [branch.name for branch in table.branches("june.")] == ["june.1"]
    assert [list(table.branches(text)) for text in ("may", "june-1x", "%6Aune", "..", "/")] == [[]] * 5


def test_a_branch_keeps_what_it_needs_from_clean_ups(filled: User) -> None:
    table = filled.table
    filled.delete(7)
    pinned = table.newest()
    assert table.create_branch("b", pinned.version)
    branch = table.branch("b")
    hidden = branch.newest().hide_rows(0, [1])
    assert hidden is not None
    assert isinstance(branch.commit(update(branch.newest(), (), [hidden])), Committed)
    filled.compact()
    filled.delete(12)
    filled.clean_up()
    table.remove_versions([v for v in table.versions() if v < table.newest().version])
    assert keys(branch.newest()) == [0, *range(2, 7), *range(8, 20)]
    assert keys(table.at(pinned.version)) == [*range(7), *range(8, 20)]
    assert table.drop_branch("b")
    assert not table.drop_branch("b")
    assert list(table.branches()) == []
    assert table.find_branch("b") is None
    with pytest.raises(VersionGone):
        table.branch("b").at(pinned.version)
    with pytest.raises(TableMissing):
        table.branch("b").newest()
    filled.clean_up()
    with pytest.raises(VersionGone):
        table.at(pinned.version)
    assert table.create_branch("b", table.newest().version)
    assert keys(table.branch("b").newest()) == keys(table.newest())


def test_a_branch_of_a_version_that_is_gone(filled: User) -> None:
    version = filled.table.newest().version
    filled.append(rows(50))
    filled.clean_up()
    with pytest.raises(VersionGone):
        filled.table.create_branch("b", version)
    assert list(filled.table.branches()) == []
