"""What a segment's try came to: tried again as the same job, or an error that ends the process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from lancewal_core.errors import KafkaForbidden, LancewalError, StoreUnavailable, TopicMissing
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_ingest.append.job import AppendJob
from lancewal_ingest.append.segment_in_flight import SegmentInFlight
from tests.support.regions import region
from tests.support.scripted import ManualClock


class Job:
    """Fails with these errors one after the other, then leaves no entry to write."""

    def __init__(self, *errors: LancewalError) -> None:
        self.errors = list(errors)
        self.decodes_in_python = False

    def run(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


class Decoding:
    """Decodes in Python until it is let go, and then stores its segment until that is let go."""

    def __init__(self) -> None:
        self.decoded, self.stored = threading.Event(), threading.Event()
        self.decodes_in_python = True

    def run(self) -> None:
        assert self.decoded.wait(60)
        self.decodes_in_python = False
        assert self.stored.wait(60)


@pytest.fixture
def tasks() -> Iterator[ThreadTasks]:
    made = ThreadTasks(1)
    yield made
    made.close()


def test_what_may_pass_and_a_right_that_may_be_given_are_tried_again(tasks: ThreadTasks) -> None:
    clock, heard = ManualClock(), list[object]()
    flight = SegmentInFlight(tasks, clock, 0.5, heard.append)
    errors = [StoreUnavailable("away"), KafkaForbidden("Write on topic x.dead-letters")]
    job = cast(AppendJob, Job(*errors))
    flight.start(job, 7, {region(0): 1})
    for _ in errors:
        assert flight.wait(60)
        assert flight.settle(lambda: True) is None
        assert flight.late
        assert (flight.nbytes, flight.first_ms) == (7, {region(0): 1})  # nothing of it is let go
        clock.sleep(0.5)
        assert flight.settle(lambda: True) is None  # begins the next try
    assert flight.wait(60)
    assert flight.settle(lambda: True) == (job, None)
    assert not flight.busy
    assert (flight.nbytes, flight.first_ms) == (0, {})
    assert heard == errors


@pytest.mark.parametrize("clean", [True, False])
def test_any_other_error_ends_the_process(tasks: ThreadTasks, clean: bool) -> None:
    flight = SegmentInFlight(tasks, ManualClock(), 0.5, lambda _: None)
    flight.start(cast(AppendJob, Job(TopicMissing("gone"))), 0, {})
    assert flight.wait(60)
    with pytest.raises(TopicMissing):
        flight.settle(lambda: clean)
    assert flight.busy is not clean


def test_the_loop_waits_while_a_job_decodes_in_python_and_not_for_the_store(tasks: ThreadTasks) -> None:
    flight, job = SegmentInFlight(tasks, SystemClock(), 0.5, lambda _: None), Decoding()
    flight.let_decode(60)  # nothing is in flight
    flight.start(cast(AppendJob, job), 0, {})
    flight.let_decode(0.01)
    seen = [job.decodes_in_python]  # the time was over first
    timer = threading.Timer(0.05, job.decoded.set)
    timer.start()
    flight.let_decode(60)
    assert [*seen, job.decodes_in_python] == [True, False]
    assert flight.running
    flight.let_decode(60)
    job.stored.set()
    assert flight.wait(60)
    timer.join()


def test_the_loop_waits_for_no_decoder_that_has_failed(tasks: ThreadTasks) -> None:
    flight, job = SegmentInFlight(tasks, ManualClock(), 0.5, lambda _: None), Job(StoreUnavailable("away"))
    job.decodes_in_python = True
    flight.start(cast(AppendJob, job), 0, {})
    assert flight.wait(60)
    flight.let_decode(60)
    assert flight.settle(lambda: True) is None
    flight.let_decode(60)  # it waits for its next try
    assert flight.late
