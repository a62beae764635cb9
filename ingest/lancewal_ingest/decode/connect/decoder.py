"""``ValueDecoder`` of Kafka Connect's JSON with schemas.

1. A value is an object with the members schema and payload, and no others (``envelope``).  Its payload is decoded by
   its own schema.  Neither a registry nor a stored schema says anything about it.
2. The decoder of a schema stays in memory, by the schema's text, within the limits of ``framed.kept``.  Results do
   not depend on what stays.
3. The schema of a value is not parsed again if the value begins like an earlier value, up to the payload.  Only these
   bytes are compared.
4. A payload that is null is refused: a record without a value deletes a row, and a value without a payload says
   nothing.
5. If a schema has another name than the contract's records, its payloads are not decoded.  Only that they are JSON is
   checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import OTHER_RECORD
from lancewal_ingest.decode.avro.schema import AvroRecord
from lancewal_ingest.decode.connect.envelope import Heads, check_members, payload_after, schema_and_payload
from lancewal_ingest.decode.connect.rows import ConnectRows
from lancewal_ingest.decode.connect.schema import parse_schema
from lancewal_ingest.decode.framed.kept import KeptByText
from lancewal_ingest.decode.framed.payloads import SchemaUnusable
from lancewal_ingest.decode.json.defaults import Defaults
from lancewal_ingest.decode.json.foreign import framed_format
from lancewal_ingest.decode.json.growth import JsonGrowth
from lancewal_ingest.decode.json.strict import BLANKS, check_value
from lancewal_ingest.decode.naming import PLAIN, Naming
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.value_decoder import (
    NO_HEADERS,
    DecodedValues,
    HeaderValues,
    NamesNoSchema,
    Ops,
    Places,
    RefusedValue,
    Weights,
    joined,
)
from lancewal_ingest.decode.weight import lengths
from lancewal_kafka.headers import HeaderList

_NULL = b"null"


class TextDecoder(Protocol):
    """Decoder of the payloads of one schema.  Payloads are JSON texts."""

    def decode(self, payloads: Sequence[bytes], ops: Ops) -> DecodedValues: ...


MakeTexts = Callable[[AvroRecord], TextDecoder]
"""Function that is given the record that a schema defines, and returns the decoder of its payloads.  It may raise
``SchemaUnusable``."""


@dataclass(slots=True)
class _Group:
    """Values that carry one schema."""

    indexes: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    nulls: list[int] = field(default_factory=list)
    """Indexes of the values whose payload is null.  ``indexes`` has none of them."""

    def add(self, index: int, payload: bytes) -> None:
        if payload.strip(BLANKS) == _NULL:
            self.nulls.append(index)
        else:
            self.indexes.append(index)
            self.payloads.append(payload)


class ConnectDecoder(NamesNoSchema):
    """``ValueDecoder`` of Kafka Connect's JSON with schemas.  Raises ``InvalidSchema`` if a default is not a value of
    its column.
    """

    schemas_have_fields = True

    def __init__(self, rows: RowSchema, naming: Naming = PLAIN, events: MakeTexts | None = None) -> None:
        """``events``: makes the decoder of payloads that are events of a connector.  None: payloads are rows, which
        do not name operations.
        """
        self._make = events or (lambda record: ConnectRows(record, rows, naming))
        self.tells_operations = events is not None
        self._naming = naming
        called = rows.called(naming.fields)
        in_values = naming.in_values(called)
        self.names: Collection[str] = in_values.columns.names
        self.headers: Sequence[str] = ()
        self._heads = Heads()
        self._known = KeptByText[TextDecoder | SchemaUnusable]()
        self.growth = ConnectGrowth(in_values, Defaults(called, naming).nbytes, self._heads)

    def other_format(self, value: bytes, headers: HeaderList | None) -> str | None:
        found = framed_format(value, headers)
        if found is None:
            return None
        return (
            f"expected JSON of Kafka Connect with a schema; the value is {found}. "
            "table.format.value is connect-json: take a topic whose producers use JsonConverter"
        )

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        groups, refused = self._by_schema(values)
        results: list[DecodedValues] = []
        for text, group in groups.items():
            known, indexes = self._decoder_of(text), group.indexes
            if isinstance(known, SchemaUnusable) and known.kind == OTHER_RECORD:
                indexes = _others(values, group, refused)
            else:
                refused += [_no_payload(index) for index in group.nulls]
            if not indexes:
                continue
            at = np.array(indexes, np.int64)
            if isinstance(known, SchemaUnusable):
                results.append(known.result(at, self._naming))
                continue
            found = known.decode(group.payloads, ops if len(at) == len(values) else ops[at]).at(at)
            results.append(replace(found, refused=[_why(values[one.place], one) for one in found.refused]))
        return joined([DecodedValues([], refused), *results])

    def schema_texts(self, values: Sequence[bytes]) -> Iterator[tuple[bytes, npt.NDArray[np.int64]]]:
        """Yield the text of each schema, with the indexes of the values that carry it.

        A value that is refused for another reason may be left out.
        """
        head = self._heads.of(values[0]) if values else None
        if head is not None and pc.all(pc.starts_with(pa.array(values, pa.binary()), head.text)).as_py():
            yield head.schema, np.arange(len(values))  # nearly always, and a tenth of the time
            return
        for text, group in self._by_schema(values)[0].items():
            yield text, np.array(group.indexes, np.int64)

    def _by_schema(self, values: Sequence[bytes]) -> tuple[dict[bytes, _Group], list[RefusedValue]]:
        """Return the values by the text of their schema, and refusals of those without a schema or payload."""
        groups: dict[bytes, _Group] = {}
        refused: list[RefusedValue] = []
        head, group = None, _Group()
        for index, value in enumerate(values):
            before, head = head, self._heads.of(value, head)
            if head is None:
                self._in_any_order(index, value, groups, refused)
                continue
            if head is not before:
                group = groups.setdefault(head.schema, _Group())
            group.add(index, payload_after(value, len(head.text)))
        return groups, refused

    def _in_any_order(self, index: int, value: bytes, groups: dict[bytes, _Group], refused: list[RefusedValue]) -> None:
        try:
            text, payload = schema_and_payload(value)
        except Refusal as refusal:
            refused.append(RefusedValue.of(index, refusal))
            return
        groups.setdefault(text, _Group()).add(index, payload)

    def _decoder_of(self, text: bytes) -> TextDecoder | SchemaUnusable:
        """Return the decoder of the payloads of a schema, or why there is none."""
        known = self._known.get(text)
        if known is not None:
            return known
        try:
            return self._known.put(text, self._make(parse_schema(text, self._naming)))
        except SchemaUnusable as unusable:
            return self._known.put(text, unusable)


class ConnectGrowth:
    """``Growth`` of Kafka Connect's JSON values.  If a value begins with a head (``envelope``), only the bytes after
    the head count.

    A vector may come in base64, which has no brackets.  So each byte counts one more byte than in plain JSON.
    """

    headers: Sequence[str] = ()

    def __init__(self, rows: RowSchema, default_bytes: int, heads: Heads) -> None:
        self._json = JsonGrowth(rows, default_bytes)
        self._heads = heads

    def each(self, values: Sequence[bytes | None], headers: HeaderValues = NO_HEADERS) -> Weights:
        rests: list[bytes | None] = []
        head = None
        for value in values:
            head = self._heads.of(value or b"", head)
            rests.append(value if value is None or head is None else value[len(head.text) :])
        grown: Weights = self._json.each(rests) + lengths(rests)
        return grown

    def largest(self, nbytes: int) -> int:
        return self._json.largest(nbytes) + nbytes


def _no_payload(index: int) -> RefusedValue:
    return RefusedValue(index, "null_value", "expected a payload; it is null. A record without a value deletes a row")


def _others(values: Sequence[bytes], group: _Group, refused: list[RefusedValue]) -> list[int]:
    """Return the indexes of a group's values, which are records of another name.  Values that are not JSON are added
    to ``refused``.
    """
    others = list(group.nulls)
    for index, payload in zip(group.indexes, group.payloads, strict=True):
        try:
            check_value(payload)
        except Refusal as refusal:
            refused.append(_why(values[index], RefusedValue.of(index, refusal)))
        else:
            others.append(index)
    return others


def _why(value: bytes, refused: RefusedValue) -> RefusedValue:
    """Return the refusal of a value whose payload is refused.  If the payload is not JSON, it may be the value around
    it that is wrong, for example with a further member.
    """
    if refused.kind != "not_json":
        return refused
    try:
        check_members(value)
    except Refusal as refusal:
        return RefusedValue.of(refused.place, refusal)
    return refused
