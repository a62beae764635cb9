"""Reads that must see what was produced: they wait for it, say what is missing, and tell of records that are no rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from lancewal_core.errors import InvalidInput, PlanRetriesExhausted, TokenRejected, TokenTimeout
from lancewal_core.names import paths
from lancewal_core.names.ids import Position
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.sections import Policy
from lancewal_core.store.object_store import ObjectInfo, ObjectStore, put_once
from lancewal_core.table.contract import encode_contract
from lancewal_core.wal.segment import Trailer
from lancewal_core.wal.tail import read_trailer
from lancewal_flusher.garbage import find as garbage
from lancewal_reader.plan import at_least as at_least_module
from lancewal_reader.plan.strong import PlanContext, ReadPlan, plan_strong
from lancewal_reader.point.token import Token
from lancewal_reader.spark.options import parse_options
from lancewal_reader.spark.source import pin_read
from lancewal_reader.table import Table, open_table, reads_of
from tests.reader.plan.test_points_across_breaks import Life, made_anew
from tests.support.pipeline import NoDeadLetters, Pipeline, by_key


class Waiting:
    """A clock on which time passes by sleeping; something happens meanwhile."""

    def __init__(self, happens: Callable[[int], None] = lambda slept: None) -> None:
        self.slept: list[float] = []
        self._happens = happens

    def now_ms(self) -> int:
        return int(1000 * self.monotonic())

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._happens(len(self.slept))


class Counted:
    """A store that counts requests."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        self.requests += 1
        return getattr(self._store, name)


class Short:
    """A store whose listings leave out what they are told to."""

    def __init__(self, store: ObjectStore, hides: Callable[[str], bool]) -> None:
        self._store = store
        self._hides = hides

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> list[ObjectInfo]:
        return [info for info in self._store.list(prefix, None, after) if not self._hides(info.key)]


@contextmanager
def opened(pipeline: Pipeline, clock: Waiting, store: ObjectStore | None = None) -> Iterator[Table]:
    tasks = ThreadTasks()
    made = OpenedTable.over(store or pipeline.store, pipeline.table, pipeline.contract, tasks, clock)
    yield Table(reads_of(made, pipeline.uri))
    tasks.close()


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    monkeypatch.setattr(NoDeadLetters, "send", lambda self, region, records, rejected: None)
    made = Pipeline(tmp_path, seed=5, seal_rows=25, batch=15, grace_s=0, on_bad_record="dead-letter")
    made.produce(60)
    made.merge_all()
    made.produce(30)
    made.ingest()
    yield made
    made.close()


def end(pipeline: Pipeline) -> Token:
    """Of the last record of each partition."""
    sent = {p: len(pipeline.messages(p)) for p in range(pipeline.contract.partitions)}
    return Token.of(*(("orders", p, count - 1) for p, count in sent.items() if count))


def bad(pipeline: Pipeline, partition: int) -> Token:
    pipeline._messages[partition].append((b"x", b"no JSON", "upsert"))
    return end(pipeline)


def test_a_read_waits_for_what_was_produced(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[ReadPlan] = []

    def planned(context: PlanContext) -> ReadPlan:
        plans.append(plan_strong(context))
        return plans[-1]

    monkeypatch.setattr(at_least_module, "plan_strong", planned)
    pipeline.produce(40)
    clock = Waiting(lambda slept: pipeline.ingest() if slept == 7 else None)
    with opened(pipeline, clock) as table:
        rows = table.to_arrow(at_least=str(end(pipeline)))
    assert by_key(rows) == pipeline.oracle
    assert clock.slept == sorted(clock.slept)
    assert len(clock.slept) == 7
    assert len(plans) == 2  # the log alone was looked at while nothing came


@pytest.mark.parametrize("how", ["crash", "hand_over", "merge_all"])
def test_it_is_found_wherever_it_went(pipeline: Pipeline, how: str) -> None:
    pipeline.produce(40)

    def happens(slept: int) -> None:
        if slept == 3:
            pipeline.ingest()
            getattr(pipeline, how)()

    clock = Waiting(happens)
    with opened(pipeline, clock) as table:
        assert by_key(table.to_arrow(at_least=end(pipeline))) == pipeline.oracle


def test_what_is_not_reached_in_time_is_named(pipeline: Pipeline) -> None:
    reached = open_table(pipeline.uri).receipt().positions
    partition = max(reached, key=lambda region: reached[region]).partition
    had = len(pipeline.messages(partition))
    clock = Waiting()
    store = Counted(pipeline.store)
    with opened(pipeline, clock, store) as table:
        table.receipt()
        before = store.requests
        with pytest.raises(
            TokenTimeout, match=f"positions reached: orders-{partition}: {had} of {had + 5}. Wait"
        ) as found:
            table.receipt(at_least=Token.of(("orders", partition, had + 4)), timeout_s=60)
        assert sum(clock.slept) == pytest.approx(60)
        assert store.requests - before < 4 * len(clock.slept)
        assert found.value.where == {
            "reached": {f"orders-{partition}": had},
            "wanted": {f"orders-{partition}": had + 5},
        }
        slept = len(clock.slept)
        with pytest.raises(TokenTimeout):
            table.receipt(at_least=f"orders-{partition}-{had}", timeout_s=0)
        assert len(clock.slept) == slept
        assert table.receipt(at_least=f"orders-{partition}-{had - 1}", timeout_s=0).positions == reached


def test_a_dead_letter_is_told_while_its_entry_is_kept(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "HISTORY_PAGE_AT", 3)
    monkeypatch.setattr(garbage, "HISTORY_PAGE_REST", 1)
    token = bad(pipeline, 1)
    last = token.positions["orders", 1] - 1
    table = open_table(pipeline.uri)
    for _ in range(3):
        pipeline.produce(30)
    pipeline.ingest()
    told = f"record orders-1-{last} became a dead letter .* not become a row.*orders.dead-letters"
    for stage in (lambda: None, pipeline.hand_over, pipeline.merge_all, pipeline.collect):
        stage()
        with pytest.raises(TokenRejected, match=told) as found:
            table.receipt(at_least=token)
        assert found.value.where == {"topic": "orders", "partition": 1, "offset": last}
        with pytest.raises(TokenRejected):
            table.receipt(at_least=token, max_staleness_s=3600)
        table.receipt(at_least=Token(token.positions))  # by the topic's end: nobody's own record
        table.receipt(at_least=Token.of(("orders", 1, last - 1), ("orders", 1, last + 1)))
    for _ in range(6):  # its generation leaves the state of its partition for a page of the history
        pipeline.produce(60)
        pipeline.merge_all()
        pipeline.collect()
    with pytest.raises(TokenRejected, match=told):
        table.receipt(at_least=token)
    pipeline.clock.ahead_s += pipeline.contract.history_window_s + 3600
    for _ in range(3):
        pipeline.collect()
    assert by_key(table.to_arrow(at_least=token)) == pipeline.oracle


def segments_until(pipeline: Pipeline, offset: int) -> list[str]:
    """Keys of the segments with entries of partition 1 up to the one that holds the offset, in order."""
    found = []
    for info in sorted(pipeline.store.list("_lancewal/wal/"), key=lambda info: info.key):
        trailer = read_trailer(pipeline.store, info) if paths.parse_wal_segment(info.key) else None
        for entry in trailer.entries if isinstance(trailer, Trailer) else ():
            if entry.region.partition == 1 and entry.first <= offset:
                found.append((entry.first, info.key))
    return [key for _, key in sorted(found)]


@pytest.mark.in_turns("stage", "shown", each=3)
@pytest.mark.parametrize("stage", ["ingest", "hand_over", "merge_all"])
@pytest.mark.parametrize("shown", ["nothing", "not the entry", "half"])
def test_a_listing_that_leaves_out_its_entry_hides_no_dead_letter(pipeline: Pipeline, stage: str, shown: str) -> None:
    token = bad(pipeline, 1)
    last = token.positions["orders", 1] - 1
    for _ in range(4):
        pipeline.ingest()
        pipeline.produce(9)
    getattr(pipeline, stage)()
    segments = segments_until(pipeline, last)
    hidden = {"nothing": segments, "not the entry": segments[-1:], "half": segments[len(segments) // 2 :]}[shown]
    store = cast(
        "ObjectStore", Short(pipeline.store, lambda key: key in hidden or (shown == "nothing" and "/wal/" in key))
    )
    with opened(pipeline, Waiting(), store) as table:
        with pytest.raises(TokenRejected, match=f"orders-1-{last} became a dead letter"):
            table.receipt(at_least=token)
        table.receipt(at_least=Token.of(("orders", 1, last + 1)))
        table.receipt(at_least=Token.of(("orders", 1, 0)))


def test_of_a_page_that_no_listing_shows_nothing_is_guessed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "HISTORY_PAGE_AT", 3)
    monkeypatch.setattr(garbage, "HISTORY_PAGE_REST", 1)
    token = bad(pipeline, 1)
    for _ in range(8):
        pipeline.produce(60)
        pipeline.merge_all()
        pipeline.collect()
    region = pipeline.contract.regions[1]
    pages = paths.history_prefix(region, None)
    assert list(pipeline.store.list(pages))
    with opened(
        pipeline, Waiting(), cast("ObjectStore", Short(pipeline.store, lambda key: key.startswith(pages)))
    ) as table:
        with pytest.raises(
            PlanRetriesExhausted, match="cannot be found out whether records of at_least became dead letters"
        ):
            table.receipt(at_least=token)
        table.receipt(at_least=end(pipeline))
        table.receipt(at_least=Token(token.positions))  # nobody's own record
    with opened(pipeline, Waiting()) as table, pytest.raises(TokenRejected):
        table.receipt(at_least=token)


def test_an_entry_that_is_lost_is_not_kept(pipeline: Pipeline) -> None:
    """Its generation was flushed before, so that every other read goes on; one behind it is found."""
    first = bad(pipeline, 1)
    pipeline.ingest()
    second = bad(pipeline, 1)
    pipeline.hand_over()
    pipeline.ingest()
    pipeline.hand_over()
    pipeline.store.delete(segments_until(pipeline, first.positions["orders", 1] - 1)[-1:])
    table = open_table(pipeline.uri)
    assert by_key(table.to_arrow(at_least=first)) == pipeline.oracle
    with pytest.raises(TokenRejected):
        table.receipt(at_least=second)


@pytest.mark.parametrize("before", ["ignore", "dead-letter"])
def test_what_became_of_a_record_was_decided_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Policy
) -> None:
    """A policy that was changed since says nothing of it."""
    monkeypatch.setattr(NoDeadLetters, "send", lambda self, region, records, rejected: None)
    pipeline = Pipeline(tmp_path, partitions=1, on_bad_record=before, dead_letter_topic="letters-before")
    pipeline.produce(3)
    token = Token.of(("orders", 0, 3))
    pipeline._messages[0].append((b"x", b"no JSON", "upsert"))
    pipeline.ingest()
    after = {"version": 2, "on_bad_record": {"ignore": "dead-letter", "dead-letter": "ignore"}[before]}
    newer = pipeline.contract.model_copy(update={**after, "dead_letter_topic": "letters-after"})
    put_once(pipeline.store, paths.contract_version(2, None), encode_contract(newer))
    table = open_table(pipeline.uri)
    assert newer.has_letter("unreadable")  # under any policy
    if before == "ignore":
        assert by_key(table.to_arrow(at_least=token)) == pipeline.oracle
    else:
        with pytest.raises(TokenRejected, match="See topic letters-before"):
            table.receipt(at_least=token)
    pipeline.close()


def test_each_of_many_records_is_found(pipeline: Pipeline) -> None:
    """By halving, among entries of all partitions: rejected ones alone are told."""
    marks: list[tuple[Token, bool]] = []
    for step in range(30):
        pipeline.produce(pipeline.rng.randrange(6))
        rejected = step % 3 == 0
        if rejected:
            marks.append((Token.of(f"orders-2-{bad(pipeline, 2).positions['orders', 2] - 1}"), True))
        elif pipeline.messages(0):
            marks.append((Token.of(f"orders-0-{len(pipeline.messages(0)) - 1}"), False))
        pipeline.ingest()
        if step == 20:
            pipeline.hand_over()
    table = open_table(pipeline.uri)
    for token, rejected in marks:
        if rejected:
            with pytest.raises(TokenRejected):
                table.receipt(at_least=token)
        else:
            table.receipt(at_least=token)


def test_a_read_is_not_older_than_a_receipt(pipeline: Pipeline) -> None:
    other = open_table(pipeline.uri)
    pipeline.produce(30)
    clock = Waiting()
    with opened(pipeline, clock) as table:
        table.receipt()
        pipeline.merge_all()
        seen = other.receipt()
        assert table.receipt(at_least=seen) == table.receipt(at_least=str(seen)) == seen
        later = type(seen)(seen.table_uuid, type(seen.version)(seen.version + 3), seen.positions, seen.place)
        with pytest.raises(
            TokenTimeout, match=f"positions reached: all; table version {seen.version} of {later.version}. "
        ):
            table.receipt(at_least=later, timeout_s=2)
    for wrong in (
        type(seen)(type(seen.table_uuid)("another"), seen.version, seen.positions, seen.place),
        type(seen)(seen.table_uuid, seen.version, seen.positions, "/elsewhere"),
    ):
        with pytest.raises(InvalidInput, match="at_least: the receipt is of table"):
            other.receipt(at_least=wrong)


def test_a_token_of_another_topic_is_refused(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    for wrong in ("payments-0-7", "orders-3-7"):
        with pytest.raises(InvalidInput, match="the table has topic orders with partitions 0 to 2"):
            table.receipt(at_least=wrong)


def test_a_young_plan_is_used_again_only_if_it_reaches(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    before = table.receipt()
    assert table.receipt(at_least=Token({("orders", 0): Position(1)}), max_staleness_s=3600) == before
    pipeline.produce(30)
    pipeline.ingest()
    assert table.receipt(max_staleness_s=3600) == before
    after = table.receipt(at_least=end(pipeline), max_staleness_s=3600)
    assert after.positions != before.positions
    assert table.receipt(max_staleness_s=3600) == after


def test_spark_takes_the_same(pipeline: Pipeline) -> None:
    token = end(pipeline)
    options = {"table": pipeline.uri, "atLeast": str(token), "timeoutS": "0"}
    assert parse_options(options).read.at_least == token
    found = pin_read(options).receipt.positions
    assert {(r.topic, r.partition): p for r, p in found.items() if p} == dict(token.positions)
    with pytest.raises(TokenTimeout):
        pin_read({"table": pipeline.uri, "at_least": "orders-0-9999", "timeout_s": "0"})


def test_a_token_of_a_topic_that_was_made_anew_is_not_waited_for_without_a_word(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.go_on()
    life.pipeline.merge_all()
    receipt, rows = open_table(life.pipeline.uri).receipt(), dict(life.pipeline.oracle)
    of_former = Token.of(*(("orders", partition, end - 1) for partition, end in life.topic.ends.items()))
    wanted = {f"orders-{partition}": end for partition, end in life.topic.ends.items()}
    with pytest.raises(TokenTimeout) as raised:
        open_table(life.pipeline.uri).receipt(at_least=Token.of(("orders", 0, 900)), timeout_s=0)
    assert "recreated" not in str(raised.value)
    made_anew(life)
    table = open_table(life.pipeline.uri)
    with pytest.raises(
        TokenTimeout, match=r"orders-0: 0 of .*Topic orders was recreated.*the table has its records"
    ) as raised:
        table.receipt(at_least=of_former, timeout_s=0)
    assert raised.value.where["wanted"] == wanted
    assert by_key(table.to_arrow(at_least=receipt, timeout_s=0)) == rows  # a receipt names the topic's id
    life.pipeline.close()
