"""Logs and metrics of the flusher for people: JSON log lines and Prometheus metrics, from the reports of rounds.

Guarantees
 1. The guarantees of ``ServiceMetrics`` hold.
 2. The age of waiting generations grows even while rounds fail, because it is computed when the metrics are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import assert_never

from lancewal_core.errors import LancewalError, RegionConflict
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.metric_table import show_only
from lancewal_core.process.service_events import place_of
from lancewal_core.process.service_metrics import ProcessRegistry, ServiceMetrics
from lancewal_core.process.status.widenings import open_widenings
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.observed import ObservedStore
from lancewal_core.table.contract import Contract
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.garbage.collect import GarbageReport
from lancewal_flusher.garbage.subscribed import KeptBySubscription
from lancewal_flusher.merge.finish import Finished
from lancewal_flusher.merge.merge import Merged
from lancewal_flusher.service.backlog import Backlog
from lancewal_flusher.service.metric_table import FlusherMetricTable
from lancewal_flusher.service.round import RoundReport
from lancewal_flusher.service.upkeep import CompactionReport, IndexTurnReport
from lancewal_flusher.service.visibility import Failure
from lancewal_flusher.upkeep.compaction import Compacted
from lancewal_flusher.upkeep.expiry import Expired, ExpiryResult
from lancewal_flusher.upkeep.indexes import FarRows, IndexExtended, IndexRefused
from lancewal_flusher.upkeep.widening import WideningBegun, WideningDone, WideningHeld, WideningResult

SUBSCRIPTIONS_SHOWN = 100
"""Upper bound of the subscriptions, for each table, that have metric series of their own.  A table may have a
thousand."""

CUT_TABLES_SHOWN = 100
"""Upper bound of the tables, for each moving cut, that hold it back and have a metric series.  A catalog may have
thousands."""


class FlusherMetrics(ServiceMetrics):
    """Logs and metrics of one table.  ``registry`` holds the metrics of all tables of the process; nothing is
    registered globally.
    """

    service = "flusher"

    def __init__(
        self,
        clock: Clock,
        table: str,
        events: FlusherEvents,
        *,
        per_partition: bool = True,
        registry: ProcessRegistry | None = None,
    ) -> None:
        self._shown = FlusherMetricTable(table, per_partition=per_partition, registry=registry or ProcessRegistry())
        super().__init__(clock, table, events, self._shown, self._shown.paused)
        self.events: FlusherEvents = events
        self._waits_since_ms: dict[Region, int] = {}
        self._cuts_held: dict[str, Mapping[str, float]] = {}
        """Seconds for which tables have held moving cuts back, by cut and table."""
        self._far: dict[str, FarRows] = {}
        """Rows that an index cannot hold, as its upkeep last found them, by the index's name."""
        self._foreign_columns: tuple[str, ...] = ()
        """Columns of other programs, as they were last logged."""
        self._conflicting: frozenset[Region] = frozenset()
        """Regions that the newest round left out, because too many of their keys are in conflict."""

    def works_by(self, contract: Contract) -> None:
        """Set the metrics of ``contract``, which the flusher now uses: its version, and the age of its oldest
        unfinished widening.
        """
        self._shown.contract_version.set(contract.version)
        since_ms = min((open_.since_ms for open_ in open_widenings(contract)), default=None)
        self._shown.open_widening_seconds.set_function(
            lambda: 0.0 if since_ms is None else max(0.0, (self._clock.now_ms() - since_ms) / 1000)
        )

    @property
    def index_problems(self) -> Sequence[str]:
        """Return a text for each index that cannot hold some rows, with keys of such rows."""
        return [f"index {name}: {far.text}" for name, far in sorted(self._far.items())]

    def observed(self, store: ObjectStore) -> ObjectStore:
        """Return the store, with its requests counted."""
        return ObservedStore(store, self._shown)

    def round(self, report: RoundReport, seconds: float) -> None:
        """Record a round that ended without an error.  It may have left out some regions."""
        self._shown.round_seconds.observe(seconds)
        self._shown.last_round_timestamp_seconds.set(self._clock.now_ms() / 1000)
        self._shown.generations_flushed.inc(report.flushed)
        self._conflicting = frozenset(r for r, error in report.held.items() if isinstance(error, RegionConflict))
        self._shown.damaged_partitions.set(len(report.held) - len(self._conflicting))
        for region, error in sorted(report.held.items()):
            self.failed("merge", error, region=region)
        if report.foreign_columns != self._foreign_columns:
            self._foreign_columns = report.foreign_columns
            if report.foreign_columns:
                self.events.foreign_columns_seen(columns=list(report.foreign_columns))
        if report.flushed:
            self.events.generations_recovered(generations=report.flushed)
        for refused in report.refused:
            self._shown.conflicts.labels(refused.why).inc()
            self.events.merge_refused(reason=refused.reason)
        for merge in report.merges:
            self._landed(merge)
        for finished in report.finished:
            self._finished(finished)
        for upkeep in report.upkeep:
            self._shown.key_entries_written.labels("indexed").inc(upkeep.indexed)
            self._shown.key_entries_written.labels("merged").inc(upkeep.merged)

    def backlog(self, backlog: Backlog) -> None:
        """Set the metrics of the table's backlog."""
        self._shown.table_version.set(backlog.version)
        self._shown.older_contract_rows.set(backlog.older_rows)
        conflicts = backlog.in_force.conflicts
        self._shown.keys_in_conflict.set(0 if conflicts is None else conflicts.keys)
        stopped = frozenset(() if conflicts is None else conflicts.stopped)
        self._shown.conflicting_partitions.set(len(stopped | self._conflicting))
        for region, watermark in backlog.in_force.regions.items():
            if region in backlog.waiting:  # a topic that the table had before had partitions of the same numbers
                self._shown.merged_generation.labels(str(region.partition)).set(watermark.generation)
                self._shown.merged_position.labels(str(region.partition)).set(watermark.next)
        for region, at in sorted(backlog.fell.items()):
            self._shown.invariant_violations.labels("merged_position_fell").inc()
            self.events.invariant_violated(
                kind="merged_position_fell", topic=region.topic, partition=region.partition, position=at
            )
        merged_s: dict[tuple[str, ...], float] = {
            (str(of.partition),): ms / 1000 for of, ms in backlog.merged_ms.items()
        }
        show_only(self._shown.merged_timestamp_seconds, merged_s)
        # Figures of a region whose state is damaged stay as they were seen last.
        old = {region: ms for region, ms in self._waits_since_ms.items() if region not in backlog.waiting}
        self._waits_since_ms = old | backlog.waits_since_ms
        for region, records in backlog.waiting.items():
            partition = str(region.partition)
            self._shown.unmerged_generations.labels(partition).set(len(records))
            self._shown.unmerged_rows.labels(partition).set(backlog.rows[region])
            self._shown.oldest_unmerged_seconds.labels(partition).set_function(partial(self._oldest_s, region))

    def garbage(self, report: GarbageReport) -> None:
        deleted, waiting = len(report.deleted_keys), len(report.waiting_keys)
        self._shown.gc_deleted_objects.inc(deleted)
        self._shown.gc_waiting_objects.set(waiting)
        self._shown.gc_expired_versions.inc(len(report.expired_versions))
        self._shown.gc_dropped_snapshots.inc(len(report.dropped_snapshots))
        self._subscriptions(report)
        for fault in (report.names_fault, *report.subscription_faults.values()):
            if fault is not None:
                self.failed("gc", fault)
        if deleted or report.trimmed or report.expired_versions or report.dropped_snapshots:
            trimmed: Mapping[str, int] = {region.name: g for region, g in report.trimmed.items()}
            self.events.garbage_collected(
                deleted_objects=deleted,
                waiting_objects=waiting,
                trimmed=trimmed,
                expired_versions=len(report.expired_versions),
                dropped_snapshots=report.dropped_snapshots,
            )

    def _subscriptions(self, report: GarbageReport) -> None:
        """Set the metrics of subscriptions: one series for each of the first ``SUBSCRIPTIONS_SHOWN`` by name, and one
        with the maximum of all others.
        """
        found: dict[tuple[str, ...], list[KeptBySubscription]] = {}
        for number, (name, kept) in enumerate(sorted(report.subscriptions.items())):
            found.setdefault((name if number < SUBSCRIPTIONS_SHOWN else "other",), []).append(kept)
        lags_s = {label: max(kept.lag_ms for kept in some) / 1000 for label, some in found.items()}
        show_only(self._shown.subscription_lag_seconds, lags_s)
        ratios = {label: max(kept.lag_ratio for kept in some) for label, some in found.items()}
        show_only(self._shown.subscription_lag_ratio, ratios)
        segments = {label: float(max(kept.segments for kept in some)) for label, some in found.items()}
        show_only(self._shown.subscription_held_segments, segments)
        versions = {label: float(max(kept.versions for kept in some)) for label, some in found.items()}
        show_only(self._shown.subscription_held_versions, versions)
        self._shown.damaged_subscriptions.set(len(report.subscription_faults))

    def compaction(self, report: CompactionReport, seconds: float) -> None:
        """Record a compaction, with the work on indexes after it."""
        self._shown.compaction_seconds.observe(seconds)
        match report.compaction:
            case Compacted() as compacted:
                self._compacted(compacted)
            case Refused(reason=reason, why=why):
                self._shown.compaction_conflicts.labels(why).inc()
                self.events.compaction_refused(reason=reason)
            case None:
                pass
            case _:
                assert_never(report.compaction)
        table = report.table
        self._shown.fragments.set(table.fragments)
        self._shown.table_rows.set(table.rows)
        self._shown.table_bytes.set(table.nbytes)
        self._shown.hidden_rows.set(table.hidden_rows)
        self._shown.hidden_ratio.set(table.hidden_rows / max(1, table.rows + table.hidden_rows))
        self._shown.hidden_fragments.set(table.hidden_fragments)
        self._shown.deletion_debt_bytes.set(table.hidden_nbytes)
        self.index_upkeep(report.upkeep)

    def index_upkeep(self, report: IndexTurnReport) -> None:
        """Record what a turn has done to the indexes."""
        for result in report.indexes:
            if result.far is not None:
                self._far[result.name] = result.far
                self.events.index_rows_far(index=result.name, rows=result.far.rows, keys=list(result.far.keys))
            elif isinstance(result, IndexExtended) and result.rebuilt:
                self._far.pop(result.name, None)
            match result:
                case IndexExtended(name=name, version=version, rows=rows, merged_segments=merged, rebuilt=rebuilt):
                    self._shown.indexes_extended.labels(name).inc()
                    self.events.index_extended(
                        index=name,
                        version=version,
                        rows=rows,
                        merged_segments=merged,
                        rebuilt=rebuilt,
                    )
                case IndexRefused(name=name, reason=reason, more=True):
                    self.events.index_deferred(index=name, reason=reason)
                case IndexRefused(name=name, reason=reason):
                    self._shown.index_refusals.labels(name).inc()
                    self.events.index_refused(index=name, reason=reason)
                case _:
                    assert_never(result)
        # Forget indexes that are gone.
        self._far = {name: far for name, far in self._far.items() if name in report.unindexed_rows}
        show_only(self._shown.index_far_rows, {(name,): far.rows for name, far in self._far.items()})
        show_only(self._shown.unindexed_rows, {(name,): rows for name, rows in report.unindexed_rows.items()})

    def widening(self, result: WideningResult) -> None:
        """Log the progress of a widening; None: there is no widening."""
        match result:
            case None:
                pass
            case WideningDone(version=version, columns=columns, fragments=fragments, bytes_written=nbytes):
                self.events.column_widened(
                    version=version, columns=list(columns), fragments=fragments, written_bytes=nbytes
                )
            case WideningBegun(columns=columns, left=left):
                self.events.widening_begun(columns=list(columns), fragments=left)
            case WideningHeld(columns=columns, reason=reason):
                self.events.widening_held(columns=list(columns), reason=reason)
            case Refused(reason=reason):
                self.events.widening_refused(reason=reason)
            case _:
                assert_never(result)

    def expiry(self, result: ExpiryResult) -> None:
        """Record a turn that hid expired rows."""
        match result:
            case Expired(version=version, rows=rows, fragments=fragments):
                self._shown.expired_rows.inc(rows)
                self.events.rows_expired(version=version, rows=rows, fragments=fragments)
            case Refused(reason=reason):
                self.events.expiry_refused(reason=reason)
            case None:
                pass
            case _:
                assert_never(result)

    def failed(
        self, act: str, error: LancewalError, again_s: float | None = None, region: Region | None = None
    ) -> None:
        """Record an error after which ``act`` is retried, in ``again_s`` seconds, or in the next round if that is None."""
        self._shown.failures.labels(error.kind).inc()
        if self._to_be_logged((act, region, error.kind)):
            of_region = {} if region is None else {"topic": region.topic, "partition": region.partition}
            place = {**place_of(error), **of_region}
            self.events.operation_failed(operation=act, kind=error.kind, error=str(error), retry_s=again_s, **place)

    def watch(self, beside: Callable[[], Sequence[tuple[str, float]]]) -> None:
        """Set the function that is called when metrics are read.  It returns the names of parallel turns that are
        running, and for how many seconds each has been running."""
        self._shown.gc_running_seconds.set_function(lambda: dict(beside()).get("gc", 0.0))

    def catalog_silent(self, seconds: Callable[[], float]) -> None:
        """Set the function that is called when metrics are read.  It returns for how many seconds the catalog has not
        answered.
        """
        self._shown.catalog_silent_seconds.set_function(seconds)

    def cut_age(self, cut: str, seconds: Callable[[], float]) -> None:
        """Set the function that is called when metrics are read.  It returns the age of a moving cut in seconds."""
        self._shown.cut_age_seconds.labels(cut).set_function(seconds)

    def cut_held(self, cut: str, held_s: Mapping[str, float]) -> None:
        """Set the seconds for which tables have held a cut back.  The thread of each cut calls this."""
        self._cuts_held[cut] = dict(sorted(held_s.items(), key=lambda of: -of[1])[:CUT_TABLES_SHOWN])
        shown: dict[tuple[str, ...], float] = {
            (cut, name): since for cut, held in list(self._cuts_held.items()) for name, since in held.items()
        }
        show_only(self._shown.cut_held_seconds, shown)

    def stands(self, turn: str, seconds: float) -> None:
        """Log that a parallel turn has been running for very long."""
        if self._to_be_logged(("stands", turn)):
            self.events.turn_stands(operation=turn, duration_s=seconds)

    # -- visibility, from a thread of its own --------------------------------------------------------------------

    def visible(self, seconds: float) -> None:
        self._shown.visible_seconds.observe(seconds)

    def not_visible(self, region: Region, position: Position, end: Position) -> None:
        self._shown.visibility_failures.labels("timeout").inc()
        if self._to_be_logged(("visibility", region)):
            self.events.visibility_missed(topic=region.topic, partition=region.partition, position=position, end=end)

    def unanswered(self, reason: Failure, error: LancewalError) -> None:
        self._shown.visibility_failures.labels(reason).inc()
        if self._to_be_logged(("visibility", reason)):
            place = place_of(error)
            self.events.operation_failed(operation="visibility", kind=error.kind, error=str(error), **place)

    def measured(self, behind: Mapping[Region, int]) -> None:
        for region, offsets in behind.items():
            self._shown.visibility_behind_records.labels(str(region.partition)).set(offsets)
        if not any(behind.values()):
            self._shown.visibility_timestamp_seconds.set(self._clock.now_ms() / 1000)

    def _landed(self, merge: Merged) -> None:
        self._shown.merges.inc()
        self._shown.adopted_rows.inc(merge.rows_adopted)
        self._shown.written_rows.inc(merge.rows_written)
        self._shown.adopted_bytes.inc(merge.bytes_adopted)
        self._shown.rewritten_bytes.labels("merge").inc(merge.bytes_written)
        self._shown.replaced_rows.inc(merge.rows_replaced - merge.rows_in_place)
        self._shown.in_place_rows.inc(merge.rows_in_place)
        self._shown.keys_deleted.inc(merge.keys_deleted)
        for region, generations in merge.generations.items():
            self._shown.generations_merged.labels(str(region.partition)).inc(len(generations))
        self.events.merge_landed(
            version=merge.version,
            read_version=merge.read_version,
            partitions=len(merge.generations),
            generations=sum(len(g) for g in merge.generations.values()),
            adopted_rows=merge.rows_adopted,
            written_rows=merge.rows_written,
            replaced_rows=merge.rows_replaced,
            in_place_rows=merge.rows_in_place,
            worn_fragments=len(merge.worn),
            deleted_keys=merge.keys_deleted,
            scanned_fragments=merge.fragments_scanned,
            unknown_partition_rows=merge.regions_not_known,
        )
        if merge.set_aside:
            self.events.keys_set_aside(
                version=merge.version,
                keys=merge.set_aside,
                partitions=merge.set_aside_of,
            )
        self._shown.unknown_partition_rows.inc(merge.regions_not_known)
        self._shown.fragments_scanned.inc(merge.fragments_scanned)
        for fault in merge.index_faults:
            self.events.key_index_damaged(error=fault)

    def _compacted(self, compacted: Compacted) -> None:
        self._shown.compactions.labels(compacted.reason).inc()
        self._shown.compacted_fragments.inc(compacted.fragments_before)
        self._shown.compacted_bytes.inc(compacted.bytes_written)
        self._shown.rewritten_bytes.labels("compaction").inc(compacted.bytes_written)
        self._shown.dropped_rows.inc(compacted.rows_dropped)
        compacted.log(self.events)

    def _finished(self, finished: Finished) -> None:
        self._shown.hidden_foreign_rows.inc(finished.rows_hidden)
        self._shown.fragments_rebuilt.inc(finished.fragments_rebuilt)
        if finished.rows_hidden or finished.fragments_rebuilt:
            self.events.merge_followed_up(
                version=finished.version,
                hidden_rows=finished.rows_hidden,
                rebuilt_fragments=finished.fragments_rebuilt,
            )

    def _oldest_s(self, region: Region) -> float:
        since_ms = self._waits_since_ms.get(region)
        return 0.0 if since_ms is None else max(0.0, (self._clock.now_ms() - since_ms) / 1000)
