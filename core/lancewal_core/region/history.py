"""Everything that is kept of a region: generations in its state, and those in history pages, which have left the state.

A state that ends below the table's merged generations is not the newest, or the newest is lost.  Perhaps a listing was
empty or cut short, or generations were merged after the state was read.  Every caller that compares a state with
watermarks uses ``check_reaches``, which refuses such a state.

Guarantees
 1. ``read_histories`` names every generation above the trimmed boundary, without a gap up to the newest, or raises.
    Pages are found by a listing, which is a hint.  Generations are numbered without holes, so a page that the listing
    leaves out is noticed.  ``read_sound_histories`` does the same for each region alone: damage of a region's state or
    pages affects no other region.
 2. ``generations_behind`` names every generation above the given one, oldest first, without a gap up to the newest, or
    raises.  If the caller gives the position at which the given generation ends, generations that are trimmed and had
    no record may be missing.

Steps of ``generations_behind``
 1. Take the newest state.  If its trimmed boundary is above the given generation, compare the boundary's position with
    the one at which that generation ends.  If they differ, or the caller gave no position, raise
    ``OutsideHistoryWindow``.  Otherwise no generation trimmed in between had a record, and the boundary takes the place
    of the given generation.
 2. If the state begins later, read the pages that hold the missing generations.  A page is written before its
    generations leave the state, so pages that are read after the state have them.  A page is deleted only after the
    boundary has passed it.
 3. If there is a gap, or a page has vanished, raise ``PlanStale``: the boundary has moved since, or the listing is
    short.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from threading import Lock

from lancewal_core.errors import INDEX_LOST, Corrupt, OutsideHistoryWindow, PlanStale, StoreInconsistent, or_corrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Making, Position, Region
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.region_listing import list_histories
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState, decode_history
from lancewal_core.store.object_store import ObjectInfo, ObjectStore
from lancewal_core.table.watermarks import InForce

_READS = 3
"""Largest number of attempts to read a state and history pages that fit together.  Garbage collection may trim between
reading the state and reading the pages."""


@dataclass(frozen=True, slots=True)
class History:
    """A region's state, and its history pages by object key.  Pages below the trimmed boundary that are not deleted yet
    are included."""

    state: RegionState
    pages: tuple[tuple[str, tuple[GenerationRecord, ...]], ...]

    @property
    def generations(self) -> tuple[GenerationRecord, ...]:
        """All generations above the trimmed boundary, oldest first."""
        known = {r.generation: r for _, page in self.pages for r in page}
        known |= {r.generation: r for r in self.state.generations}
        return tuple(r for _, r in sorted(known.items()) if r.generation > self.state.trimmed_generation)


class KnownPages:
    """Cache of history pages, for callers that read all pages again and again.

    A page is identified by key, size and time in the listing.  If a restore puts another object at the same key, its
    time is different.  Only the threads of one reader may use the cache at a time.
    """

    def __init__(self, records_max: int = 100_000) -> None:
        """``records_max`` is the number of generations to hold, some 500 bytes each.  When that number is reached, no
        more pages are kept."""
        self._records_max = records_max
        self._held: dict[ObjectInfo, tuple[GenerationRecord, ...]] = {}
        self._records = 0
        self._lock = Lock()

    def get(self, info: ObjectInfo) -> tuple[GenerationRecord, ...] | None:
        return self._held.get(info)

    def add(self, info: ObjectInfo, page: tuple[GenerationRecord, ...]) -> None:
        with self._lock:
            if self._records + len(page) <= self._records_max:
                self._held[info] = page
                self._records += len(page)

    def keep_only(self, listed: Iterable[ObjectInfo]) -> None:
        """Forget the pages that are not listed any more."""
        there = set(listed)
        with self._lock:
            self._held = {info: page for info, page in self._held.items() if info in there}
            self._records = sum(map(len, self._held.values()))


@dataclass(frozen=True, slots=True)
class SoundHistories:
    """Histories of the regions that a process has claimed, and the fault of each region whose state or history pages
    are damaged."""

    of: Mapping[Region, History]
    damaged: Mapping[Region, Corrupt]
    former: Mapping[Region, History] = field(default_factory=dict)
    """Histories of regions of former topics of the table, with the generations that subscriptions still need."""


def check_reaches(region: Region, state: RegionState | None, in_force: InForce) -> None:
    """Raise ``StoreInconsistent`` if the region's state cannot be the newest.

    ``state`` is None if the store shows none.  ``in_force`` has the table's watermarks.  A state that is out of date
    ends below them, or still has a generation as OPEN that is merged.  In the latter case, later entries may be
    durable, and the state names no generation for them.

    A caller that read the watermarks before the state knows by the error that the state is not the newest.  A caller
    that read both at the same time, as a plan does, must read both again.
    """
    merged = in_force.generation(region)
    newest = None if state is None else state.newest
    if merged > (0 if newest is None else newest.generation):
        raise region.error(
            StoreInconsistent,
            f"the state found ends below generation {merged}, which the table has merged; {INDEX_LOST}",
        )
    if newest is not None and newest.generation == merged and newest.state is GenerationState.OPEN:
        raise region.error(
            StoreInconsistent,
            f"the state found has generation {merged} as OPEN, which the table has merged; {INDEX_LOST}",
        )


def read_histories(opened: OpenedTable, regions: Collection[Region], in_force: InForce) -> dict[Region, History]:
    """Read the histories of the regions that somebody has claimed.

    Raise ``StoreInconsistent`` if a state ends below the watermarks ``in_force``, which the caller read before, or if
    generations are missing.  Raise the fault of a damaged region.
    """
    found = read_sound_histories(opened, regions, in_force)
    for error in found.damaged.values():
        raise error
    return dict(found.of)


def read_sound_histories(
    opened: OpenedTable, regions: Collection[Region], in_force: InForce, known: KnownPages | None = None
) -> SoundHistories:
    """Read the histories of claimed regions.  Damage of a region affects only its own answer.  ``known`` is a cache
    of pages that the caller read before."""
    known = KnownPages(0) if known is None else known
    asked = list(regions)
    sound = opened.states.read_sound(asked)
    damaged = dict(sound.damaged)
    asked = [region for region in asked if region not in damaged]
    # After the region states: see step 2 of ``generations_behind``.
    listed = list_histories(opened.store, opened.tasks, asked, opened.contract.making)
    known.keep_only(info for infos in listed.values() for info in infos)

    def one(region: Region) -> History | Corrupt | None:
        return or_corrupt(lambda: _history(opened, sound.states.get(region), in_force, region, listed[region], known))

    histories: dict[Region, History] = {}
    for region, found in zip(asked, opened.tasks.map(one, asked), strict=True):
        if isinstance(found, Corrupt):
            damaged[region] = found
        elif found is not None:
            histories[region] = found
    return SoundHistories(histories, damaged)


def _history(
    opened: OpenedTable,
    state: RegionState | None,
    in_force: InForce,
    region: Region,
    listed: Iterable[ObjectInfo] | None,
    known: KnownPages,
) -> History | None:
    """Return the history from a state just read, and pages listed after it; None if nobody has claimed the region.  If
    state and pages do not fit together, both are read again."""
    gap = ""
    for attempt in range(_READS):
        if attempt:
            state, listed = opened.states.read([region]).get(region), None
        check_reaches(region, state, in_force)
        if state is None or state.newest is None:
            return None
        history = History(state, tuple(pages_of(opened.store, region, opened.contract.making, 0, listed, known)))
        named = [r.generation for r in history.generations]
        if named == list(range(state.trimmed_generation + 1, state.newest.generation + 1)):
            return history
        gap = f"{len(named)} of the generations {state.trimmed_generation + 1} to {state.newest.generation}"
    folder = paths.history_prefix(region, opened.contract.making)
    raise region.error(
        StoreInconsistent,
        f"state and history pages have only {gap}. The listing of {folder!r} is not complete, or a page is lost: run "
        "the command again",
    )


def pages_of(
    store: ObjectStore,
    region: Region,
    making: Making | None,
    above: int = 0,
    listed: Iterable[ObjectInfo] | None = None,
    known: KnownPages | None = None,
) -> Iterator[tuple[str, tuple[GenerationRecord, ...]]]:
    """Yield the history pages of a region with their object keys, oldest first.  Pages that end at or below
    generation ``above`` are not read.  ``listed`` is a listing of the pages; with None the store is listed now.
    ``known`` is a cache of pages."""
    known = KnownPages(0) if known is None else known
    if listed is None:
        listed = store.list(paths.history_prefix(region, making))
    infos = {info.key: info for info in listed}
    found = {key: paths.parse_history_page(key) for key in infos}
    pages = sorted((parsed[1], key) for key, parsed in found.items() if parsed is not None)
    for (_, key), following in zip_longest(pages, pages[1:]):
        if following is not None and following[0] <= above + 1:
            continue
        page = known.get(infos[key])
        if page is None:
            data = store.get(key)
            if data is None:
                continue
            page = decode_history(data, key).generations
            known.add(infos[key], page)
        yield key, page


def generation_behind(
    opened: OpenedTable, region: Region, state: RegionState | None, merged: Generation, end: Position | None = None
) -> GenerationRecord | None:
    """Return the first result of ``generations_behind``, and read at most one history page.  None if there is no such
    generation yet, or if no process has claimed the region.  Raises the same errors.
    """
    if state is None and not merged:
        return None
    state, merged = _not_trimmed(opened, region, state, merged, end)
    if state.newest is None or state.newest.generation <= merged:
        return None
    known = {record.generation: record for record in state.generations}
    if merged + 1 not in known:
        _, page = next(pages_of(opened.store, region, opened.contract.making, merged), ("", ()))
        known = {record.generation: record for record in page}
    found = known.get(Generation(merged + 1))
    if found is None:
        raise _first_missing(region, merged)
    return found


def generations_behind(
    opened: OpenedTable, region: Region, state: RegionState | None, merged: Generation, end: Position | None = None
) -> list[GenerationRecord]:
    """Return the generations above ``merged``, oldest first.  ``state`` is the region's state, just read.  ``end``: the
    position after generation ``merged``; then trimmed generations without records may be missing.  With None, none may
    be missing.
    """
    # Step 1
    state, merged = _not_trimmed(opened, region, state, merged, end)
    known = {record.generation: record for record in state.generations if record.generation > merged}
    # Step 2
    if merged + 1 not in known:
        pages = pages_of(opened.store, region, opened.contract.making, merged)
        paged = {record.generation: record for _, page in pages for record in page if record.generation > merged}
        known = paged | known  # a page may be from before a restore
    # Step 3
    records = [record for _, record in sorted(known.items())]
    if not records or records[0].generation != merged + 1:
        raise _first_missing(region, merged)
    for earlier, later in pairwise(records):
        if later.generation != earlier.generation + 1 or later.first != earlier.next:
            raise region.error(
                PlanStale, f"generation {later.generation} does not continue where generation {earlier.generation} ends"
            )
    return records


def _first_missing(region: Region, merged: Generation) -> PlanStale:
    return region.error(
        PlanStale,
        f"generation {merged + 1}, the first that is not merged, is neither in the region's state nor in a history page",
    )


def _not_trimmed(
    opened: OpenedTable, region: Region, state: RegionState | None, merged: Generation, end: Position | None
) -> tuple[RegionState, Generation]:
    """Return the state, and the generation after which to go on: ``merged``, or the trimmed boundary (step 1 of
    ``generations_behind``)."""
    if state is None:
        raise region.error(PlanStale, "the store shows no state of this partition")
    if state.trimmed_generation > merged and state.trimmed != end:
        raise region.error(
            OutsideHistoryWindow,
            f"this point cannot be read any more. It needs the generations after {merged}, and those up to "
            f"{state.trimmed_generation} were trimmed; what is left begins at position {state.trimmed}. Generations "
            f"are kept for {opened.contract.history_window_s} s after their merge (history_window_s of the table)",
        )
    return state, max(merged, state.trimmed_generation)  # the newest generation is never trimmed
