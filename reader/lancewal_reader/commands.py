"""``lancewal read``, ``get``, ``search`` and ``count``: rows of a table, or how many there are, on stdout; the receipt on
stderr."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from lancewal_core.cli.options import ConfigOption, Output, OutputOption, StorageOption, TableOption, read_settings
from lancewal_core.cli.output import say, say_json
from lancewal_core.errors import InvalidInput
from lancewal_core.process.library_errors import first_line
from lancewal_core.settings.durations import EXPECTED, duration_s
from lancewal_reader.forms.row_output import Destination, RowOutput

if TYPE_CHECKING:
    import pyarrow as pa

    from lancewal_reader.point.read_options import Read
    from lancewal_reader.table import Table


class Consistency(StrEnum):
    STRONG = "strong"
    EVENTUAL = "eventual"


class Conflicts(StrEnum):
    LEAVE_OUT = "leave-out"
    FAIL = "fail"


ColumnsOption: TypeAlias = Annotated[str, typer.Option(help="Comma-separated names; all by default.", metavar="NAMES")]
FilterOption: TypeAlias = Annotated[
    str, typer.Option(help="A Lance SQL condition, e.g. \"status = 'open' AND amount > 10\".", metavar="SQL")
]
ConsistencyOption: TypeAlias = Annotated[
    Consistency, typer.Option(help="strong: every row durable before the call; eventual: the merged table alone.")
]
AtOption: TypeAlias = Annotated[
    str,
    typer.Option(
        help="A point: a receipt (lw1...), as a read prints it, version:412, positions:0=120,1=88, "
        "timestamp:2026-01-31T00:00:00Z, record-time:... or snapshot:NAME.",
        metavar="POINT",
    ),
]
AtLeastOption: TypeAlias = Annotated[
    str,
    typer.Option(
        help="What the read must reach: a token (lw1...), a record such as orders-3-1841, or a receipt.",
        metavar="TOKEN",
    ),
]
TimeoutOption: TypeAlias = Annotated[str, typer.Option(help="How long --at-least waits.", metavar="DURATION")]
StalenessOption: TypeAlias = Annotated[
    str, typer.Option(help="Allowed for what other surfaces take too; here it equals strong.", metavar="DURATION")
]
ConflictsOption: TypeAlias = Annotated[
    Conflicts, typer.Option(help="What becomes of keys that came through two partitions.")
]
KeysMaxOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="More keys with unmerged records, whose rows are held in memory, are refused; 10000000 by default.",
        metavar="COUNT",
    ),
]
RowsOption: TypeAlias = Annotated[RowOutput, typer.Option("--output", "-o", help="Form of the rows.")]
ToOption: TypeAlias = Annotated[Path | None, typer.Option(help="Write into this file instead of stdout.")]
GuardOption: TypeAlias = Annotated[
    bool, typer.Option("--guard-formulas", help="In CSV, put an apostrophe before texts that begin like a formula.")
]


def command(
    columns: ColumnsOption = "",
    filter: FilterOption = "",
    consistency: ConsistencyOption = Consistency.STRONG,
    at: AtOption = "",
    at_least: AtLeastOption = "",
    timeout: TimeoutOption = "30s",
    max_staleness: StalenessOption = "",
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many rows, whichever; all by default.")] = None,
    output: RowsOption = RowOutput.TEXT,
    conflicts: ConflictsOption = Conflicts.LEAVE_OUT,
    unmerged_keys_max: KeysMaxOption = None,
    to: ToOption = None,
    guard_formulas: GuardOption = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Read a table as of now, or again as at a point: merged and unmerged rows together.

    It ends with the receipt, on stderr: what was read, as a word that --at takes.

    Example: lancewal read -t s3://lake/orders --columns id,total --filter "total > 10" -o csv
    """
    destination = Destination(output, to, guard_formulas)
    read = _read(consistency, at, at_least, timeout, max_staleness)
    opened = _open(config, table, storage_option, conflicts, unmerged_keys_max)
    rows = opened.to_batches(_names(columns), filter or None, limit, **read)
    _say_left_out(rows.schema)
    destination.write(rows)
    _say_receipt(rows.schema)


def get(
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY",
            help="A value; JSON where the primary key has several columns. Behind -- it may begin with a -.",
        ),
    ],
    columns: ColumnsOption = "",
    consistency: ConsistencyOption = Consistency.STRONG,
    at: AtOption = "",
    at_least: AtLeastOption = "",
    timeout: TimeoutOption = "30s",
    max_staleness: StalenessOption = "",
    output: RowsOption = RowOutput.TEXT,
    conflicts: ConflictsOption = Conflicts.LEAVE_OUT,
    unmerged_keys_max: KeysMaxOption = None,
    to: ToOption = None,
    guard_formulas: GuardOption = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Show the rows of primary keys, in the order of the keys; what the key index covers is not scanned.

    A key is written as `lancewal read -o jsonl` shows its value: a text as it is, 42, true, 2026-01-31, a time in ISO 8601, a
    binary in base64. Of several columns it is a JSON list in the order of the primary key, or a JSON object. A key that has
    no row is named on stderr. It ends with the receipt, on stderr: what was read, as a word that --at takes.

    Example: lancewal get '["north", 17]' '{"region": "south", "id": 4}' -t s3://lake/orders -o jsonl
    """
    from lancewal_reader.forms.key_text import keys_of_texts, without_row

    destination = Destination(output, to, guard_formulas)
    read = _read(consistency, at, at_least, timeout, max_staleness)
    opened = _open(config, table, storage_option, conflicts, unmerged_keys_max)
    wanted = keys_of_texts(opened.contract.rows, keys)
    names = _names(columns) or list(opened.schema.names)
    # Which keys have no row shows in the columns of the key.
    rows = opened.get(wanted, [*names, *(n for n in wanted.schema.names if n not in names)], **read).to_arrow()
    _say_left_out(rows.schema)
    destination.write(rows.select(names).to_reader())
    for key in without_row(wanted, rows):
        say(f"no row: {key}", err=True)
    _say_receipt(rows.schema)


def count(
    filter: FilterOption = "",
    consistency: ConsistencyOption = Consistency.STRONG,
    at: AtOption = "",
    at_least: AtLeastOption = "",
    timeout: TimeoutOption = "30s",
    max_staleness: StalenessOption = "",
    output: OutputOption = Output.TEXT,
    conflicts: ConflictsOption = Conflicts.LEAVE_OUT,
    unmerged_keys_max: KeysMaxOption = None,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Count the rows of a table as of now, or as at a point; without --filter no row of the merged table is read, but for
    keys that the key index does not cover.

    It ends with the receipt, on stderr: what was counted, as a word that --at takes.

    Example: lancewal count -t s3://lake/orders --filter "status = 'open'"
    """
    from lancewal_reader.point.receipt import receipt_of
    from lancewal_reader.table import counted

    read = _read(consistency, at, at_least, timeout, max_staleness)
    rows, schema = counted(_open(config, table, storage_option, conflicts, unmerged_keys_max), filter or None, **read)
    _say_left_out(schema)
    if output is Output.JSON:
        say_json({"rows": rows, "receipt": str(receipt_of(schema))})
    else:
        say(str(rows))
    _say_receipt(schema)


def search(
    vector: Annotated[
        str,
        typer.Option(
            help="A file with a JSON list of numbers, or with a list of such vectors; - for stdin.", metavar="FILE"
        ),
    ] = "",
    text: Annotated[str, typer.Option(help="Words; rows with any of them are found.", metavar="WORDS")] = "",
    filter: FilterOption = "",
    limit: Annotated[int, typer.Option(min=1, help="So many rows, the best ones; of each vector.")] = 10,
    columns: ColumnsOption = "",
    vector_column: Annotated[str, typer.Option(help="Where several have vectors.", metavar="NAME")] = "",
    text_columns: Annotated[
        str, typer.Option(help="Comma-separated; the best one counts. Where several may be meant.", metavar="NAMES")
    ] = "",
    exact: Annotated[bool, typer.Option("--exact", help="Compare every row; no index is asked.")] = False,
    consistency: ConsistencyOption = Consistency.STRONG,
    at: AtOption = "",
    at_least: AtLeastOption = "",
    timeout: TimeoutOption = "30s",
    max_staleness: StalenessOption = "",
    output: RowsOption = RowOutput.TEXT,
    conflicts: ConflictsOption = Conflicts.LEAVE_OUT,
    unmerged_keys_max: KeysMaxOption = None,
    to: ToOption = None,
    guard_formulas: GuardOption = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Find the rows nearest to a vector, the best by words, or the best by both, unmerged rows too.

    Behind the columns comes what they were ranked by. On stderr stands what was searched how, and the receipt: what was read,
    as a word that --at takes.

    Example: lancewal search -t s3://lake/notices --text "flood warning" --filter "price < 20" --columns id,title
    """
    destination = Destination(output, to, guard_formulas)
    read = _read(consistency, at, at_least, timeout, max_staleness)
    sought = _vector_of(vector) if vector else None
    opened = _open(config, table, storage_option, conflicts, unmerged_keys_max)
    found = opened.search(
        sought,
        text or None,
        filter=filter or None,
        limit=limit,
        columns=_names(columns),
        vector_column=vector_column or None,
        text_columns=_names(text_columns),
        exact=exact,
        **read,
    )
    _say_left_out(found.schema)
    destination.write(found.to_arrow().to_reader())
    covered = found.coverage
    say(
        f"searched: {covered.indexed_rows} rows by an index, {covered.flat_rows} one by one, {covered.fresh_rows} unmerged; "
        f"{covered.masked_rows} merged ones hidden",
        err=True,
    )
    if covered.approximate is not None:
        say(f"approximate: {covered.approximate}", err=True)
    _say_receipt(found.schema)


def _vector_of(file: str) -> object:
    try:
        found: object = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"--vector {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise InvalidInput(f"--vector {file}: expected a JSON list of numbers: {first_line(error)}") from error
    return found


def _open(
    config: Path | None,
    table: str,
    storage_option: list[str] | None,
    conflicts: Conflicts,
    unmerged_keys_max: int | None,
) -> Table:
    from lancewal_reader.portions import UNMERGED_KEYS_MAX
    from lancewal_reader.table import open_table

    settings = read_settings(config, table, storage_option)
    settings.need("table.uri")
    return open_table(
        settings.table.uri,
        storage_options=settings.storage.options,
        base_paths=settings.table.base_paths,
        conflicts=conflicts.value,
        unmerged_keys_max=UNMERGED_KEYS_MAX if unmerged_keys_max is None else unmerged_keys_max,
    )


def _read(consistency: Consistency, at: str, at_least: str, timeout: str, max_staleness: str) -> Read:
    return {
        "consistency": consistency.value,
        "at": at or None,
        "at_least": at_least or None,
        "max_staleness_s": _seconds("--max-staleness", max_staleness) if max_staleness else None,
        "timeout_s": _seconds("--timeout", timeout),
    }


def _seconds(option: str, text: str) -> float:
    seconds = duration_s(text)
    if seconds is None:
        raise InvalidInput(f"{option} {text!r}: {EXPECTED}")
    return seconds


def _names(columns: str) -> list[str] | None:
    return [name.strip() for name in columns.split(",")] if columns else None


def _say_left_out(schema: pa.Schema) -> None:
    from lancewal_reader.left_out import left_out_of

    left = left_out_of(schema)
    if left:
        text = f"left out: {left.waiting} keys in conflict wait for a decision"
        if left.unmerged:
            text += f", and unmerged records of {left.unmerged} keys, through partitions {list(left.partitions)}"
        say(text, err=True)


def _say_receipt(schema: pa.Schema) -> None:
    from lancewal_reader.point.receipt import receipt_of

    say(f"receipt: {receipt_of(schema)}", err=True)
