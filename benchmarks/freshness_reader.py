"""The reading process of ``benchmarks.freshness``."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from lancewal_reader.table import open_table

PRODUCED_AFTER_US = 1_750_000_000_000_000
"""Produce times of the benchmark's rows are above, ``ts`` of the base rows below."""


def main(uri: str, rows: int, timeout_s: float, options: dict[str, str]) -> None:
    table = open_table(uri, storage_options=options)
    print("ready", flush=True)
    fresh_us = np.full(rows, -1, np.int64)
    scans: list[float] = []
    end = time.monotonic() + timeout_s
    while (fresh_us < 0).any() and time.monotonic() < end:
        start = time.perf_counter()
        found = table.to_arrow(["region", "id", "ts", "a"])
        now = time.time_ns() // 1000
        scans.append(time.perf_counter() - start)
        produced, number = found["ts"].to_numpy(), found["a"].to_numpy()
        new = np.flatnonzero(produced > PRODUCED_AFTER_US)
        first = new[fresh_us[number[new]] < 0]
        fresh_us[number[first]] = now - produced[first]
    seen = fresh_us[fresh_us >= 0] / 1000
    p50, p95, p99 = np.percentile(seen, [50, 95, 99]) if len(seen) else (float("nan"),) * 3
    print(
        json.dumps(
            {
                "rows_seen": len(seen), "rows_unseen": rows - len(seen), "p50_ms": p50, "p95_ms": p95, "p99_ms": p99,
                "max_ms": float(seen.max(initial=0)), "scans": len(scans), "scan_median_s": float(np.median(scans)),
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4]) if len(sys.argv) > 4 else {})
