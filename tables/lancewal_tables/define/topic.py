"""Check whether a topic can carry a table; ``TopicUnsuitable`` says why not.

Kafka's client is imported only where brokers are asked, so that a process without the client can do the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancewal_core.errors import KafkaForbidden, TopicMissing, TopicUnsuitable
from lancewal_core.record_keys.key_format import has_region_key, why_rows_do_not_tell
from lancewal_core.rows.schema import RowSchema, alike_but_for_case
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.table.checks import check_allowed

if TYPE_CHECKING:
    from lancewal_kafka.topic import TopicInspector, TopicState


def brokers_of(settings: Settings) -> TopicInspector:
    """Return an inspector that asks the Kafka brokers of the settings."""
    from lancewal_kafka.topic import TopicInspector

    return TopicInspector(settings.kafka.client())


@dataclass(frozen=True, slots=True)
class FittingTopic:
    """The present state of a topic that can carry a table, and warnings for a person."""

    state: TopicState
    start: Sequence[int]
    """The table's first position in each partition, in the order of the partitions.  -1 means the low watermark at the
    first claim."""
    warnings: Sequence[str]


def check_asked(settings: Settings, *needed: str) -> None:
    """Raise ``InvalidSettings`` if a setting that defines a table or one of ``needed`` is missing, or the topic is not
    allowed."""
    asked = settings.table
    region_key = ("table.region_key",) if has_region_key(asked.format.key) else ()
    settings.need(*needed, "table.primary_key", *region_key, "kafka.bootstrap_servers", "table.topic")
    check_allowed(settings, asked.topic, asked.dead_letters)


def fitting_topic(settings: Settings, rows: RowSchema, inspector: TopicInspector | None) -> FittingTopic:
    """Ask the brokers about the table's topic, and return its state.  Raises ``TopicUnsuitable`` if it cannot carry the
    table.

    ``inspector``: by default, one that asks the brokers of the settings.
    """
    inspector, asked = inspector or brokers_of(settings), settings.table
    topic = inspector.describe(asked.topic)
    check_carries(topic, rows, asked)
    start = inspector.starts(topic, asked.start)
    found = (
        names_alike(rows),
        deletes_unseen(topic, asked),
        unpacks_unseen(topic),
        no_dead_letter_topic(inspector, asked.dead_letters),
    )
    return FittingTopic(topic, start, [warning for warning in found if warning is not None])


def no_warning(text: str) -> None:
    """Ignore a warning, for callers that show none."""


def unpacks_unseen(topic: TopicState) -> str | None:
    """Return a warning if the broker may store compressed batches (any ``compression.type`` but ``uncompressed``);
    otherwise None.

    The broker then limits only the compressed size of a batch, so ingest must check the unpacked size.
    """
    compression = topic.stored.compression
    if compression == "uncompressed":
        return None
    if compression == "zstd":
        found = "any producer can stop a partition by a batch that unpacks to more than ingest takes"
    else:
        most = topic.stored.unpacked_bytes_max(0)
        found = f"the broker does not limit what a batch unpacks to, and {most} bytes are possible"
    return (
        f"topic {topic.topic!r} has compression.type={compression}: {found}. If producers are not trusted, set it to "
        "uncompressed: max.message.bytes then counts unpacked bytes"
    )


def deletes_unseen(topic: TopicState, settings: TableSettings) -> str | None:
    """Return a warning if the topic is compacted and rows do not tell their partition; otherwise None.

    Two different texts can be the same key.  If the broker has removed a delete with one text, a record with the other
    text stays, and its row comes back.
    """
    why = why_rows_do_not_tell(settings.format.key, settings.partitioner)
    if why is None or not topic.compacted:
        return None
    return (
        f"topic {topic.topic!r} is compacted and {why}: a removed delete may have left an older record of its row. A "
        "partition that begins with records older than delete.retention.ms stops (retention_lost). If producers "
        "always write a key in one way, and into one partition, accept that: `lancewal offset accept-loss TOPIC-PARTITION`"
    )


def names_alike(rows: RowSchema) -> str | None:
    """Return a warning if names of columns differ only in case, else None.  Programs that get rows may mix them up."""
    alike = alike_but_for_case(rows.columns)
    if not alike:
        return None
    return (
        f"the names {alike} differ only in upper and lower case. Spark refuses to select such a column, and DuckDB reads one "
        "for the other without an error: choose names that differ otherwise"
    )


def no_dead_letter_topic(inspector: TopicInspector, name: str) -> str | None:
    """Return a warning if the dead-letter topic ``name`` does not exist, else None.

    Without the topic, ingest would wait at its first dead letter."""
    try:
        inspector.identify(name)
    except TopicMissing:
        return (
            f"the dead-letter topic {name!r} does not exist, and ingest waits at the first record that is to go there. "
            "Create it before ingest starts, or name another one by `lancewal table alter --dead-letter-topic`"
        )
    except KafkaForbidden:  # ingest may have rights that the user of this command lacks
        return None
    return None


def check_carries(topic: TopicState, rows: RowSchema, settings: TableSettings) -> None:
    """Raise ``TopicUnsuitable`` unless the topic's clean-up policy keeps all records that the table needs.

    Compaction keeps the newest record of each Kafka key.  This is enough only if each Kafka key is one row, and each
    record is the whole row.
    """
    if not topic.compacted:
        return
    if not has_region_key(settings.format.key):
        why = (
            f"table.format.key is {settings.format.key}. Nothing says that a record key is one primary key, and compaction "
            "would remove rows of others. Use cleanup.policy=delete, or have producers key by the primary key"
        )
    elif set(rows.region_key) != set(rows.primary_key):
        why = (
            f"its Kafka key is the region key {list(rows.region_key)}, not the whole primary key {list(rows.primary_key)}. "
            "Compaction would remove rows of other primary keys. Use cleanup.policy=delete, or make table.region_key the "
            "primary key"
        )
    elif settings.patches:
        why = (
            "table.patches is true: compaction would remove what patches build on. Use cleanup.policy=delete, or set "
            "table.patches: false"
        )
    else:
        return
    raise TopicUnsuitable(
        f"topic {topic.topic!r} is compacted (cleanup.policy contains compact) and {why}", topic=topic.topic
    )
