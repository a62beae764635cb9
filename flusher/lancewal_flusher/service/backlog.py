"""What is merged and what waits to be: for metrics and readiness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lancewal_core.errors import Corrupt
from lancewal_core.ids import Region, TableVersion
from lancewal_core.region.index import GenerationRecord, RegionIndex, State
from lancewal_core.region.snapshot import read_snapshot
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.service.round import RoundReport


@dataclass(frozen=True, slots=True)
class Backlog:
    """``waiting``: per region of the contract the generations above the watermark that have ended, oldest first;
    ``rows``: changed keys in those of them that have a snapshot."""

    version: TableVersion
    in_force: InForce
    waiting: Mapping[Region, tuple[GenerationRecord, ...]]
    rows: Mapping[Region, int]


def backlog_after(context: FlusherContext, report: RoundReport) -> Backlog:
    """The backlog behind a round; reads the newest state only where the round has not seen that nothing is left."""
    if report.left is not None:
        version, in_force, indexes = report.left.version, report.left.in_force, dict(report.left.indexes)
    else:
        pinned, in_force = context.watermarks.newest()
        version = pinned.version
        indexes = context.read_indexes()
    waiting = {region: _ended(indexes.get(region), in_force) for region in context.contract.regions}
    rows = {region: sum(_rows(context, record) for record in records) for region, records in waiting.items()}
    return Backlog(version, in_force, waiting, rows)


def _ended(index: RegionIndex | None, in_force: InForce) -> tuple[GenerationRecord, ...]:
    if index is None:
        return ()
    merged = in_force.generation(index.region)
    return tuple(r for r in index.generations if r.generation > merged and r.state is not State.OPEN)


def _rows(context: FlusherContext, record: GenerationRecord) -> int:
    if record.snapshot is None:
        return 0
    try:
        return read_snapshot(context.store, record.snapshot).changes
    except Corrupt:
        return 0  # merged and trimmed meanwhile, rebuilt by the next merge, or damaged: the round says so
