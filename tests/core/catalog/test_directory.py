"""The catalog in a folder: its limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_core.catalog import directory
from lancewal_core.catalog.opened import open_directory
from lancewal_core.errors import InvalidInput
from tests.support.catalog_entries import entry


def test_a_full_catalog_takes_changes_but_no_other_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "TABLES_MAX", 2)
    catalog = open_directory(str(tmp_path))
    first, second, third = entry("a"), entry("b"), entry("c")
    for one in (first, second):
        assert catalog.swap_table(one.name, None, one)
    with pytest.raises(InvalidInput, match=r"has 2 tables, which is the most: .*lancewal catalog forget"):
        catalog.swap_table("c", None, third)
    assert list(open_directory(str(tmp_path)).tables()) == ["a", "b"]
    changed = entry("a")
    assert catalog.swap_table("a", first, changed)
    assert catalog.swap_table("b", second, None)
    assert catalog.swap_table("c", None, third)
    assert catalog.tables() == {"a": changed, "c": third}
