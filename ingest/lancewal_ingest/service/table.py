"""One table of an ingest process: its worker, and the watches that are called after each of its turns.

Guarantees
 1. Only the owner id, threads, the memory budget and metrics' registry are shared with other tables (``process``).
 2. The table is ready when it is a member of its group and every partition that is ours is open.  It is also ready if
    no partition is ours, and says so.
 3. Broker and store are asked in threads beside the loop, so their silence is named whatever the loop waits for.
 4. If the table is deleted, its work ends within 10 s, and no region is handed over: nothing more is written there.
 5. A pause, and a claim by another owner that came first, are not problems: a person wants the first, and the next try
    resolves the second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lancewal_core.errors import (
    ActionNeeded,
    ContractChanged,
    Corrupt,
    LancewalError,
    PartitionCountChanged,
    Problem,
    Retry,
    StoreInconsistent,
    StoreUnavailable,
)
from lancewal_core.names.ids import OwnerId, Region
from lancewal_core.process.silence import SilenceWatch
from lancewal_core.process.status.report import TableStatus
from lancewal_core.settings.load import Settings
from lancewal_core.table.checks import check_topics
from lancewal_core.table.contract import Contract
from lancewal_core.table.control import ControlReader, ControlWatch, Service
from lancewal_core.table.presence import Presence
from lancewal_ingest.append.draining import check_not_altered
from lancewal_ingest.append.job import DeadLetters, Terms
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import KafkaSource, check_topic
from lancewal_ingest.regions.policy import MemoryPolicy, SealPolicy, WorkerLimits
from lancewal_ingest.retention.horizon import about_to_lose
from lancewal_ingest.retention.topic_watch import Retention, TopicWatch, WatchedTopics
from lancewal_ingest.service.batch_check import BatchCheck
from lancewal_ingest.service.conflict_watch import ConflictWatch
from lancewal_ingest.service.contract_watch import ContractWatch
from lancewal_ingest.service.freshness import Freshness, IngestProgress
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_ingest.service.standstill import Standstill
from lancewal_ingest.service.status import IngestStatus
from lancewal_ingest.service.worker import IngestWorker

REFRESH_S = 1.0


@dataclass(frozen=True, slots=True)
class TableKafka:
    """The Kafka clients and checks that one table needs."""

    source: KafkaSource
    topics: WatchedTopics
    retention: Retention
    batches: BatchCheck
    dead_letters: Callable[[Contract], DeadLetters]
    """Function that returns the destination of dead letters for a contract version.  If the version makes dead letters,
    the function checks their topic first."""


class IngestTable:
    """A table that ingest works on.

    ``metrics`` has the table's name as a label.  ``owner`` and ``memory`` are those of the process.
    """

    def __init__(
        self,
        settings: Settings,
        context: IngestContext,
        kafka: TableKafka,
        metrics: IngestMetrics,
        owner: OwnerId,
        memory: MemoryPolicy,
    ) -> None:
        contract, tasks, clock, store = context.contract, context.tasks, context.clock, context.store
        self.uri = settings.table.uri
        self.context = context
        self.metrics = metrics
        self.silences: Sequence[SilenceWatch] = ()
        """Watches for silence of the broker and the store; set when they run."""
        self.settings = settings
        self._kafka = kafka
        self.worker = IngestWorker(
            context,
            kafka.source,
            kafka.dead_letters(contract),
            Preparer(contract, context.drain, context.stored_schemas),
            owner,
            metrics,
            SealPolicy.of(settings.ingest),
            memory,
            WorkerLimits.of(settings.ingest, memory),
        )
        self.worker.prepare_terms = self._prepare_terms
        self._topic = TopicWatch(self._check_topic, kafka.topics, kafka.retention, tasks, clock, metrics.failed)
        self._short: Mapping[Region, float] = {}
        """Open partitions, not stopped, whose records Kafka is about to delete, and the seconds left for each."""
        self._altered = ContractWatch(store, contract, tasks, clock, self.prepare, metrics.failed, context.group)
        self._control = ControlWatch(ControlReader(store, clock, Service.INGEST, contract.making), tasks, clock)
        self._conflicts = ConflictWatch(context)
        self.presence = Presence(store, contract)
        """Check whether the table still exists.  The watch over the store asks the store, and each turn checks the
        answer."""
        self._still = Standstill()
        self._freshness = Freshness()
        self._refresh_at = clock.monotonic()
        self._status = IngestStatus(
            self.uri,
            context.group,
            owner,
            settings.ingest.seal_age_s,
            self.worker,
            self._topic,
            self._still,
            metrics,
            clock,
        )

    def take_turn(self) -> None:
        """Run one step of the worker, and the periodic looks that are due."""
        try:
            self.presence.check()
            self._take_turn()
        except LancewalError:
            self.presence.look_again()
            if self.presence.gone:
                self.worker.abandon()
            self.presence.check()
            raise

    def _take_turn(self) -> None:
        self.worker.hold(self._control.look() is not None)
        self._conflicts.look()
        self.worker.stop_conflicting(self._conflicts.stopped)
        self.worker.step()
        self._topic.look(self.worker)
        self._altered.look()
        now = self.context.clock.monotonic()
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH_S
            self._refresh(now)

    def drain(self, timeout_s: float) -> bool:
        """Make consumed records durable, hand over and flush.  Return whether all was done within ``timeout_s``."""
        self.metrics.events.drain_begun()
        drained = self.worker.drain(timeout_s)
        if drained:
            self.metrics.events.drain_completed()
        else:
            self.metrics.events.drain_timed_out()
        return drained

    def shown(self, not_ready: Sequence[Problem]) -> TableStatus:
        """Return the present status; ``not_ready`` are the reasons why the process is not ready."""
        return self._status.take(self._control.look(), [str(problem) for problem in not_ready])

    @property
    def silent(self) -> bool:
        """Whether the table's broker or store does not answer."""
        return any(silence.problem is not None for silence in self.silences)

    def prepare(self, newer: Contract) -> Callable[[], None]:
        """Check the topics of a newer contract version.  Return the function that makes this table follow the version.

        Called in a task (``ContractWatch``).
        """
        terms = self._terms(newer, self.worker.terms)
        return partial(self.worker.take_up, terms.preparer, terms.dead_letters)

    def _prepare_terms(self, newer: Contract, before: Terms) -> Terms:
        """Return the terms of a newer contract version, after a check of its topics.

        Raises ``ContractChanged`` if the process cannot follow the version yet.
        """
        try:
            return self._terms(newer, before)
        except ActionNeeded as error:
            raise ContractChanged(
                f"records wait for contract version {newer.version}, which this process cannot follow yet: {error}"
            ) from error

    def _terms(self, newer: Contract, before: Terms) -> Terms:
        check_topics(self.settings, newer)
        old, letters = before.contract, before.dead_letters
        if (newer.dead_letters, newer.record_policies) != (old.dead_letters, old.record_policies):
            letters = self._kafka.dead_letters(newer)
        return Terms(Preparer(newer, self.context.drain, self.context.stored_schemas), letters)

    def problems(self) -> list[Problem]:
        """Return why the table is not ready; empty if it is (guarantees 2 to 5)."""
        return [*self._problems()] or _beginning(self.worker)

    def _problems(self) -> Iterator[Problem]:
        worker, drain = self.worker, self.context.drain
        # The loop may clear what a probe has just tested, so each is read once.
        waits_for, still = worker.waits_for, self._still.problem
        altered, control = self._altered.problem, self._control.problem
        if drain is not None:
            yield Problem(
                PartitionCountChanged.kind,
                f"the topic has {drain.partitions} partitions, the contract says {self.context.contract.partitions}. "
                "Partitions of the contract are drained, the others wait for "
                f"`lancewal table alter --partitions {drain.partitions}`",
            )
        for region, error in sorted(worker.stopped.items()):
            yield Problem.of(error, f"partition {region.partition} stopped")
        if still is not None:
            yield Problem("partition_stands", still)
        yield from (problem for silence in self.silences if (problem := silence.problem) is not None)
        if altered is not None:
            yield altered
        if control is not None:
            yield Problem.of(control, "control cannot be read")
        yield from self._not_opened()
        for region, wait in sorted(worker.schema_waits.items()):
            if wait.error is not None:
                yield Problem.of(wait.error, f"partition {region.partition}")
        if waits_for is not None:
            yield Problem.of(waits_for, "no segment is written")
        elif not worker.idle_or_progressing:
            yield Problem(StoreUnavailable.kind, "the store takes no new segment, or no new version of a state page")

    def _not_opened(self) -> Iterator[Problem]:
        """Yield why partitions that wait to be opened are not open.  A fault that may pass has one problem for all."""
        worker, short = self.worker, self._short
        if short and worker.waiting:
            yield Problem(
                "retention_short",
                f"partitions {_listed(worker.waiting)} are not opened: Kafka is about to delete records of partitions "
                f"{_listed(short)} that are not durable",
            )
        passing: dict[str, dict[Region, Retry]] = {}
        for region, error in sorted(worker.refused.items()):
            if isinstance(error, Retry):
                passing.setdefault(error.kind, {})[region] = error
            elif isinstance(error, Corrupt | StoreInconsistent):
                yield Problem.of(error, f"partition {region.partition} cannot be opened")
        for _, waiting in sorted(passing.items()):
            yield Problem.of(next(iter(waiting.values())), f"partitions {_listed(waiting)} cannot be opened")

    def _refresh(self, now: float) -> None:
        """Update the figures that depend on Kafka's ends or on the clock, and decide about admission."""
        worker, topic, metrics = self.worker, self._topic, self.metrics
        paused, highs = self._control.look(), topic.highs()
        metrics.refresh(highs, worker.stopped)
        progress = self._progress()
        metrics.freshness(self._freshness.look(now, self.context.clock.now_ms(), progress), progress.ends)
        # Partitions that an operator has paused are expected not to move.
        self._still.look(now, {} if paused is not None else worker.durable, highs, topic.last.ends)
        metrics.standing(self._still.waiting)
        self._admit()
        metrics.paused_by_operator(paused)

    def _admit(self) -> None:
        """Set the metrics of retention.  Let the worker open no further partition while Kafka is about to delete
        records of an open one that has not stopped."""
        worker, facts, metrics = self.worker, self._topic.last.retention, self.metrics
        open_ = worker.durable
        horizons = {r: left_s for r, left_s in facts.horizons(self.context.clock.now_ms()).items() if r in open_}
        metrics.retention(facts.kept_s, horizons, {r: n for r, n in facts.reserves.items() if r in open_})
        # A stopped partition waits for a person: holding back others would not help it.
        running = {r: left_s for r, left_s in horizons.items() if r not in worker.stopped}
        self._short = about_to_lose(running, facts.kept_s, self.settings.ingest.retention_admission_s)
        metrics.retention_short(self._short)
        worker.admit(not self._short)

    def _progress(self) -> IngestProgress:
        worker, found = self.worker, self._topic.last
        durable, ends = worker.durable, found.ends
        return IngestProgress(
            [region for region in worker.ours if region not in durable],
            durable,
            worker.oldest_consumed_ms,
            {region: max(end, ends.get(region, end)) for region, end in worker.ends_at_opening.items()},
            found.retention.oldest,
            found.asked_at,
            found.retention.retention_s,
        )

    def _check_topic(self) -> None:
        check_topic(self.context.contract, self._kafka.topics, self.context.drain)
        self._kafka.batches.look()
        check_not_altered(self.context)


def _beginning(worker: IngestWorker) -> list[Problem]:
    """Return why a table without faults is not ready yet: it joins the group, opens partitions, or begins a new log."""
    if not worker.joined:
        return [Problem("joining", "the consumer group has not told yet which partitions are this process's")]
    if worker.waiting:
        return [Problem("opening", f"partitions {_listed(worker.waiting)} are assigned and not open yet")]
    if not worker.ready:
        return [Problem("fenced", "the log was fenced and no new one could be begun yet")]
    return []


def _listed(regions: Collection[Region]) -> str:
    return ", ".join(str(region.partition) for region in sorted(regions))
