"""Compare merging upserts into 5 M rows in 20 fragments with pylance's ``merge_insert`` of the same rows into an equal
table.

lancewal is timed from the MemTable and from the flush to the table's commit, and also to the end of the flusher's
round, which includes the work after the commit.  Both sides alternate; ratios are of medians.  After each measurement
the tables are compared with the model (number of rows, sums of two columns). A difference ends the benchmark.

 * 10 k and 250 k upserts (90 % updates, 10 % inserts, random keys),
 * 250 k upserts with a scalar index on the key: ``merge_insert`` with the index, and told not to use it,
 * updates of 5, 25 and 50 % of the rows, each run on its own tables,
 * ten rounds of 100 k upserts, then scans of the table by lancewal's reader and by plain Lance, compared with a scan
   of a freshly written table by plain Lance; before and after ``lancewal compact --all``.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any, get_args

import lance
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.keyed_rows import KEY, SCHEMA, Base, Model
from benchmarks.merge_runs import MergeRuns, Pair
from benchmarks.table_scans import By, Kind, TableScans, table_scans, write_fresh
from benchmarks.upserted_table import MergeInsertTable, copy_table
from benchmarks.workplace import workplace

ROWS = 5_000_000
RUNS = 7
SCANS = 15
SWEEP_RUNS = 5
SWEEP_PERCENT = (5, 25, 50)
LOOKUPS = 1_000

Tables = dict[str, tuple[Path, By]]
"""What is scanned, and by whom."""


def run() -> dict[str, float]:
    with workplace(free_gib=8) as place:
        base = place.base(ROWS)
        result: dict[str, float] = {}
        for measure in (_upserts, _indexed, _sweep, _scans):
            own = place.folder / "measure"  # goes after each: nothing piles up on the disk
            own.mkdir()
            result |= measure(base, own)
            shutil.rmtree(own)
        return result | {"correct": 1}


def _upserts(base: Base, folder: Path) -> dict[str, float]:
    result: dict[str, float] = {}
    for name, count in (("10k", 10_000), ("250k", 250_000)):
        pair = Pair.of(base, folder / name, 1)
        result |= pair.runs(count, RUNS).figures(name)
        pair.check()
        pair.ours.close()
    return result


def _indexed(base: Base, folder: Path) -> dict[str, float]:
    """Two peers, one of which uses the index, as long as it can."""
    pair = Pair.of(base, folder, 2, _index)
    using = MergeInsertTable(_indexed_copy(base, folder / "using-index"))
    runs, of_index = MergeRuns(), MergeRuns()
    failures = 0
    rows = SCHEMA.empty_table()
    for n in range(RUNS):
        rows = pair.upserts.batch(250_000)
        runs.upsert(pair.ours, rows)
        runs.merge_insert(pair.peer, rows, use_index=False)
        try:
            of_index.merge_insert(using, rows)
        except (OSError, RuntimeError, ValueError) as error:
            failures += 1
            print(f"merge_insert by the index, run {n}: {str(error)[:200]}", flush=True)
    pair.check()
    _check_lookup(pair.ours.path, rows)
    pair.ours.close()
    result = runs.figures("indexed") | {"indexed_merge_insert_by_index_failures": failures}
    if of_index.peer:
        by_index = statistics.median(of_index.peer)
        result["indexed_merge_insert_by_index_ms"] = by_index * 1e3
        result["indexed_from_flushed_times_faster_than_by_index"] = by_index / statistics.median(runs.committed)
    return result


def _sweep(base: Base, folder: Path) -> dict[str, float]:
    result: dict[str, float] = {}
    for percent in SWEEP_PERCENT:
        runs = MergeRuns()
        for n in range(SWEEP_RUNS):
            pair = Pair.of(base, folder / f"{percent}-{n}", 10 * percent + n)
            pair.runs(ROWS * percent // 100, 1, updated_share=1.0, into=runs)
            pair.check()
            pair.ours.close()
            shutil.rmtree(folder / f"{percent}-{n}")
        result |= runs.figures(f"updates_{percent}_percent")
    return result


def _scans(base: Base, folder: Path) -> dict[str, float]:
    pair = Pair.of(base, folder, 3)
    result = pair.runs(100_000, 10).figures("100k")
    pair.check()
    fresh = folder / "fresh"
    write_fresh(pair.ours.path, fresh)
    ours: Tables = {
        "fresh": (fresh, "Lance"),
        "reader": (pair.ours.path, "lancewal"),
        "lance": (pair.ours.path, "Lance"),
    }
    with table_scans() as scans:
        all_tables: Tables = {**ours, "merge_insert": (pair.peer.path, "Lance")}
        result |= _scan_figures(scans, "merged", all_tables, pair.upserts.model)
        result["compaction_s"] = pair.ours.compact_all()
        result |= _scan_figures(scans, "compacted", ours, pair.upserts.model)
    pair.runs(10_000, 1)  # the compacted table takes upserts
    pair.check()
    pair.ours.close()
    return result


def _scan_figures(scans: TableScans, name: str, tables: Tables, model: Model) -> dict[str, float]:
    result: dict[str, float] = {}
    for kind in get_args(Kind):
        seconds: dict[str, list[float]] = {of: [] for of in tables}
        for _ in range(SCANS):
            for of, (path, by) in tables.items():
                seconds[of].append(scans.scan(path, kind, model, by).wall)
        medians = {of: statistics.median(found) for of, found in seconds.items()}
        result[f"{name}_{kind}_fresh_s"] = medians["fresh"]
        for of in medians.keys() - {"fresh"}:
            result[f"{name}_{kind}_{of}_ratio"] = medians[of] / medians["fresh"]
    return result


def _index(path: Path) -> None:
    dataset: Any = lance.dataset(str(path))
    dataset.create_scalar_index(KEY, "BTREE")


def _indexed_copy(base: Base, path: Path) -> Path:
    copy_table(base.table, path)
    _index(path)
    return path


def _check_lookup(path: Path, rows: pa.Table) -> None:
    """Rows of the last batch, looked up by the table's index."""
    wanted = rows.slice(0, LOOKUPS)
    keys = ", ".join(str(key) for key in wanted[KEY].to_pylist())
    found = lance.dataset(str(path)).to_table(filter=f"{KEY} in ({keys})")
    order = [(KEY, "ascending")]
    if not found.take(pc.sort_indices(found, order)).equals(wanted.take(pc.sort_indices(wanted, order))):
        raise AssertionError(f"{path}: rows found by the index are not those of the last batch")
