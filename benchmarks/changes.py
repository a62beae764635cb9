"""Measure change feeds: what they cost beside what must be read, and how soon a follower sees a row.

* *A merge*: ``net`` over one merge of 10,000 upserts, against reading the old rows of these keys by their addresses; then
  again with the whole table compacted since.  The sides alternate, each with the version open.
* *Unmerged records*: 1 M upserts of 250,000 keys over 5 M merged rows: ``net`` and ``all``, against a strong read of
  the table.  Caches
  are new each time.
* *Following*: rows arrive at 10,000 rows/s as in ``freshness``.  Until half of them are seen, a process repeats strong reads;
  then it follows the table.  Ages of rows are those of ``freshness``.

``run_large`` measures ``net`` over one merge in a table of 50 M rows and in one of 5 M, in turns.  It takes 12 GiB of disk.

``.venv/bin/python -m benchmarks.changes 300000`` prints the figures for a table of 300,000 rows instead of 5 M.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import freshness
from benchmarks.keyed_rows import KEY, Base, Upserts
from benchmarks.upserted_table import UpsertedTable, copy_table
from benchmarks.workplace import workplace
from lancewal_core.table.lance.table import LanceTable
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import open_table

ROWS = 5_000_000
LARGE_ROWS = 50_000_000
MERGED = 10_000
RECORDS = 1_000_000
KEYS = 250_000
RUNS = 7


def run(rows: int = ROWS) -> dict[str, float]:
    with workplace(free_gib=8) as place:
        base = place.base(rows)
        return {**_merge(base, place.folder), **_unmerged(base, place.folder), **_followed()}


def run_large(rows: int = LARGE_ROWS, small_rows: int = ROWS) -> dict[str, float]:
    with workplace(free_gib=12) as place:
        large, small = (_Merge(place.base(count), place.folder) for count in (rows, small_rows))
        large_s, small_s = _alternating(large.feed, small.feed)
        taken_s, small_taken_s = _alternating(large.take, small.take)
        for merge in (large, small):
            merge.close()
    return {
        "large_net_s": large_s,
        "small_net_s": small_s,
        "large_ratio": large_s / small_s,
        "large_take_s": taken_s,
        "small_take_s": small_taken_s,
    }


def _followed(seconds: int = 60) -> dict[str, float]:
    figures = freshness.run(seconds, "benchmarks.changes_reader")
    ratios = {f"follow_{at}_ratio": figures[f"follow_{at}_ms"] / figures[f"strong_{at}_ms"] for at in ("p50", "p99")}
    return {**figures, **ratios}


def _merge(base: Base, folder: Path) -> dict[str, float]:
    merge = _Merge(base, folder)
    old, net = _alternating(merge.take, merge.feed)
    figures = {"old_rows": float(len(merge.addresses)), "take_s": old, "net_s": net, "net_ratio": net / old}
    merge.compact()
    old, net = _alternating(merge.take, merge.feed)
    merge.close()
    return {**figures, "compacted_s": net, "compacted_ratio": (net / old) / figures["net_ratio"]}


class _Merge:
    """A copy of a base with one merge, the receipts before and after it, and the addresses of the old rows."""

    def __init__(self, base: Base, folder: Path) -> None:
        self._path = path = copy_table(base.table, folder / f"merged-{base.rows}")
        self._table = UpsertedTable(path)
        self._reader = open_table(str(path))
        self._start = self._reader.receipt()
        upserts = Upserts(base, seed=1).batch(min(MERGED, base.rows // 10))
        self._table.seal(upserts)
        self._table.flush()
        self._table.merge()
        self._keys, self._end = upserts.num_rows, self._reader.receipt()
        self.addresses = _addresses(path, self._start, upserts)

    def compact(self) -> None:
        """Compact the table: the range ends behind that."""
        self._table.compact_all()
        self._end = self._reader.receipt()

    def take(self) -> None:
        _take(self._path, self._start, self.addresses)

    def feed(self) -> None:
        _feed(self._path, self._start, self._end, self._keys)

    def close(self) -> None:
        self._table.close()
        shutil.rmtree(self._path)


def _addresses(path: Path, start: Receipt, upserts: pa.Table) -> pa.Array:
    """Return the addresses of the rows that the upserts replace, in the version of the start."""
    pinned = LanceTable(str(path)).at(start.version)
    found = [
        batch["_rowaddr"].filter(pc.is_in(batch[KEY], upserts[KEY].combine_chunks()))
        for batch in pinned.scan([KEY], with_row_address=True)
    ]
    return pa.concat_arrays(found).sort()


def _take(path: Path, start: Receipt, addresses: pa.Array) -> None:
    pinned = LanceTable(str(path)).at(start.version)
    rows = pinned.take(addresses, pinned.schema.names)
    assert rows.num_rows == len(addresses)


def _feed(path: Path, start: Receipt, end: Receipt, keys: int) -> None:
    kinds = open_table(str(path)).changes(start, end).to_arrow()["_change_type"].to_pylist()
    found = kinds.count("insert") + kinds.count("update_postimage")
    if found != keys or kinds.count("delete"):
        raise AssertionError(f"{found} keys changed instead of {keys}")


def _unmerged(base: Base, folder: Path) -> dict[str, float]:
    path = copy_table(base.table, folder / "unmerged")
    table = UpsertedTable(path)
    start = open_table(str(path)).receipt()
    records, keys = min(RECORDS, base.rows // 2), min(KEYS, base.rows // 8)
    batch = Upserts(base, seed=2).batch(keys)
    for _ in range(records // keys):
        table.seal(batch)
        table.flush()
    read, net = _alternating(
        lambda: open_table(str(path)).to_arrow(), lambda: _feed_of(path, start, "net", keys), runs=3
    )
    again, every = _alternating(
        lambda: open_table(str(path)).to_arrow(), lambda: _feed_of(path, start, "all", records), runs=3
    )
    table.close()
    shutil.rmtree(path)
    return {"strong_read_s": read, "unmerged_net_ratio": net / read, "unmerged_all_ratio": every / again}


def _feed_of(path: Path, start: Receipt, mode: Literal["net", "all"], changes: int) -> None:
    rows = sum(batch.num_rows for batch in open_table(str(path)).changes(start, mode=mode).to_batches())
    if rows < changes:
        raise AssertionError(f"{rows} rows of {changes} changes")


def _alternating(one: Callable[[], object], other: Callable[[], object], runs: int = RUNS) -> tuple[float, float]:
    """Return the median seconds of both; one call of each before is not counted."""
    one()
    other()
    times = np.array([(_seconds(one), _seconds(other)) for _ in range(runs)])
    first, second = np.median(times, axis=0)
    return float(first), float(second)


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS), indent=1))
