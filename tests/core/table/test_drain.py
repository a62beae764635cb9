"""A drain that does not fit its contract is damage, named, wherever it is read."""

from __future__ import annotations

import pytest

from lancewal_core import paths
from lancewal_core.errors import ObjectCorrupt
from lancewal_core.ids import Position
from lancewal_core.process.clock import SystemClock
from lancewal_core.table.drain import Drain, begin, encode_drain, read_drain
from lancewal_core.testing.memory_store import MemoryStore
from tests.golden.json_formats import CONTRACT

CONTRACT_OF_TWO = CONTRACT.model_copy(update={"partitions": 2, "start": (0, 0), "altered_at": ()})


@pytest.mark.parametrize(("to", "new"), [((5,), ()), ((5, 5, 5), ()), ((5, 5), (2,)), ((5, 5), (-1,))])
def test_a_drain_of_other_partitions_is_named(to: tuple[int, ...], new: tuple[int, ...]) -> None:
    store, clock = MemoryStore(SystemClock()), SystemClock()
    drain = Drain(contract_version=CONTRACT_OF_TWO.version, partitions=3, to=to, new=new, write_id="x")
    store.put_if_absent(paths.drain_version(1), encode_drain(drain))
    with pytest.raises(ObjectCorrupt, match=paths.drain_version(1)):
        read_drain(store, CONTRACT_OF_TWO)
    with pytest.raises(ObjectCorrupt, match=paths.drain_version(1)):
        begin(store, clock, lambda: "y", CONTRACT_OF_TWO, 3, [Position(9), Position(9)])
