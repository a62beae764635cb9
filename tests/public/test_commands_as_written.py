"""Every line of a page that runs ``lancewal`` names a command that there is, with options that it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lancewal_core.cli import program

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
)
LINE = re.compile(r"(?:\$ )?lancewal (?P<rest>[a-z].*)")
FOR_IT = re.compile(r"""(?:"[^"]*"|'[^']*'|(?![;&|<>#]|\s\d>).)*""")
"""Up to what the shell takes for itself, outside of quotes."""


def written(page: str) -> Iterator[str]:
    """What stands behind ``lancewal`` in lines of code, up to what the shell takes for itself."""
    fenced = re.findall(r"^ *```(\w*)\n(.*?)^ *```", page, re.M | re.S)
    blocks = [block for language, block in fenced if language in ("", "sh", "text", "console")]
    blocks += re.findall(r"(?:^ {4,}lancewal .*\n?)+", page, re.M)
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\|\||;", line):
            if found := LINE.match(part.strip()):
                for_it = FOR_IT.match(found["rest"])
                assert for_it is not None
                yield for_it[0].strip()


def wrong_with(line: str) -> str | None:
    """What the program would not take, if anything."""
    command: Any = typer.main.get_command(program.app)
    words = shlex.split(re.sub(r"\[([^\]]*)\]", r"\1", line).replace("...", ""))
    while words and hasattr(command, "get_command") and not words[0].startswith("-"):
        name = words.pop(0)
        command = command.get_command(None, name)
        if command is None:
            return f"{line}: there is no {name}"
    there = {spelling for p in command.params for spelling in (*p.opts, *p.secondary_opts)} | {"--help"}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in there]
    return f"{line}: there is no {unknown}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_there_as_it_is_written(page: Path) -> None:
    assert [wrong for line in written(page.read_text()) if (wrong := wrong_with(line)) is not None] == []


def installs(page: str) -> list[str]:
    """Lines of code that install lancewal by pip."""
    fenced = re.findall(r"^ *```(\w*)\n(.*?)^ *```", page, re.M | re.S)
    lines = [line for language, code in fenced if language == "sh" for line in code.splitlines()]
    return [line for line in lines if re.search(r"pip install .*(?:lancewal|'\.)", line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lancewal_is_installed_from_a_checkout_into_a_virtual_environment(page: Path) -> None:
    """No index has it, and pip of Debian and Ubuntu installs nothing outside of one."""
    text = page.read_text()
    assert [line for line in installs(text) if not re.search(r"pip install '\.\[", line)] == []
    assert not installs(text) or "python3 -m venv" in text or "(try-on-one-machine.md)" in text


def test_there_are_such_lines() -> None:
    assert sum(len(list(written(page.read_text()))) for page in PAGES) > 80


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("table create --config x.yaml", None),
        ("repair generation PARTITION [GENERATION] --dry-run", None),
        ("flush run", "flush run: there is no flush"),
        ("table make", "table make: there is no make"),
        ("status --store-option a=b", "status --store-option a=b: there is no ['--store-option']"),
    ],
)
def test_a_line_that_would_fail_is_named(line: str, wrong: str | None) -> None:
    assert wrong_with(line) == wrong
