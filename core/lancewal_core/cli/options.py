"""Options that commands share, and how a command gets its settings."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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


def read_settings(config: Path | None) -> Settings:
    """The settings of this process: the only place of a command that reads the environment."""
    from lancewal_core.settings.load import load_settings

    return load_settings(config, os.environ)
