"""Rows by address: the same whether they are taken one by one or by a scan."""

from __future__ import annotations

from pathlib import Path
from random import Random

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import VersionGone
from lancewal_core.table.lance import pinned
from lancewal_core.table.lance.table import LanceTable


@pytest.mark.parametrize("one_by_one", [0, 1000], ids=["by a scan", "one by one"])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable row ids"])
def test_rows_are_those_of_their_addresses(
    tmp_path: Path, one_by_one: int, stable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned, "_TAKEN_ONE_BY_ONE", one_by_one)
    uri = str(tmp_path / "table")
    rows = pa.table({"k": range(300), "s": [f"s{k}" for k in range(300)], "st": [{"x": k} for k in range(300)]})
    made = lance.write_dataset(rows, uri, max_rows_per_file=100, enable_stable_row_ids=stable)
    made.delete("k % 7 = 0")
    first, _, third = (f.fragment_id for f in made.get_fragments())
    of_key = {
        address: key
        for fragment, start in ((first, 0), (third, 200))
        for address, key in zip(range(fragment << 32, (fragment << 32) + 100), range(start, start + 100), strict=True)
        if key % 7
    }
    asked = Random(5).sample(sorted(of_key), 60)
    table = LanceTable(uri).newest()
    found = table.take(pa.array(asked, pa.uint64()), ["st", "k", "s"])
    assert found.to_pylist() == [{"st": {"x": of_key[a]}, "k": of_key[a], "s": f"s{of_key[a]}"} for a in asked]
    with pytest.raises(VersionGone):
        table.take(pa.array([asked[0], (first << 32) + 7], pa.uint64()), ["k"])
