"""Plan a read at a receipt, so that it gives the same rows as the receipt's read.

V is the table version that the receipt names, and W(V) are its watermarks.  The receipt's positions are its *cut*.

Guarantees
 1. The rows are exactly those of the read that the receipt came with, unmerged ones included, whatever was written,
    merged, compacted, cleaned up or trimmed since; or a named error.
 2. Per region the plan covers the positions up to the receipt's cut exactly once, and nothing after it.
 3. It is a plan like any other: pure, and the rows are loaded as those of a strong read are.

Steps
 1. The receipt must be one of this table (uuid; the caller has compared the place).  The contract must still be the
    newest, else ``ContractChanged``.
 2. If the receipt has no positions and V still exists, the plan is V alone.  Nothing was merged then, or the table
    had been restored (``plan_eventual``).  Otherwise V' = the receipt's version V if it still exists, else a version
    that showed the same rows (``stand_in``).  W(V') is at or below the cut in every region, and no change of the
    contract is in between (``breaks``).  If V' is newer than V, records given up after W(V) are refused as in step 3.
 3. Each region whose cut lies after W(V') (0, if nothing of it was merged): take its generations from the one after
    W(V'), from state and history pages.  If a person has since given up some of these records, whose segment was
    lost, raise ``RecordsGivenUp``.  The receipt's read may have seen them.
 4. A whole generation is read from its flush, if it has one.  A generation that the cut divides, and one without a
    flush, is read from its WAL entries, by a walk of its log that ends where all cuts in it are reached.  No proof of
    a tail is needed: what the receipt saw was durable.  A walk that ends before the cut has met a segment that is
    trimmed by now.  If the state read again still keeps the generation and a later segment was there, the segment is
    lost.
 5. Of an entry that the cut divides only the rows below the cut count.
 6. If anything turns out stale or missing, plan again, up to ``PLANS_MAX`` times in all.

Outcomes other than a plan
 * ``InvalidInput``: the receipt is not one of this table, or a strong plan, made after step 6, does not reach its
   positions.  What a read saw was durable.  The table was therefore put back to an older state, or no read gave this
   receipt.
 * ``VersionGone``: V was cleaned up, and no version that is left shows its rows; or partitions were added, or the
   topic was recreated, since a read of a table with keys in conflict: other owners count now.
 * ``OutsideHistoryWindow``: generations that the read needs are trimmed (they were merged longer ago than the
   window).
 * ``RecordsGivenUp``: a person gave up records between W(V) and the cut, whose segment was lost.  The error is also
   raised if the receipt's read came after that: nothing tells whether it had these records.
 * ``ContractChanged``: the table must be opened again, with the newest contract.
 * ``ObjectMissing``: a segment that the receipt needs is lost.
 * ``PlanRetriesExhausted``: the store does not show what it must have; the message says what.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from functools import partial

from lancewal_core.errors import (
    InvalidInput,
    PlanRetriesExhausted,
    PlanStale,
    RecordsGivenUp,
    Refresh,
    VersionGone,
)
from lancewal_core.names.ids import LogId, Position, Region, Sequence
from lancewal_core.process.failpoints import point
from lancewal_core.region.history import generations_behind
from lancewal_core.region.loss_record import read_losses
from lancewal_core.region.state import GenerationRecord, RegionState
from lancewal_core.table.protocol import version_exists
from lancewal_core.table.watermarks import NOTHING_MERGED, InForce
from lancewal_core.wal.log_end import confirm_end, segment_lost
from lancewal_core.wal.segment import Segment, Trailer
from lancewal_core.wal.walk import Walk
from lancewal_reader.plan.breaks import kept_of, lies_before_a_change, spans_a_change
from lancewal_reader.plan.lineage import Lineage
from lancewal_reader.plan.log_entries import EntryRef, LogEntries
from lancewal_reader.plan.stand_in import Pinned, is_at_or_below, stand_in
from lancewal_reader.plan.strong import (
    FlushRef,
    PlanContext,
    ReadPlan,
    RegionDelta,
    Source,
    check_contract,
    check_entries,
    looked_again,
    plan_strong,
    walk_from,
)
from lancewal_reader.point.receipt import Receipt

_NAMED = 3
_STRIDE = 64
"""Number of segments of a log that are read before each check whether all cuts are reached."""


@dataclass(frozen=True, slots=True)
class GenerationPart:
    """Part of a generation that a plan reads: its records before ``end``, which may be all of them."""

    region: Region
    record: GenerationRecord
    end: Position

    @property
    def flushed(self) -> FlushRef | None:
        """The flush of the generation; None if there is none, or if only a part of the generation is read."""
        return FlushRef.of(self.record) if self.record.next == self.end else None


def plan_at(context: PlanContext, at: Receipt) -> ReadPlan:
    """Return a plan that reads exactly the rows that the read of receipt ``at`` saw.  The receipt is of this table."""
    check_contract(context)  # Step 1
    try:
        return looked_again(context, lambda: _plan_once(context, at), "no plan for this receipt")  # Step 6
    except PlanRetriesExhausted:
        _check_reached(context, at)
        raise


def _check_reached(context: PlanContext, at: Receipt) -> None:
    """Raise ``InvalidInput`` if a strong read does not reach all positions of the receipt."""
    try:
        reached = plan_strong(context).cut
    except Refresh:
        return
    beyond = [
        f"{r.topic}-{r.partition}: {cut}, and the table is at {reached.get(r, 0)}"
        for r, cut in sorted(at.positions.items())
        if r in context.contract.regions and cut > reached.get(r, 0)
    ]
    if beyond:
        raise InvalidInput(
            f"the receipt names positions that the table has not reached: {'; '.join(beyond[:_NAMED])}. A read gives no such "
            "receipt, unless the table was put back to an older state since. To wait for records, give at_least"
        )


def _plan_once(context: PlanContext, at: Receipt) -> ReadPlan:
    # Step 2
    with point("plan.pin"):
        if not at.positions and version_exists(context.table, at.version):
            return ReadPlan(at.version, NOTHING_MERGED, ())
        pinned = _pin(context, at)
        if pinned.version > at.version:
            _check_stand_in(context, at)
    merged = pinned.in_force.positions
    if context.contract.version > 1:
        contracts = context.contracts.up_to(context.contract)
        if spans_a_change(contracts, merged, at.positions):
            raise _version_gone(context, at)
        if pinned.in_force.conflicts is not None and lies_before_a_change(contracts, merged, at.positions):
            raise VersionGone(
                "partitions were added, or the topic recreated, since the read of this receipt, and keys are in "
                "conflict. Records of these keys in other partitions count now, so the rows of that read cannot be "
                "shown again. Read without this receipt",
                version=at.version,
            )
    # Step 3
    behind = [region for region, cut in sorted(at.positions.items()) if cut != merged.get(region, 0)]
    states = context.states.read(behind)
    found = context.tasks.map(lambda r: _parts(context, pinned, r, states.get(r), at.positions[r]), behind)
    parts = dict(zip(behind, found, strict=True))
    # Step 4
    walks = walk_parts(context, [part for some in parts.values() for part in some if part.flushed is None])
    logs = {log: LogEntries(walked) for log, walked in walks.items()}
    check_entries(context.contract, logs)
    deltas = []
    for region, cut in sorted(at.positions.items()):
        with kept_of(context.contract, region):
            deltas.append(RegionDelta(region, tuple(_sources(parts.get(region, ()), logs)), cut))
    return ReadPlan(pinned.version, pinned.in_force, tuple(deltas))


def _pin(context: PlanContext, at: Receipt) -> Pinned:
    """Return the receipt's version, or a version that replaces it, with its watermarks (step 2)."""
    try:
        context.table.at(at.version)
    except VersionGone as error:
        newest = context.table.newest().version
        if at.version > newest:
            raise InvalidInput(
                f"the receipt names table version {at.version}, and the newest is {newest}: is it a receipt of this "
                "table?"
            ) from error
        found = stand_in(Lineage.of(context), at.version, at.positions)
        if found is None:
            raise _version_gone(context, at) from error
        return found
    in_force = context.watermarks.at(at.version)
    if not is_at_or_below(in_force, at.positions):
        raise InvalidInput(
            f"not a receipt of lancewal: table version {at.version} holds records after the receipt's positions"
        )
    return Pinned(at.version, in_force)


def _version_gone(context: PlanContext, at: Receipt) -> VersionGone:
    return VersionGone(
        f"table version {at.version} of the receipt is gone: a clean-up removed it, and no version that is left is known to "
        f"show the same rows. The oldest one left is {min(context.table.versions(), default=0)}. Let Lance's clean-up keep "
        "versions at least as long as receipts are used; the table's history window is "
        f"{context.contract.history_window_s} s",
        version=at.version,
    )


def _parts(
    context: PlanContext, pinned: Pinned, region: Region, state: RegionState | None, cut: Position
) -> list[GenerationPart]:
    """Return the parts of generations to read for one region (step 3)."""
    merged = pinned.in_force.position(region)
    parts = parts_between(context, pinned.in_force, region, state, (merged or Position(0), cut))
    if merged is not None and parts and parts[0].record.first != merged:
        raise region.error(
            PlanStale, f"the table has merged up to {merged}, but the next generation begins at {parts[0].record.first}"
        )
    return parts


def parts_between(
    context: PlanContext,
    in_force: InForce,
    region: Region,
    state: RegionState | None,
    between: tuple[Position, Position],
) -> list[GenerationPart]:
    """Return the generations, or parts of them, with the records between two positions of a region.  The region may
    belong to an earlier contract only.  ``in_force``: watermarks at or below the first position.  Only generations
    after them are looked up.
    """
    begin, end = between
    if region not in context.contract.regions and state is None:
        raise InvalidInput(f"the receipt names the partition {region.name}, which the table does not have")
    known, at = in_force.generation(region), in_force.position(region) or Position(0)
    if state is not None and known < state.trimmed_generation and state.trimmed <= begin:
        known, at = state.trimmed_generation, state.trimmed
    records = generations_behind(context, region, state, known, at)
    first, last = records[0], records[-1]
    if (first.first > begin and first.generation > 1) or (last.next is not None and last.next < end):
        raise region.error(
            PlanStale,
            f"the read needs the positions {begin} to {end}, but the region's state has {first.first} to {last.next}. "
            "The store's listing is out of date, or these are not positions of this table",
        )
    _check_given_up(context, region, begin, end)
    needed = [r for r in records if r.first < end and (r.next is None or r.next > begin)]
    return [GenerationPart(region, r, end if r.next is None else min(end, r.next)) for r in needed]


def _check_stand_in(context: PlanContext, at: Receipt) -> None:
    """Raise ``RecordsGivenUp`` if a person gave up records that the receipt's version has not merged and its cut
    contains.  The newer version that replaces it may have merged the region up to the cut without these records.
    """
    before = context.watermarks.known_at(at.version) or NOTHING_MERGED  # which refuses more than it must
    for region, cut in sorted(at.positions.items()):
        merged = before.position(region)
        _check_given_up(context, region, Position(0) if merged is None else merged, cut)


def _check_given_up(context: PlanContext, region: Region, merged: Position, cut: Position) -> None:
    for loss in read_losses(context.store, region, context.contract.making):
        if loss.segment is not None and loss.first < cut and merged < loss.next:
            raise region.error(
                RecordsGivenUp,
                f"the receipt's read may have seen offsets {loss.first} to {loss.next - 1}. Their segment "
                f"{loss.segment} is lost, and a person gave these offsets up (`lancewal repair segment "
                "--accept-loss`). Read without this receipt",
            )


def walk_parts(context: PlanContext, parts: Seq[GenerationPart]) -> dict[LogId, Walk[Segment | Trailer]]:
    """Read each log of these parts once, for all regions.  Raises ``ObjectMissing``, which names the segment, if one
    is lost.
    """
    context.begin_walks()
    by_log: dict[LogId, list[GenerationPart]] = {}
    for part in parts:
        by_log.setdefault(part.record.log, []).append(part)
    return {log: _walk_to(context, log, some) for log, some in sorted(by_log.items())}


def _walk_to(context: PlanContext, log: LogId, parts: Seq[GenerationPart]) -> Walk[Segment | Trailer]:
    """Walk from the first segment of these parts to where all of them are reached, or to the log's end."""
    pending = list(parts)
    at = min(part.record.first_sequence for part in parts)
    segments: list[Segment | Trailer] = []
    while pending:
        before = Sequence(at + _STRIDE)
        piece = walk_from(context, log, at, before=before)
        segments += piece.segments
        reached = {entry.region: entry.next for segment in piece.segments for entry in segment.entries}
        pending = [part for part in pending if reached.get(part.region, 0) < part.end]
        at = piece.end
        if at < before:
            _check_lost(context, pending, piece)
            break
    return Walk(log, tuple(segments), at, None)


def _check_lost(context: PlanContext, pending: Seq[GenerationPart], walked: Walk[Segment | Trailer]) -> None:
    """Raise the error that names the absent segment at the end of ``walked``, if these parts need it and it was not
    trimmed."""
    if not pending or walked.fence is not None:
        return
    walked = confirm_end(context.store, walked, partial(walk_from, context, walked.log))
    for part in pending:
        if part.record.first_sequence > walked.end:
            continue  # earlier segments may have been trimmed
        behind = part.record.end_sequence
        if walked.later is None and (behind is None or behind <= walked.end):
            continue  # nothing but the receipt says that it ever existed
        state = context.states.read([part.region]).get(part.region)
        if state is not None and state.trimmed_generation < part.record.generation:
            with kept_of(context.contract, part.region):
                raise segment_lost(
                    walked.log,
                    walked.end,
                    f"the receipt's read of partition {part.region.name} had records in it or after it",
                )


def _sources(parts: Seq[GenerationPart], logs: Mapping[LogId, LogEntries]) -> list[Source]:
    """Return the flushes and entries of one region, up to the cut.  Raises ``PlanStale`` if there is a gap."""
    sources: list[Source] = []
    for part in parts:
        flushed = part.flushed
        sources += entries_of_part(part, logs[part.record.log]) if flushed is None else [flushed]
    return sources


def entries_of_part(part: GenerationPart, log: LogEntries) -> list[EntryRef]:
    """Return the entries of a part, up to its end.  The last entry may be used in part (step 5).  Raises ``PlanStale``
    if there is a gap.
    """
    found: list[EntryRef] = []
    position = part.record.first
    for ref in log.of_generation(part.region, part.record).refs:
        if ref.first >= part.end:
            break
        if ref.first != position:
            raise part.region.error(PlanStale, f"log {ref.log} continues at {ref.first}, expected {position}")
        position = min(ref.next, part.end)
        found.append(replace(ref, next=position))
    if position != part.end:
        raise part.region.error(
            PlanStale,
            f"the read needs generation {part.record.generation} up to {part.end}, but its log {part.record.log} ends at "
            f"{position}",
        )
    return found
