"""Which remembered fold a new plan goes on from, and what of the plan is then still to be read."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.errors import LancewalError, ObjectCorrupt, ObjectMissing, PlanStale
from lancewal_core.names.ids import Generation, LogId, Position, Region, TopicId
from lancewal_core.names.ids import Sequence as Number
from lancewal_core.region.flushes.manifest import Flush, FlushPart
from lancewal_core.rows.fold import Folded, fold, operation_schema
from lancewal_core.rows.projection import project, project_rows
from lancewal_core.rows.schema import Op, RowSchema, Signature
from lancewal_reader.plan.log_entries import EntryRef
from lancewal_reader.plan.strong import FlushRef, RegionDelta, Source
from lancewal_reader.table import open_table
from lancewal_reader.unmerged import flushed as flushed_module
from lancewal_reader.unmerged import load as load_module
from lancewal_reader.unmerged import loaded as loaded_module
from lancewal_reader.unmerged.flushed import Flushed
from lancewal_reader.unmerged.load import DeltaContext
from lancewal_reader.unmerged.loaded import Begun, Loaded, LoadedCache
from lancewal_reader.unmerged.portions import Groups
from tests.golden.json_formats import FLUSH, REPAIRED
from tests.support.pipeline import Pipeline, by_key
from tests.support.scripted import InlineTasks

SCHEMA = RowSchema(pa.schema([("k", pa.int64())]), ("k",), ("k",))
NORTH, SOUTH = Region("orders", TopicId("id"), 0), Region("orders", TopicId("id"), 1)
LOG = LogId("log")


def of(*names: str) -> Signature:
    """Columns of these names, for a cache."""
    return tuple((name, pa.int64()) for name in names)


def entry(first: int, next_: int) -> EntryRef:
    return EntryRef(LOG, Number(first), Position(first), Position(next_), 1)


def flushed(first: int, next_: int) -> FlushRef:
    return FlushRef(Generation(1), "key", Position(first), Position(next_), LOG, Number(0), Number(9))


def delta(region: Region, cut: int, *sources: Source) -> RegionDelta:
    return RegionDelta(region, sources, Position(cut))


def loaded() -> Loaded:
    return Loaded(fold([], SCHEMA), SCHEMA)


KNOWN = (delta(NORTH, 8, entry(3, 5), entry(5, 8)), delta(SOUTH, 4))


def nobody(_: Flushed) -> bool:
    """No flush was made by a repair."""
    return False


@pytest.mark.parametrize(
    ("deltas", "behind"),
    [
        ((delta(NORTH, 9, *KNOWN[0].sources, entry(8, 9)), KNOWN[1]), ((entry(8, 9),), ())),
        ((KNOWN[0], delta(SOUTH, 6, entry(4, 6))), ((), (entry(4, 6),))),
        (
            (delta(NORTH, 9, flushed(3, 8), entry(8, 9)), KNOWN[1]),
            ((entry(8, 9),), ()),
        ),  # sealed and flushed meanwhile
        (
            (delta(NORTH, 10, entry(3, 5), flushed(5, 9), entry(9, 10)), KNOWN[1]),
            ((flushed(5, 9), entry(9, 10)), ()),
        ),  # a flush on both sides of the cut
        ((delta(NORTH, 9, entry(3, 5), entry(5, 9)), KNOWN[1]), None),  # an entry on both sides of it
        ((delta(NORTH, 5, entry(3, 5)), KNOWN[1]), None),  # ends before
        ((delta(NORTH, 9, entry(5, 8), entry(8, 9)), KNOWN[1]), None),  # merged meanwhile
        ((delta(NORTH, 9, entry(0, 3), *KNOWN[0].sources, entry(8, 9)), KNOWN[1]), None),  # an older table was restored
        ((delta(NORTH, 8), KNOWN[1]), None),  # all merged
        ((delta(NORTH, 9, *KNOWN[0].sources, entry(8, 9)),), None),  # other regions
    ],
)
def test_a_fold_is_gone_on_with_from_its_cuts(
    deltas: Sequence[RegionDelta], behind: Sequence[Sequence[Source]] | None
) -> None:
    cache, known = LoadedCache(), loaded()
    cache.add(KNOWN, of("k"), known)
    assert cache.begun(deltas, of("k", "a"), nobody) is None
    begun = cache.begun(deltas, of("k"), nobody)
    if behind is None:
        assert begun is None
        return
    assert begun is not None
    assert begun.loaded is known
    assert not begun.left
    assert [d.sources for d in begun.behind] == list(behind)
    assert [(d.region, d.cut) for d in begun.behind] == [(d.region, d.cut) for d in deltas]


MANY = (delta(NORTH, 8, entry(3, 5), entry(5, 8)), delta(SOUTH, 10, *(entry(i, i + 1) for i in range(10))))
"""SOUTH has more than what is ever read anew of NORTH."""


@pytest.mark.parametrize(
    "north",
    [
        delta(NORTH, 9, entry(5, 8), entry(8, 9)),
        delta(NORTH, 9, flushed(5, 9)),
        delta(NORTH, 8),
        delta(NORTH, 11, entry(9, 11)),  # more is merged than was folded
    ],
)
def test_what_is_merged_leaves_the_fold_with_its_region(north: RegionDelta) -> None:
    cache, known = LoadedCache(), loaded()
    cache.add(MANY, of("k"), known)
    south = delta(SOUTH, 11, *MANY[1].sources, entry(10, 11))
    begun = cache.begun((north, south), of("k"), nobody)
    assert begun is not None
    assert begun.loaded is known
    assert begun.left == [MANY[0]]
    assert begun.behind == [north, delta(SOUTH, 11, entry(10, 11))]
    assert cache.begun((delta(NORTH, 9, entry(0, 3), *north.sources), south), of("k"), nobody) is None  # restored since
    assert cache.begun((delta(NORTH, 7, entry(5, 7)), south), of("k"), nobody) is None  # ends before


def test_the_newest_fold_is_gone_on_with() -> None:
    cache, newer = LoadedCache(), loaded()
    cache.add((delta(NORTH, 5, entry(3, 5)),), of("k"), loaded())
    cache.add((delta(NORTH, 8, entry(3, 5), entry(5, 8)),), of("k"), newer)
    begun = cache.begun((delta(NORTH, 9, entry(3, 5), entry(5, 8), entry(8, 9)),), of("k"), nobody)
    assert begun is not None
    assert begun.loaded is newer
    assert [d.sources for d in begun.behind] == [(entry(8, 9),)]


def test_a_fold_is_not_gone_on_with_where_a_repair_has_made_a_flush_since() -> None:
    cache = LoadedCache()
    cache.add((delta(NORTH, 8, entry(3, 5), entry(5, 8)),), of("k"), loaded())
    made = flushed(3, 8)
    now = (delta(NORTH, 9, made, entry(8, 9)),)
    asked: list[Source] = []

    def repaired(flushed: Flushed) -> bool:
        asked.extend(ref for _, ref in flushed)
        return bool(flushed)

    assert cache.begun(now, of("k"), repaired) is None
    assert asked == [made]
    cache.add(now, of("k"), loaded())
    assert cache.begun((delta(NORTH, 10, made, entry(8, 9), entry(9, 10)),), of("k"), repaired) is not None
    assert asked == [made]


def test_flushes_made_since_are_asked_for_once_each_and_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a hand-over they are those of hundreds of regions."""
    rounds: list[int] = []
    asked: list[str] = []

    class Tasks(InlineTasks):
        def map(self, call: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            rounds.append(len(items))
            return super().map(call, items)

    def read(_: Any, key: str) -> Flush:
        asked.append(key)
        if key not in flushes:
            raise ObjectMissing("it is gone", object=key)
        return flushes[key]

    def made(key: str, part: FlushPart) -> tuple[Region, FlushRef]:
        return part.region, FlushRef(part.generation, key, part.first, part.next, LOG, Number(0), Number(9))

    flushes = {"a": FLUSH, "b": replace(FLUSH, parts=FLUSH.parts[:1]), "c": REPAIRED}
    context: Any = SimpleNamespace(store=None, tasks=Tasks())
    monkeypatch.setattr(flushed_module, "read_flush", read)
    sound = [made("a", FLUSH.parts[0]), made("b", FLUSH.parts[0]), made("a", FLUSH.parts[1])]
    assert not flushed_module.repaired(context, [])
    assert not flushed_module.repaired(context, sound)
    assert (rounds, asked) == ([2], ["a", "b"])
    assert flushed_module.repaired(context, [*sound, made("c", REPAIRED.parts[0])])
    # What cannot be read, or is not in the flush, may have been made by one.
    assert flushed_module.repaired(context, [*sound, made("d", FLUSH.parts[0])])
    assert flushed_module.repaired(context, [made("b", FLUSH.parts[1])])


def test_a_fold_of_more_columns_is_gone_on_with_too() -> None:
    """A search by vector goes on from what a scan of all columns has folded."""
    cache, wide = LoadedCache(), loaded()
    cache.add(KNOWN, of("k", "a", "b"), wide)
    assert cache.get(KNOWN, of("k", "b")) is wide
    assert cache.get(KNOWN, of("k", "c")) is None
    longer = (KNOWN[0], delta(SOUTH, 6, entry(4, 6)))
    begun = cache.begun(longer, of("k", "a"), nobody)
    assert begun is not None
    assert begun.loaded is wide
    assert cache.begun(longer, of("k", "c"), nobody) is None
    same = loaded()
    cache.add(KNOWN, of("k", "b"), same)
    assert cache.get(KNOWN, of("k", "b")) is same


def test_reads_of_some_choices_of_columns_go_on_each_from_its_own() -> None:
    """In turns, by an open table that scans, and searches by vector and by text; the oldest state of each goes first."""
    cache, choices = LoadedCache(count_max=2), (of("k", "a", "b"), of("k", "v"), of("k", "t"))
    sources: tuple[Source, ...] = (entry(3, 5),)
    for cut in range(5, 20):
        deltas = (delta(NORTH, cut, *sources),)
        columns = choices[cut % 3]
        assert (cache.begun(deltas, columns, nobody) is not None) == (cut >= 8)
        cache.add(deltas, columns, loaded())
        sources = (*sources, entry(cut, cut + 1))
        assert len(cache._found) == min(cut - 4, 3)
    for number in range(6):
        cache.add((delta(NORTH, 3),), of("k", f"c{number}"), loaded())
    assert len(cache._found) == 4


def test_a_fold_with_fewer_columns_is_what_it_would_be_without_the_others() -> None:
    """Keys in each state; patches say anew which columns they set."""
    columns = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
    whole = RowSchema(columns, ("k",), ("k",))
    narrow = project(whole, ["b"])
    all_set, a_set, b_set = b"\x07", b"\x03", b"\x05"
    states = [
        (1, 10, 100, Op.UPSERT, None), (2, None, None, Op.DELETE, None), (3, 30, None, Op.PATCH, a_set),
        (4, None, 400, Op.PATCH, b_set), (5, 50, 500, Op.PATCH, all_set),
    ]  # fmt: skip
    wanted = operation_schema(whole)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(zip(*states, strict=True), wanted, strict=True)],
        schema=wanted,
    )
    wide = Loaded(fold([batch], whole), whole, unmerged=3, partitions=(1,))
    right = fold([project_rows(batch, whole, narrow)], narrow)
    found = wide.of_columns(narrow)
    assert found.folded.rows.equals(right.rows)
    assert found.folded.gone.equals(right.gone)
    assert found.folded.partials.equals(right.partials)
    assert (found.unmerged, found.partitions) == (3, (1,))
    assert found.mask is wide.mask
    assert wide.of_columns(whole) is wide


@pytest.mark.in_turns("seed", each=3)
@pytest.mark.parametrize("seed", range(6))
def test_reads_go_on_through_flushes_that_their_cuts_divide(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upserts, patches and deletes of few keys, read in the midst of each generation and behind its flush."""
    pipeline = Pipeline(tmp_path, seed=seed, seal_rows=10_000, batch=15)
    pipeline.produce(100, regions=4, ids=8)
    pipeline.merge_all()
    table = open_table(pipeline.uri)
    at_once, folded, before = load_module._folds_at_once, set[Source](), set[Source]()

    def watched(context: DeltaContext, groups: Groups, projected: RowSchema) -> list[Folded]:
        folded.update(source for group in groups for delta in group for source in delta.sources)
        return at_once(context, groups, projected)

    monkeypatch.setattr(load_module, "_folds_at_once", watched)
    for _ in range(4):
        for _ in range(2):
            pipeline.produce(12, regions=4, ids=8)
            pipeline.ingest()
            assert by_key(table.to_arrow()) == pipeline.oracle
        pipeline.produce(25, regions=4, ids=8)
        pipeline.ingest()
        pipeline.hand_over()
        pipeline.ingest()
        folded.clear()
        assert by_key(table.to_arrow()) == pipeline.oracle
        assert {type(source) for source in folded} == {FlushRef}
        assert not folded & before  # what has been folded once
        before |= folded
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle
    pipeline.close()


@pytest.mark.in_turns("seed", each=3)
@pytest.mark.parametrize("seed", range(3))
def test_reads_go_on_through_merges_of_some_regions(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upserts, patches and deletes of few keys, where each region is sealed and merged at a time of its own; gone on
    with wherever that may be, also where all anew were less."""
    counts = itertools.count()  # of two the first is always less
    monkeypatch.setattr(loaded_module, "records_in", lambda _: next(counts))
    rng = random.Random(seed)
    pipeline = Pipeline(tmp_path, seed=seed, seal_rows=30, batch=7)
    pipeline.produce(150, regions=8, ids=8)
    pipeline.merge_all()
    table, kept, went_on = open_table(pipeline.uri), load_module._kept, 0

    def watched(context: DeltaContext, begun: Begun, projected: RowSchema) -> Folded | None:
        nonlocal went_on
        found = kept(context, begun, projected)
        assert found is not None  # the log's segments are remembered, or there
        went_on += bool(begun.left)
        return found

    monkeypatch.setattr(load_module, "_kept", watched)
    for _ in range(20):
        pipeline.produce(rng.choice([10, 20]), regions=8, ids=8)
        pipeline.ingest()
        if rng.random() < 0.8:
            pipeline.settle()
            pipeline.merge()
        assert by_key(table.to_arrow()) == pipeline.oracle
    assert went_on
    pipeline.close()


@pytest.mark.parametrize("error", [ObjectMissing, PlanStale, ObjectCorrupt])
def test_where_what_is_merged_can_be_read_no_more_all_is_folded_anew(
    error: type[LancewalError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(context: DeltaContext, groups: Groups, projected: RowSchema) -> list[Folded]:
        raise error("segment", object="segment")

    monkeypatch.setattr(load_module, "_folds", lost)
    context: Any = SimpleNamespace(rows=SCHEMA)
    assert load_module._kept(context, Begun(loaded(), (), [KNOWN[0]]), SCHEMA) is None
    assert load_module._kept(context, Begun(loaded(), ()), SCHEMA) is not None
