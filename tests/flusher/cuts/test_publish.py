"""Publishing in a thread: what metrics, log and status say, and how many requests a publication costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from benchmarks.memory_source import MemorySource
from benchmarks.tables import MemoryIngest, create
from benchmarks.workload import upserts
from lancewal_core.catalog.cut import Cut, CutTable
from lancewal_core.catalog.opened import open_directory
from lancewal_core.errors import CatalogUnavailable, InvalidSettings
from lancewal_core.names.ids import Position
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks, own_thread
from lancewal_core.region.states import RegionStates
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import MovingCutSettings
from lancewal_core.table.contract import Contract
from lancewal_flusher.cuts import moving
from lancewal_flusher.cuts.moving import CutTurn, Moments, MovingCut
from lancewal_flusher.cuts.positions import PositionSource, open_member
from lancewal_flusher.cuts.publish import Publisher, publishers
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.open import Threads
from lancewal_flusher.service.metrics import FlusherMetrics
from tests.support.catalog_entries import entry
from tests.support.scripted import ManualClock
from tests.support.small_s3.server import SmallS3

AWAITED_S = 60.0
AGE, HELD = "lancewal_flusher_cut_age_seconds", "lancewal_flusher_cut_held_seconds"


class Turns:
    """A cut whose turns end as the test says, one after the other."""

    def __init__(self) -> None:
        self.next: list[CutTurn | Exception] = []
        self.taken, self.may = threading.Semaphore(0), threading.Semaphore(0)
        self.closed = False

    def turn(self) -> CutTurn:
        self.taken.release()
        assert self.may.acquire(timeout=AWAITED_S)
        ends = self.next.pop(0)
        if isinstance(ends, Exception):
            raise ends
        return ends

    def close(self) -> None:
        self.closed = True


NOW_MS = 10**12


def published(age_s: int) -> Cut:
    of = CutTable(uri="s3://lake/a", table_uuid="u", receipt="lw1.x")
    asked_ms = NOW_MS - age_s * 1000
    return Cut(
        name="live", moving=True, tables={"a": of}, asked_ms=asked_ms, took_ms=1, made_ms=asked_ms, write_id="w1"
    )


def shown(metrics: FlusherMetrics, name: str) -> dict[tuple[str, ...], float]:
    """Samples of a metric by the labels behind ``table``."""
    samples = [s for family in metrics._shown.registry.collect() for s in family.samples if s.name == name]
    return {tuple(value for label, value in s.labels.items() if label != "table"): s.value for s in samples}


def test_what_holds_a_cut_back_and_how_old_it_is_are_shown() -> None:
    clock, turns = ManualClock(), Turns()
    with capture_logs() as logged, ExitStack() as stack:
        metrics = FlusherMetrics(clock, "t", FlusherEvents(table="t"))
        made = cast(Callable[[Callable[[float], bool], ExitStack], MovingCut], lambda pause, stack: turns)
        publisher = Publisher("live", 0.0, made, metrics, clock)
        stack.enter_context(own_thread("cut", publisher.run))

        def problem() -> str | None:
            return publisher.problem

        def take(*ends: CutTurn | Exception) -> None:
            for end in ends:
                turns.next.append(end)
                turns.may.release()
                assert turns.taken.acquire(timeout=AWAITED_S)

        assert turns.taken.acquire(timeout=AWAITED_S)
        clock.sleep(7)
        assert shown(metrics, AGE) == {("live",): 7.0}
        take(CutTurn(None, current=True, asked_ms=clock.now_ms() - 2_000))
        assert shown(metrics, AGE) == {("live",): 2.0}
        assert not shown(metrics, HELD)
        held = CutTurn(None, held={"a": "it is late", "b": "it has not moved"}, left_out={"c": "invalid_input: no"})
        take(held)
        clock.sleep(3)
        take(held)
        assert shown(metrics, HELD) == {("live", "a"): 3.0, ("live", "b"): 3.0}
        assert problem() == "cut live is held back: table a: it is late, table b: it has not moved"
        away = CatalogUnavailable("it does not answer")
        take(away, away)
        assert problem() == "cut live is not published: catalog_unavailable: it does not answer"
        take(ValueError("odd"))
        assert publisher.problem == "cut live is not published: ValueError: odd"
        clock.sleep(1)
        assert shown(metrics, AGE) == {("live",): 6.0}
        take(CutTurn(None, current=True, asked_ms=clock.now_ms()))
        assert shown(metrics, AGE) == {("live",): 0.0}
        assert problem() is None
        assert not shown(metrics, HELD)
        take(CutTurn(None, current=True, asked_ms=clock.now_ms(), short={"a": "its window is 9 s"}))
        assert problem() == (
            "cut live may become unreadable between two publications: table a: its window is 9 s. Lower its `every`"
        )
        take(CutTurn(None, left_out={"c": "it is late"}))  # the cut has no table but this one
        assert problem() == "cut live is held back: table c: it is late"
    turns.next.append(away)
    turns.may.release()
    until(lambda: turns.closed)
    names = [line["event"] for line in logged if line["event"].startswith("cut_")]
    assert names[:5] == ["cut_held", "cut_left_out", "cut_not_published", "cut_not_published", "cut_goes_on"]


@pytest.mark.parametrize(
    ("first", "age_s"),
    [
        (CutTurn(None, held={"a": "late"}), 0.0),
        (CutTurn(published(5 * 3_600), held={"a": "late"}), 5 * 3_600.0),
        (CutTurn(published(5 * 3_600), current=True, asked_ms=NOW_MS - 2_000), 2.0),
        (CutTurn(published(-86_400), held={"a": "late"}), 0.0),
        (CutTurn(published(-86_400), current=True, asked_ms=NOW_MS + 86_400_000), 0.0),
    ],
    ids=["no cut", "old cut", "old cut without changes", "clock ahead, held", "clock ahead"],
)
def test_a_flusher_that_starts_shows_how_old_the_cut_is(first: CutTurn, age_s: float) -> None:
    """Another flusher's clock may be a day ahead.  The age grows from then on."""
    clock, turns = ManualClock(epoch_ms=NOW_MS), Turns()
    metrics = FlusherMetrics(clock, "t", FlusherEvents(table="t"))
    made = cast(Callable[[Callable[[float], bool], ExitStack], MovingCut], lambda pause, stack: turns)
    with own_thread("cut", Publisher("live", 0.0, made, metrics, clock).run):
        for turn in (first, CutTurn(first.cut, held={"a": "late"})):
            assert turns.taken.acquire(timeout=AWAITED_S)
            turns.next.append(turn)
            turns.may.release()
        assert turns.taken.acquire(timeout=AWAITED_S)
        assert shown(metrics, AGE) == {("live",): age_s}
        clock.sleep(3_600)
        assert shown(metrics, AGE) == {("live",): age_s + 3_600}
    turns.next.append(ValueError("over"))
    turns.may.release()


def test_a_cut_that_cannot_be_made_is_tried_again_and_leaves_nothing_open() -> None:
    metrics = FlusherMetrics(ManualClock(), "t", FlusherEvents(table="t"))
    closed: list[int] = []

    def failing(_: Callable[[float], bool], stack: ExitStack) -> MovingCut:
        stack.callback(closed.append, 1)
        raise ValueError("odd")

    publisher = Publisher("live", 0.0, failing, metrics, ManualClock())
    with own_thread("cut", publisher.run):
        until(lambda: len(closed) > 2)
        until(lambda: publisher.problem == "cut live is not published: ValueError: odd")


def test_an_entry_with_an_address_that_is_not_taken_names_its_table() -> None:
    named, settings = entry("shop.orders", "s3a://lake/orders"), Settings()
    with ExitStack() as stack:
        threads = Threads.of(settings, stack)
        with pytest.raises(InvalidSettings, match=r"^table shop\.orders: address 's3a://lake/orders'"):
            open_member(settings, named, threads, stack, 0)


def until(seen: Callable[[], object]) -> None:
    began = time.monotonic()
    while not seen():
        assert time.monotonic() - began < AWAITED_S
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"catalog": {"root": "/lake"}}, "kafka.bootstrap_servers"),
        ({"kafka": {"bootstrap_servers": "127.0.0.1:1"}}, "there is no catalog to publish them in"),
    ],
)
def test_a_cut_without_a_catalog_or_brokers_is_refused(sections: Mapping[str, Any], says: str) -> None:
    settings = Settings.model_validate({"flusher": {"cuts": [{"name": "live", "tables": "a"}]}, **sections})
    with pytest.raises(InvalidSettings, match=says):
        publishers(settings, FlusherMetrics(ManualClock(), "t", FlusherEvents(table="t")), ManualClock())


def test_a_publication_costs_a_few_requests_for_each_table_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tables there are, and however many segments their logs and versions their pages have got."""
    monkeypatch.setattr(moving, "SETTLE_S", 0.0)
    with SmallS3() as store, ExitStack() as stack:
        tasks = ThreadTasks(io_threads=4)
        stack.callback(tasks.close)
        settings = Settings.model_validate({"storage": {"options": store.options}})
        threads, catalog = Threads.of(settings, stack), open_directory("s3://bucket/lake", store.options)
        ingests: dict[str, MemoryIngest] = {}
        contracts: dict[str, tuple[Address, Contract]] = {}
        clock = ManualClock()
        for n in range(4):
            address = Address(f"s3://bucket/lake/t{n}.lance", store.options)
            contract = create(address, f"topic{n}", f"id{n}", 2)
            contracts[contract.topic] = address, contract
            ingests[contract.topic] = MemoryIngest(address, contract, MemorySource(contract.regions), 1_000_000, 100)
            named = entry(f"t{n}", address.uri, table_uuid=contract.table_uuid, topic=contract.topic)
            assert catalog.swap_table(f"t{n}", None, named)

        def feed(topic: str, segments: int) -> None:
            for _ in range(segments):
                ingests[topic].feed(list(upserts(2, 1_000, 1)))

        def grow(topic: str, versions: int) -> None:
            """The page of the topic's states gets so many versions, as seals and flushes would make them."""
            address, contract = contracts[topic]
            states = RegionStates(address.store(), SystemClock(), contract.regions_per_page, contract.making)
            for number in range(versions):
                write_id = f"grown{number}"
                states.swap({contract.regions[0]: lambda it, id=write_id: it and replace(it, write_id=id)})  # type: ignore[misc] # bound now

        def ends(asked: Sequence[Contract]) -> dict[str, dict[int, Position]]:
            durable = {it.topic: ingests[it.topic].worker.durable for it in asked}
            return {it.topic: {r.partition: durable[it.topic].get(r, Position(0)) for r in it.regions} for it in asked}

        cut = MovingCut(
            catalog,
            MovingCutSettings(name="live", tables=("t*",), every=60.0),
            PositionSource(ends),
            lambda found, to_close: open_member(settings, found, threads, to_close, 1 << 20),
            tasks,
            Moments(clock, iter(f"write{n}" for n in range(100)).__next__, lambda _: False),
        )
        stack.callback(cut.close)
        for topic in ingests:
            feed(topic, 2)
        assert cut.turn().published
        feed("topic0", 2)
        assert cut.turn().published
        store.take()
        clock.sleep(10.0)
        assert not cut.turn().published
        assert len(store.take()) == 2
        for changed in (["topic1"], ["topic1", "topic2", "topic3"]):
            for topic in changed:
                feed(topic, 120)
                grow(topic, 12)
            clock.sleep(10.0)
            store.take()
            assert cut.turn().published
            taken = store.take()
            assert len(taken) <= 3 + 10 * len(changed), taken
