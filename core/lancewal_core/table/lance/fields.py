"""Lance schemas with field ids that lancewal chooses.

Lance's Python package gives a schema's fields as protobuf messages in depth-first order, and makes a schema of such
messages.  (Pickling of a ``LanceSchema`` uses both.)  A field that exists already keeps its message, so nothing else
that Lance stores in it is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
from lance.schema import LanceSchema

from lancewal_core.names.proto.lance_field_pb2 import LanceField


def with_fields(
    base: LanceSchema,
    schema: pa.Schema,
    field_ids: Mapping[str, Sequence[int]],
    metadata: Mapping[bytes, bytes | None] = MappingProxyType({}),
) -> LanceSchema:
    """Return a Lance schema with the fields of ``schema``, in its order, and the ids in ``field_ids``.

    ``field_ids``: by column name the ids of its field and, depth first, of its nested fields.  A field of ``base`` with
    the same id only changes its name and place.  Others are as in ``schema``.  The metadata of ``base`` stays, with
    ``metadata`` set on it; None removes a key."""
    base_metadata, *old = _messages(base)
    known = {field.id: field for field in map(LanceField.FromString, old)}
    fields = [LanceField.FromString(message) for message in _messages(LanceSchema.from_pyarrow(schema))[1:]]
    ids = [i for name in schema.names for i in field_ids[name]]
    numbered = dict(zip((field.id for field in fields), ids, strict=True))
    found = []
    for field in fields:
        own = LanceField()
        own.CopyFrom(known.get(numbered[field.id], field))
        own.name, own.id = field.name, numbered[field.id]
        own.parent_id = numbered.get(field.parent_id, -1)
        found.append(own.SerializeToString())
    kept = json.loads(base_metadata)
    for key, value in metadata.items():
        kept.pop(key.decode(), None)
        if value is not None:
            kept[key.decode()] = list(value)  # in Lance's JSON a value is a list of bytes
    return LanceSchema._from_protos(json.dumps(kept), *found)


def _messages(schema: LanceSchema) -> tuple[str, *tuple[bytes, ...]]:
    """Return the schema's metadata as JSON, and a protobuf message for each field."""
    found: tuple[str, *tuple[bytes, ...]] = schema.__reduce__()[1]  # type: ignore[assignment] # as pickle calls it
    return found
