"""``ValueDecoder`` of JSON: columnar where that is safe, and value by value where it is not.

1. Rows and refusals are always those that ``reference`` alone would give.
2. A batch of good values costs about one pass of Arrow's JSON reader.
3. A few bad values cost little: a batch with them is halved again and again, down to ``SINGLY_MAX`` values.
4. At most ``SINGLY_BYTES`` at a time are decoded value by value, because Python objects take many times the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.column_types import has_map
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_ingest.decode.json.cells import AS_TEXTS
from lancewal_ingest.decode.json.columnar import ColumnReader, without
from lancewal_ingest.decode.json.defaults import Defaults
from lancewal_ingest.decode.json.foreign import wrong_format
from lancewal_ingest.decode.json.forms import Shape, ShapeReader
from lancewal_ingest.decode.json.growth import JsonGrowth
from lancewal_ingest.decode.json.hazards import has_decimals, hazardous
from lancewal_ingest.decode.json.other_names import NameReader, Used
from lancewal_ingest.decode.json.presence import PresenceReader
from lancewal_ingest.decode.json.reference import ReferenceDecoder
from lancewal_ingest.decode.json.strict import with_texts
from lancewal_ingest.decode.json.types import check_nesting
from lancewal_ingest.decode.naming import PLAIN, Naming, OtherName
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import (
    NO_HEADERS,
    DecodedValues,
    HeaderValues,
    NamesNoSchema,
    Ops,
    Places,
    RefusedValue,
)
from lancewal_ingest.decode.weight import split
from lancewal_kafka.headers import HeaderList

SINGLY_MAX = 64
"""Maximum number of values in a part that is decoded value by value when Arrow refuses it.  Larger parts are halved."""
SINGLY_BYTES = 1 << 20


class JsonDecoder(NamesNoSchema):
    """``ValueDecoder`` of JSON.  Raises ``InvalidSchema`` for columns that nest too deep."""

    def __init__(self, rows: RowSchema, naming: Naming = PLAIN) -> None:
        check_nesting(rows.columns)
        rows = rows.called(naming.fields)
        self._defaults = Defaults(rows, naming)
        in_values = naming.in_values(rows)
        self.names: Sequence[str] = in_values.columns.names
        self.growth = JsonGrowth(in_values, self._defaults.nbytes)
        self._shapes = ShapeReader(rows, naming)
        self._columns = ColumnReader(rows, naming, self._shapes)
        self._names = None if naming.names is None else NameReader(naming.names)
        self._decimals = any(has_decimals(field.type) for field in rows.columns)
        self._presence = PresenceReader(rows, naming.names)
        self._reference = ReferenceDecoder(rows, naming, self._defaults.cells)
        self._texts = _names_of_texts(naming)
        maps: dict[str, type] = {field.name: object for field in in_values.columns if has_map(field.type)}
        self._quoted = {**self._texts, **_with_former(maps, naming)}
        """Members that the fast path gets as strings, which hold the JSON text of the value.  The mapping has the
        Python type of the values to convert, by present or former name."""
        self._examines = bool(naming.forms) or naming.names is not None
        self.headers: Sequence[str] = ()
        self.single_records = 0
        """Number of values that were decoded one by one so far, bad ones included."""

    def other_format(self, value: bytes, headers: HeaderList | None) -> str | None:
        return wrong_format(value, headers, self.names)

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        together = np.arange(len(values))
        singly: list[int] = []
        given = values
        if self._quoted:
            texts = [with_texts(value, self._quoted) for value in given]
            singly = [place for place, text in enumerate(texts) if text is None]
            together = np.delete(together, singly)
            values = [text or b"" for text in texts]
        if self._decimals and (hazards := set(hazardous(values)).difference(singly)):
            singly += sorted(hazards)
            together = np.setdiff1d(together, singly)
        parts: list[DecodedPart] = []
        others = Counter[OtherName]()
        ahead = [_Piece(together)] if len(together) else []
        while ahead:
            piece = ahead.pop()
            found = self._part(values, piece, ops, others)
            if found is not None:
                part, doubtful = found
                parts.append(part)
                singly.extend(doubtful)
            elif self._examines and piece.shape is None:
                pieces_, doubtful = self._examined(values, piece.indexes)
                ahead += pieces_
                singly.extend(doubtful)
            elif len(piece.indexes) <= SINGLY_MAX:
                singly.extend(piece.indexes.tolist())
            else:
                middle = len(piece.indexes) // 2
                ahead += [piece.part(0, middle), piece.part(middle, None)]
        refused: list[RefusedValue] = []
        singly.sort()
        if self._texts and singly:
            given = list(given)
            for place in singly:
                given[place] = with_texts(given[place], self._texts) or given[place]
        if singly:
            nbytes = np.array([len(given[place]) for place in singly])
            for few in split(np.array(singly), nbytes, SINGLY_BYTES):
                part, bad = self._reference.decode(given, ops, few.tolist(), others)
                parts.append(part)
                refused += bad
        self.single_records += len(singly)
        return DecodedValues(parts, refused, others)

    def _part(
        self, values: Sequence[bytes], piece: _Piece, ops: Ops, others: Counter[OtherName]
    ) -> tuple[DecodedPart, list[int]] | None:
        """Decode the values of a piece.  Return their rows, and the indexes of doubtful values, which have no row
        here.

        Names in rows that are not present names are counted in ``others``.  None: the caller must split the piece and
        try again.
        """
        indexes, used = piece.indexes, piece.used
        chosen = values if len(indexes) == len(values) else [values[i] for i in indexes.tolist()]
        shape = piece.shape
        if shape is None:
            shape = self._shapes.first(chosen)
            if self._hazardous(shape, chosen):
                return None
        columns = self._columns.read(chosen, shape, other_names=used is not None)
        if columns is None:
            return None
        (arrays, uncertain), doubtful = columns, list[int]()
        if uncertain is not None:
            arrays, doubtful = without(arrays, uncertain), indexes[uncertain].tolist()
            kept = np.flatnonzero(~uncertain)
            indexes, chosen = indexes[kept], [chosen[place] for place in kept.tolist()]
            used = None if used is None else [used[place] for place in kept.tolist()]
        others.update(name for names in used or () for name in names)
        ops = ops if len(indexes) == len(values) else ops[indexes]
        patches = ops == Op.PATCH
        present = self._presence.read(arrays, patches, chosen) if patches.any() else pa.nulls(len(indexes), pa.binary())
        return DecodedPart(indexes, self._defaults.fill(arrays, ops, chosen), pa.array(ops), present), doubtful

    def _examined(self, values: Sequence[bytes], indexes: npt.NDArray[np.int64]) -> tuple[list[_Piece], list[int]]:
        """Return pieces of values that have one shape and whose names are known, and the indexes of doubtful values."""
        chosen = [values[i] for i in indexes.tolist()]
        shapes = self._shapes.read(chosen)
        used = None if self._names is None else list(map(self._names.read, chosen))
        by_shape: dict[Shape, list[int]] = {}
        doubtful: list[int] = []
        for place, shape in enumerate(shapes):
            if shape is None or (used is not None and used[place] is None):
                doubtful.append(int(indexes[place]))
            else:
                by_shape.setdefault(shape, []).append(place)
        for shape, places in by_shape.items():
            hazards = self._hazardous(shape, [chosen[place] for place in places])
            doubtful += [int(indexes[places[at]]) for at in hazards]
            by_shape[shape] = [place for at, place in enumerate(places) if at not in hazards]
        return [
            _Piece(indexes[places], shape, None if used is None else [used[place] or () for place in places])
            for shape, places in by_shape.items()
            if places
        ], doubtful

    def _hazardous(self, shape: Shape, values: Sequence[bytes]) -> set[int]:
        """Return the indexes of values that Arrow must not be given in this shape (``hazards``)."""
        if self._decimals or not self._shapes.needs_decimals(shape):
            return set()  # hazardous values of a table with decimals never come here
        return set(hazardous(values))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Values that are decoded together."""

    indexes: npt.NDArray[np.int64]
    shape: Shape | None = None
    """Shape of all these values.  None: they have not been examined one by one."""
    used: Sequence[Used] | None = None
    """For each value, the names in it that are not present names.  None: the values are expected to have none."""

    def part(self, begin: int, end: int | None) -> _Piece:
        used = None if self.used is None else self.used[begin:end]
        return _Piece(self.indexes[begin:end], self.shape, used)


def _names_of_texts(naming: Naming) -> Mapping[str, type]:
    """Return the columns whose values become texts of JSON (``cells.AS_TEXTS``): the type of these values, by present
    or former name.
    """
    return _with_former({name: AS_TEXTS[form] for name, form in naming.forms.items() if form in AS_TEXTS}, naming)


def _with_former(found: Mapping[str, type], naming: Naming) -> dict[str, type]:
    """Return ``found``, which has present names, with the former names of the same columns added."""
    return {name: type_ for present, type_ in found.items() for name in naming.names_of(present)}
