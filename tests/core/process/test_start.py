"""A service that cannot start because of store or broker waits in the process, and says why."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from lancewal_core.errors import (
    InvalidSettings,
    KafkaForbidden,
    KafkaUnavailable,
    LancewalError,
    Problem,
    StoreNotWritable,
    StoreRefused,
    StoreUnavailable,
    TopicMissing,
    TopicReplaced,
)
from lancewal_core.process.start import PAUSE_MAX_S, Start
from tests.support.scripted import ManualClock


class Begin:
    """Fails with these errors one after the other, then begins; what it opened is in ``open``."""

    def __init__(self, *errors: LancewalError) -> None:
        self.errors = list(errors)
        self.open: list[int] = []
        self.tries = 0

    def __call__(self, stack: ExitStack) -> str:
        self.tries += 1
        self.open.append(self.tries)
        stack.callback(self.open.remove, self.tries)
        if self.errors:
            raise self.errors.pop(0)
        return "begun"


def test_it_is_tried_until_it_succeeds_and_what_had_failed_is_closed() -> None:
    clock, seen = ManualClock(), list[tuple[str, float]]()
    of_kafka = KafkaUnavailable("away"), KafkaForbidden("acl"), TopicMissing("404")
    errors = [StoreNotWritable("a file"), *of_kafka, StoreRefused("403"), *(StoreUnavailable("503") for _ in range(2))]
    begin = Begin(*errors)

    def failed(error: LancewalError, again_s: float) -> None:
        seen.append((error.kind, again_s))
        assert start.problem == Problem(error.kind, f"not started yet: {error}")
        assert begin.open == []

    start = Start(clock, lambda: False)
    assert str(start.problem).startswith("starting: ")
    began = clock.monotonic()
    with ExitStack() as stack:
        assert start.run(begin, stack, failed) == "begun"
        assert str(start.problem) == "None"
        assert begin.open == [8]
    assert begin.open == []
    assert [again_s for _, again_s in seen] == [1, 2, 4, 8, 16, PAUSE_MAX_S, PAUSE_MAX_S]
    assert clock.monotonic() - began == pytest.approx(31 + 2 * PAUSE_MAX_S)


@pytest.mark.parametrize("error", [InvalidSettings("no"), TopicReplaced("no")])
def test_what_must_be_changed_ends_it(error: LancewalError) -> None:
    begin = Begin(StoreUnavailable("away"), error)
    with ExitStack() as stack, pytest.raises(type(error)):
        Start(ManualClock(), lambda: False).run(begin, stack, lambda *_: None)
    assert (begin.tries, begin.open) == (2, [])


def test_told_to_stop_it_waits_no_longer() -> None:
    clock = ManualClock()
    begin = Begin(*(StoreUnavailable("away") for _ in range(9)))
    until = clock.monotonic() + 5
    with ExitStack() as stack:
        assert Start(clock, lambda: clock.monotonic() >= until).run(begin, stack, lambda *_: None) is None
    assert begin.tries == 3  # after 0, 1 and 3 seconds
    assert clock.monotonic() - until < 1
