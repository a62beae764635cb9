"""``lancewal get``: the rows of some primary keys."""

from __future__ import annotations

from typing import Annotated

import typer

from lancewal_core.cli.output import say
from lancewal_reader.commands.options import RowsAsked, names_of, say_left_out, say_receipt


def command(
    asked: RowsAsked,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY",
            help="A value; JSON if the primary key has several columns. A value may begin with a - after --.",
        ),
    ],
) -> None:
    """Show the rows of primary keys, in the order of the keys. Keys that the key index covers are found without a scan.

    A key is written as `lancewal read -o jsonl` shows its value: text as it is, 42, true, 2026-01-31. A time is
    written in ISO 8601, a binary value in base64. A key of several columns is a JSON list in the order of the primary
    key, or a JSON object.  Keys without a row are named on stderr. The receipt is printed last, on stderr. It names
    the state that was read, as a word that --at takes.

    Example: lancewal get '["north", 17]' '{"region": "south", "id": 4}' -t s3://lake/orders -o jsonl
    """
    from lancewal_reader.forms.key_text import keys_of_texts, without_row

    destination = asked.destination()
    read = asked.read()
    opened = asked.open()
    wanted = keys_of_texts(opened.contract.rows, keys)
    names = names_of(asked.columns) or list(opened.schema.names)
    # Which keys have no row shows in the columns of the key.
    rows = opened.get(wanted, [*names, *(n for n in wanted.schema.names if n not in names)], **read).to_arrow()
    say_left_out(rows.schema)
    destination.write(rows.select(names).to_reader())
    for key in without_row(wanted, rows):
        say(f"no row: {key}", err=True)
    say_receipt(rows.schema)
