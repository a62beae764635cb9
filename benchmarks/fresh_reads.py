"""A process that reads a table over and over, and the ages of the rows that it has seen (``benchmarks.columns_reader``)."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_LAST_S = 120.0
"""Seconds in which the process ends once it knows how many rows were produced."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """Rows as reads have shown them: when each was produced, in seconds since 1970, and how old it was then, in milliseconds.
    A row that was never seen has a negative age."""

    produced: npt.NDArray[np.float64]
    age_ms: npt.NDArray[np.float64]
    said: Mapping[str, Any]
    """Further facts of the process: ``probes``, ``failed``, ``reads`` and ``read_median_s``."""

    def p99(self, since: float, until: float) -> float:
        return p99([self], since, until)

    @property
    def unseen(self) -> int:
        return int((self.age_ms < 0).sum())


def p99(found: Sequence[Fresh], since: float, until: float) -> float:
    """Return the p99 age of all rows that were produced in this time, in milliseconds.

    Infinite if there are none, or a row was never seen."""
    ages = np.concatenate([one.age_ms[(one.produced >= since) & (one.produced < until)] for one in found])
    return float(np.percentile(ages, 99)) if len(ages) and ages.min() >= 0 else math.inf


class FreshReader:
    """The process of one table.  It begins at once, and ends by ``end`` or ``kill``."""

    def __init__(self, uri: str, rows_max: int, found: Path, options: Mapping[str, str] | None = None) -> None:
        self._found = found
        child = [
            sys.executable,
            "-m",
            "benchmarks.columns_reader",
            uri,
            str(rows_max),
            str(found),
            json.dumps(options or {}),
        ]
        self._process = subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, told: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()

    def end(self, rows: int) -> Fresh:
        """Wait until the process has seen so many produced rows, or its time is over."""
        self.tell({"rows": rows})
        output, _ = self._process.communicate(timeout=_LAST_S)
        said = json.loads(output.strip().splitlines()[-1])
        for text in said["failed"]:
            print(f"a read failed: {text}", flush=True)
        with np.load(self._found) as stored:
            return Fresh(stored["produced"] / 1e6, stored["fresh"] / 1e3, said)

    def kill(self) -> None:
        self._process.kill()
