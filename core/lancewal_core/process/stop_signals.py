"""SIGTERM and SIGINT as a question that a loop asks."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """A question that becomes true with the first SIGTERM or SIGINT; a second one ends the process at once,
    or as soon as what is under way in a library returns."""
    told = False

    def stop(number: int, _: object) -> None:
        nonlocal told
        told = True
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
