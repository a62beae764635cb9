"""A schema registry in memory: what it has is set by a test, and may change at any time."""

from __future__ import annotations

from lancewal_core.errors import RegistryUnavailable
from lancewal_core.names.ids import SchemaKey
from lancewal_core.wal.writer_schemas import WriterSchema

JSON = WriterSchema("json-schema", '{"type": "object"}')


class FakeRegistry:
    """``Registry`` of the schemas in ``has``.  ``fault`` is raised instead of an answer."""

    def __init__(self, **has: WriterSchema) -> None:
        self.has: dict[SchemaKey, WriterSchema] = {SchemaKey(key.replace("_", "-")): one for key, one in has.items()}
        self.fault: RegistryUnavailable | None = None
        self.asked: list[SchemaKey] = []

    def schema(self, key: SchemaKey) -> WriterSchema | None:
        self.asked.append(key)
        if self.fault is not None:
            raise self.fault
        return self.has.get(key)
