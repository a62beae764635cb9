r"""The fast path: decode many JSON values into columns in one pass of Arrow's JSON reader.

Arrow reads rows from one text, and does not know where a record's value ends.  So it must be proven that each value
gave exactly one row.  The text is a line ``{"_":<value>}`` for each value, with only a line break between two lines:

1. A JSON string cannot hold a raw line break.  So the ``}``, line break, ``{`` between two lines is JSON syntax.
2. Inside an object or array a comma would be needed between that ``}`` and ``{``.  So both are at the top level.  Each
   line begins a row of its own, and a value can add rows but never remove one.
3. If n values give n rows, each value gave one row.  Its member ``_`` is the text between the colon and the last
   brace: one JSON value.  A further member would be a duplicate or unknown; Arrow refuses both.  (Where it must not refuse
   unknown members, ``other_names`` proves that each value is one JSON object.)
4. No row's ``_`` is null: each value is an object.

Arrow accepts more values than the rules of ``cells``.  For such values ``read`` returns None (the caller splits the
batch and tries again), or marks the row as *doubtful*.  ``validate(full=True)`` finds bad UTF-8 and decimals that
overflow, and ``transport`` finds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.json.forms import Shape, ShapeReader, Spelling
from lancewal_ingest.decode.json.other_names import fields_with_former, one_name_each
from lancewal_ingest.decode.json.transport import either, lift, transport_type
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.value_decoder import Mask, mask_of

TEXT_BYTES_MAX = 1 << 30
"""Longest text that is given to Arrow, whose blocks and string columns have 32-bit lengths."""

_WAYS_KEPT = 64
_OPEN, _CLOSE = b'{"_":', b"}\n"
_BETWEEN = _CLOSE + _OPEN


Columns = tuple[Sequence[pa.Array], Mask | None]
"""The table's columns, in the contract's order, null where no value has them.  With them a mask of the doubtful rows, on which
the reference path must decide; None if there are none.  Cells of doubtful rows must not be used."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How values of one shape are read."""

    parse: pj.ParseOptions
    lenient: Mapping[int, Spelling]


class ColumnReader:
    """Reader of many values, fast if nearly all are good.  An absent column becomes null, for every operation."""

    def __init__(self, rows: RowSchema, naming: Naming, shapes: ShapeReader) -> None:
        """``rows``: the columns, by their present names (``naming``)."""
        self._columns = rows.columns
        self._in_values = naming.in_values(rows).columns
        self._absent = frozenset(rows.columns.get_field_index(name) for name in naming.absent)
        self._names = naming.names
        self._shapes = shapes
        self._key_places = [rows.columns.get_field_index(name) for name in rows.primary_key]
        self._way_known = lru_cache(_WAYS_KEPT)(self._way)

    def read(self, values: Sequence[bytes], shape: Shape = (), *, other_names: bool = False) -> Columns | None:
        """Return columns with one row for each value.  Return None unless each value has provably given exactly one
        row.

        ``shape``: the shape of all values.  ``other_names``: whether ``NameReader`` has checked the names in the values
        and found none doubtful.
        """
        way = self._way_known(shape, other_names)
        text = _BETWEEN.join((b"", *values, b""))
        if len(text) > TEXT_BYTES_MAX:
            return None
        # Joined with empty ends it begins with the end of a line and ends with the beginning of one.
        lines = pa.py_buffer(text).slice(len(_CLOSE), len(text) - len(_BETWEEN))
        try:
            table = pj.read_json(
                pa.BufferReader(lines),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(text)),
                parse_options=way.parse,
            )
            if table.num_rows != len(values) or table.column(0).num_chunks != 1:
                return None
            read = table.column(0).chunk(0)
            if read.null_count:
                return None
            read.validate(full=True)
            if other_names and self._names is not None:
                read = one_name_each(read, self._in_values, self._names)
            return self._lift(read, way.lenient)
        except (pa.ArrowInvalid, pa.ArrowCapacityError, UnicodeDecodeError):
            return None

    def _way(self, shape: Shape, other_names: bool) -> _Way:
        lenient = self._shapes.of(shape)
        types = {self._columns.names[place]: spelling.transport for place, spelling in lenient.items()}
        if other_names and self._names is not None:
            fields = fields_with_former(self._in_values, self._names, types)
        else:
            fields = [pa.field(f.name, types.get(f.name) or transport_type(f.type)) for f in self._in_values]
        parse = pj.ParseOptions(
            explicit_schema=pa.schema([pa.field("_", pa.struct(fields))]),
            unexpected_field_behavior="ignore" if other_names else "error",
        )
        return _Way(parse, lenient)

    def _lift(self, read: pa.StructArray, lenient: Mapping[int, Spelling]) -> Columns:
        doubtful: Mask | None = None
        arrays: list[pa.Array] = []
        columns = iter([read.field(place) for place in range(read.type.num_fields)])
        for number, field in enumerate(self._columns):
            if number in self._absent:
                arrays.append(pa.nulls(len(read), field.type))
                continue
            spelling = lenient.get(number)
            column = next(columns)
            lifted, doubts = lift(column, field.type) if spelling is None else spelling.lift(column)
            arrays.append(lifted)
            doubtful = either(doubtful, doubts)
        for place in self._key_places:
            if arrays[place].null_count:
                missing = mask_of(arrays[place].is_null())
                doubtful = either(doubtful, missing)
        return arrays, doubtful


def without(arrays: Sequence[pa.Array], gone: Mask) -> list[pa.Array]:
    """Return ``arrays`` without the rows for which ``gone`` is true."""
    keep = pa.array(np.flatnonzero(~gone))
    return [array.take(keep) for array in arrays]
