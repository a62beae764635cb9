"""How Lance writes rows for us: large ones as two files at the same time; services with as many threads as cores."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

from lancewal_core.errors import StoreUnavailable
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.settings.load import Settings
from lancewal_core.table.lance import row_files
from lancewal_core.table.lance.row_files import BYTES_IN_HALVES, CORES_RESERVED
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import Committed, TableCommit, fragment_bytes, fragment_rows
from lancewal_flusher.open import open_context as open_flusher
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_ingest.context import open_context as open_ingest
from tests.support.flusher_tables import FlusherTable

COUNT = """
import os, sys
from pathlib import Path
import lance, pyarrow as pa
from lancewal_core.table.lance.row_files import use_all_cores
if sys.argv[2] == "ours":
    use_all_cores()
rows = pa.array(range(100_000))
table = pa.table({str(column): rows for column in range(32)})  # encoded side by side
for _ in range(20):  # a thread comes when a column waits for one, and on a busy machine each may find one that is free
    lance.write_dataset(table, sys.argv[1], mode="overwrite")
names = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
print(names.count("lance-cpu"))
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LanceTable:
    """Small files: rows take 16 bytes."""
    monkeypatch.setattr(row_files, "ROWS_PER_FILE", 400)
    monkeypatch.setattr(row_files, "BYTES_IN_HALVES", range(1_600, 4_000))
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.schema([("k", pa.int64()), ("v", pa.int64())]).empty_table(), uri)
    return LanceTable(uri)


def rows(count: int) -> pa.Table:
    keys = np.arange(count)
    return pa.table({"k": keys, "v": keys * 3})


@pytest.mark.parametrize(
    ("count", "files"),
    [
        (1, [1]),
        (99, [99]),
        (100, [50, 50]),
        (199, [100, 99]),
        (200, [100, 100]),
        (201, [201]),
        (400, [400]),
        (401, [400, 1]),
        (1_001, [400, 400, 201]),
    ],
)
def test_files_and_the_order_of_rows(table: LanceTable, count: int, files: list[int]) -> None:
    """In halves are those alone that compaction would bundle as one file too."""
    fragments = table.write_rows(rows(count))
    assert [fragment_rows(f) for f in fragments] == files
    assert pa.Table.from_batches(table.read_unadopted(fragments, ["k", "v"])) == rows(count)


def test_a_version_that_is_gone_is_still_written_through(table: LanceTable) -> None:
    """One that is kept open for writing outlives clean-ups, and the file fits the newest version."""
    names = {"k": (0,), "v": (1,)}
    table.write_rows(rows(1), names)
    lance.write_dataset(rows(3), table.uri, mode="append")
    lance.dataset(table.uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert [version["version"] for version in lance.dataset(table.uri).versions()] == [2]
    (written,) = table.write_rows(rows(50).slice(40), names)
    commit = TableCommit(TableVersion(2), (written,), (), (), {}, strict=False)
    assert isinstance(table.commit(commit), Committed)
    assert lance.dataset(table.uri).to_table() == pa.concat_tables([rows(3), rows(50).slice(40)])


def declare_nullable(table: LanceTable, nullable: bool) -> None:
    dataset: Any = lance.dataset(table.uri)
    dataset.alter_columns({"path": "v", "nullable": nullable})


def test_a_version_of_other_columns_that_is_kept_open_is_no_reason_to_refuse(table: LanceTable) -> None:
    """It is of a time at which a user had declared a column not nullable, and all rows that came had a value."""
    declare_nullable(table, False)
    names = {"k": (0,), "v": (1,)}
    table.write_rows(rows(1), names)
    nulls = rows(3).set_column(1, "v", pa.nulls(3, rows(3)["v"].type))
    (written,) = table.write_rows(nulls, names)
    declare_nullable(table, True)
    commit = TableCommit(table.newest().version, (written,), (), (), {}, strict=False)
    assert isinstance(table.commit(commit), Committed)
    assert lance.dataset(table.uri).to_table().to_pylist() == nulls.to_pylist()


@pytest.mark.parametrize("file_format", ["2.0", "2.1", "2.2"])
def test_rows_have_the_ids_and_names_of_the_caller_and_the_encoding_of_the_table(
    tmp_path: Path, file_format: Any
) -> None:
    """The table has renamed a column since, dropped one, and swapped two; users have chosen how one is compressed."""
    uri = str(tmp_path / "t")
    zstd = {"lance-encoding:compression": "zstd", "lance-encoding:structural-encoding": "miniblock"}
    fields = [("k", pa.int64()), ("a", pa.list_(pa.string())), ("b", pa.int64()), ("c", pa.int64())]
    schema = pa.schema([pa.field("s", pa.string(), metadata=zstd), *fields])
    lance.write_dataset(schema.empty_table(), uri, data_storage_version=file_format)
    ids = {name: tuple(own) for name, own in LanceTable(uri).newest().field_ids.items()}
    dataset: Any = lance.dataset(uri)
    dataset.drop_columns(["b"])
    dataset.alter_columns({"path": "a", "name": "b"}, {"path": "c", "name": "x"})
    dataset.alter_columns({"path": "k", "name": "c"}, {"path": "x", "name": "k"})
    text = [f"{i} is a text that is long enough to be compressed" for i in range(3_000)]
    given = pa.table({"c": range(3_000), "k": [7] * 3_000, "a": [["x", None]] * 3_000, "b": [1] * 3_000, "s": text},
                     schema=pa.schema([schema.field(n).remove_metadata() for n in "ckabs"]))  # fmt: skip
    table = LanceTable(uri)
    (written,) = table.write_rows(given, ids)
    assert pa.Table.from_batches(table.read_unadopted([written], list("ckabs"))).equals(given)
    commit = TableCommit(table.newest().version, (written,), (), (), {}, strict=False)
    assert isinstance(table.commit(commit), Committed)
    found = lance.dataset(uri).to_table()
    expected = given.select(["s", "k", "a", "c"]).rename_columns(["s", "c", "b", "k"])
    assert found.equals(expected.select(found.column_names))
    (plain,) = table.write_rows(given.select(["c", "k", "a", "b"]), ids)
    of_text = fragment_bytes(written) - fragment_bytes(plain)
    assert of_text < sum(map(len, text)) / (1 if file_format == "2.0" else 3)


def test_what_is_large_by_bytes_is_one_file(table: LanceTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "BYTES_IN_HALVES", range(1_600, 3_200))
    assert [len(table.write_rows(rows(count))) for count in (199, 200)] == [2, 1]


def test_half_a_file_is_never_more_than_compaction_bundles() -> None:
    """By the sizes that hold."""
    limits = CompactionLimits()
    assert limits.target_rows == row_files.ROWS_PER_FILE
    assert BYTES_IN_HALVES.stop * 2 <= limits.target_bytes


@pytest.mark.parametrize("count", [100, 401])
def test_two_are_written_at_the_same_time(table: LanceTable, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    both = threading.Barrier(2, timeout=60)

    def meet(*args: Any, **options: Any) -> Any:
        both.wait()
        return write_fragments(*args, **options)

    monkeypatch.setattr(row_files, "write_fragments", meet)
    assert len(table.write_rows(rows(count))) == 2


@pytest.mark.parametrize("first", [True, False])
def test_a_half_that_fails(table: LanceTable, monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    def fail(half: pa.Table, *args: Any, **options: Any) -> Any:
        if (half["k"][0].as_py() == 0) == first:
            raise OSError("LanceError(IO): no space left on device")
        return write_fragments(half, *args, **options)

    monkeypatch.setattr(row_files, "write_fragments", fail)
    with pytest.raises(StoreUnavailable, match="no space left"):
        table.write_rows(rows(100))


def lance_threads(uri: Path, whose: str, **environment: str) -> int:
    """Of a new process."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LANCE_")}
    ran = subprocess.run(
        [sys.executable, "-c", COUNT, str(uri), whose],
        env={**inherited, **environment}, capture_output=True, text=True, check=True, timeout=240,
    )  # fmt: skip
    return int(ran.stdout)


def test_lance_has_a_thread_for_each_core(tmp_path: Path) -> None:
    """With its own settings it leaves two cores without; what the environment says, stays."""
    all_cores = lance_threads(tmp_path / "all", "theirs", LANCE_IO_CORE_RESERVATION="0")
    theirs = lance_threads(tmp_path / "theirs", "theirs")
    assert lance_threads(tmp_path / "ours", "ours") == all_cores
    assert lance_threads(tmp_path / "told", "ours", LANCE_IO_CORE_RESERVATION="2") == theirs


def test_services_have_a_thread_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = FlusherTable(tmp_path)
    settings = Settings.model_validate({"table": {"uri": made.uri}})
    monkeypatch.delenv(CORES_RESERVED, raising=False)
    with ExitStack() as stack:
        stack.enter_context(open_flusher(settings))
        assert os.environ.pop(CORES_RESERVED) == "0"
        tasks = ThreadTasks()
        stack.callback(tasks.close)
        open_ingest(settings, tasks, SystemClock())
        assert os.environ[CORES_RESERVED] == "0"
    made.close()
