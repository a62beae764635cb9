"""The versions of a page: finding the newest, and swapping it for the next.

Version n + 1 is made by put-if-absent; whoever stores it has swapped n for n + 1.  Old versions are deleted, in
ascending order.  So a number that is absent may have been used before.  A process that slept must not take such a
number for a free one.

Guarantees
 1. ``newest`` returns a version that was the newest at some moment during the call, or None where the page has none.
    It takes one round where the page has grown by less than ``ahead`` numbers since it was known.
 2. ``swap`` applies ``decide`` to the newest version and stores the result as the next one, or returns what it found
    when ``decide`` declines.  After a lost race, ``decide`` is asked again.  A lost reply is recognised, since no two
    objects are equal: each try of a put is encoded again, with a write id of its own.  A version that was known to be
    the newest less than ``SLOW_S`` ago is taken for the newest without a request: the put after it proves so (b).  If
    ``decide`` declines or raises on such a version, that does not count: ``swap`` looks for the newest version and asks
    again.
 3. No number counts twice.  An object that was put at a number which had been used and deleted before does not count,
    and nobody takes it for the newest.

How
 a. ``KnownPage`` is a version that was proven to be the newest, and a moment before the request that proved it.
 b. A version is deleted once another version exists that is an hour younger, or after a week.  The newest is never
    deleted.  An hour is longer than ``SLOW_S`` and any other delay in between.  So no number above a version that
    became known less than ``SLOW_S`` ago, by both clocks, was deleted.  The first absent number above that version was
    never used.
 c. If the version became known longer ago, the store is asked.  *After* the absent number was seen, or the put has
    landed, the known version must still be there, the very same object.  Versions are deleted in ascending order, so no
    number above it was deleted before.  If it is gone, nothing is known, not even whether a put has landed: the search
    begins with a listing.
 d. A listing is a hint.  A version that it shows is read after the next number was seen to be absent.  The listing does
    not show which object it was.  So reading that version proves the same as in c only while the listing is not long
    ago, by both clocks.  Later, another object may have been put there, and version 1 is there in any case.  Then
    another listing is asked for.
 e. Version 1 is never deleted, so a page without it has no version.  It proves nothing in c.  If it is the only
    version, it is the newest only where a listing shows it.  A listing that is empty, or names a version that is gone,
    is asked again; after that it is ``StoreInconsistent``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lancewal_core.errors import StoreInconsistent
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.object_store import Done, ObjectStore
from lancewal_core.store.versioned import FIRST_VERSION, Family, Version, decided_if, put_until_told

V = TypeVar("V")

SLOW_S = 60.0
"""Seconds after which a version that was the newest is no longer taken for the newest, unless the store is asked (b,
c)."""
_STEPS = 3
"""Number of versions found one after the other, after which a listing is asked for the newest."""
_MORE = 4
"""Smallest number of further version numbers to ask for at once, after a newer version than the known one was found."""
_LISTINGS = 4
"""Largest number of listings that are asked for, while each of them is empty, names a version that is gone, or took too
long."""
_LOST_BEFORE_PAUSE = 3
_LOST_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class ClockMoment:
    """A moment on two clocks.  The monotonic clock stands still while the machine sleeps; the wall clock may be set."""

    monotonic: float
    wall_ms: int

    @staticmethod
    def now(clock: Clock) -> ClockMoment:
        return ClockMoment(clock.monotonic(), clock.now_ms())

    def is_long_ago(self, clock: Clock) -> bool:
        """Return whether the moment is more than ``SLOW_S`` ago by either clock."""
        now = ClockMoment.now(clock)
        return max(now.monotonic - self.monotonic, (now.wall_ms - self.wall_ms) / 1000) > SLOW_S


@dataclass(frozen=True, slots=True)
class KnownPage:
    """A version that was the newest at some moment after ``at``."""

    version: Version
    at: ClockMoment


@dataclass(frozen=True, slots=True)
class Ahead:
    """How many version numbers to ask for.  With ``tasks`` all are requested at once, otherwise one by one, up to the
    first that does not exist.
    """

    numbers: int
    tasks: Tasks | None = None

    def get(self, store: ObjectStore, keys: Sequence[str]) -> list[bytes | None]:
        if self.tasks is not None and len(keys) > 1:
            return self.tasks.map(store.get, keys)
        found = [store.get(keys[0])]
        while found[-1] is not None and len(found) < len(keys):
            found.append(store.get(keys[len(found)]))
        return found


_ONE = Ahead(1)


@dataclass(frozen=True, slots=True)
class PageSwapped(Generic[V]):
    """The swap landed: the stored version has ``value``, the result of ``decide``."""

    known: KnownPage
    value: V


@dataclass(frozen=True, slots=True)
class PageDeclined:
    """Nothing was written, because ``decide`` returned None for ``known``, the newest version."""

    known: KnownPage | None


def newest(
    store: ObjectStore, family: Family, clock: Clock, known: KnownPage | None = None, ahead: Ahead = _ONE
) -> KnownPage | None:
    """Return the newest version (guarantee 1 of the module docstring).  ``known`` is the result of an earlier call.
    ``ahead`` says how many numbers after ``known`` are asked for at once."""
    if known is not None:
        found = _forward(store, family, clock, known, known.version, ahead)
        if found is not None:
            return found
    return _by_listing(store, family, clock, exists=known is not None)


def swap(
    store: ObjectStore,
    family: Family,
    clock: Clock,
    decide: Callable[[KnownPage | None], V | None],
    encode: Callable[[V], bytes],
    known: KnownPage | None = None,
) -> PageSwapped[V] | PageDeclined:
    """Swap a page (guarantee 2 of the module docstring).  ``decide`` may raise, and may be called on a version that
    holds its own value.

    ``encode`` must return different bytes at each call.  Raise ``StoreUnavailable`` if no try got a verdict.  The write
    may still land after that.  The caller then decides again from the newest version, and finds its own value there.
    """
    guessed = known is not None and not known.at.is_long_ago(clock)  # b: decided on what is known, unasked
    current, lost = known if guessed else newest(store, family, clock, known), 0
    while True:
        value = decided_if(decide, current) if guessed else decide(current)
        if value is None:
            if guessed:
                guessed, current = False, newest(store, family, clock, known)
                continue
            return PageDeclined(current)
        guessed = False
        number = FIRST_VERSION if current is None else current.version.version + 1
        began = ClockMoment.now(clock)
        put = _put(store, family.key(number), clock, lambda value=value: encode(value))  # type: ignore[misc] # bound now
        if isinstance(put, bytes):
            if current is None or _none_deleted_after(store, family, clock, current):
                return PageSwapped(KnownPage(Version(number, put), began), value)
            current = _by_listing(store, family, clock, exists=True)
            continue
        lost += 1
        if lost >= _LOST_BEFORE_PAUSE:
            clock.sleep(_LOST_PAUSE_S * 2 ** min(lost - _LOST_BEFORE_PAUSE, 4) * (zlib.crc32(put.ours) % 997) / 997)
        winner = Version(number, put.found)
        if current is None:
            current = newest(store, family, clock)
        else:
            current = _forward(store, family, clock, current, winner) or _by_listing(store, family, clock, exists=True)


@dataclass(frozen=True, slots=True)
class _Race:
    """Another process's object, ``found``, lies at the number where ``ours`` was put.  A caller that continues from
    it checks whether it counts (guarantee 3)."""

    found: bytes
    ours: bytes


def _put(store: ObjectStore, key: str, clock: Clock, encode: Callable[[], bytes]) -> bytes | _Race:
    """Put our bytes.  Return those of the try that landed, or else the race that was lost."""
    tried: list[bytes] = []

    def encoded() -> bytes:
        tried.append(encode())
        return tried[-1]

    outcome = put_until_told(store, key, clock, encoded)
    if isinstance(outcome, Done):
        return tried[-1]
    return outcome.found if outcome.found in tried else _Race(outcome.found, tried[-1])


def _forward(
    store: ObjectStore, family: Family, clock: Clock, base: KnownPage, version: Version, ahead: Ahead = _ONE
) -> KnownPage | None:
    """Return the newest version from ``version`` on, which is ``base`` or was read after it; None if nothing is known
    any more.

    Several numbers are asked at once, and the first absent one ends the search.  No number above the base was deleted.
    So the version before the absent number was the newest when that number was seen to be absent.  Or the version came
    later, and was the newest until that number came.
    """
    steps = 0
    while True:
        asked = ClockMoment.now(clock)
        numbers = range(version.version + 1, version.version + 1 + ahead.numbers)
        found = ahead.get(store, [family.key(number) for number in numbers])
        for number, data in zip(numbers, found, strict=False):  # it may have stopped at the first that is absent
            if data is None:
                return KnownPage(version, asked) if _none_deleted_after(store, family, clock, base) else None
            version = Version(number, data)
        if steps < _STEPS <= steps + ahead.numbers:  # once, when so many were found
            version = _newest_listed(store, family, version)
        steps += ahead.numbers
        ahead = Ahead(max(ahead.numbers, _MORE), ahead.tasks)


def _newest_listed(store: ObjectStore, family: Family, version: Version) -> Version:
    """Return the newest version that a listing shows after ``version``.  If the base is still there, no number up to
    the listed one was deleted."""
    listed = max(_listed(store, family), default=FIRST_VERSION)
    data = store.get(family.key(listed)) if listed > version.version else None
    return version if data is None else Version(listed, data)


def _listed(store: ObjectStore, family: Family) -> list[int]:
    return [v for info in store.list(family.prefix, limit=1) if (v := family.parse(info.key)) is not None]


def _none_deleted_after(store: ObjectStore, family: Family, clock: Clock, known: KnownPage) -> bool:
    """Return whether no number after the known version was deleted before now.  The store is asked only if the version
    became known long ago (b, c)."""
    if not known.at.is_long_ago(clock):
        return True
    if known.version.version == FIRST_VERSION:
        return False
    return store.get(family.key(known.version.version)) == known.version.data


def _by_listing(store: ObjectStore, family: Family, clock: Clock, *, exists: bool) -> KnownPage | None:
    """Return the newest version where nothing is known (d, e).  ``exists`` says that the page has had a version."""
    for _ in range(_LISTINGS):
        began = ClockMoment.now(clock)
        listed = _listed(store, family)
        found = _upward(store, family, clock, max(listed, default=FIRST_VERSION))
        if found is None:
            if not listed and not exists:
                return None
        elif began.is_long_ago(clock):
            continue
        elif listed or found.version.version != FIRST_VERSION:
            return found
    raise StoreInconsistent(
        f"the listing of {family.prefix!r} does not show the page's versions. {_LISTINGS} times it was empty, named a "
        "version that is gone, or was too old when that version was read. The store must list new objects at once",
        object=family.prefix,
    )


def _upward(store: ObjectStore, family: Family, clock: Clock, version: int) -> KnownPage | None:
    """Return the newest version.  The search goes upward from ``version``, which a listing showed; None if that
    version is gone."""
    while True:
        asked = ClockMoment.now(clock)
        following = store.get(family.key(version + 1))
        data = store.get(family.key(version))  # after the other: see d
        if data is None:
            return None
        if following is None:
            return KnownPage(Version(version, data), asked)
        version += 1
