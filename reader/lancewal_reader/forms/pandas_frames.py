"""Convert rows to pandas without changing a value.

Guarantees
 1. No value changes: an integer in a column with a null keeps its digits, and a NaN is not a null.
 2. Dtypes follow from the schema, and not from the rows.  A nullable column of numbers, truth values or text has a nullable
    dtype of pandas; a column that is never null, such as one of a key, has numpy's.
 3. Lists and structs are Python's lists and dicts at every depth; a vector is an array of numpy, of its own type.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidInput

if TYPE_CHECKING:
    import pandas

Dtypes = Literal["nullable", "numpy"]
"""Types of a pandas frame.  ``numpy`` is the conversion of pyarrow, in which a column of integers with a null becomes
floats."""
_NULLABLE: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.uint8(): "UInt8",
    pa.uint16(): "UInt16",
    pa.uint32(): "UInt32",
    pa.uint64(): "UInt64",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "string",
    pa.large_string(): "string",
}
_NO_TIME = -(2**63)
"""Integer by which pandas stores a missing time."""


def pandas_frame(rows: pa.Table, dtypes: Dtypes = "nullable") -> pandas.DataFrame:
    """Return the rows as a DataFrame.  Raises ``InvalidInput`` if ``dtypes`` is unknown, or if a time would look like a
    missing value in pandas.
    """
    if dtypes not in get_args(Dtypes):
        raise InvalidInput(f"dtypes={dtypes!r}: expected 'nullable' or 'numpy'")
    if dtypes == "numpy":
        return rows.to_pandas()
    frames: Any = importlib.import_module("pandas")
    columns = {field.name: _series(frames, field, rows.column(field.name)) for field in rows.schema}
    made: pandas.DataFrame = frames.DataFrame(columns, index=frames.RangeIndex(rows.num_rows), copy=False)
    return made


def _series(frames: Any, field: pa.Field, values: pa.ChunkedArray) -> Any:
    type_ = field.type
    if pa.types.is_nested(type_):
        return frames.Series(_vectors(values) or values.to_pylist(), dtype=object)
    if field.nullable and type_ in _NULLABLE:
        dtype = frames.api.types.pandas_dtype(_NULLABLE[type_])
        return frames.Series(dtype.__from_arrow__(values), copy=False)
    if (pa.types.is_timestamp(type_) or pa.types.is_duration(type_)) and pc.any(
        pc.equal(values.cast(pa.int64()), _NO_TIME)
    ).as_py():
        raise InvalidInput(
            f"column {field.name!r} of {type_} has the integer {_NO_TIME}, which pandas reads as NaT: use to_arrow()"
        )
    return values.to_pandas()


def _vectors(values: pa.ChunkedArray) -> list[Any]:
    """Return an array for each vector, None for a null.  The list is empty if the column has no vectors, or a vector
    contains a null, as only attached files can."""
    if not pa.types.is_fixed_size_list(values.type):
        return []
    found: list[Any] = []
    for chunk in values.chunks:
        items = chunk.flatten()
        if items.null_count:
            return []
        vectors = iter(items.to_numpy(zero_copy_only=False).reshape(-1, values.type.list_size))
        found += [next(vectors) if valid else None for valid in chunk.is_valid().to_pylist()]
    return found
