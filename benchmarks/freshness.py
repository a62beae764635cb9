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
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured: rows a second, for so many seconds, in a table of so many rows."""

    seconds: int = 60
    rate: int = RATE
    base_rows: int = BASE_ROWS
    uri: str = ""
    """Address of the table.  Empty: a folder."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Storage options."""


def run(seconds: int = 60, reader: str = "benchmarks.freshness_reader") -> dict[str, float]:
    """``reader``: module of the process that reads; it takes the table, the number of rows and its time in seconds.  It prints
    a line when it is ready, and its figures last."""
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    try:
        with KafkaBroker(folder / "kafka") as broker:
            return measured(folder, broker.bootstrap_servers, Load(seconds), reader)
    finally:
        shutil.rmtree(folder)


def measured(
    folder: Path,
    servers: str,
    load: Load,
    module: str = "benchmarks.freshness_reader",
    topic: str = "benchmark-freshness",
) -> dict[str, float]:
    """Serve a table in processes, and return the figures of its reader."""
    table, config, seconds = load.uri or str(folder / "table"), folder / "lancewal.yaml", load.seconds
    config.write_text(
        f"""
table: {{uri: {table}, topic: {topic},
  columns: {json.dumps(COLUMNS)}, primary_key: {list(PRIMARY_KEY)}, region_key: {list(REGION_KEY)}}}
kafka: {{bootstrap_servers: "{servers}"}}
ingest: {{seal_age_s: 5}}
flusher: {{merge_interval_s: 2}}
http: {{ingest_port: 0, flusher_port: 0}}
storage: {{options: {json.dumps(load.options)}}}
"""
    )
    prefill(servers, topic, iter(()))
    create_table(load_settings(config, {}))
    options = dict(load.options)
    lance.write_dataset(table_rows(np.arange(load.base_rows), 0), table, mode="append", schema=SCHEMA,
                        max_rows_per_file=250_000, storage_options=options or None)  # fmt: skip
    rows = load.rate * seconds
    lancewal = [sys.executable, "-m", "lancewal_core.cli.program"]
    services = [
        Process([*lancewal, "ingest", "run", "--config", str(config)], folder / "ingest.log"),
        Process([*lancewal, "flusher", "run", "--config", str(config)], folder / "flusher.log"),
    ]
    try:
        reader = subprocess.Popen(
            [sys.executable, "-m", module, table, str(rows), str(seconds + 70), *([json.dumps(options)] if options else [])],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert reader.stdout is not None
        reader.stdout.readline()
        time.sleep(10)  # imports and the first consumer group join are not what is measured
        produce(servers, topic, rows, load.rate, load.base_rows)
        output, _ = reader.communicate(timeout=seconds + 120)
    finally:
        codes = [service.exit_code for service in services]
        for service in services:
            service.stop(30)
    if codes != [None, None]:
        logs = [(folder / name).read_text()[-1500:] for name in ("ingest.log", "flusher.log")]
        raise RuntimeError(f"a service ended by itself, exit codes {codes}: {logs}")
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    found["table_version"] = lance.dataset(table, storage_options=options or None).version
    return found


def produce(servers: str, topic: str, rows: int, rate: int = RATE, base_rows: int = BASE_ROWS) -> None:
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random", "linger.ms": 5})
    ids = np.random.default_rng(3).permutation(base_rows)[:rows].tolist()
    start = time.time()
    for n, row_id in enumerate(ids):
        if n % int(rate * SLICE_S) == 0:
            producer.poll(0)
            ahead = start + n / rate - time.time()
            if ahead > 0:
                time.sleep(ahead)
        row = fresh_row(row_id, n, time.time_ns() // 1000)
        producer.produce(topic, key=row.key, value=row.value)
    producer.flush()


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else 60), indent=1))
