"""Status of ingest's partitions: how far their records have come, taken from the worker between two turns.

No request is made: facts about Kafka are those of the last look at the topic (``topic_watch``).  So a view of the page
``/status`` costs the broker and the store nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lancewal_core.errors import Corrupt, LancewalError, Retry, StoreInconsistent
from lancewal_core.names.ids import OwnerId, Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.status.facts import (
    STANDS_S,
    Failure,
    KafkaSpan,
    PartitionFacts,
    TableFacts,
    WaitingGeneration,
)
from lancewal_core.process.status.report import Figures, TableStatus, status_of
from lancewal_core.table.contract import Contract
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
class Named:
    """Identity of the table and of the process that works on it."""

    contract: Contract
    uri: str
    group: str
    owner: OwnerId
    seal_age_s: float


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

    @classmethod
    def of(cls, worker: IngestWorker, watch: TopicWatch) -> _Seen:
        return cls(
            worker.memtables,
            worker.refused,
            worker.stopped,
            worker.schema_waits,
            worker.consumed,
            worker.decoded,
            watch.highs(),
        )


@dataclass(frozen=True, slots=True)
class IngestStatus:
    """Maker of the status of a running table."""

    named: Named
    worker: IngestWorker
    watch: TopicWatch
    still: Standstill
    metrics: IngestMetrics
    clock: Clock

    def take(self, paused: Until | None, not_ready: Sequence[str]) -> TableStatus:
        """Return the present status.  ``paused`` is the operator's pause, ``not_ready`` the texts of readiness problems."""
        named, contract, now_ms = self.named, self.worker.terms.contract, self.clock.now_ms()
        table = TableFacts(
            now_ms,
            contract.topic,
            paused={} if paused is None else {Service.INGEST.value: paused},
            throttled=self.worker.throttled,
            not_stored=None if self.worker.idle_or_progressing else self.metrics.append_failed,
            kafka=None if self.watch.silent is None else Failure.of(self.watch.silent),
        )
        status = status_of(Service.INGEST.value, named.uri, named.group, contract, table, self._figures(now_ms))
        # A problem that a partition's diagnosis names already is not repeated.
        others = [text for text in not_ready if not any(p.diagnosis.message in text for p in status.partitions)]
        return replace(status, problems=(*status.problems, *others), unknown=UNKNOWN)

    def _figures(self, now_ms: int) -> list[Figures]:
        seen = _Seen.of(self.worker, self.watch)
        memtables = seen.memtables
        return [
            Figures(
                self._facts(region, seen, now_ms),
                generations={"open": 1} if region in memtables else {},
                unmerged_rows=memtables[region].rows if region in memtables else 0,
                unmerged_bytes=memtables[region].nbytes if region in memtables else 0,
                freshness_s=self.metrics.freshness_s.get(region),
            )
            for region in sorted({*memtables, *self.worker.waiting, *seen.stopped})
        ]

    def _facts(self, region: Region, seen: _Seen, now_ms: int) -> PartitionFacts:
        named, memtable = self.named, seen.memtables.get(region)
        stopped, refused = seen.stopped.get(region), _lasting(seen.refused.get(region))
        durable = None if memtable is None else int(memtable.position)
        wait = seen.schemas.get(region)
        still = self.still.waiting.get(region)
        stands_s = 0.0 if still is None else self.still.now - still.since
        return PartitionFacts(
            region.topic,
            region.partition,
            kafka=None if durable is None else self._span(region, durable, stands_s, seen.highs.get(region)),
            start=named.contract.start_of(region.partition),
            claimed=True if memtable is not None else None,
            begun=None if memtable is None or memtable.generation != 1 else _first(memtable),
            owner=named.owner if memtable is not None else None,
            consumed=seen.consumed.get(region),
            decoded=seen.decoded.get(region),
            durable=durable,
            changed_ms=None if still is None else now_ms - int(stands_s * 1000),
            rejections=self.metrics.records.of(region),
            open=None if memtable is None else self._waiting(memtable, now_ms),
            stopped=None if stopped is None else Failure.of(stopped),
            schema=None if wait is None or wait.error is None else Failure.of(wait.error),
            refused=None if refused is None else Failure.of(refused),
        )

    def _span(self, region: Region, durable: int, stands_s: float, high: Position | None) -> KafkaSpan | None:
        end, low = self.watch.ends.get(region), self.watch.retention.lows.get(region)
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
        due_ms = opened_ms + int(self.named.seal_age_s * 1000)
        return WaitingGeneration(memtable.generation, opened_ms, memtable.rows, memtable.nbytes, due_ms)


def _first(memtable: MemTable) -> int:
    return int(memtable.position if memtable.first is None else memtable.first)


def _lasting(refused: LancewalError | None) -> LancewalError | None:
    """Return the error if it is a fault that lasts; None if another owner merely claimed the region first."""
    return refused if isinstance(refused, Retry | Corrupt | StoreInconsistent) else None
