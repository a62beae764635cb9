"""Measure changes of columns: under load (``columns_served``), widening, rows of three contracts, patches of a new column.

All but the first runs in this process, on tables of ``keyed_rows`` with an int32 column besides:

* *waiting rows*: what ingest takes in ``WAITING_S`` at 10,000 rows/s is flushed, then a column is dropped, then it is merged.
  The bytes that this merge writes beyond those of the same merge without a drop are written because of the drop.
* *widening*: turns of the flusher alternate with merges of 10,000 upserts.  All bytes that the turns write are compared with
  those of the wider column's pages.  Merges wait for the longest turn.
* *folds*: the same operations, as WAL batches of 10,000 rows under one contract and under three: a column is added and one
  renamed, then one added, one dropped, one widened.  CPU time of carrying them to the newest contract and folding them; the
  sides alternate.
* *patches* of 5 % of the rows, in the one table of an old int64 column, in the other of one that was added.  The bytes are
  those of the merge and of the compaction after it.

``.venv/bin/python -m benchmarks.columns 300000`` prints the figures for a table of 300,000 rows instead of 5 M.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import columns_served
from benchmarks.keyed_rows import KEY, Base, Upserts, check
from benchmarks.merge_strategies import WORN_ALONE
from benchmarks.steady import RATE
from benchmarks.upserted_table import UpsertedTable, copy_table
from benchmarks.workplace import workplace
from benchmarks.write_amplification import Written
from lancewal_core.rows.fold import bitmaps, fold
from lancewal_core.rows.projection import rows_as
from lancewal_core.rows.schema import OP, PRESENT, Op, RowSchema
from lancewal_core.table.columns.changes import Added, Change, Dropped, Renamed, Widened
from lancewal_core.table.lance.table import LanceTable

ROWS = 5_000_000
WAITING_S = 7
"""Age at which ``columns_served`` seals, and the time between two merges."""
FOLDED_ROWS = 300_000
BATCH_ROWS = 10_000
RUNS = 15
SHARES = {"upserts": (1.0, 0.0), "mixed": (0.7, 0.25)}
"""Of upserts and patches; the rest are deletes."""
PATCHED_SHARE = 0.05
_QUANTITY = {"quantity": "CAST(a % 1000003 AS INT)"}


def run(rows: int = ROWS) -> dict[str, float]:
    figures = columns_served.run(rows)
    with workplace(free_gib=8) as place:
        base = place.base(rows)
        waiting = _waiting(base, place.folder, min(WAITING_S * RATE, rows // 10))
        figures["waiting_bytes"] = waiting
        figures["bytes_mb"] = (waiting + figures["idle_bytes"]) / 1e6
        figures |= _widened(base, place.folder)
        schemas = _three_contracts(place.base(BATCH_ROWS), place.folder)
        for name, shares in SHARES.items():
            figures |= {f"fold_{name}_{what}": value for what, value in _folded(schemas, shares).items()}
        figures |= _patched(base, place.folder)
    return figures


def _waiting(base: Base, folder: Path, waiting: int) -> float:
    nbytes = []
    for changes in ((), (Dropped(("pad",)),)):
        table, upserts = _table(base, folder / "waiting")
        table.seal(_with_quantity(upserts.batch(waiting)))
        table.flush()
        if changes:
            table.alter(*changes)
        written = Written(table.path)
        table.merge()
        written.look()
        check(table.path, upserts.model)
        _remove(table)
        nbytes.append(written.by_kind.total())
    without, with_drop = nbytes
    return max(0, with_drop - without)


def _widened(base: Base, folder: Path) -> dict[str, float]:
    table, upserts = _table(base, folder / "widened")
    table.alter(Widened(("quantity",), pa.int64()))
    written, turns, stored = Written(table.path), [], 0
    for seconds in table.widen():
        written.look("turns")
        turns.append(seconds)
        stored = _stored(table.path, "quantity", pa.int64())
        table.seal(_with_quantity(upserts.batch(min(10_000, base.rows // 10))))
        table.flush()
        table.merge()
        written.look("merges")
    check(table.path, upserts.model)
    _remove(table)
    return {
        "widen_bytes_ratio": written.by_kind["turns"] / stored,
        "widen_wait_s": max(turns),
        "widen_turns": len(turns),
    }


def _stored(path: Path, column: str, type_: pa.DataType) -> int:
    """Return the bytes of a column's pages in the newest version; 0 if it has another type there."""
    pinned = LanceTable(str(path)).newest()
    if pinned.schema.field(column).type != type_:
        return 0
    return sum((pinned.column_bytes(f.fragment_id, [column]) or {}).get(column, 0) for f in pinned.fragments())


def _three_contracts(base: Base, folder: Path) -> list[RowSchema]:
    table, _ = _table(base, folder / "contracts")
    schemas = [table.contract.rows]
    table.alter(Added(("note",), pa.string()), Renamed(("name",), "label"))
    schemas.append(table.contract.rows)
    table.alter(Added(("extra",), pa.int64()), Widened(("quantity",), pa.int64()), Dropped(("b",)))
    for _ in table.widen():
        pass
    schemas.append(table.contract.rows)
    _remove(table)
    return schemas


def _folded(schemas: Sequence[RowSchema], shares: tuple[float, float]) -> dict[str, float]:
    """Columns that a contract has not, and values of those that a patch does not set, are not missed: a fold looks at none."""
    batches, newest = FOLDED_ROWS // BATCH_ROWS, schemas[-1]
    written = {
        "one": [(newest, _operations(newest, n, shares)) for n in range(batches)],
        "three": [(rows, _operations(rows, n, shares)) for n in range(batches) for rows in [schemas[3 * n // batches]]],
    }
    cpu_s: dict[str, list[float]] = {"one": [], "three": []}
    for _ in range(RUNS):
        for name, parts in written.items():
            began = time.process_time()
            fold([rows_as(batch, rows, newest, lambda: "a batch") for rows, batch in parts], newest)
            cpu_s[name].append(time.process_time() - began)
    one, three = (min(found) for found in cpu_s.values())  # other work on the machine only adds to CPU time
    return {"ratio": three / one, "cpu_ms": three * 1e3}


def _operations(rows: RowSchema, seed: int, shares: tuple[float, float]) -> pa.RecordBatch:
    """Return a WAL batch of random keys, the same for each contract; patches set ``a``."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 1_000_000, BATCH_ROWS)
    values = pa.array(numbers)
    kind = rng.random(BATCH_ROWS)
    ops = np.where(kind < shares[0], Op.UPSERT, np.where(kind < sum(shares), Op.PATCH, Op.DELETE)).astype(np.uint8)
    carried = np.zeros((BATCH_ROWS, len(rows.table)), np.bool_)
    carried[:, [rows.table.get_field_index(name) for name in (KEY, "a")]] = True
    present = pc.if_else(pa.array(ops == Op.PATCH), bitmaps(carried), pa.scalar(None, pa.binary()))
    system = {OP: pa.array(ops), PRESENT: present}
    columns = [system.get(f.name, values).cast(f.type) for f in rows.wal]
    return pa.record_batch(columns, schema=rows.wal)


def _patched(base: Base, folder: Path) -> dict[str, float]:
    nbytes = {}
    for column in ("a", "score"):
        table, upserts = _table(base, folder / "patched", Added(("score",), pa.int64()))
        values = upserts.patches(int(base.rows * PATCHED_SHARE))
        if column == "score":
            upserts = Upserts(base, 0)  # ``a`` stays
        table.seal(values.rename_columns([KEY, column]))
        table.flush()
        written = Written(table.path)
        table.merge()
        table.compact(WORN_ALONE)
        written.look()
        check(table.path, upserts.model)
        if column == "score":
            found = lance.dataset(str(table.path)).to_table(columns=[KEY, column], filter="score IS NOT NULL")
            if found.sort_by(KEY).to_pydict() != values.rename_columns([KEY, column]).sort_by(KEY).to_pydict():
                raise AssertionError("the patches are not in the table")
        _remove(table)
        nbytes[column] = written.by_kind.total()
    return {"patched_bytes_ratio": nbytes["score"] / nbytes["a"], "patched_mib": nbytes["score"] / 2**20}


_numbers = count()


def _table(base: Base, folder: Path, *changes: Change) -> tuple[UpsertedTable, Upserts]:
    """Return a table equal to the base, with an int32 column besides, warm: it has had one small upsert."""
    path = copy_table(base.table, folder)
    lance.dataset(str(path)).add_columns(_QUANTITY)
    table, upserts = UpsertedTable(path), Upserts(base, next(_numbers))
    if changes:
        table.alter(*changes)
    return table, upserts


def _with_quantity(rows: pa.Table) -> pa.Table:
    return rows.append_column("quantity", pc.cast(pc.bit_wise_and(rows[KEY], 0xFFFFF), pa.int32()))


def _remove(table: UpsertedTable) -> None:
    table.close()
    shutil.rmtree(table.path)


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS), indent=1))
