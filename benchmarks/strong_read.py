"""Compare a strong read of 1 M base rows, 90 k flushed upserts and 10 k upserts in at most 100 segments with plain Lance.

The ratio is that of medians, against the plain Lance scan of the same columns.  The first scan of a newly opened table
is reported too.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import lance
import numpy as np

from benchmarks.memory_source import MemorySource
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import SCHEMA, table_rows, upserts
from lancewal_core.open import Address
from lancewal_reader.table import open_table

BASE_ROWS = 1_000_000
RUNS = 7
THREE = ["region", "id", "a"]


def run() -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    try:
        return _measure(folder / "table")
    finally:
        shutil.rmtree(folder)


def _measure(path: Path) -> dict[str, float]:
    contract = create(Address(str(path)), "benchmark", "benchmark-id", 4)
    lance.write_dataset(table_rows(np.arange(BASE_ROWS), 0), str(path), mode="append", schema=SCHEMA,
                        max_rows_per_file=250_000)  # fmt: skip
    # 90 k rows in four snapshots, then 10 k in 100 segments.
    source = MemorySource(contract.regions)
    ingest = MemoryIngest(Address(str(path)), contract, source, seal_rows=22_000, segment_rows=10_000)
    ingest.feed(list(upserts(90_000, BASE_ROWS, 1)))
    ingest.worker.drain(60)
    ingest = MemoryIngest(Address(str(path)), contract, source, seal_rows=1_000_000, segment_rows=100)
    ingest.feed(list(upserts(10_000, BASE_ROWS, 2)))
    result: dict[str, float] = {}
    for name, columns in (("all", None), ("three", THREE)):
        plain, strong, first = [], [], []
        table = open_table(str(path))
        rows = table.to_arrow(columns).num_rows
        if rows != BASE_ROWS:
            raise AssertionError(f"{rows} rows instead of {BASE_ROWS}")
        for _ in range(RUNS):
            plain.append(_seconds(lambda columns=columns: lance.dataset(str(path)).to_table(columns=columns)))
            strong.append(_seconds(lambda columns=columns, table=table: table.to_arrow(columns)))
            first.append(_seconds(lambda columns=columns: open_table(str(path)).to_arrow(columns)))
        result[f"{name}_plain_s"] = statistics.median(plain)
        result[f"{name}_strong_s"] = statistics.median(strong)
        result[f"{name}_first_strong_s"] = statistics.median(first)
        result[f"{name}_ratio"] = result[f"{name}_strong_s"] / result[f"{name}_plain_s"]
        result[f"{name}_first_ratio"] = result[f"{name}_first_strong_s"] / result[f"{name}_plain_s"]
    return result


def _seconds(call) -> float:  # type: ignore[no-untyped-def] # any callable without arguments
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
