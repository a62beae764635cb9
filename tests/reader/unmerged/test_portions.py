"""A delta folded in portions comes to what it comes to at once, reads each object once, and refuses too many keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from lancewal_core.errors import InvalidInput, TooManyUnmerged
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, Position, Region, TopicId
from lancewal_core.names.ids import Sequence as Number
from lancewal_core.rows.fold import Folded
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.object_store import ObjectStore
from lancewal_reader.plan.log_entries import EntryRef
from lancewal_reader.plan.strong import FlushRef, RegionDelta, Source
from lancewal_reader.spark.source import pin_read
from lancewal_reader.spark.task import run_task
from lancewal_reader.table import open_table
from lancewal_reader.unmerged import load as load_module
from lancewal_reader.unmerged import portions as portions_module
from lancewal_reader.unmerged.load import DeltaContext
from lancewal_reader.unmerged.portions import Groups, Portions
from tests.reader.commands.test_commands import app
from tests.support.pipeline import Pipeline, by_key

REGIONS = [Region("orders", TopicId("id"), number) for number in range(3)]


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(portions_module, "PORTION_RECORDS", 10)
    return 10


def written(rng: Random) -> dict[Region, list[Source]]:
    """Segments of two logs between which regions move, behind flushes of some."""
    sources: dict[Region, list[Source]] = {region: [] for region in REGIONS}
    at = dict.fromkeys(REGIONS, 0)
    logs, ends = [LogId("a"), LogId("b")], Counter[str]()
    for region in REGIONS:
        for generation in range(rng.randrange(3)):
            count = rng.randint(1, 8)
            ref = FlushRef(Generation(generation + 1), f"{region.name}/{generation}", Position(at[region]),
                              Position(at[region] + count), logs[0], Number(0), Number(9))  # fmt: skip
            sources[region].append(ref)
            at[region] += count
    owner = {region: rng.choice(logs) for region in REGIONS}
    for _ in range(rng.randint(1, 20)):
        log = rng.choice(logs)
        for region in REGIONS:
            if owner[region] == log and rng.random() < 0.7:
                count = rng.randint(1, 8)
                first = Position(at[region])
                sources[region].append(EntryRef(log, Number(ends[log]), first, Position(first + count), count))
                at[region] += count
            if rng.random() < 0.2:
                owner[region] = rng.choice(logs)
        ends[log] += 1
    return sources


@pytest.mark.parametrize("seed", range(30))
def test_portions_keep_the_order_of_each_region_and_an_object_whole(seed: int, small_portions: int) -> None:
    sources = written(Random(seed))
    groups = [[RegionDelta(region, tuple(found), Position(99))] for region, found in sources.items()]
    made = list(Portions(groups))
    for number, region in enumerate(REGIONS):
        assert [source for portion in made for source in portion[number][0].sources] == sources[region]
    read = Counter(
        key for portion in made for key in {s.key for group in portion for delta in group for s in delta.sources}
    )
    assert all(times == 1 for times in read.values())
    records = [sum(portions_module.records_of(s) for g in p for d in g for s in d.sources) for p in made]
    total = sum(records)
    assert len(made) == 1 if total <= small_portions else len(made) >= total // (3 * 8 + small_portions)
    for portion, count in zip(made, records, strict=True):
        objects = {s.key for group in portion for delta in group for s in delta.sources}
        assert count <= small_portions or len(objects) == 1


def test_portions_grow_with_the_keys_that_are_held(small_portions: int) -> None:
    entries = tuple(EntryRef(LogId("a"), Number(n), Position(n), Position(n + 1), 1) for n in range(100))
    portions, sizes = Portions([[RegionDelta(REGIONS[0], entries, Position(100))]]), []
    for portion in portions:
        sizes.append(len(portion[0][0].sources))
        portions.hold(sum(sizes))
    assert sizes == [10, 10, 20, 40, 20]


@pytest.fixture(scope="module", params=["canonical", "bytes"])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    keyed_by = None if request.param == "canonical" else lambda region, id: region.encode()
    made = Pipeline(tmp_path_factory.mktemp("made"), seed=4, seal_rows=30, batch=15, keyed_by=keyed_by)
    made.produce(80)
    made.merge_all()
    for _ in range(12):
        made.produce(16)
        made.ingest()
    made.settle()
    yield made
    made.close()


@pytest.fixture
def pipeline(tmp_path: Path, made: Pipeline) -> Iterator[Pipeline]:
    copied = made.copied(tmp_path)
    yield copied
    copied.close()


def folded_at_once(monkeypatch: pytest.MonkeyPatch) -> list[Groups]:
    """What will be folded at once, each time."""
    found: list[Groups] = []
    at_once = load_module._folds_at_once

    def watched(context: DeltaContext, groups: Groups, projected: RowSchema) -> list[Folded]:
        found.append(groups)
        return at_once(context, groups, projected)

    monkeypatch.setattr(load_module, "_folds_at_once", watched)
    return found


def test_rows_read_in_portions(pipeline: Pipeline, small_portions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = folded_at_once(monkeypatch)
    table = open_table(pipeline.uri, cache_bytes_max=0)
    receipt = table.receipt()
    folded.clear()
    assert table.to_arrow(at=receipt).num_rows == len(pipeline.oracle)
    whole = len(list(Portions([list(table.scan(at=receipt)._planned.plan.deltas)])))
    assert 3 < len(folded) < whole if pipeline.keyed_by is None else folded
    assert by_key(table.to_arrow(at=receipt)) == pipeline.oracle
    pipeline.produce(60)
    pipeline.ingest()
    assert by_key(table.to_arrow()) == pipeline.oracle  # goes on from what is remembered
    assert table.count_rows() == len(pipeline.oracle)
    assert by_key(table.to_arrow(at=receipt)) != pipeline.oracle


def test_segments_are_read_once(pipeline: Pipeline, small_portions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read = pin_read({"table": pipeline.uri})  # what an executor remembers is no segment
    got = Counter[str]()
    store = type(pipeline.store)
    get = store.get

    def counted(self: ObjectStore, key: str) -> bytes | None:
        got[key] += 1
        return get(self, key)  # type: ignore[arg-type] # the same store

    monkeypatch.setattr(store, "get", counted)
    (task,) = [task for task in read.tasks() if type(task).__name__ == "DeltaTask"]
    list(run_task(read.pinned_plan, task, ["region", "id"], None))
    segments = {key: times for key, times in got.items() if paths.parse_wal_segment(key) is not None}
    assert segments
    assert set(segments.values()) == {1}


def test_too_many_unmerged_keys(pipeline: Pipeline, small_portions: int) -> None:
    unmerged = open_table(pipeline.uri)
    unmerged.count_rows()
    ((_, loaded),) = unmerged._reads.context.loaded._found
    keys = len(loaded.mask)
    assert by_key(open_table(pipeline.uri, unmerged_keys_max=keys).to_arrow()) == pipeline.oracle
    table = open_table(pipeline.uri, unmerged_keys_max=keys - 1)
    for read in (
        table.to_arrow,
        lambda: table.scan().to_arrow(),
        lambda: table.get([("r1", 1)]).to_arrow(),
        table.count_rows,
    ):
        with pytest.raises(
            TooManyUnmerged, match=f"at least {keys} keys .* at most {keys - 1} keys in memory .unmerged_keys_max."
        ):
            read()
    assert table.count_rows(consistency="eventual") > 0
    pipeline.merge_all()
    assert by_key(table.to_arrow()) == pipeline.oracle


def test_what_comes_later_may_be_too_much(pipeline: Pipeline) -> None:
    """A fold that is gone on with is held to the bound too."""
    table = open_table(pipeline.uri)
    table.count_rows()
    ((_, loaded),) = table._reads.context.loaded._found
    bounded = open_table(pipeline.uri, unmerged_keys_max=len(loaded.mask) + 1)
    bounded.count_rows()
    pipeline.upsert("new", 1)
    pipeline.ingest()
    bounded.count_rows()
    pipeline.upsert("new", 2)
    pipeline.ingest()
    with pytest.raises(TooManyUnmerged):
        bounded.count_rows()


def test_it_ends_early(pipeline: Pipeline, small_portions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before all of it has been read: memory is what the bound is for."""
    folded = folded_at_once(monkeypatch)
    deltas = open_table(pipeline.uri).scan()._planned.plan.deltas
    table = open_table(pipeline.uri, unmerged_keys_max=60)
    folded.clear()
    with pytest.raises(TooManyUnmerged):
        table.to_arrow()
    assert 1 < len(folded) < len(list(Portions([list(deltas)])))


def test_on_other_surfaces(pipeline: Pipeline) -> None:
    read = pin_read({"table": pipeline.uri, "unmergedKeysMax": "5"})
    for task in read.tasks():
        with pytest.raises(TooManyUnmerged):
            list(run_task(read.pinned_plan, task, ["region", "id"], None))
    with pytest.raises(InvalidInput, match="unmerged_keys_max='many'"):
        pin_read({"table": pipeline.uri, "unmerged_keys_max": "many"})
    with pytest.raises(InvalidInput, match="unmerged_keys_max -1"):
        open_table(pipeline.uri, unmerged_keys_max=-1)
    result = CliRunner().invoke(app, ["-t", pipeline.uri, "--unmerged-keys-max", "5"])
    assert isinstance(result.exception, TooManyUnmerged)
    assert result.exception.where["keys_max"] == 5
    assert CliRunner().invoke(app, ["-t", pipeline.uri, "--unmerged-keys-max", "5000"]).exit_code == 0
