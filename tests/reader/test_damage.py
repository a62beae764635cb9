"""Objects that are gone, damaged or of another table: the read is right, or an error names the object."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lance
import pytest

import lancewal_core.open
from lancewal_core.errors import (
    LancewalError,
    ObjectCorrupt,
    ObjectMissing,
    PlanRetriesExhausted,
    StoreInconsistent,
    TableReplaced,
    TableRestored,
)
from lancewal_core.region.flushes.manifest import read_flush
from lancewal_core.store.object_store import ObjectInfo, ObjectStore, PutOutcome
from lancewal_core.store.obstore import open_store
from lancewal_core.table.protocol import fragment_files
from lancewal_core.table.watermarks import TABLE_UUID, Watermarks
from lancewal_reader.reading import reads as reads_module
from lancewal_reader.table import open_table
from tests.support.pipeline import SMALL, Pipeline, by_key


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """A table with merged rows, flushes that are not merged (with deletes and patches), and a WAL tail."""
    made = Pipeline(tmp_path, seed=5)
    made.produce(150)
    made.merge_all()
    made.produce(150)
    made.ingest()
    made.hand_over()
    made.produce(40)
    made.ingest()
    yield made
    made.close()


def unmerged_flushes(pipeline: Pipeline) -> list[Path]:
    """Manifests of flushes that the table does not contain yet."""
    in_force = Watermarks(pipeline.store, pipeline.table, None).at(pipeline.table.newest().version)
    found = []
    for path in pipeline.objects("manifest.json"):
        parts = read_flush(pipeline.store, path.relative_to(pipeline.uri).as_posix()).parts
        if any(part.generation > in_force.generation(part.region) for part in parts):
            found.append(path)
    assert found
    return found


@pytest.mark.parametrize("what", ["manifest", "data files", "side files", "everything"])
def test_a_lost_flush_is_read_from_the_log(pipeline: Pipeline, what: str) -> None:
    for manifest in unmerged_flushes(pipeline):
        flush = read_flush(pipeline.store, manifest.relative_to(pipeline.uri).as_posix())
        if what in ("data files", "everything"):
            for name in (n for f in flush.fragments for n in fragment_files(f)):
                (Path(pipeline.uri) / "data" / name).unlink()
        if what in ("side files", "everything"):
            for side in manifest.parent.glob("*.arrow"):
                side.unlink()
        if what in ("manifest", "everything"):
            manifest.unlink()
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    assert open_table(pipeline.uri).to_arrow(columns=["id"]).num_rows == len(pipeline.oracle)


def test_a_lost_flush_without_its_log_is_an_error_that_says_so(pipeline: Pipeline) -> None:
    for manifest in unmerged_flushes(pipeline):
        manifest.unlink()
    segments = log_segments(pipeline)
    tail = max(segments, key=lambda path: path.stat().st_mtime_ns).parent
    for segment in segments:
        if segment.parent != tail:
            segment.unlink()
    with pytest.raises(ObjectMissing, match=r"so are its WAL entries: .* before .*arrow.*lancewal repair segment"):
        table_with_few_plans(pipeline)


def table_with_few_plans(pipeline: Pipeline) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reads_module, "PLANS_MAX", 2)
        patched.setattr("lancewal_reader.plan.strong.PLANS_MAX", 2)
        open_table(pipeline.uri).to_arrow()


def log_segments(pipeline: Pipeline) -> list[Path]:
    return sorted(p for p in (Path(pipeline.uri) / "_lancewal" / "wal").rglob("*") if p.is_file())


def test_a_recreated_table_is_noticed(pipeline: Pipeline, tmp_path: Path) -> None:
    table = open_table(pipeline.uri)
    for folder in ("data", "_versions", "_transactions", "_deletions"):
        shutil.rmtree(Path(pipeline.uri) / folder, ignore_errors=True)
    lance.write_dataset(SMALL.empty_table(), pipeline.uri, mode="create")
    lance.dataset(pipeline.uri).update_config({TABLE_UUID: "another"})
    for reader in (table, open_table(pipeline.uri)):
        with pytest.raises((TableReplaced, StoreInconsistent, PlanRetriesExhausted)):
            reader.to_arrow(consistency="eventual")
    with pytest.raises(TableReplaced, match="has uuid another"):
        open_table(pipeline.uri).to_arrow(consistency="eventual")


def test_an_overwritten_table_stops_reads(pipeline: Pipeline) -> None:
    lance.write_dataset(SMALL.empty_table(), pipeline.uri, mode="overwrite")
    with pytest.raises(TableReplaced, match="overwrote the table"):
        open_table(pipeline.uri).to_arrow()


def test_a_restored_table_stops_strong_reads(pipeline: Pipeline) -> None:
    earlier: Any = lance.dataset(pipeline.uri, version=3)
    earlier.restore()
    with pytest.raises(TableRestored, match="lancewal repair restored"):
        open_table(pipeline.uri).to_arrow()


class ReadOnlyStore:
    """A store with read-only credentials."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        return self._store.get_range(key, start, end)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        raise AssertionError(f"a reader wrote {key}")

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        return self._store.list(prefix, limit, after)

    def delete(self, keys: Sequence[str]) -> None:
        raise AssertionError(f"a reader deleted {keys}")


def test_reading_writes_nothing(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lancewal_core.open, "open_store", lambda *args: ReadOnlyStore(open_store(*args)))

    def files() -> dict[Path, int]:
        return {p: p.stat().st_mtime_ns for p in Path(pipeline.uri).rglob("*") if p.is_file()}

    before = files()
    assert by_key(open_table(pipeline.uri).to_arrow(filter="a > 1 OR a IS NULL OR a <= 1")) == pipeline.oracle
    assert files() == before


def test_errors_of_tasks_cross_processes() -> None:
    import pickle

    error: LancewalError = ObjectCorrupt("x is corrupt", object="x")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.where) == (ObjectCorrupt, "x is corrupt", {"object": "x"})
