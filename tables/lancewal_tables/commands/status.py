"""``lancewal status``: the positions and the lag of every partition of a table, and where its records stop."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.named import partition_named
from lancewal_core.cli.options import Asked, Output
from lancewal_core.cli.output import aligned, figure, json_text, one_line, say, say_json
from lancewal_core.errors import counted
from lancewal_core.process.clock import Clock, SystemClock, utc_text

if TYPE_CHECKING:
    from lancewal_core.process.status.diagnose import Diagnosis
    from lancewal_core.process.status.report import CutStatus, PartitionStatus, SubscriptionStatus, TableStatus
    from lancewal_core.process.status.widenings import OpenWidening
    from lancewal_core.table.contract import Contract

WATCH_S = 2.0
"""Seconds between two reads of the status with ``--watch``.  Each reads the whole state of the table, so the interval
is not shorter."""
_CLEAR = "\x1b[H\x1b[2J"


def command(
    asked: Asked,
    partition: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PARTITION", help="Show only these: numbers, or TOPIC-NUMBER as in messages; by default all."
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every two seconds, until interrupted.")] = False,
    reader_version: Annotated[
        int | None,
        typer.Option(
            help="Version of the table that a reader has open: `version` of its Lance dataset, or of its receipt. "
            "By default the newest, which a reader that opens the table now sees.",
            min=1,
        ),
    ] = None,
) -> None:
    """Show the positions of every partition, from Kafka to a reader, and name the first step at which records stop.

    Exit code 1: there is a problem to report. A partition that does not move although records wait is a problem. A
    partition is also a problem if none of its newest records became a row, even if older records did. A lost or damaged
    object that strong reads need is also a problem. A topic without records, an operator's pause, and rows that wait
    for their seal or merge are not problems. To find out why ingest stopped a partition, look at the log of the ingest
    process, or at its `/readyz` or `/status`.

    The output names what the command did not check, and what it cannot find out. With PARTITION, problems of other
    partitions do not count, unless they prevent strong reads. Problems of the whole table count.

    Example: lancewal status -t s3://lake/orders
    """
    from lancewal_tables.status.status import table_status

    settings = asked.settings()
    settings.need("table.uri")

    def named(contract: Contract) -> Collection[int]:
        every = range(contract.partitions)
        return {partition_named(text, contract) for text in partition} if partition else every

    def look() -> TableStatus:
        return table_status(settings, settings.table.uri, reader_version=reader_version, named=named)

    if watch:
        watched(look, asked.output, SystemClock(), clear=sys.stdout.isatty())
    status = look()
    if asked.as_json:
        say_json(asdict(status))
    else:
        say(status_text(status))
        if status.problems:
            say(_why_1(len(status.problems)), err=True)
    if status.problems:
        raise typer.Exit(1)


def watched(
    look: Callable[[], TableStatus],
    output: Output,
    clock: Clock,
    *,
    clear: bool,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Print the status that ``look`` returns, every ``WATCH_S`` seconds until ``stopping`` returns True.

    As JSON, each result is an object on one line.  ``clear``: clear the screen before each result.
    """
    while not stopping():
        status = look()
        if output is Output.JSON:
            typer.echo(json_text(json.dumps(asdict(status))))
        else:
            if clear:
                typer.echo(_CLEAR, nl=False, color=True)  # `clear` is false for a file, so keep the escape codes
            say(f"at        {utc_text(status.at_ms)}\n{status_text(status)}\n")
        clock.sleep(WATCH_S)


_IN_CONFLICT = "conflicts {} that came through two partitions, to be decided: `lancewal conflict list`"
_OLDER = "older     {} written before the newest change of columns, not merged yet"
_TITLES = (
    *("partition", "kafka", "durable", "flushed", "merged", "read", "lag"),
    *("unmerged rows", "unmerged bytes", "generations", "state", "owner"),
)
_FIGURES = range(9)


def status_text(status: TableStatus) -> str:
    """Return the status as text: the table, where records stop, one aligned line for each partition, the problems."""
    primary, region = (one_line(", ".join(names)) for names in (status.primary_key, status.region_key))
    lines = [
        f"table     {_named(status)}",
        f"version   {figure(status.table_version)}, {_figures(status.table_rows, 'row')} in "
        f"{_figures(status.table_fragments, 'fragment')}",
        f"topic     {status.topic} ({status.topic_id}), {_partitions(status)}",
        f"keys      primary {primary}; region {region or 'record key'}",
        f"contract  version {status.contract_version}, table {one_line(status.table_uuid)}",
        f"group     {one_line(status.group)}, {_members(status.group_members)}",
        *_foreign_columns(status),
        *(f"paused    {service} {_until(until)}" for service, until in status.paused.items()),
        *([_IN_CONFLICT.format(counted(status.keys_in_conflict, "key"))] if status.keys_in_conflict else []),
        *([_OLDER.format(counted(status.older_contract_rows, "row"))] if status.older_contract_rows else []),
        *map(_widening, status.widenings),
        *map(_subscription, status.subscriptions),
        *map(_cut, status.cuts),
        *_diagnosis(status.diagnosis),
        "",
    ]
    rows = [_TITLES, *(_cells(partition) for partition in status.partitions)]
    lines += aligned(rows, figures=_FIGURES)
    rejected = [found for found in status.partitions if found.rejections.records]
    lines += ["", *map(_rejected, rejected)] if rejected else []
    if status.not_looked_at:
        lines += ["", f"not looked at: {'; '.join(map(one_line, status.not_looked_at))}"]
    if status.unknown:
        lines += ["", f"not known from here: {'; '.join(map(one_line, status.unknown))}"]
    advice = f". {status.diagnosis.do}" if status.diagnosis.do else ""
    problems = (problem.removesuffix(advice) for problem in status.problems)  # it stands above
    return "\n".join([*lines, *(f"\nproblem: {one_line(problem)}" for problem in problems)])


def _named(status: TableStatus) -> str:
    uri = one_line(status.uri)
    return uri if status.name is None else f"{status.name}, {uri}"


def _why_1(problems: int) -> str:
    of = "the problem above: it wants" if problems == 1 else f"the {problems} problems above: each wants"
    return f"exit code 1, for {of} a person"


def _diagnosis(found: Diagnosis) -> list[str]:
    """Return one line with the step at which the table's records stop, and, if there is something to do, a line with
    that."""
    return [
        f"state     {found.state} at {found.step}: {found.kind}: {one_line(found.message)}",
        *([f"do        {one_line(found.do)}"] if found.do else []),
    ]


def _foreign_columns(status: TableStatus) -> list[str]:
    if not status.foreign_columns:
        return []
    from lancewal_core.table.columns.changes import option

    paths = [tuple(name.split(".")) for name in status.foreign_columns]
    options = " ".join(f"--adopt-column {shlex.quote(option(path))}" for path in paths)
    return [
        f"columns   of other programs: {one_line(', '.join(status.foreign_columns))}. To take them into the contract, so that "
        f"records may set them: `lancewal table alter {one_line(options)}`"
    ]


def _widening(found: OpenWidening) -> str:
    types = f"{found.old_type} to {found.new_type}"
    return f"widening  {one_line(found.field)}: {one_line(types)}, asked for at {utc_text(found.since_ms)}"


def _cut(found: CutStatus) -> str:
    until = "until it is dropped" if found.until_ms is None else f"until {utc_text(found.until_ms)}"
    return (
        f"kept cut  {found.name}: {_figures(found.nbytes, 'byte')} held by snapshot {one_line(found.snapshot)}, {until}"
    )


def _subscription(found: SubscriptionStatus) -> str:
    lag = "something that it needs is gone" if found.lag_s is None else f"{found.lag_s:.0f} s behind"
    holds = "" if found.holds else ": it holds nothing more"
    return f"consumer  subscription {found.name} at version {found.version}, {lag}{holds}"


def _rejected(found: PartitionStatus) -> str:
    few = found.rejections
    return (
        f"rejected: partition {found.partition}: {few.records} of the newest "
        f"{counted(few.records + few.rows, 'record')}, most often {one_line(few.kind)}, as at offset {few.offset}"
    )


def _until(until: int | str) -> str:
    from lancewal_core.table.control import until_text

    return until_text(until) if isinstance(until, int) else until_text("resumed")


def _members(members: int | None) -> str:
    return "number of members unknown" if members is None else counted(members, "member")


def _partitions(status: TableStatus) -> str:
    shown, all_ = len(status.partitions), status.topic_partitions
    return counted(all_, "partition") if shown == all_ else f"{shown} of {counted(all_, 'partition')}"


def _figures(value: int | None, noun: str) -> str:
    return f"- {noun}s" if value is None else counted(value, noun)


def _cells(partition: PartitionStatus) -> tuple[str, ...]:
    generations = ", ".join(f"{count} {state}" for state, count in partition.generations.items())
    found = partition.diagnosis
    positions = (partition.high, partition.durable, partition.flushed, partition.merged, partition.read, partition.lag)
    return (
        str(partition.partition),
        *map(figure, positions),
        str(partition.unmerged_rows),
        str(partition.unmerged_bytes),
        generations or "-",
        f"{found.step}: {one_line(found.kind)}",
        one_line(partition.owner or "-"),
    )
