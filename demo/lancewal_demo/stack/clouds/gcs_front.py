"""The front that gives fake-gcs-server the XML interface of Google Cloud Storage: built once from ``gcs_go``, kept in the
cache.

``go.mod`` pins fake-gcs-server, and ``go.sum`` has the checksums of everything that goes into the build.
"""

from __future__ import annotations

import platform
from pathlib import Path

from lancewal_demo.stack import cache
from lancewal_demo.stack.go import Build

SOURCE = Path(__file__).with_name("gcs_go")

_NAME = "gcs-front"
_TEXTS = "".join(file.read_text() for file in sorted(SOURCE.glob("*.*")))
_ENTRY = f"{_NAME}-{cache.digest(_TEXTS)}-{platform.system()}-{platform.machine()}"


def gcs_front() -> Path:
    """Return the path of the program.  The first call on a machine builds it, in some minutes."""
    return cache.entry(_ENTRY, _build) / _NAME


def is_built() -> bool:
    return (cache.cache_directory() / _ENTRY).is_dir()


def _build(folder: Path) -> None:
    build = Build(folder, _NAME)
    cache.progress("building the front of fake-gcs-server (once, some minutes)")
    build.run(lambda: SOURCE, ".")
