"""Google Cloud Storage's XML interface on 127.0.0.1, over a folder, one sub-folder a bucket.

Conditional puts have exactly one winner.  ``gcs_go/main.go`` says what the server promises, and what it leaves out.
"""

from __future__ import annotations

import json
from pathlib import Path

from lancewal_demo.stack.clouds.gcs_front import gcs_front
from lancewal_demo.stack.ports import free_ports, listens
from lancewal_demo.stack.processes import Process, Restartable

_START_TIMEOUT_S = 30.0


class GcsServer(Restartable):
    """A server that runs inside ``with``.  ``kill``, ``freeze``, ``stop`` and ``restart`` keep the objects and the port."""

    _grace_s = 2.0
    """The server itself cuts connections that are in use after one second."""

    def __init__(self, directory: Path, *, key_interval_s: float = 0.0) -> None:
        """Prepare a server over ``directory``, which is made if it is absent.

        With ``key_interval_s``, a key takes one write in each interval of that many seconds.  The server answers other
        writes of the key with 429, as Google does for more than one a second."""
        self.directory = directory
        self._key_interval_s = key_interval_s
        self._port = free_ports(1)[0]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        return self.directory / "gcs.log"

    @property
    def account_file(self) -> Path:
        """File of a service account, whose tokens nobody checks; written by ``start``."""
        return self.directory / "account.json"

    @property
    def options(self) -> dict[str, str]:
        """Store options with which obstore and Lance find the server."""
        return {"google_service_account": str(self.account_file), "allow_http": "true"}

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which obstore and Lance find the server, in this process and in children."""
        return {"GOOGLE_SERVICE_ACCOUNT": str(self.account_file), "GOOGLE_ALLOW_HTTP": "true"}

    def bucket(self, name: str) -> str:
        """Make the bucket unless it exists, and return its name."""
        (self.directory / "buckets" / name).mkdir(parents=True, exist_ok=True)
        return name

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        keys = {"client_email": "", "private_key": "", "private_key_id": ""}
        self.account_file.write_text(json.dumps({"gcs_base_url": self.endpoint, "disable_oauth": True, **keys}))
        self._process = Process(
            [
                *(gcs_front(), "-listen", f"127.0.0.1:{self._port}", "-root", self.directory),
                *("-key-interval", f"{self._key_interval_s}s"),
            ],
            self.log,
        )
        self._process.wait_until(lambda: listens(self._port), "the GCS server", _START_TIMEOUT_S)
