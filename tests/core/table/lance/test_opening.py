"""Opening versions of one table in several threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.dataset import Branches, DatasetOptimizer

from lancewal_core.errors import ObjectCorrupt, TableMissing, VersionGone
from lancewal_core.names.ids import TableVersion
from lancewal_core.names.paths import parse_table_version
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import Committed, TransactionInfo


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


def test_versions_are_told_without_their_manifests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance would list them and read each, and fail where a clean-up removes one in between."""
    uri = str(tmp_path / "table")
    for rows in (1, 2, 3):
        lance.write_dataset(pa.table({"a": range(rows)}), uri, mode="overwrite")
    table = LanceTable(uri)
    monkeypatch.setattr(lance.LanceDataset, "versions", None)
    assert table.versions() == [1, 2, 3]
    table.remove_versions([TableVersion(1)])
    assert table.versions() == [2, 3]
    assert table.commit_time(2) <= table.commit_time(3)
    with pytest.raises(VersionGone):
        table.commit_time(1)


def test_what_takes_a_data_set_for_itself_takes_one_that_no_other_thread_goes_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks such a data set for its version alone meets an error of Lance's binding."""
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.table({"a": range(3)}), uri).create_scalar_index("a", "BTREE")
    lance.write_dataset(pa.table({"a": range(3)}), uri, mode="append")
    table = LanceTable(uri)
    version = table.newest().version
    taken: list[str] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(of: Any, *arguments: Any, **options: Any) -> Any:
            taken.append(name)
            dataset = of._dataset if isinstance(of, DatasetOptimizer) else of
            assert table.opened(version).dataset._ds is not dataset._ds
            return real(of, *arguments, **options)

        return act

    takers = [
        (lance.LanceDataset, "create_branch"),
        (Branches, "delete"),
        (lance.LanceDataset, "read_transaction"),
        (DatasetOptimizer, "optimize_indices"),
        (lance.LanceDataset, "create_scalar_index"),
    ]
    for kind, name in takers:
        monkeypatch.setattr(kind, name, noted(name, getattr(kind, name)))
    assert table.create_branch("b", version)
    assert table.drop_branch("b")
    assert isinstance(table.transaction(version), TransactionInfo)
    assert isinstance(table.extend_index("a_idx", 0), Committed)
    version = table.newest().version
    assert isinstance(table.rebuild_index("a_idx"), Committed)
    assert taken == [name for _, name in takers]


@pytest.mark.parametrize("names", ["present", "former"])
@pytest.mark.parametrize("form", ["a folder", "empty", "truncated", "other bytes"])
def test_a_damaged_manifest_is_named(tmp_path: Path, names: str, form: str) -> None:
    """Lance says of a folder in its place that there is no table."""
    uri = str(tmp_path / "table")
    for mode in ("create", "append"):
        lance.write_dataset(pa.table({"a": [1]}), uri, mode=mode, enable_v2_manifest_paths=names == "present")
    (manifest,) = (
        path for path in (tmp_path / "table/_versions").iterdir() if parse_table_version(f"_versions/{path.name}") == 2
    )
    whole = manifest.read_bytes()
    manifest.unlink()
    if form == "a folder":
        manifest.mkdir()
    else:
        manifest.write_bytes({"empty": b"", "truncated": whole[: len(whole) // 2], "other bytes": b"x" * 500}[form])
    for opened in (LanceTable.newest, lambda table: table.at(2)):
        with pytest.raises(ObjectCorrupt, match=r"put .* back from a copy") as found:
            opened(LanceTable(uri))
        assert found.value.where["object"] == f"_versions/{manifest.name}"
        assert manifest.name in str(found.value)


def test_a_folder_that_is_not_there_is_no_damage(tmp_path: Path) -> None:
    for name in ("nothing", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(TableMissing):
            LanceTable(str(tmp_path / name)).newest()
