"""How a poll takes what the client has, without a broker: a first record is waited for, what is there is taken at once, and
what comes within the time to collect."""

from __future__ import annotations

import pytest
from confluent_kafka import Message, TopicPartition

from lancewal_core.names.ids import Position
from lancewal_ingest.kafka.consumer import ConfluentSource
from tests.support.regions import region
from tests.support.scripted import ManualClock


class Client:
    """Has record 0 at once, record 1 right behind it, and a further one each 10 ms."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._began = clock.seconds
        self._taken = 0
        self.waited: list[float] = []

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        self.waited.append(timeout_s)
        there = 2 + int((self._clock.seconds - self._began) / 0.01 + 1e-9)
        first, self._taken = self._taken, min(there, self._taken + count)
        return [Message(topic="t", partition=0, offset=o, key=b"", value=b"") for o in range(first, self._taken)]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return partitions

    def seek(self, place: TopicPartition) -> None: ...

    def resume(self, partitions: list[TopicPartition]) -> None: ...


@pytest.mark.parametrize(
    ("records_max", "gather_s", "taken", "collected_s"),
    [(1_000, 0.02, 4, 0.02), (1_000, 0.0, 2, 0.0), (2, 0.02, 2, 0.0), (1, 0.02, 1, 0.0), (3, 0.02, 3, 0.02)],
)
def test_a_poll_collects_so_long_and_no_longer_than_for_as_many_as_are_wanted(
    records_max: int, gather_s: float, taken: int, collected_s: float
) -> None:
    clock = ManualClock()
    source = ConfluentSource({"bootstrap.servers": "127.0.0.1:1"}, {"t": "topic-id"}, "g", clock=clock)
    source._consumer.close()
    source._consumer = client = Client(clock)  # type: ignore[assignment] # as much of one as is needed
    source._region("t", 0)
    source.start(region(0, "t"), Position(0))
    polled = source.poll(records_max, 0.1, gather_s)
    assert polled.records[region(0, "t")].offsets == list(range(taken))
    assert clock.seconds == collected_s
    # Inside the client nobody waits but for the first record.
    assert client.waited[0] == 0.1
    assert set(client.waited[1:]) <= {0}
