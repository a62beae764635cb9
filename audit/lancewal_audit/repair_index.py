"""``lancewal repair index``: a region's newest index versions are lost or damaged; make one from what the logs hold.

Guarantees
 1. The new index covers every position from what it is sure of (an older version that can be read, or the table's
    watermark) to the last that any log leads to, without a gap.  A gap stops it, with the offsets that are missing; told
    to (``before_gap``), it ends the region there, and ingest reads from Kafka what comes next.
 2. Generations that have a snapshot keep their number and their positions, so that whatever holds on to them stays right;
    the others are SEALED.  None is OPEN: whoever claims next goes on at the end.
 3. No former owner adds to it: ingest is paused and its group has no member, the flusher is paused, and every log is ended
    by a fence before the logs are read.
 4. One put-if-absent decides, of a version well above every one that is known; a process that remembers a version that is
    lost meets it, because the versions below it, down to the last that can be read, are filled up with the same.
 5. A crash before that put leaves fences, after it versions to fill up: repeating does the rest.

Steps
 1. Which versions are there, and which can be read?
 2. The watermark, of a finished merge; the snapshots of the region.
 3. Survey the logs; choose the generations.
 4. Nobody is at work (guarantee 3); end all logs; choose again.
 5. Put the version that decides, then fill up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from lancewal_audit.entry_chain import chain_between, farthest_chain, runs
from lancewal_audit.log_survey import LogSurvey, Piece, survey_logs
from lancewal_audit.repair_context import RepairContext, RepairRefused
from lancewal_core import paths
from lancewal_core.control import Service, read_control
from lancewal_core.errors import Corrupt, StoreUnavailable
from lancewal_core.ids import Generation, LogId, OwnerId, Position, Region, Sequence
from lancewal_core.log import end_log
from lancewal_core.region_index import GenerationRecord, RegionIndex, State, decode_history, decode_index, encode_index
from lancewal_core.regions import index_family
from lancewal_core.snapshot import Snapshot, read_snapshot
from lancewal_core.store import Done, Lost, Unknown, put_once
from lancewal_core.u64_segment import U64Segment
from lancewal_core.watermarks import Watermark

MARGIN = 100
"""Versions above the newest that is listed that processes may remember."""
MARGIN_BLIND = 1_000
"""The same where none is listed."""


@dataclass(frozen=True, slots=True)
class Versions:
    """What is listed of an index: the newest version that can be read, and those above it that cannot."""

    newest: int
    sound: tuple[int, RegionIndex] | None
    damaged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """``index``: what is to be written; None where the newest version that is listed is right."""

    region: Region
    versions: Versions
    index: RegionIndex | None
    missing: tuple[Position, Position] | None
    """Positions that no log has, though logs hold what comes behind them."""
    unreadable: tuple[str, ...]
    """Segments that may hold more."""

    def lines(self) -> list[str]:
        """For people."""
        sound = self.versions.sound
        found = [
            f"versions up to {self.versions.newest} are listed, "
            + ("none of them can be read" if sound is None else f"{sound[0]} is the newest that can be read"),
            *self.versions.damaged,
        ]
        if self.index is None:
            return [*found, "it says all that the logs say"]
        for r in self.index.generations:
            found.append(f"generation {r.generation}: {r.state.name}, positions {r.first} to {r.next}, log {r.log}")
        if self.missing is not None:
            found.append(
                f"offsets {self.missing[0]} to {self.missing[1] - 1} are in no log; what comes behind is left out"
            )
        return [*found, *(f"it may hold more: {key}" for key in self.unreadable)]


def plan_index(context: RepairContext, region: Region, *, before_gap: bool = False) -> IndexPlan:
    """Steps 1 to 3.  ``RepairRefused`` where the logs have a gap."""
    # Step 1
    versions = _versions(context, region)
    # Step 2
    mark = _finished_mark(context, region)
    snapshots = _snapshots(context, region)
    # Step 3
    survey = survey_logs(context, [region])
    pieces = [piece for log in survey.values() for piece in log.pieces[region]]
    known = _known(context, versions, mark, snapshots)
    start = _start(context, region, versions, known, mark, snapshots, pieces)
    records = [*known, *_flushed_behind(start, snapshots, pieces, survey)]
    at = records[-1].next if records and records[-1].next is not None else start[1]
    generation = records[-1].generation + 1 if records else start[0]
    chain = farthest_chain(pieces, at, _joined(survey))
    for part in runs(chain, _joined(survey)):
        records.append(_sealed(generation, part))
        generation += 1
    end = records[-1].next if records and records[-1].next is not None else start[1]
    behind = [piece.first for piece in pieces if piece.first > end]
    missing = (end, min(behind)) if behind else None
    unreadable = tuple(why for log in survey.values() for why in log.damaged.values())
    if (
        versions.sound is not None
        and versions.sound[0] == versions.newest
        and _says(versions.sound[1], records, mark, survey)
    ):
        return IndexPlan(region, versions, None, None, unreadable)
    if missing is not None and not before_gap:
        raise RepairRefused(
            f"region {region.name}: offsets {missing[0]} to {missing[1] - 1} are in no log that can be read, though logs "
            f"hold what comes behind them. Damaged: {list(unreadable)[:3] or 'none'}. Restore the missing segments from "
            "the store's own versions; or, where Kafka still has these offsets and all behind them, run the command with "
            "--before-gap, and ingest reads them again. Nothing was changed",
            region=region.name,
        )
    records = _in_order(records)
    if not records:
        records = [_empty(Generation(start[0]), start[1], context)]
    index = RegionIndex(
        region, context.contract.version, tuple(records), *_trimmed(context, region, versions, known, records),
        context.new_id(),
    )  # fmt: skip
    index.check()
    return IndexPlan(region, versions, index, missing, unreadable)


def check_quiet(context: RepairContext, members: Callable[[], int]) -> None:
    """Guarantee 3: ``RepairRefused`` while a service may change the region.  ``members``: of the consumer group."""
    control = read_control(context.store)
    running = [s for s in Service if control.paused(s, context.clock.now_ms()) is None]
    if running:
        raise RepairRefused(
            f"{' and '.join(running)} must be paused: `lancewal pause {running[0]}`. Nothing was changed"
        )
    count = members()
    if count:
        raise RepairRefused(
            f"{count} ingest processes are members of the table's consumer group: stop them; one that remembers the index "
            "that is lost would go on from it. Nothing was changed"
        )


def repair_index(
    context: RepairContext, region: Region, members: Callable[[], int], *, before_gap: bool = False, above: int = 0
) -> list[str]:
    """Steps 4 and 5; what was done.  ``above``: a version that a process is known to remember."""
    # Step 4
    check_quiet(context, members)
    plan = plan_index(context, region, before_gap=before_gap)
    if plan.index is None:
        return _fill(context, plan, plan.versions.newest, None)
    for log, found in survey_logs(context, [region]).items():
        if found.fence is None:
            end_log(context.store, context.tasks, context.clock, log, found.behind, OwnerId("repair"), region)
    again = plan_index(context, region, before_gap=before_gap)
    if again.index is None or again.versions != plan.versions:
        raise RepairRefused(f"region {region.name}: its index has changed meanwhile; run the command again")
    check_quiet(context, members)
    # Step 5
    margin = MARGIN if plan.versions.newest else MARGIN_BLIND
    top = max(plan.versions.newest, above) + margin
    data = encode_index(again.index)
    outcome = put_once(context.store, paths.index_version(region, top), data)
    match outcome:
        case Done():
            return [f"version {top} of the index is written", *_fill(context, again, top, data)]
        case Lost():
            raise RepairRefused(f"region {region.name}: its index has changed meanwhile; run the command again")
        case Unknown(cause=cause):
            raise StoreUnavailable(f"no verdict on writing version {top}: {cause}; run the command again")
        case _:
            assert_never(outcome)


def _fill(context: RepairContext, plan: IndexPlan, top: int, data: bytes | None) -> list[str]:
    """Versions below ``top`` that are absent, downward to one that can be read: guarantee 4."""
    key = paths.index_version(plan.region, top)
    data = data or context.store.get(key)
    filled = 0
    at = top - 1
    sound = plan.versions.sound
    low = sound[0] if sound is not None and sound[0] < top else 0
    while data is not None and at > low:
        found = context.store.get(paths.index_version(plan.region, at))
        if found is None:
            outcome = put_once(context.store, paths.index_version(plan.region, at), data)
            if isinstance(outcome, Unknown):
                raise StoreUnavailable(f"version {at} is not filled up: {outcome.cause}; run the command again")
            filled += 1
        elif plan.index is None and found != data and _readable(found, paths.index_version(plan.region, at)):
            break  # below it, nothing is a hole of ours
        at -= 1
    return [f"{filled} versions below it are filled up"] if filled else []


# -- what is known -----------------------------------------------------------------------------------------------


def _versions(context: RepairContext, region: Region) -> Versions:
    family = index_family(region)
    listed = sorted({v for i in context.store.list(family.prefix) if (v := family.parse(i.key)) is not None})
    damaged: list[str] = []
    for version in reversed(listed):
        data = context.store.get(family.key(version))
        try:
            if data is not None:
                return Versions(listed[-1], (version, decode_index(data, family.key(version))), tuple(damaged))
        except Corrupt as error:
            damaged.append(str(error))
    return Versions(listed[-1] if listed else 0, None, tuple(damaged))


def _readable(data: bytes, key: str) -> bool:
    try:
        decode_index(data, key)
    except Corrupt:
        return False
    return True


def _finished_mark(context: RepairContext, region: Region) -> Watermark:
    """What a finished merge has put into the table: an unfinished one needs its generations."""
    _, in_force = context.watermarks.newest()
    finished = in_force.version == 0 or in_force.merge is None
    if not finished and context.store.get(paths.merge_finished(in_force.version)) is None:
        in_force = context.watermarks.at(in_force.version - 1)
    return in_force.regions.get(region, Watermark(Generation(0), Position(0)))


def _snapshots(context: RepairContext, region: Region) -> dict[int, list[Snapshot]]:
    found: dict[int, list[Snapshot]] = {}
    for info in context.store.list(paths.snapshots_prefix(region)):
        parsed = paths.parse_snapshot_file(info.key)
        if parsed is None or parsed[3] is not paths.SnapshotFile.MANIFEST:
            continue
        try:
            snapshot = read_snapshot(context.store, info.key)
        except Corrupt:
            continue
        found.setdefault(snapshot.generation, []).append(snapshot)
    return {g: sorted(some, key=lambda s: -s.next) for g, some in found.items()}


def _known(
    context: RepairContext, versions: Versions, mark: Watermark, snapshots: Mapping[int, list[Snapshot]]
) -> list[GenerationRecord]:
    """Generations of the version that can be read, as far as they had ended; none where it is too old to be gone on from."""
    if versions.sound is None:
        return []
    records = []
    for record in versions.sound[1].generations:
        if record.state is State.OPEN:
            continue
        if record.state is State.SEALED:
            made = [s for s in snapshots.get(record.generation, ()) if (s.first, s.next) == (record.first, record.next)]
            if made:
                record = replace(record, state=State.FLUSHED, snapshot=made[0].key)
            elif record.generation <= mark.generation:
                return []
        records.append(record)
    last = records[-1].generation if records else versions.sound[1].trimmed_generation
    return records if last >= mark.generation else []


def _start(
    context: RepairContext,
    region: Region,
    versions: Versions,
    known: list[GenerationRecord],
    mark: Watermark,
    snapshots: Mapping[int, list[Snapshot]],
    pieces: list[Piece],
) -> tuple[int, Position]:
    """The next generation's number and first position."""
    if known and known[-1].next is not None:
        return known[-1].generation + 1, known[-1].next
    if mark.generation:
        return mark.generation + 1, mark.next
    sound = None if versions.sound is None else versions.sound[1]
    if sound is not None and sound.generations and sound.generations[0].generation == 1:
        return 1, sound.generations[0].first
    given = context.contract.start_of(region.partition)
    firsts = [s.first for s in snapshots.get(1, ())] or [piece.first for piece in pieces]
    return 1, given if given is not None else min(firsts, default=Position(0))


def _joined(survey: Mapping[LogId, LogSurvey]) -> Callable[[Piece, Piece], bool]:
    return lambda one, other: one.log == other.log and survey[one.log].joined(one, other)


def _flushed_behind(
    start: tuple[int, Position],
    snapshots: Mapping[int, list[Snapshot]],
    pieces: list[Piece],
    survey: Mapping[LogId, LogSurvey],
) -> list[GenerationRecord]:
    """Generations that have a snapshot, one after the other."""
    generation, at = start
    records: list[GenerationRecord] = []
    while made := [s for s in snapshots.get(generation, ()) if s.first == at]:
        chains = [(s, chain_between(pieces, s.first, s.next, _joined(survey))) for s in made]
        snapshot, chain = next((pair for pair in chains if pair[1] is not None), chains[0])
        if chain:
            record = _sealed(generation, chain)
        else:
            # Its log is gone, or it has no entry.  Naming one that no log has keeps anybody from taking nothing for all.
            entries = U64Segment.of([at] if snapshot.next > at else [])
            record = replace(_bare(generation, at), next=snapshot.next, wal_entries=entries)
        records.append(replace(record, state=State.FLUSHED, snapshot=snapshot.key))
        generation, at = generation + 1, snapshot.next
    return records


def _sealed(generation: int, chain: list[Piece]) -> GenerationRecord:
    return replace(
        _bare(generation, chain[0].first),
        owner=OwnerId(chain[-1].owner),
        log=chain[0].log,
        next=chain[-1].next,
        first_sequence=chain[0].sequence,
        end_sequence=Sequence(chain[-1].sequence + 1),
        wal_entries=U64Segment.of([piece.first for piece in chain]),
    )


def _bare(generation: int, at: Position) -> GenerationRecord:
    """SEALED, without entries, in a log that has no object."""
    return GenerationRecord(
        Generation(generation), State.SEALED, OwnerId("repair"), LogId("lost"), at, at, Sequence(0), Sequence(0),
        U64Segment.of(()), None, None, None,
    )  # fmt: skip


def _in_order(records: list[GenerationRecord]) -> list[GenerationRecord]:
    """Behind one that is SEALED none is further; a snapshot of it was written and never swapped in."""
    found: list[GenerationRecord] = []
    for record in records:
        if found and found[-1].state is State.SEALED and record.state is State.FLUSHED:
            record = replace(record, state=State.SEALED, snapshot=None)
        found.append(record)
    return found


def _empty(generation: Generation, at: Position, context: RepairContext) -> GenerationRecord:
    """An index names at least one generation: it says where the region goes on."""
    return replace(_bare(generation, at), log=LogId(context.new_id()))


def _trimmed(
    context: RepairContext,
    region: Region,
    versions: Versions,
    known: list[GenerationRecord],
    records: list[GenerationRecord],
) -> tuple[Generation, Position]:
    """The trimmed boundary: that of the version that can be read, if everything above it is still named somewhere."""
    first = records[0]
    if known and versions.sound is not None:
        sound = versions.sound[1]
        paged: set[int] = set()
        for info in context.store.list(paths.history_prefix(region)):
            data = context.store.get(info.key) if paths.parse_history_page(info.key) is not None else None
            if data is not None:
                paged |= {r.generation for r in decode_history(data, info.key).generations}
        if paged.issuperset(range(sound.trimmed_generation + 1, first.generation)):
            return sound.trimmed_generation, sound.trimmed
    return Generation(first.generation - 1), first.first


def _says(
    index: RegionIndex, records: list[GenerationRecord], mark: Watermark, survey: Mapping[LogId, LogSurvey]
) -> bool:
    """Whether an index leads as far as what was found."""
    newest = index.newest
    if newest is None or newest.generation < mark.generation:
        return False
    end = newest.next
    if end is None:
        found = survey[newest.log].pieces[index.region] if newest.log in survey else ()
        end = max((p.next for p in found if p.first >= newest.first), default=newest.first)
    return not records or records[-1].next is None or records[-1].next <= end
