"""``lancewal read``: rows of a table on stdout, the receipt on stderr."""

from __future__ import annotations

from typing import Annotated

import typer

from lancewal_reader.commands.options import FilterOption, RowsAsked, names_of, say_left_out, say_receipt


def command(
    asked: RowsAsked,
    filter: FilterOption = "",
    limit: Annotated[
        int | None, typer.Option(min=0, help="Largest number of rows to read, in any order; all by default.")
    ] = None,
) -> None:
    """Read a table as of now, or again as at a point: merged and unmerged rows together.

    The receipt is printed last, on stderr. It names the state that was read, as a word that --at takes.

    Example: lancewal read -t s3://lake/orders --columns id,total --filter "total > 10" -o csv
    """
    destination = asked.destination()
    read = asked.read()
    opened = asked.open()
    rows = opened.to_batches(names_of(asked.columns), filter or None, limit, **read)
    say_left_out(rows.schema)
    destination.write(rows)
    say_receipt(rows.schema)
