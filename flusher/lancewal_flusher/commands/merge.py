"""``lancewal merge``: flush and merge all rows that wait, or show what the next merge would do."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from lancewal_core.cli.options import Asked, DryRunOption
from lancewal_core.errors import MAY_PASS, counted
from lancewal_core.process.stop_signals import stop_signals
from lancewal_flusher.commands.runner_option import RunnerOption, choosing, session_for

if TYPE_CHECKING:
    from lancewal_flusher.service.service import OnceSummary


def command(
    asked: Asked,
    dry_run: DryRunOption = False,
    runner: RunnerOption = None,
) -> None:
    """Flush and merge everything that waits, then stop; compacts nothing and collects no garbage.

    Safe beside a running flusher. Refused while the flusher is paused, except for --dry-run. --dry-run shows what the
    next merge would do, and what that costs.

    Example: lancewal merge --dry-run -o json
    """
    settings = choosing(asked.settings(), runner)
    if dry_run:
        from lancewal_flusher.commands.explain import next_merge

        asked.report(*next_merge(settings))
        return
    with session_for(settings):
        from lancewal_flusher.service.service import run_once

        with stop_signals() as stopping:
            summary = run_once(settings, stopping)
    asked.report(asdict(summary), summary_text(summary))
    if not summary.finished:
        raise typer.Exit(MAY_PASS)


def summary_text(summary: OnceSummary) -> str:
    """Return the summary as text for people."""
    done = (
        f"{counted(summary.merges, 'merge')} of {counted(summary.generations, 'generation')}"
        if summary.merges
        else "nothing was merged"
    )
    end = "" if summary.finished else "; stopped before the end, the same command goes on"
    return f"{done}; the table is at version {summary.version}{end}"
