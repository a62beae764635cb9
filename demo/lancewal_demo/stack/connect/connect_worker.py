"""Kafka Connect on 127.0.0.1: one worker alone, its offsets in a file.

Connectors are given before the start, since a worker alone forgets others when it ends.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lancewal_demo.stack.connect.connect_jars import connect_jars
from lancewal_demo.stack.java import find_java
from lancewal_demo.stack.kafka_broker import QUICK_START
from lancewal_demo.stack.ports import free_ports
from lancewal_demo.stack.processes import Process, Restartable, StackFailed, log_tail

_START_TIMEOUT_S = 300.0
"""It starts in ten seconds, and in ninety on a loaded machine."""


class ConnectWorker(Restartable):
    """A worker that runs inside ``with``.  ``kill``, ``stop`` and ``restart`` keep offsets, connectors and the port."""

    def __init__(
        self,
        directory: str | Path,
        bootstrap_servers: str,
        connectors: Mapping[str, Mapping[str, str]],
        port: int | None = None,
    ) -> None:
        """Prepare a worker with its files in ``directory``.  ``connectors``: by name, the settings of each.

        Its REST interface listens on ``port``, otherwise on a free one.
        """
        self.directory = Path(directory).absolute()
        self._bootstrap_servers = bootstrap_servers
        self._connectors = dict(connectors)
        self._port = free_ports(1)[0] if port is None else port

    @property
    def url(self) -> str:
        """Address of the REST interface."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        return self.directory / "connect.log"

    def start(self) -> None:
        """Start the worker, and wait until all tasks of its connectors run; ``StackFailed`` if one fails."""
        self.directory.mkdir(parents=True, exist_ok=True)
        jars, plugins = connect_jars(), self.directory / "plugins"
        plugins.mkdir(exist_ok=True)
        for name in jars.keys() - {"worker"}:
            if not (plugins / name).is_symlink():
                (plugins / name).symlink_to(jars[name])  # a folder of each plugin: else each jar is one
        settings = {
            "bootstrap.servers": self._bootstrap_servers,
            "listeners": self.url,
            "plugin.path": str(plugins),
            "offset.storage.file.filename": str(self.directory / "offsets"),
            "offset.flush.interval.ms": "1000",
            "topic.creation.enable": "true",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        }
        files = [self._properties("worker", settings)]
        files += [self._properties(name, {"name": name, **own}) for name, own in self._connectors.items()]
        main = ["-cp", f"{jars['worker']}/*", "org.apache.kafka.connect.cli.ConnectStandalone"]
        self._process = Process([find_java().program, *QUICK_START, *main, *files], self.log)
        self._process.wait_until(self._runs, "Kafka Connect", _START_TIMEOUT_S)

    def _properties(self, name: str, settings: Mapping[str, str]) -> Path:
        file = self.directory / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return file

    def _runs(self) -> bool:
        found = self._asked("/connectors?expand=status")
        if found is None or found.keys() != self._connectors.keys():
            return False
        states = {name: [one["status"]["connector"], *one["status"]["tasks"]] for name, one in found.items()}
        for name, some in states.items():
            for one in some:
                if one["state"] == "FAILED":
                    raise StackFailed(f"connector {name} failed: {one.get('trace', '')[:2000]}\n{log_tail(self.log)}")
        return all(len(some) > 1 and all(one["state"] == "RUNNING" for one in some) for some in states.values())

    def _asked(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError):
            return None
