"""A local folder on a disk that is full: ingest and flusher say so by name, nothing is lost, and all goes on with space.

A limit on the size of files (``RLIMIT_FSIZE``, which needs no rights) ends every write in the middle, as a full disk does.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lance
import pytest

from lancewal_core.errors import LancewalError, StoreUnavailable
from lancewal_reader import open_table
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
    """Merged rows, snapshots that are not merged, and an OPEN generation."""
    # Without a verdict a claim gives up after 15 s.
    monkeypatch.setattr("lancewal_core.log._FENCE_TRIES", 2)
    monkeypatch.setattr("lancewal_core.versioned._UNKNOWN_TRIES", 2)
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
    """Fences, claims, seals and snapshots meet the full disk as well."""
    pipeline.produce(60)
    with full_disk():
        ingest_until_named(pipeline, failures, "/wal/")
        pipeline.replace_worker()
        ingest_until_named(pipeline, failures, "/index/")
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
