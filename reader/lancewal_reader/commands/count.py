"""``lancewal count``: how many rows a table has."""

from __future__ import annotations

from lancewal_core.cli.options import Output, OutputOption
from lancewal_core.cli.output import say, say_json
from lancewal_reader.commands.options import FilterOption, ReadAsked, say_left_out, say_receipt


def command(
    asked: ReadAsked,
    filter: FilterOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Count the rows of a table as of now, or at a point. Without --filter no row of the merged table is read, except
    for keys that the key index does not cover.

    The receipt is printed last, on stderr. It names the state that was counted, as a word that --at takes.

    Example: lancewal count -t s3://lake/orders --filter "status = 'open'"
    """
    from lancewal_reader.point.receipt import receipt_of
    from lancewal_reader.table import counted

    read = asked.read()
    rows, schema = counted(asked.open(), filter or None, **read)
    say_left_out(schema)
    if output is Output.JSON:
        say_json({"rows": rows, "receipt": str(receipt_of(schema))})
    else:
        say(str(rows))
    say_receipt(schema)
