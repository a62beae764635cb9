"""Keys of records, decoded: the row that a record without a value deletes, and the comparison of a key with its row.

1. A key that holds the whole primary key says which row a record without a value deletes.
2. If rows do not tell their partition (``Contract.rows_tell_partition``), each key must be that of its row.  Otherwise two
   rows might share one Kafka key, and compaction would remove the older one.  A key of another row is the bad record
   ``key_differs``.
3. Then a key that does not decode is the bad record ``key_form``, never a guess: a missing key too.
4. If rows tell their partition, ``routing`` finds records with wrong keys, and nothing is compared here.

A format whose keys decode, and whose rows do not tell the key, needs a ``ValueDecoder`` of the region key's columns
(``ComparedKeys``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.record_keys.json_compact import writes
from lancewal_core.record_keys.key_format import KeyCodec
from lancewal_core.record_keys.key_text import KeyText, key_text
from lancewal_core.rows.column_types import storage
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_ingest.decode.outcomes import KEY_DIFFERS, KEY_FORM, Refusal
from lancewal_ingest.decode.value_decoder import ValueDecoder

Cells = tuple[object, ...]
Places = npt.NDArray[np.int64]
Wrong = Mapping[int, Refusal]


class RecordKeys(Protocol):
    """Reader of one table's record keys.  Several threads may call at the same time."""

    def deleted(self, key: bytes | None) -> Cells | None:
        """Return the primary key that a record without a value deletes, in the contract's order.

        None if the key does not say it.  ``Refusal`` if the key does not decode (guarantee 3)."""

    def wrong(self, keys: Sequence[bytes | None], rows: pa.RecordBatch) -> Wrong:
        """Return the refusals of keys that are not those of their rows, by place; ``rows`` has a row for each key."""


class EncodedKeys:
    """Keys whose bytes follow from rows.  They are ``compared`` if rows do not tell their partition all the same."""

    def __init__(self, codec: KeyCodec, rows: RowSchema, *, compared: bool) -> None:
        self._codec = codec
        self._region_key = rows.region_key
        self._places = _places(rows)
        self._compared = compared
        self._named = f"{codec.named} of ({', '.join(rows.region_key)})"

    def deleted(self, key: bytes | None) -> Cells | None:
        cells = None if key is None else self._codec.decode(key)
        if cells is None and self._compared and self._places is not None:
            raise Refusal(KEY_FORM, f"expected a record key that is {self._named}")
        return None if cells is None or self._places is None else tuple(cells[place] for place in self._places)

    def wrong(self, keys: Sequence[bytes | None], rows: pa.RecordBatch) -> Wrong:
        if not self._compared:
            return {}
        encoded = self._codec.encode_batch([rows.column(name) for name in self._region_key])
        same = pc.equal(encoded, pa.array(keys, pa.binary())).fill_null(False).to_numpy(zero_copy_only=False)
        return {place: self._refusal(keys[place]) for place in np.flatnonzero(~same).tolist()}

    def _refusal(self, key: bytes | None) -> Refusal:
        if key is None or self._codec.decode(key) is None:
            return Refusal(KEY_FORM, f"expected a record key that is {self._named}")
        return _differs(self._region_key)


class ComparedKeys:
    """Keys that ``values`` decodes to the columns of the region key.

    ``called``: the column of each name that a key may use, if keys are JSON.  Keys in the text of a key before (``KeyText``)
    are then compared without being decoded, which takes a third of the time (``benchmarks.decode_speed``)."""

    def __init__(self, values: ValueDecoder, rows: RowSchema, called: Mapping[str, str]) -> None:
        self._values = values
        types = (rows.columns.field(name).type for name in rows.region_key)
        self._called = called if all(map(writes, types)) else {}
        self._text: KeyText | None = None
        self._region_key = rows.region_key
        self._places = _places(rows)

    def deleted(self, key: bytes | None) -> Cells | None:
        if self._places is None:
            return None
        if key is None:
            raise self._no_key("")
        decoded = self._values.decode([key], np.array([Op.UPSERT], np.uint8))
        for refused in decoded.refused:
            raise self._no_key(refused.message, refused.found)
        columns = decoded.parts[0].columns
        return tuple(columns[place][0].as_py() for place in self._places)

    def wrong(self, keys: Sequence[bytes | None], rows: pa.RecordBatch) -> Wrong:
        text = self._text
        if text is None:
            return self._decoded(keys, np.arange(len(keys)), rows)
        same = pc.equal(text.of(rows), pa.array(keys, pa.binary())).fill_null(False)
        if pc.all(same).as_py():
            return {}
        others = np.flatnonzero(~same.to_numpy(zero_copy_only=False))
        return self._decoded([keys[place] for place in others.tolist()], others, rows)

    def _decoded(self, keys: Sequence[bytes | None], at: Places, rows: pa.RecordBatch) -> Wrong:
        """Return the refusals of ``keys``, which are those of the rows ``at`` these places."""
        found = {place: self._no_key("") for place, key in zip(at.tolist(), keys, strict=True) if key is None}
        if found:
            at = np.array([place for place in at.tolist() if place not in found], np.int64)
        given = [key for key in keys if key is not None]
        decoded = self._values.decode(given, np.full(len(given), Op.UPSERT, np.uint8))
        for refused in decoded.refused:
            found[int(at[refused.place])] = self._no_key(refused.message, refused.found)
        learned = False
        for part in decoded.parts:
            places = at[part.indexes]
            whole = len(places) == rows.num_rows
            same = np.ones(len(places), np.bool_)
            for name, column in zip(self._region_key, part.columns, strict=True):
                ours = rows.column(name) if whole else rows.column(name).take(pa.array(places))
                same &= pc.equal(storage(column), storage(ours)).to_numpy(zero_copy_only=False)
            found |= {int(place): _differs(self._region_key) for place in places[~same]}
            if self._called and not learned and same.any():
                first, learned = int(np.flatnonzero(same)[0]), True
                row = {name: column[first].as_py() for name, column in zip(self._region_key, part.columns, strict=True)}
                self._text = key_text(given[int(part.indexes[first])], row, self._called) or self._text
        return found

    def _no_key(self, why: str, found: str = "") -> Refusal:
        named = f"a JSON object of table.region_key ({', '.join(self._region_key)})"
        return Refusal(KEY_FORM, f"expected a record key that is {named}" + (why and f"; {why}"), found)


def _places(rows: RowSchema) -> list[int] | None:
    """Return the place in the region key of each column of the primary key; None if not all are in it."""
    whole = set(rows.region_key) == set(rows.primary_key)
    return [rows.region_key.index(name) for name in rows.primary_key] if whole else None


def _differs(names: Sequence[str]) -> Refusal:
    return Refusal(KEY_DIFFERS, f"expected a record key with the row's own ({', '.join(names)})")
