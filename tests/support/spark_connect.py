"""A Spark Connect server on this machine whose executors are processes of their own (two, one core each)."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from lancewal_demo.stack.ports import free_ports
from tests.support.spark import QUICK_START, spark_environment

CONF = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}
_DEADLINE_S = 180.0


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """``remote`` is its address for ``SPARK_REMOTE``."""

    remote: str
    event_log: Path


@contextmanager
def connect_server(folder: Path) -> Iterator[ConnectServer]:
    """Start a server; it and its executors end with the context."""
    event_log = folder / "events.jsonl"
    (port,) = free_ports(1)
    conf = {
        **CONF,
        "spark.connect.grpc.binding.port": str(port),
        "spark.executorEnv.LANCEWAL_EVENT_LOG": str(event_log),
    }
    arguments = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    environment = {**spark_environment(folder), "SPARK_WORKER_DIR": str(folder / "work")}
    home = Path(pyspark.__file__).parent
    server_class = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with (folder / "server.log").open("wb") as log:
        java = subprocess.Popen(
            [home / "bin" / "spark-submit", "--class", server_class, *arguments, "spark-internal"],
            stdout=log,
            stderr=log,
            env=environment,
            cwd=folder,
        )
    try:
        _wait(port, java, folder / "server.log")
        yield ConnectServer(f"sc://127.0.0.1:{port}", event_log)
    finally:
        java.terminate()
        try:
            java.wait(30)
        except subprocess.TimeoutExpired:
            java.kill()
            java.wait()


def _wait(port: int, java: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _DEADLINE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if java.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the Connect server did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.1)
        else:
            return
