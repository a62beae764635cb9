"""Keys of records, decoded: the row that a record without a value deletes, and the comparison of a key with its row.

1. A key that holds the whole primary key says which row a record without a value deletes.
2. If rows do not tell their partition (``Contract.rows_tell_partition``), each key must be that of its row.
   Otherwise two rows might share one Kafka key, and Kafka's compaction would remove the older record.  A key of
   another row makes the record bad: ``key_differs``.
3. If keys are compared, a missing key, or one that does not decode, makes the record bad: ``key_form``.  No key is
   guessed.
4. If rows tell their partition, nothing is compared here: ``routing`` finds records with wrong keys.
5. The *form* of a key says under which schema the key was written, and where the schema is named
   (``lancewal_core.record_keys.key_form``).  A good key of a form that the contract does not list is
   ``key_form_changed``.  Its row may lie in another partition than the row's other records.  A bad key of such a form
   is ``key_form`` or ``key_differs``.  So a bad key never decides which form is the table's first.
6. Keys are decoded in pieces of at most ``PIECE_BYTES`` by their growth, or one by one: a key of few bytes may name a
   long symbol of an enumeration.

``EncodedKeys`` reads keys whose bytes follow from rows.  Keys of all other formats that decode need a
``ValueDecoder`` of the region key's columns (``ComparedKeys``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.record_keys.json_compact import writes
from lancewal_core.record_keys.key_form import KeyForm, key_form, key_form_written_out
from lancewal_core.record_keys.key_format import KeyCodec
from lancewal_core.record_keys.key_text import KeyText, key_text
from lancewal_core.rows.column_types import storage
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.table.contract import KEY_FORM_CHANGED
from lancewal_ingest.decode.outcomes import KEY_DIFFERS, KEY_FORM, Refusal
from lancewal_ingest.decode.value_decoder import (
    Growth,
    HeaderValues,
    NamedBy,
    NamedMessage,
    NamesNoSchema,
    Places,
    ValueDecoder,
    mask_of,
)
from lancewal_ingest.decode.weight import PIECE_BYTES, split

Cells = tuple[object, ...]
Indexes = npt.NDArray[np.int64]
Wrong = Mapping[int, Refusal]
DecodedKeys = tuple[dict[int, Refusal], list[tuple[Indexes, Sequence[pa.Array]]]]
"""Refusals by the key's index, and the decoded keys: pairs of their indexes and the columns of the region key."""
KEY_SCHEMA_HEADER = "__key_schema_id"
"""Header that may name the schema of a record's key.  The key then is the payload alone."""


@dataclass(frozen=True, slots=True)
class GivenKeys:
    """Keys of some records, with the headers and offsets that are needed to decode the keys."""

    keys: Sequence[bytes | None]
    headers: HeaderValues = field(default_factory=dict)
    """The headers that ``RecordKeys.headers`` names."""
    places: Places | None = None
    """Partitions and offsets of the records."""

    def some(self, indexes: Indexes) -> GivenKeys:
        headers = {name: array.take(pa.array(indexes)) for name, array in self.headers.items()}
        places = None if self.places is None else self.places.of(indexes)
        return GivenKeys([self.keys[index] for index in indexes.tolist()], headers, places)


class RecordKeys(Protocol):
    """Reader of one table's record keys.  Several threads may call at the same time."""

    @property
    def headers(self) -> Collection[str]:
        """Names of the headers that are needed to decode keys."""

    @property
    def growth(self) -> Growth | None:
        """Growth of the row that a record without a value deletes.  None if the row takes no more memory than the
        key.
        """

    names_schemas: bool
    """Whether keys name schemas."""

    def schemas_of(self, values: Sequence[bytes | None], headers: HeaderValues) -> Sequence[NamedBy]:
        """Return the schemas that keys name, each with the indexes of the keys."""

    def deleted(self, given: GivenKeys) -> Sequence[Cells | Refusal | None]:
        """Return for each key the primary key of the row that a record without a value deletes, in the order of the
        contract's primary key.

        The item is None if the key does not hold the primary key.  It is a ``Refusal`` if the key cannot be decoded,
        or has a form that the contract does not list (3, 5).
        """

    def wrong(self, given: GivenKeys, rows: pa.RecordBatch) -> Wrong:
        """Compare keys with their rows.  Return the refusals of keys that do not match, or have a wrong form, by
        index.

        ``rows`` has one row for each key.
        """


class EncodedKeys(NamesNoSchema):
    """Record keys whose bytes are computed from rows.

    ``compared``: whether keys are compared with rows, because rows do not tell their partition.
    """

    headers: Collection[str] = ()
    growth = None

    def __init__(self, codec: KeyCodec, rows: RowSchema, *, compared: bool) -> None:
        self._codec = codec
        self._region_key = rows.region_key
        self._places = _places(rows)
        self._compared = compared
        self._named = f"{codec.named} of ({', '.join(rows.region_key)})"

    def deleted(self, given: GivenKeys) -> Sequence[Cells | Refusal | None]:
        return [self._deleted(key) for key in given.keys]

    def _deleted(self, key: bytes | None) -> Cells | Refusal | None:
        cells = None if key is None else self._codec.decode(key)
        if cells is None and self._compared and self._places is not None:
            return Refusal(KEY_FORM, f"expected a record key that is {self._named}")
        return None if cells is None or self._places is None else tuple(cells[place] for place in self._places)

    def wrong(self, given: GivenKeys, rows: pa.RecordBatch) -> Wrong:
        if not self._compared:
            return {}
        keys = given.keys
        encoded = self._codec.encode_batch([rows.column(name) for name in self._region_key])
        same = mask_of(pc.equal(encoded, pa.array(keys, pa.binary())))
        return {place: self._refusal(keys[place]) for place in np.flatnonzero(~same).tolist()}

    def _refusal(self, key: bytes | None) -> Refusal:
        if key is None or self._codec.decode(key) is None:
            return Refusal(KEY_FORM, f"expected a record key that is {self._named}")
        return _differs(self._region_key)


FormsOf = Callable[[GivenKeys], Iterable[tuple[KeyForm, Indexes]]]
"""Function that returns the forms of keys (``lancewal_core.record_keys.key_form``), each with the indexes of its keys.  A key
that cannot be decoded may be left out."""


def forms_by_name(named: Callable[[Sequence[bytes | None], HeaderValues], Iterable[NamedMessage]]) -> FormsOf:
    """Return the function for keys that name a schema of a registry.

    ``named``: returns the schemas that keys name, each with the path to a message and the indexes of the keys.
    """

    def forms(given: GivenKeys) -> Iterator[tuple[KeyForm, Indexes]]:
        header = given.headers.get(KEY_SCHEMA_HEADER)
        for schema, path, indexes in named(given.keys, given.headers):
            beside = np.zeros(len(indexes), np.bool_)
            if header is not None:
                beside = mask_of(header.take(pa.array(indexes)).is_valid())
            for in_header, some in ((False, indexes[~beside]), (True, indexes[beside])):
                if len(some):
                    yield key_form(schema, path, in_header=in_header), some

    return forms


def forms_by_text(texts: Callable[[Sequence[bytes]], Iterable[tuple[bytes, Indexes]]]) -> FormsOf:
    """Return the function for keys that contain their schema.

    ``texts``: returns the texts of the schemas, each with the indexes of the keys.
    """

    def forms(given: GivenKeys) -> Iterator[tuple[KeyForm, Indexes]]:
        for text, indexes in texts([key or b"" for key in given.keys]):
            yield key_form_written_out(text), indexes

    return forms


class ComparedKeys:
    """Record keys that are decoded, and compared with the region key of their rows.

    ``called``: the column of each name that a key may use, if keys are JSON.  A key with the same layout as an
    earlier key (``KeyText``) is then compared without being decoded, which takes a third of the time
    (``benchmarks.decode_speed``).  ``forms``: returns the forms of keys; None if keys have no forms.  ``taken``: the
    forms that the contract lists.
    """

    def __init__(
        self,
        values: ValueDecoder,
        rows: RowSchema,
        called: Mapping[str, str],
        forms: FormsOf | None = None,
        taken: Collection[KeyForm] = (),
    ) -> None:
        self._values = values
        self._forms = forms
        self._taken = taken
        self.headers: Collection[str] = values.headers
        self.growth: Growth | None = values.growth if values.names_schemas else None
        self.names_schemas = values.names_schemas
        types = (rows.columns.field(name).type for name in rows.region_key)
        self._called = called if all(map(writes, types)) else {}
        self._text: KeyText | None = None
        self._region_key = rows.region_key
        self._places = _places(rows)

    def schemas_of(self, values: Sequence[bytes | None], headers: HeaderValues) -> Sequence[NamedBy]:
        return self._values.schemas_of(values, headers)

    def deleted(self, given: GivenKeys) -> Sequence[Cells | Refusal | None]:
        found: list[Cells | Refusal | None] = [None] * len(given.keys)
        if self._places is None:
            return found
        refused = self._of_other_forms(given)
        for wrong, parts in self._decoded(given):
            refused |= wrong
            for at, columns in parts:
                cells = zip(*(_cells(columns[place]) for place in self._places), strict=True)
                for index, row in zip(at.tolist(), cells, strict=True):
                    found[index] = row
        for index, refusal in refused.items():
            found[index] = refusal
        return found

    def wrong(self, given: GivenKeys, rows: pa.RecordBatch) -> Wrong:
        text = self._text
        if text is None:
            return {**self._of_other_forms(given), **self._differing(given, rows, np.arange(rows.num_rows))}
        same = mask_of(pc.equal(text.of(rows), pa.array(given.keys, pa.binary())))
        if same.all():
            return {}
        others = np.flatnonzero(~same)
        return self._differing(given.some(others), rows, others)

    def _of_other_forms(self, given: GivenKeys) -> dict[int, Refusal]:
        """Return the refusals of keys whose forms the contract does not list (5)."""
        found = dict[int, Refusal]()
        if self._forms is None:
            return found
        for form, indexes in self._forms(given):
            if form not in self._taken:
                listed = (
                    f"the table's keys have {', '.join(self._taken)}" if self._taken else "the table has no key yet"
                )
                refusal = Refusal(KEY_FORM_CHANGED, f"the record's key has the schema {form}; {listed}", form)
                found |= dict.fromkeys(indexes.tolist(), refusal)
        return found

    def _differing(self, given: GivenKeys, rows: pa.RecordBatch, at: Indexes) -> dict[int, Refusal]:
        """Return the refusals of keys that do not decode, or do not match their rows.

        ``given``: the keys of the rows of ``rows`` at the indexes ``at``.  The result has the indexes of rows.
        """
        found = dict[int, Refusal]()
        for wrong, parts in self._decoded(given):
            found |= {int(at[index]): refusal for index, refusal in wrong.items()}
            for indexes, columns in parts:
                found |= self._compared(given, rows, indexes, at[indexes], columns)
        return found

    def _compared(
        self, given: GivenKeys, rows: pa.RecordBatch, indexes: Indexes, places: Indexes, columns: Sequence[pa.Array]
    ) -> dict[int, Refusal]:
        """Compare the keys at ``indexes``, which have these columns, with the rows at ``places``."""
        whole = len(places) == rows.num_rows
        same = np.ones(len(places), np.bool_)
        for name, column in zip(self._region_key, columns, strict=True):
            ours = rows.column(name) if whole else rows.column(name).take(pa.array(places))
            same &= mask_of(pc.equal(storage(column), storage(ours)))
        if self._called and same.any():
            first = int(np.flatnonzero(same)[0])
            row = {name: column[first].as_py() for name, column in zip(self._region_key, columns, strict=True)}
            key = given.keys[int(indexes[first])]
            self._text = (None if key is None else key_text(key, row, self._called)) or self._text
        return {int(place): _differs(self._region_key) for place in places[~same]}

    def _decoded(self, given: GivenKeys) -> Iterator[DecodedKeys]:
        """Yield, piece by piece, the refusals of keys that do not decode, and the columns of the other keys with
        their indexes.
        """
        everything = np.arange(len(given.keys))
        if self.growth is None:
            yield self._piece(given, everything)
            return
        for at in split(everything, self.growth.each(given.keys, given.headers), PIECE_BYTES):
            yield self._piece(given if len(at) == len(everything) else given.some(at), at)

    def _piece(self, given: GivenKeys, at: Indexes) -> DecodedKeys:
        wrong = {index: self._no_key("") for index, key in enumerate(given.keys) if key is None}
        if wrong:
            kept = np.delete(np.arange(len(at)), list(wrong))
            given, wrong, at = given.some(kept), {int(at[index]): why for index, why in wrong.items()}, at[kept]
        keys = cast("Sequence[bytes]", given.keys)
        decoded = self._values.decode(keys, np.full(len(keys), Op.UPSERT, np.uint8), given.headers, given.places)
        for refused in decoded.refused:
            wrong[int(at[refused.place])] = self._no_key(refused.message, refused.found)
        return wrong, [(at[part.indexes], part.columns) for part in decoded.parts]

    def _no_key(self, why: str, found: str = "") -> Refusal:
        kind = (
            "that is a JSON object of table.region_key" if self._forms is None else "with a schema, of table.region_key"
        )
        expected = f"expected a record key {kind} ({', '.join(self._region_key)})"
        return Refusal(KEY_FORM, expected + (why and f"; {why}"), found)


def _places(rows: RowSchema) -> list[int] | None:
    """Return the index in the region key of each column of the primary key.  Return None if they do not have the same
    columns.
    """
    whole = set(rows.region_key) == set(rows.primary_key)
    return [rows.region_key.index(name) for name in rows.primary_key] if whole else None


def _cells(column: pa.Array) -> list[object]:
    """Return the cells of a column as Arrow accepts them.  Dates are numbers of days, because Python's dates end with
    the year 9999.
    """
    days = pa.types.is_date32(column.type)
    return (column.view(pa.int32()) if days else column).to_pylist()  # type: ignore[no-any-return] # pyarrow has no types


def _differs(names: Sequence[str]) -> Refusal:
    return Refusal(KEY_DIFFERS, f"expected a record key with the row's own ({', '.join(names)})")
