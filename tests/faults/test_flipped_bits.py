"""Single bits of Lance's data files are flipped, at random places: of a flush that is not merged, and of the table.

Lance's files have no checksum.  What is promised: a read, or a merge, ends with an error of ours that says that a file is
corrupt, or with rows of the right number; never with an error of another library.  The keys of a flush that is not merged
have a sum: what is read or merged of it has exactly the keys that were written.  Any other value may be another.

A panic of Lance below Arrow's C interface, which no error can leave, aborts the process (one flip in about 1,100; pylance as
locked).  No library can answer for that; nothing is read then.  So reads and merges run in a process of their own here.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.table.protocol import fragment_files
from lancewal_flusher.service.service import run_once
from lancewal_reader.table import open_table
from tests.support.flushes import flushes_of
from tests.support.pipeline import EVERY_TYPE, SMALL, Key, Pipeline

FLIPS = 60
RIGHT_KEYS = "right keys"
OTHER_KEYS = "other keys"
OTHER_ROWS = "other number of rows"
ABORTED = "the process was aborted"
T = TypeVar("T")


class Aborted(Exception):
    """SIGABRT has ended the process."""


class AnotherProcess:
    """One process, and the next one when that was aborted."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._executor = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        self._executor.submit(int).result(240)
        (self._process,) = self._executor._processes.values()

    def call(self, function: Callable[[str], T], uri: str) -> T:
        try:
            return self._executor.submit(function, uri).result(240)
        except BrokenProcessPool:
            # The executor's own thread joins the process too.  Only one of two threads that do so at once hears the code.
            self.close()
            code = self._process.exitcode
            self._start()
            assert code == -signal.SIGABRT, f"the process ended with {code}"
            raise Aborted from None

    def close(self) -> None:
        self._executor.shutdown()


@pytest.fixture(scope="module")
def another_process() -> Iterator[AnotherProcess]:
    process = AnotherProcess()
    yield process
    process.close()


def test_reads_of_a_flush(tmp_path: Path, seed: int, another_process: AnotherProcess) -> None:
    pipeline = made(tmp_path, EVERY_TYPE, seed)
    ends = flipped(data_file(pipeline), pipeline, seed, another_process)
    assert set(ends) <= {RIGHT_KEYS, ObjectCorrupt.kind, ABORTED}, ends
    assert ends[RIGHT_KEYS], ends
    assert ends[ObjectCorrupt.kind], ends
    pipeline.close()


def test_reads_of_the_table(tmp_path: Path, seed: int, another_process: AnotherProcess) -> None:
    pipeline = made(tmp_path, EVERY_TYPE, seed)
    path = data_file(pipeline)
    pipeline.merge()
    ends = flipped(path, pipeline, seed, another_process)
    assert set(ends) <= {RIGHT_KEYS, OTHER_KEYS, ObjectCorrupt.kind, ABORTED}, ends
    assert ends[ObjectCorrupt.kind]
    pipeline.close()


def test_merges_of_a_flush(tmp_path: Path, seed: int, another_process: AnotherProcess) -> None:
    """A merge adopts the file as it is; what it hides are the rows of the keys that were written."""
    rng = random.Random(f"merges {seed}")
    template = made(tmp_path / "template", SMALL, seed)
    ends: Counter[str] = Counter()
    for attempt in range(FLIPS // 2):
        pipeline = template.copied(tmp_path / str(attempt))
        path = data_file(pipeline)
        at = flip(path, path.read_bytes(), rng)
        refused = merge(another_process, pipeline)
        if refused is None:
            ends[read(another_process, pipeline)] += 1
        elif refused == ABORTED:
            ends[ABORTED] += 1
        else:
            assert path.name in refused, at
            ends["refused"] += 1
        pipeline.close()
    print(dict(ends))
    assert set(ends) <= {RIGHT_KEYS, ObjectCorrupt.kind, "refused", ABORTED}, ends
    assert ends[RIGHT_KEYS], ends
    assert ends["refused"], ends
    template.close()


def test_a_file_with_another_key_is_neither_read_nor_merged(tmp_path: Path, seed: int) -> None:
    """It is a sound file of Lance, with as many rows."""
    pipeline = made(tmp_path, SMALL, seed)
    newest = newest_flush(pipeline)
    rows = pa.Table.from_batches(list(pipeline.table.read_unadopted(newest.fragments, SMALL.names)))
    ids = rows["id"].to_pylist()
    ids[len(ids) // 2] += 1_000
    (written,) = pipeline.table.write_rows(rows.set_column(1, SMALL.field("id"), pa.array(ids)).cast(SMALL))
    (wrong,) = fragment_files(written)
    (Path(pipeline.uri) / "data" / wrong).rename(data_file(pipeline))
    before = pipeline.table.newest().version
    for act in (lambda: open_table(pipeline.uri).to_arrow(), pipeline.merge):
        with pytest.raises(ObjectCorrupt, match=f"{data_file(pipeline).name}.* hold other keys of region"):
            act()
    assert pipeline.table.newest().version == before
    pipeline.close()


def made(folder: Path, columns: pa.Schema, seed: int) -> Pipeline:
    """Merged rows, and a flush of newer ones that waits."""
    folder.mkdir(exist_ok=True)
    pipeline = Pipeline(folder, columns, seed=seed, partitions=1, seal_rows=10_000)
    pipeline.produce(300)
    pipeline.merge_all()
    pipeline.produce(300)
    pipeline.ingest()
    pipeline.hand_over()
    return pipeline


def data_file(pipeline: Pipeline) -> Path:
    """Of the newest flush."""
    (name,) = fragment_files(newest_flush(pipeline).fragments[0])
    return Path(pipeline.uri) / "data" / name


def newest_flush(pipeline: Pipeline) -> FlushedGeneration:
    found = [s for region in pipeline.contract.regions for s in flushes_of(pipeline.store, region)]
    return max(found, key=lambda one: (Path(pipeline.uri) / one.key).stat().st_mtime_ns)


def flip(path: Path, whole: bytes, rng: random.Random) -> tuple[int, int]:
    data = bytearray(whole)
    at = rng.randrange(len(data)), 1 << rng.randrange(8)
    data[at[0]] ^= at[1]
    path.write_bytes(data)
    return at


def flipped(path: Path, pipeline: Pipeline, seed: int, process: AnotherProcess) -> Mapping[str, int]:
    """What comes of reading the table with one bit of the file flipped, many times."""
    rng = random.Random(f"flips {seed}")
    whole = path.read_bytes()
    ends: Counter[str] = Counter()
    for _ in range(FLIPS):
        at = flip(path, whole, rng)
        ends[read(process, pipeline, f"{path.name} flipped at {at}")] += 1
    path.write_bytes(whole)
    assert read(process, pipeline) == RIGHT_KEYS
    print(dict(ends))
    return ends


def merge(process: AnotherProcess, pipeline: Pipeline) -> str | None:
    """Why it was refused, or that it was aborted."""
    try:
        process.call(merged, pipeline.uri)
    except ObjectCorrupt as error:
        return str(error)
    except Aborted:
        return ABORTED
    return None


def read(process: AnotherProcess, pipeline: Pipeline, what: str = "") -> str:
    try:
        keys = process.call(keys_read, pipeline.uri)
    except ObjectCorrupt as error:
        return error.kind
    except Aborted:
        return ABORTED
    except BaseException as error:
        raise AssertionError(what) from error
    if len(keys) != len(pipeline.oracle):
        return OTHER_ROWS
    return RIGHT_KEYS if sorted(pipeline.oracle) == sorted(keys) else OTHER_KEYS


def merged(uri: str) -> None:
    """By a flusher, in the process that calls it."""
    run_once(Settings(table=TableSettings(uri=uri)))


def keys_read(uri: str) -> list[Key]:
    """By a strong read of all columns, in the process that calls it."""
    rows = open_table(uri).to_arrow()
    return list(zip(rows.column("region").to_pylist(), rows.column("id").to_pylist(), strict=True))
