"""What may land between the plan of a commit of ours and that commit: docs/reference/conflicts.md, cell by cell.

Each test plans one commit of ours, lets one act of somebody else land before it is sent, and then lets the flusher go on,
on a real Lance table.  It ends as the page says: the table equals the model, queries by its index too; or the flusher stops
with the named error, also when it starts again, and the table is as the others have left it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import LancewalError
from lancewal_core.process.clock import SystemClock
from lancewal_core.rows.schema import Op
from lancewal_core.table.columns.changes import Added, Adopted, Change, Dropped, Forgotten, Renamed, Widened
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import CommitOutcome, Committed, RewriteBounds, TableCommit
from lancewal_flusher.context import by_newest_contract
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import Merged, merge_next
from lancewal_flusher.upkeep.compaction import FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.indexes import extend_indexes
from lancewal_flusher.upkeep.widening import WideningDone, WideningState, widen_next
from tests.support.flusher_tables import (
    COLUMNS,
    OPEN_ROWS,
    FlusherTable,
    Key,
    Operation,
    Row,
    ScriptedTable,
    delete,
    patch,
    upsert,
    upserts,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "conflicts.md"
LIMITS = replace(CompactionLimits(), fragments_min=2, growth=1.0, target_rows=30)
"""Fragments of ten rows are small, one of forty is not."""
BOUNDS = RewriteBounds(batch_bytes=1 << 20, buffer_bytes=1 << 20, file_rows=1_000, file_bytes=1 << 20, copy=False)


class RacedTable(ScriptedTable):
    """A table that runs ``before`` between plan and commit, also of an index, and notes where commits landed."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.landed: list[int | None] = []
        """The version of each commit, None of one that did not land."""
        self._extending = False

    def commit(self, commit: TableCommit) -> CommitOutcome:
        outcome = super().commit(commit)
        self.landed.append(outcome.version if isinstance(outcome, Committed) else None)
        return outcome

    def _open(self, version: int | None = None) -> LancePinnedTable:
        pinned = super()._open(version)
        if self._extending and self.before:
            self.before.pop(0)()  # the extension goes on from the version that it has opened
        return pinned

    def extend_index(self, name: str, merged_segments: int) -> CommitOutcome:
        opened = super().newest().version
        self._extending = True
        outcome = super().extend_index(name, merged_segments)
        self._extending = False
        # Where Lance cannot open the old index it leaves it as it is, and says nothing.
        landed = isinstance(outcome, Committed) and outcome.version != opened
        self.landed.append(outcome.version if landed and isinstance(outcome, Committed) else None)
        return outcome


# -- what is under way -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Places:
    """Keys that stay: one in a fragment that the commit under way changes, one in the sentinel, one elsewhere."""

    changed: Key
    brought: int | None = None
    """A key of region 0 that a merge brings, and that was not there before."""
    sentinel: Key = ("r0", 1)
    elsewhere: Key = ("r1", 5)


MERGED = [upsert(12, a=12), upsert(100, a=100), delete(13), patch(14, s="patched")]
"""It hides rows of one fragment, which is not the sentinel."""

Start = Callable[[FlusherTable, RacedTable, Callable[[], object]], object]


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of commit of ours; ``start`` is given what lands before it."""

    start: Start
    places: Places


def merging(table: FlusherTable, raced: RacedTable, act: Callable[[], object]) -> None:
    table.generation(0, MERGED)
    raced.before = [act]
    by_newest_contract(table.context(raced), lambda context: merge_next(context, OPEN_ROWS))


def following_up(table: FlusherTable, raced: RacedTable, act: Callable[[], object]) -> None:
    """The merge passed an append of its keys."""

    def append() -> None:
        table.user_append(0, [12, 100, 13], in_model=False)
        table.user_append(0, [500, 501], in_model=True)
        # One fragment with rows of both kinds: the follow-up changes it, and it stays.
        rewrite(table, ("r0", 100), ("r0", 500))

    table.generation(0, MERGED)
    context = table.context(raced)
    raced.before = [append]
    assert isinstance(merge_next(context, OPEN_ROWS), Merged)
    raced.landed.clear()
    raced.before = [act]
    by_newest_contract(context, finish_newest)


def compacting(table: FlusherTable, raced: RacedTable, act: Callable[[], object]) -> None:
    raced.before = [act]
    by_newest_contract(
        table.context(raced), lambda context: compact_next(context, LIMITS, FileSizes(), with_sentinel=False)
    )


def extending(table: FlusherTable, raced: RacedTable, act: Callable[[], object]) -> None:
    raced.before = [act]
    by_newest_contract(table.context(raced), lambda context: extend_indexes(context, IndexLimits(), at_once=True))


WORKS: Mapping[str, Work] = {
    "merge": Work(merging, Places(("r0", 15), brought=100)),
    "follow-up": Work(following_up, Places(("r0", 500), brought=100)),
    "compaction": Work(compacting, Places(("r0", 15))),
    "index extension": Work(extending, Places(("r1", 45))),
}

# -- what lands in between ----------------------------------------------------------------------------------------

Act = Callable[[FlusherTable, Places], object]


@dataclass(frozen=True, slots=True)
class Event:
    """What somebody else does; ``shown``: how the model's rows look then, where columns change."""

    act: Act
    shown: Callable[[Row], Row] | None = None


def merge_of(*operations: Operation) -> Act:
    """Another flusher does all that waits, and these."""

    def act(table: FlusherTable, _: Places) -> None:
        table.generation(1, operations)
        table.round()

    return act


def merge_there(table: FlusherTable, places: Places) -> None:
    (region, id) = places.changed
    table.generation(int(region[1:]), [upsert(id, a=55)])
    table.round()


def rewrite(table: FlusherTable, *keys: Key) -> None:
    """A compaction of the fragments that hold these rows, and that lands now."""
    lance_table = LanceTable(table.uri)
    pinned = lance_table.newest()
    ids = sorted({fragment_of(pinned, key) for key in keys})
    old = tuple(pinned.fragment_json(number) for number in ids)
    new = lance_table.rewrite(pinned.version, ids, BOUNDS)
    done = lance_table.commit(TableCommit(pinned.version, new, (), (), {"x": "y"}, strict=False, rewritten=old))
    assert isinstance(done, Committed)


def fragment_of(pinned: LancePinnedTable, key: Key) -> int:
    (address,) = [
        address
        for batch in pinned.scan(["id"], filter=where(key), with_row_address=True)
        for address in batch.column(1).to_pylist()
    ]
    return int(address >> 32)


def where(key: Key) -> str:
    return f"region = '{key[0]}' and id = {key[1]}"


def remove(table: FlusherTable, key: Key) -> None:
    table.user_delete(int(key[0][1:]), key[1])


def update(table: FlusherTable, key: Key) -> None:
    table.dataset.update({"a": "777"}, where=where(key))
    table.model[key] = {**table.model[key], "a": 777}


def merge_insert(table: FlusherTable, key: Key) -> None:
    row = {**table.model[key], "a": 778}
    table.dataset.merge_insert(["region", "id"]).when_matched_update_all().execute(pa.Table.from_pylist([row], COLUMNS))
    table.model[key] = row


def add_values(table: FlusherTable, _: Places) -> None:
    """Rows that are there get the value 7.  A patch that waits keeps it, an upsert does not."""

    @lance.batch_udf(output_schema=pa.schema([("extra", pa.int64())]))
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pa.array([7] * batch.num_rows, pa.int64())], ["extra"])

    there, patched = table.rows(), {operation.id for operation in MERGED if operation.op is Op.PATCH}
    table.dataset.add_columns(compute, read_columns=["id"])
    keys = set(map(by_key, there))
    for key, row in table.model.items():
        row["extra"] = 7 if row in there or (key in keys and key[0] == "r0" and key[1] in patched) else None


def rename_and_adopt(table: FlusherTable, _: Places) -> None:
    table.dataset.alter_columns({"path": "s", "name": "text"})
    changed(table, Adopted(()))
    for row in table.model.values():
        row["text"] = row.pop("s")


def merge_insert_column(table: FlusherTable, key: Key) -> None:
    some = pa.Table.from_pylist(
        [{"region": key[0], "id": key[1], "a": 779}], pa.schema([COLUMNS.field(n) for n in ("region", "id", "a")])
    )
    table.dataset.merge_insert(["region", "id"]).when_matched_update_all().execute(some)
    table.model[key] = {**table.model[key], "a": 779}


def append_brought(table: FlusherTable, places: Places) -> None:
    assert places.brought is not None
    table.user_append(0, [places.brought], in_model=False)


def insert_brought(table: FlusherTable, places: Places) -> None:
    assert places.brought is not None
    rows = table.user_rows(0, [places.brought])
    table.dataset.merge_insert(["region", "id"]).when_not_matched_insert_all().execute(rows)


def restore(table: FlusherTable, _: Places) -> None:
    old: Any = lance.dataset(table.uri, version=table.dataset.version - 1)
    old.restore()


def recreate(table: FlusherTable, _: Places) -> None:
    for name in ("data", "_versions", "_transactions", "_deletions", "_indices"):
        shutil.rmtree(Path(table.uri) / name, ignore_errors=True)
    lance.write_dataset(table.user_rows(0, [1]), table.uri, mode="create")


def delete_and_clean_up(table: FlusherTable, places: Places) -> None:
    """The version that the commit was computed from is gone."""
    remove(table, places.changed)
    table.clean_up()


def delete_append_and_clean_up(table: FlusherTable, places: Places) -> None:
    """And the one that it must be compared with."""
    remove(table, places.changed)
    table.user_append(1, [700], in_model=True)
    table.clean_up()


def compact_and_clean_up(table: FlusherTable, places: Places) -> None:
    """Here another flusher's round has seen the versions that go: its checkpoint proves that none was a merge."""
    rewrite(table, places.changed)
    table.user_append(1, [700], in_model=True)
    table.round()
    table.clean_up()


def alter(*changes: Change, shown: Callable[[Row], Row] = dict) -> Event:
    """``lancewal table alter``; ``shown``: how rows look afterwards."""

    def act(table: FlusherTable, _: Places) -> None:
        changed(table, *changes)
        table.model.update({key: shown(row) for key, row in table.model.items()})

    return Event(act)


def changed(table: FlusherTable, *changes: Change) -> None:
    change_columns(table.store, LanceTable(table.uri), SystemClock(), table.new_id, changes)
    table.take_up()


def widen(table: FlusherTable, _: Places) -> None:
    """Another flusher writes a column again, and commits its files."""
    changed(table, Added(("n",), pa.int32()))
    changed(table, Widened(("n",), pa.int64()))
    assert isinstance(widen_next(table.context(), WideningState()), WideningDone)
    table.take_up()
    table.model.update({key: {**row, "n": None} for key, row in table.model.items()})


def at(change: Callable[[FlusherTable, Key], object], place: str) -> Event:
    return Event(lambda table, places: change(table, getattr(places, place)))


EVENTS: Mapping[str, Event] = {
    "merge, rows of a fragment that it changes": Event(merge_there),
    "merge, elsewhere": Event(merge_of(upsert(200, a=200))),
    "compaction of a fragment that it changes": at(rewrite, "changed"),
    "compaction of the sentinel": at(rewrite, "sentinel"),
    "compaction elsewhere": at(rewrite, "elsewhere"),
    "compaction by Lance (`compact_files`)": Event(
        lambda t, _: t.dataset.optimize.compact_files(target_rows_per_fragment=1_000)
    ),
    "index built on another column": Event(lambda t, _: t.dataset.create_scalar_index("id", "BTREE")),
    "index built anew": Event(lambda t, _: t.dataset.create_scalar_index("a", "BTREE", replace=True)),
    "index extended": Event(lambda t, _: t.dataset.optimize.optimize_indices()),
    "index dropped": Event(lambda t, _: t.dataset.drop_index("a_idx")),
    "configuration changed": Event(lambda t, _: t.dataset.update_config({"user": "x"})),
    "append, new keys": Event(lambda t, _: t.user_append(0, [700, 701], in_model=True)),
    "append, keys that the merge brings": Event(append_brought),
    "merge_insert that adds keys that the merge brings": Event(insert_brought),
    "delete, in a fragment that it changes": at(remove, "changed"),
    "delete, in the sentinel": at(remove, "sentinel"),
    "delete, elsewhere": at(remove, "elsewhere"),
    "update, in a fragment that it changes": at(update, "changed"),
    "update, elsewhere": at(update, "elsewhere"),
    "merge_insert, in a fragment that it changes": at(merge_insert, "changed"),
    "merge_insert, elsewhere": at(merge_insert, "elsewhere"),
    "merge_insert of one column, in a fragment that it changes": at(merge_insert_column, "changed"),
    "merge_insert of one column, in the sentinel": at(merge_insert_column, "sentinel"),
    "merge_insert of one column, elsewhere": at(merge_insert_column, "elsewhere"),
    "column added that is not nullable": Event(
        lambda t, _: t.dataset.add_columns({"extra": "1"}), lambda row: {**row, "extra": 1}
    ),
    "nullable column added": Event(add_values),
    "column renamed, and this adopted by `lancewal table alter`": Event(rename_and_adopt),
    "column renamed": Event(
        lambda t, _: t.dataset.alter_columns({"path": "a", "name": "b"}),
        lambda row: {("b" if name == "a" else name): value for name, value in row.items()},
    ),
    "column dropped": Event(
        lambda t, _: t.dataset.drop_columns(["a"]),
        lambda row: {name: value for name, value in row.items() if name != "a"},
    ),
    "column of another type": Event(
        lambda t, _: t.dataset.alter_columns({"path": "s", "data_type": pa.large_string()}), dict
    ),
    "`table alter` adds a column": alter(Added(("note",), pa.string()), shown=lambda row: {**row, "note": None}),
    "`table alter` renames a column": alter(
        Renamed(("s",), "text"),
        shown=lambda row: {("text" if name == "s" else name): value for name, value in row.items()},
    ),
    "`table alter` drops a column": alter(
        Dropped(("s",)), shown=lambda row: {name: value for name, value in row.items() if name != "s"}
    ),
    "`table alter` forgets a name": alter(
        Renamed(("s",), "text"),
        Forgotten(("s",)),
        shown=lambda row: {("text" if name == "s" else name): value for name, value in row.items()},
    ),
    "a flusher widens a column": Event(widen),
    "restore": Event(restore),
    "overwrite": Event(lambda t, _: lance.write_dataset(t.user_rows(0, [1]), t.uri, mode="overwrite")),
    "table recreated": Event(recreate),
    "clean-up, nothing else": Event(lambda t, _: t.clean_up()),
    "delete in a fragment that it changes, and clean-up": Event(delete_and_clean_up),
    "delete in a fragment that it changes, append, and clean-up": Event(delete_append_and_clean_up),
    "compaction of a fragment that it changes, append, a round of another flusher, and clean-up": Event(
        compact_and_clean_up
    ),
    "clean-up with delete_unverified": Event(lambda t, _: t.clean_up(delete_unverified=True)),
}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Four fragments: the sentinel of region 0; forty rows of region 1; ten of each.  The last one is not indexed."""
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(10)))
    made.round()
    made.user_append(1, range(40), in_model=True)
    made.user_append(0, range(10, 20), in_model=True)
    made.dataset.create_scalar_index("a", "BTREE")
    made.user_append(1, range(40, 50), in_model=True)
    checkpoint(made)
    yield made
    made.close()


def checkpoint(table: FlusherTable) -> None:
    """What each round of a flusher writes for the version that it finds."""
    pinned, in_force = table.context().watermarks.newest()
    table.context().watermarks.record(in_force, pinned.version, "checkpoint")


def go_on(table: FlusherTable) -> None:
    """What a flusher does next: merges, a turn of compaction, the indexes."""
    table.round()
    compact_next(table.context(), LIMITS, FileSizes(), with_sentinel=False)
    extend_indexes(table.context(), IndexLimits(), at_once=True)


def ended(table: FlusherTable, work: Work, event: Event) -> str:
    """How it ends, in the words of the page; whatever it is, the table is as it must be."""
    raced = RacedTable(table.uri)
    after: list[list[Row]] = []

    def act() -> None:
        event.act(table, work.places)
        after.append(sorted_rows(table.rows()))

    try:
        work.start(table, raced, act)
        go_on(table)
    except LancewalError:
        check_stopped(table, event, raced.landed, after[0])
        how = "commutes, then " if raced.landed[0] else "planned again, then " if any(raced.landed) else ""
        return f"{how}stops: {still_stopped(table)}"
    assert after, "nothing was committed"
    if twice := [key for key, count in Counter(map(by_key, table.rows())).items() if count > 1]:
        table.generation(0, [upsert(id, a=9) for _, id in twice])  # Kafka's next row
        table.round()
    table.check()
    check_queries(table)
    return "commutes, twice" if twice else "commutes" if raced.landed[0] else "planned again"


def check_stopped(table: FlusherTable, event: Event, commits: list[int | None], after: list[Row]) -> None:
    """The table is as somebody else has left it, but for a commit of ours that landed."""
    landed = [version for version in commits if version is not None]
    try:
        rows = sorted_rows(table.rows())
    except pa.ArrowInvalid:  # files are gone: the version below has them all
        below: Any = lance.dataset(table.uri, version=landed[0] - 1)
        rows = sorted_rows(below.to_table().to_pylist())
    if landed and event.shown is not None:
        assert rows == sorted_rows([event.shown(row) for row in table.model.values()])
    else:
        assert rows == after


def still_stopped(table: FlusherTable) -> str:
    """With which error a flusher stops that starts now; it changes nothing."""
    version = table.dataset.version
    with pytest.raises(LancewalError) as stopped:
        go_on(table)
    assert table.dataset.version == version
    return type(stopped.value).__name__


def by_key(row: Row) -> Key:
    return (row["region"], row["id"])


def sorted_rows(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def check_queries(table: FlusherTable) -> None:
    """What a query by the index finds."""
    for value in {row["a"] for row in table.model.values()} | {12}:
        if value is not None:
            found = table.dataset.to_table(filter=f"a = {value}", columns=["region", "id"]).to_pylist()
            assert sorted(map(by_key, found)) == sorted(k for k, row in table.model.items() if row["a"] == value), value


# -- the page ---------------------------------------------------------------------------------------------------------


def cells() -> dict[str, dict[str, str]]:
    """The page's table: by what lands in between, and by what is under way."""
    found: dict[str, dict[str, str]] = {}
    for line in PAGE.read_text().splitlines():
        event, *columns = [column.strip() for column in line.strip("|").split("|")]
        if line.startswith("|") and event in EVENTS:
            found[event] = dict(zip(WORKS, [column.replace("`", "") for column in columns], strict=True))
    return found


CELLS = cells()


def test_the_page_has_every_row() -> None:
    assert list(CELLS) == list(EVENTS)


def each(work: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "event", [name for name in EVENTS if CELLS.get(name, {}).get(work) != "does not apply"]
    )


@each("merge")
def test_a_merge_under_way(table: FlusherTable, event: str) -> None:
    assert ended(table, WORKS["merge"], EVENTS[event]) == CELLS[event]["merge"]


@each("follow-up")
def test_a_follow_up_under_way(table: FlusherTable, event: str) -> None:
    assert ended(table, WORKS["follow-up"], EVENTS[event]) == CELLS[event]["follow-up"]


@each("compaction")
def test_a_compaction_under_way(table: FlusherTable, event: str) -> None:
    assert ended(table, WORKS["compaction"], EVENTS[event]) == CELLS[event]["compaction"]


@each("index extension")
def test_an_index_extension_under_way(table: FlusherTable, event: str) -> None:
    assert ended(table, WORKS["index extension"], EVENTS[event]) == CELLS[event]["index extension"]
