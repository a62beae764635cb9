"""The segment in flight: at most one at a time.  Its job runs in a task beside the loop, until the outcome is known.

Guarantees
 1. If the outcome is unknown, the same job is run again every ``retry_s``.  The segment stays in flight until it is
    durable, its log has ended, or an error ends the process.
 2. Every segment goes through this class.  While ``busy``, no region state may change (``seal``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from lancewal_core.errors import ContractChanged, KafkaForbidden, LancewalError, Retry
from lancewal_core.names.ids import Position, Region
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Task, Tasks
from lancewal_core.wal.writer import Durable, FencedOut, Occupied, PutResult, Unsettled
from lancewal_ingest.append.job import AppendJob

Outcome: TypeAlias = Durable | FencedOut | Occupied | None
"""Result of storing a segment; None if the records gave no entry to write."""


_LOOK_S = 0.001
"""Seconds between two checks whether a job still decodes: a hundredth of the time that a full segment takes."""


class SegmentInFlight:
    """Runner of the job that stores the current segment.  ``failed`` is called with the cause each time the job must be
    retried.
    """

    def __init__(self, tasks: Tasks, clock: Clock, retry_s: float, failed: Callable[[object], None]) -> None:
        self._tasks = tasks
        self._clock = clock
        self._retry_s = retry_s
        self._failed = failed
        self._job: AppendJob | None = None
        self._task: Task[PutResult | None] | None = None
        self._again_at: float | None = None
        self.waits_for: ContractChanged | None = None
        """Why the records wait for a newer version of the contract; None if they do not."""
        self.nbytes = 0
        """Weight in memory of the records in the segment in flight; 0 if there is none."""
        self.first_ms: Mapping[Region, int] = {}
        """Kafka's time of the first record of each partition in that segment, in milliseconds since 1970."""

    @property
    def busy(self) -> bool:
        return self._job is not None

    @property
    def running(self) -> bool:
        """Whether the job is running.  False while it waits for its next try."""
        return self._task is not None

    @property
    def late(self) -> bool:
        """Whether the newest try to store the segment failed."""
        return self._again_at is not None

    @property
    def decoded(self) -> dict[Region, Position]:
        """Position up to which each partition is decoded in the segment in flight."""
        return {} if self._job is None else self._job.decoded

    def start(self, job: AppendJob, nbytes: int, first_ms: Mapping[Region, int]) -> None:
        self._job, self.nbytes, self.first_ms = job, nbytes, first_ms
        self._task = self._tasks.start(job.run)

    def settle(self, clean: Callable[[], bool]) -> tuple[AppendJob, Outcome] | None:
        """Return the job and its outcome if it has ended; do not wait.  Start a retry that is due.

        Raises an error of the job that ends the process.  ``clean`` says whether every PUT of the log is settled; if
        so, the segment is dropped before the error is raised.
        """
        job, task = self._job, self._task
        if job is None:
            return None
        if task is None:
            if self._again_at is not None and self._clock.monotonic() >= self._again_at:
                self._task = self._tasks.start(job.run)
            return None
        if not task.done():
            return None
        self._task = None
        try:
            result = task.result()
        # A right that is missing may be given: dead letters wait.  So may records for a version of the contract.
        except (Retry, KafkaForbidden, ContractChanged) as error:
            self._again(error)
            return None
        except LancewalError:
            if clean():
                self._forget()
            raise
        if isinstance(result, Unsettled):
            self._again(result.cause)
            return None
        self._forget()
        return job, result

    def wait(self, timeout_s: float) -> bool:
        """Wait until ``settle`` has something to do, at most ``timeout_s``.  Return False after a timeout."""
        if self._task is not None:
            self._task.wait(max(0.0, timeout_s))
            return self._task.done()
        if timeout_s <= 0:
            return False
        self._clock.sleep(self._retry_s / 10)
        return True

    def let_decode(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` while the job decodes in Python.

        Otherwise both threads would compete for the interpreter's lock, and decoding would take many times as long.
        """
        until = self._clock.monotonic() + timeout_s
        while self._task is not None and self._job is not None and self._job.decodes_in_python:
            left = until - self._clock.monotonic()
            if left <= 0 or self._task.done():
                return
            self._task.wait(min(left, _LOOK_S))

    def _again(self, cause: object) -> None:
        self._again_at = self._clock.monotonic() + self._retry_s
        self.waits_for = cause if isinstance(cause, ContractChanged) else None
        self._failed(cause)

    def _forget(self) -> None:
        self._job = self._again_at = self.waits_for = None
        self.nbytes, self.first_ms = 0, {}
