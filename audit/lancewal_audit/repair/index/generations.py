"""Choose the generations of a rebuilt region state from the rest of the old state, the flushes and the logs.

Rules
 1. Generations that ended by the newest readable version stay, if that version reaches up to the watermark.
 2. After them, generations that have a flush keep their number and positions: a merge may be under way with them.
 3. After those, entries without a gap become SEALED generations, one for each part of the chain that lies in one log.
 4. Positions below the first generation count as trimmed, unless the old state and history pages still list them.
 5. The time when a rebuilt generation was flushed is unknown.  The time when it was sealed is known only from its flush.
    The times of its records are those of its entries, or those in its flush.
 6. The first generation begins where the region began, by some evidence.  The first entry that is left does not
    prove that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.index.entry_chain import chain_between
from lancewal_audit.repair.index.evidence import Versions
from lancewal_audit.repair.log_survey import LogSurvey, Piece
from lancewal_core.errors import RepairRefused
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.history import pages_of
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.table.watermarks import Watermark


def known_generations(
    versions: Versions, mark: Watermark, flushes: Mapping[int, list[FlushedGeneration]]
) -> list[GenerationRecord]:
    """Return the ended generations of the newest readable version; none if that version is too old to continue from."""
    if versions.sound is None:
        return []
    records = []
    for record in versions.sound[1].generations:
        if record.state is GenerationState.OPEN:
            continue
        if record.state is GenerationState.SEALED:
            made = [s for s in flushes.get(record.generation, ()) if (s.first, s.next) == (record.first, record.next)]
            if made:
                record = replace(record, state=GenerationState.FLUSHED, flush=made[0].key)
            elif record.generation <= mark.generation:
                return []
        records.append(record)
    last = records[-1].generation if records else versions.sound[1].trimmed_generation
    return records if last >= mark.generation else []


def start_of(known: Seq[GenerationRecord], mark: Watermark, first: Callable[[], Position]) -> tuple[int, Position]:
    """Return the number and the first position of the next generation.

    ``first`` returns the region's first position.  It is called if no generation is known or merged.
    """
    if known and known[-1].next is not None:
        return known[-1].generation + 1, known[-1].next
    if mark.generation:
        return mark.generation + 1, mark.next
    return 1, first()


def first_position(
    context: RepairContext,
    region: Region,
    versions: Versions,
    flushes: Mapping[int, list[FlushedGeneration]],
    survey: Mapping[LogId, LogSurvey],
    low: Callable[[], Position],
) -> Position:
    """Return the region's first position.  ``low`` returns the first offset that Kafka still has.

    The position comes from the readable version, else the contract, else a flush of generation 1, else the logs."""
    sound = None if versions.sound is None else versions.sound[1]
    if sound is not None and sound.generations and sound.generations[0].generation == 1:
        return sound.generations[0].first
    given = context.contract.start_of(region.partition)
    if given is not None:
        return given
    made = [s.first for s in flushes.get(1, ())]
    return min(made) if made else _beginning(region, survey, low)


def _beginning(region: Region, survey: Mapping[LogId, LogSurvey], low: Callable[[], Position]) -> Position:
    """Return the first position of a region if nothing but its logs says it.

    The region began at Kafka's first offset of that time, and this offset only grows.  So if Kafka still has offsets
    below the first entry, entries before it are lost.  Raises ``RepairRefused`` if the position cannot be told.
    """
    first = min((p for log in survey.values() for p in log.pieces[region]), key=lambda p: p.first, default=None)
    if first is None:
        return Position(0)
    kafka = low()
    log = survey[first.log]
    if kafka > first.first and any(n not in log.sequences or n in log.damaged for n in range(first.sequence)):
        raise region.error(
            RepairRefused,
            f"it is not known at which offset it began. Logs begin at {first.first}, and Kafka at {kafka}. Segments before "
            f"{paths.wal_segment(first.log, first.sequence)} are lost or damaged: restore them from the store's own "
            "versions. Nothing was changed",
        )
    return min(kafka, first.first)


def joined_in(survey: Mapping[LogId, LogSurvey]) -> Callable[[Piece, Piece], bool]:
    return lambda one, other: one.log == other.log and survey[one.log].joined(one, other)


def flushed_behind(
    start: tuple[int, Position],
    flushes: Mapping[int, list[FlushedGeneration]],
    pieces: list[Piece],
    survey: Mapping[LogId, LogSurvey],
) -> list[GenerationRecord]:
    """Return the consecutive generations from ``start`` for which a flush exists, in the state FLUSHED (rule 2)."""
    generation, at = start
    records: list[GenerationRecord] = []
    while made := [s for s in flushes.get(generation, ()) if s.first == at]:
        chains = [(s, chain_between(pieces, s.first, s.next, joined_in(survey))) for s in made]
        flushed, chain = next((pair for pair in chains if pair[1] is not None), chains[0])
        if chain:
            record = sealed(generation, chain)
        else:
            # Its log is gone, or it has no entry, so no chain of entries covers all of it.
            record = replace(_bare(generation, at), next=flushed.next, record_times=flushed.record_times)
        records.append(
            replace(record, state=GenerationState.FLUSHED, flush=flushed.key, sealed_at_ms=flushed.sealed_at_ms)
        )
        generation, at = generation + 1, flushed.next
    return records


def sealed(generation: int, chain: list[Piece]) -> GenerationRecord:
    return replace(
        _bare(generation, chain[0].first),
        owner=OwnerId(chain[-1].owner),
        log=chain[0].log,
        next=chain[-1].next,
        first_sequence=chain[0].sequence,
        end_sequence=Sequence(chain[-1].sequence + 1),
        record_times=RecordTimes.joined(piece.record_times for piece in chain),
    )


def _bare(generation: int, at: Position) -> GenerationRecord:
    """Return a SEALED generation without entries, in a log that does not exist."""
    return GenerationRecord(
        Generation(generation), GenerationState.SEALED, OwnerId("repair"), LogId("lost"), at, at, Sequence(0), Sequence(0),
        None, None, None,
    )  # fmt: skip


def in_order(records: list[GenerationRecord]) -> list[GenerationRecord]:
    """Return the records, with each FLUSHED record after a SEALED one changed to SEALED.

    Generations are flushed in order.  So such a flush was written, but its state was never swapped in.
    """
    found: list[GenerationRecord] = []
    for record in records:
        if found and found[-1].state is GenerationState.SEALED and record.state is GenerationState.FLUSHED:
            record = replace(record, state=GenerationState.SEALED, flush=None, flushed_at_ms=None)
        found.append(record)
    return found


def empty_generation(generation: Generation, at: Position, context: RepairContext) -> GenerationRecord:
    """Return a generation without entries at position ``at``, for a state without generations.

    A state lists at least one generation, which says where the region continues."""
    return replace(_bare(generation, at), log=LogId(context.new_id()))


def trimmed_boundary(
    context: RepairContext,
    region: Region,
    versions: Versions,
    known: list[GenerationRecord],
    records: list[GenerationRecord],
) -> tuple[Generation, Position, int | None]:
    """Return the trimmed boundary (generation and position) and the highest record time below it, in ms or None.

    If all generations above the readable version's boundary are still listed, all three values are those of that
    version.  Otherwise all below the first of ``records`` counts as trimmed, and the record time is unknown.
    """
    first = records[0]
    if known and versions.sound is not None:
        sound = versions.sound[1]
        paged = {
            record.generation for _, page in pages_of(context.store, region, context.contract.making) for record in page
        }
        if paged.issuperset(range(sound.trimmed_generation + 1, first.generation)):
            return sound.trimmed_generation, sound.trimmed, sound.trimmed_record_time_max_ms
    return Generation(first.generation - 1), first.first, None


def leads_as_far(
    state: RegionState, records: list[GenerationRecord], mark: Watermark, survey: Mapping[LogId, LogSurvey]
) -> bool:
    """Return whether ``state`` already covers the positions of ``records``, the generations that were found, and of the
    watermark ``mark``."""
    newest = state.newest
    if newest is None or newest.generation < mark.generation:
        return False
    end = newest.next
    if end is None:
        found = survey[newest.log].pieces[state.region] if newest.log in survey else ()
        end = max((p.next for p in found if p.first >= newest.first), default=newest.first)
    return not records or records[-1].next is None or records[-1].next <= end
