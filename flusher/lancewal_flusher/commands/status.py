"""``lancewal status``: how far every region of a table has come."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from lancewal_core.cli.options import ConfigOption, Output, OutputOption, StorageOption, TableOption, read_settings
from lancewal_core.cli.output import aligned, one_line, say, say_json
from lancewal_core.table.control import until_text

if TYPE_CHECKING:
    from lancewal_flusher.status.status import RegionStatus, TableStatus


def command(
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show how far every partition has come: lag, durable and merged positions, what is not merged yet.

    Exit code 1 where it has to report a problem, such as a partition that goes no further although records wait (why a
    running ingest has stopped it, only its log and `/readyz` know), or something that strong reads need and that is lost or
    damaged. What it has not looked at, it says.

    Example: lancewal status -t s3://lake/orders
    """
    from lancewal_flusher.status.status import table_status

    settings = read_settings(config, table, storage_option)
    settings.need("table.uri")
    status = table_status(settings, settings.table.uri)
    if output is Output.JSON:
        say_json(asdict(status))
    else:
        say(status_text(status))
    if status.problems:
        raise typer.Exit(1)


_IN_CONFLICT = "conflicts {} keys came through two partitions and wait for a decision: `lancewal conflict list`"
_TITLES = ("partition", "lag", "durable", "merged", "unmerged rows", "unmerged bytes", "generations", "owner")


def status_text(status: TableStatus) -> str:
    """The status for people: the table, one aligned line for each region, the problems."""
    primary, region = (one_line(", ".join(names)) for names in (status.primary_key, status.region_key))
    lines = [
        f"table     {one_line(status.uri)}",
        f"version   {status.table_version}, {status.table_rows} rows in {status.table_fragments} fragments",
        f"topic     {status.topic} ({status.topic_id}), {len(status.regions)} partitions",
        f"keys      primary {primary}; region {region or 'record key'}",
        f"contract  version {status.contract_version}, table {one_line(status.table_uuid)}",
        f"group     {one_line(status.group)}, {_counted(status.group_members)}",
        *(f"paused    {service} {until_text(until)}" for service, until in status.paused.items()),
        *([_IN_CONFLICT.format(status.keys_in_conflict)] if status.keys_in_conflict else []),
        "",
    ]
    rows = [_TITLES, *(_cells(region) for region in status.regions)]
    lines += aligned(rows, figures=range(len(_TITLES) - 2))
    if status.not_looked_at:
        lines += ["", f"not looked at: {'; '.join(map(one_line, status.not_looked_at))}"]
    return "\n".join([*lines, *(f"\nproblem: {one_line(problem)}" for problem in status.problems)])


def _counted(members: int | None) -> str:
    if members is None:
        return "members not known"
    return "1 member" if members == 1 else f"{members} members"


def _cells(region: RegionStatus) -> tuple[str, ...]:
    def figure(value: int | None) -> str:
        return "-" if value is None else str(value)

    generations = ", ".join(f"{count} {state}" for state, count in region.generations.items())
    return (
        str(region.partition),
        figure(region.lag),
        figure(region.durable),
        figure(region.merged),
        str(region.unmerged_rows),
        str(region.unmerged_bytes),
        generations or "-",
        one_line(region.owner or "-"),
    )
