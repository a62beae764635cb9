"""Seal, re-anchor and hand over OPEN generations of ours, many in one call.

Guarantees
 1. A SEALED generation covers exactly the positions of its durable entries.  These entries are in its log, in the
    segments [first_sequence, end_sequence).
 2. The end of a generation, or the segment to which it moves, is *fixed* while every PUT of the log is settled.  The
    caller settles the log first, and this module checks that.  Afterwards the swap may take long, or be repeated, while
    the log and the region go on: entries of later segments belong to the following generation.
 3. If another owner has claimed a region, nothing of it changes, and its answer is ``OwnershipLost``.
 4. Each region has an answer of its own: one that is lost, damaged or has no room does not stop another.

Steps
 1. Fix the end: check that the log is settled.  The log's next segment ends the generation and begins the following
    one.  ``sealed_at_ms`` is now: all entries of the generation were written before, those of the following one after.
 2. Do one compare-and-swap for the regions of each page, pages in parallel.  OPEN g becomes SEALED with its ``next``,
    and g + 1 becomes OPEN from there and from the segment of step 1.  A hand-over opens no g + 1.  A re-anchoring moves
    the first segment of an OPEN generation without entries to the segment of step 1.

A crash leaves each page as it was, or with everything that was decided for it.  If g was not sealed yet, its entries
and the later ones are in the log.  The process that claims the region next makes one generation of them.  A swap that
comes after that claim finds the region claimed, and changes nothing.  A repeated swap decides the same as before, and
finds a swap that had landed as ours.

Rounds of requests to the store (docs/reference/requests.md), as counted: 1 ("seal all partitions").
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lancewal_core.errors import LancewalError, OwnershipLost
from lancewal_core.names.ids import Generation, Region
from lancewal_core.process.failpoints import points
from lancewal_core.region.state import GenerationRecord, RegionState
from lancewal_core.region.states import Decide, Swap
from lancewal_core.region.transitions import Claimant, is_ours, reanchor, seal
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.context import IngestContext
from lancewal_ingest.regions.memtable import MemTable, own

Answer = GenerationRecord | LancewalError
"""Our generation: SEALED, or still OPEN if it was only re-anchored.  An error if the swap failed."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A generation that is to be sealed or re-anchored, as step 1 has fixed it."""

    memtable: MemTable
    """MemTable of the generation, which takes no further entries."""
    claimant: Claimant
    """Our owner id and log, with the segment at which the generation ends."""
    length: float
    """Length of the log when the end was fixed (``LogWriter.length``)."""
    at_ms: int
    """Time when the end was fixed, in milliseconds since 1970."""

    def following(self, now: float) -> MemTable:
        """Return an empty MemTable for the next generation, opened at the monotonic time ``now``."""
        ended = self.memtable
        found = MemTable(
            ended.region,
            Generation(ended.generation + 1),
            self.claimant.first_sequence,
            ended.position,
            now,
            self.length,
        )
        found.last_entry_at = ended.last_entry_at
        found.before = ended.no_row_yet
        return found


def to_seal(context: IngestContext, writer: LogWriter, memtables: Collection[MemTable]) -> list[Fixed]:
    """Fix where the generations of ``memtables`` end (step 1).  The log of ``writer`` must be settled."""
    if memtables:
        _check_settled(writer)
    own(memtables)  # they may wait for their flushes for long
    claimant, now_ms = Claimant(writer.owner, writer.log, writer.next_unsent), context.clock.now_ms()
    return [Fixed(memtable, claimant, writer.length, now_ms) for memtable in memtables]


def to_move(context: IngestContext, writer: LogWriter, memtables: Collection[MemTable]) -> list[Fixed]:
    """Fix the new first segment of generations without entries (step 1).  The log must be settled."""
    found = to_seal(context, writer, memtables)
    for fixed in found:
        if fixed.memtable.entries:
            raise RuntimeError(f"region {fixed.memtable.region.name}: a generation with entries cannot be re-anchored")
    return found


def hand_over(context: IngestContext, fixed: Collection[Fixed]) -> dict[Region, Answer]:
    """Seal these generations, with or without entries, and open no new ones (step 2).  Return a result for each
    region."""
    return seal_and_reanchor(context, fixed, hand_over=True)


def seal_and_reanchor(
    context: IngestContext, full: Collection[Fixed], empty: Collection[Fixed] = (), *, hand_over: bool = False
) -> dict[Region, Answer]:
    """Seal the generations in ``full``, and open the next ones.  Re-anchor the generations in ``empty`` (step 2).

    A re-anchored generation no longer prevents old segments from being deleted.  With ``hand_over``, no new generation
    is opened.  Return a result for each region.
    """
    decisions: dict[Region, Decide] = {f.memtable.region: _sealing(context, f, hand_over=hand_over) for f in full}
    decisions |= {f.memtable.region: _reanchoring(context, f) for f in empty}
    # Step 2
    with (
        points("handover.cas" if hand_over else "seal.cas", map(_where, full)),
        points("reanchor.cas", map(_where, empty)),
    ):
        answers = context.states.swap_each(decisions)
    found: dict[Region, Answer] = {}
    for became, all_fixed in ((_sealed, full), (_moved, empty)):
        for fixed in all_fixed:
            answer = answers[fixed.memtable.region]
            found[fixed.memtable.region] = became(fixed, answer) if isinstance(answer, Swap) else answer
    return found


def _where(fixed: Fixed) -> dict[str, object]:
    return {"region": fixed.memtable.region.name, "generation": fixed.memtable.generation}


def _check_settled(writer: LogWriter) -> None:
    if not writer.settled:
        raise RuntimeError(f"log {writer.log} has an unsettled segment: settle it before a region state changes")


def _sealing(context: IngestContext, fixed: Fixed, *, hand_over: bool) -> Decide:
    memtable = fixed.memtable
    times = RecordTimes.of(memtable.batches)

    def decide(state: RegionState | None) -> RegionState | None:
        return state and seal(
            state,
            memtable.generation,
            fixed.claimant,
            memtable.position,
            context.new_id(),
            record_times=times,
            now_ms=fixed.at_ms,
            hand_over=hand_over,
            no_row=memtable.no_row,
        )

    return decide


def _reanchoring(context: IngestContext, fixed: Fixed) -> Decide:
    def decide(state: RegionState | None) -> RegionState | None:
        return state and reanchor(state, fixed.memtable.generation, fixed.claimant, context.new_id())

    return decide


def _sealed(fixed: Fixed, answer: Swap) -> Answer:
    memtable, index = fixed.memtable, answer.found
    if index is None or not (answer.ours or _landed_before(fixed, index)):
        return _lost(memtable)
    return {r.generation: r for r in index.generations}[memtable.generation]


def _landed_before(fixed: Fixed, state: RegionState) -> bool:
    """Return whether an earlier try of this seal landed without a reply.

    Then a generation is OPEN in our log that begins where this one ends.  Nobody else opens generations in our log."""
    memtable, claimant = fixed.memtable, fixed.claimant
    following = Generation(memtable.generation + 1)
    if not is_ours(state, following, claimant.owner, claimant.log):
        return False
    opened = state.generations[-1]
    ended = any(r.generation == memtable.generation for r in state.generations)
    return ended and (opened.first, opened.first_sequence) == (memtable.position, claimant.first_sequence)


def _moved(fixed: Fixed, answer: Swap) -> Answer:
    memtable, claimant = fixed.memtable, fixed.claimant
    if answer.found is None or not is_ours(answer.found, memtable.generation, claimant.owner, claimant.log):
        return _lost(memtable)
    return answer.found.generations[-1]


def _lost(memtable: MemTable) -> OwnershipLost:
    return memtable.region.error(OwnershipLost, "another process owns it now")
