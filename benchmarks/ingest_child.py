"""The measured process of ``benchmarks.ingest``: the floor, or the ingest service as production runs it."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.json
from confluent_kafka import Consumer, Message, TopicPartition

from benchmarks.ingest import PARTITIONS, Prefilled
from benchmarks.workload import COLUMNS, PRIMARY_KEY, REGION_KEY, SCHEMA
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack.resident_memory import resident_bytes
from lancewal_ingest.service.python_collector import look_at_new_objects_rarely
from lancewal_ingest.service.service import Running, serve
from lancewal_tables.define.create import create_table

_FETCH = {"fetch.max.bytes": 64 << 20, "max.partition.fetch.bytes": 16 << 20, "queued.min.messages": 500_000}

JOINED_S = 5.0


def floor(source: Prefilled) -> float:
    """Rows per second of consuming and one JSON read, single-threaded."""
    consumer = Consumer(
        {"bootstrap.servers": source.servers, "group.id": "floor", "enable.auto.commit": False, "check.crcs": True,
         "auto.offset.reset": "error", "queued.max.messages.kbytes": 256 << 10, **_FETCH}
    )  # fmt: skip
    consumer.assign([TopicPartition(source.topic, p, 0) for p in range(PARTITIONS)])
    columns = pa.schema([field.with_nullable(True) for field in SCHEMA])
    options = pyarrow.json.ParseOptions(explicit_schema=columns, unexpected_field_behavior="error")
    reading = pyarrow.json.ReadOptions(use_threads=False, block_size=64 << 20)
    count, start = 0, 0.0
    while count < source.rows:
        messages = consumer.consume(10_000, timeout=1.0)
        if not messages:
            continue
        start = start or time.perf_counter()
        values = io.BytesIO(b"\n".join([m.value() or b"" for m in messages]))
        pyarrow.json.read_json(values, read_options=reading, parse_options=options)
        count += len(messages)
    seconds = time.perf_counter() - start
    consumer.close()
    return source.rows / seconds


def consume(source: Prefilled, asked: Sequence[Callable[[Message], object]] = ()) -> float:
    """Rows per second of consuming, single-threaded.  ``asked``: what each record is asked for; nothing by default."""
    consumer = Consumer(
        {"bootstrap.servers": source.servers, "group.id": "consume", "enable.auto.commit": False, "check.crcs": True,
         "auto.offset.reset": "error", "queued.max.messages.kbytes": 256 << 10, **_FETCH}
    )  # fmt: skip
    consumer.assign([TopicPartition(source.topic, p, 0) for p in range(PARTITIONS)])
    count, start = 0, 0.0
    while count < source.rows:
        messages = consumer.consume(10_000, timeout=1.0)
        answers = [list(map(ask, messages)) for ask in asked]
        del answers
        count += len(messages)
        start = start or (time.perf_counter() if count else 0.0)
    seconds = time.perf_counter() - start
    consumer.close()
    return source.rows / seconds


def client(source: Prefilled) -> float:
    """Seconds of CPU time to consume all records, and to ask each for all that ingest asks it for."""
    consumer = Consumer(
        {"bootstrap.servers": source.servers, "group.id": "client", "enable.auto.commit": False, "check.crcs": True,
         "auto.offset.reset": "error", "queued.max.messages.kbytes": 256 << 10, **_FETCH}
    )  # fmt: skip
    consumer.assign([TopicPartition(source.topic, p, 0) for p in range(PARTITIONS)])
    look_at_new_objects_rarely()
    asked = [Message.offset, Message.timestamp, Message.key, Message.value, Message.headers]
    count, began = 0, time.process_time()
    while count < source.rows:
        messages = consumer.consume(10_000, timeout=1.0)
        answers = [list(map(ask, messages)) for ask in asked]
        del answers
        count += len(messages)
    took = time.process_time() - began
    consumer.close()
    return took


def ingest(source: Prefilled, table: Path, budget: int, *, seals: bool, values: Sequence[str] = ()) -> dict[str, float]:
    """Rows per second of the service until the last row is durable, its peak memory in MiB, and CPU time meanwhile."""
    format_, registry, vector, envelope = (*values, *("json", "", "", "")[len(values) :])
    region_key, formats = list(REGION_KEY), f"value: {format_}"
    if envelope:
        region_key = list(PRIMARY_KEY)
        formats += f", key: {'json-compact' if format_ == 'json' else format_}, envelope: {envelope}"
    columns = {**COLUMNS, **({"vector": f"fixed_size_list<float32>[{vector}]"} if vector else {})}
    config = table.with_suffix(".yaml")
    limits = "" if seals else ", seal_rows: 1000000000, seal_bytes: 1GiB, seal_log_distance: 1000000, seal_age_s: 86400"
    config.write_text(
        f"""
table: {{uri: {table}, topic: {source.topic},
  columns: {json.dumps(columns)}, primary_key: {list(PRIMARY_KEY)}, region_key: {region_key},
  format: {{{formats}}}}}
registry: {{url: "{registry}"}}
kafka: {{bootstrap_servers: "{source.servers}", group_id: "benchmark-{table.name}"}}
ingest: {{memory_bytes_max: {budget}, segment_rows_max: 60000{limits}}}
http: {{ingest_port: 0, flusher_port: 0}}
"""
    )
    settings = load_settings(config, {})
    create_table(settings)
    running: list[Running] = []
    began, cpu = [0.0], [0.0, 0.0]
    durable = [0]

    def stopping() -> bool:
        positions = running[0].worker.durable if running else {}
        if not began[0] and len(positions) == PARTITIONS:
            began[0] = time.perf_counter()  # all partitions are open, nothing was consumed yet
            cpu[0] = time.process_time()
        durable[0] = sum(positions.values())
        return durable[0] >= source.rows

    ended = [0.0]

    def stop() -> bool:
        if stopping():
            ended[0] = ended[0] or time.perf_counter()
            cpu[1] = cpu[1] or time.process_time()
            return True
        return False

    serve(settings, stop, running.append)
    return {
        "rows_per_s": source.rows / (ended[0] - began[0]),
        "peak_rss_mib": resident_bytes("VmHWM") / (1 << 20),
        "cpu_s": cpu[1] - cpu[0],
    }


def join(table: Path) -> float:
    """Be a second member of the table's group for some seconds; the peak resident memory in MiB."""
    running: list[Running] = []
    opened_at = [0.0]

    def stop() -> bool:
        if running and running[0].worker.durable:
            opened_at[0] = opened_at[0] or time.perf_counter()
        return opened_at[0] > 0 and time.perf_counter() - opened_at[0] > JOINED_S

    serve(load_settings(table.with_suffix(".yaml"), {}), stop, running.append)
    return resident_bytes("VmHWM") / (1 << 20)


def main(act: str, servers: str, topic: str, rows: str, table: str, budget: str, *values: str) -> None:
    source = Prefilled(servers, topic, int(rows))
    if act == "consume":
        print(json.dumps({"rows_per_s": consume(source)}))
        return
    if act == "read":
        print(json.dumps({"rows_per_s": consume(source, (Message.value, Message.headers))}))
        return
    if act == "floor":
        print(json.dumps({"rows_per_s": floor(source)}))
        return
    if act == "client":
        print(json.dumps({"cpu_s": client(source)}))
        return
    if act == "join":
        print(json.dumps({"peak_rss_mib": join(Path(table))}))
        return
    seals = int(budget) <= 2 << 30
    print(json.dumps(ingest(source, Path(table), int(budget), seals=seals, values=values)))


if __name__ == "__main__":
    main(*sys.argv[1:])
