"""Concurrency as a parameter.

Protocol code is synchronous.  It hands work that should run beside it (parallel GETs, the PUT in flight) to a
``Tasks``.  Production uses threads; the simulation uses actors under its scheduler.

The threads of Lance, of obstore and of ``ThreadTasks`` do not live on in the child of a fork.  A call there would wait
for them for ever.  So in the child of a process that had used them, each use raises ``ProcessForked`` at once
(``use_threads``).  If the parent had only imported lancewal, the child may use all of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from lancewal_core.errors import ProcessForked

IO_THREADS = 64
"""Default number of requests that may wait for a store at the same time.  There are more than cores, since they
compute nothing.  Threads begin as they are needed."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A")

_used = False
_lost = False


def use_threads() -> None:
    """Check that this process may use a library's threads.  Call this before each use."""
    global _used
    if _lost:
        raise ProcessForked(
            "this process was forked from one that had used lancewal, and a fork does not copy threads. Start child "
            "processes by spawn or forkserver (multiprocessing.set_start_method). Or use lancewal only in the children, "
            "not in their parent"
        )
    _used = True


def _in_child() -> None:
    global _lost
    _lost = _used


os.register_at_fork(after_in_child=_in_child)


class Task(Protocol[T_co]):
    """A running call."""

    def done(self) -> bool:
        """True once ``result`` returns (or raises) without waiting."""

    def wait(self, timeout_s: float) -> None:
        """Return once ``done``, or after ``timeout_s``."""

    def result(self) -> T_co:
        """Wait, then return what the call returned or raise what it raised."""


class Tasks(Protocol):
    """A way to run calls concurrently: threads, or the actors of a simulation."""

    def start(self, call: Callable[[], T]) -> Task[T]:
        """Begin ``call`` in parallel to the caller."""

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        """Return ``call`` of each item, made concurrently, in the items' order.  Raise the first error."""


def together(tasks: Tasks, first: Callable[[], T], second: Callable[[], A]) -> tuple[T, A]:
    """Return the results of both calls, made concurrently.  If both raise, raise the error of ``first``.  Neither call may
    depend on the other."""
    results: dict[int, Any] = {}

    def call(at: int) -> None:
        results[at] = (first, second)[at]()

    tasks.map(call, (0, 1))
    return results[0], results[1]


@contextmanager
def own_thread(name: str, work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run ``work`` in a thread of its own inside the ``with`` block.  Nobody waits for the thread's end.

    ``work`` is given an event that is set when the block ends."""
    over = threading.Event()
    threading.Thread(target=work, args=(over,), name=f"lancewal-{name}", daemon=True).start()
    try:
        yield
    finally:
        over.set()


class _FutureTask(Generic[T]):
    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def wait(self, timeout_s: float) -> None:
        wait([self._future], timeout_s)

    def result(self) -> T:
        return self._future.result()


def _begin_thread(in_: threading.local) -> None:
    in_.map = True


class ThreadTasks:
    """Threads of this process that run calls.  Several threads may submit calls.

    ``map`` has its own threads, so that a started call may use ``map``.  Calls of ``map`` may use ``map`` too.  The
    caller then runs calls itself, because all other threads of ``map`` may be waiting as well.

    ``caller_helps`` lets the caller always run calls itself.  This is for calls that compute.  The caller is then one
    of the ``io_threads``.  Otherwise the caller would only wait.  While it sleeps, Linux runs the threads that it has
    woken on one core for some milliseconds.  Do not set this for calls that wait, because a main thread in such a call
    does not handle signals.
    """

    def __init__(self, workers: int = 2, io_threads: int = IO_THREADS, *, caller_helps: bool = False) -> None:
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="lancewal-task")
        self._io_threads = io_threads
        self._caller_helps = caller_helps
        self._in = threading.local()
        # A method would keep these tasks, and their threads, for as long as one of the threads runs, which is for ever.
        self._io = ThreadPoolExecutor(
            io_threads, thread_name_prefix="lancewal-io", initializer=_begin_thread, initargs=(self._in,)
        )

    def start(self, call: Callable[[], T]) -> Task[T]:
        use_threads()
        return _FutureTask(self._workers.submit(call))

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        if len(items) < 2:
            return [call(item) for item in items]
        use_threads()
        if not self._caller_helps and not getattr(self._in, "map", False):
            return list(self._io.map(call, items))
        shared = _SharedCalls(call, items)
        helpers = [self._io.submit(shared.work) for _ in range(min(len(items), self._io_threads) - 1)]
        shared.work()
        # One that has not begun has nothing left to do; its thread may wait for a ``map`` itself.
        wait([helper for helper in helpers if not helper.cancel()])
        return shared.results()

    def close(self) -> None:
        """Wait for started calls and end the threads."""
        self._workers.shutdown(wait=True)
        self._io.shutdown(wait=True)


class _SharedCalls(Generic[A, T]):
    """Calls that several threads make, each taking the next one.  After an error no further call begins."""

    def __init__(self, call: Callable[[A], T], items: Sequence[A]) -> None:
        self._call = call
        self._left = iter(enumerate(items))
        self._results: dict[int, T] = {}
        self._errors: dict[int, BaseException] = {}

    def work(self) -> None:
        for place, item in self._left:
            try:
                self._results[place] = self._call(item)
            except BaseException as error:  # for ``results``, in the thread that asked for the calls
                self._errors[place] = error
            if self._errors:
                return

    def results(self) -> list[T]:
        """Return the results in the items' order, or raise the first error in that order.  An error that ends the
        process (not an ``Exception``) is raised before others.

        This works once: no result is kept.
        """
        results, errors = self._results, self._errors
        self._results, self._errors = {}, {}
        for _, error in sorted(errors.items(), key=lambda item: (isinstance(item[1], Exception), item[0])):
            raise error
        return [results[place] for place in sorted(results)]
