"""How many processes are in the consumer group of a table now."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from lancewal_kafka.clients import REQUEST_TIMEOUT_S, error_of, explained, shared_properties


def group_members(client: Mapping[str, str], topic: str, group: str) -> int:
    """Members of the group; ``KafkaUnavailable`` if nobody answers, ``InvalidInput`` where the question is not allowed."""
    admin = AdminClient({"log_level": 2, **shared_properties(client)})
    try:
        asked = admin.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S)[group]
        return len(asked.result(REQUEST_TIMEOUT_S + 1).members)
    except (KafkaException, TimeoutError) as error:
        found = error_of(error)
        if found is not None and found.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return 0
        raise explained(error, f"describing the consumer group {group}", topic) from error
