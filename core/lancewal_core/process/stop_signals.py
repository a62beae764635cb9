"""Stopping a process by SIGTERM or SIGINT.  The loop asks whether a signal has come.  If the loop hangs, the process
is ended when its time is up.

Guarantees
 1. ``stop_signals``: the function that it yields returns True from the first signal on.
 2. ``end_in_time``: the process has ended ``seconds`` after the first signal.  This holds although every thread of
    Python waits in a call of a library that does not come back (a store or a broker that accepts and says nothing).
    It also holds if only code after the loop hangs: Python waits for threads before it ends.
 3. Such an end is like a crash, after one log line.  Unfinished work is left as a crash leaves it.  The protocols
    are safe against a crash at any point, so nothing is lost or done twice; the next process finds more to do.
 4. A library may hold the interpreter itself, or the interpreter's own end may hang, so that no thread of Python
    runs any more.  Then the process ends ``HELD_S`` later, with exit code 1, and stderr shows what every thread was
    doing.
 5. ``end_process``: a process that was told to stop, and has done what is left to do, ends at once.  It skips the
    interpreter's own end, which destroys what threads of the libraries (of store, broker and table) still use.

Python runs a signal's handler in the main thread alone, between two of its instructions.  It does not run while that
thread waits in a library.  The number of the signal is therefore also written into a pipe, by the interpreter's
handler in C, and a thread reads it there.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from lancewal_core.errors import MAY_PASS

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
HELD_S = 5.0
"""Seconds after the limit of ``end_in_time`` at which the process is ended if no thread of Python could end it."""

_STDERR = 2

_told = threading.Event()


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether this process was told to stop: True from the first SIGTERM or SIGINT on.

    A second signal of the same number ends the process at once, or as soon as a running call of a library returns.
    """
    told = False

    def stop(number: int, _: object) -> None:
        nonlocal told
        told = True
        _told.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield lambda: told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def end_in_time(seconds: float, late: Callable[[], None]) -> Iterator[None]:
    """End the process ``seconds`` after the first signal inside ``with`` if it is still running then (guarantee 2).
    Use this only in the main thread of a process that does nothing else.

    ``late`` is called right before the end, to report it.  The exit code is that of transient errors.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    over = threading.Event()

    def watch() -> None:
        told = select.poll()  # ``select`` takes no file descriptor above 1023
        told.register(reading, select.POLLIN)
        while not over.is_set():
            if told.poll(200) and any(number in _SIGNALS for number in os.read(reading, 64)):
                # Not ended by ``over``: what comes behind the block may hang as well.
                faulthandler.dump_traceback_later(seconds + HELD_S, exit=True, file=_STDERR)
                time.sleep(seconds)
                late()
                os._exit(MAY_PASS)
        os.close(reading)
        os.close(writing)

    threading.Thread(target=watch, name="lancewal-end", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        over.set()


def end_process(code: int) -> NoReturn:
    """End the process at once if a signal has come while ``stop_signals`` was in use (guarantee 5); else as
    ``sys.exit`` does."""
    if _told.is_set():
        with suppress(OSError):  # nobody reads it any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def returned_in_time(call: Callable[[], None], timeout_s: float) -> bool:
    """Run ``call`` on a thread of its own for at most ``timeout_s``.  Return whether it has returned, and raise its
    error.

    This is for the last calls of a process, whose results are optional.  A call that has not returned keeps running,
    but does not delay the end of the process.  The caller must not touch what the call works on.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="lancewal-last-call", daemon=True)
    thread.start()
    thread.join(max(0.0, timeout_s))
    if thread.is_alive():
        return False
    for error in raised:
        raise error
    return True
