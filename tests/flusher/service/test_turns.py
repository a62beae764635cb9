"""When turns are due, and what they say of damage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Event
from typing import Any, NoReturn

import pytest

from lancewal_core.errors import InvalidInput, ObjectCorrupt, Problem, StoreUnavailable
from lancewal_core.process.tasks import ThreadTasks
from lancewal_flusher.service import turns as module
from lancewal_flusher.service.turns import Turn, TurnFailed, Turns
from tests.support.scripted import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def turn_of(clock: ManualClock, do: Callable[[], Any] = lambda: 10.0, name: str = "sweeping", **more: Any) -> Turn[Any]:
    """The next is due in as many seconds as ``do`` returns."""
    return Turn(name, clock, do, next_s=lambda result: result, due_at=clock.monotonic(), **{"retry_s": 10.0, **more})


def fail() -> NoReturn:
    raise StoreUnavailable("away")


def corrupt() -> NoReturn:
    raise ObjectCorrupt("a page is corrupt")


def refuse() -> NoReturn:
    raise InvalidInput("look at this")


def test_the_next_turn_is_due_when_this_one_says(clock: ManualClock) -> None:
    waits = [10.0, 0.0]
    turn = turn_of(clock, lambda: waits.pop(0))
    assert turn.wait_s() == 0
    assert turn.take() == 10.0
    assert turn.wait_s() == 10.0
    turn.take()
    assert turn.wait_s() == 0


def test_failing_turns_wait_twice_as_long_each_time(clock: ManualClock) -> None:
    turn = turn_of(clock, fail)
    waits = []
    for _ in range(12):
        result = turn.take()
        assert isinstance(result, TurnFailed)
        assert result.again_s == turn.wait_s()
        waits.append(turn.wait_s())
        clock.sleep(turn.wait_s())
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 3600.0, 3600.0, 3600.0]
    turn.do = lambda: 0.0
    turn.take()
    turn.do = fail
    turn.take()
    assert turn.wait_s() == 10.0


def test_turns_are_hurried_but_not_while_they_fail(clock: ManualClock) -> None:
    turn = turn_of(clock, fail)
    turn.take()
    turn.hurry()
    assert turn.wait_s() == 10.0
    turn.do = lambda: 10.0
    turn.take()
    turn.hurry()
    assert turn.wait_s() == 0


def test_what_a_person_must_look_at_is_raised(clock: ManualClock) -> None:
    with pytest.raises(InvalidInput):
        turn_of(clock, refuse).take()


def test_damage_is_a_problem_until_a_turn_ends_well(clock: ManualClock) -> None:
    """A fault that may pass says nothing of it, nor does a turn that says so."""
    turn = turn_of(clock, problems_of=lambda wait_s: None if wait_s == 1.0 else ())
    seen: list[Sequence[Problem]] = []
    for do in (corrupt, fail, lambda: 1.0, lambda: 2.0, fail):
        turn.do = do
        turn.take()
        seen.append(list(turn.problems))
    damage = [Problem("object_corrupt", "sweeping failed: a page is corrupt")]
    assert seen == [damage, damage, damage, [], []]


def test_faults_are_problems_where_that_is_asked_for(clock: ManualClock) -> None:
    turn = turn_of(clock, fail, faults_are_problems=True)
    turn.take()
    assert turn.problems == [Problem("store_unavailable", "sweeping failed: away")]


def test_a_pass_begins_with_the_first_and_takes_what_is_due(clock: ManualClock) -> None:
    taken: list[str] = []

    def noting(name: str, wait_s: float) -> Turn[Any]:
        def do() -> float:
            taken.append(name)
            return wait_s

        return turn_of(clock, do, name)

    first, often, seldom = noting("first", 5.0), noting("often", 0.0), noting("seldom", 7.0)
    failed: list[tuple[str, str, float]] = []
    turns = Turns(first, [often, seldom], lambda name, error, again_s: failed.append((name, error.kind, again_s)))
    assert turns.take_due(lambda: False) == 0.0
    assert turns.take_due(lambda: False) == 0.0
    assert taken == ["first", "often", "seldom", "first", "often"]
    taken.clear()
    assert turns.take_due(lambda: True) == 0.0, "told to stop, the pass under way begins nothing more"
    assert taken == ["first"]
    first.do = fail
    taken.clear()
    assert turns.take_due(lambda: False) == 10.0, "nothing else is taken where the first fails"
    assert taken == []
    assert failed == [("first", "store_unavailable", 10.0)]


def test_a_turn_beside_the_others_holds_up_none_of_them(clock: ManualClock) -> None:
    may_end, taken = Event(), list[str]()

    def sweep() -> float:
        assert may_end.wait(60)
        taken.append("swept")
        return 30.0

    def merge() -> float:
        taken.append("merged")
        return 5.0

    with closing(ThreadTasks()) as tasks:
        first, beside = turn_of(clock, merge, "first"), turn_of(clock, sweep, tasks=tasks)
        turns = Turns(first, [beside], lambda name, error, again_s: None)
        assert turns.beside() == []
        assert turns.take_due(lambda: False) == 5.0
        clock.sleep(5.0)
        assert turns.beside() == [("sweeping", 5.0)]
        assert turns.take_due(lambda: False) == 5.0, "it is under way, and no other begins"
        assert taken == ["merged", "merged"]
        may_end.set()
        assert beside.wait_for(60)
        assert turns.beside() == [], "it has ended, and is not taken note of yet"
        assert turns.take_due(lambda: False) == 5.0
        assert beside.wait_s() == 25.0, "from when it began"
    assert taken == ["merged", "merged", "swept", "merged"]


def test_what_fails_beside_the_others_is_told_when_it_is_taken_note_of(clock: ManualClock) -> None:
    failed = list[str]()
    with closing(ThreadTasks()) as tasks:
        beside = turn_of(clock, fail, tasks=tasks)
        turns = Turns(turn_of(clock), [beside], lambda name, error, again_s: failed.append(f"{name}: {error.kind}"))
        turns.take_due(lambda: False)
        assert beside.wait_for(60)
        assert failed == []
        turns.take_due(lambda: False)
        assert failed == ["sweeping: store_unavailable"]
        assert beside.wait_s() == 10.0
        beside.do = refuse
        clock.sleep(10.0)
        turns.take_due(lambda: False)
        assert beside.wait_for(60)
        with pytest.raises(InvalidInput):
            turns.take_due(lambda: False)


def test_what_is_under_way_can_be_waited_for(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    may_end, looked = Event(), list[str]()

    def sweep() -> float:
        assert may_end.wait(60)
        return 30.0

    def look() -> None:
        looked.append("looked")
        may_end.set()

    with closing(ThreadTasks()) as tasks:
        beside = turn_of(clock, sweep, tasks=tasks)
        turns = Turns(turn_of(clock), [beside], lambda name, error, again_s: None)
        turns.end_beside(look)
        assert looked == [], "nothing is under way"
        turns.take_due(lambda: False)
        turns.end_beside(look)
        assert looked
        assert not beside.under_way
        assert beside.wait_s() == 30.0
