"""`lancewal table drop` asks before it changes anything, and deletes what a person has seen alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lancewal_core.cli.program import run
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import Contract, newest_contract
from lancewal_reader.table import open_table
from lancewal_tables.catalog.dropping import undrop_table
from lancewal_tables.catalog.registration import forget_table
from lancewal_tables.commands import table as commands
from tests.tables.catalog.test_entries import Lake
from tests.tables.define.test_copies import ROWS

NAME = "shop.orders"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.attach(made.inside(NAME), NAME)
    return made


def drop(lake: Lake, *words: str) -> int:
    config = lake.folder / "lancewal.yaml"
    config.write_text(yaml.safe_dump({"catalog": {"root": str(lake.root)}}))
    return run(["table", "drop", "-t", NAME, "-c", str(config), *words])


def newest(lake: Lake) -> Contract:
    found = newest_contract(open_store(str(lake.inside(NAME))))
    assert found is not None
    return found


def state(lake: Lake) -> str:
    return lake.catalog.tables()[NAME].state


def test_a_no_changes_nothing(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    before = newest(lake)
    assert drop(lake, "--now") == 2
    assert "nothing was changed" in capsys.readouterr().err
    assert (newest(lake), state(lake)) == (before, "active")
    assert drop(lake) == 0
    dropped = newest(lake)
    assert drop(lake, "--now") == 2
    assert (newest(lake), state(lake)) == (dropped, "dropped")
    assert drop(lake, "--now", "--yes") == 0
    assert not (lake.inside(NAME) / "_versions").exists() or not list((lake.inside(NAME) / "_versions").iterdir())


@pytest.mark.parametrize("again", [False, True])
def test_a_table_that_is_undropped_while_a_person_is_asked_stays(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: bool
) -> None:
    """``again``: another person has dropped it once more."""

    def agree(yes: bool, to: str) -> None:
        undrop_table(lake.settings(lake.inside(NAME)), lake.catalog)
        with monkeypatch.context() as patch:
            patch.setattr(commands, "agree", lambda yes, to: None)
            assert not again or drop(lake) == 0

    assert drop(lake) == 0
    monkeypatch.setattr(commands, "agree", agree)
    assert drop(lake, "--now") == 2
    assert "undropped meanwhile: nothing was deleted" in capsys.readouterr().err
    assert state(lake) == ("dropped" if again else "active")
    if again:
        undrop_table(lake.settings(lake.inside(NAME)), lake.catalog)
    assert open_table(lake.inside(NAME)).to_arrow().to_pylist() == ROWS.to_pylist()


def test_an_undrop_tells_that_another_table_has_the_name(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert drop(lake) == 0
    forget_table(lake.catalog, NAME)
    lake.attach(lake.inside("other"), NAME)
    capsys.readouterr()
    address = str(lake.inside(NAME))
    words = ["-t", address, "-c", str(lake.folder / "lancewal.yaml")]
    assert run(["table", "undrop", *words]) == 0
    said = capsys.readouterr().err
    assert f"the name {NAME} leads to the table at {lake.inside('other')} by now" in said
    assert f"`lancewal catalog register NAME -t {address}`" in said
    assert run(["table", "undrop", *words]) == 0
    assert "by now" in capsys.readouterr().err
    assert run(["catalog", "register", "shop.again", *words]) == 0
    assert lake.found() == []
