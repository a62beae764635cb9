"""Measure how soon ingest stops on a topic in another format, and how many dead letters it writes.

A service works on an empty topic.  Then a producer writes ``RECORDS`` records of one key, all in another format.  Time is
taken from the call that produces the first one to the log line ``partition_stopped``, which names the setting.  Letters
are counted after all records were produced and the service was killed and started again.  *Known* is a format that is
recognised, *unknown* one that is not.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import yaml
from confluent_kafka import Consumer, TopicPartition

from benchmarks.ingest import prefill, produce_all
from benchmarks.workload import COLUMNS, PRIMARY_KEY, REGION_KEY, Message
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import KafkaBroker, Process
from lancewal_demo.stack.ports import free_ports
from lancewal_tables.define.create import create_table

RECORDS = 1_000_000
VALUES = {"known": b"\x00\x00\x00\x00\x07\x02a", "unknown": b"\x08\x02a"}
_WAIT_S = 60.0


def run(records: int = RECORDS) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    try:
        with KafkaBroker(folder / "kafka") as broker:
            found: dict[str, float] = {"records": records}
            for kind, value in VALUES.items():
                found |= _measured(folder / kind, broker.bootstrap_servers, kind, value, records)
            return found
    finally:
        shutil.rmtree(folder)


def _measured(folder: Path, servers: str, kind: str, value: bytes, records: int) -> dict[str, float]:
    folder.mkdir()
    topic, config = f"benchmark-wrong-{kind}", folder / "lancewal.yaml"
    table = {
        "uri": str(folder / "table"), "topic": topic, "columns": COLUMNS,
        "primary_key": list(PRIMARY_KEY), "region_key": list(REGION_KEY),
    }  # fmt: skip
    config.write_text(yaml.safe_dump({"table": table, "kafka": {"bootstrap_servers": servers}}))
    prefill(servers, topic, iter(()))
    create_table(load_settings(config, {}))
    service = _service(folder, config, "first")
    try:
        _event(service, "partition_opened")
        messages: Iterator[Message] = (Message(b"key", value, "upsert") for _ in range(records))
        producing = threading.Thread(target=produce_all, args=(servers, topic, messages))
        began = time.time()
        producing.start()
        stopped_s = _event(service, "partition_stopped") - began
        producing.join()
    finally:
        os.kill(service.pid, signal.SIGKILL)
        service.stop(30)
    again = _service(folder, config, "again")
    try:
        _event(again, "partition_stopped")
    finally:
        again.stop(30)
    return {f"{kind}_stop_s": stopped_s, f"{kind}_letters": _letters(servers, f"{topic}.dead-letters")}


def _service(folder: Path, config: Path, name: str) -> Process:
    (port,) = free_ports(1)
    return Process(
        [sys.executable, "-m", "lancewal_core.cli.program", "ingest", "run", "--config", config],
        folder / f"{name}.log",
        environment={"LANCEWAL_HTTP__INGEST_PORT": str(port)},
    )


def _event(service: Process, event: str) -> float:
    """Wait for the event in the service's log, and return its time in seconds since 1970."""
    found: list[float] = []

    def logged() -> bool:
        for line in service.log.read_text().rpartition("\n")[0].splitlines():
            told = json.loads(line) if line.startswith("{") else {}
            if told.get("event") == event and ("table.on_wrong_format" in line or event != "partition_stopped"):
                found.append(datetime.fromisoformat(told["timestamp"]).timestamp())
        return bool(found)

    service.wait_until(logged, f"the event {event}", _WAIT_S)
    return found[0]


def _letters(servers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "benchmark-letters"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    return int(end)


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else RECORDS), indent=1))
