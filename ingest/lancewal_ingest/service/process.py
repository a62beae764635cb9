"""The parts of an ingest process that its tables share: HTTP server, threads, memory budget, owner id, and the loop.

Guarantees
 1. A topic belongs to one table of a process.  A second table with the same topic is refused with an error.
 2. A table whose turn raises an error stops, and ``/readyz`` names it.  The other tables go on.  Once no table is left,
    or the process is told to stop, the first of these errors is raised.
 3. The process is ready when each of its tables is ready.  ``/status`` shows the first table.

A process works on one table until settings can name several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from lancewal_core.errors import (
    FormerGroup,
    InvalidSettings,
    KafkaUnavailable,
    LancewalError,
    Problem,
    StoreUnavailable,
)
from lancewal_core.open import Address
from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.health import Health, HealthServer
from lancewal_core.process.service_metrics import ProcessRegistry
from lancewal_core.process.silence import BROKER, STORE, SilenceWatch
from lancewal_core.process.start import Start
from lancewal_core.process.status.board import StatusBoard
from lancewal_core.process.stop_signals import returned_in_time
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.table.checks import former_setting, topics_are_bound
from lancewal_core.table.contract import Contract
from lancewal_core.table.proof.store_proof import prove_store
from lancewal_core.wal.writer_schemas import WriterSchemas
from lancewal_ingest.append.draining import drain_of
from lancewal_ingest.append.job import DeadLetters
from lancewal_ingest.context import IngestContext, new_owner, open_context
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.kafka.consumer import ConfluentSource
from lancewal_ingest.kafka.consumer_group import take_group
from lancewal_ingest.kafka.dead_letters import KafkaDeadLetters, RefusedDeadLetters
from lancewal_ingest.kafka.source import KafkaSource, check_topic
from lancewal_ingest.regions.policy import MemoryPolicy
from lancewal_ingest.registry.confluent import ConfluentRegistry
from lancewal_ingest.registry.lookups import AT_ONCE, SchemaLookups
from lancewal_ingest.service.batch_check import BatchCheck
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_ingest.service.table import IngestTable, TableKafka
from lancewal_kafka.clients import client_bytes, unpacked_bytes_max, unpacking_bounded
from lancewal_kafka.group_member import member_id
from lancewal_kafka.retention import KafkaRetention

DRAIN_SHARE = 0.75
"""Share of ``ingest.drain_timeout_s`` for the hand-over.  The rest is for leaving the group, which takes about a second."""
_TASK_THREADS = 9 + AT_ONCE + 64
"""Largest number of threads for tasks: one for the segment in flight, and two for flushes (from memory and from logs).
One each is for the bundle, the topic watch, the control, the contract, keys in conflict and the comparison of schemas.
``AT_ONCE`` are for schemas, so that a registry that hangs delays nothing else.  The others are for state pages: for
each page a seal or hand-over, and the swap of a flush.  So a page that does not answer does not delay others.  A thread
starts when it is needed."""


class IngestProcess:
    """An ingest process and its tables.  ``stack`` ends its threads."""

    def __init__(
        self, settings: Settings, stopping: Callable[[], bool], stack: ExitStack, clock: Clock | None = None
    ) -> None:
        budget = settings.ingest.memory_bytes_max
        self.clock = SystemClock() if clock is None else clock
        self.registry = ProcessRegistry()
        self.owner = new_owner()
        self.memory = MemoryPolicy(nbytes=budget - client_bytes(budget))
        self.health = Health(self.clock, self.problems, waits=self._waits, remark=self._remark)
        self._settings = settings
        self._stopping = stopping
        self._tasks = ThreadTasks(workers=_TASK_THREADS)
        stack.callback(self._tasks.close)
        self._board = StatusBoard(self.clock)
        self._start = Start(self.clock, stopping)
        self._leave_s = settings.ingest.drain_timeout_s
        """Largest number of seconds for leaving the group (``service``, step 4), and for ``_before_leaving``."""
        self._before_leaving: Sequence[Callable[[], None]] = ()
        """Functions to call before the group is left."""
        self._tables: dict[str, IngestTable] = {}
        """The tables of the process by topic."""
        self._stopped: dict[str, LancewalError] = {}

    def listen(self, stack: ExitStack) -> int:
        """Start the HTTP server, and return its port.  The server answers probes at once."""
        http = self._settings.http
        server = HealthServer(http.host, http.ingest_port, self.registry, self.health, self._board.answer)
        return stack.enter_context(server).port

    def metrics(self, settings: Settings, port: int | None = None) -> IngestMetrics:
        """Return the metrics of the table that ``settings`` name, in the registry of the process."""
        name, per_partition = Address.of(settings).name, settings.metrics.per_partition
        metrics = IngestMetrics(
            self.clock,
            name,
            self.memory.nbytes,
            IngestEvents(table=name),
            per_partition=per_partition,
            registry=self.registry,
        )
        metrics.port = port
        return metrics

    def open_when_it_can(
        self, found: Callable[[], Settings], metrics: IngestMetrics, stack: ExitStack
    ) -> IngestTable | None:
        """Open the table whose settings ``found`` returns.  Retry while the error may be transient (``process.start``).

        Return None if the process is told to stop before the table is open.
        """
        return self._start.run(
            lambda opened: self.open(found(), metrics, opened), stack, lambda error, _: metrics.failed("start", error)
        )

    def open(self, settings: Settings, metrics: IngestMetrics, stack: ExitStack) -> IngestTable:
        """Open and check the table that the settings name, and join its consumer group; ``stack`` leaves the group."""
        address, clock = Address.of(settings), self.clock
        context = self._opened(settings, address, metrics)
        contract, group = context.contract, context.group
        # The client id shows in the group to which table this member belongs, unless the settings name the client.
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
        stack.callback(self._leave, source, metrics)
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
        kafka = TableKafka(source, source, retention, batches, partial(_dead_letters, settings, group, metrics))
        table = IngestTable(settings, context, kafka, metrics, self.owner, self.memory)
        prove_store(context.store, self._tasks, address.way(), address.uri, context.new_id)
        what = {"topic": contract.topic, "table": contract.table_uuid, "group": group, "owner": self.owner}
        metrics.works_by(contract.version)
        former = former_setting(settings, contract, context.store)
        if former is not None:
            metrics.events.columns_setting_former(contract_version=former)
        metrics.started(contract.version, contract.partitions, contract.topic_id, address.uri, what)
        if not topics_are_bound(settings):
            metrics.events.topics_unbound(topic=contract.topic, dead_letters=contract.dead_letters)
        table.worker.subscribe()
        brokers = settings.kafka.bootstrap_servers
        table.silences = (
            SilenceWatch(
                partial(source.facts, contract.topic), clock, KafkaUnavailable.kind, f"Kafka at {brokers}", BROKER
            ),
            SilenceWatch(table.presence.look, clock, StoreUnavailable.kind, f"the store at {address.uri}", STORE),
        )
        for silence in table.silences:
            stack.enter_context(silence)
        return table

    def _opened(self, settings: Settings, address: Address, metrics: IngestMetrics) -> IngestContext:
        """Open the table at ``address`` for its consumer group, which is written into a contract that names none."""
        store = metrics.observed(address.store())
        context = open_context(settings, self._tasks, self.clock, store)
        metrics.called(address.name_of(context.contract))
        group = settings.kafka.group(context.contract.table_uuid)
        contract = take_group(store, self.clock, context.contract, group)
        self._check_free(contract, address.uri)
        registry = ConfluentRegistry(settings.registry) if settings.registry.url else None
        schemas = WriterSchemas(store, contract.making)
        lookups = SchemaLookups(schemas, registry, self._tasks, self.clock, context.new_id, contract)
        return replace(context, contract=contract, group=group, schemas=lookups)

    def add(self, table: IngestTable) -> None:
        """Add a table to work on.  Raises ``InvalidSettings`` if another table of the process has the same topic."""
        contract = table.context.contract
        self._check_free(contract, table.uri)
        self._tables[contract.topic] = table
        self.health.beat()

    def let_go(self, table: IngestTable, error: FormerGroup) -> None:
        """Stop work on a table that was moved to another consumer group (``error``), and log the move.  Members of the
        other group fence this process's log and take over.
        """
        topic = table.context.contract.topic
        del self._stopped[topic], self._tables[topic]
        self._start.problem = Problem.of(error, "stopped")
        table.metrics.events.group_moved(group=error.where.get("group"), error=str(error))

    def work(self) -> bool:
        """Work on all tables in turn until told to stop, or until no table is left.  Then hand over.

        Return whether everything was handed over and flushed in time.  Raises the error of a table that stopped.
        """
        while not self._stopping():
            for table in self._working():
                try:
                    table.take_turn()
                except LancewalError as error:
                    self._stopped[table.context.contract.topic] = error
                self.health.beat()
            if not self._working():
                break
            if self._board.due():
                self._board.show(next(iter(self._tables.values())).shown(self.health.ready()))
        drained = self._drain(self._working())
        if self._stopped:
            raise next(iter(self._stopped.values()))
        return drained

    def problems(self) -> Sequence[Problem]:
        """Return the reasons why the process is not ready; empty if it is ready."""
        if not self._tables:
            return [self._start.why_not_ready()]
        tables, errors = list(self._tables.items()), dict(self._stopped)
        stopped = [Problem.of(errors[topic], f"{table.uri} stopped") for topic, table in tables if topic in errors]
        return [*stopped, *(problem for topic, table in tables if topic not in errors for problem in table.problems())]

    def _working(self) -> Sequence[IngestTable]:
        return [table for topic, table in list(self._tables.items()) if topic not in self._stopped]

    def _drain(self, tables: Sequence[IngestTable]) -> bool:
        """Hand over the partitions of these tables, and return whether all was handed over and flushed in time."""
        if not tables:
            return False
        seconds, began = self._settings.ingest.drain_timeout_s, self.clock.monotonic()
        drained = True
        for table in tables:
            self.health.beat()
            drained &= table.drain(seconds * DRAIN_SHARE - (self.clock.monotonic() - began))
        self._before_leaving = [table.worker.tell_group for table in tables]
        self._leave_s = seconds - (self.clock.monotonic() - began)
        return drained

    def _leave(self, source: KafkaSource, metrics: IngestMetrics) -> None:
        """Leave the group (``service``, step 4); also called after a start that failed, and after an error."""

        def leave() -> None:
            for act in self._before_leaving:
                act()
            source.close()  # tells the worker that its partitions are revoked

        try:
            if not returned_in_time(leave, self._leave_s):
                metrics.failed("leave-group", f"not done within {self._leave_s:.1f} s")
        except LancewalError as error:
            metrics.failed("leave-group", error)

    def _check_free(self, contract: Contract, uri: str) -> None:
        other = self._tables.get(contract.topic)
        if other is not None:
            raise InvalidSettings(
                f"table {uri}: its topic {contract.topic} belongs to the table {other.uri} of this process. Leave one of the "
                "two out, or give it a process of its own"
            )

    def _waits(self) -> bool:
        """Return whether the loop may be blocked by a cause that a restart would not remove."""
        return not self._tables or any(table.silent for table in self._working())

    def _remark(self) -> str:
        """Return a remark for the probes of a process that is ready; empty if there is nothing to say."""
        idle = self._tables and not any(table.worker.has_partitions for table in self._working())
        return "no partition is assigned to this process" if idle else ""


def _dead_letters(settings: Settings, group: str, metrics: IngestMetrics, contract: Contract) -> DeadLetters:
    if "dead-letter" not in contract.record_policies.values():
        return RefusedDeadLetters()
    client = settings.kafka.client()
    letters = KafkaDeadLetters(client, contract.dead_letters, group, failed=metrics.dead_letters_failed)
    letters.check()
    return letters
