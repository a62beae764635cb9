"""Folders for the tables of benchmarks: one that is deleted at the end, and base tables that can be kept.

``BENCHMARK_CACHE`` names a folder in which base tables stay from run to run; without it they are deleted too.  The
variable's name does not begin with LANCEWAL, because the services, which inherit it, refuse such a variable if it is
not a setting.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.keyed_rows import Base

CACHE = "BENCHMARK_CACHE"


@dataclass(frozen=True, slots=True)
class Workplace:
    """``folder`` is empty at first and removed at the end."""

    folder: Path
    _bases: Path

    def base(self, rows: int) -> Base:
        return Base(self._bases / f"base-{rows}", rows)


@contextmanager
def workplace(free_gib: int = 2) -> Iterator[Workplace]:
    """``SystemExit`` if the disk has less free space than that."""
    cache = os.environ.get(CACHE)
    if cache:
        Path(cache).mkdir(parents=True, exist_ok=True)
    # Beside the bases: their data files are shared by hard links.
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-", dir=cache))
    try:
        free = shutil.disk_usage(folder).free
        if free < free_gib << 30:
            raise SystemExit(f"{folder} has {free >> 30} GiB free; {free_gib} are needed. Set TMPDIR or {CACHE}")
        (folder / "tables").mkdir()
        yield Workplace(folder / "tables", Path(cache) if cache else folder)
    finally:
        shutil.rmtree(folder)
