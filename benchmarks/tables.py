"""Make tables for benchmarks without Kafka: the contract is written directly, and rows go through the ingest worker."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lance

from benchmarks.memory_source import MemorySource
from benchmarks.workload import PRIMARY_KEY, REGION_KEY, SCHEMA, Message
from lancewal_core.names import paths
from lancewal_core.names.ids import Making, OwnerId
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import Tasks, ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.column_types import format_type
from lancewal_core.store.object_store import put_once
from lancewal_core.table.contract import Column, Contract, encode_contract
from lancewal_core.table.watermarks import NOTHING_MERGED, TABLE_UUID, Watermarks
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.context import IngestContext
from lancewal_ingest.regions.policy import MemoryPolicy, SealPolicy, WorkerLimits
from lancewal_ingest.service.worker import IngestWorker
from tests.support.silent_observer import SilentObserver


def create(address: Address, topic: str, topic_id: str, partitions: int, regions_per_page: int = 128) -> Contract:
    """An empty table with a contract."""
    table_uuid = uuid.uuid4().hex
    options: Any = {"storage_options": dict(address.options or {})}
    dataset = lance.write_dataset(SCHEMA.empty_table(), address.uri, mode="create", schema=SCHEMA, **options)
    dataset.update_config({TABLE_UUID: table_uuid})
    dataset = lance.dataset(address.uri, **options)
    store, table = address.store(), address.table()
    making = Making(uuid.uuid4().hex)
    Watermarks(store, table, making).record(NOTHING_MERGED, table.newest().version, "checkpoint")
    columns = tuple(
        Column(name=f.name(), type=format_type(SCHEMA.field(f.name()).type), field_ids=(f.id(),))
        for f in dataset.lance_schema.fields()
    )
    contract = Contract(
        table_uuid=table_uuid, making=making, topic=topic, topic_id=topic_id, partitions=partitions, primary_key=PRIMARY_KEY,
        region_key=REGION_KEY, start=(-1,) * partitions, columns=columns, on_bad_record="stop",
        regions_per_page=regions_per_page,
    )  # fmt: skip
    put_once(store, paths.contract_version(1, None), encode_contract(contract))
    return contract


class MemoryIngest:
    """The ingest worker over a ``MemorySource``."""

    def __init__(
        self,
        address: Address,
        contract: Contract,
        source: MemorySource,
        seal_rows: int,
        segment_rows: int,
        tasks: Tasks | None = None,
        *,
        as_served: bool = False,
    ) -> None:
        """``as_served``: segments grow as with a service's default settings, and ``segment_rows`` is what a poll brings."""
        opened = OpenedTable.over(
            address.store(), address.table(), contract, tasks or ThreadTasks(workers=4), SystemClock()
        )
        context = IngestContext(*opened.parts, lambda: uuid.uuid4().hex)
        limits = WorkerLimits(poll_records=segment_rows)
        self.source = source
        self.worker = IngestWorker(
            context, self.source, _NoDeadLetters(), Preparer(contract), OwnerId("benchmark"), SilentObserver(),
            SealPolicy(rows=seal_rows), MemoryPolicy(memtables_ratio=1.0) if as_served else None,
            limits if as_served else replace(limits, segment_rows=segment_rows, linger_s=0.0),
        )  # fmt: skip
        self.worker.subscribe()

    def feed(self, messages: Sequence[Message], turn_s: float = 0.002) -> None:
        """Append, and step until all of it is durable, and what is due is sealed.  ``turn_s``: how long a turn waits for the
        segment in flight; the service's does 0.1."""
        for message in messages:
            self.source.append(message)
        while self.worker.durable != self.source.ends or not self.worker.idle or self.worker._sealing.running:
            self.worker.step(turn_s)


class _NoDeadLetters:
    def send(self, region: object, records: object, rejected: object) -> None:
        raise AssertionError("a benchmark's record was rejected")
