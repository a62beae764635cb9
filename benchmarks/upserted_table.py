"""Upsert Arrow rows into a Lance table in two ways: by lancewal without Kafka, and by ``merge_insert``.

``UpsertedTable`` attaches a table and then calls the functions of ingest and flusher: WAL segments, seal, flush, a
merge round.  The flusher finds the rows that a key replaces as it does in a service.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from benchmarks.keyed_rows import KEY
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.parts import MappedParts
from lancewal_core.names.ids import LogId, OwnerId, Position
from lancewal_core.open import Address, Folder
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.flush import flush_generation
from lancewal_core.region.flush_files import Content
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationState
from lancewal_core.region.transitions import Claimant, first_claim, seal
from lancewal_core.rows.fold import fold
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.rows.schema import Op
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.obstore import open_store
from lancewal_core.table.columns.changes import Change
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.contract import Contract
from lancewal_core.table.lance.row_files import use_all_cores
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import CommitOutcome, TableCommit
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.writer import Durable, LogWriter
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext, by_newest_contract, with_newer_contract
from lancewal_flusher.merge.explain import MergeExplanation, explain
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks.runner import ThreadRunner
from lancewal_flusher.upkeep.compact_all import compact_to_the_end
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.key_runs import keep_up
from lancewal_flusher.upkeep.widening import WideningBegun, WideningDone, WideningState, widen_next
from lancewal_kafka.topic import EARLIEST, TopicState
from lancewal_reader.table import reads_of
from lancewal_tables.define.attach import existing_rows
from lancewal_tables.define.register import first_contract, register
from lancewal_tables.define.topic import FittingTopic
from lancewal_tables.snapshots.make import make_snapshot

SEGMENT_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class MergeTimes:
    """Seconds since the snapshot was FLUSHED."""

    committed: float
    """Until the table's commit returned."""
    committed_cpu: float
    """Of this process until then, Lance's threads included."""
    round: float
    """Until the flusher has finished the merge, marked it and seen that nothing is left."""


class UpsertedTable:
    """A table in one region, fed with Arrow rows."""

    def __init__(self, path: Path) -> None:
        """Make the Lance table at ``path`` a lancewal table."""
        use_all_cores()  # as the services do; ``merge_insert`` in the same process has them too
        self.path = path
        self._clock = SystemClock()
        self._table = _TimedTable(str(path))
        self._tasks, self._threads = ThreadTasks(), ThreadTasks(io_threads=2, caller_helps=True)
        store = open_store(str(path))
        self.contract = _attach(store, self._table)
        opened = OpenedTable.over(store, self._table, self.contract, self._tasks, self._clock)
        keys = KeyIndex(KeyCatalogs(store, self._clock, None), MappedParts(store, path, path, 1 << 40), self._threads)
        self._context = FlusherContext(*opened.parts, keys, ThreadRunner(self._table, self._threads), _new_id)
        self._owner = OwnerId("benchmark")
        self._log = LogWriter(store, self._clock, LogId("benchmark-log"), self._owner, self.contract.rows.wal)
        (self._region,) = self.contract.regions
        self._position = 0
        self._sealed: list[pa.RecordBatch] = []
        self._rounds = RoundState()
        self._index()
        claimant = Claimant(self._owner, self._log.log, self._log.next_unsent)
        region, version = self._region, self.contract.version
        self._context.states.swap({region: lambda _: first_claim(region, version, Position(0), claimant, _new_id())})[
            region
        ]

    def _index(self) -> None:
        """The rows that are there already; a service does it once, between its first merges."""
        while self._rounds.upkeep.done_for is None:
            keep_up(self._context, self._rounds.upkeep)

    def close(self) -> None:
        self._tasks.close()
        self._threads.close()

    def seal(self, rows: pa.Table) -> None:
        """Upserts; patches, where the rows lack columns.  They are durable in the WAL, and the generation with them is
        SEALED; its MemTable is still in memory."""
        for start in range(0, rows.num_rows, SEGMENT_ROWS):
            part = self._wal_batch(rows.slice(start, SEGMENT_ROWS))
            first, next_ = Position(self._position), Position(self._position + part.num_rows)
            stored = self._log.put([Entry(self._region, first, next_, self.contract.version, part, ())])
            if not isinstance(stored, Durable):
                raise AssertionError(f"segment not stored: {stored}")
            self._sealed.append(part)
            self._position = int(next_)
        claimant = Claimant(self._owner, self._log.log, self._log.next_unsent)
        end, times = Position(self._position), RecordTimes.of(self._sealed)
        ours, _ = self._context.states.swap(
            {
                self._region: lambda found: (
                    found
                    and seal(
                        found,
                        found.generations[-1].generation,
                        claimant,
                        end,
                        _new_id(),
                        record_times=times,
                        now_ms=self._context.clock.now_ms(),
                        hand_over=False,
                    )
                )
            }
        )[self._region]
        if not ours:
            raise AssertionError("somebody else has changed the region's index")

    def flush(self) -> float:
        """From the MemTable to FLUSHED, in seconds."""
        context = self._context
        state = context.states.read([self._region]).get(self._region)
        record = next(r for r in (state.generations if state else ()) if r.state is GenerationState.SEALED)
        start = time.perf_counter()
        content = Content(fold(self._sealed, self.contract.rows))
        done = flush_generation(context, self._region, record, content, _new_id)
        seconds = time.perf_counter() - start
        if done is None:
            raise AssertionError("somebody else has flushed it")
        self._sealed = []
        return seconds

    def merge(self) -> MergeTimes:
        """One round of the flusher, which merges what is FLUSHED."""
        start, cpu = time.perf_counter(), time.process_time()
        report = run_round(self._context, MergeLimits(), self._rounds, sealed_grace_s=60.0)
        end = time.perf_counter()
        if len(report.merges) != 1 or report.refused or report.left is None:
            raise AssertionError(f"not one merge: {report}")
        return MergeTimes(self._table.committed_at - start, self._table.committed_cpu - cpu, end - start)

    def alter(self, *changes: Change) -> None:
        """As ``lancewal table alter``, while no rows wait that are sealed and not flushed."""
        context = self._context
        change_columns(context.store, context.table, context.clock, _new_id, changes)
        self._take_up()

    def widen(self) -> Iterator[float]:
        """Widen the columns for which the contract asks, turn by turn as in the service; seconds of each turn."""
        state = WideningState()
        while True:
            start = time.perf_counter()
            result = by_newest_contract(self._context, lambda context: widen_next(context, state))
            seconds = time.perf_counter() - start
            self._take_up()
            if not isinstance(result, WideningDone | WideningBegun):
                raise AssertionError(f"not widened: {result}")
            yield seconds
            if isinstance(result, WideningDone):
                return

    def _take_up(self) -> None:
        self._context = with_newer_contract(self._context) or self._context
        self.contract = self._context.contract
        self._log.schema = self.contract.rows.wal

    def explanation(self, threads: int = 2) -> MergeExplanation:
        """What the next merge would do, with so many threads."""
        found = explain(self._context, MergeLimits(), CompactionLimits(), threads=threads)
        if isinstance(found, Refused):
            raise AssertionError(found.reason)
        return found

    def compact(self, limits: CompactionLimits) -> float:
        """Rounds of compaction as in the service, until none has anything to do, and the key index after them; seconds."""
        start = time.perf_counter()
        while isinstance(compact_next(self._context, limits, FileSizes(), with_sentinel=True), Compacted):
            keep_up(self._context, self._rounds.upkeep)
        return time.perf_counter() - start

    def compact_all(self) -> float:
        """As ``lancewal compact --all``; seconds."""
        start = time.perf_counter()
        compact_to_the_end(self._context, CompactionLimits(), with_sentinel=True)
        return time.perf_counter() - start

    def keep(self, name: str) -> Path:
        """A named snapshot; its folder, by which readers find it that know no branches."""
        make_snapshot(self._context, reads_of(self._context, str(self.path)), name)
        return self.path / "tree" / name

    def _wal_batch(self, rows: pa.Table) -> pa.RecordBatch:
        count, names = rows.num_rows, self.contract.rows.table.names
        upserts = set(names) <= set(rows.column_names)
        bits = sum(1 << i for i, name in enumerate(names) if name in rows.column_names)
        present = bits.to_bytes(self.contract.rows.present_bytes, "little")
        offsets = np.arange(self._position, self._position + count)
        columns: list[Any] = [
            rows[f.name].combine_chunks() if f.name in rows.column_names else pa.nulls(count, f.type)
            for f in self.contract.rows.table
        ]
        columns += [
            pa.array(offsets),
            pa.array(offsets).cast(pa.timestamp("ms", tz="UTC")),
            pa.array(np.full(count, int(Op.UPSERT if upserts else Op.PATCH), np.uint8)),
            pa.nulls(count, pa.binary()) if upserts else pa.repeat(pa.scalar(present), count),
        ]
        return pa.record_batch(columns, schema=self.contract.rows.wal)


class MergeInsertTable:
    """The peer: pylance's own upsert, by a data set that stays open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._dataset: Any = lance.dataset(str(path))

    def merge(self, rows: pa.Table, *, use_index: bool = True) -> float:
        """Seconds."""
        start = time.perf_counter()
        upsert = self._dataset.merge_insert(KEY).when_matched_update_all().when_not_matched_insert_all()
        upsert.use_index(use_index).execute(rows)
        return time.perf_counter() - start


def copy_table(source: Path, target: Path) -> Path:
    """An equal table; data files, which nobody ever changes, are shared with the source."""
    shutil.copytree(source, target, copy_function=_link_data)
    return target


def _attach(store: ObjectStore, table: LanceTable) -> Contract:
    """As ``lancewal table attach``, without Kafka and without its check that no key is there twice: the base has none."""
    settings = Settings.model_validate({"table": {"uri": table.uri, "primary_key": [KEY], "region_key": [KEY]}})
    pinned = table.newest()
    topic = FittingTopic(TopicState("benchmark", "benchmark-id", 1, compacted=False), (EARLIEST,), ())
    rows = existing_rows(pinned, settings)
    contract = first_contract(table.uri, pinned, rows, settings.table, topic)
    return register(Folder(store, table, Address(table.uri).way()), pinned, contract)


class _TimedTable(LanceTable):
    """Remembers when the last commit returned (``time.perf_counter``, ``time.process_time``)."""

    committed_at = 0.0
    committed_cpu = 0.0

    def commit(self, commit: TableCommit) -> CommitOutcome:
        outcome = super().commit(commit)
        self.committed_at, self.committed_cpu = time.perf_counter(), time.process_time()
        return outcome


def _link_data(source: str, target: str) -> str:
    if source.endswith(".lance"):
        os.link(source, target)
        return target
    return shutil.copy2(source, target)


def _new_id() -> str:
    return uuid.uuid4().hex
