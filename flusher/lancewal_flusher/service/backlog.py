"""What is merged and what waits to be: for metrics and readiness."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lancewal_core.errors import Corrupt
from lancewal_core.ids import Position, Region, TableVersion
from lancewal_core.region.flushes.manifest import Flush
from lancewal_core.region.index import GenerationRecord, RegionIndex, State
from lancewal_core.region.snapshot import read_flushes
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.service.merged_positions import MergedPositions
from lancewal_flusher.service.round import RoundReport


@dataclass(frozen=True, slots=True)
class Backlog:
    """``waiting``: per region of the contract the generations above the watermark that have ended, oldest first;
    ``rows``: changed keys in those of them that have a snapshot.  Regions whose index is damaged are in neither."""

    version: TableVersion
    in_force: InForce
    waiting: Mapping[Region, tuple[GenerationRecord, ...]]
    rows: Mapping[Region, int]
    waits_since_ms: Mapping[Region, int] = field(default_factory=dict)
    """Of the oldest that waits: when it was flushed, else sealed, by its state, which survives a restart."""
    merged_ms: Mapping[Region, int] = field(default_factory=dict)
    """When the newest that is merged was sealed: what was durable then is in the table.  Unknown once its record has gone."""
    fell: Mapping[Region, Position] = field(default_factory=dict)
    """Where the merged position is less than it was, which must never be."""
    indexes: Mapping[Region, RegionIndex] = field(default_factory=dict)


def backlog_after(context: FlusherContext, report: RoundReport, merged: MergedPositions) -> Backlog:
    """The backlog behind a round; reads the newest state only where the round has not seen that nothing is left."""
    if report.left is None:
        return backlog_now(context, merged)
    left = report.left
    unknown = [region for region in left.damaged if region not in left.indexes]
    return _backlog(context, left.version, left.in_force, _Known(left.indexes, unknown), merged)


def backlog_now(context: FlusherContext, merged: MergedPositions) -> Backlog:
    """The backlog by the newest state."""
    pinned, in_force = context.watermarks.newest()
    sound = context.read_sound_indexes()
    return _backlog(context, pinned.version, in_force, _Known(sound.indexes, sound.damaged), merged)


@dataclass(frozen=True, slots=True)
class _Known:
    indexes: Mapping[Region, RegionIndex]
    damaged: Collection[Region]


def _backlog(
    context: FlusherContext,
    version: TableVersion,
    in_force: InForce,
    known: _Known,
    merged: MergedPositions,
) -> Backlog:
    indexes = known.indexes
    regions = [region for region in context.contract.regions if region not in known.damaged]
    waiting = {region: _ended(indexes.get(region), in_force) for region in regions}
    named = {r.snapshot for records in waiting.values() for r in records if r.snapshot is not None}
    flushes = read_flushes(context.store, context.tasks, named)
    rows = {region: sum(_rows(flushes, region, r) for r in records) for region, records in waiting.items()}
    newest = {region: _newest_merged(indexes.get(region), in_force) for region in regions}
    oldest = {region: next(iter(records), None) for region, records in waiting.items()}
    return Backlog(
        version,
        in_force,
        waiting,
        rows,
        _times_ms({of: r.flushed_at_ms or r.sealed_at_ms for of, r in oldest.items() if r is not None}),
        _times_ms({of: r.sealed_at_ms for of, r in newest.items() if r is not None}),
        merged.look(context.table, in_force),
        indexes,
    )


def _times_ms(stored: Mapping[Region, int | None]) -> dict[Region, int]:
    return {region: at_ms for region, at_ms in stored.items() if at_ms is not None}


def _newest_merged(index: RegionIndex | None, in_force: InForce) -> GenerationRecord | None:
    """None where nothing was merged, or the generation has left the index."""
    if index is None:
        return None
    merged = in_force.generation(index.region)
    return next((r for r in index.generations if r.generation == merged), None)


def _ended(index: RegionIndex | None, in_force: InForce) -> tuple[GenerationRecord, ...]:
    if index is None:
        return ()
    merged = in_force.generation(index.region)
    return tuple(r for r in index.generations if r.generation > merged and r.state is not State.OPEN)


def _rows(flushes: Mapping[str, Flush | Corrupt], region: Region, record: GenerationRecord) -> int:
    flush = flushes.get(record.snapshot or "")
    if isinstance(flush, Flush):
        with suppress(Corrupt):
            return flush.snapshot(region, record.generation).changes
    return 0  # SEALED; or merged and trimmed meanwhile, rebuilt by the next merge, or damaged: the round says so
