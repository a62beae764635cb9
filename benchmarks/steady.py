"""Run all services at 10,000 rows/s with a store 30 ms away: requests a second, and how soon a row is seen.

Broker, two ingest services and a flusher are processes as in production, with default settings; this process produces.
Its Kafka client waits 50 ms for more rows of a partition, and 200 ms with hundreds of partitions.  With 5 ms nearly
every row of 64 partitions would be its own batch: a thousand batches a second take most of a core of the broker, and
rows that wait for the broker are no fresher.  The store is the small S3 of ``tests.support``. Rows are upserts of the
base table's keys in random order, so that a key comes again only after five seconds.

1. After ``WARM_S``, all requests are counted for ``COUNTED_S``: a few rounds of sealing, flushing and merging.
   Requests for rows of the table (``data/``, ``_deletions/``, ``_indices/``) are counted separately.
2. Then a reader process keeps one table open and reads it repeatedly for ``READ_S``. The freshness of a row is the
   end of the first read that shows it minus the time of its produce call.

The figures also have the requests that ``lancewal estimate`` expects for the same deployment, without requests that
grow with its age: listings of a log of a day, and deletions.

``BENCHMARK_PARTITIONS``, such as ``4,64``, selects other numbers of partitions.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import lance
import numpy as np
from confluent_kafka import Producer

from benchmarks.distance import BASE_ROWS, DELAY_S, FOLDER
from benchmarks.partition_counts import partition_counts
from benchmarks.workload import COLUMNS, PRIMARY_KEY, REGION_KEY, SCHEMA, fresh_row, table_rows
from lancewal_core.cli.estimate.deployment import Deployment
from lancewal_core.cli.estimate.expected import expected
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import KafkaBroker, Process
from lancewal_tables.define.create import create_table
from tests.support.small_s3.child import SmallS3Process
from tests.support.small_s3.requests import StoreRequest, by_kind, of_the_protocol

PARTITIONS = (4, 64, 512)
BROKER = ("-Xmx1g", "-XX:+UseSerialGC")
"""It runs for minutes: Java compiles what is called often, as a broker in production does."""
RATE = 10_000
MEMBERS = 2
WARM_S, COUNTED_S, READ_S = 30.0, 150.0, 40.0
ROW_BYTES = 150.0
PIECE_S = 0.01
QUEUED_MAX = 50_000
"""Rows that wait in the producer: half of what its client lets wait."""
PRODUCER_LINGER_MS, PRODUCER_LINGER_MANY_MS, MANY = 50, 200, 100
"""Of few partitions, and of so many and more."""
LISTINGS = "listings of the log by garbage rounds"
METHODS = {"put": ("PUT", "POST"), "get": ("GET", "HEAD"), "list": ("LIST",), "delete": ("DELETE",)}


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for partitions in partition_counts(PARTITIONS):
        folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
        try:
            found = _measure(folder, partitions)
        finally:
            shutil.rmtree(folder)
        for what, value in found.items():
            print(f"{partitions} partitions, {what}: {value:.2f}", flush=True)
            figures[f"{what}_{partitions}"] = value
    return figures


def _measure(folder: Path, partitions: int) -> dict[str, float]:
    config, topic = folder / "lancewal.yaml", "benchmark-steady"
    topics = {topic: partitions, f"{topic}.dead-letters": 1}
    with ExitStack() as stack:
        store = stack.enter_context(SmallS3Process(0.0, folder / "s3.log"))
        broker = stack.enter_context(KafkaBroker(folder / "kafka", topics=topics, jvm_options=BROKER))
        servers, uri = broker.bootstrap_servers, f"s3://bucket/{FOLDER}"
        config.write_text(
            f"""
table: {{uri: {uri}, topic: {topic},
  columns: {json.dumps(COLUMNS)}, primary_key: {list(PRIMARY_KEY)}, region_key: {list(REGION_KEY)}}}
storage: {{options: {json.dumps(store.options)}}}
kafka: {{bootstrap_servers: "{servers}"}}
http: {{ingest_port: 0, flusher_port: 0}}
"""
        )
        create_table(load_settings(config, {}))
        options: Any = {"storage_options": store.options}
        lance.write_dataset(table_rows(np.arange(BASE_ROWS), 0), uri, mode="append", schema=SCHEMA, **options)
        store.delay(DELAY_S)
        lancewal = [sys.executable, "-m", "lancewal_core.cli.program"]
        services = [
            Process([*lancewal, *words, "run", "--config", str(config)], folder / f"{n}.log")
            for n, words in enumerate([["ingest"]] * MEMBERS + [["flusher"]])
        ]
        try:
            time.sleep(15)  # imports and the first joining of the group
            linger_ms = PRODUCER_LINGER_MS if partitions < MANY else PRODUCER_LINGER_MANY_MS
            with producing(servers, [topic], linger_ms, BASE_ROWS) as produced:
                time.sleep(WARM_S)
                store.take()
                began, before = time.monotonic(), produced()
                time.sleep(COUNTED_S)
                taken, seconds = store.take(), time.monotonic() - began
                rate = (produced() - before) / seconds
                freshness = _freshness(uri, store)
            codes = [service.exit_code for service in services]
        finally:
            for service in services:
                service.stop(30)
        if any(code is not None for code in codes):
            logs = [(folder / f"{n}.log").read_text()[-1500:] for n in range(len(services))]
            raise RuntimeError(f"a service ended by itself, exit codes {codes}: {logs}")
    found = {**_rates(taken, seconds), **freshness, "expected_requests": expected_requests(partitions)}
    return {"rows_per_s": rate, **found}


def expected_requests(partitions: int) -> float:
    """Requests a second."""
    wished = Deployment(RATE, ROW_BYTES, partitions, MEMBERS, DELAY_S, freshness_s=None, readers=0, read_every_s=0.0)
    by_act = expected(wished).by_act
    return sum(act.requests - act.delete for name, act in by_act.items() if name != LISTINGS)


def _rates(taken: list[StoreRequest], seconds: float) -> dict[str, float]:
    """Requests a second."""
    ours = of_the_protocol(taken, FOLDER)
    found = {"requests": len(ours) / seconds, "row_requests": (len(taken) - len(ours)) / seconds}
    found["wal_puts"] = by_kind(ours, FOLDER)["PUT _lancewal/wal"] / seconds
    for name, methods in METHODS.items():
        found[name] = sum(request.method in methods for request in ours) / seconds
        found[f"row_{name}"] = sum(request.method in methods for request in taken) / seconds - found[name]
    for kind, count in sorted(by_kind(taken, FOLDER).items()):
        print(f"  {kind}: {count / seconds:.3f}/s", flush=True)
    return found


def _freshness(uri: str, store: SmallS3Process) -> dict[str, float]:
    child = [sys.executable, "-m", "benchmarks.steady_reader", uri, json.dumps(store.options), str(READ_S)]
    output = subprocess.run(child, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return found


@contextmanager
def producing(
    servers: str, topics: Sequence[str], linger_ms: int, keys: int, rate: int = RATE
) -> Iterator[Callable[[], int]]:
    """Upsert so many keys of each topic at ``rate`` rows/s in all, beside what is done inside ``with``; tells how many rows
    were produced so far.  Topics take turns: each has rows of its own, numbered from 0."""
    over, produced = threading.Event(), [0]
    ids = np.random.default_rng(3).permutation(keys).tolist()
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random", "linger.ms": linger_ms})

    def produce() -> None:
        """What the broker does not take, as in its first seconds, waits here, and is produced later as fast as it goes."""
        piece, n, began = int(rate * PIECE_S), 0, time.monotonic()
        while not over.is_set():
            now = time.time_ns() // 1000
            for n in range(n, n + piece):  # noqa: B020 # goes on where the last piece ended
                number, topic = divmod(n, len(topics))
                row = fresh_row(ids[number % len(ids)], number, now)
                while len(producer) >= QUEUED_MAX:
                    producer.poll(PIECE_S)
                producer.produce(topics[topic], key=row.key, value=row.value)
            n += 1
            produced[0] = n
            producer.poll(0)
            over.wait(max(0.0, began + n / rate - time.monotonic()))
        producer.flush()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(produce)
        try:
            yield lambda: produced[0]
        finally:
            over.set()
            running.result()


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
