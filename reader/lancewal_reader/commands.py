"""``lancewal read``: rows of a table on stdout, the receipt on stderr."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, assert_never

import typer

from lancewal_core.cli.options import ConfigOption, StorageOption, TableOption, read_settings
from lancewal_core.cli.output import aligned, json_text, one_line, say
from lancewal_core.errors import InvalidInput
from lancewal_core.settings.durations import EXPECTED, duration_s

if TYPE_CHECKING:
    import pyarrow as pa

_FORMULA = ("=", "+", "-", "@", "\\t", "\\r")
"""What spreadsheets take for the beginning of a formula; tab and carriage return as they are shown."""


class Output(StrEnum):
    """What rows are written as.  ``jsonl``: one object a line; ``arrow``: an Arrow IPC file."""

    TEXT = "text"
    JSONL = "jsonl"
    CSV = "csv"
    ARROW = "arrow"


class Consistency(StrEnum):
    STRONG = "strong"
    EVENTUAL = "eventual"


class Conflicts(StrEnum):
    LEAVE_OUT = "leave-out"
    FAIL = "fail"


def command(
    columns: Annotated[str, typer.Option(help="Comma-separated names; all by default.", metavar="NAMES")] = "",
    filter: Annotated[
        str, typer.Option(help="A Lance SQL condition, e.g. \"status = 'open' AND amount > 10\".", metavar="SQL")
    ] = "",
    consistency: Annotated[
        Consistency, typer.Option(help="strong: every row durable before the call; eventual: the merged table alone.")
    ] = Consistency.STRONG,
    at: Annotated[
        str,
        typer.Option(
            help="A point: a receipt (lw1...), as a read prints it, version:412, positions:0=120,1=88, "
            "timestamp:2026-01-31T00:00:00Z, record-time:... or snapshot:NAME.",
            metavar="POINT",
        ),
    ] = "",
    at_least: Annotated[
        str,
        typer.Option(
            help="What the read must reach: a token (lw1...), a record such as orders-3-1841, or a receipt.",
            metavar="TOKEN",
        ),
    ] = "",
    timeout: Annotated[str, typer.Option(help="How long --at-least waits.", metavar="DURATION")] = "30s",
    max_staleness: Annotated[
        str, typer.Option(help="Allowed for what other surfaces take too; here it equals strong.", metavar="DURATION")
    ] = "",
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many rows, whichever; all by default.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the rows.")] = Output.TEXT,
    conflicts: Annotated[
        Conflicts, typer.Option(help="What becomes of keys that came through two partitions.")
    ] = Conflicts.LEAVE_OUT,
    to: Annotated[Path | None, typer.Option(help="Write into this file instead of stdout.")] = None,
    guard_formulas: Annotated[
        bool, typer.Option("--guard-formulas", help="In CSV, put an apostrophe before texts that begin like a formula.")
    ] = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Read a table as of now, or again as at a point: merged and unmerged rows together.

    It ends with the receipt, on stderr: what was read, as a word that --at takes.

    Example: lancewal read -t s3://lake/orders --columns id,total --filter "total > 10" -o csv
    """
    from lancewal_reader.left_out import left_out_of
    from lancewal_reader.point.read_options import Read
    from lancewal_reader.point.receipt import receipt_of
    from lancewal_reader.table import open_table

    settings = read_settings(config, table, storage_option)
    settings.need("table.uri")
    names = [name.strip() for name in columns.split(",")] if columns else None
    if output is Output.ARROW and to is None and sys.stdout.isatty():
        raise InvalidInput("--output arrow writes bytes: name a file by --to, or redirect stdout")
    opened = open_table(
        settings.table.uri,
        storage_options=settings.storage.options,
        base_paths=settings.table.base_paths,
        conflicts=conflicts.value,
    )
    read = Read(
        consistency=consistency.value,
        at=at or None,
        at_least=at_least or None,
        max_staleness_s=_seconds("--max-staleness", max_staleness) if max_staleness else None,
        timeout_s=_seconds("--timeout", timeout),
    )
    rows = opened.to_batches(names, filter or None, limit, **read)
    left = left_out_of(rows.schema)
    if left:
        text = f"left out: {left.waiting} keys in conflict wait for a decision"
        if left.unmerged:
            text += f", and unmerged records of {left.unmerged} keys, through partitions {list(left.partitions)}"
        say(text, err=True)
    if to is None:
        _write(rows.schema, rows, output, sys.stdout.buffer, guard_formulas)
    else:
        try:
            with to.open("wb") as file:
                _write(rows.schema, rows, output, file, guard_formulas)
        except OSError as error:
            raise InvalidInput(f"--to {to}: {error.strerror or error}") from error
    say(f"receipt: {receipt_of(rows.schema)}", err=True)


def _seconds(option: str, text: str) -> float:
    seconds = duration_s(text)
    if seconds is None:
        raise InvalidInput(f"{option} {text!r}: {EXPECTED}")
    return seconds


def _write(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], output: Output, file: IO[bytes], guard_formulas: bool
) -> None:
    import pyarrow as pa

    from lancewal_reader.plain_rows import plain_rows

    match output:
        case Output.ARROW:
            # Plain buffers begin at any multiple of 8 bytes; Lance and others in Rust stop at a decimal that does not begin at
            # one of 16.  What is decompressed is laid out anew, in memory that suits every type.
            with pa.ipc.new_file(file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        case Output.JSONL:
            for batch in batches:
                for row in plain_rows(batch):
                    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
                    file.write(json_text(text).encode() + b"\n")
        case Output.CSV:
            # Numbers and times begin with a sign too.
            guarded = [guard_formulas and (pa.types.is_string(t) or pa.types.is_binary(t)) for t in schema.types]
            cells = [_guarded if yes else _text for yes in guarded]
            file.write(_csv_line([(_guarded if guard_formulas else _text)(name) for name in schema.names]))
            for batch in batches:
                for row in plain_rows(batch):
                    file.write(_csv_line([cell(value) for cell, value in zip(cells, row.values(), strict=True)]))
        case Output.TEXT:
            lines = [[_shown(v) for v in row.values()] for batch in batches for row in plain_rows(batch)]
            file.write(_table([_shown(name) for name in schema.names], lines).encode())
        case _:
            assert_never(output)
    file.flush()


def _table(names: list[str], lines: list[list[str]]) -> str:
    rule = ["-" * max(map(len, column)) for column in zip(names, *lines, strict=True)]
    return "\n".join([*aligned([names, rule, *lines]), f"({len(lines)} rows)", ""])


def _shown(value: object) -> str:
    """A cell of the table for people: at most 40 characters."""
    text = "NULL" if value is None else _text(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _text(value: object) -> str:
    """A cell: scalars, empty for null, nested values as JSON; what a terminal would obey is escaped."""
    if value is None:
        return ""
    return one_line(value) if isinstance(value, str) else json_text(json.dumps(value, ensure_ascii=False))


def _guarded(value: object) -> str:
    """A cell that no spreadsheet takes for a formula: a text that begins like one gets an apostrophe."""
    text = _text(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def _csv_line(cells: list[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode()
