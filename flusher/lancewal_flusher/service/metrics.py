"""What the flusher shows to people: JSON log lines and Prometheus metrics, from the reports of rounds.

Guarantees
 1. No payload and no secret: only names, numbers and the messages of our own errors.
 2. The age of what waits grows while rounds fail: it is computed when the metrics are read.
 3. A fault that repeats is counted each time and logged at most every ``REPEAT_LOG_S``.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import assert_never

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from lancewal_core.errors import LancewalError
from lancewal_core.ids import Generation, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.gauges import show_only
from lancewal_core.region.index import GenerationRecord
from lancewal_core.table.contract import Contract
from lancewal_core.table.control import Until
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.garbage.collect import GarbageReport
from lancewal_flusher.merge.finish import Finished
from lancewal_flusher.merge.merge import Merged
from lancewal_flusher.service.backlog import Backlog
from lancewal_flusher.service.compaction_turns import IndexReport, TurnReport
from lancewal_flusher.service.round import RoundReport
from lancewal_flusher.service.schedule import TurnFailed
from lancewal_flusher.upkeep.compaction import Compacted, NothingToCompact
from lancewal_flusher.upkeep.expiry import Expired, ExpiryResult, NothingExpired
from lancewal_flusher.upkeep.indexes import IndexExtended, IndexRefused

REPEAT_LOG_S = 10.0
_ROUND_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_REGION = ("topic", "partition")


class FlusherMetrics:
    """``registry`` holds every metric; nothing is registered globally."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log = structlog.get_logger("lancewal.flusher")
        self._failure_logged: dict[tuple[str, str], float] = {}
        self._first_seen: dict[tuple[Region, Generation], float] = {}
        self._waiting: dict[Region, tuple[GenerationRecord, ...]] = {}
        self.registry = CollectorRegistry()
        self._merges = self._counter("merges", "Merges that landed.")
        self._adopted = self._counter("rows_adopted", "Rows taken with the data files of a snapshot.")
        self._written = self._counter("rows_written", "Rows written anew: combined generations, completed patches.")
        self._replaced = self._counter("rows_replaced", "Rows of the table that a merge hid, deleted ones included.")
        self._in_place = self._counter(
            "rows_in_place", "Rows of the table of which a merge wrote only the patched columns."
        )
        self._deleted = self._counter("keys_deleted", "Keys whose newest record is a delete.")
        self._scanned = self._counter(
            "fragments_scanned", "Fragments that merges scanned for keys: the key index does not cover them."
        )
        self._regions_not_known = self._counter(
            "rows_region_not_known",
            "Rows that the key index found for keys of a merge, of which it does not know through which region they came: "
            "only of tables keyed by bytes.",
        )
        self._entries = self._counter(
            "key_entries_written", "Entries of key runs written, for new files and again by merging runs.", ("why",)
        )
        self._merged = self._counter("generations_merged", "Generations that merges took.", _REGION)
        self._conflicts = self._counter("conflicts", "Merges that did not land, and were planned again.")
        self._flushed = self._counter("generations_flushed", "SEALED generations whose ingest did not flush them.")
        self._hidden = self._counter(
            "foreign_rows_hidden", "Rows that users appended with a key of the merge under way."
        )
        self._rebuilt = self._counter("fragments_rebuilt", "Adopted fragments whose files a clean-up had taken.")
        self._failures = self._counter(
            "failures",
            "Rounds, regions in them, and turns of garbage collection, compaction and expiry that failed and are tried "
            "again, by kind.",
            ("kind",),
        )
        self._damaged = self._gauge(
            "damaged_regions", "Regions that are not merged because something they need is damaged or lost."
        )
        self._gc_deleted = self._counter(
            "gc_deleted_objects", "WAL segments, snapshot files and index versions deleted."
        )
        self._gc_waiting = self._gauge("gc_waiting_objects", "Free objects that wait for their grace period.")
        self._compactions = self._counter("compactions", "Rounds of compaction that landed.", ("reason",))
        self._compaction_conflicts = self._counter("compaction_conflicts", "Rounds of compaction that did not land.")
        self._compacted_fragments = self._counter("compacted_fragments", "Fragments that compaction wrote anew.")
        self._compacted_bytes = self._counter("compacted_bytes", "Bytes that compaction wrote.")
        self._expired = self._counter("rows_expired", "Rows hidden because their time to live was over.")
        self._dropped = self._counter("rows_dropped", "Hidden rows that compaction left out.")
        self._extended = self._counter("indexes_extended", "Segments added to secondary indexes.", ("index",))
        self._index_refusals = self._counter(
            "index_refusals", "Secondary indexes that could not be extended, and are tried again.", ("index",)
        )
        self._fragments = self._gauge("fragments", "Fragments of the table, when compaction last looked.")
        self._hidden_rows = self._gauge(
            "hidden_rows", "Rows that fragments hold and hide, when compaction last looked."
        )
        self._unindexed = self._gauge(
            "unindexed_rows",
            "Rows that a secondary index does not cover, when upkeep last looked: behind each merge and each round of "
            "compaction. Queries scan them; fuzzy text queries leave them out.",
            ("index",),
        )
        self._version = self._gauge("table_version", "Newest version of the Lance table.")
        self._generation = self._gauge("watermark_generation", "Newest merged generation.", _REGION)
        self._position = self._gauge("watermark_position", "Kafka offset from which on nothing is merged.", _REGION)
        self._generations = self._gauge(
            "unmerged_generations", "Generations that have ended and are not merged.", _REGION
        )
        self._rows = self._gauge("unmerged_rows", "Changed keys in snapshots that are not merged.", _REGION)
        self._age = self._gauge(
            "oldest_unmerged_seconds", "How long this process has known of the oldest unmerged generation.", _REGION
        )
        self._success = self._gauge("last_round_timestamp_seconds", "When a round last ended without an error.")
        self._by_operator = self._gauge(
            "paused_by_operator", "1 while `lancewal pause flusher` holds: no round begins."
        )
        self._pause: Until | None = None
        self._rounds = Histogram(
            "lancewal_flusher_round_seconds", "Duration of a round.", buckets=_ROUND_S, registry=self.registry
        )
        self._turns = Histogram(
            "lancewal_flusher_compaction_seconds",
            "Duration of a round of compaction, with the indexes behind it.",
            buckets=_ROUND_S,
            registry=self.registry,
        )
        self._info = Info("lancewal_flusher_build", "Version and what is merged.", registry=self.registry)

    def started(self, contract: Contract, runner: str) -> None:
        """Say once what this process is."""
        try:
            version = metadata.version("lancewal")
        except metadata.PackageNotFoundError:
            version = "unknown"
        what = {"topic": contract.topic, "table": contract.table_uuid, "runner": runner}
        self._info.info({"version": version, "python": platform.python_version(), **what})
        self._log.info("started", version=version, contract=contract.version, partitions=contract.partitions, **what)

    def paused_by_operator(self, until: Until | None) -> None:
        """Note the pause in force, or that there is none."""
        self._by_operator.set(until is not None)
        if until != self._pause:
            self._pause = until
            self._log.warning("paused by an operator" if until is not None else "pause has ended", until=until)

    def round(self, report: RoundReport, seconds: float) -> None:
        """A round ended without an error, but for the regions that it left."""
        self._rounds.observe(seconds)
        self._success.set(self._clock.now_ms() / 1000)
        self._flushed.inc(report.flushed)
        self._damaged.set(len(report.damaged))
        for region, error in sorted(report.damaged.items()):
            self.failed(f"region {region.name}", error)
        if report.flushed:
            self._log.info("flushed orphans", generations=report.flushed)
        for reason in report.refused:
            self._conflicts.inc()
            self._log.info("merge refused", reason=reason)
        for merge in report.merges:
            self._landed(merge)
        for finished in report.finished:
            self._finished(finished)
        for upkeep in report.upkeep:
            self._entries.labels("indexed").inc(upkeep.indexed)
            self._entries.labels("merged").inc(upkeep.merged)

    def backlog(self, backlog: Backlog) -> None:
        """What is merged and what waits."""
        now = self._clock.monotonic()
        self._version.set(backlog.version)
        for region, watermark in backlog.in_force.regions.items():
            self._generation.labels(region.topic, str(region.partition)).set(watermark.generation)
            self._position.labels(region.topic, str(region.partition)).set(watermark.next)
        self._waiting = dict(backlog.waiting)
        keys = {(region, r.generation) for region, records in backlog.waiting.items() for r in records}
        self._first_seen = {key: self._first_seen.get(key, now) for key in keys}
        for region, records in backlog.waiting.items():
            labels = (region.topic, str(region.partition))
            self._generations.labels(*labels).set(len(records))
            self._rows.labels(*labels).set(backlog.rows[region])
            self._age.labels(*labels).set_function(partial(self._oldest_s, region))

    def garbage(self, report: GarbageReport) -> None:
        self._gc_deleted.inc(report.deleted)
        self._gc_waiting.set(report.waiting)
        if report.deleted or report.trimmed:
            trimmed: Mapping[str, int] = {region.name: g for region, g in report.trimmed.items()}
            self._log.info("garbage", deleted=report.deleted, waiting=report.waiting, trimmed=trimmed)

    def turn(self, report: TurnReport | TurnFailed, seconds: float) -> None:
        """A turn of compaction and indexes ended."""
        if isinstance(report, TurnFailed):
            self.failed("compaction", report.error, report.again_s)
            return
        self._turns.observe(seconds)
        match report.compaction:
            case Compacted() as compacted:
                self._compacted(compacted)
            case Refused(reason=reason):
                self._compaction_conflicts.inc()
                self._log.info("compaction refused", reason=reason)
            case NothingToCompact():
                pass
            case _:
                assert_never(report.compaction)
        self._fragments.set(report.fragments)
        self._hidden_rows.set(report.hidden_rows)
        self._indexes(report.indexes, report.unindexed_rows)

    def index_turn(self, report: IndexReport | TurnFailed) -> None:
        """A turn of the indexes alone ended."""
        if isinstance(report, TurnFailed):
            self.failed("index upkeep", report.error, report.again_s)
        else:
            self._indexes(report.indexes, report.unindexed_rows)

    def _indexes(self, done: Sequence[IndexExtended | IndexRefused], unindexed_rows: Mapping[str, int]) -> None:
        for result in done:
            match result:
                case IndexExtended(name=name, version=version, rows=rows, merged_segments=merged, rebuilt=rebuilt):
                    self._extended.labels(name).inc()
                    self._log.info(
                        "index extended",
                        index=name,
                        version=version,
                        rows=rows,
                        merged_segments=merged,
                        rebuilt=rebuilt,
                    )
                case IndexRefused(name=name, reason=reason, more=True):
                    self._log.info("index put off", index=name, reason=reason)
                case IndexRefused(name=name, reason=reason):
                    self._index_refusals.labels(name).inc()
                    self._log.warning("index not extended", index=name, reason=reason)
                case _:
                    assert_never(result)
        # Of an index that is gone nothing remains.
        show_only(self._unindexed, {(name,): rows for name, rows in unindexed_rows.items()})

    def expiry(self, result: ExpiryResult | TurnFailed) -> None:
        """A turn of expiry ended."""
        match result:
            case TurnFailed():
                self.failed("expiry", result.error, result.again_s)
            case Expired(version=version, rows=rows, fragments=fragments):
                self._expired.inc(rows)
                self._log.info("rows expired", version=version, rows=rows, fragments=fragments)
            case Refused(reason=reason):
                self._log.info("expiry refused", reason=reason)
            case NothingExpired():
                pass
            case _:
                assert_never(result)

    def failed(self, act: str, error: LancewalError, again_s: float | None = None) -> None:
        """A fault after which ``act`` is tried again: ``again_s`` from now, None by the next round."""
        self._failures.labels(error.kind).inc()
        now = self._clock.monotonic()
        if now - self._failure_logged.get((act, error.kind), -REPEAT_LOG_S) >= REPEAT_LOG_S:
            self._failure_logged[act, error.kind] = now
            self._log.warning(
                "failed, trying again", act=act, kind=error.kind, error=str(error), again_s=again_s, **error.where
            )

    def stopping(self) -> None:
        self._log.info("stopping")

    def _landed(self, merge: Merged) -> None:
        self._merges.inc()
        self._adopted.inc(merge.rows_adopted)
        self._written.inc(merge.rows_written)
        self._replaced.inc(merge.rows_replaced - merge.rows_in_place)
        self._in_place.inc(merge.rows_in_place)
        self._deleted.inc(merge.keys_deleted)
        for region, generations in merge.generations.items():
            self._merged.labels(region.topic, str(region.partition)).inc(len(generations))
        self._log.info(
            "merged",
            version=merge.version,
            read_version=merge.read_version,
            regions=len(merge.generations),
            generations=sum(len(g) for g in merge.generations.values()),
            rows_adopted=merge.rows_adopted,
            rows_written=merge.rows_written,
            rows_replaced=merge.rows_replaced,
            rows_in_place=merge.rows_in_place,
            worn_fragments=len(merge.worn),
            keys_deleted=merge.keys_deleted,
            fragments_scanned=merge.fragments_scanned,
            regions_not_known=merge.regions_not_known,
        )
        self._regions_not_known.inc(merge.regions_not_known)
        self._scanned.inc(merge.fragments_scanned)
        for fault in merge.index_faults:
            self._log.warning("key index damaged: scanned instead, and written anew", fault=fault)

    def _compacted(self, compacted: Compacted) -> None:
        self._compactions.labels(compacted.reason).inc()
        self._compacted_fragments.inc(compacted.fragments_before)
        self._compacted_bytes.inc(compacted.bytes_written)
        self._dropped.inc(compacted.rows_dropped)
        self._log.info(
            "compacted",
            version=compacted.version,
            reason=compacted.reason,
            fragments_before=compacted.fragments_before,
            fragments_after=compacted.fragments_after,
            rows=compacted.rows,
            rows_dropped=compacted.rows_dropped,
            bytes_read=compacted.bytes_read,
            bytes_written=compacted.bytes_written,
        )

    def _finished(self, finished: Finished) -> None:
        self._hidden.inc(finished.rows_hidden)
        self._rebuilt.inc(finished.fragments_rebuilt)
        if finished.rows_hidden or finished.fragments_rebuilt:
            self._log.warning(
                "merge needed a follow-up",
                version=finished.version,
                foreign_rows_hidden=finished.rows_hidden,
                fragments_rebuilt=finished.fragments_rebuilt,
            )

    def _oldest_s(self, region: Region) -> float:
        seen = [self._first_seen.get((region, r.generation)) for r in self._waiting.get(region, ())]
        known = [since for since in seen if since is not None]
        return max(0.0, self._clock.monotonic() - min(known)) if known else 0.0

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"lancewal_flusher_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"lancewal_flusher_{name}", text, labels, registry=self.registry)
