"""A local folder on a disk that is full: ingest and flusher say so by name, nothing is lost, and all goes on with space.

A limit on the size of files (``RLIMIT_FSIZE``, which needs no rights) ends every write in the middle, as a full disk does.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import lance
import pytest

from lancewal_core.errors import LancewalError, StoreUnavailable
from lancewal_core.store import versioned
from lancewal_core.table.protocol import CommitOutcome, TableCommit
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_reader.table import open_table
from tests.support.flusher_tables import FlusherTable, ScriptedTable, delete, patch, upsert, upserts
from tests.support.pipeline import Failures, Pipeline, by_key

SPACE = 100
"""Bytes of a file that still fit: less than any object has."""


@contextmanager
def full_disk() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SPACE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def pipeline(tmp_path: Path, failures: Failures, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """Merged rows, flushes that are not merged, and an OPEN generation."""
    # Without a verdict a claim gives up after 15 s.
    monkeypatch.setattr("lancewal_core.store.versioned._UNKNOWN_TRIES", 2)
    made = Pipeline(tmp_path, seed=7, observer=failures)
    made.produce(100)
    made.merge_all()
    made.produce(100)
    made.ingest()
    made.hand_over()
    made.produce(30)
    made.ingest()
    yield made
    made.close()


def test_ingest_says_so_and_goes_on(pipeline: Pipeline, failures: Failures) -> None:
    before = dict(pipeline.oracle)
    pipeline.produce(60)
    with full_disk():
        ingest_until_named(pipeline, failures, "/wal/")
        assert by_key(open_table(pipeline.uri).to_arrow()) == before
    pipeline.ingest()
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle


def test_an_owner_that_dies_then_and_its_successor(pipeline: Pipeline, failures: Failures) -> None:
    """Fences, claims, seals and flushes meet the full disk as well."""
    pipeline.produce(60)
    with full_disk():
        ingest_until_named(pipeline, failures, "/wal/")
        pipeline.replace_worker()
        ingest_until_named(pipeline, failures, "/pages/")
    pipeline.ingest()
    pipeline.merge_all()
    assert by_key(open_table(pipeline.uri).to_arrow(consistency="eventual")) == pipeline.oracle


def test_the_flusher_says_so_and_goes_on(pipeline: Pipeline) -> None:
    before = lance.dataset(pipeline.uri)
    rows = before.to_table()
    with full_disk():
        with pytest.raises(LancewalError, match=r"too large|No space|os error") as caught:
            pipeline.merge()
        assert isinstance(caught.value, StoreUnavailable)
        assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    newest = lance.dataset(pipeline.uri)
    assert newest.to_table() == rows
    pipeline.merge_all()
    assert by_key(open_table(pipeline.uri).to_arrow(consistency="eventual")) == pipeline.oracle
    pipeline.collect()
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle


def ingest_until_named(pipeline: Pipeline, failures: Failures, part: str) -> None:
    """Run the worker until a failure names an object of that folder and the reason; nothing becomes durable meanwhile."""

    def named() -> bool:
        said = (str(failure) for failure in failures.seen)
        return any(part in text and "too large" in text.lower() for text in said)

    end = time.monotonic() + 240
    while not named():
        assert time.monotonic() < end, [str(failure) for failure in failures.seen][:5]
        assert not pipeline.ingest_for(0.05)


class Filling(ScriptedTable):
    """The disk is full from a commit on: before it, when all it names is written, or behind it."""

    def __init__(self, uri: str, when: str) -> None:
        super().__init__(uri)
        self.disk = ExitStack()
        self._when = when

    def commit(self, commit: TableCommit) -> CommitOutcome:
        if self._when == "before":
            self.disk.enter_context(full_disk())
        outcome = super().commit(commit)
        if self._when == "behind":
            self.disk.enter_context(full_disk())
        return outcome


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    for first in (0, 50):
        made.generation(0, upserts(range(first, first + 50)))
        made.round()
    yield made
    made.close()


@pytest.mark.parametrize("when", ["before", "behind"])
def test_the_disk_fills_in_the_midst_of_a_merge(
    table: FlusherTable, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versioned, "_UNKNOWN_PAUSE_S", 0.001)  # a put without a verdict is tried for half a minute
    table.generation(0, [upsert(3, a=1), delete(4), patch(55, a=7), upsert(170)])
    version = table.dataset.version
    filling = Filling(table.uri, when)
    with pytest.raises(StoreUnavailable, match="File too large"), filling.disk:
        table.round(context=table.context(filling))
    assert table.dataset.version == version + (when == "behind")
    table.round()
    assert table.dataset.version == version + 1  # it is merged once
    table.check()


@pytest.mark.parametrize("when", ["before", "behind"])
def test_the_disk_fills_in_the_midst_of_a_compaction(table: FlusherTable, when: str) -> None:
    limits = CompactionLimits(fragments_min=2, growth=1.0)
    filling = Filling(table.uri, when)
    with filling.disk:
        found = compact_next(table.context(filling), limits, FileSizes(), with_sentinel=True)
    assert isinstance(found, Compacted if when == "behind" else Refused)
    table.check()
    table.generation(0, [upsert(3, a=1), delete(4)])
    table.round()
    compact_next(table.context(), limits, FileSizes(), with_sentinel=True)
    table.round()
    table.check()
