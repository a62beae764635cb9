"""Upsert the same rows into two equal tables in turns: by lancewal's merge and by ``merge_insert``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from benchmarks.keyed_rows import Base, Upserts, check
from benchmarks.upserted_table import MergeInsertTable, UpsertedTable, copy_table


@dataclass(slots=True)
class MergeRuns:
    """Seconds of each run, and what the process used of the CPUs meanwhile."""

    flush: list[float] = field(default_factory=list)
    """MemTable to FLUSHED."""
    committed: list[float] = field(default_factory=list)
    """FLUSHED to committed."""
    round: list[float] = field(default_factory=list)
    """FLUSHED to the end of the flusher's round."""
    flush_cpu: list[float] = field(default_factory=list)
    round_cpu: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    peer_cpu: list[float] = field(default_factory=list)

    def upsert(self, table: UpsertedTable, rows: pa.Table) -> None:
        """One run of ours."""
        table.seal(rows)
        cpu = time.process_time()
        flush = table.flush()
        self.flush_cpu.append(time.process_time() - cpu)
        cpu = time.process_time()
        times = table.merge()
        self.round_cpu.append(time.process_time() - cpu)
        self.flush.append(flush)
        self.committed.append(times.committed)
        self.round.append(times.round)

    def merge_insert(self, table: MergeInsertTable, rows: pa.Table, *, use_index: bool = True) -> None:
        """One run of the peer."""
        cpu = time.process_time()
        self.peer.append(table.merge(rows, use_index=use_index))
        self.peer_cpu.append(time.process_time() - cpu)

    def figures(self, name: str) -> dict[str, float]:
        """Medians, and how many times faster than the peer."""
        median = statistics.median
        peer, committed, flush = median(self.peer), median(self.committed), median(self.flush)
        memtable = median(f + c for f, c in zip(self.flush, self.committed, strict=True))
        with_index = median(f + r for f, r in zip(self.flush, self.round, strict=True))
        peer_cpu, flush_cpu, round_cpu = median(self.peer_cpu), median(self.flush_cpu), median(self.round_cpu)
        return {
            f"{name}_runs": len(self.committed),
            f"{name}_from_flushed_times_faster": peer / committed,
            f"{name}_from_memtable_times_faster": peer / memtable,
            f"{name}_from_memtable_with_index_times_faster": peer / with_index,
            f"{name}_from_flushed_cpu_times_less": peer_cpu / round_cpu,
            f"{name}_from_memtable_cpu_times_less": peer_cpu / (flush_cpu + round_cpu),
            f"{name}_flush_ms": flush * 1e3,
            f"{name}_from_flushed_ms": committed * 1e3,
            f"{name}_from_memtable_ms": memtable * 1e3,
            f"{name}_whole_round_ms": median(self.round) * 1e3,
            f"{name}_from_memtable_with_index_ms": with_index * 1e3,
            f"{name}_merge_insert_ms": peer * 1e3,
        }


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tables equal to a base, warm: each has had one small upsert."""

    ours: UpsertedTable
    peer: MergeInsertTable
    upserts: Upserts

    @staticmethod
    def of(base: Base, folder: Path, seed: int, prepare: Callable[[Path], None] = lambda _: None) -> Pair:
        """``prepare`` may change both tables before anything else does."""
        paths = [copy_table(base.table, folder / name) for name in ("ours", "merge-insert")]
        for path in paths:
            prepare(path)
        pair = Pair(UpsertedTable(paths[0]), MergeInsertTable(paths[1]), Upserts(base, seed))
        pair.runs(1_000, 1)
        return pair

    def runs(self, count: int, runs: int, updated_share: float = 0.9, into: MergeRuns | None = None) -> MergeRuns:
        """Batches of ``count`` rows; who goes first changes from run to run."""
        into = MergeRuns() if into is None else into
        for n in range(runs):
            rows = self.upserts.batch(count, updated_share)
            if n % 2:
                into.merge_insert(self.peer, rows)
                into.upsert(self.ours, rows)
            else:
                into.upsert(self.ours, rows)
                into.merge_insert(self.peer, rows)
        return into

    def check(self) -> None:
        """Both hold what the model holds."""
        check(self.ours.path, self.upserts.model)
        check(self.peer.path, self.upserts.model)
