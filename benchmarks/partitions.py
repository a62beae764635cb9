"""What partitions cost by their number, on a local folder: opening, ingest, memory, a reader's plan, a rebalance of half of
them, draining, a scrape.

No Kafka: for the rates, messages lie ready as in a client that fetches faster than they are taken, and a poll takes them as
``Consumer.consume`` hands them out: one list, in runs of a partition, up to ``SEGMENT_ROWS`` in all, of every partition some.
So each poll, and each segment, is of all partitions; of a backlog Kafka asks less, since a run is a fetched batch there.  What
dividing the list costs is the product's and is measured; that the client takes messages off its queue, and that ingest asks
it for the position of each partition, is not.

Each number of partitions runs in a process of its own, since memory is measured.  ``BENCHMARK_PARTITIONS``, as ``1,512``,
measures other numbers.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from prometheus_client import generate_latest

from benchmarks.elapsed import seconds
from benchmarks.memory_source import MemorySource
from benchmarks.partition_counts import partition_counts
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import Message, upserts
from lancewal_core.ids import Position, Region, TopicId
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.python_collector import look_at_new_objects_rarely
from lancewal_ingest.service.metrics import IngestMetrics
from lancewal_reader.table import open_table

PARTITIONS = (1, 64, 512, 1_000)
SEGMENT_ROWS = 10_000
SEGMENTS = 40
KEYS = 1_000_000
RUNS = 5
MIB = 1 << 20


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for partitions in partition_counts(PARTITIONS):
        command = [sys.executable, "-m", "benchmarks.partitions", str(partitions)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        for name, value in json.loads(done.stdout.splitlines()[-1]).items():
            figures[f"{name}_{partitions}"] = value
            print(f"{partitions} partitions, {name}: {value:.2f}", flush=True)
    for partitions in sorted(PARTITIONS)[1:]:
        if {f"rows_per_s_{partitions}", "rows_per_s_1"} <= figures.keys():
            ratio = figures[f"rows_per_s_{partitions}"] / figures["rows_per_s_1"]
            figures[f"rate_ratio_{partitions}"] = ratio
            print(f"{partitions} partitions, rate over that of one: {ratio:.2f}", flush=True)
    return figures


def measure(partitions: int, folder: Path) -> dict[str, float]:
    address = Address(str(folder / "table"))
    contract = create(address, "benchmark", "benchmark-id", partitions)
    source = MemorySource(contract.topic_id, partitions)
    ingest = MemoryIngest(address, contract, source, seal_rows=1_000_000, segment_rows=SEGMENT_ROWS)
    messages = list(upserts(SEGMENTS * SEGMENT_ROWS, KEYS, 1))
    before = _resident()
    look_at_new_objects_rarely()  # as the service does
    opened = seconds(lambda: ingest.feed([]))
    figures = {"open_s": opened, "open_mib": (_resident() - before) / MIB}
    figures["rows_per_s"] = statistics.median(_rates(ingest, messages))
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
    figures["rebalance_s"] = seconds(lambda: _rebalance(ingest, partitions))
    ingest.feed(list(upserts(SEGMENT_ROWS, KEYS, 1)))
    figures["drain_s"] = seconds(lambda: ingest.worker.drain(300))
    figures["scrape_mib"] = _scrape(partitions, per_partition=True) / MIB
    figures["scrape_summed_mib"] = _scrape(partitions, per_partition=False) / MIB
    return figures


def _rebalance(ingest: MemoryIngest, partitions: int) -> None:
    """Half of the partitions are given up, with rows in each, and flushed; then they come back."""
    half, worker = range(0, partitions, 2), ingest.worker
    worker.revoked(half)
    while worker._flushes:
        worker.step(0.002)
    worker.assigned(half)
    ingest.feed([])


def _rates(ingest: MemoryIngest, messages: list[Message]) -> list[float]:
    step = len(messages) // RUNS
    rates = []
    for at in range(0, len(messages), step):
        for message in messages[at : at + step]:
            ingest.source.append(message)
        ingest.source.fetch(SEGMENT_ROWS)
        rates.append(step / seconds(lambda: ingest.feed([], turn_s=0.1)))
    return rates


def _scrape(partitions: int, *, per_partition: bool) -> int:
    """Bytes of ingest's metrics of so many open partitions."""
    metrics = IngestMetrics(SystemClock(), "s3://bucket/table", 1 << 30, IngestEvents(), per_partition=per_partition)
    regions = {p: Region("benchmark", TopicId("benchmark-id"), p) for p in range(partitions)}
    ends = {p: Position(10**9 + p) for p in regions}
    metrics.positions(regions, ends, 0)
    metrics.freshness(dict.fromkeys(regions, 0.123456789), ends)
    metrics.refresh(ends, {})
    metrics.standing({})
    metrics.retention(dict.fromkeys(regions, 86400.0), dict.fromkeys(regions, 10**9))
    return len(generate_latest(metrics.registry))


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="lancewal-benchmark-") as place:
        print(json.dumps(measure(int(sys.argv[1]), Path(place))))
