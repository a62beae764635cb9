"""lancewal as in production: a broker, the ingest service and the flusher, each a process, and one producer.

The table is an existing one that is attached.  A round ends when the newest table version has every produced row, so
that any Lance reader sees the rows.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Self

import orjson
import pyarrow as pa
import yaml
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.elapsed import Elapsed
from benchmarks.keyed_rows import KEY
from benchmarks.peers.cpu_time import cpu_s
from lancewal_core.open import Address
from lancewal_core.settings.load import load_settings
from lancewal_core.table.watermarks import Watermarks
from lancewal_demo.stack import KafkaBroker, Process, StackFailed
from lancewal_demo.stack.processes import log_tail
from lancewal_tables.define.attach import attach_table

PARTITIONS = 4
_POLL_S = 0.01
_ROUND_S = 300.0

Messages = list[tuple[bytes, bytes]]
"""Key and JSON value of each row."""


def messages_of(rows: pa.Table) -> Messages:
    return [(str(row[KEY]).encode(), orjson.dumps(row)) for row in rows.to_pylist()]


class KafkaTable:
    """Use in ``with``; the broker is the caller's."""

    def __init__(
        self,
        table: Path,
        broker: KafkaBroker,
        topic: str,
        seal_rows: int,
        seal_age_s: float,
        interval_s: float,
        others: Collection[int],
    ) -> None:
        """Attach ``table`` to a new topic and start the services; ``interval_s`` is the flusher's.

        ``others`` are children that do not work for it.
        """
        self.path = table
        _make_topics(broker.bootstrap_servers, topic)
        folder = table.parent
        config = folder / "lancewal.yaml"
        settings: dict[str, Any] = {
            "table": {"uri": str(table), "topic": topic, "primary_key": [KEY], "region_key": [KEY]},
            "kafka": {"bootstrap_servers": broker.bootstrap_servers},
            # Nothing is put off: rows shall be in the table at once.
            "ingest": {"seal_rows": seal_rows, "seal_age_s": seal_age_s},
            "flusher": {"merge_interval_s": interval_s, "merge_defer_s": 0},
            "http": {"ingest_port": 0, "flusher_port": 0},
        }
        config.write_text(yaml.safe_dump(settings))
        making = attach_table(load_settings(config, {})).making
        self._watermarks = Watermarks(Address(str(table)).store(), Address(str(table)).table(), making)
        self._topic = topic
        self._produced = 0
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random", "linger.ms": 5,
             "batch.size": 1_000_000, "compression.type": "lz4", "queue.buffering.max.messages": 2_000_000,
             "queue.buffering.max.kbytes": 1 << 20, "log_level": 4}
        )  # fmt: skip
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        lancewal = [sys.executable, "-m", "lancewal_core.cli.program"]
        self._services = [
            Process([*lancewal, *command, "run", "--config", config], folder / f"{command[0]}.log", environment=paths)
            for command in (("ingest",), ("flusher",))
        ]
        self._others = others

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for service in self._services:
            service.kill() if error[0] else service.stop(60)

    @property
    def version(self) -> int:
        return int(self._watermarks.newest()[0].version)

    def upsert(self, rounds: Sequence[Messages]) -> Elapsed:
        """From the first ``produce`` until the table holds all rows; the CPU time is of all processes, the broker's too."""
        cpu, start = self._cpu_s(), time.perf_counter()
        for messages in rounds:
            for key, value in messages:
                self._producer.produce(self._topic, key=key, value=value)
            self._producer.poll(0)
            self._produced += len(messages)
        self._wait()
        return Elapsed(time.perf_counter() - start, self._cpu_s() - cpu)

    def _cpu_s(self) -> float:
        return cpu_s([os.getpid()], self._others)

    def _wait(self) -> None:
        versions, seen = self.path / "_versions", 0
        deadline = time.monotonic() + _ROUND_S
        while True:
            self._producer.poll(0)
            now = len(os.listdir(versions))
            if now != seen:  # looking at the watermarks costs more than this
                seen = now
                if sum(mark.next for mark in self._watermarks.newest()[1].regions.values()) == self._produced:
                    return
            for service in self._services:
                if service.exit_code is not None or time.monotonic() > deadline:
                    raise StackFailed(f"rows are not merged.\n{log_tail(service.log)}")
            time.sleep(_POLL_S)


def _make_topics(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for name, partitions in ((topic, PARTITIONS), (f"{topic}.dead-letters", 1)):
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        except KafkaException as error:
            raise StackFailed(f"could not create topic {name}: {error}") from error
