"""A worker process of an executor dies in the middle of a task: Spark repeats the task, and the rows are the same."""

from __future__ import annotations

import contextlib
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
from tests.support.whole_path import until

pytestmark = pytest.mark.spark


def test_a_worker_is_killed_in_a_task(spark: LocalSpark, pipeline: Pipeline) -> None:
    df = spark.read(pipeline.uri)
    assert by_key(df.toArrow()) == pipeline.oracle

    def one_has_died_in_a_task() -> bool:
        begins = spark.event_log.stat().st_size
        with _first_worker_is_killed(spark, begins) as killed:
            assert by_key(df.toArrow()) == pipeline.oracle
        events = _events(spark, begins)
        begun, ended = (
            sum((event["pid"], event["when"]) == (victim, when) for victim in killed for event in events)
            for when in ("before", "after")
        )
        if begun == ended:  # the signal came too late
            return False
        # Its task was done again by another: more have begun than ended, and all fragments are there once.
        assert {event["pid"] for event in events} - {*killed, os.getpid()}
        return True

    until(one_has_died_in_a_task)


@contextmanager
def _first_worker_is_killed(spark: LocalSpark, begins: int) -> Iterator[list[int]]:
    """SIGKILL for the process that begins the first task behind this place of the event log, as soon as it says so; its id,
    if that was in time."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not killed and not over.wait(0.0005):
            if begun := [event["pid"] for event in _events(spark, begins) if event["when"] == "before"]:
                with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(begun[0], signal.SIGKILL)
                killed.append(begun[0])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def _events(spark: LocalSpark, begins: int) -> list[dict[str, Any]]:
    """Of tasks, behind a place of the event log; a line that is being written counts once it is whole."""
    with spark.event_log.open("rb") as file:
        file.seek(begins)
        whole = file.read().rpartition(b"\n")[0]
    events = [json.loads(line) for line in whole.splitlines()]
    return [event for event in events if event["point"] == "spark.task"]
