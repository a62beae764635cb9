"""A store or a broker that does not answer is named, and no reason to restart who waits for it."""

from __future__ import annotations

import threading

from lancewal_core.errors import LancewalError, ObjectCorrupt, StoreRefused, StoreUnavailable
from lancewal_core.process.health import Health
from lancewal_core.process.silence import BROKER, STORE, Pace, SilenceWatch
from tests.support.scripted import ManualClock


class Asked:
    """Answers, or fails with this."""

    error: LancewalError | None = None

    def __call__(self) -> None:
        if self.error is not None:
            raise self.error


def watch_of(asked: Asked, clock: ManualClock) -> SilenceWatch:
    return SilenceWatch(asked, clock, "store_unavailable", "the store", Pace(1.0, 10.0))


def said(watch: SilenceWatch) -> str:
    return str(watch.problem or "")


def test_silence_is_named_with_the_last_failure_until_there_is_an_answer() -> None:
    clock, asked = ManualClock(), Asked()
    watch = watch_of(asked, clock)
    clock.sleep(10)
    assert said(watch) == ""
    clock.sleep(2)
    assert said(watch) == "store_unavailable: the store has not answered for 12 s"
    asked.error = StoreUnavailable("503")
    watch.ask()
    assert said(watch) == ("store_unavailable: the store has not answered for 12 s; its last failure: 503")
    asked.error = StoreRefused("403")
    watch.ask()
    assert said(watch) == ("store_refused: the store has not answered for 12 s; its last failure: 403")
    asked.error = None
    watch.ask()
    assert said(watch) == ""


def test_one_failure_is_no_silence_and_what_is_found_wrong_is_an_answer() -> None:
    clock, asked = ManualClock(), Asked()
    watch = watch_of(asked, clock)
    asked.error = StoreUnavailable("503")
    watch.ask()
    assert said(watch) == ""
    asked.error = ObjectCorrupt("that is for others to say")
    clock.sleep(20)
    watch.ask()
    assert said(watch) == ""


def test_it_asks_by_itself_while_somebody_else_hangs() -> None:
    asked = threading.Event()
    with SilenceWatch(asked.set, ManualClock(), "kafka_unavailable", "Kafka", Pace(0.001, 1.0)):
        assert asked.wait(120)


def test_both_are_named_within_seconds() -> None:
    for pace in (STORE, BROKER):
        assert pace.ask_s < pace.silent_s <= 10


def test_a_loop_that_waits_for_the_silent_is_live_and_has_its_time_again_afterwards() -> None:
    clock, silent = ManualClock(), [True]
    health = Health(clock, list, loop_limit_s=10, waits=lambda: silent[0])
    clock.sleep(1000)
    assert health.live() == ()
    silent[0] = False
    clock.sleep(9)
    assert health.live() == ()
    clock.sleep(2)
    assert [problem.kind for problem in health.live()] == ["loop_stands"]
    assert health.ready() == health.live()


def test_what_is_under_way_beside_a_loop_has_no_longer_than_the_loop() -> None:
    clock, silent, began = ManualClock(), [False], [0.0]
    health = Health(
        clock,
        list,
        loop_limit_s=10,
        waits=lambda: silent[0],
        beside=lambda: [("sweeping", clock.monotonic() - began[0])],
    )
    began[0] = clock.monotonic()

    def live_after(seconds: float) -> list[str]:
        clock.sleep(seconds)
        health.beat()
        return [str(problem) for problem in health.live()]

    assert live_after(10) == []
    assert live_after(1) == ["loop_stands: sweeping, in parallel with the loop, has been running for 11 s"]
    silent[0] = True
    assert live_after(100) == []
    silent[0] = False
    assert live_after(10) == []
    assert live_after(1) == ["loop_stands: sweeping, in parallel with the loop, has been running for 11 s"]
    began[0] = clock.monotonic()
    assert live_after(10) == []
