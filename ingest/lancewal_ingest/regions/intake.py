"""Consumed records that are in no segment yet: how many may be consumed now, and which of them the next segment takes.

Guarantees
 1. Consumption stops when consumed, in-flight, OPEN and unflushed rows together reach the memory budget
    (``decode.weight``), and when a full segment waits.  If that lasts longer than ``hold_s``, the consumer is paused
    and polled, so that the process stays a member of its group.
 2. A partition of which Kafka lacks the next record stops alone.
 3. Partitions take turns in being first in a segment, so that none waits for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lancewal_core.errors import ActionNeeded
from lancewal_core.names.ids import Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_ingest.append.bundling import Bundling
from lancewal_ingest.append.pending import Pending, divided, joined, parted, weighed
from lancewal_ingest.append.prepare import Consumed
from lancewal_ingest.append.segment_in_flight import SegmentInFlight
from lancewal_ingest.decode.weight import RecordWeights
from lancewal_ingest.glibc_heap import use_own_pages
from lancewal_ingest.kafka.source import KafkaSource, Polled
from lancewal_ingest.regions.consumer_pause import ConsumerPause
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.partitions import Partitions
from lancewal_ingest.regions.policy import GENERATION_BYTES_MAX, MemoryPolicy, WorkerLimits
from lancewal_ingest.regions.schema_waits import SchemaWaits
from lancewal_ingest.regions.sealing import Sealing
from lancewal_kafka.records import Records

_DECODE_COPIES = 2
"""Copies of the records in flight: decoding holds values, their joined text and the rows at the same time."""
_FLUSH_POLL_S = 0.01
"""Longest poll in seconds while seals, flushes or a schema registry have not answered yet.  A small generation takes
about that time to be flushed."""
_GATHER_S, _GATHER_S_MAX = 0.005, 0.02
"""Least and most seconds for which a poll collects further records once it has one."""


@dataclass(frozen=True, slots=True)
class WorkBeside:
    """Work that runs in tasks in parallel with the loop."""

    flight: SegmentInFlight
    sealing: Sealing
    flushes: FlushQueue
    bundling: Bundling

    @property
    def nbytes(self) -> int:
        """Bytes of the records and rows that this work holds in memory."""
        in_flight = self.flight.nbytes * _DECODE_COPIES
        return in_flight + self.sealing.nbytes + self.flushes.nbytes + self.bundling.nbytes

    def wait(self, timeout_s: float) -> bool:
        """Wait for the segment in flight, or else for the seals, or else for the flush.  Return False if none of them
        is running.
        """
        if self.flight.running:
            self.flight.wait(timeout_s)
        elif self.sealing.busy:
            self.sealing.wait(timeout_s)
        elif len(self.flushes):
            self.flushes.wait(timeout_s)
        else:
            return False
        return True


@dataclass(slots=True)
class TakenIn:
    """Records that were taken for one segment."""

    consumed: list[Consumed] = field(default_factory=list)
    nbytes: int = 0
    """Weight of the records and of their entries."""
    first_ms: dict[Region, int] = field(default_factory=dict)
    """Kafka's time of the first record of each partition, in milliseconds since 1970."""


@dataclass(slots=True, eq=False)
class Intake:
    """Consumed records of the open partitions that are in no segment yet.  Only the loop's thread may call."""

    clock: Clock
    source: KafkaSource
    partitions: Partitions
    beside: WorkBeside
    pause: ConsumerPause
    policy: MemoryPolicy
    limits: WorkerLimits
    weights: RecordWeights
    expected: float
    """Expected weight of each of the next records."""
    schemas: SchemaWaits | None = None
    held: bool = False
    """Whether an operator has paused consumption."""
    memory_full: bool = False
    _cut: int = 0
    """Lowest number of a partition that may be first in the next segment; lower numbers come after the others."""
    _full_since: float | None = None
    """Monotonic seconds since when nothing more may be consumed; None while records may be consumed."""

    @property
    def some(self) -> bool:
        """Whether the next segment would have any record or position."""
        return any(one.takeable for one in self.partitions.open.values())

    @property
    def waiting(self) -> tuple[int, int]:
        """Number of consumed records that are not in a segment yet, and their weight."""
        rows = nbytes = 0
        for region in self.partitions.open.values():
            if region.pending is not None:
                rows += region.pending.rows
                nbytes += region.pending.nbytes
        return rows, nbytes

    @property
    def takeable(self) -> tuple[int, int]:
        """Number and weight of the waiting records that the next segment may take."""
        rows = nbytes = 0
        for one in self.partitions.open.values():
            if one.takeable and one.pending is not None:
                rows += one.pending.rows
                nbytes += one.pending.nbytes
        return rows, nbytes

    @property
    def segment_full(self) -> bool:
        """Whether the waiting records fill a segment."""
        return self._is_segment(*self.takeable)

    @property
    def nbytes(self) -> int:
        """Bytes of all records and rows in memory."""
        return self.waiting[1] + self._rows_nbytes

    def weigh_by(self, weights: RecordWeights) -> None:
        """Use new weights, which follow from a newer version of the contract."""
        self.expected += max(0, weights.row_bytes - self.weights.row_bytes)
        self.weights = weights

    def consume(self, timeout_s: float, due_s: float) -> None:
        """Poll, and keep the records.  While nothing more may be consumed, wait for running work instead.

        ``due_s``: seconds until a segment may be sent.
        """
        rows, nbytes = self.waiting
        limits, now = self.limits, self.clock.monotonic()
        # A full segment alone does not throttle: only the memory budget does.
        used = nbytes + self._rows_nbytes
        self.memory_full = self.policy.paused(used, self.beside.flushes.of_one_region, self.memory_full)
        if self.memory_full:
            self.beside.bundling.drop()
        ready_rows, ready_bytes = self.takeable
        full = self.memory_full or self._is_segment(ready_rows, ready_bytes)
        # If the store takes segments but no state page, a generation cannot be sealed, and must not grow further.
        full = full or any(r.unsealed_bytes >= GENERATION_BYTES_MAX for r in self.partitions.open.values())
        if not full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        if self._full_since is not None and not self.held:
            brief = now - self._full_since < limits.hold_s
            if brief and self.beside.wait(timeout_s):
                return
        self.pause.set(full or self.held)
        room = min(limits.segment_bytes - ready_bytes, self.policy.nbytes - used)
        wanted = max(1, min(limits.poll_records, limits.segment_rows - ready_rows, int(room / self.expected)))
        self.beside.flight.let_decode(timeout_s)  # else both would wait for the interpreter's lock
        with point("poll"):
            polled = self._poll(wanted, self._poll_timeout(timeout_s), due_s)
        self._take(polled)
        more_rows, more_bytes = self.waiting
        if more_rows > rows:
            # A region that left during the poll took its bytes along, so the mean may be too small: lower it only by halves.
            mean = (more_bytes - nbytes) / (more_rows - rows)
            self.expected = max(self.expected / 2, mean)

    def next_segment(self) -> TakenIn:
        """Take as many waiting records as fit into one segment."""
        taken = TakenIn()
        waiting = [one for one in self.partitions.open.values() if one.takeable]
        waiting.sort(key=lambda one: (one.memtable.region.partition < self._cut, one.memtable.region.partition))
        for one in waiting:
            if one.pending is None:
                continue
            memtable, room = one.memtable, self.limits.segment_bytes - taken.nbytes
            before, held = one.pending, None
            if one.held_from is not None:
                before, held = parted(one.pending, one.held_from, self.weights)
            pending, rest = divided(before, room, self.weights, least=0 if taken.consumed else 1)
            one.pending = rest or held
            if rest is not None and held is not None:
                one.pending = joined(rest, held.records, held.next, held.nbytes)
            if pending is not None:
                taken.nbytes += pending.nbytes + self.weights.entry_bytes
                if pending.rows:
                    taken.first_ms[memtable.region] = pending.records.timestamps[0]
                taken.consumed.append(
                    Consumed(
                        memtable.region,
                        memtable.position,
                        pending.next,
                        pending.records,
                        pending.nbytes,
                        memtable.no_row_yet,
                    )
                )
            if rest is not None:
                # Next time this partition comes first if it got nothing now, else the one after it.
                self._cut = memtable.region.partition + (pending is not None)
                break
        return taken

    def give_back(self, consumed: Sequence[Consumed]) -> None:
        """Take back all records of a segment that could not be decoded, because this process has not read a schema."""
        ours = self.partitions.open.keys() & self.partitions.assigned  # not those that are leaving
        taken = {one.region: one for one in consumed if one.region in ours and len(one.records)}
        if self.schemas is not None and taken:
            records = {region: given.records for region, given in taken.items()}
            self.schemas.consumed(records, Records.joined(list(records.values())))
        for region, given in taken.items():
            one = self.partitions.open[region]
            pending, nbytes = one.pending, int(self.weights.each(given.records).sum())
            one.pending = Pending(given.records, given.next, nbytes)
            if pending is not None:
                one.pending = joined(one.pending, pending.records, pending.next, pending.nbytes)

    @property
    def _rows_nbytes(self) -> int:
        """Bytes in memory of MemTables and of work that runs beside the loop."""
        return sum(r.memtable.nbytes for r in self.partitions.open.values()) + self.beside.nbytes

    def _is_segment(self, rows: int, nbytes: int) -> bool:
        return rows >= self.limits.segment_rows or nbytes >= self.limits.segment_bytes

    def _poll(self, records_max: int, timeout_s: float, due_s: float) -> Polled:
        # If a segment may be sent, further records are collected for a short time only.  Until then a poll for each few
        # records would gain nothing, and each poll costs some work for every partition.
        gather_s = min(max(due_s, _GATHER_S), _GATHER_S_MAX)
        try:
            return self.source.poll(records_max, timeout_s, gather_s)
        except ActionNeeded as error:
            at = error.where.get("topic"), error.where.get("partition")
            region = next((r for r in self.partitions.assigned if (r.topic, r.partition) == at), None)
            if region is None:
                raise
            # The partition's next offset is gone: only this partition stops.  Records consumed before still become
            # durable, because Kafka may have lost them too.
            self.partitions.stop(region, error)
            return Polled({}, {})

    def _poll_timeout(self, timeout_s: float) -> float:
        beside = self.beside
        if beside.flight.running or self.some:
            return min(timeout_s, self.limits.linger_s / 2)
        waits = self.schemas is not None and self.schemas.soon_over
        if beside.sealing.busy or len(beside.flushes) or waits:
            return min(timeout_s, _FLUSH_POLL_S)
        return timeout_s

    def _take(self, polled: Polled) -> None:
        now = self.clock.monotonic()
        open_ = self.partitions.open
        stopped, idle_s, busy = self.partitions.stopped, self.limits.idle_position_s, self.beside.flight.busy
        taken = {r: found for r, found in polled.records.items() if r in open_ and r not in stopped and found.offsets}
        weights, large = dict[Region, int](), False
        if taken:
            together = Records.joined(list(taken.values()))
            # First: a partition that waits has its records weighed again, once their schemas are known.
            if self.schemas is not None:
                self.schemas.consumed(taken, together)
            weights, large = weighed(taken, together, self.weights)
        if large:
            use_own_pages()  # large records would leave holes in the heap
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
