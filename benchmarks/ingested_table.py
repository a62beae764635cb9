"""Make a table of base rows of about 100 bytes, and upsert rows into it through the ingest worker."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import numpy as np

from benchmarks.memory_source import MemorySource
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import SCHEMA, table_rows, upserts
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.parts import MappedParts
from lancewal_core.open import Address, open_at
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks.runner import ThreadRunner
from lancewal_flusher.upkeep.key_runs import UpkeepState, keep_up

PARTITIONS = 4
FRAGMENT_ROWS = 1_000_000


class IngestedTable:
    """A merged table of base rows and, over it, what is ingested."""

    def __init__(self, path: Path, rows: int, partitions: int = PARTITIONS) -> None:
        self.uri = str(path)
        self.rows = rows
        self.contract = create(Address(self.uri), "benchmark", "benchmark-id", partitions)
        for at in range(0, rows, FRAGMENT_ROWS):
            part = table_rows(np.arange(at, min(rows, at + FRAGMENT_ROWS)), 0)
            lance.write_dataset(part, self.uri, mode="append", schema=SCHEMA, max_rows_per_file=FRAGMENT_ROWS)
        self._source = MemorySource(self.contract.regions)
        self._seed = 0

    def upsert(self, count: int) -> None:
        """Nine tenths flushed, the last one in the WAL."""
        self.upsert_flushed(count - count // 10)
        self.feed(self.ingest(seal_rows=10 * count), count // 10)

    def upsert_flushed(self, count: int) -> None:
        ingest = self.ingest(seal_rows=250_000)
        self.feed(ingest, count)
        ingest.worker.drain(300)

    def feed(self, ingest: MemoryIngest, count: int) -> None:
        for at in range(0, count, 100_000):
            self._seed += 1
            ingest.feed(list(upserts(min(100_000, count - at), self.rows or 1_000_000, self._seed)))

    def ingest(self, seal_rows: int, segment_rows: int = 10_000) -> MemoryIngest:
        return MemoryIngest(Address(self.uri), self.contract, self._source, seal_rows, segment_rows)

    def index(self) -> None:
        """The key index of the merged rows, as the flusher keeps it up."""
        context, state = self._context(), UpkeepState()
        while state.done_for is None:
            keep_up(context, state)

    def merge(self) -> None:
        """All that is flushed, and the key index kept up."""
        report = run_round(self._context(), MergeLimits(), RoundState(), sealed_grace_s=60.0)
        if not report.merges or report.refused or report.left is None:
            raise AssertionError(f"not a merge: {report}")

    def _context(self) -> FlusherContext:
        opened = open_at(Address(self.uri), ThreadTasks(), SystemClock())
        catalogs = KeyCatalogs(opened.store, opened.clock, opened.contract.making)
        keys = KeyIndex(catalogs, MappedParts(opened.store, Path(self.uri), Path(self.uri), 1 << 40))
        tasks = ThreadTasks(io_threads=2, caller_helps=True)
        return FlusherContext(*opened.parts, keys, ThreadRunner(opened.table, tasks), lambda: uuid.uuid4().hex)
