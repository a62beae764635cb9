"""Reads at positions and at times, over all that becomes of records, against a dict made of the messages alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import lance
import pytest

from lancewal_core.errors import InvalidInput, OutsideHistoryWindow, SnapshotMissing, VersionGone
from lancewal_core.names.ids import Position
from lancewal_core.process.clock import utc_text
from lancewal_flusher.garbage import find as garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.plan.at_timestamp import _between
from lancewal_reader.plan.strong import PlanContext
from lancewal_reader.point.at import At, Point
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.spark.options import parse_options
from lancewal_reader.spark.source import pin_read
from lancewal_reader.table import open_table
from tests.support.pipeline import FIRST_MS, Key, Pipeline, Row, by_key, moment

DAY_MS = 24 * 3600 * 1000


def at_ms(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def fold(pipeline: Pipeline, by_partition: dict[int, int]) -> dict[Key, Row]:
    cut = {region: Position(by_partition[region.partition]) for region in pipeline.contract.regions}
    return pipeline.fold_at(cut)


def step(pipeline: Pipeline, number: int) -> None:
    """One thing that becomes of records, all of them durable at its end."""
    pipeline.produce(pipeline.rng.randrange(10, 50))
    pipeline.ingest()
    match number % 6:
        case 1:
            pipeline.hand_over()
            pipeline.ingest()
        case 2:
            pipeline.merge(MergeLimits(adopt_rows=pipeline.rng.choice([1, 1000])))
        case 3:
            pipeline.crash()
        case 4:
            pipeline.merge_all()
            pipeline.collect()
        case 5:
            lance.dataset(pipeline.uri).optimize.compact_files()
        case _:
            pass


@pytest.fixture
def paged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations leave the states of their partitions soon."""
    monkeypatch.setattr(garbage, "HISTORY_PAGE_AT", 3)
    monkeypatch.setattr(garbage, "HISTORY_PAGE_REST", 1)


@pytest.mark.in_turns("seed", each=2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("paged")
def test_any_point_gives_what_was_there(tmp_path: Path, seed: int) -> None:
    pipeline = Pipeline(tmp_path, seed=seed, seal_rows=20, batch=20, grace_s=0)
    rng, table = pipeline.rng, open_table(pipeline.uri)
    moments: list[tuple[int, dict[Key, Row], dict[int, int]]] = []
    partitions = range(pipeline.contract.partitions)

    def checked(count: int) -> int:
        """How many points were there to be read."""
        read = 0
        ends = {p: len(pipeline.messages(p)) for p in partitions}
        for _ in range(count):
            wanted = {p: rng.randint(0, ends[p]) for p in partitions}
            record_ms = rng.randint(0, max(ends.values()) + 2)
            ms, oracle, sent = rng.choice(moments)
            points: list[tuple[Point, dict[Key, Row]]] = [
                (At.positions(wanted), fold(pipeline, wanted)),
                (
                    At.record_time(at_ms(FIRST_MS + record_ms)),
                    fold(pipeline, {p: min(record_ms, ends[p]) for p in ends}),
                ),
                (At.timestamp(at_ms(ms)), oracle),
                (At.positions(sent), oracle),
            ]
            for point, expected in points:
                try:
                    rows = table.scan(at=str(point) if rng.random() < 0.5 else point)
                except (OutsideHistoryWindow, VersionGone):
                    assert trimmed
                    continue
                assert by_key(rows.to_arrow()) == expected, point
                assert by_key(table.to_arrow(at=rows.receipt)) == expected
                read += 1
        return read

    trimmed = False
    for number in range(12):
        step(pipeline, number + seed)
        moments.append((moment(), dict(pipeline.oracle), {p: len(pipeline.messages(p)) for p in partitions}))
        assert checked(2 if number % 3 == 2 else 0) in (0, 8)
    assert checked(3) == 12
    trimmed = True
    for _ in range(3):
        pipeline.clock.ahead_s += pipeline.contract.history_window_s + 60
        pipeline.produce(20)
        pipeline.merge_all()
        pipeline.collect()
    assert checked(8) < 32
    receipt = table.receipt()
    now = At.positions({region.partition: position for region, position in receipt.positions.items()})
    assert by_key(table.to_arrow(at=now)) == pipeline.oracle
    pipeline.close()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, seed=3, seal_rows=25, batch=15, grace_s=0)
    made.produce(60)
    made.merge_all()
    made.produce(30)
    made.ingest()
    yield made
    made.close()


def reached(pipeline: Pipeline) -> dict[int, int]:
    return {p: len(pipeline.messages(p)) for p in range(pipeline.contract.partitions)}


def test_what_the_table_does_not_have_is_refused(pipeline: Pipeline) -> None:
    table, ends = open_table(pipeline.uri), reached(pipeline)
    with pytest.raises(
        InvalidInput, match=r"partitions \[2\] have no position, or do not exist.*0 to 2 of topic orders"
    ):
        table.scan(at=At.positions({0: 1, 1: 1}))
    with pytest.raises(InvalidInput, match=r"partitions \[3\] have no position, or do not exist"):
        table.scan(at="positions:0=0,1=0,2=0,3=0")
    with pytest.raises(InvalidInput, match=f"not reached these positions yet: it is at orders-1: {ends[1]}. To wait"):
        table.scan(at=At.positions({**ends, 1: ends[1] + 1}))
    with pytest.raises(InvalidInput, match="is in the future; read without `at`"):
        table.scan(at=At.timestamp(datetime.now(UTC) + timedelta(hours=1)))
    with pytest.raises(SnapshotMissing, match="the table of topic orders has no snapshot 'eom': there are none"):
        table.scan(at="snapshot:eom")
    with pytest.raises(VersionGone, match=r"there was no table at 2001-09-09T01:46:40Z: its version 1 is of 20"):
        table.scan(at="timestamp:2001-09-09T01:46:40Z")
    with pytest.raises(InvalidInput, match="the table has no column of vectors"):
        table.search([1.0, 2.0])


def test_what_is_left_is_said(pipeline: Pipeline) -> None:
    table, before, ends = open_table(pipeline.uri), moment(), reached(pipeline)
    pipeline.produce(40)
    pipeline.merge_all()
    version = pipeline.table.newest().version
    lance.dataset(pipeline.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=False)
    with pytest.raises(VersionGone, match=rf"no table version of .* is left\. The oldest version left is {version} of"):
        table.scan(at=At.timestamp(at_ms(before)))
    with pytest.raises(
        VersionGone, match=rf"is at or below these positions \(version {version} has merged orders-0 up to"
    ):
        table.scan(at=At.positions(ends))
    with pytest.raises(VersionGone, match=f"table version 2 is gone: .*the newest is {version} of 20") as found:
        table.scan(at="version:2")
    assert found.value.where == {"version": 2}


def test_versions_that_are_gone_in_between_are_proven(pipeline: Pipeline) -> None:
    """A tag keeps one; the time asked for lies between it and the next that is left."""
    table = open_table(pipeline.uri)
    lance.dataset(pipeline.uri).tags.create("kept", pipeline.table.newest().version)
    pipeline.produce(40)
    pipeline.merge_all()
    then, expected = moment(), dict(pipeline.oracle)
    pipeline.produce(40)
    pipeline.merge_all()
    lance.dataset(pipeline.uri).cleanup_old_versions(
        older_than=timedelta(0), delete_unverified=False, error_if_tagged_old_versions=False
    )
    assert by_key(table.to_arrow(at=At.timestamp(at_ms(then)))) == expected
    pipeline.append_by_hand([{"region": "by hand", "id": 1}])
    after = moment()
    pipeline.produce(40)
    pipeline.merge_all()
    lance.dataset(pipeline.uri).cleanup_old_versions(
        older_than=timedelta(0), delete_unverified=False, error_if_tagged_old_versions=False
    )
    with pytest.raises(VersionGone, match=r"is gone: it was one of the versions .* No record says that version"):
        table.scan(at=At.timestamp(at_ms(after)))


def test_times_of_records_need_not_ascend(pipeline: Pipeline) -> None:
    """The first record at or above the time counts, whatever comes later."""
    table = open_table(pipeline.uri)
    for partition, end in reached(pipeline).items():
        for k in (0, 1, end // 2, end):
            rows = table.scan(at=At.record_time(at_ms(FIRST_MS + k)))
            assert {r.partition: p for r, p in rows.receipt.positions.items()}[partition] == min(k, end)


TIMES: Mapping[str, Callable[[int, int], int]] = {
    "ascending": lambda _, offset: FIRST_MS + offset,
    "descending": lambda _, offset: FIRST_MS - offset,
    "one far ahead": lambda _, offset: FIRST_MS + (DAY_MS if offset == 7 else offset),
    "any": lambda _, offset: FIRST_MS + Random(offset).randrange(-60, 60),
    "none": lambda _, offset: -1,
}
"""The record time at each offset of a partition."""


@pytest.mark.parametrize("of", TIMES)
@pytest.mark.usefixtures("paged")
def test_a_time_whose_first_record_may_be_trimmed_is_refused(tmp_path: Path, of: str) -> None:
    """Of any order of times: the rows before the first record of the time, or an error where that record is trimmed."""
    record_ms = TIMES[of]
    pipeline = Pipeline(tmp_path, partitions=2, seed=5, seal_rows=8, batch=8, grace_s=0, record_ms=record_ms)
    table = open_table(pipeline.uri)

    def first_from(partition: int, ms: int) -> int:
        end = len(pipeline.messages(partition))
        return next((offset for offset in range(end) if record_ms(0, offset) >= ms), end)

    def check() -> None:
        trimmed = {r.partition: i.trimmed for r, i in pipeline.flusher().read_states().items()}
        asked = {
            record_ms(0, offset) + k for p in trimmed for offset in range(0, reached(pipeline)[p], 7) for k in (0, 1)
        }
        for ms in sorted({*asked, FIRST_MS + 2 * DAY_MS}):
            cut = {partition: first_from(partition, ms) for partition in trimmed}
            if any(cut[partition] < trimmed[partition] for partition in cut):
                with pytest.raises(OutsideHistoryWindow, match="or later is trimmed; what is left begins at position"):
                    table.scan(at=At.record_time(at_ms(ms)))
                continue
            rows = table.scan(at=At.record_time(at_ms(ms)))
            assert {region.partition: at for region, at in rows.receipt.positions.items()} == cut, ms
            assert by_key(rows.to_arrow()) == fold(pipeline, cut), ms

    for _ in range(3):
        pipeline.produce(40)
        pipeline.merge_all()
        check()
        pipeline.clock.ahead_s += pipeline.contract.history_window_s + 60
        pipeline.collect()
        pipeline.collect()
        check()
    assert all(state.trimmed for state in pipeline.flusher().read_states().values())
    pipeline.close()


def test_what_is_kept_may_begin_with_what_is_no_row(tmp_path: Path) -> None:
    """The record after what was trimmed is no row.  Without the times of what was trimmed every time is refused."""
    pipeline = Pipeline(tmp_path, partitions=1, seed=3, seal_rows=25, batch=15, grace_s=0, on_bad_record="ignore")
    table = open_table(pipeline.uri)
    pipeline.produce(30)
    pipeline.merge_all()
    for _ in range(3):
        pipeline.clock.ahead_s += pipeline.contract.history_window_s + 60
        pipeline.collect()
    begin = len(pipeline.messages(0))
    pipeline._messages[0].append((b"x", b"no JSON", "upsert"))
    pipeline.produce(10)
    pipeline.ingest()
    for early in (0, begin - 1):
        with pytest.raises(OutsideHistoryWindow, match=f"is trimmed; what is left begins at position {begin}"):
            table.scan(at=At.record_time(at_ms(FIRST_MS + early)))
    for late, position in ((begin, begin + 1), (begin + 1, begin + 1), (begin + 2, begin + 2)):
        assert list(table.receipt(at=At.record_time(at_ms(FIRST_MS + late))).positions.values()) == [position]
    (region,) = pipeline.contract.regions
    pipeline.flusher().states.swap(
        {region: lambda found: found and replace(found, trimmed_record_time_max_ms=None, write_id="earlier-release")}
    )
    for asked in (begin, begin + 2, DAY_MS):
        with pytest.raises(OutsideHistoryWindow, match="may be trimmed, by a release that kept no times"):
            table.scan(at=At.record_time(at_ms(FIRST_MS + asked)))
    pipeline.close()


def test_what_is_trimmed_without_a_record_is_missed_by_nobody(tmp_path: Path) -> None:
    """Behind a version each partition has a generation without records, which is trimmed since, and one that is kept."""
    pipeline = Pipeline(tmp_path, partitions=2, seed=3, grace_s=0)
    table = open_table(pipeline.uri)
    pipeline.produce(30)
    pipeline.merge_all()
    merged, before = moment(), dict(pipeline.oracle)
    pipeline.hand_over()
    pipeline.produce(20)
    pipeline.ingest()
    receipt, then, oracle = table.receipt(), moment(), dict(pipeline.oracle)
    pipeline.merge()
    assert table.receipt().version > receipt.version
    pipeline.clock.ahead_s += pipeline.contract.history_window_s + 60
    for _ in range(3):
        pipeline.collect()
    states = pipeline.flusher().states.read(pipeline.contract.regions)
    assert [state.trimmed_generation for state in states.values()] == [2, 2]
    for point, expected in (
        (receipt, oracle),
        (At.timestamp(at_ms(then)), oracle),
        (At.timestamp(at_ms(merged)), before),
    ):
        assert by_key(table.to_arrow(at=point)) == expected
    pipeline.merge_all()  # what is kept goes, too
    pipeline.clock.ahead_s += pipeline.contract.history_window_s + 60
    for _ in range(3):
        pipeline.collect()
    with pytest.raises(OutsideHistoryWindow, match="what is left begins at position"):
        table.to_arrow(at=receipt)
    pipeline.close()


def test_spark_and_python_mean_the_same(pipeline: Pipeline) -> None:
    table, then, ends = open_table(pipeline.uri), moment(), reached(pipeline)
    version = pipeline.table.newest().version
    pipeline.produce(30)
    pipeline.merge_all()

    def pinned(**options: str) -> Receipt:
        return pin_read({"table": pipeline.uri, **options}).receipt

    assert pinned(at=f"positions:{','.join(f'{p}={at}' for p, at in ends.items())}").positions == {
        region: ends[region.partition] for region in pipeline.contract.regions
    }
    assert pinned(timestampAsOf=utc_text(then)) == table.receipt(at=At.timestamp(at_ms(then)))
    assert pinned(versionAsOf=str(version)) == table.receipt(at=At.version(version))
    assert parse_options({"table": "/t", "version_as_of": "7"}).read.at == At.version(7)
    for options in (
        {"versionAsOf": "7", "timestampAsOf": "2026-01-31T00:00:00Z"},
        {"at": "version:7", "versionasof": "7"},
    ):
        with pytest.raises(InvalidInput, match=r"there twice|give one of them"):
            parse_options({"table": "/t", **options})
    with pytest.raises(InvalidInput, match="expected a time with its zone"):
        parse_options({"table": "/t", "timestampAsOf": "2026-01-31 00:00:00"})


class Versions:
    """Of a table: when each was committed."""

    def __init__(self, times: Mapping[int, int], gone: Sequence[int] = ()) -> None:
        self.times, self.gone, self.asked = times, gone, list[int]()

    def versions(self) -> list[int]:
        return list(self.times)

    def commit_time(self, version: int) -> int:
        self.asked.append(version)
        if version in self.gone:
            raise VersionGone("gone since the listing", version=version)
        return self.times[version]

    def between(self, ms: int) -> tuple[int | None, int | None]:
        return _between(cast("PlanContext", SimpleNamespace(table=self)), ms)


def test_a_version_of_a_time_is_found_by_few_manifests() -> None:
    table = Versions({version: 10 * version for version in range(1, 60_001)})
    for ms, expected in ((9, (None, 1)), (10, (1, 2)), (123_456, (12_345, 12_346)), (600_000, (60_000, None))):
        table.asked.clear()
        assert table.between(ms) == expected
        assert len(table.asked) <= 17


def test_versions_that_go_while_they_are_asked_for() -> None:
    table = Versions({version: 10 * version for version in range(1, 33)}, gone=range(2, 20))
    assert table.between(105) == (1, 20)
    assert table.between(205) == (20, 21)


@pytest.mark.parametrize("seed", range(20))
def test_times_that_go_back(seed: int) -> None:
    """Of several committers' clocks: what is found was committed then, and the next was not."""
    rng = Random(seed)
    times = {version: 10 * version + rng.randrange(-40, 40) for version in range(1, 40)}
    ms = rng.randrange(-50, 450)
    then, after = Versions(times).between(ms)
    assert then is None or times[then] <= ms
    assert after is None or times[after] > ms
    assert (then or 0) + 1 == (after or 40)
