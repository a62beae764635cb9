"""The ingest loop of one table: consume, append, seal, flush and hand over, for all partitions together.

One thread calls ``step``.  The segment, the seals, the flush and the bundle that are under way run beside it in tasks.
Changes of region states are decided only while no segment is unsettled (``sealing``).  A step that wants to claim, seal or
hand over therefore first waits for the job in flight.  No segment waits for the swap of a seal, or for a bundle.

Guarantees
 1. At most one segment is in flight.  Records consumed meanwhile go together into the next one (group commit).  It is
    sent at most its linger after the last one, or as soon as ``segment_rows`` wait; then nothing more is consumed.
 2. A MemTable holds durable entries only.  A MemTable that can no longer be proven equal to durable state is dropped,
    and its region is opened again from the log or from Kafka.
 3. Consumption stops when consumed, in-flight, OPEN and unflushed rows together reach the memory budget
    (``decode.weight``).  If that lasts longer than ``hold_s``, the consumer is paused and polled, so that the process
    stays a member of its group.  If several MemTables share a batch, each counts its part.  When one of them is given
    up, some rows stay in memory uncounted: at most those shared since all MemTables had batches of their own.  That is
    a 16th of the budget, at most 32 MiB, and one segment.
 4. While an operator holds it, the loop consumes nothing and goes on otherwise: it polls, opens, seals, flushes and
    hands over.
 5. A partition that stops (misrouted record, bad record under ``stop``, lost retention) stops alone; others go on.  If
    a record has stopped it, the partition is opened again under each new version of the contract (``take_up``).  If
    keys in conflict have stopped it, it goes on once a person has decided (``stop_conflicting``).

``partitions`` keeps which partitions wait to be opened, are open or have stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lancewal_core.errors import (
    ActionNeeded,
    BadRecord,
    ContractChanged,
    DeadLetterRefused,
    LancewalError,
    Misrouted,
    RegionConflict,
    Retry,
)
from lancewal_core.names.ids import LogId, OwnerId, Position, Region
from lancewal_core.process.failpoints import point, points
from lancewal_core.settings.sections import IngestSettings
from lancewal_core.table.contract import Contract
from lancewal_core.wal.writer import Durable, FencedOut, LogWriter, Occupied
from lancewal_ingest.append.bundling import Bundling
from lancewal_ingest.append.draining import noting
from lancewal_ingest.append.job import AppendJob, DeadLetters, Terms
from lancewal_ingest.append.newer_contract import AddColumns, NewFields, contract_to_take_up, fields_to_add
from lancewal_ingest.append.pending import Pending, divided, joined, weighed
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_ingest.append.segment_in_flight import SegmentInFlight
from lancewal_ingest.context import IngestContext
from lancewal_ingest.glibc_heap import use_own_pages
from lancewal_ingest.kafka.source import KafkaSource, Polled, check_topic
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.consumer_pause import ConsumerPause
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.leaving import Leaving
from lancewal_ingest.regions.memtable import MemTable, own
from lancewal_ingest.regions.offset_commits import OffsetCommits
from lancewal_ingest.regions.partitions import Partitions
from lancewal_ingest.regions.policy import GENERATION_BYTES_MAX, MemoryPolicy, SealPolicy
from lancewal_ingest.regions.sealing import Sealing
from lancewal_kafka.records import Records

_DECODE_COPIES = 2
"""Copies of the records in flight: decoding holds values, their joined text and the rows at the same time."""
_FLUSH_POLL_S = 0.01
"""Longest poll in seconds while flushes wait: about the time that a small generation takes to be flushed."""

_GATHER_S, _GATHER_S_MAX = 0.005, 0.02
"""Least and most seconds for which a poll collects further records once it has one."""

_DEFAULTS = IngestSettings()
SEGMENT_BYTES = 32 << 20
SHARED_RATIO, SHARED_BYTES_MAX = 16, 32 << 20
"""Bounds of the rows that MemTables may share: a part of the budget, and bytes.  When one MemTable is dropped, its part of
a shared batch stays in memory."""
BUNDLE_SEGMENTS = 32
"""Segments in a bundle.  A far reader requests half as many newer segments by themselves, on average."""
STOPPED_BY_POLICY = (BadRecord, Misrouted, DeadLetterRefused)
"""Errors that another policy, or another dead-letter topic, may remove."""
LINGER_S_MAX = 1.0
"""Most seconds by which a slow store delays the next segment."""
LOG_SILENT_S_MAX = 24 * 3600.0
"""Seconds without a segment after which a log in which nothing is open is not used any more.  Fences are kept for seven
days."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of the worker.  Times are in seconds."""

    poll_records: int = 10_000
    segment_rows: int = _DEFAULTS.segment_rows_max
    """Most consumed records in a segment.  This many, or ``segment_bytes``, start a segment before ``linger_s``."""
    segment_bytes: int = SEGMENT_BYTES
    """Most weight of a segment's records (``decode.weight``).  If a poll brings more, the rest goes into the next segment."""
    linger_s: float = _DEFAULTS.linger_ms / 1000
    """Least time between two segments."""
    linger_puts: float = 0.0
    """Least time between two segments in durations of recent PUTs, up to ``LINGER_S_MAX``.  More segments would cost more
    requests, and make rows durable hardly sooner: a row waits for its own PUT anyway."""
    idle_position_s: float = 1.0
    """Least time between two entries without rows that move a region's position."""
    offset_commit_s: float = _DEFAULTS.offset_commit_interval_s
    retry_s: float = _DEFAULTS.retry_interval_s
    damaged_s: float = 10.0
    """Time until a partition with lost or damaged objects is tried again: a person must act first."""
    settle_s: float = 10.0
    """Most time that a revoked partition waits for the segment in flight, and then for its hand-over."""
    open_s: float = 1.0
    """Time after which a turn begins to open no further partitions.  Between turns the consumer polls, and the loop
    reports that it is alive."""
    join_s: float = 5.0
    """Time after which a member without partitions counts as joined.  A new member gets none until others give some up."""
    bundle_segments: int = BUNDLE_SEGMENTS
    """Most segments that a bundle copies; 0: no bundles."""
    hold_s: float = 1.0
    """Time for which the loop only waits while nothing more may be consumed.  Then it pauses the consumer, which drops the
    records fetched ahead, and polls again."""


class IngestWorker:
    """The ingest loop of one table; see the module docstring.  Implements ``source.PollListener``."""

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
        """Version of the contract that the next segment follows."""
        self.prepare_terms: Callable[[Contract, Terms], Terms] = self._prepare_terms
        """Function that prepares a newer version of the contract, given the terms before.  The service replaces it by one
        that also checks what the version needs of Kafka."""
        self.add_columns: AddColumns | None = None
        """Function that adds columns for new fields of records; None: no format of values has schemas."""
        self._owner = owner
        self._observer = observer
        self._memory_policy = memory_policy or MemoryPolicy()
        self._limits = limits or WorkerLimits()
        self._flushes = FlushQueue(context, observer, self._limits.retry_s)
        self._commits = OffsetCommits(context.clock, source, observer, self._limits.offset_commit_s)
        self._partitions = Partitions(
            context,
            source,
            observer,
            self._flushes,
            self._commits,
            retry_s=self._limits.retry_s,
            damaged_s=self._limits.damaged_s,
            turn_s=self._limits.open_s,
        )
        self._sealing = Sealing(
            context, observer, self._partitions, self._flushes, seal_policy or SealPolicy(), self._memory_policy
        )
        self._leaving = Leaving(context, observer, self._partitions, self._sealing)
        self._writer = self._new_log()
        self._flight = SegmentInFlight(
            context.tasks, context.clock, self._limits.retry_s, lambda cause: observer.failed("append", cause)
        )
        self._bundling = Bundling(context.store, context.tasks, self._limits.bundle_segments)
        self._sent_at = float("-inf")
        self._weights = preparer.weights
        self._expected = float(self._weights.largest(context.contract.record_bytes_max))
        """Expected weight of each of the next records."""
        self._shared_nbytes = 0
        """Bytes of shared rows that MemTables got since the last ``memtable.own``."""
        self._cut = 0
        """Number of the partition with which the next segment begins."""
        self._memory_full = False
        self._full_since: float | None = None
        """Monotonic seconds since when nothing more may be consumed; None while records may be consumed."""
        self._admitting = True
        """Whether further partitions may be opened."""
        self._held = False
        """Whether an operator has paused consumption."""
        self._pause = ConsumerPause(
            context, source, observer, self._partitions, retry_s=self._limits.retry_s, turn_s=self._limits.open_s
        )
        self._fenced = False
        self._joined_at: float | None = None
        """Monotonic seconds at which the group first assigned partitions, or none; None before."""
        self._handed_over: Sequence[Region] = ()
        """Regions that ``drain`` handed over."""
        self._conflicting: Mapping[Region, RegionConflict] = {}
        """Partitions that must consume nothing because too many of their keys are in conflict."""
        self._altered = False
        """Whether policies were altered, and the partitions that they had stopped are not opened again yet."""
        self._seen: tuple[dict[Region, Position], int] | None = None
        """Durable positions and number of generations to be flushed, as last reported to the observer."""

    # -- what a service shows ------------------------------------------------------------------------------------

    @property
    def durable(self) -> dict[Region, Position]:
        """Durable position of each open partition."""
        return {region: one.memtable.position for region, one in self._partitions.open.items()}

    @property
    def consumed(self) -> dict[Region, Position]:
        """Position of each open partition up to which its records were taken from Kafka."""
        return {region: one.fetched for region, one in self._partitions.open.items()}

    @property
    def decoded(self) -> dict[Region, Position]:
        """Position of each open partition up to which its records are rows or rejected, stored or not."""
        in_flight = self._flight.decoded
        return {region: max(at, in_flight.get(region, at)) for region, at in self.durable.items()}

    @property
    def memtables(self) -> dict[Region, MemTable]:
        """MemTables of the open partitions."""
        return {region: one.memtable for region, one in self._partitions.open.items()}

    @property
    def throttled(self) -> bool:
        """Whether nothing is consumed because memory is full."""
        return self._memory_full

    @property
    def oldest_consumed_ms(self) -> dict[Region, int]:
        """Kafka's time (milliseconds since 1970) of each open partition's first consumed record that is not durable."""
        found = {r: at for r, at in self._flight.first_ms.items() if r in self._partitions.open}
        for region, one in self._partitions.open.items():
            if one.pending is not None and len(one.pending.records):
                found.setdefault(region, one.pending.records.timestamps[0])
        return {region: at for region, at in found.items() if at >= 0}

    @property
    def ends_at_opening(self) -> dict[Region, Position]:
        """End of each open partition in Kafka when it was opened."""
        return {region: end for region, end in self._partitions.ends.items() if region in self._partitions.open}

    @property
    def ours(self) -> set[Region]:
        """Partitions of the table that the group assigned to this process, open or not."""
        return self._partitions.assigned & self._partitions.regions

    @property
    def waiting(self) -> frozenset[Region]:
        """Partitions that the group assigned to this process, and that are not open."""
        return frozenset(self._partitions.to_open)

    @property
    def refused(self) -> dict[Region, LancewalError]:
        """Partitions that could not be opened at the last try, and why."""
        return self._partitions.refused

    @property
    def stopped(self) -> dict[Region, LancewalError]:
        """Partitions that stopped, and why."""
        return dict(self._partitions.stopped)

    @property
    def joined(self) -> bool:
        """Whether the group has assigned its partitions: some are ours, or none for at least ``join_s``."""
        at = self._joined_at
        return at is not None and (self.has_partitions or self._now() - at >= self._limits.join_s)

    @property
    def has_partitions(self) -> bool:
        """Whether any partition is ours."""
        return bool(self._partitions.assigned)

    @property
    def idle(self) -> bool:
        """Whether no consumed record waits or is in flight, and every assigned partition is open or stopped."""
        partitions = self._partitions
        return (
            not self._flight.busy
            and not any(r.pending for r in partitions.open.values())
            and not partitions.to_open
            and not self._fenced
        )

    @property
    def ready(self) -> bool:
        return self.idle_or_progressing and not self._partitions.stopped and not self._fenced

    @property
    def waits_for(self) -> ContractChanged | None:
        """Why consumed records wait for a newer version of the contract; None if they do not."""
        return self._flight.waits_for

    @property
    def idle_or_progressing(self) -> bool:
        """False while the last try to store a segment failed, or generations could not be sealed for some seconds."""
        return not self._flight.late and not self._sealing.late

    # -- the loop ------------------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        """Check the topic and join the consumer group."""
        self._check_topic()
        self._source.subscribe(self)

    def hold(self, held: bool) -> None:
        """Pause or resume consumption.  Consumed records still become durable, and partitions stay ours."""
        self._held = held

    def take_up(self, preparer: Preparer, dead_letters: DeadLetters) -> None:
        """Use a newer version of the contract, which differs in columns and policies only, from the next segment on.
        If that version, or a newer one, is used already, nothing changes.

        A segment in flight and its letters follow the version before, and may still stop a partition by it.  Once that
        segment is settled, partitions that a record has stopped are opened again.  Rows of the version before are carried
        over when they are flushed."""
        newer = preparer.contract
        if newer.version <= self.terms.contract.version:
            return
        self.terms = Terms(preparer, dead_letters)
        self._expected += max(0, preparer.weights.row_bytes - self._weights.row_bytes)
        self._weights = preparer.weights
        self._context.contracts.know(newer)
        self._context = replace(self._context, contract=newer)
        self._partitions.context = self._flushes.context = self._context
        self._altered = True
        self._observer.taken_up(newer.version)

    def stop_conflicting(self, conflicting: Mapping[Region, RegionConflict]) -> None:
        """Consume nothing more of these partitions, until a later call leaves them out.

        Records consumed before still become durable, and are sealed and flushed."""
        self._conflicting = conflicting

    def admit(self, admitting: bool) -> None:
        """Allow or forbid the opening of further partitions; open ones stay open."""
        self._admitting = admitting

    def step(self, timeout_s: float = 0.1) -> None:
        """Do one turn of the loop.  Raises ``ActionNeeded`` if the whole process must stop (topic replaced or altered)."""
        self._consume(timeout_s)
        if self._fenced and not self._restart_after_fence():
            return
        self._settle_if_done()
        self._sealing.settle()
        if not self._flight.busy:
            self._go_on_if_altered()
            self._open_due()
            self._take_up_what_was_met()
            self._stop_and_go_on()
            self._sealing.advance(self._writer)
            self._start_job()
        self._own_shared()
        self._bundling.advance()
        self._flushes.advance()
        self._commits.commit_due(self._partitions.open)
        self._observe()

    def drain(self, deadline_s: float) -> bool:
        """Make consumed records durable, hand over every region and flush; return whether all was done in time.

        Afterwards no region is open: a region that was not handed over is left to its next owner, which fences.
        """
        done = self._drain(self._now() + deadline_s)
        self._partitions.open.clear()
        return done

    def tell_group(self) -> None:
        """Commit the durable positions of the regions that ``drain`` handed over; may wait for a silent coordinator.

        Positions of regions given up earlier are not committed: their owners may have committed later ones."""
        self._commits.commit(self._handed_over)

    def _drain(self, end: float) -> bool:
        self._source.pause(list(self._partitions.open))
        self._bundling.drop()
        while self._flight.busy or any(r.pending for r in self._partitions.open.values()):
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

    def _consume(self, timeout_s: float) -> None:
        """Poll and keep the records; while nothing more may be consumed, wait for the work under way instead."""
        rows, nbytes = self._waiting()
        limits = self._limits
        # A full segment alone does not throttle: only the memory budget does.
        used = nbytes + self._memory_beside_waiting()
        self._memory_full = self._memory_policy.paused(used, self._flushes.of_one_region, self._memory_full)
        if self._memory_full:
            self._bundling.drop()
        full = self._memory_full or rows >= limits.segment_rows or nbytes >= limits.segment_bytes
        # If the store takes segments but no state page, a generation cannot be sealed, and must not grow further.
        full = full or any(r.unsealed_bytes >= GENERATION_BYTES_MAX for r in self._partitions.open.values())
        if not full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = self._now()
        if self._full_since is not None and not self._held:
            brief = self._now() - self._full_since < limits.hold_s
            if brief and self._wait_for_work(timeout_s):
                return
        self._pause.set(full or self._held)
        room = min(limits.segment_bytes - nbytes, self._memory_policy.nbytes - used)
        wanted = max(1, min(limits.poll_records, limits.segment_rows - rows, int(room / self._expected)))
        with point("poll"):
            polled = self._poll(wanted, self._poll_timeout(timeout_s))
        self._take(polled)
        more_rows, more_bytes = self._waiting()
        if more_rows > rows:
            # A region that left during the poll took its bytes along, so the mean may be too small: lower it only by halves.
            mean = (more_bytes - nbytes) / (more_rows - rows)
            self._expected = max(self._expected / 2, mean)

    def _waiting(self) -> tuple[int, int]:
        """Return the number of consumed records that are not in a segment yet, and their weight."""
        rows = nbytes = 0
        for region in self._partitions.open.values():
            if region.pending is not None:
                rows += region.pending.rows
                nbytes += region.pending.nbytes
        return rows, nbytes

    def _wait_for_work(self, timeout_s: float) -> bool:
        """Wait for the segment in flight, else for the seals, else for the flush; False if none is under way."""
        if self._flight.running:
            self._flight.wait(timeout_s)
        elif self._sealing.busy:
            self._sealing.wait(timeout_s)
        elif len(self._flushes):
            self._flushes.wait(timeout_s)
        else:
            return False
        return True

    def _poll(self, records_max: int, timeout_s: float) -> Polled:
        try:
            return self._source.poll(records_max, timeout_s, self._gather_s)
        except ActionNeeded as error:
            at = error.where.get("topic"), error.where.get("partition")
            region = next((r for r in self._partitions.assigned if (r.topic, r.partition) == at), None)
            if region is None:
                raise
            # The partition's next offset is gone: only this partition stops.  Records consumed before still become
            # durable, because Kafka may have lost them too.
            self._partitions.stop(region, error)
            return Polled({}, {})

    def _poll_timeout(self, timeout_s: float) -> float:
        if self._flight.running or any(r.pending for r in self._partitions.open.values()):
            return min(timeout_s, self._limits.linger_s / 2)
        if self._sealing.busy or len(self._flushes):
            return min(timeout_s, _FLUSH_POLL_S)
        return timeout_s

    @property
    def _gather_s(self) -> float:
        """Seconds for which a poll collects further records.

        If a segment may be sent, this is short.  Until then a poll for each few records would gain nothing, and each poll
        costs some work for every partition."""
        due_s = self._sent_at + self._linger_s - self._now()
        return min(max(due_s, _GATHER_S), _GATHER_S_MAX)

    def _take(self, polled: Polled) -> None:
        now = self._now()
        open_ = self._partitions.open
        taken = {region: records for region, records in polled.records.items() if region in open_ and records.offsets}
        weights, large = weighed(taken, self._weights)
        if large:
            use_own_pages()  # large records would leave holes in the heap
        stopped, idle_s, busy = self._partitions.stopped, self._limits.idle_position_s, self._flight.busy
        for region, next_ in polled.next.items():
            one = open_.get(region)
            if one is None or region in stopped:
                continue
            pending = one.pending
            if region in weights:
                one.pending = joined(pending, polled.records[region], next_, weights[region])
                one.fetched = next_
            elif next_ > one.fetched:
                one.fetched = next_
                if pending is not None:
                    pending.next = next_
            if (
                not busy
                and one.pending is None
                and one.fetched > one.memtable.position
                and now - one.memtable.last_entry_at >= idle_s
            ):
                one.pending = Pending(Records([], [], [], [], []), one.fetched)

    def find_newer(self, terms: Terms, fields: NewFields) -> Terms | None:
        """Look for a newer version of the contract, or add columns for new fields (``FindNewer``)."""
        context, contract = self._context, terms.contract
        newer = contract_to_take_up(context.store, contract, context.group)
        wanted = fields_to_add(contract, fields)
        if newer is None and wanted and self.add_columns is not None:
            self.add_columns(contract, wanted)
            newer = contract_to_take_up(context.store, contract, context.group)
        return None if newer is None else self.prepare_terms(newer, terms)

    def _prepare_terms(self, newer: Contract, before: Terms) -> Terms:
        return Terms(Preparer(newer, self._context.drain), before.dead_letters)

    def _check_topic(self) -> None:
        check_topic(self._context.contract, self._source, self._context.drain)

    def _start_job(self, *, now: bool = False) -> None:
        open_ = self._partitions.open
        # Partitions take turns in being first, so that none waits for ever.
        waiting = [one for one in open_.values() if one.pending is not None]
        waiting.sort(key=lambda one: (one.memtable.region.partition < self._cut, one.memtable.region.partition))
        if not waiting or self._fenced:
            return
        rows, nbytes = self._waiting()
        limits = self._limits
        full = rows >= limits.segment_rows or nbytes >= limits.segment_bytes
        if not now and not full and self._now() - self._sent_at < self._linger_s:
            return
        context = self._context
        consumed = list[Consumed]()
        nbytes, first_ms = 0, dict[Region, int]()
        for region in waiting:
            if region.pending is None:
                continue
            memtable, room = region.memtable, limits.segment_bytes - nbytes
            least = 0 if consumed else 1
            pending, region.pending = divided(region.pending, room, self._weights, least=least)
            if pending is not None:
                nbytes += pending.nbytes + self._weights.entry_bytes
                if pending.rows:
                    first_ms[memtable.region] = pending.records.timestamps[0]
                consumed.append(
                    Consumed(memtable.region, memtable.position, pending.next, pending.records, pending.nbytes)
                )
            if region.pending is not None:
                # Next time this partition comes first if it got nothing now, else the one after it.
                self._cut = memtable.region.partition + (pending is not None)
                break
        job = AppendJob(
            self._check_topic,
            self.terms,
            self.find_newer,
            self._writer,
            context.tasks,
            consumed,
            noting(context),
        )
        self._sent_at = self._now()
        self._flight.start(job, nbytes, first_ms)

    @property
    def _linger_s(self) -> float:
        limits = self._limits
        return max(limits.linger_s, min(limits.linger_puts * self._writer.put_s, LINGER_S_MAX))

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
        for stop in job.stops:
            region = self._partitions.open.get(stop.region)
            if region is not None:  # else given up meanwhile: its next owner reads the record again and stops there
                region.pending = None  # these records come after the one that stops it
                self._partitions.stop(stop.region, stop.error)

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
        """Begin a new log if the group coordinator confirms that we are a member; False if it does not.

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
            self._partitions.go_on(STOPPED_BY_POLICY)

    def _take_up_what_was_met(self) -> None:
        """Take up the newer version of the contract that a claim, or a flush from a log, has met."""
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

    def _memory_beside_waiting(self) -> int:
        open_ = sum(r.memtable.nbytes for r in self._partitions.open.values()) + self._sealing.nbytes
        beside = self._flushes.nbytes + self._bundling.nbytes
        return self._flight.nbytes * _DECODE_COPIES + open_ + beside

    def _observe(self) -> None:
        self._observer.memory(self._waiting()[1] + self._memory_beside_waiting(), self._memory_full)
        seen = self.durable, len(self._flushes)
        if seen != self._seen:
            self._seen = seen
            self._observer.positions(*seen)
