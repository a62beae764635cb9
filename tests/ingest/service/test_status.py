"""What it costs to take a status: the page of a member with hundreds of partitions holds up no turn of its loop."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from lancewal_core.names.ids import Generation, OwnerId, Position, Sequence
from lancewal_core.table.contract import Column, Contract
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.service.recent_records import RecentRecords
from lancewal_ingest.service.standstill import Standstill
from lancewal_ingest.service.status import IngestStatus
from tests.support.regions import region
from tests.support.scripted import ManualClock

PARTITIONS = 50
AHEAD = {region(p): Position(7) for p in range(PARTITIONS)}


class Counted:
    """Counts how often it is asked for what goes over all partitions."""

    def __init__(self, contract: Contract) -> None:
        self.asked = Counter[str]()
        self.memtables = {
            region: MemTable(region, Generation(1), Sequence(0), Position(5), 0.0, 0.0) for region in contract.regions
        }
        self.refused = self.waiting = {}  # type: ignore[var-annotated] # of nothing
        self.throttled, self.idle_or_progressing, self.silent = False, True, None
        lows = SimpleNamespace(lows=dict.fromkeys(AHEAD, Position(0)))
        self.last = SimpleNamespace(ends=AHEAD, retention=lows)
        self.terms = SimpleNamespace(contract=contract)

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return {"consumed": AHEAD, "decoded": AHEAD, "stopped": {}, "schema_waits": {}, "highs": lambda: AHEAD}[name]


def test_each_partition_is_shown_and_all_are_asked_for_together() -> None:
    contract = Contract(
        table_uuid="table", topic="orders", topic_id="topic-id", partitions=PARTITIONS, primary_key=("k",),
        region_key=("k",), start=(0,) * PARTITIONS, columns=(Column(name="k", type="int64", field_ids=(0,)),),
    )  # fmt: skip
    counted: Any = Counted(contract)
    metrics: Any = SimpleNamespace(records=RecentRecords(), append_failed=None, freshness_s={})
    clock = ManualClock()
    maker = IngestStatus(
        "s3://bucket/table", "group", OwnerId("me"), 60.0, counted, counted, Standstill(), metrics, clock
    )
    status = maker.take(None, [])
    assert [(p.partition, p.consumed, p.decoded, p.durable, p.high) for p in status.partitions] == [
        (p, 7, 7, 5, 7) for p in range(PARTITIONS)
    ]
    assert set(counted.asked) == {"consumed", "decoded", "stopped", "schema_waits", "highs"}
    assert max(counted.asked.values()) <= 2
