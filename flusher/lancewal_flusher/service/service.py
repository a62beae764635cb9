"""The flusher service: build everything from settings, check, run rounds until told to stop.

Steps
 1. Read the contract; check settings and table.
 2. A round every ``flusher.interval_s``, and at once while there is more to do: no round begins a further merge after that
    time, so that garbage and figures have their turn under any load.  Garbage collection every ``flusher.gc_interval_s``.
    Compaction and indexes when due (``compaction_turns``), one turn behind a round; at once behind a merge that wears a
    fragment so much that writing it anew costs less than leaving it (``cost``), and the indexes alone behind every merge.
    Rows that expire (``expiry_turns``) likewise.
 3. Told to stop: the merge under way is finished, nothing is begun.

While an operator pauses the flusher, it begins no round, no garbage collection, no compaction and no expiry; it asks before
each, and every ``control.POLL_S`` while it is paused.  ``once`` is refused then.

A fault that may pass (``Retry``, ``Refresh``) and damage (``Corrupt``) are logged, and the round tried again after a pause
that doubles up to ``PAUSE_MAX_S``: a store may show again what it did not show, a person may repair it, and until then
``/readyz`` and the metrics say it, which an ended process cannot.  Damage of one region's log or snapshots holds up that
region alone (``round``), that of an index or a merge record every merge; what garbage collection, compaction or expiry meet
holds up no round.  What a person must decide or change (``InvalidInput``) ends the service with that error.

``once``: one flush of every SEALED generation, merges until nothing is FLUSHED, no garbage collection and no compaction;
every error ends it, damage of one region when all others are merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from lancewal_core import paths
from lancewal_core.errors import (
    Corrupt,
    FlusherPaused,
    PlanRetriesExhausted,
    Refresh,
    Retry,
    StoreInconsistent,
)
from lancewal_core.process.clock import sleep_unless
from lancewal_core.process.health import Health, HealthServer
from lancewal_core.process.stop_signals import stop_signals
from lancewal_core.settings.load import Settings
from lancewal_core.store.watch import StoreWatch
from lancewal_core.table.control import POLL_S, ControlReader, Service, until_text
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.open import open_context
from lancewal_flusher.service.backlog import backlog_after
from lancewal_flusher.service.compaction_turns import CompactionTurns
from lancewal_flusher.service.expiry_turns import ExpiryTurns
from lancewal_flusher.service.limits import compaction_limits, index_limits, merge_limits
from lancewal_flusher.service.metrics import FlusherMetrics
from lancewal_flusher.service.round import RoundReport, RoundState, run_round
from lancewal_flusher.service.schedule import Pace, TurnFailed

SEALED_GRACE_S = 60.0
"""How long an ingest may take to flush what it sealed: several times what writing a large snapshot takes."""
PAUSE_S = 1.0
PAUSE_MAX_S = 60.0
LOOP_LIMIT_S = 1800.0
"""The loop turns between two merges; one merge of a long backlog may take minutes."""
NO_ROUND_YET = "no round has ended yet"
_ONCE_ROUNDS = 5
"""Rounds without a merge, though something waits, after which ``once`` gives up."""


@dataclass(slots=True)
class _Loop:
    """What rounds need from one to the next."""

    context: FlusherContext
    metrics: FlusherMetrics
    control: ControlReader
    stopping: Callable[[], bool]
    rounds: RoundState = field(default_factory=RoundState)
    garbage: GarbageState = field(default_factory=GarbageState)
    limits: MergeLimits = field(default_factory=MergeLimits)
    problems: Sequence[str] = (NO_ROUND_YET,)
    """Why the service is not ready, as the newest round, or a passing fault of garbage collection behind it, says."""
    damage: dict[str, str] = field(default_factory=dict)
    """What has been met beside rounds, until the same act ends well: a round that ends well says nothing of it."""

    def paused(self) -> bool:
        """Ask whether an operator wants no round to begin."""
        until = self.control.read()
        self.metrics.paused_by_operator(until)
        return until is not None

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
        self.metrics.backlog(backlog_after(self.context, report))
        self.problems = [
            f"region {region.name}: {error.kind}: {error}" for region, error in sorted(report.damaged.items())
        ]
        return report

    def collect(self, again_s: float) -> None:
        act = "garbage collection"
        try:
            report = collect_garbage(self.context, self.garbage)
        except Corrupt as error:
            self.metrics.failed(act, error, again_s)
            self._note(act, TurnFailed(error, again_s))
        else:
            self.metrics.garbage(report)
            self._note(act, report)

    def compact(self, turns: CompactionTurns) -> None:
        began = self.context.clock.monotonic()
        report = turns.turn()
        self.metrics.turn(report, self.context.clock.monotonic() - began)
        self._note("compaction", report if isinstance(report, TurnFailed) else report.compaction)

    def index(self, turns: CompactionTurns) -> None:
        report = turns.index_turn()
        self.metrics.index_turn(report)
        self._note("index upkeep", report)

    def expire(self, turns: ExpiryTurns) -> None:
        result = turns.turn()
        self.metrics.expiry(result)
        self._note("expiry", result)

    def _note(self, act: str, result: object) -> None:
        """The damage that ``act`` met, or that it ended well.  A fault that may pass says nothing of damage, nor does a
        refusal: it has read little."""
        match result:
            case TurnFailed(error=Corrupt() as error):
                self.damage[act] = f"{act} failed: {error.kind}: {error}"
            case TurnFailed() | Refused():
                pass
            case _:
                self.damage.pop(act, None)


def run_flusher(settings: Settings, once: bool = False) -> None:
    """Run until SIGTERM or SIGINT, or once.  Raises ``LancewalError`` where a person or a supervisor must act."""
    with stop_signals() as stopping:
        if once:
            run_once(settings, stopping)
        else:
            serve(settings, stopping)


def serve(settings: Settings, stopping: Callable[[], bool], began: Callable[[int], None] = lambda _: None) -> None:
    """Steps 1 to 3; ``began`` is told the port of the HTTP side."""
    with ExitStack() as stack:
        # Step 1
        loop = _start(settings, stopping, stack)
        clock = loop.context.clock
        loop.limits = merge_limits(settings, loop.context.contract)
        watch = StoreWatch(loop.context.store, clock, paths.contract_version(loop.context.contract.version))
        stack.enter_context(watch)
        health = Health(clock, lambda: _problems(loop, watch), LOOP_LIMIT_S)
        loop.stopping = _beating(health, stopping)
        server = stack.enter_context(
            HealthServer(settings.metrics.host, settings.metrics.port, loop.metrics.registry, health)
        )
        began(server.port)
        # Step 2
        failures = 0
        collect_at = clock.monotonic() + settings.flusher.gc_interval_s
        turns = _compaction_turns(loop.context, settings)
        expiry = _expiry_turns(loop.context, settings)
        while not stopping():
            if loop.paused():
                sleep_unless(loop.stopping, clock, POLL_S)
                continue
            act = "round"
            try:
                report = loop.round(SEALED_GRACE_S, settings.flusher.interval_s)
                pause = settings.flusher.interval_s
                if report.left is None:
                    pause = PAUSE_S if report.refused else 0.0
                if clock.monotonic() >= collect_at and not stopping():
                    act = "garbage collection"
                    collect_at = clock.monotonic() + settings.flusher.gc_interval_s
                    loop.collect(settings.flusher.gc_interval_s)
                if turns is not None:
                    if report.merges:
                        turns.index_pace.hurry()
                    if any(merge.worn for merge in report.merges):
                        turns.pace.hurry()
                    if turns.pace.wait_s() == 0.0 and not stopping():
                        loop.compact(turns)
                    if turns.index_pace.wait_s() == 0.0 and not stopping():
                        loop.index(turns)
                    # None, where there is more to do: but first what waits for a merge.
                    pause = min(pause, turns.pace.wait_s(), turns.index_pace.wait_s())
                if expiry is not None:
                    if expiry.pace.wait_s() == 0.0 and not stopping():
                        loop.expire(expiry)
                    pause = min(pause, expiry.pace.wait_s())
                failures = 0
            except (Retry, Refresh, Corrupt) as error:
                pause = min(PAUSE_MAX_S, PAUSE_S * 2.0**failures)
                failures = min(failures + 1, 10)
                named = f": {error}" if isinstance(error, Corrupt | StoreInconsistent) else ""
                failed = f"{act} failed: {error.kind}{named}"
                loop.problems = [failed] if act == "round" else [*loop.problems, failed]
                loop.metrics.failed(act, error, pause)
            sleep_unless(loop.stopping, clock, pause)
        # Step 3
        loop.metrics.stopping()


def run_once(settings: Settings, stopping: Callable[[], bool] = lambda: False) -> None:
    """See the module docstring."""
    with ExitStack() as stack:
        loop = _start(settings, stopping, stack)
        loop.limits = replace(merge_limits(settings, loop.context.contract), defer_s=0.0)  # nothing would come
        until = loop.control.paused
        if until is not None:
            raise FlusherPaused(
                f"the flusher of {settings.table.uri} is paused {until_text(until)}: nothing is merged. End the pause with "
                "`lancewal resume flusher`"
            )
        in_vain = 0
        while not stopping():
            report = loop.round(0.0)
            if report.left is not None:
                report.raise_damaged()
                return
            in_vain = 0 if report.merges else in_vain + 1
            if in_vain >= _ONCE_ROUNDS:
                raise PlanRetriesExhausted(
                    f"{_ONCE_ROUNDS} rounds have merged nothing though something waits; the last refusal: "
                    f"{report.refused[-1] if report.refused else 'none'}"
                )


def _start(settings: Settings, stopping: Callable[[], bool], stack: ExitStack) -> _Loop:
    context = open_context(settings, stack)
    metrics = FlusherMetrics(context.clock)
    metrics.started(context.contract, settings.flusher.runner)
    control = ControlReader(context.store, context.clock, Service.FLUSHER)
    control.read_or_raise()
    return _Loop(context, metrics, control, stopping)


def _compaction_turns(context: FlusherContext, settings: Settings) -> CompactionTurns | None:
    flusher = settings.flusher
    if not flusher.compaction:
        return None
    now, interval_s = context.clock.monotonic(), flusher.compaction_interval_s
    pace, index_pace = (Pace(context.clock, interval_s, due_at=now + interval_s) for _ in range(2))
    return CompactionTurns(context, compaction_limits(flusher), index_limits(flusher), pace, index_pace)


def _expiry_turns(context: FlusherContext, settings: Settings) -> ExpiryTurns | None:
    ttl = context.contract.ttl
    if ttl is None:
        return None
    pace = Pace(context.clock, settings.flusher.expiry_interval_s, due_at=context.clock.monotonic())
    return ExpiryTurns(context, ttl, pace)


def _problems(loop: _Loop, watch: StoreWatch) -> Sequence[str]:
    problems = [*loop.problems, *loop.damage.values()]
    if watch.problem is not None:
        problems.append(watch.problem)
    if loop.control.paused is not None and NO_ROUND_YET in problems:
        problems.remove(NO_ROUND_YET)  # a pause is no reason not to be ready: it is wanted
    if loop.control.problem is not None:
        problems.append(f"control cannot be read: {loop.control.problem.kind}")
    return problems


def _beating(health: Health, stopping: Callable[[], bool]) -> Callable[[], bool]:
    def ask() -> bool:
        health.beat()
        return stopping()

    return ask
