"""``lancewal read``: rows of a table on stdout, the receipt on stderr."""

from __future__ import annotations

from typing import Annotated

import typer

from lancewal_core.cli.options import TableAsked
from lancewal_reader.commands.options import (
    AtLeastOption,
    AtOption,
    ColumnsOption,
    ConflictsOption,
    Consistency,
    ConsistencyOption,
    FilterOption,
    GuardOption,
    KeysMaxOption,
    OnConflicts,
    RowsOption,
    StalenessOption,
    TimeoutOption,
    ToOption,
    names_of,
    open_by,
    read_of,
    say_left_out,
    say_receipt,
)
from lancewal_reader.forms.row_output import Destination, RowOutput


def command(
    asked: TableAsked,
    columns: ColumnsOption = "",
    filter: FilterOption = "",
    consistency: ConsistencyOption = Consistency.STRONG,
    at: AtOption = "",
    at_least: AtLeastOption = "",
    timeout: TimeoutOption = "30s",
    max_staleness: StalenessOption = "",
    limit: Annotated[int | None, typer.Option(min=0, help="Most rows to read, in no order; all by default.")] = None,
    output: RowsOption = RowOutput.TEXT,
    conflicts: ConflictsOption = OnConflicts.LEAVE_OUT,
    unmerged_keys_max: KeysMaxOption = None,
    to: ToOption = None,
    guard_formulas: GuardOption = False,
) -> None:
    """Read a table as of now, or again as at a point: merged and unmerged rows together.

    The receipt is printed last, on stderr. It names the state that was read, as a word that --at takes.

    Example: lancewal read -t s3://lake/orders --columns id,total --filter "total > 10" -o csv
    """
    destination = Destination(output, to, guard_formulas)
    read = read_of(consistency, at, at_least, timeout, max_staleness)
    opened = open_by(asked, conflicts, unmerged_keys_max)
    rows = opened.to_batches(names_of(columns), filter or None, limit, **read)
    say_left_out(rows.schema)
    destination.write(rows)
    say_receipt(rows.schema)
