"""``python -m benchmarks.calibrate``: measure the constants of the flusher's cost model on this machine.

They are CPU seconds of this process, including Lance's threads: the least of several runs, on one fragment of 250 k
rows of the merge benchmarks' table.  ``lancewal_flusher.tasks.cost`` has the constants of one machine.  Except for
``READ_WEIGHT`` they only affect the seconds that are shown, not decisions.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.keyed_rows import ROWS_PER_FRAGMENT, Base, Upserts
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import TableCommit

RUNS = 5


def measure(folder: Path) -> dict[str, float]:
    """The constants by their names."""
    rows = ROWS_PER_FRAGMENT
    base = Base(folder, rows)
    table = LanceTable(str(base.table))
    pinned = table.newest()
    (fragment,) = pinned.fragments()
    number, names = fragment.fragment_id, pinned.schema.names
    all_rows = pinned.dataset.to_table()
    few, many = np.arange(100), np.random.default_rng(1).choice(rows, rows // 5, replace=False)
    patches = Upserts(base, 1).patches(rows // 5).select(["a"])
    as_it_is = pinned.fragment_json(number)
    column = (pinned.column_bytes(number, ["a"]) or {})["a"]
    small, large = np.sort(few), np.sort(many)

    def commit() -> None:
        newest = table.newest()
        table.commit(TableCommit(newest.version, (), (newest.fragment_json(number),), (), {}, strict=False))

    written = _cpu_s(lambda: table.write_rows(all_rows)) / fragment.nbytes
    read = _cpu_s(lambda: [batch.num_rows for batch in pinned.scan(names)]) / fragment.nbytes
    vector = _cpu_s(lambda: pinned.hide_rows(number, small.tolist()))
    hidden = _cpu_s(lambda: pinned.hide_rows(number, large.tolist())) - vector
    in_place = _cpu_s(lambda: pinned.write_columns(number, small, patches.slice(0, 100), as_it_is))
    patched = _cpu_s(lambda: pinned.write_columns(number, large, patches, as_it_is)) - in_place
    return {
        "READ_WEIGHT": read / written,
        "rewritten_byte_s": written,
        "read_byte_s": read,
        "vector_s": vector,
        "hidden_row_s": max(hidden, 0.0) / len(large),
        "column_row_s (with its bytes)": in_place / rows,
        "column_bytes_per_row": column / rows,
        "patched_row_s (writing alone)": max(patched, 0.0) / len(large),
        "commit_s": _cpu_s(commit),
    }


def _cpu_s(call: Callable[[], Any]) -> float:
    found = []
    for _ in range(RUNS):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="lancewal-calibrate-") as place:
        print(json.dumps(measure(Path(place)), indent=1))
