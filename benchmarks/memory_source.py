"""A ``KafkaSource`` over lists, for benchmarks that do not measure Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from confluent_kafka import TIMESTAMP_CREATE_TIME
from confluent_kafka import Message as Fetched

from benchmarks.workload import Message
from lancewal_core.errors import LancewalError
from lancewal_core.names.ids import Position, Region, position_after
from lancewal_core.rows.murmur2 import partition_of
from lancewal_ingest.kafka.source import Offsets, Polled, PollListener, Positions
from lancewal_kafka.records import Records, by_partition
from lancewal_kafka.topic import TopicFacts


class MemorySource:
    """Partitions of one topic, all or ``ours``, assigned at the first poll.  Records of others are passed over."""

    def __init__(self, regions: Sequence[Region], ours: Sequence[Region] | None = None) -> None:
        self._regions = regions
        self._ours = regions if ours is None else ours
        self._has = frozenset(self._ours)
        self._records = [Records([], [], [], [], []) for _ in regions]
        self._next: dict[Region, Position] = {}
        self._listener: PollListener | None = None
        self._fetched: list[Fetched] = []
        self._taken = 0
        """Of what is fetched."""

    def part(self, ours: Sequence[Region]) -> MemorySource:
        """The same topic as another member has it."""
        other = MemorySource(self._regions, ours)
        other._records = self._records
        return other

    def append(self, message: Message) -> None:
        partition = partition_of(message.key, len(self._records))
        if self._regions[partition] in self._has:
            records = self._records[partition]
            records.offsets.append(len(records))
            records.timestamps.append(1_700_000_000_000)
            records.keys.append(message.key)
            records.values.append(message.value)
            records.headers.extend([None if message.op == "upsert" else [("lancewal.op", message.op.encode())]])

    def fetch(self, each: int) -> None:
        """All that lies ahead, as librdkafka's threads have it ready before it is asked for: ``each`` messages at a time of
        all partitions alike, in runs of a partition."""
        self._fetched, self._taken = [], 0
        at = dict(self._next)
        run = max(1, each // len(at))
        while any(position < len(self._records[region.partition]) for region, position in at.items()):
            for region, position in at.items():
                records = self._records[region.partition].part(position, position + run)
                at[region] = Position(position + len(records))
                self._fetched.extend(
                    Fetched(
                        topic="benchmark", partition=region.partition, offset=offset, key=_anew(key), value=_anew(value),
                        headers=None if headers is None else list(headers), timestamp=(TIMESTAMP_CREATE_TIME, timestamp),
                    )
                    for offset, timestamp, key, value, headers in zip(
                        records.offsets, records.timestamps, records.keys, records.values, records.headers, strict=True
                    )
                )  # fmt: skip

    @property
    def ends(self) -> dict[Region, int]:
        return {region: len(self._records[region.partition]) for region in self._ours}

    def subscribe(self, listener: PollListener) -> None:
        self._listener = listener
        self._next.clear()

    def poll(self, records_max: int, timeout_s: float, gather_s: float = 0.0) -> Polled:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.assigned(self._ours)
        if self._taken < len(self._fetched):
            return self._hand_out(records_max)
        found: dict[Region, Records] = {}
        each = max(1, records_max // len(self._records))
        for region, at in self._next.items():
            records = self._records[region.partition].part(at, at + each)
            if len(records):
                found[region] = records
                self._next[region] = Position(at + len(records))
        if not found:
            time.sleep(timeout_s)
        return Polled(found, dict(self._next))

    def _hand_out(self, records_max: int) -> Polled:
        """What is fetched already.  The client gives it in one list; to divide that is the product's own work."""
        numbered = by_partition(self._fetched[self._taken : self._taken + records_max])
        found = {self._regions[partition]: records for partition, records in numbered.items()}
        self._taken += records_max
        self._next.update({region: position_after(records.offsets[-1]) for region, records in found.items()})
        return Polled(found, dict(self._next))

    def start(self, region: Region, position: Position) -> None:
        self._next[region] = position

    def stop(self, region: Region) -> None:
        self._next.pop(region, None)

    def pause(self, regions: Sequence[Region]) -> None: ...

    def resume(self, regions: Sequence[Region]) -> None: ...

    def facts(self, topic: str) -> TopicFacts:
        return TopicFacts(self._regions[0].topic_id, len(self._regions))

    def offsets(self, region: Region) -> Offsets:
        return Offsets(Position(0), Position(len(self._records[region.partition])))

    def offsets_of_each(self, regions: Collection[Region]) -> dict[Region, Offsets | LancewalError]:
        return {region: self.offsets(region) for region in regions}

    def commit_soon(self, positions: Positions, done: Callable[[bool], None]) -> None:
        done(self.commit(positions))

    def commit(self, positions: Positions) -> bool:
        return True

    def close(self) -> None: ...


def _anew(text: bytes | None) -> bytes | None:
    """In memory beside what is fetched before and after it."""
    return None if text is None else bytes(memoryview(text))
