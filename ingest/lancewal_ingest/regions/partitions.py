"""The partitions of one ingest process: which wait to be opened, which are open, which have stopped.

::

    --assign--> waiting --open_due--> open --'leaving'--> no longer ours ^  |                | | not now: it '--'
                   | '--drop: another owner claimed its region--> waiting, or no longer ours, or stopped waits on
                   '--stop: it takes no more records--> open and stopped '--Kafka no longer has the next record:
                   stopped, and not open

Guarantees
 1. A partition that cannot be opened does not delay others: it waits for its next try (``retry_s``; ``damaged_s`` if a
    person must act first).  Only errors that concern the whole topic are raised.
 2. ``open_due`` opens due partitions together, ``AT_ONCE`` at a time.  After ``WorkerLimits.open_s`` it begins with no
    further ones; the others wait for the next turn.
 3. A partition stops alone.  The first error counts, until the partition is assigned again or reopened by ``go_on``.
    Reopening asks Kafka for the next record.  Until then it stays open, unless its log is fenced or another owner
    claims its region.  Records consumed before the stop become durable and are handed over.
 4. A region is given up by handing it over.  If that is impossible, because its log was fenced or a PUT is not settled,
    the loop drops the region, and the next owner fences the log.

The loop (``worker``) decides when: region states change only while no segment is unsettled (``seal``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lancewal_core.errors import ContractChanged, Corrupt, LancewalError, OwnershipLost, Refresh, Retry
from lancewal_core.names.ids import Position, Region, SchemaKey
from lancewal_core.region.state import GenerationRecord
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.append.pending import Pending
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import KafkaSource, Offsets, check_topic
from lancewal_ingest.observer import Observer
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.offset_commits import OffsetCommits
from lancewal_ingest.regions.open import Opened, open_regions
from lancewal_ingest.regions.policy import WorkerLimits
from lancewal_ingest.regions.seal import Answer

AT_ONCE = 256
"""Largest number of partitions that are opened together.  Between turns the consumer polls, and the loop reports that
it is alive."""


@dataclass(slots=True)
class OpenRegion:
    """A region with an OPEN generation that this process owns, or will own when the previous generation is sealed."""

    memtable: MemTable
    fetched: Position
    """Position after all records consumed so far."""
    pending: Pending | None = None
    """Consumed records that are in no segment yet."""
    sealing: MemTable | None = None
    """MemTable of the generation before, while its seal has no answer.  Until then the stored state does not have the
    generation of ``memtable``."""

    held_by: dict[SchemaKey, Position] = field(default_factory=dict)
    """By schema that this process has not read yet: the offset of the first consumed record that names it."""
    held_since: float = 0.0
    """Monotonic time in seconds since when the partition waits for schemas; means nothing while ``held_by`` is
    empty."""

    @property
    def held_from(self) -> Position | None:
        """Position of the first consumed record whose schema is not known yet; None if all schemas are known."""
        return min(self.held_by.values(), default=None)

    @property
    def takeable(self) -> bool:
        """Whether the next segment may take consumed records or a position from this region."""
        pending = self.pending
        if pending is None or self.held_from is None:
            return pending is not None
        return pending.rows > 0 and pending.records.offsets[0] < self.held_from

    def drop_pending(self) -> None:
        """Drop the consumed records that are in no segment yet.  They will be read from Kafka again."""
        self.pending = None
        self.held_by.clear()

    @property
    def unsealed_bytes(self) -> int:
        """Bytes of the rows whose generation is still OPEN in the store."""
        return self.memtable.nbytes + (0 if self.sealing is None else self.sealing.nbytes)


@dataclass(slots=True, eq=False)
class Partitions:
    """States of the partitions of one process.  Only the loop's thread may call.

    The loop reads the attributes in every pass.  It removes regions that it gives up from ``open``.
    """

    context: IngestContext
    """The open table with the contract version that this process follows; the loop replaces it."""
    source: KafkaSource
    observer: Observer
    flushes: FlushQueue
    commits: OffsetCommits
    limits: WorkerLimits
    at_once: int = AT_ONCE
    regions: frozenset[Region] = field(init=False)
    """All regions of the table, ours or not."""
    assigned: set[Region] = field(default_factory=set)
    """Partitions that the group assigned to us, also those that the contract does not name."""
    to_open: dict[Region, float] = field(default_factory=dict)
    """Assigned partitions that are not open, with the monotonic time of the next try."""
    open: dict[Region, OpenRegion] = field(default_factory=dict)
    stopped: dict[Region, LancewalError] = field(default_factory=dict)
    """Stopped partitions, with the error that stopped each."""
    outdated: bool = False
    """Whether a region was not claimed because a newer contract version has other columns.  The loop must follow that
    version first, and resets this."""
    ends: dict[Region, Position] = field(default_factory=dict)
    """End of each partition in Kafka when it was opened last."""
    _wait_since: dict[Region, float] = field(default_factory=dict)
    _refused: dict[Region, LancewalError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.regions = frozenset(self.context.contract.regions)

    @property
    def refused(self) -> dict[Region, LancewalError]:
        """Partitions that wait to be opened and whose last attempt failed, with the error."""
        return {region: error for region, error in self._refused.items() if region in self.to_open}

    @property
    def consuming(self) -> list[Region]:
        """Partitions that are open, have not stopped, and do not wait for schemas."""
        return [region for region, one in self.open.items() if region not in self.stopped and not one.held_by]

    # -- waiting and opening -------------------------------------------------------------------------------------

    def assign(self, regions: Iterable[Region]) -> None:
        """Record that these partitions now belong to this process, and must be opened."""
        now = self._now()
        for region in regions:
            self.assigned.add(region)
            self.stopped.pop(region, None)
            self._waits(region, now)

    def open_all_again(self) -> None:
        """Open again all partitions of this process that have not stopped.  Call this after the log was fenced, when no
        partition is open.
        """
        self.to_open.clear()
        for region in sorted(self.assigned - set(self.stopped)):
            self._waits(region, self._now())

    def open_due(self, writer: LogWriter, *, paused: bool) -> None:
        """Open the partitions that are due into the log of ``writer``, which must be settled.

        While the consumer is ``paused``, opened partitions return no records yet.  Raises ``ActionNeeded`` if the whole
        process must stop, because the topic was replaced or altered.
        """
        now = self._now()
        due = [region for region, at in self.to_open.items() if at <= now]
        for part in (due[at : at + self.at_once] for at in range(0, len(due), self.at_once)):
            if self._now() - now >= self.limits.open_s:
                return
            self._open(part, writer, paused=paused)

    def _open(self, due: Sequence[Region], writer: LogWriter, *, paused: bool) -> None:
        regions = [region for region in due if region in self.regions]
        try:
            check_topic(self.context.contract, self.source, self.context.drain)
        except (Retry, Refresh) as unanswered:
            self.to_open.update(dict.fromkeys(due, self._now() + self.limits.retry_s))
            self._refused.update(dict.fromkeys(due, unanswered))
            for region in regions:
                self.observer.claimed(region, "failed")
            self.observer.failed("open", unanswered)
            return
        # Partitions that the contract does not name are dropped: once it names them, the process ends (``draining``).
        self.to_open = {region: at for region, at in self.to_open.items() if region in self.regions}
        failed: list[LancewalError] = []
        for region, found in open_regions(self.context, writer, regions, self._offsets).items():
            match found:
                case Opened():
                    self._is_open(region, found, writer.length, paused=paused)
                case Retry() | Refresh() | OwnershipLost() | Corrupt() as error:
                    self._not_open(region, error)
                    failed.append(error)
                case error if "partition" in error.where:
                    del self.to_open[region]
                    self.stop(region, error)
                case error:
                    raise error
        for error in dict.fromkeys(failed):  # several regions of a page or of a log may have the same error
            self.observer.failed("open", error)

    def _not_open(self, region: Region, error: LancewalError) -> None:
        """Record that a region could not be opened because of ``error``, and when to try again."""
        self.observer.claimed(region, "lost" if isinstance(error, OwnershipLost) else "failed")
        self.outdated |= isinstance(error, ContractChanged)
        # A person must put back or repair what is lost or damaged: try less often.
        later_s = self.limits.damaged_s if isinstance(error, Corrupt) else self.limits.retry_s
        self.to_open[region] = self._now() + later_s
        self._refused[region] = error

    def _is_open(self, region: Region, opened: Opened, length: float, *, paused: bool) -> None:
        record, now = opened.record, self._now()
        self.observer.claimed(region, "won")
        del self.to_open[region]
        self._refused.pop(region, None)
        memtable = MemTable(region, record.generation, record.first_sequence, record.first, now, length)
        memtable.before = opened.no_row_yet
        self.open[region] = OpenRegion(memtable, record.first)
        # A position noted before another member had the partition must not be committed any more.
        self.commits.reached(region, record.first)
        for unflushed in opened.unflushed:
            self.flushes.add_from_log(region, unflushed)
        self.source.start(region, record.first)
        if paused:
            self.source.pause([region])
        self.observer.opened(region, record, now - self._wait_since.pop(region, now))

    def _waits(self, region: Region, again_at: float) -> None:
        """Record that a region is ours, and is to be opened from the monotonic time ``again_at`` on."""
        self.to_open[region] = again_at
        self._wait_since.setdefault(region, self._now())

    def _offsets(self, regions: Collection[Region]) -> Mapping[Region, Offsets | LancewalError]:
        found = self.source.offsets_of_each(regions)
        self.ends.update({p: one.high for p, one in found.items() if isinstance(one, Offsets)})
        return found

    # -- stopping ------------------------------------------------------------------------------------------------

    def stop(self, region: Region, error: LancewalError) -> None:
        """Stop a partition.  It takes no records until it is assigned again or ``go_on`` reopens it.

        The first error is kept.  A later error may concern a record that is read again.
        """
        if region in self.stopped:
            return
        self.stopped[region] = error
        if region in self.open:
            self.source.stop(region)
        self.observer.stopped(region, error)

    def go_on(self, stopped_by: tuple[type[LancewalError], ...], but: Collection[Region] = ()) -> None:
        """Reopen the partitions that an error of the types ``stopped_by`` has stopped, except those in ``but``.

        They begin at their durable positions.  No segment may be in flight, because it could stop them again.  No seal
        or re-anchoring of these regions may be without a result either (``Sealing.unsettled``).
        """
        self.open_again([r for r, error in self.stopped.items() if isinstance(error, stopped_by) and r not in but])

    def open_again(self, regions: Iterable[Region]) -> None:
        """Reopen these stopped partitions, under the same conditions as ``go_on``."""
        for region in regions:
            del self.stopped[region]
            self.open.pop(region, None)  # the rows of its MemTable are read from our log again
            self._waits(region, self._now())

    def open_anew(self, region: Region) -> None:
        """Close an open partition, and open it again.  Opening checks whether Kafka still has the next record."""
        self._close(region, 0.0)

    def drop(self, region: Region, error: OwnershipLost) -> None:
        """Close a region that another process has claimed.  Try to open it again if Kafka still assigns it to this
        process and it has not stopped.
        """
        self._close(region, self.limits.retry_s)
        self.observer.ownership_lost(region, error)

    def put_off(self, region: Region, error: Corrupt) -> None:
        """Close a partition whose stored state is damaged or has no room for another generation.  Try to open it later.

        Until then, no records of the partition are read.  Its durable rows stay durable; rows of its MemTable will be
        read from the log.
        """
        self.observer.failed("seal", error)
        if self._close(region, self.limits.damaged_s):
            self._refused[region] = error

    def _close(self, region: Region, later_s: float) -> bool:
        """Forget an open region; return whether it will be opened again, because it is still ours and has not
        stopped."""
        del self.open[region]
        self.source.stop(region)
        again = region in self.assigned and region not in self.stopped
        if again:
            self._waits(region, self._now() + later_s)
        return again

    # -- leaving -------------------------------------------------------------------------------------------------

    def leave(self, regions: Iterable[Region]) -> None:
        """Record that the group no longer assigns these partitions to this process.

        Open ones stay open until they are handed over.  Their pending records are dropped: the next owner reads them
        from Kafka."""
        for region in regions:
            self.assigned.discard(region)
            for known in (self.to_open, self._wait_since, self._refused, self.stopped):
                known.pop(region, None)
            open_ = self.open.get(region)
            if open_ is not None:
                open_.drop_pending()

    def handed_over(self, memtables: Iterable[MemTable], answers: Mapping[Region, Answer]) -> bool:
        """Take the results of handing over regions that are no longer open.

        Return False if some were not handed over.  Their next owner must fence this process's log.
        """
        failed: list[LancewalError] = []
        for memtable in memtables:
            match answers[memtable.region]:
                case GenerationRecord() as record:
                    self.commits.reached(memtable.region, memtable.position)
                    self.flushes.add(memtable, record)
                    self.observer.sealed(memtable.region, record)
                case OwnershipLost() as error:
                    self.commits.forget(memtable.region)
                    self.observer.ownership_lost(memtable.region, error)
                case error:
                    failed.append(error)
        for error in dict.fromkeys(failed):  # several regions of a page may have the same error
            self.observer.failed("hand-over", error)
        return not failed

    def _now(self) -> float:
        return self.context.clock.monotonic()
