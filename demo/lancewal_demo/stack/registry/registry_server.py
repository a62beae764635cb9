"""A schema registry on 127.0.0.1: Apicurio, which speaks Confluent's API.

Its data are in memory.  A registry that is started again is empty, and gives its first schema the number 1.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from lancewal_demo.stack.java import find_java
from lancewal_demo.stack.kafka_broker import QUICK_START
from lancewal_demo.stack.ports import free_ports
from lancewal_demo.stack.processes import Process, Restartable
from lancewal_demo.stack.registry.apicurio import apicurio

_START_TIMEOUT_S = 180.0
"""It starts in six seconds, and in sixty on a loaded machine."""


class RegistryServer(Restartable):
    """A registry that runs inside ``with``.  ``kill``, ``stop`` and ``restart`` keep the port, and no schema."""

    _grace_s = 1.0

    def __init__(self, directory: str | Path, port: int | None = None) -> None:
        """Prepare a registry whose log is in ``directory``.  It listens on ``port``, otherwise on a free one."""
        self.directory = Path(directory)
        self._port = free_ports(1)[0] if port is None else port

    @property
    def url(self) -> str:
        """Address of Confluent's API."""
        return f"{self.root}/apis/ccompat/v7"

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        return self.directory / "registry.log"

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        options = (
            f"-Dquarkus.http.port={self._port}",
            "-Dquarkus.http.host=127.0.0.1",
        )
        self._process = Process([find_java().program, *QUICK_START, *options, "-jar", apicurio()], self.log)
        self._process.wait_until(self._answers, "the schema registry", _START_TIMEOUT_S)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
