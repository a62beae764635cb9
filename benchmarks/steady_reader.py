"""The reading process of ``benchmarks.steady``."""

from __future__ import annotations

import json
import math
import sys
import time

import numpy as np

from benchmarks.distance import BASE_ROWS
from lancewal_reader.table import open_table

_FIRST_READS = 2
"""What they find has waited for the reader, which was not there."""


def main(uri: str, options: str, seconds: float) -> None:
    """Each row is a key's next one: ``a`` numbers them, ``ts`` is the time of its produce call."""
    table = open_table(uri, storage_options=json.loads(options))
    last = np.full(BASE_ROWS, -1, np.int64)
    ages_ms: list[np.ndarray] = []
    reads: list[float] = []
    end = math.inf
    while time.monotonic() < end:
        began = time.monotonic()
        found = table.to_arrow(["id", "a", "ts"])
        now = time.time_ns() // 1000
        reads.append(time.monotonic() - began)
        ids, numbers, produced = (found[name].to_numpy() for name in ("id", "a", "ts"))
        new = numbers > last[ids]
        last[ids] = numbers
        if len(reads) == _FIRST_READS:
            end = time.monotonic() + seconds
        if len(reads) > _FIRST_READS:
            ages_ms.append((now - produced[new]) / 1000)
    seen = np.concatenate(ages_ms)
    p50, p99 = np.percentile(seen, [50, 99])
    figures = {
        "fresh_p50_ms": p50,
        "fresh_p99_ms": p99,
        "rows_seen": len(seen),
        "read_median_s": np.median(reads[_FIRST_READS:]),
    }
    print(json.dumps({name: float(value) for name, value in figures.items()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
