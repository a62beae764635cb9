"""Scalar, vector and full text indexes through merges and compactions: a query by index finds what a scan finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancewal_core import paths
from lancewal_core.clock import SystemClock
from lancewal_core.column_types import format_type
from lancewal_core.contract import Column, Contract, encode_contract
from lancewal_core.key_catalog import KeyCatalogs
from lancewal_core.key_index import KeyIndex
from lancewal_core.key_parts import StoredParts
from lancewal_core.regions import RegionIndexes
from lancewal_core.store import put_once
from lancewal_core.store_obstore import open_store
from lancewal_core.table import CommitLost, CommitOutcome, Committed, TableCommit
from lancewal_core.table_lance import LanceTable
from lancewal_core.tasks import ThreadTasks
from lancewal_core.watermarks import NOTHING_MERGED, TABLE_UUID, Watermarks
from lancewal_flusher.commit import sentinel
from lancewal_flusher.compaction import Compacted, FileSizes, NothingToCompact, compact_next
from lancewal_flusher.compaction_plan import CompactionLimits
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.index_plan import IndexLimits
from lancewal_flusher.index_upkeep import IndexExtended, IndexRefused, extend_indexes
from lancewal_flusher.runner import ThreadRunner

WIDTH = 16
PARTITIONS = 4
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), WIDTH)),
    ]
)
LIMITS = CompactionLimits(fragments_min=2, growth=1.0, deleted_share=0.05)


class IndexedTable:
    """A table with a BTREE, a full text and a vector index, and merges as the flusher commits them."""

    def __init__(self, folder: Path, *, stable_row_ids: bool) -> None:
        self.uri = str(folder / "table")
        self.rng = np.random.default_rng(7)
        self.model: dict[int, tuple[str, Any]] = {}
        lance.write_dataset(self.rows(range(1_000)), self.uri, enable_stable_row_ids=stable_row_ids)
        self.dataset.update_config({TABLE_UUID: "u"})
        self.dataset.create_scalar_index("id", "BTREE")
        self.dataset.create_index("vector", "IVF_FLAT", num_partitions=PARTITIONS, metric="l2")
        self.dataset.create_scalar_index("text", "INVERTED")
        store, table, clock = open_store(self.uri), LanceTable(self.uri), SystemClock()
        fields = zip(SCHEMA, self.dataset.lance_schema.fields(), strict=True)
        contract = Contract(
            table_uuid="u", topic="t", topic_id="i", partitions=1, primary_key=("id",), region_key=("id",), start=(0,),
            columns=tuple(Column(name=f.name, type=format_type(f.type), field_ids=(g.id(),)) for f, g in fields),
        )  # fmt: skip
        put_once(store, paths.contract_version(1), encode_contract(contract))
        self.tasks = ThreadTasks()
        watermarks = Watermarks(store, table)
        watermarks.record(NOTHING_MERGED, table.newest().version, "checkpoint")
        self._ids = iter(range(1_000_000))
        self.context = FlusherContext(
            store, table, RegionIndexes(store, clock), watermarks,
            KeyIndex(KeyCatalogs(store, clock), StoredParts(store)), ThreadRunner(table, self.tasks), self.tasks, clock,
            contract, lambda: f"{next(self._ids):08x}",
        )  # fmt: skip

    @property
    def dataset(self) -> Any:
        return lance.dataset(self.uri)

    def rows(self, ids: Any) -> pa.Table:
        """New rows for these ids, in the model from now on."""
        ids = list(ids)
        vectors = self.rng.standard_normal((len(ids), WIDTH)).astype("f4")
        texts = [f"{WORDS[int(self.rng.integers(5))]} w{i}" for i in ids]
        self.model.update({i: (t, v) for i, t, v in zip(ids, texts, vectors, strict=True)})
        return pa.table(
            [
                pa.array(ids, pa.int64()),
                pa.array(texts),
                pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
            ],
            schema=SCHEMA,
        )

    def merge(self, upserts: list[int], deletes: list[int]) -> None:
        """Rows of these keys are hidden, the new ones adopted, the sentinel listed: one ``Update``."""
        pinned = self.context.table.newest()
        hits: dict[int, list[int]] = {}
        keys = {*upserts, *deletes}
        for batch in pinned.scan(["id"], with_row_address=True):
            for key, address in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                if key in keys:
                    hits.setdefault(address >> 32, []).append(address & 0xFFFFFFFF)
        changed = {number: pinned.hide_rows(number, rows) for number, rows in hits.items()}
        guard = sentinel(pinned.fragments())
        assert guard is not None
        updated = [text for text in changed.values() if text is not None]
        commit = TableCommit(
            pinned.version,
            self.context.table.write_rows(self.rows(upserts)),
            tuple(updated if guard.fragment_id in changed else [*updated, pinned.fragment_json(guard.fragment_id)]),
            tuple(number for number, text in changed.items() if text is None),
            {},
            strict=False,
        )
        assert isinstance(self.context.table.commit(commit), Committed)
        for key in set(deletes) - set(upserts):
            self.model.pop(key, None)

    def compact(self) -> Compacted | NothingToCompact:
        done = compact_next(self.context, LIMITS, FileSizes(), with_sentinel=True)
        assert isinstance(done, Compacted | NothingToCompact)
        return done

    def extend(self) -> list[str]:
        done = extend_indexes(self.context, IndexLimits(), at_once=True)
        assert all(isinstance(r, IndexExtended) for r in done), done
        return sorted(r.name for r in done)

    def unindexed(self) -> int:
        pinned = self.context.table.newest()
        live = {f.fragment_id for f in pinned.fragments()}
        return sum(len(live - index.covered) for index in pinned.indexes())

    def check(self) -> None:
        """Every kind of query equals brute force over the model."""
        dataset = self.dataset
        assert sorted(dataset.to_table(columns=["id"])["id"].to_pylist()) == sorted(self.model)
        rng = random.Random(len(self.model))
        for key in [*rng.sample(sorted(self.model), 8), *rng.sample(range(3_000), 4)]:
            found = dataset.to_table(filter=f"id = {key}", columns=["text"])["text"].to_pylist()
            assert found == ([self.model[key][0]] if key in self.model else []), key
            assert self._search(f"w{key}") == ([key] if key in self.model else []), key
        found = dataset.to_table(filter="id >= 900 and id < 1100", columns=["id"])["id"].to_pylist()
        assert sorted(found) == sorted(k for k in self.model if 900 <= k < 1_100)
        expected = sorted(k for k, (text, _) in self.model.items() if text.startswith("gamma"))
        assert sorted(self._search("gamma")) == expected
        ids = np.array(sorted(self.model))
        vectors = np.stack([self.model[int(k)][1] for k in ids])
        for key in rng.sample(sorted(self.model), 5):
            query = self.model[key][1]
            nearest = ids[np.argsort(((vectors - query) ** 2).sum(axis=1), kind="stable")[:10]].tolist()
            asked = {"column": "vector", "q": query, "k": 10, "nprobes": PARTITIONS}
            assert dataset.to_table(nearest=asked, columns=["id", "_distance"])["id"].to_pylist() == nearest, key

    def _search(self, text: str) -> list[int]:
        found = self.dataset.to_table(full_text_query=text, columns=["id", "_score"], limit=10_000)
        return list(found["id"].to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Iterator[IndexedTable]:
    made = IndexedTable(tmp_path, stable_row_ids=False)
    yield made
    made.tasks.close()


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
    segments = [len(index.segments) for index in table.context.table.newest().indexes()]
    assert max(segments) <= 4


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
    assert isinstance(made.compact(), NothingToCompact)
    made.tasks.close()


def test_an_index_that_cannot_be_extended_is_named(table: IndexedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: LanceTable, name: str, merged_segments: int) -> CommitOutcome:
        return CommitLost("disk full") if name == "vector_idx" else extend(self, name, merged_segments)

    extend = LanceTable.extend_index
    monkeypatch.setattr(LanceTable, "extend_index", fail)
    table.merge([1, 2, 3], [])
    done = extend_indexes(table.context, IndexLimits(), at_once=True)
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
    done = extend_indexes(table.context, IndexLimits(), at_once=True)
    assert [type(result) for result in done] == [IndexRefused] * 3
