"""Measure time, requests and rounds of requests of each operation on a store 30 ms away, by the number of partitions.

The store is the small S3 of ``tests.support`` in its own process.  It delays requests only while an operation is
measured.  Requests for rows of the table (``data/``, ``_deletions/``, ``_indices/``) are not counted.  A *round* is a
number of requests that are under way at the same time (``tests.support.small_s3.requests``). There is no Kafka: records
come from a list, for two members with a log each.  Only ``members`` runs services and a broker.

``BENCHMARK_PARTITIONS``, such as ``4,64``, selects other numbers of partitions.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import lance
import numpy as np

from benchmarks import members
from benchmarks.memory_source import MemorySource
from benchmarks.partition_counts import partition_counts
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import SCHEMA, table_rows, upserts
from lancewal_core.names import paths
from lancewal_core.open import Address
from lancewal_core.region.state import GenerationState
from lancewal_core.settings.load import Settings
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.open import open_context
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.service.service import serve
from lancewal_reader.table import open_table
from tests.support.small_s3.child import SmallS3Process
from tests.support.small_s3.requests import StoreRequest, of_the_protocol, rounds_of

DELAY_S = 0.03
PARTITIONS = (4, 64, 512)
MEMBERS = 2
BASE_ROWS = 50_000
MERGED_ROWS = 10_000
SEGMENTS = 200
RUNS = 5
IDLE_S = 15.0
COLUMNS = ["id"]
FOLDER = "table"


@dataclass(frozen=True, slots=True)
class Act:
    """One run of it."""

    seconds: float
    requests: int
    segments: int
    """Of the requests those that brought a segment of the log."""
    rounds: int
    committed_s: float | None
    """Until the first version of the table that it made was stored."""


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for partitions in partition_counts(PARTITIONS):
        with tempfile.TemporaryDirectory(prefix="lancewal-benchmark-") as folder, ExitStack() as stack:
            store = stack.enter_context(SmallS3Process(0.0, Path(folder) / "s3.log"))
            for name, what, value in Distance(store, partitions, stack).measure():
                print(f"{name}, {partitions} partitions, {what}: {value:.2f}", flush=True)
                figures[f"{name}_{partitions}_{what}"] = value
        for what, value in members.measure(partitions, DELAY_S).items():
            print(f"two members, {partitions} partitions, {what}: {value:.2f}", flush=True)
            figures[f"members_{partitions}_{what}"] = value
    return figures


class MeasuredStore(Protocol):
    """A store that tells what it was asked."""

    @property
    def options(self) -> dict[str, str]: ...

    def take(self) -> list[StoreRequest]:
        """Return the requests since the last call."""

    def delay(self, seconds: float) -> None:
        """Let each request wait from now on."""


class Distance:
    """A table at the store, with the ingests of two members and a flusher."""

    def __init__(self, store: MeasuredStore, partitions: int, stack: ExitStack, holder: str = "s3://bucket") -> None:
        """``holder``: address of the bucket."""
        self._store = store
        self._partitions = partitions
        self._address = Address(f"{holder}/{FOLDER}", store.options)
        self._settings = Settings.model_validate(
            {
                "table": {"uri": self._address.uri},
                "storage": {"options": store.options},
                "http": {"flusher_port": 0},
            }
        )
        contract = create(self._address, "benchmark", "benchmark-id", partitions)
        options: Any = {"storage_options": store.options}
        rows = table_rows(np.arange(BASE_ROWS), 0)
        lance.write_dataset(rows, self._address.uri, mode="append", schema=SCHEMA, **options)
        self._contract = contract
        self._all = MemorySource(contract.regions)
        self._halves = [self._all.part(contract.regions[n::MEMBERS]) for n in range(MEMBERS)]
        self._ingests = self._members()
        self._context = stack.enter_context(open_context(self._settings))
        self._rounds, self._garbage = RoundState(), GarbageState()
        self._seed = 0

    def measure(self, segments: int = SEGMENTS, *, idle: bool = True) -> Iterator[tuple[str, str, float]]:
        """Yield act, unit and figure.  ``segments``: how many are unmerged when the table is opened."""
        self._feed(MERGED_ROWS)
        merges = [self._merge()]  # the first one makes the key index
        opened = open_table(self._address.uri, storage_options=self._store.options)
        opened.to_arrow(COLUMNS)
        warm: list[Act] = []
        for _ in range(RUNS):
            self._feed(MERGED_ROWS)
            merges.append(self._merge())
            self._feed(2 * self._partitions)
            warm.append(self._act(lambda: opened.to_arrow(COLUMNS)))
        yield from _figures("warm", warm)
        yield from _figures("merge", merges[1:])
        for n in range(segments - RUNS * MEMBERS):
            self._feed(8, self._ingests[n % MEMBERS])
        yield from _figures("open_unmerged", [self._act(self._open_and_read) for _ in range(RUNS)])
        for ingest in self._ingests:
            ingest.worker.drain(120)
        self._merge()
        yield from _figures("open_merged", [self._act(self._open_and_read) for _ in range(RUNS)])
        opened.to_arrow(COLUMNS)
        yield from _figures("again", [self._act(lambda: opened.to_arrow(COLUMNS)) for _ in range(RUNS)])
        starts, stops = zip(*(self._start_and_stop() for _ in range(RUNS)), strict=True)
        yield from _figures("start_ingest", list(starts))
        yield from _figures("stop_ingest", list(stops))
        collect = [self._act(lambda: collect_garbage(self._context, self._garbage)) for _ in range(3)]
        yield from _figures("garbage", collect)
        if idle:
            yield "idle", "requests_per_s", self._idle()

    def requests_of(self, act: Callable[[], object]) -> int:
        return self._act(act).requests

    def append_a_segment(self) -> None:
        self._feed(8, self._ingests[0])

    def put_and_delete(self, objects: int) -> Callable[[], object]:
        """Put objects, and return the call that deletes them."""
        store, keys = self._address.store(), [f"_lancewal/benchmark/{n}" for n in range(objects)]
        for key in keys:
            store.put_if_absent(key, b"1")
        return lambda: store.delete(keys)

    def _start_and_stop(self) -> tuple[Act, Act]:
        """Of one ingest that opens all partitions, and has some rows in memory when it ends."""
        ingest = self._ingest_of(self._all)
        self._ingests, worker = [ingest], ingest.worker

        def open_partitions() -> None:
            while len(worker.durable) < self._partitions:
                worker.step(0.0)

        started = self._act(open_partitions)
        self._feed(2 * self._partitions)
        stopped = self._act(lambda: worker.drain(120))
        self._merge()
        return started, stopped

    def _members(self) -> list[MemoryIngest]:
        return [self._ingest_of(half) for half in self._halves]

    def _ingest_of(self, source: MemorySource) -> MemoryIngest:
        seal_rows = MERGED_ROWS // self._partitions // 2
        return MemoryIngest(self._address, self._contract, source, seal_rows, 100_000)

    def _feed(self, rows: int, *ingests: MemoryIngest) -> None:
        """Durable at these or all members, and what is sealed of it flushed."""
        self._seed += 1
        messages = list(upserts(rows, BASE_ROWS, self._seed))
        for ingest in ingests or self._ingests:
            ingest.feed(messages)
        while any(record.state is GenerationState.SEALED for record in self._records()):
            for ingest in self._ingests:
                ingest.worker.step(0.01)

    def _records(self) -> list[Any]:
        return [record for state in self._context.read_states().values() for record in state.generations]

    def _merge(self) -> Act:
        def merge() -> None:
            report = run_round(self._context, MergeLimits(), self._rounds, sealed_grace_s=60.0)
            if not report.merges or report.refused or report.left is None:
                raise AssertionError(f"not a merge: {report}")

        return self._act(merge)

    def _open_and_read(self) -> None:
        open_table(self._address.uri, storage_options=self._store.options).to_arrow(COLUMNS)

    def _idle(self) -> float:
        """Requests a second of a flusher and two ingests that have nothing to do."""
        self._ingests = self._members()
        self._feed(0)
        stop, serving = threading.Event(), threading.Event()
        flusher = threading.Thread(target=serve, args=(self._settings, stop.is_set, lambda port: serving.set()))
        with self._far():
            flusher.start()
            serving.wait(60.0)
            self._steps(5.0)  # its first round
            self._store.take()
            self._steps(IDLE_S)
            taken = self._taken()
        stop.set()
        flusher.join()
        return len(taken) / IDLE_S

    def _steps(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for ingest in self._ingests:
                ingest.worker.step(0.05)

    def _act(self, act: Callable[[], object]) -> Act:
        with self._far():
            self._store.take()
            began = time.monotonic()
            act()
            seconds = time.monotonic() - began
            taken = self._taken()
        made = [
            request.end
            for request in taken
            if request.method == "PUT" and request.below(FOLDER).startswith("_versions/")
        ]
        # The clock of the other process is another one.
        committed_s = min(made) - min(request.begin for request in taken) if made else None
        segments = sum(request.status < 300 and _is_segment(request) for request in taken)
        return Act(seconds, len(taken), segments, rounds_of(taken), committed_s)

    def _taken(self) -> list[StoreRequest]:
        return of_the_protocol(self._store.take(), FOLDER)

    @contextmanager
    def _far(self) -> Iterator[None]:
        self._store.delay(DELAY_S)
        try:
            yield
        finally:
            self._store.delay(0.0)


def _is_segment(request: StoreRequest) -> bool:
    return request.method == "GET" and paths.parse_wal_segment(request.below(FOLDER)) is not None


def _figures(name: str, acts: list[Act]) -> Iterator[tuple[str, str, float]]:
    yield name, "s", statistics.median(act.seconds for act in acts)
    yield name, "requests", statistics.median(act.requests for act in acts)
    yield name, "requests_besides_segments", statistics.median(act.requests - act.segments for act in acts)
    yield name, "rounds", statistics.median(act.rounds for act in acts)
    committed = [act.committed_s for act in acts if act.committed_s is not None]
    if committed:
        yield name, "committed_s", statistics.median(committed)
