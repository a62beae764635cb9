"""``lancewal repair generation``: damaged flushes of unmerged generations are made anew, or it is said why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lancewal_audit.repair.flush_state import same_rows
from lancewal_audit.repair.generation import plan_generations, repair_generations
from lancewal_core.errors import InvalidInput, ObjectCorrupt, RepairRefused
from lancewal_core.region.flushes.manifest import FlushedGeneration, read_flush
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.rows.fold import Folded
from lancewal_core.table.protocol import fragment_files
from lancewal_reader.table import open_table
from tests.support.indexes import newest_state
from tests.support.pipeline import Pipeline
from tests.support.repairs import check_merged, check_strong, command, dry, flip, messages, repairing


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Merged rows, and FLUSHED generations with deletes and patches behind them."""
    made = Pipeline(tmp_path, partitions=2, seed=7)
    made.produce(120)
    made.merge_all()
    made.produce(150)
    made.ingest()
    made.hand_over()
    yield made
    made.close()


def waiting(pipeline: Pipeline, partition: int) -> list[GenerationRecord]:
    state = newest_state(pipeline.store, pipeline.clock, pipeline.contract.regions[partition])
    assert state is not None
    return [r for r in state.generations if r.state is GenerationState.FLUSHED]


def snapshot_of(pipeline: Pipeline, record: GenerationRecord) -> FlushedGeneration:
    assert record.flush is not None
    flush = read_flush(pipeline.store, record.flush)
    return next(one for one in flush.generations if one.generation == record.generation)


def files_of(pipeline: Pipeline, record: GenerationRecord, what: str) -> list[Path]:
    flushed, root = snapshot_of(pipeline, record), Path(pipeline.uri)
    match what:
        case "manifest":
            return [root / flushed.key]
        case "side files":
            return [root / s.key for s in (flushed.deletes, flushed.patches) if s is not None]
        case _:
            return [root / "data" / name for f in flushed.fragments for name in fragment_files(f)]


@pytest.mark.parametrize("what", ["manifest", "side files", "data files"])
@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_a_flush_is_made_anew_from_its_log(pipeline: Pipeline, what: str, how: str) -> None:
    record = waiting(pipeline, 1)[0]
    for path in files_of(pipeline, record, what):
        if how == "lost":
            path.unlink()
        elif what == "data files":  # half of it is padding, where a flipped bit changes nothing
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        else:
            flip(path)
    if how == "damaged" and what != "data files":
        with pytest.raises(ObjectCorrupt, match=r"lancewal repair generation PARTITION.*each partition"):
            open_table(pipeline.uri).to_arrow()
        with pytest.raises(ObjectCorrupt):
            pipeline.merge()
    assert f"generation {record.generation} " in dry(pipeline, "generation", "orders-1")
    assert "rebuild it" in dry(pipeline, "generation", "orders-1")
    assert "rebuilt as" in command(pipeline, "generation", "orders-1")
    command(pipeline, "generation", "orders-0")  # it may have had a part of the same flush
    check_strong(pipeline)
    assert "rebuild it" not in command(pipeline, "generation", "orders-1")
    pipeline.merge()
    check_merged(pipeline)


def test_a_data_file_that_reads_as_other_rows_is_found_by_its_log(pipeline: Pipeline) -> None:
    """Lance's data files have no checksum."""
    one, *_ = waiting(pipeline, 1)
    flushed = snapshot_of(pipeline, one)
    folded = pipeline.table.read_unadopted(flushed.fragments, pipeline.columns.names)
    rows = pa.Table.from_batches(list(folded))
    other = rows.set_column(2, "a", pc.add(pc.fill_null(rows["a"], 0), 1)).cast(pipeline.columns)
    (written,) = pipeline.table.write_rows(other)
    (name,), (wrong,) = (fragment_files(f) for f in (*flushed.fragments, written))
    data = Path(pipeline.uri) / "data"
    (data / wrong).rename(data / name)
    assert "reads as other rows" in dry(pipeline, "generation", "orders-1")
    command(pipeline, "generation", "orders-1")
    check_strong(pipeline)


def test_rows_are_compared_beyond_the_years_that_python_knows() -> None:
    def folded(value: float) -> Folded:
        time_ms = pa.array([300_000_000_000_000, None], pa.timestamp("ms"))  # the year 11476
        rows = pa.table({"id": [2, 1], "at": time_ms, "value": [float("nan"), value]})
        return Folded(rows, rows.select(["id"]), rows.slice(0, 0))

    assert same_rows(folded(1.0), folded(1.0), ["id"])
    assert not same_rows(folded(1.0), folded(2.0), ["id"])


def test_a_generation_that_is_named_is_rebuilt_whatever_it_looks_like(pipeline: Pipeline) -> None:
    record = waiting(pipeline, 0)[0]
    report = json.loads(command(pipeline, "generation", "orders-0", record.generation, "-o", "json"))
    assert waiting(pipeline, 0)[0].flush != record.flush
    (found,), (done,) = report["found"], report["done"]
    assert (found["partition"], found["generation"], found["problem"]) == (0, record.generation, None)
    assert found["message"].endswith("sound: rebuild it from its log")
    assert found["rebuild"]
    assert done["object"] == waiting(pipeline, 0)[0].flush
    assert report["dry_run"] is False
    pipeline.merge()
    check_merged(pipeline)


def test_refused(pipeline: Pipeline) -> None:
    record = waiting(pipeline, 1)[0]
    with pytest.raises(RepairRefused, match="is in the table already"):
        command(pipeline, "generation", "orders-1", 1)
    with pytest.raises(RepairRefused, match="is not in its region's state"):
        command(pipeline, "generation", "orders-1", 999)
    with pytest.raises(InvalidInput, match="has topic orders with partitions 0 to 1"):
        command(pipeline, "generation", "orders-2")
    for path in files_of(pipeline, record, "manifest"):
        path.unlink()
    for path in pipeline.objects(".arrow"):
        if record.log in str(path):
            path.unlink()
    with pytest.raises(RepairRefused, match="lancewal repair segment"):
        command(pipeline, "generation", "orders-1")


def test_a_flusher_that_merges_meanwhile_is_let_be(pipeline: Pipeline) -> None:
    record = waiting(pipeline, 1)[0]
    files_of(pipeline, record, "manifest")[0].unlink()
    with repairing(pipeline) as context:
        plan = plan_generations(context, pipeline.contract.regions[1], None)
        pipeline.merge()  # rebuilds and merges it
        assert [line.partition(": ")[2] for line in messages(repair_generations(context, plan))] == [
            "another process was faster. Run the command again"
        ]
    check_merged(pipeline)
