"""Seal, re-anchor and hand over: how OPEN generations of ours end or move, as many at a call as it is time for.

Guarantees
 1. The positions of a SEALED generation are exactly those of its durable entries; its log holds them in [first_sequence,
    end_sequence).
 2. Never while the log has a segment whose PUT is not settled: the caller settles it first, and the check is here.
 3. Where another owner has claimed a region, nothing changes of it and ``OwnershipLost`` says so.
 4. Each region has an answer of its own: one that is lost, damaged or finds no room stops no other.

Steps
 1. Check that the log is settled.
 2. One compare-and-swap for the regions of each page, pages side by side: OPEN g -> SEALED with its ``next``;
    g + 1 OPEN from there, from the next segment not yet sent.  Handing over opens no g + 1.
    Re-anchor: the first segment of an OPEN generation without entries moves there.

A crash leaves each page as it was or with all that was decided of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lancewal_core.errors import LancewalError, OwnershipLost
from lancewal_core.ids import Region
from lancewal_core.process.failpoints import points
from lancewal_core.region.index import GenerationRecord, RegionIndex
from lancewal_core.region.indexes import Decide, Swap
from lancewal_core.region.transitions import Claimant, reanchor, seal
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.writer import LogWriter
from lancewal_ingest.context import IngestContext
from lancewal_ingest.regions.memtable import MemTable


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of our generation."""

    record: GenerationRecord
    """SEALED, or, where it was to be moved, OPEN still."""
    newest: GenerationRecord
    """The same, but where another was opened behind it."""


def seal_and_reanchor(
    context: IngestContext, writer: LogWriter, full: Collection[MemTable], empty: Collection[MemTable] = ()
) -> dict[Region, Moved | LancewalError]:
    """Seal the generations of ``full`` and open the following ones; move the first segments of ``empty`` forward, so that
    they pin no old segments."""
    for memtable in empty:
        if memtable.entries:
            raise RuntimeError(f"region {memtable.region.name} has entries: it is sealed, not re-anchored")
    return _swap(context, writer, full, empty, hand_over=False)


def hand_over(
    context: IngestContext, writer: LogWriter, memtables: Collection[MemTable]
) -> dict[Region, Moved | LancewalError]:
    """Seal their generations, with entries or not, and open none."""
    return _swap(context, writer, memtables, (), hand_over=True)


def _swap(
    context: IngestContext,
    writer: LogWriter,
    full: Collection[MemTable],
    empty: Collection[MemTable],
    *,
    hand_over: bool,
) -> dict[Region, Moved | LancewalError]:
    if not full and not empty:
        return {}
    # Step 1
    _check_settled(writer)
    claimant = Claimant(writer.owner, writer.log, writer.next_unsent)
    decisions: dict[Region, Decide] = {m.region: _sealing(context, claimant, m, hand_over=hand_over) for m in full}
    decisions |= {m.region: _reanchoring(context, claimant, m) for m in empty}
    # Step 2
    with (
        points("handover.cas" if hand_over else "seal.cas", map(_where, full)),
        points("reanchor.cas", map(_where, empty)),
    ):
        answers = context.indexes.swap_each(decisions)
    became = {m.region: _sealed(m, answer) for m in full if isinstance(answer := answers[m.region], Swap)}
    became |= {m.region: _moved(m, answer, claimant) for m in empty if isinstance(answer := answers[m.region], Swap)}
    errors = {region: answer for region, answer in answers.items() if isinstance(answer, LancewalError)}
    return {**errors, **became}


def _where(memtable: MemTable) -> dict[str, object]:
    return {"region": memtable.region.name, "generation": memtable.generation}


def _check_settled(writer: LogWriter) -> None:
    if not writer.settled:
        raise RuntimeError(f"log {writer.log} has an unsettled segment: settle it before an index changes")


def _sealing(context: IngestContext, claimant: Claimant, memtable: MemTable, *, hand_over: bool) -> Decide:
    times = RecordTimes.of(memtable.batches)

    def decide(index: RegionIndex | None) -> RegionIndex | None:
        return index and seal(
            index,
            memtable.generation,
            claimant,
            memtable.position,
            context.new_id(),
            record_times=times,
            now_ms=context.clock.now_ms(),
            hand_over=hand_over,
        )

    return decide


def _reanchoring(context: IngestContext, claimant: Claimant, memtable: MemTable) -> Decide:
    def decide(index: RegionIndex | None) -> RegionIndex | None:
        return index and reanchor(index, memtable.generation, claimant, context.new_id())

    return decide


def _sealed(memtable: MemTable, answer: Swap) -> Moved | LancewalError:
    if not answer.ours or answer.found is None:
        return _lost(memtable)
    records = {r.generation: r for r in answer.found.generations}
    return Moved(records[memtable.generation], answer.found.generations[-1])


def _moved(memtable: MemTable, answer: Swap, claimant: Claimant) -> Moved | LancewalError:
    newest = None if answer.found is None else answer.found.newest
    if newest is None or (newest.generation, newest.owner, newest.log) != (
        memtable.generation, claimant.owner, claimant.log
    ):  # fmt: skip
        return _lost(memtable)
    memtable.first_sequence = newest.first_sequence
    return Moved(newest, newest)


def _lost(memtable: MemTable) -> OwnershipLost:
    return OwnershipLost(f"region {memtable.region.name}: another process owns it now", region=memtable.region.name)
