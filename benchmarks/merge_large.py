"""Compare merging 10 k upserts into 50 M rows in 200 fragments with ``merge_insert``, and with lancewal's own time at 5 M
rows.

All of these alternate in one process; ratios are of medians.  Then ``lancewal merge`` in a process of its own merges
another flush of 10 k rows, and one of 250 k, and reports its peak memory.  At the end the tables are compared with the
model.

The benchmark needs about 12 GiB of disk, and runs only if it is named.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.merge_runs import MergeRuns, Pair
from benchmarks.workplace import workplace

SMALL = 5_000_000
LARGE = 50_000_000
COUNT = 10_000
RUNS = 7


def run() -> dict[str, float]:
    with workplace(free_gib=12) as place:
        small = Pair.of(place.base(SMALL), place.folder / "small", 5)
        large = Pair.of(place.base(LARGE), place.folder / "large", 6)
        of_small, of_large = MergeRuns(), MergeRuns()
        for _ in range(RUNS):
            small.runs(COUNT, 1, into=of_small)
            large.runs(COUNT, 1, into=of_large)
        result = of_small.figures("10k_into_5m") | of_large.figures("10k_into_50m")
        ratio = statistics.median(of_large.committed) / statistics.median(of_small.committed)
        result["50m_over_5m_from_flushed"] = ratio
        result["10k_into_5m_peak_mib"] = _peak_mib(small, COUNT)
        result["10k_into_50m_peak_mib"] = _peak_mib(large, COUNT)
        result["250k_into_50m_peak_mib"] = _peak_mib(large, 250_000)
        for pair in (small, large):
            pair.check()
            pair.ours.close()
        return result | {"correct": 1}


def _peak_mib(pair: Pair, count: int) -> float:
    """Of a process that merges one snapshot; the peer gets the rows too, so that the model stays that of both."""
    rows = pair.upserts.batch(count)
    pair.ours.seal(rows)
    pair.ours.flush()
    pair.peer.merge(rows)
    return _child(pair.ours.path)["peak_mib"]


def _child(table: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.merge_child", str(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the merge failed: {done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
