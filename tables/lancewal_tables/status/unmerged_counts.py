"""Count the unmerged rows of each region for the status of a table, from flushes and from the entries in logs.

A *walk* reads the segments of a log in order, up to the first absent one.  This end is checked as in a strong read
(decision 0015).  If a later segment exists, or a generation begins or reaches beyond the end, the error names the
absent segment.  No position is then taken from the segments before it.

Only the trailers of WAL segments are decoded and kept, so memory does not grow with the rows of a log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from lancewal_core.errors import PlanStale
from lancewal_core.names.ids import LogId, Position, Region
from lancewal_core.names.ids import Sequence as Number
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.wal.log_end import confirm_end, lost_at_end, segment_lost
from lancewal_core.wal.segment import Trailer
from lancewal_core.wal.walk import Walk, walk_trailers
from lancewal_tables.status.rejections import RejectionCounts


@dataclass(slots=True)
class InWal:
    """Number of rows and bytes of one generation in the WAL."""

    rows: int = 0
    nbytes: int = 0
    first_at_ms: int | None = None
    """Time when the generation's first entry was written, in ms since 1970; None if it has no entry."""


@dataclass(slots=True)
class UnmergedCounts:
    """Counts of one region's unmerged rows, and its unmerged generations."""

    region: Region
    index: RegionState | None = None
    index_read: bool = False
    """Whether the region's state was read.  If False, ``index`` is None although the region may have a state."""
    durable: Position | None = None
    rows: int = 0
    older_rows: int = 0
    """Number of those of ``rows`` that are stored with older columns than the contract's."""
    nbytes: int = 0
    entry_at_ms: int = 0
    """Time of the region's newest entry in an unmerged generation without a flush, in ms since 1970; 0: there is no
    such entry."""
    owner_wrote_at_ms: int = 0
    """Time when the newest segment in the log of the region's OPEN generation was written, in ms since 1970; 0: there
    is no such segment."""
    in_wal: dict[int, InWal] = field(default_factory=dict)
    """Rows and bytes of each unmerged generation without a flush, by its number."""
    rejections: RejectionCounts = field(default_factory=RejectionCounts)
    in_log: list[GenerationRecord] = field(default_factory=list)
    """Unmerged generations without a flush."""
    snapshots: list[tuple[GenerationRecord, FlushedGeneration]] = field(default_factory=list)
    """Unmerged generations with a flush that was read, each with its part of the flush."""
    unread: list[GenerationRecord] = field(default_factory=list)
    """Unmerged generations whose flush cannot be read."""


Held = Sequence[tuple[UnmergedCounts, GenerationRecord]]
"""Generations of one log, each with its region's counts.  ``count_entries`` adds to these counts."""


def walk_held(opened: OpenedTable, log: LogId, held: Held) -> Walk[Trailer]:
    """Walk the log over all segments in which the generations ``held``, all of this log, may have entries."""
    start, before = min(record.first_sequence for _, record in held), _before(held)
    walk_log = partial(walk_trailers, opened.store, opened.tasks, log)
    walked = walk_log(start, before=before)
    if before is None or walked.end < before:
        return confirm_end(opened.store, walked, walk_log)
    walk_log(
        walked.end, before=Number(walked.end + 1)
    )  # reads continue to the log's end, so its fence must be readable
    return walked


def _before(held: Held) -> Number | None:
    """Return the number of the segment after the last one that the generations need; None if one of them is OPEN."""
    ends = [record.end_sequence for _, record in held]
    known = [end for end in ends if end is not None]
    return Number(max(known)) if len(known) == len(ends) else None


def count_entries(opened: OpenedTable, walked: Walk[Trailer], held: Held, segments: list[Trailer]) -> None:
    """Add the entries of the generations ``held`` to their regions' counts, and append the trailers of the segments
    with these entries to ``segments``.

    If a segment is lost, entries before it are added, and then the error is raised.  ``walked``: result of
    ``walk_held``.
    """
    by_region = defaultdict(list)
    for counts, record in held:
        by_region[counts.region].append((counts, record))
    reached = {counts.region: record.first for counts, record in held if record.state is GenerationState.OPEN}
    holding: dict[Number, Trailer] = {}
    for trailer, header in ((segment, header) for segment in walked.segments for header in segment.entries):
        number = trailer.sequence
        for counts, record in by_region.get(header.region, ()):
            if number < record.first_sequence or header.first < record.first:
                continue
            if record.next is not None and header.next > record.next:
                continue
            holding[number] = trailer
            counts.rows += header.row_count
            counts.older_rows += header.row_count * (header.contract_version < opened.contract.columns_version)
            counts.nbytes += header.nbytes
            counts.entry_at_ms = max(counts.entry_at_ms, trailer.written_at_ms)
            counts.rejections.add(header)
            wal = counts.in_wal.setdefault(record.generation, InWal())
            wal.rows += header.row_count
            wal.nbytes += header.nbytes
            wal.first_at_ms = trailer.written_at_ms if wal.first_at_ms is None else wal.first_at_ms
            if record.state is GenerationState.OPEN:
                reached[header.region] = header.next
    segments += holding.values()
    _check_end(opened, walked, _before(held), held)
    for counts, record in held:
        if record.state is GenerationState.OPEN:
            counts.durable = reached[counts.region]
            counts.owner_wrote_at_ms = walked.segments[-1].written_at_ms if walked.segments else 0


def _check_end(
    opened: OpenedTable,
    walked: Walk[Trailer],
    before: int | None,
    held: Held,
) -> None:
    """Raise an error if the walk ended at a lost segment, not at the end of the log.  Raise ``PlanStale`` if the log
    was trimmed meanwhile."""
    begins = max(record.first_sequence for _, record in held)
    reached = walked.fence is not None or (walked.later is None if before is None else walked.end >= before)
    if reached and walked.end >= begins:
        return
    _, region = min((record.first_sequence, counts.region) for counts, record in held)
    state = opened.states.read([region]).get(region)
    if state is None or not any(r.log == walked.log and r.first_sequence <= walked.end for r in state.generations):
        raise PlanStale(f"log {walked.log} was trimmed meanwhile: look again", log=walked.log)
    raise lost_at_end(walked, begins) or segment_lost(walked.log, walked.end, "a generation reaches beyond it")
