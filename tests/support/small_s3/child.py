"""The small S3 as a process of its own: what it computes takes no time from who asks it.

``python -m tests.support.small_s3.child PORT DELAY_MS`` serves until it is ended.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from pathlib import Path

from lancewal_demo.stack.ports import free_ports, listens
from lancewal_demo.stack.processes import Process
from tests.support.small_s3.requests import StoreRequest
from tests.support.small_s3.server import DELAY, REQUESTS, SmallS3, options_of

_START_TIMEOUT_S = 30.0
_ROOT = Path(__file__).parents[3]


class SmallS3Process:
    """Runs inside ``with``; ``log`` is where it says what it could not do."""

    def __init__(self, delay_s: float, log: Path) -> None:
        self.port = free_ports(1)[0]
        arguments: list[str | Path] = [sys.executable, "-m", "tests.support.small_s3.child"]
        self._process = Process(
            [*arguments, str(self.port), str(delay_s * 1000)], log, environment={"PYTHONPATH": str(_ROOT)}
        )

    @property
    def options(self) -> dict[str, str]:
        return options_of(self.port)

    def take(self) -> list[StoreRequest]:
        """As of ``SmallS3``."""
        return [StoreRequest(*request) for request in json.loads(self._control(REQUESTS))]

    def delay(self, seconds: float) -> None:
        """From now on."""
        self._control(f"{DELAY}?s={seconds}")

    def _control(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as found:
            return bytes(found.read())

    def __enter__(self) -> SmallS3Process:
        self._process.wait_until(lambda: listens(self.port), "the small S3", _START_TIMEOUT_S)
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()


def main(port: str, delay_ms: str) -> None:
    with SmallS3(float(delay_ms) / 1000, int(port)):
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
