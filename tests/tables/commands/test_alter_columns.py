"""What ``lancewal table alter`` says about columns beside the contract: names that mean another field, and nothing to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

from lancewal_core.cli.options import NOTHING_CHANGED
from lancewal_tables.commands.table import app
from tests.core.table.columns.test_steps import NESTED
from tests.support.flusher_tables import FlusherTable

SENSE = "warning: ingest takes this up within 10 s. Let producers use these names in their new sense only then"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path, more=[NESTED, pa.field("b", pa.int64())], file_format="2.2")
    yield made
    made.close()


def alter(table: FlusherTable, *options: str) -> Any:
    config = Path(table.uri).parent / "lancewal.yaml"
    config.write_text(yaml.safe_dump({"table": {"uri": table.uri}}))
    done = CliRunner().invoke(app, ["alter", *options, "-c", str(config)])
    assert done.exit_code == 0, done.output
    return done


def renames(table: FlusherTable, *names: tuple[str, str]) -> None:
    table.dataset.alter_columns(*({"path": path, "name": name} for path, name in names))


def moved(done: Any) -> list[str]:
    *found, last = done.stderr.splitlines()
    assert last == SENSE
    return sorted(line.removeprefix("warning: ") for line in found)


@pytest.mark.parametrize("form", [(), ("-o", "json")])
def test_a_swap(table: FlusherTable, form: tuple[str, ...]) -> None:
    renames(table, ("a", "b"), ("b", "a"), ("address.street", "zip"), ("address.zip", "street"))
    said = [
        "the name 'a' in a record now means the field that was called 'b'; before, the field that is now called 'b'",
        "the name 'b' in a record now means the field that was called 'a'; before, the field that is now called 'a'",
        "the name 'street' in a record now means the field that was called 'zip'; before, the field that is now called 'zip'",
        "the name 'zip' in a record now means the field that was called 'street'; before, the field that is now called "
        "'street'",
    ]
    looked = alter(table, "--adopt-column", "*", "--dry-run", *form)
    assert moved(looked) == said
    done = alter(table, "--adopt-column", "*", *form)
    assert moved(done) == said
    if form:
        names = ["region", "id", "b", "s", "tags", "address", "a"]
        assert [c["name"] for c in json.loads(done.stdout)["columns"]] == names
        assert json.loads(looked.stdout)["after"]["columns"] == json.loads(done.stdout)["columns"]
    else:
        assert "address           struct<zip: string, street: int32>" in done.stdout


def test_names_that_others_have_given_up(table: FlusherTable) -> None:
    alter(table, "--drop-column", "s", "--rename-column", "tags=labels")
    table.dataset.add_columns(pa.schema([("tags", pa.int8()), ("new", pa.int8())]))
    table.dataset.drop_columns(["b"])
    renames(table, ("a", "b"), ("labels", "s"))
    assert moved(alter(table, "--adopt-column", "*")) == [
        "the name 'b' in a record now means the field that was called 'a'; before, a field that was dropped",
        "the name 's' in a record now means the field that was called 'labels'; before, this name was passed over",
        "the name 'tags' in a record now means a field that was added; before, the field that is now called 's'",
    ]


def test_names_that_nobody_could_mistake(table: FlusherTable) -> None:
    renames(table, ("a", "z"))
    table.dataset.drop_columns(["b"])
    done = alter(table, "--adopt-column", "*", "--rename-column", "s=text", "--add-column", "note: string")
    assert done.stderr == ""
    assert "z" in done.stdout


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_nothing_to_adopt(table: FlusherTable, dry: tuple[str, ...]) -> None:
    done = alter(table, "--adopt-column", "*", *dry)
    assert done.stderr == (
        "nothing to adopt: the table has the columns of the contract, and no others. Nothing was changed\n"
    )
    if dry:
        assert done.stdout.strip() == NOTHING_CHANGED
    else:
        assert "version 1" in done.stdout
    alter(table, "--add-column", "note: string")
    again = alter(table, "--add-column", "note: string", *dry)
    assert again.stderr == "nothing to do: version 2 of the contract has all of this. Nothing was changed\n"
