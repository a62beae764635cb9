"""Scans without rows at some addresses: the same whoever leaves them out, Lance or we."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.table.lance import pinned
from lancewal_core.table.lance.row_mask import RowMask
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import AllBut

ROWS = 900


@pytest.mark.parametrize("by_lance", [True, False], ids=["Lance leaves out", "we leave out"])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable row ids"])
def test_all_other_rows_are_read(tmp_path: Path, by_lance: bool, stable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "_BLOCKED_ONE_OF", 0.001 if by_lance else 1 << 40)
    uri = str(tmp_path / "table")
    rows = pa.table({"k": range(ROWS), "s": [f"s{k}" for k in range(ROWS)]})
    made = lance.write_dataset(rows, uri, max_rows_per_file=300, enable_stable_row_ids=stable)
    addresses = [f.fragment_id << 32 | row for f in made.get_fragments() for row in range(300)]
    rng = Random(3)
    for deleted, filter, count in product((False, True), (None, "k % 3 = 1"), (1, 40, ROWS // 2)):
        table = LanceTable(uri)
        if deleted:
            made.delete("k % 11 = 5")
        gone = sorted(rng.sample(range(ROWS), count))
        without = np.array([addresses[k] for k in gone], np.uint64)
        batches = table.newest().scan(["s"], filter=filter, rows=AllBut(without), batch_rows=64)
        left = [k for k in range(ROWS) if k not in set(gone) and not (deleted and k % 11 == 5)]
        wanted = [f"s{k}" for k in left if filter is None or k % 3 == 1]
        assert sorted(s for batch in batches for s in batch.column("s").to_pylist()) == sorted(wanted)


def test_a_mask_knows_each_row_of_more_fragments_than_it_keeps() -> None:
    without = {(fragment << 32) | row for fragment in range(40) for row in range(fragment % 3, 20, 3)}
    mask = RowMask(np.array(sorted(without), np.uint64))
    asked = [(fragment << 32) | row for fragment in range(41) for row in (0, 1, 2, 19, 20, 500)]
    Random(1).shuffle(asked)
    for part in (asked, asked[:1], [a for a in asked if a >> 32 == 7], []):
        assert mask.kept(np.array(part, np.uint64)).tolist() == [a not in without for a in part]
