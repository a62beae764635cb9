"""Open regions: take over partitions that Kafka assigned to this process, many in one call.

Guarantees
 1. After an opening, the newest generation of each opened region is OPEN with our owner id and our log.  It starts at
    the position before which every record is durable.  No record is skipped or read into two generations.
 2. No other process can add to the region unnoticed: a fence has ended the former owner's log, or that owner handed
    over.
 3. If another process claims the region first, everything stays as that process left it.
 4. If a segment is missing in the middle of the former owner's log, ``ObjectMissing`` names it and nothing is changed.
    A fence in its place would end the log for regions that are still written after it.
 5. If the contract's number of partitions has changed, or changes now, no record becomes durable after a claim
    (``lancewal_core.table.drain``).  Neither does any record of a table that was dropped.
 6. Kafka is asked before the claim.  So no generation begins if Kafka does not answer, or has lost the next records.
 7. Each region has a result of its own.  If one is damaged, has no answer from Kafka or is claimed by a faster process,
    the others are still opened.  A region that was not claimed is not ours, whatever else landed in the same swap.

Steps, each for all regions.  The number of requests depends on pages and logs, not on regions.
 1. Read the newest region states, and the merged positions of the table.
 2. Find the position at which each region continues.  Without a state it is the contract's start.  After a hand-over
    it is ``next`` of the newest generation.  A generation may be OPEN in our own log, if this process has dropped the
    region's MemTable.  Then read that log up to the next unsent segment; the caller has settled every PUT.
    If it is OPEN in another log, end that log with a fence, and take ``next`` of the region's last entry before the
    fence.  A log is read once for all regions that are OPEN in it.
 3. Ask Kafka, once and after step 2.  It must still have these positions, and on a compacted topic the deletes after
    them.  Otherwise ``RetentionLost`` or ``TopicTruncated``; ``KafkaBehind`` if a person has accepted that the topic
    lost its tail.
 4. Claim, by one compare-and-swap a page: the old generation becomes SEALED at the position, and the next OPEN.  If
    another process was faster: ``OwnershipLost``, and the caller starts again while the partition is still assigned to
    it.  If another owner handed over in between, repeat step 3.
 5. Read the drain, after all claims: ``PartitionCountChanged`` if it is closed.  ``alter`` reads the state after
    closing the drain.  Either it finds our claim and ends our log, or we find the drain closed.  Look for a newer
    contract as well: ``TableDropped`` is raised if it says so.  ``table drop`` reads the states after its contract.
 6. Return the generations that are SEALED and not FLUSHED, which the caller must flush.

A crash leaves logs that have ended, and some regions claimed.  Each region has a state of its own, from which the
process that opens the region next goes on.

Rounds of requests to the store (docs/reference/requests.md), as counted: 6 ("open all partitions, handed over"), 10
("open all partitions, of an owner that died").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lancewal_core.errors import (
    ContractChanged,
    Corrupt,
    KafkaBehind,
    LancewalError,
    MergedPositionUnknown,
    OwnershipLost,
    RetentionLost,
    StoreInconsistent,
    StoreUnavailable,
    TableDropped,
    TableMissing,
    TableRestored,
    TopicTruncated,
    or_error,
    or_raised,
)
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.failpoints import points
from lancewal_core.process.tasks import together
from lancewal_core.region.end_region import end_generations, ended_at
from lancewal_core.region.history import check_reaches
from lancewal_core.region.loss_record import read_losses
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.region.states import Decide
from lancewal_core.region.transitions import Claimant, Ended, claim, first_claim
from lancewal_core.table.contract import changed_terms, newer_contract
from lancewal_core.table.drain import check_open, read_drain
from lancewal_core.table.watermarks import InForce
from lancewal_core.wal.entry import NoRowYet
from lancewal_core.wal.walk import walk_sound
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.append.newer_contract import TAKEN_UP
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.consumer_group import check_group
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.retention.tombstones import lost_tombstones

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opened:
    """Result for an opened region.  ``record`` is the OPEN generation that this process now owns.

    ``unflushed``: earlier generations that are SEALED and not flushed, oldest first.
    """

    record: GenerationRecord
    unflushed: tuple[GenerationRecord, ...]
    no_row_yet: NoRowYet | None = None
    """Rejected records before the OPEN generation, while the region has had no row.  None if the region has had a row,
    or if that is unknown."""


AskOffsets = Callable[[Collection[Region]], Mapping[Region, Offsets | LancewalError]]
"""Function that asks Kafka, at each call, for the offsets of partitions; returns offsets or an error for each."""


@dataclass(slots=True)
class _Opening:
    """Facts known so far about a region that is being opened."""

    region: Region
    index: RegionState | None
    ended: Ended | None = None
    start: Position | None = None
    """Position at which the region begins, if nobody has claimed it yet."""

    @property
    def newest(self) -> GenerationRecord | None:
        return None if self.index is None else self.index.newest

    @property
    def position(self) -> Position | None:
        """Position at which the region continues; None before that is known."""
        if self.ended is not None:
            return self.ended.next
        return self.start if self.newest is None else self.newest.next


def open_region(context: IngestContext, writer: LogWriter, region: Region, offsets: Callable[[], Offsets]) -> Opened:
    """Open one region (``open_regions``), and raise its error if it cannot be opened."""
    return or_raised(
        open_regions(context, writer, [region], lambda regions: {one: offsets() for one in regions})[region]
    )


def open_regions(
    context: IngestContext, writer: LogWriter, regions: Collection[Region], offsets: AskOffsets
) -> dict[Region, Opened | LancewalError]:
    """Open regions into the log of ``writer``.  Return a result or an error for each region.  The caller must have
    settled all PUTs of the log.

    Raises ``TableDropped`` if the table was dropped.  The process must then end.
    """
    answers: dict[Region, Opened | LancewalError] = {}

    def go_on(found: Mapping[Region, T | LancewalError]) -> dict[Region, T]:
        """Return the values of the regions without an error, for the next step.  Errors become the answers of their
        regions.
        """
        answers.update({region: error for region, error in found.items() if isinstance(error, LancewalError)})
        return {region: value for region, value in found.items() if not isinstance(value, LancewalError)}

    # Step 1
    opening = go_on(_read(context, regions))
    opening = go_on(_by_newest(context, opening))
    # Step 2
    ends = go_on(_ends(context, writer, opening))
    opening = {region: one for region, one in opening.items() if region not in answers}
    for region, ended in ends.items():
        opening[region].ended = ended
    # Step 3
    kafka = go_on(_ask(offsets, opening))
    opening = {region: opening[region] for region in kafka}
    for region, one in opening.items():
        if one.index is None:
            one.start = _start(context, region, kafka[region])
    opening = go_on(_checked(context, opening, kafka))
    # Step 4
    claimed = go_on(_claim(context, writer, opening))
    # Step 5
    if claimed:
        try:
            drain, _ = together(
                context.tasks, lambda: read_drain(context.store, context.contract), partial(_check_in_use, context)
            )
            if drain is not None:
                check_open(context.contract, drain)
        except TableDropped:
            raise
        except LancewalError as error:
            return {**answers, **dict.fromkeys(claimed, error)}
    # Step 3 again, if another owner handed over in between: that owner may have moved the position before our claim.
    moved = {r: index for r, index in claimed.items() if _newest(index).first != opening[r].position}
    if moved:
        kafka = go_on(_ask(offsets, moved))
        for region in kafka:
            index = moved[region]
            problem = or_error(partial(_problem, context, index, region, _newest(index).first, kafka[region]))
            if problem is not None:
                answers[region] = problem
    # Step 6
    for region, index in claimed.items():
        if region not in answers:
            unflushed = tuple(r for r in index.generations if r.state is GenerationState.SEALED)
            answers[region] = Opened(_newest(index), unflushed, index.no_row_yet)
    return {region: answers[region] for region in regions}


def _read(context: IngestContext, regions: Collection[Region]) -> dict[Region, _Opening | LancewalError]:
    """Read the states of regions, and check that each covers the merged positions (step 1)."""
    try:
        in_force, states = together(
            context.tasks, lambda: _in_force(context), lambda: context.states.read_each(regions)
        )
    except LancewalError as error:
        return dict.fromkeys(regions, error)
    found: dict[Region, _Opening | LancewalError] = {}
    for region, answer in states.items():
        try:
            index = or_raised(answer)
            if in_force is not None:
                check_reaches(region, index, in_force)
            found[region] = _Opening(region, index)
        except LancewalError as error:
            found[region] = error
    return found


def _by_newest(context: IngestContext, opening: Mapping[Region, _Opening]) -> Mapping[Region, _Opening | LancewalError]:
    """Return ``ContractChanged`` for each region that was claimed under a newer contract version, if the newest version
    has other columns.  This process must follow that version first, so that no claim goes back to an older one.

    Raise an error if the newest contract names another consumer group (``check_group``).  Such a region may belong to
    that group now.  Without this check both groups would claim it from each other without end."""
    ours = context.contract
    newer = [
        region for region, one in opening.items() if one.index is not None and one.index.contract_version > ours.version
    ]
    newest = newer_contract(context.store, ours) if newer else None
    if newest is None:
        return opening
    if context.group:
        check_group(newest, context.group)
    if not changed_terms(ours, newest) <= TAKEN_UP or newest.columns_change == ours.columns_change:
        return opening
    message = (
        f"contract version {newest.version} has other columns than version {ours.version}, which this process uses"
    )
    return {**opening, **{region: region.error(ContractChanged, message) for region in newer}}


def _ends(
    context: IngestContext, writer: LogWriter, opening: Mapping[Region, _Opening]
) -> dict[Region, Ended | LancewalError]:
    """Find where generations that are OPEN end, and end the logs of others with a fence (step 2)."""
    newest = {region: one.newest for region, one in opening.items()}
    records = {region: r for region, r in newest.items() if r is not None and r.state is GenerationState.OPEN}
    ours = {region: r for region, r in records.items() if r.log == writer.log}
    others = {region: r for region, r in records.items() if r.log != writer.log}
    return _own_ends(context, writer, ours) | end_generations(context, writer.owner, others)


def _own_ends(
    context: IngestContext, writer: LogWriter, records: Mapping[Region, GenerationRecord]
) -> dict[Region, Ended | LancewalError]:
    """Return the ends of generations that are OPEN in our own log, up to its next unsent segment (step 2)."""
    if not records:
        return {}
    starts = {region: record.first_sequence for region, record in records.items()}
    error: LancewalError | None = None
    try:
        walked = walk_sound(context.store, context.tasks, writer.log, starts, before=writer.next_unsent)
        if walked.end >= writer.next_unsent:
            return {
                region: ended_at(region, record, walked, context.clock.now_ms()) for region, record in records.items()
            }
        error = StoreInconsistent(
            f"segment {walked.end} of our own log {writer.log} is not readable, though it was stored", log=writer.log
        )
    except LancewalError as raised:
        error = raised
    if len(records) == 1 or not isinstance(error, Corrupt | StoreInconsistent):
        return dict.fromkeys(records, error)
    # Perhaps only another region needs the damaged segment: ask for each region by itself.
    parts = context.tasks.map(lambda r: _own_ends(context, writer, {r: records[r]}), list(records))
    return {region: answer for part in parts for region, answer in part.items()}


def _ask(offsets: AskOffsets, regions: Collection[Region]) -> Mapping[Region, Offsets | LancewalError]:
    """Ask Kafka for the offsets of regions; an error of the whole question is the answer of each region (step 3)."""
    try:
        return offsets(regions) if regions else {}
    except LancewalError as error:
        return dict.fromkeys(regions, error)


def _checked(
    context: IngestContext, opening: Mapping[Region, _Opening], kafka: Mapping[Region, Offsets]
) -> dict[Region, _Opening | LancewalError]:
    """Check that Kafka still has the position of each region; return an error for those it does not have (step 3)."""

    def check(one: _Opening) -> _Opening | LancewalError:
        if one.position is None:
            return one
        problem = or_error(partial(_problem, context, one.index, one.region, one.position, kafka[one.region]))
        if problem is None:
            return one
        found = context.states.read_each([one.region])[one.region]
        if isinstance(found, LancewalError):
            return found
        if found != one.index:
            return one.region.error(OwnershipLost, "another process has changed its state")
        return problem

    return dict(zip(opening, context.tasks.map(check, list(opening.values())), strict=True))


def _claim(
    context: IngestContext, writer: LogWriter, opening: Mapping[Region, _Opening]
) -> dict[Region, RegionState | LancewalError]:
    """Claim regions by one compare-and-swap a page; return the state of each claimed region (step 4)."""
    if not opening:
        return {}
    claimant = Claimant(writer.owner, writer.log, writer.next_unsent)

    def deciding(one: _Opening) -> Decide:
        def decide(found: RegionState | None) -> RegionState | None:
            if found is not None:
                return claim(found, one.ended, context.contract.version, claimant, context.new_id())
            if one.start is None:
                raise StoreInconsistent(f"region {one.region.name}: its state is missing, although it was read before")
            return first_claim(one.region, context.contract.version, one.start, claimant, context.new_id())

        return decide

    with points("claim.cas", ({"region": region.name} for region in opening)):
        swapped = context.states.swap_each({region: deciding(one) for region, one in opening.items()})
    found: dict[Region, RegionState | LancewalError] = {}
    for region, answer in swapped.items():
        if isinstance(answer, LancewalError):
            found[region] = answer
        elif answer.ours and answer.found is not None:
            found[region] = answer.found
        else:
            found[region] = region.error(OwnershipLost, "another process claimed it first")
    return found


def _check_in_use(context: IngestContext) -> None:
    """Raise ``TableDropped`` if the table was dropped before our claims (step 5)."""
    newer_contract(context.store, context.contract)


def _newest(claimed: RegionState) -> GenerationRecord:
    return claimed.generations[-1]


def _start(context: IngestContext, region: Region, kafka: Offsets) -> Position:
    start = context.contract.start_of(region.partition)
    return kafka.low if start is None else start


def _in_force(context: IngestContext) -> InForce | None:
    """Return the merged positions of the newest table version; None if a person must decide what counts as merged."""
    try:
        _, in_force = context.watermarks.newest()
    except (TableRestored, MergedPositionUnknown):
        # Merges stop until a person has decided.  Consuming goes on, or Kafka would delete records before they are durable.
        return None
    except TableMissing as error:
        # The table existed when this process started.  A proxy may answer 404 if it cannot reach the store.
        raise StoreUnavailable(
            f"{error}. The table existed when this process started: check the store, or stop ingest"
        ) from error
    return in_force


def _problem(
    context: IngestContext, state: RegionState | None, region: Region, position: Position, offsets: Offsets
) -> RetentionLost | TopicTruncated | KafkaBehind | None:
    """Return an error if Kafka lacks the records from ``position`` on, or if compaction of the topic may have removed
    deletes after that position.  None if neither is so.

    The error is ``KafkaBehind`` if Kafka lost its tail and a person has accepted the loss."""
    problem = offsets.problem(region, position, "durable")
    if isinstance(problem, TopicTruncated) and _is_accepted(context, region, position, offsets):
        return region.partition_error(
            KafkaBehind,
            f"Kafka ends at {offsets.high}, and the loss of its tail is accepted. Ingest goes on at position {position} "
            "once Kafka has grown up to there",
        )
    return problem or lost_tombstones(context, region, state, position, offsets.compaction)


def _is_accepted(context: IngestContext, region: Region, position: Position, offsets: Offsets) -> bool:
    """Return whether a person has accepted that Kafka ends below ``position``, at its present end or earlier."""
    return any(
        loss.kind == "replaced" and loss.first <= offsets.high and loss.next == position
        for loss in read_losses(context.store, region, context.contract.making)
    )
