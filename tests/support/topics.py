"""Topics at a broker that knows of them, or knows of them no more."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.whole_path import until


def make_topics(servers: str, partitions_of: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Create topics and wait until the broker itself knows them."""
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
