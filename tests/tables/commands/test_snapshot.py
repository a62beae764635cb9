"""``lancewal snapshot``: made, listed, dropped, and read by its name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pytest

from lancewal_core.cli.program import run
from tests.flusher.commands.test_compact import write_settings
from tests.support.flusher_tables import FlusherTable, upserts


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Ten rows, and ten flushed ones that are not merged."""
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(10)))
    made.round()
    made.generation(0, upserts(range(5, 15), a=1))
    yield made
    made.close()


Said = Callable[..., str]


@pytest.fixture
def said(table: FlusherTable, capsys: pytest.CaptureFixture[str]) -> Said:
    """What a command prints, behind its exit code."""
    config = str(write_settings(table))

    def call(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run([*arguments, "-c", config]) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return call


def test_made_listed_read_and_dropped(table: FlusherTable, said: Said) -> None:
    assert said("snapshot", "list") == "no snapshots\n"
    made = said("snapshot", "create", "eom", "--for", "30d")
    assert f"snapshot eom of {table.uri}: version " in made
    assert ", unmerged rows: 10, until 2" in made
    (receipt,) = [line.removeprefix("receipt: ") for line in made.splitlines() if line.startswith("receipt: ")]
    said("snapshot", "create", "kept")
    listed = json.loads(said("snapshot", "list", "-o", "json"))["snapshots"]
    assert [(one["name"], one["until"] is None) for one in listed] == [("eom", False), ("kept", True)]
    assert listed[0]["receipt"] == receipt
    lines = said("snapshot", "list").splitlines()
    assert [line.split()[0] for line in lines] == ["eom", "kept"]
    assert "until it is dropped" in lines[1]
    rows = said("read", "--columns", "id,a", "--at", "snapshot:eom", "-o", "jsonl").splitlines()
    assert sorted(json.loads(row)["id"] for row in rows) == list(range(15))
    assert "--yes" in said("snapshot", "drop", "eom", code=2)
    assert "nothing was changed" in said("snapshot", "drop", "eom", "--dry-run")
    assert said("snapshot", "drop", "eom", "--yes") == "dropped snapshot eom\n"
    assert "no snapshot 'eom'" in said("snapshot", "drop", "eom", "--yes", code=2)
    assert "no snapshot 'eom'" in said("read", "--at", "snapshot:eom", code=2)


def test_the_object_of_the_report(table: FlusherTable, said: Said) -> None:
    (made,) = json.loads(said("snapshot", "create", "eom", "-o", "json"))["snapshots"]
    assert (made["table"], made["name"], made["unmerged_rows"], made["hidden_rows"]) == (table.uri, "eom", 10, 5)
    assert made["until"] is None
    assert json.loads(said("snapshot", "drop", "eom", "--yes", "-o", "json")) == {"dropped": ["eom"]}


def test_what_is_refused(table: FlusherTable, said: Said) -> None:
    assert "--for 0d: expected an integer and ms, s, m, h or d, such as 10m, above 0" in said(
        "snapshot", "create", "eom", "--for", "0d", code=2
    )
    assert "not a valid snapshot name" in said("snapshot", "create", "a/b", code=2)
    assert "is not a receipt, nor another point" in said("snapshot", "create", "eom", "--at", "yesterday", code=2)
    for again in (table.uri, f"{table.uri}/", f"file://{table.uri}"):
        assert "are one table: name it once" in said("snapshot", "create", "eom", "-t", table.uri, "-t", again, code=2)
    assert "not a valid snapshot name" in said("snapshot", "create", "eom.lock", code=2)
    assert "until after the year 9999" in said("snapshot", "create", "eom", "--for", "9999999d", code=2)
    assert said("snapshot", "list") == "no snapshots\n"


def test_several_tables_of_one_topic(table: FlusherTable, said: Said, tmp_path: Path) -> None:
    other = FlusherTable(tmp_path / "other")
    other.generation(0, upserts(range(10)))
    made = json.loads(said("snapshot", "create", "eom", "-t", table.uri, "-t", other.uri, "-o", "json"))["snapshots"]
    assert [one["table"] for one in made] == [table.uri, other.uri]
    other.close()


def test_a_damaged_one_does_not_hide_the_others(
    table: FlusherTable, said: Said, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("eom", "kept", "later"):
        said("snapshot", "create", name)
    branches = lance.dataset(table.uri).branches
    noted = branches.list()["kept"]["metadata"]
    branches.replace_metadata("kept", {**noted, "lancewal.created_at": "yesterday"})
    config = str(write_settings(table))
    capsys.readouterr()
    assert run(["snapshot", "list", "-c", config]) == 4
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["eom", "later"]
    assert "snapshot 'kept': lancewal.created_at 'yesterday' is not a time" in printed.err
    assert run(["snapshot", "list", "-c", config, "-o", "json"]) == 4
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["snapshots"]] == ["eom", "later"]
    assert said("snapshot", "drop", "kept", "--yes") == "dropped snapshot kept\n"
    assert [line.split()[0] for line in said("snapshot", "list").splitlines()] == ["eom", "later"]


@pytest.mark.parametrize("folder", ["branches", "tags"])
def test_a_name_that_cannot_be_read_is_named_and_holds_back_what_it_may_protect(
    table: FlusherTable, said: Said, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    said("snapshot", "create", "eom")
    odd = Path(table.uri) / "_refs" / folder / "._x.json"
    odd.parent.mkdir(parents=True, exist_ok=True)
    odd.write_bytes(b"\x00\x05\x16\x07")
    named = f"_refs/{folder}/._x.json in {table.uri} cannot be read as the name of a branch or tag"
    config = str(write_settings(table))
    for command in (["snapshot", "list"], ["gc"], ["gc", "--dry-run"]):
        capsys.readouterr()
        assert run([*command, "-c", config]) == 4
        printed = capsys.readouterr()
        assert named in " ".join((printed.out + printed.err).split())
        assert "eom" in printed.out or command[0] == "gc"
    assert named in said("snapshot", "drop", "eom", "--yes", code=4)
    assert said("read", "--columns", "id", "--at", "snapshot:eom", "-o", "jsonl").count("\n") == 15
    said("merge")
    odd.unlink()
    assert said("snapshot", "drop", "eom", "--yes") == "dropped snapshot eom\n"
    said("gc")
