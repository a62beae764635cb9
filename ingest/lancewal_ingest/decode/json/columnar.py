r"""The fast path: many JSON values to columns in one pass of Arrow's JSON reader.

Arrow reads rows from one text and knows no messages.  It must be proven that each message is exactly one row.  The
text is a line ``{"_":<value>}`` for each value, with nothing but the line break between two lines:

1. No JSON string holds a raw line break, so ``}``, line break, ``{`` between two lines is markup.
2. Inside an object or array a comma would have to stand between that ``}`` and ``{``.  So they are outside: each line
   begins a row of its own, and a value can add rows but never take one away.
3. n rows for n values therefore mean one row for each, whose member ``_`` is what stands between the colon and the
   last brace: one JSON value.  Another member beside it would be a duplicate or unknown; Arrow refuses both.
4. No row's ``_`` is null: each value is an object.

Arrow takes more than the rules of ``cells`` do.  Such values are either refused here as a whole (``None``: split and
try again), or give a *doubtful* row.  ``validate(full=True)`` finds bad UTF-8 and decimals that overflow,
``transport`` the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.json.transport import Mask, either, lift, transport_type

TEXT_BYTES_MAX = 1 << 30
"""Longest text given to Arrow: its blocks and string columns have 32-bit lengths."""

_OPEN, _CLOSE = b'{"_":', b"}\n"
_BETWEEN = _CLOSE + _OPEN


@dataclass(frozen=True, slots=True)
class Columns:
    arrays: Sequence[pa.Array]
    """The table's columns, in the contract's order; doubtful rows hold nothing of use."""
    doubtful: Mask | None
    """Rows that the reference path has to decide on, None when there are none."""


class ColumnReader:
    """Reader of values nearly all of which are good rows.  It takes upserts, patches and deletes alike: an absent column
    is null."""

    def __init__(self, rows: RowSchema) -> None:
        self._columns = rows.columns
        self._key_places = [rows.columns.get_field_index(name) for name in rows.primary_key]
        row_type = pa.struct([pa.field(f.name, transport_type(f.type)) for f in rows.columns])
        self._parse = pj.ParseOptions(
            explicit_schema=pa.schema([pa.field("_", row_type)]), unexpected_field_behavior="error"
        )

    def read(self, values: Sequence[bytes]) -> Columns | None:
        """Return columns with one row for each value; None if that cannot be said of all of them."""
        text = _BETWEEN.join((b"", *values, b""))
        if len(text) > TEXT_BYTES_MAX:
            return None
        # Joined with empty ends it begins with the end of a line and ends with the beginning of one.
        lines = pa.py_buffer(text).slice(len(_CLOSE), len(text) - len(_BETWEEN))
        try:
            table = pj.read_json(
                pa.BufferReader(lines),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(text)),
                parse_options=self._parse,
            )
            if table.num_rows != len(values) or table.column(0).num_chunks != 1:
                return None
            read = table.column(0).chunk(0)
            if read.null_count:
                return None
            read.validate(full=True)
            return self._lift(read)
        except (pa.ArrowInvalid, pa.ArrowCapacityError, UnicodeDecodeError):
            return None

    def _lift(self, read: pa.StructArray) -> Columns:
        doubtful: Mask | None = None
        arrays: list[pa.Array] = []
        for number, field in enumerate(self._columns):
            lifted, doubts = lift(read.field(number), field.type)
            arrays.append(lifted)
            doubtful = either(doubtful, doubts)
        for place in self._key_places:
            if arrays[place].null_count:
                missing: Mask = arrays[place].is_null().to_numpy(zero_copy_only=False)
                doubtful = either(doubtful, missing)
        return Columns(arrays, doubtful)


def without(arrays: Sequence[pa.Array], gone: Mask) -> list[pa.Array]:
    """The rows for which ``gone`` is false."""
    keep = pa.array(np.flatnonzero(~gone))
    return [array.take(keep) for array in arrays]
