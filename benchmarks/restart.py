"""Measure a rolling restart of two members at 10,000 rows/s, the time to join, and SIGTERM while broker or store hang.

The load, the table and the reader are those of ``freshness``. The members are stopped and started again one after the
other.  The second follows ten seconds after the first is ready, as in Kubernetes with the chart's ``minReadySeconds``.
*Joining* is the time from a member's start of work (``service_started``) until its first partition is open.  All of
this runs once with librdkafka's default heartbeat of 3 s, which ingest had before, and once with ingest's own.

A process hangs by SIGSTOP: it accepts connections and does not answer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import lance
import numpy as np
import yaml

from benchmarks.freshness import BASE_ROWS, RATE, produce
from benchmarks.ingest import prefill
from benchmarks.workload import COLUMNS, PRIMARY_KEY, REGION_KEY, SCHEMA, table_rows
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import KafkaBroker, Process, S3Server
from lancewal_demo.stack.ports import free_ports
from lancewal_demo.stack.processes import Restartable
from lancewal_tables.define.create import create_table

SECONDS = 75
BEFORE_S = 20.0
"""Under load until the first member is told to stop."""
READY_S = 10.0
"""``ingest.minReadySeconds`` of the chart."""
FORMER_HEARTBEAT_MS = 3_000
_START_S = 60.0
_END_S = 200.0


@dataclass(slots=True)
class _Service:
    process: Process
    port: int

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def wait_until_ready(self) -> None:
        self.process.wait_until(self.ready, "the service", _START_S)

    def end(self) -> float:
        """Told to; after how many seconds it had ended."""
        told = time.monotonic()
        os.kill(self.process.pid, signal.SIGTERM)
        while self.process.exit_code is None:
            if time.monotonic() - told > _END_S:
                raise RuntimeError(f"{self.process.log} has not ended within {_END_S:.0f} s")
            time.sleep(0.02)
        return time.monotonic() - told

    @property
    def joining_s(self) -> float:
        at: dict[str, datetime] = {}
        for line in self.process.log.read_text().splitlines():
            if line.startswith("{"):  # others are of libraries
                event = json.loads(line)
                at.setdefault(event["event"], datetime.fromisoformat(event["timestamp"]))
        return (at["partition_opened"] - at["service_started"]).total_seconds()


class _Installation:
    """One table, and the services that are started of it."""

    def __init__(self, folder: Path, servers: str, topic: str, tree: Mapping[str, Mapping[str, Any]]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._started = 0
        self.topic = topic
        self.table = str(folder / "table")
        settings: dict[str, dict[str, Any]] = {
            "table": {
                "uri": self.table, "topic": topic, "columns": COLUMNS,
                "primary_key": list(PRIMARY_KEY), "region_key": list(REGION_KEY),
            },
            "kafka": {"bootstrap_servers": servers},
            "ingest": {"seal_age_s": 5},
            "flusher": {"merge_interval_s": 2},
        }  # fmt: skip
        for section, values in tree.items():
            settings.setdefault(section, {}).update(values)
        self._config = folder / "lancewal.yaml"
        self._config.write_text(yaml.safe_dump(settings))
        prefill(servers, topic, iter(()))
        create_table(load_settings(self._config, {}))

    def start(self, name: str) -> _Service:
        """``ingest`` or ``flusher``."""
        self._started += 1
        (port,) = free_ports(1)
        process = Process(
            [sys.executable, "-m", "lancewal_core.cli.program", name, "run", "--config", self._config],
            self._folder / f"{self._started}-{name}.log",
            environment={f"LANCEWAL_HTTP__{name.upper()}_PORT": str(port)},
        )
        return _Service(process, port)


def run(seconds: int = SECONDS) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    try:
        with KafkaBroker(folder / "kafka") as broker, S3Server(folder / "s3") as store:
            former = {"kafka": {"options": {"heartbeat.interval.ms": FORMER_HEARTBEAT_MS}}}
            found = _rolled(folder / "former", broker.bootstrap_servers, seconds, former)
            figures = {f"former_{name}": value for name, value in found.items()}
            figures |= _rolled(folder / "now", broker.bootstrap_servers, seconds, {})
            return figures | _hung(folder / "hung", broker, store)
    finally:
        shutil.rmtree(folder)


def _rolled(folder: Path, servers: str, seconds: int, tree: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    installation = _Installation(folder, servers, f"benchmark-restart-{folder.name}", tree)
    lance.write_dataset(table_rows(np.arange(BASE_ROWS), 0), installation.table, mode="append", schema=SCHEMA,
                        max_rows_per_file=250_000)  # fmt: skip
    members = [installation.start("ingest"), installation.start("ingest")]
    flusher = installation.start("flusher")
    services = [*members, flusher]
    try:
        for service in services:
            service.wait_until_ready()
        rows = RATE * seconds
        reader = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.freshness_reader", installation.table, str(rows), str(seconds + 60)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        producing = threading.Thread(target=produce, args=(servers, installation.topic, rows), daemon=True)
        producing.start()
        time.sleep(BEFORE_S)
        ended, joined = [], []
        for old in members:
            ended.append(old.end())
            new = installation.start("ingest")
            services.append(new)
            new.wait_until_ready()
            time.sleep(READY_S)
            joined.append(new.joining_s)
        producing.join()
        output, _ = reader.communicate(timeout=seconds + 120)
    finally:
        for service in services:
            service.process.stop(30)
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return {**found, "joining_s": max(joined), "sigterm_s": max(ended)}


def _hung(folder: Path, broker: KafkaBroker, store: S3Server) -> dict[str, float]:
    servers = broker.bootstrap_servers
    local = _Installation(folder / "broker", servers, "benchmark-restart-broker", {})
    found = {"hung_broker_ingest_s": _ended(local, ["ingest"], broker, servers)["ingest"]}
    of_store: dict[str, dict[str, Any]] = {
        "table": {"uri": f"s3://{store.bucket('restart')}/table"},
        "storage": {"options": {name.lower(): value for name, value in store.environment.items()}},
    }
    on_s3 = _Installation(folder / "store", servers, "benchmark-restart-store", of_store)
    ended = _ended(on_s3, ["ingest", "flusher"], store, servers)
    return found | {f"hung_store_{name}_s": seconds for name, seconds in ended.items()}


def _ended(installation: _Installation, names: Sequence[str], hung: Restartable, servers: str) -> dict[str, float]:
    """Seconds from SIGTERM to the end of each, with rows under way."""
    services = {name: installation.start(name) for name in names}
    ended: dict[str, float] = {}
    try:
        for service in services.values():
            service.wait_until_ready()
        producing = threading.Thread(target=produce, args=(servers, installation.topic, RATE * 2), daemon=True)
        producing.start()
        if not isinstance(hung, KafkaBroker):
            producing.join()
        hung.freeze()
        waiting = [
            threading.Thread(target=lambda name=name: ended.update({name: services[name].end()})) for name in names
        ]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
    finally:
        hung.thaw()
        for service in services.values():
            service.process.stop(30)
        producing.join()
    return ended


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS), indent=1))
