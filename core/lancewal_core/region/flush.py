"""Flushing, the change SEALED -> FLUSHED.  Any process may flush any SEALED generation; the compare-and-swap keeps one
result.

Several regions are flushed in one call.  Small generations are written together, as parts of one flush, and larger ones
side by side.  Each page is swapped once, and each region has its own answer.  ``begin_flushes`` gives the answers page
by page, to callers that do other work meanwhile.

Guarantees
 1. The flush holds the fold of exactly the records of [first, next) that are not rejected, whether it was folded from
    the MemTable or from the WAL.
 2. Generations become FLUSHED strictly in order.
 3. A crash at any point leaves a SEALED generation and, at most, files that nothing names.
 4. If generations cannot be read or written together, for whatever reason, each is tried alone, so that none holds up
    another.
 5. With ``begin_flushes``, a page whose swap has no answer delays no answer of another page.  Such a swap may still
    land later; a process that tries again then finds the change.  Before the swaps, generations that are read and
    written together wait for their slowest request.

Steps
 1. Gather the generation's entries (from memory, or from its log: ``generation_entries``) and fold them.
 2. Write the flush into a folder of its own.  Small generations share one flush.
 3. Compare-and-swap SEALED -> FLUSHED.

Rounds of requests to the store (docs/reference/requests.md), as counted: 3 ("flush all partitions").
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from lancewal_core.errors import LancewalError, PlanStale, or_error, or_raised
from lancewal_core.names.ids import LogId, Page, Region
from lancewal_core.process.failpoints import points
from lancewal_core.process.tasks import Task
from lancewal_core.region.flush_files import Content, Flushable, write_flush
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.generation_entries import entries_together, kept_entries
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.region.states import Decide
from lancewal_core.region.transitions import flushed, refreshed
from lancewal_core.rows.fold import fold
from lancewal_core.wal.entry import Entry

Answer = FlushedGeneration | LancewalError | None
"""Result of a generation's flush, or an error, or None if another process was faster.  After an error the outcome may
be unknown."""
ALONE_ROWS = 50_000
"""Number of rows from which on a generation has a flush of its own.  A merge adopts the data file of such a flush
unchanged, whatever else waits (``MergeLimits.adopt_rows``)."""
ALONE_BYTES = 8 << 20
"""Bytes from which on a generation is flushed alone.  A merge that must read the generation needs a multiple of its
size in memory."""
TOGETHER_BYTES = 64 << 20
"""Largest number of bytes of generations that are flushed together: as much as one generation has by the default of
``ingest.seal_bytes``.  A larger generation is flushed alone."""


def flush_generation(
    opened: OpenedTable,
    region: Region,
    record: GenerationRecord,
    content: Content,
    new_id: Callable[[], str],
) -> FlushedGeneration | None:
    """Write the content of a SEALED generation, and mark it FLUSHED (steps 2 and 3).  Return None if another process
    flushed it first.  Also return None if a repair has rebuilt the state with another record of this generation,
    because its content then comes from other entries.
    """
    (found,) = flush_generations(opened, [Flushable(region, record, content)], new_id)
    return or_raised(found)


def flush_generations(opened: OpenedTable, flushable: Seq[Flushable], new_id: Callable[[], str]) -> list[Answer]:
    """Flush one generation of each of several regions, as ``flush_generation`` does.  Return a result for each, in
    their order.  An error affects only its region.
    """
    answers = _write(opened, flushable, new_id)
    answers |= _mark(opened, flushable, answers, new_id)
    return [answers[one.region] for one in flushable]


@dataclass(frozen=True, slots=True)
class Flushing:
    """Flushes that were written or failed, and the swaps of state pages that are still running."""

    answers: dict[Region, Answer] = field(default_factory=dict)
    """Answers of the regions for which no swap was started: None, or an error of reading or writing."""
    swaps: list[Task[dict[Region, Answer]]] = field(default_factory=list)
    """Running swaps, one for each state page.  The result of a swap has the answers of its regions."""

    def begin(self, opened: OpenedTable, flushable: Seq[Flushable], new_id: Callable[[], str]) -> None:
        """Write these generations, and start to swap their states."""
        written = _write(opened, flushable, new_id)
        by_page: dict[Page, list[Flushable]] = {}
        for one in flushable:
            if isinstance(written[one.region], FlushedGeneration):
                by_page.setdefault(opened.contract.page_of(one.region), []).append(one)
            else:
                self.answers[one.region] = written[one.region]
        for of_page in by_page.values():
            self.swaps.append(opened.tasks.start(partial(_mark, opened, of_page, written, new_id)))


def begin_flushes(opened: OpenedTable, flushable: Seq[Flushable], new_id: Callable[[], str]) -> Flushing:
    """Flush as ``flush_generations`` does, but return once the flush files are written.  The swaps of state pages may
    still be running; each has its own result.
    """
    flushing = Flushing()
    flushing.begin(opened, flushable, new_id)
    return flushing


def _write(opened: OpenedTable, flushable: Seq[Flushable], new_id: Callable[[], str]) -> dict[Region, Answer]:
    """Write the flushes (step 2); return the flush, or the error, of each region."""
    groups = opened.tasks.map(lambda group: _written(opened, group, new_id), _together(opened, flushable))
    return {region: found for group in groups for region, found in group.items()}


def _mark(
    opened: OpenedTable, flushable: Seq[Flushable], written: Mapping[Region, Answer], new_id: Callable[[], str]
) -> dict[Region, Answer]:
    """Swap SEALED to FLUSHED (step 3); return the answer of each region whose flush was written."""
    decisions, marked = {}, []
    for one in flushable:
        flush = written[one.region]
        if isinstance(flush, FlushedGeneration):
            decisions[one.region] = _flushing(opened, one.record, flush.key, new_id)
            marked.append({"region": one.region.name, "generation": one.record.generation})
    if not decisions:
        return {}
    with points("flushed.cas", marked):
        answers = opened.states.swap_each(decisions)
    return {
        region: swapped if isinstance(swapped, LancewalError) else written[region] if swapped.ours else None
        for region, swapped in answers.items()
    }


def _together(opened: OpenedTable, flushable: Seq[Flushable]) -> list[list[Flushable]]:
    """Group generations into flushes; return the generations of each flush.

    All generations of a flush have the columns of one contract.  Generations without records have a flush of their
    own.  A merge that leaves such a generation out still adopts the file of the others.  Damage of that flush holds
    up no other generation.
    """
    small: dict[tuple[str | None, bool], list[Flushable]] = {}
    large = []
    for one in flushable:
        folded = one.content.folded
        if folded.rows.num_rows >= ALONE_ROWS or folded.nbytes >= ALONE_BYTES:
            large.append([one])
            continue
        change = (one.content.contract or opened.contract).columns_change
        small.setdefault((change, one.record.next == one.record.first), []).append(one)
    return [*small.values(), *large]


def _written(opened: OpenedTable, group: Seq[Flushable], new_id: Callable[[], str]) -> dict[Region, Answer]:
    try:
        return {flushed.region: flushed for flushed in write_flush(opened, group, new_id()).generations}
    except LancewalError as error:
        if len(group) == 1:
            return {group[0].region: error}
    alone = opened.tasks.map(lambda one: _written(opened, [one], new_id), group)
    return {region: found for answer in alone for region, found in answer.items()}


def _flushing(opened: OpenedTable, record: GenerationRecord, key: str, new_id: Callable[[], str]) -> Decide:
    def decide(state: RegionState | None) -> RegionState | None:
        if state is None or record not in state.generations:
            return None
        return flushed(state, record.generation, key, opened.clock.now_ms(), new_id())

    return decide


def flush_from_logs(
    opened: OpenedTable, regions: Collection[Region], new_id: Callable[[], str]
) -> dict[Region, Answer]:
    """Flush the oldest SEALED generation of each region from its log.

    A result is None if there is no such generation, or if another process was faster.  An error affects only its
    region; ``Corrupt`` names the damaged or lost object.  The states are read once.  A log is read once for as many of
    its regions as fit into ``TOGETHER_BYTES``.
    """
    answers: dict[Region, Answer] = {}
    for flushable in _from_logs(opened, regions, answers):
        flushes = flush_generations(opened, flushable, new_id)
        answers.update(zip((one.region for one in flushable), flushes, strict=True))
    return {region: answers[region] for region in regions}


def begin_flushes_from_logs(opened: OpenedTable, regions: Collection[Region], new_id: Callable[[], str]) -> Flushing:
    """Flush as ``flush_from_logs`` does, but return once the flush files are written.  The swaps of state pages may
    still be running; each has its own result.
    """
    flushing = Flushing()
    for flushable in _from_logs(opened, regions, flushing.answers):
        flushing.begin(opened, flushable, new_id)
    return flushing


def _from_logs(
    opened: OpenedTable, regions: Collection[Region], answers: dict[Region, Answer]
) -> Iterator[list[Flushable]]:
    """Yield the contents of the oldest SEALED generations, as much at a time as is read together.

    ``answers`` gets the answers of regions that have no such generation, or whose log cannot be read."""
    by_log: dict[LogId, dict[Region, GenerationRecord]] = {}
    for region, state in opened.states.read_each(regions).items():
        generations = state.generations if isinstance(state, RegionState) else ()
        oldest = next((r for r in generations if r.state is GenerationState.SEALED), None)
        if oldest is None:
            answers[region] = state if isinstance(state, LancewalError) else None
        else:
            by_log.setdefault(oldest.log, {})[region] = oldest
    for log, records in by_log.items():
        while records:
            try:
                found = entries_together(opened, log, records, TOGETHER_BYTES)
            except LancewalError as error:
                answers.update(dict.fromkeys(records, error))
                break
            together = [region for region, entries in found.items() if entries is not None]
            for group in (together, *([region] for region, entries in found.items() if entries is None)):
                flushable = []
                for region in group:
                    content = or_error(partial(_content_of, opened, region, records[region], found[region]))
                    if isinstance(content, Content):
                        flushable.append(Flushable(region, records[region], content))
                    else:
                        answers[region] = content
                if flushable:
                    yield flushable
            records = {region: record for region, record in records.items() if region not in found}


def _content_of(
    opened: OpenedTable, region: Region, record: GenerationRecord, entries: Seq[Entry] | None
) -> Content | None:
    """Return the content of a generation from its entries.  If ``entries`` is None, read them from the log.  The
    result is None if another process was faster to flush, rebuild or merge the generation."""
    if entries is None:
        try:
            entries = kept_entries(opened, region, record)
        except PlanStale:
            return None
    versions = [entry.contract_version for entry in entries]
    return folded_content(opened, [e.rows for e in entries], versions, max(versions, default=opened.contract.version))


def folded_content(opened: OpenedTable, rows: Seq[pa.RecordBatch], versions: Seq[int], newest: int) -> Content:
    """Fold the rows of a generation.  The result has the columns of contract version ``newest``, the newest one that
    the entries name.

    So a read of the flush shows what a read of the entries shows, whatever contract this process works by.
    ``versions``: for each batch of ``rows``, the contract version under which it was written.
    """
    contract = opened.contract_of(newest)
    by_it = replace(opened, contract=contract)
    name = "a generation that is flushed"
    carried = [by_it.rows_as_wanted(batch, of, lambda: name) for batch, of in zip(rows, versions, strict=True)]
    return Content(fold(carried, contract.rows), contract=contract)


def rebuild_flush(
    opened: OpenedTable, region: Region, record: GenerationRecord, new_id: Callable[[], str]
) -> FlushedGeneration | None:
    """Rebuild the flush of a FLUSHED generation from its log, because its files are missing.

    Return None if another process rebuilt or merged it first.  ``Corrupt`` names the damaged or lost object of the log.
    """
    content = _content_of(opened, region, record, None)
    return None if content is None else replace_flush(opened, region, record, content, new_id)


def replace_flush(
    opened: OpenedTable,
    region: Region,
    record: GenerationRecord,
    content: Content,
    new_id: Callable[[], str],
) -> FlushedGeneration | None:
    """Replace the flush of a FLUSHED generation by a new flush of ``content``.  Return None if another process
    replaced or merged the flush first."""
    old = record.flush
    if old is None:
        raise ValueError(f"generation {record.generation} of {region.name} has no flush to rebuild")
    (flushed,) = write_flush(opened, [Flushable(region, record, content)], new_id()).generations

    def decide(state: RegionState | None) -> RegionState | None:
        return state and refreshed(state, record.generation, old, flushed.key, new_id())

    ours, _ = opened.states.swap({region: decide})[region]
    return flushed if ours else None
