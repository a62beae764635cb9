"""``ThreadTasks.map``: order, errors, and calls that use it themselves."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from threading import Barrier, Event, Thread, current_thread

import pytest

from lancewal_core.process.tasks import ThreadTasks

WAIT_S = 10.0


@pytest.fixture(params=[1, 2, 3])
def tasks(request: pytest.FixtureRequest) -> Iterator[ThreadTasks]:
    made = ThreadTasks(workers=1, io_threads=request.param, caller_helps=True)
    yield made
    made.close()


def test_results_stand_in_the_order_of_the_items(tasks: ThreadTasks) -> None:
    assert tasks.map(lambda item: item * item, range(100)) == [item * item for item in range(100)]
    assert tasks.map(lambda item: item, list[int]()) == []


@pytest.mark.parametrize("helps", [False, True])
def test_as_many_calls_run_at_a_time_as_there_are_threads(helps: bool) -> None:
    tasks = ThreadTasks(io_threads=3, caller_helps=helps)
    together = Barrier(3)
    assert sorted(tasks.map(lambda _: together.wait(WAIT_S), range(6))) == [0, 0, 1, 1, 2, 2]
    tasks.close()


@pytest.mark.parametrize("helps", [False, True])
def test_the_first_error_in_the_order_of_the_items_is_raised(helps: bool) -> None:
    tasks = ThreadTasks(io_threads=2, caller_helps=helps)
    both = Barrier(2)

    def fail(item: int) -> None:
        both.wait(WAIT_S)
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        tasks.map(fail, range(2))
    tasks.close()


def test_no_call_begins_behind_an_error() -> None:
    tasks = ThreadTasks(io_threads=1, caller_helps=True)
    begun: list[int] = []

    def fail_at_2(item: int) -> None:
        begun.append(item)
        if item == 2:
            raise ValueError("item 2")

    with pytest.raises(ValueError, match="item 2"):
        tasks.map(fail_at_2, range(5))
    assert begun == [0, 1, 2]
    tasks.close()


@pytest.mark.timeout(30)
def test_calls_and_started_calls_may_map_too(tasks: ThreadTasks) -> None:
    def sums() -> list[int]:
        return tasks.map(lambda upper: sum(tasks.map(lambda item: item, range(upper))), range(20))

    expected = [sum(range(upper)) for upper in range(20)]
    started = tasks.start(sums)
    assert sums() == expected
    assert started.result() == expected


def test_calls_may_map_where_every_thread_is_in_one_that_does() -> None:
    """As several readers of one table make them."""
    tasks = ThreadTasks(workers=1, io_threads=2)
    both = Barrier(2)

    def outer(number: int) -> list[int]:
        both.wait(WAIT_S)
        return tasks.map(lambda item: number + item, [10, 20])

    found: list[list[list[int]]] = []
    caller = Thread(target=lambda: found.append(tasks.map(outer, [1, 2])), daemon=True)
    caller.start()
    caller.join(WAIT_S)
    tasks._io.shutdown(wait=False, cancel_futures=True)  # where they wait for ever, they end by this
    assert found == [[[11, 21], [12, 22]]]
    tasks.close()


def test_what_ends_the_process_goes_before_other_errors() -> None:
    tasks = ThreadTasks(io_threads=2, caller_helps=True)
    both = Barrier(2)

    def fail(item: int) -> None:
        both.wait(WAIT_S)
        raise KeyboardInterrupt if item == 1 else ValueError("item 0")

    with pytest.raises(KeyboardInterrupt):
        tasks.map(fail, range(2))
    tasks.close()


def test_a_caller_that_does_not_help_hears_signals_at_once() -> None:
    """Its threads are in a call that no signal ends."""
    tasks = ThreadTasks(io_threads=2)
    held = Event()

    def alarm(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError):
            tasks.map(lambda _: held.wait(WAIT_S), range(2))
        assert not held.is_set()
    finally:
        signal.signal(signal.SIGALRM, before)
        held.set()
        tasks.close()


def test_threads_of_tasks_that_nobody_has_any_more_end() -> None:
    """As those of a table that was opened and dropped, and never closed."""
    tasks = ThreadTasks(io_threads=3)
    together, threads = Barrier(3), list[Thread]()

    def note(_: int) -> None:
        threads.append(current_thread())
        together.wait(WAIT_S)

    tasks.map(note, range(3))
    assert len(set(threads)) == 3
    del tasks
    gc.collect()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
