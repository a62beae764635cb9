"""An object store that counts and times the requests that it passes to another store, and its metrics, which every
service has."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from threading import Lock
from typing import TypeVar

from lancewal_core.process.metric_table import MetricTable, counter, histogram
from lancewal_core.store.object_kinds import KINDS, kind_of
from lancewal_core.store.object_store import ObjectInfo, ObjectStore, PutOutcome, PutUnknown, Stored, Taken
from lancewal_core.store.obstore import ObstoreStore

T = TypeVar("T")
_REQUEST_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

OPERATIONS = ("get", "get-range", "put", "list", "delete")
OTHER = "other"
OBJECTS = (*(kind.name.replace(" ", "-") for kind in KINDS), OTHER)

REMEMBERED_MAX = 1_000
"""Largest number of failed requests that are remembered, to recognise their retries.  Beyond that the oldest are
forgotten."""


def object_of(key: str) -> str:
    """Return the value of the label ``object`` for an object with this key."""
    kind = kind_of(key)
    return OTHER if kind is None else kind.name.replace(" ", "-")


class StoreMetricTable(MetricTable, prefix="lancewal_store"):
    """Metrics of requests to the object store.  ``operation`` is the kind of request, ``object`` the kind of its
    object.  For a listing it is the kind of the first object in the answer."""

    requests = counter(
        "Requests of lancewal itself to the object store, without those of Lance. Outcomes: done, failed, absent (nothing "
        "is there). Outcomes of a put alone: unknown (no verdict), taken (an object is there, another process's or from an "
        "earlier try).",
        *("operation", "object", "outcome"),
        known=tuple(product(OPERATIONS, ("segment", OTHER), ("failed",))),
    )
    request_seconds = histogram(
        "Duration of a request, including the retries of the store's client.",
        _REQUEST_S,
        *("operation", "object"),
    )
    too_many_requests = counter(
        "Requests that lancewal sends again after a pause, because the store answered that there are too many (429). "
        "Retries by the store's client are not counted.",
        "object",
    )
    read_bytes = counter("Bytes of objects read.", "object")
    written_bytes = counter("Bytes of objects stored.", "object")
    retries = counter(
        "Requests that repeat a request for the same object, which failed or had an unknown outcome. Retries by the "
        "store's client are not counted.",
        *("operation", "object"),
    )


@dataclass(slots=True, eq=False)
class ObservedStore:
    """Store whose requests are counted in ``shown``, the metrics of the service.  Several threads may use it."""

    store: ObjectStore
    shown: StoreMetricTable
    now: Callable[[], float] = time.perf_counter
    _lock: Lock = field(default_factory=Lock)
    _failed: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Requests that failed, by operation and key, oldest first."""

    def __post_init__(self) -> None:
        if isinstance(self.store, ObstoreStore):
            self.store.on_throttled = lambda key: self.shown.too_many_requests.labels(object_of(key)).inc()

    def get(self, key: str) -> bytes | None:
        return self._read("get", key, lambda: self.store.get(key))

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        return self._read("get-range", key, lambda: self.store.get_range(key, start, end))

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        outcome = self._asked("put", key, lambda: self.store.put_if_absent(key, data), _put_outcome)
        if isinstance(outcome, Stored):
            self.shown.written_bytes.labels(object_of(key)).inc(len(data))
        return outcome

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        def shown(found: Sequence[ObjectInfo] | None) -> str:
            return object_of(found[0].key) if found else OTHER

        return self._asked("list", prefix, lambda: self.store.list(prefix, limit, after), _done, shown)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete by one call of the inner store, which is counted under the kind of the first object."""
        if keys:
            self._asked("delete", keys[0], lambda: self.store.delete(keys), _done)

    def _read(self, operation: str, key: str, ask: Callable[[], bytes | None]) -> bytes | None:
        data = self._asked(operation, key, ask, lambda d: "absent" if d is None else "done")
        if data:
            self.shown.read_bytes.labels(object_of(key)).inc(len(data))
        return data

    def _asked(
        self,
        operation: str,
        key: str,
        ask: Callable[[], T],
        outcome_of: Callable[[T], str],
        object_in: Callable[[T | None], str] | None = None,
    ) -> T:
        """Return the answer of ``ask``, and count the request under the outcome and the kind of its object.

        The kind is that of ``key``, unless ``object_in`` finds it in the answer (None: the request failed)."""
        with self._lock:
            again = self._failed.pop((operation, key), False)
        began = self.now()
        answer: T | None = None
        outcome = "failed"
        try:
            answer = ask()
            outcome = outcome_of(answer)
            return answer
        finally:
            said = object_of(key) if object_in is None else object_in(answer)
            self.shown.request_seconds.labels(operation, said).observe(self.now() - began)
            self.shown.requests.labels(operation, said, outcome).inc()
            if again:
                self.shown.retries.labels(operation, said).inc()
            if outcome in ("failed", "unknown"):
                self._remember(operation, key)

    def _remember(self, operation: str, key: str) -> None:
        with self._lock:
            self._failed[operation, key] = True
            if len(self._failed) > REMEMBERED_MAX:
                del self._failed[next(iter(self._failed))]


def _done(answer: object) -> str:
    return "done"


def _put_outcome(outcome: PutOutcome) -> str:
    return {Stored: "done", Taken: "taken", PutUnknown: "unknown"}[type(outcome)]
