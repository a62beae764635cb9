"""The benchmark page of the docs, made from the results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.measure import HEADER, cells
from benchmarks.remarks import INTRODUCTION, MISSED, PEERS
from benchmarks.stores import ACTS, STORES

_Row = tuple[str, str, str, str]
"""Text, figure, aim, format."""


def _merge_rows(text: str, name: str, from_flushed: str, from_memtable: str) -> list[_Row]:
    """Return the rows of one workload that ``merge_runs`` measures."""
    return [
        (f"{text}: time of merge_insert over lancewal's, flush to commit", f"{name}_from_flushed_times_faster",
         from_flushed, ".2f"),
        (f"{text}: time of merge_insert over lancewal's, MemTable to commit", f"{name}_from_memtable_times_faster",
         from_memtable, ".2f"),
        (f"{text}: time of merge_insert over lancewal's, MemTable to the end of the round",
         f"{name}_from_memtable_with_index_times_faster", from_memtable, ".2f"),
        (f"{text}: CPU time of merge_insert over lancewal's, flush to the end of the round",
         f"{name}_from_flushed_cpu_times_less", "-", ".2f"),
        (f"{text}: CPU time of merge_insert over lancewal's, MemTable to the end of the round",
         f"{name}_from_memtable_cpu_times_less", "-", ".2f"),
        (f"{text}: lancewal, MemTable to flush, ms", f"{name}_flush_ms", "-", ",.0f"),
        (f"{text}: lancewal, flush to commit, ms", f"{name}_from_flushed_ms", "-", ",.0f"),
        (f"{text}: lancewal, MemTable to commit, ms", f"{name}_from_memtable_ms", "-", ",.0f"),
        (f"{text}: lancewal, flush to the end of the round, ms", f"{name}_whole_round_ms", "-", ",.0f"),
        (f"{text}: lancewal, MemTable to the end of the round, ms", f"{name}_from_memtable_with_index_ms", "-", ",.0f"),
        (f"{text}: merge_insert, ms", f"{name}_merge_insert_ms", "-", ",.0f"),
    ]  # fmt: skip


def _formats_rows() -> Iterator[_Row]:
    yield (
        "Avro of seven columns: rows a second over a consumer that looks at no record",
        "avro_to_floor",
        "at least 0.45",
        ".2f",
    )
    yield "Avro over JSON of the same rows", "avro_to_json", "at least 1.3", ".2f"
    yield "Protobuf of the same rows over that consumer", "protobuf_to_floor", "at least 0.45", ".2f"
    yield "Protobuf over JSON of the same rows", "protobuf_to_json", "at least 1.3", ".2f"
    yield "rows with a vector of 384 floats: Protobuf over JSON", "vector_protobuf_to_json", "at least 4", ".1f"
    yield "a consumer that looks at no record of these in Protobuf, over JSON", "vector_floor_to_json", "-", ".1f"
    yield "one bad record in a thousand over none, letters included", "bad_to_good", "at least 0.8", ".2f"
    yield (
        "JSON of Kafka Connect with schemas: rows a second over such a consumer of its topic",
        "connect_to_floor",
        "at least 0.4",
        ".2f",
    )
    for kind, text in (("json", "JSON"), ("connect", "JSON with schemas"), ("avro", "Avro")):
        yield (
            f"change events in {text}: rows a second over a consumer that reads values and headers",
            f"events_{kind}_to_floor",
            "at least 0.4",
            ".2f",
        )
    yield "change events in Avro over the same rows in Avro", "events_to_avro", "at least 0.5", ".2f"
    yield "one value in ten events left out by the connector, over none", "events_kept_to_none", "at least 0.7", ".2f"
    yield "decoding alone: over fastavro with columns of its records", "decode_rows_ratio", "at least 12", ".1f"
    yield "decoding alone: one bad record in a thousand over none", "decode_bad_ratio", "-", ".2f"
    yield "decoding alone, vectors of 384 floats: over fastavro", "decode_vectors_ratio", "-", ".1f"
    yield "decoding alone, vectors as bytes: over fastavro", "decode_raw_vectors_ratio", "-", ".1f"
    yield "decoding alone: over upb with columns of its records", "decode_protobuf_rows_ratio", "at least 6", ".1f"
    yield "decoding alone: one bad Protobuf record in a thousand", "decode_protobuf_bad_ratio", "-", ".2f"
    yield "decoding alone, vectors of 384 floats: over upb", "decode_protobuf_vectors_ratio", "-", ".1f"
    for kind, text in (
        ("floor", "consumer alone"),
        ("json", "JSON"),
        ("avro", "Avro"),
        ("protobuf", "Protobuf"),
        ("vector_json", "JSON with vectors"),
        ("vector_protobuf", "Protobuf with vectors"),
        ("connect_floor", "consumer of Connect's JSON alone"),
        ("connect", "Connect's JSON"),
        ("events_json_floor", "consumer of events in JSON alone"),
        ("events_json", "events in JSON"),
        ("events_connect_floor", "consumer of events in JSON with schemas alone"),
        ("events_connect", "events in JSON with schemas"),
        ("events_avro_floor", "consumer of events in Avro alone"),
        ("events_avro", "events in Avro"),
        ("events_kept", "events in Avro with values left out"),
    ):
        yield f"{text}, rows a second", f"{kind}_rows_per_s", "-", ",.0f"


def _commits_rows() -> Iterator[_Row]:
    for name, text in (
        ("all", "from COMMIT in PostgreSQL to a read that shows the row"),
        ("connect", "of this: to the Kafka record (Connect)"),
        ("lancewal", "of this: from the Kafka record on (lancewal)"),
    ):
        for at in (50, 99):
            yield f"{text}, p{at}, ms", f"{name}_p{at}_ms", "-", ",.0f"
    yield "rows never seen", "rows_unseen", "0", ",.0f"


def _headers_rows() -> Iterator[_Row]:
    for kind, text in (("trace", "one trace header"), ("debezium", "Debezium's four headers")):
        yield (
            f"{text}: CPU time of ingest without headers over that with them",
            f"{kind}_cpu_ratio",
            "at least 0.9",
            ".2f",
        )
        yield f"{text}: the same if only the client took time for headers", f"{kind}_best_cpu_ratio", "-", ".2f"
        yield (
            f"{text}: CPU time of that best ingest over lancewal's",
            f"{kind}_of_best_cpu_ratio",
            "at least 0.9",
            ".2f",
        )
    for kind, text in (("none", "no header"), ("trace", "one trace header"), ("debezium", "Debezium's four headers")):
        yield f"{text}: CPU time of ingest, us/record", f"{kind}_cpu_us", "-", ".2f"
        yield f"{text}: CPU time of Kafka's client alone, us/record", f"{kind}_client_cpu_us", "-", ".2f"


def _strategy_rows(kind: str, percent: int) -> list[_Row]:
    """Return the rows of one share of changed rows that ``merge_strategies`` measures."""
    name = f"{kind}_{percent}_percent"
    patches = kind == "patches"
    text = f"{percent} % of the rows " + ("patched in one column of seven" if patches else "updated")
    peer = "the faster write_mode of merge_insert" if patches else "merge_insert"
    modes = ("rewrite_rows", "rewrite_columns") if patches else ("rewrite_rows",)
    return [
        (f"{text}: time of {peer} over lancewal's, flush to commit", f"{name}_from_flushed_times_faster", "above 1", ".2f"),
        (f"{text}: fragments with rows hidden", f"{name}_fragments_hide", "-", ".0f"),
        (f"{text}: fragments rewritten by the compaction after it", f"{name}_fragments_rewrite", "-", ".0f"),
        (f"{text}: fragments patched in place", f"{name}_fragments_columns", "-", ".0f"),
        (f"{text}: bytes predicted over bytes written", f"{name}_bytes_predicted_ratio", "0.8 to 1.2", ".2f"),
        (f"{text}: CPU time predicted over used, compaction included", f"{name}_cpu_predicted_ratio", "0.5 to 2", ".2f"),
        (f"{text}: time predicted over taken, flush to commit", f"{name}_time_predicted_ratio", "0.5 to 2", ".2f"),
        (f"{text}: written, compaction included, MiB", f"{name}_mib_written", "-", ",.1f"),
        (f"{text}: flush to commit, ms", f"{name}_from_flushed_ms", "-", ",.0f"),
        (f"{text}: flush to the end of the compaction, ms", f"{name}_with_compaction_ms", "-", ",.0f"),
        *(
            (f"{text}: merge_insert, write_mode {mode}, ms", f"{name}_merge_insert_{mode}_ms", "-", ",.0f")
            for mode in modes
        ),
    ]  # fmt: skip


_AIMS = {
    "warm": (
        "strong read on an open table between two merges",
        {4: ("0.25", "14"), 64: ("0.25", "14"), 512: ("0.35", "28")},
    ),
    "again": ("strong read on an open table, nothing new", {}),
    "open_unmerged": (
        "open the table and read strongly, 200 unmerged segments in two logs",
        {4: ("0.5", ""), 64: ("0.6", ""), 512: ("0.9", "")},
    ),
    "open_merged": (
        "open the table and read strongly, all merged",
        {4: ("0.25", "16"), 64: ("0.25", "16"), 512: ("0.4", "28")},
    ),
    "merge": (
        "merge round of 10 k rows, to the end of the round",
        {4: ("0.85", ""), 64: ("1.1", ""), 512: ("3.5", "")},
    ),
    "start_ingest": ("an ingest process takes over all partitions", {}),
    "stop_ingest": ("an ingest process flushes and hands over all partitions, rows in each", {}),
    "garbage": ("garbage collection, nothing to delete", {4: ("0.5", "15"), 64: ("0.6", "15"), 512: ("1", "25")}),
}
"""What ``distance`` measures: text, and by number of partitions the aims in seconds and in requests."""


def _distance_rows() -> Iterator[_Row]:
    for partitions in (4, 64, 512):
        for name, (text, aims) in _AIMS.items():
            seconds, requests = aims.get(partitions, ("", ""))
            said, key = f"{partitions} partitions: {text}", f"{name}_{partitions}"
            if name == "merge":
                until = said.replace("to the end of the round", "until its commit")
                yield (
                    f"{until}, s",
                    f"{key}_committed_s",
                    _at_most({4: "0.5", 64: "0.7", 512: "2.5"}[partitions]),
                    ".2f",
                )
            yield f"{said}, s", f"{key}_s", _at_most(seconds), ".2f"
            if name == "warm":
                yield f"{said}, requests for new segments included", f"{key}_requests", "-", ",.0f"
                yield (
                    f"{said}, requests without those for new segments",
                    f"{key}_requests_besides_segments",
                    _at_most(requests),
                    ",.0f",
                )
            else:
                yield f"{said}, requests", f"{key}_requests", _at_most(requests), ",.0f"
            yield f"{said}, rounds", f"{key}_rounds", "-", ",.0f"
        said, key = (
            f"{partitions} partitions: two idle ingest processes and a flusher, requests/s",
            f"idle_{partitions}",
        )
        yield said, f"{key}_requests_per_s", _at_most({512: "1.5"}.get(partitions, "1")), ".1f"
        said, key = f"{partitions} partitions, services and broker: ", f"members_{partitions}"
        start, stop = {4: ("2.5", "1"), 64: ("3", "1.5"), 512: ("5", "4")}[partitions]
        yield f"{said}start of two members until all records are readable, s", f"{key}_start_s", _at_most(start), ".1f"
        yield (
            f"{said}the same for partitions that were never open before, s",
            f"{key}_first_start_s",
            _at_most(start),
            ".1f",
        )
        yield f"{said}SIGTERM to exit of two members, rows in each partition, s", f"{key}_stop_s", _at_most(stop), ".1f"


def _stores_rows() -> Iterator[_Row]:
    for act, text in ACTS.items():
        yield f"{text}: requests, {STORES['s3']}", f"s3_{act}_requests", "-", ",.0f"
        for store in ("azure", "gcs"):
            aim = "-" if act == "delete" else "1.00"
            yield f"{text}: requests, {STORES[store]} over S3", f"{store}_{act}_ratio", aim, ".2f"


def _stores_freshness_rows() -> Iterator[_Row]:
    servers = {"s3": "versitygw", "azure": "Azurite", "gcs": "the front of fake-gcs-server"}
    for kind in ("azure", "gcs"):
        yield f"1,000 rows/s: freshness, p99, on {servers[kind]} over that on versitygw", f"{kind}_ratio", "-", ".2f"
    for kind, server in servers.items():
        yield f"1,000 rows/s: freshness, p99, on {server}, ms", f"{kind}_p99_ms", "-", ",.0f"


def _steady_rows() -> Iterator[_Row]:
    for partitions, (requests, p50, p99) in {
        4: ("40", "450", "800"),
        64: ("45", "500", "900"),
        512: ("60", "700", "1,500"),
    }.items():
        said = f"{partitions} partitions:"
        yield f"{said} rows/s", f"rows_per_s_{partitions}", "-", ",.0f"
        yield f"{said} requests/s", f"requests_{partitions}", _at_most(requests), ".1f"
        yield f"{said} requests/s that `lancewal estimate` expects", f"expected_requests_{partitions}", "-", ".1f"
        yield f"{said} segments/s", f"wal_puts_{partitions}", _at_most("20"), ".1f"
        yield f"{said} requests/s for rows of the table", f"row_requests_{partitions}", "-", ".1f"
        yield f"{said} freshness, p50, ms", f"fresh_p50_ms_{partitions}", _at_most(p50), ",.0f"
        yield f"{said} freshness, p99, ms", f"fresh_p99_ms_{partitions}", _at_most(p99), ",.0f"


def _reads_on_spark_rows() -> Iterator[_Row]:
    for state, text, aim in (("merged", "all rows merged", "1.15"), ("unmerged", "1 % of the keys unmerged", "")):
        for kind, read in (("full", "all columns"), ("aggregate", "two columns, summed,")):
            for how in ("eventual", "strong")[state == "unmerged" :]:
                wanted = _at_most("1.1" if how == "eventual" else aim)
                said = f"{how} read of {read} {text}"
                yield f"time of {said} over the barest Python source", f"{state}_{kind}_{how}_ratio", wanted, ".2f"
                yield f"{said}, s", f"{state}_{kind}_{how}_s", "-", ".2f"


def _partitions_rows() -> Iterator[_Row]:
    for count in (1, 64, 512, 1_000):
        said, key = f"{count:,} partitions: ".replace("1 partitions", "1 partition"), f"_{count}"
        aim = {1: "-", 64: "at least 0.95", 512: "at least 0.85"}.get(count, "-")
        if count > 1:
            yield f"{said}rows/s of ingest over those of 1 partition", f"rate_ratio{key}", aim, ".2f"
            yield (
                f"{said}rows/s over those of 1 partition, one segment for each poll of 10,000",
                f"small_rate_ratio{key}",
                "-",
                ".2f",
            )
        yield f"{said}ingest, rows/s", f"rows_per_s{key}", "-", ",.0f"
        yield f"{said}ingest, one segment for each poll of 10,000, rows/s", f"small_rows_per_s{key}", "-", ",.0f"
        yield (
            f"{said}warm strong plan, ms",
            f"warm_plan_ms{key}",
            {64: "at most 15", 512: "at most 50"}.get(count, "-"),
            ",.1f",
        )
        yield f"{said}plan of a newly opened table, ms", f"cold_plan_ms{key}", "-", ",.0f"
        yield f"{said}opening all partitions, s", f"open_s{key}", "-", ",.2f"
        yield f"{said}memory taken by opening all partitions, MiB", f"open_mib{key}", "-", ",.1f"
        yield f"{said}half of the partitions given up and taken back, rows in each, s", f"rebalance_s{key}", "-", ",.2f"
        yield f"{said}end of ingest, with rows in each partition, s", f"drain_s{key}", "-", ",.2f"
        yield f"{said}metrics of ingest, MiB for each scrape", f"scrape_mib{key}", "at most 2", ",.2f"
        yield f"{said}metrics summed over partitions, MiB for each scrape", f"scrape_summed_mib{key}", "-", ",.2f"


def _at_most(aim: str) -> str:
    return f"at most {aim}" if aim else "-"


def _search_rows() -> Iterator[_Row]:
    yield "merged rows", "rows", "-", ",.0f"
    yield "outdated rows found", "stale_rows", "0", ",.0f"
    yield "answers of fewer than 10 rows although 10 match", "short_answers", "0", ",.0f"
    for percent, aim in ((1, "at most 2.5"), (10, "at most 3")):
        said = f"{percent} % of the rows replaced by unmerged rows"
        yield (
            f"{said}: CPU time of the nearest 10 over Lance's on the merged rows",
            f"vector_ratio_{percent}",
            aim,
            ".2f",
        )
        yield f"{said}: nearest 10, ms", f"vector_ms_{percent}", "-", ".1f"
        yield f"{said}: recall of the nearest 10", f"recall_{percent}", "at least 0.98", ".3f"
        for kind, text in (
            ("or", "one of three words"),
            ("and", "both of two words"),
            ("phrase", "a phrase of two words"),
        ):
            yield (
                f"{said}: CPU time of {text} over Lance's on the merged rows",
                f"text_{kind}_ratio_{percent}",
                "at most 5",
                ".2f",
            )
            yield f"{said}: {text}, ms", f"text_{kind}_ms_{percent}", "-", ".1f"
            yield f"{said}: {text}, answers that differ from BM25", f"text_{kind}_differ_{percent}", "0", ",.0f"
        yield (
            f"{said}: CPU time of a search by vector and text over the sum of both apart",
            f"hybrid_ratio_{percent}",
            "at most 1.3",
            ".2f",
        )
        yield f"{said}: search by vector and text, ms", f"hybrid_ms_{percent}", "-", ".1f"
    yield (
        "lowest recall under filters that match 0.02 to 10 % of the rows",
        "recall_filter_min",
        "at least 0.98",
        ".3f",
    )
    yield "recall with the 1,000 nearest merged rows hidden", "recall_nearest_masked", "at least 0.9", ".3f"
    for name, text in (("vector", "its own vector"), ("word", "its own word")):
        said = f"from a durable row until a search by {text} finds it"
        yield f"{said}, p99 over the p99 of a strong read that shows it", f"found_{name}_ratio", "at most 1.2", ".2f"
        yield f"{said}, p99, ms", f"found_{name}_p99_ms", "-", ".1f"
    yield "from a durable row until a strong read shows it, p99, ms", "found_read_p99_ms", "-", ".1f"
    said = "during merges of 10,000 rows one after the other: nearest 10"
    yield f"{said}, CPU time over that without merges", "merging_ratio", "at most 2.5", ".2f"
    yield f"{said}, ms", "merging_ms", "-", ".1f"


def _restart_rows(name: str, text: str, aims: tuple[str, str, str]) -> list[_Row]:
    """Return the rows that ``restart`` measures under load; ``aims``: joining, p99, oldest."""
    joining, p99, oldest = aims
    return [
        (f"{text}from the start of a member's work to its first open partition, s", f"{name}joining_s", joining, ".1f"),
        (f"{text}SIGTERM to exit under load, s", f"{name}sigterm_s", "-", ".1f"),
        (f"{text}age of rows in strong reads, p50, ms", f"{name}p50_ms", "-", ",.0f"),
        (f"{text}age of rows in strong reads, p99, ms", f"{name}p99_ms", p99, ",.0f"),
        (f"{text}age of rows in strong reads, oldest, ms", f"{name}max_ms", oldest, ",.0f"),
        (f"{text}rows never seen", f"{name}rows_unseen", "0", ",.0f"),
    ]


def _changes_rows() -> Iterator[_Row]:
    yield (
        "net changes of a merge of 10,000 rows, over reading their old rows by address",
        "net_ratio",
        "at most 2",
        ".2f",
    )
    yield "old rows that were replaced", "old_rows", "-", ",.0f"
    yield "reading them by address, s", "take_s", "-", ".3f"
    yield "the feed, with opening the table, s", "net_s", "-", ".3f"
    yield "the same with all fragments compacted since, over that", "compacted_ratio", "at most 2", ".2f"
    yield "the feed then, s", "compacted_s", "-", ".3f"
    yield "net changes by 1 M unmerged records of 250,000 keys, over a strong read", "unmerged_net_ratio", "-", ".2f"
    yield "every change by them, over a strong read", "unmerged_all_ratio", "at most 2", ".2f"
    yield "strong read, with opening the table, s", "strong_read_s", "-", ".2f"
    yield "age of rows in follow over that in strong reads, p50", "follow_p50_ratio", "at most 1.3", ".2f"
    yield "age of rows in follow over that in strong reads, p99", "follow_p99_ratio", "at most 1.5", ".2f"
    yield "age of rows in follow, p50, ms", "follow_p50_ms", "-", ",.0f"
    yield "age of rows in follow, p99, ms", "follow_p99_ms", "-", ",.0f"
    yield "age of rows in strong reads of the same run, p50, ms", "strong_p50_ms", "-", ",.0f"
    yield "age of rows in strong reads of the same run, p99, ms", "strong_p99_ms", "-", ",.0f"
    yield "rows never seen", "rows_unseen", "0", ",.0f"


def _changes_on_spark_rows() -> Iterator[_Row]:
    said = "`foreachBatch`"
    yield f"{said}: age of rows over that by the barest Python source, p50", "spark_p50_ratio", "at most 1.5", ".2f"
    yield f"{said}: age of rows over that by the barest Python source, p99", "spark_p99_ratio", "at most 1.5", ".2f"
    yield f"{said}: from the produce call until a row is seen, p50, ms", "spark_p50_ms", "at most 3,000", ",.0f"
    yield f"{said}: from the produce call until a row is seen, p99, ms", "spark_p99_ms", "at most 6,000", ",.0f"
    yield f"{said}: the same by the barest source, p50, ms", "barest_p50_ms", "-", ",.0f"
    yield f"{said}: the same by the barest source, p99, ms", "barest_p99_ms", "-", ",.0f"
    yield f"{said}: rows never seen", "spark_unseen", "0", ",.0f"


def _changes_large_rows() -> Iterator[_Row]:
    said = "net changes of a merge of 10,000 rows"
    yield f"{said}: in 50 M rows over in 5 M", "large_ratio", "at most 1.5", ".2f"
    yield f"{said}: in 50 M, s", "large_net_s", "-", ".3f"
    yield f"{said}: in 5 M, s", "small_net_s", "-", ".3f"
    yield "reading the old rows by address in 50 M, s", "large_take_s", "-", ".3f"
    yield "reading the old rows by address in 5 M, s", "small_take_s", "-", ".3f"


def _columns_rows() -> Iterator[_Row]:
    yield "rows of the table", "rows", "-", ",.0f"
    yield (
        "add, rename, drop under load: the slowest of five commands, start to exit, s",
        "command_s",
        "at most 3",
        ".1f",
    )
    yield "the same without load, s", "idle_command_s", "-", ".1f"
    yield "add, rename, drop: written because of it, MB", "bytes_mb", "at most 1", ".2f"
    yield "of these, by the commands and services, bytes", "idle_bytes", "-", ",.0f"
    yield "of these, by the merge of rows that wait when a column is dropped, bytes", "waiting_bytes", "-", ",.0f"
    yield "freshness, p99, in the 30 s after five changes over that before", "fresh_ratio", "at most 1.7", ".2f"
    yield "freshness, p99, before the changes, ms", "fresh_before_p99_ms", "-", ",.0f"
    yield "freshness, p99, while the commands run, ms", "fresh_during_p99_ms", "-", ",.0f"
    yield (
        "the slowest of 128 rows with a new column, produced after the command, over the p99 before",
        "new_column_ratio",
        "at most 2",
        ".2f",
    )
    yield "failed reads, dead letters and ended services", "failures", "0", ",.0f"
    yield "rows never seen", "rows_unseen", "0", ",.0f"
    said = "an int32 column becomes int64"
    yield f"{said}: bytes written over those of the new column", "widen_bytes_ratio", "at most 1.3", ".2f"
    yield f"{said}: longest time that merges wait, s", "widen_wait_s", "at most 3", ".2f"
    yield f"{said}: turns", "widen_turns", "-", ",.0f"
    for name, text in (("upserts", "upserts only"), ("mixed", "mixed (70 % upserts, 25 % patches, 5 % deletes)")):
        said = f"fold of rows under three contracts, {text}"
        yield f"{said}: CPU time over that under one", f"fold_{name}_ratio", "at most 1.2", ".2f"
        yield f"{said}: CPU time, ms", f"fold_{name}_cpu_ms", "-", ",.0f"
    said = "5 % of the rows patched in an added column"
    yield f"{said}: bytes over those of an old column of the type", "patched_bytes_ratio", "at most 1.3", ".2f"
    yield f"{said}: written, MiB", "patched_mib", "-", ".1f"


def _cuts_rows() -> Iterator[_Row]:
    yield "`cut make` over 100 idle tables, s", "idle_s", "at most 30", ".1f"
    yield "the same, requests for a table", "idle_requests", "-", ",.0f"
    said = "20 tables of 4 partitions, 5,000 rows/s in all"
    yield f"{said}: `cut make`, s", "unread_s", "at most 12", ".1f"
    yield f"{said}, and three processes that read all the time: the slowest of three, s", "loaded_s", "-", ".1f"
    yield f"{said}: freshness, p99, while cuts are made over that before", "fresh_ratio", "at most 1.7", ".2f"
    yield f"{said}: `cut make`, processor time, s", "cut_cpu_s", "-", ",.1f"
    yield f"{said}: a process that only computes for so long, s", "floor_s", "-", ",.1f"
    yield (
        f"{said}: freshness, p99, while three such run one after the other, over that before",
        "fresh_floor_ratio",
        "-",
        ".2f",
    )
    yield f"{said}: freshness, p99, before, ms", "fresh_before_p99_ms", "-", ",.0f"
    yield f"{said}: freshness, p99, while cuts are made, ms", "fresh_meanwhile_p99_ms", "-", ",.0f"
    yield f"{said}: rows never seen", "rows_unseen", "0", ",.0f"
    yield "time of a read at a cut over that at its snapshot", "read_ratio", "at most 1.05", ".2f"
    yield "requests of a read at a cut beyond those at its snapshot", "read_more_requests", "at most 1", ",.0f"
    yield "read at a cut, s", "read_s", "-", ".2f"
    said = "moving cut of 20 tables, 5 of them changing, every 30 s"
    yield f"{said}: requests/s because of it", "moving_requests_per_s", "at most 4", ".1f"
    yield f"{said}: its age, p99, beyond the interval, s", "moving_age_over_interval_s", "at most 3", ".1f"
    for kind, text in (("folder", "a folder"), ("postgres", "PostgreSQL")):
        said = f"catalog of 10,000 tables in {text}"
        yield f"{said}: list all, s", f"{kind}_list_s", "at most 0.5", ".2f"
        yield f"{said}: change one, ms", f"{kind}_change_ms", "at most 50", ",.0f"
    yield "catalog in a folder: requests to find that nothing changed", "folder_requests", "1", ",.0f"
    yield "catalog in PostgreSQL: queries to list the tables again", "postgres_queries", "1", ",.0f"
    said = "PostgreSQL away for 60 s, 10,000 rows/s"
    yield f"{said}: rows lost", "away_rows_lost", "0", ",.0f"
    yield f"{said}: failed reads by address", "away_failed_reads", "0", ",.0f"
    yield f"{said}: freshness, p99, over that before", "away_fresh_ratio", "at most 1.2", ".2f"
    yield f"{said}: freshness, p99, before, ms", "away_fresh_before_p99_ms", "-", ",.0f"
    yield f"{said}: freshness, p99, meanwhile, ms", "away_fresh_p99_ms", "-", ",.0f"


_INGEST_PEAK = "at most the budget (512) + 300"

ROWS: dict[str, list[_Row]] = {
    "ingest": [
        ("upserts only: rows/s of ingest over those of the floor", "upserts_ratio", "at least 0.6", ".2f"),
        (
            "upserts only: rows/s of ingest without flushes over those of the floor",
            "upserts_without_snapshots_ratio",
            "-",
            ".2f",
        ),
        (
            "mixed (70 % upserts, 25 % patches, 5 % deletes): rows/s of ingest over those of the floor",
            "mixed_ratio",
            "at least 0.4",
            ".2f",
        ),
        (
            "mixed: rows/s of ingest without flushes over those of the floor",
            "mixed_without_snapshots_ratio",
            "-",
            ".2f",
        ),
        ("ingest, upserts only, rows/s", "upserts_rows_per_s", "-", ",.0f"),
        ("floor, upserts only, rows/s", "upserts_floor_rows_per_s", "-", ",.0f"),
        ("ingest, mixed, rows/s", "mixed_rows_per_s", "-", ",.0f"),
        ("peak resident memory, upserts, MiB", "upserts_peak_rss_mib", _INGEST_PEAK, ",.0f"),
        (
            "peak resident memory, upserts, while a second member comes and goes, MiB",
            "upserts_rebalanced_peak_rss_mib",
            _INGEST_PEAK,
            ",.0f",
        ),
        ("peak resident memory, mixed, MiB", "mixed_peak_rss_mib", _INGEST_PEAK, ",.0f"),
        (
            "peak resident memory, mixed, while a second member comes and goes, MiB",
            "mixed_rebalanced_peak_rss_mib",
            _INGEST_PEAK,
            ",.0f",
        ),
    ],
    "memory": [
        (f"peak resident memory over the budget, {text}, MiB", f"{name}_over_mib", aim, ",.0f")
        for name, text, aim in (
            ("compressed", "2,500 records of 900 KB in zstd", "at most 300"),
            ("vectors", "600 records of 1 MB, each one vector", "at most 300"),
            ("patches", "300,000 patches to a table 1,536 floats wide", "at most 300"),
            ("partitions", "64 partitions at once", "at most 300"),
            ("zstd_bomb", "one batch of 900 MB, in zstd (not read)", "at most 300"),
            ("lz4_bomb", "one batch of 240 MB, in lz4", "at most 300"),
            ("tiny", "one batch of a million empty records, in zstd", "at most 300"),
        )
    ],
    "freshness": [
        ("freshness, p50, ms", "p50_ms", "-", ",.0f"),
        ("freshness, p95, ms", "p95_ms", "-", ",.0f"),
        ("freshness, p99, ms", "p99_ms", "at most 500", ",.0f"),
        ("rows never seen", "rows_unseen", "0", ",.0f"),
        ("scans", "scans", "-", ",.0f"),
        ("table versions committed during the run", "table_version", "-", ",.0f"),
    ],
    "distance": [*_distance_rows()],
    "stores": [*_stores_rows()],
    "stores-freshness": [*_stores_freshness_rows()],
    "steady": [*_steady_rows()],
    "partitions": [*_partitions_rows()],
    "formats": list(_formats_rows()),
    "commits": list(_commits_rows()),
    "headers": list(_headers_rows()),
    "wrong-topic": [
        ("records produced", "records", "-", ",.0f"),
        ("recognised format: first record to the stop, s", "known_stop_s", "at most 2", ".2f"),
        ("recognised format: letters written", "known_letters", "0", ",.0f"),
        ("other format: first record to the stop, s", "unknown_stop_s", "at most 2", ".2f"),
        ("other format: letters written", "unknown_letters", "at most 99", ",.0f"),
    ],
    "restart": [
        *_restart_rows("", "", ("at most 2", "at most 2,000", "at most 3,000")),
        *_restart_rows("former_", "with the former heartbeat of 3 s: ", ("-", "-", "-")),
        ("SIGTERM while the broker hangs: exit of ingest, s", "hung_broker_ingest_s", "at most 30; before: 85", ".1f"),
        ("SIGTERM while the store hangs: exit of ingest, s", "hung_store_ingest_s", "at most 30", ".1f"),
        ("SIGTERM while the store hangs: exit of the flusher, s", "hung_store_flusher_s", "at most 60", ".1f"),
    ],
    "columns": list(_columns_rows()),
    "cuts": list(_cuts_rows()),
    "changes": list(_changes_rows()),
    "changes-on-spark": list(_changes_on_spark_rows()),
    "changes-large": list(_changes_large_rows()),
    "search": list(_search_rows()),
    "search-large": list(_search_rows()),
    "strong-read": [
        ("all columns: time of a strong read over a plain Lance scan", "all_ratio", "at most 2", ".2f"),
        ("three columns: time of a strong read over a plain Lance scan", "three_ratio", "at most 6", ".2f"),
        (
            "all columns: time of opening the table and a strong read over a plain Lance scan",
            "all_first_ratio",
            "-",
            ".2f",
        ),
        (
            "three columns: time of opening the table and a strong read over a plain Lance scan",
            "three_first_ratio",
            "-",
            ".2f",
        ),
        ("plain scan, all columns, s", "all_plain_s", "-", ".3f"),
        ("plain scan, three columns, s", "three_plain_s", "-", ".3f"),
    ],
    "reads": [
        ("time of an eventual read of all columns over a plain Lance scan", "eventual_ratio", "at most 1.05", ".2f"),
        (
            "time of a strong read, 1 % of the keys unmerged, over an eventual read",
            "strong_1_percent_ratio",
            "at most 1.1",
            ".2f",
        ),
        (
            "time of a strong read, 10 % of the keys unmerged, over an eventual read",
            "strong_10_percent_ratio",
            "at most 1.4",
            ".2f",
        ),
        (
            "time of a sum of two columns, 1 % unmerged, over a plain Lance scan",
            "aggregate_ratio",
            "at most 1.5",
            ".2f",
        ),
        ("lookup of 1 key, ms", "get_1_ms", "at most 5", ",.1f"),
        ("lookup of 1,000 keys, ms", "get_1000_ms", "at most 30", ",.1f"),
        ("1,000 keys: time of Lance's `IN` by a BTREE over the lookup's", "get_times_faster", "at least 3", ".2f"),
        ("`count_rows()`, ms", "count_ms", "at most 20", ",.1f"),
        ("256 partitions, 100 segments: warm strong plan, ms", "warm_plan_ms", "at most 150", ",.0f"),
        ("256 partitions, 100 segments: plan of a newly opened table, ms", "cold_plan_ms", "at most 1,000", ",.0f"),
        (
            "memory of a process that streams 50 M rows, 1 M keys unmerged, MiB",
            "stream_peak_mib",
            "at most 1,024",
            ",.0f",
        ),
        ("eventual read, all columns, s", "eventual_s", "-", ".2f"),
        ("strong read, 1 % unmerged, s", "strong_1_percent_s", "-", ".2f"),
        ("strong read, 10 % unmerged, s", "strong_10_percent_s", "-", ".2f"),
    ],
    "reads-on-spark": [*_reads_on_spark_rows()],
    "merge": [
        *_merge_rows("10 k upserts into 5 M", "10k", "at least 5", "at least 3"),
        *_merge_rows("100 k upserts into 5 M", "100k", "-", "-"),
        *_merge_rows("250 k upserts into 5 M", "250k", "at least 4", "at least 2"),
        *_merge_rows(
            "250 k upserts into 5 M, BTREE on the key, merge_insert told not to use it",
            "indexed",
            "at least 4",
            "at least 2",
        ),
        (
            "250 k upserts into 5 M: time of merge_insert by the BTREE over lancewal's, flush to commit",
            "indexed_from_flushed_times_faster_than_by_index",
            "at least 4",
            ".2f",
        ),
        (
            "250 k upserts into 5 M: failed runs of merge_insert by the BTREE",
            "indexed_merge_insert_by_index_failures",
            "-",
            ".0f",
        ),
        *_merge_rows("updates of 5 % of 5 M", "updates_5_percent", "above 1", "-"),
        *_merge_rows("updates of 25 % of 5 M", "updates_25_percent", "above 1", "-"),
        *_merge_rows("updates of 50 % of 5 M", "updates_50_percent", "above 1", "-"),
        (
            "after ten rounds of 100 k: all columns by lancewal's reader over plain Lance on a fresh table",
            "merged_full_reader_ratio",
            "at most 1.5",
            ".2f",
        ),
        (
            "after ten rounds of 100 k: sum of two columns by lancewal's reader over plain Lance on a fresh table",
            "merged_aggregate_reader_ratio",
            "-",
            ".2f",
        ),
        (
            "after ten rounds of 100 k: all columns by plain Lance over a fresh table",
            "merged_full_lance_ratio",
            "-",
            ".2f",
        ),
        (
            "after ten rounds of 100 k: sum of two columns by plain Lance over a fresh table",
            "merged_aggregate_lance_ratio",
            "-",
            ".2f",
        ),
        (
            "after ten rounds of merge_insert: all columns by plain Lance over a fresh table",
            "merged_full_merge_insert_ratio",
            "-",
            ".2f",
        ),
        (
            "after ten rounds of merge_insert: sum of two columns by plain Lance over a fresh table",
            "merged_aggregate_merge_insert_ratio",
            "-",
            ".2f",
        ),
        (
            "after compaction: all columns by lancewal's reader over plain Lance on a fresh table",
            "compacted_full_reader_ratio",
            "at most 1.1",
            ".2f",
        ),
        (
            "after compaction: sum of two columns by lancewal's reader over plain Lance on a fresh table",
            "compacted_aggregate_reader_ratio",
            "-",
            ".2f",
        ),
        (
            "after compaction: all columns by plain Lance over a fresh table",
            "compacted_full_lance_ratio",
            "at most 1.1",
            ".2f",
        ),
        (
            "after compaction: sum of two columns by plain Lance over a fresh table",
            "compacted_aggregate_lance_ratio",
            "-",
            ".2f",
        ),
        ("compaction, s", "compaction_s", "-", ".2f"),
        ("fresh table: all columns, s", "merged_full_fresh_s", "-", ".3f"),
        ("fresh table: sum of two columns, s", "merged_aggregate_fresh_s", "-", ".3f"),
        ("all tables equal to the model (1: yes)", "correct", "1", ".0f"),
    ],
    "merge-strategies": [
        ("rows of the table", "rows", "-", ",.0f"),
        *(row for kind in ("updates", "patches") for percent in (5, 25, 50) for row in _strategy_rows(kind, percent)),
        (
            "share of a fragment's rows updated, from which the model rewrites the fragment, %",
            "crossover_rewrite_percent",
            "-",
            ".1f",
        ),
        (
            "share of a fragment's rows patched in one column of seven, from which the model patches in place, %",
            "crossover_columns_percent",
            "-",
            ".1f",
        ),
        ("all tables equal to the model (1: yes)", "correct", "1", ".0f"),
    ],
    "write-amplification": [
        (
            "table bytes written per byte upserted: data, deletion vectors, key index",
            "table_ratio",
            "at most 1.7",
            ".2f",
        ),
        ("of these, data files", "data_ratio", "-", ".2f"),
        ("of these, deletion vectors", "deletions_ratio", "-", ".2f"),
        ("of these, the key index", "key_index_ratio", "-", ".2f"),
        ("in addition: compaction between the merges, all bytes that it writes", "compaction_ratio", "-", ".2f"),
        ("in addition: manifests", "manifests_ratio", "-", ".2f"),
        ("in addition: transactions", "transactions_ratio", "-", ".2f"),
        ("in addition: other objects of lancewal", "other_ratio", "-", ".2f"),
        ("in addition: WAL", "wal_ratio", "-", ".2f"),
        ("all bytes except the WAL", "everything_but_wal_ratio", "-", ".2f"),
        ("merge_insert: data and deletion vectors", "merge_insert_table_ratio", "-", ".2f"),
        ("merge_insert: all bytes", "merge_insert_everything_ratio", "-", ".2f"),
        ("size of the upserted Arrow rows, MiB", "upserted_mib", "-", ".0f"),
        ("all tables equal to the model (1: yes)", "correct", "1", ".0f"),
    ],
    "merge-on-spark": [
        (
            "tasks of a merge of 2 M keys into 20 M rows: time on Spark over time on threads",
            "ratio",
            "at most 2",
            ".2f",
        ),
        ("on threads, s", "threads_s", "-", ".2f"),
        ("on Spark, s", "spark_s", "-", ".2f"),
        ("on Spark, first run (its Python processes start), s", "spark_first_s", "-", ".2f"),
    ],
    "merge-large": [
        *_merge_rows("10 k upserts into 50 M", "10k_into_50m", "at least 10", "-"),
        (
            "10 k upserts: lancewal's time, flush to commit, into 50 M over into 5 M",
            "50m_over_5m_from_flushed",
            "at most 5",
            ".2f",
        ),
        *_merge_rows("10 k upserts into 5 M in the same process", "10k_into_5m", "-", "-"),
        ("peak memory of a process that merges 10 k into 50 M, MiB", "10k_into_50m_peak_mib", "at most 1,024", ",.0f"),
        (
            "peak memory of a process that merges 250 k into 50 M, MiB",
            "250k_into_50m_peak_mib",
            "at most 1,024",
            ",.0f",
        ),
        ("peak memory of a process that merges 10 k into 5 M, MiB", "10k_into_5m_peak_mib", "-", ",.0f"),
        ("all tables equal to the model (1: yes)", "correct", "1", ".0f"),
    ],
}


def write_page(results: Path, page: Path) -> None:
    """Write the page, with one table for each benchmark that has a result."""
    lines = INTRODUCTION.splitlines()
    for name, rows in ROWS.items():
        file = results / f"{name}.json"
        if not file.exists():
            continue
        content: dict[str, Any] = json.loads(file.read_text())
        lines += [
            "",
            f"## {name}",
            "",
            _measured_on(content["machine"]),
            "",
            "| measure | value | aim |",
            "|---|---|---|",
        ]
        for text, key, aim, form in rows:
            value = content["figures"].get(key)
            lines.append(f"| {text} | {'none' if value is None else format(value, form)} | {aim} |")
    lines += _peer_lines(results / "peers.json")
    lines += MISSED.splitlines()
    page.write_text("\n".join(lines) + "\n")


def _peer_lines(file: Path) -> list[str]:
    """Return the section about peers: how it is run, and what it measured."""
    lines = PEERS.splitlines()
    if not file.exists():
        return lines
    content: dict[str, Any] = json.loads(file.read_text())
    lines += [
        "",
        _measured_on(content["machine"]),
        "Times and rates are medians. CPU seconds are means over the runs, summed over all processes of a side. The ratio is "
        "lancewal's figure over the peer's.",
        "",
        f"| {' | '.join(HEADER)} |",
        "|---" * len(HEADER) + "|",
    ]
    lines += [f"| {' | '.join(cells(found))} |" for found in content["measured"]]
    lines += [f"\nNot measured: {name}: {reason}" for name, reason in content["missing"].items()]
    return lines


def _measured_on(machine: dict[str, Any]) -> str:
    facts = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in machine.items())
    return f"Measured on: {facts}."
