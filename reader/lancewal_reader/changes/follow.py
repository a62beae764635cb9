"""Follow a table: make one feed after the other, each from where the previous one ended.

Guarantees
 1. The feeds adjoin: each starts at the receipt at which the one before it ends, or at the start that was asked for.
 2. A feed has at most ``rows_max`` records, or those of one commit if the log no longer has the records.  Its memory
    is therefore bounded, however far the start lags.
 3. A *look* checks whether anything is new.  If not, it is repeated after a pause.  The pauses grow from ``_PAUSE_S``
    to ``poll_s``.  Between two plans, which come every ``_PLAN_S``, looks ask only for the next object of each log,
    page and table (``Quiet``).
 4. From ``earliest`` the first feed has all rows of the newest state, as inserts.
 5. Names in ``columns`` and the filter are those of the newest state, also for feeds that end at an earlier one.  If
    such a column is renamed or dropped, or another gets its name, ``follow`` raises ``ContractChanged``.
 6. There is no feed for commits that are known to change no row, such as compactions.  A merge of records that an
    earlier feed had gives an empty feed, whose receipt has the new version.

``bounded`` chooses the end of a feed.  It is the newest state if that is near enough.  Otherwise it has positions
between both: each region's share is in proportion to the records that it lags behind.  Its version is the newest that
these positions allow.  If that state can no longer be read, or the topic was recreated in between, the end is a
version.  It is the first one that has merged all records of the start.

As counted: 1 ("look of a follower, nothing new").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict

import pyarrow as pa

from lancewal_core.errors import (
    ContractChanged,
    InvalidInput,
    OutsideHistoryWindow,
    VersionGone,
)
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.region.state import RegionState
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.object_store import ObjectStore
from lancewal_reader.changes.feed import Feeds, Mode, PlannedFeed, keys_alone
from lancewal_reader.forms.given_numbers import whole_of
from lancewal_reader.plan.lineage import Lineage
from lancewal_reader.plan.strong import PlanContext
from lancewal_reader.point.at import At, AtPositions, AtVersion
from lancewal_reader.point.read_options import check_seconds
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.reading.filter import check_filter
from lancewal_reader.reading.reads import Planned, Reads, Wanted

ROWS_MAX = 1_000_000
POLL_S = 1.0
_PAUSE_S = 0.02
_LOOKED_AT = 50
"""Largest number of commits that are looked at to find that none of them changed rows."""
_PLAN_S = 30.0
"""Longest time between two plans, in seconds.  A look takes a lost segment for the end of its log; only a plan finds
the loss.
"""


class Follow(TypedDict, total=False):
    """Optional arguments that ``Table.follow`` has in addition to those of ``changes``."""

    subscription: str | None
    rows_max: int
    poll_s: float


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Checked arguments of ``Table.follow``."""

    subscription: str | None
    rows_max: int
    poll_s: float


def follow_options(subscription: str | None = None, rows_max: int = ROWS_MAX, poll_s: float = POLL_S) -> FollowOptions:
    """Check the arguments of ``Table.follow``.  Raises ``InvalidInput`` if one is wrong."""
    if whole_of(rows_max, 1) is None:
        raise InvalidInput(f"rows_max {rows_max!r}: expected an integer from 1 on")
    check_seconds("poll_s", poll_s)
    return FollowOptions(subscription, rows_max, poll_s)


def follow(
    feeds: Feeds, wanted: Wanted, start: object, mode: object, rows_max: int, poll_s: float
) -> Iterator[PlannedFeed]:
    """Yield feeds without end, each starting where the previous one ended.  Raises the errors of ``Feeds.plan`` and
    of the reads at both ends.
    """
    reads = feeds.reads
    pauses = Pauses(reads.context.clock, poll_s)
    named = wanted.columns is not None or wanted.filter is not None
    had: RowSchema | None = None
    if start == "earliest":
        now = feeds.plan(wanted, "now", "now", mode)
        first = feeds.between(None, now.end, now.mode)
        had = now.end.chosen.rows
        yield first
    else:
        first = feeds.plan(keys_alone(reads, wanted), start, start, mode)
    last = first.end
    lineage = Lineage.of(reads.context)
    quiet: Quiet | None = None
    idle = False
    while True:
        if quiet is not None and quiet.lasts(reads.context):
            pauses.wait()
            continue
        before = Quiet.now(reads.context) if idle else None
        newest = newest_state(feeds, wanted, first.mode, had, "Call follow again from the last receipt")
        had = newest.chosen.rows if had is None else had
        if not _news(lineage, last.receipt, newest.receipt):
            last = newest
            quiet = None if before is None else before.behind(reads.context, newest.receipt.version)
            idle = True
            pauses.wait()
            continue
        quiet, idle = None, False
        pauses.end()
        asked = replace(newest, wanted=keys_alone(reads, wanted)) if named else newest
        end = bounded(reads, last.receipt, asked, rows_max)
        feed = feeds.between(last, end, first.mode)
        yield feed.showing(newest.chosen) if named else feed
        last = end


def newest_state(feeds: Feeds, wanted: Wanted, mode: Mode, had: RowSchema | None, way: str) -> Planned:
    """Plan the newest state with the columns and the filter of ``wanted``.  ``had``: the columns whose names
    ``wanted`` uses; None: it uses the current names.

    Raises ``ContractChanged`` if a column that ``wanted`` names was renamed or dropped since.  The last sentence of
    its message begins with ``way``, which tells the user how to continue.  Raises the errors of ``Feeds.planned``
    too.
    """
    try:
        found = feeds.planned(wanted, "now", mode)
    except InvalidInput:
        if had is not None:
            now = feeds.planned(keys_alone(feeds.reads, wanted), "now", mode)
            _check_names(had, now.chosen.rows, wanted, way)
        raise
    if had is not None:
        _check_names(had, found.chosen.rows, wanted, way)
    return found


def _check_names(had: RowSchema, has: RowSchema, wanted: Wanted, way: str) -> None:
    moved = moved_columns(had, has)
    used = [
        text for name, text in moved.items() if name in (wanted.columns or ()) or _filters(had, wanted.filter, name)
    ]
    if used:
        raise ContractChanged(columns_changed(", ".join(used), way))


def columns_changed(what: str, way: str) -> str:
    """Return the message of the error that ends a stream of changes.  ``what``: the columns that changed.  ``way``:
    what the user can do.
    """
    return f"the columns of the table have changed since the stream began: {what}. {way} to go on with the new columns"


def moved_columns(had: RowSchema, has: RowSchema) -> dict[str, str]:
    """Return the names in ``had`` that in ``has`` belong to another column or to none, each with a text that explains
    the change.

    Columns are compared by their ids.
    """
    names = {own[0]: name for name, own in zip(has.table.names, has.ids, strict=bool(has.ids))}
    found: dict[str, str] = {}
    for name, own in zip(had.table.names, had.ids, strict=bool(had.ids)):
        now = names.get(own[0])
        if now != name:
            found[name] = f"column {name!r} is gone" if now is None else f"column {name!r} is called {now!r} now"
    return found


def _filters(rows: RowSchema, filter: str | None, name: str) -> bool:
    """Return whether a filter uses the column ``name``: it does if it is refused for rows without that column."""
    try:
        check_filter(pa.schema([field for field in rows.table if field.name != name]), filter)
    except InvalidInput:
        return True
    return False


@dataclass(frozen=True, slots=True)
class Quiet:
    """The objects that were the newest ones when a plan was made.  It shows cheaply whether anything has changed since."""

    until: float
    """Monotonic time at which another plan is due, whatever a look shows."""
    states: Mapping[Region, RegionState]
    version: int = 0
    segments: tuple[str, ...] = ()
    """Key of the next segment of each log that is open."""

    @staticmethod
    def now(context: PlanContext) -> Quiet:
        """Read the region states.  A plan made after this call knows all logs that the states name."""
        return Quiet(context.clock.monotonic() + _PLAN_S, context.read_states())

    def behind(self, context: PlanContext, version: int) -> Quiet:
        """Return this value with the plan's table version and the log ends that planning found."""
        return replace(self, version=version, segments=context.entries.next_segments())

    def lasts(self, context: PlanContext) -> bool:
        """Return whether nothing has changed since the plan.  False is certain; True is a hint."""
        if context.clock.monotonic() >= self.until:
            return False
        looks: list[Callable[[], bool]] = [
            lambda: context.table.newest().version == self.version,
            lambda: context.read_states() == self.states,
            *(partial(_absent, context.store, key) for key in self.segments),
        ]
        return all(context.tasks.map(lambda look: look(), looks))


def _absent(store: ObjectStore, key: str) -> bool:
    return store.get(key) is None


class Pauses:
    """Growing pauses between looks that find nothing new."""

    def __init__(self, clock: Clock, longest_s: float) -> None:
        self._clock = clock
        self._longest_s = longest_s
        self._next_s = _PAUSE_S

    def wait(self) -> None:
        """Wait before the next look.  Each pause is twice as long as the previous one, up to the longest."""
        self._clock.sleep(min(self._next_s, self._longest_s))
        self._next_s = min(self._next_s * 2, self._longest_s)

    def end(self) -> None:
        """Start again with a short pause."""
        self._next_s = _PAUSE_S


def bounded(reads: Reads, start: Receipt, newest: Planned, rows_max: int) -> Planned:
    """Return ``newest``, or a state between ``start`` and ``newest`` if the feed would otherwise have more than
    ``rows_max`` records.
    """
    behind = {region: at - start.positions.get(region, 0) for region, at in newest.receipt.positions.items()}
    if sum(behind.values()) <= rows_max:
        return newest
    wanted = newest.wanted
    try:
        positions = _positions(start, behind, rows_max)
        found = reads.plan(replace(wanted, read=replace(wanted.read, at=positions)))
        if found.receipt.version >= start.version:
            return found
        versioned = replace(found.receipt, version=start.version)
        return reads.plan(replace(wanted, read=replace(wanted.read, at=versioned)))
    except (InvalidInput, OutsideHistoryWindow, VersionGone):
        version = _version_behind(reads, start, newest.receipt)
        return newest if version is None else reads.plan(replace(wanted, read=replace(wanted.read, at=version)))


def _positions(start: Receipt, behind: Mapping[Region, int], rows_max: int) -> AtPositions:
    """Return positions ``rows_max`` records after a receipt.  ``behind``: records that each region lags behind.

    Raises ``InvalidInput`` if the topic was recreated in between, so no positions name a state of both.
    """
    total = sum(behind.values())
    ids = {region.topic_id for region, left in behind.items() if left}
    if len(ids) > 1:
        raise InvalidInput("the topic was recreated between the two states, so no positions name a state between them")
    at: dict[int, int] = {}
    left = rows_max
    for region, records in sorted(behind.items()):
        if region.topic_id in ids:
            share = min(records, max(records * rows_max // total, 1), left)
            at[region.partition] = start.positions.get(region, 0) + share
            left -= share
    return At.positions({partition: Position(position) for partition, position in at.items()})


def _version_behind(reads: Reads, start: Receipt, newest: Receipt) -> AtVersion | None:
    """Return the first version after that of ``start`` that has merged all records of ``start``; None if there is
    none.
    """
    context = reads.context
    for version in sorted(v for v in context.table.versions() if start.version < v <= newest.version):
        merged = context.watermarks.known_at(version)
        if merged is not None and all((merged.position(region) or 0) >= at for region, at in start.positions.items()):
            return At.version(version)
    return None


def _news(lineage: Lineage, last: Receipt, newest: Receipt) -> bool:
    """Return whether rows may have changed between two states."""
    if last.positions != newest.positions or newest.version - last.version > _LOOKED_AT:
        return True
    return any(True for _ in lineage.steps(last.version, newest.version))
