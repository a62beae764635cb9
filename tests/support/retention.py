"""What retention does to a topic, done at once."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient


def delete_records(servers: str, topic: str, before: Mapping[int, int]) -> None:
    """By partition, nothing below these offsets is left."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    places = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    for place, done in admin.delete_records(places).items():
        assert done.result(60).low_watermark == before[place.partition]
