"""``lancewal search``: rows by vectors, by words, or by both."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from lancewal_core.cli.output import say
from lancewal_core.errors import InvalidInput, counted
from lancewal_core.store.json_object import JsonFault, parse_value
from lancewal_reader.commands.options import FilterOption, RowsAsked, names_of, say_left_out, say_receipt


def command(
    asked: RowsAsked,
    vector: Annotated[
        str,
        typer.Option(
            help="A file with one vector, a JSON list of numbers, or with a list of vectors; - for stdin.",
            metavar="FILE",
        ),
    ] = "",
    text: Annotated[
        str, typer.Option(help="Words to search for. Rows with any of them are found.", metavar="WORDS")
    ] = "",
    filter: FilterOption = "",
    limit: Annotated[int, typer.Option(min=1, help="Number of best rows to show, for each vector.")] = 10,
    vector_column: Annotated[
        str, typer.Option(help="Column to search, where several have vectors.", metavar="NAME")
    ] = "",
    metric: Annotated[
        Literal["l2", "cosine", "dot", "hamming"] | None,
        typer.Option(help="Distance; by default hamming for binary vectors, else the index's metric, else l2."),
    ] = None,
    text_columns: Annotated[
        str,
        typer.Option(
            help="Comma-separated columns to search; the best one gives the score. Needed if several may be meant.",
            metavar="NAMES",
        ),
    ] = "",
    exact: Annotated[bool, typer.Option("--exact", help="Compare every row, without an index.")] = False,
) -> None:
    """Find the rows nearest to a vector, the best by words, or the best by both, unmerged rows too.

    After the columns come the distances or scores of the rows. On stderr the command prints how many rows were
    searched in which way, and the receipt. The receipt names the state that was searched, as a word that --at takes.

    Example: lancewal search -t s3://lake/notices --text "flood warning" --filter "price < 20" --columns id,title
    """
    destination = asked.destination()
    read = asked.read()
    sought = _vector_of(vector) if vector else None
    opened = asked.open()
    found = opened.search(
        sought,
        text or None,
        filter=filter or None,
        limit=limit,
        columns=names_of(asked.columns),
        vector_column=vector_column or None,
        metric=metric,
        text_columns=names_of(text_columns),
        exact=exact,
        **read,
    )
    say_left_out(found.schema)
    destination.write(found.to_arrow().to_reader())
    covered = found.coverage
    say(
        f"searched: {counted(covered.indexed_rows, 'row')} by an index, {covered.flat_rows} one by one, "
        f"{covered.fresh_rows} unmerged; {counted(covered.masked_rows, 'merged row')} hidden",
        err=True,
    )
    if covered.approximate is not None:
        say(f"approximate: {covered.approximate}", err=True)
    say_receipt(found.schema)


def _vector_of(file: str) -> object:
    try:
        return parse_value(sys.stdin.read() if file == "-" else Path(file).read_bytes())
    except OSError as error:
        raise InvalidInput(
            f"--vector {file}: expected a file with a JSON list of numbers: {error.strerror or error}"
        ) from error
    except JsonFault as fault:
        raise InvalidInput(f"--vector {file}: expected a JSON list of numbers: {fault}") from fault
