"""The code of a primary key in the key index: a number to sort by, and perhaps the key's bytes.  The bytes are there if
two keys may share a number.

Guarantee: two rows of one table have the same number and the same bytes exactly if they have the same primary key.

A key of one integer-like column (integer, date, timestamp) is its own number.  So keys that come in order stay
together, and no bytes are needed.  Any other key has a 32-bit hash as its number, and a text of all its columns as its
bytes.  The hash only finds candidates; the bytes decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.column_types import Column, integer_like, storage
from lancewal_core.rows.key_set import integers
from lancewal_core.rows.murmur2 import hashes

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CodedKeys:
    """Coded keys, one number each.  ``texts`` (large_binary) has their bytes; None if equal numbers mean equal keys."""

    numbers: Numbers
    texts: pa.Array | None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + (0 if self.texts is None else int(self.texts.nbytes))

    def take(self, places: npt.NDArray[np.int64]) -> CodedKeys:
        """Return the keys at the indexes ``rows``."""
        texts = None if self.texts is None else self.texts.take(pa.array(places))
        return CodedKeys(self.numbers[places], texts)


def is_number(schema: pa.Schema) -> bool:
    """Return whether keys of this schema are their own numbers."""
    return len(schema) == 1 and integer_like(schema.field(0).type)


def code_keys(keys: pa.Table) -> CodedKeys:
    """Return the code of each row of ``keys``, a table with one column for each key column, without nulls."""
    if is_number(keys.schema):
        return CodedKeys(integers(keys.column(0)), None)
    texts = _texts(keys)
    return CodedKeys(hashes(texts).astype(np.int64), texts)


def join_keys(parts: list[CodedKeys]) -> CodedKeys:
    """Return the keys of all parts, one part after the other.  There must be at least one part."""
    texts = None if parts[0].texts is None else pa.concat_arrays([part.texts for part in parts])
    return CodedKeys(np.concatenate([part.numbers for part in parts]), texts)


def _texts(keys: pa.Table) -> pa.Array:
    """Return the bytes of each key.  A single string or binary column gives its own bytes.  With several columns,
    each value shows where it ends: its length comes first, or a semicolon last."""
    columns = [_combined(column) for column in keys.columns]
    if len(columns) == 1 and not pa.types.is_boolean(columns[0].type):
        return _bytes(columns[0])
    pieces: list[object] = []
    for column in columns:
        if pa.types.is_large_binary(column.type):
            text = column
            pieces += [_bytes(pc.binary_length(text).cast(pa.string())), pa.scalar(b":", pa.large_binary()), text]
        else:
            number = pa.array(integers(column)) if integer_like(column.type) else column
            pieces += [_bytes(number.cast(pa.string())), pa.scalar(b";", pa.large_binary())]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))


def _combined(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array.  Strings, binaries and uuids become large_binary, since together they may be larger than
    2 GiB."""
    if not (pa.types.is_boolean(column.type) or integer_like(column.type)):
        column = _bytes(storage(column))
    return column.combine_chunks()


def _bytes(column: Column) -> Column:
    """Return a string or binary array as large_binary."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    return column.cast(pa.large_binary())
