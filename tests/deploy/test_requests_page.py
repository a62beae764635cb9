"""docs/reference/requests.md lists what each act asks of an object store, as it is counted here.

Lance and obstore are the real ones, the store is the small S3, and records come from a list.

``python -m tests.deploy.test_requests_page`` writes the page's table.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from benchmarks.memory_source import MemorySource
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import Message, upserts
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.parts import MappedParts
from lancewal_core.open import Address, open_at
from lancewal_core.process.clock import SystemClock
from lancewal_core.region.index import State
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.table.contract import Contract
from lancewal_core.table.store_proof import prove_store
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.table_versions import VersionsSeen
from lancewal_flusher.merge.first_seen import FirstSeen
from lancewal_flusher.merge.inputs import read_inputs
from lancewal_flusher.merge.look import look
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks.runner import ThreadRunner
from lancewal_ingest.regions.policy import SealPolicy
from lancewal_ingest.service.worker import IngestWorker
from lancewal_reader.table import Table, table_of
from tests.support.small_s3.counted import Counted, CountedS3, CountedTasks, counted

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "requests.md"
PARTITIONS = (4, 16)
FOLDER = "table"
HEADER = [
    "| act | partitions | rounds | requests | GET, HEAD | LIST | PUT, POST | $ a thousand times |",
    "|---" * 8 + "|",
]
_NOT_YET = SealPolicy(rows=1 << 40)
WRITTEN_USD, READ_USD = 0.005, 0.0004
"""For a thousand requests: PUT, POST and LIST, and others; S3's standard storage in us-east-1."""


class Acts:
    """A table of so many partitions at the store, and what is done with it."""

    def __init__(self, store: CountedS3, partitions: int, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._tasks = CountedTasks(store)
        self._address = Address(f"s3://bucket/{FOLDER}", store.options)
        contract = create(self._address, "topic", "topic-id", partitions)
        self._source = MemorySource(contract.topic_id, partitions)
        self._ingest = MemoryIngest(self._address, contract, self._source, seal_rows=1, segment_rows=100_000)
        self._partitions = partitions
        self.context = self._flusher(contract)
        # Versions of the table are listed by one round of an hour.
        looked = VersionsSeen(looked=self.context.clock.monotonic())
        self._rounds, self._garbage = RoundState(), GarbageState(versions=looked)
        self._seed = 0

    def run(self) -> Iterator[tuple[str, Counted]]:
        """Each act once; first what makes a table that has been in use."""
        for _ in range(2):
            self.feed()
            self._merge()
        reader = self._open()
        reader.to_arrow(["id"])
        self.feed()
        self._merge()
        reader.to_arrow(["id"])  # so that it knows how fast pages grow
        self.feed()
        yield "merge round", self._counted(self._merge)
        yield "strong read of an open table behind a merge", self._counted(lambda: reader.to_arrow(["id"]))
        yield "strong read of an open table, nothing new", self._counted(lambda: reader.to_arrow(["id"]))
        yield "open and strong read", self._counted(lambda: self._open().to_arrow(["id"]))
        yield "merge round, nothing to merge", self._counted(self._merge)
        yield "garbage round, nothing to delete", self._counted(lambda: collect_garbage(self.context, self._garbage))
        self._prove()
        yield "what the store promises, at the start of an ingest", self._counted(self._prove)
        yield from self._acts_of_ingest()

    def _acts_of_ingest(self) -> Iterator[tuple[str, Counted]]:
        """On all partitions, with a row in each of them."""
        self._ingest.worker.drain(60.0)
        worker = self._assigned()
        yield "open all partitions, handed over", self._counted(worker._open_due)
        self._append()
        worker._sealing._policy = SealPolicy(rows=1)
        yield "seal all partitions", self._counted(lambda: worker._sealing.advance(worker._writer))
        yield "flush all partitions", self._counted(self._turns)
        worker._sealing._policy = _NOT_YET
        self._append()
        yield "hand over and flush all partitions", self._counted(lambda: worker.drain(60.0))
        self._assigned()
        self._append()
        # Its owner is dead from here on.
        yield "open all partitions, of an owner that died", self._counted(self._assigned()._open_due)

    def _prove(self) -> None:
        prove_store(self.context.store, self._tasks, self._address.way(), self._address.uri, self.context.new_id)

    def _turns(self) -> None:
        """One to begin, one to take the result."""
        for _ in range(2):
            self._ingest.worker.step(0.0)

    def _assigned(self) -> IngestWorker:
        """Another worker, which is about to open all partitions."""
        contract = self.context.contract
        self._ingest = MemoryIngest(self._address, contract, self._source, 1, 100_000, self._tasks)
        worker = self._ingest.worker
        worker._sealing._policy = _NOT_YET
        worker.admit(False)
        worker.step(0.0)
        worker.admit(True)
        return worker

    def _counted(self, act: object) -> Counted:
        assert callable(act)
        return counted(self._store, act)

    def feed(self) -> None:
        """A row of each partition, durable and flushed: one poll brings them, so they make one generation each."""
        self._append()
        while any(r.state is State.SEALED for i in self.context.read_indexes().values() for r in i.generations):
            self._ingest.worker.step(0.002)

    def _append(self) -> None:
        self._seed += 1
        found: dict[int, Message] = {}
        for message in upserts(50 * self._partitions, 1_000, self._seed):
            found.setdefault(partition_of(message.key, self._partitions), message)
        assert len(found) == self._partitions
        self._ingest.feed(list(found.values()))

    def _merge(self) -> None:
        report = run_round(self.context, MergeLimits(), self._rounds, sealed_grace_s=60.0)
        assert report.left is not None
        assert not report.refused

    def _open(self) -> Table:
        return table_of(open_at(self._address, self._tasks, SystemClock()), self._address.uri)

    def _flusher(self, contract: Contract) -> FlusherContext:
        opened = open_at(self._address, self._tasks, SystemClock())
        parts = MappedParts(opened.store, None, self._folder, 1 << 30)
        keys = KeyIndex(KeyCatalogs(opened.store, opened.clock), parts, self._tasks)
        return FlusherContext(*opened.parts, keys, ThreadRunner(opened.table, self._tasks), lambda: uuid.uuid4().hex)


@contextmanager
def acts(partitions: int) -> Iterator[Acts]:
    with tempfile.TemporaryDirectory() as folder, CountedS3(FOLDER) as store:
        yield Acts(store, partitions, Path(folder))


def lines(partitions: int) -> list[str]:
    with acts(partitions) as table:
        return [line(act, partitions, found) for act, found in table.run()]


def line(act: str, partitions: int, found: Counted) -> str:
    gets, lists, puts = found.of("GET", "HEAD"), found.of("LIST"), found.of("PUT", "POST")
    usd = gets * READ_USD + (lists + puts) * WRITTEN_USD
    cells = (act, partitions, found.rounds, len(found.requests), gets, lists, puts, f"{usd:.3f}")
    return f"| {' | '.join(map(str, cells))} |"


def shown(partitions: int) -> list[str]:
    """What the page says."""
    table = [said for said in PAGE.read_text().splitlines() if said.startswith("| ")]
    return [said for said in table if said.split(" | ")[1] == str(partitions)]


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_the_page_has_what_each_act_asks(partitions: int) -> None:
    assert lines(partitions) == shown(partitions)


def test_what_a_merge_takes_is_read_side_by_side() -> None:
    """Rows included: of two partitions in as many rounds as of five."""
    rounds = set()
    for partitions in (2, 5):
        with tempfile.TemporaryDirectory() as folder, CountedS3("of no table: all is counted") as store:
            table = Acts(store, partitions, Path(folder))
            table.feed()
            context = table.context
            rounds.add(counted(store, partial(read_inputs, context, look(context), MergeLimits(), FirstSeen())).rounds)
    assert len(rounds) == 1


def write() -> None:
    text = PAGE.read_text().splitlines()
    begin = text.index(HEADER[0])
    end = next((n for n in range(begin, len(text)) if not text[n].startswith("|")), len(text))
    by_act = zip(*(lines(partitions) for partitions in PARTITIONS), strict=True)
    text[begin:end] = [*HEADER, *(said for act in by_act for said in act)]
    PAGE.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    write()
