"""What the ingest protocols work on: everything with an effect, put together once in ``main`` (or by a test)."""

from __future__ import annotations

import os
import secrets
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from lancewal_core.ids import OwnerId
from lancewal_core.process.clock import Clock
from lancewal_core.process.lance_threads import use_all_cores
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.indexes import RegionIndexes
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.checks import check_place, check_settings, check_table
from lancewal_core.table.contract import Contract, read_contract
from lancewal_core.table.drain import Drain
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import Table
from lancewal_core.table.watermarks import Watermarks
from lancewal_core.words import as_word


@dataclass(frozen=True, slots=True)
class IngestContext:
    store: ObjectStore
    table: Table
    indexes: RegionIndexes
    watermarks: Watermarks
    tasks: Tasks
    clock: Clock
    contract: Contract
    new_id: Callable[[], str]
    """A fresh random text of at least 8 hex digits."""
    drain: Drain | None = None
    """How far partitions are taken, where the topic has more of them than the contract."""


def open_context(settings: Settings, store: ObjectStore, tasks: Tasks, clock: Clock) -> IngestContext:
    """The table that the settings name, over its ``store``; checks that contract, table and settings agree."""
    use_all_cores()
    uri = settings.table.uri
    contract = read_contract(store, uri)
    check_place(uri, contract)
    check_settings(settings, contract)
    table = LanceTable(uri, settings.store.options, settings.table.base_paths)
    check_table(table.newest(), contract)
    return IngestContext(
        store=store,
        table=table,
        indexes=RegionIndexes(store, clock),
        watermarks=Watermarks(store, table),
        tasks=tasks,
        clock=clock,
        contract=contract,
        new_id=lambda: uuid.uuid4().hex,
    )


def new_owner() -> OwnerId:
    """``<hostname>-<pid>-<8 hex digits>``: readable, and never the same twice."""
    return OwnerId(f"{as_word(socket.gethostname(), 200)}-{os.getpid()}-{secrets.token_hex(4)}")
