"""Attacks on the key index, its upkeep, and the follow-up: each of these has broken a promise once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import google_crc32c
import lance
import numpy as np
import pyarrow as pa
import pytest
import yaml

from lancewal_core.errors import ContractMismatch, LancewalError
from lancewal_core.keys.catalog import KeyCatalogs, KeyPart, catalog_family
from lancewal_core.keys.code import CodedKeys, code_keys
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.parts import MappedParts
from lancewal_core.keys.run import Entries, encode_part
from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock
from lancewal_core.rows.equal_cells import row_texts
from lancewal_core.store.object_store import put_once
from lancewal_core.store.obstore import open_store
from lancewal_core.store.versioned import newest_version
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.open import KEY_PARTS_BYTES_MAX
from lancewal_flusher.service import round as flusher_round
from lancewal_flusher.upkeep import key_runs as key_upkeep
from lancewal_flusher.upkeep.key_runs import UpkeepReport, UpkeepState, keep_up
from tests.support.flusher_tables import COLUMNS, FlusherTable, ScriptedTable, patch, upsert, upserts

ROOT = Path(__file__).parents[3]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


def rename(table: FlusherTable, *pairs: tuple[str, str]) -> None:
    for old, new in pairs:
        table.dataset.alter_columns({"path": old, "name": new})


SWAP = (("id", "x"), ("a", "id"), ("x", "a"))


def test_columns_renamed_during_upkeep_and_back_double_no_key(table: FlusherTable) -> None:
    """Another column's values would be indexed under the file's name, and stay when the user has put the names back."""
    table.user_append(0, range(5), in_model=True)  # any file that no run covers yet
    rename(table, *SWAP)  # after the plan's check, before the upkeep behind that merge
    with pytest.raises(ContractMismatch):
        keep_up(table.context(), UpkeepState())
    rename(table, *SWAP)  # the flusher has stopped with ContractMismatch; the operator undoes it
    table.generation(0, upserts(range(5), a=7))
    table.round()
    table.check()


@pytest.mark.parametrize("value", [0, 100])
def test_columns_renamed_right_after_a_merge_do_no_harm(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch, value: int
) -> None:
    """The same by rounds alone: the user comes while the generations of a merge are marked, its file is not covered yet.

    With other values keys are there twice; where the other column has a key's value, rows of other keys are lost.
    """
    real = flusher_round.mark

    def mark(*arguments: Any) -> None:
        real(*arguments)
        if table.rows():
            monkeypatch.setattr(flusher_round, "mark", real)
            rename(table, *SWAP)

    table.generation(0, upserts(range(5), a=value))
    monkeypatch.setattr(flusher_round, "mark", mark)
    with pytest.raises(ContractMismatch):
        table.round()
    rename(table, *SWAP)
    table.round()
    table.check()
    table.generation(0, [upsert(0, a=7)])
    table.round()
    table.check()


def test_a_column_renamed_before_upkeep_is_a_lancewal_error(table: FlusherTable) -> None:
    table.user_append(0, range(5), in_model=True)
    table.dataset.alter_columns({"path": "id", "name": "x"})
    with pytest.raises(LancewalError):
        keep_up(table.context(), UpkeepState())


def test_a_clean_up_during_upkeep_does_not_end_the_service(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call looks at a newer version."""
    for start in range(0, 20, 5):
        table.user_append(0, range(start, start + 5), in_model=True)
    real = LancePinnedTable.all_rows

    def all_rows(self: LancePinnedTable, fragment_id: int, columns: Any) -> Any:
        table.dataset.optimize.compact_files()
        table.dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
        return real(self, fragment_id, columns)

    monkeypatch.setattr(LancePinnedTable, "all_rows", all_rows)
    assert keep_up(table.context(), UpkeepState()) == UpkeepReport()


def test_beside_a_newer_catalog_no_garbage_is_written_without_end(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its catalog is not ours to change, and what no catalog names is nobody's."""
    monkeypatch.setattr(key_upkeep, "RUN_ROWS", 5)
    for start in range(0, 30, 5):
        table.user_append(0, range(start, start + 5), in_model=True)
    context, state = table.context(), UpkeepState()
    keep_up(context, state)
    newest = newest_version(table.store, catalog_family(None))
    assert newest is not None
    body = json.loads(newest.data) | {"format": 2}
    put_once(table.store, paths.key_catalog_version(newest.version + 1, None), json.dumps(body).encode())
    context, state = table.context(), UpkeepState()
    counts = []
    for _ in range(6):
        keep_up(context, state, rows_max=10)
        counts.append(len(list(table.store.list(paths.KEY_PARTS))))
    assert counts[-1] == counts[0], counts


def test_keys_of_a_large_file_can_be_coded() -> None:
    """Together they may be larger than what 32-bit borders can hold: they are made wide before they are joined."""
    coded = code_keys(pa.table({"k": pa.chunked_array([["a", "b"], ["c"]])}))
    assert coded.texts is not None
    assert coded.texts.type == pa.large_binary()
    assert coded.texts.to_pylist() == [b"a", b"b", b"c"]


def part_in(folder: Path, name: str) -> KeyPart:
    one = np.zeros(1, np.uint32)
    data = encode_part(Entries(CodedKeys(np.zeros(1, np.int64), None), one, one))
    path = folder / paths.key_part(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return KeyPart(object=paths.key_part(name), entries=1, first=0, last=0, size=len(data),
                   crc32c=google_crc32c.value(data))  # fmt: skip


def test_mapped_parts_are_bounded_in_number(tmp_path: Path) -> None:
    """Linux lets a process have 65,530 maps, and a part of a small run (one a merge) is one map."""
    source = MappedParts(open_store(str(tmp_path)), tmp_path, tmp_path, KEY_PARTS_BYTES_MAX)
    for number in range(1500):
        part = part_in(tmp_path, f"p{number}")
        source.open(part)
        (tmp_path / part.object).unlink()  # merged, and collected
    maps = sum(paths.KEY_PARTS in line for line in Path("/proc/self/maps").read_text().splitlines())
    assert maps < 1000


def test_parts_of_a_store_fit_into_the_pod() -> None:
    limit = yaml.safe_load((ROOT / "helm/lancewal/values.yaml").read_text())["tmpSizeLimit"]
    assert int(limit.removesuffix("Gi")) << 30 >= KEY_PARTS_BYTES_MAX


def test_a_full_temporary_folder_costs_time_and_no_more(table: FlusherTable, tmp_path: Path) -> None:
    table.generation(0, upserts(range(5)))
    table.round()
    gone = tmp_path / "full"  # any OSError: no space, no right
    index = KeyIndex(KeyCatalogs(table.store, SystemClock(), None), MappedParts(table.store, None, gone, 1 << 20))
    context = replace(table.context(), keys=index)
    table.generation(0, upserts(range(5), a=1))
    table.round(context=context)
    table.check()


def test_hidden_rows_of_a_shallow_clone(tmp_path: Path) -> None:
    """Its deletion files lie in the source's folder."""
    source = lance.write_dataset(pa.table({"id": range(10)}), str(tmp_path / "source"))
    source.delete("id in (1, 2)")
    lance.dataset(source.uri).shallow_clone(str(tmp_path / "clone"), lance.dataset(source.uri).version)
    pinned = LanceTable(str(tmp_path / "clone"), base_paths="allow").newest()
    assert sorted(pinned.hidden_rows(0).tolist()) == [1, 2]


@pytest.mark.parametrize("type_", [pa.timestamp("s"), pa.date32()])
def test_rows_of_any_date_are_compared_by_value(type_: pa.DataType) -> None:
    """Python's dates end with year 9999."""
    far = pa.array([2**30], pa.int32()) if type_ == pa.date32() else pa.array([2**40], pa.int64())
    assert len(row_texts(pa.table({"t": far.cast(type_)}))) == 1


def test_columns_renamed_before_the_follow_up_hide_no_row(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are looked up by name: rows of which another column has a key's value would be hidden, and ``finished`` written."""
    table.generation(0, upserts(range(5)))
    table.round()
    real, calls = finish_newest, 0

    def finish_late(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:  # behind the merge
            rename(table, *SWAP)
        return real(*arguments)

    monkeypatch.setattr(flusher_round, "finish_newest", finish_late)
    scripted = ScriptedTable(table.uri)
    scripted.before.append(lambda: table.user_append(0, [10, 11, 12], in_model=True))  # their column a is -1
    table.generation(0, [upsert(-1)])
    with pytest.raises(ContractMismatch):
        table.round(context=table.context(scripted))
    rename(table, *SWAP)
    table.round()
    table.check()


@pytest.mark.parametrize("index", ["kept", "lost"])
def test_a_patch_of_a_row_in_a_shallow_clone(table: FlusherTable, index: str) -> None:
    """The whole way: a lancewal table whose older fragments lie in another table's folder, one with a deletion file.

    By a scan, where the index is lost, it works.
    """
    table.generation(0, upserts(range(5)))
    table.round()
    table.user_delete(0, 1)
    table.round()
    clone = table.uri + "-clone"
    table.dataset.shallow_clone(clone, table.dataset.version)
    table.generation(0, [patch(0, a=7)])
    source, table.uri = table.uri, clone
    shutil.copytree(f"{source}/_lancewal", f"{clone}/_lancewal")
    shutil.copytree(f"{source}/data", f"{clone}/data", dirs_exist_ok=True)
    if index == "lost":
        shutil.rmtree(f"{clone}/{paths.key_catalog_prefix(None)}")
    table.store = open_store(clone)
    table.round(context=table.context(LanceTable(clone, base_paths="allow")))
    table.check()


def test_a_far_date_that_a_user_appended_stops_no_flusher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way of the test above: appended while a merge runs, compacted before it is finished."""
    columns = COLUMNS.set(COLUMNS.get_field_index("s"), pa.field("s", pa.timestamp("s")))
    table = FlusherTable(tmp_path, columns=columns)
    table.generation(0, [upsert(1)])
    table.round()
    far = pa.table({"region": ["r0"], "id": [1], "a": [0], "s": pa.array([2**40], pa.timestamp("s")), "tags": [None]})
    real, calls = finish_newest, 0

    def finish_late(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            table.dataset.optimize.compact_files()
        return real(*arguments)

    monkeypatch.setattr(flusher_round, "finish_newest", finish_late)
    scripted = ScriptedTable(table.uri)
    scripted.before.append(lambda: lance.write_dataset(far.cast(columns), table.uri, mode="append"))
    table.generation(0, [upsert(1, a=5)])
    table.round(context=table.context(scripted))
    table.round()
    table.check()
    table.close()
