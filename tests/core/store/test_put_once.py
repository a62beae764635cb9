"""put_once and those that build on it tell their own object from another's, whatever became of the reply."""

from __future__ import annotations

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.store.object_store import Done, Lost, Unknown, put_new, put_once, put_own
from tests.support.scripted import ManualClock, ScriptedStore
from tests.twins.faults import PutFault

KEY = "_lancewal/x"


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore(ManualClock())


def test_a_put_that_is_stored_reads_nothing_back(store: ScriptedStore) -> None:
    assert put_once(store, KEY, b"ours") == Done()
    assert store.calls == [("put", KEY)]


def test_a_put_again_finds_its_own_object(store: ScriptedStore) -> None:
    store.plain.put_if_absent(KEY, b"ours")
    assert put_once(store, KEY, b"ours") == Done()


def test_another_s_object_is_a_lost_race(store: ScriptedStore) -> None:
    store.plain.put_if_absent(KEY, b"theirs")
    assert put_once(store, KEY, b"ours") == Lost(b"theirs")
    assert store.plain.get(KEY) == b"theirs"


def test_a_lost_reply_of_a_put_that_was_done_is_done(store: ScriptedStore) -> None:
    store.faults.puts.append(PutFault.REPLY_LOST)
    assert put_once(store, KEY, b"ours") == Done()


def test_a_store_that_raises_after_the_effect_is_read_too(store: ScriptedStore) -> None:
    store.fail("put", KEY, after=True)
    assert put_once(store, KEY, b"ours") == Done()


def test_a_lost_reply_over_another_s_object_is_lost(store: ScriptedStore) -> None:
    store.faults.puts.append(PutFault.REPLY_LOST)
    store.plain.put_if_absent(KEY, b"theirs")
    assert put_once(store, KEY, b"ours") == Lost(b"theirs")


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (PutFault.NEVER_ARRIVED, "the request was lost"),
        (PutFault.REFUSED, "the store reports a conflict and shows no object"),
    ],
)
def test_nothing_there_is_unknown_and_may_be_put_again(store: ScriptedStore, fault: PutFault, cause: str) -> None:
    store.faults.puts.append(fault)
    assert put_once(store, KEY, b"ours") == Unknown(cause)
    assert store.plain.get(KEY) is None
    assert put_once(store, KEY, b"ours") == Done()


def test_a_put_that_raises_and_did_nothing_is_unknown(store: ScriptedStore) -> None:
    store.fail("put", KEY)
    assert put_once(store, KEY, b"ours") == Unknown(f"could not put {KEY}: 503")


def test_without_an_answer_to_the_read_it_is_unknown(store: ScriptedStore) -> None:
    """Taken, or without verdict: either way only the object itself could tell."""
    store.plain.put_if_absent(KEY, b"theirs")
    store.fail("get", KEY, times=2)
    assert put_once(store, KEY, b"ours") == Unknown(f"could not get {KEY}: 503")
    store.faults.puts.append(PutFault.REPLY_LOST)
    assert put_once(store, KEY, b"ours") == Unknown(f"could not get {KEY}: 503")


def test_a_put_that_lands_later_is_unknown_until_it_has_landed(store: ScriptedStore) -> None:
    store.faults.puts.append(PutFault.LANDS_LATER)
    store.faults.landing = False
    assert put_once(store, KEY, b"ours") == Unknown("timed out")
    store.faults.landing = True
    assert put_once(store, KEY, b"ours") == Done()


def test_a_put_that_lands_later_may_lose(store: ScriptedStore) -> None:
    store.faults.puts.append(PutFault.LANDS_LATER)
    store.faults.landing = False
    assert put_once(store, KEY, b"ours") == Unknown("timed out")
    store.bucket.put(KEY, b"theirs", 0)
    store.faults.landing = True
    assert put_once(store, KEY, b"ours") == Lost(b"theirs")


def test_put_new_says_done_or_lost_and_stops_without_a_verdict(store: ScriptedStore) -> None:
    assert put_new(store, KEY, b"ours") == Done()
    assert put_new(store, KEY, b"other") == Lost(b"ours")
    store.faults.puts.append(PutFault.NEVER_ARRIVED)
    with pytest.raises(
        StoreUnavailable, match=r"^it is unknown whether _lancewal/y was written: the request was lost; go on$"
    ):
        put_new(store, "_lancewal/y", b"ours", "go on")


def test_put_own_takes_no_other_object_for_its_own(store: ScriptedStore) -> None:
    put_own(store, KEY, b"ours")
    put_own(store, KEY, b"ours")
    with pytest.raises(StoreUnavailable, match=f"^it is unknown whether {KEY} was written: another object lies there$"):
        put_own(store, KEY, b"other")
