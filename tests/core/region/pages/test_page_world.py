"""Random histories of pages: see ``page_world``.  Each mutation takes one rule away, and some seed notices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from lancewal_core.errors import StoreInconsistent
from lancewal_core.region.pages import page_chain
from lancewal_core.region.pages.page_chain import SLOW_S, ClockMoment
from lancewal_core.store import versioned
from lancewal_core.store.object_store import Done, Unknown, put_once
from lancewal_core.store.versioned import FIRST_VERSION
from lancewal_flusher.garbage import find
from tests.core.region.pages.page_world import Violation, World

SEEDS = 12
SWITCHES = 6_000
MUTATION_SEEDS = 60
SLEEPY = partial(World, freezes=0.03)
SWEPT = partial(World, freezes=0.03, sweeps_s=300)
SWEPT_OFTEN = partial(World, sweeps_s=10)
"""Where versions are deleted while somebody sleeps for less than a minute."""
WORLDS: tuple[Callable[[int], World], ...] = (World, SLEEPY, SWEPT, SWEPT_OFTEN)


def test_histories_keep_the_rules() -> None:
    counts: dict[str, int] = {}
    for seed in range(SEEDS):
        world = WORLDS[seed % len(WORLDS)](seed)
        world.run(SWITCHES)
        for event, count in {**world.counts, "strays": world.bucket.strays}.items():
            counts[event] = counts.get(event, 0) + count
    lacking = {"read", "swapped", "declined", "froze", "deleted", "strays", "StoreUnavailable"} - {
        event for event, count in counts.items() if count
    }
    assert not lacking, counts


def never_asked(patch: pytest.MonkeyPatch) -> None:
    """What is known counts however long ago."""
    patch.setattr(ClockMoment, "is_long_ago", lambda self, clock: False)


def monotonic_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClockMoment, "is_long_ago", lambda self, clock: clock.monotonic() - self.monotonic > SLOW_S)


def wall_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClockMoment, "is_long_ago", lambda self, clock: (clock.now_ms() - self.wall_ms) / 1000 > SLOW_S)


def any_object_there(patch: pytest.MonkeyPatch) -> None:
    """The known version is taken to be still there where any object lies at its number."""

    def none_deleted_after(store: Any, family: Any, clock: Any, known: Any) -> bool:
        if not known.at.is_long_ago(clock):
            return True
        if known.version.version == FIRST_VERSION:
            return False
        return store.get(family.key(known.version.version)) is not None

    patch.setattr(page_chain, "_none_deleted_after", none_deleted_after)


def first_version_proves(patch: pytest.MonkeyPatch) -> None:
    def none_deleted_after(store: Any, family: Any, clock: Any, known: Any) -> bool:
        return not known.at.is_long_ago(clock) or store.get(family.key(known.version.version)) == known.version.data

    patch.setattr(page_chain, "_none_deleted_after", none_deleted_after)


def a_listing_counts_for_ever(patch: pytest.MonkeyPatch) -> None:
    """What it has shown is read after days, and is another object, or version 1."""

    def by_listing(store: Any, family: Any, clock: Any, *, exists: bool) -> Any:
        for _ in range(page_chain._LISTINGS):
            listed = page_chain._listed(store, family)
            found = page_chain._upward(store, family, clock, max(listed, default=FIRST_VERSION))
            if found is None and not listed and not exists:
                return None
            if found is not None and (listed or found.version.version != FIRST_VERSION):
                return found
        raise StoreInconsistent("the listing")

    patch.setattr(page_chain, "_by_listing", by_listing)


def a_lost_reply_is_done(patch: pytest.MonkeyPatch) -> None:
    def put(store: Any, key: str, data: bytes) -> Any:
        outcome = put_once(store, key, data)
        return Done() if isinstance(outcome, Unknown) else outcome

    patch.setattr(versioned, "put_once", put)


def the_next_number_is_taken_blindly(patch: pytest.MonkeyPatch) -> None:
    """Who loses a race puts what it has at the next number."""
    real = page_chain._put

    def put(store: Any, key: str, clock: Any, encode: Callable[[], bytes]) -> Any:
        found = real(store, key, clock, encode)
        while not isinstance(found, bytes):
            folder, _, name = key.rpartition("/")
            key = f"{folder}/{int(name.removesuffix('.binpb')) - 1:020d}.binpb"
            found = real(store, key, clock, encode)
        return found

    patch.setattr(page_chain, "_put", put)


def versions_go_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(find, "PAGES_KEPT_MS", 0)


def newest_first(patch: pytest.MonkeyPatch) -> None:
    """Old versions go in descending order, and a collector may freeze in the midst of that."""
    real = find._listed_old_versions
    patch.setattr(find, "_listed_old_versions", lambda *arguments: real(*arguments)[::-1])


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], Callable[[int], World]] = {
    never_asked: SLEEPY,
    monotonic_alone: SLEEPY,
    wall_alone: SLEEPY,
    any_object_there: SWEPT,
    first_version_proves: SLEEPY,
    a_listing_counts_for_ever: SWEPT,
    a_lost_reply_is_done: SLEEPY,
    the_next_number_is_taken_blindly: SLEEPY,
    versions_go_at_once: SWEPT_OFTEN,
    newest_first: SLEEPY,
}
NOTICED_AT: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    a_listing_counts_for_ever: 35,
    versions_go_at_once: 15,
    any_object_there: 11,
}
"""The first seed that notices, for mutations that few notice.  The search begins there."""
"""Each with the worlds in which it shows soon."""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_without_a_rule_some_seed_notices(mutation: Callable[[pytest.MonkeyPatch], None]) -> None:
    """By the rule alone: with it the same history is right."""
    begin = NOTICED_AT.get(mutation, 0)
    for seed in range(begin, begin + MUTATION_SEEDS):
        try:
            with pytest.MonkeyPatch.context() as patch:
                mutation(patch)
                MUTATIONS[mutation](seed).run(SWITCHES)
        except Violation:
            MUTATIONS[mutation](seed).run(SWITCHES)
            return
    pytest.fail(f"none of {MUTATION_SEEDS} seeds from {begin} on notices")
