"""``lancewal cut``: made, listed, shown and dropped, and what its words say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lancewal_tables.commands.cut as commands
from lancewal_core.cli.program import run
from lancewal_core.table.snapshots import begun, cut_of
from lancewal_flusher.garbage.snapshots import drop_snapshot
from tests.tables.cuts.lake import TABLES, Lake

Said = Callable[..., str]
MAKE = ("cut", "make", "june", "--tables", "shop.*", "--up-to", "durable")


@pytest.fixture
def lake(tmp_path: Path, seed: int) -> Iterator[Lake]:
    made = Lake(tmp_path, seed=seed)
    made.produce(20)
    yield made
    made.close()


@pytest.fixture
def said(lake: Lake, capsys: pytest.CaptureFixture[str]) -> Said:
    """What a command prints, behind its exit code."""
    config = lake.config()

    def call(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run([*arguments, "-c", config]) == code
        printed = capsys.readouterr()
        return printed.err if code > 1 else printed.out

    return call


def test_made_listed_shown_and_dropped(lake: Lake, said: Said) -> None:
    assert said("cut", "list") == "no cuts\n"
    made = said(*MAKE, "--for", "7d").splitlines()
    assert made[0].startswith("cut june: 2 tables, as of 2")
    assert "holds positions. The round of questions took " in made[0]
    assert [line.split()[0] for line in made[1:]] == sorted(TABLES)
    lake.check(*lake.catalog.cuts().values())
    (listed,) = json.loads(said("cut", "list", "-o", "json"))["cuts"]
    assert (listed["name"], listed["moving"], listed["holds"], len(listed["tables"])) == ("june", False, "positions", 2)
    shown = json.loads(said("cut", "show", "june", "-o", "json"))["cut"]
    assert shown["complete"] is True
    for name, of in shown["tables"].items():
        assert of["positions"] == {str(p): len(lake.of[name].messages(p)) for p in range(2)}
        assert of["bytes"] > 0
        assert of["fault"] is None
    assert "would drop cut june, and its snapshots of 2 tables\nnothing was changed" in said(
        "cut", "drop", "june", "--dry-run"
    )
    assert "--yes" in said("cut", "drop", "june", code=2)
    assert said("cut", "drop", "june", "--yes") == "dropped cut june, and its snapshots of 2 tables\n"
    assert lake.catalog.cuts() == {}
    for command in (["show", "june"], ["drop", "june", "--yes"]):
        assert "has no cut june" in said("cut", *command, code=2)


def test_an_incomplete_cut_names_its_table(lake: Lake, said: Said) -> None:
    said(*MAKE)
    cut = lake.catalog.cuts()["june"]
    snapshot = cut.tables["shop.items"].snapshot or ""
    drop_snapshot(lake.of["shop.items"].table, snapshot)
    shown = said("cut", "show", "june", code=1)
    (line,) = [line for line in shown.splitlines() if line.startswith("shop.items")]
    assert f"has no snapshot '{snapshot}'" in line
    assert said("cut", "drop", "june", "--yes") == "dropped cut june, and its snapshots of 1 table\n"


def test_left_over_snapshots_are_listed_and_dropped(lake: Lake, said: Said) -> None:
    said(*MAKE)
    cut = lake.catalog.cuts()["june"]
    lake.catalog.swap_cut("june", cut, None)
    left = json.loads(said("cut", "list", "-o", "json"))["left_over"]
    assert [(one["table"], one["cut"]) for one in left] == [(name, "june") for name in sorted(TABLES)]
    assert said("cut", "list").count("left over: snapshot june-") == 2
    dropped = said("cut", "drop", "june", "--yes")
    assert dropped.count("left over") == 2
    assert json.loads(said("cut", "list", "-o", "json"))["left_over"] == []


def test_a_snapshot_that_is_not_finished_is_not_taken_for_left_over(lake: Lake, said: Said) -> None:
    """It may still be made.  `cut list` names it, with the command that drops it if its command died."""
    said(*MAKE)
    lake.catalog.swap_cut("june", lake.catalog.cuts()["june"], None)
    table = lake.of["shop.items"].table
    (branch,) = table.branches()
    table.note_branch(branch.name, begun(0, "maker", cut_of(branch)))
    assert "would drop snapshot june-" in said("cut", "drop", "june", "--dry-run")
    dropped = said("cut", "drop", "june", "--yes")
    assert dropped.count("left over") == 1
    advice = f"`lancewal snapshot drop {branch.name} -t shop.items`"
    assert f"{branch.name} of shop.items stays: it is not finished. If nobody makes it: {advice}" in dropped
    (line,) = [line for line in said("cut", "list").splitlines() if line.startswith("left over")]
    assert "not finished: it is being made for a cut june, or its command died" in line
    said(*line.split("`")[1].split()[1:], "--yes")
    assert json.loads(said("cut", "list", "-o", "json"))["left_over"] == []


def test_what_is_left_over_goes_and_the_cut_of_that_name_stays(lake: Lake, said: Said) -> None:
    """The earlier making had more tables.  The advice of `cut list` drops its snapshot alone."""
    said(*MAKE)
    lake.catalog.swap_cut("june", lake.catalog.cuts()["june"], None)
    said("cut", "make", "june", "--tables", "shop.orders", "--up-to", "durable")
    (line,) = [line for line in said("cut", "list").splitlines() if line.startswith("left over")]
    assert "of shop.items, of an earlier making of cut june" in line
    said(*line.split("`")[1].split()[1:], "--yes")
    assert json.loads(said("cut", "list", "-o", "json"))["left_over"] == []
    lake.check(lake.catalog.cuts()["june"])


def test_a_cut_that_was_made_while_somebody_was_asked_stays_whole(
    lake: Lake, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command has seen snapshots whose maker goes on, and writes the record, while the person is asked."""
    cut = lake.make("june")
    assert lake.catalog.swap_cut("june", cut, None)

    def agree(*_: object) -> None:
        assert lake.catalog.swap_cut("june", None, cut)

    monkeypatch.setattr(commands, "agree", agree)
    shown = said("cut", "drop", "june")
    assert shown.count("stays, or was dropped already: its cut was made or dropped meanwhile\n") == 2
    assert "dropped snapshot" not in shown
    assert lake.catalog.cut("june") == cut
    lake.check(cut)


def test_what_is_refused(lake: Lake, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no table of the catalog" in said("cut", "make", "june", "--tables", "crm.*", "--up-to", "durable", code=2)
    assert "kafka.bootstrap_servers" in said("cut", "make", "june", "--tables", "shop.*", code=2)
    assert "not the name of a cut" in said("cut", "make", "a.b", *MAKE[3:], code=2)
    assert "--wait 'soon'" in said(*MAKE, "--wait", "soon", code=2)
    monkeypatch.setenv("LANCEWAL_CATALOG__ROOT", "")
    assert "catalog.root" in said("cut", "list", code=2)
