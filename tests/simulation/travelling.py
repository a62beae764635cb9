"""Reads at points in time, reads that wait, and reads that may be stale, of a world: each compared with what happened.

What must hold, with clocks wrong by ``MAX_SKEW_MS`` at most
 1. ``positions:`` gives the records below them, whether they divide an entry or lie below what is merged.
 2. ``timestamp:`` has all that was durable so much before, and nothing that was not produced so much after; what a user
    did to the table shows as of a version that was the newest at that time by the clock of who committed.
 3. ``record-time:`` begins after no record whose timestamp is not below the time, whether that is kept or trimmed.
 4. ``version:`` has what its merges say.
 5. ``at_least`` has its record; it is not awaited in vain where the record was durable before, and one that became a dead
    letter is told as long as its entry is kept.
 6. ``max_staleness_s`` has all that was durable so long ago.
What is gone is named by an error, and only what is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from lancewal_core.errors import (
    InvalidInput,
    MergedPositionUnknown,
    ObjectMissing,
    OutsideHistoryWindow,
    TokenRejected,
    TokenTimeout,
    VersionGone,
)
from lancewal_core.names.ids import Region, TableVersion
from lancewal_reader.point.at import At, AtPositions, AtRecordTime, AtTimestamp, AtVersion
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.point.token import Token
from tests.simulation.checker import require
from tests.simulation.oracle import Record
from tests.simulation.reading import Reading
from tests.simulation.world import MAX_SKEW_MS, PASSING, Process, World
from tests.twins.sim_clock import EPOCH_MS

_Point = AtPositions | AtTimestamp | AtRecordTime | AtVersion
_GONE = (VersionGone, OutsideHistoryWindow, MergedPositionUnknown)


@dataclass(frozen=True, slots=True)
class _Read:
    """What came of a read at a point."""

    receipt: Receipt
    batches: list[pa.RecordBatch]

    @property
    def cut(self) -> dict[int, int]:
        return {region.partition: int(position) for region, position in self.receipt.positions.items()}


class Travelling:
    """What one process reads at points.  Its methods raise ``Violation``, and what passes."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.reading = Reading(world, process)

    # -- points --------------------------------------------------------------------------------------------------

    def at_positions(self, wanted: Mapping[int, int]) -> None:
        """Positions that are durable, of all partitions."""
        world = self._world
        there = set(world.dataset.versions)
        with self._gone("positions", lambda: self._nothing_below(there, wanted)):
            found = self._read(At.positions(wanted))
            require(found.cut == dict(wanted), "positions: another cut", found.cut, "than", wanted)
            self._check_newest_below(found, there)
            self._check_rows("positions", found)

    def at_timestamp(self, ms: int) -> None:
        """A time that is there by this process's clock."""
        world = self._world
        before = self._versions_of(ms)
        with self._gone("timestamp", lambda: self._no_version_of(ms)):
            found = self._read(AtTimestamp(ms))
            durable = world.durable_at(ms - MAX_SKEW_MS)
            short = {p: n for p, n in durable.items() if found.cut.get(p, 0) < n}
            require(not short, f"timestamp {ms}: durable long before:", short, "of", found.cut)
            late = [r for p, n in found.cut.items() for r in self._records(p, 0, n) if r.timestamp > ms + MAX_SKEW_MS]
            require(not late, f"timestamp {ms}: produced long after:", late[:1])
            shown = world.by_hand.own_rows(found.receipt.version)
            then = [world.by_hand.own_rows(version) for version in before | self._versions_of(ms)]
            require(shown in then, f"timestamp {ms}: rows of a user", shown, "instead of", then)
            self._check_rows("timestamp", found)

    def at_record_time(self, ms: int) -> None:
        """A time of records."""
        world = self._world
        known, there = dict(world.acknowledged), set(world.dataset.versions)
        with self._gone("record-time", lambda: self._nothing_below(there, None)):
            found = self._read(AtRecordTime(ms))
            for partition, position in found.cut.items():
                high = world.topic.partitions[partition].high
                from_then = [
                    r.offset for r in self._records(partition, 0, high) if r.op is not None and r.timestamp >= ms
                ]
                whole = position >= known.get(partition, 0)
                where = f"record-time {ms}: partition {partition} up to {position}"
                require(whole or position in from_then, f"{where} lacks what was before", from_then[:1], known)
                early = [offset for offset in from_then if offset < position]
                kept = self._trimmed(partition)
                require(not early, f"{where}, though these are not before:", early[:3], f"(trimmed up to {kept})")
            self._check_newest_below(found, there)
            self._check_rows("record-time", found)

    def at_version(self, version: int) -> None:
        """A version that was there."""
        world = self._world
        with self._gone("version", lambda: version not in world.dataset.versions):
            found = self._read(AtVersion(TableVersion(version)))
            require(found.receipt.version == version, f"version {version}: it is", found.receipt.version)
            merged = {p: n for p, n in world.merged_by(version).items() if n}
            require({p: n for p, n in found.cut.items() if n} == merged, f"version {version} of", merged, found.cut)
            self._check_rows("version", found)

    def not_there_yet(self) -> None:
        """Neither a time nor positions that nobody has reached are answered."""
        world, clock = self._world, self._process.clock
        ahead, ms = {p: log.high + 20 for p, log in enumerate(world.topic.partitions)}, clock.now_ms() + 60_000
        for point in (At.positions(ahead), AtTimestamp(ms)):
            try:
                found = self._read(point)
            except InvalidInput:
                world.note("read of what is not there yet")
                continue
            by_now = isinstance(point, AtTimestamp) and ms <= clock.now_ms()  # time has made a jump
            reached = all(world.topic.partitions[p].high >= n for p, n in ahead.items())
            require(by_now or reached, f"{point} was answered, by", found.receipt)

    # -- reads that wait, and that need not be new ---------------------------------------------------------------

    def at_least(self, record: Record, partition: int, timeout_s: float) -> None:
        """By the token of a record that was produced."""
        world = self._world
        known, position = dict(world.acknowledged), record.offset + 1
        durable = known.get(partition, 0) >= position
        try:
            result = self.reading.strong(
                at_least=Token.of((world.topic.name, partition, record.offset)), timeout_s=timeout_s
            )
        except TokenTimeout as error:
            require(not durable, f"at_least: record {partition}-{record.offset} was durable, but", error)
            reached = cast("dict[str, int]", error.where["reached"])[f"{world.topic.name}-{partition}"]
            require(known.get(partition, 0) <= reached < position, f"at_least: {position} reached:", error)
            world.note("read at least: TokenTimeout")
            return
        except TokenRejected:
            require(record.op is None, f"at_least: record {partition}-{record.offset} is a row, and rejected")
            world.note("read at least: TokenRejected")
            return
        require(result[partition] >= position, f"at_least: record {partition}-{record.offset} is not in", result)
        kept = record.offset >= self._trimmed(partition)
        require(
            record.op is not None or not kept, f"at_least: record {partition}-{record.offset} is no row, nor rejected"
        )
        world.note("read at least" if durable else "read at least, awaited")

    def at_least_receipt(self, receipt: Receipt, timeout_s: float) -> None:
        """A read that is not older than another one."""
        result = self.reading.strong(at_least=receipt, timeout_s=timeout_s)
        back = {r.partition: n for r, n in receipt.positions.items() if result.get(r.partition, 0) < n}
        require(not back, "at_least of a receipt: older in", back)
        self._world.note("read at least a receipt")

    def stale(self, seconds: float) -> None:
        """By a plan that may be so old."""
        now_ms = EPOCH_MS + int(self._world.scheduler.now * 1000)
        self.reading.strong(max_staleness_s=seconds, known=self._world.durable_at(now_ms - int(seconds * 1000) - 1))
        self._world.note("read that may be stale")

    # -- what is compared ----------------------------------------------------------------------------------------

    def _read(self, point: _Point) -> _Read:
        batches = self.reading.table.to_batches(at=str(point))
        return _Read(receipt_of(batches.schema), list(batches))

    def _check_rows(self, kind: str, found: _Read) -> None:
        world, receipt = self._world, found.receipt
        where = f"{self._process.name} {kind}: version {receipt.version} cut {found.cut}"
        cut: dict[Region, int] = {region: int(position) for region, position in receipt.positions.items()}
        rows = world.check_rows(found.batches, cut, receipt.version, where)
        world.reads.append((receipt, rows))
        world.note(f"read at {kind}")

    @contextmanager
    def _gone(self, kind: str, holds: Callable[[], bool]) -> Iterator[None]:
        """What is read within may be gone, where that holds."""
        world = self._world
        try:
            yield
        except _GONE as error:
            if isinstance(error, VersionGone):
                require(holds(), f"{kind}: nothing is gone, but", error)
            if isinstance(error, OutsideHistoryWindow):
                states = world.checker.states.read(world.contract.regions)
                trimmed = any(state.trimmed for state in states.values())  # not only what has no record
                require(trimmed, f"{kind}: nothing is trimmed, but", error)
            world.note(f"read at {kind}: {type(error).__name__}")

    def _records(self, partition: int, first: int, next_: int) -> list[Record]:
        return self._world.topic.partitions[partition].between(first, next_)

    def _trimmed(self, partition: int) -> int:
        world = self._world
        region = world.contract.regions[partition]
        found = world.checker.states.read([region]).get(region)
        return 0 if found is None else int(found.trimmed)

    def _versions_of(self, ms: int) -> set[int]:
        """Versions that were committed by then, while the next one was not."""
        dataset = self._world.dataset
        by_then = {version for version in dataset.stored_ms if dataset.committed_ms(version) <= ms}
        return {version for version in by_then if version + 1 not in by_then}

    def _no_version_of(self, ms: int) -> bool:
        """Whether one of then may be gone, or there was none."""
        dataset = self._world.dataset
        return len(dataset.versions) < len(dataset.stored_ms) or dataset.committed_ms(1) > ms

    def _below(self, version: int, cut: Mapping[int, int]) -> bool:
        """Whether it lies below the cut, and its merge is there, too, which else a listing tells of, or does not."""
        world = self._world
        landed = [v for v in world.dataset.landed if v.number <= version]
        merges = [v.number for v in landed if "lancewal.watermarks" in v.transaction.properties]
        told = merges[-1:] or range(1, version)
        known = world.dataset.versions.keys() >= set(told)
        return known and all(cut.get(p, 0) >= n for p, n in world.merged_by(version).items())

    def _nothing_below(self, there: set[int], cut: Mapping[int, int] | None) -> bool:
        """Whether no version that was there all the time lies below the cut, or one went meanwhile; of some other cut, whether
        any is gone."""
        world = self._world
        if cut is None or there - world.dataset.versions.keys():
            return len(world.dataset.versions) < len(world.dataset.stored_ms)
        return not any(self._below(version, cut) for version in there & world.dataset.versions.keys())

    def _check_newest_below(self, found: _Read, there: set[int]) -> None:
        """Of versions that were there all the time none is newer and lies below the cut."""
        world, version = self._world, found.receipt.version
        newer = [v for v in there & world.dataset.versions.keys() if v > version and self._below(v, found.cut)]
        require(not newer, f"read by version {version}, though these lie below {found.cut}, too:", sorted(newer))


def traveller(world: World, process: Process) -> None:
    """Reads at points, waits, and is content with what is stale, one after the other."""
    travelling, rng = Travelling(world, process), process.rng
    while True:
        now_ms, known = process.clock.now_ms(), world.acknowledged
        act = rng.choice(["positions", "positions", "timestamp", "timestamp", "record-time", "version", "ahead",
                          "at least", "at least", "receipt", "stale", "stale"])  # fmt: skip
        try:
            match act:
                case "positions":
                    travelling.at_positions(
                        {p: rng.randint(0, known.get(p, 0)) for p in range(world.settings.partitions)}
                    )
                case "timestamp":
                    travelling.at_timestamp(now_ms - rng.choice([0, 200, 2_000, 5_000, 20_000]))
                case "record-time":
                    travelling.at_record_time(now_ms - rng.choice([0, 200, 2_000, 5_000, 20_000]))
                case "version":
                    travelling.at_version(rng.choice(sorted(world.dataset.stored_ms)))
                case "ahead":
                    travelling.not_there_yet()
                case "at least":
                    partition = rng.randrange(world.settings.partitions)
                    records = world.topic.partitions[partition].records
                    if records:
                        travelling.at_least(rng.choice(records[-8:]), partition, rng.choice([0.0, 0.3, 2.0]))
                case "receipt" if world.reads:
                    travelling.at_least_receipt(rng.choice(world.reads)[0], 2.0)
                case "stale":
                    travelling.stale(rng.choice([0.1, 1.0, 5.0]))
        except (*PASSING, VersionGone, ObjectMissing) as error:
            lost = world.losses.named_by(error)
            require(lost or not isinstance(error, ObjectMissing), f"{process.name}: nothing is lost, but", error)
            world.note(f"{act}: {type(error).__name__}")
            world.log(f"{process.name} {act}: {error}")
        world.scheduler.sleep(rng.choice([0.0, 0.05, 0.4]))
