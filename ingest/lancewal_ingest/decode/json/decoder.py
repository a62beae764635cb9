"""``ValueDecoder`` of JSON: columnar where that is safe, and value by value where it is not.

1. Rows and refusals are always those that ``reference`` alone would give.
2. A batch of good values costs about one pass of Arrow's JSON reader.
3. A few bad values cost little: a batch with them is halved again and again, down to ``SINGLY_MAX`` values.
4. At most ``SINGLY_BYTES`` at a time are decoded value by value, because Python objects take many times the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import Op, RowSchema
from lancewal_ingest.decode.json.columnar import ColumnReader, without
from lancewal_ingest.decode.json.growth import JsonGrowth
from lancewal_ingest.decode.json.hazards import has_decimals, hazardous
from lancewal_ingest.decode.json.presence import PresenceReader
from lancewal_ingest.decode.json.reference import ReferenceDecoder
from lancewal_ingest.decode.json.types import check_json_types
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import DecodedValues, Ops, RefusedValue
from lancewal_ingest.decode.weight import pieces

SINGLY_MAX = 64
"""A part of at most this many values that Arrow refuses is decoded value by value."""
SINGLY_BYTES = 1 << 20


class JsonDecoder:
    """See the module docstring.  Raises ``InvalidSchema`` for columns that have no JSON form."""

    def __init__(self, rows: RowSchema) -> None:
        check_json_types(rows.columns)
        self.growth = JsonGrowth(rows)
        self._columns = ColumnReader(rows)
        self._decimals = any(has_decimals(field.type) for field in rows.columns)
        self._presence = PresenceReader(rows)
        self._reference = ReferenceDecoder(rows)
        self.single_records = 0
        """Number of values that were decoded one by one so far, bad ones included."""

    def decode(self, values: Sequence[bytes], ops: Ops) -> DecodedValues:
        together = np.arange(len(values))
        singly: list[int] = []
        if self._decimals and (hazards := sorted(set(hazardous(values)))):
            together, singly = np.delete(together, hazards), hazards
        parts: list[DecodedPart] = []
        ahead = [together] if len(together) else []
        while ahead:
            indexes = ahead.pop()
            part, doubtful = self._part(values, indexes, ops)
            if part is not None:
                parts.append(part)
                singly.extend(doubtful)
            elif len(indexes) <= SINGLY_MAX:
                singly.extend(indexes.tolist())
            else:
                middle = len(indexes) // 2
                ahead += [indexes[:middle], indexes[middle:]]
        refused: list[RefusedValue] = []
        singly.sort()
        for few in _singly_pieces(values, singly):
            part, bad = self._reference.decode(values, ops, few)
            parts.append(part)
            refused += bad
        self.single_records += len(singly)
        return DecodedValues(parts, refused)

    def _part(
        self, values: Sequence[bytes], indexes: npt.NDArray[np.int64], ops: Ops
    ) -> tuple[DecodedPart | None, list[int]]:
        """Return the rows of the values at ``indexes``, and the doubtful indexes among them.

        The part is None if the caller must split ``indexes`` and try again."""
        if len(indexes) < len(values):
            values, ops = [values[i] for i in indexes.tolist()], ops[indexes]
        columns = self._columns.read(values)
        if columns is None:
            return None, []
        patches = ops == Op.PATCH
        if patches.any():
            present = self._presence.read(columns.arrays, patches, values)
        else:
            present = pa.nulls(len(indexes), pa.binary())
        if columns.doubtful is None:
            return DecodedPart(indexes, columns.arrays, pa.array(ops), present), []
        kept = without([*columns.arrays, pa.array(ops), present], columns.doubtful)
        part = DecodedPart(indexes[~columns.doubtful], kept[:-2], kept[-2], kept[-1])
        return part, indexes[columns.doubtful].tolist()


def _singly_pieces(values: Sequence[bytes], indexes: list[int]) -> list[list[int]]:
    """Return ``indexes`` divided into pieces whose values have at most ``SINGLY_BYTES``, or are one value."""
    if not indexes:
        return []
    ends = pieces(np.array([len(values[index]) for index in indexes]), SINGLY_BYTES)
    return [indexes[begin:end] for begin, end in pairwise([0, *ends])]
