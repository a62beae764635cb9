"""Schemas read from a registry without storing them, for commands that show records before there is a table."""

from __future__ import annotations

from collections.abc import Sequence

from lancewal_core.names.ids import SchemaKey
from lancewal_core.settings.sections import RegistrySettings
from lancewal_core.wal.writer_schemas import StoredSchema, stored_schema
from lancewal_ingest.registry.confluent import ConfluentRegistry
from lancewal_ingest.registry.registry import Registry


class AskedSchemas:
    """``Schemas`` that are read directly from a registry, each at most once.  One thread at a time may call."""

    asked_first = False

    def __init__(self, registry: Registry | None) -> None:
        self._registry = registry
        self._found: dict[SchemaKey, tuple[StoredSchema, ...]] = {}

    @staticmethod
    def of(settings: RegistrySettings) -> AskedSchemas:
        """Return the schemas of the registry in the settings.  Without a registry there are none."""
        return AskedSchemas(ConfluentRegistry(settings) if settings.url else None)

    def known(self, key: SchemaKey) -> Sequence[StoredSchema]:
        return self._found.get(key, ())

    def read(self, key: SchemaKey, at_least: int = 1) -> Sequence[StoredSchema]:
        if key not in self._found:
            schema = None if self._registry is None else self._registry.schema(key)
            self._found[key] = () if schema is None else (stored_schema(schema, key),)
        return self._found[key]
