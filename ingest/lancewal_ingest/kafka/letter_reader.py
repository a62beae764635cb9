"""Read the dead-letter topic up to its present end, outside of every consumer group.

Guarantees
 1. Nothing is changed: the consumer joins no group and commits nothing.
 2. Each partition is read up to the end that it had when reading began.  ``KafkaUnavailable`` is raised if Kafka stops
    answering before.
 3. A partition that cannot be read to its end is named in the result.  The others are still read.
 4. Letters that retention deletes meanwhile are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lancewal_core.errors import LancewalError, RecordsUnreadable, TopicMissing
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_ingest.kafka.dead_letters import no_dead_letter_topic
from lancewal_kafka.records import Records
from lancewal_kafka.reread import OutOfRange, consumed, lone_consumer
from lancewal_kafka.topic import TopicInspector

_AT_ONCE = 500
_QUEUE_BYTES = 8 << 20
"""Largest number of bytes in the client's queue.  A letter holds a whole record, so few large letters are in memory at
once."""
_TRIES = 20


def read_letters(
    client: Mapping[str, str], group: str, topic: str, take: Callable[[Records], None], since_ms: int | None = None
) -> dict[int, str]:
    """Pass the records of the dead-letter topic to ``take``, in each partition from the first one at or after
    ``since_ms``.

    Return the partitions that could not be read to the end, with the reason for each.

    The client requires a group name, but does not join ``group``.  Raises ``TopicMissing``, ``KafkaForbidden`` or
    ``KafkaUnavailable``.
    """
    inspector = TopicInspector(client)
    try:
        facts = inspector.identify(topic)
    except TopicMissing as error:
        raise no_dead_letter_topic(topic) from error
    limits = inspector.limits(topic, range(facts.partitions))
    unread: dict[int, str] = {}
    with lone_consumer(client, group, topic, _QUEUE_BYTES) as consumer:
        for partition, found in limits.items():
            if isinstance(found, LancewalError):
                unread[partition] = str(found)
                continue
            at, end = found
            if since_ms is not None and at < end:
                first = inspector.since(topic, [partition], since_ms)[partition]
                at = end if first is None else max(at, first)
            region = Region(topic, TopicId(facts.topic_id), partition)
            for _ in range(_TRIES):
                try:
                    for records in consumed(consumer, region, at, end, _AT_ONCE):
                        take(records)
                        at = Position(records.offsets[-1] + 1)
                    break
                except OutOfRange:
                    at = max(at, inspector.begins(topic, [partition])[partition])
                except RecordsUnreadable as error:
                    unread[partition] = f"the records at offset {error.where['offset']} cannot be read"
                    break
            else:
                unread[partition] = f"Kafka deletes offset {at} faster than it is read"
    return unread
