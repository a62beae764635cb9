"""A filter is a Lance SQL string and is evaluated by Lance on both sides, the table and the delta: two engines differ
(``f > 0.5`` keeps NaN in Lance and drops it in pyarrow)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import lance
import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.process.library_errors import first_line


def filter_rows(rows: pa.Table, filter: str | None, columns: Sequence[str]) -> pa.Table:
    """Rows that pass, these columns of them."""
    if filter is None or rows.num_rows == 0:
        return rows.select(list(columns))
    dataset = lance.write_dataset(rows, f"memory://{uuid.uuid4().hex}")
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
    except (ValueError, OSError) as error:
        raise InvalidInput(f"filter {filter!r} is not accepted: {first_line(error)}") from error
