"""The reading process of ``benchmarks.changes``: strong reads until half of the rows are seen, then ``follow``.

A row counts for the way by which it was seen first.  Both ways take the same columns.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.freshness_reader import PRODUCED_AFTER_US
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table

_COLUMNS = ["region", "id", "ts", "a"]


class Ages:
    """Age of each row when it was first seen, in microseconds, by its number ``a``; -1 for one not seen yet."""

    def __init__(self, rows: int) -> None:
        self.us = np.full(rows, -1, np.int64)
        self.followed = np.zeros(rows, np.bool_)

    def see(self, found: pa.Table, followed: bool) -> None:
        now = time.time_ns() // 1000
        produced, number = found["ts"].to_numpy(), found["a"].to_numpy()
        new = np.flatnonzero(produced > PRODUCED_AFTER_US)
        first = new[self.us[number[new]] < 0]
        self.us[number[first]] = now - produced[first]
        self.followed[number[first]] = followed

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.us >= 0)


def main(uri: str, rows: int, timeout_s: float) -> None:
    table, ages = open_table(uri), Ages(rows)
    print("ready", flush=True)
    end = time.monotonic() + timeout_s
    reads = feeds = 0
    start = table.receipt()
    while ages.seen.sum() < rows // 2 and time.monotonic() < end:
        found = table.to_arrow(_COLUMNS)
        ages.see(found, followed=False)
        start, reads = receipt_of(found.schema), reads + 1
    for feed in table.follow(start, columns=_COLUMNS):
        ages.see(feed.to_arrow(), followed=True)
        feeds += 1
        if ages.seen.all() or time.monotonic() > end:
            break
    figures: dict[str, float] = {"rows_unseen": int(rows - ages.seen.sum()), "reads": reads, "feeds": feeds}
    for name, chosen in (("strong", ~ages.followed), ("follow", ages.followed)):
        p50, p99 = np.percentile(ages.us[chosen & ages.seen] / 1000, [50, 99])
        figures |= {f"{name}_p50_ms": float(p50), f"{name}_p99_ms": float(p99)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
