"""A deletion file that is damaged, or was cleaned up under a pinned version, is told as such by whatever meets it."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import ObjectCorrupt, VersionGone
from lancewal_core.table_lance import LancePinnedTable, LanceTable


@pytest.fixture(params=[10, 30_000], ids=["a list", "a bitmap"])
def made(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[LancePinnedTable, Path]:
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.table({"k": list(range(60_000))}), uri)
    lance.dataset(uri).delete(f"k < {request.param}")
    (file,) = (tmp_path / "table" / "_deletions").iterdir()
    assert (file.suffix == ".bin") == (request.param > 10)
    return LanceTable(uri).newest(), file


def test_damaged(made: tuple[LancePinnedTable, Path]) -> None:
    pinned, file = made
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ObjectCorrupt):
        pinned.hide_rows(0, [40_000])
    with pytest.raises(ObjectCorrupt):
        list(pinned.scan(["k"]))


def test_gone(made: tuple[LancePinnedTable, Path]) -> None:
    pinned, file = made
    file.unlink()
    with pytest.raises(VersionGone):
        pinned.hide_rows(0, [40_000])
    with pytest.raises(VersionGone):
        list(pinned.scan(["k"]))
