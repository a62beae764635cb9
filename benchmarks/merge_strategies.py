"""Show which strategy a merge chooses for each share of changed rows, whether it predicts its cost, and how long it takes.

The shares are 5, 25 and 50 % of the rows of a table with fragments of 250 k rows, each run on its own tables: updates
of whole rows, and patches of one column of seven.  ``merge_insert`` gets the same rows.  For patches, which have only
some columns, it runs in both of its write modes, each on its own table: ``rewrite_rows`` (which it chooses by itself
here) and ``rewrite_columns``.

Predicted and counted are the bytes of data files, deletion vectors and the key index, including the compaction that
follows if *rewrite* is chosen.  The tables are compared with the model.

The crossovers come from the cost model for a fragment of this table: the share of changed rows from which the fragment
is rewritten, and the share from which patches of that column are made in place.

``LANCEWAL_BENCHMARK_ROWS`` sets another number of rows than 5 M.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import lance
import pyarrow as pa

from benchmarks.keyed_rows import KEY, Base, check
from benchmarks.merge_runs import Pair
from benchmarks.upserted_table import UpsertedTable, copy_table
from benchmarks.workplace import workplace
from benchmarks.write_amplification import Written
from lancewal_flusher.tasks.cost import FragmentChange, Strategy, costs, least
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits

ROWS = int(os.environ.get("LANCEWAL_BENCHMARK_ROWS", "5000000"))
PERCENT = (5, 25, 50)
RUNS = 5
DELETED_SHARE = 0.2
WORN_ALONE = CompactionLimits(fragments_min=1_000_000)
"""Bundling small fragments has its own time."""

Batch = Callable[[Pair, int], pa.Table]
WriteMode = Literal["rewrite_rows", "rewrite_columns"]
"""Of ``merge_insert``."""


def run() -> dict[str, float]:
    with workplace(free_gib=8) as place:
        base = place.base(ROWS)
        result: dict[str, float] = {"rows": ROWS}
        kinds: dict[str, Batch] = {"updates": _updates, "patches": _patches}
        for kind, batch in kinds.items():
            for percent in PERCENT:
                found = _Measured()
                for n in range(RUNS):
                    folder = place.folder / f"{kind}-{percent}-{n}"
                    pair = Pair.of(base, folder, 100 * percent + n)
                    peers: dict[WriteMode, Path] = {"rewrite_rows": pair.peer.path}
                    if kind == "patches":
                        peers["rewrite_columns"] = copy_table(pair.peer.path, folder / "rewrite-columns")
                    found.add(pair.ours, peers, batch(pair, ROWS * percent // 100), first=n % 2 == 0)
                    for path in (pair.ours.path, *peers.values()):
                        check(path, pair.upserts.model)
                    pair.ours.close()
                    shutil.rmtree(folder)
                result |= found.figures(f"{kind}_{percent}_percent")
        return result | _crossovers(base) | {"correct": 1}


def _updates(pair: Pair, count: int) -> pa.Table:
    return pair.upserts.batch(count, updated_share=1.0)


def _patches(pair: Pair, count: int) -> pa.Table:
    return pair.upserts.patches(count)


@dataclass(slots=True)
class _Measured:
    """Of each run."""

    merge_s: list[float] = field(default_factory=list)
    """From FLUSHED to committed."""
    merge_predicted_s: list[float] = field(default_factory=list)
    all_s: list[float] = field(default_factory=list)
    """With the compaction behind it."""
    all_predicted_s: list[float] = field(default_factory=list)
    nbytes: list[float] = field(default_factory=list)
    predicted_bytes: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    """CPU time of the merge and the compaction behind it, and what was said."""
    cpu_predicted_s: list[float] = field(default_factory=list)
    peers_s: dict[WriteMode, list[float]] = field(default_factory=dict)
    """Of ``merge_insert``, by its write mode."""
    strategies: Counter[Strategy] = field(default_factory=Counter)

    def add(self, ours: UpsertedTable, peers: Mapping[WriteMode, Path], rows: pa.Table, *, first: bool) -> None:
        """One run; ours ``first`` or ``merge_insert``, into a table for each of its write modes."""
        if first:
            self._ours(ours, rows)
        for mode, path in peers.items():
            self.peers_s.setdefault(mode, []).append(_merge_insert(path, mode, rows))
        if not first:
            self._ours(ours, rows)

    def _ours(self, table: UpsertedTable, rows: pa.Table) -> None:
        table.seal(rows)
        table.flush()
        predicted, on_one_core = table.explanation(), table.explanation(threads=1)
        written = Written(table.path)
        times = table.merge()
        written.look()
        chosen = Counter(f.strategy for f in predicted.fragments)
        cpu = time.process_time()
        behind = table.compact(WORN_ALONE) if chosen[Strategy.REWRITE] else 0.0
        self.cpu_s.append(times.committed_cpu + time.process_time() - cpu)
        self.cpu_predicted_s.append(on_one_core.seconds)
        written.look()
        self.strategies.update(chosen)
        self.merge_s.append(times.committed)
        self.merge_predicted_s.append(predicted.seconds_merge)
        self.all_s.append(times.committed + behind)
        self.all_predicted_s.append(predicted.seconds)
        self.nbytes.append(written.table)
        self.predicted_bytes.append(predicted.bytes_written)

    def figures(self, name: str) -> dict[str, float]:
        """Medians, and predictions over them."""
        median = statistics.median
        peers = {mode: median(seconds) for mode, seconds in self.peers_s.items()}
        return {
            f"{name}_from_flushed_times_faster": min(peers.values()) / median(self.merge_s),
            f"{name}_from_flushed_ms": median(self.merge_s) * 1e3,
            f"{name}_with_compaction_ms": median(self.all_s) * 1e3,
            **{f"{name}_merge_insert_{mode}_ms": took * 1e3 for mode, took in peers.items()},
            f"{name}_mib_written": median(self.nbytes) / 2**20,
            f"{name}_bytes_predicted_ratio": median(self.predicted_bytes) / median(self.nbytes),
            f"{name}_time_predicted_ratio": median(self.merge_predicted_s) / median(self.merge_s),
            f"{name}_time_with_compaction_predicted_ratio": median(self.all_predicted_s) / median(self.all_s),
            f"{name}_cpu_predicted_ratio": median(self.cpu_predicted_s) / median(self.cpu_s),
            f"{name}_cpu_ms": median(self.cpu_s) * 1e3,
            **{f"{name}_fragments_{strategy.value}": self.strategies[strategy] / RUNS for strategy in Strategy},
        }


def _merge_insert(path: Path, mode: WriteMode, rows: pa.Table) -> float:
    """Seconds."""
    dataset = lance.dataset(str(path))
    upsert = dataset.merge_insert(KEY).when_matched_update_all()
    if set(rows.column_names) == set(dataset.schema.names):
        upsert = upsert.when_not_matched_insert_all()
    start = time.perf_counter()
    upsert.use_index(False).write_mode(mode).execute(rows)
    return time.perf_counter() - start


def _crossovers(base: Base) -> dict[str, float]:
    (fragment, *_) = lance.dataset(str(base.table)).get_fragments()
    rows, nbytes = fragment.physical_rows, sum(f.file_size_bytes or 0 for f in fragment.metadata.files)
    whole = FragmentChange(0, rows, 0, nbytes, 0)
    patched = replace(whole, patched_bytes=4 * rows)

    def rewritten(count: int) -> bool:
        return _chosen(replace(whole, replaced=count)) is Strategy.REWRITE

    def in_place(count: int) -> bool:
        return _chosen(replace(patched, replaced=count, patched=count)) is Strategy.COLUMNS

    return {
        "crossover_rewrite_percent": 100 * _first(rewritten, rows) / rows,
        "crossover_columns_percent": 100 * _first(in_place, rows) / rows,
    }


def _chosen(change: FragmentChange) -> Strategy:
    return least(costs(change, DELETED_SHARE)).strategy


def _first(holds: Callable[[int], bool], rows: int) -> int:
    """The least number of rows for which it holds, as it does from there on."""
    low, high = 1, rows - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
