"""The processes of the demonstration: the same programs as in production, with a settings file and a log file each.

``Services`` starts the processes, reports one that dies with the end of its log, and stops all of them in any case.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from lancewal_demo.feed import COLUMNS, PRIMARY_KEY, REGION_KEY
from lancewal_demo.stack import Process, StackFailed, spark_java_home
from lancewal_demo.stack.processes import log_tail

_POLL_S = 0.1
_COMMAND_S = 120.0
_STOP_S = 60.0
_SHORT_JOB = "-XX:TieredStopAtLevel=1"
"""Java option: compile quickly rather than well.  A job of seconds then costs little more than half the processor time."""


def write_settings(place: Path, table: Path, servers: str, topic: str, messages: int) -> Path:
    """Write the settings file that all services share."""
    settings: dict[str, Any] = {
        "table": {
            "uri": str(table),
            "topic": topic,
            "columns": COLUMNS,
            "primary_key": list(PRIMARY_KEY),
            "region_key": list(REGION_KEY),
        },
        "kafka": {"bootstrap_servers": servers},
        # Much smaller than the default, so that a short run shows many generations and merges.
        "ingest": {"seal_rows": max(1_000, messages // 40)},
        "flusher": {"merge_interval_s": 2, "merge_defer_s": 0},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    place.write_text(yaml.safe_dump(settings, sort_keys=False))
    return place


class Services:
    """The running processes.  When the ``with`` block ends, all that still run are stopped, the newest first."""

    def __init__(self, folder: Path, settings: Path) -> None:
        """Prepare to start services.  Log files go to ``folder``; ``settings`` is the settings file."""
        self._folder = folder
        self._settings = settings
        self._running: dict[str, Process] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._running.values()):
            process.kill() if kind else process.stop()

    def start_service(self, name: str, *command: str) -> None:
        """Start ``lancewal`` with the given command in the background, under the name ``name``."""
        self._start(name, "lancewal_core.cli.program", *command, "--config", str(self._settings))

    def start_follower(self, table: Path, output: Path) -> None:
        self._start("follower", "lancewal_demo.follower", str(table), str(output))

    def run_command(self, name: str, *command: str) -> None:
        """Run ``lancewal`` with the given command to its end; ``StackFailed`` if it fails."""
        self._start(name, "lancewal_core.cli.program", *command, "--config", str(self._settings))
        self._finish(name, _COMMAND_S)

    def run_spark(self, table: Path, output: Path) -> list[dict[str, Any]]:
        """Run the Spark job and return its rows."""
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        java = {"JAVA_HOME": str(spark_java_home()), "JDK_JAVA_OPTIONS": _SHORT_JOB}
        environment = {**python, **java, "SPARK_LOCAL_IP": "127.0.0.1"}
        self._start("spark", "lancewal_demo.spark_job", str(table), str(output), environment=environment)
        self._finish("spark", 2 * _COMMAND_S)
        return [json.loads(line) for line in output.read_text().splitlines()]

    def status(self) -> dict[str, Any]:
        """Return the JSON output of ``lancewal status``."""
        log = self._folder / "status.log"
        log.unlink(missing_ok=True)
        self.run_command("status", "--log-level", "error", "status", "--output", "json")
        found: dict[str, Any] = json.loads(log.read_text())
        return found

    def stop(self, name: str) -> None:
        """Stop a service in order and wait for its end; ``StackFailed`` if its exit code is not 0."""
        process = self._running.pop(name)
        process.stop(_STOP_S)
        if process.exit_code:
            raise StackFailed(f"{name} ended with exit code {process.exit_code}.\n{log_tail(process.log)}")

    def end(self, name: str) -> None:
        """Stop a process that has no work to finish, whatever its exit code."""
        self._running.pop(name).kill()

    def check(self) -> None:
        """Raise ``StackFailed``, with the end of its log, if a process that should run has ended."""
        for name, process in self._running.items():
            if process.exit_code is not None:
                raise StackFailed(f"{name} ended with exit code {process.exit_code}.\n{log_tail(process.log)}")

    def wait_until(self, ready: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until ``ready()`` is true; ``StackFailed`` if a service ends meanwhile or the time is up.

        ``what``: name of the condition, for the message."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                logs = "\n".join(log_tail(process.log, 5) for process in self._running.values())
                raise StackFailed(f"{what} did not finish within {timeout_s:g} s.\n{logs}")
            time.sleep(_POLL_S)

    def _start(self, name: str, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        # The children find what this process found, installed or not.
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._running[name] = Process(
            [sys.executable, "-m", module, *arguments],
            self._folder / f"{name}.log",
            environment={**paths, **(environment or {})},
        )

    def _finish(self, name: str, timeout_s: float) -> None:
        process = self._running[name]
        deadline = time.monotonic() + timeout_s
        while process.exit_code is None and time.monotonic() < deadline:
            time.sleep(_POLL_S / 2)
        code = process.exit_code
        self.end(name)
        if code is None:
            raise StackFailed(f"{name} did not end within {timeout_s:g} s.\n{log_tail(process.log)}")
        if code:
            raise StackFailed(f"{name} failed with exit code {code}.\n{log_tail(process.log)}")
