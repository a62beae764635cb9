"""``lancewal config check|show``, and the option by which every command gets its settings."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.shown import say, say_json

if TYPE_CHECKING:
    from lancewal_core.settings.load import Settings

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Settings file (YAML); by default what LANCEWAL_CONFIG names.", metavar="FILE"),
]
"""Type of the parameter ``config`` of a command."""


class Output(StrEnum):
    """How a command writes its result."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the result.")]

app = typer.Typer(no_args_is_help=True, help="Check and show the settings.")


def read_settings(config: Path | None) -> Settings:
    """The settings of this process: the only place of a command that reads the environment."""
    from lancewal_core.settings.load import load_settings

    return load_settings(config, os.environ)


@app.command()
def check(config: ConfigOption = None) -> None:
    """Read all settings and report everything that is wrong with them."""
    read_settings(config)
    say("The settings are valid.")


@app.command()
def show(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show the settings in force, defaults included, secrets masked."""
    masked = read_settings(config).masked()
    if output is Output.JSON:
        say_json(json.dumps(masked, indent=1))
        return
    import yaml

    say(yaml.safe_dump(masked, sort_keys=False, allow_unicode=True, default_flow_style=False).rstrip("\n"))
