"""A filter is a Lance SQL string.  Lance evaluates it on both sides, the table and the delta, because two engines differ:
``f > 0.5`` keeps NaN in Lance and drops it in pyarrow."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.process.library_errors import first_line
from lancewal_core.rows.own_rows import whole_arrays
from lancewal_core.table.lance.errors import reading
from lancewal_reader.forms.conditions.grammar import for_lance, refused

_PLACE = "_place"
_WHOSE_FAULT = re.compile(r"Invalid user input: |Error during planning: ")


def filter_rows(rows: pa.Table, filter: str | None, columns: Sequence[str]) -> pa.Table:
    """Return the rows that pass the filter, with only ``columns``.  Without a filter all rows pass."""
    if filter is None or rows.num_rows == 0:
        return rows.select(list(columns))
    dataset = lance.write_dataset(whole_arrays(rows), f"memory://{uuid.uuid4().hex}")
    with reading("filtering unmerged rows"):
        passed = dataset.scanner(columns=list(columns), filter=filter).to_table()
    return passed.cast(pa.schema([rows.schema.field(name) for name in columns]))


def passing(rows: pa.Table, filter: str | None) -> npt.NDArray[np.int64]:
    """Return the indexes of the rows that pass the filter, ascending."""
    places = np.arange(rows.num_rows)
    if filter is None:
        return places
    numbered = rows.append_column(_PLACE, pa.array(places))
    return np.sort(filter_rows(numbered, filter, [_PLACE])[_PLACE].to_numpy())


def check_filter(schema: pa.Schema, filter: str | None) -> str | None:
    """Convert a user's filter to a condition for Lance.  Raises ``InvalidInput`` if it is not supported."""
    if filter is None:
        return None
    condition = for_lance(schema, filter)
    dataset = lance.write_dataset(schema.empty_table(), f"memory://{uuid.uuid4().hex}", schema=schema)
    try:
        dataset.scanner(filter=condition).explain_plan()
    except (ValueError, OSError, RuntimeError) as error:  # a panic too: of what Lance has not implemented
        raise refused(filter, _WHOSE_FAULT.sub("", first_line(error))) from error
    return condition
