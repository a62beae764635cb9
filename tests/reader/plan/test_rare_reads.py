"""A reader that comes back after many segments fetches bundles instead of them, and one that reads often lists nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from benchmarks.memory_source import MemorySource
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import fresh_row
from lancewal_core.names import paths
from lancewal_core.open import Address
from lancewal_reader.table import Table, open_table
from tests.support.small_s3.server import SmallS3

SEGMENTS = 200


class Served:
    """A table at the store, its ingest and its reader."""

    def __init__(self, store: SmallS3) -> None:
        address = Address("s3://bucket/t", store.options)
        contract = create(address, "topic", "id", 1)
        self._store = store
        self._ingest = MemoryIngest(address, contract, MemorySource(contract.regions), 1_000_000, 100)
        self._ids = count()
        self.table: Table = open_table(address.uri, storage_options=store.options)
        self.look()

    def append(self, segments: int) -> None:
        for _ in range(segments):
            number = next(self._ids)
            self._ingest.feed([fresh_row(number, number, 0)])
            bundling = self._ingest.worker._bundling
            while bundling._due is not None or bundling._task is not None:  # a run that waits too long is dropped
                self._ingest.worker.step(0.002)

    def look(self) -> tuple[int, int, int]:
        """Read all rows; return the segments and bundles that were asked for, and the listings of the log."""
        self._store.take()
        seen = self.table.to_arrow(["id", "a"]).sort_by("id").to_pydict()
        ids = list(range(seen_of := len(seen["id"])))
        assert seen == {"id": ids, "a": ids}
        assert seen_of == self._produced
        asked = [(request.method, request.below("t")) for request in self._store.take()]
        segments = sum(method == "GET" and paths.parse_wal_segment(key) is not None for method, key in asked)
        bundles = sum(method == "GET" and paths.parse_wal_bundle(key) is not None for method, key in asked)
        return segments, bundles, sum(method == "LIST" and "/wal/" in key for method, key in asked)

    @property
    def _produced(self) -> int:
        return sum(self._ingest.source.ends.values())


@pytest.fixture
def served() -> Iterator[Served]:
    with SmallS3() as store:
        yield Served(store)


def test_many_new_segments_come_in_bundles(served: Served) -> None:
    served.append(SEGMENTS)
    served.look()
    served.append(SEGMENTS)
    assert served.look()[0] > SEGMENTS  # nobody could know
    served.append(2)
    _, _, listings = served.look()
    for _ in range(2):  # a generation of 1,000 segments is sealed, and then read from its flush
        served.append(SEGMENTS)
        segments, bundles, also = served.look()
        assert segments < SEGMENTS / 2
        assert bundles >= 3
        assert also == listings
        served.append(2)
        assert served.look()[0] < 10  # a second look, as of whoever waits for records and then plans


def test_few_new_segments_are_asked_for_by_number(served: Served) -> None:
    served.append(SEGMENTS)
    served.look()
    found = []
    for _ in range(10):
        served.append(3)
        found.append(served.look())
    # One listing is that of each plan, which looks for what follows the end of the log.
    assert found[-1] == (5, 0, 1)
