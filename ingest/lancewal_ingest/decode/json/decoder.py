"""``ValueDecoder`` of JSON: columnar where that is safe, and value by value where it is not.

1. Rows and refusals are always those that ``reference`` alone would give.
2. A batch of good values costs about one pass of Arrow's JSON reader.
3. A few bad values cost little: a batch with them is halved again and again, down to ``SINGLY_MAX`` values.
4. At most ``SINGLY_BYTES`` at a time are decoded value by value, because Python objects take many times the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.schema import Op, RowSchema
from lancewal_ingest.decode.json.columnar import ColumnReader, without
from lancewal_ingest.decode.json.defaults import Defaults
from lancewal_ingest.decode.json.growth import JsonGrowth
from lancewal_ingest.decode.json.hazards import has_decimals, hazardous
from lancewal_ingest.decode.json.other_names import NameReader
from lancewal_ingest.decode.json.presence import PresenceReader
from lancewal_ingest.decode.json.reference import ReferenceDecoder
from lancewal_ingest.decode.json.types import check_json_types
from lancewal_ingest.decode.naming import PLAIN, Naming, OtherName
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import DecodedValues, Ops, RefusedValue
from lancewal_ingest.decode.weight import pieces

SINGLY_MAX = 64
"""A part of at most this many values that Arrow refuses is decoded value by value."""
SINGLY_BYTES = 1 << 20


class JsonDecoder:
    """See the module docstring.  Raises ``InvalidSchema`` for columns that have no JSON form."""

    def __init__(self, rows: RowSchema, naming: Naming = PLAIN) -> None:
        check_json_types(rows.columns)
        self._defaults = Defaults(rows, naming)
        self.growth = JsonGrowth(rows, self._defaults.nbytes)
        self._columns = ColumnReader(rows, naming.names)
        self._names = None if naming.names is None else NameReader(naming.names)
        self._decimals = any(has_decimals(field.type) for field in rows.columns)
        self._presence = PresenceReader(rows, naming.names)
        self._reference = ReferenceDecoder(rows, naming.names, self._defaults.cells)
        self.single_records = 0
        """Number of values that were decoded one by one so far, bad ones included."""

    def decode(self, values: Sequence[bytes], ops: Ops) -> DecodedValues:
        together = np.arange(len(values))
        singly: list[int] = []
        if self._decimals and (hazards := sorted(set(hazardous(values)))):
            together, singly = np.delete(together, hazards), hazards
        parts: list[DecodedPart] = []
        others = Counter[OtherName]()
        ahead = [together] if len(together) else []
        while ahead:
            indexes = ahead.pop()
            part, doubtful = self._part(values, indexes, ops, others)
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
            part, bad = self._reference.decode(values, ops, few, others)
            parts.append(part)
            refused += bad
        self.single_records += len(singly)
        return DecodedValues(parts, refused, others)

    def _part(
        self, values: Sequence[bytes], indexes: npt.NDArray[np.int64], ops: Ops, others: Counter[OtherName]
    ) -> tuple[DecodedPart | None, list[int]]:
        """Return the rows of the values at ``indexes``, and the doubtful indexes among them.  Count the names other than
        present ones that the rows use.

        The part is None if the caller must split ``indexes`` and try again."""
        chosen = values if len(indexes) == len(values) else [values[i] for i in indexes.tolist()]
        columns, used, doubtful = self._columns.read(chosen), None, list[int]()
        if columns is None and self._names is not None:
            read = list(map(self._names.read, chosen))
            sure = [place for place, names in enumerate(read) if names is not None]
            doubtful = np.delete(indexes, sure).tolist()
            if not sure:
                return self._reference.decode(values, ops, (), others)[0], doubtful
            indexes, chosen, used = indexes[sure], [chosen[place] for place in sure], [read[place] for place in sure]
            columns = self._columns.read_other_names(chosen)
        if columns is None:
            return None, []
        arrays = columns.arrays
        if columns.doubtful is not None:
            arrays, doubtful = without(arrays, columns.doubtful), doubtful + indexes[columns.doubtful].tolist()
            kept = np.flatnonzero(~columns.doubtful)
            indexes, chosen = indexes[kept], [chosen[place] for place in kept.tolist()]
            used = None if used is None else [used[place] for place in kept.tolist()]
        others.update(name for names in used or () for name in names or ())
        ops = ops if len(indexes) == len(values) else ops[indexes]
        patches = ops == Op.PATCH
        present = self._presence.read(arrays, patches, chosen) if patches.any() else pa.nulls(len(indexes), pa.binary())
        return DecodedPart(indexes, self._defaults.fill(arrays, ops, chosen), pa.array(ops), present), doubtful


def _singly_pieces(values: Sequence[bytes], indexes: list[int]) -> list[list[int]]:
    """Return ``indexes`` divided into pieces whose values have at most ``SINGLY_BYTES``, or are one value."""
    if not indexes:
        return []
    ends = pieces(np.array([len(values[index]) for index in indexes]), SINGLY_BYTES)
    return [indexes[begin:end] for begin, end in pairwise([0, *ends])]
