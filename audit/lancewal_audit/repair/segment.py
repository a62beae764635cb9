"""``lancewal repair segment``: read the records of a lost or damaged WAL segment from Kafka again, and flush them.

The object itself is not replaced.  Objects are immutable, and the store offers only put-if-absent.  To replace an object it
would have to be deleted first.  While it is away, the log seems to end there.  A claimer would fence the log in its place, and
a reader would see less than was durable.  Instead every generation that needs the segment gets a flush.  Then nothing needs
the segment any more.

Guarantees
 1. A flush is the fold of exactly the generation's records: of its entries that can be read, and of Kafka's records in
    place of the others (``generation_parts``).
 2. If the topic was replaced, or if Kafka no longer has the records, nothing is changed, unless a person accepts the loss.
    Then exactly the records that exist nowhere are left out, and the loss is recorded first (``segment_loss``).
 3. An OPEN generation of that log is ended first, as any claimer ends it: a fence after the log, then SEALED by
    compare-and-swap.  Ingest continues after the generation's end.  If only the damaged object showed records at the end,
    ingest reads them from Kafka again.
 4. Each step is one put-if-absent or compare-and-swap; the first process wins.  Repeating the command is safe.
 5. Such a flush is marked: its log does not have all of its rows (``repaired``).
 6. A receipt whose cut divides such a generation cannot be read again: its entries are gone.

Steps
 1. Check that the object is damaged.  Find the generations that need it, and unflushed ones before them in their regions.
 2. Find the parts of each that can be read, and check that Kafka has the rest.
 3. Fence the log if a generation in it is OPEN; then look again.
 4. Per region, in order: seal an OPEN generation.  Record the loss that is given up, unless an owner who still had the
    records has flushed them.  Write each flush and swap it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.flush_state import flush_state
from lancewal_audit.repair.generation_parts import Gap, Part, parts_of, rows_of
from lancewal_audit.repair.log_survey import LogSurvey, survey_logs
from lancewal_audit.repair.segment_loss import GivenUp, given_up, is_compacted, record_losses, refuse
from lancewal_audit.repair.told import Told, of_generation, told
from lancewal_audit.repair.topic_records import TopicRecords
from lancewal_core.errors import InvalidInput, ObjectCorrupt, RepairRefused, TopicUnsuitable
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, OwnerId, Position, Region, Sequence
from lancewal_core.region.flush import flush_generation, replace_flush
from lancewal_core.region.flush_files import Content
from lancewal_core.region.loss_record import behind_losses, read_losses
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.region.transitions import Claimant, seal
from lancewal_core.rows.fold import fold
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.log_end import end_log
from lancewal_core.wal.segment import decode_segment
from lancewal_ingest.context import new_owner

REPAIR = OwnerId("repair")
"""Owner that fences of this command name."""
_PERHAPS_IN_MEMORY = (
    "an ingest process that wrote this log and still runs may have these records in memory. Stop it in order first (SIGTERM): "
    "then it flushes what it has"
)


@dataclass(frozen=True, slots=True)
class NeededGeneration:
    """A generation that is to be flushed, its parts, and the positions to read from Kafka."""

    region: Region
    record: GenerationRecord
    parts: tuple[Part, ...]
    spans: bool
    """Whether the damaged segment lies in the generation's range of segments, even if it holds no entry of the
    generation."""
    reads: tuple[tuple[Position, Position], ...] = ()
    given_up: tuple[GivenUp, ...] = ()
    """Positions that are lost for good; the repair needs a person's consent to leave them out."""

    @property
    def gaps(self) -> list[Gap]:
        return [part for part in self.parts if isinstance(part, Gap)]

    @property
    def record_times(self) -> RecordTimes | None:
        """Record times of the generation's rows.  None if it has no rows, or has gaps, whose record times are unknown."""
        return None if self.gaps else RecordTimes.of(part.rows for part in self.parts if isinstance(part, Entry))

    @property
    def end(self) -> Position:
        return self.parts[-1].next if self.parts else self.record.first


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """Plan of the repair.

    ``problem``: what is wrong with the object, or None.  ``needed``: generations to flush, by region, oldest first."""

    key: str
    log: LogId
    problem: str | None
    needed: tuple[NeededGeneration, ...]
    fence_at: Sequence | None
    """Number at which the log is to be fenced; None if it has ended, or no generation in it is OPEN."""
    accept_loss: bool = False
    compacted: bool = False
    """Whether the topic is compacted and records must be read from it."""

    def lines(self) -> list[Told]:
        """Return sentences about the damage, the losses, and the generations that are to be flushed."""
        if self.problem is None:
            return [told(f"{self.key} is not damaged: nothing to do", object=self.key)]
        lost = [one.told() for g in self.needed for one in g.given_up]
        found = [
            told(self.problem, object=self.key, problem=self.problem),
            *lost,
            *([told(_PERHAPS_IN_MEMORY)] if lost else []),
        ]
        for g in self.needed:
            gaps = [f"{first} to {end - 1}" for first, end in g.reads]
            left = "what is left of it can be read" if g.gaps else "its entries can be read"
            read = f"offsets {', '.join(gaps)} are read from Kafka" if gaps else left
            said = f"{g.region.name}: generation {g.record.generation} ({g.record.state.name}) is flushed; {read}"
            spans = [{"first": first, "next": end} for first, end in g.reads]
            found.append(told(said, **of_generation(g.region, g.record), read_from_kafka=spans))
            unsure = [gap for gap in g.gaps if len(gap.versions) > 1]
            if unsure:
                versions = sorted({version for gap in unsure for version in gap.versions})
                of = " and ".join([", ".join(map(str, versions[:-1])), str(versions[-1])])
                found.append(
                    told(
                        f"{g.region.name}: records may be of versions {of} of the contract, which have other columns, or read "
                        "a schema's id in another way. Each is taken by the newest one under which it is a row",
                        **of_generation(g.region, g.record),
                        versions=versions,
                    )
                )
        return found if self.needed else [*found, told("no unmerged generation needs it: nothing to do")]


def plan_segment(context: RepairContext, topic: TopicRecords, key: str, *, accept_loss: bool = False) -> SegmentPlan:
    """Return the plan for the segment ``key`` (steps 1 and 2).  ``accept_loss``: a person accepts what is lost for
    good.

    Raises ``InvalidInput`` if this is not the key of a segment.  Raises ``RepairRefused`` if the object is not part of
    a log.  Raises ``RetentionLost`` or ``TopicUnsuitable`` if records are lost, and ``accept_loss`` is false.
    """
    # Step 1
    place = paths.parse_wal_segment(key)
    if place is None:
        raise InvalidInput(
            f"{key!r} is not a WAL segment: name the object as the error message does, from {paths.WAL} on"
        )
    log, sequence = place
    problem = _problem(context, key)
    if problem is None:
        return SegmentPlan(key, log, None, (), None)
    surveys = survey_logs(context, context.contract.regions)
    survey = surveys.get(log)
    inside = survey is not None and sequence < (survey.behind if survey.fence is None else survey.fence)
    # Step 2
    needed: list[NeededGeneration] = []
    for state in context.read_states().values():
        needed += _needed(context, state, log, sequence, surveys, inside)
    if not needed and not inside:
        raise RepairRefused(
            f"{problem}. The object is not part of a log: nothing is known after the log's end. Nothing was changed"
        )
    compacted = any(g.gaps for g in needed) and is_compacted(topic)
    for at, generation in enumerate(needed):
        lost = given_up(context, topic, generation.region, generation.gaps, compacted=compacted)
        needed[at] = replace(generation, reads=_reads(context, generation, lost), given_up=lost)
    if not accept_loss:
        refuse([one for generation in needed for one in generation.given_up])
    opened = any(g.record.state is GenerationState.OPEN for g in needed)
    fence_at = survey.behind if opened and survey is not None and survey.fence is None else None
    return SegmentPlan(key, log, problem, tuple(needed), fence_at, accept_loss, compacted)


def repair_segment(context: RepairContext, topic: TopicRecords, plan: SegmentPlan) -> list[Told]:
    """End the log, and flush the generations of the plan (steps 3 and 4); return what was done."""
    # Step 3
    if plan.fence_at is not None:
        region = plan.needed[0].region
        end_log(context.store, context.tasks, context.clock, plan.log, {region: plan.fence_at}, REPAIR)
        plan = plan_segment(context, topic, plan.key, accept_loss=plan.accept_loss)
    # Step 4
    person = new_owner()
    done: list[Told] = []
    for generation in plan.needed:
        name = f"{generation.region.name}: generation {generation.record.generation}"
        record = _sealed(context, generation)
        about = of_generation(generation.region, record or generation.record)
        if record is None:
            done.append(told(f"{name}: another process was faster. Run the command again", **about, flushed=False))
            continue
        record_losses(context, generation.given_up, plan.key, person)
        done += [one.told("recorded: ") for one in generation.given_up]
        content = _content(context, topic, generation)
        if generation.gaps and is_compacted(topic) != plan.compacted:  # still the same one, after its records were read
            raise TopicUnsuitable(f"topic {generation.region.topic} has become compacted: run the command again")
        make = flush_generation if record.flush is None else replace_flush
        ours = make(context, generation.region, record, content, context.new_id) is not None
        said = f"{name} is flushed" if ours else f"{name}: another process was faster. Run the command again"
        done.append(told(said, **about, flushed=ours))
    return done


def _problem(context: RepairContext, key: str) -> str | None:
    try:
        data = context.store.get(key)
        if data is None:
            return f"{key} is missing"
        decode_segment(data, key)
    except ObjectCorrupt as error:
        return str(error)
    return None


def _needed(
    context: RepairContext,
    state: RegionState,
    log: LogId,
    sequence: Sequence,
    surveys: Mapping[LogId, LogSurvey],
    inside: bool,
) -> list[NeededGeneration]:
    """Return the generations of a region that need the segment, and those before them that are not flushed yet.

    ``inside``: whether the segment lies before the known end of its log.
    """
    region = state.region
    merged = context.watermarks.newest()[1].generation(region)
    needing = [
        r
        for r in state.generations
        if r.generation > merged
        and r.log == log
        and r.first_sequence <= sequence
        and (inside if r.end_sequence is None else sequence < r.end_sequence)
        and (r.flush is None or flush_state(context, region, r).problem is not None)
    ]
    if not needing:
        return []
    last = needing[-1].generation
    before = [
        r for r in state.generations if r.state is GenerationState.SEALED and r.generation < last and r not in needing
    ]
    chosen = sorted([*needing, *before], key=lambda r: r.generation)
    return [NeededGeneration(region, r, parts_of(context, region, r, surveys.get(r.log)), r in needing) for r in chosen]


def _reads(
    context: RepairContext, generation: NeededGeneration, lost: Seq[GivenUp]
) -> tuple[tuple[Position, Position], ...]:
    reads = []
    losses = read_losses(context.store, generation.region, context.contract.making) if generation.gaps else ()
    for gap in generation.gaps:
        gone = [one.next for one in lost if one.kind == "offsets" and gap.first <= one.first < gap.next]
        first = max([behind_losses(losses, gap.first), *gone])
        reads += [(first, gap.next)] if first < gap.next else []
    return tuple(reads)


def _content(context: RepairContext, topic: TopicRecords, generation: NeededGeneration) -> Content:
    read = [(part, rows_of(context, topic, generation.region, part)) for part in generation.parts]

    def where() -> str:
        return f"generation {generation.record.generation} of partition {generation.region.name}"

    rows = [context.rows_as_wanted(rows, part.contract_version, where) for part, rows in read if rows is not None]
    folded = fold(rows, context.contract.rows)
    return Content(folded, repaired=generation.spans or bool(generation.gaps))


def _sealed(context: RepairContext, generation: NeededGeneration) -> GenerationRecord | None:
    """Return the record of the generation that is to be flushed; None if another process has changed the generation.

    An OPEN generation is first sealed at its end, and handed over."""
    record = generation.record
    if record.state is not GenerationState.OPEN:
        found = context.states.read([generation.region]).get(generation.region)
        return record if found is not None and record in found.generations else None
    end = _fence_of(context, record.log)

    def decide(state: RegionState | None) -> RegionState | None:
        if state is None or record not in state.generations:
            return None  # re-anchored, sealed, or claimed
        return seal(
            state,
            record.generation,
            Claimant(record.owner, record.log, end),
            generation.end,
            context.new_id(),
            record_times=generation.record_times,
            now_ms=context.clock.now_ms(),
            hand_over=True,
        )

    ours, state = context.states.swap({generation.region: decide})[generation.region]
    return state.generations[-1] if ours and state is not None else None


def _fence_of(context: RepairContext, log: LogId) -> Sequence:
    """Return the number of a log's fence.  Raises ``RepairRefused`` if the log has none."""
    survey = survey_logs(context, ()).get(log)
    if survey is None or survey.fence is None:
        raise RepairRefused(f"log {log} is not ended by a fence yet: run the command again")
    return survey.fence
