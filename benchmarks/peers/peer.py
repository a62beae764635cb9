"""The interface of a peer: one engine with one keyed table.

Times are taken around one call.  The time of ``give`` is not counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Peer(Protocol):
    """Rows come as Parquet; the columns are those of ``benchmarks.keyed_rows``, the key is ``id``."""

    def create(self, rows: Path) -> None:
        """Make the table out of a folder of Parquet files."""

    def give(self, rows: Path) -> None:
        """Take the rows of one file into memory, in the form that the engine upserts fastest."""

    def upsert(self) -> None:
        """Upsert the rows given; they are committed when it returns."""

    def aggregate(self) -> tuple[int, int, float]:
        """Number of rows, sum of ``a``, sum of ``b``: as ``keyed_rows.Sums``."""

    def scan(self) -> int:
        """Read all columns of all rows; how many rows there are."""

    def compact(self) -> None:
        """Do what the engine does for reads; ``NotImplementedError`` if it has no such call."""

    def pids(self) -> list[int]:
        """Roots of processes that work for it and are no children of this one."""

    def close(self) -> None:
        """End what it started."""
