"""Seal, re-anchor and hand over: how OPEN generations of ours end or move, as many at a call as are due.

Guarantees
 1. The positions of a SEALED generation are exactly those of its durable entries; its log holds them in
    [first_sequence, end_sequence).
 2. The end of a generation, or the place where it moves to, is *fixed* while the log has no segment whose PUT is not
    settled: the caller settles it first, and the check is here.  After that moment the swap may take its time, and be
    tried again, while the log and the region go on: entries of later segments are the following generation's.
 3. If another owner has claimed a region, nothing changes of it and ``OwnershipLost`` says so.
 4. Each region has an answer of its own: one that is lost, damaged or finds no room stops no other.

Steps
 1. Fix it: check that the log is settled; its next segment ends the generation, and begins the following one;
    ``sealed_at_ms`` is now, so that no entry of the generation was written later and none of the following one
    before.
 2. One compare-and-swap for the regions of each page, pages side by side: OPEN g -> SEALED with its ``next``; g + 1
    OPEN from there, from the segment of step 1.  Handing over opens no g + 1.  Re-anchor: the first segment of an
    OPEN generation that had no entry at step 1 moves there.

A crash leaves each page as it was or with all that was decided of it.  If g was not sealed yet, the log has its
entries and the later ones, and whoever claims the region makes one generation of all.  A swap that comes later than
that finds the region claimed, and declines.  Tried again, it says the same as before, and a swap that had landed is
found as ours.

Rounds of requests, as counted: 1 ("seal all partitions").
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
"""Our generation, SEALED or, if it was to be moved, still OPEN; or why it is neither."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A generation that ends, or moves, as it was at step 1."""

    memtable: MemTable
    """MemTable where it ends: it takes no further entries."""
    claimant: Claimant
    length: float
    """The log's, so far."""
    at_ms: int

    def following(self, now: float) -> MemTable:
        """Return the MemTable for the entries that come after it."""
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
        return found


def to_seal(context: IngestContext, writer: LogWriter, memtables: Collection[MemTable]) -> list[Fixed]:
    """Step 1, of generations that are to end."""
    if memtables:
        _check_settled(writer)
    own(memtables)  # they may wait for their flushes for long
    claimant, now_ms = Claimant(writer.owner, writer.log, writer.next_unsent), context.clock.now_ms()
    return [Fixed(memtable, claimant, writer.length, now_ms) for memtable in memtables]


def to_move(context: IngestContext, writer: LogWriter, memtables: Collection[MemTable]) -> list[Fixed]:
    """Step 1, of generations without entries."""
    found = to_seal(context, writer, memtables)
    for fixed in found:
        if fixed.memtable.entries:
            raise RuntimeError(f"region {fixed.memtable.region.name} has entries: it is sealed, not re-anchored")
    return found


def seal_and_reanchor(
    context: IngestContext, full: Collection[Fixed], empty: Collection[Fixed] = ()
) -> dict[Region, Answer]:
    """Do step 2: seal the generations of ``full`` and open the following ones.  Move the first segments of ``empty``
    forward, so that they pin no old segments."""
    return _swap(context, full, empty, hand_over=False)


def hand_over(context: IngestContext, fixed: Collection[Fixed]) -> dict[Region, Answer]:
    """Step 2: seal these generations, with entries or not, and open none."""
    return _swap(context, fixed, (), hand_over=True)


def _swap(
    context: IngestContext, full: Collection[Fixed], empty: Collection[Fixed], *, hand_over: bool
) -> dict[Region, Answer]:
    decisions: dict[Region, Decide] = {f.memtable.region: _sealing(context, f, hand_over=hand_over) for f in full}
    decisions |= {f.memtable.region: _reanchoring(context, f) for f in empty}
    # Step 2
    with (
        points("handover.cas" if hand_over else "seal.cas", map(_where, full)),
        points("reanchor.cas", map(_where, empty)),
    ):
        answers = context.indexes.swap_each(decisions)
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
        raise RuntimeError(f"log {writer.log} has an unsettled segment: settle it before an index changes")


def _sealing(context: IngestContext, fixed: Fixed, *, hand_over: bool) -> Decide:
    memtable = fixed.memtable
    times = RecordTimes.of(memtable.batches)

    def decide(index: RegionState | None) -> RegionState | None:
        return index and seal(
            index,
            memtable.generation,
            fixed.claimant,
            memtable.position,
            context.new_id(),
            record_times=times,
            now_ms=fixed.at_ms,
            hand_over=hand_over,
        )

    return decide


def _reanchoring(context: IngestContext, fixed: Fixed) -> Decide:
    def decide(index: RegionState | None) -> RegionState | None:
        return index and reanchor(index, fixed.memtable.generation, fixed.claimant, context.new_id())

    return decide


def _sealed(fixed: Fixed, answer: Swap) -> Answer:
    memtable, index = fixed.memtable, answer.found
    if index is None or not (answer.ours or _landed_before(fixed, index)):
        return _lost(memtable)
    return {r.generation: r for r in index.generations}[memtable.generation]


def _landed_before(fixed: Fixed, index: RegionState) -> bool:
    """Whether an earlier try was this seal, though no reply said so.  Nobody else opens a generation in our log, and the
    open one begins where this one ends."""
    memtable, claimant = fixed.memtable, fixed.claimant
    following = Generation(memtable.generation + 1)
    if not is_ours(index, following, claimant.owner, claimant.log):
        return False
    opened = index.generations[-1]
    ended = any(r.generation == memtable.generation for r in index.generations)
    return ended and (opened.first, opened.first_sequence) == (memtable.position, claimant.first_sequence)


def _moved(fixed: Fixed, answer: Swap) -> Answer:
    memtable, claimant = fixed.memtable, fixed.claimant
    if answer.found is None or not is_ours(answer.found, memtable.generation, claimant.owner, claimant.log):
        return _lost(memtable)
    return answer.found.generations[-1]


def _lost(memtable: MemTable) -> OwnershipLost:
    return memtable.region.error(OwnershipLost, "another process owns it now")
