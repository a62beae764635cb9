"""Open regions: take over partitions that Kafka assigned to this process, as many at a call as are due.

Guarantees
 1. After it, the newest generation of each region is OPEN with our owner id and our log.  It starts at the position
    where everything before is durable: nothing is skipped, nothing is read twice into different generations.
 2. Nobody can add to a region unnoticed: the former owner's log has ended (a fence), or that owner handed over.
 3. Losing the race leaves everything as the winner made it.
 4. If a segment is lost from the midst of the former owner's log, ``ObjectMissing`` names it and nothing is changed:
    a fence in its place would end the log for regions that are still written after it.
 5. No record of a contract that was altered, or is about to be, becomes durable by a claim
    (``lancewal_core.table.drain``).
 6. A Kafka that does not answer, or that lost what comes next, costs no generation: it is asked before the claim.
 7. Each region has an answer of its own.  Damage or loss of one region, what Kafka does not say of it, and a faster
    process there, stop no other region.  A region that was not claimed is not ours, whatever else landed in the same
    swap.

Steps, each for all regions: what is asked costs requests by pages and logs, not by regions
 1. Read the newest indexes, and what the table has merged.
 2. Where does each region continue?  No index: the contract's start.  Handed over: the newest generation's ``next``.
    OPEN in our own log (the region's state was dropped): read that log up to the next unsent segment; the caller has
    settled every PUT.  OPEN in another log: end that log with a fence; ``next`` of the region's last entry before it.
    A log is read once for all that are OPEN in it.
 3. Kafka, asked once and after step 2, must still have these positions, and on a compacted topic what was deleted
    after them: ``RetentionLost``, ``TopicTruncated``; ``KafkaBehind`` if a person has accepted that the topic lost
    its tail.
 4. Claim, by one compare-and-swap a page: the old generation SEALED there, the next OPEN.  Lost: ``OwnershipLost``;
    the caller starts again while the partition is still assigned to it.  Another owner's hand-over came in between:
    step 3 again.
 5. Read the drain, after all claims: ``PartitionCountChanged`` if it is closed.  ``alter`` looks at the index after
    closing the drain.  Either it finds our claim and ends our log, or we find the drain closed.
 6. Generations that are SEALED and not FLUSHED are the caller's to flush.

A crash leaves logs that have ended, and regions of which some are claimed.  Each region is in a state of its own, and
whoever opens it next goes on from that.

Rounds of requests, as counted: 6 ("open all partitions, handed over"), 10 ("open all partitions, of an owner that
died").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lancewal_core.errors import (
    Corrupt,
    KafkaBehind,
    LancewalError,
    MergedPositionUnknown,
    OwnershipLost,
    RetentionLost,
    StoreInconsistent,
    StoreUnavailable,
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
from lancewal_core.table.contract import newest_contract
from lancewal_core.table.drain import check_open, read_drain
from lancewal_core.table.group import check_group
from lancewal_core.table.watermarks import InForce
from lancewal_core.wal.walk import walk_sound
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.context import IngestContext
from lancewal_ingest.kafka.source import Offsets
from lancewal_ingest.retention.tombstones import lost_tombstones

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opened:
    """``record`` is the generation that is now OPEN and ours; ``unflushed`` are SEALED ones before it, oldest first."""

    record: GenerationRecord
    unflushed: tuple[GenerationRecord, ...]


AskOffsets = Callable[[Collection[Region]], Mapping[Region, Offsets | LancewalError]]
"""Asks Kafka about partitions, anew at each call; an answer for each."""


@dataclass(slots=True)
class _Opening:
    """Facts known so far of a region that is being opened."""

    region: Region
    index: RegionState | None
    ended: Ended | None = None
    start: Position | None = None
    """Position where it begins, if nobody has claimed it yet."""

    @property
    def newest(self) -> GenerationRecord | None:
        return None if self.index is None else self.index.newest

    @property
    def position(self) -> Position | None:
        """Position where it continues."""
        if self.ended is not None:
            return self.ended.next
        return self.start if self.newest is None else self.newest.next


def open_region(context: IngestContext, writer: LogWriter, region: Region, offsets: Callable[[], Offsets]) -> Opened:
    """``open_regions`` of one, whose error is raised."""
    return or_raised(
        open_regions(context, writer, [region], lambda regions: {one: offsets() for one in regions})[region]
    )


def open_regions(
    context: IngestContext, writer: LogWriter, regions: Collection[Region], offsets: AskOffsets
) -> dict[Region, Opened | LancewalError]:
    """Steps 1 to 6.  The caller has settled ``writer``."""
    answers: dict[Region, Opened | LancewalError] = {}

    def go_on(found: Mapping[Region, T | LancewalError]) -> dict[Region, T]:
        """Go on with those that have no error, which would be their answer."""
        answers.update({region: error for region, error in found.items() if isinstance(error, LancewalError)})
        return {region: value for region, value in found.items() if not isinstance(value, LancewalError)}

    # Step 1
    opening = go_on(_read(context, regions))
    _check_group(context, opening.values())
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
            drain = read_drain(context.store, context.contract)
            if drain is not None:
                check_open(context.contract, drain)
        except LancewalError as error:
            return {**answers, **dict.fromkeys(claimed, error)}
    # Step 3 again, where another owner has handed over in between: it may have come far before our claim.
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
            answers[region] = Opened(_newest(index), unflushed)
    return {region: answers[region] for region in regions}


def _read(context: IngestContext, regions: Collection[Region]) -> dict[Region, _Opening | LancewalError]:
    """Step 1."""
    try:
        in_force, indexes = together(
            context.tasks, lambda: _in_force(context), lambda: context.indexes.read_each(regions)
        )
    except LancewalError as error:
        return dict.fromkeys(regions, error)
    found: dict[Region, _Opening | LancewalError] = {}
    for region, answer in indexes.items():
        try:
            index = or_raised(answer)
            if in_force is not None:
                check_reaches(region, index, in_force)
            found[region] = _Opening(region, index)
        except LancewalError as error:
            found[region] = error
    return found


def _check_group(context: IngestContext, opening: Collection[_Opening]) -> None:
    """Raise if a newer contract names another consumer group.  Another process may have claimed under a newer
    contract because the table was moved to that group.  To claim its regions back would be without end."""
    newer = any(one.index is not None and one.index.contract_version > context.contract.version for one in opening)
    if newer and context.group:
        newest = newest_contract(context.store)
        if newest is not None:
            check_group(newest, context.group)


def _ends(
    context: IngestContext, writer: LogWriter, opening: Mapping[Region, _Opening]
) -> dict[Region, Ended | LancewalError]:
    """Step 2, of those that are OPEN."""
    newest = {region: one.newest for region, one in opening.items()}
    records = {region: r for region, r in newest.items() if r is not None and r.state is GenerationState.OPEN}
    ours = {region: r for region, r in records.items() if r.log == writer.log}
    others = {region: r for region, r in records.items() if r.log != writer.log}
    return _own_ends(context, writer, ours) | end_generations(context, writer.owner, others)


def _own_ends(
    context: IngestContext, writer: LogWriter, records: Mapping[Region, GenerationRecord]
) -> dict[Region, Ended | LancewalError]:
    """The ends of OPEN generations of our own log, as far as it is settled."""
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
    # Of a segment that another needs, perhaps.
    parts = context.tasks.map(lambda r: _own_ends(context, writer, {r: records[r]}), list(records))
    return {region: answer for part in parts for region, answer in part.items()}


def _ask(offsets: AskOffsets, regions: Collection[Region]) -> Mapping[Region, Offsets | LancewalError]:
    """Step 3, what Kafka has."""
    try:
        return offsets(regions) if regions else {}
    except LancewalError as error:
        return dict.fromkeys(regions, error)


def _checked(
    context: IngestContext, opening: Mapping[Region, _Opening], kafka: Mapping[Region, Offsets]
) -> dict[Region, _Opening | LancewalError]:
    """Step 3, what of that is needed."""

    def check(one: _Opening) -> _Opening | LancewalError:
        if one.position is None:
            return one
        problem = or_error(partial(_problem, context, one.index, one.region, one.position, kafka[one.region]))
        if problem is None:
            return one
        found = context.indexes.read_each([one.region])[one.region]
        if isinstance(found, LancewalError):
            return found
        if found != one.index:
            return one.region.error(OwnershipLost, "another process went on with it")
        return problem

    return dict(zip(opening, context.tasks.map(check, list(opening.values())), strict=True))


def _claim(
    context: IngestContext, writer: LogWriter, opening: Mapping[Region, _Opening]
) -> dict[Region, RegionState | LancewalError]:
    """Step 4."""
    if not opening:
        return {}
    claimant = Claimant(writer.owner, writer.log, writer.next_unsent)

    def deciding(one: _Opening) -> Decide:
        def decide(found: RegionState | None) -> RegionState | None:
            if found is not None:
                return claim(found, one.ended, context.contract.version, claimant, context.new_id())
            if one.start is None:
                raise StoreInconsistent(f"region {one.region.name}: its index was read, and now is not there")
            return first_claim(one.region, context.contract.version, one.start, claimant, context.new_id())

        return decide

    with points("claim.cas", ({"region": region.name} for region in opening)):
        swapped = context.indexes.swap_each({region: deciding(one) for region, one in opening.items()})
    found: dict[Region, RegionState | LancewalError] = {}
    for region, answer in swapped.items():
        if isinstance(answer, LancewalError):
            found[region] = answer
        elif answer.ours and answer.found is not None:
            found[region] = answer.found
        else:
            found[region] = region.error(OwnershipLost, "another process claimed it first")
    return found


def _newest(claimed: RegionState) -> GenerationRecord:
    return claimed.generations[-1]


def _start(context: IngestContext, region: Region, kafka: Offsets) -> Position:
    start = context.contract.start_of(region.partition)
    return kafka.low if start is None else start


def _in_force(context: IngestContext) -> InForce | None:
    """Return what the table has merged; None while that is for a person to decide."""
    try:
        _, in_force = context.watermarks.newest()
    except (TableRestored, MergedPositionUnknown):
        # Merges stop until a person has decided; consuming must not, or Kafka loses what nobody has made durable.
        return None
    except TableMissing as error:
        # It was there when this process started: a proxy answers 404 for what it cannot reach, or somebody deleted it.
        raise StoreUnavailable(
            f"{error}. The table existed when this process started: check the store, or stop ingest"
        ) from error
    return in_force


def _problem(
    context: IngestContext, index: RegionState | None, region: Region, position: Position, offsets: Offsets
) -> RetentionLost | TopicTruncated | KafkaBehind | None:
    """Why Kafka cannot go on at ``position``."""
    problem = offsets.problem(region, position, "durable")
    if isinstance(problem, TopicTruncated) and _is_accepted(context, region, position, offsets):
        return region.partition_error(
            KafkaBehind,
            f"Kafka ends at {offsets.high}, and its lost tail is accepted. Ingest reads it again from position {position} "
            "on, once it has grown up to there",
        )
    return problem or lost_tombstones(context, index, position, offsets.compaction)


def _is_accepted(context: IngestContext, region: Region, position: Position, offsets: Offsets) -> bool:
    """Whether a person has accepted that Kafka ends below ``position`` (at least where it does now)."""
    return any(
        loss.kind == "replaced" and loss.first <= offsets.high and loss.next == position
        for loss in read_losses(context.store, region, context.contract.making)
    )
