"""Change columns while services take in 10,000 rows/s: time of the commands, freshness, bytes, and what fails.

Broker, ingest, flusher, reader and each command are processes, as in production; this process produces.  The table has 64
partitions, and ingest seals and the flusher merges every few seconds, so that changes and merges meet.

1. Without records, once services have written nothing for ``QUIET_S``, one command of each kind runs.  All bytes that appear
   until ``QUIET_S`` after the last one count as written because of them.
2. Under load, the freshness of rows that are produced within ``WINDOW_S`` is measured: the end of the first strong read that
   shows a row minus the time of its produce call.
3. The five ``CHANGES`` follow each other.  As soon as a command that adds a column has ended, ``PROBES`` rows with a value
   in that column are produced; the slowest of them counts.
4. Freshness is measured again, for rows that are produced within ``WINDOW_S`` after the last command.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lance
import numpy as np
from confluent_kafka import Producer

from benchmarks.columns_reader import PROBES_FROM
from benchmarks.fresh_reads import FreshReader
from benchmarks.steady import BROKER, PRODUCER_LINGER_MS, RATE, producing
from benchmarks.workload import COLUMNS, PRIMARY_KEY, REGION_KEY, SCHEMA, fresh_row, table_rows
from benchmarks.write_amplification import Written
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import KafkaBroker, Process
from lancewal_tables.define.create import create_table

PARTITIONS = 64
WARM_S, WINDOW_S, QUIET_S = 20.0, 30.0, 10.0
WRITTEN_AT_ONCE = 1_000_000
PROBES = 64
IDLE_CHANGES = (("--add-column", "first: int64"), ("--rename-column", "first=second"), ("--drop-column", "second"))
CHANGES = (
    ("--add-column", "extra: int64"),
    ("--rename-column", "name=label"),
    ("--drop-column", "pad"),
    ("--add-column", "note: string"),
    ("--rename-column", "b=weight"),
)
VALUES = {"extra": 1, "note": "new"}
_LANCEWAL = (sys.executable, "-m", "lancewal_core.cli.program")


def run(rows: int) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    topic = "benchmark-columns"
    topics = {topic: PARTITIONS, f"{topic}.dead-letters": 1}
    try:
        with KafkaBroker(folder / "kafka", topics=topics, jvm_options=BROKER) as broker:
            return _Run(folder, broker.bootstrap_servers, topic, rows).measure()
    finally:
        shutil.rmtree(folder)


class _Run:
    """One table with its services."""

    def __init__(self, folder: Path, servers: str, topic: str, rows: int) -> None:
        self._folder, self._servers, self._topic, self._rows = folder, servers, topic, rows
        self._uri, self._config = folder / "table", folder / "lancewal.yaml"
        self._probes = 0
        self._config.write_text(
            f"""
table: {{uri: {self._uri}, topic: {topic},
  columns: {json.dumps(COLUMNS)}, primary_key: {list(PRIMARY_KEY)}, region_key: {list(REGION_KEY)}}}
kafka: {{bootstrap_servers: "{servers}"}}
ingest: {{seal_age_s: 5}}
flusher: {{merge_interval_s: 2}}
http: {{ingest_port: 0, flusher_port: 0}}
"""
        )
        create_table(load_settings(self._config, {}))
        for at in range(0, rows, WRITTEN_AT_ONCE):
            part = table_rows(np.arange(at, min(rows, at + WRITTEN_AT_ONCE)), 0)
            lance.write_dataset(part, str(self._uri), mode="append", schema=SCHEMA, max_rows_per_file=250_000)

    def measure(self) -> dict[str, float]:
        names = ("ingest", "flusher")
        with ExitStack() as stack:
            services = []
            for name in names:
                service = Process([*_LANCEWAL, name, "run", "--config", str(self._config)], self._log(name))
                stack.callback(service.stop, 30)
                services.append(service)
            figures = self._idle()
            figures |= self._loaded(self._reader(stack))
            ended = [name for name, service in zip(names, services, strict=True) if service.exit_code is not None]
        letters = sum(event["records"] for event in self._events("ingest", "dead_letters_written"))
        for name in ended:
            print(f"{name} has ended: {self._log(name).read_text()[-1500:]}", flush=True)
        print(f"{letters} dead letters", flush=True)
        figures["failures"] = figures.pop("failed_reads") + letters + len(ended)
        return figures

    def _idle(self) -> dict[str, float]:
        """Step 1."""
        written = Written(self._uri)
        self._quiet(written)
        written.by_kind.clear()
        seconds = [self._alter(*change) for change in IDLE_CHANGES]
        self._quiet(written)
        print(f"bytes {dict(written.by_kind)}", flush=True)
        return {"idle_command_s": max(seconds), "idle_bytes": written.by_kind.total()}

    def _loaded(self, reader: FreshReader) -> dict[str, float]:
        """Steps 2 to 4."""
        with producing(self._servers, [self._topic], PRODUCER_LINGER_MS, self._rows) as produced:
            time.sleep(WARM_S)
            began, seconds, columns = time.time(), list[float](), list[str]()
            time.sleep(WINDOW_S)
            changing = time.time()
            for option, text in CHANGES:
                seconds.append(self._alter(option, text))
                if option == "--add-column":
                    columns.append(text.partition(":")[0])
                    self._probe(columns[-1], reader)
            changed = time.time()
            time.sleep(WINDOW_S)
            ended = time.time()
        fresh = reader.end(produced())
        said, p99 = fresh.said, fresh.p99
        probes = [said["probes"].get(str(PROBES_FROM + n), float("inf")) / 1e3 for n in range(self._probes)]
        by_5_s = [f"{p99(since, since + 5):.0f}" for since in np.arange(began, ended - 5, 5)]
        print(f"freshness p99 each 5 s: {by_5_s} ms; median read {said['read_median_s']:.2f} s; load {os.getloadavg()}")
        before = p99(began, changing)
        return {
            "rows": self._rows,
            "command_s": max(seconds),
            "fresh_before_p99_ms": before,
            "fresh_during_p99_ms": p99(changing, changed),
            "fresh_after_p99_ms": p99(changed, ended),
            "fresh_ratio": p99(changed, ended) / before,
            "new_column_ms": max(probes),
            "new_column_ratio": max(probes) / before,
            "rows_unseen": fresh.unseen,
            "failed_reads": len(said["failed"]),
        }

    def _alter(self, option: str, text: str) -> float:
        """Seconds from the start of the command to its exit."""
        began, cpu = time.perf_counter(), _children_s()
        command = [*_LANCEWAL, "table", "alter", option, text, "--config", str(self._config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{option} {text!r} failed: {done.stdout}{done.stderr}")
        seconds = time.perf_counter() - began
        print(f"{option} {text!r}: {seconds:.2f} s, {_children_s() - cpu:.2f} s of CPU", flush=True)
        return seconds

    def _probe(self, column: str, reader: FreshReader) -> None:
        """Produce rows with a value in the column, under new keys."""
        reader.tell({"column": column})
        producer = Producer({"bootstrap.servers": self._servers, "partitioner": "murmur2_random"})
        for n in range(self._probes, self._probes + PROBES):
            row = fresh_row(self._rows + n, PROBES_FROM + n, time.time_ns() // 1000)
            value = json.dumps(json.loads(row.value) | {column: VALUES[column]})
            producer.produce(self._topic, key=row.key, value=value)
        producer.flush()
        self._probes += PROBES

    def _quiet(self, written: Written) -> None:
        """Wait until no file has appeared for ``QUIET_S``."""
        before, since = -1, time.monotonic()
        while time.monotonic() < since + QUIET_S:
            time.sleep(1)
            written.look()
            if written.by_kind.total() != before:
                before, since = written.by_kind.total(), time.monotonic()

    def _reader(self, stack: ExitStack) -> FreshReader:
        most = int(RATE * (WARM_S + 2 * WINDOW_S + 600))
        reader = FreshReader(str(self._uri), most, self._folder / "found.npz")
        stack.callback(reader.kill)
        return reader

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _events(self, name: str, event: str) -> Iterator[Mapping[str, Any]]:
        for line in self._log(name).read_text().splitlines():
            if line.startswith("{"):  # others are of libraries
                told = json.loads(line)
                if told["event"] == event:
                    yield told


def _children_s() -> float:
    """CPU time of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000), indent=1))
