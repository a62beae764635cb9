"""The cache folder: what was fetched or built once and is the same for every checkout.

1. An entry is a folder that is either complete or absent: it is filled under another name and then renamed.
2. Two processes never fill the same entry at the same time; the second one waits and finds it complete.
3. An entry's name carries whatever decides its content (version, hash of a lock file): entries are never changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path


def cache_directory() -> Path:
    """``$XDG_CACHE_HOME/lancewal``, else ``~/.cache/lancewal``; a relative XDG_CACHE_HOME is ignored (XDG says so)."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "lancewal"


def entry(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder ``name``; when it is absent, ``fill`` gets an empty folder and must put everything in it.

    What ``fill`` leaves behind when it raises is kept as ``NAME.partial`` (for its logs) until the next try.
    """
    place = cache_directory() / name
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_name(f"{name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.is_dir():
            return place
        partial = place.with_name(f"{name}.partial")
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir()
        fill(partial)
        partial.rename(place)
    return place


def progress(text: str) -> None:
    """Tell the user what takes time; on stderr, so that results on stdout stay clean."""
    print(f"-- {text}", file=sys.stderr, flush=True)


def digest(text: str) -> str:
    """Twelve hex digits for an entry's name."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
