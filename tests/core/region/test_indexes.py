"""Region indexes as read and swapped: remembered, looked for anew after an hour, and never going back."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import Any

import pytest

from lancewal_core import paths
from lancewal_core.errors import ObjectCorrupt, StoreInconsistent
from lancewal_core.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TopicId
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.index import RegionIndex, encode_index
from lancewal_core.region.indexes import KNOWN_FOR_S, IndexRead, RegionIndexes, index_family
from lancewal_core.region.transitions import Claimant, first_claim, reanchor
from lancewal_core.testing.faults import ListFault
from tests.support.scripted import Act, ManualClock, ScriptedStore

REGION = Region("orders", TopicId("topic-id-1"), 3)
OTHER = Region("orders", TopicId("topic-id-1"), 4)
LISTING: tuple[Act, str] = ("list", paths.index_prefix(REGION))


def claimant(sequence: int) -> Claimant:
    return Claimant(OwnerId("o"), LogId("log-o"), Sequence(sequence))


FIRST = first_claim(REGION, 1, Position(7), claimant(0), "w1")


def put_version(store: ScriptedStore, version: int) -> RegionIndex:
    """Version n of an index that is re-anchored all the time."""
    index = FIRST if version == 1 else reanchor(FIRST, Generation(1), claimant(version), f"w{version}")
    assert index is not None
    store.bucket.put(paths.index_version(REGION, version), encode_index(index), 0)
    return index


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> ScriptedStore:
    return ScriptedStore(clock)


@pytest.fixture
def indexes(store: ScriptedStore, clock: ManualClock) -> RegionIndexes:
    return RegionIndexes(store, clock)


def test_the_family_takes_its_own_region_s_keys_only() -> None:
    family = index_family(REGION)
    assert family.parse(family.key(9)) == 9
    assert family.parse(paths.index_version(OTHER, 9)) is None
    assert family.parse(family.prefix + "note.txt") is None


def test_nobody_has_claimed_it_yet(indexes: RegionIndexes) -> None:
    assert indexes.read([REGION]).get(REGION) is None


def test_swaps_build_one_version_after_the_other(store: ScriptedStore, indexes: RegionIndexes) -> None:
    assert indexes.swap({REGION: lambda found: FIRST})[REGION] == (True, FIRST)
    seen: list[RegionIndex | None] = []

    def again(found: RegionIndex | None) -> RegionIndex | None:
        seen.append(found)
        return found and replace(found, write_id="w2")

    assert indexes.swap({REGION: again})[REGION] == (True, replace(FIRST, write_id="w2"))
    assert seen == [FIRST]
    assert indexes.read([REGION]).get(REGION) == replace(FIRST, write_id="w2")
    assert indexes.swap({REGION: lambda found: None})[REGION] == (False, replace(FIRST, write_id="w2"))
    assert len(store.plain.list(paths.index_prefix(REGION))) == 2


def test_within_an_hour_an_index_is_found_without_a_listing(
    store: ScriptedStore, clock: ManualClock, indexes: RegionIndexes
) -> None:
    put_version(store, 1)
    put_version(store, 2)
    indexes.read([REGION]).get(REGION)
    store.calls.clear()
    newest = put_version(store, 3)
    clock.seconds += KNOWN_FOR_S
    assert indexes.read([REGION]).get(REGION) == newest
    assert LISTING not in store.calls
    clock.seconds += KNOWN_FOR_S + 1
    assert indexes.read([REGION]).get(REGION) == newest
    assert store.calls.count(LISTING) == 1


def test_after_an_hour_versions_may_have_been_trimmed_behind_the_known_one(
    store: ScriptedStore, clock: ManualClock, indexes: RegionIndexes
) -> None:
    for version in range(1, 4):
        put_version(store, version)
    indexes.read([REGION]).get(REGION)
    for version in range(2, 8):
        put_version(store, version)
        store.bucket.delete(paths.index_version(REGION, version))
    newest = put_version(store, 8)
    clock.seconds += KNOWN_FOR_S + 1
    assert indexes.read([REGION]).get(REGION) == newest


def test_an_index_never_goes_back(store: ScriptedStore, clock: ManualClock, indexes: RegionIndexes) -> None:
    """Version 1 stays for good; a listing that shows nothing else must not make it the newest."""
    put_version(store, 1)
    for version in (5, 6):
        put_version(store, version)
    assert indexes.read([REGION]).get(REGION) == put_version(store, 6)
    clock.seconds += KNOWN_FOR_S + 1
    hidden = [store.bucket.get(paths.index_version(REGION, v)) for v in (5, 6)]
    for version in (5, 6):
        store.bucket.delete(paths.index_version(REGION, version))
    with pytest.raises(StoreInconsistent, match="version 6"):
        indexes.read([REGION]).get(REGION)
    with pytest.raises(StoreInconsistent, match="version 6"):
        indexes.swap({REGION: lambda found: found})
    for version, data in zip((5, 6), hidden, strict=True):
        store.bucket.put(paths.index_version(REGION, version), data or b"", 0)
    assert indexes.read([REGION]).get(REGION) == put_version(store, 6)


def test_an_empty_listing_does_not_unclaim_a_region(store: ScriptedStore, indexes: RegionIndexes) -> None:
    put_version(store, 1)
    newest = put_version(store, 5)
    store.faults.listings.append(ListFault.PARTIAL)
    assert indexes.read([REGION]).get(REGION) == newest


def test_an_index_of_another_region_is_corrupt(store: ScriptedStore, indexes: RegionIndexes) -> None:
    store.bucket.put(paths.index_version(OTHER, 1), encode_index(FIRST), 0)
    with pytest.raises(ObjectCorrupt, match="another region"):
        indexes.read([OTHER]).get(OTHER)


def claimed(region: Region) -> RegionIndex:
    return first_claim(region, 1, Position(7), claimant(0), "w1")


@pytest.mark.parametrize("beside", [True, False])
def test_many_are_read_at_a_call_and_what_nobody_has_claimed_is_not_among_them(
    store: ScriptedStore, clock: ManualClock, beside: bool
) -> None:
    regions = [Region("orders", TopicId("topic-id-1"), p) for p in range(6)]
    for region in regions[::2]:
        store.bucket.put(paths.index_version(region, 1), encode_index(claimed(region)), 0)
    with closing(ThreadTasks()) as tasks:
        indexes = RegionIndexes(store, clock, tasks if beside else None)
        found = indexes.read(reversed_ := regions[::-1])
        assert list(found) == [region for region in reversed_ if region.partition % 2 == 0]
        assert all(index == claimed(region) for region, index in found.items())
        assert indexes.read([]) == {}
        store.bucket.delete(paths.index_version(regions[2], 1))
        store.bucket.put(paths.index_version(regions[2], 1), b"damaged", 0)
        with pytest.raises(ObjectCorrupt):
            RegionIndexes(store, clock, tasks if beside else None).read(regions)


def test_many_are_swapped_at_a_call_each_with_its_own_answer(store: ScriptedStore, indexes: RegionIndexes) -> None:
    put_version(store, 1)
    found = indexes.swap({OTHER: lambda _: claimed(OTHER), REGION: lambda _: None})
    assert found == {OTHER: (True, claimed(OTHER)), REGION: (False, FIRST)}
    assert indexes.read([REGION, OTHER]) == {REGION: FIRST, OTHER: claimed(OTHER)}


def test_where_one_swap_raises_those_before_it_stay(store: ScriptedStore, indexes: RegionIndexes) -> None:
    def refuse(_: RegionIndex | None) -> RegionIndex | None:
        raise StoreInconsistent("no")

    with pytest.raises(StoreInconsistent, match="no"):
        indexes.swap({OTHER: lambda _: claimed(OTHER), REGION: refuse})
    assert indexes.read([REGION, OTHER]) == {OTHER: claimed(OTHER)}


class Contended:
    """A lock that says that a thread is about to wait for it."""

    def __init__(self, waits: Event) -> None:
        self._lock = Lock()
        self._waits = waits

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waits.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_of_two_threads_the_newer_version_is_remembered(
    store: ScriptedStore, indexes: RegionIndexes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has compared its own with what is known, and the other one, which has a newer, comes in between."""
    put_version(store, 1)
    indexes.read([REGION])
    first = indexes._known[REGION]
    newer = [replace(first, version=replace(first.version, version=version)) for version in (2, 3)]
    done_or_waits = Event()

    def keep_newer() -> None:
        indexes._keep(REGION, newer[1])
        done_or_waits.set()

    other = Thread(target=keep_newer)

    class Known(dict[Region, IndexRead]):
        def get(self, *arguments: Any) -> Any:
            found = super().get(*arguments)
            if other.ident is None:
                other.start()
                done_or_waits.wait()
            return found

    monkeypatch.setattr(indexes, "_lock", Contended(done_or_waits))
    monkeypatch.setattr(indexes, "_known", Known(indexes._known))
    indexes._keep(REGION, newer[0])
    other.join()
    assert indexes._known[REGION].version.version == 3
