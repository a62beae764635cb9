"""One table of a flusher: its turns, and the state that the turns keep from one run to the next.

A *turn* is work that the flusher repeats, each kind when it is due: merge rounds, compaction, indexes, expiry, widening,
garbage collection (``turns``).

All that tables of a process share is in ``process``: threads, the metrics' registry, the HTTP side and the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from lancewal_core.catalog.opened import open_postgres
from lancewal_core.errors import (
    ContractMismatch,
    Corrupt,
    LancewalError,
    Problem,
    Refresh,
    Retry,
    StoreUnavailable,
    TopicReplaced,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region
from lancewal_core.open import Address
from lancewal_core.process.silence import STORE, SilenceWatch
from lancewal_core.process.status.report import TableStatus
from lancewal_core.process.tasks import own_thread
from lancewal_core.region.states import RegionStates
from lancewal_core.rows.ttl import Ttl
from lancewal_core.settings.load import Settings
from lancewal_core.table.control import POLL_S, ControlReader, Service
from lancewal_core.table.presence import Presence
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext, T, by_newest_contract, with_newer_contract
from lancewal_flusher.cuts.publish import publishers
from lancewal_flusher.cuts.visible_positions import VisiblePositions
from lancewal_flusher.garbage.collect import GarbageReport, GarbageState, collect_garbage
from lancewal_flusher.service.backlog import Backlog, BacklogReader
from lancewal_flusher.service.limits import compaction_limits, merge_limits
from lancewal_flusher.service.metrics import FlusherMetrics
from lancewal_flusher.service.reports import CatalogReports
from lancewal_flusher.service.round import RoundReport, RoundState, run_round
from lancewal_flusher.service.status import FlusherStatus
from lancewal_flusher.service.turns import Turn, Turns
from lancewal_flusher.service.upkeep import CompactionReport, IndexTurnReport, Upkeep
from lancewal_flusher.service.visibility import Visibility, measuring
from lancewal_flusher.upkeep.compaction import Compacted
from lancewal_flusher.upkeep.expiry import Expired, ExpiryResult, OldestTimes, expire_next
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.widening import WideningBegun, WideningDone, WideningResult, WideningState, widen_next

if TYPE_CHECKING:
    from lancewal_flusher.catalog.check import CatalogFinding

SEALED_GRACE_S = 60.0
"""Seconds that an ingest process has to flush a sealed generation before the flusher does it.  Writing a large flush
takes far less."""
WIDENING_LOOK_S = 5.0
"""Seconds between two turns of widening, and before a refused one is retried.  If there is no widening, a turn sends
no request."""
PAUSE_S = 1.0
PAUSE_MAX_S = 60.0
LOOP_LIMIT_S = 1800.0
"""Seconds without a sign of life after which the loop counts as hung.  The loop gives a sign of life between two
merges, and one merge of a long backlog may take minutes."""
MERGE = "merge"
"""Name of the turn of merge rounds."""
WIDENING = "widening"
"""Name of the turn that writes columns again with a wider type."""
GARBAGE = "gc"
"""Name of the turn of garbage collection, which runs at the same time as rounds."""
PAUSE_WAITS_S = 60.0
"""If a pause has waited for a running turn for this many seconds, the log names the turn."""
NO_ROUND_YET = Problem("starting", "no round has ended yet")


class FlusherTable:
    """A table that the flusher works on, with its turns.

    ``watch`` starts further threads.  One checks that the store answers, one measures how soon rows become visible, one
    reports to a catalog.  Each moving cut has a thread that publishes it.
    """

    def __init__(
        self, settings: Settings, context: FlusherContext, metrics: FlusherMetrics, stopping: Callable[[], bool]
    ) -> None:
        """``metrics`` has the table's name as a label.  ``stopping``: whether the process is told to stop."""
        self.settings = settings
        self.context = context
        self.metrics = metrics
        self.presence = Presence(context.store, context.contract)
        """Whether the table still exists.  A thread of its own asks the store (``_ask_store``), and each pass checks
        the answer."""
        self.stopping: Callable[[], bool] = lambda: stopping() or self.presence.gone
        self.limits = merge_limits(settings, context.contract)
        self.backlogs = BacklogReader(context)
        contract, clock, store = context.contract, context.clock, context.store
        self.control = ControlReader(store, clock, Service.FLUSHER, contract.making)
        merge_after_s = settings.flusher.merge_interval_s + self.limits.defer_s
        group = settings.kafka.group(contract.table_uuid)
        self.status = FlusherStatus(contract, Address.of(settings).uri, group, merge_after_s, clock)
        self.turns = turns_of(self)
        self._rounds = RoundState()
        self._garbage = GarbageState()
        self._oldest = OldestTimes()
        self._widening = WideningState()
        self._widened: WideningResult = None
        self._looked_at = -math.inf
        self._reports = reports_of(self)
        self._cuts = publishers(settings, metrics, clock)
        who = f"the store at {settings.table.uri}"
        self._silence = SilenceWatch(self._ask_store, clock, StoreUnavailable.kind, who, STORE)
        metrics.works_by(contract)
        self._newer_contract = True
        """Whether the store may have a newer contract.  The thread that asks the store sets this (``_ask_store``)."""

    def watch(self, stack: ExitStack) -> None:
        """Start the table's further threads.  ``stack`` ends them."""
        self.metrics.watch(self.turns.beside)
        stack.enter_context(self._silence)
        if self._reports is not None:
            stack.enter_context(self._reports)
        for cut in self._cuts:
            stack.enter_context(own_thread(f"cut-{cut.name}", cut.run))
        if self.settings.flusher.visibility_interval_s:
            stack.enter_context(visibility_of(self))

    @property
    def silent(self) -> bool:
        """Whether the table's store does not answer."""
        return self._silence.problem is not None

    def problems(self) -> Sequence[Problem]:
        """Return why the table is not ready.  It is ready once a merge round has succeeded.  A pause is not a problem,
        because an operator wants it.
        """
        found = list(self.turns.problems())
        if self._silence.problem is not None:
            found.append(self._silence.problem)
        if self.control.paused is not None and NO_ROUND_YET in found:
            found.remove(NO_ROUND_YET)
        if self.control.problem is not None:
            found.append(Problem.of(self.control.problem, "control cannot be read"))
        return found

    def shown(self, not_ready: Sequence[Problem]) -> TableStatus:
        """Return the table's current status.  ``not_ready``: why the process is not ready."""
        beside = list(self.metrics.index_problems)
        if self._reports is not None and self._reports.problem is not None:
            beside.append(self._reports.problem)
        beside += [cut.problem for cut in self._cuts if cut.problem is not None]
        return self.status.take(self.control.paused, [str(problem) for problem in not_ready], beside)

    def take_turns(self) -> float:
        """Run the turns that are due.  During a pause, only read the backlog.  Return the seconds until the next call.
        Raises ``TableMissing`` or ``TableReplaced`` if the table was deleted.
        """
        try:
            self.presence.check()
            return self._take_turns()
        except LancewalError:
            self.presence.look_again()
            self.presence.check()
            raise

    def _take_turns(self) -> float:
        self.look_again(math.inf)
        if self.paused():
            self.look_again(self.settings.flusher.merge_interval_s)
            wait_s = POLL_S
        else:
            wait_s = self.turns.take_due(self.stopping)
        self.name_standing(LOOP_LIMIT_S)
        return wait_s

    def paused(self) -> bool:
        """Whether an operator has paused the flusher.  If so, first wait until no turn is running."""
        until = self.control.read()
        if until is not None:
            self.turns.end_beside(partial(self.name_standing, PAUSE_WAITS_S))
        self.metrics.paused_by_operator(until)
        return until is not None

    def end(self) -> None:
        """Wait for parallel turns to end.  An error of them is only logged, because the table's work ends anyway."""
        try:
            self.turns.end_beside(self.stopping)
        except LancewalError as error:
            self.metrics.failed(GARBAGE, error)

    def name_standing(self, after_s: float) -> None:
        """Log each parallel turn that began at least ``after_s`` seconds ago and has not ended."""
        self.stopping()  # which shows that the loop lives
        for turn, seconds in self.turns.beside():
            if seconds >= after_s:
                self.metrics.stands(turn, seconds)

    def round(self, sealed_grace_s: float, round_s: float = math.inf) -> RoundReport:
        clock = self.context.clock
        began = clock.monotonic()
        report = self._by_newest_contract(
            lambda context: run_round(
                context,
                self.limits,
                self._rounds,
                sealed_grace_s,
                self.stopping,
                enough=lambda: clock.monotonic() - began >= round_s,
            )
        )
        self.metrics.round(report, clock.monotonic() - began)
        backlog = self.backlogs.after(report)
        self._show(backlog)
        self.status.round(report, backlog)
        return report

    def look(self) -> None:
        """Read the backlog, and set metrics and status from it, for times without merge rounds.  A transient error or
        damage is ignored.
        """
        self._looked_at = self.context.clock.monotonic()
        try:
            self._take_up_newer_contract()
            backlog = self.backlogs.now()
        except (Retry, Refresh, Corrupt):
            return  # a round reports the error
        self._show(backlog)
        self.status.looked(backlog)

    def _show(self, backlog: Backlog) -> None:
        self.metrics.backlog(backlog)
        if self._reports is not None:
            self._reports.leave(backlog)

    def look_again(self, every_s: float) -> None:
        """Call ``look`` if its last call was at least ``every_s`` seconds ago."""
        if self.context.clock.monotonic() - self._looked_at >= every_s:
            self.look()

    def failed(self, turn: str, error: Retry | Refresh | Corrupt, again_s: float) -> None:
        self.metrics.failed(turn, error, again_s)
        if turn == WIDENING:
            self.status.widening = error
        if turn != MERGE:
            return
        self.status.round_failed(error)
        if not isinstance(error, StoreUnavailable):
            self.look()

    def collect(self) -> GarbageReport:
        report = collect_garbage(self.context, self._garbage)
        self.metrics.garbage(report)
        return report

    def compact(self, upkeep: Upkeep) -> CompactionReport:
        began = self.context.clock.monotonic()
        report = self._by_newest_contract(upkeep.compact)
        self.metrics.compaction(report, self.context.clock.monotonic() - began)
        return report

    def index(self, upkeep: Upkeep) -> IndexTurnReport:
        report = self._by_newest_contract(upkeep.extend)
        self.metrics.index_upkeep(report)
        return report

    def expire(self, ttl: Ttl) -> ExpiryResult:
        result = self._by_newest_contract(lambda context: expire_next(context, ttl, self._oldest))
        self.metrics.expiry(result)
        return result

    def widen(self) -> WideningResult:
        """Do a part of the widening that the newest contract requests, if there is one."""
        self._take_up_newer_contract()
        result = self._by_newest_contract(lambda context: widen_next(context, self._widening))
        if isinstance(result, WideningDone | WideningBegun):
            self._look_for_newer_contract()  # the turn may have swapped one in
        before, self._widened = self._widened, result
        self.status.widening = result
        goes_on = isinstance(before, WideningBegun) and isinstance(result, WideningBegun)
        if result != before and not goes_on:
            self.metrics.widening(result)
        return result

    def _ask_store(self) -> None:
        """Ask the store for the next version of the contract, and whether the table is there.  Any answer shows that the
        store answers."""
        self.presence.look()
        ours = self.context.contract
        if self.context.store.get(paths.contract_version(ours.version + 1, ours.making)) is not None:
            self._newer_contract = True

    def _take_up_newer_contract(self) -> None:
        """If there may be a newer contract, read it and use it from now on."""
        if self._newer_contract:
            self._newer_contract = False
            self._look_for_newer_contract()

    def _look_for_newer_contract(self) -> None:
        try:
            newer = with_newer_contract(self.context)
        except ContractMismatch:
            return  # the turn that needs it raises it
        if newer is not None:
            self._take_up(newer)

    def _take_up(self, context: FlusherContext) -> None:
        self.context, self.status.contract, self.backlogs.context = context, context.contract, context
        self.metrics.works_by(context.contract)
        self.metrics.events.contract_taken_up(contract_version=context.contract.version)

    def _by_newest_contract(self, act: Callable[[FlusherContext], T]) -> T:
        """Call ``act`` with the current contract.  If a newer contract is needed, make it the current one, and call
        ``act`` again (``by_newest_contract``).
        """

        def by(context: FlusherContext) -> T:
            if context is not self.context:
                self._take_up(context)
            return act(context)

        return by_newest_contract(self.context, by)


def reports_of(table: FlusherTable) -> CatalogReports | None:
    """Return the sender of reports to the catalog in PostgreSQL; None without such a catalog."""
    if table.settings.catalog.kind != "postgres":
        return None
    of = table.settings.catalog
    catalog = open_postgres(of.url, of.password, of.root or None)

    def check() -> list[CatalogFinding]:
        from lancewal_flusher.catalog.check import check_catalog  # only now Lance's namespaces are loaded

        return check_catalog(catalog, table.settings, mend=True)

    return CatalogReports(catalog, check, table.context.contract.table_uuid, table.metrics, table.context.clock)


def visibility_of(table: FlusherTable) -> AbstractContextManager[None]:
    """Return the visibility measurement, which runs inside ``with``."""
    settings = table.settings
    settings.need("kafka.bootstrap_servers")
    from lancewal_kafka.topic import TopicInspector  # a flusher that does not measure can do without Kafka's client

    context, contract = table.context, table.context.contract
    inspector = TopicInspector(settings.kafka.client(), election_s=0)

    def ends() -> dict[Region, Position]:
        if inspector.identify(contract.topic).topic_id != contract.topic_id:
            raise TopicReplaced(
                f"topic {contract.topic} was deleted and recreated: its id is not that of the table's contract. Follow "
                "docs/how-to/when-a-partition-stops.md",
                topic=contract.topic,
            )
        found = inspector.ends(contract.topic, range(contract.partitions))
        return {region: found[region.partition] for region in contract.regions}

    indexes = RegionStates(context.store, context.clock, contract.regions_per_page, contract.making, context.tasks)
    positions = VisiblePositions(context.store, indexes, context.clock)
    return measuring(
        settings.flusher.visibility_interval_s,
        lambda pause: Visibility(ends, positions, context.clock, table.metrics, pause),
    )


def turns_of(table: FlusherTable) -> Turns:
    """Return all turns that the settings and the contract require."""
    flusher, ttl = table.settings.flusher, table.context.contract.ttl
    others: list[Turn[Any]] = [_garbage_turn(table), _widening_turn(table)]
    behind_merges: list[tuple[Turn[Any], Callable[[RoundReport], bool]]] = []
    if flusher.compaction:
        compaction, indexes = _upkeep_turns(table)
        others += [compaction, indexes]
        behind_merges = [(indexes, lambda report: True), (compaction, lambda r: any(m.worn for m in r.merges))]
    if ttl is not None:
        others.append(_expiry_turn(table, ttl))

    def merge() -> RoundReport:
        report = table.round(SEALED_GRACE_S, flusher.merge_interval_s)
        for turn, wanted in behind_merges:
            if report.merges and wanted(report):
                turn.hurry()
        return report

    rounds = Turn(
        MERGE,
        table.context.clock,
        merge,
        next_s=lambda report: (
            flusher.merge_interval_s if report.left is not None else PAUSE_S if report.refused else 0.0
        ),
        due_at=table.context.clock.monotonic(),
        retry_s=PAUSE_S,
        retry_max_s=PAUSE_MAX_S,
        problems_of=lambda report: [
            Problem.of(error, f"region {region.name}") for region, error in sorted(report.held.items())
        ],
        faults_are_problems=True,
        problems=(NO_ROUND_YET,),
    )
    return Turns(rounds, others, table.failed)


def _garbage_turn(table: FlusherTable) -> Turn[GarbageReport]:
    interval_s, clock = table.settings.flusher.gc_interval_s, table.context.clock

    def problems_of(report: GarbageReport) -> list[Problem]:
        found = [
            Problem.of(error, f"gc keeps all of region {region.name} and of logs")
            for region, error in sorted(report.damaged.items())
        ]
        if report.names_fault is not None:
            found.append(Problem.of(report.names_fault, "gc keeps all versions"))
        for name, fault in sorted(report.subscription_faults.items()):
            what = f"subscription {name}" if name else "the list of subscriptions"
            found.append(Problem.of(fault, f"gc keeps what {what} may need"))
        return found

    return Turn(
        GARBAGE,
        clock,
        table.collect,
        next_s=lambda report: interval_s,
        due_at=clock.monotonic() + interval_s,
        retry_s=min(PAUSE_S, interval_s),
        retry_max_s=interval_s,
        problems_of=problems_of,
        faults_are_problems=True,
        tasks=table.context.tasks,
    )


def _widening_turn(table: FlusherTable) -> Turn[WideningResult]:
    return Turn(
        WIDENING,
        table.context.clock,
        table.widen,
        next_s=lambda result: 0.0 if isinstance(result, WideningBegun) else WIDENING_LOOK_S,
        due_at=table.context.clock.monotonic(),
        retry_s=WIDENING_LOOK_S,
    )


def _upkeep_turns(table: FlusherTable) -> tuple[Turn[CompactionReport], Turn[IndexTurnReport]]:
    """Return the turns of compaction and of indexes."""
    flusher, clock = table.settings.flusher, table.context.clock
    interval_s, first_at = flusher.compaction_interval_s, clock.monotonic() + flusher.compaction_interval_s
    indexed = IndexLimits(
        flusher.index_unindexed_ratio_max, flusher.index_unindexed_rows_max, flusher.index_round_bytes_max
    )
    upkeep = Upkeep(compaction_limits(flusher), indexed)
    indexes = Turn(
        "index",
        clock,
        lambda: table.index(upkeep),
        next_s=lambda report: 0.0 if report.more else interval_s,
        due_at=first_at,
        retry_s=interval_s,
    )

    def compact() -> CompactionReport:
        report = table.compact(upkeep)
        if report.upkeep.indexes:
            indexes.hurry()  # it may have left some
        return report

    compaction = Turn(
        "compaction",
        clock,
        compact,
        next_s=lambda report: 0.0 if isinstance(report.compaction, Compacted) else interval_s,
        due_at=first_at,
        retry_s=interval_s,
        problems_of=lambda report: None if isinstance(report.compaction, Refused) else (),
    )
    return compaction, indexes


def _expiry_turn(table: FlusherTable, ttl: Ttl) -> Turn[ExpiryResult]:
    interval_s, clock = table.settings.flusher.expiry_interval_s, table.context.clock
    return Turn(
        "expiry",
        clock,
        lambda: table.expire(ttl),
        next_s=lambda result: 0.0 if isinstance(result, Expired) and result.more else interval_s,
        due_at=clock.monotonic(),
        retry_s=interval_s,
        problems_of=lambda result: None if isinstance(result, Refused) else (),
    )
