"""Status of a table as its flusher sees it, from the states that rounds read anyway.

A status shows the results of the newest round, so reading it sends no request to the store.  The age of waiting rows
comes from region states, or else from the time when this process first saw the rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lancewal_core.errors import Corrupt, LancewalError, Problem, Refresh, Retry, counted
from lancewal_core.names.ids import Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.status.facts import PartitionFacts, TableFacts, WaitingGeneration
from lancewal_core.process.status.report import Figures, MergeDone, TableStatus, status_of
from lancewal_core.process.status.widenings import open_widenings
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.table.contract import Contract
from lancewal_core.table.control import Service, Until
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.service.backlog import Backlog
from lancewal_flusher.service.round import RoundReport
from lancewal_flusher.upkeep.widening import WideningBegun, WideningHeld, WideningResult

MERGES_SHOWN = 20
UNKNOWN = (
    "what Kafka has, and what is durable in an open generation: `lancewal status`, ingest's `/status`",
    "whether ingest runs: `lancewal status`",
)


class FlusherStatus:
    """Collects reports of rounds, and makes a table's status from them."""

    def __init__(self, contract: Contract, uri: str, group: str, merge_after_s: float, clock: Clock) -> None:
        self.contract = contract
        """The contract that the flusher uses now."""
        self.widening: WideningResult | Retry | Refresh | Corrupt = None
        """Result of the newest turn of widening, or the error with which it failed."""
        self._uri = uri
        self._group = group
        self._merge_after_s = merge_after_s
        self._clock = clock
        self._backlog: Backlog | None = None
        self._held: Mapping[Region, Problem] = {}
        self._failed: Problem | None = None
        self._merges: deque[MergeDone] = deque(maxlen=MERGES_SHOWN)

    def round(self, report: RoundReport, backlog: Backlog) -> None:
        """Record a round that ended without an error, and the backlog after it.  The round may have left out some
        regions.
        """
        self._failed = None
        self._held = {region: Problem.of(error) for region, error in report.held.items()}
        self.looked(backlog)
        now_ms = self._clock.now_ms()
        for merge in report.merges:
            generations = sum(len(found) for found in merge.generations.values())
            rows = merge.rows_adopted + merge.rows_written
            self._merges.appendleft(MergeDone(now_ms, merge.version, len(merge.generations), generations, rows))

    def looked(self, backlog: Backlog) -> None:
        """Record the backlog."""
        self._backlog = backlog

    def round_failed(self, error: LancewalError) -> None:
        self._failed = Problem.of(error)

    def take(self, paused: Until | None, not_ready: Sequence[str], beside: Sequence[str] = ()) -> TableStatus:
        """Return the current status.  ``not_ready``: why the service is not ready.  ``beside``: problems that delay no
        merge, such as rows that an index cannot take.
        """
        contract, now_ms, backlog = self.contract, self._clock.now_ms(), self._backlog
        indexes = {} if backlog is None else backlog.states
        merged_at = [
            r.merged_at_ms for index in indexes.values() for r in index.generations if r.merged_at_ms is not None
        ]
        merged_ms = max([*merged_at, *(done.at_ms for done in self._merges)], default=None)
        table = TableFacts(
            now_ms,
            contract.topic,
            paused={} if paused is None else {Service.FLUSHER.value: paused},
            version=None if backlog is None else backlog.version,
            merged_ms=merged_ms,
            merge_after_s=self._merge_after_s,
            rounds=self._failed,
        )
        figures = [] if backlog is None else [self._figures(backlog, region) for region in contract.regions]
        status = status_of(Service.FLUSHER.value, self._uri, self._group, contract, table, figures)
        said = [status.diagnosis.message, *(found.diagnosis.message for found in status.partitions)]
        others = [text for text in not_ready if not any(message in text for message in said)]
        return replace(
            status,
            problems=(*status.problems, *others, *beside),
            unknown=UNKNOWN,
            keys_in_conflict=0 if backlog is None else backlog.in_force.keys_in_conflict,
            older_contract_rows=None if backlog is None else backlog.older_rows,
            widenings=open_widenings(contract, _work(self.widening)),
            recent_merges=tuple(self._merges),
        )

    def _figures(self, backlog: Backlog, region: Region) -> Figures:
        index, in_force = backlog.states.get(region), backlog.in_force
        newest = None if index is None else index.newest
        merged, stopped = in_force.position(region), in_force.why_stopped(region)
        facts = PartitionFacts(
            region.topic,
            region.partition,
            claimed=index is not None or (None if region in self._held else False),
            owner=None if newest is None else newest.owner,
            durable=None if newest is None else newest.next,
            flushed=merged if index is None else index.flushed(merged),
            merged=merged,
            read=merged,
            sealed=self._oldest(backlog, region, GenerationState.SEALED),
            unmerged=self._oldest(backlog, region, GenerationState.FLUSHED),
            stopped=None if stopped is None else Problem.of(stopped),
            held=self._held.get(region),
        )
        return Figures(
            facts,
            merged_generation=in_force.generation(region),
            generations={} if index is None else index.counts,
            unmerged_rows=backlog.rows.get(region, 0),
        )

    def _oldest(self, backlog: Backlog, region: Region, state: GenerationState) -> WaitingGeneration | None:
        found: GenerationRecord | None = next((r for r in backlog.waiting.get(region, ()) if r.state is state), None)
        if found is None:
            return None
        since_ms = backlog.since_ms[region, found.generation]
        return WaitingGeneration(found.generation, since_ms, backlog.rows.get(region, 0))


def _work(last: WideningResult | Retry | Refresh | Corrupt) -> str | None:
    """Return the progress of an unfinished widening, or why it does not go on; None if the flusher has not begun it."""
    match last:
        case WideningBegun(left=left):
            return f"{counted(left, 'fragment')} left to write"
        case WideningHeld(reason=reason):
            return f"held: {reason}"
        case Refused(reason=reason):
            return f"refused, and will be retried: {reason}"
        case LancewalError():
            return f"failed, and will be retried: {last}"
        case _:
            return None
