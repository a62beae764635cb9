"""Publish a moving cut: receipts of several tables, which are replaced together.  A *publication* is one state of the
cut in the catalog, a *publisher* is the thread of a flusher that makes publications.

Guarantees
 1. All receipts of a publication are at positions that ``cuts.positions`` asked for at once.  One swap in the catalog
    replaces the previous publication as a whole.
 2. A cut never goes back, whoever publishes it and however long a publisher was paused.  Each publication has a
    greater number than the one that it replaces, and no position of a table is lower.  A table that was made again,
    with another uuid, has no earlier positions.
 3. A table gets a new receipt if its positions changed, or if its newest version has changed when the receipt is
    renewed.  Otherwise the receipt stays.  If no receipt and no table changed, nothing is published.  Such a turn
    costs one query of the catalog and one request for all positions, beside the checks of step 2.
 4. A table that lags, or cannot be read, holds the cut back, and the turn names it.  With ``lagging: leave-out`` it
    is left out.  A table that is not in the cut yet holds back only the first publication: it joins the cut once it
    has reached the positions asked for.  A table that was made again under its name is such a table.
 5. An error of the catalog or of the brokers ends the turn, and nothing is published.  If the error names a topic
    whose tables are not in the cut yet, only these tables are left out.  Nothing is published either if the patterns
    no longer match any table: the cut stays as it is, and the error says so.  If a swap got no answer, the next turn
    reads whether it took place.
 6. Nothing is written except the swap.  A publisher may die at any point: the catalog then has the previous
    publication or the new one.  A publisher that is told to stop while it waits for tables publishes nothing more.

Steps of a turn
 1. Read the published cut.  If another process published it less than an interval (the setting ``every``) ago, this
    turn publishes nothing and waits.
 2. Find the tables that match the patterns, and open or close tables accordingly (``open_tables``).  Check that each
    table is still at its place, even if it gets no records.  Reopen tables that have a newer contract, because the
    contract's windows tell when the receipt is renewed.
 3. Ask for all positions at once.  If a position is lower than a published one, the published one is used, because a
    broker may report an old end.  A turn that waits for the positions of an earlier turn asks too, because a topic
    may be gone.
 4. Wait until each table that changed has reached its positions.  The wait is one interval for tables of the cut,
    half of it for tables that are not in the cut yet, and at least ``PATIENCE_S``.  The first publication waits one
    interval for all.  If tables then hold the cut back, the next turn waits for the same positions again, as long as
    the tables and their regions are the same.  So a table that always lags by the same time does not hold back the
    cut for ever.
 5. Make the receipt of each such table at its positions: with the newest version that contains no record after them.
    A table whose contract got partitions or another topic after step 3 gets no receipt.  The next turn reopens the
    table, and asks again.
 6. Replace the publication of step 1 by the new one, by a swap.  If the catalog has another publication by now,
    nothing is written.

Requests of a turn in a folder: two for the cut, and one for the swap.  A table that changed costs about 12 if it has
one page and one log.  Three of them read its state page, and two to four its log.  The others find its newest
version, and look for a newer contract.  Each second that the table lags costs some more.  The checks of step 2 are
not counted here.

The swap succeeds only if the catalog still has the publication of step 1, with whose positions step 3 compared.  So
the positions in the catalog cannot have risen in between.  The process also remembers the greatest number and
positions that it saw, since a database may lose its last change.
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
"""Seconds before each check whether tables have reached their positions, also before the first.  Ingest makes records
durable within about a second, and each check costs requests."""
PATIENCE_S = 5.0
"""Least time, in seconds, that a turn waits for a table to reach its positions.  Ingest needs a second or two.  With
less time, a table that is always busy would never join the cut, and would sometimes hold it back."""
RENEW_S = 600.0
_NAMED = 5
_RENEWED_OF_WINDOW = 8
"""Divisor: a receipt is renewed after this part of the shorter of the table's windows.  A receipt stays readable for
both windows."""


@dataclass(frozen=True, slots=True)
class CutTurn:
    """Result of one turn of a publisher."""

    cut: Cut | None
    """The newest publication after the turn; None if the cut was never published."""
    published: bool = False
    """Whether this turn has made the publication ``cut``."""
    current: bool = False
    """Whether the cut contains all records up to the positions of time ``asked_ms``, but for tables that are left
    out."""
    asked_ms: int = 0
    held: Mapping[str, str] = field(default_factory=dict)
    """Reason of each table that holds the cut back, by the table's name."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Reason of each table that is left out of the cut although the cut's patterns match it, by the table's name."""
    again_s: float = 0.0
    """Seconds until the next turn."""
    short: Mapping[str, str] = field(default_factory=dict)
    """Reason of each table whose receipt may become unreadable before the next publication, by the table's name."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Clock, new ids and pauses of a publisher.  ``pause`` waits for some seconds.  It returns True at once if the
    process ends.
    """

    clock: Clock
    new_id: Callable[[], str]
    pause: Callable[[float], bool]


class MovingCut:
    """Publisher of one moving cut.  A thread of its own calls it repeatedly.

    ``wanted``: the cut's settings.  ``source`` gives the positions.  ``open_table`` opens the table of a catalog
    entry, and registers its closing with the stack that it is given.
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
        """The publication with the highest number that this process has read or made."""
        self._floor: dict[str, tuple[str, dict[Region, Position]]] = {}
        """By table name: the table's uuid, and its highest positions in all publications that this process has read
        or made."""
        self._parsed: dict[str, Mapping[Region, Position]] = {}
        """Positions of each receipt in the publication that was read or made most recently, by the receipt's text."""
        self._waits_for: _Pending | None = None

    def close(self) -> None:
        """Close all tables."""
        self._open.close()

    def turn(self) -> CutTurn:
        """Run the steps of a turn: publish the cut if the tables reach the positions.  Raises errors of the catalog
        and of the source.

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
        """Return the publication with the higher number, of ``found`` and the newest seen before.  Remember the
        positions of the tables in ``found``.
        """
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
        """Return the highest published positions of the table with this name and uuid; empty if none are known."""
        uuid, floor = self._floor.get(name, (table_uuid, {}))
        return floor if uuid == table_uuid else {}

    def _others_age_s(self, before: Cut | None, found: Cut | None) -> float | None:
        """Return the age in seconds of a publication ``found`` that another process has made.  Return None if it is
        not newer than ``before``, or is older than an interval.
        """
        if found is None or (before is not None and found.number <= before.number):
            return None
        age_s = max(0.0, (self._moments.clock.now_ms() - found.asked_ms) / 1000)
        return age_s if age_s < self.wanted.every else None

    def _no_table(self, found: Cut | None) -> InvalidInput:
        """Return the error that says that the cut's patterns match no table."""
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
        """Return the positions of all open tables, or those that an earlier turn still waits for.  Return None if a
        table with a fault holds the cut back.
        """
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
        """Return the positions ``at``, each raised to the highest position that was published for any table of the
        same topic (guarantee 2).
        """
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
        """Return the tables that need a new receipt, or whose receipt is due to be renewed."""
        return [one.member for name, one in self._open.by_name.items() if self._is_due(found, one, at.of[name])]

    def _is_due(self, found: Cut | None, one: TableOfCut, at: Mapping[int, Position]) -> bool:
        if self._moved(found, one.member, at):
            return True
        renew_s = min(RENEW_S, one.window_s / _RENEWED_OF_WINDOW)
        return one.planned_at is None or self._moments.clock.monotonic() - one.planned_at >= renew_s

    def _moved(self, found: Cut | None, member: CutMember, at: Mapping[int, Position]) -> bool:
        """Whether the publication ``found`` lacks the table, or has it at other positions or another address."""
        of = None if found is None else found.tables.get(member.name)
        if of is None or of.table_uuid != member.contract.table_uuid or of.uri != member.reads.uri:
            return True
        published = self._parsed[of.receipt]
        return any(published.get(region, 0) != at[region.partition] for region in member.contract.regions)

    def _await(self, found: Cut | None, changed: Sequence[CutMember], at: CutAt) -> dict[str, str] | None:
        """Wait until the tables reach their positions.  Return the reason of each table that does not in time or has
        a fault, by name.

        Return None if the publisher must end before it is known which tables are late."""
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
        """Whether a late or unreadable table with this name holds the cut back (guarantee 4)."""
        return self.wanted.lagging == "hold" and (found is None or self._is_in(found, name))

    def _is_in(self, found: Cut | None, name: str) -> bool:
        """Whether the cut contains the table that now has this name in the catalog, not a former table of this name."""
        of = None if found is None else found.tables.get(name)
        return of is not None and self._open.uuids.get(name) in (None, of.table_uuid)

    def _held(self, found: Cut | None, late: Mapping[str, str], began: float) -> CutTurn:
        held = {name: why for name, why in sorted(late.items()) if self._holds(found, name)}
        left_out = {name: why for name, why in sorted(late.items()) if name not in held}
        again_s = max(self._left_s(began), min(self.wanted.every, SETTLE_S))
        return CutTurn(found, held=held, left_out=left_out, again_s=again_s)

    def _left_s(self, began: float) -> float:
        """Return the seconds left of the interval of a turn that began at ``began``."""
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
        """Return the tables of the next publication: those with a new receipt, and unchanged ones of ``found``.  Late
        tables are left out.
        """
        tables = {} if found is None else {n: of for n, of in found.tables.items() if n in self._open.by_name}
        for name, receipt in receipts.items():
            member = self._open.by_name[name].member
            tables[name] = CutTable(uri=member.reads.uri, table_uuid=member.contract.table_uuid, receipt=receipt)
        return {name: of for name, of in sorted(tables.items()) if name not in late}

    def _made(self, found: Cut | None, at: CutAt, tables: dict[str, CutTable], late: Mapping[str, str]) -> Cut | None:
        """Return the publication that replaces ``found``; None if nothing has changed."""
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
        """Replace ``found`` by ``cut`` in the catalog (step 6).  Return False if the catalog has another one."""
        with point("cut.publish", cut=cut.name):
            return self._catalog.swap_cut(cut.name, found, cut)


@dataclass(frozen=True, slots=True)
class _Pending:
    """Positions for which the next turn waits too.  ``instead_of``: the ``write_id`` of the publication when they
    were asked for.
    """

    at: CutAt
    instead_of: str | None
    asked_for: Mapping[str, tuple[str | None, Sequence[Region]]]
    """Identity (``_identity``) of each table that the positions are for, by name.  If an identity changes, new
    positions are needed."""


def _id(cut: Cut | None) -> str | None:
    return None if cut is None else cut.write_id


def _identity(member: CutMember) -> tuple[str | None, Sequence[Region]]:
    """Return the uuid and the regions of a table: positions are valid for the table as long as both stay the same."""
    return member.contract.table_uuid, member.contract.regions


def _positions(of: CutTable) -> Mapping[Region, Position]:
    from lancewal_reader.point.receipt import Receipt

    return Receipt.parse(of.receipt).positions
