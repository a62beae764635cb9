"""Every seek names the leader epoch of what was read before, so that a log that was truncated and has grown again shows."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from lancewal_core.names.ids import Position
from lancewal_ingest.kafka.consumer import ConfluentSource
from lancewal_ingest.kafka.source import Offsets
from tests.support.regions import region


class Consumer:
    """Remembers where it was told to go on."""

    def __init__(self) -> None:
        self.seeks: list[TopicPartition] = []

    def seek(self, place: TopicPartition) -> None:
        self.seeks.append(place)

    def pause(self, places: object) -> None: ...

    def resume(self, places: object) -> None: ...


def source_at(position: int, epoch: int) -> tuple[Any, Consumer]:
    """A source that has read partition 0 up to a position."""
    source: Any = ConfluentSource.__new__(ConfluentSource)
    consumer = source._consumer = Consumer()
    source._next, source._floor, source._out_of_range = {}, {}, {}
    source._epochs = {region(0): (Position(position), epoch)}
    return source, consumer


def test_start_and_resume() -> None:
    source, consumer = source_at(10, 4)
    source.start(region(0), Position(10))
    source.pause([region(0)])
    source.resume([region(0)])
    assert [(place.offset, place.leader_epoch) for place in consumer.seeks] == [(10, 4), (10, 4)]


def test_a_position_that_others_have_reached_has_none() -> None:
    source, consumer = source_at(10, 4)
    source.start(region(0), Position(12))
    source.resume([region(0)])
    assert [place.leader_epoch for place in consumer.seeks] in ([None, None], [-1, -1])


def test_where_nothing_is_left_before_the_position_nothing_is_compared_again() -> None:
    source, consumer = source_at(10, 4)
    source._next[region(0)] = Position(10)
    source._out_of_range[region(0)] = KafkaError(KafkaError._LOG_TRUNCATION).str()
    source.offsets = lambda partition: Offsets(Position(10), Position(20))
    source._explain_out_of_range()
    assert [place.leader_epoch for place in consumer.seeks] in ([None], [-1])
