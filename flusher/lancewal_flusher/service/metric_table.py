"""Every metric of the flusher: name, kind, labels, meaning.  docs/reference/metrics.md is generated from this module."""

from __future__ import annotations

from lancewal_core.process.metric_table import counter, gauge, histogram
from lancewal_core.process.service_metrics import ServiceMetricTable
from lancewal_core.store.observed import StoreMetricTable
from lancewal_flusher.commit.send import Why

_VISIBLE_S = (0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60)
"""Buckets of the visibility histogram, in seconds.  They are fine around two seconds, within which rows should become
visible."""
REASONS = tuple(str(why) for why in Why)
_ROUND_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class FlusherMetricTable(StoreMetricTable, ServiceMetricTable, prefix="lancewal_flusher"):
    """Metrics of the flusher.  ``partition`` is Kafka's; ``kind`` is the stable kind of an error."""

    merges = counter("Merges that landed.")
    adopted_rows = counter("Rows that merges adopted with the data files of a flush.")
    written_rows = counter("Rows that merges wrote: of combined generations, and completed patches.")
    replaced_rows = counter("Rows of the table that merges hid, because their keys were replaced or deleted.")
    in_place_rows = counter("Rows of the table of which a merge wrote only the patched columns.")
    keys_deleted = counter("Keys whose newest record is a delete.")
    fragments_scanned = counter("Fragments that merges scanned for keys, because the key index does not cover them.")
    unknown_partition_rows = counter(
        "Rows with a key that a merge had, but without a known partition: a record of any partition may replace them. Only "
        "in tables whose rows do not tell their partition."
    )
    contract_version = gauge("Version of the table's contract that this process follows.")
    older_contract_rows = gauge(
        "Changed keys in unmerged flushes, and rows of keys in conflict, that are stored with older columns than "
        "the contract's."
    )
    open_widening_seconds = gauge(
        "Time since a command asked for the oldest widening of a column that is not done; 0 while none is open."
    )
    keys_in_conflict = gauge(
        "Primary keys that came through two partitions and wait for a person's decision. Always 0 where rows "
        "tell their partition."
    )
    conflicting_partitions = gauge(
        "Partitions that ingest has stopped or that merges leave out, because too many of their keys are in conflict."
    )
    key_entries_written = counter("Entries of key runs written, for new files and again by merging runs.", "reason")
    generations_merged = counter("Generations that were merged.", "partition")
    conflicts = counter(
        "Merges that did not land, and were planned again. Reasons: a commit that came first, a lost reply, a version or "
        "files that were cleaned up meanwhile, an unfinished merge before.",
        "reason",
        known=REASONS,
    )
    adopted_bytes = counter("Bytes of data files that merges adopted from flushes unchanged.")
    rewritten_bytes = counter(
        "Bytes of data files that merges and compactions wrote, without deletion vectors. Compared with adopted_bytes they "
        "show how often a byte is written.",
        "operation",
        known=("merge", "compaction"),
    )
    generations_flushed = counter("SEALED generations that the flusher flushed, because their ingest did not.")
    hidden_foreign_rows = counter(
        "Rows that users appended with a key of a merge before it landed, and that were hidden after it."
    )
    fragments_rebuilt = counter("Adopted fragments that were rebuilt, because a clean-up had deleted their files.")
    failures = counter(
        "Rounds, partitions in them, and turns of garbage collection, compaction and expiry that failed and are "
        "retried, by kind.",
        "kind",
        known=(
            "store_unavailable",
            "store_refused",
            "commit_unknown",
            "store_inconsistent",
            "object_missing",
            "object_corrupt",
        ),
    )
    damaged_partitions = gauge("Partitions that are not merged because something they need is damaged or lost.")
    gc_deleted_objects = counter(
        "Objects of any kind that garbage collection deleted: WAL segments, files of flushes, old pages of partition states, "
        "key catalogs and others."
    )
    gc_expired_versions = counter("Versions of the table removed, because they were older than the version window.")
    gc_dropped_snapshots = counter("Named snapshots dropped, because their time was over.")
    gc_waiting_objects = gauge("Unreferenced objects whose grace period is not over.")
    gc_running_seconds = gauge(
        "How long the current round of garbage collection has been running; 0 if none is running."
    )
    subscription_lag_seconds = gauge(
        "Time since the first merge after the receipt of a subscription; 0 if there is no such merge. `other` shows the "
        "longest time of all subscriptions from the 101st name on.",
        "subscription",
    )
    subscription_lag_ratio = gauge(
        "Lag divided by `table.subscription_hold_s_max`. At 1 or more the subscription keeps nothing.",
        "subscription",
    )
    subscription_held_segments = gauge(
        "WAL segments that stay beyond the history window because of a subscription.", "subscription"
    )
    subscription_held_versions = gauge(
        "Table versions that stay beyond the version window because of a subscription. Garbage collection looks once an hour.",
        "subscription",
    )
    damaged_subscriptions = gauge(
        "Subscriptions that cannot be read. Garbage collection keeps everything for `table.subscription_hold_s_max` meanwhile."
    )
    compactions = counter("Rounds of compaction that landed.", "reason")
    compaction_conflicts = counter(
        "Rounds of compaction that did not land. Reasons: as for conflicts.", "reason", known=REASONS
    )
    compacted_fragments = counter("Fragments that compaction rewrote.")
    compacted_bytes = counter("Bytes that compaction wrote.")
    expired_rows = counter("Rows hidden because their time to live was over.")
    dropped_rows = counter("Hidden rows that compaction left out.")
    indexes_extended = counter("Extensions and rebuilds of secondary indexes.", "index")
    index_refusals = counter("Secondary indexes that could not be extended, and will be retried.", "index")
    index_far_rows = gauge(
        "Rows that a vector index cannot hold, as of its last extension that met some: the squared length of their "
        "vectors exceeds float32.",
        "index",
    )
    fragments = gauge("Fragments of the table, when compaction last ran.")
    table_rows = gauge("Rows of the table, without hidden rows, when compaction last ran.")
    table_bytes = gauge("Bytes of the table's data files, as far as Lance records them, when compaction last ran.")
    hidden_rows = gauge("Hidden rows in the table's fragments, when compaction last ran.")
    hidden_ratio = gauge("Share of hidden rows among all physical rows, when compaction last ran.")
    hidden_fragments = gauge("Fragments that hide rows, when compaction last ran.")
    deletion_debt_bytes = gauge(
        "Bytes of the data files of fragments that hide rows, when compaction last looked. Reads of them also read hidden "
        "rows, and compaction may rewrite them."
    )
    unindexed_rows = gauge(
        "Rows that a secondary index does not cover, as of the last merge or compaction. Queries scan them; fuzzy "
        "text queries leave them out.",
        "index",
    )
    table_version = gauge("Newest version of the Lance table.")
    merged_generation = gauge("Newest merged generation.", "partition")
    merged_position = gauge("First offset that is not merged.", "partition")
    unmerged_generations = gauge("Generations that have ended and are not merged.", "partition")
    unmerged_rows = gauge("Changed keys in flushes that are not merged yet.", "partition")
    oldest_unmerged_seconds = gauge(
        "Time since the oldest unmerged generation that has ended was flushed, or sealed while it is not flushed. The state "
        "in the store tells, so it survives a restart. 0 while none waits.",
        "partition",
    )
    merged_timestamp_seconds = gauge(
        "When the newest merged generation was sealed: what was durable then is in the table. Absent where nothing is "
        "merged, or its record is trimmed.",
        "partition",
    )
    last_round_timestamp_seconds = gauge("When a round last ended without an error; absent before the first.")
    visible_seconds = histogram(
        "Time from asking Kafka for the ends of the partitions until a strong read reaches them. Measured with "
        "flusher.visibility_interval_s, for each partition with new records since the measurement before.",
        _VISIBLE_S,
    )
    visibility_failures = counter(
        "Partitions whose end was not visible within 60 s (timeout), and measurements for which Kafka or the store "
        "gave no answer.",
        "reason",
        known=("timeout", "kafka", "store"),
    )
    visibility_behind_records = gauge(
        "Offsets before a partition's end that were not visible in time in the last measurement; 0 if all were.",
        "partition",
    )
    visibility_timestamp_seconds = gauge(
        "When all partitions were last visible up to their ends, by a measurement; absent before the first."
    )
    invariant_violations = counter(
        "Violations of a rule that must always hold, by kind. merged_position_fell: a merged position became smaller.",
        "kind",
        known=("merged_position_fell",),
    )
    catalog_silent_seconds = gauge(
        "Time since the catalog in PostgreSQL stopped accepting the table's state; 0 while it accepts it, or without "
        "such a catalog."
    )
    cut_age_seconds = gauge(
        "Age of the state that a moving cut shows of its tables. If this process has seen no publication of the cut yet: "
        "the time since the process began. It grows while a table holds the cut back, or the catalog or the brokers do not "
        "answer.",
        "cut",
    )
    cut_held_seconds = gauge(
        "How long a table has held a moving cut back, because it lags or cannot be read; absent for other tables. At most 100 "
        "tables of a cut are shown.",
        "cut",
        "cut_table",
    )
    paused = gauge("1 while `lancewal pause flusher` holds: no round begins.")
    round_seconds = histogram("Duration of a round.", _ROUND_S)
    compaction_seconds = histogram("Duration of a round of compaction, with the indexes after it.", _ROUND_S)
