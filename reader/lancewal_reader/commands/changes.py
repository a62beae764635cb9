"""``lancewal changes``: what changed between two points, on stdout, and the receipt on stderr."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from lancewal_core.errors import InvalidInput
from lancewal_reader.commands.options import (
    ColumnsOption,
    FilterOption,
    FormOption,
    GuardOption,
    OpenAsked,
    ToOption,
    names_of,
    say_left_out,
    say_receipt,
)
from lancewal_reader.forms.row_output import Destination


@dataclass(frozen=True, slots=True)
class ChangesAsked(OpenAsked):
    """Options of ``lancewal changes``."""

    start: Annotated[
        str,
        typer.Option(
            help="The start of the changes: a point, as for lancewal read --at; or earliest (the empty table), or now.",
            metavar="POINT",
        ),
    ] = ""
    subscription: Annotated[
        str,
        typer.Option(
            help="Start at this subscription's receipt, and commit the receipt of each batch that was written.",
            metavar="NAME",
        ),
    ] = ""
    end: Annotated[
        str, typer.Option(help="The end of the changes: a point, or now (the default).", metavar="POINT")
    ] = ""
    mode: Annotated[
        Literal["net", "commits", "all"],
        typer.Option(
            help="net: at most one change for each key; commits: the changes of each table version; all: each record."
        ),
    ] = "net"
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with later changes, as JSON lines, until interrupted.")
    ] = False
    columns: ColumnsOption = ""
    output: FormOption = "text"
    to: ToOption = None
    guard_formulas: GuardOption = False


def command(asked: ChangesAsked, filter: FilterOption = "") -> None:
    """Show what changed after --start, up to --end: inserts, deletes, and updates with the row before and after.

    The receipt is printed last, on stderr: it is the --start of the next call. With --follow there is one after each
    batch of rows. With --subscription each receipt is committed, once its rows are written.

    Example: lancewal changes -t s3://lake/orders --start version:412 --columns id,total -o jsonl
    """
    from lancewal_reader.subscriptions import losses_named

    if bool(asked.start) == bool(asked.subscription):
        given = "both are given" if asked.start else "neither is given"
        raise InvalidInput(
            f"give --start, such as the receipt of an earlier read or earliest, or --subscription: {given}"
        )
    if asked.follow and (asked.end or asked.to or asked.output not in ("text", "jsonl")):
        raise InvalidInput("--follow writes JSON lines to stdout, without an end: leave out --end, --to and --output")
    form = "jsonl" if asked.follow else asked.output
    destination = Destination(form, asked.to, asked.guard_formulas)
    table, columns, where = asked.open(), names_of(asked.columns), filter or None
    subscriptions, name = table.subscriptions(), asked.subscription
    followed = subscriptions.get(name) if name else None
    start = followed.receipt if followed else asked.start
    end = asked.end or "now"
    later = table.follow(start, asked.mode, columns, where) if asked.follow else None
    with losses_named(name or None):
        for rows in later or [table.changes(start, end, asked.mode, columns, where)]:
            say_left_out(rows.schema)
            destination.write(rows.to_reader())
            if followed:
                subscriptions.commit(followed, rows.receipt)
            say_receipt(rows.schema)
