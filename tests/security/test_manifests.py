"""A manifest that is no whole one is named as damage: no later try would read it."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.table.lance.table import LanceTable


@pytest.mark.parametrize("form", ["cut", "trailing bytes", "nested"])
def test_a_manifest_that_is_no_whole_one(tmp_path: Path, form: str) -> None:
    lance.write_dataset(pa.table({"a": [1, 2]}), str(tmp_path / "t"))
    (manifest,) = (tmp_path / "t" / "_versions").glob("*.manifest")
    whole = manifest.read_bytes()
    content = {"cut": whole[: len(whole) // 2], "trailing bytes": whole + b"x" * 16, "nested": b"[" * 200_000}
    manifest.write_bytes(content[form])
    table = LanceTable(str(tmp_path / "t"))
    for opened in (table.newest, lambda: table.at(1)):
        with pytest.raises(ObjectCorrupt):
            opened()
