"""A real S3 server on 127.0.0.1: versitygw over a folder, one sub-folder a bucket.

Conditional puts (create, e_tag) have exactly one winner, as logs and region states need.
"""

from __future__ import annotations

import os
from pathlib import Path

from lancewal_demo.stack.ports import free_ports, listens
from lancewal_demo.stack.processes import Process, Restartable
from lancewal_demo.stack.versitygw import versitygw

_START_TIMEOUT_S = 30.0


class S3Server(Restartable):
    """A server that runs inside ``with``.  ``kill``, ``freeze``, ``stop`` and ``restart`` keep the objects and the port."""

    access_key = "lancewal"
    secret_key = "lancewal-local-stack"
    region = "us-east-1"
    _grace_s = 1.0
    """Enough to finish its requests; connections that clients keep open are cut."""

    def __init__(self, directory: Path, *, certificate: Path | None = None, key: Path | None = None) -> None:
        """Prepare a server over ``directory``, which is made if it is absent.

        With ``certificate`` and its ``key``, the server accepts TLS only."""
        self.directory = directory
        self._tls: list[str | Path] = []
        if certificate is not None and key is not None:
            # Absolute: the server changes into the folder of its buckets.
            self._tls = ["--cert", certificate.absolute(), "--key", key.absolute()]
        self._buckets = directory / "buckets"
        self._metadata = directory / "metadata"
        self._port = free_ports(1)[0]

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        return self.directory / "s3.log"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which obstore and Lance find the server, in this process and in children."""
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": str(not self._tls).lower(),
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }

    def bucket(self, name: str) -> str:
        """Make the bucket unless it exists, and return its name."""
        (self._buckets / name).mkdir(parents=True, exist_ok=True)
        return name

    def start(self) -> None:
        self._buckets.mkdir(parents=True, exist_ok=True)
        # Without --keep-alive it closes the connection after every response: slower, and unlike real S3.
        arguments: list[str | Path] = [
            versitygw(),
            "--keep-alive",
            "--quiet",
            "--port",
            f"127.0.0.1:{self._port}",
            *self._tls,
            "posix",
        ]
        if not _takes_attributes(self._buckets):
            self._metadata.mkdir(exist_ok=True)
            arguments += ["--sidecar", self._metadata]
        keys = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key, "VGW_REGION": self.region}
        self._process = Process([*arguments, self._buckets], self.log, environment=keys)
        self._process.wait_until(lambda: listens(self._port), "the S3 server", _START_TIMEOUT_S)


def _takes_attributes(folder: Path) -> bool:
    """Return whether the file system stores extended attributes, in which versitygw keeps an object's metadata."""
    if not hasattr(os, "setxattr"):
        return True
    try:
        os.setxattr(folder, "user.lancewal", b"1")
    except OSError:
        return False
    return True
