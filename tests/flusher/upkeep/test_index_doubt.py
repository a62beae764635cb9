"""Indexes over columns that were written in place, by an older merge or by a user: upkeep finds them, and makes them
right.

Nothing of this is done by a merge any more.  The states are made as they came about: by a commit with
``columns_written``, by Lance's own ``merge_insert``, ``update`` and ``optimize_indices``, or by an index that is
built while a merge is under way.  What queries must find is said by a dict of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

from lancewal_core.errors import RewriteFailed
from lancewal_core.names.ids import TableVersion
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import CommitLost, Committed, TableCommit
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.indexes import IndexExtended, IndexRefused, extend_indexes
from tests.support.flusher_tables import KeyedTable

WIDTH, FRAGMENTS, ROWS = 8, 5, 100
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("number", pa.int64()),
        pa.field("class", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("title", pa.string()),
        pa.field("zone", pa.int64()),
        pa.field("bloom", pa.string()),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), WIDTH)),
    ]
)
INDEXES = {
    "id": "BTREE", "number": "BTREE", "class": "BITMAP", "tags": "LABEL_LIST", "title": "NGRAM", "zone": "ZONEMAP",
    "bloom": "BLOOMFILTER", "text": "INVERTED", "vector": "IVF_FLAT",
}  # fmt: skip
PATCHED = tuple(name for name in SCHEMA.names if name != "id")
Row = dict[str, Any]


def row(id: int, age: int) -> Row:
    vector = np.random.default_rng(1_000 * age + id).standard_normal(WIDTH).astype("f4").tolist()
    return {
        "id": id, "number": 10 * id + age, "class": age, "tags": [f"g{age}", "all"], "title": f"age{age}title {id}x",
        "zone": id + 1_000_000 * age, "bloom": f"b{age}_{id}", "text": f"alpha age{age} w{age}x{id}",
        "vector": vector,
    }  # fmt: skip


def rows_of(ids: Sequence[int], age: int) -> pa.Table:
    return pa.Table.from_pylist([row(id, age) for id in ids], SCHEMA)


class DoubtfulTable(KeyedTable):
    """Five fragments of a hundred rows, and an index of every kind."""

    def __init__(self, folder: Path, *, stable_row_ids: bool = False, indexes: bool = True) -> None:
        super().__init__(folder, 1, columns=SCHEMA, primary_key=("id",), stable_row_ids=stable_row_ids)
        self.ages: dict[int, int] = {}
        for number in range(FRAGMENTS):
            self.append(range(ROWS * number, ROWS * (number + 1)), 0)
        if indexes:
            self.build()

    def build(self, *columns: str) -> None:
        for column, kind in INDEXES.items():
            if columns and column not in columns:
                continue
            if kind.startswith("IVF"):
                self.dataset.create_index(column, kind, num_partitions=2)
            else:
                self.dataset.create_scalar_index(column, kind)

    def append(self, ids: Sequence[int], age: int) -> None:
        lance.write_dataset(rows_of(ids, age), self.uri, mode="append")
        self.ages.update(dict.fromkeys(ids, age))

    def write_in_place(self, fragment: int, count: int, age: int, columns: Sequence[str] = PATCHED) -> TableCommit:
        """As merges did it: the first rows of a fragment, and the sentinel among the changed ones."""
        pinned = LanceTable(self.uri).newest()
        lowest = pinned.fragments()[0].fragment_id
        ids = pinned.dataset.get_fragment(fragment).to_table(columns=["id"])["id"].to_pylist()[:count]
        values = rows_of(ids, age).select(list(columns))
        written = pinned.write_columns(fragment, np.arange(count), values, pinned.fragment_json(fragment))
        updated = (written,) if fragment == lowest else (pinned.fragment_json(lowest), written)
        self.ages.update(dict.fromkeys(ids, age))
        return TableCommit(pinned.version, (), updated, (), {}, strict=False, columns_written=tuple(columns))

    def patch(self, fragment: int, count: int, age: int) -> None:
        assert isinstance(LanceTable(self.uri).commit(self.write_in_place(fragment, count, age)), Committed)

    def optimize(self, merged: int) -> None:
        self.dataset.optimize.optimize_indices(num_indices_to_merge=merged)

    def extend(self) -> list[IndexExtended | IndexRefused]:
        return list(extend_indexes(self.context(), IndexLimits(), at_once=True))

    def found(self, filter: str) -> list[int]:
        ids: list[int] = self.dataset.to_table(columns=["id"], filter=filter)["id"].to_pylist()
        return sorted(ids)

    def uncovered(self) -> set[str]:
        pinned = self.context().table.newest()
        live = {f.fragment_id for f in pinned.fragments()}
        return {index.name for index in pinned.indexes() if live - index.covered}

    def wrong(self) -> list[str]:
        """What queries find that they must not, or do not find."""
        model = {id: row(id, age) for id, age in self.ages.items()}
        dataset, found = self.dataset, list[str]()

        def ask(what: str, expected: Iterable[int], **query: Any) -> None:
            if sorted(dataset.to_table(columns=["id"], **query)["id"].to_pylist()) != sorted(expected):
                found.append(what)

        def holding(column: str, value: object) -> list[int]:
            return [id for id, r in model.items() if value in (r[column] if column == "tags" else [r[column]])]

        for id in (5, 150, 250, 420):
            for age in range(3):
                old = row(id, age)
                for column in ("number", "zone", "bloom"):
                    ask(column, holding(column, old[column]), filter=f"{column} = {old[column]!r}")
        for age in range(3):
            ask("class", holding("class", age), filter=f"class = {age}")
            ask("tags", holding("tags", f"g{age}"), filter=f"array_has_any(tags, ['g{age}'])")
            ask("title", holding("class", age), filter=f"contains(title, 'age{age}title')")
            words = {"query": f"age{age}", "columns": ["text"]}
            ask("text", holding("class", age), full_text_query=words, limit=10_000)
        ids = np.array(sorted(model))
        vectors = np.array([model[int(id)]["vector"] for id in ids], "f4")
        for query in vectors[::71]:
            nearest = ids[np.argsort(((vectors - query) ** 2).sum(axis=1), kind="stable")[:10]].tolist()
            asked = {"column": "vector", "q": query, "k": 10, "nprobes": 2}
            if dataset.to_table(nearest=asked, columns=["id", "_distance"])["id"].to_pylist() != nearest:
                found.append("vector")
        return sorted(set(found))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[DoubtfulTable]:
    made = DoubtfulTable(tmp_path)
    yield made
    made.close()


def mend(table: DoubtfulTable) -> list[IndexExtended | IndexRefused]:
    """Upkeep makes it right, and once only; and it stays right whatever is called afterwards."""
    done = table.extend()
    assert all(isinstance(result, IndexExtended) for result in done), done
    assert table.wrong() == []
    assert table.uncovered() == set()
    version = table.dataset.version
    assert table.extend() == []
    assert table.dataset.version == version
    for merged in (0, 10):
        first = max(table.ages) + 1
        table.append(range(first, first + 5), 1)
        table.optimize(merged)
    assert table.wrong() == []
    return done


#: What was done after columns were written in place, and what is wrong then.
AFTERWARDS: dict[str, tuple[Sequence[int], list[str]]] = {
    "nothing": ((), []),
    "a new segment": ((0,), ["class", "number", "tags", "text"]),
    "a new segment, then all merged": ((0, 10), ["text"]),
}


@pytest.mark.parametrize("afterwards", AFTERWARDS)
def test_columns_written_in_place_before(table: DoubtfulTable, afterwards: str) -> None:
    table.patch(1, 60, 1)
    merged, wrong = AFTERWARDS[afterwards]
    for count in merged:
        table.optimize(count)
    if wrong:
        assert set(table.wrong()) & set(wrong)
    done = mend(table)
    assert sorted(r.name for r in done) == sorted(f"{column}_idx" for column in INDEXES)
    assert 1 not in {f.fragment_id for f in table.context().table.newest().fragments()}


def test_an_index_that_lands_while_a_merge_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the indexes and Lance's commit, and built before it but landing behind: answers are right,
    and upkeep makes sure that they stay so."""
    table = DoubtfulTable(tmp_path, indexes=False)
    commit = lance.LanceDataset.commit
    late = table.dataset
    landing = table.write_in_place(2, 50, 1, ["number", "text"])

    def race(*args: Any, **kwargs: Any) -> Any:
        table.build("number", "text")
        return commit(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(lance.LanceDataset, "commit", staticmethod(race))
        assert isinstance(LanceTable(table.uri).commit(landing), Committed)
    late.create_scalar_index("number", "BTREE", name="late")  # from the version before both
    for index in table.context().table.newest().indexes():
        assert not index.covered & {0, 2}
    table.optimize(0)
    assert table.found("number = 2000") == [200]  # wrong: it says what a scan would not
    extend_indexes(table.context(), IndexLimits(), at_once=True)
    for merged in (0, 10):
        assert table.found("number = 2000") == []
        assert table.found("number = 2001") == [200]
        table.optimize(merged)
    table.close()


def merge_insert(table: DoubtfulTable, ids: Sequence[int], age: int) -> None:
    update = table.dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    update.use_index(False).execute(rows_of(ids, age))
    table.ages.update(dict.fromkeys(ids, age))


def update_columns(table: DoubtfulTable, ids: Sequence[int], age: int) -> None:
    update = table.dataset.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    update.execute(rows_of(ids, age).drop_columns(["zone"]))
    table.ages.update(dict.fromkeys(ids, age))
    # Lance refuses to write all columns so.
    table.dataset.update({"zone": f"id + {1_000_000 * age}"}, where=f"id >= {min(ids)} and id <= {max(ids)}")


@pytest.mark.parametrize(("act", "merged"), [(merge_insert, None), (merge_insert, 0), (update_columns, 0)])
def test_rows_that_a_user_updated_and_that_kept_their_ids(
    tmp_path: Path, act: Callable[[DoubtfulTable, Sequence[int], int], None], merged: int | None
) -> None:
    table = DoubtfulTable(tmp_path, stable_row_ids=True)
    act(table, range(130, 190), 1)
    if merged is not None:
        table.optimize(merged)
        assert table.wrong()
    done = mend(table)
    assert {r.name for r in done if isinstance(r, IndexExtended) and r.rebuilt} == {f"{c}_idx" for c in INDEXES}
    table.close()


def test_users_updates_without_stable_row_ids_are_new_rows(table: DoubtfulTable) -> None:
    merge_insert(table, range(130, 190), 1)
    assert len(table.extend()) == len(INDEXES)
    assert {f.fragment_id for f in table.context().table.newest().fragments()} >= set(range(FRAGMENTS))
    update_columns(table, range(210, 250), 2)
    mend(table)


def test_one_round_is_bounded_and_the_next_goes_on(table: DoubtfulTable) -> None:
    for fragment in (1, 2, 3):
        table.patch(fragment, 40, 1)
    sizes = [f.nbytes for f in table.context().table.newest().fragments() if f.fragment_id in (1, 2, 3)]
    limits = IndexLimits(round_bytes=max(sizes) + 1)
    left = []
    for _ in sizes:
        done = extend_indexes(table.context(), limits, at_once=True)
        waiting = {r.name for r in done if isinstance(r, IndexRefused) and r.more}
        left.append(len(waiting))
        assert all(isinstance(r, IndexExtended) or r.name in waiting for r in done)
    assert left == [len(INDEXES) - 1] * 2 + [0]  # that of the key is in no doubt
    while extend_indexes(table.context(), limits, at_once=True):
        pass
    mend(table)


def test_what_cannot_be_written_anew_is_named(table: DoubtfulTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.patch(1, 40, 1)
    version = table.dataset.version
    monkeypatch.setattr(LanceTable, "rewrite", _fail)
    done = table.extend()
    refused = {r.name: r.reason for r in done if isinstance(r, IndexRefused)}
    assert set(refused) == {f"{column}_idx" for column in INDEXES if column != "id"}
    assert all("disk full" in reason for reason in refused.values())
    assert table.dataset.version > version  # each has one segment of all rows, and is right as it is
    assert table.uncovered() == set()
    assert table.wrong() == []


def _fail(*_: object) -> tuple[str, ...]:
    raise RewriteFailed("disk full")


BUILT: list[tuple[str, str, dict[str, Any]]] = [
    ("number", "BTREE", {}),
    ("class", "BITMAP", {}),
    ("tags", "LABEL_LIST", {}),
    ("title", "NGRAM", {}),
    ("zone", "zonemap", {"rows_per_zone": 50}),
    ("bloom", "bloomfilter", {"number_of_items": 500, "probability": 0.01}),
    ("text", "INVERTED", {"with_position": True, "base_tokenizer": "whitespace", "stem": False, "language": "German"}),
    ("vector", "IVF_FLAT", {"num_partitions": 3, "metric": "dot"}),
    ("vector", "IVF_SQ", {"num_partitions": 3}),
    ("vector", "IVF_PQ", {"num_partitions": 2, "metric": "cosine", "num_sub_vectors": 4, "num_bits": 4}),
    ("vector", "IVF_RQ", {"num_partitions": 2, "num_bits": 1}),
    ("vector", "IVF_HNSW_SQ", {"num_partitions": 1, "m": 10, "ef_construction": 70, "max_level": 5}),
    ("vector", "IVF_HNSW_FLAT", {"num_partitions": 1, "m": 8}),
]


def test_an_index_built_anew_keeps_its_parameters(tmp_path: Path) -> None:
    table = DoubtfulTable(tmp_path, indexes=False)
    for number, (column, kind, parameters) in enumerate(BUILT):
        name, dataset = f"i{number}", table.dataset
        if column == "vector":
            dataset.create_index(column, kind, name=name, **parameters)
        elif kind.islower():
            dataset.create_scalar_index(column, IndexConfig(kind, parameters), name=name)
        else:
            dataset.create_scalar_index(column, kind, name=name, **parameters)
        before = described(table, name)
        newest = table.dataset.version
        assert LanceTable(table.uri).rebuild_index(name) == Committed(TableVersion(newest + 1))
        assert described(table, name) == before
        if column == "vector":
            table.dataset.drop_index(name)
    table.dataset.create_scalar_index("text", "MINHASHLSH", name="other")
    outcome = LanceTable(table.uri).rebuild_index("other")
    assert isinstance(outcome, CommitLost)
    assert "parameters of index 'other', of kind MinHashLsh: " in outcome.cause
    table.close()


def described(table: DoubtfulTable, name: str) -> tuple[object, ...]:
    (found,) = (i for i in table.dataset.describe_indices() if i.name == name)
    (told,) = table.dataset.stats.index_stats(name)["indices"]
    layout = {k: told[k] for k in ("num_partitions", "rows_per_zone", "number_of_items", "probability") if k in told}
    return found.index_type, found.field_names, found.details, layout
