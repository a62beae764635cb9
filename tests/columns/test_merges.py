"""Merges of rows of three contracts, and what else works on the merged table: patches in place, compaction, indexes, loads,
more partitions."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import Position
from lancewal_core.region.state import GenerationState
from lancewal_core.table.columns.changes import Added, Dropped, Renamed
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.tasks import in_place
from lancewal_flusher.upkeep.compact_all import compact_to_the_end
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.index_doubt import doubted_fragments
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.indexes import extend_indexes
from lancewal_flusher.upkeep.key_runs import UpkeepState, keep_up
from lancewal_kafka.topic import TopicState
from lancewal_reader.table import open_table
from lancewal_tables.define.alter import add_partitions
from lancewal_tables.load.files import find_files
from lancewal_tables.load.part import PartLoaded
from lancewal_tables.load.whole import LoadAsked, LoadBounds, load
from tests.columns.test_reads import check_point, check_reads
from tests.columns.three_contracts import COLUMNS, DROP, LARGE, NAMES, SECOND, THIRD, WIDTH, ThreeContracts, vector
from tests.flusher.tasks.test_strategies import columns_where_possible
from tests.support.flusher_tables import COMBINE, OPEN_ROWS
from tests.support.pipeline import Row, by_key

IN_PLACE = MergeLimits(adopt_rows=1, in_place_rows=1)


def unmerged(table: ThreeContracts) -> int:
    """Generations that have ended and are not merged."""
    states = table._opened().states.read(table.contract.regions).values()
    return sum(
        record.state is not GenerationState.MERGED and record.next is not None
        for state in states
        for record in state.generations
    )


def check(table: ThreeContracts) -> None:
    """A strong read and, once all is merged, plain Lance."""
    assert by_key(open_table(table.uri).to_arrow()) == table.oracle
    if not unmerged(table):
        assert by_key(lance.dataset(table.uri).to_table()) == table.oracle


def flushed(table: ThreeContracts) -> None:
    """No row lies in the log alone any more."""
    table.ingest()
    table.hand_over()


def merge_all(table: ThreeContracts, limits: MergeLimits = OPEN_ROWS) -> list[Any]:
    """Round by round, with a read behind each."""
    flushed(table)
    merges = list[Any]()
    while unmerged(table):
        merges += table.merge(limits).merges
        check(table)
    return merges


def compact(table: ThreeContracts) -> None:
    limits = CompactionLimits(fragments_min=2)
    done = compact_to_the_end(table.flusher(), limits, with_sentinel=True)
    assert done.fragments_after == 1


@pytest.mark.parametrize("limits", [OPEN_ROWS, COMBINE, MergeLimits()], ids=["adopt", "combine", "default"])
def test_merges(table: ThreeContracts, limits: MergeLimits) -> None:
    merges = merge_all(table, limits)
    adopted = sum(merge.rows_adopted for merge in merges)
    # Files with the dropped column, or with the narrow ones, are not adopted: their rows are written again.
    assert (adopted > 0) == (limits is OPEN_ROWS)
    check_reads(open_table(table.uri), table.oracle, NAMES[2])


def test_patches_are_written_in_place(table: ThreeContracts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a renamed, a widened and two added columns, which files of the fragment lack; patches of all contracts first."""
    monkeypatch.setattr(in_place, "least", columns_where_possible)
    dataset: Any = lance.dataset(table.uri)
    dataset.drop_index("text_idx")  # columns under an index stay where they are
    merges = merge_all(table, IN_PLACE)
    values: list[Row] = [{"n": LARGE}, {"words": "w5"}, {"note": "patched"}, {"old": 8}, {"v": [0.1] * WIDTH}]
    for at, more in enumerate(values):
        for id in range(20 + at, 100, 5):
            if (f"r{id % 6}", id) in table.oracle:
                table.patch(f"r{id % 6}", id, **more)
        merges += merge_all(table, IN_PLACE)
    for id in range(20, 100, 3):
        table.patch(f"r{id % 6}", id, note="again", old=-id, n=-LARGE - id)
    merges += merge_all(table, IN_PLACE)
    assert sum(merge.rows_in_place for merge in merges) > 90
    compact(table)
    check(table)


def test_compaction(table: ThreeContracts) -> None:
    """Beside rows of three contracts, between their merges, and of fragments that have the columns in files of their own."""
    context = table.flusher()
    keep_up(context, UpkeepState())
    before = by_key(lance.dataset(table.uri).to_table())
    flushed(table)
    table.merge(OPEN_ROWS)
    compact(table)
    check(table)
    assert by_key(lance.dataset(table.uri).to_table()) != before
    merge_all(table)
    compact(table)
    check(table)
    for state in table.moments:  # the points of before, from the logs and the versions that are there
        check_point(open_table(table.uri), state.rows, state.names, at=state.points["receipt"])


# -- indexes ------------------------------------------------------------------------------------------------------


def check_indexes(table: ThreeContracts) -> None:
    """What the indexes over changed columns say of the merged rows, against the rows of a scan of plain Lance."""
    dataset: Any = lance.dataset(table.uri)
    rows = by_key(dataset.to_table()).values()
    if not unmerged(table):
        assert by_key(dataset.to_table()) == table.oracle
    for name, values in {"n": [0, 5, 66, 77, LARGE, LARGE + 1, LARGE + 250], "old": [3, 5, 44, 255, -1]}.items():
        for value in values:
            assert "ScalarIndexQuery" in dataset.scanner(filter=f"{name} = {value}").explain_plan()
            found = dataset.to_table(columns=["id"], filter=f"{name} = {value}")["id"].to_pylist()
            assert sorted(found) == sorted(row["id"] for row in rows if row[name] == value)
    for query in (vector(9), vector(3, 3), [0.1, 0.2, 0.3, 0.4]):
        nearest = {"column": "v", "q": query, "k": 5, "nprobes": 4}
        found = dataset.to_table(columns=["id", "v"], nearest=nearest)
        far = sorted(sum((x - y) ** 2 for x, y in zip(row["v"], query, strict=True)) for row in rows if row["v"])
        assert found["_distance"].to_pylist() == pytest.approx(far[:5], rel=1e-5, abs=1e-5)
    for word in ("w21", "w22", "w33"):
        found = dataset.to_table(columns=["id"], full_text_query=word)["id"].to_pylist()
        assert sorted(found) == sorted(row["id"] for row in rows if word in (row["words"] or "").split())


def test_indexes_built_after_a_widening(table: ThreeContracts) -> None:
    """Their column lies in a file of its own in each fragment, as if it had been written in place: upkeep writes the fragments
    anew, and the indexes are right before and after, whatever is merged."""
    dataset: Any = lance.dataset(table.uri)
    for name in ("n", "old"):
        dataset.create_scalar_index(name, "BTREE")
    dataset.create_index("v", "IVF_FLAT", num_partitions=2, metric="l2")
    check_indexes(table)
    pinned = table.table.newest()
    old = {f.fragment_id for f in pinned.fragments()}
    assert doubted_fragments(pinned).keys() >= {"n_idx", "v_idx"}
    extend_indexes(table.flusher(), IndexLimits(), at_once=True)
    check_indexes(table)
    pinned = table.table.newest()
    assert doubted_fragments(pinned) == {}
    assert old.isdisjoint(f.fragment_id for f in pinned.fragments())
    flushed(table)
    while unmerged(table):
        table.merge(OPEN_ROWS)
        check_indexes(table)
        extend_indexes(table.flusher(), IndexLimits(), at_once=True)
        check_indexes(table)
    for id in range(20, 60):
        if (f"r{id % 6}", id) in table.oracle:
            table.patch(f"r{id % 6}", id, n=5, v=vector(3, 3), words="w22", old=44)
    merge_all(table, IN_PLACE)
    check_indexes(table)
    compact(table)
    check_indexes(table)
    extend_indexes(table.flusher(), IndexLimits(), at_once=True)
    check_indexes(table)


# -- loads --------------------------------------------------------------------------------------------------------


def test_a_load_that_began_before(tmp_path: Path) -> None:
    """Its parts land before, between and behind the changes, in the columns of then.  What came through Kafka is newer."""
    table = ThreeContracts(tmp_path)
    for id in range(30):
        table.upsert(f"r{id % 6}", id, n=id, old=f"o{id}", text="w1", v=vector(id), w=vector(id, 1))
    table.merge_all()
    ids = [*range(600, 618), 2, 9, 900, 202, 232, 252]  # the last have a row, or will
    rows: list[Row] = [
        {
            "region": "r9" if id == 900 else f"r{id % 6}",
            "id": id,
            "n": id,
            "old": "loaded",
            "text": "w8",
            "v": vector(8),
            "w": None,
            "tags": ["l"],
        }
        for id in ids
    ]
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), tmp_path / "rows.parquet", row_group_size=4)
    steps: list[list[Callable[[], None]]] = [
        [table.first],
        [lambda: table.changed(SECOND), table.second],
        [lambda: table.changed(DROP), lambda: table.changed(THIRD)],
        [table.widen],
        [table.third],
    ]
    landed: list[PartLoaded] = []

    def between(part: PartLoaded) -> None:
        landed.append(part)
        for act in steps.pop(0) if steps else []:
            act()

    context = table.flusher()
    files = find_files([str(tmp_path / "rows.parquet")], {})
    done = load(context, files, LoadAsked("load", bounds=LoadBounds(part_rows=4)), between)
    assert len(landed) == 6
    loaded = {
        (row["region"], row["id"]): {
            name: value
            for name, value in {**row, "words": row["text"], "note": None, "old": None}.items()
            if name != "text"
        }
        for row in rows
    }
    assert (done.inserted, done.present) == (22, 2)
    patched = {name: table.oracle["r9", 900][name] for name in ("tags", "v", "note", "n", "old")}
    table.oracle = {**loaded, **table.oracle, ("r9", 900): {**loaded["r9", 900], **patched}}
    check(table)
    merge_all(table)
    table.close()


# -- more partitions ----------------------------------------------------------------------------------------------


class Brokers:
    """Of the table's topic, which has ``partitions`` by now."""

    def __init__(self, table: ThreeContracts, partitions: int) -> None:
        self._table, self._partitions = table, partitions

    def describe(self, topic: str) -> TopicState:
        return TopicState("orders", "topic-id", self._partitions, False)

    def begins(self, topic: str, partitions: Collection[int]) -> Mapping[int, Position]:
        return dict.fromkeys(partitions, Position(0))

    def ends(self, topic: str, partitions: Collection[int], *, committed: bool = True) -> Mapping[int, Position]:
        return {partition: Position(len(self._table.messages(partition))) for partition in partitions}


def test_partitions_are_added_in_between(table: ThreeContracts) -> None:
    """Once rows of three contracts are merged.  Then columns change again, and rows of three more wait."""
    brokers = Brokers(table, 3)
    with pytest.raises(InvalidInput, match="are not merged yet"):
        add_partitions(table.flusher(), table.flusher().new_id, 3, brokers)
    merge_all(table)
    altered = add_partitions(table.flusher(), table.flusher().new_id, 3, brokers)
    assert (altered.partitions, altered.columns) == (3, table.contract.columns)
    table.take_up_contract()
    check(table)
    rng = random.Random(3)

    def some(**values: Any) -> None:
        for id in rng.sample(range(120), 20):
            table.upsert(f"r{id % 6}", id, n=LARGE - id, old=id, **values)
            table.patch(f"r{(id + 1) % 6}", id + 1, note=f"p{id}")
        table.ingest()
        table.hand_over()
        table.ingest()

    some(words="w4")
    table.changed([Renamed(("words",), "said"), Added(("more",), pa.int8(), "7")])
    some(said="w5")
    table.changed([Dropped(("tags",)), Renamed(("note",), "remark")])
    for id in range(0, 120, 7):
        table.patch(f"r{id % 6}", id, remark="last", more=1)
    table.ingest()
    assert unmerged(table) >= 6
    opened = open_table(table.uri)
    check_point(opened, table.oracle, table.columns.names)
    for state in table.moments:
        check_point(opened, state.rows, state.names, at=state.points["receipt"])
    merge_all(table)
    for state in table.moments:
        check_point(opened, state.rows, state.names, at=state.points["receipt"])
