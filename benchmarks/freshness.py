"""Measure freshness: the time from the produce call until a strong read of another process shows the row.

Rows arrive at 10,000 rows/s for 60 s in a table of 1 M rows, while the flusher merges.  The reader keeps one table open
and repeats ``scan`` of key and produce time.  Broker, ingest service, flusher and reader are processes, as in
production; this process produces.  Every row has its own key, so each is seen for the first time once.  Its freshness
is the end of the first scan that shows the row minus the time of its produce call.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lance
import numpy as np
from confluent_kafka import Producer

from benchmarks.ingest import prefill
from benchmarks.workload import COLUMNS, PRIMARY_KEY, REGION_KEY, SCHEMA, fresh_row, table_rows
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import KafkaBroker, Process
from lancewal_tables.define.create import create_table

BASE_ROWS = 1_000_000
RATE = 10_000
SLICE_S = 0.01


def run(seconds: int = 60, reader: str = "benchmarks.freshness_reader") -> dict[str, float]:
    """``reader``: module of the process that reads; it takes the table, the number of rows and its time in seconds.  It prints
    a line when it is ready, and its figures last."""
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    try:
        with KafkaBroker(folder / "kafka") as broker:
            return _measure(folder, broker.bootstrap_servers, seconds, reader)
    finally:
        shutil.rmtree(folder)


def _measure(folder: Path, servers: str, seconds: int, module: str) -> dict[str, float]:
    table, config, topic = folder / "table", folder / "lancewal.yaml", "benchmark-freshness"
    config.write_text(
        f"""
table: {{uri: {table}, topic: {topic},
  columns: {json.dumps(COLUMNS)}, primary_key: {list(PRIMARY_KEY)}, region_key: {list(REGION_KEY)}}}
kafka: {{bootstrap_servers: "{servers}"}}
ingest: {{seal_age_s: 5}}
flusher: {{merge_interval_s: 2}}
http: {{ingest_port: 0, flusher_port: 0}}
"""
    )
    prefill(servers, topic, iter(()))
    create_table(load_settings(config, {}))
    lance.write_dataset(table_rows(np.arange(BASE_ROWS), 0), str(table), mode="append", schema=SCHEMA,
                        max_rows_per_file=250_000)  # fmt: skip
    rows = RATE * seconds
    lancewal = [sys.executable, "-m", "lancewal_core.cli.program"]
    services = [
        Process([*lancewal, "ingest", "run", "--config", str(config)], folder / "ingest.log"),
        Process([*lancewal, "flusher", "run", "--config", str(config)], folder / "flusher.log"),
    ]
    try:
        reader = subprocess.Popen(
            [sys.executable, "-m", module, str(table), str(rows), str(seconds + 70)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert reader.stdout is not None
        reader.stdout.readline()
        time.sleep(10)  # imports and the first consumer group join are not what is measured
        produce(servers, topic, rows)
        output, _ = reader.communicate(timeout=seconds + 120)
    finally:
        codes = [service.exit_code for service in services]
        for service in services:
            service.stop(30)
    if codes != [None, None]:
        logs = [(folder / name).read_text()[-1500:] for name in ("ingest.log", "flusher.log")]
        raise RuntimeError(f"a service ended by itself, exit codes {codes}: {logs}")
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    found["table_version"] = lance.dataset(str(table)).version
    return found


def produce(servers: str, topic: str, rows: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random", "linger.ms": 5})
    ids = np.random.default_rng(3).permutation(BASE_ROWS)[:rows].tolist()
    start = time.time()
    for n, row_id in enumerate(ids):
        if n % int(RATE * SLICE_S) == 0:
            producer.poll(0)
            ahead = start + n / RATE - time.time()
            if ahead > 0:
                time.sleep(ahead)
        row = fresh_row(row_id, n, time.time_ns() // 1000)
        producer.produce(topic, key=row.key, value=row.value)
    producer.flush()


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else 60), indent=1))
