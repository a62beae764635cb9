"""Interface of a format of record values: bytes in; columns, operations and refusals out.

``decoder`` does what is the same for every format: headers and operations, sizes, records without a value, offsets,
and rows too large for a segment.  It also says which columns a delete keeps.

Guarantees of a ``ValueDecoder``; ``tests/conformance/test_value_decoder.py`` holds every format to them
 1. Each value is one row, is refused, or is passed over, whatever its bytes are.  No error is raised.  Only a value that the
    format knows to be neither a row nor a fault is passed over, such as a heartbeat.  Nothing else is dropped: a value
    with a member for which there is no column is refused, unless the contract says that its name is passed over.
 2. The result for a value depends only on its bytes, its operation, the headers that the format names, the contract's
    columns and names, and the stored schemas (``lancewal_core.wal.writer_schemas``).  Its neighbours and earlier values
    change nothing.
 3. Each cell of a row is exactly what the value says.  A value that its column cannot hold exactly is refused, never
    rounded or cut.  An absent column is null, or has its default in an upsert.  No column of the primary key is ever null.
    A column that no value has (``Naming.absent``) is null, and no patch has it: ``metadata`` fills it.
 4. ``present`` of a patch has the columns that the value holds, null or not; of other operations it is null.  Every
    operation is checked alike: a delete may hold a whole row.
 5. Either all values of a format tell their operation (``tells_operations``), or none does.  If they do, ``ops`` are all
    upserts, and rows have the operations of their values.  A delete has no row: ``deletes`` has its index.
 6. A refusal has one of ``outcomes.KINDS``, and its message holds no content of the value.
 7. ``growth`` never returns less than a row takes.
 8. Several threads may call at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.names.ids import SchemaKey
from lancewal_core.wal.writer_schemas import StoredSchema
from lancewal_ingest.decode.naming import OtherName
from lancewal_ingest.decode.outcomes import Refusal
from lancewal_ingest.decode.part import DecodedPart
from lancewal_kafka.headers import HeaderList

Ops = npt.NDArray[np.uint8]
"""An ``Op`` for each value."""
HeaderValues = Mapping[str, pa.Array]
"""By the name of a header, the value of each record's last header of that name: binary, null without one."""
NO_HEADERS: HeaderValues = MappingProxyType({})
Weights = npt.NDArray[np.int64]
"""Weight in bytes for each record."""


Indexes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NamedBy = tuple[SchemaKey, Indexes]
"""A schema, and the indexes of the values that name it."""
NamedMessage = tuple[SchemaKey, tuple[int, ...], npt.NDArray[np.int64]]
"""A schema, the path to a Protobuf message in it, and the indexes of the values that name both.  The path has the
message's index at each level."""


def mask_of(truths: pa.Array) -> Mask:
    """Return Arrow's booleans as a mask, in which null is false."""
    mask: Mask = truths.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


@dataclass(frozen=True, slots=True)
class Places:
    """Partitions and offsets of records."""

    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def of(self, indexes: npt.NDArray[np.int64]) -> Places:
        return Places(self.partitions[indexes], self.offsets[indexes])


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """A value that gave no row, and why."""

    place: int
    """Index of the value among the decoded values."""
    kind: str
    message: str
    found: str = ""
    """Name of the unexpected member; empty if there is none.  ``Rejected.found`` says where it is shown."""

    @staticmethod
    def of(place: int, refusal: Refusal) -> RefusedValue:
        return RefusedValue(place, refusal.kind, str(refusal), refusal.found)


@dataclass(frozen=True, slots=True)
class DecodedValues:
    parts: Sequence[DecodedPart]
    """Rows.  ``DecodedPart.indexes`` are indexes of values.  No value is in two parts."""
    refused: Sequence[RefusedValue]
    """Refused values, in no order."""
    other_names: Mapping[OtherName, int] = field(default_factory=dict)
    """Number of times that the rows use each of these names (``OtherName``)."""
    new_fields: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Type of each field that the schemas of refused values have, and the table has no column for, by name.  Members
    of structs are left out.  A format without schemas names none."""
    passed_over: Mapping[str, Indexes] = field(default_factory=dict)
    """Indexes of the values that are passed over, by kind (``outcomes.PASSED_OVER``)."""
    deletes: Indexes = field(default_factory=lambda: np.zeros(0, np.int64))
    """Indexes of the values whose records delete the row of their Kafka key, if values tell operations."""
    changed_ms: int = 0
    """Time at which the source made one of the newest changes among the values, in milliseconds since 1970; 0 if none
    tells a time.  Rows that a snapshot has read are no changes."""

    def at(self, indexes: Indexes) -> DecodedValues:
        """Return this result with other indexes: value ``i`` here is value ``indexes[i]`` of a larger batch."""
        return replace(
            self,
            parts=[replace(part, indexes=indexes[part.indexes]) for part in self.parts],
            refused=[replace(one, place=int(indexes[one.place])) for one in self.refused],
            passed_over={kind: indexes[places] for kind, places in self.passed_over.items()},
            deletes=indexes[self.deletes],
        )


def joined(results: Sequence[DecodedValues]) -> DecodedValues:
    """Join results, each for some values of a batch, to one result for the batch."""
    other_names, new_fields = Counter[OtherName](), dict[str, pa.DataType]()
    passed_over: dict[str, list[Indexes]] = {}
    for one in results:
        other_names.update(one.other_names)
        new_fields.update(one.new_fields)
        for kind, places in one.passed_over.items():
            passed_over.setdefault(kind, []).append(places)
    return DecodedValues(
        [part for one in results for part in one.parts],
        [refused for one in results for refused in one.refused],
        other_names,
        new_fields,
        {kind: np.concatenate(places) for kind, places in passed_over.items()},
        np.concatenate([one.deletes for one in results]),
        max(one.changed_ms for one in results),
    )


class Growth(Protocol):
    """Upper bound of the bytes that a row takes in Arrow beyond its slots of fixed size, which ``weight`` counts."""

    @property
    def headers(self) -> Collection[str]:
        """Names of the headers that affect growth; none if it depends on values alone."""

    def each(self, values: Sequence[bytes | None], headers: HeaderValues = NO_HEADERS) -> Weights:
        """Return an upper bound of the additional bytes of each value's row; 0 for a record without a value.

        Must be cheap: it is called for every record, before decoding."""

    def largest(self, nbytes: int) -> int:
        """Return an upper bound of the additional bytes for any value of at most ``nbytes``."""


class Schemas(Protocol):
    """Source of stored schemas."""

    asked_first: bool
    """Whether records wait undecoded until the schemas that they name are in memory."""

    def known(self, key: SchemaKey) -> Sequence[StoredSchema]:
        """Return the versions of a schema that are in memory."""

    def read(self, key: SchemaKey, at_least: int = 1) -> Sequence[StoredSchema]:
        """Return all stored versions of a schema, the first version first; empty if the table has stored none.

        ``at_least``: the number of versions that there must be by the contract.  Versions in memory suffice if they
        are that many.  Raises ``Retry`` while the schema has not been looked up yet.
        """


class NoSchemas:
    """``Schemas`` of a table that stores no schemas."""

    asked_first = False

    def known(self, key: SchemaKey) -> Sequence[StoredSchema]:
        return ()

    def read(self, key: SchemaKey, at_least: int = 1) -> Sequence[StoredSchema]:
        return ()


NO_SCHEMAS = NoSchemas()


class ValueDecoder(Protocol):
    """Decoder of the record values of one table; see the guarantees of the module."""

    @property
    def growth(self) -> Growth: ...

    @property
    def names(self) -> Collection[str]:
        """Names of the columns, as values call them."""

    @property
    def headers(self) -> Collection[str]:
        """Names of the headers that are needed to decode values; empty if values suffice."""

    tells_operations: bool
    """Whether values name their operations, because a connector wrote them.  Then no header may name an operation,
    and each record of a row or a delete needs a Kafka key."""
    names_schemas: bool
    """Whether values name the schemas that they were written under."""
    schemas_have_fields: bool
    """Whether schemas list the fields of values, with their types."""

    def schemas_of(self, values: Sequence[bytes | None], headers: HeaderValues) -> Sequence[NamedBy]:
        """Return the schemas that values name, each with the indexes of the values."""

    def other_format(self, value: bytes, headers: HeaderList | None) -> str | None:
        """Return a message that names the format of a refused value; None if no other format is recognised."""

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        """Return the rows, the refusals, and the values that are passed over.  ``ops``: the operation of each value.
        ``headers``: the headers that the property ``headers`` names.

        ``places``: the partition and offset of each value's record.
        """


class NamesNoSchema:
    """The schema part of a ``ValueDecoder`` for formats whose values name neither a schema nor an operation."""

    tells_operations = False
    names_schemas = False
    schemas_have_fields = False

    def schemas_of(self, values: Sequence[bytes | None], headers: HeaderValues) -> Sequence[NamedBy]:
        return ()

    def other_format(self, value: bytes, headers: HeaderList | None) -> str | None:
        return None
