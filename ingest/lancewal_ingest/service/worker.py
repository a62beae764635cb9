"""The ingest loop of one table: consume, append, seal, flush and hand over, for all partitions together.

One thread calls ``step``.  The segment, the seals, the flush and the bundle that are under way run beside it in tasks.
Changes of region states are decided only while no segment is unsettled (``sealing``).  A step that wants to claim,
seal or hand over therefore first waits for the job in flight.  No segment waits for the swap of a seal, or for a
bundle.

Guarantees
 1. At most one segment is in flight.  Records consumed meanwhile go together into the next one (group commit).  The
    next one is sent when the linger time after the previous one has passed (``WorkerLimits.linger_s``), or as soon as
    a full segment waits.  While a full segment waits, nothing more is consumed.
 2. A MemTable holds durable entries only.  A MemTable that can no longer be proven equal to durable state is dropped,
    and its region is opened again from the log or from Kafka.
 3. Consumption stops when all rows in memory reach the budget (``intake``).  If several MemTables share a batch, each
    counts its part.  When one of them is dropped, some rows stay in memory uncounted: at most those shared since all
    MemTables had batches of their own.  That is a 16th of the budget, at most 32 MiB, and one segment.
 4. While an operator holds it, the loop consumes nothing and goes on otherwise: it polls, opens, seals, flushes and
    hands over.
 5. A partition that stops (misrouted record, bad record under ``stop``, lost retention) stops alone; others go on.  If
    a record has stopped it, the partition is opened again under each new version of the contract (``take_up``).  If
    keys in conflict have stopped it, it goes on once a person has decided (``stop_conflicting``).  A partition whose
    position a command has moved past the record goes on too (``led_past``).

``intake`` polls, and keeps the records that are in no segment yet.  ``partitions`` keeps which partitions wait to be
opened, are open or have stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lancewal_core.errors import (
    BadRecord,
    ColumnUnknown,
    ContractChanged,
    DeadLetterRefused,
    KeyFormChanged,
    LancewalError,
    Misrouted,
    RegionConflict,
    Retry,
    SchemaIdReused,
    SchemaUnknown,
    TooManySchemas,
    WrongFormat,
)
from lancewal_core.names.ids import LogId, OwnerId, Position, Region
from lancewal_core.process.failpoints import points
from lancewal_core.record_keys.key_form import KeyForm
from lancewal_core.table.contract import Contract
from lancewal_core.wal.writer import Durable, FencedOut, LogWriter, Occupied
from lancewal_ingest.append.bundling import Bundling
from lancewal_ingest.append.draining import noting
from lancewal_ingest.append.job import AppendJob, DeadLetters, Terms
from lancewal_ingest.append.new_columns import NewColumns, NewFields
from lancewal_ingest.append.new_key_form import with_first_form
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.append.segment_in_flight import SegmentInFlight
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import KafkaSource, check_topic
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.consumer_pause import ConsumerPause
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.intake import Intake, WorkBeside
from lancewal_ingest.regions.leaving import Leaving
from lancewal_ingest.regions.led_past import LedPast
from lancewal_ingest.regions.memtable import MemTable, own
from lancewal_ingest.regions.offset_commits import OffsetCommits
from lancewal_ingest.regions.partitions import Partitions
from lancewal_ingest.regions.policy import LINGER_S_MAX, MemoryPolicy, SealPolicy, WorkerLimits
from lancewal_ingest.regions.schema_waits import SchemaWait, SchemaWaits
from lancewal_ingest.regions.sealing import Sealing

SHARED_RATIO, SHARED_BYTES_MAX = 16, 32 << 20
"""Bounds of the rows that MemTables may share: a part of the budget, and bytes.  When one MemTable is dropped, its
part of a shared batch stays in memory."""
STOPPED_BY_POLICY = (
    BadRecord,
    ColumnUnknown,
    KeyFormChanged,
    WrongFormat,
    Misrouted,
    DeadLetterRefused,
    SchemaUnknown,
    SchemaIdReused,
    TooManySchemas,
)
"""Errors that a newer contract version may remove, by another policy or dead-letter topic.  New columns, key forms or
formats remove some of them too."""
LOG_SILENT_S_MAX = 24 * 3600.0
"""Seconds without a segment after which a log without open regions is not used any more.  Fences are kept for seven
days."""


class IngestWorker:
    """The ingest loop of one table.  Implements ``source.PollListener``."""

    def __init__(
        self,
        context: IngestContext,
        source: KafkaSource,
        dead_letters: DeadLetters,
        preparer: Preparer,
        owner: OwnerId,
        observer: Observer,
        seal_policy: SealPolicy | None = None,
        memory_policy: MemoryPolicy | None = None,
        limits: WorkerLimits | None = None,
    ) -> None:
        self._context = context
        context.contracts.know(context.contract)
        self._source = source
        self.terms = Terms(preparer, dead_letters)
        """Contract version that the next segment follows, with its decoder and dead letters."""
        self.prepare_terms: Callable[[Contract, Terms], Terms] = self._prepare_terms
        """Function that prepares a newer contract version, given the terms in use.  The service replaces it by one that
        also checks the topics of the version."""
        self._new_columns = NewColumns(context, observer)
        self._owner = owner
        self._observer = observer
        self._memory_policy = memory_policy or MemoryPolicy()
        self._limits = limits or WorkerLimits()
        self._flushes = FlushQueue(context, observer, self._limits.retry_s)
        self._commits = OffsetCommits(context.clock, source, observer, self._limits.offset_commit_s)
        self._partitions = Partitions(context, source, observer, self._flushes, self._commits, self._limits)
        self._sealing = Sealing(
            context, observer, self._partitions, self._flushes, seal_policy or SealPolicy(), self._memory_policy
        )
        self._led_past = LedPast(self._partitions, self._limits.damaged_s)
        self._leaving = Leaving(context, observer, self._partitions, self._sealing)
        self._writer = self._new_log()
        self._flight = SegmentInFlight(
            context.tasks, context.clock, self._limits.retry_s, lambda cause: observer.failed("append", cause)
        )
        self._bundling = Bundling(context.store, context.tasks, self._limits.bundle_segments)
        self._sent_at = float("-inf")
        self._shared_nbytes = 0
        """Bytes of shared rows that MemTables got since the last ``memtable.own``."""
        self._admitting = True
        """Whether further partitions may be opened."""
        self._pause = ConsumerPause(context, source, observer, self._partitions, self._limits)
        self._schema_waits: SchemaWaits | None = None
        if context.schemas is not None:
            self._schema_waits = SchemaWaits(
                context.clock,
                source,
                self._partitions,
                self._pause,
                context.schemas,
                context.schemas.comparison(),
                lambda: self.terms.preparer,
                observer.failed,
            )
        self._beside = WorkBeside(self._flight, self._sealing, self._flushes, self._bundling)
        self._intake = Intake(
            context.clock,
            source,
            self._partitions,
            self._beside,
            self._pause,
            self._memory_policy,
            self._limits,
            preparer.weights,
            float(preparer.weights.largest(context.contract.record_bytes_max)),
            self._schema_waits,
        )
        self._fenced = False
        self._joined_at: float | None = None
        """Monotonic time in seconds of the group's first assignment since this process joined, even an empty one.  None
        before that."""
        self._handed_over: Sequence[Region] = ()
        """Regions that ``drain`` handed over, or tried to hand over."""
        self._conflicting: Mapping[Region, RegionConflict] = {}
        """Partitions that must consume nothing because too many of their keys are in conflict."""
        self._altered = False
        """Whether ``take_up`` has changed the contract version, whatever its new terms are, since ``STOPPED_BY_POLICY``
        partitions were last reopened."""
        self._seen: tuple[dict[Region, Position], int] | None = None
        """Durable positions and number of generations to be flushed, as last reported to the observer."""

    # -- what a service shows ------------------------------------------------------------------------------------

    @property
    def durable(self) -> dict[Region, Position]:
        """Durable position of each open partition."""
        return {region: one.memtable.position for region, one in self._partitions.open.items()}

    @property
    def consumed(self) -> dict[Region, Position]:
        """Position up to which each open partition's records have been read from Kafka."""
        return {region: one.fetched for region, one in self._partitions.open.items()}

    @property
    def decoded(self) -> dict[Region, Position]:
        """Position up to which each open partition's records are decoded or rejected, whether or not they are
        stored."""
        in_flight = self._flight.decoded
        return {region: max(at, in_flight.get(region, at)) for region, at in self.durable.items()}

    @property
    def memtables(self) -> dict[Region, MemTable]:
        """MemTables of the open partitions."""
        return {region: one.memtable for region, one in self._partitions.open.items()}

    @property
    def throttled(self) -> bool:
        """Whether nothing is consumed because memory is full."""
        return self._intake.memory_full

    @property
    def oldest_consumed_ms(self) -> dict[Region, int]:
        """Kafka's time, in ms since 1970, of each open partition's first record that is consumed but not durable."""
        found = {r: at for r, at in self._flight.first_ms.items() if r in self._partitions.open}
        for region, one in self._partitions.open.items():
            if one.pending is not None and len(one.pending.records):
                found.setdefault(region, one.pending.records.timestamps[0])
        return {region: at for region, at in found.items() if at >= 0}

    @property
    def ends_at_opening(self) -> dict[Region, Position]:
        """The end of each open partition in Kafka at the time when the partition was opened."""
        return {region: end for region, end in self._partitions.ends.items() if region in self._partitions.open}

    @property
    def ours(self) -> set[Region]:
        """Partitions of the table that the group has assigned to this process, open or not."""
        return self._partitions.assigned & self._partitions.regions

    @property
    def waiting(self) -> frozenset[Region]:
        """Partitions that the group has assigned to this process and that are not open."""
        return frozenset(self._partitions.to_open)

    @property
    def refused(self) -> dict[Region, LancewalError]:
        """Partitions whose last attempt to open failed, with the error."""
        return self._partitions.refused

    @property
    def stopped(self) -> dict[Region, LancewalError]:
        """Partitions that have stopped, with the error."""
        return dict(self._partitions.stopped)

    @property
    def joined(self) -> bool:
        """Whether the group has given its assignment: this process has partitions, or has had none for at least
        ``join_s``.
        """
        at = self._joined_at
        return at is not None and (self.has_partitions or self._now() - at >= self._limits.join_s)

    @property
    def has_partitions(self) -> bool:
        """Whether this process has any partition."""
        return bool(self._partitions.assigned)

    @property
    def idle(self) -> bool:
        """Whether no consumed record waits or is in flight, and every assigned partition is open or stopped."""
        partitions = self._partitions
        busy = self._flight.busy or self._intake.some or self.schema_waits
        return not busy and not partitions.to_open and not self._fenced

    @property
    def ready(self) -> bool:
        return self.idle_or_progressing and not self._partitions.stopped and not self._fenced

    @property
    def waits_for(self) -> ContractChanged | None:
        """Why consumed records wait for a newer contract version; None if they do not."""
        return self._flight.waits_for

    @property
    def schema_waits(self) -> Mapping[Region, SchemaWait]:
        """Partitions that wait for the schemas of consumed records."""
        return {} if self._schema_waits is None else self._schema_waits.waits

    @property
    def idle_or_progressing(self) -> bool:
        """False if the last attempt to store a segment failed, or if seals have failed for some seconds."""
        return not self._flight.late and not self._sealing.late

    # -- the loop ------------------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        """Check the topic and join the consumer group."""
        self._check_topic()
        self._source.subscribe(self)

    def hold(self, held: bool) -> None:
        """Pause or resume consumption.  During a pause, consumed records still become durable, and this process keeps
        its partitions.
        """
        self._intake.held = held

    def take_up(self, preparer: Preparer, dead_letters: DeadLetters) -> None:
        """Follow a newer contract version from the next segment on.  It may differ only in terms that a running process
        can follow (``newer_contract.TAKEN_UP``).  Nothing changes if this version or a newer one is followed already.

        A segment in flight and its dead letters follow the previous version, and may still stop a partition.  Once that
        segment is settled, partitions that a record has stopped are reopened.  Rows of the previous version are
        converted when they are flushed.

        Besides this class, only ``Partitions`` and ``FlushQueue`` get the new context.  The other members keep the first
        one, and use only what no such version changes.
        """
        newer = preparer.contract
        if newer.version <= self.terms.contract.version:
            return
        self.terms = Terms(preparer, dead_letters)
        self._intake.weigh_by(preparer.weights)
        self._context.contracts.know(newer)
        self._context = replace(self._context, contract=newer)
        self._partitions.context = self._flushes.context = self._context
        self._altered = True
        self._observer.taken_up(newer.version)

    def stop_conflicting(self, conflicting: Mapping[Region, RegionConflict]) -> None:
        """Stop consuming these partitions until a later call leaves them out.

        Records that were consumed before still become durable, and are sealed and flushed.
        """
        self._conflicting = conflicting

    def admit(self, admitting: bool) -> None:
        """Allow or forbid opening further partitions.  Open partitions stay open."""
        self._admitting = admitting

    def step(self, timeout_s: float = 0.1) -> None:
        """Do one pass of the loop.  Raises ``ActionNeeded`` if the whole process must stop, because the topic was
        replaced or altered.
        """
        self._intake.consume(timeout_s, self._due_s)
        if self._fenced and not self._restart_after_fence():
            return
        self._settle_if_done()
        self._sealing.settle()
        if not self._flight.busy:
            self._go_on_if_altered()
            self._open_due()
            self._take_up_what_was_met()
            self._stop_and_go_on()
            if self._schema_waits is not None:
                self._schema_waits.advance(self._sealing.unsettled)
            self._sealing.advance(self._writer)
            self._start_job()
        self._own_shared()
        self._bundling.advance()
        self._flushes.advance()
        self._commits.commit_due(self._partitions.open)
        self._observe()

    def drain(self, deadline_s: float) -> bool:
        """Make consumed records durable, hand over every region, and flush.  Return whether all was done in time.

        Afterwards no region is open.  The next owner of a region that was not handed over fences this process's log.
        """
        done = self._drain(self._now() + deadline_s)
        self._partitions.open.clear()
        return done

    def abandon(self) -> None:
        """Drop all regions without a hand-over, because their table is gone.  The caller must not call ``step``
        afterwards.
        """
        self._partitions.open.clear()

    def tell_group(self) -> None:
        """Commit the durable positions of the regions that ``drain`` handed over.  This may wait for a silent
        coordinator.

        Positions of regions whose hand-over failed are committed too.  They are durable, and only a hint
        (``offset_commits``).  Positions of regions that were given up earlier are not committed, because their owners may
        have committed later ones.
        """
        self._commits.commit(self._handed_over)

    def _drain(self, end: float) -> bool:
        self._source.pause(list(self._partitions.open))
        self._bundling.drop()
        while self._flight.busy or self._intake.some:
            if not self._wait_job(end):
                return False
            if self._fenced:
                return False
            self._start_job(now=True)
        self._handed_over = list(self._partitions.open)
        handed_over = self._leaving.give_up(self._handed_over, self._writer, end, self._flushes.advance)
        while len(self._flushes) and self._now() < end:
            self._flushes.advance()
            self._flushes.wait(end - self._now())
            self._flushes.advance()
        return handed_over and not len(self._flushes)

    # -- assignment (called from within poll) --------------------------------------------------------------------

    def assigned(self, regions: Sequence[Region]) -> None:
        self._joined_at = self._now() if self._joined_at is None else self._joined_at
        self._partitions.assign(regions)

    def revoked(self, regions: Sequence[Region]) -> None:
        self._leave(regions)

    def lost(self, regions: Sequence[Region]) -> None:
        self._joined_at = None
        # The same compare-and-swap as a hand-over: harmless if another owner has claimed the region, and without it the
        # next owner must fence the whole log.
        self._leave(regions)

    def _leave(self, regions: Sequence[Region]) -> None:
        self._partitions.leave(regions)
        leaving = [region for region in regions if region in self._partitions.open]
        if not leaving:
            return
        settled = self._wait_job(self._now() + self._limits.settle_s)
        for region in leaving:
            self._partitions.stopped.pop(region, None)  # the segment in flight may have stopped it meanwhile
        leaving = [region for region in leaving if region in self._partitions.open]
        if settled and not self._fenced:
            self._leaving.give_up(leaving, self._writer, self._now() + self._limits.settle_s)
        for region in leaving:  # those that were not handed over: the next owner fences
            self._partitions.open.pop(region, None)

    # -- consuming -----------------------------------------------------------------------------------------------

    def find_newer(self, terms: Terms, fields: NewFields, form: KeyForm | None = None) -> Terms | None:
        """Look for a newer contract version.  If there is none, write one for new fields or for the first form of keys
        (``FindNewer``).
        """
        newer = self._new_columns.find(terms.contract, fields)
        if newer is None and form is not None:
            newer = with_first_form(self._context, terms.contract, form)
        return None if newer is None else self.prepare_terms(newer, terms)

    def _prepare_terms(self, newer: Contract, before: Terms) -> Terms:
        return Terms(Preparer(newer, self._context.drain, self._context.stored_schemas), before.dead_letters)

    def _check_topic(self) -> None:
        check_topic(self._context.contract, self._source, self._context.drain)

    def _start_job(self, *, now: bool = False) -> None:
        if not self._intake.some or self._fenced:
            return
        if not now and not self._intake.segment_full and self._due_s > 0:
            return
        context, taken = self._context, self._intake.next_segment()
        job = AppendJob(
            self._check_topic,
            self.terms,
            self.find_newer,
            self._writer,
            context.tasks,
            taken.consumed,
            noting(context),
        )
        self._sent_at = self._now()
        self._flight.start(job, taken.nbytes, taken.first_ms)

    @property
    def _due_s(self) -> float:
        """Seconds until the next segment may be sent, unless a full one waits."""
        limits = self._limits
        linger_s = max(limits.linger_s, min(limits.linger_puts * self._writer.put_s, LINGER_S_MAX))
        return self._sent_at + linger_s - self._now()

    def _settle_if_done(self) -> None:
        # An error ends the process.  If no PUT is unsettled, the durable state is known and can still be handed over.
        settled = self._flight.settle(lambda: self._writer.settled)
        if settled is None:
            return
        job, outcome = settled
        self.take_up(job.terms.preparer, job.terms.dead_letters)
        match outcome:
            case FencedOut(fence=fence):
                self._observer.fenced(fence)
            case Occupied(
                error=error
            ):  # when a region is opened again, it meets that object, and waits until it is gone or repaired
                self._observer.failed("append", error)
            case result:
                self._apply(job, result)
                return
        self._fenced = True
        self._partitions.open.clear()

    def _wait_job(self, until: float) -> bool:
        """Wait until no segment is in flight; False if the monotonic time ``until`` comes first."""
        while self._flight.busy:
            if not self._flight.wait(until - self._now()):
                return False
            self._settle_if_done()
        return True

    def _apply(self, job: AppendJob, result: Durable | None) -> None:
        now, open_ = self._now(), self._partitions.open
        found = zip(job.entries, job.shared, strict=True) if result is not None else ()
        ours = [(entry, shared, region) for entry, shared in found if (region := open_.get(entry.region)) is not None]
        with points("memtable.apply", ({"region": entry.region.name, "next": entry.next} for entry, _, _ in ours)):
            for entry, shared, region in ours:
                region.memtable.apply(entry, now, shared)
                self._shared_nbytes += 0 if shared is None else shared.nbytes
                self._commits.reached(entry.region, entry.next)
                self._observer.appended(entry, job.ignored(entry) if entry.rejected else ())
        if result is not None:
            self._observer.segment(result, job.letters)
            self._bundling.add(self._writer, result, job.entries)
            if job.other_names:
                self._observer.other_names(job.other_names)
            if job.passed_over:
                self._observer.passed_over(job.passed_over)
            if job.changed_ms:
                self._observer.changed(job.changed_ms)
        self._intake.give_back(job.given_back)
        self._look_at_schemas(job)
        for stop in job.stops:
            region = self._partitions.open.get(stop.region)
            if region is not None:  # else given up meanwhile: its next owner reads the record again and stops there
                region.drop_pending()  # these records come after the one that stops it
                self._partitions.stop(stop.region, stop.error)

    def _look_at_schemas(self, job: AppendJob) -> None:
        """Compare the schemas of bad records with the registry."""
        if self._schema_waits is None:
            return
        for entry in job.entries:
            if entry.rejected:
                self._schema_waits.rejected(entry.region, entry.rejected[0].offset, entry.rejected[-1].offset)
        for stop in job.stops:
            offset = stop.error.where.get("offset")
            if isinstance(offset, int):
                self._schema_waits.rejected(stop.region, offset, offset)

    def _own_shared(self) -> None:
        """Copy shared rows into each MemTable once they reach a limit, while the next segment is in flight.

        Shared rows count by parts, but the whole batch stays in memory until the last of its MemTables is dropped."""
        if self._shared_nbytes < min(self._memory_policy.nbytes // SHARED_RATIO, SHARED_BYTES_MAX):
            return
        self._shared_nbytes = 0
        own(region.memtable for region in self._partitions.open.values())

    # -- owning regions ------------------------------------------------------------------------------------------

    def _new_log(self) -> LogWriter:
        context = self._context
        log = LogId(context.new_id())
        return LogWriter(context.store, context.clock, log, self._owner, self.terms.contract.rows.wal)

    def _restart_after_fence(self) -> bool:
        """Begin a new log if the group coordinator confirms that this process is a member.  Return False if it does
        not.

        Without assigned partitions the log begins at once: a later assignment confirms the membership."""
        if self._partitions.assigned and not self._source.commit({}):
            return False
        self._fenced = False
        self._writer = self._new_log()
        self._partitions.open_all_again()
        return True

    def _go_on_if_altered(self) -> None:
        if self._altered and not self._sealing.busy:
            self._altered = False
            if self._context.schemas is not None:
                self._context.schemas.follow(self.terms.contract)
            self._partitions.go_on(STOPPED_BY_POLICY)

    def _take_up_what_was_met(self) -> None:
        """Follow the newer contract version because of which a claim or a flush has failed (``outdated``)."""
        if not (self._partitions.outdated or self._flushes.outdated):
            return
        self._partitions.outdated = self._flushes.outdated = False
        try:
            newer = self.find_newer(self.terms, {})
        except (Retry, ContractChanged) as error:
            self._observer.failed("contract", error)
        else:
            if newer is not None:
                self.take_up(newer.preparer, newer.dead_letters)

    def _stop_and_go_on(self) -> None:
        for region, error in self._conflicting.items():
            if region in self._partitions.open:
                self._partitions.stop(region, error)
        if not self._sealing.busy:
            self._partitions.go_on((RegionConflict,), but=self._conflicting)
            self._led_past.advance()

    def _open_due(self) -> None:
        if not self._admitting or self._fenced:
            return  # after a fence no region is opened into the ended log; the next step begins a new one
        if not self._partitions.open and not self._flight.busy and self._writer.silent_s > LOG_SILENT_S_MAX:
            # A later owner of our regions may have ended this log, and the fence may soon be garbage-collected.
            self._writer = self._new_log()
        before = set(self._partitions.open)
        self._partitions.open_due(self._writer, paused=self._pause.on)
        self._pause.opened(self._partitions.open.keys() - before)

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._context.clock.monotonic()

    def _observe(self) -> None:
        self._observer.memory(self._intake.nbytes, self._intake.memory_full)
        seen = self.durable, len(self._flushes)
        if seen != self._seen:
            self._seen = seen
            self._observer.positions(*seen)
