"""Scan a table in a process of its own, by plain Lance as its users have it, or by lancewal's reader.

The process that merges encodes with more threads than Lance uses by default (``lance_threads``), and Lance has only one
setting for a process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import lance

from benchmarks.elapsed import Elapsed
from benchmarks.keyed_rows import Model, Sums, check_sums, sum_up
from lancewal_core.table.lance.row_files import CORES_RESERVED
from lancewal_reader.table import open_table

Kind = Literal["full", "aggregate"]
"""All columns of all rows into an Arrow table, or a streamed scan of two columns, summed."""
By = Literal["Lance", "lancewal"]
"""``lance.dataset``, or a strong read by ``lancewal.open_table``; each scan opens the table anew."""


class TableScans:
    """Use ``table_scans()``."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def scan(self, path: Path, kind: Kind, model: Model, by: By = "Lance") -> Elapsed:
        """What a scan takes; ``AssertionError`` if it finds other rows than the model has."""
        spent, found = self._pool.submit(_scan, path, kind, by).result()
        if isinstance(found, Sums):
            check_sums(path, found, model)
        elif found != model.sums.rows:
            raise AssertionError(f"{path} holds {found} rows, the model {model.sums.rows}")
        return spent


@contextmanager
def table_scans() -> Iterator[TableScans]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_as_lance_has_it) as pool:
        yield TableScans(pool)


def write_fresh(source: Path, target: Path) -> None:
    """The same rows by Lance's own defaults, as the compaction: fewer, larger fragments take some 5 % longer to scan."""
    lance.write_dataset(lance.dataset(str(source)).scanner().to_reader(), str(target))


def _as_lance_has_it() -> None:
    os.environ.pop(CORES_RESERVED, None)


def _scan(path: Path, kind: Kind, by: By) -> tuple[Elapsed, Sums | int]:
    cpu, start = time.process_time(), time.perf_counter()
    table: Any = lance.dataset(str(path)) if by == "Lance" else open_table(str(path))
    found: Sums | int
    if kind == "aggregate":
        found = sum_up(table.scanner(["a", "b"]).to_batches() if by == "Lance" else table.to_batches(["a", "b"]))
    else:
        found = (table.to_table() if by == "Lance" else table.to_arrow()).num_rows
    return Elapsed(time.perf_counter() - start, time.process_time() - cpu), found
