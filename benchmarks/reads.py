"""Measure reads in Python of 5 M base rows of about 100 bytes: eventual and strong reads, lookups, counts, plans, memory.

Ratios are of medians within one run, and the sides alternate.  The unmerged rows are upserts of random base keys in
four partitions.  Nine tenths of them are flushed, the last tenth is only in the WAL.

``python -m benchmarks.reads`` is the quick form: it measures a tenth of the rows, prints the figures, and keeps
nothing.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow.compute as pc

from benchmarks.elapsed import seconds
from benchmarks.ingested_table import FRAGMENT_ROWS, IngestedTable
from benchmarks.workload import SCHEMA, region_of
from lancewal_demo.stack.resident_memory import resident_bytes
from lancewal_reader.table import open_table

BASE_ROWS = 5_000_000
MEMORY_ROWS, MEMORY_KEYS = 50_000_000, 1_000_000
PLAN_PARTITIONS, PLAN_SEGMENTS = 256, 100
RUNS = 7
LOOKUPS = 15
TWO = ["a", "b"]

Call = Callable[[], object]


def run(parts: int = 1) -> dict[str, float]:
    """With all rows, or one of so many parts of them."""
    with tempfile.TemporaryDirectory(prefix="lancewal-benchmark-") as place:
        folder = Path(place)
        figures = _scans_and_lookups(folder, BASE_ROWS // parts)
        figures |= _plans(folder / "plans")
        made = IngestedTable(folder / "memory", MEMORY_ROWS // parts)
        made.upsert(MEMORY_KEYS // parts)
        command = [sys.executable, "-m", "benchmarks.reads", made.uri]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        figures["stream_peak_mib"] = float(done.stdout.splitlines()[-1])
        return figures


def _scans_and_lookups(folder: Path, rows: int) -> dict[str, float]:
    made = IngestedTable(folder / "table", rows)
    made.index()
    fresh, table = lance.dataset(made.uri), open_table(made.uri)
    fresh_copy = lance.write_dataset(fresh, str(folder / "fresh"), schema=SCHEMA, max_rows_per_file=FRAGMENT_ROWS)
    fresh_copy.create_scalar_index("id", "BTREE")

    def eventual() -> int:
        return _rows(table.to_batches(consistency="eventual"))

    def strong() -> int:
        return _rows(table.to_batches())

    figures = _ratio("eventual", eventual, lambda: _rows(fresh.scanner().to_batches()))
    made.upsert(rows // 100)
    figures |= _ratio("strong_1_percent", strong, eventual)
    figures |= _ratio(
        "aggregate", lambda: _sums(table.to_batches(TWO)), lambda: _sums(fresh.scanner(columns=TWO).to_batches())
    )
    figures |= _lookups(table, fresh_copy, rows)
    figures["count_ms"] = 1000 * _median(table.count_rows)
    made.upsert(rows // 10 - rows // 100)
    return figures | _ratio("strong_10_percent", strong, eventual)


def _lookups(table: Any, btree: Any, rows: int) -> dict[str, float]:
    rng = random.Random(7)

    def keys(count: int) -> list[int]:
        return rng.sample(range(rows), count)

    def get(count: int) -> int:
        found = table.get([(region_of(key), key) for key in keys(count)]).to_arrow().num_rows
        if found != count:
            raise AssertionError(f"{found} rows of {count} keys")
        return int(found)

    def by_btree() -> int:
        return int(btree.to_table(filter=f"id IN ({', '.join(map(str, keys(1000)))})").num_rows)

    figures = {f"get_{count}_ms": 1000 * _median(partial(get, count), LOOKUPS) for count in (1, 1000)}
    figures["btree_1000_ms"] = 1000 * _median(by_btree, LOOKUPS)
    figures["get_times_faster"] = figures["btree_1000_ms"] / figures["get_1000_ms"]
    return figures


def _plans(path: Path) -> dict[str, float]:
    """Each of the segments has rows of each partition."""
    made = IngestedTable(path, 0, PLAN_PARTITIONS)
    ingest = made.ingest(seal_rows=1_000_000, segment_rows=10 * PLAN_PARTITIONS)
    made.feed(ingest, 10 * PLAN_PARTITIONS * PLAN_SEGMENTS)
    table = open_table(made.uri)
    table.receipt()
    warm = []
    for _ in range(RUNS):
        made.feed(ingest, 10 * PLAN_PARTITIONS)
        warm.append(seconds(table.receipt))
    cold = _median(lambda: open_table(made.uri).receipt())
    return {"warm_plan_ms": 1000 * statistics.median(warm), "cold_plan_ms": 1000 * cold}


def _ratio(name: str, ours: Call, theirs: Call) -> dict[str, float]:
    """Of medians; each is warmed once, then they take turns."""
    if ours() != theirs():
        raise AssertionError(f"{name}: not the same rows")
    mine, other = [], []
    for _ in range(RUNS):
        mine.append(seconds(ours))
        other.append(seconds(theirs))
    took = statistics.median(mine)
    return {f"{name}_ratio": took / statistics.median(other), f"{name}_s": took}


def _rows(batches: Any) -> int:
    return sum(batch.num_rows for batch in batches)


def _sums(batches: Any) -> int:
    """Rows; the sums are what is measured."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        for column in batch.columns:
            pc.sum(column)
    return rows


def _median(call: Call, runs: int = RUNS) -> float:
    call()
    return statistics.median(seconds(call) for _ in range(runs))


def _stream(uri: str) -> float:
    """MiB of memory at most, in a process of its own."""
    _rows(open_table(uri).to_batches())
    return resident_bytes("VmHWM") / (1 << 20)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(_stream(sys.argv[1]))
    else:
        print(json.dumps(run(parts=10), indent=1))
