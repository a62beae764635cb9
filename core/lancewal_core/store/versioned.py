"""Versioned objects: a family of immutable objects, one per version, and the compare-and-swap loop over them.

Version n + 1 is made by put-if-absent; the process that stores it has swapped n for n + 1.  Object names hold the
inverted version, so a store that lists in key order shows the newest first.

Guarantees
 1. ``newest_version`` returns a version that was the newest at some moment during the call, as far as a listing (a
    hint) or the caller's ``known`` leads to it.  From there it probes the next version by GET until one is absent.
    Versions are deleted in ascending order, never version 1 and never the newest 100.  So probing from any version
    but 1 finds the newest, and from version 1 too if version 2 exists.  If only version 1 is found, it must be in a
    listing, unless listings cannot show it (``first_is_listed``).  A listing that is empty, or names a version that
    is gone, is asked again.  If the answers stay like that, ``StoreInconsistent`` is raised.
 2. ``swap`` applies ``decide`` to the newest version and stores the result as the next one, or returns what it found
    when ``decide`` declines.  A lost race decides again.  A lost reply is recognised because every encoded value
    differs (it carries a write id).  A version that the caller knows is taken as the newest without a request: the
    put of the next version shows whether it was.  If ``decide`` declines or raises for a known version, the newest
    version is looked for and decided again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from lancewal_core.errors import StoreInconsistent
from lancewal_core.names.ids import Making
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks, together
from lancewal_core.store.object_store import Done, Lost, ObjectStore, Unknown, no_verdict, put_once

V = TypeVar("V")
K = TypeVar("K")

FIRST_VERSION = 1
_LISTINGS = 4
"""Largest number of listings that are asked for, while each is empty or names a version that is gone."""
_UNKNOWN_TRIES = 8
_UNKNOWN_PAUSE_S = 0.1
_UNKNOWN_S = 15.0
"""Seconds after which no further try begins.  So the caller goes on even if each request hangs until it times out."""


@dataclass(frozen=True, slots=True)
class Family:
    """Keys of all versions of one object."""

    prefix: str
    key: Callable[[int], str]
    parse: Callable[[str], int | None]
    first_is_listed: bool = True
    """Whether a listing of ``prefix`` shows version 1."""

    @staticmethod
    def made(
        making: Making | None,
        prefix: Callable[[Making | None], str],
        key: Callable[[int, Making | None], str],
        parse: Callable[[str], int | None],
    ) -> Family:
        """Return the family of one making's versions.  ``prefix``, ``key`` and ``parse`` are functions of ``paths``."""
        return Family(prefix(making), lambda version: key(version, making), parse)

    @staticmethod
    def of(thing: K, prefix: str, key: Callable[[int], str], parse: Callable[[str], tuple[K, int] | None]) -> Family:
        """Return the family of the versions of ``thing``, such as a page or a cut's name.  ``parse`` returns the
        thing and the version that a key names."""

        def version(text: str) -> int | None:
            found = parse(text)
            return None if found is None or found[0] != thing else found[1]

        return Family(prefix, key, version)


@dataclass(frozen=True, slots=True)
class Version:
    """One version as stored."""

    version: int
    data: bytes


def newest_version(
    store: ObjectStore, family: Family, known: Version | None = None, tasks: Tasks | None = None
) -> Version | None:
    """Return the newest version (guarantee 1), or None if there is none.  ``known``: a version that the caller read
    before.

    With ``tasks``, the version that a listing shows and the next number are read at the same time, which saves one
    round of requests.
    """
    if known is not None and known.version != FIRST_VERSION:
        return _probe(store, family, known)
    for _ in range(_LISTINGS):
        listed = [v for info in store.list(family.prefix, limit=1) if (v := family.parse(info.key)) is not None]
        version = max(listed, default=FIRST_VERSION)
        data, following = _with_next(store, family, version, tasks)
        if data is not None:
            newest = Version(version, data)
            if following is not None or tasks is None:
                newest = _probe(store, family, newest if following is None else Version(version + 1, following))
            if listed or newest.version != FIRST_VERSION or not family.first_is_listed:
                return newest
        elif not listed and known is None:
            return None
    raise StoreInconsistent(
        f"the listing of {family.prefix!r} does not show what is there: {_LISTINGS} times it was empty, or named a "
        "version that is gone. The store must list new objects at once",
        object=family.prefix,
    )


def _with_next(
    store: ObjectStore, family: Family, version: int, tasks: Tasks | None
) -> tuple[bytes | None, bytes | None]:
    """Return a version and, if there are ``tasks``, the next one, read at the same time."""
    if tasks is None:
        return store.get(family.key(version)), None
    return together(tasks, lambda: store.get(family.key(version)), lambda: store.get(family.key(version + 1)))


def newest_behind(store: ObjectStore, family: Family, known: Version | None) -> Version | None:
    """Return the newest version of a family whose versions are never deleted; None if there is none.

    ``known`` is the version that the caller has read, or None if there was none.  A repeated call costs one
    GET as long as there is no newer version."""
    if known is None:
        first = store.get(family.key(FIRST_VERSION))
        if first is None:
            return None
        known = Version(FIRST_VERSION, first)
    return _probe(store, family, known)


def _probe(store: ObjectStore, family: Family, newest: Version) -> Version:
    while (data := store.get(family.key(newest.version + 1))) is not None:
        newest = Version(newest.version + 1, data)
    return newest


def decided_if(decide: Callable[[K], V | None], known: K) -> V | None:
    """Return the decision on a version that may be outdated.  Also return None if ``decide`` raises an error, because
    the caller must then decide on the newest version.
    """
    try:
        return decide(known)
    except Exception:
        return None


@dataclass(frozen=True, slots=True)
class Swapped(Generic[V]):
    """The swap succeeded: ``value`` is stored as ``version``."""

    version: Version
    value: V


@dataclass(frozen=True, slots=True)
class Declined:
    """Nothing was written, because ``decide`` returned None for ``found``, the newest version."""

    found: Version | None


def swap(
    store: ObjectStore,
    family: Family,
    clock: Clock,
    decide: Callable[[Version | None], V | None],
    encode: Callable[[V], bytes],
    known: Version | None = None,
) -> Swapped[V] | Declined:
    """Compare-and-swap (guarantee 2).  ``decide`` may raise.  Raises ``StoreUnavailable`` if no try got a verdict.

    After ``StoreUnavailable`` the write may still land.  The caller then decides again from the newest version, and
    finds its own value there.
    """
    guessed = known is not None and known.version != FIRST_VERSION
    while True:
        current = known if guessed else newest_version(store, family, known)
        known = current
        value = decided_if(decide, current) if guessed else decide(current)
        if value is None:
            if guessed:
                guessed = False
                continue
            return Declined(current)
        guessed = False
        version = FIRST_VERSION if current is None else current.version + 1
        data = encode(value)
        if isinstance(put_until_told(store, family.key(version), clock, lambda data=data: data), Done):  # type: ignore[misc] # bound now
            return Swapped(Version(version, data), value)


def put_until_told(store: ObjectStore, key: str, clock: Clock, encode: Callable[[], bytes]) -> Done | Lost:
    """Put at ``key`` the bytes that ``encode`` returns, and retry until the outcome is known.  ``encode`` is called for
    each attempt.  Raises ``StoreUnavailable`` if no attempt had a known outcome.
    """
    cause, began = "", clock.monotonic()
    for attempt in range(_UNKNOWN_TRIES):
        if clock.monotonic() - began > _UNKNOWN_S:
            break
        outcome = put_once(store, key, encode())
        if not isinstance(outcome, Unknown):
            return outcome
        cause = outcome.cause
        clock.sleep(_UNKNOWN_PAUSE_S * 2**attempt)
    raise no_verdict(key, cause)
