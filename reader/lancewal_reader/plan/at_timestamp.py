"""Plan a read at a time T: the state that a strong read begun at T would have seen.

The time of a table version is that of its commit, by the clock of the process that committed it.  A region's records
have the times at which their generation was sealed and their WAL entries were written, by the clock of the ingest
process.  An entry is durable some milliseconds after the time that it carries.  The plan is therefore that of a
strong read at T, within the error of these clocks and the length of a write.

Steps
 1. V = the newest version that was committed up to T.  If the clocks of several committers let times go back, V is one that
    was committed up to T while the next one was not.  A binary search finds V: of n versions it reads the manifests of
    log n.  Versions right after V may be gone, and one of them may have been the newest at T.  V is then used only if it is
    known to show the same rows as they did.  Otherwise the error is ``VersionGone``, which says what is left.
 2. For each region, including regions of a topic that was recreated since: take the generations after W(V) in order.
    Those sealed up to T count whole.  Of the first other generation, the entries written up to T count.  If part of this is
    trimmed, the error is ``OutsideHistoryWindow``.
 3. The plan of the receipt {V, positions} (``at_receipt``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TypeVar

from lancewal_core.errors import InvalidInput, PlanStale, VersionGone
from lancewal_core.names.ids import Position, Region, TableVersion
from lancewal_core.process.clock import utc_text
from lancewal_core.region.history import generations_behind
from lancewal_core.region.state import GenerationRecord, RegionState
from lancewal_core.table.watermarks import InForce
from lancewal_core.wal.segment import Segment, Trailer
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.plan.at_version import check_of_table, versions_left
from lancewal_reader.plan.breaks import kept_of
from lancewal_reader.plan.lineage import Lineage
from lancewal_reader.plan.stand_in import Pinned, same_rows
from lancewal_reader.plan.strong import PAUSE_S, PlanContext, ReadPlan, check_contract, walk_from
from lancewal_reader.point.receipt import Receipt

T = TypeVar("T")
_TRIES = 5


def plan_at_timestamp(context: PlanContext, place: str, ms: int) -> ReadPlan:
    """Return the plan at the time ``ms``, in milliseconds since 1970.  Raises ``InvalidInput`` for a time in the
    future, and the errors of the module docstring.
    """
    if ms > context.clock.now_ms():
        raise InvalidInput(f"timestamp:{utc_text(ms)} is in the future; read without `at` for the state of now")
    check_contract(context)
    pinned, cut = again(context, lambda: _found(context, ms))
    return plan_at(context, Receipt(context.contract.uuid, pinned.version, cut, place))


def again(context: PlanContext, find: Callable[[], T]) -> T:
    """Return the result of ``find``.  ``PlanStale`` means that objects were trimmed while ``find`` ran.  ``find`` is
    then called again, up to ``_TRIES`` times in all.  The error of the last call is raised.
    """
    for attempt in range(1, _TRIES):
        try:
            return find()
        except PlanStale:
            context.clock.sleep(PAUSE_S * attempt)
    return find()


def _found(context: PlanContext, ms: int) -> tuple[Pinned, dict[Region, Position]]:
    pinned = version_at(context, ms)
    return pinned, _cut(context, pinned, ms)


def version_at(context: PlanContext, ms: int) -> Pinned:
    """Return the newest table version committed up to the time ``ms``, with its watermarks (step 1).  Raises
    ``VersionGone`` if that version was removed, or if the table did not exist yet.
    """
    then, after = _between(context, ms)
    if then is None:
        raise _before_all(context, ms)
    check_of_table(context.table.at(then), then)
    if after is not None and after != then + 1:
        # The one of then lay between the two; the versions in between must show what this one shows.
        found = same_rows(Lineage.of(context), then, TableVersion(after - 1))
        if not found:
            raise versions_left(
                context,
                f"the table version of {utc_text(ms)} is gone: it was one of the versions {then + 1} to {after - 1}. "
                f"No record says that version {then} has the same rows",
                then + 1,
            )
    return Pinned(then, context.watermarks.at(then))


def _before_all(context: PlanContext, ms: int) -> VersionGone:
    oldest = min(context.table.versions())
    if oldest > 1:
        return versions_left(context, f"no table version of {utc_text(ms)} is left")
    made = utc_text(context.table.commit_time(oldest))
    return VersionGone(f"there was no table at {utc_text(ms)}: its version 1 is of {made}", version=oldest)


def _between(context: PlanContext, ms: int) -> tuple[TableVersion | None, TableVersion | None]:
    """Return a version that was committed up to the time, and the next version that is left, which was committed
    later.  None stands for a version that does not exist.
    """
    versions = sorted(context.table.versions())
    while True:
        try:
            at = bisect_right(versions, ms, key=context.table.commit_time)
        except VersionGone as error:  # since the listing
            gone = error.where.get("version")
            if gone not in versions:
                raise
            versions.remove(TableVersion(int(gone)))
            continue
        return versions[at - 1] if at else None, versions[at] if at < len(versions) else None


def _cut(context: PlanContext, pinned: Pinned, ms: int) -> dict[Region, Position]:
    """Return the position that each region had reached at the time (step 2)."""
    merged = pinned.in_force.positions
    regions = _regions_of_then(context)
    states = [state for _, state in sorted(context.states.read(regions).items(), key=lambda i: i[0])]
    found = context.tasks.map(lambda i: _durable_at(context, i, pinned.in_force, ms), states)
    durable = dict(zip((state.region for state in states), found, strict=True))
    # A region of which nothing was durable is no part of what was read, and may be of a topic that was none yet.
    return {**merged, **{region: at for region, at in durable.items() if region in merged or at > regions[region]}}


def _regions_of_then(context: PlanContext) -> dict[Region, Position]:
    """Return the regions of every contract so far, each with its first position.  Regions of a topic that was
    recreated since are included."""
    contracts = context.contracts.up_to(context.contract)
    return {r: contract.start_of(r.partition) or Position(0) for contract in contracts for r in contract.regions}


def _durable_at(context: PlanContext, state: RegionState, in_force: InForce, ms: int) -> Position:
    merged = in_force.generation(state.region)
    position = in_force.position(state.region) or Position(0)
    if state.newest is None or state.newest.generation <= merged:
        return position
    for record in generations_behind(context, state.region, state, merged, position):
        if record.next is not None and record.sealed_at_ms is not None and record.sealed_at_ms <= ms:
            position = record.next
            continue
        with kept_of(context.contract, state.region):
            reached = _written_by(context, state.region, record, ms)
        position = max(position, reached)
        if record.next is None or reached < record.next:
            break
    return position


def _written_by(context: PlanContext, region: Region, record: GenerationRecord, ms: int) -> Position:
    """Return the position after the generation's last entry that was written up to that time."""
    position = record.first
    for segment in segments_of(context, record):
        if segment.written_at_ms > ms:
            break
        for entry in segment.entries:
            if entry.region == region and entry.first == position:
                position = entry.next
    return position


def segments_of(context: PlanContext, record: GenerationRecord) -> tuple[Segment | Trailer, ...]:
    """Return the segments that may hold entries of a generation.  Raises ``PlanStale`` if some of them are absent."""
    walked = walk_from(context, record.log, record.first_sequence, before=record.end_sequence)
    short = record.end_sequence is not None and walked.end < record.end_sequence and walked.fence is None
    if short or walked.later is not None:
        raise PlanStale(
            f"log {record.log}: segment {walked.end} is absent. Garbage collection may have trimmed it since the read "
            "was planned: plan the read again",
            log=record.log,
        )
    return walked.segments
