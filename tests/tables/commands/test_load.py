"""``lancewal table load``: what it says, its exit codes, and files in a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from lancewal_core.cli import program as cli
from lancewal_core.cli.options import NOTHING_CHANGED
from lancewal_core.store.obstore import open_files
from lancewal_tables.commands.table import app as table_app
from lancewal_tables.load.files import find_files
from tests.flusher.service.test_service import tree
from tests.support.flusher_tables import COLUMNS, FlusherTable, delete, upserts
from tests.support.repairs import content
from tests.support.steps import steps_told

if TYPE_CHECKING:
    from lancewal_demo.stack import S3Server


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(3)))
    made.round()
    yield made
    made.close()


@pytest.fixture
def run(table: FlusherTable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command as the program does: exit code, standard output, standard error."""
    monkeypatch.setattr(cli.app, "registered_groups", [*cli.app.registered_groups])
    cli.app.add_typer(table_app, name="table")
    file = Path(table.uri).parent / "settings.yaml"
    file.write_text(yaml.safe_dump(tree(table)))

    def command(*options: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.run(["table", "load", "-t", table.uri, *options, "--config", str(file)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def write(folder: Path, ids: list[int]) -> str:
    rows = [{"region": "r0", "id": id, "a": -1, "s": "loaded", "tags": None} for id in ids]
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), folder / "rows.parquet")
    return str(folder / "rows.parquet")


def test_begin_load_and_again(table: FlusherTable, run: Any, tmp_path: Path) -> None:
    before = content(table.uri)
    code, out, _ = run("--begin", "--name", "export", "--dry-run")
    assert (code, out.splitlines()[-1], content(table.uri)) == (0, NOTHING_CHANGED, before)
    code, out, _ = run("--begin", "--name", "export")
    assert code == 0
    assert out.startswith("load export began at ")
    table.generation(0, [delete(1), delete(7)])
    table.round()
    file = write(tmp_path, [0, 1, 5, 6, 7])
    before = content(table.uri)
    looked = json.loads(run(file, "--name", "export", "--dry-run", "-o", "json")[1])
    counts = {"rows": 5, "inserted": 2, "present": 1, "deleted": 2, "commits": 1, "finished": True, "dry_run": True}
    assert {name: looked[name] for name in counts} == counts
    code, out, _ = run(file, "--dry-run")  # by another name it begins now, behind the deletes
    assert (code, out.splitlines()[1:]) == (0, ["left out: 1 whose key had a row", NOTHING_CHANGED])
    assert "4 of 5 rows of 1 file would be inserted, in 1 commit" in out
    assert content(table.uri) == before
    with steps_told() as steps:
        code, out, _ = run(file, "--name", "export")
    counted = {(step.what, step.done, step.total, step.unit) for step in steps.told}
    assert counted >= {("looking for keys that come twice", 5, 5, "rows"), ("loading", 5, 5, "rows")}
    assert (code, out.splitlines()) == (
        0,
        [
            "load export: 2 of 5 rows of 1 file inserted, in 1 commit",
            "left out: 1 whose key had a row",
            "left out: 2 whose key Kafka has deleted since the load began",
        ],
    )
    code, out, _ = run(file, "--name", "export", "--output", "json")
    again = json.loads(out)
    assert (code, again["inserted"], again["present"], again["deleted"], again["commits"]) == (0, 0, 3, 2, 0)
    assert sorted(row["id"] for row in table.rows()) == [0, 2, 5, 6]
    # without a name: it begins now, and the same files go on under the same name
    names = [json.loads(run(file, "--output", "json")[1])["name"] for _ in range(2)]
    assert names[0] == names[1]
    assert sorted(row["id"] for row in table.rows()) == [0, 1, 2, 5, 6, 7]


def test_what_is_refused(run: Any, tmp_path: Path) -> None:
    for options, message in [
        ((), "name at least one file"),
        (("--begin",), "--begin needs a --name, and accepts no files"),
        ((str(tmp_path / "no.parquet"),), "there is no file"),
        ((write(tmp_path, [5, 5]),), "(region='r0', id=5) 2 times"),
    ]:
        code, _, err = run(*options)
        assert code == 2
        assert message in err


def test_files_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    """Read as they were written, by ranges; a folder may have a name as Spark gives it to a partition."""
    bucket = f"s3://{s3.bucket('loads')}/at=10%3A00"
    file = Path(write(tmp_path, list(range(1_000))))
    options = {name.lower(): value for name, value in s3.environment.items()}
    store = open_files(f"{bucket}/export", options)
    store.put_if_absent("a/rows.parquet", file.read_bytes())
    store.put_if_absent("_SUCCESS", b"")
    for address in (f"{bucket}/export", f"{bucket}/export/a/rows.parquet"):
        (found,) = find_files([address], options)
        rows = _rows_schema()
        found.check(rows)
        assert found.rows() == 1_000
        read = pa.Table.from_batches(found.batches(rows.table.names, rows, backwards=True))
        assert read.equals(pq.read_table(file).cast(rows.table))


def _rows_schema() -> Any:
    from lancewal_core.rows.schema import RowSchema

    return RowSchema(COLUMNS, ("region", "id"), ("region",))
