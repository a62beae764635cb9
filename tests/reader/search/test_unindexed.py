"""Merged rows that no index covers are compared by vectors kept from version to version: against brute force over a dict."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.rows.schema import Op
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.search import distance, merged
from lancewal_reader.search.merged import UnindexedVectors
from lancewal_reader.search.options import Metric, Vectors
from lancewal_reader.table import open_table
from tests.reader.search.test_vectors import K, check, holds, nearest, scatter
from tests.support.flusher_tables import KeyedTable, Operation
from tests.support.indexed_tables import PER_FRAGMENT, VECTORS, WIDTH, AllIndexes, values

COLUMN = "v_pq"
NO_ROWS = np.zeros(0, np.uint64)

# ``test_index_matrix`` takes every act with both in each run.
pytestmark = pytest.mark.in_turns("made", each=2)


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AllIndexes]:
    """The last fragment is covered by no index."""
    monkeypatch.setattr(merged, "FLAT_ROWS_MAX", 0)
    monkeypatch.setattr(distance, "_FEW", 10)
    table = AllIndexes.filled(tmp_path, stable_row_ids=request.param)
    table.adopt_new(PER_FRAGMENT)
    yield table
    table.close()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fragments whose vectors are read to be kept."""
    found: list[int] = []
    all_rows = LancePinnedTable.all_rows

    def counted(self: LancePinnedTable, fragment_id: int, columns: Any) -> Any:
        found.append(fragment_id)
        return all_rows(self, fragment_id, columns)

    monkeypatch.setattr(LancePinnedTable, "all_rows", counted)
    return found


def test_one_open_table_finds_the_rows_of_now_after_every_act(made: AllIndexes) -> None:
    opened = open_table(made.uri)
    acts: list[Callable[[AllIndexes], None]] = [
        AllIndexes.adopt, AllIndexes.delete_some, AllIndexes.patch, AllIndexes.compact, AllIndexes.extend,
    ]  # fmt: skip
    for act in acts:
        made.age += 1
        act(made)
        check(made, [COLUMN, "bits"], opened)
        scatter(made, flush=True)
        check(made, [COLUMN, "bits"], opened)


def test_what_is_kept_is_read_once_and_what_is_dead_or_hidden_of_it_is_not_found(
    made: AllIndexes, read: list[int]
) -> None:
    opened = open_table(made.uri)
    last = max(fragment.fragment_id for fragment in made.dataset.get_fragments())
    some = made.next_id - 1
    near = values(some, made.age)[COLUMN]

    def found() -> list[int]:
        rows = opened.search(near, limit=K, vector_column=COLUMN, columns=["id"]).to_arrow()
        holds(rows, nearest(made, COLUMN, near), exact=False)
        return [int(id) for id in rows["id"].to_pylist()]

    assert found()[0] == some
    assert read == [last]
    made.age += 1
    far = {**values(1, 1), **dict.fromkeys(VECTORS, [-50.0] * WIDTH)}
    made.generation(0, [Operation(Op.UPSERT, (some,), far)])  # unmerged: it hides the other
    assert some not in found()
    assert read == [last]
    made.round()  # merged: that is dead in the fragment, and another one holds this
    assert some not in found()
    newest = max(fragment.fragment_id for fragment in made.dataset.get_fragments())
    assert (read, newest > last) == ([last], True)  # it was read of the flush
    made.generation(0, [Operation(Op.DELETE, (id,)) for id in found()])
    made.round()
    found()
    assert (read, newest > last) == ([last], True)
    opened = open_table(made.uri)  # has read no flush
    found()
    assert (sorted(read), newest > last) == ([last, last, newest], True)


def test_which_rows_live_is_asked_of_all_fragments_at_once(made: AllIndexes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge may have written a deletion vector of each, and at a far store each is a round."""
    made.adopt_new(PER_FRAGMENT)
    made.generation(0, [Operation(Op.DELETE, (made.next_id - back,)) for back in (1, PER_FRAGMENT + 1)])
    made.round()
    met, hidden_rows = Barrier(2, timeout=30), LancePinnedTable.hidden_rows

    def behind(self: LancePinnedTable, fragment_id: int) -> Any:
        met.wait()
        return hidden_rows(self, fragment_id)

    monkeypatch.setattr(LancePinnedTable, "hidden_rows", behind)
    near = [0.5] * WIDTH
    rows = open_table(made.uri).search(near, limit=K, vector_column=COLUMN, columns=["id"]).to_arrow()
    holds(rows, nearest(made, COLUMN, near), exact=False)
    assert not met.broken


def test_vectors_written_in_place_are_read_anew(tmp_path: Path) -> None:
    """Into the same fragment, as those of a column without an index are."""
    columns = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("v", pa.list_(pa.float32(), 2))]
    )
    table, kept = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",)), UnindexedVectors(1 << 20)

    def nearest_to(query: list[float]) -> list[float]:
        context = open_table(table.uri, cache_bytes_max=0)._reads.context
        found = kept.of(context, LanceTable(table.uri).newest(), "v", frozenset(), NO_ROWS)
        assert found is not None
        return [float(apart) for apart in found.nearest(np.array(query), "l2", 3, np.inf)[1]]

    table.generation(0, [Operation(Op.UPSERT, (id,), {"n": id, "v": [float(id), 0.0]}) for id in range(40)])
    table.round(MergeLimits(adopt_rows=1))
    assert nearest_to([0.0, 7.0]) == [49.0, 50.0, 53.0]
    table.generation(0, [Operation(Op.PATCH, (id,), {"v": [0.0, 7.0]}) for id in range(25)])
    (merge,) = table.round(MergeLimits(adopt_rows=1, in_place_rows=1)).merges
    assert merge.rows_in_place == 25
    assert nearest_to([0.0, 7.0]) == [0.0, 0.0, 0.0]
    table.close()


@pytest.mark.parametrize("room", [True, False])
def test_no_more_than_there_is_room_for_is_kept(made: AllIndexes, read: list[int], room: bool) -> None:
    """Lance compares the rows then."""
    opened = open_table(
        made.uri, cache_bytes_max=PER_FRAGMENT * (WIDTH * 4 + 16) if room else PER_FRAGMENT * WIDTH * 4 - 1
    )
    for _ in range(2):
        found = opened.search([0.5] * WIDTH, limit=K, vector_column=COLUMN, columns=["id"]).to_arrow()
        holds(found, nearest(made, COLUMN, [0.5] * WIDTH), exact=False)
    assert len(read) == room
    filtered = opened.search([0.5] * WIDTH, limit=K, vector_column=COLUMN, columns=["id"], filter="num >= 0").to_arrow()
    holds(filtered, nearest(made, COLUMN, [0.5] * WIDTH), exact=False)


ODD = {"zeros": 0.0, "tiny": 1e-25, "denormal": 1e-40, "large": 1e18, "huge": 3e38, "NaN": np.nan, "infinite": np.inf}


@pytest.mark.in_turns("odd", "metric", each=3)
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_vectors_leave_out_no_ordinary_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str, metric: Metric
) -> None:
    """A third of the rows are odd: merged ones with and without index, and unmerged ones; by filters, and without room."""
    monkeypatch.setattr(merged, "FLAT_ROWS_MAX", 0)
    columns = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("c", pa.int64()), ("v", pa.list_(pa.float32(), 8))]
    )
    made, rng = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",)), np.random.default_rng(1)
    vectors = rng.standard_normal((440, 8)).astype(np.float32)
    indexed_too = (odd, metric) != ("huge", "l2")  # Lance builds no index of these
    strange = np.array([id for id in range(440) if id % 3 == 0 and (id >= 300 or indexed_too)])
    vectors[strange] = np.clip(vectors[strange], -1, 1)
    if np.isfinite(ODD[odd]):
        vectors[strange] *= np.float32(ODD[odd])
    else:
        vectors[strange, 3] = ODD[odd]

    def write(ids: range, *, flush: bool) -> None:
        rows = [Operation(Op.UPSERT, (id,), {"c": id % 10, "v": vectors[id].tolist()}) for id in ids]
        made.generation(0, rows, flush=flush)
        if flush:
            made.round(MergeLimits(adopt_rows=1))

    write(range(300), flush=True)
    # Lance's own centroids begin at random: one of almost zero ends the build now and then.  Huge vectors need Lance's own.
    centroids = None if odd == "huge" else vectors[[1, 2]]
    made.dataset.create_index("v", "IVF_FLAT", num_partitions=2, metric=metric, ivf_centroids=centroids)
    write(range(300, 400), flush=True)
    write(range(400, 440), flush=False)
    for room, top in itertools.product((1 << 28, 0), (None, 8, 1)):
        opened = open_table(made.uri, cache_bytes_max=room)
        ids = np.array([id for id in range(440) if top is None or id % 10 < top])
        for query in rng.standard_normal((5, 8)).astype(np.float32):
            apart = brute(vectors[ids].astype(np.float64), query.astype(np.float64), metric)
            best = ids[np.argsort(apart, kind="stable")][: min(10, int(np.isfinite(apart).sum()))]
            filter = None if top is None else f"c < {top}"
            found = opened.search(
                query, metric=metric, filter=filter, limit=10, nprobes=2, vector_column="v"
            ).to_arrow()
            assert set(best) - set(strange) <= set(found["id"].to_pylist()), (room, top)
    made.close()


def brute(stored: Vectors, query: Vectors, metric: Metric) -> Vectors:
    """Distances by their definitions, infinite where float32 has none."""
    with np.errstate(all="ignore"):
        products = stored @ query
        lengths = np.sqrt((stored**2).sum(axis=1)) * np.sqrt((query**2).sum())
        known = {"l2": ((stored - query) ** 2).sum(axis=1), "dot": 1 - products, "cosine": 1 - products / lengths}
        found = known[metric].astype(np.float32).astype(np.float64)
    return np.where(np.isfinite(found), found, np.inf)
