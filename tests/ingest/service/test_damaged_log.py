"""A segment that is lost, damaged or of a later format: partitions that need it wait, no other one; put back, all goes on."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import google_crc32c
import pytest

from lancewal_core.errors import (
    ContractChanged,
    Corrupt,
    FormatUnknown,
    LancewalError,
    ObjectCorrupt,
    ObjectMissing,
    ObjectTooLarge,
    OwnershipLost,
    Problem,
    StoreInconsistent,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Sequence
from lancewal_core.region import states as regions
from lancewal_ingest.service.table import IngestTable
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import state_of
from tests.support.pipeline import Failures, Pipeline, by_key
from tests.support.regions import numbers, region

LOST, DAMAGED, LATER = ObjectMissing, ObjectCorrupt, FormatUnknown
HOW = pytest.mark.parametrize("how", [LOST, DAMAGED, LATER])


@pytest.fixture
def failures() -> Failures:
    return Failures()


@pytest.fixture
def pipeline(tmp_path: Path, failures: Failures) -> Iterator[Pipeline]:
    """Two partitions in one log of some segments."""
    made = Pipeline(tmp_path, partitions=2, seed=3, seal_rows=10_000, batch=12, observer=failures)
    for _ in range(4):
        made.produce(20)
        made.ingest()
    yield made
    made.close()


def harm(pipeline: Pipeline, partition: int, how: type[Corrupt]) -> tuple[Path, bytes]:
    """The second segment of the partition's newest generation with entries, and what was in it."""
    record = next(r for r in reversed(state_of(pipeline, partition).generations) if r.next != r.first)
    path = Path(pipeline.uri) / paths.wal_segment(record.log, Sequence(record.first_sequence + 1))
    data = path.read_bytes()
    if how is LOST:
        path.unlink()
    elif how is LATER:
        path.write_bytes(of_format(data, 2))
    else:
        path.write_bytes(data[:-40] + bytes(40))
    return path, data


def of_format(segment: bytes, version: int) -> bytes:
    """The segment with another format version in its footer, and the checksum that belongs to it."""
    checked = segment[-28:-12] + struct.pack("<I", version)
    return segment[:-28] + checked + struct.pack("<I", google_crc32c.value(checked)) + segment[-4:]


@pytest.mark.parametrize("error", [ObjectMissing("x is missing"), StoreInconsistent("an index is lost")])
def test_what_a_partition_waits_for_is_said(error: LancewalError) -> None:
    """Not that another owner's claim came first: the next try meets it."""
    worker: Any = SimpleNamespace(
        stopped={},
        schema_waits={},
        waiting=[region(1), region(2)],
        refused={region(1): error, region(2): OwnershipLost("claimed")},
        idle_or_progressing=True,
        waits_for=None,
        ready=True,
    )
    nothing: Any = SimpleNamespace(problem=None)
    table: Any = object.__new__(IngestTable)  # all that its problems need
    table.worker, table.silences, table._short = worker, (), ()
    table.context = SimpleNamespace(drain=None)
    table._altered = table._control = table._still = nothing
    assert table.problems() == [Problem(error.kind, f"partition 1 cannot be opened: {error}")]


def test_what_the_loop_clears_while_a_probe_asks() -> None:
    """Health asks from a thread of its own."""

    class Worker(SimpleNamespace):
        waited: list[LancewalError | None]

        @property
        def waits_for(self) -> LancewalError | None:
            return self.waited.pop(0) if self.waited else None

    table: Any = object.__new__(IngestTable)  # all that its problems need
    error = ContractChanged("a newer contract is needed", version=2)
    table.worker = Worker(waited=[error], stopped={}, schema_waits={}, waiting=[], refused={})
    table.silences, table._short = (), ()
    table.context = SimpleNamespace(drain=None)
    table._altered = table._control = table._still = SimpleNamespace(problem=None)
    assert table.problems() == [Problem.of(error, "no segment is written")]


@HOW
def test_other_partitions_are_opened_and_become_durable(
    pipeline: Pipeline, failures: Failures, how: type[Corrupt]
) -> None:
    worker = pipeline._worker
    worker.revoked([region(1)])  # in order: nothing in this log is needed to open it again
    pipeline.settle()
    path, data = harm(pipeline, 0, how)
    pipeline.produce(40)
    with pytest.raises(how, match=path.stem):
        pipeline.crash()
    end = time.monotonic() + 240
    while pipeline._worker.durable.get(region(1)) != len(pipeline.messages(1)):
        assert time.monotonic() < end
        pipeline._worker.step(0.01)
    assert numbers(pipeline._worker.refused) == numbers(pipeline._worker.waiting) == [0]
    assert not pipeline._worker.stopped
    assert any(isinstance(seen, how) for seen in failures.seen)
    path.write_bytes(data)
    pipeline.ingest()
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle


def _huge(path: Path) -> None:
    """Of which the file system stores nothing."""
    path.touch()
    os.truncate(path, 3 << 30)


IN_FRONT: dict[str, Callable[[Path, bytes], object]] = {
    "nothing": lambda path, data: path.write_bytes(b""),
    "noise": lambda path, data: path.write_bytes(b"\xa5" * 3_000),
    "a later format": lambda path, data: path.write_bytes(of_format(data, 2)),
    "another segment": lambda path, data: path.write_bytes(data),
    "three GiB": lambda path, data: _huge(path),
}


@pytest.mark.parametrize("what", IN_FRONT)
def test_what_somebody_puts_in_front_of_a_log_ends_no_process(
    pipeline: Pipeline, failures: Failures, what: str
) -> None:
    """Under the number that the writer takes next: it begins another log, and the regions wait until that is gone."""
    (folder,) = (Path(pipeline.uri) / "_lancewal/wal").iterdir()
    last = max(folder.iterdir())
    path = last.with_name(f"{int(last.stem) + 1:020d}.arrow")
    IN_FRONT[what](path, last.read_bytes())
    pipeline.produce(40)
    with pytest.raises(Corrupt, match=path.stem):
        pipeline.ingest()  # says what is waited for
    worker = pipeline._worker
    assert numbers(worker.refused) == numbers(worker.waiting) == [0, 1]
    assert not worker.stopped
    assert any(isinstance(seen, Corrupt) and path.stem in str(seen) for seen in failures.seen)
    with pytest.raises(Corrupt, match=path.stem):
        open_table(pipeline.uri).to_arrow()
    path.unlink()
    pipeline.ingest()
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle


def test_an_index_that_takes_no_further_generation_holds_up_its_partition_alone(
    tmp_path: Path, failures: Failures, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(tmp_path, partitions=2, seed=3, seal_rows=15, batch=12, observer=failures)
    pipeline.produce(20)
    pipeline.ingest()
    with monkeypatch.context() as patched:
        patched.setattr(regions, "OPENED_BELOW", 0)
        patched.setattr(regions, "_opens", lambda index, found: index.region.partition == 0)
        pipeline.produce(80)
        end = time.monotonic() + 240
        while numbers(pipeline._worker.refused) != [0] or pipeline._worker.durable.get(region(1)) != len(
            pipeline.messages(1)
        ):
            assert time.monotonic() < end
            pipeline._worker.step(0.01)
    (refused,) = pipeline._worker.refused.values()
    assert isinstance(refused, ObjectTooLarge)
    assert "run the flusher" in str(refused)
    assert not pipeline._worker.stopped
    while pipeline._worker.refused:
        assert time.monotonic() < end
        pipeline._worker.step(0.01)
    pipeline.ingest()
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    pipeline.close()


@HOW
def test_a_generation_that_cannot_be_flushed_from_its_log_is_left_to_the_flusher(
    pipeline: Pipeline, failures: Failures, how: type[Corrupt], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(pipeline._worker._flushes, "advance", lambda: None)
        pipeline._worker.revoked([region(0), region(1)])  # SEALED, and nobody has flushed them
    path, data = harm(pipeline, 0, how)
    pipeline.produce(40)
    pipeline.crash()
    pipeline.settle()
    assert any(isinstance(seen, how) and path.stem in str(seen) for seen in failures.seen)
    with pytest.raises(how, match=path.stem):
        pipeline.merge()
    path.write_bytes(data)
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    pipeline.merge()
    pipeline.merge_all()
    assert by_key(pipeline.table.newest().dataset.to_table()) == pipeline.oracle
