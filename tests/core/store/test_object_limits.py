"""What lancewal writes can be read again, however many partitions a table has."""

from __future__ import annotations

from lancewal_core.names.ids import Position
from lancewal_core.process.clock import SystemClock
from lancewal_core.table.contract import PARTITIONS_MAX
from lancewal_core.table.drain import begin, read_drain
from tests.golden.json_formats import CONTRACT
from tests.twins.memory_store import MemoryStore


def test_a_drain_of_as_many_partitions_as_a_contract_may_have_is_read_again() -> None:
    store = MemoryStore(SystemClock())
    contract = CONTRACT.model_copy(update={"partitions": PARTITIONS_MAX})
    ends = [Position(10**15 + p) for p in range(PARTITIONS_MAX)]
    begin(store, SystemClock(), lambda: "w", contract, PARTITIONS_MAX + 1, ends)
    found = read_drain(store, contract)
    assert found is not None
    assert found.to == tuple(ends)
