"""docs/reference/commands.md lists every command, its arguments and its options, as they are declared.

``python -m tests.deploy.test_commands_page`` writes the page's lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from lancewal_core.cli.program import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "commands.md"
BEGIN = "<!-- from here on as declared -->"
SHARED = ("--table", "--config", "--storage-option", "--output", "--dry-run", "--yes", "--runner")
"""Options that many commands have: their meaning stands once, above."""
COMPLETION = ("--install-completion", "--show-completion")
HEADER = ["| option | means |", "|---|---|"]
PLAIN = {"str": "TEXT", "int": "N", "float": "NUMBER", "path": "FILE", "list[str]": "TEXT"}
"""What an option takes that has no name for it."""
ROWS = frozenset({"changes", "get", "read", "search"})
"""Commands whose --output is not a report's."""


def commands(of: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All commands but groups, by the words behind the program's name."""
    if not hasattr(of, "list_commands"):
        yield " ".join(words), of
        return
    for name in sorted(of.list_commands(None)):
        yield from commands(of.get_command(None, name), (*words, name))


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def takes(parameter: Any, context: Any) -> str:
    """What stands behind an option, or for an argument."""
    shown = parameter.display_type(context).strip("<>").replace(" range", "")
    if parameter.param_type_name == "argument" and not parameter.metavar and shown in PLAIN:
        return str(parameter.name).upper()
    return str(parameter.metavar or PLAIN.get(shown, shown.replace("|", r"\|")))


def option(parameter: Any, context: Any) -> str:
    """Its names, longest first, and what it takes."""
    names = ", ".join(f"`{name}`" for name in sorted(parameter.opts, key=len, reverse=True))
    return names if parameter.is_flag else f"{names} `{takes(parameter, context)}`"


def default(parameter: Any) -> str:
    value = parameter.default
    flag = getattr(parameter, "is_flag", False)
    return "" if flag or value in (None, "", ()) else f" Default: `{getattr(value, 'value', value)}`."


def meaning(parameter: Any) -> str:
    return cell(parameter.help or "").rstrip(".") + "." + default(parameter)


def usage(parameter: Any, context: Any) -> str:
    """Of an argument."""
    named = takes(parameter, context) + ("..." if parameter.nargs < 0 else "")
    return named if parameter.required else f"[{named}]"


def section(name: str, command: Any) -> list[str]:
    """Of one command."""
    context = command.make_context(name, [], resilient_parsing=True)
    own, shared, arguments = [], [], []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            arguments.append(usage(parameter, context).replace(r"\|", "|"))
            own.append((f"`{takes(parameter, context)}`", meaning(parameter)))
        elif parameter.opts[0] in SHARED and not (name in ROWS and "--output" in parameter.opts):
            shared.append(f"`{parameter.opts[0]}`")
        else:
            own.append((option(parameter, context), meaning(parameter)))
    lines = [f"### lancewal {name}", "", f"    {' '.join(['lancewal', name, *arguments])}", ""]
    for part in (command.help or "").split("\n\n"):
        lines += [" ".join(part.split()), ""]
    if own:
        lines += ["| argument, option | means |", "|---|---|", *(f"| {a} | {b} |" for a, b in own), ""]
    if shared:
        lines += [f"Shared options: {', '.join(shared)}.", ""]
    return [*lines, f"Example: `{command.epilog.removeprefix('Example: ')}`", ""]


def shared_options(found: dict[str, Any]) -> list[str]:
    declared = {
        parameter.opts[0]: option(parameter, command.make_context(name, [], resilient_parsing=True))
        + f" | {meaning(parameter)}"
        for name, command in found.items()
        for parameter in command.params
        if parameter.opts[0] in SHARED and name not in ROWS
    }
    return [*HEADER, *(f"| {declared[name]} |" for name in SHARED), ""]


def made(page: str) -> str:
    """The page, its lists as they are declared."""
    root: Any = typer.main.get_command(app)
    context = root.make_context("lancewal", [], resilient_parsing=True)
    found = dict(commands(root))
    options = [p for p in root.params if p.opts[0] not in (*COMPLETION, "--help")]
    lines = ["## Options that commands share", "", *shared_options(found), "Before the command:", "", *HEADER]
    lines += [f"| {option(parameter, context)} | {meaning(parameter)} |" for parameter in options]
    lines += [f"| {', '.join(f'`{name}`' for name in COMPLETION)} | Completion, for the shell that runs it. |", ""]
    lines += ["## Commands", ""]
    for name, command in found.items():
        lines += section(name, command)
    return page[: page.index(BEGIN) + len(BEGIN)] + "\n\n" + "\n".join(lines).rstrip("\n") + "\n"


def test_the_page_has_every_command_as_it_is_declared() -> None:
    assert PAGE.read_text() == made(PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
