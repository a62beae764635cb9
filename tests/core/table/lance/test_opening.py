"""Opening versions of one table in several threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.ids import TableVersion
from lancewal_core.table.lance.table import LanceTable


class Overtaken(LanceTable):
    """Just as a version was opened, and before the caller has it, another thread opens version ``next_one``."""

    next_one = 0

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_opened" and self.next_one:
            version, self.next_one = self.next_one, 0
            self.at(version)


def test_each_thread_has_the_version_that_it_has_opened(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    for rows in (1, 2):
        lance.write_dataset(pa.table({"a": range(rows)}), uri, mode="overwrite")
    table = Overtaken(uri)
    table.next_one = 1
    assert table.at(2).version == 2
    table.next_one = 1
    assert table.newest().version == 2
    assert table.opened(1).version == 1


def test_versions_are_told_though_one_goes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance lists the manifests and reads each: one that a clean-up removes in between is not found."""
    uri = str(tmp_path / "table")
    for rows in (1, 2, 3):
        lance.write_dataset(pa.table({"a": range(rows)}), uri, mode="overwrite")
    table = LanceTable(uri)
    removed: list[int] = []
    versions = lance.LanceDataset.versions

    def overtaken(dataset: lance.LanceDataset) -> Any:
        if not removed:
            removed.append(1)
            table.remove_versions([TableVersion(1)])
            raise ValueError("Not found: table/_versions/18446744073709551614.manifest, manifest.rs:52:15")
        return versions(dataset)

    monkeypatch.setattr(lance.LanceDataset, "versions", overtaken)
    assert list(table.commit_times()) == [2, 3]
    monkeypatch.setattr(lance.LanceDataset, "versions", None)
    assert table.versions() == [2, 3]
