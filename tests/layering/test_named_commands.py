"""Messages and pages name only commands of ``lancewal`` that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from lancewal_core.cli import program as cli

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`lancewal ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)?)")


BARE = re.compile(r"(?<!`)`lancewal offset (?:accept-loss|reject)`(?!`)")
"""In a message of the code: what it takes is known there, and a person in need should not have to look it up."""

NO_RESTART = re.compile(r"(?<!`)`lancewal offset accept-loss [^`]*\{[^`]*`(?!, then restart ingest)")
"""A message that leads to the decision after which ingest may show the stop until its restart, and does not say so."""


def exists(words: list[str]) -> bool:
    command: Any = typer.main.get_command(cli.app)
    for word in words:
        if not hasattr(command, "get_command"):
            return True  # what follows are arguments
        command = command.get_command(None, word)
        if command is None:
            return False
    return True


@pytest.mark.parametrize("wrong", [BARE, NO_RESTART], ids=["arguments", "restart"])
def test_messages_name_decisions_about_offsets_with_their_arguments_and_a_restart(wrong: re.Pattern[str]) -> None:
    packages = [path for path in ROOT.glob("*/lancewal_*/**/*.py") if not path.is_relative_to(ROOT / "tests")]
    assert len(packages) > 100
    assert [str(path) for path in packages if wrong.search(re.sub(r'"\s*f?"', "", path.read_text()))] == []


def test_every_command_that_is_named_exists() -> None:
    files = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.yaml", "*.yml", "*.txt"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
    ).stdout.split()
    named = {(file, match[1]) for file in files for match in NAMED.finditer((ROOT / file).read_text())}
    assert len(named) > 10
    assert sorted(found for found in named if not exists(found[1].split())) == []
