"""Rows as texts, for rows that are compared one by one.  Two texts are equal exactly if all values are, NaN included."""

from __future__ import annotations

import pyarrow as pa


def row_texts(rows: pa.Table) -> list[str]:
    """Return one text for each row."""
    columns = [[_text(value) for value in column] for column in rows.columns]
    return [repr(row) for row in zip(*columns, strict=True)]


def _text(value: pa.Scalar) -> str:
    """Return the text of a value.  Times become numbers: Python has no year 10,000."""
    type_ = value.type
    if not value.is_valid:
        return "null"
    if pa.types.is_temporal(type_):
        return str(value.value)
    if pa.types.is_struct(type_):
        return repr([_text(value[i]) for i in range(type_.num_fields)])
    if pa.types.is_nested(type_):
        return repr([_text(item) for item in value.values])
    return repr(value.as_py())
