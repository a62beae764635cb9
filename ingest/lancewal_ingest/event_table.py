"""Every log event of ingest: name, level, fields, meaning.  docs/reference/log-events.md is generated from this module."""

from __future__ import annotations

from lancewal_core.process.event_table import error, info, warning
from lancewal_core.process.service_events import ServiceEvents


class IngestEvents(ServiceEvents):
    """Log events of ingest.  ``position`` is the next offset.  ``generation`` counts the MemTables of a partition."""

    partition_opened = info(
        "This process owns the partition now, and continues from the position.",
        *("topic", "partition", "generation", "position"),
    )
    dead_letters_written = warning(
        "A segment is durable, and its bad records are in the dead-letter topic.", "records", "segment"
    )
    column_added = info(
        "This process has added a column to the table for a new field of records.",
        *("column", "type", "contract_version"),
    )
    column_refused = warning(
        "A new field of records cannot become a column. Records with this field are bad records.",
        *("column", "error"),
    )
    generation_sealed = info(
        "A generation was sealed. It holds the records before the position, and gets no more.",
        *("topic", "partition", "generation", "position"),
    )
    generation_flushed = info(
        "A generation is written as Lance files, for the flusher to merge.",
        *("topic", "partition", "generation", "rows", "object"),
    )
    wal_fenced = error(
        "Another process (owner) has ended this process's WAL at the segment.", "wal", "segment", "owner"
    )
    ownership_lost = warning("Another process owns the partition now.", "topic", "partition", "kind", "error")
    partition_stopped = error(
        "A partition has stopped. Ingest consumes nothing of it until a person removes the cause.",
        *("topic", "partition", "offset", "object", "kind", "error"),
    )
    group_moved = warning(
        "The table was moved to another consumer group. This process consumes nothing more, and waits.",
        "group",
        "error",
    )
    retention_shortened = warning(
        "Kafka is about to delete records that are not durable. The process opens no further partition.",
        *("topic", "partition", "horizon_s"),
    )
    retention_recovered = info("Kafka is no longer about to delete records that are not durable.", "topic", "partition")
    batches_unbounded = warning(
        "A compressed batch of the topic may unpack to more bytes than Kafka's client has room for.", "topic", "error"
    )
    topics_unbound = warning(
        "kafka.topics is not set: the contract in the table's folder alone says which topics are read and written.",
        *("topic", "dead_letters"),
    )
    drain_begun = info("Told to stop: consumed records become durable, and partitions are handed over.")
    drain_completed = info("All consumed records are durable, and all partitions are handed over.")
    drain_timed_out = warning(
        "Not everything was handed over in time. The next owner continues from the WAL and from Kafka."
    )
