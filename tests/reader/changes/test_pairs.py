"""Pairs of rows as rows of a feed, against a loop over the pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lancewal_reader.changes.pairs import Pairs, aligned, change_rows

ROW = st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 2), "y": st.sampled_from(["a", "b"])})
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("x", pa.int64()), ("y", pa.string())])
Row = dict[str, Any] | None
MORE = pa.schema([pa.field("_sequence", pa.int64(), nullable=False)])


def _pairs(found: list[tuple[Row, Row]]) -> Pairs:
    def side(at: int) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        rows = [{"k": k, **row} for k, row in enumerate(pair[at] for pair in found) if row is not None]
        places = np.array([row["k"] for row in rows], np.int64)
        return aligned(pa.Table.from_pylist(rows, SCHEMA), places, len(found))

    (before, had), (after, has) = side(0), side(1)
    return Pairs(before, after, had, has, pa.table({"_sequence": range(len(found))}, MORE))


@given(found=st.lists(st.tuples(ROW, ROW), max_size=8), filtered=st.booleans(), differing=st.booleans())
def test_pairs_become_rows_in_their_order(found: list[tuple[Row, Row]], filtered: bool, differing: bool) -> None:
    pairs = _pairs(found)
    assert len(pairs) == len(found)
    if differing:
        pairs = pairs.differing(["k", "x"])
    rows = change_rows(pairs, ["y", "k"], "x > 0" if filtered else None)
    expected = []
    for k, (before, after) in enumerate(found):
        if differing and before is not None and after is not None and before["x"] == after["x"]:
            continue
        old, new = (row if row is None or not filtered or (row["x"] or 0) > 0 else None for row in (before, after))
        kinds = ("update_preimage", "update_postimage") if old and new else ("delete", "insert")
        expected += [
            {"y": row["y"], "k": k, "_change_type": kind, "_sequence": k}
            for row, kind in zip((old, new), kinds, strict=True)
            if row is not None
        ]
    assert rows.to_pylist() == expected
    assert rows.schema.field("k") == SCHEMA.field("k")
