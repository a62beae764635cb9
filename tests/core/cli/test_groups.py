"""What all commands of the program do alike: names, suggestions, options, examples."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import NOTHING_CHANGED, Asked, TableAsked
from lancewal_core.cli.program import app, run

SHARED = {"--table", "--config", "--storage-option", "--dry-run", "--yes", "--runner"}
"""Options that mean the same wherever they are."""
PLURAL = re.compile(r"(?<!s)s$")


def commands(of: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, groups too, with the words behind the program's name."""
    found: Any = typer.main.get_command(app) if of is None else of
    if words:
        yield words, found
    if hasattr(found, "list_commands"):
        for name in found.list_commands(None):
            yield from commands(found.get_command(None, name), (*words, name))


ALL = dict(commands())
GROUPS = [words for words, command in ALL.items() if hasattr(command, "list_commands")]
ALONE = {" ".join(words): command for words, command in ALL.items() if words not in GROUPS}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said with exit code 2, in one line."""
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", said.err).split())


def test_the_project_s_commands_are_there() -> None:
    assert {"merge", "flusher run", "table show", "repair region", "offset reject", "conflict list"} <= ALONE.keys()


@pytest.mark.parametrize("name", ALONE)
def test_help_ends_with_an_example_of_the_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    example = ALONE[name].epilog or ""
    assert example.startswith("Example: "), name
    assert f"lancewal {name}" in example
    said = example.removeprefix("Example: ")
    if said.startswith("lancewal "):
        context = ALONE[name].make_context(name, shlex.split(said)[1 + len(name.split()) :])
        assert context.params is not None
    assert run([*name.split(), "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.endswith(" ".join(example.split()))


def test_groups_are_named_in_the_singular() -> None:
    assert [words for words in GROUPS if PLURAL.search(words[-1])] == []


def test_shared_options_have_one_name_and_one_meaning() -> None:
    meanings: dict[str, set[tuple[tuple[str, ...], str]]] = {name: set() for name in SHARED}
    for command in ALONE.values():
        for parameter in command.params:
            for name in SHARED & set(parameter.opts):
                meanings[name].add((tuple(parameter.opts), parameter.help))
    assert {name: len(found) for name, found in meanings.items() if len(found) != 1} == {}
    of_tables = {n for n, c in ALONE.items() if "--table" in {o for p in c.params for o in p.opts}}
    of_catalogs = {f"catalog {act}" for act in ("init", "migrate", "list", "show", "forget", "check", "rebuild")}
    of_catalogs |= {f"cut {act}" for act in ("make", "list", "show", "drop")}
    of_none = {"config check", "config init", "config show", "demo", "estimate", "flusher spark-script", "store check"}
    assert ALONE.keys() - of_tables == of_none | of_catalogs


@pytest.mark.parametrize(
    ("arguments", "likely"),
    [
        (("inspct",), "inspect"),
        (("create",), "'table create'"),
        (("load",), "'table load'"),
        (("repair", "segmnt"), "segment"),
        (("verify", "--sampel", "1"), "--sample"),
        (("verify", "--json"), "-o json"),
        (("pause", "flusher", "--json"), "-o json"),
    ],
)
def test_a_mistyped_name_gets_a_suggestion(
    arguments: tuple[str, ...], likely: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert likely in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("fl", "flusher"), ("flusher r", "run"), ("gc --d", "--dry-run"), ("repair merged", "merged-position")],
)
def test_a_shell_completes_the_whole_program(
    typed: str, completed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_LANCEWAL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"lancewal {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    assert run([]) == 0
    assert capsys.readouterr().out.split() == [completed]


@pytest.mark.parametrize("wrong", ["30x", "0s", "10"])
def test_a_duration_that_is_none_is_named_with_its_option(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"--for {wrong}: expected an integer and ms, s, m, h or d" in refused(
        capsys, "pause", "flusher", "--for", wrong
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["table", "show", "-o", "yaml"],
        ["--log-level", "loud", "status"],
        ["pause", "ingset"],
        ["inspect", "-o", "yaml"],
        ["estimate", "--rows-per-s", "many"],
    ],
)
def test_a_value_that_is_none_of_those_is_told_plainly(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, *arguments)
    assert "Invalid value for" in said
    assert "Value error" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["table", "show", "-t", ""],
        ["table", "show", "--table="],
        ["table", "alter", "--group", "", "--dry-run"],
        ["inspect", "--partition", ""],
        ["pause", "flusher", "--for", ""],
    ],
)
def test_an_option_with_an_empty_value_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "has an empty value. Is a variable not set?" in refused(capsys, *arguments)


def test_options_that_are_taken_together_stand_behind_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A command gets one value of them: the table, its settings, and the form of the report."""
    app = CommandApp(help="Try options.")

    @app.command()
    def show(asked: Asked, name: Annotated[str, typer.Argument()], often: bool = False) -> None:
        """Show what was given."""
        asked.report({"table": asked.settings().table.uri, "name": name}, f"{name} of {asked.table}", dry_run=often)

    @app.command()
    def other(asked: TableAsked) -> None:
        """Take no form of a report."""

    made: Any = typer.main.get_command(app)
    names = {one.name: [p.name for p in one.params] for one in made.commands.values()}
    assert names == {
        "show": ["name", "often", "table", "config", "storage_option", "output"],
        "other": ["table", "config", "storage_option"],
    }
    app(["show", "it", "-t", str(tmp_path), "-o", "json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == {"table": str(tmp_path), "name": "it"}
    app(["show", "it", "-t", str(tmp_path), "--often"], standalone_mode=False)
    assert capsys.readouterr().out == f"it of {tmp_path}\n{NOTHING_CHANGED}\n"
