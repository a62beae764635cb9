"""Context of ingest: an open table, with the id source, the drain, the schemas and the consumer group that ingest
needs."""

from __future__ import annotations

import os
import secrets
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from lancewal_core.names.ids import OwnerId
from lancewal_core.names.words import as_word
from lancewal_core.open import open_by
from lancewal_core.process.clock import Clock
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.drain import Drain
from lancewal_core.table.lance.row_files import use_all_cores
from lancewal_core.wal.writer_schemas import WriterSchemas
from lancewal_ingest.registry.lookups import SchemaLookups


@dataclass(frozen=True, slots=True)
class IngestContext(OpenedTable):
    new_id: Callable[[], str]
    """A fresh random text of at least 8 hex digits."""
    drain: Drain | None = None
    """The drain under way: up to which position ingest consumes each partition of the contract.  None if the topic has
    no more partitions than the contract."""
    schemas: SchemaLookups | None = None
    """Lookups of the schemas that records name; None in an operator's command, which reads stored ones alone."""
    group: str = ""
    """Our consumer group, to be compared with the contract's (``kafka.consumer_group``).  Empty in an operator's
    command."""

    @property
    def stored_schemas(self) -> SchemaLookups | WriterSchemas:
        """The schemas by which records are decoded."""
        return self.schemas or WriterSchemas(self.store, self.contract.making)


def open_context(settings: Settings, tasks: Tasks, clock: Clock, store: ObjectStore | None = None) -> IngestContext:
    """Open the table in the settings for ingest, and let Lance use all cores.  Errors: see ``open_by``.

    If another program has changed the columns of the Lance table, records still become durable, but merges stop.
    """
    use_all_cores()
    return IngestContext(
        *open_by(settings, tasks, clock, store, any_columns=True).parts, new_id=lambda: uuid.uuid4().hex
    )


def new_owner() -> OwnerId:
    """Return a new owner id ``<hostname>-<pid>-<8 hex digits>``: readable, and different at every call."""
    return OwnerId(f"{as_word(socket.gethostname(), 200)}-{os.getpid()}-{secrets.token_hex(4)}")
