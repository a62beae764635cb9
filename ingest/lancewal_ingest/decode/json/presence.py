"""Bitmaps of the columns that each patch has (``_present``, see ``lancewal_core.rows.schema``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.naming import Names
from lancewal_ingest.decode.part import present_bitmap, present_column
from lancewal_ingest.decode.value_decoder import mask_of

_KEPT = 1024
"""Maximum number of cached bitmaps, one for each sequence of member names."""


class PresenceReader:
    """Reader of the bitmaps of many patches, from decoded columns in which absent and null look the same.

    A value without the letters ``null`` has no null, so its columns are those that are not null.  Only the other
    values are parsed again, for the names of their members.  These values are known to be objects with allowed,
    distinct names.
    """

    def __init__(self, rows: RowSchema, names: Names | None = None) -> None:
        self._rows = rows
        self._names = names
        # Names in the order of one producer's objects: there are few such orders, and the bitmap of each is kept.
        self._known = lru_cache(_KEPT)(self._bitmap)

    def read(self, columns: Sequence[pa.Array], patches: npt.NDArray[np.bool_], values: Sequence[bytes]) -> pa.Array:
        """Return a binary array of the same length as ``patches``.  Each patch has the bitmap of the columns that its
        value holds; other rows are null.
        """
        places = np.flatnonzero(patches)
        bits = np.zeros((len(places), len(columns)), dtype=np.bool_)
        for number, column in enumerate(columns):
            bits[:, number] = True if column.null_count == 0 else mask_of(column.is_valid())[places]
        bitmaps = np.packbits(bits, axis=1, bitorder="little")
        maybe_null = [row for row, place in enumerate(places.tolist()) if b"null" in values[place]]
        for row in maybe_null:
            bitmaps[row] = self._known(tuple(orjson.loads(values[places[row]])))
        return present_column(patches, bitmaps)

    def _bitmap(self, names: tuple[str, ...]) -> npt.NDArray[np.uint8]:
        columns = names if self._names is None else self._names.fields_of(names)
        return np.frombuffer(present_bitmap(self._rows, columns), dtype=np.uint8)
