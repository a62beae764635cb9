"""A filter is a Lance SQL string and is evaluated by Lance on both sides, the table and the delta: two engines differ
(``f > 0.5`` keeps NaN in Lance and drops it in pyarrow)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

import lance
import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.process.library_errors import first_line
from lancewal_core.rows.own_rows import whole_arrays

_TEXTS = re.compile("""'[^']*'|"[^"]*\"""")
_OF_LANCE = re.compile(r"(?<![\w.`])`?(_row\w*)", re.IGNORECASE)
"""Columns that Lance makes up of where a row lies: an unmerged row lies nowhere.  A member of a struct has a dot before it."""


def filter_rows(rows: pa.Table, filter: str | None, columns: Sequence[str]) -> pa.Table:
    """Rows that pass, these columns of them."""
    if filter is None or rows.num_rows == 0:
        return rows.select(list(columns))
    dataset = lance.write_dataset(whole_arrays(rows), f"memory://{uuid.uuid4().hex}")
    return (
        dataset.scanner(columns=list(columns), filter=filter)
        .to_table()
        .cast(pa.schema([rows.schema.field(name) for name in columns]))
    )


def check_filter(schema: pa.Schema, filter: str | None) -> None:
    """Raise ``InvalidInput`` for a filter that Lance does not take for this schema."""
    if filter is None:
        return
    dataset = lance.write_dataset(schema.empty_table(), f"memory://{uuid.uuid4().hex}", schema=schema)
    try:
        dataset.scanner(filter=filter).explain_plan()
    except (ValueError, OSError, RuntimeError) as error:  # a panic too: of what Lance has not implemented
        raise InvalidInput(f"filter {filter!r} is not accepted: {first_line(error)}") from error
    found = _OF_LANCE.search(_TEXTS.sub("''", filter))
    if found is not None:
        raise InvalidInput(
            f"filter {filter!r} names {found[1]!r}, which is no column of the table: it has {schema.names}"
        )
