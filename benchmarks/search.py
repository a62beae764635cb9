"""Compare searches over merged and unmerged rows with Lance's over the merged rows: CPU time of all threads, medians.

The table has ``ROWS`` clustered vectors of 384 numbers (IVF_RQ) and Zipf texts of 30 words (INVERTED with positions),
all indexed; then 1 % and 10 % of the rows are replaced by unmerged rows.  Every answer is checked: outdated rows,
answers that are shorter than possible, recall against brute force, and text scores against an independent BM25.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.query import FullTextOperator, MatchQuery, PhraseQuery

from lancewal_core.rows.schema import Op
from lancewal_reader.search.texts.text_query import Match, Phrase, TextQuery
from lancewal_reader.table import Table, open_table
from tests.support.flusher_tables import KeyedTable, Operation

ROWS = 100_000
WIDTH = 384
QUERIES = 15
K = 10
MERGES, MERGED_ROWS = 8, 10_000
NEW_ROWS, SEALED_EACH = 300, 100
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("price", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), WIDTH)),
    ]
)
Matrix = npt.NDArray[np.float32]


class Data:
    """Rows by id, as they are now."""

    def __init__(self, rows: int) -> None:
        self._rng = np.random.default_rng(11)
        self._centres = self._rng.standard_normal((200, WIDTH)).astype("f4")
        self.vectors = self.near(rows)
        self.texts = self.words(rows)
        self.prices = self._rng.permutation(rows).astype(np.int64)

    def near(self, rows: int) -> Matrix:
        """Unit vectors in clusters."""
        made = self._centres[self._rng.integers(0, len(self._centres), rows)]
        made = made + 0.5 * self._rng.standard_normal((rows, WIDTH)).astype("f4")
        return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), np.float32)

    def words(self, rows: int) -> list[str]:
        drawn = np.minimum(self._rng.zipf(1.25, (rows, 30)), 50_000)
        return [" ".join(f"w{word}" for word in row) for row in drawn]

    def table(self) -> pa.Table:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(self.vectors.reshape(-1)), WIDTH)
        ids = np.arange(len(self.texts))
        return pa.table([ids, self.prices, pa.array(self.texts), vectors], schema=SCHEMA)

    def replace(self, ids: npt.NDArray[np.int64]) -> list[Operation]:
        vectors, texts = self.near(len(ids)), self.words(len(ids))
        self.vectors[ids] = vectors
        for id, text in zip(ids.tolist(), texts, strict=True):
            self.texts[id] = text
        return [
            Operation(Op.UPSERT, (id,), {"price": int(self.prices[id]), "text": text, "vector": vector.tolist()})
            for id, text, vector in zip(ids.tolist(), texts, vectors, strict=True)
        ]

    def nearest(self, query: Matrix, below: int | None = None) -> list[int]:
        apart = ((self.vectors - query) ** 2).sum(axis=1)
        if below is not None:
            apart[self.prices >= below] = np.inf
        return [int(id) for id in np.argsort(apart)[:K] if np.isfinite(apart[id])]


class Bm25:
    """Over all texts as they are now, by a formula of its own."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text.split() for text in texts]
        self._lengths = np.array([len(text) for text in self._texts])
        self._having: dict[str, dict[int, int]] = {}

    def having(self, word: str) -> dict[int, int]:
        if word not in self._having:
            self._having[word] = {i: text.count(word) for i, text in enumerate(self._texts) if word in text}
        return self._having[word]

    def best(self, words: Sequence[str], matches: Callable[[Sequence[str]], bool]) -> list[float]:
        total: dict[int, float] = {}
        relative = self._lengths / self._lengths.mean()
        for word in words:
            found, size = self.having(word), len(self._texts)
            weight = np.log(1 + (size - len(found) + 0.5) / (len(found) + 0.5))
            for id, count in found.items():
                more = weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * relative[id]))
                total[id] = total.get(id, 0.0) + more
        ranked = sorted(total.items(), key=lambda item: -item[1])
        return list(islice((score for id, score in ranked if matches(self._texts[id])), K))


def run(rows: int = ROWS) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    try:
        return _measure(folder, rows)
    finally:
        shutil.rmtree(folder)


def _measure(folder: Path, rows: int) -> dict[str, float]:
    made, data = KeyedTable(folder, 1, columns=SCHEMA, primary_key=("id",)), Data(rows)
    lance.write_dataset(data.table(), made.uri, mode="append", max_rows_per_file=rows // 5)
    partitions = max(4, rows // 4_000)
    made.dataset.create_index("vector", "IVF_RQ", num_partitions=partitions, metric="l2")
    made.dataset.create_scalar_index("text", "INVERTED", with_position=True)
    made.dataset.create_scalar_index("price", "BTREE")
    queries = list(data.near(QUERIES))
    result: dict[str, float] = {"rows": rows, "stale_rows": 0, "short_answers": 0}
    order = np.random.default_rng(5).permutation(rows)
    opened = open_table(made.uri)
    for percent, replaced in ((1, order[: rows // 100]), (10, order[rows // 100 : rows // 10])):
        made.generation(0, data.replace(replaced), flush=True)
        opened, base = open_table(made.uri), made.dataset
        result |= {
            f"{name}_{percent}": figure for name, figure in _vectors(opened, base, data, queries, result).items()
        }
        result |= {f"{name}_{percent}": figure for name, figure in _texts(opened, base, data, result).items()}
        result |= {f"{name}_{percent}": figure for name, figure in _hybrid(opened, data, queries).items()}
    result |= _filters(opened, data, queries, result)
    near = np.argsort(((data.vectors - queries[0]) ** 2).sum(axis=1))[:1_000]
    made.generation(0, data.replace(near), flush=True)
    hidden = opened.search(queries[0], limit=K, columns=["id"]).to_arrow()["id"].to_pylist()
    result["recall_nearest_masked"] = _recall([hidden], [data.nearest(queries[0])])
    result |= _found(made, opened, data)
    made.round()
    made.dataset.optimize.optimize_indices(num_indices_to_merge=0)
    result |= _merging(made, data, queries)
    made.close()
    return result


def _vectors(opened: Table, base: Any, data: Data, queries: list[Matrix], seen: dict[str, float]) -> dict[str, float]:
    def plain(query: Matrix) -> object:
        nearest = {"column": "vector", "q": query, "k": K, "minimum_nprobes": 20, "refine_factor": 20}
        return base.scanner(columns=["id", "_distance"], nearest=nearest).to_table()

    found = []
    for query in queries:
        rows = opened.search(query, limit=K, columns=["id", "vector"]).to_arrow()
        found.append(rows["id"].to_pylist())
        seen["short_answers"] += len(found[-1]) < K
        for id, vector in zip(found[-1], rows["vector"].to_pylist(), strict=True):
            seen["stale_rows"] += not np.array_equal(np.array(vector, "f4"), data.vectors[id])
    lances, ours = _ms(plain, queries), _ms(lambda query: opened.search(query, limit=K, columns=["id"]), queries)
    return {
        "vector_ms": ours, "vector_plain_ms": lances, "vector_ratio": ours / lances,
        "recall": _recall(found, [data.nearest(query) for query in queries]),
    }  # fmt: skip


def _texts(opened: Table, base: Any, data: Data, seen: dict[str, float]) -> dict[str, float]:
    rng = np.random.default_rng(3)
    drawn = [text.split() for text in (data.texts[int(id)] for id in rng.integers(0, len(data.texts), QUERIES))]
    right = Bm25(data.texts)
    result: dict[str, float] = {}
    kinds: dict[str, tuple[list[TextQuery], Callable[[str], Any]]] = {
        "or": ([Match(f"{t[0]} {t[9]} {t[19]}") for t in drawn], lambda words: MatchQuery(words, "text")),
        "and": (
            [Match(f"{t[0]} {t[9]}", operator="and") for t in drawn],
            lambda words: MatchQuery(words, "text", operator=FullTextOperator.AND),
        ),
        "phrase": ([Phrase(" ".join(t[3:5])) for t in drawn], lambda words: PhraseQuery(words, "text")),
    }
    for kind, (queries, by_lance) in kinds.items():
        differ = 0
        for query in queries:
            assert isinstance(query, Match | Phrase)
            rows = opened.search(text=query, limit=K, columns=["id", "text"]).to_arrow()
            words = query.words.split()
            best = right.best(words, _matching(kind, words))
            seen["short_answers"] += rows.num_rows < len(best)
            stale = zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True)
            seen["stale_rows"] += sum(data.texts[id] != text for id, text in stale)
            differ += not np.allclose(rows["_score"].to_numpy(), best, rtol=1e-4)

        def plain(query: Any, by_lance: Callable[[str], Any] = by_lance) -> object:
            asked = by_lance(query.words)
            return base.scanner(columns=["id", "_score"], full_text_query=asked, limit=K).to_table()

        lances = _ms(plain, queries)
        ours = _ms(lambda query: opened.search(text=query, limit=K, columns=["id"]), queries)
        result |= {f"text_{kind}_differ": differ, f"text_{kind}_ms": ours, f"text_{kind}_ratio": ours / lances}
    return result


def _matching(kind: str, words: Sequence[str]) -> Callable[[Sequence[str]], bool]:
    if kind == "or":
        return lambda text: True
    if kind == "and":
        return lambda text: set(words) <= set(text)
    return lambda text: any([*text[at : at + len(words)]] == [*words] for at in range(len(text)))


def _hybrid(opened: Table, data: Data, queries: list[Matrix]) -> dict[str, float]:
    words = [f"{text.split()[0]} {text.split()[9]}" for text in data.texts[:QUERIES]]
    pairs = list(zip(queries, words, strict=True))
    both = _ms(lambda pair: opened.search(*pair, limit=K, columns=["id"]), pairs)
    vector = _ms(lambda pair: opened.search(pair[0], limit=4 * K, columns=["id"]), pairs)
    text = _ms(lambda pair: opened.search(text=pair[1], limit=4 * K, columns=["id"]), pairs)
    return {"hybrid_ms": both, "hybrid_ratio": both / (vector + text)}


def _filters(opened: Table, data: Data, queries: list[Matrix], seen: dict[str, float]) -> dict[str, float]:
    recalls = []
    for share in (0.0002, 0.002, 0.02, 0.1):
        below = max(int(share * len(data.texts)), 1)
        found = []
        for query in queries:
            rows = opened.search(query, limit=K, columns=["id"], filter=f"price < {below}").to_arrow()
            found.append(rows["id"].to_pylist())
            seen["short_answers"] += len(found[-1]) < min(K, below)
        recalls.append(_recall(found, [data.nearest(query, below) for query in queries]))
    return {"recall_filter_min": min(recalls)}


def _found(made: KeyedTable, opened: Table, data: Data) -> dict[str, float]:
    """How long it takes until a row that is durable is found, by an open table that looks again and again.

    By its own vector, by a word that no other row has, and by a strong read that asks for its id; wall time, p99.
    """
    waited: dict[str, list[float]] = {"read": [], "vector": [], "word": []}
    for id in range(NEW_ROWS):
        word, vector = f"new{id}", data.near(1)[0]
        data.vectors[id], data.texts[id] = vector, f"{word} {data.texts[id]}"
        row = {"price": int(data.prices[id]), "text": data.texts[id], "vector": vector.tolist()}
        acts: dict[str, Callable[[], pa.Table]] = {
            "read": lambda id=id, word=word: opened.to_arrow(["id"], filter=f"id = {id} and text like '{word} %'"),  # type: ignore[misc] # no type for a default
            "vector": lambda vector=vector: opened.search(vector, limit=1, columns=["id"]).to_arrow(),  # type: ignore[misc]
            "word": lambda word=word: opened.search(text=word, limit=1, columns=["id"]).to_arrow(),  # type: ignore[misc]
        }
        names = list(acts)
        name = names[id % len(names)]
        made.generation(0, [Operation(Op.UPSERT, (id,), row)], flush=False)
        begin = time.perf_counter()
        assert acts[name]()["id"].to_pylist() == [id]
        waited[name].append((time.perf_counter() - begin) * 1e3)
        if not (id + 1) % SEALED_EACH:
            made.flush(0)
    p99 = {name: float(np.percentile(times[1:], 99)) for name, times in waited.items()}
    return {
        "found_read_p99_ms": p99["read"],
        **{f"found_{name}_p99_ms": p99[name] for name in ("vector", "word")},
        **{f"found_{name}_ratio": p99[name] / p99["read"] for name in ("vector", "word")},
    }


def _merging(made: KeyedTable, data: Data, queries: list[Matrix]) -> dict[str, float]:
    """Each query is of a state that is seen for the first time: after 10,000 rows came, and after they are merged."""
    opened, rng = open_table(made.uri), np.random.default_rng(8)
    quiet = _ms(lambda query: opened.search(query, limit=K, columns=["id"]), queries)
    spent = []
    for cycle in range(MERGES):
        rows = min(MERGED_ROWS, len(data.texts) // 10)
        made.generation(0, data.replace(rng.permutation(len(data.texts))[:rows]), flush=True)
        for act in (lambda: None, made.round):
            act()
            begin = time.process_time()
            opened.search(queries[cycle], limit=K, columns=["id"])
            spent.append(time.process_time() - begin)
    merging = statistics.median(spent) * 1e3
    return {"merging_ms": merging, "merging_quiet_ms": quiet, "merging_ratio": merging / quiet}


def _recall(found: Sequence[Sequence[int]], right: Sequence[Sequence[int]]) -> float:
    shares = [len(set(some) & set(best)) / max(len(best), 1) for some, best in zip(found, right, strict=True)]
    return float(np.mean(shares))


def _ms(call: Callable[[Any], object], items: Sequence[Any]) -> float:
    """CPU time of one call, all threads: the median of the items, each of them the second time."""
    spent = []
    for item in items:
        call(item)
        begin = time.process_time()
        call(item)
        spent.append(time.process_time() - begin)
    return statistics.median(spent) * 1e3
