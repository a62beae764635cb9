"""Scalar, vector and full text indexes through merges and compactions: a query by index finds what a scan finds."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.rows.schema import Op
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import CommitLost, CommitOutcome, Committed
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.tasks import in_place
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.index_doubt import fragments_in_doubt, takes_in_all, to_rebuild
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.indexes import FarRows, IndexExtended, IndexRefused, extend_indexes, unindexed_rows
from tests.support.flusher_tables import KeyedTable, Operation

WIDTH = 16
PARTITIONS = 4
PATCHED = (["text"], ["vector"], ["text", "vector"])
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), WIDTH)),
    ]
)
LIMITS = CompactionLimits(fragments_min=2, growth=1.0, deleted_share=0.05)


class IndexedTable(KeyedTable):
    """A table of ids 0 to 999 with a BTREE, a full text and a vector index."""

    def __init__(self, folder: Path, *, stable_row_ids: bool) -> None:
        super().__init__(folder, 1, columns=SCHEMA, primary_key=("id",), stable_row_ids=stable_row_ids)
        self.rng = np.random.default_rng(7)
        self.merge(range(1_000), [])
        self.dataset.create_scalar_index("id", "BTREE")
        self.dataset.create_index("vector", "IVF_FLAT", num_partitions=PARTITIONS, metric="l2")
        self.dataset.create_scalar_index("text", "INVERTED")

    def merge(self, upserts: Iterable[int], deletes: Iterable[int]) -> None:
        self.generation(0, [*map(self.delete, deletes), *map(self.upsert, upserts)])
        self.round()

    def upsert(self, id: int) -> Operation:
        return Operation(Op.UPSERT, (id,), {"text": self.text(id), "vector": self.vector()})

    def patch(self, id: int) -> Operation:
        """Of the text, the vector, or both."""
        new = {"text": self.text(id), "vector": self.vector()}
        names = PATCHED[int(self.rng.integers(len(PATCHED)))]
        return Operation(Op.PATCH, (id,), {name: new[name] for name in names})

    def delete(self, id: int) -> Operation:
        return Operation(Op.DELETE, (id,))

    def text(self, id: int) -> str:
        return f"{WORDS[int(self.rng.integers(5))]} w{id}"

    def vector(self) -> list[float]:
        found: list[float] = self.rng.standard_normal(WIDTH).astype("f4").tolist()
        return found

    def compact(self) -> Compacted | None:
        done = compact_next(self.context(), LIMITS, FileSizes(), with_sentinel=True)
        assert not isinstance(done, Refused)
        return done

    def extend(self) -> list[str]:
        before = self.context().table.newest()
        for index in before.indexes():
            # Nothing that lancewal does leaves a doubt of what an index holds.
            assert not fragments_in_doubt(index, before.fragments(), before.field_ids)
            assert not takes_in_all(index, before.fragments(), before.field_ids)
            assert not to_rebuild(index, before.fragments(), before.updated_rows())
        done = extend_indexes(self.context(), IndexLimits(), at_once=True)
        assert all(isinstance(r, IndexExtended) for r in done), done
        return sorted(r.name for r in done)

    def unindexed(self) -> int:
        pinned = self.context().table.newest()
        live = {f.fragment_id for f in pinned.fragments()}
        return sum(len(live - index.covered) for index in pinned.indexes())

    def check(self) -> None:
        """Beside a scan, every kind of query equals brute force over the model."""
        super().check()
        dataset, model = self.dataset, {id: row for (id,), row in self.model.items()}
        rng = random.Random(len(model))
        for key in [*rng.sample(sorted(model), 8), *rng.sample(range(3_000), 4)]:
            found = dataset.to_table(filter=f"id = {key}", columns=["text"])["text"].to_pylist()
            assert found == ([model[key]["text"]] if key in model else []), key
            assert self._search(f"w{key}") == ([key] if key in model else []), key
        found = dataset.to_table(filter="id >= 900 and id < 1100", columns=["id"])["id"].to_pylist()
        assert sorted(found) == sorted(k for k in model if 900 <= k < 1_100)
        assert sorted(self._search("gamma")) == sorted(k for k, row in model.items() if row["text"].startswith("gamma"))
        ids = np.array(sorted(model))
        vectors = np.array([model[int(k)]["vector"] for k in ids], "f4")
        for query in vectors[rng.sample(range(len(ids)), 5)]:
            nearest = ids[np.argsort(((vectors - query) ** 2).sum(axis=1), kind="stable")[:10]].tolist()
            asked = {"column": "vector", "q": query, "k": 10, "nprobes": PARTITIONS}
            assert dataset.to_table(nearest=asked, columns=["id", "_distance"])["id"].to_pylist() == nearest

    def _search(self, text: str) -> list[int]:
        found = self.dataset.to_table(full_text_query=text, columns=["id", "_score"], limit=10_000)
        return list(found["id"].to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Iterator[IndexedTable]:
    made = IndexedTable(tmp_path, stable_row_ids=False)
    yield made
    made.close()


def test_queries_equal_brute_force(table: IndexedTable) -> None:
    rng = random.Random(3)
    for number in range(7):
        table.merge([*range(1_000 + 50 * number, 1_050 + 50 * number), *rng.sample(range(1_000), 30)],
                    rng.sample(range(1_000 + 50 * number), 20))  # fmt: skip
        if number % 3 == 0:
            table.check()
            assert isinstance(table.compact(), Compacted)
            table.check()
        if number % 2 == 0:
            table.extend()
            assert table.unindexed() == 0
            table.check()
    segments = [len(index.segments) for index in table.context().table.newest().indexes()]
    assert max(segments) <= 4


@pytest.mark.in_turns("stable_row_ids", "seed", each=3)
@pytest.mark.parametrize("stable_row_ids", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_queries_equal_brute_force_whatever_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stable_row_ids: bool, seed: int
) -> None:
    """Upserts, deletes, and patches of what is indexed, which a merge writes in any of its ways."""
    rng = random.Random(seed)
    monkeypatch.setattr(in_place, "least", lambda costs: rng.choice(list(costs)))
    table = IndexedTable(tmp_path, stable_row_ids=stable_row_ids)
    for number in range(6):
        for _ in range(rng.randrange(1, 4)):
            deleted, patched, replaced = (rng.sample([id for (id,) in table.model], 20) for _ in range(3))
            patched = [id for id in patched if id not in deleted]
            new = range(1_000 + 20 * number, 1_020 + 20 * number)
            operations = [*map(table.delete, deleted), *map(table.patch, patched)]
            table.generation(0, [*operations, *map(table.upsert, [*replaced, *new])])
        table.round(MergeLimits(adopt_rows=rng.choice([1, 1_000]), in_place_rows=1))
        table.check()
        if rng.random() < 0.5:
            table.compact()
            table.check()
        if rng.random() < 0.5:
            table.extend()
            table.check()
    table.close()


def test_patches_of_one_fragment_of_many(table: IndexedTable) -> None:
    """The oldest segment keeps most of its rows, so nothing takes it in."""
    for number in range(1, 4):
        table.generation(0, [table.upsert(id) for id in range(1_000 * number, 1_000 * number + 300)])
        table.round(MergeLimits(adopt_rows=1))
    table.extend()
    table.generation(0, [table.patch(id) for id in range(1_000, 1_200)])
    table.round(MergeLimits(adopt_rows=1, in_place_rows=1))
    table.check()
    for merged in (0, 1):
        table.dataset.optimize.optimize_indices(num_indices_to_merge=merged)
        assert [id for id in range(1_000, 1_200) if table._search(f"w{id}") != [id]] == []


def test_what_an_index_over_stable_row_ids_covers_stays(tmp_path: Path) -> None:
    """Lance would refuse to write it anew, panic, or find its rows twice (pylance 14.0.2)."""
    made = IndexedTable(tmp_path, stable_row_ids=True)
    for number in range(3):
        made.merge(list(range(1_000 + 10 * number, 1_010 + 10 * number)), [number])
    done = made.compact()
    assert isinstance(done, Compacted)
    assert done.fragments_before == 3  # those that no index covers
    made.check()
    assert made.extend() == ["id_idx", "text_idx", "vector_idx"]
    made.check()
    assert made.compact() is None
    made.close()


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_members_of_structs(tmp_path: Path, stable_row_ids: bool) -> None:
    """Small extensions of large indexes, for which Lance makes no segment of its own but of text and vectors."""
    members = [pa.field("n", pa.int64()), pa.field("s", pa.string()), pa.field("t", pa.list_(pa.string()))]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("place", pa.struct(members))])
    made = KeyedTable(tmp_path, 1, columns=schema, primary_key=("id",), stable_row_ids=stable_row_ids)

    def merge(ids: Iterable[int], age: int) -> None:
        rows = [(i, {"place": {"n": i + age, "s": f"word{i + age}", "t": [f"tag{i + age}"]}}) for i in ids]
        made.generation(0, [Operation(Op.UPSERT, (i,), row) for i, row in rows])
        made.round()

    merge(range(300), 0)
    kinds = {"BTREE": "n", "BITMAP": "s", "LABEL_LIST": "t", "NGRAM": "s", "ZONEMAP": "n", "BLOOMFILTER": "n"}
    for kind, member in (kinds | {"INVERTED": "s"}).items():
        made.dataset.create_scalar_index(f"place.{member}", kind, name=kind)
    for age in (1_000, 2_000):
        merge(range(10), age)
        done = extend_indexes(made.context(), IndexLimits(), at_once=True)
        taken = {r.name: r.merged_segments for r in done if isinstance(r, IndexExtended)}
        assert taken.keys() == {*kinds, "INVERTED"}, done
        assert {taken[kind] for kind in kinds} == {1}
        for old, now in ((5 + age, [5]), (5 + age - 1_000, []), (20, [20])):
            for asked in (f"place.n = {old}", f"place.s = 'word{old}'", f"array_has_any(place.t, ['tag{old}'])"):
                assert made.dataset.to_table(filter=asked, columns=["id"])["id"].to_pylist() == now, asked
    made.check()
    made.close()


def test_an_index_that_cannot_be_extended_is_named(table: IndexedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: LanceTable, name: str, merged_segments: int) -> CommitOutcome:
        return CommitLost("disk full") if name == "vector_idx" else extend(self, name, merged_segments)

    extend = LanceTable.extend_index
    monkeypatch.setattr(LanceTable, "extend_index", fail)
    table.merge([1, 2, 3], [])
    done = extend_indexes(table.context(), IndexLimits(), at_once=True)
    assert [r for r in done if isinstance(r, IndexRefused)] == [IndexRefused("vector_idx", "disk full")]
    assert len(done) == 3
    table.check()


def test_an_index_that_lance_leaves_as_it_is_was_not_extended(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(self: LanceTable, name: str, merged_segments: int) -> CommitOutcome:
        return Committed(self.newest().version)

    monkeypatch.setattr(LanceTable, "extend_index", leave)
    table.merge([1, 2, 3], [])
    done = extend_indexes(table.context(), IndexLimits(), at_once=True)
    assert [type(result) for result in done] == [IndexRefused] * 3


def test_an_index_that_lance_builds_and_panics_to_extend_is_named(tmp_path: Path) -> None:
    """A graph over binary vectors; the flusher goes on, and to build it anew works."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("bits", pa.list_(pa.uint8(), 2))])
    table = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",))
    for first in (0, 40):
        rows = [Operation(Op.UPSERT, (id,), {"bits": [id, 0]}) for id in range(first, first + 40)]
        table.generation(0, rows)
        table.round(MergeLimits(adopt_rows=1))
        if not first:
            table.dataset.create_index("bits", "IVF_HNSW_FLAT", num_partitions=1, metric="hamming")
    (refused,) = extend_indexes(table.context(), IndexLimits(), at_once=True)
    assert isinstance(refused, IndexRefused)
    assert "unsupported index type: HNSW, FLATBIN" in refused.reason
    assert isinstance(LanceTable(table.uri).rebuild_index("bits_idx"), Committed)
    assert extend_indexes(table.context(), IndexLimits(), at_once=True) == ()
    table.close()


FAR = {"l2": [1e20, 3e38], "float64": [1e200]}
KINDS_OF_VECTORS = ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ"]


def with_far_rows(
    folder: Path, kind: str, far: Iterable[float], item: pa.DataType, *, stable: bool = False
) -> KeyedTable:
    """400 rows under three indexes; then 100 more, of which some have a vector that an index by ``l2`` cannot take."""
    vector = pa.list_(item, WIDTH)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("v", vector), ("w", vector)])
    table = KeyedTable(folder, 1, columns=columns, primary_key=("id",), stable_row_ids=stable)
    rng = np.random.default_rng(3)

    def merge(ids: range, odd: dict[int, float]) -> None:
        rows = []
        for id in ids:
            numbers = rng.standard_normal(WIDTH).tolist()
            row = {"v": [odd[id], *numbers[1:]] if id in odd else numbers, "w": numbers}
            rows.append((id, {"n": id, **{name: pa.array(value, item).to_pylist() for name, value in row.items()}}))
        table.generation(0, [Operation(Op.UPSERT, (id,), row) for id, row in rows])
        table.round(MergeLimits(adopt_rows=1))

    merge(range(400), {})
    more = {"num_sub_vectors": 4, "num_bits": 4} if kind.endswith("PQ") else {}
    for column in ("v", "w"):
        table.dataset.create_index(column, kind, num_partitions=2, metric="l2", **more)
    table.dataset.create_scalar_index("n", "BTREE")
    merge(range(400, 500), {450 + i: value for i, value in enumerate(far)})
    return table


def found_first(table: KeyedTable, column: str, ids: Iterable[int]) -> dict[int, list[int]]:
    """What an index finds first where it is asked for the vectors of these rows, all partitions probed."""
    vectors = {row["id"]: row[column] for row in table.rows()}
    dataset = table.dataset
    found = {}
    for id in ids:
        query = {"column": column, "q": vectors[id], "k": 1, "minimum_nprobes": 9, "refine_factor": 50}
        found[id] = dataset.scanner(columns=["id"], nearest=query, fast_search=True).to_table()["id"].to_pylist()
    return found


@pytest.mark.in_turns("kind", "stable", each=2)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("kind", KINDS_OF_VECTORS)
def test_a_vector_that_an_index_cannot_take_keeps_out_no_other(tmp_path: Path, kind: str, stable: bool) -> None:
    table = with_far_rows(tmp_path, kind, FAR["l2"], pa.float32(), stable=stable)
    done = {result.name: result for result in extend_indexes(table.context(), IndexLimits(), at_once=True)}
    assert {type(result) for result in done.values()} == {IndexExtended}, done
    assert {name: result.far for name, result in done.items()} == {
        "n_idx": None,
        "v_idx": FarRows(2, ("id=450", "id=451")),
        "w_idx": None,
    }
    assert unindexed_rows(table.context().table.newest()) == {"n_idx": 0, "v_idx": 0, "w_idx": 0}
    ordinary = [*range(0, 400, 40), *range(400, 450, 10), 499]
    assert found_first(table, "v", ordinary) == {id: [id] for id in ordinary}
    assert [key for key in table.context().store.list("_versions/") if "/d" in key.key] == []
    table.check()
    # Their fragment is covered: what comes next is extended as ever.
    table.generation(0, [Operation(Op.UPSERT, (450,), {"n": 1, "v": [0.5] * WIDTH, "w": [0.5] * WIDTH})])
    table.round(MergeLimits(adopt_rows=1))
    again = {result.name: result for result in extend_indexes(table.context(), IndexLimits(), at_once=True)}
    assert isinstance(again["v_idx"], IndexExtended)
    assert not again["v_idx"].rebuilt
    assert found_first(table, "v", [*ordinary, 450]) == {id: [id] for id in [*ordinary, 450]}
    table.close()


def test_a_far_vector_of_float64(tmp_path: Path) -> None:
    table = with_far_rows(tmp_path, "IVF_FLAT", FAR["float64"], pa.float64())
    done = {result.name: result for result in extend_indexes(table.context(), IndexLimits(), at_once=True)}
    assert done["v_idx"].far == FarRows(1, ("id=450",))
    assert found_first(table, "v", [410, 499]) == {410: [410], 499: [499]}
    table.close()


def test_a_large_index_is_not_built_anew_for_each_far_vector(tmp_path: Path) -> None:
    """Only when a tenth of the rows wait; until then the row is named, and the other indexes go on."""
    table = with_far_rows(tmp_path, "IVF_FLAT", FAR["l2"], pa.float32())
    few = IndexLimits(unindexed_share=0.5, round_bytes=1_000)
    done = {r.name: r for _ in range(3) for r in extend_indexes(table.context(), few, at_once=True)}
    assert {name for name, result in done.items() if isinstance(result, IndexExtended)} == {"n_idx", "w_idx"}
    refused = done["v_idx"]
    assert isinstance(refused, IndexRefused)
    assert refused.far == FarRows(2, ("id=450", "id=451"))
    assert "id=450; id=451" in refused.reason
    (extended,) = extend_indexes(table.context(), IndexLimits(unindexed_share=0.1, round_bytes=1_000), at_once=True)
    assert isinstance(extended, IndexExtended)
    assert extended.rebuilt
    table.close()


def test_an_index_that_fails_takes_no_other_s_turn(table: IndexedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round takes so many bytes of what is done, not of what fails."""

    def fail(self: LanceTable, name: str, merged_segments: int) -> CommitOutcome:
        tried.append(name)
        return CommitLost("it never works")

    tried: list[str] = []
    monkeypatch.setattr(LanceTable, "extend_index", fail)
    table.merge([1, 2, 3], [])
    extend_indexes(table.context(), IndexLimits(round_bytes=1), at_once=True)
    assert sorted(tried) == ["id_idx", "text_idx", "vector_idx"]


MEMBERS = pa.struct([("x", pa.int64()), ("y", pa.string()), ("inner", pa.struct([("z", pa.int64())]))])


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP", "NGRAM"])
@pytest.mark.parametrize("covers", ["an empty table", "rows that are gone"])
def test_an_index_of_a_member_that_covers_no_row_is_extended(tmp_path: Path, kind: str, covers: str) -> None:
    """Lance extends none: "No column with name x"."""

    def merge(*ids: int) -> None:
        rows = {id: {"x": id, "y": f"word{id}", "inner": {"z": id % 5}} for id in ids}
        members_of.generation(0, [Operation(Op.UPSERT, (id,), {"st": st}) for id, st in rows.items()])
        members_of.round()

    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("st", MEMBERS)])
    members_of = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",))
    if covers == "rows that are gone":
        merge(*range(50))
    members = ["st.y"] if kind == "NGRAM" else ["st.x", "st.inner.z"]
    for member in members:
        members_of.dataset.create_scalar_index(member, kind)
    merge(*range(60))
    done = extend_indexes(members_of.context(), IndexLimits(), at_once=True)
    assert len(done) == len(members)
    assert all(isinstance(result, IndexExtended) for result in done), done
    assert set(unindexed_rows(members_of.context().table.newest()).values()) == {0}
    merge(7, 60)
    assert members_of.dataset.count_rows("st.x = 7") == 1
    assert sorted(members_of.dataset.to_table(["id"], filter="st.inner.z = 2")["id"].to_pylist()) == list(
        range(2, 61, 5)
    )
    assert members_of.dataset.to_table(["id"], filter="contains(st.y, 'word60')")["id"].to_pylist() == [60]
    members_of.close()
