"""A strong plan that reaches a token, or is not older than a receipt: it waits until the records asked for are durable.

Guarantees
 1. The plan holds every record below the positions that are asked for; for a receipt also what its table version
    shows.
 2. If a record of the token became a dead letter, the error is ``TokenRejected``, as long as the entry that says so
    is kept: while it is not merged, and for the history window afterwards.  Later the record counts as reached.  A
    record that the contract passes over counts as reached too.
 3. If a person has given up the offset of a record of the token, the error is ``RecordsGivenUp``, however long ago.
 4. If the positions are not reached in time, the error is ``TokenTimeout``.  It names the positions reached and those
    wanted, and says if the topic was recreated: offsets of the former topic may never come.

Steps
 1. Plan.  If the plan reaches what is asked for, go on with step 3.
 2. Wait, each time a little longer up to ``_PAUSE_MAX_S``.  Look how far the logs of the partitions that lack
    something reach: one read of their states, one listing of each of these logs, and the trailers of the few new
    segments, however long the logs are.  Once the logs reach what is wanted, go back to step 1: a strong plan that
    begins now has it.
 3. For each record that is asked for: find the generation that holds it, from the region state or history pages,
    which must be complete.  If it is trimmed, nothing more is known.  Otherwise take a listing of the generation's
    segments and, by binary search, the trailer of the segment that holds the record.  A listing may leave this
    segment out: then all of the generation's segments are asked for by their numbers.  If it is absent there too, it
    is trimmed by now, or it is lost and the generation flushed; its entry is not kept.
 4. If step 3 finds something stale, such as an object that was trimmed since, repeat it, up to ``PLANS_MAX`` times in
    all.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

from lancewal_core.errors import InvalidInput, PlanStale, RecordsGivenUp, TokenRejected, TokenTimeout, some_of
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Position, Region, Sequence
from lancewal_core.region.history import generations_behind
from lancewal_core.region.loss_record import read_losses
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.store.address import same_place
from lancewal_core.store.object_store import ObjectInfo, ObjectStore
from lancewal_core.table.contract import Contract
from lancewal_core.wal.entry import Entry, EntryHeader
from lancewal_core.wal.segment import Trailer
from lancewal_core.wal.tail import LogTail, read_trailer
from lancewal_reader.plan.log_entries import EntryRef
from lancewal_reader.plan.strong import PlanContext, ReadPlan, looked_again, plan_strong, walk_from
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.point.token import Least

_PAUSE_S = 0.02
_PAUSE_MAX_S = 1.0
_GROWTH = 1.5
_NAMED = 5

Held = Entry | EntryHeader


@dataclass(frozen=True, slots=True)
class Goal:
    """The state that a plan must reach: positions of a table's regions, and a table version."""

    positions: Mapping[Region, Position]
    records: frozenset[Region] = frozenset()
    """Regions for which the token names a record: the one just below the position."""
    version: int = 0

    @staticmethod
    def of(least: Least, contract: Contract, place: str) -> Goal:
        """Return the goal of a token or receipt.  Raises ``InvalidInput`` for a receipt of another table, or a token of
        another topic.
        """
        if isinstance(least, Receipt):
            if least.table_uuid != contract.uuid or not same_place(least.place, place):
                raise InvalidInput(
                    f"at_least: the receipt is of table {least.table_uuid} at {least.place}, this table is "
                    f"{contract.uuid} at {place}. Give a receipt of this table"
                )
            return Goal(least.positions, version=least.version)
        regions = {(region.topic, region.partition): region for region in contract.regions}
        other = next((partition for partition in least.positions if partition not in regions), None)
        if other is not None:
            raise InvalidInput(
                f"at_least names partition {other[1]} of topic {other[0]}; the table has topic {contract.topic} with "
                f"partitions 0 to {contract.partitions - 1}"
            )
        return Goal(
            {regions[partition]: position for partition, position in least.positions.items()},
            frozenset(regions[partition] for partition in least.records),
        )

    def missing(self, reached: Mapping[Region, Position]) -> list[Region]:
        return sorted(r for r, position in self.positions.items() if reached.get(r, 0) < position)

    def reached_by(self, plan: ReadPlan) -> bool:
        return plan.version >= self.version and not self.missing(plan.cut)


def plan_at_least(context: PlanContext, goal: Goal, timeout_s: float) -> ReadPlan:
    """Return a strong plan that reaches the goal.  Wait for it at most ``timeout_s``.

    Raises the errors of the module docstring, and those of ``plan_strong``.
    """
    until = context.clock.monotonic() + timeout_s
    pause = _PAUSE_S
    plan = plan_strong(context)  # Step 1
    tails = _Tails(context, plan)
    while not goal.reached_by(plan):
        reached = dict(plan.cut)
        while missing := goal.missing(reached):  # Step 2
            pause = _wait(context, goal, plan.version, reached, pause, until)
            for region, position in tails.look(missing).items():
                reached[region] = max(position, reached.get(region, position))
        if plan.version < goal.version:
            pause = _wait(context, goal, plan.version, reached, pause, until)
        plan = plan_strong(context)
    check_rejected(context, goal)
    return plan


def _wait(
    context: PlanContext, goal: Goal, version: int, reached: Mapping[Region, Position], pause: float, until: float
) -> float:
    """Sleep for ``pause`` seconds, but not past ``until``, and return the next pause.  Raises ``TokenTimeout`` if
    ``until`` has passed.
    """
    left = until - context.clock.monotonic()
    if left <= 0:
        raise _timeout(context, goal, version, reached)
    context.clock.sleep(min(pause, left))
    return min(pause * _GROWTH, _PAUSE_MAX_S)


def _timeout(context: PlanContext, goal: Goal, version: int, reached: Mapping[Region, Position]) -> TokenTimeout:
    missing = goal.missing(reached)
    named = [f"{r.topic}-{r.partition}: {reached.get(r, 0)} of {goal.positions[r]}" for r in missing]
    said = some_of(named, _NAMED) or "all"
    said += f"; table version {version} of {goal.version}" if version < goal.version else ""
    return TokenTimeout(
        f"the read did not reach at_least in time; positions reached: {said}. "
        f"Wait longer (timeout_s, --timeout), or see what lags (`lancewal status`){_of_former_topic(context, missing)}",
        reached={f"{r.topic}-{r.partition}": int(reached.get(r, 0)) for r in missing},
        wanted={f"{r.topic}-{r.partition}": int(goal.positions[r]) for r in missing},
    )


def _of_former_topic(context: PlanContext, missing: Seq[Region]) -> str:
    """Return a hint for the error message if the topic was recreated, else an empty text.  A token names no topic id,
    so its records may be those of the former topic."""
    contract = context.contract
    former = {it.topic_id for it in context.contracts.up_to(contract)} - {contract.topic_id}
    if not missing or not former:
        return ""
    return (
        f". Topic {contract.topic} was recreated since. If the token is older, the table has its records, but no read "
        "reaches their offsets. Read without at_least"
    )


class _Tails:
    """Reader of how far the logs reach that a plan waits for.  It begins after the segments that the plan used."""

    def __init__(self, context: PlanContext, plan: ReadPlan) -> None:
        self._context = context
        self._seen: dict[LogId, int] = {}
        for source in (source for delta in plan.deltas for source in delta.sources):
            if isinstance(source, EntryRef):
                self._seen[source.log] = max(source.sequence + 1, self._seen.get(source.log, 0))
        self._logs: dict[LogId, LogTail] = {}

    def look(self, regions: list[Region]) -> dict[Region, Position]:
        """Return the position up to which each region's records are durable now.  Regions that no process has claimed
        yet are left out.
        """
        found: dict[Region, Position] = {}
        open_in: dict[LogId, dict[Region, Sequence]] = {}  # where the generations begin
        for region, state in self._context.states.read(regions).items():
            newest = state.newest
            if newest is None:
                continue
            found[region] = newest.first if newest.next is None else newest.next
            if newest.state is GenerationState.OPEN:
                open_in.setdefault(newest.log, {})[region] = newest.first_sequence
        for log, begin in open_in.items():
            if log not in self._logs:
                self._logs[log] = LogTail(self._context.store, log, Sequence(self._seen.get(log, 0)))
            tail = self._logs[log]
            tail.look(begin)
            for region in begin:
                found[region] = max(found[region], tail.reached.get(region, found[region]))
        return found


def check_rejected(context: PlanContext, goal: Goal) -> None:
    """Raise ``TokenRejected`` or ``RecordsGivenUp`` if a record of the goal will never become a row (steps 3 and 4)."""
    what = "it cannot be found out whether records of at_least became dead letters"
    looked_again(context, lambda: _check_rejected_once(context, goal), what)
    _check_given_up(context, goal)


def _check_rejected_once(context: PlanContext, goal: Goal) -> None:
    """Raise ``TokenRejected`` if a record that the goal names became a dead letter (step 3)."""
    for region, state in context.states.read(sorted(goal.records)).items():
        offset = goal.positions[region] - 1
        record = _holder(context, region, state, offset)
        header = None if record is None else _entry(context, region, record, offset)
        if header is None:
            continue
        for rejected in header.rejected:
            if rejected.offset != offset:
                continue
            contract = context.contract_of(header.contract_version)  # that one decided what became of the record
            if contract.has_letter(rejected.kind):
                raise TokenRejected(
                    f"record {region.topic}-{region.partition}-{offset} became a dead letter ({rejected.kind}) and will "
                    f"not become a row. See topic {contract.dead_letters}",
                    **region.place,
                    offset=offset,
                )


def _check_given_up(context: PlanContext, goal: Goal) -> None:
    regions = sorted(goal.records)
    read = partial(read_losses, context.store, making=context.contract.making)
    for region, losses in zip(regions, context.tasks.map(read, regions), strict=True):
        offset = goal.positions[region] - 1
        if any(loss.kind == "offsets" and loss.first <= offset < loss.next for loss in losses):
            raise RecordsGivenUp(
                f"record {region.topic}-{region.partition}-{offset} will not become a row. Kafka deleted it before it was "
                "durable, or its segment is lost, and its offset was given up (`lancewal offset accept-loss PARTITION` or "
                "--accept-loss of a repair). Produce it again",
                **region.place,
                offset=offset,
            )


def _holder(context: PlanContext, region: Region, state: RegionState, offset: int) -> GenerationRecord | None:
    """Return the generation with this offset; None if it is trimmed or does not exist.  Raises ``PlanStale`` if a
    history page is missing.
    """
    if offset < state.trimmed or not state.generations:
        return None
    records: Seq[GenerationRecord] = state.generations
    if records[0].first > offset:
        records = generations_behind(context, region, state, state.trimmed_generation)
    return next((r for r in records if r.first <= offset and (r.next is None or offset < r.next)), None)


def _entry(context: PlanContext, region: Region, record: GenerationRecord, offset: int) -> Held | None:
    """Return the entry that holds the record, or the entry's header; None if its segment is not kept."""
    return _by_halving(context.store, region, record, offset) or _by_number(context, region, record, offset)


def _by_halving(store: ObjectStore, region: Region, record: GenerationRecord, offset: int) -> EntryHeader | None:
    """Find the entry's header by binary search in a listing; None if no listed segment has it."""
    after = paths.wal_segment(record.log, Sequence(record.first_sequence - 1)) if record.first_sequence else None
    segments: list[ObjectInfo] = []
    for info in store.list(paths.log_prefix(record.log), after=after):
        parsed = paths.parse_wal_segment(info.key)
        if parsed is not None and (record.end_sequence is None or parsed[1] < record.end_sequence):
            segments.append(info)
    segments.sort(key=lambda info: info.key)
    low, high = 0, len(segments)
    while low < high:  # segments[low:high] include the one wanted; some of them may hold nothing of the region
        middle = at = (low + high) // 2
        header = None
        while at < high and (header := _header(store, segments[at], region)) is None:
            at += 1
        if header is None or offset < header.first:
            high = middle
        elif offset >= header.next:
            low = at + 1
        else:
            return header
    return None


def _by_number(context: PlanContext, region: Region, record: GenerationRecord, offset: int) -> Held | None:
    """Find the entry in the generation's segments, number by number; None if its segment is not kept.  Raises
    ``PlanStale`` if the generation was OPEN and its log lacks the entry: the generation has ended since.
    """
    at = record.first_sequence
    while record.end_sequence is None or at < record.end_sequence:
        walked = walk_from(context, record.log, at, before=record.end_sequence)
        for segment in walked.segments:
            for entry in segment.entries:
                if entry.region == region and entry.first <= offset < entry.next:
                    return entry
        if record.end_sequence is None:
            raise region.error(
                PlanStale, f"generation {record.generation} is OPEN, its log {record.log} has no offset {offset}"
            )
        at = Sequence(walked.end + 1)  # a lost segment does not hide later ones
    return None


def _header(store: ObjectStore, info: ObjectInfo, region: Region) -> EntryHeader | None:
    trailer = read_trailer(store, info)
    entries = trailer.entries if isinstance(trailer, Trailer) else ()
    return next((entry for entry in entries if entry.region == region), None)
