"""Whatever strategy a merge takes for a fragment, the table equals the model: strategies are forced at random here."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lancewal_core.errors import ContractMismatch, ObjectMissing, Refresh, Retry, RewriteFailed
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.rows.schema import Op
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import Committed, RewriteBounds, TableCommit
from lancewal_flusher.merge.merge import Merged, merge_next
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks import in_place
from lancewal_flusher.tasks.cost import Cost, FragmentChange, Strategy, costs
from lancewal_flusher.tasks.merge_task import FragmentResult, FragmentTask, run_task
from lancewal_flusher.tasks.rewrite_task import RewriteTask, Rewritten
from lancewal_flusher.tasks.runner import ThreadRunner
from lancewal_flusher.upkeep.compaction import FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
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
from tests.support.whole_path import until

LIMITS = MergeLimits(adopt_rows=10, in_place_rows=1)
REWRITE = CompactionLimits(deleted_share=0.01, fragments_min=100)
"""Whatever hides a row."""


def columns_where_possible(costs: Sequence[Cost]) -> Cost:
    return next((cost for cost in costs if cost.strategy is Strategy.COLUMNS), costs[0])


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches in place wherever that is possible."""
    monkeypatch.setattr(in_place, "least", columns_where_possible)


@pytest.fixture
def table(tmp_path: Path, forced: None) -> Iterator[FlusherTable]:
    """Two regions with a fragment of twenty rows each, known to the key index."""
    made = FlusherTable(tmp_path)
    for partition in range(2):
        made.generation(partition, upserts(range(20)))
    made.round(LIMITS)
    yield made
    made.close()


def merged(table: FlusherTable, limits: MergeLimits = LIMITS, context: Any = None) -> Merged:
    (merge,) = table.round(limits, context).merges
    return merge


def scripted(table: FlusherTable, *before: Callable[[], object]) -> Any:
    raced = ScriptedTable(table.uri)
    raced.before = [*before]
    return table.context(raced)


def patches(ids: Sequence[int] = range(5), a: int = 7) -> list[Operation]:
    return [patch(id, a=a + id) for id in ids]


# -- in place ---------------------------------------------------------------------------------------------------


def test_patched_rows_stay_where_they_are(table: FlusherTable) -> None:
    table.generation(0, [*patches(), patch(5, s=None), patch(6, tags=["x", "y"]), patch(7), patch(99, a=1)])
    merge = merged(table)
    assert (merge.rows_in_place, merge.rows_written, merge.rows_replaced) == (8, 1, 8)
    table.check()
    assert [f.num_deletions for f in table.dataset.get_fragments()] == [0, 0, 0]


def test_other_rows_of_the_fragment_are_hidden(table: FlusherTable) -> None:
    table.generation(0, [*patches(), upsert(10, a=1), delete(11)])
    assert merged(table).rows_in_place == 5
    table.check()
    table.generation(0, [*patches(range(3, 12)), delete(1)])  # key 11 is gone, and key 10 lies elsewhere
    merge = merged(table)
    assert (merge.rows_in_place, merge.rows_written) == (8, 1)
    table.check()


def test_the_columns_of_an_earlier_patch_give_way(table: FlusherTable) -> None:
    for n in range(4):
        table.generation(0, [patch(id, a=n) for id in range(n, 10)])
        merged(table)
        table.check()
    assert max(len(f.metadata.files) for f in table.dataset.get_fragments()) == 2
    table.generation(0, [patch(3, s="last", a=1)])
    merged(table)
    table.check()
    table.dataset.optimize.compact_files(target_rows_per_fragment=1_000)
    table.check()


def test_a_row_that_is_there_twice_does_not_stay_so(table: FlusherTable) -> None:
    table.user_append(0, [3], in_model=False)
    context = table.context()
    table.round(LIMITS, context)  # the key index covers it
    table.generation(0, [patch(3, a=1, s="x", tags=None), patch(4, a=1)])
    assert merged(table, context=context).rows_in_place == 1
    table.check()


def test_a_fragment_that_the_index_does_not_cover_forbids_it(table: FlusherTable) -> None:
    table.user_append(0, [3], in_model=False)
    table.generation(0, [patch(3, a=1, s="x", tags=None), patch(4, a=1)])
    merge = merged(table)
    assert (merge.rows_in_place, merge.fragments_scanned) == (0, 1)
    table.check()


def test_tables_with_stable_row_ids_keep_to_new_rows(tmp_path: Path, forced: None) -> None:
    made = FlusherTable(tmp_path, stable_row_ids=True)
    made.generation(0, upserts(range(20)))
    made.round(LIMITS)
    made.generation(0, patches())
    assert merged(made).rows_in_place == 0
    made.check()
    made.close()


def test_few_patches_are_not_worth_a_look(tmp_path: Path) -> None:
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(20_000)))
    made.round()
    made.generation(0, patches(range(999)))
    assert merged(made, MergeLimits()).rows_in_place == 0
    made.generation(0, patches(range(1_000, 11_000)))
    assert merged(made, MergeLimits()).rows_in_place == 10_000
    made.check()
    made.close()


class Elsewhere:
    """Tasks that travel, and run with nothing but the table, as on Spark's executors."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def run(self, tasks: Sequence[FragmentTask]) -> list[FragmentResult]:
        arrived: list[FragmentTask] = pickle.loads(pickle.dumps(tasks, 5))
        results = [run_task(LanceTable(self.uri), task) for task in arrived]
        found: list[FragmentResult] = pickle.loads(pickle.dumps(results, 5))
        return found

    def rewrite(self, tasks: Sequence[RewriteTask]) -> list[Rewritten]:
        raise AssertionError("a merge compacts nothing")


def test_tasks_travel(table: FlusherTable) -> None:
    table.generation(0, [*patches(), patch(5, s="x"), upsert(10, a=1), delete(11)])
    assert merged(table, context=replace(table.context(), runner=Elsewhere(table.uri))).rows_in_place == 6
    table.check()


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_columns_under_an_index_are_not_patched_in_place(table: FlusherTable, kind: str, between: bool) -> None:
    def build() -> None:
        table.dataset.create_scalar_index("a", kind)

    if not between:
        build()
    table.generation(0, [*patches(a=100), upsert(50, a=104)])
    report = table.round(LIMITS, scripted(table, *[build] * between))
    assert [merge.rows_in_place for merge in report.merges] == [0]
    assert ["a_idx" in refused.reason for refused in report.refused] == [True] * between
    for merged in (0, 1, 10):
        for a in (0, 100, 104):
            expected = sorted(key for key, row in table.model.items() if row["a"] == a)
            found = table.dataset.to_table(filter=f"a = {a}").to_pylist()
            assert sorted((row["region"], row["id"]) for row in found) == expected
        table.dataset.optimize.optimize_indices(num_indices_to_merge=merged)


@pytest.mark.parametrize("covered", [True, False])
def test_nor_columns_of_which_an_index_knows_a_member(tmp_path: Path, forced: None, covered: bool) -> None:
    """Whether it covers the fragment or not: what it held once is not known."""
    table = FlusherTable(tmp_path, more=[pa.field("w", pa.struct([("x", pa.int64()), ("y", pa.string())]))])
    rest: dict[str, Any] = {"a": 1, "s": "s", "tags": None}
    table.generation(0, [Operation(Op.UPSERT, id, {**rest, "w": {"x": id, "y": "y"}}) for id in range(20)])
    if covered:
        table.round(LIMITS)
    table.dataset.create_scalar_index("w.x", "BTREE")
    table.round(LIMITS)
    assert [bool(index.covered) for index in table.context().table.newest().indexes()] == [covered]
    table.generation(0, [patch(id, w={"x": 100, "y": "z"}) for id in range(10)])
    assert merged(table).rows_in_place == 0
    table.generation(0, [patch(id, a=7) for id in range(10, 20)])
    assert merged(table).rows_in_place == 10
    table.check()
    assert table.dataset.count_rows("w.x = 100") == 10
    table.close()


def test_what_a_row_takes_in_an_index_is_weighed(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a real index, as Lance says at the time; what comes of it is the cost model's."""
    table.dataset.create_scalar_index("s", "BTREE")
    (index,) = table.context().table.newest().indexes()
    assert index.columns == {"s"}
    assert index.row_bytes > 8
    asked: list[float] = []

    def noted(change: FragmentChange, deleted_share: float) -> Sequence[Cost]:
        asked.append(change.index_row_bytes)
        return costs(change, deleted_share)

    monkeypatch.setattr(in_place, "costs", noted)
    table.generation(0, patches(a=100))
    merged(table)
    assert asked == [index.row_bytes]


# -- others in between -------------------------------------------------------------------------------------------


def add_column(table: FlusherTable) -> None:
    table.dataset.add_columns({"more": "id + 1"})
    table.dataset.drop_columns(["more"])


@pytest.mark.parametrize(
    ("act", "refused"),
    [
        (lambda t: t.user_delete(0, 3), 1),
        (lambda t: t.user_delete(0, 15), 1),
        (lambda t: t.dataset.optimize.compact_files(target_rows_per_fragment=1_000), 1),
        (add_column, 1),
        (lambda t: t.user_append(0, [500], in_model=True), 0),
        (lambda t: t.user_append(0, [4], in_model=False), 0),
        (lambda t: t.dataset.create_scalar_index("s", "BTREE"), 0),
        (lambda t: t.dataset.create_scalar_index("a", "BTREE"), 1),
        (lambda t: t.round(LIMITS), 1),
    ],
    ids=[
        "delete-patched",
        "delete-other",
        "compaction",
        "column",
        "append",
        "append-its-key",
        "index",
        "index-over-it",
        "merge",
    ],
)
def test_what_comes_in_between(table: FlusherTable, act: Callable[[FlusherTable], object], refused: int) -> None:
    table.generation(0, [*patches(range(5, 9)), patch(4, a=1)])
    report = table.round(LIMITS, scripted(table, lambda: act(table)))
    assert len(report.refused) == refused
    if refused and act is not add_column and table.model.get(("r0", 3)) is None:
        # The user deleted row 3 before the merge that landed: nothing of it comes back.
        assert ("r0", 3) not in {(r["region"], r["id"]) for r in table.rows()}
    table.check()
    assert table.states(0) == ["MERGED", "MERGED"]


def test_a_patched_column_dropped_in_between_stops(table: FlusherTable) -> None:
    table.generation(0, patches())
    with pytest.raises(ContractMismatch):
        table.round(LIMITS, scripted(table, lambda: table.dataset.drop_columns(["a"])))


def test_the_version_read_is_cleaned_up(table: FlusherTable) -> None:
    def act() -> None:
        table.user_append(1, [700], in_model=True)
        table.clean_up()

    table.generation(0, patches())
    report = table.round(LIMITS, scripted(table, act))
    assert (len(report.refused), len(report.merges)) == (1, 1)
    table.check()


def test_a_lost_column_file_is_named(table: FlusherTable) -> None:
    before = {f.path for fragment in table.dataset.get_fragments() for f in fragment.metadata.files}
    table.generation(0, patches())
    context = table.context()
    assert isinstance(merge_next(context, LIMITS), Merged)
    after = {f.path for fragment in table.dataset.get_fragments() for f in fragment.metadata.files}
    (name,) = after - before
    (Path(table.uri) / "data" / name).unlink()
    with pytest.raises(ObjectMissing, match=name):
        table.round(LIMITS)
    assert table.states(0) == ["MERGED", "FLUSHED"]


# -- crashes -----------------------------------------------------------------------------------------------------


class Died(Exception):
    """The process ended here."""


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_the_commit(table: FlusherTable, after: bool) -> None:
    before = sorted(table.rows(), key=str)

    class Crashing(ScriptedTable):
        def commit(self, commit: TableCommit) -> Any:
            assert commit.columns_written == ("a",)
            if after:
                super().commit(commit)
            raise Died

    table.generation(0, [*patches(), upsert(12, a=9), delete(13)])
    with pytest.raises(Died):
        table.round(LIMITS, table.context(Crashing(table.uri)))
    if not after:
        assert sorted(table.rows(), key=str) == before
        assert table.states(0) == ["MERGED", "FLUSHED"]
    table.round(LIMITS)
    table.check()
    assert table.states(0) == ["MERGED", "MERGED"]


# -- anything at all ---------------------------------------------------------------------------------------------


def operations(rng: random.Random, ids: int) -> list[Operation]:
    def one() -> Operation:
        id = rng.randrange(ids)
        values: dict[str, Any] = {
            "a": rng.choice([None, rng.randrange(99)]),
            "s": rng.choice([None, "x"]),
            "tags": rng.choice([None, ["t"]]),
        }
        names = rng.sample(sorted(values), rng.randrange(4))
        kind = rng.random()
        if kind < 0.6:
            return patch(id, **{name: values[name] for name in names})
        return upsert(id, **values) if kind < 0.9 else delete(id)

    return [one() for _ in range(rng.randrange(1, 25))]


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**9))
@example(62)
@example(2643)
def test_random_strategies(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(in_place, "least", lambda costs: rng.choice(list(costs)))
        table = FlusherTable(tmp_path_factory.mktemp("table"), partitions=2)
        for partition in range(2):
            table.generation(
                partition, upserts([*range(30), *range(50, 60)])
            )  # those from 50 on are the user's to delete
        table.round(LIMITS)
        raced = ScriptedTable(table.uri)
        context = table.context(raced)
        seen: set[bool] = set()
        for step in range(8):
            for partition in range(2):
                table.generation(partition, operations(rng, 40))
            match rng.randrange(6):
                case 0:
                    raced.before = [lambda id=1_000 + step: table.user_append(0, [id], in_model=True)]  # type: ignore[misc] # no type for a default
                case 1:
                    raced.before = [lambda: table.round(LIMITS)]
                case 2:
                    raced.lose_request = 1
                case 3:
                    table.user_delete(rng.randrange(2), rng.randrange(50, 60))
            report = table.round(replace(rng.choice([OPEN_ROWS, COMBINE]), in_place_rows=1), context)
            seen.update(merge.rows_in_place > 0 for merge in report.merges)
            table.check()
            if rng.random() < 0.4:
                compact_next(table.context(), REWRITE, FileSizes(), with_sentinel=True)
                table.check()
        table.close()


def test_two_flushers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    monkeypatch.setattr(in_place, "least", lambda costs: rng.choice(list(costs)))
    table = FlusherTable(tmp_path)
    ended = threading.Event()
    errors: list[BaseException] = []
    in_place_rows: list[int] = []

    def flush() -> None:
        tasks = ThreadTasks()
        base = table.context()
        context = replace(base, tasks=tasks, runner=ThreadRunner(base.table, tasks))
        state = RoundState()
        while not errors:
            last = ended.is_set()
            try:
                report = run_round(context, LIMITS, state, 1_000)
                in_place_rows.extend(m.rows_in_place for m in report.merges)
                if last and report.left is not None:
                    break
            except (Refresh, Retry):
                continue
            except BaseException as error:
                errors.append(error)
        tasks.close()

    threads = [threading.Thread(target=flush) for _ in range(2)]
    for thread in threads:
        thread.start()
    n = 0

    def merged() -> bool:
        return bool(errors) or all(table.states(partition) == ["MERGED"] * n for partition in range(2))

    # Chance may have chosen nothing in place: then what comes next, alone, may be.
    while n < 10 or not (sum(in_place_rows) or errors):
        for partition in range(2):
            table.generation(partition, [*upserts(range(n, n + 12), a=n), *patches(range(8), a=n), delete(n + 1)])
        n += 1
        if n >= 10:
            until(merged)
    ended.set()
    for thread in threads:
        thread.join(240)
    assert errors == []
    table.check()
    assert sum(in_place_rows) > 0
    for partition in range(2):
        assert table.states(partition) == ["MERGED"] * n
    table.close()


@pytest.mark.parametrize("storage", ["2.0", "2.1", "2.2"])
def test_other_types_of_columns_are_patched_in_place_too(tmp_path: Path, storage: str) -> None:
    """Straight on the table: every type that a contract may have, and nulls among the values."""

    count = 50
    struct = pa.struct([("x", pa.int32()), ("y", pa.string())])
    columns: dict[str, pa.Array] = {
        "flag": pa.array([n % 2 == 0 for n in range(count)]),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(count * 4, dtype=np.float32)), 4),
        "struct": pa.array([{"x": n, "y": str(n)} for n in range(count)], struct),
        "when": pa.array(range(count), pa.timestamp("us", tz="UTC")),
        "money": pa.array(range(count), pa.int64()).cast(pa.decimal128(30, 2)),
        "raw": pa.array([b"%d" % n for n in range(count)]),
        "words": pa.array([["a", None] if n % 3 else None for n in range(count)]),
    }
    rows = pa.table({"id": pa.array(range(count)), **columns})
    uri = str(tmp_path / "typed")
    lance.write_dataset(rows, uri, data_storage_version=storage)  # type: ignore[arg-type] # one of the literals
    table = LanceTable(uri)
    expected: list[dict[str, Any]] = []
    at, hidden = np.array([39, 30, 38, 31, 37, 32, 36, 33, 35, 34]), [3, 31]
    for names in [[name] for name in columns] + [["words", "struct"], ["raw", "flag", "vector"]]:
        pinned = table.newest()
        held = pinned.column_bytes(0, names)
        assert held is not None
        assert 0 < min(held.values()) <= max(held.values()) <= pinned.fragments()[0].nbytes
        first = rows.select(names).slice(0, 9)
        # Files of format 2.0 know no null struct.
        last = first.slice(8) if storage == "2.0" and "struct" in names else pa.table(
            {name: pa.nulls(1, first.schema.field(name).type) for name in names}
        )  # fmt: skip
        changed = pinned.hide_rows(0, hidden)
        assert changed is not None
        written = pinned.write_columns(0, at, pa.concat_tables([first, last]), changed)
        commit = TableCommit(pinned.version, (), (written,), (), {}, strict=False, columns_written=tuple(names))
        assert isinstance(table.commit(commit), Committed)
        values = pa.concat_tables([first, last]).to_pylist()
        expected = rows.to_pylist()
        for row, value in zip(at, values, strict=True):
            expected[row] |= value
        rows = pa.Table.from_pylist(expected, rows.schema)
        assert table.newest().dataset.to_table().to_pylist() == [r for n, r in enumerate(expected) if n not in hidden]
    # Written anew as a whole it is the same; after that no row is hidden, and its pages can be copied.
    for copy in (False, True):
        pinned = table.newest()
        fragment_id = pinned.fragments()[0].fragment_id
        old = pinned.fragment_json(fragment_id)
        if copy:
            same = table.newest().dataset.to_table(columns=["raw"])
            old = pinned.write_columns(fragment_id, np.arange(same.num_rows), same, old)
            commit = TableCommit(pinned.version, (), (old,), (), {}, strict=False, columns_written=("raw",))
            assert isinstance(table.commit(commit), Committed)
            pinned = table.newest()
        bounds = RewriteBounds(1 << 20, 1 << 20, 1_000, 1 << 20, copy)
        new = table.rewrite(pinned.version, [fragment_id], bounds)
        commit = TableCommit(pinned.version, new, (), (), {}, strict=False, rewritten=(old,))
        assert isinstance(table.commit(commit), Committed)
        assert len(table.newest().fragments()[0].files) == 1
        assert table.newest().dataset.to_table().to_pylist() == [r for n, r in enumerate(expected) if n not in hidden]


@pytest.mark.parametrize("inner", [["x"], ["x", "y"]])
@pytest.mark.parametrize("key", ["packed", "lance-encoding:packed"])
def test_a_packed_struct_keeps_the_rows_that_nobody_patched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, inner: list[str]
) -> None:
    """It is one column of a file, which goes by the struct's own id."""
    monkeypatch.setattr(in_place, "least", columns_where_possible)
    struct = pa.struct([pa.field(name, pa.int64()) for name in inner])
    table = FlusherTable(tmp_path, more=[pa.field("w", struct, metadata={key: "true"})])
    rest: Any = {"a": 1, "s": "s", "tags": None}
    table.generation(0, [Operation(Op.UPSERT, id, {**rest, "w": dict.fromkeys(inner, id)}) for id in range(20)])
    table.round(LIMITS)
    table.generation(0, [Operation(Op.PATCH, id, {"w": dict.fromkeys(inner, 7)}) for id in range(10)])
    (merge,) = table.round(LIMITS).merges
    assert merge.rows_in_place == 10
    table.check()


@pytest.mark.parametrize(
    ("held", "value"),
    [
        (pa.list_(pa.field("item", pa.int32(), nullable=False)), [1, None]),
        (pa.struct([pa.field("x", pa.int32(), nullable=False)]), {"x": None}),
        (pa.int32(), 1 << 40),
    ],
)
def test_values_that_the_column_does_not_take_are_not_written(tmp_path: Path, held: pa.DataType, value: object) -> None:
    """The merge goes on with new rows, where the same values are judged as those of an append."""
    uri = str(tmp_path / "strict")
    lance.write_dataset(pa.table({"id": [0, 1]}).append_column(pa.field("v", held), pa.nulls(2, held)), uri)
    pinned = LanceTable(uri).newest()
    with pytest.raises(RewriteFailed, match=r"columns \['v'\] of fragment 0"):
        pinned.write_columns(0, np.array([1]), pa.table({"v": [value]}), pinned.fragment_json(0))
