"""Time the start and the end of two ingest members at a store 30 ms away.

Broker and members are processes as in production, with default settings.  Before the members start, each partition has
a row in Kafka.  ``start`` ends when a strong read shows all these rows; the reader opened the table before, and reads
every 50 ms.  When the group has assigned partitions to both members, each partition gets one more row.  When these rows
are readable, both members are told to stop; ``stop`` ends when the later member has ended.  In the first run the
partitions were never open before; in the second run they were handed over.

``BENCHMARK_PARTITIONS`` selects other numbers of partitions, as for ``distance``, which calls this module.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.partition_counts import partition_counts
from benchmarks.workload import COLUMNS, PRIMARY_KEY, REGION_KEY, Message, upserts
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import KafkaBroker, Process
from lancewal_demo.stack.processes import log_tail
from lancewal_reader.table import Table, open_table
from lancewal_tables.define.create import create_table
from tests.support.small_s3.child import SmallS3Process
from tests.support.small_s3.requests import of_the_protocol

MEMBERS = 2
FOLDER, TOPIC = "table", "benchmark-members"
KEYS = 10_000_000
LOOK_S = 0.05
WITHIN_S = 120.0


def measure(partitions: int, delay_s: float) -> dict[str, float]:
    """Seconds and requests of the members."""
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    try:
        with ExitStack() as stack:
            store = stack.enter_context(SmallS3Process(0.0, folder / "s3.log"))
            topics = {TOPIC: partitions, f"{TOPIC}.dead-letters": 1}
            broker = stack.enter_context(KafkaBroker(folder / "kafka", topics=topics))
            return dict(_Members(folder, store, broker.bootstrap_servers, partitions).measure(delay_s))
    finally:
        shutil.rmtree(folder)


class _Members:
    """A table at the store, and a topic."""

    def __init__(self, folder: Path, store: SmallS3Process, servers: str, partitions: int) -> None:
        self._folder, self._store = folder, store
        self._partitions = partitions
        self._producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random", "log_level": 2})
        self._rows = upserts(KEYS, KEYS, 1)
        self._started = self._produced = 0
        self._config = folder / "lancewal.yaml"
        self._uri = f"s3://bucket/{FOLDER}"
        self._config.write_text(
            f"""
table: {{uri: {self._uri}, topic: {TOPIC},
  columns: {json.dumps(COLUMNS)}, primary_key: {list(PRIMARY_KEY)}, region_key: {list(REGION_KEY)}}}
storage: {{options: {json.dumps(store.options)}}}
kafka: {{bootstrap_servers: "{servers}"}}
http: {{ingest_port: 0}}
"""
        )
        create_table(load_settings(self._config, {}))

    def measure(self, delay_s: float) -> Iterator[tuple[str, float]]:
        self._store.delay(delay_s)
        table = open_table(self._uri, storage_options=self._store.options)
        for name in ("first_", ""):
            self._produce()
            table.receipt()
            self._store.take()
            began = time.monotonic()
            members = [self._start() for _ in range(MEMBERS)]
            try:
                yield f"{name}start_s", self._readable(table, members) - began
                self._wait(lambda: all("partition_opened" in m.log.read_text() for m in members), members)  # noqa: B023 # at once
                self._produce()
                self._readable(table, members)
                self._store.take()
                began = time.monotonic()
                for member in members:
                    os.kill(member.pid, signal.SIGTERM)
                self._wait(lambda: all(member.exit_code is not None for member in members), members)  # noqa: B023 # at once
                yield f"{name}stop_s", time.monotonic() - began
                yield f"{name}stop_requests", len(of_the_protocol(self._store.take(), FOLDER))
            finally:
                for member in members:
                    member.kill()
            if any(member.exit_code for member in members):
                raise RuntimeError(f"members failed to end: {[log_tail(member.log) for member in members]}")

    def _start(self) -> Process:
        self._started += 1
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "lancewal_core.cli.program",
            "ingest",
            "run",
            "--config",
            self._config,
        ]
        return Process(command, self._folder / f"{self._started}.log")

    def _produce(self) -> None:
        """A row of another key into each partition."""
        found: dict[int, Message] = {}
        for message in self._rows:
            found.setdefault(partition_of(message.key, self._partitions), message)
            if len(found) == self._partitions:
                break
        for message in found.values():
            self._producer.produce(TOPIC, key=message.key, value=message.value)
            self._produced += 1
        if self._producer.flush(WITHIN_S):
            raise RuntimeError("the broker has not taken all rows")

    def _readable(self, table: Table, members: Iterable[Process]) -> float:
        """When everything that was produced could be read."""
        self._wait(lambda: table.to_arrow(["id"]).num_rows == self._produced, members)
        return time.monotonic()

    def _wait(self, over: Callable[[], bool], members: Iterable[Process]) -> None:
        until = time.monotonic() + WITHIN_S
        while not over():
            ended = [log_tail(member.log) for member in members if member.exit_code]
            if ended or time.monotonic() > until:
                raise RuntimeError(f"not within {WITHIN_S:.0f} s, or members have ended by themselves: {ended}")
            time.sleep(LOOK_S)


if __name__ == "__main__":
    print(json.dumps({count: measure(count, 0.03) for count in partition_counts((4, 64, 512))}, indent=1))
