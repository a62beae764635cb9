"""Plan a read at a record time: for each partition, the rows before its first row whose timestamp is at or after that
time.

Kafka's offsetsForTimes does the same, but considers all records, not only rows.  A partition without such a row is
read whole.  Record times are set by the producer or the broker, as the topic's settings say.  They need not ascend.

Steps
 1. Make a strong plan, which says how far each region reaches.
 2. For each region, also of a former topic, take the highest record time of its trimmed rows.  If it is at or after
    the wanted time, or unknown, the wanted row may be trimmed: ``OutsideHistoryWindow``.
 3. Otherwise find the first generation with a row at or after the time.  The region state has the highest record time
    of each generation.  In this generation find the first such entry, and in the entry the first such row.
    Generations without a highest time (made by a repair) are searched by entry.
 4. Make the plan at these positions (``at_positions``).  If they leave out records of a former topic, they may have
    no records of later topics (``breaks``).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import OutsideHistoryWindow, PlanStale
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region, Sequence
from lancewal_core.process.clock import utc_text
from lancewal_core.region.history import generations_behind
from lancewal_core.region.state import GenerationRecord, RegionState
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.rows.schema import OFFSET, TIMESTAMP
from lancewal_core.wal.entry import Entry, EntryHeader
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_reader.plan.at_positions import closed_regions, plan_at_cut
from lancewal_reader.plan.at_timestamp import again, segments_of
from lancewal_reader.plan.breaks import kept_of, topic_cuts
from lancewal_reader.plan.strong import PlanContext, ReadPlan, plan_strong

_NONE = Position((1 << 63) - 1)
"""Position after every record."""


def plan_at_record_time(context: PlanContext, place: str, ms: int) -> ReadPlan:
    """Return the plan at the record time ``ms``, in milliseconds since 1970.

    Raises the errors of the module docstring, and those of ``plan_at_positions``.
    """
    newest, first = again(context, lambda: _found(context, ms))
    closed = closed_regions(newest, frozenset(context.contract.regions))
    ends = {**closed, **{r: newest.cut.get(r, Position(0)) for r in context.contract.regions}}
    cut = {region: min(end, first.get(region, _NONE)) for region, end in ends.items()}
    if closed:
        cut = dict(topic_cuts(context.contracts.up_to(context.contract), cut, closed))
    return plan_at_cut(context, place, newest, cut)


def _found(context: PlanContext, ms: int) -> tuple[ReadPlan, dict[Region, Position]]:
    newest = plan_strong(context)  # Step 1
    regions = {*context.contract.regions, *newest.in_force.regions}
    states = sorted(context.states.read(regions).items(), key=lambda item: item[0])
    found = context.tasks.map(lambda item: _first_from(context, item[0], item[1], ms), states)
    first = zip((region for region, _ in states), found, strict=True)
    return newest, {region: position for region, position in first if position is not None}


def _first_from(context: PlanContext, region: Region, state: RegionState, ms: int) -> Position | None:
    """Return the position of the region's first row at or after the time (steps 2 and 3); None if there is none."""
    _check_trimmed(context, region, state, ms)
    newest = state.newest
    if newest is None or newest.generation <= state.trimmed_generation:
        return None
    for record in generations_behind(context, region, state, state.trimmed_generation):
        highest = None if record.next is None else record.record_time_max_ms
        if highest is not None and highest < ms:
            continue
        with kept_of(context.contract, region):
            position = _in_generation(context, region, record, ms)
        if position is not None:
            return position
    return None


def _check_trimmed(context: PlanContext, region: Region, state: RegionState, ms: int) -> None:
    """Raise ``OutsideHistoryWindow`` if the first row at or after the time is trimmed, or may be (step 2)."""
    highest = state.trimmed_record_time_max_ms
    if not state.trimmed or (highest is not None and highest < ms):
        return
    why = "is trimmed" if highest is not None else "may be trimmed, by a release that kept no times of what it trimmed"
    raise OutsideHistoryWindow(
        f"partition {region.topic}-{region.partition}: the first record of {utc_text(ms)} or later {why}; what is left "
        f"begins at position {state.trimmed}. History is kept for {context.contract.history_window_s} s after its merge "
        "(history_window_s of the table)",
        region=region.name,
    )


def _in_generation(context: PlanContext, region: Region, record: GenerationRecord, ms: int) -> Position | None:
    """Return the position of the generation's first row at or after the time; None if there is none."""
    position = record.first
    for segment in segments_of(context, record):
        for entry in segment.entries:
            if entry.region != region or entry.first != position:
                continue
            position = entry.next
            times = _times(entry)
            if times is None or times.max_ms < ms:
                continue
            rows = entry.rows if isinstance(entry, Entry) else _rows(context, record, segment.sequence, region)
            late = pc.greater_equal(rows.column(TIMESTAMP).cast(pa.int64()), ms)
            return Position(pc.min(pc.filter(rows.column(OFFSET), late)).as_py())
    return None


def _times(entry: Entry | EntryHeader) -> RecordTimes | None:
    return entry.record_times if isinstance(entry, EntryHeader) else RecordTimes.of([entry.rows])


def _rows(context: PlanContext, record: GenerationRecord, sequence: Sequence, region: Region) -> pa.RecordBatch:
    key = paths.wal_segment(record.log, sequence)
    data = context.store.get(key)
    found = None if data is None else decode_segment(data, key, [region])
    if not isinstance(found, Segment):
        raise PlanStale(f"{key} was trimmed since the read was planned: plan the read again", object=key)
    return next(entry.rows for entry in found.entries if entry.region == region)
