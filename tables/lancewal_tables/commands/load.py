"""``lancewal table load``: load files into a table in bulk."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.options import Asked, DryRunOption
from lancewal_core.errors import MAY_PASS, InvalidInput, counted
from lancewal_core.process.clock import utc_text
from lancewal_core.process.stop_signals import stop_signals
from lancewal_flusher.event_table import FlusherEvents
from lancewal_tables.load.duplicates import Duplicates

if TYPE_CHECKING:
    from lancewal_core.table.load_record import LoadRecord
    from lancewal_tables.load.whole import LoadSummary


def command(
    asked: Asked,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Parquet or Arrow IPC files, or folders of them; local or s3://.", metavar="FILE"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the load; by default it follows from the files' names and sizes."),
    ] = None,
    duplicates: Annotated[
        Duplicates,
        typer.Option(help="Policy for a key that the files have twice: stop, or load its last row."),
    ] = Duplicates.ERROR,
    begin: Annotated[
        bool,
        typer.Option("--begin", help="Only begin the load --name: keys that Kafka deletes from now on stay deleted."),
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Load files into a table: insert the rows whose key has no row yet. Records from Kafka count as newer.

    Services may run meanwhile. Run the command again after an error: it adds the rows that are missing. A row whose key
    was deleted by a record from Kafka before the load began comes back. To prevent that, run the command with --begin
    before the files are written.  --dry-run reads the files and counts the rows that would be inserted now.

    Example: lancewal table load exports/ --name orders-2026 --duplicates last
    """
    from lancewal_core.open import Address
    from lancewal_tables.load.whole import begin as begin_load
    from lancewal_tables.load.whole import load_files

    if begin and (files or name is None):
        raise InvalidInput("--begin needs a --name, and accepts no files: load them under this name afterwards")
    if not begin and not files:
        raise InvalidInput("name at least one file or folder to load")
    settings = asked.settings()
    if begin:
        began = begin_load(settings, str(name), look_only=dry_run)
        content = {**began.model_dump(mode="json"), "dry_run": dry_run}
        asked.report(content, began_text(str(name), began), dry_run=dry_run)
        return
    address = Address.of(settings)
    events = FlusherEvents(table=address.name_of(address.contract()))
    with stop_signals() as stopping:
        summary = load_files(
            settings,
            files or [],
            name=name,
            duplicates=duplicates,
            look_only=dry_run,
            landed=lambda part: part.log(events),
            stopping=stopping,
        )
    asked.report({**asdict(summary), "dry_run": dry_run}, summary_text(summary, dry_run=dry_run), dry_run=dry_run)
    if not summary.finished:
        raise typer.Exit(MAY_PASS)


def began_text(name: str, began: LoadRecord) -> str:
    """Return the sentence that says when a load began."""
    return f"load {name} began at {utc_text(began.began_at_ms)}: keys that Kafka has deleted since stay deleted"


def summary_text(summary: LoadSummary, *, dry_run: bool = False) -> str:
    """Return the summary of a load as text for people."""
    are = "would be inserted" if dry_run else "inserted"
    left_out = [
        (summary.present, "whose key had a row"),
        (summary.deleted, "whose key Kafka has deleted since the load began"),
        (summary.doubled, "with a later row of the same key"),
        (summary.appended, "whose key somebody appended at the same time"),
    ]
    lines = [
        f"load {summary.name}: {summary.inserted} of {counted(summary.rows, 'row')} of {counted(summary.files, 'file')} "
        f"{are}, in {counted(summary.commits, 'commit')}",
        *(f"left out: {count} {why}" for count, why in left_out if count),
    ]
    if not summary.finished:
        lines.append("stopped before the end; run the same command to continue")
    return "\n".join(lines)
