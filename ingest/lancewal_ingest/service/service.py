"""The ingest service: build everything from settings, check, run the loop until told to stop, drain, leave.

Steps
 1. Answer probes: from now on ``/readyz`` says what is missing.  Read the contract; write our consumer group into it
    if it names none (``table.group``); check settings, table, topic, dead-letter topic and store; join the group.
    Nothing was consumed.  If a topic has more partitions than the contract: say how far the old ones are drained
    (``draining``).  A store or a broker that does not answer or lets nobody in is asked again in the process
    (``process.start``).
 2. Turn the worker's loop.  Beside it ask the broker about the topic (``topic_watch``), and look whether an operator
    wants it to consume (``control``): if not, the worker is held, and all else goes on.  Policies that were altered
    are taken up (``contract_watch``).  While Kafka is about to delete records of a partition that runs and that are
    not durable, open no further one: more work would only make the loss sure.  If the table was moved to another
    consumer group: leave the group, and go on at step 1, which waits (``table.group``).
 3. When told to stop: make durable what was consumed, hand over every region, flush; at most ``DRAIN_SHARE`` of
    ``ingest.drain_timeout_s``.  What is not done then is left to the next owner, which finds it in the log and in
    Kafka.
 4. Tell the group what is durable, and leave it, in what is left of that time.  Both are only good to have: without
    them lag tools show an older position, and Kafka learns by its session timeout that we are gone.

Whatever these steps wait for, ``ingest.drain_timeout_s`` after the signal the process has ended
(``process.stop_signals``).  A broker or a store that accepts connections and says nothing holds up no end.  That is a
crash, as safe as one at any other point.  What is durable is found in the log.  What is not is still in Kafka, for
the group is told no position that is not durable.  The next owner fences the log, so that nothing counts that is
still on its way.

An error ends the loop without step 3.  What is durable is handed over where that needs nothing else; the rest is the
next owner's.

Ready means: joined, and every partition that is ours is open; or none is ours, which is said.  A broker or a store
that is silent is named some seconds later, whatever the loop waits for; liveness does not fail for that
(``process.health``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from lancewal_core.errors import FormerGroup, KafkaUnavailable, LancewalError, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import OwnerId
from lancewal_core.open import Address
from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.health import Health, HealthServer, Problem
from lancewal_core.process.silence import BROKER, STORE, SilenceWatch
from lancewal_core.process.start import Start
from lancewal_core.process.stop_signals import end_in_time, returned_in_time, stop_signals
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.status.board import StatusBoard
from lancewal_core.table.checks import check_topics, topics_are_bound
from lancewal_core.table.contract import Contract
from lancewal_core.table.control import ControlReader, ControlWatch, Service
from lancewal_core.table.group import take_group
from lancewal_core.table.store_proof import prove_store
from lancewal_ingest.append.draining import check_not_altered, drain_of
from lancewal_ingest.append.job import DeadLetters
from lancewal_ingest.append.observed_dead_letters import ObservedDeadLetters
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.context import IngestContext, new_owner, open_context
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.glibc_heap import use_one_heap
from lancewal_ingest.kafka.consumer import ConfluentSource
from lancewal_ingest.kafka.dead_letters import KafkaDeadLetters, RefusedDeadLetters
from lancewal_ingest.kafka.source import KafkaSource, check_topic
from lancewal_ingest.python_collector import look_at_new_objects_rarely
from lancewal_ingest.regions.policy import MemoryPolicy, SealPolicy
from lancewal_ingest.retention.horizon import AdmissionPolicy
from lancewal_ingest.retention.topic_watch import TopicWatch
from lancewal_ingest.service.admission import Admission
from lancewal_ingest.service.batch_check import BatchCheck
from lancewal_ingest.service.conflict_watch import ConflictWatch
from lancewal_ingest.service.contract_watch import ContractWatch
from lancewal_ingest.service.freshness import Freshness, IngestProgress
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_ingest.service.probes import IngestProbes, Shown
from lancewal_ingest.service.standstill import Standstill
from lancewal_ingest.service.status import IngestStatus, Named
from lancewal_ingest.service.worker import BUNDLE_SEGMENTS, SEGMENT_BYTES, IngestWorker, WorkerLimits
from lancewal_kafka.clients import client_bytes, unpacked_bytes_max, unpacking_bounded
from lancewal_kafka.group_member import member_id
from lancewal_kafka.retention import KafkaRetention

REFRESH_S = 1.0
DRAIN_SHARE = 0.75
"""Share of the time that ending may take; leaving the group takes about a second."""
SEGMENTS_IN_BUDGET = 8
"""Segments of the largest size that fit into the budget.  One waits, one is in flight, and decoding holds that one
twice; the rest is for MemTables and flushes."""
LINGER_PUTS = 3.0
"""Segments follow one another no sooner than so many times what their PUTs take."""
_TASK_THREADS = 8 + 64
"""Threads: one for the segment in flight, and two for flushes (from memory, and from logs).  One each is for the bundle,
the question about the topic, the control, the contract and keys in conflict.  The rest is for pages of
states: a seal or a hand-over, and the swap of a flush, of each.  A silent page then holds up no other.  Threads begin
as they are needed."""


@dataclass(frozen=True, slots=True)
class Running:
    """Parts of a service that it shows while it runs; for tests."""

    worker: IngestWorker
    port: int
    owner: OwnerId


def run_ingest(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.  Raises ``LancewalError`` where a person or a supervisor must act."""
    seconds = settings.ingest.drain_timeout_s
    events = IngestEvents(table=Address.of(settings).name)
    with end_in_time(seconds, lambda: events.end_forced(timeout_s=seconds)), stop_signals() as stopping:
        serve(settings, stopping)


def serve(settings: Settings, stopping: Callable[[], bool], began: Callable[[Running], None] = lambda _: None) -> bool:
    """Steps 1 to 4; True if everything was handed over and flushed in time, or nothing was begun."""
    settings.need("table.uri", "kafka.bootstrap_servers")
    use_one_heap()
    look_at_new_objects_rarely()
    clock = SystemClock()
    address = Address.of(settings)
    memory = MemoryPolicy(nbytes=settings.ingest.memory_bytes_max - client_bytes(settings.ingest.memory_bytes_max))
    metrics = IngestMetrics(
        clock,
        address.name,
        memory.nbytes,
        IngestEvents(table=address.name),
        per_partition=settings.metrics.per_partition,
    )
    with ExitStack() as stack:
        # Step 1
        start = Start(clock, stopping, lambda error, _: metrics.failed("start", error))
        probes = IngestProbes(start)
        health = Health(clock, probes.problems, waits=probes.waits, remark=probes.remark)
        board = StatusBoard(clock)
        server = stack.enter_context(
            HealthServer(settings.http.host, settings.http.ingest_port, metrics.registry, health, board.answer)
        )
        metrics.port = server.port
        while True:
            with ExitStack() as working:
                begun = start.run(partial(_begin, settings, clock, metrics, memory), working)
                if begun is None:
                    return True
                probes.of(begun.shown)
                health.beat()
                began(Running(begun.worker, server.port, begun.owner))
                try:
                    return _work(settings, begun, stopping, metrics, health, board)
                except FormerGroup as error:
                    # Step 1 again, which waits.  Ours is handed over by the fence of the new group.
                    probes.of(None)
                    start.problem = Problem.of(error, "stopped")
                    metrics.events.group_moved(group=error.where.get("group"), error=str(error))


def _work(
    settings: Settings,
    begun: _Begun,
    stopping: Callable[[], bool],
    metrics: IngestMetrics,
    health: Health,
    board: StatusBoard,
) -> bool:
    """Steps 2 and 3; True if everything was handed over and flushed in time."""
    worker, watch, control, admission, clock = begun.worker, begun.watch, begun.control, begun.admission, begun.clock
    # Step 2
    refresh_at, freshness = clock.monotonic(), Freshness()
    while not stopping():
        worker.hold(control.look() is not None)
        begun.conflicts.look()
        worker.stop_conflicting(begun.conflicts.stopped)
        worker.step()
        health.beat()
        watch.look(worker)
        begun.shown.altered.look()
        now = clock.monotonic()
        if now >= refresh_at:
            refresh_at = now + REFRESH_S
            metrics.refresh(watch.highs(), worker.stopped)
            progress = _progress(worker, watch)
            metrics.freshness(freshness.look(now, clock.now_ms(), progress), progress.ends)
            # Who is held by an operator is meant to stand still.
            durable = {} if control.look() is not None else worker.durable
            begun.shown.still.look(now, durable, watch.highs(), watch.ends)
            metrics.standing(begun.shown.still.waiting)
            admission.decide()
            metrics.paused_by_operator(control.look())
        if board.due():
            board.show(begun.status.take(control.look(), [str(problem) for problem in health.ready()]))
    # Step 3
    end = clock.monotonic() + settings.ingest.drain_timeout_s
    metrics.events.drain_begun()
    health.beat()
    drained = worker.drain(settings.ingest.drain_timeout_s * DRAIN_SHARE)
    if drained:
        metrics.events.drain_completed()
    else:
        metrics.events.drain_timed_out()
    # Step 4, with the stack
    begun.leaving.begin(worker.tell_group, end - clock.monotonic())
    return drained


@dataclass(frozen=True, slots=True)
class _Begun:
    """A service that has done step 1."""

    worker: IngestWorker
    owner: OwnerId
    watch: TopicWatch
    control: ControlWatch
    admission: Admission
    conflicts: ConflictWatch
    shown: Shown
    status: IngestStatus
    leaving: _Leaving
    clock: Clock


def _begin(settings: Settings, clock: Clock, metrics: IngestMetrics, memory: MemoryPolicy, stack: ExitStack) -> _Begun:
    address = Address.of(settings)
    tasks = ThreadTasks(workers=_TASK_THREADS)
    stack.callback(tasks.close)
    store = metrics.observed(address.store())
    context = open_context(settings, tasks, clock, store)
    group = settings.kafka.group(context.contract.table_uuid)
    contract = take_group(store, clock, context.contract, group)
    context = replace(context, contract=contract, group=group)
    # Others see in the group by it whose member this is, unless a person has given the clients a name.
    client = {
        "client.id": member_id(contract.table_uuid, contract.place or settings.table.uri),
        **unpacking_bounded(settings.kafka.client(), settings.ingest.memory_bytes_max, contract.record_bytes_max),
    }
    source = ConfluentSource(
        client,
        {contract.topic: contract.topic_id},
        group,
        queue_bytes=client_bytes(settings.ingest.memory_bytes_max),
        partitions=contract.partitions,
        report=metrics.failed,
        statistics=metrics.kafka,
    )
    metrics.poll_age(lambda: clock.monotonic() - source.polled_at)
    leaving = _Leaving(source, metrics, settings.ingest.drain_timeout_s)
    stack.callback(leaving.leave)
    context = replace(context, drain=drain_of(context, source))
    check_topic(contract, source, context.drain)
    source.check_rights()
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
    prove_store(context.store, tasks, address.way(), address.uri, context.new_id)
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
    watch = TopicWatch(partial(_check_topic, context, source, batches), source, retention, tasks, clock, metrics.failed)
    admission = Admission(AdmissionPolicy(settings.ingest.retention_admission_s), worker, watch, metrics, clock)
    altered = ContractWatch(
        context.store,
        contract,
        tasks,
        clock,
        partial(_prepare, settings, context, group, worker, metrics),
        metrics.failed,
        group,
    )
    control = ControlWatch(ControlReader(context.store, clock, Service.INGEST, contract.making), tasks, clock)
    known = paths.contract_version(contract.version, contract.making)
    servers = settings.kafka.bootstrap_servers
    silences = (
        SilenceWatch(
            partial(source.facts, contract.topic), clock, KafkaUnavailable.kind, f"Kafka at {servers}", BROKER
        ),
        SilenceWatch(lambda: store.get(known), clock, StoreUnavailable.kind, f"the store at {address.uri}", STORE),
    )
    still = Standstill()
    shown = Shown(worker, control, altered, admission, still, silences, context)
    named = Named(contract, address.uri, group, owner, settings.ingest.seal_age_s)
    status = IngestStatus(named, worker, watch, still, metrics, clock)
    what = {"topic": contract.topic, "table": contract.table_uuid, "group": group, "owner": owner}
    metrics.started(contract.version, contract.partitions, contract.topic_id, address.uri, what)
    if not topics_are_bound(settings):
        metrics.events.topics_unbound(topic=contract.topic, dead_letters=contract.dead_letters)
    worker.subscribe()
    for silence in silences:
        stack.enter_context(silence)
    return _Begun(worker, owner, watch, control, admission, ConflictWatch(context), shown, status, leaving, clock)


class _Leaving:
    """Step 4, also of a start that failed and behind an error: never longer than is right."""

    def __init__(self, source: KafkaSource, metrics: IngestMetrics, timeout_s: float) -> None:
        self._source = source
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._first: Callable[[], None] = lambda: None

    def begin(self, first: Callable[[], None], timeout_s: float) -> None:
        """Begin the leaving: say what comes before it, and how long both may take."""
        self._first, self._timeout_s = first, timeout_s

    def leave(self) -> None:
        try:
            if not returned_in_time(self._leave, self._timeout_s):
                self._metrics.failed("leave-group", f"not done within {self._timeout_s:.1f} s")
        except LancewalError as error:
            self._metrics.failed("leave-group", error)

    def _leave(self) -> None:
        self._first()
        self._source.close()  # tells the worker that its partitions are revoked


def _progress(worker: IngestWorker, watch: TopicWatch) -> IngestProgress:
    durable, at_opening = worker.durable, worker.ends_at_opening
    return IngestProgress(
        [region for region in worker.ours if region not in durable],
        durable,
        worker.oldest_consumed_ms,
        {region: max(end, watch.ends.get(region, end)) for region, end in at_opening.items()},
        watch.retention.oldest,
        watch.looked_at,
        watch.retention.retention_s,
    )


def _dead_letters(settings: Settings, contract: Contract, group: str, metrics: IngestMetrics) -> DeadLetters:
    if "dead-letter" not in (contract.on_bad_record, contract.on_misrouted):
        return RefusedDeadLetters()
    letters = KafkaDeadLetters(settings.kafka.client(), contract.dead_letters, group)
    letters.check()
    return ObservedDeadLetters(letters, metrics.dead_letters_failed)


def _prepare(
    settings: Settings,
    context: IngestContext,
    group: str,
    worker: IngestWorker,
    metrics: IngestMetrics,
    newer: Contract,
) -> Callable[[], None]:
    """Return what takes the newer version up.  Its topics are allowed, and Kafka has been asked for the one of dead
    letters."""
    check_topics(settings, newer)
    preparer, dead_letters = Preparer(newer, context.drain), _dead_letters(settings, newer, group, metrics)

    def take_up() -> None:
        worker.take_up(preparer, dead_letters)
        metrics.events.contract_taken_up(contract_version=newer.version)

    return take_up


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
        linger_puts=LINGER_PUTS,
        offset_commit_s=ingest.offset_commit_interval_s,
        retry_s=ingest.retry_interval_s,
        bundle_segments=BUNDLE_SEGMENTS if ingest.bundles else 0,
    )


def _check_topic(context: IngestContext, source: KafkaSource, batches: BatchCheck) -> None:
    check_topic(context.contract, source, context.drain)
    batches.look()
    check_not_altered(context)
