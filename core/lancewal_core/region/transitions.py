"""Changes of a region's state: pure functions from a state to the next one, or to None if the change does not apply.

A compare-and-swap calls such a function on the newest state that it finds.  So the function checks all conditions
again, at every try.  None means "not (any more) yours to change" or "already done"; the caller reads the state to tell
which.

====================  ===========================================================================================
change                condition
====================  ===========================================================================================
``claim``             the newest generation is absent, handed over, or the OPEN one that the caller has ended
``retire``            the newest generation is the OPEN one that the caller has ended
``seal``              the newest generation is OPEN with this owner, log and number
``reanchor``          as for ``seal``; the caller knows that the generation has no entry
``flushed``           the generation is SEALED and every earlier one is FLUSHED or MERGED
``merged``            generations at or below the table's watermark are FLUSHED
``paged``             MERGED generations, oldest first, that a history page names as they are
``trim``              MERGED generations, oldest first, up to a boundary that the caller has chosen
``revived``           a person's decision after a restore: MERGED generations above the watermark become FLUSHED again
====================  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from lancewal_core.errors import StoreInconsistent
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TableVersion
from lancewal_core.region.state import NO_ROW_MS, GenerationRecord, GenerationState, RegionState
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.entry import NoRowYet


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an OPEN generation.  The generation's owner knows it.  Another process finds it by fencing the log and
    reading the log's entries."""

    generation: Generation
    log: LogId
    next: Position
    end_sequence: Sequence
    record_times: RecordTimes | None
    """Lowest and highest record time of the rows of its entries; None if there are no rows."""
    at_ms: int
    """Time when the end was found, by the clock of the process that ended it, which writes the state SEALED."""
    no_row: NoRowYet | None = None
    """Rejected records of its entries; None if one of the entries has a row, or that is not known."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """Claimant of a region, and the first segment of its log that may hold the region's entries."""

    owner: OwnerId
    log: LogId
    first_sequence: Sequence


def _open_record(generation: int, first: Position, claimant: Claimant) -> GenerationRecord:
    return GenerationRecord(
        generation=Generation(generation),
        state=GenerationState.OPEN,
        owner=claimant.owner,
        log=claimant.log,
        first=first,
        next=None,
        first_sequence=claimant.first_sequence,
        end_sequence=None,
        flush=None,
        merged_version=None,
        merged_at_ms=None,
    )


def _with(state: RegionState, changed: GenerationRecord, write_id: str) -> RegionState:
    """Return the state with another record of one generation."""
    records = tuple(changed if r.generation == changed.generation else r for r in state.generations)
    return replace(state, generations=records, write_id=write_id)


def first_claim(
    region: Region, contract_version: int, start: Position, claimant: Claimant, write_id: str
) -> RegionState:
    """Return the first version of a region's state: generation 1 OPEN at ``start``."""
    record = _open_record(1, start, claimant)
    return RegionState(region, contract_version, (record,), Generation(0), Position(0), write_id, no_row_yet=NoRowYet())


def claim(
    state: RegionState, ended: Ended | None, contract_version: int, claimant: Claimant, write_id: str
) -> RegionState | None:
    """Open the next generation.  If the newest generation is OPEN, SEAL it at the end in ``ended``.  Return None if
    ``ended`` does not describe that generation.
    """
    newest = state.newest
    if newest is None:
        raise StoreInconsistent(
            f"state of region {state.region.name} has no generation; rebuild it: `lancewal repair region`",
            region=state.region.name,
        )
    sealed = state
    if newest.state is GenerationState.OPEN:
        retired = None if ended is None else retire(state, ended, write_id)
        if retired is None:
            return None
        sealed = retired
    first = sealed.generations[-1].next
    if first is None:
        raise StoreInconsistent(
            f"state of region {state.region.name}: generation {newest.generation} is {newest.state.name} and has no next "
            "position; rebuild the state: `lancewal repair region`",
            region=state.region.name,
        )
    opened = _open_record(newest.generation + 1, first, claimant)
    version = max(state.contract_version, contract_version)  # a claim never leads back
    return replace(sealed, contract_version=version, generations=(*sealed.generations, opened), write_id=write_id)


def retire(state: RegionState, ended: Ended, write_id: str) -> RegionState | None:
    """SEAL the OPEN generation that ``ended`` describes, and open none.  The effect is that of a hand-over by the
    owner."""
    newest = state.newest
    if newest is None or newest.state is not GenerationState.OPEN:
        return None
    if (ended.generation, ended.log) != (newest.generation, newest.log):
        return None
    if ended.next < newest.first:
        raise state.region.error(
            StoreInconsistent, f"generation {newest.generation} starts at {newest.first}, its log ends at {ended.next}"
        )
    if ended.end_sequence < newest.first_sequence:
        # Re-anchored since, and what was found absent had been trimmed: no end was found, nor was the log ended.
        return None
    sealed = replace(
        newest,
        state=GenerationState.SEALED,
        next=ended.next,
        end_sequence=ended.end_sequence,
        sealed_at_ms=ended.at_ms,
        record_times=ended.record_times,
    )
    no_row_yet = state.no_row_yet and state.no_row_yet.joined(ended.no_row)
    return replace(_with(state, sealed, write_id), no_row_yet=no_row_yet)


def is_ours(state: RegionState, generation: Generation, claimant_owner: OwnerId, log: LogId) -> bool:
    """True while the newest generation is this one, OPEN, of this owner and log."""
    newest = state.newest
    return (
        newest is not None
        and newest.state is GenerationState.OPEN
        and (newest.generation, newest.owner, newest.log) == (generation, claimant_owner, log)
    )


def seal(
    state: RegionState,
    generation: Generation,
    claimant: Claimant,
    next_: Position,
    write_id: str,
    *,
    record_times: RecordTimes | None,
    now_ms: int,
    hand_over: bool,
    no_row: NoRowYet | None = None,
) -> RegionState | None:
    """SEAL our OPEN generation at ``next_``; unless ``hand_over``, open the following one after it.

    ``claimant.first_sequence`` is the next segment not yet sent: it ends the sealed generation and begins the next.
    ``record_times`` are those of its entries' rows, ``no_row`` is as in ``Ended``.
    """
    if not is_ours(state, generation, claimant.owner, claimant.log):
        return None
    ended = Ended(generation, claimant.log, next_, claimant.first_sequence, record_times, now_ms, no_row)
    sealed = retire(state, ended, write_id)
    if sealed is None or hand_over:
        return sealed
    return replace(sealed, generations=(*sealed.generations, _open_record(generation + 1, next_, claimant)))


def reanchor(state: RegionState, generation: Generation, claimant: Claimant, write_id: str) -> RegionState | None:
    """Move the first segment of our OPEN generation, which has no entry, forward."""
    if not is_ours(state, generation, claimant.owner, claimant.log):
        return None
    newest = state.generations[-1]
    if newest.first_sequence >= claimant.first_sequence:
        return None
    return _with(state, replace(newest, first_sequence=claimant.first_sequence), write_id)


def flushed(state: RegionState, generation: Generation, key: str, now_ms: int, write_id: str) -> RegionState | None:
    """Change SEALED to FLUSHED, strictly in generation order.  ``key`` is that of the flush's manifest."""
    oldest = next((r for r in state.generations if r.state in (GenerationState.OPEN, GenerationState.SEALED)), None)
    if oldest is None or oldest.generation != generation or oldest.state is not GenerationState.SEALED:
        return None
    return _with(state, replace(oldest, state=GenerationState.FLUSHED, flush=key, flushed_at_ms=now_ms), write_id)


def refreshed(state: RegionState, generation: Generation, old: str, new: str, write_id: str) -> RegionState | None:
    """Replace the flush of a FLUSHED generation whose files are missing by one rebuilt from its entries.

    The time at which the generation became FLUSHED stays.
    """
    for record in state.generations:
        if record.generation == generation and record.state is GenerationState.FLUSHED and record.flush == old:
            return _with(state, replace(record, flush=new), write_id)
    return None


def merged(
    state: RegionState, watermark: Generation, version: TableVersion, now_ms: int, write_id: str
) -> RegionState | None:
    """Change FLUSHED to MERGED for every generation at or below the watermark of table version ``version``."""
    records = tuple(
        replace(r, state=GenerationState.MERGED, merged_version=version, merged_at_ms=now_ms)
        if r.generation <= watermark and r.state is GenerationState.FLUSHED
        else r
        for r in state.generations
    )
    return None if records == state.generations else replace(state, generations=records, write_id=write_id)


def trim(
    state: RegionState, boundary: GenerationRecord, write_id: str, paged: Seq[GenerationRecord] = ()
) -> RegionState | None:
    """Move the trimmed boundary forward to ``boundary``, a MERGED generation; drop that generation and all below it
    from the state.

    ``paged`` are generations that left the state; their record times count for ``trimmed_record_time_max_ms``.  The
    newest generation always stays in the state: it says where the region continues.  Return None if one of the
    dropped generations is not MERGED, or ``boundary`` differs from the state's record.  Then a decision after a
    restore has changed the generation since.
    """
    if (
        boundary.generation <= state.trimmed_generation
        or boundary.state is not GenerationState.MERGED
        or boundary.next is None
    ):
        return None
    gone = [r for r in state.generations if r.generation <= boundary.generation]
    if any(r.state is not GenerationState.MERGED for r in gone) or (gone and gone[-1] != boundary):
        return None
    kept = tuple(r for r in state.generations if r.generation > boundary.generation)
    if not kept:
        return None
    return replace(
        state,
        generations=kept,
        trimmed_generation=boundary.generation,
        trimmed=boundary.next,
        trimmed_record_time_max_ms=_trimmed_time(
            state, boundary.generation, {r.generation: r for r in (*paged, *gone)}
        ),
        write_id=write_id,
    )


def _trimmed_time(state: RegionState, boundary: Generation, known: Mapping[Generation, GenerationRecord]) -> int | None:
    """Return the highest record time of all rows that are trimmed, before this change or by it.  Return None if the
    time of one of these generations is not known."""
    before = state.trimmed_record_time_max_ms if state.trimmed_generation else NO_ROW_MS
    going = [known.get(Generation(number)) for number in range(state.trimmed_generation + 1, boundary + 1)]
    times = [before, *(None if record is None else record.record_time_max_ms for record in going)]
    found = [time for time in times if time is not None]
    return max(found) if len(found) == len(times) else None


def paged(state: RegionState, page: Seq[GenerationRecord], write_id: str) -> RegionState | None:
    """Drop generations up to the last one of a history page.  All must be MERGED, and in the page exactly as in the
    state."""
    last = page[-1].generation
    kept = tuple(r for r in state.generations if r.generation > last)
    gone = [r for r in state.generations if r.generation <= last]
    if not gone or not kept or any(r.state is not GenerationState.MERGED or r not in page for r in gone):
        return None
    return replace(state, generations=kept, write_id=write_id)


def revived(
    state: RegionState, watermark: Generation, paged: Seq[GenerationRecord], write_id: str
) -> RegionState | None:
    """Change MERGED to FLUSHED for every generation above ``watermark``: the table was restored to a version without
    them.

    ``paged`` are MERGED generations that left the state; those that are needed come back.  Return None if there is
    nothing to do.  Raise ``StoreInconsistent`` if generations above the watermark are trimmed, or are neither in the
    state nor in ``paged``.
    """
    kept = {r.generation: r for r in (*paged, *state.generations) if r.generation > watermark}
    kept |= {r.generation: r for r in state.generations}
    records = tuple(
        replace(r, state=GenerationState.FLUSHED, merged_version=None, merged_at_ms=None)
        if r.generation > watermark and r.state is GenerationState.MERGED
        else r
        for _, r in sorted(kept.items())
    )
    first = records[0].generation if records else state.trimmed_generation + 1
    if state.trimmed_generation > watermark or first > watermark + 1:
        raise state.region.error(
            StoreInconsistent,
            f"generations above {watermark} do not exist any more: those up to {state.trimmed_generation} are trimmed, and "
            f"the first found is {first}",
        )
    return None if records == state.generations else replace(state, generations=records, write_id=write_id)
