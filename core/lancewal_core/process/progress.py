"""Steps of long work, for a person who waits.  The code that does the work names the step and reports its progress.

Nobody listens unless a command runs at a terminal (``cli.progress_line``); a step then costs next to nothing.

Guarantee: a step does not change the work, and raises no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Step:
    """One step of long work.  ``done`` counts up to ``total``, in the ``unit`` of this step such as "offsets";
    ``total`` is None if it is unknown.

    While the step waits for a server, ``asked`` names the server, and ``done`` grows with each response.
    """

    __slots__ = ("asked", "done", "total", "unit", "what")

    def __init__(self, what: str, total: int | None, unit: str, asked: str) -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.asked = asked
        self.done = 0

    def counting(self, items: Iterable[T], size: Callable[[T], int] = lambda _: 1) -> Iterator[T]:
        """Yield ``items``.  Add the ``size`` of an item to ``done`` once the caller asks for the next item."""
        for item in items:
            yield item
            self.done += size(item)


class ProgressListener(Protocol):
    """Receiver of the beginning and the end of each step.  It is called in the thread that does the work."""

    def begun(self, step: Step) -> None: ...

    def ended(self, step: Step) -> None: ...


_listener: ProgressListener | None = None


def listen(listener: ProgressListener | None) -> None:
    """Tell ``listener`` about all steps of this process from now on.  With None, nobody is told."""
    global _listener
    _listener = listener


@contextmanager
def step(what: str, total: int | None = None, unit: str = "", *, asked: str = "") -> Iterator[Step]:
    """Begin a step that ends with the block.  ``what`` is a phrase such as "reading topic orders"."""
    listener, one = _listener, Step(what, total, unit, asked)
    if listener is None:
        yield one
        return
    listener.begun(one)
    try:
        yield one
    finally:
        listener.ended(one)
