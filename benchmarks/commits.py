"""Measure the way of a change: from COMMIT in PostgreSQL until a strong read of another process shows its row.

A thousand rows a second are inserted for ``SECONDS``, ten in each transaction.  Debezium in Kafka Connect writes them as JSON
without schemas, with ``poll.interval.ms=100``.  Ingest, flusher and reader are processes, as in production.  PostgreSQL,
Connect and the broker run on the same machine.

Connect's share ends at the time of the Kafka record.  lancewal's share is the rest, until the end of the first read that shows
the row.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

import numpy as np
import psycopg
from confluent_kafka import Consumer, TopicPartition

from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import KafkaBroker, Process
from lancewal_demo.stack.connect import ConnectWorker
from lancewal_demo.stack.registry import RegistryServer
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.support.connectors import FORMATS, from_postgres
from tests.support.postgres import PASSWORD, PostgresServer

SECONDS, TOGETHER, RATE = 60, 10, 1_000
PARTITIONS = 4
DATABASE, TOPIC = "shop", "commits.public.items"
_FIRST = -1
"""``n`` of a row that is there before the measurement."""


def run(seconds: int = SECONDS) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    server = PostgresServer()
    server.options["wal_level"] = "logical"
    try:
        with server, KafkaBroker(folder / "kafka", topics={TOPIC: PARTITIONS, f"{TOPIC}.dead-letters": 1}) as broker:
            server.run(f"CREATE DATABASE {DATABASE}")
            server.run("CREATE TABLE items (id bigint PRIMARY KEY, n bigint, note text)", DATABASE)
            server.run(f"INSERT INTO items VALUES (-1, {_FIRST}, '')", DATABASE)
            no_registry = cast(RegistryServer, None)  # JSON needs none
            connector = from_postgres(server, DATABASE, "commits", "json", no_registry)
            with ConnectWorker(folder, broker.bootstrap_servers, {"items": connector}):
                return _measured(folder, server, broker.bootstrap_servers, seconds)
    finally:
        shutil.rmtree(folder)


def _measured(folder: Path, server: PostgresServer, servers: str, seconds: int) -> dict[str, float]:
    rows, uri, config = seconds * RATE, folder / "table", folder / "lancewal.yaml"
    config.write_text(
        f"""
table: {{uri: {uri}, topic: {TOPIC}, columns: {{id: int64, n: int64, note: string}}, primary_key: [id], region_key: [id],
  partitioner: murmur2, format: {json.dumps(FORMATS["json"])}}}
kafka: {{bootstrap_servers: "{servers}"}}
ingest: {{seal_age_s: 5}}
flusher: {{merge_interval_s: 2}}
http: {{ingest_port: 0, flusher_port: 0}}
"""
    )
    create_table(load_settings(config, {}))
    program = [sys.executable, "-m", "lancewal_core.cli.program"]
    services = [
        Process([*program, *of, "--config", str(config)], folder / f"{of[0]}.log")
        for of in (["ingest", "run"], ["flusher", "run"])
    ]
    try:
        child = [sys.executable, "-m", "benchmarks.commits", str(uri), str(rows), str(folder / "seen.npy")]
        reader = subprocess.Popen(child, stdout=subprocess.PIPE, text=True)
        assert reader.stdout is not None
        reader.stdout.readline()  # it has seen the first row
        committed = _insert(server, rows)
        reader.communicate(timeout=120)
    finally:
        for service in services:
            service.stop(30)
    seen, written = np.load(folder / "seen.npy"), _written(servers, rows)
    figures: dict[str, float] = {"rows": rows, "rows_unseen": int((seen == 0).sum())}
    for name, took in (("all", seen - committed), ("connect", written - committed), ("lancewal", seen - written)):
        figures |= {f"{name}_p{at}_ms": float(np.percentile(took, at)) * 1e3 for at in (50, 99)}
    return figures


def _insert(server: PostgresServer, rows: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Insert the rows at ``RATE``, and return when the transaction of each had ended."""
    committed = np.zeros(rows)
    with psycopg.connect(server.url(DATABASE), password=PASSWORD, autocommit=True) as connection:
        began = time.time()
        for first in range(0, rows, TOGETHER):
            time.sleep(max(0.0, began + first / RATE - time.time()))
            values = ", ".join(f"({n}, {n}, 'note {n}')" for n in range(first, first + TOGETHER))
            connection.execute(f"INSERT INTO items VALUES {values}".encode())
            committed[first : first + TOGETHER] = time.time()
    return committed


def _written(servers: str, rows: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the time of the first Kafka record of each row."""
    written = np.zeros(rows)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "written", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    while not written.all():
        for message in consumer.consume(1000, timeout=30):
            n = json.loads(message.value() or b"{}").get("after", {}).get("n", _FIRST)
            if n != _FIRST and not written[n]:
                written[n] = message.timestamp()[1] / 1e3
    consumer.close()
    return written


def _read(uri: str, rows: int, to: str, timeout_s: float = 120.0) -> None:
    """Read the table over and over, and store when each row was seen first; 0 for those that were not."""
    table, seen = open_table(uri), np.zeros(rows)
    while not table.to_arrow(["n"]).num_rows:
        time.sleep(0.1)
    print("ready", flush=True)
    until = time.monotonic() + timeout_s
    while not seen.all() and time.monotonic() < until:
        found, now = table.to_arrow(["n"])["n"].to_numpy(), time.time()
        found = found[found != _FIRST]
        seen[found[seen[found] == 0]] = now
    np.save(to, seen)


if __name__ == "__main__":
    _read(sys.argv[1], int(sys.argv[2]), sys.argv[3])
