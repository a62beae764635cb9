"""What an act on all regions of a table takes grows with their number and no faster: calls of Python, and bytes that stay.

Counted, not timed, with the real Lance and obstore over a local folder, and by a clock that stands: one region a partition,
with a row or two.  What has eight times as many may take eight times as many calls; some each act takes whatever it has.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from benchmarks import tables
from benchmarks.memory_source import MemorySource
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import Message, upserts
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.parts import MappedParts
from lancewal_core.open import Address, open_at
from lancewal_core.rows.murmur2 import partition_of
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks.runner import ThreadRunner
from lancewal_ingest.service.worker import IngestWorker
from lancewal_reader.table import Table, reads_of
from tests.support.scripted import InlineTasks, ManualClock

FEW, MANY = 32, 256
KEPT_MAX, PEAK_MAX = 4_000, 8_000
"""Bytes a region, beside the rows: what an act leaves behind, and what it has at most meanwhile.  1,000 are 4 and 8 MB."""
TRACED = {"open", "append", "plan of a new handle", "plan behind a segment", "merge", "nothing to merge", "garbage"}
"""Acts whose memory is measured."""
Act = Callable[[], object]


def acts(partitions: int) -> Iterator[tuple[str, Act]]:
    """Each is to be made before the next is asked for."""
    tasks, clock = InlineTasks(), ManualClock()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        address = Address(str(folder / "table"))
        contract = create(address, "topic", "topic-id", partitions, 32)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "SystemClock", lambda: clock)
            ingest = MemoryIngest(address, contract, MemorySource(contract.regions), 1 << 30, 100_000, tasks)
        worker, rows = ingest.worker, rows_of_each(partitions)
        yield "open", partial(ingest.feed, [])
        yield "append", partial(ingest.feed, rows)
        table = Table(reads_of(open_at(address, tasks, clock), address.uri))
        yield "plan of a new handle", table.receipt
        ingest.feed(rows)
        yield "plan behind a segment", table.receipt
        yield "four turns with nothing to do", partial(turns, worker, 4)
        half = contract.regions[::2]
        yield "give up half", partial(worker.revoked, half)
        while worker._flushes:
            worker.step(0.0)
        worker.assigned(half)
        yield "take half", partial(ingest.feed, [])
        ingest.feed(rows)
        yield "drain", partial(worker.drain, 300.0)
        opened = open_at(address, tasks, clock)
        parts = MappedParts(opened.store, None, folder, 1 << 30)
        keys = KeyIndex(KeyCatalogs(opened.store, opened.clock, opened.contract.making), parts, tasks)
        context = FlusherContext(*opened.parts, keys, ThreadRunner(opened.table, tasks), lambda: uuid.uuid4().hex)
        merge = partial(run_round, context, MergeLimits(), RoundState(), sealed_grace_s=60.0)
        yield "merge", merge
        yield "nothing to merge", merge
        yield "garbage", partial(collect_garbage, context, GarbageState())


def turns(worker: IngestWorker, count: int) -> None:
    for _ in range(count):
        worker.step(0.0)


def rows_of_each(partitions: int) -> list[Message]:
    found: dict[int, Message] = {}
    for message in upserts(50 * partitions, 100_000, 1):
        found.setdefault(partition_of(message.key, partitions), message)
    assert len(found) == partitions
    return list(found.values())


def calls(act: Act) -> int:
    """Of functions written in Python."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def traced(act: Act) -> tuple[int, int]:
    """Bytes of Python's objects that it leaves, and the most that it has."""
    gc.collect()
    tracemalloc.start()
    try:
        act()
        gc.collect()
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def test_calls_grow_with_regions_and_no_faster() -> None:
    few, many = ({name: calls(act) for name, act in acts(partitions)} for partitions in (FEW, MANY))
    grown = {name: many[name] / few[name] for name in few}
    assert {name: growth for name, growth in grown.items() if growth > 1.05 * MANY / FEW} == {}
    assert all(growth > 1.5 for growth in grown.values()), "else nothing was counted that follows regions"


def test_a_region_takes_few_bytes() -> None:
    found: dict[int, dict[str, tuple[int, int]]] = {}
    for partitions in (FEW, MANY):
        found[partitions] = {}
        for name, act in acts(partitions):
            if name in TRACED:
                found[partitions][name] = traced(act)
            else:
                act()
    for name in TRACED:
        kept, peak = ((found[MANY][name][of] - found[FEW][name][of]) / (MANY - FEW) for of in range(2))
        assert kept < KEPT_MAX, name
        assert peak < PEAK_MAX, name
