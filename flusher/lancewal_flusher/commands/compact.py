"""``lancewal compact``."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.options import Asked, DryRunOption
from lancewal_core.errors import counted
from lancewal_core.process.stop_signals import stop_signals
from lancewal_flusher.commands.runner_option import RunnerOption, choosing, session_for

if TYPE_CHECKING:
    from lancewal_core.settings.load import Settings
    from lancewal_flusher.upkeep.compact_all import CompactionSummary


def command(
    asked: Asked,
    dry_run: DryRunOption = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Rewrite the lowest fragment too; merges that are running are then planned again."),
    ] = False,
    runner: RunnerOption = None,
) -> None:
    """Rewrite small and worn fragments until none is left, and extend secondary indexes.

    Safe beside a running flusher, whose merges go first. If they keep changing the same fragments, this command gives
    up with exit code 3; `lancewal pause flusher --for 10m` keeps them away. Needs `table.uri`.

    Example: lancewal compact --all --dry-run
    """
    settings = choosing(asked.settings(), runner)
    with nullcontext() if dry_run else session_for(settings):
        summary = _run(settings, everything, dry_run)
    if isinstance(summary, str):
        asked.report({"refused": summary}, f"nothing can be compacted now: {summary}")
        return
    asked.report(asdict(summary), summary_text(summary, dry_run))
    if summary.indexes_refused:
        raise typer.Exit(1)


def _run(settings: Settings, everything: bool, dry_run: bool) -> CompactionSummary | str:
    """Compact, or with ``--dry-run`` find what a compaction would do.  Return the summary, or the reason why nothing
    can be done now.
    """
    from lancewal_flusher.commit.send import Refused
    from lancewal_flusher.open import open_context
    from lancewal_flusher.service.limits import compaction_limits
    from lancewal_flusher.upkeep.compact_all import compact_to_the_end, look

    limits = compaction_limits(settings.flusher)
    with open_context(settings, on_threads=dry_run) as context:
        if dry_run:
            found = look(context, limits, with_sentinel=everything)
            return found.reason if isinstance(found, Refused) else found
        with stop_signals() as stopping:
            return compact_to_the_end(context, limits, with_sentinel=everything, stopping=stopping)


def summary_text(summary: CompactionSummary, dry_run: bool) -> str:
    """Return the summary as text for people."""
    lines = [
        f"{'would compact' if dry_run else 'compacted'} in {counted(summary.rounds, 'round')}: "
        f"{counted(summary.fragments_before, 'fragment')} to {summary.fragments_after}, "
        f"{counted(summary.rows_dropped, 'hidden row')} dropped, {summary.bytes_read} bytes read, "
        f"{summary.bytes_written} written",
        *(f"index {name} extended" for name in summary.indexes_extended),
        *(f"index not extended: {reason}" for reason in summary.indexes_refused),
    ]
    return "\n".join(lines)
