"""Status of ingest's partitions: how far their records have come, taken from the worker between two turns.

No request is made: facts about Kafka are those of the last look at the topic (``topic_watch``).  So a view of the page
``/status`` costs the broker and the store nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lancewal_core.errors import Corrupt, LancewalError, Problem, Retry, StoreInconsistent
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.status.facts import STANDS_S, KafkaSpan, PartitionFacts, TableFacts, WaitingGeneration
from lancewal_core.process.status.report import Figures, TableStatus, status_of
from lancewal_core.table.control import Service, Until
from lancewal_ingest.kafka.source import Positions
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.schema_waits import SchemaWait
from lancewal_ingest.retention.topic_watch import TopicWatch
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_ingest.service.standstill import Standstill
from lancewal_ingest.service.worker import IngestWorker

UNKNOWN = (
    "partitions of other members: see their pages, or `lancewal status`",
    "flushed, merged and readable rows: see `lancewal status`, or the flusher's `/status`",
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Facts about all partitions, each collected once, because each property of the worker computes all partitions."""

    memtables: Mapping[Region, MemTable]
    refused: Mapping[Region, LancewalError]
    stopped: Mapping[Region, LancewalError]
    schemas: Mapping[Region, SchemaWait]
    consumed: Positions
    decoded: Positions
    highs: Positions


@dataclass(frozen=True, slots=True)
class IngestStatus:
    """Maker of the status of a running table."""

    uri: str
    group: str
    owner: OwnerId
    seal_age_s: float
    worker: IngestWorker
    watch: TopicWatch
    still: Standstill
    metrics: IngestMetrics
    clock: Clock

    def take(self, paused: Until | None, not_ready: Sequence[str]) -> TableStatus:
        """Return the present status.  ``paused``: the pause by an operator, or None.  ``not_ready``: the reasons why
        the process is not ready."""
        contract, now_ms = self.worker.terms.contract, self.clock.now_ms()
        table = TableFacts(
            now_ms,
            contract.topic,
            paused={} if paused is None else {Service.INGEST.value: paused},
            throttled=self.worker.throttled,
            not_stored=None if self.worker.idle_or_progressing else self.metrics.append_failed,
            kafka=_problem(self.watch.silent),
        )
        status = status_of(Service.INGEST.value, self.uri, self.group, contract, table, self._figures(now_ms))
        # A problem that a partition's diagnosis names already is not repeated.
        others = [text for text in not_ready if not any(p.diagnosis.message in text for p in status.partitions)]
        return replace(status, problems=(*status.problems, *others), unknown=UNKNOWN)

    def _figures(self, now_ms: int) -> list[Figures]:
        worker = self.worker
        seen = _Seen(
            worker.memtables, worker.refused, worker.stopped, worker.schema_waits, worker.consumed, worker.decoded,
            self.watch.highs(),
        )  # fmt: skip
        found = []
        for region in sorted({*seen.memtables, *worker.waiting, *seen.stopped}):
            facts, freshness_s = self._facts(region, seen, now_ms), self.metrics.freshness_s.get(region)
            memtable = seen.memtables.get(region)
            if memtable is None:
                found.append(Figures(facts, freshness_s=freshness_s))
            else:
                found.append(Figures(facts, None, {"open": 1}, memtable.rows, memtable.nbytes, freshness_s))
        return found

    def _facts(self, region: Region, seen: _Seen, now_ms: int) -> PartitionFacts:
        memtable, wait, still = seen.memtables.get(region), seen.schemas.get(region), self.still.waiting.get(region)
        stands_s = 0.0 if still is None else self.still.now - still.since
        facts = PartitionFacts(
            region.topic,
            region.partition,
            start=self.worker.terms.contract.start_of(region.partition),
            consumed=seen.consumed.get(region),
            decoded=seen.decoded.get(region),
            changed_ms=None if still is None else now_ms - int(stands_s * 1000),
            rejections=self.metrics.records.of(region),
            stopped=_problem(seen.stopped.get(region)),
            schema=None if wait is None else _problem(wait.error),
            refused=_problem(_lasting(seen.refused.get(region))),
        )
        if memtable is None:
            return facts
        durable = int(memtable.position)
        first = durable if memtable.first is None else int(memtable.first)
        return replace(
            facts,
            kafka=self._span(region, durable, stands_s, seen.highs.get(region)),
            claimed=True,
            begun=first if memtable.generation == 1 else None,
            owner=self.owner,
            durable=durable,
            open=self._waiting(memtable, now_ms),
        )

    def _span(self, region: Region, durable: int, stands_s: float, high: Position | None) -> KafkaSpan | None:
        found = self.watch.last
        end, low = found.ends.get(region), found.retention.lows.get(region)
        if high is None or end is None or low is None:
            return None
        # Waiting records are at least as old as the time for which they have been seen to wait.
        recent = high if stands_s >= STANDS_S else min(durable, high)
        # These figures are from different moments: a record that became durable since was in Kafka.
        return KafkaSpan(
            min(low, durable) if stands_s < STANDS_S else low, max(end, durable), max(high, durable), recent
        )

    def _waiting(self, memtable: MemTable, now_ms: int) -> WaitingGeneration | None:
        if not memtable.rows:
            return None
        opened_ms = now_ms - int((self.clock.monotonic() - memtable.opened_at) * 1000)
        due_ms = opened_ms + int(self.seal_age_s * 1000)
        return WaitingGeneration(memtable.generation, opened_ms, memtable.rows, memtable.nbytes, due_ms)


def _problem(error: LancewalError | None) -> Problem | None:
    return None if error is None else Problem.of(error)


def _lasting(refused: LancewalError | None) -> LancewalError | None:
    """Return the error if it may last.  Return None for any other error, as when another owner claimed the region
    first."""
    return refused if isinstance(refused, Retry | Corrupt | StoreInconsistent) else None
