"""Interface of a format whose values name their schema: payloads of one schema in; columns, operations and refusals out.

A value is a frame, which names the schema, and a *payload*.  A ``PayloadDecoder`` decodes the payloads of one *writer
schema* for the columns of one contract.  Guarantees

 1. Each payload is one row or is refused, whatever its bytes are.  No error is raised.  A payload costs at most 64 MB of
    memory and four times its length, and at most a second.
 2. The result for a payload depends only on its bytes, its operation, the writer schema, and the contract's columns and
    names.
 3. Guarantees 3, 6, 7 and 8 of ``value_decoder`` hold.  ``present`` is null, unless payloads tell it.  A patch gets
    no defaults.
 4. If the writer schema has a field for which there is no column, and that the contract passes over by none of its names,
    every payload is refused as ``unknown_column``.  ``DecodedValues.new_fields`` has the type of each such field at the
    top level that can be a column.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lancewal_core.table.contract import OTHER_RECORD
from lancewal_core.wal.writer_schemas import SCHEMA_BYTES_MAX, SchemaKind, WriterSchema
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.value_decoder import DecodedValues, Indexes, Ops, RefusedValue


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payloads that lie in one buffer, in ascending order."""

    data: npt.NDArray[np.uint8]
    """The values one after the other, frames included."""
    starts: npt.NDArray[np.int64]
    """Index in ``data`` of the first byte of each payload."""
    ends: npt.NDArray[np.int64]
    """Index in ``data`` after the last byte of each payload, never below its start."""

    @staticmethod
    def of(values: Sequence[bytes], skipped: npt.NDArray[np.int64] | int = 0) -> Payloads:
        """Return the payloads of ``values``, whose first ``skipped`` bytes are the frame."""
        ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
        starts: npt.NDArray[np.int64] = ends - np.diff(ends, prepend=0) + skipped
        return Payloads(np.frombuffer(b"".join(values), np.uint8), starts, ends)

    def some(self, chosen: npt.NDArray[Any]) -> Payloads:
        """Return some payloads: those at ascending indexes, or those for which a mask is true."""
        return Payloads(self.data, self.starts[chosen], self.ends[chosen])


class SchemaUnusable(Exception):
    """Error about a writer schema none of whose payloads can become a row.  The message holds no content of a value.

    ``kind``: one of ``outcomes.KINDS``.
    """

    def __init__(self, message: str, kind: str = "unusable_schema") -> None:
        super().__init__(message)
        self.kind = kind

    def result(self, indexes: Indexes, naming: Naming) -> DecodedValues:
        """Return the result for the values at ``indexes``, which name this schema.  All are refused, or passed over if
        the contract passes records of other names over.
        """
        if self.kind == OTHER_RECORD and naming.passes_others:
            return DecodedValues([], [], passed_over={OTHER_RECORD: indexes})
        return DecodedValues([], [RefusedValue(index, self.kind, str(self)) for index in indexes.tolist()])


def check_writer(schema: WriterSchema, kind: SchemaKind) -> None:
    """Raise ``SchemaUnusable`` if a writer schema is of another kind, too large to be stored, or not valid Unicode."""
    if schema.kind != kind:
        raise SchemaUnusable(f"expected a schema of kind {kind}; it is of kind {schema.kind}")
    try:
        nbytes = schema.nbytes
    except UnicodeEncodeError:
        raise SchemaUnusable("the schema has a lone surrogate, which is no Unicode") from None
    if nbytes > SCHEMA_BYTES_MAX:
        raise SchemaUnusable(f"the schema and those that it refers to have more than {SCHEMA_BYTES_MAX} bytes")


def check_record(name: str, naming: Naming) -> None:
    """Raise ``SchemaUnusable`` if the contract expects records of another name (``Naming.record``)."""
    if naming.record is not None and name != naming.record:
        raise SchemaUnusable(f"expected a record of the name {naming.record!a} (table.format.record)", OTHER_RECORD)


class PayloadDecoder(Protocol):
    """Decoder of the payloads of one writer schema.  The module docstring has its guarantees."""

    tells_presence: bool
    """Whether the payload of a patch shows which columns it sets.  If so, the ``present`` of its rows lists these
    columns.
    """
    tells_null: bool
    """Whether payloads show which columns are absent and which are null.  If not, the header ``lancewal.fields``
    may.
    """
    fills: Collection[str]
    """Present names (``naming``) of the columns for which the writer schema has a field."""
    growth: tuple[int, int]
    """Upper bound of the bytes that a row takes in Arrow beyond its slots of fixed size.

    The first number is per byte of the payload, the second per row.  The bound covers names of enumerations, defaults
    and packed numbers."""

    def decode(self, payloads: Payloads, ops: Ops) -> DecodedValues:
        """Return the rows and the refusals of ``payloads``.  ``ops`` has the operation of each payload."""
