"""Publish a moving cut: receipts of several tables, which change together for whoever reads the cut.

Guarantees
 1. All receipts of a publication are at positions that were asked for in one round, by ``cuts.positions``.  One swap of the
    catalog replaces the publication before as a whole.
 2. A cut never goes back, whoever publishes it and however long a publisher was paused.  Each publication has a greater
    number than the one that it replaces, and no position of a table is lower.  A table that was made again, with another
    uuid, begins anew.
 3. A table gets a new receipt if its positions changed, or if its newest version is another one when the receipt is renewed.
    Otherwise the receipt stays.  If no receipt and no table changed, nothing is published: the turn costs one query of the
    catalog and one round of questions for positions, beside the looks of step 2.
 4. A table that lags, or cannot be read, holds the cut back, and the turn names it.  With ``lagging: leave-out`` it is left
    out.  A table that is not in the cut yet holds back only the first publication: it joins once it has what is asked for.
    A table that was made again under its name is such a table.
 5. An error of the catalog or of the brokers ends the turn, and nothing is published.  If it names a topic whose tables are
    not in the cut yet, only these tables are left out.  Nothing is published either if the patterns name no table any more:
    the cut stays as it is, and the error says so.  After a swap without an answer the next turn reads what is there.
 6. Nothing is written except the swap.  A publisher may die anywhere: the cut is the one before or the new one.  A publisher
    that is told to stop while it waits for tables publishes nothing more.

Steps of a turn
 1. Read the published cut.  If somebody else published it less than an interval ago, that one is as good: wait.
 2. Look which tables the patterns name, and open or close tables accordingly (``open_tables``).  Look too whether each table
    is still at its place, also one at rest.  Open those with a newer contract again: its windows tell when the receipt is
    renewed.
 3. Ask for positions in one round.  A position below one that was published before gives way to it: a broker may show an end
    late.  Each turn asks, also one that waits for earlier positions: a topic may be gone meanwhile.
 4. Wait until each table that changed has its positions: those of the cut for an interval, the others for half of it, all
    for ``PATIENCE_S`` at least.  If some hold the cut back then, the next turn waits for the same positions again, if the
    tables and their regions are the same.  So a table that is always late by the same time does not hold back the cut for
    ever.
 5. Find the receipt of each such table at its positions: the newest version that holds nothing after them.  A table that
    took up partitions, or another topic, after step 3 has no receipt: the next turn opens it again, and asks.
 6. Swap the new cut for the one of step 1.  If it is another one by now, nothing is written.

Requests of a turn in a folder: two for the cut, and one for the swap.  A table that changed costs about 12 if it has one page
and one log.  Three of them read its state page, and two to four its log.  The others find its newest version, and look for a
newer contract.  Each further second that the table lags costs some more.  The looks of step 2 come on top.

The swap compares with the cut that was read before the positions were compared with it (steps 1, 3, 6).  So the positions in
the catalog cannot have risen in between.  The process also remembers the greatest number and positions that it saw, since a
database may lose its last change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.errors import InvalidInput, LancewalError, Retry, or_error, some_of
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks
from lancewal_core.settings.sections import MovingCutSettings
from lancewal_flusher.cuts import positions
from lancewal_flusher.cuts.open_tables import TableOfCut, TablesOfCut, why
from lancewal_flusher.cuts.positions import CutAt, CutMember, PositionSource
from lancewal_flusher.cuts.reached import lacking, lag_of

SETTLE_S = 1.0
"""Time between two looks whether tables have their positions, the first one included.  Ingest makes records durable within
about a second, and each look costs requests."""
PATIENCE_S = 5.0
"""Least time that a table gets for its positions.  Ingest needs a second or two.  With less time, a table that is always busy
would never join, and would hold the cut back now and then."""
RENEW_S = 600.0
_NAMED = 5
_RENEWED_OF_WINDOW = 8
"""Part of the shorter window of a table after which its receipt is renewed.  A receipt is readable for the windows."""


@dataclass(frozen=True, slots=True)
class CutTurn:
    """Result of one attempt to publish a cut."""

    cut: Cut | None
    """The newest publication after the turn; None: there is none."""
    published: bool = False
    """Whether this turn has published it."""
    current: bool = False
    """Whether the cut has all that was asked for in this turn, at ``asked_ms``."""
    asked_ms: int = 0
    held: Mapping[str, str] = field(default_factory=dict)
    """Tables that hold the cut back, each with the reason."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Tables that are not in the cut though its patterns name them, each with the reason."""
    again_s: float = 0.0
    """Time until the next turn."""
    short: Mapping[str, str] = field(default_factory=dict)
    """Tables whose receipts may end before the next publication, each with the reason."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Clock, new ids and pauses of a publisher of cuts.  A pause ends early when the process ends."""

    clock: Clock
    new_id: Callable[[], str]
    pause: Callable[[float], bool]


class MovingCut:
    """Publisher of one moving cut.  A thread of its own calls it repeatedly.

    ``open_table`` opens the table of a catalog entry, and the stack closes it.  ``pause`` waits for some seconds.  It
    returns True at once if the publisher must end.
    """

    def __init__(
        self,
        catalog: StoredCatalog,
        wanted: MovingCutSettings,
        source: PositionSource,
        open_table: Callable[[TableEntry, ExitStack], CutMember],
        tasks: Tasks,
        moments: Moments,
    ) -> None:
        self._catalog, self.wanted, self._source, self._tasks, self._moments = catalog, wanted, source, tasks, moments
        self._open = TablesOfCut(catalog, wanted.tables, open_table, tasks, moments.clock)
        self._seen: Cut | None = None
        """The newest publication, by number, that this process saw."""
        self._floor: dict[str, tuple[str, dict[Region, Position]]] = {}
        """The uuid of each table, and its greatest positions in all publications that this process saw."""
        self._parsed: dict[str, Mapping[Region, Position]] = {}
        """Positions of each receipt of the publication that was read or made last, by the receipt's text."""
        self._waits_for: _Pending | None = None

    def close(self) -> None:
        """Close all tables."""
        self._open.close()

    def turn(self) -> CutTurn:
        """Publish the cut if the tables have reached its positions.  Errors of the catalog and of the source are
        raised.

        Raises ``InvalidInput`` if a kept cut has this name, or if no table matches the patterns.
        """
        turn, every_s = self._turn(), self.wanted.every
        windows = {name: one.window_s for name, one in sorted(self._open.by_name.items())}
        why = "its shorter window is {:g} s, and the cut is published every {:g} s"
        return replace(turn, short={n: why.format(s, every_s) for n, s in windows.items() if s < every_s})

    def _turn(self) -> CutTurn:
        # Step 1
        began = self._moments.clock.monotonic()
        found = self._catalog.cut(self.wanted.name)
        if found is not None and not found.moving:
            raise InvalidInput(
                f"cut {found.name} is a kept one, and flusher.cuts asks to publish it: drop it (`lancewal cut drop "
                f"{found.name}`), or give the moving cut another name"
            )
        before, self._seen = self._seen, self._newer(found)
        others_s = self._others_age_s(before, found)
        if found is not None and others_s is not None:
            return CutTurn(found, current=True, asked_ms=found.asked_ms, again_s=self.wanted.every - others_s)
        self._open.look()  # step 2
        if not self._open.by_name and not self._open.faults:
            raise self._no_table(found)
        at = self._ask(found)  # step 3
        if at is None:
            return self._held(found, self._open.faults, began)
        changed = self._changed(found, at)
        late = self._await(found, changed, at)  # step 4
        if late is None:
            return CutTurn(found)
        if any(self._holds(found, name) for name in late):
            return self._held(found, late, began)
        self._waits_for = None
        receipts = self._receipts([one for one in changed if one.name not in late], at)  # step 5
        failed = {name: text for name, text in receipts.items() if isinstance(text, LancewalError)}
        for name, error in failed.items():
            self._open.fail(name, error)
        late |= {name: why(error) for name, error in failed.items()}
        if any(self._holds(found, name) for name in late):
            return self._held(found, late, began)
        tables = self._tables_of(found, {n: t for n, t in receipts.items() if isinstance(t, str)}, late)
        again_s = self._left_s(began)
        if not tables:
            return CutTurn(found, left_out=late, again_s=again_s)  # a cut has at least one table
        cut = self._made(found, at, tables, late)
        if cut is None:
            return CutTurn(found, current=True, asked_ms=at.asked_ms, left_out=late, again_s=again_s)
        # Step 6
        if not self._swapped(found, cut):
            return CutTurn(found)  # the next turn reads what is there
        self._seen = self._newer(cut)
        return CutTurn(cut, True, True, at.asked_ms, left_out=late, again_s=again_s)

    # -- step 1 ---------------------------------------------------------------------------------------------------

    def _newer(self, found: Cut | None) -> Cut | None:
        """Return the newest publication, and remember the positions of its tables."""
        if found is None:
            return self._seen
        known = self._parsed
        self._parsed = {of.receipt: known.get(of.receipt) or _positions(of) for of in found.tables.values()}
        for name, of in found.tables.items():
            floor = dict(self._published(name, of.table_uuid))
            for region, position in self._parsed[of.receipt].items():
                floor[region] = max(position, floor.get(region, position))
            self._floor[name] = of.table_uuid, floor
        return found if self._seen is None or found.number >= self._seen.number else self._seen

    def _published(self, name: str, table_uuid: str) -> Mapping[Region, Position]:
        """Return the greatest positions at which this table was published under this name."""
        uuid, floor = self._floor.get(name, (table_uuid, {}))
        return floor if uuid == table_uuid else {}

    def _others_age_s(self, before: Cut | None, found: Cut | None) -> float | None:
        """Return how long ago somebody else published the cut, if that is less than an interval and was not known."""
        if found is None or (before is not None and found.number <= before.number):
            return None
        age_s = max(0.0, (self._moments.clock.now_ms() - found.asked_ms) / 1000)
        return age_s if age_s < self.wanted.every else None

    def _no_table(self, found: Cut | None) -> InvalidInput:
        """Return the error of patterns that name no table: there is nothing to publish."""
        stays = (
            ""
            if found is None
            else f". Readers still see its number {found.number}, of {some_of([*found.tables], _NAMED)}"
        )
        return InvalidInput(
            f"no table of the catalog {self._catalog.where} is named {' or '.join(self.wanted.tables)}{stays}. Correct the "
            f"cut in flusher.cuts, register its tables (`lancewal catalog register`), or take the cut out of flusher.cuts and "
            f"drop it (`lancewal cut drop {self.wanted.name}`)"
        )

    # -- step 3 ---------------------------------------------------------------------------------------------------

    def _ask(self, found: Cut | None) -> CutAt | None:
        """Return the positions of all tables that can be asked for.  None: a table with a fault holds the cut back."""
        at, members = None, list[CutMember]()
        while at is None:
            if any(self._holds(found, name) for name in self._open.faults):
                return None
            members = self._open.members
            if not members:
                self._waits_for = None
                return CutAt({}, self._source.holds, self._moments.clock.now_ms(), 0)
            try:
                at = positions.ask(self._source, members)
            except LancewalError as error:
                of = [member.name for member in members if member.contract.topic == error.where.get("topic")]
                joining = [name for name in of if not self._is_in(found, name)]
                # A fault that may pass is one of the brokers.  But a topic of tables that are not in the cut yet may have no
                # leader for long, and the cut needs nothing of it.
                if not of or (isinstance(error, Retry) and (found is None or joining != of)):
                    raise
                # A table that is not in the cut may have another contract than those in it, which then do without it.
                for name in joining or of:
                    self._open.fail(name, error)
        kept, asked_for = self._waits_for, {member.name: _identity(member) for member in members}
        if kept is None or kept.instead_of != _id(found) or kept.asked_for != asked_for:
            kept = _Pending(replace(at, of=self._not_back(members, at)), _id(found), asked_for)
        self._waits_for = kept
        return kept.at

    def _not_back(self, members: Sequence[CutMember], at: CutAt) -> dict[str, Mapping[int, Position]]:
        """Return the positions, none of them below what was published for any table of the same topic (guarantee 2)."""
        floor: dict[Region, Position] = {}
        for member in members:
            for region, position in self._published(member.name, member.contract.table_uuid).items():
                floor[region] = max(position, floor.get(region, position))
        return {
            member.name: {
                region.partition: max(at.of[member.name][region.partition], floor.get(region, Position(0)))
                for region in member.contract.regions
            }
            for member in members
        }

    # -- step 4 ---------------------------------------------------------------------------------------------------

    def _changed(self, found: Cut | None, at: CutAt) -> list[CutMember]:
        """Return the tables that need another receipt, or must show whether they do."""
        return [one.member for name, one in self._open.by_name.items() if self._is_due(found, one, at.of[name])]

    def _is_due(self, found: Cut | None, one: TableOfCut, at: Mapping[int, Position]) -> bool:
        if self._moved(found, one.member, at):
            return True
        renew_s = min(RENEW_S, one.window_s / _RENEWED_OF_WINDOW)
        return one.planned_at is None or self._moments.clock.monotonic() - one.planned_at >= renew_s

    def _moved(self, found: Cut | None, member: CutMember, at: Mapping[int, Position]) -> bool:
        """Whether a table is not in the published cut at these positions."""
        of = None if found is None else found.tables.get(member.name)
        if of is None or of.table_uuid != member.contract.table_uuid or of.uri != member.reads.uri:
            return True
        published = self._parsed[of.receipt]
        return any(published.get(region, 0) != at[region.partition] for region in member.contract.regions)

    def _await(self, found: Cut | None, changed: Sequence[CutMember], at: CutAt) -> dict[str, str] | None:
        """Wait until the tables have their positions.  Return those that do not in time, each with the reason.

        None: the publisher must end, and nobody knows which tables are late."""
        clock = self._moments.clock
        began = clock.monotonic()
        late = dict(self._open.faults)
        waiting = list(changed)
        first: dict[str, Mapping[int, Position]] = {}
        moved = any(self._moved(found, member, at.of[member.name]) for member in changed)
        if moved and self._moments.pause(SETTLE_S):
            return None
        while waiting:
            answers = self._tasks.map(
                lambda member: or_error(lambda: self._open.by_name[member.name].durable(at.of[member.name])), waiting
            )
            left, now = [], {}
            for member, answer in zip(waiting, answers, strict=True):
                if isinstance(answer, LancewalError):
                    self._open.fail(member.name, answer)
                    late[member.name] = why(answer)
                elif lacking(answer, at.of[member.name]):
                    now[member.name] = answer
                    left.append(member)
            waiting = []
            for member in left:
                if clock.monotonic() - began < self._patience_s(found, member.name):
                    first.setdefault(member.name, now[member.name])
                    waiting.append(member)
                    continue
                lag = or_error(partial(lag_of, member, at.of[member.name], first.get(member.name), now[member.name]))
                if lag is not None:
                    late[member.name] = why(lag) if isinstance(lag, LancewalError) else f"{lag.why}: {lag.partitions}"
            if waiting and self._moments.pause(SETTLE_S):
                return None
        return late

    def _patience_s(self, found: Cut | None, name: str) -> float:
        return max(PATIENCE_S, self.wanted.every / (1 if found is None or self._is_in(found, name) else 2))

    def _holds(self, found: Cut | None, name: str) -> bool:
        """Whether a table that lags holds the cut back (guarantee 4)."""
        return self.wanted.lagging == "hold" and (found is None or self._is_in(found, name))

    def _is_in(self, found: Cut | None, name: str) -> bool:
        """Whether the cut has the table that the catalog has under this name, and not a former one."""
        of = None if found is None else found.tables.get(name)
        return of is not None and self._open.uuids.get(name) in (None, of.table_uuid)

    def _held(self, found: Cut | None, late: Mapping[str, str], began: float) -> CutTurn:
        held = {name: why for name, why in sorted(late.items()) if self._holds(found, name)}
        left_out = {name: why for name, why in sorted(late.items()) if name not in held}
        again_s = max(self._left_s(began), min(self.wanted.every, SETTLE_S))
        return CutTurn(found, held=held, left_out=left_out, again_s=again_s)

    def _left_s(self, began: float) -> float:
        """Return the rest of the interval of a turn."""
        return max(0.0, self.wanted.every - (self._moments.clock.monotonic() - began))

    # -- steps 5 and 6 --------------------------------------------------------------------------------------------

    def _receipts(self, members: Sequence[CutMember], at: CutAt) -> dict[str, str | LancewalError]:
        def receipt(member: CutMember) -> str:
            wanted = at.of[member.name]  # of these regions, also if the table has others by now
            return str(member.reads.receipt_at({r: wanted[r.partition] for r in member.contract.regions}))

        answers = self._tasks.map(lambda member: or_error(lambda: receipt(member)), members)
        now = self._moments.clock.monotonic()
        for member in members:
            self._open.by_name[member.name].planned_at = now
        return {member.name: answer for member, answer in zip(members, answers, strict=True)}

    def _tables_of(
        self, found: Cut | None, receipts: Mapping[str, str], late: Mapping[str, str]
    ) -> dict[str, CutTable]:
        """Return the entries of all tables that the cut is to have."""
        tables = {} if found is None else {n: of for n, of in found.tables.items() if n in self._open.by_name}
        for name, receipt in receipts.items():
            member = self._open.by_name[name].member
            tables[name] = CutTable(uri=member.reads.uri, table_uuid=member.contract.table_uuid, receipt=receipt)
        return {name: of for name, of in sorted(tables.items()) if name not in late}

    def _made(self, found: Cut | None, at: CutAt, tables: dict[str, CutTable], late: Mapping[str, str]) -> Cut | None:
        """Return the cut that replaces ``found``; None if nothing has changed."""
        seen = 0 if self._seen is None else self._seen.number
        if found is not None and found.number >= seen:
            same = tables == found.tables and late.keys() == found.left_out.keys() and at.holds == found.holds
            if same:
                return None
        return Cut(
            name=self.wanted.name,
            moving=True,
            number=seen + 1,
            holds=at.holds,
            tables=tables,
            asked_ms=at.asked_ms,
            took_ms=at.took_ms,
            made_ms=self._moments.clock.now_ms(),
            left_out=dict(sorted(late.items())),
            write_id=self._moments.new_id(),
        )

    def _swapped(self, found: Cut | None, cut: Cut) -> bool:
        """Put the cut in place of ``found`` (step 6)."""
        with point("cut.publish", cut=cut.name):
            return self._catalog.swap_cut(cut.name, found, cut)


@dataclass(frozen=True, slots=True)
class _Pending:
    """Positions that tables have not reached yet, and the ``write_id`` of the publication at the time."""

    at: CutAt
    instead_of: str | None
    asked_for: Mapping[str, tuple[str | None, Sequence[Region]]]
    """The identity of each table whose positions these are."""


def _id(cut: Cut | None) -> str | None:
    return None if cut is None else cut.write_id


def _identity(member: CutMember) -> tuple[str | None, Sequence[Region]]:
    """Return what makes positions those of a table: its uuid and its regions."""
    return member.contract.table_uuid, member.contract.regions


def _positions(of: CutTable) -> Mapping[Region, Position]:
    from lancewal_reader.point.receipt import Receipt

    return Receipt.parse(of.receipt).positions
