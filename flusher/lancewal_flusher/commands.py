"""``lancewal flush run``, and where its script for ``spark-submit`` lies."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lancewal_core.config_commands import ConfigOption, Output, OutputOption, read_settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Merge snapshots into the table.")


class RunnerName(StrEnum):
    """Where merge tasks run."""

    THREADS = "threads"
    SPARK = "spark"


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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what the next merge would do, and what that costs.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run the flusher until SIGTERM or SIGINT, or once.

    Needs `table.uri`; all else is in the table's contract.  Exit code 0 after an orderly end, 2 when a person must
    change something, 1 when starting again may help or stored data is damaged.
    """
    settings = read_settings(config)
    if dry_run:
        from lancewal_flusher.outlook_text import show_next_merge

        typer.echo(show_next_merge(settings, as_json=output is Output.JSON))
        return
    if runner is not None:
        flusher = settings.flusher.model_copy(update={"runner": runner.value})
        settings = settings.model_copy(update={"flusher": flusher})
    with ExitStack() as stack:
        if settings.flusher.runner == "spark":
            from lancewal_flusher.spark_session import spark_session

            stack.enter_context(spark_session())  # before Lance is imported
        from lancewal_flusher.service import run_flusher

        run_flusher(settings, once)


@app.command("spark-script")
def spark_script() -> None:
    """Print where the script for spark-submit lies.

    It takes the options of `lancewal flush run`: spark-submit --master ... "$(lancewal flush spark-script)" --once
    """
    typer.echo(Path(__file__).parent / "submit" / "lancewal_flush.py")
