"""``lancewal flusher run``, and the paths of the scripts for ``spark-submit``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import TableAsked
from lancewal_core.cli.output import say
from lancewal_flusher.commands.runner_option import RunnerOption, choosing, session_for

app = CommandApp(help="Merge what is durable, and keep the table fast.")


class SubmitTurn(StrEnum):
    """Programs that have a script for spark-submit: two commands and the service."""

    MERGE = "merge"
    COMPACT = "compact"


@app.command()
def run(
    asked: TableAsked,
    runner: RunnerOption = None,
) -> None:
    """Run the flusher until SIGTERM or SIGINT.

    Needs `table.uri`; all else is in the table's contract.  Exit code 0 after an orderly end, 2 when a person must
    change something, 3 when starting again may help.

    Example: lancewal flusher run -c lancewal.yaml
    """
    settings = choosing(asked.settings(find="none"), runner)
    with session_for(settings):
        from lancewal_flusher.service.service import run_flusher

        run_flusher(settings, lambda: choosing(asked.settings(), runner))


@app.command("spark-script")
def spark_script(
    turn: Annotated[
        SubmitTurn | None,
        typer.Argument(help="Merge or compact once; without this, run the service as `lancewal flusher run` does."),
    ] = None,
) -> None:
    """Print the path of the script for spark-submit.

    The script takes the options of `lancewal merge` or `lancewal compact`, or of `lancewal flusher run`.

    Example: spark-submit "$(lancewal flusher spark-script merge)" -c lancewal.yaml
    """
    say(str(Path(__file__).parent / "submit" / f"lancewal_{turn or 'flusher_run'}.py"))
