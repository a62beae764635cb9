"""A ``KafkaSource`` over lists, for benchmarks that do not measure Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from benchmarks.workload import Message
from lancewal_core.errors import LancewalError
from lancewal_core.ids import Position
from lancewal_core.rows.murmur2 import partition_of
from lancewal_ingest.kafka.source import Listener, Offsets, Polled
from lancewal_kafka.records import Records
from lancewal_kafka.topic import TopicFacts


class MemorySource:
    """Partitions of one topic, all or ``ours``, assigned at the first poll.  Records of others are passed over."""

    def __init__(self, topic_id: str, partitions: int, ours: Sequence[int] | None = None) -> None:
        self._topic_id = topic_id
        self._ours = range(partitions) if ours is None else ours
        self._records = [Records([], [], [], [], []) for _ in range(partitions)]
        self._next: dict[int, int] = {}
        self._listener: Listener | None = None

    def part(self, ours: Sequence[int]) -> MemorySource:
        """The same topic as another member has it."""
        other = MemorySource(self._topic_id, len(self._records), ours)
        other._records = self._records
        return other

    def append(self, message: Message) -> None:
        partition = partition_of(message.key, len(self._records))
        if partition in self._ours:
            records = self._records[partition]
            records.offsets.append(len(records))
            records.timestamps.append(1_700_000_000_000)
            records.keys.append(message.key)
            records.values.append(message.value)
            records.headers.append(None if message.op == "upsert" else [("lancewal.op", message.op.encode())])

    @property
    def ends(self) -> dict[int, int]:
        return {p: len(self._records[p]) for p in self._ours}

    def subscribe(self, listener: Listener) -> None:
        self._listener = listener
        self._next.clear()

    def poll(self, records_max: int, timeout_s: float) -> Polled:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.assigned(self._ours)
        found: dict[int, Records] = {}
        each = max(1, records_max // len(self._records))
        for partition, at in self._next.items():
            records = self._records[partition].part(at, at + each)
            if len(records):
                found[partition] = records
                self._next[partition] = at + len(records)
        if not found:
            time.sleep(timeout_s)
        return Polled(found, {p: Position(n) for p, n in self._next.items()})

    def start(self, partition: int, position: Position) -> None:
        self._next[partition] = position

    def stop(self, partition: int) -> None:
        self._next.pop(partition, None)

    def pause(self, partitions: Sequence[int]) -> None: ...

    def resume(self, partitions: Sequence[int]) -> None: ...

    def facts(self) -> TopicFacts:
        return TopicFacts(self._topic_id, len(self._records))

    def offsets(self, partition: int) -> Offsets:
        return Offsets(Position(0), Position(len(self._records[partition])))

    def offsets_of_each(self, partitions: Collection[int]) -> dict[int, Offsets | LancewalError]:
        return {partition: self.offsets(partition) for partition in partitions}

    def commit_soon(self, positions: Mapping[int, Position], done: Callable[[bool], None]) -> None:
        done(self.commit(positions))

    def commit(self, positions: Mapping[int, Position]) -> bool:
        return True

    def close(self) -> None: ...
