"""The state of a stopped world, compared with the oracle: nothing moves while it looks.

For each region
 1. in every version of its page its index follows from the one before by an allowed change, and only the owner of the OPEN
    generation (or a claimer that becomes it, or whoever has fenced its log) changes that generation (I4);
 2. generations follow each other without a gap, and the entries of each cover [first, next) without a gap;
 3. the fold of a generation's entries, and its flush, equal the dict fold of the topic's records there (I9, I10);
 4. everything acknowledged lies below the end of the newest generation's log (I1);
 5. the segments of every generation above the trimmed boundary that the index names are there (I8);
 6. the bad records that entries list are those of the topic, and were acknowledged as dead letters before (I12).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lancewal_core.errors import ObjectMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, OwnerId, Region, Sequence
from lancewal_core.process import failpoints
from lancewal_core.region.flush_files import read_folded
from lancewal_core.region.flushes.manifest import read_flushed_generation
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.pages.state_page import decode_page
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.region.states import page_family, state_in
from lancewal_core.rows.fold import Folded, fold
from lancewal_core.rows.schema import OFFSET, PRESENT, TIMESTAMP, Op
from lancewal_core.table.contract import Contract
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Fence, decode_segment
from lancewal_core.wal.walk import walk
from tests.simulation import oracle
from tests.simulation.memory_kafka import MemoryTopic
from tests.twins.memory_table import MemoryTable

if TYPE_CHECKING:
    from tests.simulation.columns import Columns


class Violation(AssertionError):
    """An invariant does not hold."""


def require(holds: bool, text: str, *facts: object) -> None:
    if not holds:
        raise Violation(" ".join([text, *map(str, facts)]))


def states_of(folded: Folded, names: Seq[str]) -> dict[int, oracle.KeyState]:
    """A ``Folded`` in the oracle's words."""
    found: dict[int, oracle.KeyState] = {}
    for row in folded.rows.to_pylist():
        k = row.pop("k")
        found[k] = oracle.KeyState.of("row", row)
    for row in folded.gone.to_pylist():
        require(row["k"] not in found, "a key is in two parts of a fold:", row)
        found[row["k"]] = oracle.KeyState.of("gone", {})
    for row in folded.partials.to_pylist():
        require(row["k"] not in found, "a key is in two parts of a fold:", row)
        present = int.from_bytes(row.pop(PRESENT), "little")
        values = {n: row[n] for i, n in enumerate(names) if present >> i & 1 and n != "k"}
        found[row["k"]] = oracle.KeyState.of("partial", values)
    return found


@dataclass(slots=True)
class _SeenOpen:
    """Entries of an OPEN generation, up to a segment of its log."""

    record: GenerationRecord
    upto: Sequence
    entries: list[Entry]
    end: int


@dataclass(slots=True)
class _Seen:
    """What was checked of a region before."""

    version: int = 0
    index: RegionState | None = None
    entries: set[Generation] = field(default_factory=set)
    flushes: set[str] = field(default_factory=set)
    open: _SeenOpen | None = None


class Checker:
    """``opened`` and its ``table`` work without faults and switches.  ``writer_of`` tells whose a write id is."""

    def __init__(
        self,
        opened: OpenedTable,
        table: MemoryTable,
        topic: MemoryTopic,
        writer_of: Mapping[str, str],
    ) -> None:
        self.rejected: dict[int, set[int]] = {}
        """Offsets acknowledged as dead letters, by partition."""
        self.columns: Columns | None = None
        """Where columns change."""
        self.checks = 0
        self._opened = opened
        self.store = opened.store
        self.table = table
        self._tasks = opened.tasks
        self.states = opened.states
        self._contract = opened.contract
        self._versions = {opened.contract.version: opened.contract}
        self._topic = topic
        self._writer_of = writer_of
        self._seen = {region: _Seen() for region in opened.contract.regions}

    def follow(self, contract: Contract) -> None:
        """The contract was changed; regions that it had stay what they were."""
        self._contract = contract
        self._opened = replace(self._opened, contract=contract)
        self._versions[contract.version] = contract
        self._seen = {region: self._seen.get(region, _Seen()) for region in contract.regions}

    def check(self, acknowledged: Mapping[int, int]) -> None:
        """Raise ``Violation``; see the module docstring.  ``acknowledged``: durable position by partition."""
        self.checks += 1
        for region in self._contract.regions:
            self.check_region(region, acknowledged.get(region.partition, 0))

    def check_region(self, region: Region, known: int) -> None:
        """The same for one region, of which all below ``known`` is acknowledged.

        No process passes a point meanwhile: who froze there would go on looking at a world of long ago.
        """
        active, failpoints._active = failpoints._active, None
        try:
            self._check_history(region)
            state = self.states.read([region]).get(region)
            if state is not None:
                end = self._check_generations(region, state)
                require(end >= known, f"{region.name}: acknowledged up to", known, "but the log ends at", end, state)
        finally:
            failpoints._active = active

    # -- the index's versions ------------------------------------------------------------------------------------

    def _check_history(self, region: Region) -> None:
        seen = self._seen[region]
        family = page_family(self._contract.page_of(region))
        while True:
            key = family.key(seen.version + 1)
            data = self.store.get(key)
            if data is None:
                return
            after = state_in(decode_page(data, key), region, key)
            if seen.index is not None:
                require(after is not None, f"{region.name}: its index left the page", key, seen.index)
            if seen.index is not None and after is not None and after != seen.index:
                self._check_change(seen.index, after)
            seen.version, seen.index = seen.version + 1, after

    def _check_change(self, before: RegionState, after: RegionState) -> None:
        old = {r.generation: r for r in before.generations}
        new = {r.generation: r for r in after.generations}
        for generation, record in old.items():
            later = new.get(generation)
            if later is None:
                require(record.state is GenerationState.MERGED, "a generation left the index unmerged:", record)
                continue
            require(
                later.state.value - record.state.value in (0, 1),
                "a generation changed its state from", record, "to", later,
            )  # fmt: skip
            require((later.first, later.owner, later.log) == (record.first, record.owner, record.log), "a generation "
                    "was rewritten:", record, later)  # fmt: skip
            if record.next is not None:
                require(later.next == record.next, "a sealed generation moved its end:", record, later)
        require(after.contract_version >= before.contract_version, "the contract version went back:", before, after)
        was, became = before.newest, after.newest
        if was is None or became is None:
            raise Violation(f"an index without generations: {before} {after}")
        writer = self._writer_of[after.write_id]
        claimed = became.generation > was.generation
        if claimed:
            require(became.generation == was.generation + 1, "a generation was left out:", was, became)
            require(became.owner == writer, "somebody opened a generation for another:", writer, became)
        if was.state is GenerationState.OPEN and new.get(was.generation) != was and not claimed:
            require(
                was.owner == OwnerId(writer) or self._is_ended(new.get(was.generation)),
                f"{writer} changed a generation that it does not own:", was, after,
            )  # fmt: skip

    def _is_ended(self, record: GenerationRecord | None) -> bool:
        """SEALED where a fence has ended its log, which anybody may put."""
        if record is None or record.end_sequence is None:
            return False
        key = paths.wal_segment(record.log, record.end_sequence)
        data = self.store.get(key)
        return data is not None and isinstance(decode_segment(data, key), Fence)

    # -- entries and flushes -----------------------------------------------------------------------------------

    def _check_generations(self, region: Region, state: RegionState) -> int:
        """The position up to which everything is durable."""
        end = 0
        for record in state.generations:
            if record.generation <= state.trimmed_generation:
                continue
            if record.state is GenerationState.OPEN:
                end = self._check_open(region, record)
            else:
                self._check_kept(region, record)
                self._check_sealed(region, record)
                end = record.next or 0
        self._check_first_records(region, state)
        return end

    def _check_first_records(self, region: Region, state: RegionState) -> None:
        """A state that knows of no row counts all bad records before its OPEN generation; besides, only deletes lie there."""
        newest = state.newest
        if state.no_row_yet is None or newest is None or self._topic.partitions[region.partition].lost:
            return
        records = self._between(region, 0, newest.first if newest.next is None else newest.next)
        has_rows = any(r.op not in (None, Op.DELETE) for r in records)
        require(not has_rows, f"{region.name}: has rows, and", state, "knows of none")
        bad = sum(r.bad for r in records)
        require(state.no_row_yet.rejected == bad, f"{region.name}:", bad, "bad records, not as in", state)

    def _check_kept(self, region: Region, record: GenerationRecord) -> None:
        if record.next != record.first:  # trimming takes the lowest numbers of a log
            keys = [paths.wal_segment(record.log, Sequence(record.first_sequence + n)) for n in (0, 1)]
            lowest = keys[: (record.end_sequence or 0) - record.first_sequence]
            gone = [key for key in lowest if self.store.get(key) is None]
            require(not gone, f"I8 {region.name}: deleted, though needed", record, gone)

    def _check_open(self, region: Region, record: GenerationRecord) -> int:
        # Objects never change, so what was read is not read again while everything from the first segment on is there.
        known = self._seen[region].open
        if known is None or known.record != record or not self._there(record, known.upto):
            known = self._seen[region].open = _SeenOpen(record, record.first_sequence, [], int(record.first))
        walked = walk(self.store, self._tasks, record.log, known.upto, regions=(region,))
        known.upto = walked.end
        new = [e for s in walked.segments for e in s.entries if e.region == region and e.first >= record.first]
        if new:
            known.entries += new
            known.end = self._check_entries(region, record, known.entries)
        return known.end

    def _there(self, record: GenerationRecord, upto: Sequence) -> bool:
        numbers = range(record.first_sequence, upto)
        return all(self.store.get(paths.wal_segment(record.log, Sequence(n))) is not None for n in numbers)

    def _check_sealed(self, region: Region, record: GenerationRecord) -> None:
        seen = self._seen[region]
        if record.generation not in seen.entries:
            entries = entries_of(self._opened, region, record)
            end = self._check_entries(region, record, entries)
            require(end == record.next, f"{region.name}: entries end at", end, "the generation is", record)
            self._check_times(region, record, entries)
            seen.entries.add(record.generation)
        if record.flush is not None and record.flush not in seen.flushes and record.state is GenerationState.FLUSHED:
            try:
                flushed = read_flushed_generation(self.store, record.flush, region, record.generation)
                folded = read_folded(self.store, self.table, flushed, self._opened.columns_of(flushed))
                folded = self._opened.rows_of_flush(flushed, folded)
            except ObjectMissing:
                return  # a user's clean-up took its files: the merge rebuilds it
            require((flushed.first, flushed.next) == (record.first, record.next), "flush", flushed, "of", record)
            if self.columns is not None:
                self.columns.check_flush(flushed)
            told = flushed.sealed_at_ms, flushed.record_times
            require(told == (record.sealed_at_ms, record.record_times), "the times of", flushed, "are not", record)
            require(record.flushed_at_ms is not None, f"{region.name}: flushed nobody knows when:", record)
            self._check_fold(region, record, folded, flushed.first, flushed.next)
            seen.flushes.add(record.flush)

    def _check_times(self, region: Region, record: GenerationRecord, entries: Seq[Entry]) -> None:
        require(record.sealed_at_ms is not None, f"{region.name}: sealed nobody knows when:", record)
        times = [ms for e in entries for ms in e.rows.column(TIMESTAMP).cast(pa.int64()).to_pylist()]
        known = record.record_times
        told = [] if known is None else [known.min_ms, known.max_ms]
        require(told == ([min(times), max(times)] if times else []), f"{region.name}: times", times, "of", record)

    def _check_entries(self, region: Region, record: GenerationRecord, entries: Seq[Entry]) -> int:
        position = int(record.first)
        log = self._topic.partitions[region.partition]
        for entry in entries:
            log.survived |= log.lost.intersection(entry.rows.column(OFFSET).to_pylist())
            require(entry.first == position, f"{region.name}: a gap before", entry.first, "expected", position, record)
            position = entry.next
            bad = {r.offset for r in self._between(region, entry.first, entry.next) if r.bad}
            listed = {r.offset for r in entry.rejected}
            require(bad == listed, f"{region.name}: rejected", listed, "bad are", bad)
            # An entry follows the contract version that it names, whoever wrote it and whatever holds by now.
            if self._versions[entry.contract_version].on_bad_record != "ignore":
                require(bad <= self.rejected.get(region.partition, set()), f"{region.name}: no dead letter for", bad)
        folded = fold([self._opened.rows_of(e) for e in entries], self._contract.rows)
        self._check_fold(region, record, folded, record.first, position)
        return position

    def _check_fold(self, region: Region, record: GenerationRecord, folded: Folded, first: int, next_: int) -> None:
        found = states_of(folded, self._contract.rows.table.names)
        if self.columns is None:
            expected = oracle.fold(self._between(region, first, next_))
        else:
            found = self.columns.states(found, self._contract.version)
            states = oracle.fold(self._between(region, first, next_), {})
            expected = self.columns.seen_by(states, self._contract.version)
        require(found == expected, f"{region.name} generation {record.generation} [{first}, {next_}): holds", found,
                "instead of", expected)  # fmt: skip

    def _between(self, region: Region, first: int, next_: int) -> list[oracle.Record]:
        found = self._topic.partitions[region.partition].between(first, next_)
        return found if self.columns is None else [self.columns.meant(region.partition, r) for r in found]


def rows_of(batches: Iterable[pa.RecordBatch]) -> dict[int, oracle.Values]:
    """Rows by key; a key that is there twice is a violation."""
    found: dict[int, oracle.Values] = {}
    for batch in batches:
        for row in batch.to_pylist():
            k = row.pop("k")
            require(k not in found, "a key shows twice:", k, row, found.get(k))
            found[k] = row
    return found
