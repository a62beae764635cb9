"""``lancewal gc``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.options import Asked, DryRunOption
from lancewal_core.cli.output import aligned, one_line
from lancewal_core.errors import DAMAGED, InvalidInput, counted
from lancewal_core.process.stop_signals import stop_signals

if TYPE_CHECKING:
    from lancewal_flusher.garbage.collect_all import GarbageSummary
    from lancewal_flusher.garbage.kinds import CountedObjects

ORPHANS_SHOWN = 20


def command(
    asked: Asked,
    dry_run: DryRunOption = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait for the grace period of objects that are unreferenced now, and delete them."),
    ] = False,
) -> None:
    """Delete objects that are merged and older than the history window, as the flusher does, and report orphaned objects.

    Safe beside a running flusher. Refused while the flusher is paused, except for --dry-run. Needs `table.uri`.

    Example: lancewal gc --dry-run
    """
    from lancewal_flusher.garbage.collect_all import collect_to_the_end, look
    from lancewal_flusher.open import open_context

    if dry_run and wait:
        raise InvalidInput("--dry-run deletes nothing, so there is nothing to --wait for: give one of them")
    settings = asked.settings()
    with open_context(settings, on_threads=True) as context:
        if dry_run:
            summary = look(context)
        else:
            with stop_signals() as stopping:
                summary = collect_to_the_end(context, wait=wait, stopping=stopping)
    asked.report(asdict(summary), summary_text(summary, dry_run))
    if summary.damaged or summary.names_fault:
        raise typer.Exit(DAMAGED)


def summary_text(summary: GarbageSummary, dry_run: bool) -> str:
    """Return the summary as text for people."""
    after = f"after the grace period of {summary.grace_s} s"
    later = f"would delete {after}" if dry_run else f"left for a running flusher, or --wait, to delete {after}"
    lines = [
        *_groups("would delete at once" if dry_run else "deleted", summary.deleted),
        *_groups(later, summary.waiting),
        f"{'would trim' if dry_run else 'trimmed'}:{'' if summary.trimmed else ' nothing'}",
        *(f"  {t.region}  generations {t.first} to {t.last}" for t in summary.trimmed),
    ]
    if summary.expired_versions:
        act = "would remove" if dry_run else "removed"
        lines.append(f"{act} table versions older than the version window: {summary.expired_versions}")
    if summary.dropped_snapshots:
        act = "would drop" if dry_run else "dropped"
        lines.append(f"{act} snapshots whose time is over: {', '.join(summary.dropped_snapshots)}")
    if summary.orphans:
        lines.append(f"left alone, {counted(len(summary.orphans), 'object')} that nothing accounts for:")
        lines += [
            f"  {one_line(orphan.key)}  {orphan.bytes} bytes: {orphan.reason}"
            for orphan in summary.orphans[:ORPHANS_SHOWN]
        ]
        if len(summary.orphans) > ORPHANS_SHOWN:
            lines.append(f"  and {len(summary.orphans) - ORPHANS_SHOWN} more: --output json lists them")
    for partition, error in summary.damaged.items():
        lines.append(f"until {partition} is repaired, none of its objects and no logs are deleted: {one_line(error)}")
    if summary.names_fault is not None:
        lines.append(f"no version of the table is removed, and no snapshot dropped: {one_line(summary.names_fault)}")
    if summary.expired_rows is not None:
        lines.append(f"rows that have expired, which the flusher hides: {summary.expired_rows}")
    unnamed = summary.loose_data
    if unnamed is None:
        lines.append(
            "data files: not counted, since a flush that is to be merged, or its region's state, cannot be read"
        )
    elif unnamed.files:
        lines.append(
            f"data files older than a day that neither the newest version nor a flush names: {unnamed.files}, "
            f"{unnamed.bytes} bytes; Lance's clean-up of versions decides about them"
        )
    return "\n".join(lines)


def _groups(title: str, groups: Iterable[CountedObjects]) -> list[str]:
    rows = [(group.kind, counted(group.objects, "object"), f"{group.bytes} bytes") for group in groups]
    if not rows:
        return [f"{title}: nothing"]
    return [f"{title}:", *(f"  {line}" for line in aligned(rows, figures=(2,)))]
