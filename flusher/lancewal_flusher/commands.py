"""``lancewal flush run``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from lancewal_core.config_commands import ConfigOption, read_settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Merge snapshots into the table.")


class RunnerName(StrEnum):
    """Where merge tasks run."""

    THREADS = "threads"


@app.callback()
def _group() -> None:
    """A group even while it has one command."""


@app.command()
def run(
    once: Annotated[
        bool, typer.Option("--once", help="Flush and merge everything that waits, then stop; collects no garbage.")
    ] = False,
    runner: Annotated[
        RunnerName | None, typer.Option(help="Where merge tasks run; by default flusher.runner of the settings.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Run the flusher until SIGTERM or SIGINT, or once.

    Needs `table.uri`; all else is in the table's contract.  Exit code 0 after an orderly end, 2 when a person must
    change something, 1 when starting again may help or stored data is damaged.
    """
    from lancewal_flusher.service import run_flusher

    settings = read_settings(config)
    if runner is not None:
        flusher = settings.flusher.model_copy(update={"runner": runner.value})
        settings = settings.model_copy(update={"flusher": flusher})
    run_flusher(settings, once)
