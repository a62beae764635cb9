"""Versioned objects: the newest is found through bad listings, and of competing writers each effect happens once."""

from __future__ import annotations

import random
from functools import partial

import pytest

from lancewal_core.errors import StoreInconsistent, StoreUnavailable
from lancewal_core.names.paths import inverted_version
from lancewal_core.store.versioned import Declined, Family, Swapped, Version, newest_version, swap
from tests.support.scripted import ManualClock, ScriptedStore
from tests.twins.faults import ListFault, PutFault, RandomFaults, Rates
from tests.twins.memory_store import MemoryBucket, MemoryStore
from tests.twins.scheduler import Scheduler
from tests.twins.sim_clock import SimClock

PREFIX = "_lancewal/thing/"


def key(version: int) -> str:
    return f"{PREFIX}{inverted_version(version)}"


def _parse(text: str) -> int | None:
    tail = text.removeprefix(PREFIX)
    return 2**64 - 1 - int(tail) if tail.isdigit() else None


FAMILY = Family(PREFIX, key, _parse)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> ScriptedStore:
    return ScriptedStore(clock)


def fill(store: ScriptedStore, *versions: int) -> None:
    for version in versions:
        store.plain.put_if_absent(key(version), f"v{version}".encode())


def at(version: int) -> Version:
    return Version(version, f"v{version}".encode())


# -- finding the newest ------------------------------------------------------------------------------------------


def test_no_version(store: ScriptedStore) -> None:
    assert newest_version(store, FAMILY) is None


def test_the_listing_leads_to_the_newest_with_one_probe(store: ScriptedStore) -> None:
    fill(store, *range(1, 40))
    assert newest_version(store, FAMILY) == at(39)
    assert store.calls == [("list", PREFIX), ("get", key(39)), ("get", key(40))]


def test_foreign_objects_are_passed_over(store: ScriptedStore) -> None:
    fill(store, 1, 2, 3)
    store.plain.put_if_absent(f"{PREFIX}zzz.tmp", b"?")
    assert newest_version(store, FAMILY) == at(3)


@pytest.mark.parametrize("fault", [ListFault.STALE, ListFault.PARTIAL, ListFault.NONE])
def test_probing_makes_up_for_a_listing_that_is_behind(store: ScriptedStore, fault: ListFault) -> None:
    """STALE hides the newest twenty, PARTIAL (here) everything."""
    fill(store, *range(1, 40))
    store.faults.listings.append(fault)
    assert newest_version(store, FAMILY) == at(39)


def test_what_the_caller_knows_needs_no_listing(store: ScriptedStore) -> None:
    fill(store, *range(10, 15))
    assert newest_version(store, FAMILY, at(12)) == at(14)
    assert ("list", PREFIX) not in store.calls


def test_from_version_one_only_a_listing_leads_over_trimmed_versions(store: ScriptedStore) -> None:
    fill(store, 1, *range(50, 60))
    assert newest_version(store, FAMILY, at(1)) == at(59)
    assert newest_version(store, FAMILY) == at(59)


def test_an_empty_listing_is_not_believed_where_version_one_is(store: ScriptedStore) -> None:
    fill(store, 1, *range(50, 60))
    store.faults.listings.extend([ListFault.PARTIAL] * 2)
    assert newest_version(store, FAMILY) == at(59)
    store.faults.listings.extend([ListFault.PARTIAL] * 100)
    with pytest.raises(StoreInconsistent, match=PREFIX):
        newest_version(store, FAMILY)
    with pytest.raises(StoreInconsistent, match=PREFIX):
        newest_version(store, FAMILY, at(1))


def test_an_empty_listing_is_enough_where_nothing_was_trimmed(store: ScriptedStore) -> None:
    """Versions are deleted in ascending order: while version 2 is there, none is missing."""
    fill(store, 1, 2, 3)
    store.faults.listings.extend([ListFault.PARTIAL] * 100)
    assert newest_version(store, FAMILY) == at(3)


def test_a_listed_version_that_is_gone_is_no_proof_of_absence(store: ScriptedStore) -> None:
    fill(store, 1, *range(3, 30))
    store.before("get", key(29), lambda: store.bucket.delete(key(29)))
    assert newest_version(store, FAMILY) == at(28)


def test_an_unanswered_probe_is_an_error_never_an_older_version(store: ScriptedStore) -> None:
    fill(store, 1, 2, 3)
    store.fail("get", key(4))
    with pytest.raises(StoreUnavailable):
        newest_version(store, FAMILY)


# -- compare-and-swap --------------------------------------------------------------------------------------------


class Appending:
    """Each value is the one before plus our name: what is stored shows every swap that took effect."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[str | None] = []

    def __call__(self, found: Version | None) -> str | None:
        before = None if found is None else found.data.decode()
        self.seen.append(before)
        return f"{before or ''}{self.name}{len(self.seen)};"


def encode(value: str) -> bytes:
    return value.encode()


def test_the_first_swap_makes_version_one_and_the_next_two(store: ScriptedStore, clock: ManualClock) -> None:
    assert swap(store, FAMILY, clock, Appending("a"), encode) == Swapped(Version(1, b"a1;"), "a1;")
    assert swap(store, FAMILY, clock, Appending("b"), encode) == Swapped(Version(2, b"a1;b1;"), "a1;b1;")
    assert clock.seconds == 0


def test_declining_writes_nothing(store: ScriptedStore, clock: ManualClock) -> None:
    fill(store, 1)
    assert swap(store, FAMILY, clock, lambda found: None, encode) == Declined(at(1))
    assert [act for act, _ in store.calls if act == "put"] == []


def test_a_write_in_between_is_seen_before_ours(store: ScriptedStore, clock: ManualClock) -> None:
    fill(store, 1)
    store.before("put", key(2), lambda: store.plain.put_if_absent(key(2), b"theirs;"))
    ours = Appending("a")
    assert swap(store, FAMILY, clock, ours, encode) == Swapped(Version(3, b"theirs;a2;"), "theirs;a2;")
    assert ours.seen == ["v1", "theirs;"]


def test_a_version_that_the_caller_knows_is_taken_for_the_newest(store: ScriptedStore, clock: ManualClock) -> None:
    fill(store, 1, 2)
    assert swap(store, FAMILY, clock, Appending("a"), encode, at(2)) == Swapped(Version(3, b"v2a1;"), "v2a1;")
    assert store.calls == [("put", key(3))]


def test_one_that_is_outdated_loses(store: ScriptedStore, clock: ManualClock) -> None:
    fill(store, 1, 2, 3)
    ours = Appending("a")
    assert swap(store, FAMILY, clock, ours, encode, at(2)) == Swapped(Version(4, b"v3a2;"), "v3a2;")
    assert ours.seen == ["v2", "v3"]


@pytest.mark.parametrize("raises", [False, True])
def test_declining_an_outdated_version_does_not_count(store: ScriptedStore, clock: ManualClock, raises: bool) -> None:
    fill(store, 1, 2, 3)

    def decide(found: Version | None) -> str | None:
        if found == at(2) and raises:
            raise ValueError("it is outdated")
        return "ours" if found == at(3) else None

    assert swap(store, FAMILY, clock, decide, encode, at(2)) == Swapped(Version(4, b"ours"), "ours")
    assert swap(store, FAMILY, clock, decide, encode, at(2)) == Declined(Version(4, b"ours"))


@pytest.mark.parametrize(
    "fault", [PutFault.REPLY_LOST, PutFault.NEVER_ARRIVED, PutFault.REFUSED, PutFault.LANDS_LATER], ids=lambda f: f.name
)
def test_no_verdict_once_is_settled_with_the_same_value(
    store: ScriptedStore, clock: ManualClock, fault: PutFault
) -> None:
    fill(store, 1)
    store.faults.puts.append(fault)
    ours = Appending("a")
    assert swap(store, FAMILY, clock, ours, encode) == Swapped(Version(2, b"v1a1;"), "v1a1;")
    assert len(ours.seen) == 1
    assert store.plain.get(key(3)) is None


def test_no_verdict_and_then_another_s_write_decides_again(store: ScriptedStore, clock: ManualClock) -> None:
    store.faults.puts.append(PutFault.NEVER_ARRIVED)
    store.after("get", key(1), lambda: store.plain.put_if_absent(key(1), b"theirs;"), times=3)
    ours = Appending("a")
    outcome = swap(store, FAMILY, clock, ours, encode)
    assert outcome == Swapped(Version(2, b"theirs;a2;"), "theirs;a2;")


def test_without_a_verdict_for_long_the_store_is_unavailable(store: ScriptedStore, clock: ManualClock) -> None:
    fill(store, 1)
    store.faults.puts.extend([PutFault.NEVER_ARRIVED] * 100)
    with pytest.raises(StoreUnavailable, match=key(2)):
        swap(store, FAMILY, clock, Appending("a"), encode)
    assert 1 < clock.seconds < 120
    assert store.plain.get(key(2)) is None


def test_what_landed_after_giving_up_is_what_the_next_decision_sees(store: ScriptedStore, clock: ManualClock) -> None:
    fill(store, 1)
    store.faults.puts.extend([PutFault.LANDS_LATER, *[PutFault.NEVER_ARRIVED] * 20])
    store.faults.landing = False
    with pytest.raises(StoreUnavailable):
        swap(store, FAMILY, clock, Appending("a"), encode)
    store.faults.puts.clear()
    store.faults.landing = True
    found = swap(store, FAMILY, clock, lambda v: None if v is not None and v.data == b"v1a1;" else "again", encode)
    assert found == Declined(Version(2, b"v1a1;"))


@pytest.mark.parametrize("seed", range(10))
def test_racing_swaps_each_take_effect_once(seed: int) -> None:
    """Under lost replies, late puts and bad listings; a swap that gave up may have happened, once."""
    rng = random.Random(seed)
    scheduler = Scheduler(str(seed), stay=rng.choice([0.0, 0.5, 0.9]))
    clock = SimClock(scheduler)
    bucket = MemoryBucket()
    swapped: list[str] = []
    over: list[str] = []

    def work(name: str) -> None:
        faults = RandomFaults(random.Random(f"{seed}{name}"), Rates(put=0.3, unavailable=0.0, lands=0.3))
        store = MemoryStore(clock, bucket, faults, scheduler.switch)
        for turn in range(8):
            ours = f"{name}{turn};"

            def decide(found: Version | None, ours: str = ours) -> str:
                return ("" if found is None else found.data.decode()) + ours

            outcome = swap(store, FAMILY, clock, decide, encode)
            assert isinstance(outcome, Swapped)
            swapped.append(ours)
        over.append(name)

    for name in "abcd":
        scheduler.spawn(name, partial(work, name))
    scheduler.run(lambda: len(over) == 4, 50_000)
    newest = bucket.get(key(32))
    assert newest is not None
    assert bucket.get(key(33)) is None
    assert sorted(newest.decode().split(";")[:-1]) == sorted(s.rstrip(";") for s in swapped)
    assert all(newest.startswith(bucket.get(key(v)) or b"?") for v in range(1, 33))
