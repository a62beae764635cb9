"""A lancewal table with a column for every kind of index that pylance builds, and the acts that a table meets.

``AllIndexes.check`` asks every index and compares with the model, a dict: by values that rows have, and by values that they
had before.  Vectors are compared by brute force in numpy.  What an approximate index owes exactly is looked at: with all
partitions probed each row is found, once, and by the distance of the vector that it has now.
"""

from __future__ import annotations

import atexit
import copy
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Self

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lance.dataset import serialize_row_addrs

from lancewal_core.names import paths
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.rows.schema import Op
from lancewal_core.rows.ttl import Ttl
from lancewal_core.store.object_store import Done, put_once
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import encode_contract
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.upkeep.compaction import FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.expiry import Expired, OldestTimes, expire_next
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.indexes import extend_indexes
from lancewal_tables.load.files import find_files
from lancewal_tables.load.whole import LoadAsked, load
from tests.support.flusher_tables import KeyedTable, Operation, Row, ScriptedTable

WIDTH = 8
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
PER_FRAGMENT = 40
FRAGMENTS = 6
SCALAR = {
    "num": "BTREE", "cat": "BITMAP", "tags": "LABEL_LIST", "title": "NGRAM", "zone": "ZONEMAP", "bloom": "BLOOMFILTER",
    "text": "INVERTED",
}  # fmt: skip
VECTORS = {
    "v_flat": "IVF_FLAT", "v_pq": "IVF_PQ", "v_sq": "IVF_SQ", "v_rq": "IVF_RQ", "v_hnsw": "IVF_HNSW_FLAT",
    "v_hnsw_pq": "IVF_HNSW_PQ", "v_hnsw_sq": "IVF_HNSW_SQ",
}  # fmt: skip
BITS = {"bits": "IVF_FLAT"}
"""Binary vectors, by ``hamming``."""
KINDS = sorted({*SCALAR.values(), *VECTORS.values(), *(f"{kind} of bits" for kind in BITS.values())})
PARTITIONS = 2
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("num", pa.int64()),
        pa.field("cat", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("title", pa.string()),
        pa.field("zone", pa.int64()),
        pa.field("bloom", pa.string()),
        pa.field("text", pa.string()),
        pa.field("place", pa.struct([pa.field("a", pa.int64())])),
        *(pa.field(name, pa.list_(pa.float32(), WIDTH)) for name in VECTORS),
        *(pa.field(name, pa.list_(pa.uint8(), WIDTH)) for name in BITS),
        pa.field("plain", pa.int64()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
DAY_S = 86_400


def values(id: int, age: int) -> Row:
    """A row's values: other ones at each age, in every column but the key."""
    rng = np.random.default_rng(id * 1_000 + age)
    vector = rng.standard_normal(WIDTH).astype("f4").tolist()
    bits = rng.integers(0, 256, WIDTH).tolist()
    return {
        "num": id * 1_000 + age, "cat": age, "tags": [f"g{age}", "all"], "title": f"gen{age}title number{id}x",
        "zone": id + age * 1_000_000, "bloom": f"b{age}_{id}", "text": f"alpha gen{age} w{id}a{age}",
        "place": {"a": id * 1_000 + age}, **dict.fromkeys(VECTORS, vector), **dict.fromkeys(BITS, bits),
        "plain": age, "at": NOW + timedelta(days=age),
    }  # fmt: skip


def build_indexes(
    dataset: Any, scalar: Mapping[str, str] = SCALAR, vectors: Mapping[str, str] = VECTORS | BITS
) -> None:
    for column, kind in scalar.items():
        dataset.create_scalar_index(column, kind)
    for column, kind in vectors.items():
        more = {"num_sub_vectors": WIDTH, "num_bits": 4} if kind.endswith("PQ") else {}
        metric = "hamming" if column in BITS else "l2"
        dataset.create_index(column, kind, num_partitions=PARTITIONS, metric=metric, **more)


class AllIndexes(KeyedTable):
    """``FRAGMENTS`` fragments of ``PER_FRAGMENT`` rows; an index of every kind over all but the last, which upkeep has taken
    in as a segment of its own."""

    def __init__(self, folder: Path, *, stable_row_ids: bool) -> None:
        super().__init__(folder, 1, columns=SCHEMA, primary_key=("id",), stable_row_ids=stable_row_ids)
        self.folder = folder
        self.age = 0
        self.next_id = 0
        self.rows_in_place = 0
        self.replaced: dict[int, list[Row]] = {}
        """By key: the rows that it had before, oldest first; also those of keys that have no row any more."""

    @classmethod
    def filled(cls, folder: Path, *, stable_row_ids: bool) -> Self:
        """A table after ``fill``: the first of a kind is built, all are copies of it."""
        made = _built(cls, stable_row_ids, values).copied(folder)  # type: ignore[arg-type] # a class is hashable
        assert isinstance(made, cls)
        return made

    def fill(self) -> None:
        for _ in range(FRAGMENTS):
            self.adopt_new(PER_FRAGMENT)
            if self.next_id == PER_FRAGMENT * (FRAGMENTS - 1):
                build_indexes(self.dataset)
        self.dataset.optimize.optimize_indices(num_indices_to_merge=0)

    # -- what the table meets --------------------------------------------------------------------------------------

    def remember(self, ids: Iterable[int]) -> None:
        """The rows that are about to be replaced."""
        for id in ids:
            if (id,) in self.model:
                self.replaced.setdefault(id, []).append(dict(self.model[(id,)]))

    def upsert(self, id: int) -> Operation:
        return Operation(Op.UPSERT, (id,), values(id, self.age))

    def some(self, fragment: int, count: int) -> list[int]:
        """Live keys of a fragment as it was written, other ones at each age."""
        live = [id for id in range(fragment * PER_FRAGMENT, (fragment + 1) * PER_FRAGMENT) if (id,) in self.model]
        return sorted(live, key=lambda id: zlib.crc32(b"%d %d" % (id, self.age)))[:count]

    def adopt_new(self, count: int = 20, also: Sequence[int] = ()) -> None:
        self.remember(also)
        new = range(self.next_id, self.next_id + count)
        self.next_id += count
        self.generation(0, [self.upsert(id) for id in [*new, *also]])
        self.round(MergeLimits(adopt_rows=1))

    def adopt(self) -> None:
        self.adopt_new(20, self.some(1, 20))

    def combine(self) -> None:
        for fragment in (1, 3):
            ids = self.some(fragment, 12)
            self.remember(ids)
            self.generation(0, [self.upsert(id) for id in ids])
            self.age += 1
        self.round(MergeLimits(adopt_rows=1_000_000, adopt_small_max=0))

    def patch(self) -> None:
        """Patches of all columns in one fragment, of some in another."""
        everything = [name for name in SCHEMA.names if name != "id"]
        for fragment, names in ((1, everything), (2, ["num", "text", "v_pq", "plain"])):
            ids = self.some(fragment, 20)
            self.remember(ids)
            patches = [(id, values(id, self.age)) for id in ids]
            self.generation(0, [Operation(Op.PATCH, (id,), {n: row[n] for n in names}) for id, row in patches])
        self.round(MergeLimits(adopt_rows=1, in_place_rows=1))

    def patch_in_place(self) -> None:
        """Patches of a column without an index."""
        ids = self.some(2, 25)
        self.remember(ids)
        self.generation(0, [Operation(Op.PATCH, (id,), {"plain": -self.age}) for id in ids])
        (merge,) = self.round(MergeLimits(adopt_rows=1, in_place_rows=1)).merges
        self.rows_in_place += merge.rows_in_place

    def delete_some(self) -> None:
        ids = [*self.some(1, 12), *self.some(3, 12)]
        self.remember(ids)
        self.generation(0, [Operation(Op.DELETE, (id,)) for id in ids])
        self.round(MergeLimits(adopt_rows=1))

    def compact(self) -> None:
        limits = CompactionLimits(fragments_min=2, growth=1.0, deleted_share=0.01, target_rows=PER_FRAGMENT)
        done = compact_next(self.context(), limits, FileSizes(), with_sentinel=True)
        assert not isinstance(done, Refused)

    def expire(self) -> None:
        """The oldest rows of one fragment, given old times by a merge before."""
        ids = self.some(2, 15)
        self.remember(ids)
        old = {"at": NOW - timedelta(days=100)}
        self.generation(0, [Operation(Op.UPSERT, (id,), {**values(id, self.age), **old}) for id in ids])
        self.round(MergeLimits(adopt_rows=1))
        clock = _At(int((NOW - timedelta(days=1)).timestamp() * 1000))
        done = expire_next(replace(self.context(), clock=clock), Ttl("at", DAY_S), OldestTimes())  # type: ignore[arg-type] # only the time of day is asked
        assert isinstance(done, Expired)
        assert done.rows == len(ids)
        for id in ids:
            self.remember([id])
            del self.model[(id,)]

    def load(self) -> None:
        rows = [{"id": id, **values(id, self.age)} for id in range(self.next_id, self.next_id + 20)]
        self.next_id += 20
        file = self.folder / f"load-{self.age}.parquet"
        pq.write_table(pa.Table.from_pylist([*rows, {"id": 1, **values(1, self.age)}], SCHEMA), file)
        load(self.context(), find_files([str(file)], {}), LoadAsked(f"load-{self.age}"))
        for row in rows:  # key 1 has a row: that one stays
            self.model[(row["id"],)] = row

    def follow_up(self) -> None:
        """A user appends rows under merged keys between plan and commit: the follow-up hides them."""
        ids = self.some(1, 10)
        theirs = pa.Table.from_pylist([{"id": id, **values(id, 900 + self.age % 50)} for id in ids[:5]], SCHEMA)
        raced = ScriptedTable(self.uri)
        raced.before = [lambda: lance.write_dataset(theirs, self.uri, mode="append")]
        self.remember(ids)
        self.generation(0, [self.upsert(id) for id in ids])
        report = self.round(MergeLimits(adopt_rows=1), self.context(raced))
        assert [done.rows_hidden for done in report.finished] == [5]
        for id in ids[:5]:
            self.replaced[id].append({"id": id, **values(id, 900 + self.age % 50)})

    def alter(self) -> None:
        """A new version of the contract, and a merge under it."""
        ends = tuple(int(self.index(p).generations[-1].next or 0) for p in range(self.contract.partitions))
        self.contract = self.contract.model_copy(update={"version": self.contract.version + 1, "altered_at": ends})
        key = paths.contract_version(self.contract.version, None)
        assert isinstance(put_once(self.store, key, encode_contract(self.contract)), Done)
        self.adopt_new(5, self.some(3, 10))

    # -- upkeep ----------------------------------------------------------------------------------------------------

    def extend(self) -> None:
        extend_indexes(self.context(), IndexLimits(), at_once=True)

    def check(self) -> None:
        """The rows are the model's.  As columns: the model's own comparison takes as long as all indexes."""
        rows = pa.Table.from_pylist([self.model[key] for key in sorted(self.model)], SCHEMA)
        assert self.dataset.to_table().sort_by("id").equals(rows)

    # -- the comparison --------------------------------------------------------------------------------------------

    def wrong(self) -> dict[str, list[str]]:
        """What the indexes say wrongly, by column."""
        return differences(self.dataset, {id: row for (id,), row in self.model.items()}, self.replaced)

    def copied(self, folder: Path) -> Self:
        """The same table once more, in another folder, to go on with."""
        shutil.copytree(self.uri, folder / "table")
        made = copy.copy(self)
        made.folder, made.uri = folder, str(folder / "table")
        made.store = open_store(made.uri)
        made.model, made.replaced = dict(self.model), {id: [*rows] for id, rows in self.replaced.items()}
        made.tasks = ThreadTasks()
        made._ids = copy.copy(self._ids)
        made._feeding = made.context()
        made._log = copy.copy(self._log)
        made._log._store = made.store
        return made


@cache
def _built(kind: type[AllIndexes], stable_row_ids: bool, _values: Callable[[int, int], Row]) -> AllIndexes:
    """To copy from.  Tests of some kinds have values of their own."""
    folder = tempfile.TemporaryDirectory(prefix="all-indexes-")
    atexit.register(folder.cleanup)
    made = kind(Path(folder.name), stable_row_ids=stable_row_ids)
    made.fill()
    made.close()
    return made


class _At:
    def __init__(self, ms: int) -> None:
        self._ms = ms

    def now_ms(self) -> int:
        return self._ms


ACTS: dict[str, Callable[[AllIndexes], None]] = {
    "adopting merge": AllIndexes.adopt,
    "combining merge": AllIndexes.combine,
    "merge of patches": AllIndexes.patch,
    "patches in place": AllIndexes.patch_in_place,
    "deletes": AllIndexes.delete_some,
    "compaction": AllIndexes.compact,
    "expiry": AllIndexes.expire,
    "load": AllIndexes.load,
    "follow-up": AllIndexes.follow_up,
    "alter": AllIndexes.alter,
}
UPKEEP: dict[str, Callable[[AllIndexes], None]] = {
    "extend_indexes": AllIndexes.extend,
    "optimize_indices()": lambda t: t.dataset.optimize.optimize_indices(),
    "optimize_indices(0)": lambda t: t.dataset.optimize.optimize_indices(num_indices_to_merge=0),
    "optimize_indices(1)": lambda t: t.dataset.optimize.optimize_indices(num_indices_to_merge=1),
    "optimize_indices(10)": lambda t: t.dataset.optimize.optimize_indices(num_indices_to_merge=10),
    "optimize_indices(retrain)": lambda t: t.dataset.optimize.optimize_indices(retrain=True),
}


def differences(
    dataset: Any, model: Mapping[int, Row], replaced: Mapping[int, Sequence[Row]], columns: Iterable[str] | None = None
) -> dict[str, list[str]]:
    """Per column what its index finds and the model has not, or the other way about."""
    found: dict[str, list[str]] = {}
    wanted = [*SCALAR, *VECTORS, *BITS] if columns is None else list(columns)
    changed = sorted(replaced)[-80:]
    ids = sorted({*changed, *list(model)[:: max(1, len(model) // 30)]})
    before = [row for id in changed for row in replaced[id][-2:]]
    now = [model[id] for id in ids if id in model]

    def compare(column: str, what: str, got: Sequence[int], right: Callable[[Row], bool]) -> None:
        expected = sorted(id for id, row in model.items() if right(row))
        if sorted(got) != expected:
            more, less = sorted(set(got) - set(expected)), sorted(set(expected) - set(got))
            twice = sorted(id for id in set(got) if list(got).count(id) > 1)
            found.setdefault(column, []).append(
                f"{what}: {len(more)} that do not match {more[:3]}, {len(less)} missing {less[:3]}, {len(twice)} twice "
                f"{twice[:3]} (of {len(expected)})"
            )

    def ask(column: str, condition: str, right: Callable[[Row], bool]) -> None:
        asked = dataset.scanner(columns=["id"], filter=condition)
        compare(column, condition[:60], asked.to_table()["id"].to_pylist(), right)

    numbers = dataset.to_table(columns=["id"], with_row_id=True)
    row_ids = dict(zip(numbers["id"].to_pylist(), numbers["_rowid"].to_pylist(), strict=True))
    for column in wanted:
        if column in VECTORS or column in BITS:
            _vectors(dataset, column, model, replaced, [id for id in ids if id in model], row_ids, found)
            continue
        top = column.split(".")[0]
        kind = SCALAR[column]
        if kind in ("BTREE", "ZONEMAP", "BLOOMFILTER"):
            for rows in (before, now):
                listed = {_of(row, column) for row in rows}
                if listed:
                    among = ", ".join(map(repr, sorted(listed)))
                    ask(column, f"{column} in ({among})", lambda row, c=column, s=listed: _of(row, c) in s)  # type: ignore[misc] # no type for a default
            continue
        ages = sorted({_age(row[top]) for row in [*before[-100:], *now]})[-5:]
        for age in ages:
            match kind:
                case "BITMAP":
                    ask(column, f"{column} = {age}", lambda row, a=age: row["cat"] == a)  # type: ignore[misc]
                case "LABEL_LIST":
                    ask(column, f"array_has_any({column}, ['g{age}'])", lambda row, a=age: f"g{a}" in row["tags"])  # type: ignore[misc]
                case "NGRAM":
                    ask(column, f"contains({column}, 'gen{age}title')", lambda r, a=age: f"gen{a}title" in r["title"])  # type: ignore[misc]
                case "INVERTED":
                    query = {"query": f"gen{age}", "columns": [column]}
                    got = dataset.to_table(columns=["id", "_score"], full_text_query=query, limit=100_000)
                    compare(column, f"gen{age}", got["id"].to_pylist(), lambda r, a=age: f"gen{a}" in r["text"].split())  # type: ignore[misc]
    return found


def _vectors(
    dataset: Any, column: str, model: Mapping[int, Row], replaced: Mapping[int, Sequence[Row]], live: Sequence[int],
    row_ids: Mapping[int, int], found: dict[str, list[str]],
) -> None:  # fmt: skip

    def near(query: Sequence[float], among: Sequence[int]) -> list[tuple[int, float]]:
        got = dataset.scanner(
            columns=["id", "_distance"],
            nearest={"column": column, "q": np.array(query, "f4"), "k": 2 * len(among) + 5, "nprobes": 100},
            row_addr_allowlist=serialize_row_addrs([row_ids[id] for id in among]),
        ).to_table()
        return list(zip(got["id"].to_pylist(), got["_distance"].to_pylist(), strict=True))

    got = sorted(id for id, _ in near([0.0] * WIDTH, live))
    if got != list(live):
        less = sorted(set(live) - set(got))
        found.setdefault(column, []).append(
            f"{len(live)} rows: {len(less)} missing {less[:3]}, {len(got) - len(set(got))} twice"
        )
    for id in [id for id in replaced if id in model][-2:]:
        old, new = (np.array(row[column], "f4") for row in (replaced[id][-1], model[id]))
        if (old == new).all():
            continue
        (by_old,) = [distance for found_id, distance in near(old.tolist(), [id]) if found_id == id][:1] or [np.inf]
        (by_new,) = [distance for found_id, distance in near(new.tolist(), [id]) if found_id == id][:1] or [np.inf]
        if by_new >= by_old:  # distances of quantised vectors are approximate
            found.setdefault(column, []).append(f"{id}: {by_old:.3f} from its old vector, {by_new:.3f} from its own")


def _of(row: Row, column: str) -> Any:
    for name in column.split("."):
        row = row[name]
    return row


def _age(value: Any) -> int:
    """Of a value of ``cat``, ``tags``, ``title`` or ``text``."""
    if isinstance(value, int):
        return value
    if isinstance(value, list):
        return int(value[0][1:])
    word = next(part for part in value.split() if part.startswith("gen"))
    return int(word.removeprefix("gen").removesuffix("title"))
