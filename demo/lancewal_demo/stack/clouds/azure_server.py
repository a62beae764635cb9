"""Azure's blob service on 127.0.0.1: Azurite over a folder.

Conditional puts have exactly one winner.  Azurite writes its index of blobs every five seconds, and when it is stopped:
a crash loses blobs of the last seconds.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.error
import urllib.request
from email.utils import formatdate
from pathlib import Path

from lancewal_demo.stack.clouds.azurite import azurite, find_node
from lancewal_demo.stack.ports import free_ports, listens
from lancewal_demo.stack.processes import Process, Restartable

_START_TIMEOUT_S = 60.0
_VERSION = "2021-08-06"


class AzureServer(Restartable):
    """A server that runs inside ``with``.  ``freeze``, ``stop`` and ``restart`` keep the blobs and the port.

    ``kill`` keeps the port, and blobs that are older than five seconds."""

    account = "devstoreaccount1"
    # Azurite's key, which its manual shows.
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self, directory: Path, *, certificate: Path | None = None, key: Path | None = None) -> None:
        """Prepare a server over ``directory``, which is made if it is absent.

        With ``certificate`` and its ``key``, the server accepts TLS only; ``container`` trusts what ``SSL_CERT_FILE`` names.
        Then the server takes tokens of identities too: it checks their time, audience and issuer, and no signature."""
        self.directory = directory
        self._tls: list[str | Path] = []
        if certificate is not None and key is not None:
            self._tls = ["--oauth", "basic", "--cert", certificate, "--key", key]
        self._port = free_ports(1)[0]

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}/{self.account}"

    @property
    def log(self) -> Path:
        return self.directory / "azure.log"

    @property
    def options(self) -> dict[str, str]:
        """Store options with which obstore and Lance find the server."""
        return {
            "azure_storage_account_name": self.account,
            "azure_storage_account_key": self.key,
            "azure_storage_endpoint": self.endpoint,
            "allow_http": "true",
        }

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which obstore and Lance find the server, in this process and in children."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.account,
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_ENDPOINT": self.endpoint,  # Lance's name
            "AZURE_ALLOW_HTTP": "true",
        }

    def container(self, name: str) -> str:
        """Make the container unless it exists, and return its name, which needs 3 to 63 characters."""
        date = formatdate(usegmt=True)
        headers = [f"x-ms-date:{date}", f"x-ms-version:{_VERSION}"]
        # Twelve standard headers, all empty, come after the method.
        text = "\n".join(["PUT", *[""] * 11, *headers, f"/{self.account}/{self.account}/{name}", "restype:container"])
        digest = hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        request = urllib.request.Request(f"{self.endpoint}/{name}?restype=container", method="PUT")
        request.add_header("x-ms-date", date)
        request.add_header("x-ms-version", _VERSION)
        request.add_header("Authorization", f"SharedKey {self.account}:{base64.b64encode(digest).decode()}")
        try:
            urllib.request.urlopen(request, timeout=_START_TIMEOUT_S).close()
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 409:
                    raise ValueError(f"container {name}: {error.code} {error.read().decode()}") from error
        return name

    def start(self) -> None:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        arguments = [
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            str(self._port),
            "--silent",
            "--disableTelemetry",
            *self._tls,
        ]
        script = azurite()
        self._process = Process([find_node().program, script, *arguments, "--location", data], self.log)
        self._process.wait_until(lambda: listens(self._port), "the Azure server", _START_TIMEOUT_S)
