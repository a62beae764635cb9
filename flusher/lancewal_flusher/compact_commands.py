"""``lancewal compact``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.config_commands import ConfigOption, Output, OutputOption, read_settings

if TYPE_CHECKING:
    from lancewal_flusher.compact_to_the_end import CompactionSummary


def command(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Take the sentinel too; merges under way are then planned again.")
    ] = False,
    config: ConfigOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Write small and worn fragments anew until none is left, and extend secondary indexes.

    Safe beside a running flusher, whose merges go first: where they keep changing the same fragments this command gives
    up with exit code 1, and `lancewal pause flusher --for 10m` keeps them away.  Needs `table.uri`.
    """
    from contextlib import ExitStack

    import structlog

    from lancewal_core.stop_signals import stop_signals
    from lancewal_flusher.compact_to_the_end import compact_to_the_end, look
    from lancewal_flusher.compaction_limits import compaction_limits
    from lancewal_flusher.service import open_context

    settings = read_settings(config)
    limits = compaction_limits(settings.flusher)
    log = structlog.get_logger("lancewal.compact")
    with ExitStack() as stack:
        context = open_context(settings, stack, merging=False)
        if dry_run:
            summary = look(context, limits, with_sentinel=everything)
        else:
            summary = compact_to_the_end(
                context,
                limits,
                with_sentinel=everything,
                landed=lambda done: log.info("compacted", **asdict(done)),
                refused=lambda reason: log.info("compaction refused", reason=reason),
                stopping=stack.enter_context(stop_signals()),
            )
    typer.echo(json.dumps(asdict(summary), indent=1) if output is Output.JSON else summary_text(summary, dry_run))
    if summary.indexes_refused:
        raise typer.Exit(1)


def summary_text(summary: CompactionSummary, dry_run: bool) -> str:
    """The summary for people."""
    lines = [
        f"{'would compact' if dry_run else 'compacted'} in {summary.rounds} rounds: {summary.fragments_before} fragments "
        f"to {summary.fragments_after}, {summary.rows_dropped} hidden rows dropped, {summary.bytes_read} bytes read, "
        f"{summary.bytes_written} written",
        *(f"index {name} extended" for name in summary.indexes_extended),
        *(f"index not extended: {reason}" for reason in summary.indexes_refused),
    ]
    return "\n".join(lines)
