"""The facts of each partition, put together from what is stored and what Kafka says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lancewal_core.errors import Problem
from lancewal_core.process.status.facts import STANDS_S, KafkaSpan, PartitionFacts, WaitingGeneration
from lancewal_core.process.status.report import Figures
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.table.watermarks import InForce
from lancewal_tables.status.unmerged_counts import InWal, UnmergedCounts


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """Facts for the figures of all partitions.  ``in_force``: watermarks of the newest table version, None if they are
    unknown."""

    opened: OpenedTable
    in_force: InForce | None
    read: InForce | None
    """Watermarks of the version that a reader has open; None if they are unknown."""
    spans: Mapping[int, KafkaSpan]
    seal_age_s: float
    now_ms: int


def stored_facts(seen: SharedFacts, counts: UnmergedCounts) -> Figures:
    """Return the figures of one partition, from what was read before.  The function sends no requests."""
    region, index, in_force = counts.region, counts.index, seen.in_force
    newest = None if index is None else index.newest
    span = seen.spans.get(region.partition)
    merged = None if in_force is None else in_force.position(region)
    stopped = None if in_force is None else in_force.why_stopped(region)
    facts = PartitionFacts(
        region.topic,
        region.partition,
        kafka=span,
        start=seen.opened.contract.start_of(region.partition),
        claimed=index is not None if counts.index_read else None,
        begun=_begun(index),
        owner=None if newest is None else newest.owner,
        durable=counts.durable,
        flushed=merged if index is None else index.flushed(merged),
        merged=merged,
        read=None if seen.read is None else seen.read.position(region),
        changed_ms=_changed_ms(seen, counts, span),
        owner_wrote_ms=counts.owner_wrote_at_ms or None,
        rejections=counts.rejections.result(seen.opened.contract),
        open=_open(seen, counts, newest),
        sealed=_sealed(counts),
        unmerged=_unmerged(counts),
        stopped=None if stopped is None else Problem.of(stopped),
    )
    return Figures(
        facts,
        merged_generation=None if in_force is None else in_force.generation(region),
        generations={} if index is None else index.counts,
        unmerged_rows=counts.rows,
        unmerged_bytes=counts.nbytes,
    )


def records_wait(figures: Figures) -> bool:
    """Whether Kafka has committed records after the durable position."""
    it = figures.facts
    return it.kafka is not None and it.durable is not None and it.kafka.end > it.durable


def standing(figures: Figures, now_ms: int) -> bool:
    """Return whether the partition is stalled: records wait, and it has written no entry and no state for ``STANDS_S``
    seconds."""
    it = figures.facts
    if it.kafka is None or it.durable is None or it.changed_ms is None:
        return False
    return it.kafka.recent > it.durable and it.kafka.end > it.durable and now_ms - it.changed_ms > STANDS_S * 1000


def _begun(state: RegionState | None) -> int | None:
    """Return the first position of generation 1; None if the state does not list this generation."""
    if state is None or not state.generations or state.generations[0].generation != 1:
        return None
    return state.generations[0].first


def _changed_ms(seen: SharedFacts, counts: UnmergedCounts, span: KafkaSpan | None) -> int | None:
    """Return when the partition's newest entry or state was written, in ms since 1970.

    None if this is unknown, or if no record has waited for ``STANDS_S`` seconds."""
    if counts.durable is None or span is None or span.recent <= counts.durable:
        return None
    written = seen.opened.states.changed_at_ms(counts.region)
    return None if written is None else max(counts.entry_at_ms, written)


def _open(seen: SharedFacts, counts: UnmergedCounts, newest: GenerationRecord | None) -> WaitingGeneration | None:
    if newest is None or newest.state is not GenerationState.OPEN:
        return None
    wal = counts.in_wal.get(newest.generation)
    if wal is None or wal.first_at_ms is None or not wal.rows:
        return None
    # The generation began at the claim or at the seal before it, so it is no younger than its first entry.
    due_ms = wal.first_at_ms + int(seen.seal_age_s * 1000)
    return WaitingGeneration(newest.generation, wal.first_at_ms, wal.rows, wal.nbytes, due_ms)


def _sealed(counts: UnmergedCounts) -> WaitingGeneration | None:
    """Return the oldest SEALED generation, or None.  Generations that are known to have no rows are left out."""
    for record in counts.in_log:
        wal = counts.in_wal.get(record.generation)
        without_rows = record.first == record.next if wal is None else not wal.rows
        if record.state is GenerationState.SEALED and not without_rows:
            wal = wal or InWal()
            # If the record does not say when it was sealed, nothing does: its page may have changed later.
            return WaitingGeneration(record.generation, record.sealed_at_ms, wal.rows, wal.nbytes)
    return None


def _unmerged(counts: UnmergedCounts) -> WaitingGeneration | None:
    """Return the oldest flushed generation that changes the table, or whose flush cannot be read; None if there is none.

    An orderly stop leaves generations without rows.  They change nothing, so they must not look like a late merge.
    """
    found = [(record, part.changes, part.nbytes) for record, part in counts.snapshots if part.changes]
    found += [(record, 0, 0) for record in counts.unread]
    if not found:
        return None
    record, rows, nbytes = min(found, key=lambda one: one[0].generation)
    return WaitingGeneration(record.generation, record.flushed_at_ms, rows, nbytes)
