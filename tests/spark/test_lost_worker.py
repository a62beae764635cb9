"""A worker process of an executor dies in the middle of a task: Spark repeats the task, and the rows are the same."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.pipeline import Pipeline, by_key
from tests.support.spark import LocalSpark

pytestmark = pytest.mark.spark

TRIES = 20
"""Queries; in one of them the signal must come before the task has ended."""


def test_a_worker_is_killed_in_a_task(spark: LocalSpark, pipeline: Pipeline) -> None:
    df = spark.read(pipeline.uri)
    assert by_key(df.toArrow()) == pipeline.oracle
    for _ in range(TRIES):
        seen = len(_events(spark))
        with _first_worker_is_killed(spark, seen) as killed:
            assert by_key(df.toArrow()) == pipeline.oracle
        events = _events(spark)[seen:]
        (victim,) = killed
        begun, ended = (
            sum((event["pid"], event["when"]) == (victim, when) for event in events) for when in ("before", "after")
        )
        if begun > ended:
            # Its task was done again by another: more have begun than ended, and all fragments are there once.
            assert {event["pid"] for event in events} - {victim, os.getpid()}
            return
    raise AssertionError(f"in {TRIES} queries no worker died in the middle of a task")


@contextmanager
def _first_worker_is_killed(spark: LocalSpark, seen: int) -> Iterator[list[int]]:
    """SIGKILL for the process that begins the first task from now on, as soon as it says so."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not killed and not over.wait(0.0005):
            if begun := [event["pid"] for event in _events(spark)[seen:] if event["when"] == "before"]:
                os.kill(begun[0], signal.SIGKILL)
                killed.append(begun[0])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def _events(spark: LocalSpark) -> list[dict[str, Any]]:
    whole = spark.event_log.read_bytes().rpartition(b"\n")[0] if spark.event_log.exists() else b""
    events = [json.loads(line) for line in whole.splitlines()]
    return [event for event in events if event["point"] == "spark.task"]
