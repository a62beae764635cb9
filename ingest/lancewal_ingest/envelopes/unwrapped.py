"""Rows that a connector has taken out of their envelope (Debezium's ExtractNewRecordState), in any format of values.

1. A value is the row itself.  A record without a value deletes the row of its key.  So does the JSON ``null``, and a payload
   of null: a converter writes them where the connector has put no row.
2. A member ``__deleted`` with the text ``true`` makes a value a delete of its key's row, whatever else it holds.  With the
   text ``false`` it says nothing.  The member is no column.
3. Values that the connector could not read are left alone (``unavailable``).  Nothing tells an update from a new row, so each
   row counts as an update, but for the first one of a changed key.
4. Heartbeats and transactions have no row in them, and are passed over.  Only a value that is no row is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.json.strict import BLANKS
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.outcomes import ENVELOPE
from lancewal_ingest.decode.part import DecodedPart
from lancewal_ingest.decode.value_decoder import (
    NO_HEADERS,
    DecodedValues,
    Growth,
    HeaderValues,
    Indexes,
    NamedBy,
    Ops,
    Places,
    RefusedValue,
    ValueDecoder,
)
from lancewal_ingest.envelopes.debezium_json import passed_over
from lancewal_ingest.envelopes.envelope import EnvelopeRules
from lancewal_kafka.headers import HeaderList

DELETED = "__deleted"
MakeDecoder = Callable[[RowSchema, Naming], ValueDecoder]
"""Function that returns the decoder of a format for columns."""
OLD_KEY = "__debezium.oldkey"
"""Header of the first record of a changed key, whose row has no former values under the new key."""
_NONE: Indexes = np.zeros(0, np.int64)
_MAYBE_NO_ROW = frozenset({"missing_key", "unknown_column"})
"""Kinds of refusals of a value that holds something else than a row."""


class UnwrappedRows:
    """See the module docstring.  ``make``: makes the decoder of the table's format."""

    tells_operations = True

    def __init__(self, make: MakeDecoder, rows: RowSchema, naming: Naming, envelope: EnvelopeRules) -> None:
        """``InvalidSchema`` if a column is called as the member that says what was deleted."""
        if DELETED in rows.called(naming.fields).columns.names:
            raise InvalidSchema(
                f"column {DELETED!r}: with table.format.envelope debezium-unwrapped this member says that a row was deleted. "
                "Give the column another name, and leave the member out of its field"
            )
        self._key = frozenset(rows.called(naming.fields).primary_key)
        self._inner = make(*_with_deleted(rows, naming))
        self.names: Collection[str] = [name for name in self._inner.names if name != DELETED]
        self._unavailable = envelope.unavailable(rows)
        self.headers: Collection[str] = [*self._inner.headers, OLD_KEY]

    @property
    def growth(self) -> Growth:
        return self._inner.growth

    @property
    def names_schemas(self) -> bool:
        return self._inner.names_schemas

    @property
    def needs_places(self) -> bool:
        return self._inner.needs_places

    @property
    def schemas_have_fields(self) -> bool:
        return self._inner.schemas_have_fields

    def schemas_of(self, values: Sequence[bytes | None], headers: HeaderValues) -> Sequence[NamedBy]:
        return self._inner.schemas_of(values, headers)

    def other_format(self, value: bytes, headers: HeaderList | None) -> str | None:
        return self._inner.other_format(value, headers)

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        decoded = self._inner.decode(values, ops, headers, places)
        passed_over = {kind: list(of_kind) for kind, of_kind in decoded.passed_over.items()}
        refused: list[RefusedValue] = []
        nulls: list[int] = []
        for one in decoded.refused:
            kind = self._passed_over(values[one.place]) if one.kind in _MAYBE_NO_ROW else None
            if _is_null(one, values[one.place]):
                nulls.append(one.place)
            elif kind is None:
                refused.append(one)
            else:
                passed_over.setdefault(kind, []).append(np.int64(one.place))
        others = Counter(decoded.other_names)
        parts, deletes = [], [decoded.deletes, np.array(nulls, np.int64)]
        for part in decoded.parts:
            rows, deleted = self._divided(part, refused)
            kept = np.ones(len(rows.indexes), np.bool_)
            if OLD_KEY in headers:
                kept = headers[OLD_KEY].is_null().to_numpy(zero_copy_only=False)[rows.indexes]
            parts.append(self._unavailable.kept(rows, kept, kept, others, refused))
            deletes.append(deleted)
        return replace(
            decoded,
            parts=parts,
            refused=refused,
            other_names=others,
            passed_over={kind: np.array(of_kind, np.int64) for kind, of_kind in passed_over.items()},
            deletes=np.concatenate(deletes),
        )

    def _divided(self, part: DecodedPart, refused: list[RefusedValue]) -> tuple[DecodedPart, Indexes]:
        """Return the rows of a part, and the indexes of its deletes; append values with another text to ``refused``."""
        *columns, deleted = part.columns
        if deleted.null_count == len(deleted):
            return replace(part, columns=columns), _NONE
        is_true = pc.equal(deleted, "true").fill_null(False).to_numpy(zero_copy_only=False)
        is_false = pc.equal(deleted, "false").fill_null(True).to_numpy(zero_copy_only=False)
        message = f"member {DELETED}: expected the text true or false"
        refused += [RefusedValue(int(at), ENVELOPE, message) for at in part.indexes[~is_true & ~is_false]]
        if not is_false.all():
            kept = pa.array(is_false)
            columns = [column.filter(kept) for column in columns]
            part = replace(part, ops=part.ops.filter(kept), present=part.present.filter(kept))
        return replace(part, indexes=part.indexes[is_false], columns=columns), part.indexes[is_true]

    def _passed_over(self, value: bytes) -> str | None:
        try:
            members = orjson.loads(value)
        except orjson.JSONDecodeError:
            return None
        kind = passed_over(members) if isinstance(members, dict) else None
        return None if kind == "heartbeat" and self._key & members.keys() else kind


def _is_null(refused: RefusedValue, value: bytes) -> bool:
    """Return whether a value was refused since it is null, or has a payload of null."""
    return refused.kind == "null_value" or (refused.kind == "not_an_object" and value.strip(BLANKS) == b"null")


def _with_deleted(rows: RowSchema, naming: Naming) -> tuple[RowSchema, Naming]:
    """Return the columns and their names with a further column for ``DELETED``."""
    columns = rows.columns.append(pa.field(DELETED, pa.string()))
    names = naming.names
    if names is not None:
        names = replace(names, present={**names.present, DELETED: None})
    return RowSchema(columns, rows.primary_key, rows.region_key), replace(naming, names=names)
