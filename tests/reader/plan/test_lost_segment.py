"""A segment that is gone under a SEALED generation is a loss, also while the region's life goes on."""

from __future__ import annotations

import pytest

from lancewal_core.errors import ObjectMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Sequence
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.states import RegionStates
from lancewal_core.region.transitions import Claimant, first_claim, seal
from lancewal_core.table.contract import Column, Contract
from tests.ingest.service.test_worker import Clock
from tests.support.flushes import flush_from_log
from tests.twins.memory_store import MemoryStore
from tests.twins.memory_table import MemoryDataset, MemoryTable

CONTRACT = Contract(
    table_uuid="table", topic="orders", topic_id="topic-id-1", partitions=1, primary_key=("k",), region_key=("k",),
    start=(0,), columns=(Column(name="k", type="int64", field_ids=(0,)),), history_window_s=60, grace_s=60,
)  # fmt: skip
LOG = LogId("00000000000000aa")


def at(sequence: int) -> Claimant:
    return Claimant(OwnerId("me"), LOG, Sequence(sequence))


def test_a_seal_in_between_does_not_hide_it() -> None:
    (region,) = CONTRACT.regions
    clock = Clock()
    store = MemoryStore(clock)
    indexes = RegionStates(store, clock, 128, None)
    indexes.swap({region: lambda _: first_claim(region, 1, Position(0), at(0), "w1")})
    indexes.swap(
        {
            region: lambda i: (
                i and seal(i, Generation(1), at(1), Position(5), "w2", hand_over=False, record_times=None, now_ms=0)
            )
        }
    )
    other = RegionStates(store, clock, 128, None)

    class Sealing(MemoryStore):
        def get(self, key: str) -> bytes | None:
            if key == paths.wal_segment(LOG, Sequence(0)):
                other.swap(
                    {
                        region: lambda i: (
                            i
                            and seal(
                                i, Generation(2), at(2), Position(9), "w3", hand_over=True, record_times=None, now_ms=0
                            )
                        )
                    }
                )
            return super().get(key)

    sealing = Sealing(clock, store.bucket)
    tasks = ThreadTasks()
    try:
        with pytest.raises(ObjectMissing, match="00aa"):
            flush_from_log(
                OpenedTable.over(sealing, MemoryTable(MemoryDataset(CONTRACT.rows.table)), CONTRACT, tasks, clock),
                region,
                lambda: "0000000000000001",
            )
    finally:
        tasks.close()
