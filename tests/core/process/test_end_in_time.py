"""A process that was told to stop has ended in time, whatever it waits for."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from lancewal_core.errors import MAY_PASS
from lancewal_core.process.stop_signals import returned_in_time

SETTING_S = 0.5
PATIENCE_S = 120.0
"""Until a process that does not end fails the test."""
PROGRAM = """
import atexit, concurrent.futures, ctypes, sys, threading, time
from lancewal_core.process import stop_signals as rules
from lancewal_core.process.stop_signals import end_in_time, end_process, returned_in_time, stop_signals

with end_in_time({seconds}, lambda: {late}), stop_signals() as stopping:
    {body}
print("behind", flush=True)
{behind}
"""


@contextmanager
def program(
    body: str, behind: str = "", seconds: float = SETTING_S, late: str = 'print("late", flush=True)'
) -> Iterator[subprocess.Popen[str]]:
    text = PROGRAM.format(seconds=seconds, body=body, behind=behind, late=late)
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    out: IO[str] = process.stdout
    return out.readline().strip()


@pytest.mark.parametrize(
    "body",
    [
        "print('hangs', flush=True); lib = ctypes.CDLL(None); [lib.sleep(1000) for _ in range(9)]",
        "threading.Thread(target=time.sleep, args=(1000,)).start(); print('hangs', flush=True)\n"
        "    while not stopping(): time.sleep(0.01)",
        "pool = concurrent.futures.ThreadPoolExecutor(1); pool.submit(time.sleep, 1000); print('hangs', flush=True)\n"
        "    while not stopping(): time.sleep(0.01)",
    ],
    ids=["the main thread in a library", "a thread that Python waits for", "a request in flight behind the loop"],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_time_whatever_hangs(body: str, number: signal.Signals) -> None:
    with program(body) as process:
        assert line(process) == "hangs"
        told = time.monotonic()
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == MAY_PASS
        assert time.monotonic() - told >= SETTING_S
        assert "late" in (process.stdout.read() if process.stdout else "")


def test_an_end_in_time_is_left_alone() -> None:
    body = "print('runs', flush=True)\n    while not stopping(): time.sleep(0.01)"
    with program(body, seconds=PATIENCE_S) as process:
        assert line(process) == "runs"
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert (process.stdout.read() if process.stdout else "") == "behind\n"


def test_it_ends_where_no_thread_of_python_comes_to_run_and_says_where_all_stood() -> None:
    # What says that it is late holds the interpreter, and everything else with it.
    body = "rules.HELD_S = 0.5; print('runs', flush=True); time.sleep(1000)"
    with program(body, seconds=0.01, late="ctypes.PyDLL(None).sleep(1000)") as process:
        assert line(process) == "runs"
        process.terminate()
        assert process.wait(PATIENCE_S) == 1
        assert "in watch" in (process.stderr.read() if process.stderr else "")


@pytest.mark.parametrize("told", [True, False])
def test_who_was_told_to_stop_does_not_wait_for_the_interpreters_end(told: bool) -> None:
    body = f"print('runs', flush=True)\n    while not stopping() and {told}: time.sleep(0.01)"
    behind = "print('ends'); atexit.register(print, 'taken apart'); end_process(7)"
    with program(body, behind, seconds=PATIENCE_S) as process:
        assert line(process) == "runs"
        if told:
            process.terminate()
        assert process.wait(PATIENCE_S) == 7
        said = process.stdout.read() if process.stdout else ""
        assert said == "behind\nends\n" + ("" if told else "taken apart\n")


def test_without_a_signal_nothing_is_ended() -> None:
    with program("pass", "time.sleep(0.5); print('ends', flush=True)", seconds=0.01) as process:
        assert process.wait(PATIENCE_S) == 0
        assert (process.stdout.read() if process.stdout else "") == "behind\nends\n"


def test_a_last_call_that_hangs_is_left_behind_and_its_error_is_raised() -> None:
    goes_on = threading.Event()
    came: list[bool] = []

    def hangs() -> None:
        came.append(goes_on.wait(PATIENCE_S))

    assert not returned_in_time(hangs, 0.01)
    goes_on.set()
    assert returned_in_time(lambda: came.append(False), PATIENCE_S)

    def fails() -> None:
        raise OSError("away")

    call: Callable[[], None] = fails
    with pytest.raises(OSError, match="away"):
        returned_in_time(call, PATIENCE_S)
