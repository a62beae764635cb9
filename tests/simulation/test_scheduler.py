"""The scheduler itself: one at a time, repeatable, crashes, freezes, deadlocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

import pytest

from tests.twins.scheduler import Crash, Deadlock, Scheduler, TooLong
from tests.twins.sim_clock import SimClock
from tests.twins.sim_tasks import SimTasks


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler("test")
    yield made
    made.close()


def _letters(seed: str) -> tuple[str, int]:
    scheduler = Scheduler(seed)
    seen: list[str] = []

    def write(letter: str) -> None:
        for _ in range(5):
            seen.append(letter)
            scheduler.switch("wrote")

    for letter in "abc":
        scheduler.spawn(letter, partial(write, letter))
    scheduler.run(lambda: len(seen) == 15)
    scheduler.close()
    return "".join(seen), scheduler.trace


def test_equal_seeds_give_equal_schedules_and_others_differ() -> None:
    assert _letters("1") == _letters("1")
    assert len({_letters(str(seed)) for seed in range(20)}) > 15


def test_time_jumps_when_everyone_sleeps(scheduler: Scheduler) -> None:
    clock = SimClock(scheduler)
    woken: list[float] = []

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        woken.append(seconds)

    for seconds in (300.0, 5.0, 60.0):
        scheduler.spawn(f"{seconds}", partial(sleep, seconds))
    scheduler.run(lambda: len(woken) == 3)
    assert woken == [5.0, 60.0, 300.0]
    assert 300 <= clock.monotonic() < 301


def test_a_crash_ends_the_whole_group_and_nobody_else(scheduler: Scheduler) -> None:
    ended: list[str] = []
    survived: list[str] = []

    def live(name: str) -> None:
        try:
            scheduler.sleep(1.0)
            survived.append(name)
        except Crash:
            ended.append(name)
            raise

    def kill() -> None:
        scheduler.sleep(0.5)
        scheduler.crash("victim")

    scheduler.spawn("a", lambda: live("a"), "victim")
    scheduler.spawn("b", lambda: live("b"), "victim")
    scheduler.spawn("c", lambda: live("c"))
    scheduler.spawn("killer", kill)
    scheduler.run(lambda: survived == ["c"])
    assert sorted(ended) == ["a", "b"]


def test_a_paused_group_stands_still(scheduler: Scheduler) -> None:
    ticks: list[float] = []

    def tick() -> None:
        while True:
            scheduler.sleep(0.1)
            ticks.append(scheduler.now)

    def pause() -> None:
        scheduler.sleep(1.0)
        scheduler.pause("ticker", 5.0)

    scheduler.spawn("ticker", tick)
    scheduler.spawn("pauser", pause)
    scheduler.run(lambda: scheduler.now > 8.0)
    assert not [t for t in ticks if 1.2 < t < 6.0]
    assert [t for t in ticks if t > 6.0]


def test_a_deadlock_is_found_and_names_who_waits(scheduler: Scheduler) -> None:
    scheduler.spawn("lonely", lambda: scheduler.wait(lambda: False, None, "for nobody"))
    with pytest.raises(Deadlock, match=r"lonely.*for nobody"):
        scheduler.run(lambda: False)


def test_an_endless_run_is_ended(scheduler: Scheduler) -> None:
    def spin() -> None:
        while True:
            scheduler.switch("again")

    scheduler.spawn("spinner", spin)
    with pytest.raises(TooLong, match="spinner"):
        scheduler.run(lambda: False, 100)


def test_an_actor_s_error_ends_the_run(scheduler: Scheduler) -> None:
    def fail() -> None:
        scheduler.switch("before")
        raise ValueError("of the actor")

    scheduler.spawn("failing", fail)
    with pytest.raises(ValueError, match="of the actor"):
        scheduler.run(lambda: False)


def test_tasks_run_beside_their_starter_and_give_results_and_errors(scheduler: Scheduler) -> None:
    found: list[object] = []

    def work(item: int) -> int:
        scheduler.sleep(0.1 * item)
        if item == 4:
            raise KeyError(item)
        return item * 10

    def start() -> None:
        for interleaved in (0.0, 1.0):
            tasks = SimTasks(scheduler, Random(1), interleaved)
            task = tasks.start(lambda: work(3))
            found.append(task.done())
            found.append(tasks.map(work, [2, 0, 1]))
            found.append(task.result())
            try:
                tasks.map(work, [1, 4, 0])
            except KeyError as error:
                found.append(error.args[0])
        found.append("end")

    scheduler.spawn("starter", start)
    scheduler.run(lambda: found[-1:] == ["end"])
    assert found == [False, [20, 0, 10], 30, 4] * 2 + ["end"]
