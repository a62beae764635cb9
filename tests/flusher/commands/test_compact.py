"""``lancewal compact``: to the end, only looking, with the sentinel, beside merges that always win, and in bounded memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
import yaml

from lancewal_core.cli import program as cli
from lancewal_core.cli.groups import with_options
from lancewal_core.errors import PlanRetriesExhausted
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import RewriteBounds
from lancewal_flusher.commands import compact as compact_commands
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import Merged, merge_next
from lancewal_flusher.upkeep import compact_all as compact_to_the_end
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from tests.flusher.service.test_service import tree
from tests.support.flusher_tables import OPEN_ROWS, FlusherTable, delete, upserts
from tests.support.steps import steps_told


@pytest.fixture
def keyed_by_bytes() -> bool:
    return False


@pytest.fixture
def table(tmp_path: Path, keyed_by_bytes: bool) -> Iterator[FlusherTable]:
    """Four fragments of ten rows, five of them hidden in one."""
    made = FlusherTable(tmp_path, keyed_by_bytes=keyed_by_bytes)
    for number in range(4):
        made.generation(0, upserts(range(10 * number, 10 * number + 10)))
        made.round()
    made.generation(0, [delete(id) for id in range(10, 15)])
    made.round()
    made.dataset.create_scalar_index("id", "BTREE")
    yield made
    made.close()


@pytest.fixture
def compact(table: FlusherTable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command as the program does; exit code and standard output."""
    app = cli.app
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    app.command("compact")(with_options(compact_commands.command))
    file = write_settings(table)

    def run(*options: str) -> tuple[int, str]:
        capsys.readouterr()
        code = cli.run(["compact", *options, "--config", str(file)])
        return code, capsys.readouterr().out

    return run


def write_settings(table: FlusherTable, **flusher: Any) -> Path:
    file = Path(table.uri).parent / "settings.yaml"
    file.write_text(yaml.safe_dump(tree(table, flusher=flusher)))
    return file


def fragments(table: FlusherTable) -> int:
    return len(table.dataset.get_fragments())


def test_to_the_end(table: FlusherTable, compact: Any) -> None:
    version = table.dataset.version
    code, out = compact("--dry-run", "--output", "json")
    looked = json.loads(out)
    assert (code, table.dataset.version) == (0, version)
    with steps_told() as steps:
        code, out = compact("--output", "json")
    done = json.loads(out)
    assert code == 0
    rewriting = steps.one("rewriting fragments")
    assert 0 < rewriting.done == rewriting.total
    assert {"compacting, round 1", "extending indexes"} <= {step.what for step in steps.told}
    assert {k: looked[k] for k in ("rounds", "fragments_before", "fragments_after", "rows_dropped", "bytes_read")} == {
        "rounds": done["rounds"], "fragments_before": done["fragments_before"],
        "fragments_after": done["fragments_after"], "rows_dropped": done["rows_dropped"], "bytes_read": done["bytes_read"],
    }  # fmt: skip
    assert (done["rounds"], done["fragments_before"], done["fragments_after"], done["rows_dropped"]) == (1, 4, 2, 5)
    assert done["indexes_extended"] == ["id_idx"]
    table.check()
    assert compact() == (0, "compacted in 0 rounds: 2 fragments to 2, 0 hidden rows dropped, 0 bytes read, 0 written\n")
    code, out = compact("--all")
    assert (code, out.splitlines()[1:]) == (0, ["index id_idx extended"])
    assert fragments(table) == 1
    table.check()


def merge_without_index(table: FlusherTable, ids: range) -> None:
    """One more fragment, of a flusher that dies before it has indexed it."""
    table.generation(0, upserts(ids))
    assert isinstance(merge_next(table.context(), OPEN_ROWS), Merged)
    finish_newest(table.context())


@pytest.mark.parametrize(
    ("keyed_by_bytes", "options", "left"), [(False, [], 5), (False, ["--all"], 4), (True, [], 7), (True, ["--all"], 7)]
)
def test_a_run_does_what_looking_has_said(table: FlusherTable, compact: Any, left: int, options: list[str]) -> None:
    """Several rounds, small and worn fragments.  Of a table keyed by bytes what is not indexed yet is left alone."""
    for number in range(4, 9):
        merge_without_index(table, range(10 * number, 10 * number + 10))
    write_settings(table, compaction_target_rows=25)
    _, out = compact("--dry-run", "--output", "json", *options)
    _, text = compact("--dry-run", *options)
    looked, version = json.loads(out), table.dataset.version
    code, out = compact("--output", "json", *options)
    done = json.loads(out)
    assert code == 0
    assert table.dataset.version > version
    for about in ("bytes_read", "bytes_written", "indexes_extended"):
        looked.pop(about), done.pop(about)
    assert looked == done
    assert (
        f"{done['rounds']} round{'s' * (done['rounds'] != 1)}: 9 fragments to {done['fragments_after']}, 5 hidden rows dropped"
        in text
    )
    assert done["fragments_after"] == fragments(table) == left
    table.check()


def test_looking_while_a_merge_is_not_finished(table: FlusherTable, compact: Any) -> None:
    """A run would be refused until a flusher has finished it."""
    table.generation(0, upserts(range(100, 110)))
    assert isinstance(merge_next(table.context(), OPEN_ROWS), Merged)
    why = f"the merge of table version {table.dataset.version} is not finished yet"
    assert compact("--dry-run") == (0, f"nothing can be compacted now: {why}\n")
    code, shown = compact("--dry-run", "--output", "json")
    assert (code, json.loads(shown)) == (0, {"refused": why})
    table.round()
    assert "would compact in 1 round: 5 fragments to 2" in compact("--dry-run")[1]


def test_looking_while_a_file_is_gone(table: FlusherTable, compact: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of those whose sizes the store is asked for, as after a compaction of others that copied pages."""
    fragments_of = LancePinnedTable.fragments
    monkeypatch.setattr(LancePinnedTable, "fragments", lambda self: [replace(f, nbytes=0) for f in fragments_of(self)])
    assert "would compact in 1 round:" in compact("--dry-run")[1]
    (gone,) = table.context().table.newest().fragments()[1].files
    (Path(table.uri) / "data" / gone).unlink()
    code, out = compact("--dry-run", "--output", "json")
    assert code == 0
    assert f"data file {gone!r} " in json.loads(out)["refused"]
    assert compact("--dry-run")[1].startswith("nothing can be compacted now: files of table version")


def test_only_looking_needs_no_spark(compact: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert compact("--dry-run", "--runner", "spark")[0] == 0
    assert compact("--runner", "spark")[0] == 2
    assert compact("--runner", "threads")[0] == 0


def test_merges_that_always_win(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds get smaller, and then the error says how to keep merges away; nothing is lost."""
    monkeypatch.setattr(compact_to_the_end, "PAUSE_S", 0.0)
    monkeypatch.setattr(compact_to_the_end, "REFUSALS_MAX", 6)
    bounds: list[int] = []
    rewrite = LanceTable.rewrite

    def beaten(self: LanceTable, version: int, ids: Sequence[int], given: RewriteBounds) -> tuple[str, ...]:
        written = rewrite(self, version, ids, given)
        table.generation(0, upserts([20 + len(bounds)], a=1))
        table.round()
        bounds.append(len(ids))
        return written

    monkeypatch.setattr(LanceTable, "rewrite", beaten)
    with pytest.raises(PlanRetriesExhausted, match="lancewal pause flusher --for 10m"):
        compact_to_the_end.compact_to_the_end(table.context(), CompactionLimits(), with_sentinel=False)
    assert len(bounds) <= 6
    monkeypatch.undo()
    compact_to_the_end.compact_to_the_end(table.context(), CompactionLimits(), with_sentinel=True)
    table.check()


PROGRAM = """
import sys
from lancewal_core.cli import program as cli
from lancewal_core.cli.groups import with_options
from lancewal_flusher.commands.compact import command
cli.app.command("compact")(with_options(command))
sys.exit(cli.run(sys.argv[1:]))
"""
"""``lancewal`` as installed, with this checkout's command."""


def test_killed_between_the_writing_and_the_commit(table: FlusherTable) -> None:
    dies_before_its_commit(table, {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, "threads")


def dies_before_its_commit(table: FlusherTable, environment: dict[str, str], runner: str) -> None:
    """What a killed `lancewal compact` has written is named by no version: rows stay, and the next one goes on."""
    file = Path(table.uri).parent / "settings.yaml"
    file.write_text(yaml.safe_dump({"table": {"uri": table.uri}}))
    command = [sys.executable, "-c", PROGRAM, "compact", "--runner", runner, "--output", "json", "--config", str(file)]
    version, before = table.dataset.version, data_files(table)
    killed = {**environment, "LANCEWAL_TESTING": "1", "LANCEWAL_FAILPOINT": "commit.send:before=kill"}
    ended = subprocess.run(command, env=killed, capture_output=True, text=True, check=False, timeout=200)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert table.dataset.version == version
    assert len(data_files(table) - before) == 1
    table.check()
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["rounds"] == 1
    assert len(data_files(table) - before) == 2
    table.check()
    table.clean_up(delete_unverified=True)
    assert len(data_files(table)) == fragments(table)
    table.check()


def data_files(table: FlusherTable) -> set[str]:
    return {file.name for file in (Path(table.uri) / "data").iterdir()}


MEASURE = """
import sys
from lancewal_core.table.protocol import RewriteBounds
from lancewal_core.table.lance.table import LanceTable
from lancewal_flusher.upkeep.compaction import BATCH_BYTES, BUFFER_BYTES
from lancewal_demo.stack.resident_memory import resident_bytes

table = LanceTable(sys.argv[1])
pinned = table.newest()
before = resident_bytes("VmRSS")
bounds = RewriteBounds(BATCH_BYTES, BUFFER_BYTES, 1 << 20, 256 << 20, copy=True)
table.rewrite(pinned.version, [f.fragment_id for f in pinned.fragments()], bounds)
print((resident_bytes("VmHWM") - before) >> 20)
"""


def test_wide_rows_take_bounded_memory(tmp_path: Path) -> None:
    """300 MB of rows of 1,536 floats, some of them hidden so that all are encoded; 150 to 280 MB, or 370 without bounds."""
    uri = str(tmp_path / "wide")
    for number in range(12):
        vectors = np.random.default_rng(number).random(4_000 * 1_536, dtype=np.float32)
        columns = [pa.array(range(4_000)), pa.FixedSizeListArray.from_arrays(pa.array(vectors), 1_536)]
        lance.write_dataset(pa.table(columns, ["id", "vector"]), uri, mode="append" if number else "create")
    lance.dataset(uri).delete("id % 50 = 0")
    done = subprocess.run([sys.executable, "-c", MEASURE, uri], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 320


def test_wide_texts_that_pack_well_take_bounded_memory(tmp_path: Path) -> None:
    """2 GB of texts in files of some KB, some of them hidden; a batch of 32,768 such rows alone would be 1 GB."""
    uri = str(tmp_path / "texts")
    texts = pa.array([chr(97 + n % 26) * 30_000 for n in range(40)])
    for number in range(4):
        few = texts.take(pa.array(np.random.default_rng(number).integers(0, 40, 17_000)).cast(pa.int64()))
        columns = [pa.array(range(17_000)), few]
        lance.write_dataset(pa.table(columns, ["id", "text"]), uri, mode="append" if number else "create")
    lance.dataset(uri).delete("id % 50 = 0")
    environment = {**os.environ, "LANCE_IO_CORE_RESERVATION": "0"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, uri], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 320
