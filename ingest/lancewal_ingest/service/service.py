"""The ingest service: build everything from settings, check, run the loop until told to stop, drain, leave.

Steps
 1. Read the contract; check settings, table, topic, dead-letter topic and store.  Nothing was consumed.  A topic that has
    more partitions than the contract: say how far the old ones are drained (``draining``).
 2. Turn the worker's loop.  Beside it ask the broker about the topic (``topic_watch``), and look whether an operator wants
    it to consume (``control``): if not, the worker is held, and all else goes on.  Policies that were altered are taken up
    (``contract_watch``).  While Kafka is about to delete records
    of a partition that runs and that are not durable, open no further one: more work would only make the loss sure.
 3. Told to stop: make durable what was consumed, hand over every region, flush; at most ``ingest.drain_timeout_s``.
    What is not done then is left to the next owner, which finds it in the log and in Kafka.
 4. Leave the group.

An error ends the loop without step 3: what is durable is handed over where that needs nothing else, the rest is the next
owner's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from lancewal_core.errors import Corrupt, LancewalError, Retry, StoreInconsistent
from lancewal_core.ids import OwnerId
from lancewal_core.open import Address
from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.health import Health, HealthServer
from lancewal_core.process.status.board import StatusBoard
from lancewal_core.process.stop_signals import stop_signals
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.table.contract import Contract
from lancewal_core.table.control import ControlReader, ControlWatch, Service
from lancewal_ingest.append.draining import check_not_altered, drain_of
from lancewal_ingest.append.job import DeadLetters
from lancewal_ingest.append.observed_dead_letters import ObservedDeadLetters
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.context import IngestContext, new_owner, open_context
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.glibc_heap import use_one_heap
from lancewal_ingest.kafka.consumer import ConfluentSource
from lancewal_ingest.kafka.dead_letters import KafkaDeadLetters, RefusedDeadLetters
from lancewal_ingest.kafka.source import DescribedTopic, KafkaSource, check_topic
from lancewal_ingest.regions.policy import MemoryPolicy, SealPolicy
from lancewal_ingest.retention.horizon import AdmissionPolicy
from lancewal_ingest.retention.topic_watch import TopicWatch
from lancewal_ingest.service.batch_check import BatchCheck
from lancewal_ingest.service.contract_watch import ContractWatch
from lancewal_ingest.service.freshness import Freshness, Progress
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_ingest.service.standstill import Standstill
from lancewal_ingest.service.status import IngestStatus, Named
from lancewal_ingest.service.store_probe import check_store
from lancewal_ingest.service.worker import SEGMENT_BYTES, IngestWorker, WorkerLimits
from lancewal_kafka.clients import client_bytes, unpacked_bytes_max, unpacking_bounded
from lancewal_kafka.group_member import member_id
from lancewal_kafka.retention import KafkaRetention

REFRESH_S = 1.0
SEGMENTS_IN_BUDGET = 8
"""So many segments of the largest size are the budget: one waits, one is in flight, decoding holds that one twice; the rest is
for MemTables and flushes."""
_TASK_THREADS = 4
"""One for the segment in flight, one for the flush, one for the question about the topic, one for the control; the question
about the contract waits for any of them."""


@dataclass(frozen=True, slots=True)
class Running:
    """What a service shows while it runs; for tests."""

    worker: IngestWorker
    port: int
    owner: OwnerId


def run_ingest(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.  Raises ``LancewalError`` where a person or a supervisor must act."""
    with stop_signals() as stopping:
        serve(settings, stopping)


def serve(settings: Settings, stopping: Callable[[], bool], began: Callable[[Running], None] = lambda _: None) -> bool:
    """Steps 1 to 4; True if everything was handed over and flushed in time."""
    settings.need("table.uri", "kafka.bootstrap_servers")
    use_one_heap()
    clock = SystemClock()
    with ExitStack() as stack:
        # Step 1
        queue_bytes = client_bytes(settings.ingest.memory_bytes_max)
        memory = MemoryPolicy(nbytes=settings.ingest.memory_bytes_max - queue_bytes)
        address = Address.of(settings)
        metrics = IngestMetrics(
            clock,
            address.name,
            memory.nbytes,
            IngestEvents(table=address.name),
            per_partition=settings.metrics.per_partition,
        )
        tasks = ThreadTasks(workers=_TASK_THREADS)
        stack.callback(tasks.close)
        store = metrics.observed(address.store())
        context = open_context(settings, tasks, clock, store)
        contract = context.contract
        group = settings.kafka.group(contract.table_uuid)
        # Others see in the group by it whose member this is, unless a person has given the clients a name.
        client = {
            "client.id": member_id(contract.table_uuid, contract.place or settings.table.uri),
            **unpacking_bounded(settings.kafka.client(), settings.ingest.memory_bytes_max, contract.record_bytes_max),
        }
        source = ConfluentSource(
            client,
            contract.topic,
            group,
            queue_bytes=queue_bytes,
            partitions=contract.partitions,
            report=metrics.failed,
            statistics=metrics.kafka,
        )
        metrics.poll_age(lambda: clock.monotonic() - source.polled_at)
        stack.callback(_closed, source, metrics)
        context = replace(context, drain=drain_of(context, source))
        check_topic(contract, source, context.drain)
        retention = KafkaRetention(client, contract.topic, group)
        batches = BatchCheck(
            contract.topic,
            retention.stored_batches,
            unpacked_bytes_max(client),
            settings.ingest.unbounded_batches,
            clock,
            lambda problem: metrics.events.batches_unbounded(topic=contract.topic, error=problem),
        )
        batches.look()
        dead_letters = _dead_letters(settings, contract, group, metrics)
        check_store(context.store, tasks, settings.table.uri, context.new_id)
        owner = new_owner()
        worker = IngestWorker(
            context,
            source,
            dead_letters,
            Preparer(contract, context.drain),
            owner,
            metrics,
            _seal_policy(settings),
            memory,
            _limits(settings, memory),
        )
        watch = TopicWatch(
            partial(_check_topic, context, source, batches), source, retention, tasks, clock, metrics.failed
        )
        admission = _Admission(AdmissionPolicy(settings.ingest.retention_admission_s), worker, watch, metrics, clock)
        still, freshness = Standstill(), Freshness()
        altered = ContractWatch(
            context.store,
            contract,
            tasks,
            clock,
            partial(_take_up, settings, context, group, worker, metrics),
            metrics.failed,
        )
        control = ControlWatch(ControlReader(context.store, clock, Service.INGEST), tasks, clock)
        health = Health(
            clock, lambda: [*_more_partitions(context), *_problems(worker, watch, control, altered, admission, still)]
        )
        board = StatusBoard(metrics.service, clock)
        named = Named(contract, address.uri, group, owner, settings.ingest.seal_age_s)
        status = IngestStatus(named, worker, watch, still, metrics, clock)
        server = stack.enter_context(
            HealthServer(settings.http.host, settings.http.ingest_port, metrics.registry, health, board.answer)
        )
        what = {"topic": contract.topic, "table": contract.table_uuid, "group": group, "owner": owner}
        metrics.started(contract.version, contract.partitions, contract.topic_id, address.uri, what)
        worker.subscribe()
        began(Running(worker, server.port, owner))
        # Step 2
        refresh_at = clock.monotonic()
        while not stopping():
            worker.hold(control.look() is not None)
            worker.step()
            health.beat()
            watch.look(worker)
            altered.look()
            now = clock.monotonic()
            if now >= refresh_at:
                refresh_at = now + REFRESH_S
                metrics.refresh(watch.highs(), worker.stopped)
                progress = _progress(worker, watch)
                metrics.freshness(freshness.look(now, clock.now_ms(), progress), progress.ends)
                # Who is held by an operator is meant to stand still.
                durable = {} if control.look() is not None else worker.durable
                still.look(now, durable, watch.highs(), watch.ends)
                metrics.standing(still.waiting)
                admission.decide()
                metrics.paused_by_operator(control.look())
            if board.due():
                board.show(status.take(control.look(), health.ready()))
        # Step 3
        metrics.events.drain_begun()
        health.beat()
        drained = worker.drain(settings.ingest.drain_timeout_s)
        if drained:
            metrics.events.drain_completed()
        else:
            metrics.events.drain_timed_out()
        # Step 4 is the stack's
    return drained


def _progress(worker: IngestWorker, watch: TopicWatch) -> Progress:
    durable, at_opening = worker.durable, worker.ends_at_opening
    return Progress(
        [p for p in worker.ours if p not in durable],
        durable,
        worker.oldest_consumed_ms,
        {p: max(end, watch.ends.get(p, end)) for p, end in at_opening.items()},
        watch.retention.oldest,
    )


def _dead_letters(settings: Settings, contract: Contract, group: str, metrics: IngestMetrics) -> DeadLetters:
    if "dead-letter" not in (contract.on_bad_record, contract.on_misrouted):
        return RefusedDeadLetters()
    letters = KafkaDeadLetters(settings.kafka.client(), contract.dead_letters, group)
    letters.check()
    return ObservedDeadLetters(letters, metrics.dead_letters_failed)


def _take_up(
    settings: Settings,
    context: IngestContext,
    group: str,
    worker: IngestWorker,
    metrics: IngestMetrics,
    newer: Contract,
) -> None:
    worker.take_up(Preparer(newer, context.drain), _dead_letters(settings, newer, group, metrics))
    metrics.events.contract_taken_up(contract_version=newer.version)


def _seal_policy(settings: Settings) -> SealPolicy:
    ingest = settings.ingest
    return SealPolicy(int(ingest.seal_bytes), ingest.seal_rows, ingest.seal_age_s, ingest.seal_log_distance)


def _limits(settings: Settings, memory: MemoryPolicy) -> WorkerLimits:
    ingest = settings.ingest
    return WorkerLimits(
        segment_rows=ingest.segment_rows_max,
        # One that waits and one in flight, which decoding holds twice, take a part of a small budget only.
        segment_bytes=min(SEGMENT_BYTES, memory.nbytes // SEGMENTS_IN_BUDGET),
        linger_s=ingest.linger_ms / 1000,
        offset_commit_s=ingest.offset_commit_interval_s,
        retry_s=ingest.retry_interval_s,
    )


def _closed(source: KafkaSource, metrics: IngestMetrics) -> None:
    try:
        source.close()  # tells the worker that its partitions are revoked
    except LancewalError as error:
        metrics.failed("leave-group", error)


def _check_topic(context: IngestContext, source: DescribedTopic, batches: BatchCheck) -> None:
    check_topic(context.contract, source, context.drain)
    batches.look()
    check_not_altered(context)


def _problems(
    worker: IngestWorker,
    watch: TopicWatch,
    control: ControlWatch,
    altered: ContractWatch,
    admission: _Admission,
    still: Standstill,
) -> Sequence[str]:
    """Why the service is not ready.  A pause is no reason: it is wanted."""
    problems = [f"partition {p} stopped: {error.kind}: {error}" for p, error in sorted(worker.stopped.items())]
    if still.problem is not None:
        problems.append(still.problem)
    if watch.silent is not None:
        problems.append(f"Kafka does not answer: {watch.silent}")
    if altered.problem is not None:
        problems.append(altered.problem)
    if control.problem is not None:
        problems.append(f"control cannot be read: {control.problem.kind}")
    if admission.short and worker.waiting:
        problems.append(
            f"partitions {_listed(worker.waiting)} are not opened: Kafka is about to delete records of "
            f"{_listed(admission.short)} that are not durable"
        )
    # Another owner's claim that came first is no fault: the next try meets it.
    refused = {p: error.kind for p, error in worker.refused.items() if isinstance(error, Retry)}
    damaged = {p: error for p, error in worker.refused.items() if isinstance(error, Corrupt | StoreInconsistent)}
    problems += [f"partition {p} cannot be opened: {error.kind}: {error}" for p, error in sorted(damaged.items())]
    if refused:
        problems.append(f"partitions {_listed(refused)} cannot be opened: {', '.join(sorted(set(refused.values())))}")
    if not worker.idle_or_progressing:
        problems.append("the store takes no segment, or no new index version")
    if not worker.ready and not problems:
        problems.append("the log was fenced and no new one could be begun yet")
    return problems


def _more_partitions(context: IngestContext) -> list[str]:
    drain = context.drain
    if drain is None:
        return []
    return [
        f"the topic has {drain.partitions} partitions, the contract says {context.contract.partitions}: those of the contract "
        f"are drained, the others wait for `lancewal table alter --partitions {drain.partitions}`"
    ]


def _listed(partitions: Collection[int]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions))


class _Admission:
    """Shows the retention horizon, and holds back partitions while it is short."""

    def __init__(
        self, policy: AdmissionPolicy, worker: IngestWorker, watch: TopicWatch, metrics: IngestMetrics, clock: Clock
    ) -> None:
        self.short: dict[int, float] = {}
        """Partitions that run and are about to lose records, and the seconds left."""
        self._policy = policy
        self._worker = worker
        self._watch = watch
        self._metrics = metrics
        self._clock = clock

    def decide(self) -> None:
        """Look at the figures of now."""
        facts = self._watch.retention
        open_ = self._worker.durable
        horizons = {p: left_s for p, left_s in facts.horizons(self._clock.now_ms()).items() if p in open_}
        self._metrics.retention(horizons, {p: n for p, n in facts.reserves.items() if p in open_})
        # A stopped partition waits for a person: holding back others would not help it.
        running = {p: left_s for p, left_s in horizons.items() if p not in self._worker.stopped}
        self.short = self._policy.short(running, facts.kept_s)
        self._metrics.retention_short(self.short)
        self._worker.admit(not self.short)
