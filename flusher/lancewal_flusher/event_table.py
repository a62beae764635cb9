"""Every log event of the flusher and its commands: name, level, fields, meaning.
docs/reference/log-events.md is made of it."""

from __future__ import annotations

from lancewal_core.process.event_table import info, warning
from lancewal_core.process.service_events import ServiceEvents


class FlusherEvents(ServiceEvents):
    """``version`` is that of the Lance table; ``reason`` says why something was not done."""

    merge_landed = info(
        "Generations are merged into the table, by one commit.",
        *("version", "read_version", "partitions", "generations", "adopted_rows", "written_rows", "replaced_rows"),
        *("in_place_rows", "worn_fragments", "deleted_keys", "scanned_fragments", "unknown_partition_rows"),
    )
    merge_refused = info("A merge met another commit, and is planned again.", "reason")
    merge_followed_up = warning(
        "Rows or columns that came from elsewhere beside a merge were put right.",
        *("version", "hidden_rows", "rebuilt_fragments"),
    )
    keys_set_aside = warning(
        "Primary keys came through two partitions: their records wait for a decision.", "version", "keys", "partitions"
    )
    conflicts_settled = info(
        "A person has decided about keys in conflict.",
        *("version", "topic", "partition", "keys", "applied", "dropped"),
    )
    visibility_missed = warning(
        "A strong read did not see a partition up to the end that it had in Kafka, within a minute.",
        *("topic", "partition", "position", "end"),
    )
    key_index_damaged = warning(
        "A part of the key index is damaged: rows are scanned, and it is written anew.", "error"
    )
    generations_recovered = info(
        "Generations that a former owner had sealed and not written are written now.", "generations"
    )
    tasks_progressed = info(
        "Progress of a merge or a compaction that takes long.",
        "operation",
        "runner",
        "tasks",
        "done_tasks",
        "duration_s",
    )
    compaction_landed = info(
        "Fragments are written anew, by one commit.",
        *("version", "reason", "fragments_before", "fragments_after", "rows", "dropped_rows", "read_bytes"),
        "written_bytes",
    )
    compaction_refused = info("A compaction met another commit, and is planned again.", "reason")
    index_extended = info(
        "A secondary index has rows that it did not have.", "index", "version", "rows", "merged_segments", "rebuilt"
    )
    index_deferred = info("A secondary index is extended later.", "index", "reason")
    index_refused = warning("A secondary index cannot be extended.", "index", "reason")
    index_rows_far = warning(
        "An index of vectors cannot take some rows: the squared length of the vector is beyond float32. It has all other "
        "rows, or is built anew without them later.",
        *("index", "rows", "keys"),
    )
    rows_expired = info("Rows have expired.", "version", "rows", "fragments")
    expiry_refused = info("Expiry met another commit, and is planned again.", "reason")
    garbage_collected = info(
        "Objects that nothing needs are deleted, or wait for the grace period; partitions are trimmed up to a generation.",
        *("deleted_objects", "waiting_objects", "trimmed", "expired_versions", "dropped_snapshots"),
    )
    turn_stands = warning(
        "Work beside the merges takes very long, or a pause waits for it: none of its kind begins meanwhile.",
        *("operation", "duration_s"),
    )
    garbage_awaited = info("The command waits until the grace period of objects is over.", "objects", "grace_s")
    load_part_landed = info(
        "A part of a load is in the table.",
        *("version", "inserted_rows", "present_rows", "deleted_rows", "appended_rows", "refusals"),
    )
    parcel_abandoned = warning(
        "The object that carried tasks to Spark could not be removed; it is garbage.", "parcel", "kind", "error"
    )
    spark_ended = warning("The Spark session had ended before it was closed.", "error")
    service_stopping = info("Told to stop: no further turn is taken.")
