"""Rows that a connector has taken out of their envelope (Debezium's ExtractNewRecordState), in any format of values.

1. A value is the row itself.  A record without a value deletes the row of its key.  So does the JSON ``null``, and a payload
   of null: a converter writes them where the connector has put no row.
2. A member ``__deleted`` with the text ``true`` makes a value a delete of its key's row, whatever else it holds: in place of
   cells that it does not know, a connector writes values that no column takes.  With the text ``false`` it says nothing.  The
   member is no column.
3. Values that the connector could not read are left alone (``unavailable``).  Nothing tells an update from a new row, so each
   row counts as an update, but for the first one of a changed key.
4. Heartbeats have no row in them, and are passed over.  So are transactions in plain JSON.  Only a value that is no row is
   looked at.
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
"""Function that returns the decoder of a format for columns."""
OLD_KEY = "__debezium.oldkey"
"""Header of the first record of a changed key, whose row has no former values under the new key."""
_TIMES = ("ts_ms", "ts_us", "ts_ns")
"""Members of a heartbeat, of which the first is always there."""
_NONE: Indexes = np.zeros(0, np.int64)
_MAYBE_NO_ROW = frozenset({"missing_key", "unknown_column"})
"""Kinds of refusals of a value that holds something else than a row."""


class UnwrappedRows:
    """``ValueDecoder`` of rows that a connector has taken out of the envelope.  ``make``: makes the decoder of the
    table's format.
    """

    tells_operations = True

    def __init__(self, make: MakeDecoder, rows: RowSchema, naming: Naming, envelope: EnvelopeRules) -> None:
        """Raises ``InvalidSchema`` if a column has the name of the member ``__deleted``."""
        if DELETED in rows.called(naming.fields).columns.names:
            raise InvalidSchema(
                f"column {DELETED!r}: with table.format.envelope debezium-unwrapped this member says that a row was deleted. "
                "Give the column another name, and leave the member out of its field"
            )
        self._key = frozenset(rows.called(naming.fields).primary_key)
        self._inner = inner = make(*_with_deleted(rows, naming))
        self.growth = inner.growth
        self.names_schemas, self.schemas_have_fields = inner.names_schemas, inner.schemas_have_fields
        self.schemas_of, self.other_format = inner.schemas_of, inner.other_format
        self._deletes = make(*_only_deleted(naming))
        """Decoder of that member alone."""
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
        """Return what becomes of the refused values: deletes, values that are passed over, and refusals."""
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
        """Return the rows of a part, and the indexes of its deletes; append values with another text to ``refused``."""
        *columns, deleted = part.columns
        part = replace(part, columns=columns)
        if deleted.null_count == len(deleted):
            return part, _NONE
        is_true = mask_of(pc.equal(deleted, "true"))
        is_false = mask_of(pc.equal(deleted, "false")) | mask_of(deleted.is_null())
        message = f"member {DELETED}: expected the text true or false"
        refused += [RefusedValue(int(at), ENVELOPE, message) for at in part.indexes[~is_true & ~is_false]]
        return part if is_false.all() else part.where(is_false), part.indexes[is_true]


def _again(
    decoder: ValueDecoder,
    refused: Sequence[RefusedValue],
    values: Sequence[bytes],
    headers: HeaderValues,
    places: Places | None,
) -> DecodedValues:
    """Return what another decoder makes of the refused ones among some values."""
    at, some = np.array([one.place for one in refused], np.int64), [values[one.place] for one in refused]
    named = {name: array.take(pa.array(at)) for name, array in headers.items()}
    there = None if places is None else places.of(at)
    return decoder.decode(some, np.zeros(len(some), np.uint8), named, there).at(at)


def _firsts(found: DecodedValues) -> dict[int, object]:
    """Return the first column of each row, by the place of its value."""
    return {
        place: cell
        for part in found.parts
        for place, cell in zip(part.indexes.tolist(), part.columns[0].to_pylist(), strict=True)
    }


def _is_null(refused: RefusedValue, value: bytes) -> bool:
    """Return whether a value was refused since it is null, or has a payload of null."""
    return refused.kind == "null_value" or (refused.kind == "not_an_object" and value.strip(BLANKS) == b"null")


def _only_deleted(naming: Naming) -> tuple[RowSchema, Naming]:
    """Return ``DELETED`` as the only column, and names that pass all other members over."""
    columns = pa.schema([pa.field(DELETED, pa.string(), nullable=False)])
    names = Names({DELETED: None}, ignores=True)
    return RowSchema(columns, (DELETED,), ()), Naming(names, record=naming.record, passes_others=naming.passes_others)


def _only_times() -> tuple[RowSchema, Naming]:
    """Return the columns of heartbeats, and their names."""
    columns = pa.schema([pa.field(name, pa.int64(), nullable=name != _TIMES[0]) for name in _TIMES])
    return RowSchema(columns, _TIMES[:1], ()), Naming()


def _with_deleted(rows: RowSchema, naming: Naming) -> tuple[RowSchema, Naming]:
    """Return the columns and their names with a further column for ``DELETED``."""
    columns = rows.columns.append(pa.field(DELETED, pa.string()))
    names = naming.names
    if names is not None:
        names = replace(names, present={**names.present, DELETED: None})
    return RowSchema(columns, rows.primary_key, rows.region_key), replace(naming, names=names)
