"""Partitions that wait for the schemas of consumed records.

Guarantees
 1. No record whose schema this process has not read goes into a segment.  Records before it do.
 2. A partition that waits is paused.  Its consumed records stay in memory, within the budget.  Other partitions go on.
 3. A partition stops before the record if a person must see to its schema.  If the schema is found later, the
    partition goes on.
 4. If the registry has another schema for an id than the one that the table has stored, partitions stop.  These are the
    partitions with records that name the id and came since both schemas were last found equal.  Their error names these
    records.  No other record of that id is decoded.
 5. After a wait longer than ``ASK_AFTER_S`` the partition is opened again, which checks whether Kafka still has its
    records and deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from lancewal_core.errors import (
    BadRecord,
    ColumnUnknown,
    LancewalError,
    RegistryUnavailable,
    SchemaIdReused,
    WrongFormat,
)
from lancewal_core.names.ids import Position, Region, SchemaKey
from lancewal_core.process.clock import Clock
from lancewal_ingest.append.pending import parted
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.kafka.source import KafkaSource
from lancewal_ingest.regions.consumer_pause import ASK_AFTER_S, ConsumerPause
from lancewal_ingest.regions.partitions import OpenRegion, Partitions
from lancewal_ingest.registry.comparison import SchemaComparison
from lancewal_ingest.registry.lookups import SchemaLookups
from lancewal_kafka.records import Records

IDLE_S = 3600.0
"""Seconds without a record after which a schema is not in use any more."""
_OF_A_RECORD = (BadRecord, WrongFormat, ColumnUnknown)
"""Errors of a record that another schema may explain."""


@dataclass(frozen=True, slots=True)
class SchemaWait:
    """A partition that waits for schemas."""

    since: float
    """Monotonic time in seconds since when the partition waits."""
    schemas: tuple[SchemaKey, ...]
    error: RegistryUnavailable | None
    """Why the registry has not answered.  None while the first answer is awaited.  None too if the registry does not know
    the schema yet."""


@dataclass(slots=True, eq=False)
class SchemaWaits:
    """Finder of partitions that wait for schemas, or must stop because of a schema.  Only the loop's thread may
    call."""

    clock: Clock
    source: KafkaSource
    partitions: Partitions
    pause: ConsumerPause
    lookups: SchemaLookups
    comparison: SchemaComparison | None
    preparer: Callable[[], Preparer]
    """Function that returns the decoder of the contract version in use."""
    failed: Callable[[str, object], None]
    """Function that is told of a lookup without an answer: the name of the operation, and the cause."""
    _stopped: dict[Region, tuple[SchemaKey, LancewalError]] = field(default_factory=dict)
    """Partitions that a schema has stopped, and the error that they show."""
    _used: dict[SchemaKey, dict[Region, tuple[int, int]]] = field(default_factory=dict)
    """By schema and partition, two offsets of records that name the schema.  The first record is the oldest since the
    stored schema and the registry's were last found equal; the second one is the newest."""
    _used_at: dict[SchemaKey, float] = field(default_factory=dict)
    """Monotonic seconds of the newest record of each schema."""
    _compared: dict[SchemaKey, dict[Region, int]] = field(default_factory=dict)
    """By schema and partition: offset of the newest record when the running comparison began.  It is lower if an
    earlier record has been read again since."""

    @property
    def soon_over(self) -> bool:
        """Whether some partitions wait, and a lookup may end soon."""
        return self.lookups.expecting

    @property
    def waits(self) -> Mapping[Region, SchemaWait]:
        """Partitions that wait now."""
        return {region: self._wait(one) for region, one in self.partitions.open.items() if one.held_by}

    def _wait(self, one: OpenRegion) -> SchemaWait:
        left = tuple(sorted(one.held_by))
        causes = (found.cause for key in left if (found := self.lookups.waiting.get(key)) is not None)
        cause = next((cause for cause in causes if cause is not None), None)
        if cause is None:
            return SchemaWait(one.held_since, left, None)
        kind = type(cause) if isinstance(cause, RegistryUnavailable) else RegistryUnavailable
        return SchemaWait(one.held_since, left, kind(f"records wait for schema {', '.join(left)}: {cause}"))

    def consumed(self, polled: Mapping[Region, Records], together: Records) -> None:
        """Let each partition wait whose polled records name schemas that are not known yet.

        Each partition must have records, which must be in no ``Pending`` yet.  There must be at least one partition.
        ``together``: the records of all partitions, in the same order.
        """
        preparer = self.preparer()
        if not preparer.names_schemas:
            return
        named = preparer.schemas_of(together)
        missing = set(self.lookups.missing([key for key, _ in named]))
        borders = [0, *accumulate(map(len, polled.values()))]
        for key, indexes in named:
            used, compared = self._used.setdefault(key, {}), self._compared.get(key, {})
            self._used_at[key] = self.clock.monotonic()
            # Indexes ascend, and offsets do in each partition.
            at = pairwise(np.searchsorted(indexes, borders).tolist())
            for (region, records), start, (begin, end) in zip(polled.items(), borders, at, strict=False):
                if begin == end:
                    continue
                first, last = (records.offsets[int(indexes[place]) - start] for place in (begin, end - 1))
                # A partition that was opened again reads records once more.
                before = used.get(region, (first, last))
                used[region] = (min(before[0], first), max(before[1], last))
                if region in compared:
                    compared[region] = min(compared[region], first)
                if key in missing:
                    self._hold(region, Position(first), key)

    def _hold(self, region: Region, at: Position, key: SchemaKey) -> None:
        one = self.partitions.open[region]
        if not one.held_by:
            one.held_since = self.clock.monotonic()
            self.source.pause([region])
        one.held_by[key] = min(at, one.held_by.get(key, at))

    def advance(self, unsettled: Collection[Region]) -> None:
        """Release the partitions whose schemas are known now.  Stop the partitions for whose schema a person must act.

        No segment may be in flight.  ``unsettled``: partitions that cannot be reopened yet, because their seals have no
        result.
        """
        held = {region: one for region, one in self.partitions.open.items() if one.held_by}
        shown = self.partitions.stopped
        self._stopped = {region: one for region, one in self._stopped.items() if shown.get(region) is one[1]}
        self._compare()
        if not held and not self._stopped and not self.lookups.waiting:
            return
        stopping = (key for key, _ in self._stopped.values())
        self.lookups.keep({*stopping, *(key for one in held.values() for key in one.held_by)})
        for cause in self.lookups.advance():
            self.failed("schema", cause)
        now = self.clock.monotonic()
        for region, one in held.items():
            if region not in unsettled or now - one.held_since <= ASK_AFTER_S:
                self._look(region, one)
        found = [r for r, (key, _) in self._stopped.items() if self.lookups.known(key) and r not in unsettled]
        self.partitions.open_again(found)

    def _compare(self) -> None:
        """Take the findings of a comparison with the registry."""
        if self.comparison is None:
            return
        alike, reused = self.comparison.settle(self.lookups.counts)
        for key in alike:
            for region, last in self._compared[key].items():
                self._used[key][region] = (last, self._used[key][region][1])
            self._forget_if_idle(key)
        for key, error in reused.items():
            self.lookups.doubt(key, error)
            del self._used_at[key]
            for region, (first, last) in self._used.pop(key).items():
                stopped = self.partitions.stopped.get(region)
                if region in self.partitions.open and (stopped is None or isinstance(stopped, _OF_A_RECORD)):
                    self._doubt(region, key, error, (first, last))
        used = [key for key in self._used if self.lookups.known(key)]
        if self.comparison.begin_if_due(used, self.lookups.counts):
            self._compared = {key: {region: last for region, (_, last) in self._used[key].items()} for key in used}

    def _forget_if_idle(self, key: SchemaKey) -> None:
        """Forget a schema that was found equal, if no record has named it for ``IDLE_S``.  Forget its partitions that
        are not open any more.

        A partition with records that came during the comparison is kept."""
        open_, used = self.partitions.open, self._used[key]
        used = {region: span for region, span in used.items() if region in open_ or span[0] < span[1]}
        idle = self.clock.monotonic() - self._used_at[key] > IDLE_S and all(
            span[0] == span[1] for span in used.values()
        )
        self._used[key] = used
        if idle or not used:
            del self._used[key], self._used_at[key]

    def rejected(self, region: Region, first: int, last: int) -> None:
        """Note that records in this range of offsets are bad, so that their schemas are soon compared with the
        registry.
        """
        if self.comparison is None:
            return
        for key, used in self._used.items():
            span = used.get(region)
            if span is not None and span[0] <= last and first <= span[1]:
                self.comparison.hasten(key)

    def _doubt(self, region: Region, key: SchemaKey, error: SchemaIdReused, span: tuple[int, int]) -> None:
        """Stop a partition whose records may have become wrong rows.  No more of its records are decoded.

        ``span``: the first and the last of these records."""
        self.partitions.open[region].drop_pending()
        place = f"topic {region.topic} partition {region.partition}"
        since = f"{region.topic}-{region.partition}-{span[0]}"
        wrong = (
            f"With `--from {since}` records before that one are read by the stored schema. Rows of offsets {span[0]} to "
            f"{span[1]} that name the schema may be wrong: they came since both schemas were last found equal"
        )
        shown = SchemaIdReused(f"{place}: {error}. {wrong}", **{**error.where, **region.place})
        self._stopped[region] = key, shown
        self.partitions.stopped.pop(region, None)  # by a bad record: this is why
        self.partitions.stop(region, shown)

    def _look(self, region: Region, one: OpenRegion) -> None:
        """Release the records of a partition whose schemas are known now.  Stop the partition if a person must act for
        the schema of the first record that still waits."""
        known = [key for key in one.held_by if self.lookups.known(key)]
        for key in known:
            del one.held_by[key]
        if known and one.pending is not None and one.pending.rows:
            # Records of a schema that nobody had seen were weighed as they came.
            one.pending.nbytes = int(self.preparer().weights.each(one.pending.records).sum())
        if one.held_by:
            key = min(one.held_by, key=lambda key: one.held_by[key])
            failure = self.lookups.failure(key)
            if failure is not None:
                self._stop(region, one, key, failure)
        elif region in self.partitions.stopped:
            return  # it delivers nothing until it is opened again
        elif self.clock.monotonic() - one.held_since > ASK_AFTER_S:
            self.partitions.open_anew(region)
        elif not self.pause.on:
            self.source.resume([region])

    def _stop(self, region: Region, one: OpenRegion, key: SchemaKey, failure: LancewalError) -> None:
        at = one.held_by[key]
        one.held_by.clear()
        if one.pending is not None:
            first, _ = parted(one.pending, at, self.preparer().weights)
            one.pending = first if first.rows else None
        error = region.record_error(type(failure), at, str(failure), **failure.where)
        self._stopped[region] = key, error
        self.partitions.stop(region, error)
