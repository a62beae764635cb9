"""Read and swap the states of regions, which lie in pages (``pages``).  One call takes many regions; each has
its own answer.

Guarantees
 1. All regions of a page are read with one search for the page's newest version, and are swapped together.
 2. Each region is decided separately, on the very version that the swap follows.  A fault of a region's decision or
    record is the answer of that region alone.  A fault of a page is the answer of the page's regions.  All other
    regions are read, or swapped, nevertheless.
 3. A change that landed is recognised by its record's write id, also if the reply was lost and other regions of the
    page were swapped since.
 4. If a call ended before another call began, in any thread, the later call does not return an older version.  It
    raises ``StoreInconsistent`` instead.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from threading import Lock
from typing import NamedTuple, TypeVar

from lancewal_core.errors import Corrupt, LancewalError, ObjectCorrupt, ObjectTooLarge, StoreInconsistent, or_raised
from lancewal_core.names import paths
from lancewal_core.names.ids import Making, Page, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.pages.packed_record import RecordBroken, pack_record, unpack_record
from lancewal_core.region.pages.page_chain import Ahead, KnownPage, PageSwapped, newest, swap
from lancewal_core.region.pages.state_page import PageRecord, StatePage, decode_page, empty_page, encode_page
from lancewal_core.region.state import Before, RegionState, decode_state, encode_state
from lancewal_core.store.object_kinds import PAGE_BYTES_MAX, too_large
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import FIRST_VERSION, Family

T = TypeVar("T")

OPENED_BELOW = PAGE_BYTES_MAX // 3
"""Largest size of a page, in unpacked bytes, at which a generation may be opened in it.

Generations of a larger page must become FLUSHED and MERGED first.  Until they leave the page, these changes about
double its size."""
_BEYOND_GROWN = 2
"""Version numbers to ask for in addition to the number of versions that the page gained lately.  One finds the absent
number at the end, the other allows for a page that grows faster."""
_AHEAD_MAX = 8


class PageLook(Enum):
    """Ways to search for the newest version of a page, starting from the version that was read last.  Each finds it."""

    AHEAD = "ahead"
    """Ask in one round for two version numbers more than the page has gained lately, at most 8.  If it has gained
    none, ask for one."""
    AGAIN = "again"
    """Ask for the next version number alone.  Fits a caller that read the page a moment ago and expects no change."""
    SELDOM = "seldom"
    """List the newest version, and read it: three requests, one after the other.  Fits a caller that has not read the
    page for many versions."""


def page_family(page: Page) -> Family:
    """Return the object keys of a page's versions, as a family."""

    return Family.of(
        page, paths.page_prefix(page), lambda version: paths.page_version(page, version), paths.parse_page_version
    )


def state_in(page: StatePage, region: Region, where: str, before: Before | None = None) -> RegionState | None:
    """Return the region's state in the page; None if nobody has claimed the region.

    ``where`` is the page's object key.  ``before`` is the region's state in an earlier version of the page.  Raise
    ``ObjectCorrupt`` if the record is damaged or lost, or ``FormatUnknown``.
    """
    record = page.records.get(region.partition)
    if record is None:
        return None
    if not record.data:
        raise ObjectCorrupt(
            f"{where}: the state of region {region.name} is lost; rebuild it: `lancewal repair region`",
            object=where,
            region=region.name,
        )
    try:
        data = unpack_record(record.data)
    except RecordBroken as error:
        raise region.error(
            ObjectCorrupt,
            f"{where} is corrupt: {error}; restore the object, or rebuild the region's state: `lancewal repair region`",
            object=where,
        ) from error
    return decode_state(data, where, region, before)


def record_of(state: RegionState, clock: Clock, before: Before | None = None) -> PageRecord:
    """Encode a state as a record of a page, with the current time.  ``before`` is as in ``state_in``."""
    return PageRecord(pack_record(encode_state(state, before)), clock.now_ms())


Decide = Callable[[RegionState | None], RegionState | None]
"""Function that decides a change.  It gets the newest state of a region; None: nobody has claimed it.  It returns the
next state, or None for no change."""


class Swap(NamedTuple):
    """Result of a swap.  If ``ours`` is true, the decided state was stored, and ``found`` is that state.  Otherwise
    nothing was written, because ``Decide`` returned None for the state ``found``."""

    ours: bool
    found: RegionState | None


class Sound(NamedTuple):
    """States of several regions that could be read, and the faults of the others."""

    states: dict[Region, RegionState]
    """States of the regions that somebody has claimed."""
    damaged: dict[Region, Corrupt]
    """Faults of regions whose record or page is damaged, so that their states are not known."""


@dataclass(frozen=True, slots=True)
class _PageRead:
    """The newest version of a page, and the states that were decoded from it."""

    known: KnownPage
    content: StatePage
    where: str
    states: dict[Region, RegionState]
    """States decoded so far."""
    before: dict[Region, Before] = field(default_factory=dict)
    """Earlier states of regions whose records are not decoded in this version yet."""
    damaged: set[Region] = field(default_factory=set)
    """Regions whose records were found damaged.  While there are any, the page is read again, since somebody may
    restore the object at the same key."""

    @property
    def known_whole(self) -> KnownPage | None:
        return None if self.damaged else self.known

    def state(self, region: Region) -> RegionState | None:
        if region not in self.states:
            try:
                state = state_in(self.content, region, self.where, self.before.get(region))
            except Corrupt:
                self.damaged.add(region)
                raise
            if state is None:
                return None
            self.states[region] = state
            self.before.pop(region, None)
        return self.states[region]

    def as_read(self, region: Region) -> Before | None:
        """Return the region's bytes and the state decoded from them; None if no state is decoded."""
        index, record = self.states.get(region), self.content.records.get(region.partition)
        return None if index is None or record is None else Before(unpack_record(record.data), index)


class RegionStates:
    """States of regions in the store.  The version of each page that was read last is remembered, and the next search
    for the newest version begins there.

    ``read_each`` and ``swap_each`` answer each region separately.  ``read`` and ``swap`` raise the first error among
    these answers, after all regions are done.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        regions_per_page: int,
        making: Making | None,
        tasks: Tasks | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """``regions_per_page`` and ``making`` are the contract's.

        With ``tasks``, several pages are asked at the same time; with None, one after the other.  ``new_id`` makes
        write ids of pages.
        """
        self._store = store
        self._clock = clock
        self._per_page = regions_per_page
        self._making = making
        self._tasks = tasks
        self._new_id = new_id
        self._known: dict[Page, _PageRead] = {}
        self._grown: dict[Page, int] = {}
        """By page: the number of versions that it gained between the last two reads, or half of the number before if
        that is more."""
        self._lock = Lock()
        """Lock of ``_known`` and ``_grown``.  No request is sent while it is held."""

    def read(self, regions: Collection[Region], look: PageLook = PageLook.AHEAD) -> dict[Region, RegionState]:
        """Return the newest state of each region, in their order, without regions that nobody has claimed yet."""
        found = {region: or_raised(answer) for region, answer in self.read_each(regions, look).items()}
        return {region: index for region, index in found.items() if index is not None}

    def read_each(
        self, regions: Collection[Region], look: PageLook = PageLook.AHEAD
    ) -> dict[Region, RegionState | LancewalError | None]:
        """Return the newest state of each region, in their order; None if nobody has claimed it yet."""
        return self._by_page(regions, partial(self._read_in, look=look))

    def read_sound(self, regions: Collection[Region]) -> Sound:
        """Read as ``read`` does, but return the faults of damaged regions in ``Sound.damaged``.  Any other error is
        raised."""
        states: dict[Region, RegionState] = {}
        damaged: dict[Region, Corrupt] = {}
        for region, answer in self.read_each(regions).items():
            if isinstance(answer, Corrupt):
                damaged[region] = answer
            elif (index := or_raised(answer)) is not None:
                states[region] = index
        return Sound(states, damaged)

    def swap(self, decisions: Mapping[Region, Decide]) -> dict[Region, Swap]:
        """Compare-and-swap each region; return the result for each, in their order.  A ``Decide`` may be called
        several times.

        Raise ``ObjectTooLarge`` if a generation would be opened in a page that has no room for another one
        (``OPENED_BELOW``).
        """
        return {region: or_raised(answer) for region, answer in self.swap_each(decisions).items()}

    def swap_each(self, decisions: Mapping[Region, Decide]) -> dict[Region, Swap | LancewalError]:
        """Swap as ``swap`` does, but return an error as the answer of its region.  After ``StoreUnavailable`` the
        region's change may have landed or not."""

        def of_page(page: Page, regions: Collection[Region]) -> dict[Region, Swap | LancewalError]:
            return self._swap(page, {region: decisions[region] for region in regions})

        return self._by_page(decisions, of_page)

    def changed_at_ms(self, region: Region) -> int | None:
        """Return the time (Unix ms) at which the region's state, as read last, was written, by its writer's clock; None
        if no state was read."""
        with self._lock:
            read = self._known.get(Page.of(region, self._per_page, self._making))
        record = None if read is None else read.content.records.get(region.partition)
        return None if record is None else record.changed_at_ms

    # -- of one page ---------------------------------------------------------------------------------------------

    def _read_in(
        self, page: Page, regions: Collection[Region], look: PageLook
    ) -> dict[Region, RegionState | LancewalError | None]:
        read = self._read(page, look)
        found: dict[Region, RegionState | LancewalError | None] = {}
        for region in regions:
            try:
                found[region] = None if read is None else read.state(region)
            except LancewalError as error:  # in its record
                found[region] = error
        return found

    def _read(self, page: Page, look: PageLook) -> _PageRead | None:
        with self._lock:
            before, grown = self._known.get(page), self._grown.get(page, 0)
        asks_one = look is PageLook.AGAIN or grown == 0
        ahead = Ahead(1 if asks_one else min(grown + _BEYOND_GROWN, _AHEAD_MAX), self._tasks)
        known = None if before is None or look is PageLook.SELDOM else before.known_whole
        found = newest(self._store, page_family(page), self._clock, known, ahead)
        _check_not_older(page, found, before)
        if found is None:
            return None
        if known is not None and look is PageLook.AHEAD:
            with self._lock:
                self._grown[page] = max(found.version.version - known.version.version, grown // 2)
        return self._remember(page, found)

    def _swap(self, page: Page, decisions: Mapping[Region, Decide]) -> dict[Region, Swap | LancewalError]:
        with self._lock:
            before = self._known.get(page)
        swaps = _Swaps(decisions)

        def decide(found: KnownPage | None) -> StatePage | None:
            _check_not_older(page, found, before)
            read = None if found is None else self._remember(page, found)
            return swaps.decide(read, empty_page(page, self._per_page) if read is None else read.content, self._clock)

        def encode(content: StatePage) -> bytes:
            return encode_page(replace(content, write_id=self._new_id()))

        known = None if before is None else before.known_whole
        outcome = swap(self._store, page_family(page), self._clock, decide, encode, known)
        if isinstance(outcome, PageSwapped):
            self._remember(page, outcome.known)
            swaps.landed()
        return swaps.result()

    def _remember(self, page: Page, found: KnownPage) -> _PageRead:
        with self._lock:
            before = self._known.get(page)
        where = paths.page_version(page, found.version.version)
        if before is not None and before.known.version == found.version:
            read = _PageRead(found, before.content, before.where, before.states, before.before)
        else:
            content = decode_page(found.version.data, where)
            if content.regions_per_page != self._per_page:
                raise StoreInconsistent(
                    f"{where} has {content.regions_per_page} regions a page, the contract says {self._per_page}",
                    object=where,
                )
            read = _PageRead(found, content, where, *_from_before(before, content))
        with self._lock:
            before = self._known.get(page)
            if (
                before is None or before.known.version.version <= found.version.version
            ):  # another thread may have been faster
                self._known[page] = read
        return read

    # -- of many -------------------------------------------------------------------------------------------------

    def _by_page(
        self,
        regions: Collection[Region],
        of_page: Callable[[Page, Collection[Region]], dict[Region, T | LancewalError]],
    ) -> dict[Region, T | LancewalError]:
        """Return the answers for all regions, in their order.  The error of a page is the answer of each of its
        regions."""
        pages: dict[Page, list[Region]] = {}
        for region in regions:
            pages.setdefault(Page.of(region, self._per_page, self._making), []).append(region)

        def answers(page: Page) -> dict[Region, T | LancewalError]:
            try:
                return of_page(page, pages[page])
            except LancewalError as error:
                return dict.fromkeys(pages[page], error)

        if self._tasks is None or len(pages) == 1:
            parts = [answers(page) for page in pages]
        else:
            parts = self._tasks.map(answers, list(pages))
        found = {region: answer for part in parts for region, answer in part.items()}
        return {region: found[region] for region in regions}


class _Swaps:
    """Decisions of one call on one page, and their outcomes."""

    def __init__(self, decisions: Mapping[Region, Decide]) -> None:
        self._decisions = decisions
        self._tried: dict[Region, set[str]] = {region: set() for region in decisions}
        """By region: write ids of all its decided states.  Each of them may lie in the store."""
        self._answers: dict[Region, Swap] = {}
        self._decided: dict[Region, tuple[RegionState, PageRecord]] = {}
        """Changed states in the page that is being put, each with its record."""
        self._errors: dict[Region, LancewalError] = {}

    def decide(self, read: _PageRead | None, content: StatePage, clock: Clock) -> StatePage | None:
        """Return the next page, still without its write id; None if nothing changes."""
        self._answers, self._decided, self._errors = {}, {}, {}
        opening: list[Region] = []
        for region, decide in self._decisions.items():
            try:
                found = None if read is None else read.state(region)
                if found is not None and found.write_id in self._tried[region]:
                    self._answers[region] = Swap(True, found)  # it landed, though nobody said so
                    continue
                index = decide(found)
                if index is None:
                    self._answers[region] = Swap(False, found)
                    continue
                self._decided[region] = index, record_of(index, clock, None if read is None else read.as_read(region))
                if _opens(index, found):
                    opening.append(region)
            except LancewalError as error:  # of this region alone
                self._errors[region] = error
        following = self._following(content)
        size = following.unpacked_bytes
        if size > OPENED_BELOW and opening:
            for region in opening:
                del self._decided[region]
                self._errors[region] = _too_large(content.page, size)
            following = self._following(content)
        for region, (index, _) in self._decided.items():
            self._tried[region].add(index.write_id)
        return following if self._decided else None

    def _following(self, content: StatePage) -> StatePage:
        return content.with_records({region.partition: record for region, (_, record) in self._decided.items()})

    def landed(self) -> None:
        """Record that the store has the page that was decided last."""
        self._answers |= {region: Swap(True, index) for region, (index, _) in self._decided.items()}

    def result(self) -> dict[Region, Swap | LancewalError]:
        return {**self._answers, **self._errors}


def _too_large(page: Page, size: int) -> ObjectTooLarge:
    return too_large(
        paths.page_version(page, FIRST_VERSION),
        f"{size} bytes with one generation more than now, above the {OPENED_BELOW} up to which one is opened. "
        f"Its generations grow until they are merged, and must fit in the {PAGE_BYTES_MAX}",
    )


def _opens(state: RegionState, found: RegionState | None) -> bool:
    """Return whether ``state`` has a generation newer than all that were found."""
    if state.newest is None:
        return False
    return found is None or found.newest is None or state.newest.generation > found.newest.generation


def _from_before(
    before: _PageRead | None, content: StatePage
) -> tuple[dict[Region, RegionState], dict[Region, Before]]:
    """Return two groups of regions.  The first has states that were decoded before and whose records are unchanged.
    The second has the earlier states of regions whose records changed."""
    same: dict[Region, RegionState] = {}
    if before is None:
        return same, {}
    others = dict(before.before)
    old, new = before.content.records, content.records
    for region, index in list(before.states.items()):
        if region.partition not in new:
            continue
        if new[region.partition].data == old[region.partition].data:
            same[region] = index
        else:
            others[region] = Before(unpack_record(old[region.partition].data), index)
    return same, others


def _check_not_older(page: Page, found: KnownPage | None, before: _PageRead | None) -> None:
    if before is not None and (found is None or found.version.version < before.known.version.version):
        raise StoreInconsistent(
            f"page {page.number} of topic {page.topic}: version {before.known.version.version} was read before, and "
            f"now the store shows {'none' if found is None else found.version.version} as the newest. Was the table's "
            "folder restored from a copy?",
            page=page.number,
        )
