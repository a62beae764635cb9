"""A Lance schema with fields whose ids we choose.

Lance's Python names a schema's fields, and takes them back, as protobuf messages in depth-first order (what pickling a
``LanceSchema`` uses).  A field that is there already keeps its message, so nothing that Lance notes beside it is lost.
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
    """Return the fields of ``schema``, in its order, with these ids: per column its own and, depth first, those within.
    The metadata of ``base`` stays, and ``metadata`` is set; None removes a key.

    A field of ``base`` with the same id only changes its name and place.  Others are new, and nullable."""
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
    """Return the metadata as JSON, and a message for each field."""
    found: tuple[str, *tuple[bytes, ...]] = schema.__reduce__()[1]  # type: ignore[assignment] # as pickle calls it
    return found
