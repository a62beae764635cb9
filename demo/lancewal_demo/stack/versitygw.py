"""versitygw, an S3 server that keeps objects as files: built once from its Go module, kept in the cache.

The checksum below is the one that Go's checksum database has for this version.  It covers the module's ``go.sum``,
which in turn holds the checksums of everything that goes into the build.
"""

from __future__ import annotations

import platform
from pathlib import Path

from lancewal_demo.stack import cache
from lancewal_demo.stack.go import Build

# A Go module's name starts with the place it was published at.
MODULE = "github.com/versity/versitygw"
VERSION = "v1.8.0"
CHECKSUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="

_ENTRY = f"versitygw-{VERSION}-{platform.system()}-{platform.machine()}"


def versitygw() -> Path:
    """Return the path of the program.  The first call on a machine builds it, in about a minute."""
    return cache.entry(_ENTRY, _build) / "versitygw"


def is_built() -> bool:
    return (cache.cache_directory() / _ENTRY).is_dir()


def _build(folder: Path) -> None:
    build = Build(folder, "versitygw")
    cache.progress(f"building versitygw {VERSION} (once, about a minute)")
    build.run(lambda: build.download(f"{MODULE}@{VERSION}", CHECKSUM), "./cmd/versitygw")
