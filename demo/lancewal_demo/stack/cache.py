"""The cache folder: files that are fetched or built once, and shared by all checkouts.

1. An entry is a folder that is either complete or absent: it is filled under another name and then renamed.
2. Two processes never fill the same entry at the same time; the second process waits and finds it complete.
3. An entry's name contains everything that decides its content (version, hash of a lock file).  Entries never change.
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
    """Return ``$XDG_CACHE_HOME/lancewal``, else ``~/.cache/lancewal``.  XDG requires to ignore a relative XDG_CACHE_HOME."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (configured if configured.is_absolute() else Path.home() / ".cache") / "lancewal"


def entry(name: str, fill: Callable[[Path], None]) -> Path:
    """Return the folder of the entry ``name``.  If it is absent, ``fill`` gets an empty folder and must fill it.

    If ``fill`` raises an error, its files are kept as ``NAME.partial`` (for its logs) until the next try.
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
    """Print a line about a long step to stderr, so that stdout has results alone."""
    print(f"-- {text}", file=sys.stderr, flush=True)


def digest(text: str) -> str:
    """Return a hash of the text for an entry's name, as twelve hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
