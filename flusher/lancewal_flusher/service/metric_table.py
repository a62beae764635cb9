"""Every metric of the flusher: name, kind, labels, meaning.  The reference page (docs/reference/metrics.md) is made of it."""

from __future__ import annotations

from lancewal_core.process.metric_table import MetricTable, counter, gauge, histogram, info

_ROUND_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_REGION = ("topic", "partition")


class FlusherMetricTable(MetricTable, prefix="lancewal_flusher"):
    """Labels ``topic`` and ``partition`` name a region of the table; ``kind`` is the stable kind of an error."""

    merges = counter("Merges that landed.")
    rows_adopted = counter("Rows taken with the data files of a snapshot.")
    rows_written = counter("Rows written anew: combined generations, completed patches.")
    rows_replaced = counter("Rows of the table that a merge hid, deleted ones included.")
    rows_in_place = counter("Rows of the table of which a merge wrote only the patched columns.")
    keys_deleted = counter("Keys whose newest record is a delete.")
    fragments_scanned = counter("Fragments that merges scanned for keys: the key index does not cover them.")
    rows_region_not_known = counter(
        "Rows that the key index found for keys of a merge, of which it does not know through which region they came:"
        " only of tables keyed by bytes."
    )
    keys_in_conflict = gauge(
        "Primary keys that came through two partitions and wait for a person's decision: only of tables keyed by bytes."
    )
    key_entries_written = counter("Entries of key runs written, for new files and again by merging runs.", "why")
    generations_merged = counter("Generations that merges took.", *_REGION)
    conflicts = counter("Merges that did not land, and were planned again.")
    generations_flushed = counter("SEALED generations whose ingest did not flush them.")
    foreign_rows_hidden = counter("Rows that users appended with a key of the merge under way.")
    fragments_rebuilt = counter("Adopted fragments whose files a clean-up had taken.")
    failures = counter(
        "Rounds, regions in them, and turns of garbage collection, compaction and expiry that failed and are tried "
        "again, by kind.",
        "kind",
    )
    damaged_regions = gauge("Regions that are not merged because something they need is damaged or lost.")
    gc_deleted_objects = counter("WAL segments, snapshot files and index versions deleted.")
    gc_waiting_objects = gauge("Free objects that wait for their grace period.")
    compactions = counter("Rounds of compaction that landed.", "reason")
    compaction_conflicts = counter("Rounds of compaction that did not land.")
    compacted_fragments = counter("Fragments that compaction wrote anew.")
    compacted_bytes = counter("Bytes that compaction wrote.")
    rows_expired = counter("Rows hidden because their time to live was over.")
    rows_dropped = counter("Hidden rows that compaction left out.")
    indexes_extended = counter("Segments added to secondary indexes.", "index")
    index_refusals = counter("Secondary indexes that could not be extended, and are tried again.", "index")
    fragments = gauge("Fragments of the table, when compaction last looked.")
    hidden_rows = gauge("Rows that fragments hold and hide, when compaction last looked.")
    unindexed_rows = gauge(
        "Rows that a secondary index does not cover, when upkeep last looked: behind each merge and each round of "
        "compaction. Queries scan them; fuzzy text queries leave them out.",
        "index",
    )
    table_version = gauge("Newest version of the Lance table.")
    watermark_generation = gauge("Newest merged generation.", *_REGION)
    watermark_position = gauge("Kafka offset from which on nothing is merged.", *_REGION)
    unmerged_generations = gauge("Generations that have ended and are not merged.", *_REGION)
    unmerged_rows = gauge("Changed keys in snapshots that are not merged.", *_REGION)
    oldest_unmerged_seconds = gauge("How long this process has known of the oldest unmerged generation.", *_REGION)
    last_round_timestamp_seconds = gauge("When a round last ended without an error.")
    paused_by_operator = gauge("1 while `lancewal pause flusher` holds: no round begins.")
    round_seconds = histogram("Duration of a round.", _ROUND_S)
    compaction_seconds = histogram("Duration of a round of compaction, with the indexes behind it.", _ROUND_S)
    build = info("Version and what is merged.")
