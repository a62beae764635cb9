"""``lancewal repair region``: versions are lost or damaged, and the logs, the flushes and the watermark give them back."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lancewal_audit.repair.index.repair import MARGIN, plan_state, repair_state
from lancewal_audit.repair.log_survey import survey_logs
from lancewal_audit.repair.segment import plan_segment, repair_segment
from lancewal_core.errors import LancewalError, ObjectCorrupt, RepairRefused, RetentionLost, StoreInconsistent
from lancewal_core.names import paths
from lancewal_core.names.ids import Position
from lancewal_core.region.flush import flush_generation
from lancewal_core.region.flush_files import Content
from lancewal_core.region.loss_record import LossRecord, write_loss
from lancewal_core.region.pages.state_page import decode_page
from lancewal_core.region.state import GenerationState, RegionState
from lancewal_core.region.states import Swap, state_in
from lancewal_core.rows.fold import fold
from lancewal_core.table.control import Service
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import MemoryRecords
from tests.support.indexes import flip_record, newest_state, page_versions
from tests.support.pauses import pause, resume
from tests.support.pipeline import Pipeline, by_key
from tests.support.repairs import (
    Crash,
    CrashingStore,
    HookedStore,
    check_merged,
    check_strong,
    content,
    dry,
    messages,
    repairing,
)
from tests.support.steps import steps_told

ADOPT = MergeLimits(adopt_rows=1)
PARTITION = 1


def make(folder: Path) -> Pipeline:
    """Merged, FLUSHED and OPEN generations of two regions, in the logs of two workers."""
    made = Pipeline(folder, partitions=2, seed=13, seal_rows=40)
    made.produce(120)
    made.merge_all(ADOPT)
    made.produce(120)
    made.ingest()
    made.produce(60)
    made.crash()
    made.settle()
    for service in Service:
        pause(made.store, made.clock, lambda: uuid.uuid4().hex, service, None)
    return made


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = make(tmp_path)
    yield made
    made.close()


def versions(pipeline: Pipeline, partition: int = PARTITION) -> list[Path]:
    """Objects of the page, the newest first."""
    return page_versions(pipeline.store, pipeline.uri, pipeline.contract.regions[partition])


def flip_all(pipeline: Pipeline) -> None:
    """Damage the region's record in all versions that have one."""
    for path in versions(pipeline):
        if PARTITION in decode_page(path.read_bytes(), path.name).records:
            flip_record(path, PARTITION)


def kafka(low: int = 0) -> Callable[[], Position]:
    """A topic that begins there."""
    return lambda: Position(low)


def repair(
    pipeline: Pipeline,
    *,
    before_gap: bool = False,
    members: int = 0,
    above: int = 0,
    low: int = 0,
    partition: int = PARTITION,
) -> list[str]:
    with repairing(pipeline) as context:
        region = pipeline.contract.regions[partition]
        done = repair_state(context, region, lambda: members, kafka(low), before_gap=before_gap, above=above)
    return messages(done)


def repair_page(pipeline: Pipeline, *, above: int = 0) -> list[str]:
    """All regions of it, one after the other; what was done for the first."""
    done = repair(pipeline, above=above)
    for region in pipeline.contract.regions:
        if region.partition != PARTITION:
            repair(pipeline, partition=region.partition, above=above)
    return done


def goes_on(pipeline: Pipeline, *, another: bool = True) -> None:
    """Strong reads at once; then ingest, by another process or by the one that remembers, merges, collections."""
    check_strong(pipeline)
    if not another:
        pipeline.produce(6)  # too few to seal: it must meet a fence, or nobody would see them
        pipeline.ingest()
        check_strong(pipeline)
    pipeline.produce(50)
    if another:
        pipeline.crash()
    else:
        pipeline.ingest()
    check_strong(pipeline)
    pipeline.merge_all(ADOPT)
    check_strong(pipeline)
    check_merged(pipeline)
    pipeline.collect()
    check_strong(pipeline)


@pytest.mark.parametrize("count", [3])
def test_damaged_versions(pipeline: Pipeline, count: int) -> None:
    for path in versions(pipeline)[:count]:
        flip_record(path, PARTITION)
    with pytest.raises(ObjectCorrupt, match="lancewal repair region"):
        open_table(pipeline.uri).to_arrow()
    with steps_told() as steps:
        assert "is the newest that can be read" in dry(pipeline, "region", PARTITION)
    assert steps.told[0].what == "looking for what is damaged"
    assert steps.one("reading logs").done == steps.one("reading logs").total
    assert any("is written" in line for line in repair(pipeline))
    goes_on(pipeline)
    assert repair(pipeline) == []


def test_times_are_restored_as_far_as_something_tells_them(pipeline: Pipeline) -> None:
    old = {r.generation: r for r in read_index(pipeline).generations}
    assert {r.state for r in old.values()} >= {GenerationState.FLUSHED, GenerationState.OPEN}
    flip_all(pipeline)
    repair(pipeline)
    states = []
    for record in read_index(pipeline).generations:
        states.append(record.state)
        if record.state is GenerationState.FLUSHED:
            known = old[record.generation]
            assert (known.record_times is None) == (known.first == known.next), known
            assert (record.sealed_at_ms, record.record_times) == (known.sealed_at_ms, known.record_times)
        else:
            assert record.sealed_at_ms is None
            # Of these records the timestamps ascend.
            times = record.record_times
            assert times is not None
            assert times.max_ms - times.min_ms == (record.next or 0) - 1 - record.first
        assert record.flushed_at_ms is None
    assert set(states) == {GenerationState.FLUSHED, GenerationState.SEALED}


def test_damage_that_others_have_copied(pipeline: Pipeline) -> None:
    """The object put back is no longer the newest: its record is taken from there by the repair, and others keep theirs."""
    before = read_index(pipeline)
    newest = versions(pipeline)[0]
    whole = newest.read_bytes()
    flip_record(newest, PARTITION)
    other = pipeline.contract.regions[1 - PARTITION]
    with repairing(pipeline) as context:
        swapped = context.states.swap({other: lambda found: found and replace(found, write_id=context.new_id())})
    assert swapped[other].ours
    newest.write_bytes(whole)
    with pytest.raises(ObjectCorrupt, match=f"{versions(pipeline)[0].name} is corrupt: .* `lancewal repair region`"):
        open_table(pipeline.uri).to_arrow()
    repair(pipeline)
    assert newest_state(pipeline.store, pipeline.clock, other) == swapped[other].found
    known = newest_state(pipeline.store, pipeline.clock, pipeline.contract.regions[PARTITION])
    assert known is not None
    assert known.generations[: len(before.generations) - 1] == before.generations[:-1]
    goes_on(pipeline)


def test_while_one_record_is_damaged_other_regions_go_on(pipeline: Pipeline) -> None:
    """They are ingested, merged and trimmed.  Of the damaged one nothing is deleted, and reads that need it name it."""
    damaged, other = pipeline.contract.regions[PARTITION], pipeline.contract.regions[1 - PARTITION]
    flip_record(versions(pipeline)[0], PARTITION)
    pipeline.produce(150)
    pipeline.replace_worker()
    with pytest.raises(ObjectCorrupt, match=f"region {damaged.name}: .* `lancewal repair region`"):
        pipeline.ingest()
    assert pipeline.ingest_of(other.partition)
    before = pipeline.merged()
    with pytest.raises(ObjectCorrupt, match=f"region {damaged.name}: "):
        pipeline.merge(ADOPT)
    after = pipeline.merged()
    assert (after[damaged], after[other] > before[other]) == (before[damaged], True)
    with pytest.raises(ObjectCorrupt, match=f"region {damaged.name}: "):
        open_table(pipeline.uri).to_arrow()
    assert by_key(open_table(pipeline.uri).to_arrow(consistency="eventual")) == pipeline.fold_at(after)
    kept = {key for key in content(pipeline.uri) if damaged.name in key or "/wal/" in key}
    pipeline.clock.ahead_s += pipeline.contract.history_window_s
    assert other in pipeline.collect().trimmed
    pipeline.clock.ahead_s += pipeline.contract.grace_s
    assert set(pipeline.collect().damaged) == {damaged}
    assert kept <= content(pipeline.uri).keys()
    repair(pipeline)
    pipeline.crash()
    goes_on(pipeline)


@pytest.mark.parametrize(("count", "another"), [(1, False), (4, True), (1000, False)])
def test_lost_versions(pipeline: Pipeline, count: int, another: bool) -> None:
    """Also where the process that owned the region, and remembers the versions that are lost, goes on."""
    for path in versions(pipeline)[:count]:
        path.unlink()
    dry(pipeline, "region", PARTITION)
    repair_page(pipeline)
    goes_on(pipeline, another=another)


@pytest.mark.parametrize("how", ["damaged", "lost", "known to be lost"])
def test_of_a_page_that_cannot_be_read_each_region_is_repaired_by_itself(pipeline: Pipeline, how: str) -> None:
    """None goes on from what an older version says of it."""
    objects = versions(pipeline)
    above = 0
    match how:
        case "damaged":
            data = bytearray(objects[0].read_bytes())
            data[10] ^= 0xFF
            objects[0].write_bytes(data)
        case "lost":
            for path in objects:
                path.unlink()
        case "known to be lost":
            for path in objects[:3]:
                path.unlink()
            above = len(objects)
    others = [r.partition for r in pipeline.contract.regions if r.partition != PARTITION]
    assert repair(pipeline, above=above)[-1].endswith(f"are lost too, repair each: {', '.join(map(str, others))}")
    with pytest.raises(ObjectCorrupt, match=f"the state of region orders/[^ ]*/{others[0]} is lost"):
        open_table(pipeline.uri).to_arrow()
    for partition in others:
        repair(pipeline, partition=partition, above=above)
    goes_on(pipeline)


def test_an_index_below_the_watermark_names_the_command(pipeline: Pipeline) -> None:
    for path in versions(pipeline):
        path.unlink()
    with pytest.raises((LancewalError), match="lancewal repair region"):
        open_table(pipeline.uri).to_arrow()
    with pytest.raises(StoreInconsistent, match="lancewal repair region"):
        pipeline.merge()


def test_a_sound_index_is_left_alone(pipeline: Pipeline) -> None:
    assert "it covers everything in the logs" in dry(pipeline, "region", PARTITION)
    before = versions(pipeline)
    assert repair(pipeline) == []
    assert versions(pipeline) == before
    goes_on(pipeline)


def unmerged_segment(pipeline: Pipeline) -> tuple[Path, int, int]:
    """A segment in the middle of what only logs hold, and the positions of the region in it."""
    region = pipeline.contract.regions[PARTITION]
    with repairing(pipeline) as context:
        while True:
            pipeline.produce(8)
            pipeline.ingest()
            pipeline.settle()
            survey = survey_logs(context, [region])
            open_ = newest_state(pipeline.store, pipeline.clock, region)
            assert open_ is not None
            assert open_.newest is not None
            record = open_.newest
            first = record.first
            if sum(p.first >= first for p in survey[record.log].pieces[region]) > 1:
                break
        flip_all(pipeline)
        piece = next(p for p in survey[record.log].pieces[region] if p.first >= first)
        key = paths.wal_segment(piece.log, piece.sequence)
        segment = decode_segment(pipeline.store.get(key) or b"", key)
        assert isinstance(segment, Segment)
        entry = next(e for e in segment.entries if e.region == region)
        assert entry.first == first
        assert entry.next < len(pipeline.messages(PARTITION)), "it is the last"
        return Path(pipeline.uri) / key, entry.first, entry.next


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_a_gap_stops_it_and_a_person_may_end_the_region_there(pipeline: Pipeline, how: str) -> None:
    path, first, next_ = unmerged_segment(pipeline)
    if how == "lost":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-20])
    with pytest.raises(RepairRefused, match=f"offsets {first} to {next_ - 1} are in no log"):
        repair(pipeline)
    region = pipeline.contract.regions[PARTITION]
    with repairing(pipeline) as context:
        lines = messages(plan_state(context, region, kafka(), before_gap=True).lines())
    assert any(f"offsets {first} to {next_ - 1}" in line for line in lines)
    if how == "damaged":
        assert any(line.startswith("may have held more: ") and path.name in line for line in lines)
    before = content(pipeline.uri)
    with pytest.raises(RetentionLost, match=f"Kafka begins at {first + 1}"):
        repair(pipeline, before_gap=True, low=first + 1)
    assert content(pipeline.uri) == before
    repair(pipeline, before_gap=True, low=first)
    with repairing(pipeline) as context:  # the other region has it too
        topic = MemoryRecords(pipeline)
        repair_segment(context, topic, plan_segment(context, topic, path.relative_to(pipeline.uri).as_posix()))
    pipeline.crash()  # reads again what is in no log
    goes_on(pipeline)


def test_what_kafka_got_a_second_time_is_not_read_for_a_gap(pipeline: Pipeline) -> None:
    """The topic lost its tail once, and a person has accepted that."""
    path, first, next_ = unmerged_segment(pipeline)
    path.unlink()
    region = pipeline.contract.regions[PARTITION]
    loss = LossRecord(first=first, next=next_, accepted_at_ms=1, accepted_by="person", kind="replaced")
    write_loss(pipeline.store, region, loss, None)
    before = content(pipeline.uri)
    with pytest.raises(RetentionLost, match=f"below {next_} Kafka may have other records"):
        repair(pipeline, before_gap=True)
    assert content(pipeline.uri) == before


def never_merged(folder: Path, how: str) -> tuple[Pipeline, int]:
    """No version of the index is left, nothing was merged, and the log's first segment is gone; where its entry ended."""
    pipeline = Pipeline(folder, partitions=1, seed=5, seal_rows=100_000, batch=10)  # start: earliest
    for _ in range(3):
        pipeline.produce(30)
        pipeline.ingest()
    check_strong(pipeline)
    (region,) = pipeline.contract.regions
    with repairing(pipeline) as context:
        (survey,) = survey_logs(context, [region]).values()
    piece = survey.pieces[region][0]
    assert (piece.sequence, piece.first) == (0, 0)
    path = Path(pipeline.uri) / paths.wal_segment(survey.log, piece.sequence)
    match how:
        case "lost":
            path.unlink()
        case "damaged":
            path.write_bytes(b"x" * path.stat().st_size)
    for version in versions(pipeline, 0):
        version.unlink()
    for service in Service:
        pause(pipeline.store, pipeline.clock, lambda: uuid.uuid4().hex, service, None)
    return pipeline, piece.next


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_where_a_region_began_is_not_guessed(tmp_path: Path, how: str) -> None:
    pipeline, behind = never_merged(tmp_path, how)
    before = content(pipeline.uri)
    with pytest.raises(RepairRefused, match=f"offsets 0 to {behind - 1} are in no log"):
        repair(pipeline, partition=0)
    with pytest.raises(RepairRefused, match=f"Logs begin at {behind}, and Kafka at {behind + 3}"):
        repair(pipeline, partition=0, low=behind + 3)
    assert content(pipeline.uri) == before
    repair(pipeline, partition=0, before_gap=True)
    pipeline.crash()  # reads again from where Kafka begins
    check_strong(pipeline)
    pipeline.close()


def test_a_refusal_names_lost_segments(tmp_path: Path) -> None:
    pipeline, _ = never_merged(tmp_path, "not at all")
    (key,) = [i.key for i in pipeline.store.list(paths.WAL) if i.key.endswith("0001.arrow")]
    pipeline.store.delete([key])
    with pytest.raises(RepairRefused, match=f"{key} is missing"):
        repair(pipeline, partition=0)
    pipeline.close()


@pytest.mark.parametrize("low", [0, 7])
def test_a_region_whose_log_is_whole_began_at_its_first_entry(tmp_path: Path, low: int) -> None:
    """Also where Kafka has dropped some of it since."""
    pipeline, _ = never_merged(tmp_path, "not at all")
    repair(pipeline, partition=0, low=low)
    check_strong(pipeline)
    pipeline.close()


def test_refused_while_somebody_is_at_work(pipeline: Pipeline) -> None:
    flip_record(versions(pipeline)[0], PARTITION)
    before = versions(pipeline)
    with pytest.raises(RepairRefused, match="consumer group has 2 members: stop ingest"):
        repair(pipeline, members=2)
    for service in Service:
        resume(pipeline.store, pipeline.clock, lambda: uuid.uuid4().hex, service, None)
        with pytest.raises(RepairRefused, match=f"lancewal pause {service}"):
            repair(pipeline)
        pause(pipeline.store, pipeline.clock, lambda: uuid.uuid4().hex, service, None)
    for service in Service:
        resume(pipeline.store, pipeline.clock, lambda: uuid.uuid4().hex, service, None)
    with pytest.raises(RepairRefused, match="`lancewal pause ingest && lancewal pause flusher`"):
        repair(pipeline)
    assert versions(pipeline) == before


@pytest.mark.parametrize(("at", "after"), [(1, True), (3, False), (3, True), (60, False)])
def test_a_crash_in_between_is_repeated_away(pipeline: Pipeline, at: int, after: bool) -> None:
    """Fences, the version that decides, and those that fill up."""
    flip_all(pipeline)
    for path in versions(pipeline)[:3]:
        path.unlink()
    region = pipeline.contract.regions[PARTITION]
    with repairing(pipeline, CrashingStore(pipeline.store, at, after=after)) as context, pytest.raises(Crash):
        repair_state(context, region, lambda: 0, kafka())
    repair_page(pipeline)
    listed = len(versions(pipeline))
    assert listed > MARGIN
    assert repair(pipeline) == []
    assert len(versions(pipeline)) == listed
    goes_on(pipeline, another=False)


@pytest.mark.parametrize("at", [1, 2])
def test_a_swap_that_comes_while_it_writes_is_never_passed_over(pipeline: Pipeline, at: int) -> None:
    """Of a process that slept: it wins against the repair, or follows its version."""
    flip_record(versions(pipeline)[0], PARTITION)
    other, region = pipeline.contract.regions[1 - PARTITION], pipeline.contract.regions[PARTITION]
    newest = len(versions(pipeline))
    swapped: list[Swap] = []
    with repairing(pipeline) as slow:
        slow.states.read([other])

        def meanwhile(key: str) -> None:
            found = paths.parse_page_version(key)
            if found is not None and found[1] == newest + at and not swapped:
                swapped.append(slow.states.swap({other: lambda it: it and replace(it, write_id="meanwhile")})[other])

        with (
            repairing(pipeline, HookedStore(pipeline.store, meanwhile)) as context,
            pytest.raises(RepairRefused, match="has changed meanwhile"),
        ):
            repair_state(context, region, lambda: 0, kafka())
    assert newest_state(pipeline.store, pipeline.clock, other) == swapped[0].found
    repair(pipeline)
    assert newest_state(pipeline.store, pipeline.clock, other) == swapped[0].found
    goes_on(pipeline)


def test_of_two_at_once_one_decides(pipeline: Pipeline) -> None:
    flip_record(versions(pipeline)[0], PARTITION)
    region = pipeline.contract.regions[PARTITION]
    asked: list[int] = []

    def members() -> int:
        asked.append(1)
        if len(asked) == 2:  # right before the put
            repair(pipeline)
        return 0

    with repairing(pipeline) as context, pytest.raises(RepairRefused, match="has changed meanwhile"):
        repair_state(context, region, members, kafka())
    goes_on(pipeline)


def test_a_flush_of_a_generation_that_the_new_index_cuts_otherwise_changes_nothing(pipeline: Pipeline) -> None:
    """An ingest that folded it before, and swaps after."""
    region = pipeline.contract.regions[PARTITION]
    pipeline.hand_over()
    pipeline.produce(30)
    pipeline.ingest()
    with repairing(pipeline) as context:
        flip_all(pipeline)
        repair(pipeline)
        state = newest_state(pipeline.store, pipeline.clock, region)
        assert state is not None
        record = next(r for r in state.generations if r.state is GenerationState.SEALED)
        assert record.next is not None
        shorter = replace(record, next=Position(record.next - 1))
        content = Content(fold([], pipeline.contract.rows))
        flushed = flush_generation(context, region, shorter, content, context.new_id)
        assert flushed is None
    goes_on(pipeline)


def test_a_flush_is_lost_too(pipeline: Pipeline) -> None:
    """The version that can be read says SEALED, a later generation has a flush: the earlier is flushed first."""
    for _ in range(4):
        pipeline.produce(60)
        pipeline.ingest()
        pipeline.settle()
    region = pipeline.contract.regions[PARTITION]
    read = [
        (path, state_in(decode_page(path.read_bytes(), path.name), region, path.name)) for path in versions(pipeline)
    ]
    indexes = [(path, index) for path, index in read if index is not None]
    flushed = [r for r in indexes[0][1].generations if r.state is GenerationState.FLUSHED]
    assert len(flushed) > 1
    early = flushed[-2]
    for path, index in indexes:
        if any(r.generation == early.generation and r.state is GenerationState.SEALED for r in index.generations):
            break
        path.unlink()
    (Path(pipeline.uri) / (early.flush or "")).unlink()
    assert repair(pipeline) == []  # it leads as far: nothing shows that there were others
    assert repair_page(pipeline, above=len(read))
    states = [r.state for r in read_index(pipeline).generations]
    assert GenerationState.FLUSHED not in states[states.index(GenerationState.SEALED) :]
    goes_on(pipeline)


def read_index(pipeline: Pipeline) -> RegionState:
    state = newest_state(pipeline.store, pipeline.clock, pipeline.contract.regions[PARTITION])
    assert state is not None
    return state
