"""One local Spark session for a test run, started in a way that suits a process that has Lance open already.

PySpark starts its JVM by a fork that runs Python code in the child, which is not safe beside Lance's threads.  A user
starts Spark first; a test run cannot know what ran before.  So the JVM is started here by a plain ``subprocess`` call and
PySpark is told where it listens.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from lancewal_core.process.clock import SystemClock
from lancewal_demo.stack.java import spark_java_home
from lancewal_flusher.tasks.spark_runner import SparkRunner
from tests.support.flusher_tables import FlusherTable

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java compiles quickly rather than well: queries of a test are over before optimised code pays for its making."""

CONF = {
    # Two cores; a task is tried four times, as on a cluster.
    "spark.master": "local[2,4]",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    # Neither the machine's zone nor UTC: a mistake in either direction shows.
    "spark.sql.session.timeZone": "America/New_York",
}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@dataclass(frozen=True, slots=True)
class Task:
    """A task as an executor process logged it."""

    pid: int
    kind: str
    fragments: tuple[int, ...]


@dataclass(slots=True)
class LocalSpark:
    """The session, and what its executors have logged."""

    session: SparkSession
    event_log: Path
    _seen: int = 0

    def read(self, table: str, **options: str) -> DataFrame:
        return self.session.read.format("lancewal").options(**options).option("table", table).load()

    @contextmanager
    def pushdown(self) -> Iterator[None]:
        """Spark offers filters to sources in here."""
        self.session.conf.set(PUSHDOWN, "true")
        try:
            yield
        finally:
            self.session.conf.unset(PUSHDOWN)

    def tasks(self) -> list[Task]:
        """Tasks that have run to their end since the last call."""
        lines = self.event_log.read_text().splitlines() if self.event_log.exists() else []
        events: list[dict[str, Any]] = [json.loads(line) for line in lines[self._seen :]]
        self._seen = len(lines)
        return [
            Task(event["pid"], event["kind"], tuple(event.get("fragments", ())))
            for event in events
            if event["point"] == "spark.task" and event["when"] == "after"
        ]


def spark_runner(spark: LocalSpark, table: FlusherTable) -> SparkRunner:
    """The flusher's runner for this table, but each task is one of Spark's too, however small it is."""
    return SparkRunner(lambda: spark.session, table.uri, table.store, table.tasks, SystemClock(), slice_rows=1)


def spark_environment(folder: Path) -> dict[str, str]:
    """For processes of Spark that have a JVM of their own: not that of this process, where it has one."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY_")},
        "JAVA_HOME": str(spark_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Executors import what this process can import.
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(str(Path(entry).absolute()) for entry in sys.path)),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }


@contextmanager
def local_spark(folder: Path) -> Iterator[LocalSpark]:
    """Start a JVM and a session; both end with the context."""
    event_log = folder / "events.jsonl"
    environment = {
        **spark_environment(folder),
        "LANCEWAL_EVENT_LOG": str(event_log),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / "gateway"),
    }
    home = Path(pyspark.__file__).parent
    arguments = [part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")]
    with (folder / "spark.log").open("wb") as log:
        java = subprocess.Popen(
            [home / "bin" / "spark-submit", *arguments, "pyspark-shell"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=environment,
            cwd=folder,
        )
    with pytest.MonkeyPatch.context() as patched:
        try:
            port, secret = _gateway(folder / "gateway", java, folder / "spark.log")
            patched.setenv("PYSPARK_GATEWAY_PORT", str(port))
            patched.setenv("PYSPARK_GATEWAY_SECRET", secret)
            patched.setenv("PYSPARK_PYTHON", sys.executable)
            session = SparkSession.builder.getOrCreate()
            try:
                yield LocalSpark(session, event_log)
            finally:
                session.stop()
        finally:
            if java.stdin is not None:
                java.stdin.close()  # the JVM ends with it
            try:
                java.wait(20)
            except subprocess.TimeoutExpired:
                java.kill()
                java.wait()
            shutil.rmtree(folder / "local", ignore_errors=True)


def _gateway(info: Path, java: subprocess.Popen[bytes], log: Path) -> tuple[int, str]:
    """Port and secret, once the JVM has written them."""
    end = time.monotonic() + 300
    while not info.exists():
        if java.poll() is not None or time.monotonic() > end:
            raise AssertionError(f"Spark's JVM did not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)
    data = info.read_bytes()
    (port,) = struct.unpack(">i", data[:4])
    (length,) = struct.unpack(">i", data[4:8])
    return port, data[8 : 8 + length].decode()
