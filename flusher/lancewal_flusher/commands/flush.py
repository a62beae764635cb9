"""``lancewal flush run``, and where its script for ``spark-submit`` lies."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lancewal_core.cli.options import ConfigOption, Output, OutputOption, read_settings
from lancewal_core.cli.output import say
from lancewal_flusher.commands.runner_option import RunnerOption, choosing, session_for

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Merge snapshots into the table.")


class Program(StrEnum):
    """What there is a script for."""

    FLUSH = "flush"
    COMPACT = "compact"


@app.callback()
def _group() -> None:
    """A group even while it has one command."""


@app.command()
def run(
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Flush and merge everything that waits, then stop; compacts nothing and collects no garbage."
        ),
    ] = False,
    runner: RunnerOption = None,
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
    settings = choosing(read_settings(config), runner)
    if dry_run:
        from lancewal_flusher.commands.explain import show_next_merge

        show_next_merge(settings, output)
        return
    with session_for(settings):
        from lancewal_flusher.service.service import run_flusher

        run_flusher(settings, once)


@app.command("spark-script")
def spark_script(
    program: Annotated[
        Program, typer.Argument(help="What to run: merges, or a compaction to the end.")
    ] = Program.FLUSH,
) -> None:
    """Print where the script for spark-submit lies.

    It takes the options of `lancewal flush run`: spark-submit --master ... "$(lancewal flush spark-script)" --once;
    with `compact`, those of `lancewal compact`.
    """
    say(str(Path(__file__).parent / "submit" / f"lancewal_{program}.py"))
