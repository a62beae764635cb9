"""``lancewal snapshot create|list|drop``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import TABLE_HELP, Asked, DryRunOption, SettingsAsked, YesOption, agree
from lancewal_core.cli.output import aligned, one_line
from lancewal_core.errors import InvalidInput

if TYPE_CHECKING:
    from lancewal_core.settings.load import Settings
    from lancewal_core.table.protocol import StoredTable

app = CommandApp(
    help="Make, list and drop named snapshots. Each keeps a table's rows, unmerged ones too, until dropped."
)

NameArgument = Annotated[str, typer.Argument(help="Name of the snapshot.", show_default=False)]


@dataclass(frozen=True, slots=True)
class TablesAsked(SettingsAsked):
    """Options of a command for one or several tables."""

    table: Annotated[list[str] | None, typer.Option("--table", "-t", help=TABLE_HELP, metavar="ADDRESS")] = None


@app.command()
def create(
    asked: TablesAsked,
    name: NameArgument,
    at: Annotated[
        str,
        typer.Option(
            help="A point, as for `lancewal read --at`; by default all rows that are durable.", metavar="POINT"
        ),
    ] = "",
    duration: Annotated[
        str,
        typer.Option("--for", help="Let garbage collection drop it after this time, such as 30d.", metavar="DURATION"),
    ] = "",
) -> None:
    """Keep the table's rows, unmerged ones too, under a name. The snapshot is a Lance branch, which plain Lance reads.

    To read it, give `snapshot:NAME` as the point.  Give `-t` once for each of several tables that one topic feeds: all are
    kept at the same positions.

    Example: lancewal snapshot create end-of-month --for 30d
    """

    from lancewal_core.table.snapshots import about
    from lancewal_flusher.open import open_context
    from lancewal_reader.point.at import point_of
    from lancewal_reader.table import CACHE_BYTES_MAX, reads_of
    from lancewal_tables.snapshots.together import make_together

    for_ms = _duration_ms(duration) if duration else None
    point = point_of(at) if at else None
    with ExitStack() as stack:
        opened, tables = [], asked.table or [""]
        for uri in tables:
            settings = Asked(uri, asked.config, asked.storage_option).settings()
            context = stack.enter_context(open_context(settings, on_threads=True))
            opened.append((context, reads_of(context, settings.table.uri, CACHE_BYTES_MAX // len(tables))))
        made = make_together(opened, name, point, for_ms)
        found: list[dict[str, object]] = [
            {"table": reads.uri, **about(one.snapshot), "unmerged_rows": one.rows, "hidden_rows": one.hidden}
            for (_, reads), one in zip(opened, made, strict=True)
        ]
    lines = []
    for one in found:
        until = f", until {one['until']}" if one["until"] else ""
        rows = f"version {one['version']}, unmerged rows: {one['unmerged_rows']}{until}"
        lines += [f"snapshot {name} of {one_line(str(one['table']))}: {rows}", f"receipt: {one['receipt']}"]
    asked.report({"snapshots": found}, "\n".join(lines))


@app.command("list")
def list_all(asked: Asked) -> None:
    """List the table's snapshots.

    Example: lancewal snapshot list
    """
    from lancewal_core.table.snapshots import about, readable_snapshots

    opened = _table(asked.settings())
    readable, unreadable = readable_snapshots(opened)
    faults = [fault for fault in (*unreadable, opened.names_fault()) if fault is not None]
    found = [about(snapshot) for snapshot in readable]
    if found or asked.as_json or not faults:
        asked.report({"snapshots": found}, "\n".join(aligned([_row(one) for one in found])) or "no snapshots")
    if faults:
        raise faults[0]  # after the sound ones are shown


@app.command()
def drop(
    asked: Asked,
    name: NameArgument,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Drop a snapshot, and the files that only it needs. An unfinished snapshot can be dropped too.

    Example: lancewal snapshot drop end-of-month --yes
    """
    from lancewal_flusher.garbage.snapshots import drop_snapshot

    opened = _table(asked.settings())
    if not dry_run:
        agree(yes, f"snapshot {name} is dropped")
    drop_snapshot(opened, name, look_only=dry_run)
    asked.report_dropped("snapshot", name, dry_run=dry_run)


def _table(settings: Settings) -> StoredTable:
    from lancewal_core.open import Address

    address = Address.of(settings)
    address.contract()  # raises an error unless it is a lancewal table
    return address.table()


def _row(one: Mapping[str, object]) -> list[str]:
    until = "until it is dropped" if one["until"] is None else f"until {one['until']}"
    return [str(one["name"]), f"made {one['created_at']}", until, f"version {one['version']}"]


def _duration_ms(text: str) -> int:
    from lancewal_core.settings.durations import EXPECTED, duration_s

    seconds = duration_s(text)
    if seconds is None or seconds <= 0:
        raise InvalidInput(f"--for {text}: {EXPECTED}, above 0")
    return int(seconds * 1000)
