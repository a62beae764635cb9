"""The process of ``benchmarks.fresh_reads``: it keeps one table open, and reads produced rows over and over.

Each line of standard input is a JSON object: ``{"column": name}`` for a column to read from now on, or
``{"rows": number}`` for the number of produced rows, all of which are to be seen before the end.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks.workload import region_of
from lancewal_core.errors import LancewalError
from lancewal_reader.table import open_table

PROBES_FROM = 1_000_000_000
"""``a`` of rows that have a value in a new column."""
_OLDEST_S = 60
"""Seconds after which a row counts as never seen."""
_LAST_S = 60.0
"""Seconds for rows to appear once all are produced."""


def main(uri: str, rows_max: int, found: str, options: dict[str, str]) -> None:
    """Write when each row was produced and how old it was at the end of the first read that showed it, in microseconds; a
    row is told by ``a``."""
    table, asked = open_table(uri, storage_options=options), list[str]()
    threading.Thread(target=lambda: asked.extend(sys.stdin), daemon=True).start()
    produced, fresh = np.zeros(rows_max, np.int64), np.full(rows_max, -1, np.int64)
    probes: dict[int, int] = {}
    names, failed, reads = ["id", "a", "ts"], list[str](), list[float]()
    rows, end = rows_max, float("inf")
    while (fresh[:rows] < 0).any() and time.monotonic() < end:
        while asked:
            told = json.loads(asked.pop(0))
            if "rows" in told:
                rows, end = told["rows"], time.monotonic() + _LAST_S
            else:
                names = [*names[:3], told["column"]]
        since = time.time_ns() // 1000 - _OLDEST_S * 1_000_000
        began = time.monotonic()
        try:
            seen = table.to_arrow(names, filter=f"ts > {since}")
            now = time.time_ns() // 1000
            table.get([(region_of(0), 0)]).to_arrow()
        except LancewalError as error:
            failed.append(f"{error.kind}: {error}")
            continue
        reads.append(time.monotonic() - began)
        number, times = seen["a"].to_numpy(), seen["ts"].to_numpy()
        filled = seen[names[3]].is_valid().to_numpy() if len(names) > 3 else np.zeros(len(number), np.bool_)
        for at in np.flatnonzero((number >= PROBES_FROM) & filled).tolist():
            probes.setdefault(int(number[at]), int(now - times[at]))
        new = np.flatnonzero(number < PROBES_FROM)
        new = new[fresh[number[new]] < 0]
        produced[number[new]], fresh[number[new]] = times[new], now - times[new]
    np.savez(Path(found), produced=produced[:rows], fresh=fresh[:rows])
    print(
        json.dumps({"probes": probes, "failed": failed, "reads": len(reads), "read_median_s": float(np.median(reads))})
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
