"""Rows that an index of vectors cannot take are named by keys of every type."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.keys.far_rows import row_keys
from lancewal_core.table.lance.table import LanceTable


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array([7]), "k=7"),
        (pa.array(["a"]), "k='a'"),
        (pa.array([b"\xff"]), "k='ff'"),
        (pa.array([3_663_730], pa.int32()).cast(pa.date32()), "k='12000-12-14'"),
        (pa.array([-721_000], pa.int32()).cast(pa.date32()), "k='-0005-12-21'"),
        (pa.array([316_000_000_000]).cast(pa.timestamp("s", "UTC")), "k='11983-08-23 09:46:40Z'"),
    ],
    ids=lambda given: str(given.type) if isinstance(given, pa.Array) else "",
)
def test_a_key_of_any_type_and_year_is_named(tmp_path: Path, column: pa.Array, shown: str) -> None:
    lance.write_dataset(pa.table({"k": column}), str(tmp_path))
    assert row_keys(LanceTable(str(tmp_path)).newest(), [0], ["k"]) == (shown,)
