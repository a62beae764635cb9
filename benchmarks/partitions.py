"""What partitions cost by their number, on a local folder: opening, ingest, memory, a reader's plan, a rebalance of half of
them, draining, a scrape.

No Kafka: for the rates, messages lie ready as in a client that fetches faster than they are taken, and a poll takes them as
``Consumer.consume`` hands them out: one list, in runs of a partition, up to ``SEGMENT_ROWS`` in all, of every partition some.
So each poll, and each segment, is of all partitions; of a backlog Kafka asks less, since a run is a fetched batch there.  What
dividing the list costs is the product's and is measured; that the client takes messages off its queue, and that ingest asks
it for the position of each partition, is not.

The rate is measured twice: with a service's default settings, where what is polled beside a segment goes together into the
next one, and with a segment of each poll, as rows come that leave time between polls.  Numbers of partitions take turns,
``ROUNDS`` times, since machines are faster at one time than at another; ratios are of medians.

Each runs in processes of its own, since memory is measured.  ``BENCHMARK_PARTITIONS``, as ``1,512``,
measures other numbers.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import product
from pathlib import Path

from prometheus_client import generate_latest

from benchmarks.elapsed import seconds
from benchmarks.memory_source import MemorySource
from benchmarks.partition_counts import partition_counts
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import Message, upserts
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_ingest.service.python_collector import look_at_new_objects_rarely
from lancewal_reader.table import open_table

PARTITIONS = (1, 64, 512, 1_000)
SEGMENT_ROWS = 10_000
SEGMENTS = 40
KEYS = 1_000_000
RUNS = 5
ROUNDS = 5
WARM_ROWS, SERVED_ROWS, SMALL_ROWS = 30_000, 240_000, 80_000
MIB = 1 << 20


def run() -> dict[str, float]:
    counts = partition_counts(PARTITIONS)
    rates: dict[str, list[float]] = defaultdict(list)
    for _, partitions in product(range(ROUNDS), counts):
        for name, value in _child("rates", partitions).items():
            rates[f"{name}_{partitions}"].append(value)
    figures = {name: statistics.median(found) for name, found in rates.items()}
    for partitions in counts:
        figures |= {f"{name}_{partitions}": value for name, value in _child("other", partitions).items()}
    for partitions, kind in product(sorted(PARTITIONS)[1:], ("", "small_")):
        of_one, of_these = (f"{kind}rows_per_s_{count}" for count in (1, partitions))
        if {of_one, of_these} <= figures.keys():
            figures[f"{kind}rate_ratio_{partitions}"] = figures[of_these] / figures[of_one]
    for name, value in figures.items():
        print(f"{name}: {value:.2f}", flush=True)
    return figures


def _child(what: str, partitions: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.partitions", what, str(partitions)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def rates(partitions: int, folder: Path) -> dict[str, float]:
    """Of ingest with default settings, but that no MemTable is sealed; and with a segment of each poll."""
    look_at_new_objects_rarely()  # as the service does
    figures = {}
    for name, as_served, rows in (("rows_per_s", True, SERVED_ROWS), ("small_rows_per_s", False, SMALL_ROWS)):
        address = Address(str(folder / name))
        contract = create(address, "benchmark", "benchmark-id", partitions)
        source = MemorySource(contract.regions)
        ingest = MemoryIngest(address, contract, source, 1 << 30, SEGMENT_ROWS, as_served=as_served)
        ingest.feed([])
        _, figures[name] = (_rate(ingest, list(upserts(count, KEYS, 1))) for count in (WARM_ROWS, rows))
        ingest.worker.drain(300)
    return figures


def measure(partitions: int, folder: Path) -> dict[str, float]:
    address = Address(str(folder / "table"))
    contract = create(address, "benchmark", "benchmark-id", partitions)
    source = MemorySource(contract.regions)
    ingest = MemoryIngest(address, contract, source, seal_rows=1_000_000, segment_rows=SEGMENT_ROWS)
    messages = list(upserts(SEGMENTS * SEGMENT_ROWS, KEYS, 1))
    before = _resident()
    look_at_new_objects_rarely()  # as the service does
    opened = seconds(lambda: ingest.feed([]))
    figures = {"open_s": opened, "open_mib": (_resident() - before) / MIB}
    for at in range(0, len(messages), SEGMENT_ROWS):
        ingest.feed(messages[at : at + SEGMENT_ROWS])
    table = open_table(address.uri)
    table.receipt()
    plans = []
    for seed in range(RUNS):
        ingest.feed(list(upserts(SEGMENT_ROWS // 10, KEYS, 2 + seed)))
        plans.append(seconds(table.receipt))
    figures["warm_plan_ms"] = 1000 * statistics.median(plans)
    figures["cold_plan_ms"] = 1000 * statistics.median(
        seconds(lambda: open_table(address.uri).receipt()) for _ in range(RUNS)
    )
    figures["rebalance_s"] = seconds(lambda: _rebalance(ingest))
    ingest.feed(list(upserts(SEGMENT_ROWS, KEYS, 1)))
    figures["drain_s"] = seconds(lambda: ingest.worker.drain(300))
    figures["scrape_mib"] = _scrape(partitions, per_partition=True) / MIB
    figures["scrape_summed_mib"] = _scrape(partitions, per_partition=False) / MIB
    return figures


def _rebalance(ingest: MemoryIngest) -> None:
    """Half of the partitions are given up, with rows in each, and flushed; then they come back."""
    half, worker = sorted(ingest.worker.durable)[::2], ingest.worker
    worker.revoked(half)
    while worker._flushes:
        worker.step(0.002)
    worker.assigned(half)
    ingest.feed([])


def _rate(ingest: MemoryIngest, messages: list[Message]) -> float:
    """Rows a second."""
    for message in messages:
        ingest.source.append(message)
    ingest.source.fetch(SEGMENT_ROWS)
    return len(messages) / seconds(lambda: ingest.feed([], turn_s=0.1))


def _scrape(partitions: int, *, per_partition: bool) -> int:
    """Bytes of ingest's metrics of so many open partitions."""
    metrics = IngestMetrics(SystemClock(), "s3://bucket/table", 1 << 30, IngestEvents(), per_partition=per_partition)
    regions = [Region("benchmark", TopicId("benchmark-id"), p) for p in range(partitions)]
    ends = {region: Position(10**9 + region.partition) for region in regions}
    metrics.positions(ends, 0)
    metrics.freshness(dict.fromkeys(regions, 0.123456789), ends)
    metrics.refresh(ends, {})
    metrics.standing({})
    metrics.retention(86400.0, dict.fromkeys(regions, 86400.0), dict.fromkeys(regions, 10**9))
    return len(generate_latest(metrics.registry))


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


MEASURES = {"rates": rates, "other": measure}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="lancewal-benchmark-") as place:
        print(json.dumps(MEASURES[sys.argv[1]](int(sys.argv[2]), Path(place))))
