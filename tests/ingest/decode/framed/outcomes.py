"""What a decoder of payloads with fields makes of payloads, by both of its readers, as values that tests compare."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lancewal_ingest.decode.framed.payloads import Payloads
from lancewal_ingest.decode.framed.typed import TypedPayloads
from lancewal_ingest.decode.value_decoder import DecodedValues


def decoded(of: TypedPayloads, datums: Sequence[bytes], ops: Sequence[int] | None = None) -> DecodedValues:
    found = of.decode(Payloads.of(datums), np.array(ops or [0] * len(datums), np.uint8))
    places = [int(place) for part in found.parts for place in part.indexes] + [one.place for one in found.refused]
    assert sorted(places) == list(range(len(datums)))
    for part in found.parts:
        for array in (*part.columns, part.ops, part.present):
            array.validate(full=True)
            assert len(array) == len(part.indexes)
    return found


def outcomes(found: DecodedValues) -> dict[int, str]:
    """What became of each value, as text in which -0.0 is not 0.0 and a time is a number."""
    become = {one.place: f"{one.kind}: {one.message}" for one in found.refused}
    for part in found.parts:
        columns = [texts(array) for array in (*part.columns, part.ops, part.present)]
        become |= {int(place): ", ".join(cells) for place, *cells in zip(part.indexes, *columns, strict=True)}
    return become


def by_one(of: TypedPayloads, datums: list[bytes]) -> dict[int, str]:
    """What the strict reader alone makes of each payload."""
    payloads, ops = Payloads.of(datums), np.zeros(len(datums), np.uint8)
    found = of.one_by_one(payloads, np.arange(len(datums)), ops)
    become = {one.place: f"{one.kind}: {one.message}" for one in found.refused}
    for part in found.parts:
        columns = [texts(array) for array in (*part.columns, part.ops, part.present)]
        become |= {int(place): ", ".join(cells) for place, *cells in zip(part.indexes, *columns, strict=True)}
    return become


def texts(array: pa.Array) -> list[str]:
    """Each cell as text; times as the numbers that they are stored as."""
    return [repr(cell) for cell in _numbered(array).to_pylist()]


def _numbered(array: pa.Array) -> pa.Array:
    type_ = array.type
    if pa.types.is_temporal(type_):
        bits = type_.bit_width
        return pa.Array.from_buffers(
            pa.int64() if bits == 64 else pa.int32(), len(array), array.buffers(), offset=array.offset
        )
    if pa.types.is_map(type_):
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        items = pa.ListArray.from_arrays(array.offsets, entries, mask=array.is_null() if array.null_count else None)
        return _numbered(items)
    if pa.types.is_list(type_):
        items = _numbered(array.values)
        return pa.ListArray.from_arrays(array.offsets, items, mask=array.is_null() if array.null_count else None)
    if pa.types.is_struct(type_):
        members = [_numbered(array.field(place)) for place in range(type_.num_fields)]
        names = [field.name for field in type_]
        return pa.StructArray.from_arrays(members, names, mask=array.is_null() if array.null_count else None)
    return array
