"""Topics at a broker that knows of them, or knows of them no more."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # imported there, not listed
    AdminClient,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from lancewal_kafka.errors import leaderless
from tests.support.whole_path import until


def make_topics(servers: str, partitions_of: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Create topics and wait until the broker itself knows them, with a leader for each partition."""
    new = {name: NewTopic(name, num_partitions=n, config=dict(config or {})) for name, n in partitions_of.items()}
    unanswered = set[str]()
    for last in (False, False, False, True):
        admin = _admin(servers)
        # A broker that was frozen a moment ago has left such a request without an answer: ask again, by another client.
        asked = admin.create_topics([*new.values()], request_timeout=15) if new else {}
        for name, created in asked.items():
            try:
                created.result(30)
            except KafkaException as error:
                code = error.args[0].code()
                unanswered.update({name} if code == KafkaError._TIMED_OUT else ())
                if (
                    last
                    or name not in unanswered
                    or code not in (KafkaError._TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS)
                ):
                    raise
                if code == KafkaError._TIMED_OUT:
                    continue
            del new[name]
    for name in partitions_of:
        until(lambda name=name: _has_leaders(admin, name))  # type: ignore[misc] # mypy infers no type for a default


def delete_topic(servers: str, topic: str) -> None:
    """Delete a topic and wait until the broker itself has forgotten it."""
    admin = _admin(servers)
    admin.delete_topics([topic])[topic].result(60)
    until(lambda: _described(admin, topic) is None)


def _admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 2})


def _has_leaders(admin: AdminClient, topic: str) -> bool:
    """Return whether the broker answers for each partition: one without a leader is described, but gives no offsets."""
    described = _described(admin, topic)
    if described is None:
        return False
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call] # no annotations there
    asked = admin.list_offsets({TopicPartition(topic, one.id): latest for one in described.partitions})
    try:
        for answer in asked.values():
            answer.result(60)
    except KafkaException as error:
        if not leaderless(error):
            raise
        return False
    return True


def _described(admin: AdminClient, topic: str) -> TopicDescription | None:
    """Return the topic as the broker describes it; None if the broker does not know it."""
    try:
        found: TopicDescription = admin.describe_topics(TopicCollection([topic]))[topic].result(60)
        return found
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None
