"""Scans by plain Lance as its users have it, in a process of its own.

The process that merges encodes with more threads than Lance takes by itself (``lance_threads``), and Lance has one setting
for a process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import lance

from benchmarks.keyed_rows import Model, Sums, check_sums, sums
from benchmarks.spent import Spent
from lancewal_core.lance_threads import CORES_RESERVED

Kind = Literal["full", "aggregate"]
"""All columns of all rows into an Arrow table, or a streamed scan of two columns, summed."""


class PlainLance:
    """Use ``plain_lance()``."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def scan(self, path: Path, kind: Kind, model: Model) -> Spent:
        """What a scan takes; ``AssertionError`` if it finds other rows than the model has."""
        spent, found = self._pool.submit(_scan, path, kind).result()
        if isinstance(found, Sums):
            check_sums(path, found, model)
        elif found != model.sums.rows:
            raise AssertionError(f"{path} holds {found} rows, the model {model.sums.rows}")
        return spent


@contextmanager
def plain_lance() -> Iterator[PlainLance]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_as_lance_has_it) as pool:
        yield PlainLance(pool)


def write_fresh(source: Path, target: Path) -> None:
    """The same rows by Lance's own defaults, as the compaction: fewer, larger fragments take some 5 % longer to scan."""
    lance.write_dataset(lance.dataset(str(source)).scanner().to_reader(), str(target))


def _as_lance_has_it() -> None:
    os.environ.pop(CORES_RESERVED, None)


def _scan(path: Path, kind: Kind) -> tuple[Spent, Sums | int]:
    cpu, start = time.process_time(), time.perf_counter()
    found = sums(path) if kind == "aggregate" else int(lance.dataset(str(path)).to_table().num_rows)
    return Spent(time.perf_counter() - start, time.process_time() - cpu), found
