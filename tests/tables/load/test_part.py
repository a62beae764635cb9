"""Bulk loads on real Lance tables: what is there equals a dict in which whatever came through Kafka is newer.

The oracle (``World``) knows the merged rows, what waits to be merged, and since when each load remembers deletes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancewal_core.errors import (
    CommitUnknown,
    DuplicateKeys,
    InvalidInput,
    InvalidSchema,
    ObjectMissing,
    OutsideHistoryWindow,
    PlanRetriesExhausted,
)
from lancewal_core.names import paths
from lancewal_core.process.failpoints import FailpointError, configure
from lancewal_core.region.transitions import trim
from lancewal_core.rows.schema import Op
from lancewal_core.table.protocol import CommitLost, CommitOutcome, Committed, TableCommit
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.merge import merge_next
from lancewal_flusher.upkeep.key_runs import UpkeepState, keep_up
from lancewal_tables.load.duplicates import Duplicates
from lancewal_tables.load.files import find_files
from lancewal_tables.load.whole import LoadAsked, LoadBounds, LoadSummary, load
from tests.support.asked import keys_read
from tests.support.flusher_tables import (
    COLUMNS,
    COMBINE,
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

SMALL = LoadBounds(part_rows=7, keys_at_once=10)


def loaded_row(partition: int, id: int, a: int) -> Row:
    return {"region": f"r{partition}", "id": id, "a": a, "s": "loaded", "tags": ["x", None]}


def key_of(row: Row) -> Key:
    return row["region"], row["id"]


class World:
    """The table under test and what it must hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = FlusherTable(folder)
        self.merged: dict[Key, Row] = {}
        self.waiting: list[tuple[int, Sequence[Operation]]] = []
        self.deleted: list[Key] = []
        """Every key that a merge has deleted, in order."""
        self.began: dict[str, int] = {}
        """By load: how many of these there were."""
        self.files = 0

    # -- streaming -----------------------------------------------------------------------------------------------

    def stream(self, partition: int, operations: Sequence[Operation]) -> None:
        self.table.generation(partition, operations)
        self.waiting.append((partition, operations))

    def merge(self, context: FlusherContext | None = None) -> None:
        self.table.round(COMBINE, context)
        self.apply_waiting()

    def apply_waiting(self) -> None:
        for partition, operations in self.waiting:
            for operation in operations:
                key = (f"r{partition}", operation.id)
                nothing = {"region": key[0], "id": key[1], "a": None, "s": None, "tags": None}
                if operation.op is Op.DELETE:
                    self.merged.pop(key, None)
                    self.deleted.append(key)
                else:
                    before = self.merged.get(key, nothing) if operation.op is Op.PATCH else nothing
                    self.merged[key] = {**before, **operation.values}
        self.waiting.clear()

    # -- loading -------------------------------------------------------------------------------------------------

    def write(self, rows: Sequence[Row], form: str = "parquet") -> str:
        self.files += 1
        file = self.folder / f"load-{self.files}.{form}"
        table = pa.Table.from_pylist(list(rows), COLUMNS)
        if form == "parquet":
            pq.write_table(table, file, row_group_size=5)
        else:
            with pa.ipc.new_file(str(file), COLUMNS) as writer:
                writer.write_table(table, max_chunksize=4)
        return str(file)

    def load(
        self,
        files: Sequence[str],
        name: str = "load",
        duplicates: Duplicates = Duplicates.ERROR,
        table: ScriptedTable | None = None,
        bounds: LoadBounds = SMALL,
    ) -> LoadSummary:
        return load(self.table.context(table), find_files(files, {}), LoadAsked(name, duplicates, bounds))

    def expect(self, rows: Sequence[Row], name: str = "load") -> None:
        """The rows are loaded now."""
        blocked = set(self.deleted[self.began.setdefault(name, len(self.deleted)) :])
        newest = {key_of(row): row for row in rows}
        for key, row in newest.items():
            if key not in self.merged and key not in blocked:
                self.merged[key] = row

    def begin(self, name: str) -> None:
        from lancewal_tables.load.whole import _begin

        _begin(self.table.context(), name)
        self.began.setdefault(name, len(self.deleted))

    def check(self) -> None:
        rows = self.table.rows()
        assert max(Counter(key_of(row) for row in rows).values(), default=1) == 1
        assert {key_of(row): row for row in rows} == self.merged


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.table.close()


@pytest.fixture
def filled(world: World) -> World:
    """Ids 0 to 9 of region 0 merged; 3 deleted; 20 to 24 of region 1 merged."""
    world.stream(0, upserts(range(10)))
    world.stream(1, upserts(range(20, 25)))
    world.merge()
    world.stream(0, [delete(3)])
    world.merge()
    world.check()
    return world


def rows_of(partition: int, ids: Sequence[int], a: int = -1) -> list[Row]:
    return [loaded_row(partition, id, a) for id in ids]


# -- what comes in ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("indexed", [True, False])
def test_rows_without_a_row_come_in(filled: World, form: str, indexed: bool) -> None:
    if indexed:
        keep_up(filled.table.context(), UpkeepState())
    rows = rows_of(0, range(30)) + rows_of(1, range(30))
    done = filled.load([filled.write(rows[:40], form), filled.write(rows[40:], form)])
    filled.expect(rows)
    filled.check()
    # 3 was deleted before the load began: it is not known any more
    assert (done.rows, done.inserted, done.present, done.deleted) == (60, 46, 14, 0)
    again = filled.load([filled.write(rows, form)])
    assert (again.inserted, again.present, again.commits) == (0, 60, 0)
    filled.check()


def test_into_an_empty_table_and_then_the_stream(world: World) -> None:
    rows = rows_of(0, range(20))
    world.load([world.write(rows)])
    world.expect(rows)
    world.stream(0, [upsert(1, a=1), delete(2), patch(3, a=3), upsert(100, a=1)])
    world.check()
    world.merge()
    world.check()
    assert world.merged["r0", 3] == {"region": "r0", "id": 3, "a": 3, "s": "loaded", "tags": ["x", None]}


def test_what_waits_unmerged_is_newer(filled: World) -> None:
    filled.stream(0, [upsert(50, a=1), delete(51), patch(52, a=2)])
    rows = rows_of(0, [50, 51, 52, 53])
    filled.load([filled.write(rows)])
    filled.expect(rows)
    filled.check()
    filled.merge()
    filled.check()
    assert ("r0", 51) not in filled.merged
    assert filled.merged["r0", 52]["s"] == "loaded"


def test_what_is_deleted_behind_the_beginning_stays_deleted(filled: World) -> None:
    filled.begin("export")
    filled.stream(0, [delete(4), delete(60)])
    filled.stream(0, [upsert(5, a=5)])
    filled.merge()
    rows = rows_of(0, [3, 4, 5, 60, 61])
    done = filled.load([filled.write(rows)], "export")
    filled.expect(rows, "export")
    filled.check()
    assert (done.inserted, done.present, done.deleted) == (2, 1, 2)
    # a load that begins now does not know
    filled.load([filled.write(rows)], "later")
    filled.expect(rows, "later")
    filled.check()
    assert ("r0", 4) in filled.merged


def test_a_beginning_that_is_trimmed_is_an_error(filled: World) -> None:
    filled.begin("export")
    for id in (4, 5, 6):
        filled.stream(0, [delete(id)])
        filled.merge()
    region = filled.table.regions[0]
    context = filled.table.context()
    last = filled.table.record(0, 4)
    assert context.states.swap({region: lambda found: found and trim(found, last, "12345678")})[region][0]
    file = filled.write(rows_of(0, [4]))
    with pytest.raises(OutsideHistoryWindow, match=r"load export began before generation 3.*another name"):
        filled.load([file], "export")
    filled.check()


def test_deletes_whose_flush_is_lost_are_read_from_the_log(filled: World) -> None:
    filled.begin("export")
    filled.stream(0, [delete(4)])
    filled.merge()
    flushed = filled.table.flushed(0, 3)
    filled.table.store.delete([flushed.key])
    done = filled.load([filled.write(rows_of(0, [4]))], "export")
    assert done.deleted == 1
    filled.check()


def test_deletes_of_generations_that_share_a_flush_are_read_once(
    filled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.begin("export")
    table = filled.table
    deleted = {0: [delete(4)], 1: [delete(21), delete(22)]}
    (flush, _) = table.generations(deleted)
    filled.waiting += deleted.items()
    filled.merge()
    asked = keys_read(table.store, monkeypatch)
    assert filled.load([filled.write(rows_of(0, [4]) + rows_of(1, [21]))], "export").deleted == 2
    assert flush.deletes is not None
    assert [asked.count(key) for key in (flush.key, flush.deletes.key)] == [1, 1]
    filled.check()


# -- keys twice in the files -----------------------------------------------------------------------------------


def test_a_key_twice_in_the_files_is_named(filled: World) -> None:
    files = [filled.write(rows_of(0, range(100, 130))), filled.write(rows_of(0, [129, 140, 100]))]
    with pytest.raises(
        DuplicateKeys, match=r"2 primary keys found more than once in the files.*id=1\d\d\) 2 times.*--duplicates last"
    ):
        filled.load(files)
    filled.check()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_the_last_row_of_a_key(filled: World, form: str) -> None:
    first = [loaded_row(0, id, a) for a, id in enumerate([100, 101, 102, 100, 103, 104, 105, 106, 101, 107, 108, 109])]
    second = [loaded_row(0, id, 100 + a) for a, id in enumerate([102, 102, 110, 111, 112, 113, 114, 115, 100])]
    files = [filled.write(first, form), filled.write(second, form)]
    done = filled.load(files, duplicates=Duplicates.LAST)
    filled.expect([*first, *second])
    filled.check()
    assert done.inserted == 16
    assert done.inserted + done.present + done.doubled == len(first) + len(second)


# -- commits next to a load ------------------------------------------------------------------------------------


def test_a_merge_first(filled: World) -> None:
    """It brings, deletes and patches keys of the load after the load has looked."""
    filled.stream(0, [upsert(50, a=1), delete(51), upsert(52, a=1), patch(53, a=2), delete(5)])
    rows = rows_of(0, [5, 50, 51, 52, 53, 54])
    raced = ScriptedTable(filled.table.uri)
    filled.began["load"] = len(filled.deleted)
    raced.before = [filled.merge]
    filled.load([filled.write(rows)], table=raced)
    filled.expect(rows)
    filled.check()
    assert {("r0", 51), ("r0", 5)}.isdisjoint(filled.merged)


def test_a_load_first(filled: World) -> None:
    """It lands after a merge has looked."""
    filled.stream(0, [upsert(50, a=1), delete(51), patch(53, a=2)])
    rows = rows_of(0, [50, 51, 52, 53])
    raced = ScriptedTable(filled.table.uri)

    def act() -> None:
        filled.load([filled.write(rows)])
        filled.expect(rows)

    raced.before = [act]
    filled.merge(filled.table.context(raced))
    filled.check()
    assert filled.merged["r0", 53]["s"] == "loaded"


def test_two_loads_of_the_same_keys(filled: World) -> None:
    rows, others = rows_of(0, range(50, 55)), rows_of(0, range(52, 57), a=-2)
    raced = ScriptedTable(filled.table.uri)

    def act() -> None:
        filled.load([filled.write(others)], "other")
        filled.expect(others, "other")

    raced.before = [act]
    done = filled.load([filled.write(rows)], table=raced)
    filled.expect(rows)
    filled.check()
    assert (done.inserted, done.present) == (2, 3)


@pytest.mark.parametrize("empty", [True, False])
def test_an_append_of_the_same_keys_in_between(tmp_path: Path, empty: bool) -> None:
    world = World(tmp_path)
    if not empty:
        world.stream(0, upserts(range(3)))
        world.merge()
    raced = ScriptedTable(world.table.uri)

    def act() -> None:
        world.table.user_append(0, [50, 51], in_model=False)
        world.merged |= {key_of(r): r for r in world.table.user_rows(0, [50, 51]).to_pylist()}

    raced.before = [act]
    rows = rows_of(0, range(50, 54))
    done = world.load([world.write(rows)], table=raced)
    world.expect(rows)
    world.check()
    assert (done.inserted, done.appended + done.present) == (2, 2)
    world.table.close()


def test_the_same_where_a_compaction_has_moved_both(filled: World) -> None:
    class Moved(ScriptedTable):
        def commit(self, commit: TableCommit) -> CommitOutcome:
            outcome = super().commit(commit)
            if commit.new_fragments and isinstance(outcome, Committed):
                filled.table.dataset.optimize.compact_files()
            return outcome

    raced = Moved(filled.table.uri)
    raced.before = [lambda: filled.table.user_append(0, [50], in_model=False)]
    rows = rows_of(0, range(50, 54))
    filled.load([filled.write(rows)], table=raced)
    filled.merged |= {key_of(r): r for r in filled.table.user_rows(0, [50]).to_pylist()}
    filled.expect(rows)
    filled.check()


def test_a_commit_whose_fate_is_cleaned_away_is_no_refusal(filled: World) -> None:
    """It has landed over a row that somebody appended: that nothing of ours is to be hidden is not said."""

    class Lost(ScriptedTable):
        def commit(self, commit: TableCommit) -> CommitOutcome:
            assert isinstance(super().commit(commit), Committed)
            filled.table.clean_up()
            return CommitLost("timed out")

    def append() -> None:
        filled.table.user_append(0, [50], in_model=False)
        filled.table.round()  # notes what is merged: of two versions in a row it is not known else

    raced = Lost(filled.table.uri)
    raced.before = [append]
    with pytest.raises(CommitUnknown, match="landed is unknown"):
        filled.load([filled.write(rows_of(0, range(50, 54)))], table=raced)


def test_merges_that_always_win(filled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lancewal_tables.load.part.PAUSE_S", 0.0)
    monkeypatch.setattr("lancewal_tables.load.part.REFUSALS_MAX", 3)
    raced = ScriptedTable(filled.table.uri)

    def act() -> None:
        filled.stream(0, [upsert(1, a=1)])
        filled.merge()

    raced.before = [act] * 3
    rows = rows_of(0, [50])
    with pytest.raises(PlanRetriesExhausted, match="pause flusher"):
        filled.load([filled.write(rows)], table=raced)
    filled.check()


# -- crashes and lost replies ----------------------------------------------------------------------------------


class DeafTable(ScriptedTable):
    """A commit lands and its reply is lost."""

    def commit(self, commit: TableCommit) -> CommitOutcome:
        outcome = super().commit(commit)
        return CommitLost("the reply was lost") if isinstance(outcome, Committed) else outcome


def test_a_lost_reply_and_a_lost_request(filled: World) -> None:
    rows = rows_of(0, range(50, 80))
    lossy = DeafTable(filled.table.uri)
    lossy.lose_request = 1
    done = filled.load([filled.write(rows)], table=lossy)
    filled.expect(rows)
    filled.check()
    assert done.inserted == 30


@pytest.mark.parametrize(
    "at", ["plan.pin:before:2", "fragment.write:after:2", "commit.send:before:2", "commit.recv:after:2"]
)
def test_killed_anywhere_and_started_again(filled: World, at: str) -> None:
    """Between the two tries Kafka deletes a key that was loaded, and one that was not yet."""
    rows = rows_of(0, range(50, 80))
    file = filled.write(rows)
    filled.began["load"] = len(filled.deleted)
    configure({"LANCEWAL_FAILPOINT": f"{at}=error", "LANCEWAL_TESTING": "1"})
    try:
        with pytest.raises(FailpointError):
            filled.load([file])
    finally:
        configure({})
    filled.stream(0, [delete(50), delete(79)])
    filled.merge()
    filled.load([file])
    filled.expect(rows)
    filled.check()
    assert {("r0", 50), ("r0", 79)}.isdisjoint(filled.merged)


def test_files_that_a_clean_up_takes_before_the_commit_are_named(filled: World) -> None:
    raced = ScriptedTable(filled.table.uri)
    raced.before = [lambda: filled.table.clean_up(delete_unverified=True)]
    with pytest.raises(ObjectMissing, match="clean-up"):
        filled.load([filled.write(rows_of(0, [50]))], table=raced)


# -- what is refused -------------------------------------------------------------------------------------------


def parquet(folder: Path, table: pa.Table) -> str:
    pq.write_table(table, folder / "wrong.parquet")
    return str(folder / "wrong.parquet")


def changed(name: str, column: Any) -> pa.Table:
    table = pa.Table.from_pylist(rows_of(0, [50, 51]), COLUMNS)
    at = table.schema.get_field_index(name)
    return table.set_column(at, name, column)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (lambda: changed("a", pa.array(["1", "2"])), "column 'a' has type string, the table has int64"),
        (lambda: changed("a", pa.array([1.0, 2.0])), "column 'a' has type double"),
        (lambda: changed("id", pa.array([1, None])), "column 'id' of the primary key is null in 1 row"),
        (lambda: changed("id", pa.array([1, 2**63], pa.uint64())), "column 'id' of type uint64 has a value that int64"),
        (lambda: changed("tags", pa.array([[1], [2]])), "column 'tags' has type list"),
        (
            lambda: changed("a", pa.array([1, 2])).drop_columns(["s", "tags"]),
            "'s' is missing; column 'tags' is missing",
        ),
        (lambda: changed("a", pa.array([1, 2])).append_column("b", pa.array([1, 2])), "column 'b' is not in the table"),
    ],
)
def test_columns_that_do_not_fit(filled: World, table: Callable[[], pa.Table], message: str) -> None:
    good = filled.write(rows_of(0, [60]))
    with pytest.raises(InvalidSchema, match=message):
        filled.load([good, parquet(filled.folder, table())])
    filled.check()


def test_text_that_is_no_utf_8(filled: World) -> None:
    wrong = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"a"]).buffers())
    with pytest.raises(InvalidSchema, match=r"column 's'.*damaged"):
        filled.load([parquet(filled.folder, changed("s", wrong))])
    filled.check()


def test_types_that_fit_keep_their_values(filled: World) -> None:
    table = pa.table(
        {
            "a": pa.array([7, None], pa.int8()),
            "id": pa.array([50, 51], pa.uint16()),
            "region": pa.array(["r0", "r0"], pa.large_string()),
            "tags": pa.array([["x"], None], pa.large_list(pa.large_string())),
            "s": pa.array(["y", None]).dictionary_encode(),
        }
    )
    filled.load([parquet(filled.folder, table)])
    filled.merged["r0", 50] = {"region": "r0", "id": 50, "a": 7, "s": "y", "tags": ["x"]}
    filled.merged["r0", 51] = {"region": "r0", "id": 51, "a": None, "s": None, "tags": None}
    filled.check()


def test_folders_and_files_that_are_none(filled: World, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    (folder / "part=1").mkdir(parents=True)
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / ".part.crc").write_bytes(b"x")
    with pytest.raises(InvalidInput, match="holds no file"):
        filled.load([str(folder)])
    pq.write_table(pa.Table.from_pylist(rows_of(0, [50]), COLUMNS), folder / "part=1" / "b.parquet")
    pq.write_table(pa.Table.from_pylist(rows_of(0, [51]), COLUMNS), folder / "a.parquet")
    assert [f.shown.removeprefix(f"{folder}/") for f in find_files([str(folder)], {})] == [
        "a.parquet",
        "part=1/b.parquet",
    ]
    assert filled.load([str(folder)]).inserted == 2
    for wrong, message in [
        (str(tmp_path / "no" / "x.parquet"), "there is no file or folder"),
        (str(tmp_path / "x.parquet"), "there is no file"),
        (str(tmp_path / "nowhere"), "there is no file or folder"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            filled.load([wrong])
    with pytest.raises(InvalidInput, match="is named 2 times"):
        filled.load([str(folder), str(folder / "a.parquet")])
    (folder / "notes.txt").write_bytes(b"x")
    for named in (folder, folder / "notes.txt"):
        with pytest.raises(InvalidInput, match=r"notes\.txt is not Parquet"):
            filled.load([str(named)])
    assert find_files([], {}) == ()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "stream.arrow").write_bytes(b"")
    for name, message in [("broken.parquet", "cannot be read"), ("stream.arrow", "IPC file first")]:
        with pytest.raises(InvalidInput, match=message):
            filled.load([str(tmp_path / name)])
    with pytest.raises(InvalidInput, match="cannot be part of an object key"):
        filled.load([str(folder / "a.parquet")], "../x")
    assert [i.key for i in filled.table.store.list(paths.loads_prefix(None))] == [paths.load_record("load", None)]


# -- any order -------------------------------------------------------------------------------------------------


@pytest.mark.in_turns("seed", each=4)
@pytest.mark.parametrize("seed", range(12))
def test_random_loads_and_streams(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = World(tmp_path)

    def operations() -> list[Operation]:
        ids = [chance.randrange(25) for _ in range(chance.randint(1, 8))]
        kinds: list[Callable[[int], Operation]] = [
            lambda id: upsert(id, a=chance.randrange(99)),
            delete,
            lambda id: patch(id, a=chance.randrange(99)),
        ]
        return [chance.choices(kinds, [3, 2, 2])[0](id) for id in ids]

    def stream() -> None:
        world.stream(chance.randrange(2), operations())

    def load_some(table: ScriptedTable | None = None) -> None:
        rows = [loaded_row(chance.randrange(2), chance.randrange(25), chance.randrange(99)) for _ in range(20)]
        name = chance.choice(["one", "two", "three"])
        # the load begins before what lands in between
        world.began.setdefault(name, len(world.deleted))
        world.load([world.write(rows)], name, Duplicates.LAST, table)
        world.expect(rows, name)

    def raced_load() -> None:
        stream()
        raced = ScriptedTable(world.table.uri)
        raced.lose_request = chance.randrange(2)
        raced.before = [world.merge]
        rows = [loaded_row(chance.randrange(2), id, chance.randrange(99)) for id in chance.sample(range(25), 6)]
        world.began.setdefault("raced", len(world.deleted))
        world.load([world.write(rows)], "raced", table=raced)
        world.expect(rows, "raced")

    def raced_merge() -> None:
        stream()
        raced = ScriptedTable(world.table.uri)
        raced.before = [load_some]
        merge_next(world.table.context(raced), OPEN_ROWS)
        world.merge()

    steps = [stream, world.merge, load_some, raced_load, raced_merge]
    for _ in range(14):
        chance.choices(steps, [4, 2, 3, 1, 1])[0]()
        world.check()
    world.merge()
    world.check()
    world.table.close()
