"""Interface to a schema registry, with one request.

Guarantees of a ``Registry``
 1. ``schema`` returns what the registry has for a key, with all schemas that it refers to.
 2. None means that the registry has answered "not found".  Silence, a refusal, a fault, or an answer that is no schema
    is ``RegistryUnavailable``, whose message holds no secret.
 3. Nothing is cached between two calls: a later answer may differ.
 4. Several threads may call at the same time.
"""

from __future__ import annotations

from typing import Protocol

from lancewal_core.names.ids import SchemaKey
from lancewal_core.wal.writer_schemas import WriterSchema


class Registry(Protocol):
    """A schema registry; see the guarantees of the module."""

    def schema(self, key: SchemaKey) -> WriterSchema | None:
        """Return the schema of a key, or None if the registry has none.  Raises ``RegistryUnavailable`` if the registry
        does not answer.
        """
