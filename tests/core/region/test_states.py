"""Region indexes as read and swapped: many of a page with one look, each with its own answer, and never going back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import Any

import pytest

from lancewal_core.errors import ObjectCorrupt, StoreInconsistent, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Page, Position, Region, Sequence, TopicId
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region import state as state_module
from lancewal_core.region import states as states_module
from lancewal_core.region.pages.packed_record import pack_record
from lancewal_core.region.pages.page_chain import SLOW_S, ClockMoment, KnownPage
from lancewal_core.region.pages.state_page import PageRecord, StatePage, decode_page, encode_page
from lancewal_core.region.state import RegionState, encode_state
from lancewal_core.region.states import PageLook, RegionStates, page_family, state_in
from lancewal_core.region.transitions import Claimant, first_claim, reanchor, seal
from lancewal_core.store.versioned import Version
from tests.support.scripted import Act, ManualClock, ScriptedStore
from tests.twins.faults import ListFault, PutFault

PER_PAGE = 4
REGION = Region("orders", TopicId("topic-id-1"), 1)
OTHER = Region("orders", TopicId("topic-id-1"), 2)
ELSEWHERE = Region("orders", TopicId("topic-id-1"), 4)
"""In the next page."""
PAGE = Page.of(REGION, PER_PAGE, None)
LISTING: tuple[Act, str] = ("list", paths.page_prefix(PAGE))


def claimant(sequence: int) -> Claimant:
    return Claimant(OwnerId("o"), LogId("log-o"), Sequence(sequence))


def claimed(region: Region, write_id: str = "w1") -> RegionState:
    return first_claim(region, 1, Position(7), claimant(0), write_id)


FIRST = claimed(REGION)


def sealed(state: RegionState, number: int) -> RegionState:
    """With its OPEN generation, which has this number, SEALED, and one more behind."""
    here, end = claimant(number), Position(7 + number)
    found = seal(state, Generation(number), here, end, f"s{number}", record_times=None, now_ms=1, hand_over=False)
    assert found is not None
    return found


def key(version: int) -> str:
    return paths.page_version(PAGE, version)


def page_with(*indexes: RegionState, write_id: str = "p") -> bytes:
    page = StatePage(Page.of(indexes[0].region, PER_PAGE, None), PER_PAGE, write_id, {})
    return encode_page(
        page.with_records({i.region.partition: PageRecord(pack_record(encode_state(i)), 5) for i in indexes})
    )


def put_version(store: ScriptedStore, version: int) -> RegionState:
    """Version n of a page, of an index that is re-anchored all the time."""
    index = FIRST if version == 1 else reanchor(FIRST, Generation(1), claimant(version), f"w{version}")
    assert index is not None
    store.bucket.put(key(version), page_with(index, write_id=f"p{version}"), 0)
    return index


def again(found: RegionState | None, write_id: str = "w2") -> RegionState | None:
    return found and replace(found, write_id=write_id)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> ScriptedStore:
    return ScriptedStore(clock)


@pytest.fixture
def states(store: ScriptedStore, clock: ManualClock) -> RegionStates:
    return RegionStates(store, clock, PER_PAGE, None)


def test_the_family_takes_its_own_page_s_keys_only() -> None:
    family = page_family(PAGE)
    assert family.parse(family.key(9)) == 9
    assert family.parse(paths.page_version(Page.of(ELSEWHERE, PER_PAGE, None), 9)) is None
    assert family.parse(family.prefix + "note.txt") is None


def test_nobody_has_claimed_it_yet(store: ScriptedStore, states: RegionStates) -> None:
    assert states.read([REGION]) == {}
    put_version(store, 1)
    assert states.read([REGION, OTHER]) == {REGION: FIRST}
    assert states.changed_at_ms(REGION) == 5
    assert states.changed_at_ms(OTHER) is None


def test_swaps_build_one_version_after_the_other(
    store: ScriptedStore, clock: ManualClock, states: RegionStates
) -> None:
    assert states.swap({REGION: lambda found: FIRST})[REGION] == (True, FIRST)
    seen: list[RegionState | None] = []

    def noted(found: RegionState | None) -> RegionState | None:
        seen.append(found)
        return again(found)

    clock.seconds += 1
    assert states.swap({REGION: noted})[REGION] == (True, replace(FIRST, write_id="w2"))
    assert seen == [FIRST]
    assert states.read([REGION]).get(REGION) == replace(FIRST, write_id="w2")
    assert states.changed_at_ms(REGION) == clock.now_ms()
    assert states.swap({REGION: lambda found: None})[REGION] == (False, replace(FIRST, write_id="w2"))
    assert len(store.plain.list(paths.page_prefix(PAGE))) == 2


def test_what_was_read_a_moment_ago_costs_one_request(
    store: ScriptedStore, clock: ManualClock, states: RegionStates
) -> None:
    put_version(store, 1)
    put_version(store, 2)
    states.read([REGION])
    store.calls.clear()
    clock.seconds += SLOW_S
    states.read([REGION, OTHER])
    assert store.calls == [("get", key(3))]
    store.calls.clear()
    newest = put_version(store, 3)
    clock.seconds += SLOW_S + 1
    assert states.read([REGION])[REGION] == newest
    # Longer ago it is asked whether what is known is still there; no listing.
    assert store.calls == [("get", key(3)), ("get", key(4)), ("get", key(2))]


def test_who_has_just_read_swaps_by_one_put(store: ScriptedStore, clock: ManualClock, states: RegionStates) -> None:
    put_version(store, 1)
    assert states.read([REGION])
    store.calls.clear()
    assert states.swap({REGION: again})[REGION].ours
    assert store.calls == [("put", key(2))]
    clock.seconds += SLOW_S + 1
    store.calls.clear()
    assert states.swap({REGION: lambda found: again(found, "w3")})[REGION].ours
    assert store.calls[0] == ("get", key(3)), "what is known since long is asked for first"


def test_of_a_long_index_only_what_is_new_is_taken_apart_and_put_together(
    store: ScriptedStore, clock: ManualClock, states: RegionStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a plan or a swap over a thousand regions of some sixty generations each is one over a few thousand."""
    index = {region: claimed(region) for region in (REGION, OTHER)}
    for number in range(1, 40):
        index = {region: sealed(found, number) for region, found in index.items()}
    store.bucket.put(key(1), page_with(*index.values()), 0)
    states.read(index.keys())
    counted: Counter[str] = Counter()
    for name in ("_decode_generation", "_encode_generation"):
        whole = getattr(state_module, name)

        def noting(*arguments: Any, name: str = name, whole: Any = whole) -> Any:
            counted[name] += 1
            return whole(*arguments)

        monkeypatch.setattr(state_module, name, noting)
    swapped = states.swap({region: lambda found: found and sealed(found, 40) for region in index})
    found = states.read(index.keys())
    assert found == {region: swap.found for region, swap in swapped.items()}
    assert all(len(one.generations) == 41 for one in found.values())
    assert counted == {"_encode_generation": 4, "_decode_generation": 4}, "one is SEALED, and one is opened behind it"


@pytest.mark.parametrize("raises", [False, True])
def test_declining_an_outdated_index_does_not_count(store: ScriptedStore, states: RegionStates, raises: bool) -> None:
    put_version(store, 1)
    assert states.read([REGION]) == {REGION: FIRST}
    newest = put_version(store, 2)

    def decide(found: RegionState | None) -> RegionState | None:
        if found == FIRST and raises:
            raise ValueError("it is outdated")
        return again(found, "ours") if found == newest else None

    ours, found = states.swap({REGION: decide})[REGION]
    assert ours
    assert found == again(newest, "ours")


@pytest.mark.parametrize("shown", ["newest", "nothing"])
def test_who_is_far_behind_goes_by_a_listing_once(
    store: ScriptedStore, clock: ManualClock, states: RegionStates, shown: str
) -> None:
    put_version(store, 1)
    put_version(store, 2)
    states.read([REGION])
    for version in range(3, 40):
        put_version(store, version)
    store.calls.clear()
    if shown == "nothing":
        store.faults.listings.append(ListFault.PARTIAL)
    assert states.read([REGION])[REGION] == put_version(store, 39)
    assert store.calls.count(LISTING) == 1
    assert len(store.calls) == (1 + 4 + 1 + 2 if shown == "newest" else 37 + 1 + 1)


def asked_at_once(store: ScriptedStore, states: RegionStates, newest: int, look: PageLook = PageLook.AHEAD) -> int:
    """Numbers that a read has asked for, which shows version ``newest``."""
    store.calls.clear()
    assert states.read([REGION], look)[REGION] == put_version(store, newest)
    assert all(call == "get" for call, _ in store.calls)
    return len(store.calls)


def test_a_page_is_asked_for_as_many_numbers_as_it_grows_by(store: ScriptedStore, clock: ManualClock) -> None:
    with closing(ThreadTasks(2, 2)) as tasks:
        indexes = RegionStates(store, clock, PER_PAGE, None, tasks)
        put_version(store, 1)
        indexes.read([REGION])
        for version in (2, 3, 4):
            put_version(store, version)
        assert asked_at_once(store, indexes, 4) == 1 + 4  # one, and behind what it shows some at once
        for version in (5, 6, 7):
            put_version(store, version)
        assert asked_at_once(store, indexes, 7) == 3 + 2
        assert asked_at_once(store, indexes, 7, PageLook.AGAIN) == 1
        assert asked_at_once(store, indexes, 7) == 3 + 2
        assert asked_at_once(store, indexes, 7) == 1 + 2
        assert asked_at_once(store, indexes, 7) == 1


@pytest.mark.parametrize("more", [0, 1, 40])
def test_a_seldom_look_takes_three_requests_however_much_a_page_grew(
    store: ScriptedStore, states: RegionStates, more: int
) -> None:
    put_version(store, 1)
    states.read([REGION])
    for version in range(2, 3 + more):
        put_version(store, version)
    store.calls.clear()
    assert states.read([REGION], PageLook.SELDOM)[REGION] == put_version(store, 2 + more)
    assert store.calls == [LISTING, ("get", key(3 + more)), ("get", key(2 + more))]
    assert asked_at_once(store, states, 2 + more, PageLook.AGAIN) == 1


def test_a_seldom_look_at_a_page_that_nobody_made(store: ScriptedStore, states: RegionStates) -> None:
    assert states.read([REGION], PageLook.SELDOM) == {}


@pytest.mark.parametrize("stands", ["monotonic", "wall"])
def test_a_process_that_slept_goes_by_a_listing_where_what_it_knows_is_gone(
    store: ScriptedStore, clock: ManualClock, states: RegionStates, stands: str
) -> None:
    for version in (1, 2, 3):
        put_version(store, version)
    states.read([REGION])
    for version in range(4, 8):
        put_version(store, version)
    for version in range(2, 7):
        store.bucket.delete(key(version))
    if stands == "wall":
        clock.epoch_ms -= 3_600_000
        clock.seconds += 3_600
    else:
        clock.epoch_ms += 3_600_000
    store.calls.clear()
    assert states.read([REGION])[REGION] == put_version(store, 7)
    assert LISTING in store.calls


def test_what_is_put_at_a_number_used_before_does_not_count(
    store: ScriptedStore, clock: ManualClock, states: RegionStates
) -> None:
    """Between the look and the put days go by, and what was known, and what followed, is deleted."""
    put_version(store, 1)
    put_version(store, 2)
    seen: list[RegionState | None] = []

    def sleep() -> None:
        for version in range(3, 9):
            put_version(store, version)
        for version in range(2, 8):
            store.bucket.delete(key(version))
        clock.seconds += 3 * 3600

    def noted(found: RegionState | None) -> RegionState | None:
        seen.append(found)
        return again(found, f"mine{len(seen)}")

    store.before("put", key(3), sleep)
    swapped = states.swap({REGION: noted})[REGION]
    eighth = put_version(store, 8)
    assert seen[1] == eighth
    newest = replace(eighth, write_id="mine2")
    assert swapped == (True, newest)
    assert state_in(decode_page(store.bucket.get(key(9)) or b"", key(9)), REGION, key(9)) == newest
    assert store.bucket.get(key(3)) is not None  # a stray: below what is there
    assert RegionStates(store, clock, PER_PAGE, None).read([REGION])[REGION] == newest


def test_what_landed_but_cannot_be_proven_is_found_by_its_write_id(
    store: ScriptedStore, clock: ManualClock, states: RegionStates
) -> None:
    """Another has gone on from it, and what it followed is gone: it is not decided anew."""
    put_version(store, 1)
    second = put_version(store, 2)
    decided: list[RegionState | None] = []

    def sleep() -> None:
        RegionStates(store.plain, clock, PER_PAGE, None).swap({OTHER: lambda _: claimed(OTHER)})
        store.bucket.delete(key(2))
        clock.seconds += 3 * 3600

    def noted(found: RegionState | None) -> RegionState | None:
        decided.append(found)
        return again(found)

    store.after("put", key(3), sleep)
    assert states.swap({REGION: noted})[REGION] == (True, again(second))
    assert len(decided) == 1
    assert len(store.plain.list(paths.page_prefix(PAGE))) == 3


@pytest.mark.parametrize("fault", [PutFault.REPLY_LOST, PutFault.NEVER_ARRIVED, PutFault.REFUSED])
def test_a_lost_reply_of_a_swap_of_many_is_recognised(
    store: ScriptedStore, states: RegionStates, fault: PutFault
) -> None:
    put_version(store, 1)
    store.faults.puts.append(fault)
    found = states.swap({REGION: again, OTHER: lambda _: claimed(OTHER)})
    assert found == {REGION: (True, again(FIRST)), OTHER: (True, claimed(OTHER))}
    assert len(store.plain.list(paths.page_prefix(PAGE))) == 2


def test_a_put_that_lands_after_its_next_try_is_the_same_swap(store: ScriptedStore, states: RegionStates) -> None:
    """Each try has a write id of its own, and any of them means that it landed."""
    put_version(store, 1)
    store.faults.puts.append(PutFault.LANDS_LATER)
    store.faults.landing = False
    store.before("put", key(2), lambda: None)
    store.before("put", key(2), lambda: setattr(store.faults, "landing", True))
    assert states.swap({REGION: again})[REGION] == (True, again(FIRST))
    assert len(store.plain.list(paths.page_prefix(PAGE))) == 2


def test_no_verdict_leaves_each_region_undecided(store: ScriptedStore, states: RegionStates) -> None:
    put_version(store, 1)
    store.faults.puts.extend([PutFault.NEVER_ARRIVED] * 8)
    with pytest.raises(StoreUnavailable, match="it is unknown whether"):
        states.swap({REGION: again, OTHER: lambda _: claimed(OTHER)})
    assert states.read([REGION, OTHER]) == {REGION: FIRST}
    assert states.swap({REGION: again})[REGION].ours


def test_two_owners_in_a_page_lose_nothing_to_each_other(
    store: ScriptedStore, clock: ManualClock, states: RegionStates
) -> None:
    put_version(store, 1)
    another = RegionStates(store.plain, clock, PER_PAGE, None)
    store.before("put", key(2), lambda: another.swap({OTHER: lambda _: claimed(OTHER)}))
    store.before("put", key(3), lambda: another.swap({OTHER: again}))
    assert states.swap({REGION: again})[REGION] == (True, again(FIRST))
    expected = {REGION: again(FIRST), OTHER: again(claimed(OTHER))}
    assert states.read([REGION, OTHER]) == another.read([REGION, OTHER]) == expected


def test_who_loses_again_and_again_waits_a_little(
    store: ScriptedStore, clock: ManualClock, states: RegionStates
) -> None:
    put_version(store, 1)
    another = RegionStates(store.plain, clock, PER_PAGE, None)
    for version in range(2, 5):
        store.before("put", key(version), lambda: another.swap({OTHER: lambda found: again(found) or claimed(OTHER)}))
    assert states.swap({REGION: again})[REGION].ours
    assert 0 < clock.seconds < 0.1


def test_an_index_never_goes_back(store: ScriptedStore, clock: ManualClock, states: RegionStates) -> None:
    """Version 1 stays for good; a listing that shows nothing else must not make it the newest."""
    for version in (1, 5, 6):
        put_version(store, version)
    assert states.read([REGION])[REGION] == put_version(store, 6)
    clock.seconds += SLOW_S + 1
    hidden = [store.bucket.get(key(v)) for v in (5, 6)]
    for version in (5, 6):
        store.bucket.delete(key(version))
    with pytest.raises(StoreInconsistent, match="version 6"):
        states.read([REGION])
    with pytest.raises(StoreInconsistent, match="version 6"):
        states.swap({REGION: lambda found: found})
    for version, data in zip((5, 6), hidden, strict=True):
        store.bucket.put(key(version), data or b"", 0)
    assert states.read([REGION])[REGION] == put_version(store, 6)


def test_an_empty_listing_does_not_unclaim_a_region(store: ScriptedStore, states: RegionStates) -> None:
    put_version(store, 1)
    newest = put_version(store, 5)
    store.faults.listings.append(ListFault.PARTIAL)
    assert states.read([REGION])[REGION] == newest


def test_what_a_listing_shows_is_read_behind_the_number_that_is_absent(
    store: ScriptedStore, states: RegionStates
) -> None:
    """It is the newest only where it is still there then: meanwhile it may have been deleted, with all that followed."""
    put_version(store, 1)
    put_version(store, 5)

    def goes_on() -> None:
        for version in range(6, 9):
            put_version(store, version)
        for version in range(5, 8):
            store.bucket.delete(key(version))

    store.before("get", key(6), goes_on)
    assert states.read([REGION])[REGION] == put_version(store, 8)


@pytest.mark.parametrize("shown", [1, 5])
def test_who_slept_behind_a_listing_asks_for_another(
    store: ScriptedStore, clock: ManualClock, states: RegionStates, shown: int
) -> None:
    """Version 1 is there for good, and at any other number another process that slept may have put a stray."""
    put_version(store, 1)
    put_version(store, shown)

    def sleep() -> None:
        for version in range(shown + 1, shown + 4):
            put_version(store, version)
        for version in range(max(shown, 2), shown + 3):
            store.bucket.delete(key(version))
        store.bucket.put(key(shown), page_with(replace(FIRST, write_id="astray"), write_id="s"), 0)
        clock.seconds += 2 * 3600

    store.before("get", key(shown + 1), sleep)
    seen: list[RegionState | None] = []

    def noted(found: RegionState | None) -> RegionState | None:
        seen.append(found)
        return again(found)

    assert states.swap({REGION: noted})[REGION].ours
    assert seen == [put_version(store, shown + 3)]
    assert store.bucket.get(key(shown + 4)) is not None


def test_a_page_of_another_number_of_regions_is_refused(store: ScriptedStore, clock: ManualClock) -> None:
    put_version(store, 1)
    with pytest.raises(StoreInconsistent, match="has 4 regions a page, the contract says 2"):
        RegionStates(store, clock, 2, None).read([replace(REGION, partition=0)])


@pytest.mark.parametrize("beside", [True, False])
def test_many_are_read_at_a_call_and_what_nobody_has_claimed_is_not_among_them(
    store: ScriptedStore, clock: ManualClock, beside: bool
) -> None:
    regions = [Region("orders", TopicId("topic-id-1"), p) for p in range(10)]
    for page in {Page.of(region, PER_PAGE, None) for region in regions}:
        inside = [claimed(region) for region in regions[::2] if Page.of(region, PER_PAGE, None) == page]
        store.bucket.put(paths.page_version(page, 1), page_with(*inside), 0)
    with closing(ThreadTasks()) as tasks:
        indexes = RegionStates(store, clock, PER_PAGE, None, tasks if beside else None)
        found = indexes.read(reversed_ := regions[::-1])
        assert list(found) == [region for region in reversed_ if region.partition % 2 == 0]
        assert all(index == claimed(region) for region, index in found.items())
        assert len(store.calls) == 3 * 3  # a listing and two looks a page
        assert indexes.read([]) == {}
        store.bucket.delete(key(1))
        store.bucket.put(key(1), b"damaged", 0)
        with pytest.raises(ObjectCorrupt):
            RegionStates(store, clock, PER_PAGE, None, tasks if beside else None).read(regions)


def test_many_are_swapped_at_a_call_each_with_its_own_answer(store: ScriptedStore, states: RegionStates) -> None:
    put_version(store, 1)
    store.calls.clear()
    found = states.swap(
        {ELSEWHERE: lambda _: claimed(ELSEWHERE), OTHER: lambda _: claimed(OTHER), REGION: lambda _: None}
    )
    assert list(found) == [ELSEWHERE, OTHER, REGION]
    assert found == {ELSEWHERE: (True, claimed(ELSEWHERE)), OTHER: (True, claimed(OTHER)), REGION: (False, FIRST)}
    assert [what for act, what in store.calls if act == "put"] == [
        paths.page_version(Page.of(ELSEWHERE, PER_PAGE, None), 1), key(2),
    ]  # fmt: skip
    assert states.read([REGION, OTHER]) == {REGION: FIRST, OTHER: claimed(OTHER)}


def test_where_one_swap_raises_the_others_are_done(store: ScriptedStore, states: RegionStates) -> None:
    def refuse(_: RegionState | None) -> RegionState | None:
        raise StoreInconsistent("no")

    with pytest.raises(StoreInconsistent, match="no"):
        states.swap({REGION: refuse, OTHER: lambda _: claimed(OTHER)})
    assert states.read([REGION, OTHER]) == {OTHER: claimed(OTHER)}


def damage(data: bytes, region: Region) -> bytes:
    page = decode_page(data, "there")
    record = page.records[region.partition]
    return encode_page(page.with_records({region.partition: replace(record, data=record.data[:-1] + b"?")}))


def lose(data: bytes, region: Region) -> bytes:
    page = decode_page(data, "there")
    return encode_page(page.with_records({region.partition: PageRecord(b"", 1)}))


@pytest.mark.parametrize("harm", [damage, lose])
def test_a_damaged_record_is_its_region_s_alone(
    store: ScriptedStore, states: RegionStates, harm: Callable[[bytes, Region], bytes]
) -> None:
    store.bucket.put(key(1), harm(page_with(FIRST, claimed(OTHER)), REGION), 0)
    broken = decode_page(store.bucket.get(key(1)) or b"", key(1)).records[REGION.partition]
    assert states.read([OTHER]) == {OTHER: claimed(OTHER)}
    with pytest.raises(ObjectCorrupt, match="lancewal repair region") as caught:
        states.read([REGION])
    assert caught.value.where["object"] == key(1)
    with pytest.raises(ObjectCorrupt):
        states.swap({REGION: again, OTHER: again})
    assert states.read([OTHER]) == {OTHER: again(claimed(OTHER))}
    assert decode_page(store.bucket.get(key(2)) or b"", key(2)).records[REGION.partition] == broken


def test_each_answers_by_itself(store: ScriptedStore, states: RegionStates) -> None:
    """A damaged record, a decision that fails, one that declines, and a page without a verdict."""
    regions = [Region("orders", TopicId("topic-id-1"), p) for p in range(4)]
    damaged, failing, declining, going_on = regions
    store.bucket.put(key(1), damage(page_with(*map(claimed, regions)), damaged), 0)

    def refuse(_: RegionState | None) -> RegionState | None:
        raise StoreInconsistent("no")

    store.faults.puts.extend([PutFault.NEVER_ARRIVED] * 8)
    found = states.swap_each(
        {
            ELSEWHERE: lambda _: claimed(ELSEWHERE),
            going_on: again,
            failing: refuse,
            declining: lambda _: None,
            damaged: again,
        }
    )
    assert list(found) == [ELSEWHERE, going_on, failing, declining, damaged]
    assert isinstance(found.pop(ELSEWHERE), StoreUnavailable)
    assert isinstance(found.pop(failing), StoreInconsistent)
    assert isinstance(found.pop(damaged), ObjectCorrupt)
    assert found == {going_on: (True, again(claimed(going_on))), declining: (False, claimed(declining))}
    read = states.read_each([ELSEWHERE, damaged, going_on])
    assert list(read) == [ELSEWHERE, damaged, going_on]
    assert isinstance(read.pop(damaged), ObjectCorrupt)
    assert read == {ELSEWHERE: None, going_on: again(claimed(going_on))}


def test_a_page_that_cannot_be_read_is_the_answer_of_its_regions(store: ScriptedStore, states: RegionStates) -> None:
    store.bucket.put(key(1), b"damaged", 0)
    for answers in (
        states.read_each([REGION, OTHER, ELSEWHERE]),
        states.swap_each({REGION: again, OTHER: again, ELSEWHERE: lambda _: None}),
    ):
        assert isinstance(answers[REGION], ObjectCorrupt)
        assert answers[REGION] is answers[OTHER]
        assert answers[ELSEWHERE] in (None, (False, None))


def test_in_a_page_that_is_too_large_other_changes_go_on(
    store: ScriptedStore, states: RegionStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_version(store, 1)
    monkeypatch.setattr(states_module, "OPENED_BELOW", 10)
    with pytest.raises(ObjectCorrupt, match="with one generation more than now"):
        states.swap({OTHER: lambda _: claimed(OTHER), REGION: again})
    assert states.read([OTHER, REGION]) == {REGION: again(FIRST)}


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
    store: ScriptedStore, states: RegionStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has compared its own with what is known, and the other one, which has a newer, comes in between."""
    put_version(store, 1)
    states.read([REGION])
    newer = [
        KnownPage(Version(version, page_with(FIRST, write_id=f"p{version}")), ClockMoment(0.0, 0)) for version in (2, 3)
    ]
    done_or_waits = Event()
    asked: list[object] = []

    def keep_newer() -> None:
        states._remember(PAGE, newer[1])
        done_or_waits.set()

    other = Thread(target=keep_newer)

    class Slow(dict[Page, Any]):
        def get(self, *arguments: Any) -> Any:
            found = super().get(*arguments)
            asked.append(found)
            if len(asked) == 2 and other.ident is None:  # the comparison right before it is remembered
                other.start()
                done_or_waits.wait()
            return found

    monkeypatch.setattr(states, "_lock", Contended(done_or_waits))
    monkeypatch.setattr(states, "_known", Slow(states._known))
    states._remember(PAGE, newer[0])
    other.join()
    assert states._known[PAGE].known.version.version == 3
