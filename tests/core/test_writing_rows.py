"""How Lance writes rows for us: large ones as two files at the same time; services with as many threads as cores."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

from lancewal_core import table_lance
from lancewal_core.clock import SystemClock
from lancewal_core.errors import StoreUnavailable
from lancewal_core.settings import Settings
from lancewal_core.store_obstore import open_store
from lancewal_core.table import fragment_rows
from lancewal_core.table_lance import BYTES_IN_HALVES, LanceTable
from lancewal_core.tasks import ThreadTasks
from lancewal_flusher.service import open_context as open_flusher
from lancewal_ingest.context import open_context as open_ingest
from tests.support.flusher_tables import FlusherTable

RESERVED = "LANCE_IO_CORE_RESERVATION"
COUNT = """
import os, sys
from pathlib import Path
import lance, pyarrow as pa
from lancewal_core.lance_threads import use_all_cores
if sys.argv[2] == "ours":
    use_all_cores()
rows = pa.array(range(100_000))
lance.write_dataset(pa.table({str(column): rows for column in range(32)}), sys.argv[1])  # encoded side by side
names = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
print(names.count("lance-cpu"))
"""


@pytest.fixture
def table(tmp_path: Path) -> LanceTable:
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.schema([("k", pa.int64()), ("v", pa.int64())]).empty_table(), uri)
    return LanceTable(uri)


def rows(nbytes: int) -> pa.Table:
    keys = np.arange(nbytes // 16)
    return pa.table({"k": keys, "v": keys * 3})


@pytest.mark.parametrize(("nbytes", "files"), [(BYTES_IN_HALVES - 16, 1), (BYTES_IN_HALVES + 16, 2)])
def test_large_rows_become_two_files_in_their_order(table: LanceTable, nbytes: int, files: int) -> None:
    written = rows(nbytes)
    fragments = table.write_rows(written)
    assert len(fragments) == files
    assert max(map(fragment_rows, fragments)) == -(-written.num_rows // files)
    assert pa.Table.from_batches(table.read_unadopted(fragments, ["k", "v"])) == written


def test_the_halves_are_written_at_the_same_time(table: LanceTable, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=60)

    def meet(*args: Any, **options: Any) -> Any:
        both.wait()
        return write_fragments(*args, **options)

    monkeypatch.setattr(table_lance, "write_fragments", meet)
    assert len(table.write_rows(rows(BYTES_IN_HALVES))) == 2


@pytest.mark.parametrize("first", [True, False])
def test_a_half_that_fails(table: LanceTable, monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    def fail(half: pa.Table, *args: Any, **options: Any) -> Any:
        if (half["k"][0].as_py() == 0) == first:
            raise OSError("LanceError(IO): no space left on device")
        return write_fragments(half, *args, **options)

    monkeypatch.setattr(table_lance, "write_fragments", fail)
    with pytest.raises(StoreUnavailable, match="no space left"):
        table.write_rows(rows(BYTES_IN_HALVES))


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
    ours = lance_threads(tmp_path / "ours", "ours")
    theirs = lance_threads(tmp_path / "theirs", "theirs")
    assert ours - theirs in ((0,) if os.cpu_count() == 1 else (1, 2))
    assert lance_threads(tmp_path / "told", "ours", LANCE_IO_CORE_RESERVATION="2") == theirs


def test_services_have_a_thread_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = FlusherTable(tmp_path)
    settings = Settings.model_validate({"table": {"uri": made.uri}})
    monkeypatch.delenv(RESERVED, raising=False)
    with ExitStack() as stack:
        open_flusher(settings, stack)
        assert os.environ.pop(RESERVED) == "0"
        tasks = ThreadTasks()
        stack.callback(tasks.close)
        open_ingest(settings, open_store(made.uri), tasks, SystemClock())
        assert os.environ[RESERVED] == "0"
    made.close()
