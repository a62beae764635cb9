"""Rows that a connector has taken out of their envelope (Debezium's ExtractNewRecordState), in any format of values.

1. A value is the row itself.  A record without a value deletes the row of its key.  So does the JSON ``null``, and a
   payload of null: a converter writes them in place of no value.
2. A member ``__deleted`` with the text ``true`` makes a value a delete of its key's row, whatever else the value
   holds.  For cells that the connector does not know, it writes values that no column takes.  With the text ``false``
   the member has no effect.  The member is not a column.
3. A value that the connector could not read leaves its cell as it was (``unavailable``).  A row does not say whether
   it is an update or new.  Each row counts as an update, except the first one after its key changed.
4. Heartbeats hold no row, and are passed over.  So are transactions in plain JSON.  Only values that are refused as
   rows are checked for this.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.json.strict import BLANKS
from lancewal_ingest.decode.naming import Names, Naming
from lancewal_ingest.decode.outcomes import ENVELOPE
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import (
    NO_HEADERS,
    DecodedValues,
    HeaderValues,
    Indexes,
    Ops,
    Places,
    RefusedValue,
    ValueDecoder,
    joined,
    mask_of,
)
from lancewal_ingest.envelopes.debezium_json import passed_over
from lancewal_ingest.envelopes.envelope import EnvelopeRules

DELETED = "__deleted"
MakeDecoder = Callable[[RowSchema, Naming], ValueDecoder]
"""Function that makes a format's decoder of rows with the given columns and names."""
OLD_KEY = "__debezium.oldkey"
"""Header of the first record after a row's key has changed.  Its row has no former values under the new key."""
_TIMES = ("ts_ms", "ts_us", "ts_ns")
"""Members of a heartbeat.  The first of them is in every heartbeat."""
_NONE: Indexes = np.zeros(0, np.int64)
_MAYBE_NO_ROW = frozenset({"missing_key", "unknown_column"})
"""Kinds of refusals that a value without a row, such as a heartbeat, may get."""


class UnwrappedRows:
    """``ValueDecoder`` of rows that a connector has taken out of the envelope.  ``make``: makes the decoder of the
    table's format.
    """

    tells_operations = True

    def __init__(self, make: MakeDecoder, rows: RowSchema, naming: Naming, envelope: EnvelopeRules) -> None:
        """Make the decoder.  Raises ``InvalidSchema`` if a column has the name of the member ``__deleted``."""
        if DELETED in rows.called(naming.fields).columns.names:
            raise InvalidSchema(
                f"a column has the name or the field {DELETED!r}. With table.format.envelope debezium-unwrapped, the member "
                "of this name says that a row was deleted. Give the column another name or field"
            )
        self._key = frozenset(rows.called(naming.fields).primary_key)
        self._inner = inner = make(*_with_deleted(rows, naming))
        self.growth = inner.growth
        self.names_schemas, self.schemas_have_fields = inner.names_schemas, inner.schemas_have_fields
        self.schemas_of, self.other_format = inner.schemas_of, inner.other_format
        self._deletes = make(*_only_deleted(naming))
        """Decoder that reads the member ``__deleted`` alone, and passes all others over."""
        self._heartbeats = None if self._key & {*_TIMES} else make(*_only_times())
        self.names: Collection[str] = [name for name in self._inner.names if name != DELETED]
        self._unavailable = envelope.unavailable(rows)
        self.headers: Collection[str] = [*self._inner.headers, OLD_KEY]

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        decoded = self._inner.decode(values, ops, headers, places)
        beside = self._without_rows(decoded, values, headers, places)
        refused, others = [*beside.refused], Counter(decoded.other_names)
        parts: list[DecodedPart] = []
        deletes = [decoded.deletes]
        for part in decoded.parts:
            rows, deleted = self._divided(part, refused)
            kept = np.ones(len(rows.indexes), np.bool_)
            if OLD_KEY in headers:
                kept = mask_of(headers[OLD_KEY].is_null())[rows.indexes]
            parts.append(self._unavailable.kept(rows, kept, kept, others, refused))
            deletes.append(deleted)
        rows_alone = replace(
            decoded, parts=parts, refused=refused, other_names=others, new_fields={}, deletes=np.concatenate(deletes)
        )
        return joined([rows_alone, replace(beside, refused=[])])

    def _without_rows(
        self, decoded: DecodedValues, values: Sequence[bytes], headers: HeaderValues, places: Places | None
    ) -> DecodedValues:
        """Divide the refused values into deletes, values that are passed over, and refusals."""
        if not decoded.refused:
            return DecodedValues([], [])
        said = _firsts(_again(self._deletes, decoded.refused, values, headers, places))
        heartbeats = dict[int, object]()
        no_rows = [one for one in decoded.refused if one.kind in _MAYBE_NO_ROW]
        if no_rows and self._heartbeats is not None:
            heartbeats = _firsts(_again(self._heartbeats, no_rows, values, headers, places))
        deletes: list[int] = []
        refused: list[RefusedValue] = []
        passed_over = defaultdict[str, list[int]](list)
        for one in decoded.refused:
            kind = "heartbeat" if one.place in heartbeats else self._passed_over(one, values[one.place])
            if said.get(one.place) == "true" or _is_null(one, values[one.place]):
                deletes.append(one.place)
            elif kind is None:
                refused.append(one)
            else:
                passed_over[kind].append(one.place)
        new_fields = decoded.new_fields
        if heartbeats and new_fields:  # those of heartbeats are no columns
            new_fields = _again(self._inner, refused, values, headers, places).new_fields
        by_kind = {kind: np.array(of_kind, np.int64) for kind, of_kind in passed_over.items()}
        return DecodedValues([], refused, {}, new_fields, by_kind, np.array(deletes, np.int64))

    def _passed_over(self, refused: RefusedValue, value: bytes) -> str | None:
        if refused.kind not in _MAYBE_NO_ROW:
            return None
        try:
            members = orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
        kind = passed_over(members) if isinstance(members, dict) else None
        return None if kind == "heartbeat" and self._key & members.keys() else kind

    def _divided(self, part: DecodedPart, refused: list[RefusedValue]) -> tuple[DecodedPart, Indexes]:
        """Return the rows of a part, and the indexes of its deletes.

        Values whose ``__deleted`` is neither ``true`` nor ``false`` are added to ``refused``.
        """
        *columns, deleted = part.columns
        part = replace(part, columns=columns)
        if deleted.null_count == len(deleted):
            return part, _NONE
        is_true = mask_of(pc.equal(deleted, "true"))
        is_false = mask_of(pc.equal(deleted, "false")) | mask_of(deleted.is_null())
        message = f"member {DELETED!r}: expected the text 'true' or 'false'"
        refused += [RefusedValue(int(at), ENVELOPE, message) for at in part.indexes[~is_true & ~is_false]]
        return part if is_false.all() else part.where(is_false), part.indexes[is_true]


def _again(
    decoder: ValueDecoder,
    refused: Sequence[RefusedValue],
    values: Sequence[bytes],
    headers: HeaderValues,
    places: Places | None,
) -> DecodedValues:
    """Decode the values that were refused with another decoder, and return its result.  ``values``: all values of the
    batch.
    """
    at, some = np.array([one.place for one in refused], np.int64), [values[one.place] for one in refused]
    named = {name: array.take(pa.array(at)) for name, array in headers.items()}
    there = None if places is None else places.of(at)
    return decoder.decode(some, np.zeros(len(some), np.uint8), named, there).at(at)


def _firsts(found: DecodedValues) -> dict[int, object]:
    """Return the cell of each row in the first column, by the index of the row's value."""
    return {
        place: cell
        for part in found.parts
        for place, cell in zip(part.indexes.tolist(), part.columns[0].to_pylist(), strict=True)
    }


def _is_null(refused: RefusedValue, value: bytes) -> bool:
    """Return whether a value was refused because it is null, or because its payload is null."""
    return refused.kind == "null_value" or (refused.kind == "not_an_object" and value.strip(BLANKS) == b"null")


def _only_deleted(naming: Naming) -> tuple[RowSchema, Naming]:
    """Return ``DELETED`` as the only column, and names that pass all other members over."""
    columns = pa.schema([pa.field(DELETED, pa.string(), nullable=False)])
    names = Names({DELETED: None}, ignores=True)
    return RowSchema(columns, (DELETED,), ()), Naming(names, record=naming.record, passes_others=naming.passes_others)


def _only_times() -> tuple[RowSchema, Naming]:
    """Return the members of a heartbeat as columns, and no other names."""
    columns = pa.schema([pa.field(name, pa.int64(), nullable=name != _TIMES[0]) for name in _TIMES])
    return RowSchema(columns, _TIMES[:1], ()), Naming()


def _with_deleted(rows: RowSchema, naming: Naming) -> tuple[RowSchema, Naming]:
    """Return the columns and their names with a further column for ``DELETED``."""
    columns = rows.columns.append(pa.field(DELETED, pa.string()))
    names = naming.names
    if names is not None:
        names = replace(names, present={**names.present, DELETED: None})
    return RowSchema(columns, rows.primary_key, rows.region_key), replace(naming, names=names)
