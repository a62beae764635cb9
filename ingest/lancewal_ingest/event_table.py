"""Every log event of ingest: name, level, fields, meaning.  docs/reference/log-events.md is made of it."""

from __future__ import annotations

from lancewal_core.process.event_table import error, info, warning
from lancewal_core.process.service_events import ServiceEvents


class IngestEvents(ServiceEvents):
    """``position`` is the next offset; ``generation`` counts the MemTables of a partition."""

    partition_opened = info(
        "A partition is owned by this process, and goes on at the position.",
        *("topic", "partition", "generation", "position"),
    )
    dead_letters_written = warning(
        "Bad records of a segment that is durable now; each is a dead letter.", "records", "segment"
    )
    generation_sealed = info(
        "A generation takes no more records, and ends before the position.",
        *("topic", "partition", "generation", "position"),
    )
    generation_flushed = info(
        "A generation is written as Lance files, for the flusher to merge.",
        *("topic", "partition", "generation", "rows", "object"),
    )
    wal_fenced = error("Another process has ended this one's WAL, at the segment.", "wal", "segment", "owner")
    ownership_lost = warning("Another process owns the partition now.", "topic", "partition", "kind", "error")
    partition_stopped = error(
        "A partition takes no more records until a person has done something.",
        *("topic", "partition", "offset", "object", "kind", "error"),
    )
    contract_taken_up = info(
        "The contract was altered: what comes from now on follows the version named.", "contract_version"
    )
    group_moved = warning(
        "The table was moved to another consumer group: this process takes no more records, and waits.",
        "group",
        "error",
    )
    retention_shortened = warning(
        "Kafka is about to delete records that are not durable; no further partition is opened.",
        *("topic", "partition", "horizon_s"),
    )
    retention_recovered = info("Kafka is no longer about to delete records that are not durable.", "topic", "partition")
    batches_unbounded = warning("A batch of the topic may unpack to more than there is room for.", "topic", "error")
    topics_unbound = warning(
        "kafka.topics is not set: the contract, in the table's folder, says which topics are read and written to.",
        *("topic", "dead_letters"),
    )
    drain_begun = info("Told to stop: what was consumed becomes durable, and partitions are handed over.")
    drain_completed = info("Everything was handed over.")
    drain_timed_out = warning("Not all was handed over in time; the next owner continues from the WAL and from Kafka.")
