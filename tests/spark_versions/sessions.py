"""Three ways to run Spark on this machine: ``local``, a standalone cluster of two workers, and a Spark Connect server.

All of it listens on 127.0.0.1, and ends with its context, executors too: each process has a group of its own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lancewal_demo.stack.ports import free_ports
from lancewal_demo.stack.processes import Process
from tests.spark_versions.environments import Environment

WAYS = ("local", "cluster", "connect")
_READY_S = 180.0
_CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    # Neither the machine's zone nor UTC: a mistake in either direction shows.
    "spark.sql.session.timeZone": "America/New_York",
}


@dataclass(frozen=True, slots=True)
class Session:
    """How a program gets its session: ``remote`` an address of Connect, or ``conf`` a master.

    ``event_logs``: where executors say what they ran; one for each worker of a cluster.
    """

    conf: dict[str, str]
    remote: str | None
    event_logs: tuple[Path, ...]


@contextmanager
def session(way: str, environment: Environment, folder: Path) -> Iterator[Session]:
    """``folder`` takes logs and what Spark writes."""
    folder.mkdir()
    with ExitStack() as stack:
        yield {"local": _local, "cluster": _cluster, "connect": _connect}[way](stack, environment, folder)


def _local(stack: ExitStack, environment: Environment, folder: Path) -> Session:
    return Session({**_CONF, "spark.master": "local[2]"}, None, (folder / "events.jsonl",))


def _cluster(stack: ExitStack, environment: Environment, folder: Path) -> Session:
    port, web = free_ports(2)
    java = str(environment.spark_home / "bin" / "spark-class")
    at = ("--host", "127.0.0.1")
    master = f"spark://127.0.0.1:{port}"
    command = [java, "org.apache.spark.deploy.master.Master", *at, "--port", str(port), "--webui-port", str(web)]
    started = _start(stack, command, folder / "master.log", environment.variables(folder))
    started.wait_until(lambda: _workers(web) == 0, "the master", _READY_S)
    logs = []
    for number in (1, 2):
        events = folder / f"events-{number}.jsonl"
        own = {**environment.variables(folder), "LANCEWAL_EVENT_LOG": str(events)}
        command = [java, "org.apache.spark.deploy.worker.Worker", *at, "--webui-port", "0", "--cores", "1"]
        command += ["--memory", "1g", "--work-dir", str(folder / f"work-{number}"), master]
        started = _start(stack, command, folder / f"worker-{number}.log", own)
        logs.append(events)
    started.wait_until(lambda: _workers(web) == 2, "the workers", _READY_S)
    return Session({**_CONF, "spark.master": master, "spark.cores.max": "2"}, None, tuple(logs))


def _connect(stack: ExitStack, environment: Environment, folder: Path) -> Session:
    (port,) = free_ports(1)
    conf = {
        **_CONF,
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    arguments = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    submit = str(environment.spark_home / "bin" / "spark-submit")
    events = folder / "events.jsonl"
    own = {**environment.variables(folder), "LANCEWAL_EVENT_LOG": str(events)}
    command = [submit, "--class", server, *arguments, "spark-internal"]
    started = _start(stack, command, folder / "server.log", own)
    started.wait_until(lambda: _answers(port), "the Connect server", _READY_S)
    return Session({}, f"sc://127.0.0.1:{port}", (events,))


def _start(stack: ExitStack, command: list[str], log: Path, variables: dict[str, str]) -> Process:
    process = Process(command, log, environment=variables)
    stack.callback(_end, process)
    return process


def _end(process: Process) -> None:
    group = process.pid
    process.stop()
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)  # executors that a worker has left


def _workers(web: int) -> int | None:
    """Workers that the master has; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/json/", timeout=5) as answer:
            workers: list[dict[str, str]] = json.load(answer)["workers"]

    except OSError:
        return None
    return sum(worker["state"] == "ALIVE" for worker in workers)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
