"""Tables that do not reach the positions of a cut: each is named with its partitions and the reason, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

import pytest

from lancewal_core.errors import ObjectMissing, TokenTimeout
from lancewal_core.names.ids import Position
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.table.contract import Contract
from lancewal_core.table.control import Service, set_pause
from lancewal_flusher.cuts.positions import PositionSource
from lancewal_reader.reading.reads import Reads
from lancewal_tables.cuts.make import CutWanted, make_cut
from tests.support.pipeline import Pipeline, ShiftedClock
from tests.tables.cuts.lake import Lake

NAMES = ("shop.items", "shop.orders", "shop.people")


class SkippingClock(ShiftedClock):
    """A clock on which nobody waits.  Each sleep calls ``then``."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._then = then

    def sleep(self, seconds: float) -> None:
        self.ahead_s += seconds
        self._then()


@pytest.fixture
def lake(tmp_path: Path, seed: int) -> Iterator[Lake]:
    made = Lake(tmp_path, NAMES, seed)
    made.produce(20)
    yield made
    made.close()


def key_to(partition: int) -> bytes:
    """A key that a producer sends to this one of two partitions."""
    return next(key for n in count() if partition_of(key := b"%d" % n, 2) == partition)


def pause(table: Pipeline) -> None:
    set_pause(table.store, table.clock, lambda: "x", Service.INGEST, "resumed", table.contract.making)


def said_of(lake: Lake, wait_s: float, cut: str = "june") -> str:
    """The error of a cut of all tables, after which there is none."""
    with pytest.raises(TokenTimeout) as raised:
        lake.make(cut, wait_s=wait_s)
    assert lake.catalog.cut(cut) is None
    return str(raised.value)


def test_stopped_before_paused_before_unmoved(
    lake: Lake, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lancewal_core.keys.conflicts.KEYS_FEW", 3)
    stopped = Pipeline(tmp_path / "z", seed=seed, topic="zoo", partitions=2, keyed_by=lambda *_: key_to(0))
    for keyed_by in (key_to(0), key_to(1)):
        stopped.keyed_by = lambda *_, keyed_by=keyed_by: keyed_by
        for id in range(9):
            stopped.upsert("r", id, a=id)
        stopped.merge_all()
    lake.add("zoo.keys", stopped)
    for table in lake.of.values():
        table.upsert("r", 99, a=1)
    pause(lake.of["shop.people"])

    said = said_of(lake, 0.0)
    first, second, third, fourth = (said.index(name) for name in ("zoo.keys", "shop.people", *NAMES[:2]))
    assert first < second < third < fourth
    assert (
        "zoo.keys (stopped by region_conflict: topic zoo partition 1 takes no further records. 9 primary keys" in said
    )
    assert "`lancewal conflict settle`): partition 1 at 9 of 10 (stopped)" in said
    assert "shop.people (ingest is paused until resumed): partition" in said
    assert "shop.items (it has not moved): partition" in said
    assert "`lancewal status` says what holds them up" in said


def test_late_tables_come_last_and_stand_at_where_they_are_now(lake: Lake) -> None:
    late = lake.of["shop.items"]
    late.clock = SkippingClock(late.ingest)
    for table in lake.of.values():
        table.upsert("r", 99, a=1)
        if table is not late:
            table.clock = SkippingClock()
    ends = lake.ends

    def beyond(contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        return {topic: {p: Position(at + 5) for p, at in of.items()} for topic, of in ends(contracts).items()}

    lake.ends = beyond  # type: ignore[method-assign] # records that are on their way
    said = said_of(lake, 3.0)
    assert said.index("shop.orders (it has not moved)") < said.index("shop.items (it is late)")
    for partition in range(2):
        at = len(late.messages(partition))
        assert f"partition {partition} at {at} of {at + 5}" in said.partition("shop.items (it is late)")[2]


def test_the_wait_ends_once_for_all_tables(lake: Lake) -> None:
    clock = SkippingClock()
    for table in lake.of.values():
        table.upsert("r", 99, a=1)
        table.clock = clock
    one_by_one = ThreadTasks(io_threads=1)
    with pytest.raises(TokenTimeout, match=r"after 10 s .*shop\.items.*shop\.orders.*shop\.people"):
        make_cut(lake.catalog, lake.members(), CutWanted("june", None, 10.0), PositionSource(lake.ends), one_by_one)
    one_by_one.close()
    assert 9 < clock.ahead_s < 11


def test_a_table_that_moved_while_others_took_up_the_threads_is_late(lake: Lake) -> None:
    """Its turn comes when the time is over."""
    late = lake.of["shop.people"]
    clock = SkippingClock(late.ingest)
    for table in lake.of.values():
        table.upsert("r", 99, a=1)
        table.clock = clock
    ends = lake.ends

    def beyond(contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        return {topic: {p: Position(at + 5) for p, at in of.items()} for topic, of in ends(contracts).items()}

    one_by_one = ThreadTasks(io_threads=1)
    with pytest.raises(TokenTimeout, match=r"orders \(it has not moved\).*people \(it is late\)"):
        make_cut(lake.catalog, lake.members(), CutWanted("june", None, 10.0), PositionSource(beyond), one_by_one)
    one_by_one.close()


def test_without_a_wait_a_cut_needs_tables_that_are_there(lake: Lake) -> None:
    lake.check(lake.make("june", wait_s=0.0))
    lake.of["shop.items"].upsert("r", 99, a=1)
    assert "after 0 s these tables lack records that are in Kafka: shop.items (it has not moved)" in said_of(
        lake, 0.0, "july"
    )


@pytest.mark.parametrize("asked", [True, False])
def test_a_table_that_cannot_be_read_is_named(lake: Lake, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Reads.plan

    def failing(reads: Reads, *wanted: object) -> object:
        if reads.uri == lake.of["shop.orders"].uri:
            raise ObjectMissing("segment 7 is missing", object="7")
        return plan(reads, *wanted)  # type: ignore[arg-type] # what it was given

    monkeypatch.setattr(Reads, "plan", failing)
    source = PositionSource(lake.ends) if asked else None
    with pytest.raises(ObjectMissing, match=r"^table shop\.orders: segment 7 is missing$") as raised:
        make_cut(lake.catalog, lake.members(), CutWanted("june"), source, lake.tasks)
    assert raised.value.where == {"object": "7"}
