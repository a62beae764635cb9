"""`lancewal table drop` asks before it changes anything, and deletes what a person has seen alone."""

from __future__ import annotations

import json
import re
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


def test_each_command_says_what_it_did(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """Also if it is run once more."""
    config = lake.folder / "lancewal.yaml"
    config.write_text(yaml.safe_dump({"catalog": {"root": str(lake.root)}}))
    place = lake.inside(NAME)

    def said(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run([*words, "-c", str(config)]) == code
        return capsys.readouterr().out

    def told(*words: str) -> dict[str, object]:
        found = json.loads(said(*words, "-o", "json"))
        assert isinstance(found, dict)
        return found

    since = "20[0-9T:.-]+Z"
    assert said("table", "undrop", "-t", NAME) == f"{NAME} at {place} was not dropped: nothing was changed\n"
    assert told("table", "undrop", "-t", NAME)["undropped"] is False
    first = said("table", "drop", "-t", NAME)
    assert first.startswith(
        f"dropped {NAME} at {place}: ingest and flusher end within 10 s. Nothing is deleted\nundrop: "
    )
    assert re.match(f"{NAME} at {place} was dropped at {since} already. Nothing is", said("table", "drop", "-t", NAME))
    assert re.fullmatch(
        f"undropped {NAME} at {place}: the table was dropped at {since}, and is in use again with all that was durable. Start "
        "ingest and flusher again\n",
        said("table", "undrop", "-t", NAME),
    )
    said("table", "drop", "-t", NAME)
    undropped = told("table", "undrop", "-t", NAME)
    assert (undropped["undropped"], undropped["drop"], undropped["name"]) == (True, None, NAME)
    assert said("catalog", "forget", NAME) == f"forgot {NAME}. The table stays at {place}\n"
    words = ("catalog", "register", NAME, "-t", str(place))
    assert said(*words).startswith(f"registered {NAME} at {place}\n")
    assert said(*words).startswith(f"{NAME} at {place} was registered: nothing was changed\n")
    assert told(*words)["changed"] is False
    said("table", "drop", "-t", NAME)
    assert said("catalog", "forget", NAME) == f"forgot {NAME}. The dropped table stays at {place}\n"
    deleted = said("table", "drop", "-t", str(place), "--now", "--yes")
    assert re.fullmatch(
        f"deleted [0-9]+ objects of {NAME} at {place}. The contracts stay, and say that the table was dropped\n",
        deleted,
    )


def test_a_name_that_is_forgotten_with_its_cuts_named_is_still_read_by_them(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    config = lake.folder / "lancewal.yaml"
    config.write_text(yaml.safe_dump({"catalog": {"root": str(lake.root)}}))
    assert run(["cut", "make", "june", "--tables", NAME, "--up-to", "durable", "-c", str(config)]) == 0
    capsys.readouterr()
    assert run(["catalog", "forget", NAME, "--cut", "june", "-c", str(config)]) == 0
    assert f"cut june still reads the table there, as {NAME}" in capsys.readouterr().out
    assert run(["count", "-t", NAME, "--at", "cut:june", "-c", str(config)]) == 0
