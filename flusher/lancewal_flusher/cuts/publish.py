"""Publish the moving cuts of the settings, in threads of the flusher.

Guarantees
 1. Each cut has a thread of its own.  Neither the turns of tables nor the end of the process wait for such a thread.
 2. If a turn fails, the publisher retries it after an interval, and status shows the error.  The log shows an error
    if its kind differs from that of the error before.  Merges go on, and the process stays ready.
 3. Metrics and status show the age of each cut, and the tables that hold it back.  The log names these tables again
    only if other tables hold the cut back.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol

from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.opened import catalog_of
from lancewal_core.errors import InvalidSettings, kind_of, some_of
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import MovingCutSettings
from lancewal_core.store.object_store import ObjectStore
from lancewal_flusher.cuts.ends import kafka_ends
from lancewal_flusher.cuts.moving import CutTurn, Moments, MovingCut
from lancewal_flusher.cuts.positions import CutMember, open_member
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.open import Threads

AT_ONCE = 8
"""How many tables of a cut are checked, or planned for a receipt, at the same time."""
CACHE_BYTES_MAX = 4 << 20
"""Largest number of bytes of unmerged segments that are kept in memory for each table of a cut.  Without this cache
each turn would fetch the segments again."""
_NAMED = 5


class PublishingObserver(Protocol):
    """Receiver of the publishers' results.  ``observed`` returns a store whose requests are counted."""

    events: FlusherEvents

    def cut_age(self, cut: str, seconds: Callable[[], float]) -> None: ...

    def cut_held(self, cut: str, held_s: Mapping[str, float]) -> None: ...

    def observed(self, store: ObjectStore) -> ObjectStore: ...


class Publisher:
    """Publisher of one cut.  A thread calls ``run``, which calls ``made`` to get the ``MovingCut``.  ``made`` gets a
    function that pauses, and a stack that closes what ``made`` has started.
    """

    def __init__(
        self,
        name: str,
        every_s: float,
        made: Callable[[Callable[[float], bool], ExitStack], MovingCut],
        shown: PublishingObserver,
        clock: Clock,
    ) -> None:
        self.name, self._every_s, self._made, self._shown, self._clock = name, every_s, made, shown, clock
        self._began_ms = clock.now_ms()
        self._as_of_ms: int | None = None
        """Time (ms since 1970) of the positions that the cut has reached; None until a turn has told it."""
        self._held_since: dict[str, float] = {}
        self._left_out: frozenset[str] = frozenset()
        self._failed = ""
        self.problem: str | None = None
        """Text that says why the cut is outdated, or may become unreadable; None if there is no problem."""

    def run(self, over: threading.Event) -> None:
        """Publish the cut until ``over`` is set."""
        self._shown.cut_age(self.name, self._age_s)
        with ExitStack() as stack:
            cut: MovingCut | None = None
            while not over.is_set():
                again_s = self._every_s
                try:
                    if cut is None:
                        with ExitStack() as begun:
                            cut = self._made(over.wait, begun)
                            stack.push(begun.pop_all())
                    began = self._clock.monotonic()
                    turn = cut.turn()
                    again_s = turn.again_s
                    if not over.is_set():  # a turn that was broken off names tables that do not lag
                        self._show(turn, self._clock.monotonic() - began)
                except Exception as error:  # the thread must not end: nobody would see that the cut grows old
                    self._not_published(error)
                over.wait(again_s)
            if cut is not None:
                cut.close()

    def _show(self, turn: CutTurn, seconds: float) -> None:
        events, cut = self._shown.events, turn.cut
        self._failed = ""
        self._take_time(turn)
        if turn.published and cut is not None:
            events.cut_published(
                cut=cut.name,
                number=cut.number,
                cut_tables=len(cut.tables),
                asked_ms=cut.asked_ms,
                waited_s=round(seconds, 3),
            )
        now, before = self._clock.monotonic(), self._held_since
        self._held_since = {name: before.get(name, now) for name in turn.held}
        self._shown.cut_held(self.name, {name: now - since for name, since in self._held_since.items()})
        if turn.held and turn.held.keys() != before.keys():
            events.cut_held(cut=self.name, reasons=dict(turn.held))
        if before and not turn.held:
            events.cut_goes_on(cut=self.name)
        left_out = frozenset(turn.left_out)
        if left_out - self._left_out:
            events.cut_left_out(cut=self.name, reasons=dict(turn.left_out))
        self._left_out = left_out
        late = turn.held or (
            {} if turn.current else turn.left_out
        )  # if all tables are left out, the cut stays as it is
        held = some_of([f"table {name}: {why}" for name, why in late.items()], _NAMED)
        self.problem = f"cut {self.name} is held back: {held}" if late else None
        if turn.short and not late:
            short = some_of([f"table {name}: {why}" for name, why in turn.short.items()], _NAMED)
            self.problem = f"cut {self.name} may become unreadable between two publications: {short}. Lower its `every`"

    def _take_time(self, turn: CutTurn) -> None:
        """Update the time of the positions that the cut has reached.  If the first turns hold the cut back, this is
        the time in its publication.
        """
        now_ms, known = self._clock.now_ms(), self._as_of_ms
        if turn.current:
            # The clock of another flusher may be ahead: its time would hide for so long that the cut grows old.
            asked_ms = min(turn.asked_ms, now_ms)
            self._as_of_ms = asked_ms if known is None else max(known, asked_ms)
        elif known is None and turn.cut is not None:
            self._as_of_ms = min(turn.cut.asked_ms, now_ms)

    def _age_s(self) -> float:
        as_of_ms = self._began_ms if self._as_of_ms is None else self._as_of_ms
        return max(0.0, (self._clock.now_ms() - as_of_ms) / 1000)

    def _not_published(self, error: Exception) -> None:
        kind = kind_of(error)
        if self._failed != kind:
            self._shown.events.cut_not_published(cut=self.name, kind=kind, error=str(error))
        self._failed = kind
        self.problem = f"cut {self.name} is not published: {kind}: {error}"


def publishers(settings: Settings, shown: PublishingObserver, clock: Clock) -> Sequence[Publisher]:
    """Return a publisher for each moving cut in the settings.

    Raises ``InvalidSettings`` if the settings name no catalog or no broker.
    """
    cuts = settings.flusher.cuts
    if not cuts:
        return ()
    settings.need("kafka.bootstrap_servers")
    if not settings.catalog.is_set:
        raise InvalidSettings(
            "flusher.cuts names cuts, and there is no catalog to publish them in: set catalog.root, or catalog.kind and "
            "catalog.url"
        )
    return [_publisher(settings, of, shown, clock) for of in cuts]


def _publisher(settings: Settings, of: MovingCutSettings, shown: PublishingObserver, clock: Clock) -> Publisher:
    def made(pause: Callable[[float], bool], stack: ExitStack) -> MovingCut:
        threads = Threads.of(settings, stack)
        tasks = ThreadTasks(io_threads=AT_ONCE)
        stack.callback(tasks.close)
        catalog = catalog_of(settings, threads.tasks, clock)
        assert catalog is not None  # ``publishers`` has looked

        def open_table(entry: TableEntry, to_close: ExitStack) -> CutMember:
            return open_member(settings, entry, threads, to_close, CACHE_BYTES_MAX, shown.observed)

        source = kafka_ends(settings.kafka.client(), threads.tasks)
        return MovingCut(catalog, of, source, open_table, tasks, Moments(clock, lambda: uuid.uuid4().hex, pause))

    return Publisher(of.name, of.every, made, shown, clock)
