"""Reads in Python of 5 M base rows of about 100 bytes: eventual and strong ones, lookups, counts, plans, memory.

Ratios are of medians inside one run, the sides taken in turns.  The unmerged rows are upserts of random base keys in four
partitions, most of them flushed, the last tenth of them in the WAL alone.

``python -m benchmarks.reads`` is the quick form: a tenth of the rows, printed and not kept.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow.compute as pc

from benchmarks.elapsed import seconds
from benchmarks.memory_source import MemorySource
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import SCHEMA, region_of, table_rows, upserts
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.parts import MappedParts
from lancewal_core.open import Address, open_at
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_demo.stack.resident_memory import resident_bytes
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.tasks.runner import ThreadRunner
from lancewal_flusher.upkeep.key_runs import UpkeepState, keep_up
from lancewal_reader.table import open_table

BASE_ROWS = 5_000_000
MEMORY_ROWS, MEMORY_KEYS = 50_000_000, 1_000_000
PARTITIONS = 4
PLAN_PARTITIONS, PLAN_SEGMENTS = 256, 100
RUNS = 7
LOOKUPS = 15
TWO = ["a", "b"]
_CHUNK = 1_000_000

Call = Callable[[], object]


def run(parts: int = 1) -> dict[str, float]:
    """With all rows, or one of so many parts of them."""
    with tempfile.TemporaryDirectory(prefix="lancewal-benchmark-") as place:
        folder = Path(place)
        figures = _scans_and_lookups(folder, BASE_ROWS // parts)
        figures |= _plans(folder / "plans")
        made = _Made(folder / "memory", MEMORY_ROWS // parts)
        made.upsert(MEMORY_KEYS // parts)
        command = [sys.executable, "-m", "benchmarks.reads", made.uri]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        figures["stream_peak_mib"] = float(done.stdout.splitlines()[-1])
        return figures


class _Made:
    """A merged table of base rows and, over it, what is ingested."""

    def __init__(self, path: Path, rows: int, partitions: int = PARTITIONS) -> None:
        self.uri = str(path)
        self.rows = rows
        self.contract = create(Address(self.uri), "benchmark", "benchmark-id", partitions)
        for at in range(0, rows, _CHUNK):
            part = table_rows(np.arange(at, min(rows, at + _CHUNK)), 0)
            lance.write_dataset(part, self.uri, mode="append", schema=SCHEMA, max_rows_per_file=_CHUNK)
        self._source = MemorySource(self.contract.topic_id, partitions)
        self._seed = 0

    def upsert(self, count: int) -> None:
        """Nine tenths flushed, the last one in the WAL."""
        ingest = self.ingest(seal_rows=250_000)
        self.feed(ingest, count - count // 10)
        ingest.worker.drain(300)
        self.feed(self.ingest(seal_rows=10 * count), count // 10)

    def feed(self, ingest: MemoryIngest, count: int) -> None:
        for at in range(0, count, 100_000):
            self._seed += 1
            ingest.feed(list(upserts(min(100_000, count - at), self.rows or 1_000_000, self._seed)))

    def ingest(self, seal_rows: int, segment_rows: int = 10_000) -> MemoryIngest:
        return MemoryIngest(Address(self.uri), self.contract, self._source, seal_rows, segment_rows)

    def index(self) -> None:
        """The key index of the merged rows, as the flusher keeps it up."""
        opened = open_at(Address(self.uri), ThreadTasks(), SystemClock())
        keys = KeyIndex(
            KeyCatalogs(opened.store, opened.clock), MappedParts(opened.store, Path(self.uri), Path(self.uri), 1 << 40)
        )
        tasks = ThreadTasks(io_threads=2, caller_helps=True)
        context = FlusherContext(*opened.parts, keys, ThreadRunner(opened.table, tasks), lambda: uuid.uuid4().hex)
        state = UpkeepState()
        while state.done_for is None:
            keep_up(context, state)


def _scans_and_lookups(folder: Path, rows: int) -> dict[str, float]:
    made = _Made(folder / "table", rows)
    made.index()
    fresh, table = lance.dataset(made.uri), open_table(made.uri)
    fresh_copy = lance.write_dataset(fresh, str(folder / "fresh"), schema=SCHEMA, max_rows_per_file=_CHUNK)
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
    made = _Made(path, 0, PLAN_PARTITIONS)
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
