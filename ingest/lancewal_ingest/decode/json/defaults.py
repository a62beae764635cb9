"""Defaults: values of columns that an upsert leaves out.  A column that the upsert sets to null stays null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_ingest.decode.json.cells import array_of, cell_reader
from lancewal_ingest.decode.json.strict import parse_value
from lancewal_ingest.decode.naming import Form, Names, Naming
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.value_decoder import Ops, mask_of

_SHOWN = 100


class Defaults:
    """Defaults of a table's columns.  Raises ``InvalidSchema`` if the text of a default is not a value of its column."""

    def __init__(self, rows: RowSchema, naming: Naming) -> None:
        self.cells: Mapping[str, object] = {
            name: default_cell(rows.columns.field(name), text, naming.within(name), naming.forms.get(name))
            for name, text in naming.defaults.items()
        }
        """Default of each column as ``cells.array_of`` accepts it."""
        self.arrays: Mapping[int, pa.Array] = {
            rows.columns.get_field_index(name): array_of([cell], rows.columns.field(name).type)
            for name, cell in self.cells.items()
        }
        """Default of each column that has one, by the column's index: an array with the default as its only item."""
        self._names = {place: {*naming.names_of(rows.columns.names[place])} for place in self.arrays}
        self.nbytes = sum(array.nbytes for array in self.arrays.values())
        """Largest number of bytes that the defaults add to a row."""

    def fill(self, columns: Sequence[pa.Array], ops: Ops, values: Sequence[bytes]) -> Sequence[pa.Array]:
        """Return decoded columns in which upserts that leave a column out have its default."""
        found = list(columns)
        for place, default in self.arrays.items():
            column = columns[place]
            if not column.null_count:
                continue
            absent = mask_of(column.is_null()) & (ops == Op.UPSERT)
            for row in np.flatnonzero(absent).tolist():
                # A value without these letters holds no null, so the column is absent.
                if b"null" in values[row] and not self._names[place].isdisjoint(orjson.loads(values[row])):
                    absent[row] = False
            found[place] = filled(column, default, absent)
        return found


def filled(column: pa.Array, default: pa.Array, absent: npt.NDArray[np.bool_]) -> pa.Array:
    """Return a column with its default in the rows for which ``absent`` is true.  ``default``: an array with the
    default as its only item.
    """
    if not absent.any():
        return column
    places = np.where(absent, len(column), np.arange(len(column)))
    return pa.concat_arrays([column, default]).take(pa.array(places))


def default_cell(field: pa.Field, text: str, names: Names | None = None, form: Form | None = None) -> object:
    """Return a default as ``cells.array_of`` accepts it.  Raises ``InvalidSchema`` if the text is not a value of the
    column.
    """
    try:
        value = parse_value(text)
        if form == "raw" and value is not None:
            value = text.strip(" \t\n\r")
        return cell_reader(field.type, names, form)(value, field.name)
    except Refusal as refusal:
        raise InvalidSchema(
            f"column {field.name!r}: its default {text[:_SHOWN]!a} is not a value of its type: {refusal}"
        ) from None
