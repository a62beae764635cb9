"""A format of values with schemas, which tests put in the place of JSON: JSON, whose fields have types known beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest import mock

import pyarrow as pa

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.append import prepare
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.value_decoder import NO_HEADERS, DecodedValues, HeaderValues, NamesNoSchema, Ops, Places

TYPES = {"note": "string", "n1": "int64", "n2": "float64", "n3": "string", "n4": "int64"}
"""Optional fields of the records that ``tests.whole_path.ingest_with_schemas`` reads."""
DIES_AT = "DIES_AT"
"""Variable that says at which of its commits that process dies."""
Read = Callable[[bytes], tuple[bytes, Mapping[str, pa.DataType]]]
"""Function from a value to its JSON and the types of its optional fields."""


class WithSchemas(NamesNoSchema):
    """A ``ValueDecoder``.  It names all fields that are no present column, former and dropped names too."""

    def __init__(self, read: Read, rows: RowSchema, naming: Naming) -> None:
        self._read = read
        self._json = JsonDecoder(rows, naming)
        self._columns = set(rows.columns.names)
        self.growth = self._json.growth
        self.names = self._json.names
        self.headers: Sequence[str] = ()

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        read = [self._read(value) for value in values]
        found = self._json.decode([value for value, _ in read], ops)
        refused = {one.place for one in found.refused}
        new_fields = {
            name: type_
            for place, (_, schema) in enumerate(read)
            for name, type_ in schema.items()
            if place in refused and name not in self._columns
        }
        return DecodedValues(found.parts, found.refused, found.other_names, new_fields, found.passed_over)


@contextmanager
def values_have_schemas(read: Read) -> Iterator[None]:
    """Tables of JSON have values of this format meanwhile."""
    with mock.patch.object(prepare, "value_decoder", lambda _, rows, naming, *rest: WithSchemas(read, rows, naming)):
        yield


def known_by_name(types: Mapping[str, pa.DataType]) -> Read:
    """Values are plain JSON, and each field of one of these names is optional and has this type."""

    def read(value: bytes) -> tuple[bytes, Mapping[str, pa.DataType]]:
        try:
            members = json.loads(value)
        except ValueError:
            return value, {}
        return value, {name: types[name] for name in members if name in types}

    return read
