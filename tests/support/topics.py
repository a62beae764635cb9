"""Topics at a broker that knows of them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


def make_topics(servers: str, partitions_of: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
    """Create topics and wait until the broker itself knows them."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    new = [NewTopic(name, num_partitions=n, config=dict(config or {})) for name, n in partitions_of.items()]
    for created in admin.create_topics(new).values():
        created.result(60)
    for name in partitions_of:
        _wait_known(admin, name)


def _wait_known(admin: AdminClient, topic: str) -> None:
    deadline = time.monotonic() + 240
    while True:
        try:
            admin.describe_topics(TopicCollection([topic]))[topic].result(60)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
                raise
