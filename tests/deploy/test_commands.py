"""The command lines in docker-compose.yml and in the chart are commands of the program."""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib

import pytest
import typer.main
import yaml

from tests.deploy.helm_program import CHART, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENTRIES: dict[str, str] = PROJECT["entry-points"]["lancewal.commands"]
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


def command_lines() -> list[tuple[str, ...]]:
    """Words after ``lancewal``, without options."""
    found = {tuple(SERVICES[name]["command"]) for name in ("ingest", "flusher")}
    text = "".join(file.read_text() for file in (CHART / "templates").iterdir())
    for arguments in re.findall(r"args: \[--log-level, \{\{[^}]*\}\}, ([a-z, ]+)\]", text):
        found.add(tuple(arguments.split(", ")))
    scripts = [text, *SERVICES["table"]["command"], (ROOT / "Dockerfile").read_text()]
    for words in re.findall(r"\blancewal (table \w+|status)\b", "".join(scripts)):
        found.add(tuple(words.split()))
    return sorted(found)


def test_all_places_are_found() -> None:
    groups = {words[0] for words in command_lines()}
    assert groups == {"ingest", "flusher", "table", "status"}


@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_it_is_a_command(words: tuple[str, ...]) -> None:
    group, *rest = words
    module, _, attribute = ENTRIES[group].partition(":")
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not there yet")
    found = getattr(importlib.import_module(module), attribute)
    if not rest:
        assert callable(found)
        return
    assert isinstance(found, typer.Typer)
    command = typer.main.get_command(found)
    assert rest[0] in getattr(command, "commands", {})
