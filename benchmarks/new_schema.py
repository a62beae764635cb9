"""Measure the delay of the first record of a schema that the table has not stored, and of records in other partitions.

The registry answers after 30 ms.  One ingest service gets a steady stream to all partitions and, once a second, a record of
a new schema.  A strong reader in this process notes when it first sees each row.  A delay is the time from produce call to
first sight, less the median of rows that nothing delays.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.ingest import PARTITIONS, prefill
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import KafkaBroker, Process
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.support.stub_registry import Answer, StubRegistry, serving

REGISTRY_S = 0.03
EVERY_S = 0.02
"""Seconds between two rows of each partition."""
TURN_S = 1.0
"""Seconds between two new schemas."""
WARM_S = 5.0
"""Seconds of the stream before the first of them."""
WINDOW_S = 0.3
"""Seconds after a new schema in which rows count as beside it."""
TOPIC = "benchmark-new-schema"


def run(turns: int = 20) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    try:
        with serving() as registry, KafkaBroker(folder / "kafka") as broker:
            config = folder / "lancewal.yaml"
            config.write_text(
                f"""
table: {{uri: {folder / "table"}, topic: {TOPIC}, columns: {{id: int64}}, primary_key: [id], region_key: [id],
  format: {{value: avro}}}}
kafka: {{bootstrap_servers: "{broker.bootstrap_servers}"}}
registry: {{url: "{registry.url}"}}
http: {{ingest_port: 0}}
"""
            )
            prefill(broker.bootstrap_servers, TOPIC, iter(()))
            create_table(load_settings(config, {}))
            for number in range(turns + 1):
                has(registry, number + 1)
            command = [sys.executable, "-m", "lancewal_core.cli.program", "ingest", "run", "--config", str(config)]
            ingest = Process(command, folder / "ingest.log")
            try:
                return measured(broker.bootstrap_servers, str(folder / "table"), turns)
            finally:
                ingest.stop(30)
    finally:
        shutil.rmtree(folder)


def has(registry: StubRegistry, number: int) -> None:
    schema = {"type": "record", "name": f"R{number}", "fields": [{"name": "id", "type": "long"}]}
    body = json.dumps({"schema": json.dumps(schema)}).encode()

    def answer() -> Answer:
        time.sleep(REGISTRY_S)
        return 200, body

    registry.answers[f"/schemas/ids/{number}"] = answer


class Stream:
    """The producer, and when each row was produced and first seen."""

    def __init__(self, servers: str, table: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._table = open_table(table)
        self.produced: list[tuple[float, int]] = []
        """By the row's id, when it was produced, and its partition."""
        self.seen: dict[int, float] = {}

    def send(self, partition: int, schema: int) -> int:
        """Produce a row to a partition, and return its id."""
        row = len(self.produced)
        while partition_of(encode_region_key(row), PARTITIONS) != partition:
            self.produced.append((0.0, -1))  # an id of another partition, which is no row
            row += 1
        self.produced.append((time.monotonic(), partition))
        frame = b"\0" + schema.to_bytes(4)
        self._producer.produce(TOPIC, frame + zigzag(row), encode_region_key(row), partition)
        self._producer.poll(0)
        return row

    def look(self) -> None:
        rows = self._table.to_arrow(columns=["id"])["id"].to_pylist()
        now = time.monotonic()
        for row in rows:
            self.seen.setdefault(row, now)

    def all_seen(self) -> None:
        rows = [row for row, (_, partition) in enumerate(self.produced) if partition >= 0]
        deadline = time.monotonic() + 60
        while not self.seen.keys() >= set(rows):
            self.look()
            if time.monotonic() > deadline:
                raise RuntimeError("some rows were never seen")

    def delay(self, row: int) -> float:
        return self.seen[row] - self.produced[row][0]


def measured(servers: str, table: str, turns: int) -> dict[str, float]:
    stream = Stream(servers, table)
    for partition in range(PARTITIONS):
        stream.send(partition, 1)
    stream.all_seen()
    new: list[int] = []
    due = time.monotonic()
    began = due + WARM_S
    while (now := time.monotonic()) < began + (turns + 1) * TURN_S:
        if now >= due:
            due += EVERY_S
            for partition in range(PARTITIONS):
                stream.send(partition, 1)
        if now >= began + (len(new) + 1) * TURN_S and len(new) < turns:
            new.append(stream.send(len(new) % PARTITIONS, len(new) + 2))
        stream.look()
    stream.all_seen()
    began_at = [stream.produced[row][0] for row in new]
    plain, beside = list[float](), list[float]()
    for row, (at, partition) in enumerate(stream.produced):
        if partition < 0 or at < began or row in new:
            continue
        during = next((n for n, start in enumerate(began_at) if start <= at < start + WINDOW_S), None)
        if during is None:
            plain.append(stream.delay(row))
        elif partition != during % PARTITIONS:
            beside.append(stream.delay(row))
    usual, own = statistics.median(plain), [stream.delay(row) for row in new]
    found = {
        "usual": usual,
        "own": statistics.median(own) - usual,
        "own_largest": max(own) - usual,
        "others": statistics.median(beside) - usual,
        "others_p90": statistics.quantiles(beside, n=10)[-1] - statistics.quantiles(plain, n=10)[-1],
    }
    return {"turns": turns, **{f"{name}_ms": seconds * 1000 for name, seconds in found.items()}}


def zigzag(number: int) -> bytes:
    """A number that is not negative, as Avro writes it."""
    number, found = number << 1, bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else 20), indent=1))
