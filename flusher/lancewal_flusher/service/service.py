"""The flusher service: build everything from settings, check, take turns until told to stop.

Steps
 1. Answer probes: from now on ``/readyz`` says what is missing.  Read the contract; check settings and table.  A
    store that does not answer or lets nobody in is asked again in the process (``process.start``).
 2. Turns (``turns``): each pass begins with a *round* of merging, every ``flusher.merge_interval_s``, and at once
    while there is more to do.  No round begins a further merge after that time, so that the others have their turn
    under any load.  *Garbage collection* runs beside the rounds, every ``flusher.gc_interval_s``.  *Compaction* runs
    after a round, and at once after a merge that wears a fragment so much that rewriting it costs less than leaving
    it (``cost``).  *Index upkeep* alone runs after every merge.  *Expiry* has its turn too.  In a thread of its own
    *visibility* is measured every ``flusher.visibility_interval_s`` (``visibility``).
 3. When told to stop, finish the merge under way and begin nothing.  ``flusher.drain_timeout_s`` after the signal the
    process has ended (``process.stop_signals``), even if the store hangs or the merge takes longer.  That is a crash:
    the table then has the merge's commit, or the next flusher merges the same again.  A round of garbage collection
    under way is waited for, and its error is logged, whatever it is.

Garbage collection that hangs is named: by the log if a pause has waited for it (``PAUSE_WAITS_S``), and by a metric.
After ``LOOP_LIMIT_S`` ``/livez`` names it, as it would name a merge.

A silent store is named some seconds later, whatever the loop waits for; liveness does not fail for that
(``process.health``).

While an operator pauses the flusher, it takes no turn, and says that it is paused once none is under way.  It asks
before each pass, and every ``control.POLL_S`` while it is paused, but not while it waits for a round of garbage
collection.  ``once`` is refused then.  What waits to be merged, and since when, is shown all the same.  The flusher
looks at it before the first round, during a pause as often as rounds would begin, and after a round that failed.
Neither a pause nor a flusher that cannot merge thus looks like a flusher that has nothing to do.

A fault that may pass (``Retry``, ``Refresh``) and damage (``Corrupt``) are logged, and the turn is tried again.  A
round is tried again after a pause that doubles up to ``PAUSE_MAX_S``.  A store may show again what it did not show,
or a person may repair it.  Until then ``/readyz`` and the metrics say it, which an ended process cannot.

Damage of one region's state, log or flushes holds up that region alone (``round``).  Damage of a merge record holds
up every merge.  Errors of other turns hold up no round.  What a person must decide or change (``ActionNeeded``) ends
the service with that error.

``once``: one flush of every SEALED generation, merges until nothing is FLUSHED, no garbage collection and no
compaction.  Every error ends it; damage of one region ends it when all others are merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lancewal_core.errors import (
    Corrupt,
    FlusherPaused,
    LancewalError,
    PlanRetriesExhausted,
    Refresh,
    Retry,
    StoreUnavailable,
    TopicReplaced,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region, TableVersion
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock, sleep_unless
from lancewal_core.process.health import Health, HealthServer, Problem
from lancewal_core.process.silence import STORE, SilenceWatch
from lancewal_core.process.start import Start
from lancewal_core.process.stop_signals import end_in_time, stop_signals
from lancewal_core.region.states import RegionIndexes
from lancewal_core.rows.ttl import Ttl
from lancewal_core.settings.load import Settings
from lancewal_core.status.board import LOOKED_AT_S, StatusBoard
from lancewal_core.table.control import POLL_S, ControlReader, Service, until_text
from lancewal_core.table.store_proof import check_way
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.garbage.collect import GarbageReport, GarbageState, collect_garbage
from lancewal_flusher.merge.merge import Merged
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.open import open_context
from lancewal_flusher.service.backlog import BacklogReader
from lancewal_flusher.service.limits import compaction_limits, index_limits, merge_limits
from lancewal_flusher.service.metrics import FlusherMetrics
from lancewal_flusher.service.probes import NO_ROUND_YET, FlusherProbes
from lancewal_flusher.service.round import RoundReport, RoundState, run_round
from lancewal_flusher.service.status import FlusherStatus
from lancewal_flusher.service.turns import Turn, Turns
from lancewal_flusher.service.upkeep import CompactionReport, IndexTurnReport, Upkeep
from lancewal_flusher.service.visibility import Visibility, VisibilityThread
from lancewal_flusher.service.visible_positions import VisiblePositions
from lancewal_flusher.upkeep.compaction import Compacted
from lancewal_flusher.upkeep.expiry import Expired, ExpiryResult, NothingExpired, OldestTimes, expire_next

SEALED_GRACE_S = 60.0
"""How long an ingest may take to flush what it sealed: several times what writing a large flush takes."""
PAUSE_S = 1.0
PAUSE_MAX_S = 60.0
LOOP_LIMIT_S = 1800.0
"""The loop turns between two merges; one merge of a long backlog may take minutes."""
MERGE = "merge"
"""The turn of rounds."""
GARBAGE = "gc"
"""The one beside them."""
PAUSE_WAITS_S = 60.0
"""Seconds after which the work that a pause waits for is named."""
_ONCE_ROUNDS = 5
"""Rounds without a merge, though something waits, after which ``once`` gives up."""


@dataclass(frozen=True, slots=True)
class OnceSummary:
    """Counts of one turn of merging.  Not ``finished``: told to stop before the end."""

    merges: int
    generations: int
    version: TableVersion
    finished: bool


@dataclass(slots=True)
class _Loop:
    """State that turns need from one to the next."""

    context: FlusherContext
    backlogs: BacklogReader
    metrics: FlusherMetrics
    control: ControlReader
    stopping: Callable[[], bool]
    rounds: RoundState = field(default_factory=RoundState)
    garbage: GarbageState = field(default_factory=GarbageState)
    oldest: OldestTimes = field(default_factory=OldestTimes)
    limits: MergeLimits = field(default_factory=MergeLimits)
    status: FlusherStatus | None = None
    """Status, where there is a page to show it."""
    end_beside: Callable[[Callable[[], object]], None] = lambda look: None
    """``Turns.end_beside``."""
    beside: Callable[[], Sequence[tuple[str, float]]] = lambda: ()
    """``Turns.beside``."""
    looked_at: float = -math.inf

    def paused(self) -> bool:
        """Ask whether an operator wants no turn to begin; then none is under way either."""
        until = self.control.read()
        if until is not None:
            self.end_beside(partial(self.name_standing, PAUSE_WAITS_S))
        self.metrics.paused_by_operator(until)
        return until is not None

    def end(self) -> None:
        """Wait for what is under way beside the merges: what it fails with is told, and ends nothing that ends anyway."""
        try:
            self.end_beside(self.stopping)
        except LancewalError as error:
            self.metrics.failed(GARBAGE, error)

    def name_standing(self, after_s: float) -> None:
        """Say what has been under way beside the merges for so long."""
        self.stopping()  # which shows that the loop lives
        for turn, seconds in self.beside():
            if seconds >= after_s:
                self.metrics.stands(turn, seconds)

    def round(self, sealed_grace_s: float, round_s: float = math.inf) -> RoundReport:
        clock = self.context.clock
        began = clock.monotonic()
        report = run_round(
            self.context,
            self.limits,
            self.rounds,
            sealed_grace_s,
            self.stopping,
            enough=lambda: clock.monotonic() - began >= round_s,
        )
        self.metrics.round(report, clock.monotonic() - began)
        backlog = self.backlogs.after(report)
        self.metrics.backlog(backlog)
        if self.status is not None:
            self.status.round(report, backlog)
        return report

    def look(self) -> None:
        """Show what waits, where no round tells it."""
        self.looked_at = self.context.clock.monotonic()
        try:
            backlog = self.backlogs.now()
        except (Retry, Refresh, Corrupt):
            return  # what is wrong with it, a round says
        self.metrics.backlog(backlog)
        if self.status is not None:
            self.status.looked(backlog)

    def look_again(self, every_s: float) -> None:
        """``look``, if the last one is ``every_s`` ago."""
        if self.context.clock.monotonic() - self.looked_at >= every_s:
            self.look()

    def failed(self, turn: str, error: Retry | Refresh | Corrupt, again_s: float) -> None:
        self.metrics.failed(turn, error, again_s)
        if turn != MERGE:
            return
        if self.status is not None:
            self.status.round_failed(error)
        if not isinstance(error, StoreUnavailable):
            self.look()

    def collect(self) -> GarbageReport:
        report = collect_garbage(self.context, self.garbage)
        self.metrics.garbage(report)
        return report

    def compact(self, upkeep: Upkeep) -> CompactionReport:
        began = self.context.clock.monotonic()
        report = upkeep.compact()
        self.metrics.compaction(report, self.context.clock.monotonic() - began)
        return report

    def index(self, upkeep: Upkeep) -> IndexTurnReport:
        report = upkeep.extend()
        self.metrics.index_upkeep(report)
        return report

    def expire(self, ttl: Ttl) -> ExpiryResult:
        result = expire_next(self.context, ttl, self.oldest)
        self.metrics.expiry(result)
        return result


def run_flusher(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.  Raises ``LancewalError`` where a person or a supervisor must act."""
    seconds = settings.flusher.drain_timeout_s
    events = FlusherEvents(table=Address.of(settings).name)
    with end_in_time(seconds, lambda: events.end_forced(timeout_s=seconds)), stop_signals() as stopping:
        serve(settings, stopping)


def serve(settings: Settings, stopping: Callable[[], bool], began: Callable[[int], None] = lambda _: None) -> None:
    """Steps 1 to 3; ``began`` is told the port of the HTTP side."""
    settings.need("table.uri")
    with ExitStack() as stack:
        # Step 1
        clock, metrics = SystemClock(), _metrics(settings)
        start = Start(clock, stopping, lambda error, again_s: metrics.failed("start", error, again_s))
        probes = FlusherProbes(start)
        health = Health(clock, probes.problems, LOOP_LIMIT_S, waits=probes.waits, beside=probes.beside)
        board = StatusBoard(clock)
        server = stack.enter_context(
            HealthServer(settings.http.host, settings.http.flusher_port, metrics.registry, health, board.answer)
        )
        metrics.port = server.port
        loop = start.run(partial(_start, settings, _beating(health, stopping), metrics), stack)
        if loop is None:
            return
        loop.limits = merge_limits(settings, loop.context.contract)
        turns, store = turns_of(loop, settings), loop.context.store
        loop.end_beside, loop.beside = turns.end_beside, turns.beside
        loop.metrics.watch(turns.beside)
        known = paths.contract_version(loop.context.contract.version, loop.context.contract.making)
        who = f"the store at {settings.table.uri}"
        silence = SilenceWatch(lambda: store.get(known), clock, StoreUnavailable.kind, who, STORE)
        stack.enter_context(silence)
        probes.of(turns, loop.control, silence)
        loop.status = _status(loop, settings)
        health.beat()
        measuring = visibility_of(loop, settings)
        if measuring is not None:
            stack.enter_context(measuring)
        began(server.port)
        # Step 2
        loop.look()
        try:
            while not stopping():
                if loop.paused():
                    loop.look_again(settings.flusher.merge_interval_s)
                    wait_s = POLL_S
                else:
                    wait_s = turns.take_due(stopping)
                loop.name_standing(LOOP_LIMIT_S)
                _wait(loop, board, health, wait_s)
            # Step 3
            loop.metrics.stopping()
        finally:
            loop.end()


def _status(loop: _Loop, settings: Settings) -> FlusherStatus:
    contract, address = loop.context.contract, Address.of(settings)
    merge_after_s = settings.flusher.merge_interval_s + loop.limits.defer_s
    group = settings.kafka.group(contract.table_uuid)
    status = FlusherStatus(contract, address.uri, group, merge_after_s, loop.context.clock)
    status.index_problems = lambda: loop.metrics.index_problems
    return status


def _wait(loop: _Loop, board: StatusBoard, health: Health, wait_s: float) -> None:
    """Sleep until the next pass; meanwhile the board gets what is known, as often as it is due."""
    clock = loop.context.clock
    until = clock.monotonic() + wait_s
    while True:
        if loop.status is not None and board.due():
            board.show(loop.status.take(loop.control.paused, [str(problem) for problem in health.ready()]))
        left_s = until - clock.monotonic()
        if left_s <= 0 or loop.stopping():
            return
        sleep_unless(loop.stopping, clock, min(left_s, LOOKED_AT_S))


def run_once(settings: Settings, stopping: Callable[[], bool] = lambda: False) -> OnceSummary:
    """See the module docstring."""
    with ExitStack() as stack:
        loop = _start(settings, stopping, _metrics(settings), stack)
        loop.limits = replace(merge_limits(settings, loop.context.contract), defer_s=0.0)  # nothing would come
        until = loop.control.paused
        if until is not None:
            raise FlusherPaused(
                f"the flusher of {settings.table.uri} is paused {until_text(until)}: nothing is merged. End the pause with "
                "`lancewal resume flusher`"
            )
        in_vain = 0
        merges: list[Merged] = []
        finished = False
        while not finished and not stopping():
            report = loop.round(0.0)
            merges += report.merges
            if report.left is not None:
                report.raise_held()
                finished = True
                continue
            in_vain = 0 if report.merges else in_vain + 1
            if in_vain >= _ONCE_ROUNDS:
                raise PlanRetriesExhausted(
                    f"{_ONCE_ROUNDS} rounds have merged nothing though something waits; the last refusal: "
                    f"{report.refused[-1].reason if report.refused else 'none'}"
                )
        generations = sum(len(numbers) for merged in merges for numbers in merged.generations.values())
        return OnceSummary(len(merges), generations, loop.context.watermarks.newest()[0].version, finished)


def _metrics(settings: Settings) -> FlusherMetrics:
    settings.need("table.uri")
    name = Address.of(settings).name
    return FlusherMetrics(SystemClock(), name, FlusherEvents(table=name), per_partition=settings.metrics.per_partition)


def _start(settings: Settings, stopping: Callable[[], bool], metrics: FlusherMetrics, stack: ExitStack) -> _Loop:
    address = Address.of(settings)
    context = open_context(settings, stack, store=metrics.observed(address.store()))
    check_way(address.way(), context.new_id())
    contract = context.contract
    what = {"topic": contract.topic, "table": contract.table_uuid, "runner": settings.flusher.runner}
    metrics.started(contract.version, contract.partitions, contract.topic_id, address.uri, what)
    control = ControlReader(context.store, context.clock, Service.FLUSHER, context.contract.making)
    control.read_or_raise()
    return _Loop(context, BacklogReader(context), metrics, control, stopping)


def visibility_of(loop: _Loop, settings: Settings) -> VisibilityThread | None:
    """The measurement that the settings ask for."""
    if not settings.flusher.visibility_interval_s:
        return None
    settings.need("kafka.bootstrap_servers")
    from lancewal_kafka.topic import TopicInspector  # a flusher that does not measure can do without Kafka's client

    context, contract = loop.context, loop.context.contract
    inspector = TopicInspector(settings.kafka.client(), election_s=0)

    def ends() -> dict[Region, Position]:
        if inspector.identify(contract.topic).topic_id != contract.topic_id:
            raise TopicReplaced(f"topic {contract.topic} is another one than the table's", topic=contract.topic)
        found = inspector.ends(contract.topic, range(contract.partitions))
        return {region: found[region.partition] for region in contract.regions}

    indexes = RegionIndexes(context.store, context.clock, contract.regions_per_page, contract.making, context.tasks)
    positions = VisiblePositions(context.store, indexes, context.clock)
    return VisibilityThread(
        settings.flusher.visibility_interval_s,
        lambda pause: Visibility(ends, positions, context.clock, loop.metrics, pause),
    )


def turns_of(loop: _Loop, settings: Settings) -> Turns:
    """All that the settings and the contract ask for."""
    clock, flusher, ttl = loop.context.clock, settings.flusher, loop.context.contract.ttl
    now = clock.monotonic()
    others: list[Turn[Any]] = [
        Turn(
            GARBAGE,
            clock,
            loop.collect,
            next_s=lambda report: flusher.gc_interval_s,
            due_at=now + flusher.gc_interval_s,
            retry_s=min(PAUSE_S, flusher.gc_interval_s),
            retry_max_s=flusher.gc_interval_s,
            problems_of=lambda report: [
                *(
                    Problem.of(error, f"gc keeps all of region {region.name} and of logs")
                    for region, error in sorted(report.damaged.items())
                ),
                *([] if report.names_fault is None else [Problem.of(report.names_fault, "gc keeps all versions")]),
            ],
            faults_are_problems=True,
            tasks=loop.context.tasks,
        )
    ]
    behind_merges: list[tuple[Turn[Any], Callable[[RoundReport], bool]]] = []
    if flusher.compaction:
        interval_s = flusher.compaction_interval_s
        upkeep = Upkeep(loop.context, compaction_limits(flusher), index_limits(flusher))
        indexes = Turn(
            "index",
            clock,
            lambda: loop.index(upkeep),
            next_s=lambda report: 0.0 if report.more else interval_s,
            due_at=now + interval_s,
            retry_s=interval_s,
        )

        def compact() -> CompactionReport:
            report = loop.compact(upkeep)
            if report.indexes:
                indexes.hurry()  # it may have left some
            return report

        compaction = Turn(
            "compaction",
            clock,
            compact,
            next_s=lambda report: 0.0 if isinstance(report.compaction, Compacted) else interval_s,
            due_at=now + interval_s,
            retry_s=interval_s,
            problems_of=lambda report: None if isinstance(report.compaction, Refused) else (),
        )
        others += [compaction, indexes]
        behind_merges = [(indexes, lambda report: True), (compaction, lambda r: any(m.worn for m in r.merges))]
    if ttl is not None:
        expiry = Turn(
            "expiry",
            clock,
            lambda: loop.expire(ttl),
            next_s=lambda result: 0.0 if isinstance(result, Expired) and result.more else flusher.expiry_interval_s,
            due_at=now,
            retry_s=flusher.expiry_interval_s,
            problems_of=lambda result: () if isinstance(result, Expired | NothingExpired) else None,
        )
        others.append(expiry)

    def merge() -> RoundReport:
        report = loop.round(SEALED_GRACE_S, flusher.merge_interval_s)
        for turn, wanted in behind_merges:
            if report.merges and wanted(report):
                turn.hurry()
        return report

    rounds = Turn(
        MERGE,
        clock,
        merge,
        next_s=lambda report: (
            flusher.merge_interval_s if report.left is not None else PAUSE_S if report.refused else 0.0
        ),
        due_at=now,
        retry_s=PAUSE_S,
        retry_max_s=PAUSE_MAX_S,
        problems_of=lambda report: [
            Problem.of(error, f"region {region.name}") for region, error in sorted(report.held.items())
        ],
        faults_are_problems=True,
        problems=(NO_ROUND_YET,),
    )
    return Turns(rounds, others, loop.failed)


def _beating(health: Health, stopping: Callable[[], bool]) -> Callable[[], bool]:
    def ask() -> bool:
        health.beat()
        return stopping()

    return ask
