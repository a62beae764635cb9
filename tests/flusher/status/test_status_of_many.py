"""``lancewal status`` of a table with many partitions asks the store for several of them at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Barrier

from lancewal_core.ids import Position, Region, TopicId
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.status.facts import KafkaSpan
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.store.object_store import ObjectInfo
from lancewal_core.table.contract import Column, Contract
from lancewal_core.testing.memory_store import MemoryStore
from lancewal_core.testing.memory_table import MemoryDataset, MemoryTable
from lancewal_flusher.status.partition_figures import Seen, figures_of
from lancewal_flusher.status.unmerged_counts import UnmergedCounts

AT_ONCE = 4
CONTRACT = Contract(
    table_uuid="uuid-1",
    topic="orders",
    topic_id="id",
    partitions=2 * AT_ONCE,
    primary_key=("k",),
    region_key=("k",),
    start=(0,) * 2 * AT_ONCE,
    columns=(Column(name="k", type="int64", field_ids=(0,)),),
)


class MetStore(MemoryStore):
    """A listing is answered once so many are under way."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self._met = Barrier(AT_ONCE, timeout=60)

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        self._met.wait()
        return super().list(prefix, limit, after)


def test_partitions_that_wait_are_looked_at_side_by_side() -> None:
    counted = [
        UnmergedCounts(Region("orders", TopicId("id"), partition), durable=Position(5))
        for partition in range(2 * AT_ONCE)
    ]
    waiting, done = KafkaSpan(0, 9, 9, 9), KafkaSpan(0, 5, 5, 5)
    spans = {counts.region.partition: waiting if counts.region.partition < AT_ONCE else done for counts in counted}
    problems: list[str] = []
    tasks = ThreadTasks(io_threads=AT_ONCE)
    try:
        opened = OpenedTable.over(
            MetStore(), MemoryTable(MemoryDataset(CONTRACT.rows.table)), CONTRACT, tasks, SystemClock()
        )
        found = figures_of(Seen(opened, None, None, spans, 600.0, 1_700_000_000_000, problems), counted)
    finally:
        tasks.close()
    assert [figures.facts.partition for figures in found] == list(range(2 * AT_ONCE))
    assert problems == []
