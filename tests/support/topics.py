"""Topics at a broker that knows of them, or knows of them no more."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.whole_path import until


def make_topics(servers: str, partitions_of: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Create topics and wait until the broker itself knows them."""
    admin = _admin(servers)
    new = [NewTopic(name, num_partitions=n, config=dict(config or {})) for name, n in partitions_of.items()]
    for created in admin.create_topics(new).values():
        created.result(60)
    for name in partitions_of:
        until(lambda name=name: _knows(admin, name))  # type: ignore[misc] # mypy infers no type for a default


def delete_topic(servers: str, topic: str) -> None:
    """Delete a topic and wait until the broker itself has forgotten it."""
    admin = _admin(servers)
    admin.delete_topics([topic])[topic].result(60)
    until(lambda: not _knows(admin, topic))


def _admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 2})


def _knows(admin: AdminClient, topic: str) -> bool:
    try:
        admin.describe_topics(TopicCollection([topic]))[topic].result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return False
    return True
