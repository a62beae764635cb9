"""The ingest service: build everything from settings, check, run the loop until told to stop, drain, leave.

Steps
 1. Read the contract; check settings, table, topic, dead-letter topic and store.  Nothing was consumed.
 2. Turn the worker's loop.  Beside it, every ``TOPIC_CHECK_S``, ask the broker whether the topic is still the same, and
    look every ``control.POLL_S`` whether an operator wants it to consume: if not, the worker is held, and all else goes on.
 3. Told to stop: make durable what was consumed, hand over every region, flush; at most ``ingest.drain_timeout_s``.
    What is not done then is left to the next owner, which finds it in the log and in Kafka.
 4. Leave the group.

An error ends the loop without step 3: what is durable is handed over where that needs nothing else, the rest is the next
owner's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from lancewal_core.clock import Clock, SystemClock
from lancewal_core.contract import Contract
from lancewal_core.control import ControlReader, ControlWatch, Service
from lancewal_core.errors import KafkaUnavailable, LancewalError
from lancewal_core.http import Health, HealthServer
from lancewal_core.ids import OwnerId, Position
from lancewal_core.settings import Settings
from lancewal_core.stop_signals import stop_signals
from lancewal_core.store_obstore import open_store
from lancewal_core.tasks import Task, Tasks, ThreadTasks
from lancewal_ingest.append import DeadLetters, Preparer, check_topic
from lancewal_ingest.context import new_owner, open_context
from lancewal_ingest.dead_letters import KafkaDeadLetters, RefusedDeadLetters
from lancewal_ingest.heap import use_one_heap
from lancewal_ingest.metrics import IngestMetrics, TimedStore
from lancewal_ingest.policy import MemoryPolicy, SealPolicy
from lancewal_ingest.source import KafkaSource
from lancewal_ingest.source_kafka import ConfluentSource
from lancewal_ingest.store_probe import check_store
from lancewal_ingest.worker import IngestWorker, WorkerLimits

TOPIC_CHECK_S = 5.0
REFRESH_S = 1.0
QUEUE_BYTES_MAX = 256 << 20
"""More than this in librdkafka's queue makes nothing faster."""
_TASK_THREADS = 4
"""One for the segment in flight, one for the flush, one for the question about the topic, one for the control."""


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
        queue_bytes = min(settings.ingest.memory_bytes_max // 4, QUEUE_BYTES_MAX)
        memory = MemoryPolicy(nbytes=settings.ingest.memory_bytes_max - queue_bytes)
        metrics = IngestMetrics(clock, memory.nbytes)
        tasks = ThreadTasks(workers=_TASK_THREADS)
        stack.callback(tasks.close)
        store = TimedStore(open_store(settings.table.uri, settings.store.options), metrics)
        context = open_context(settings, store, tasks, clock)
        contract = context.contract
        group = settings.kafka.group(contract.table_uuid)
        client = settings.kafka.client()
        source = ConfluentSource(client, contract.topic, group, queue_bytes=queue_bytes, report=metrics.failed)
        stack.callback(_closed, source, metrics)
        check_topic(contract, source)
        dead_letters = _dead_letters(settings, contract, group)
        check_store(context.store, tasks, settings.table.uri, context.new_id)
        owner = new_owner()
        worker = IngestWorker(
            context,
            source,
            dead_letters,
            Preparer(contract, settings.ingest.bad_records),
            owner,
            metrics,
            _seal_policy(settings),
            memory,
            _limits(settings),
        )
        watch = _TopicWatch(contract, source, tasks, clock)
        control = ControlWatch(ControlReader(context.store, clock, Service.INGEST), tasks, clock)
        health = Health(clock, lambda: _problems(worker, watch, control))
        server = stack.enter_context(
            HealthServer(settings.metrics.host, settings.metrics.port, metrics.registry, health)
        )
        metrics.started(contract, group, owner)
        worker.subscribe()
        began(Running(worker, server.port, owner))
        # Step 2
        refresh_at = clock.monotonic()
        while not stopping():
            worker.hold(control.look() is not None)
            worker.step()
            health.beat()
            watch.look(worker.durable)
            if clock.monotonic() >= refresh_at:
                refresh_at = clock.monotonic() + REFRESH_S
                metrics.refresh(watch.highs(), worker.stopped)
                metrics.paused_by_operator(control.look())
        # Step 3
        metrics.event("draining")
        health.beat()
        drained = worker.drain(settings.ingest.drain_timeout_s)
        if drained:
            metrics.event("drained")
        else:
            metrics.warning("not all was handed over in time: the next owner continues from the log and from Kafka")
        # Step 4 is the stack's
    return drained


def _dead_letters(settings: Settings, contract: Contract, group: str) -> DeadLetters:
    match settings.ingest.bad_records:
        case "stop":
            return RefusedDeadLetters()
        case "dlq":
            topic = settings.dead_letter_topic(contract.topic)
            letters = KafkaDeadLetters(settings.kafka.client(), topic, group)
            letters.check()
            return letters


def _seal_policy(settings: Settings) -> SealPolicy:
    ingest = settings.ingest
    return SealPolicy(int(ingest.seal_bytes), ingest.seal_rows, ingest.seal_age_s, ingest.seal_log_distance)


def _limits(settings: Settings) -> WorkerLimits:
    ingest = settings.ingest
    return WorkerLimits(
        segment_rows=ingest.segment_rows_max,
        linger_s=ingest.linger_ms / 1000,
        offset_commit_s=ingest.offset_commit_s,
        retry_s=ingest.retry_s,
    )


def _closed(source: KafkaSource, metrics: IngestMetrics) -> None:
    try:
        source.close()  # tells the worker that its partitions are revoked
    except LancewalError as error:
        metrics.failed("leaving the group", error)


def _problems(worker: IngestWorker, watch: _TopicWatch, control: ControlWatch) -> Sequence[str]:
    """Why the service is not ready.  A pause is no reason: it is wanted."""
    problems = [f"partition {p} stopped: {error.kind}" for p, error in sorted(worker.stopped.items())]
    if watch.silent is not None:
        problems.append(f"Kafka does not answer: {watch.silent}")
    if control.problem is not None:
        problems.append(f"control cannot be read: {control.problem.kind}")
    if not worker.idle_or_progressing:
        problems.append("the newest segment is not stored")
    if not worker.ready and not problems:
        problems.append("the log was fenced and no new one could be begun yet")
    return problems


class _TopicWatch:
    """Asks the broker for the topic and its ends on a timer, beside the loop.

    A consumer reads on in a recreated topic unawares, and does not learn the end of a partition that is paused.
    """

    def __init__(self, contract: Contract, source: ConfluentSource, tasks: Tasks, clock: Clock) -> None:
        self.silent: KafkaUnavailable | None = None
        self._contract = contract
        self._source = source
        self._tasks = tasks
        self._clock = clock
        self._ends: dict[int, Position] = {}
        self._asked: Task[dict[int, Position]] | None = None
        self._again_at = clock.monotonic() + TOPIC_CHECK_S

    def look(self, partitions: Collection[int]) -> None:
        """``TopicReplaced``, ``PartitionCountChanged`` or ``TopicMissing`` once the broker says so."""
        if self._asked is None and self._clock.monotonic() >= self._again_at:
            wanted = sorted(partitions)
            self._asked = self._tasks.start(lambda: self._ask(wanted))
        if self._asked is None or not self._asked.done():
            return
        asked, self._asked = self._asked, None
        self._again_at = self._clock.monotonic() + TOPIC_CHECK_S
        try:
            self._ends = asked.result()
            self.silent = None
        except KafkaUnavailable as error:
            self.silent = error

    def highs(self) -> dict[int, Position]:
        """The newest known end of each partition."""
        fetched = self._source.highs()
        return {p: max(fetched.get(p, end), end) for p, end in {**fetched, **self._ends}.items()}

    def _ask(self, partitions: Sequence[int]) -> dict[int, Position]:
        check_topic(self._contract, self._source)
        return self._source.ends(partitions) if partitions else {}
