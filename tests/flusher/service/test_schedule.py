"""When turns are due."""

from __future__ import annotations

from typing import NoReturn

import pytest

from lancewal_core.errors import InvalidInput, StoreUnavailable
from lancewal_flusher.service.schedule import Pace, TurnFailed
from tests.support.scripted import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pace(clock: ManualClock) -> Pace:
    return Pace(clock, 10.0, due_at=clock.monotonic())


def fail() -> NoReturn:
    raise StoreUnavailable("away")


def test_a_turn_that_leaves_nothing_to_do_lets_the_next_one_wait(pace: Pace) -> None:
    assert pace.wait_s() == 0
    assert pace.turn(lambda: 7, more=lambda result: False) == 7
    assert pace.wait_s() == 10.0


def test_a_turn_that_leaves_more_to_do_does_not(pace: Pace) -> None:
    pace.turn(lambda: 7, more=lambda result: result == 7)
    assert pace.wait_s() == 0


def test_failing_turns_wait_twice_as_long_each_time(pace: Pace, clock: ManualClock) -> None:
    waits = []
    for _ in range(12):
        result = pace.turn(fail, more=never)
        assert isinstance(result, TurnFailed)
        assert result.again_s == pace.wait_s()
        waits.append(pace.wait_s())
        clock.sleep(pace.wait_s())
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 3600.0, 3600.0, 3600.0]
    pace.turn(lambda: None, more=never)
    pace.turn(fail, more=never)
    assert pace.wait_s() == 10.0


def test_turns_are_hurried_but_not_while_they_fail(pace: Pace) -> None:
    pace.turn(fail, more=never)
    pace.hurry()
    assert pace.wait_s() == 10.0
    pace.turn(lambda: None, more=never)
    pace.hurry()
    assert pace.wait_s() == 0


def test_what_a_person_must_look_at_is_raised(pace: Pace) -> None:
    with pytest.raises(InvalidInput):
        pace.turn(refuse, more=never)


def refuse() -> NoReturn:
    raise InvalidInput("look at this")


def never(result: object) -> bool:
    return False
