"""What a command says where there is no table: it leads to the table that was meant, and not to a new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pytest
import yaml

import lancewal
from lancewal_core.cli.program import run
from lancewal_core.errors import TableDropped
from tests.tables.catalog.test_entries import Lake
from tests.tables.define.test_copies import ROWS

NAME = "shop.orders"
Said = Callable[..., str]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake(tmp_path / "x")
    made.attach(made.inside(NAME), NAME)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return made


@pytest.fixture
def said(lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    """The error of a command about a table."""
    config, alone = tmp_path / "lancewal.yaml", tmp_path / "alone.yaml"
    config.write_text(yaml.safe_dump({"catalog": {"root": str(lake.root)}}))
    alone.write_text("{}")

    def call(table: object, *command: str, catalog: bool = True, code: int = 2) -> str:
        capsys.readouterr()
        assert run([*(command or ("read",)), "-t", str(table), "-c", str(config if catalog else alone)]) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out + printed.err

    return call


@pytest.mark.parametrize(
    "command", [("read",), ("status",), ("table", "show"), ("table", "drop"), ("snapshot", "list")]
)
def test_a_name_that_the_catalog_lacks(said: Said, command: tuple[str, ...]) -> None:
    told = said("shop.order", *command)
    assert told.startswith("lancewal: table_unknown: shop.order is neither a table of the catalog")
    assert "`lancewal catalog list` shows the catalog's tables, and `lancewal catalog register NAME -t ADDRESS`" in told
    assert "create" not in told


def test_a_name_without_a_catalog(said: Said) -> None:
    told = said(NAME, catalog=False)
    assert "A name is looked up where a catalog is set (catalog.root)" in told
    assert "create" not in told


@pytest.mark.parametrize("command", [("read",), ("table", "show"), ("table", "drop")])
def test_an_address_at_which_nothing_lies(said: Said, tmp_path: Path, command: tuple[str, ...]) -> None:
    told = said(tmp_path / "none", *command)
    assert told.startswith(
        f"lancewal: table_missing: there is no table at {tmp_path / 'none'}: the folder does not exist. "
    )
    assert "Correct the address (table.uri, --table), or see `lancewal catalog check` if a catalog led here. " in told
    assert told.endswith("`lancewal table create` makes a table that was never made\n")


@pytest.mark.parametrize("command", [("read",), ("status",), ("table", "show"), ("table", "drop"), ("table", "undrop")])
@pytest.mark.parametrize("there", ["nothing", "Lance's table"])
def test_an_address_without_a_lancewal_table(said: Said, tmp_path: Path, there: str, command: tuple[str, ...]) -> None:
    """As in a bucket, in which no folder tells of a mistake."""
    place = tmp_path / "place"
    if there == "nothing":
        place.mkdir()
    else:
        lance.write_dataset(ROWS, str(place))
    told = said(place, *command)
    assert "Correct the address (table.uri, --table)" in told
    assert told.index("Correct the address") < told.find("`lancewal table ") or "`lancewal table " not in told
    if there != "nothing" and command[-1] not in ("drop", "undrop"):
        assert "`lancewal table attach` makes a Lance table that lies there a lancewal table" in told


def test_a_table_that_was_dropped(said: Said, lake: Lake) -> None:
    """By its name, by its address, in Python; also once its objects are deleted."""
    place = lake.inside(NAME)
    said(NAME, "table", "drop", code=0)
    advice = "takes that back until its objects are deleted"
    assert f"was dropped. `lancewal table undrop -t {NAME}` {advice}" in said(NAME)
    assert f"`lancewal table undrop` {advice}" in said(place)
    said(NAME, "table", "drop", "--now", "--yes", code=0)
    for command in (("read",), ("status",), ("table", "show"), ("table", "undrop")):
        told = said(place, *command)
        assert "table_dropped: " in told
        assert "its objects are deleted: make another table at another address" in told
    with pytest.raises(TableDropped):
        lancewal.open_table(place)
