"""Every log event of the flusher and its commands: name, level, fields, meaning.
docs/reference/log-events.md is generated from this module."""

from __future__ import annotations

from lancewal_core.process.event_table import info, warning
from lancewal_core.process.service_events import ServiceEvents


class FlusherEvents(ServiceEvents):
    """Log events of the flusher.  ``version`` is the version of the Lance table.  ``reason`` says why something was
    not done.
    """

    merge_landed = info(
        "A merge landed: one commit has put generations into the table.",
        *("version", "read_version", "partitions", "generations", "adopted_rows", "written_rows", "replaced_rows"),
        *("in_place_rows", "worn_fragments", "deleted_keys", "scanned_fragments", "unknown_partition_rows"),
    )
    column_widened = info(
        "One commit has given columns a wider type, by files of their values.",
        *("version", "columns", "fragments", "written_bytes"),
    )
    widening_begun = info("Columns get a wider type. Their values are written between merges.", "columns", "fragments")
    widening_refused = info("A widening of columns was refused, and will be retried.", "reason")
    widening_held = warning("Columns cannot be widened until a person has acted.", "columns", "reason")
    foreign_columns_seen = info(
        "Other programs have added nullable columns to the table, or a part of these has gone. Merges keep their values. "
        "Logged once for each change.",
        "columns",
    )
    merge_refused = info("A merge was refused, and will be planned again.", "reason")
    merge_followed_up = warning(
        "A commit after a merge has hidden rows that users appended with its keys, or rebuilt lost data files.",
        *("version", "hidden_rows", "rebuilt_fragments"),
    )
    keys_set_aside = warning(
        "Primary keys came through two partitions. Their records wait for a person's decision.",
        *("version", "keys", "partitions"),
    )
    conflicts_settled = info(
        "Keys in conflict were settled by a person.",
        *("version", "topic", "partition", "keys", "applied", "dropped"),
    )
    visibility_missed = warning(
        "A strong read did not reach the end that Kafka had given for a partition within a minute.",
        *("topic", "partition", "position", "end"),
    )
    key_index_damaged = warning(
        "A part of the key index is damaged. Its files are scanned until the part is written again.", "error"
    )
    generations_recovered = info(
        "The flusher has flushed generations that a former owner had sealed and not flushed.", "generations"
    )
    tasks_progressed = info(
        "Progress of a merge or a compaction that takes long.",
        *("operation", "runner", "tasks", "done_tasks", "duration_s"),
    )
    compaction_landed = info(
        "A round of compaction landed: one commit has replaced fragments by rewritten ones.",
        *("version", "reason", "fragments_before", "fragments_after", "rows", "dropped_rows", "read_bytes"),
        "written_bytes",
    )
    compaction_refused = info("A compaction was refused, and will be planned again.", "reason")
    index_extended = info(
        "A secondary index covers rows that it did not cover.", "index", "version", "rows", "merged_segments", "rebuilt"
    )
    index_deferred = info("A secondary index could not be extended now. The flusher retries it.", "index", "reason")
    index_refused = warning("A secondary index cannot be extended.", "index", "reason")
    index_rows_far = warning(
        "A vector index cannot hold some rows, because the squared length of their vectors exceeds float32. The index "
        "covers all other rows, or will be rebuilt without these rows.",
        *("index", "rows", "keys"),
    )
    rows_expired = info("One commit has hidden rows that have expired.", "version", "rows", "fragments")
    expiry_refused = info("Expiry was refused, and will be planned again.", "reason")
    garbage_collected = info(
        "Garbage collection has deleted objects, or found free ones that wait for the grace period. Partitions are trimmed "
        "up to a generation.",
        *("deleted_objects", "waiting_objects", "trimmed", "expired_versions", "dropped_snapshots"),
    )
    turn_stands = warning(
        "Work in parallel with merges has been running for very long, or a pause waits for it. No other work of its "
        "kind starts meanwhile.",
        *("operation", "duration_s"),
    )
    garbage_awaited = info("The command waits until the grace period of objects is over.", "objects", "grace_s")
    load_part_landed = info(
        "One commit has put a part of a bulk load into the table.",
        *("version", "inserted_rows", "present_rows", "deleted_rows", "appended_rows", "refusals"),
    )
    parcel_abandoned = warning(
        "Objects that carried tasks to Spark could not be deleted. Garbage collection deletes them.",
        *("parcel", "kind", "error"),
    )
    spark_ended = warning("The Spark session had ended before it was closed.", "error")
    service_stopping = info("The service was told to stop, and starts no further work.")
    cut_published = info("A moving cut was published.", *("cut", "number", "cut_tables", "asked_ms", "waited_s"))
    cut_held = warning(
        "Tables hold a moving cut back, because they lag or cannot be read. Logged once for each change of these tables.",
        *("cut", "reasons"),
    )
    cut_left_out = warning(
        "Tables that a moving cut's patterns name are not in it: they lag, cannot be read, or have joined lately. Logged once "
        "for each change of these tables.",
        *("cut", "reasons"),
    )
    cut_goes_on = info("No table holds a moving cut back now.", "cut")
    cut_not_published = warning(
        "A moving cut could not be published, and will be retried. `kind` and `error` say why.",
        *("cut", "kind", "error"),
    )
    catalog_silent = warning(
        "The catalog in PostgreSQL does not accept the table's state. Merges continue, and the newest state is sent later.",
        *("kind", "error"),
    )
    catalog_answers_again = info("The catalog in PostgreSQL accepts the table's state again.")
    catalog_went_back = warning(
        "Another server of the catalog answers, or a replica was promoted. Its last changes may be lost. The flusher compares "
        "the catalog with the folders, as `lancewal catalog check --mend` does.",
        *("system", "timeline"),
    )
    catalog_differs = warning(
        "An entry of the catalog differed from the table's contract, or a cut is missing or incomplete. `text` says what "
        "a person does, or what the flusher has corrected.",
        *("name", "kind", "mended", "text"),
    )
    catalog_check_failed = warning(
        "The catalog could not be compared with the folders. The flusher tries it `left` more times. A person can do it by "
        "`lancewal catalog check --mend`.",
        *("kind", "error", "left"),
    )
