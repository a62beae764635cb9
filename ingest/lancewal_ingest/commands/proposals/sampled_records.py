"""The newest records of a topic, and the table that fits them if a connector has written them.

Nothing is written, and no group is joined.  A partition is left out if it has no record, if Kafka deletes its records
meanwhile, or if its broker gives an error.  If no partition has a record, such an error is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancewal_core.errors import LancewalError, RetentionLost
from lancewal_core.names.ids import Position, Region, TopicId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lancewal_core.settings.load import Settings
    from lancewal_ingest.append.prepare import Consumed
    from lancewal_ingest.commands.proposals.connector_topic import ConnectorTopic
    from lancewal_kafka.topic import TopicFacts, TopicInspector, TopicState

_RECORDS = 200
"""Newest records of each partition from which a table of a connector's topic is proposed: few values tell little about
a column."""
_BYTES_MAX = 32 << 20
"""Bytes of values after which no further partition is read for a proposal."""
_PARTITIONS_MAX = 10
"""Largest number of partitions whose last records are read, each with a consumer of its own."""
GROUP = "lancewal-config-check"
"""Consumer group that the client names and does not join; brokers may demand a right on it."""


def table_of_topic(settings: Settings, inspector: TopicInspector, topic: str) -> ConnectorTopic:
    """Propose a table for a topic that Debezium writes, from the topic's newest records."""
    state = inspector.describe(topic)
    parts, nbytes = [], 0
    for part in newest_parts(settings, inspector, topic, state, _RECORDS):
        parts.append(part)
        nbytes += sum(len(value or b"") for value in part.records.values)
        if nbytes > _BYTES_MAX:
            break
    return table_of_records(settings, parts, state.partitions, compacted=state.compacted)


def table_of_records(
    settings: Settings, parts: Sequence[Consumed], partitions: int, *, compacted: bool
) -> ConnectorTopic:
    """Propose a table for the records of ``parts``. ``partitions``: the topic's number of partitions."""
    from lancewal_ingest.commands.proposals.connector_topic import connector_topic
    from lancewal_ingest.registry.asked import AskedSchemas

    schemas = AskedSchemas.of(settings.registry) if settings.registry.url else None
    placeholder = settings.table.format.unavailable_value
    return connector_topic(parts, schemas, partitions, placeholder=placeholder, compacted=compacted)


def newest_parts(
    settings: Settings, inspector: TopicInspector, topic: str, facts: TopicFacts | TopicState, records: int
) -> Iterator[Consumed]:
    """Yield the newest records of each partition that has some. Only a few partitions are read."""
    limits = inspector.limits(topic, range(facts.partitions))
    filled = [(p, span) for p, span in limits.items() if not isinstance(span, LancewalError) and span[0] < span[1]]
    errors = [span for span in limits.values() if isinstance(span, LancewalError)]
    if errors and not filled:
        raise errors[0]
    for partition, (low, end) in filled[:_PARTITIONS_MAX]:
        region = Region(topic, TopicId(facts.topic_id), partition)
        part = _part(settings, region, max(low, Position(end - records)), end)
        if part is not None:
            yield part


def _part(settings: Settings, region: Region, first: Position, end: Position) -> Consumed | None:
    """Return the records from ``first`` to before ``end``.  Return None if Kafka has deleted them since ``end`` was
    asked for: then they are not the newest ones."""
    from lancewal_ingest.append.prepare import Consumed
    from lancewal_kafka.reread import read_records

    try:
        records, _ = read_records(settings.kafka.client(), GROUP, region, first, end)
    except RetentionLost:
        return None
    return Consumed(region, first, end, records)
