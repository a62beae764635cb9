"""Following a table: feeds that adjoin, bounded, also where the log no longer has the records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from lancewal_core.errors import ContractChanged, InvalidInput, SubscriptionMissing
from lancewal_reader.changes.follow import Pauses, Quiet
from lancewal_reader.reading.rows import Rows
from lancewal_reader.table import open_table
from tests.reader.changes.test_net import ADDED, applied, compacted
from tests.reader.plan.test_points_across_breaks import Life, made_anew
from tests.support.pipeline import Key, Pipeline, Row, by_key


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, partitions=2, seed=5, history_window_s=0)
    made.produce(50)
    made.merge_all()
    yield made
    made.close()


def _state(rows: Rows) -> dict[Key, Row]:
    assert set(rows.to_arrow()["_change_type"].to_pylist()) == {"insert"}
    return by_key(rows.to_arrow().drop_columns(list(ADDED)))


def _after(state: dict[Key, Row], feed: Rows) -> dict[Key, Row]:
    return applied(state, feed.to_arrow().to_pylist(), ["region", "id", "a", "s"])


def test_feeds_adjoin_and_each_can_be_read_again(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    feeds = table.follow("earliest")
    first = next(feeds)
    state = _state(first)
    assert state == pipeline.oracle
    kept = []
    for step in (pipeline.ingest, pipeline.merge_all, pipeline.ingest):
        pipeline.produce(30)
        step()
        compacted(pipeline)  # changes no row
        feed = next(feeds)
        kept.append((str(feed.receipt), dict(pipeline.oracle)))
        state = _after(state, feed)
        assert state == pipeline.oracle
    (start, before), (end, after) = kept[0], kept[-1]
    assert _after(before, table.changes(start, end)) == after
    again = table.follow(start)
    assert _after(before, next(again)) == after


def test_a_feed_from_now_waits_for_the_next_record(pipeline: Pipeline) -> None:
    table, found = open_table(pipeline.uri), []
    begun = threading.Event()

    def wait() -> None:
        feeds = table.follow(table.receipt(), poll_s=0.05)
        begun.set()
        found.extend(next(feeds).to_arrow().to_pylist())

    waiting = threading.Thread(target=wait)
    waiting.start()
    begun.wait(60)
    pipeline.upsert("r1", 1000, a=7)
    pipeline.ingest()
    waiting.join(240)
    assert [(row["id"], row["a"], row["_change_type"]) for row in found] == [(1000, 7, "insert")]


def test_feeds_of_a_long_way_are_bounded(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    start, state = table.receipt(), dict(pipeline.oracle)
    for _ in range(3):
        pipeline.produce(40)
        pipeline.ingest()
        pipeline.hand_over()
        pipeline.merge()
    pipeline.produce(40)
    pipeline.ingest()
    count, last = 0, start
    for feed in open_table(pipeline.uri).follow(start, rows_max=25):
        assert sum(feed.receipt.positions.values()) - sum(last.positions.values()) <= 25
        state, last, count = _after(state, feed), feed.receipt, count + 1
        if state == pipeline.oracle and last.positions == table.receipt().positions:
            break
    assert count >= 160 // 25


def test_commits_are_the_bounds_where_the_log_is_trimmed(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    start, state = table.receipt(), dict(pipeline.oracle)
    versions = []
    for _ in range(3):
        pipeline.produce(40)
        pipeline.merge_all()
        versions.append(table.receipt(consistency="eventual").version)
    pipeline.clock.ahead_s += 3600
    pipeline.collect()
    pipeline.collect()
    found = []
    for feed in open_table(pipeline.uri).follow(start, rows_max=5):
        state = _after(state, feed)
        found.append(feed.receipt.version)
        if state == pipeline.oracle:
            break
    assert found == sorted(found)
    assert len(found) >= 3


def test_feeds_are_bounded_across_a_topic_made_anew(tmp_path: Path) -> None:
    """Records of the former topic come merge by merge, and then those of the new one."""
    life = Life(tmp_path)
    life.go_on()
    table = open_table(life.pipeline.uri)
    start = table.receipt()
    state = dict(life.pipeline.oracle)
    for _ in range(2):
        life.produce(40)
        life.pipeline.merge_all()
    made_anew(life)
    life.produce(50)
    life.pipeline.ingest()
    last, sizes = start, []
    for feed in open_table(life.pipeline.uri).follow(start, rows_max=7):
        state = _after(state, feed)
        sizes.append(sum(feed.receipt.positions.values()) - sum(last.positions.values()))
        last = feed.receipt
        if last.positions == open_table(life.pipeline.uri).receipt().positions:
            break
    assert state == life.pipeline.oracle
    assert max(sizes) <= 40
    assert max(sizes[-7:]) <= 7
    life.pipeline.close()


def test_pauses_grow_up_to_the_longest() -> None:
    slept: list[float] = []

    class Clock:
        def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    pauses = Pauses(Clock(), 0.1)  # type: ignore[arg-type]
    for _ in range(4):
        pauses.wait()
    pauses.end()
    pauses.wait()
    assert slept == [0.02, 0.04, 0.08, 0.1, 0.02]


def test_wrong_bounds_are_refused(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    wrong: list[dict[str, Any]] = [{"rows_max": 0}, {"rows_max": "many"}, {"poll_s": -1}, {"poll_s": "often"}]
    for bound in wrong:
        with pytest.raises(InvalidInput, match=next(iter(bound))):
            next(table.follow("now", **bound))


def test_a_look_asks_only_whether_something_has_come(pipeline: Pipeline) -> None:
    pipeline.produce(10)
    pipeline.ingest()
    table = open_table(pipeline.uri)

    def quiet() -> Quiet:
        context = table._reads.context
        return Quiet.now(context).behind(context, table.receipt().version)

    def merge() -> None:
        pipeline.hand_over()
        pipeline.merge()

    for come in (merge, pipeline.crash, lambda: compacted(pipeline), pipeline.ingest):
        pipeline.settle()
        before = quiet()
        assert before.lasts(table._reads.context)
        pipeline.upsert("r0", 2000, a=1)
        come()
        assert not before.lasts(table._reads.context)
    old = replace(quiet(), until=0.0)
    assert not old.lasts(table._reads.context)


def test_a_subscription_is_followed_from_what_was_committed(pipeline: Pipeline) -> None:
    table, state = open_table(pipeline.uri), dict(pipeline.oracle)
    table.subscriptions().create("copy")
    for committed in (False, True, True):
        pipeline.produce(20)
        pipeline.ingest()
        following = table.follow(subscription="copy")
        with pytest.raises(InvalidInput, match="no feed yet"):
            following.commit()
        feed = next(following)
        assert _after(state, feed) == pipeline.oracle
        if committed:
            following.commit()
            state = dict(pipeline.oracle)
            assert table.subscriptions().get("copy").receipt == str(feed.receipt)
    with pytest.raises(InvalidInput, match="no subscription is followed"):
        table.follow("now").commit()
    for start, name, given in ((None, None, "neither is given"), ("now", "copy", "both are given")):
        with pytest.raises(InvalidInput, match=f"give a start, or the name of a subscription: {given}"):
            table.follow(start, subscription=name)
    with pytest.raises(SubscriptionMissing):
        table.follow(subscription="other")


@pytest.mark.parametrize("named", [{"columns": ["id", "a"]}, {"filter": "a > 3 AND s IS NOT NULL"}])
@pytest.mark.parametrize(
    ("changes", "added", "told"),
    [
        ({"a": "b"}, {}, r"column 'a' is called 'b' now"),
        ({"a": "b"}, {"a": "int64"}, r"column 'a' is called 'b' now"),
        ({"a": None}, {}, r"column 'a' is gone"),
    ],
    ids=["renamed", "another of the name", "dropped"],
)
def test_a_named_column_that_changes_ends_it_with_the_new_name(
    pipeline: Pipeline, named: dict[str, Any], changes: dict[str, str | None], added: dict[str, str], told: str
) -> None:
    table = open_table(pipeline.uri)
    start = table.receipt()
    feeds = table.follow(start, **named)
    pipeline.upsert("r0", 1, a=7, s="x")
    pipeline.ingest()
    assert next(feeds).to_arrow()["id"].to_pylist()[-1] == 1
    pipeline.change_columns(changes, added)
    pipeline.upsert("r0", 2, s="x", **({"b": 8} if "b" in changes.values() else {}))
    pipeline.ingest()
    says = f"since the stream began: {told}. Call follow again from the last receipt to go on with the new columns"
    with pytest.raises(ContractChanged, match=says):
        next(feeds)
    if "b" in changes.values():
        new = {"columns": ["id", "b"]} if "columns" in named else {"filter": "b > 3 AND s IS NOT NULL"}
        found: list[Row] = []
        for feed in open_table(pipeline.uri).follow(start, rows_max=1, **new):
            found += feed.to_arrow().to_pylist()
            if feed.receipt.positions == table.receipt().positions:
                break
        after = [(row["id"], row["b"]) for row in found if row["_change_type"] in ("insert", "update_postimage")]
        assert after == [(1, 7), (2, 8)]


def test_a_column_that_is_not_named_may_change(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    feeds, every = table.follow(table.receipt(), columns=["id"], filter="a > 3"), table.follow(table.receipt())
    for step, name in ((0, "s"), (1, "t"), (2, "u")):
        pipeline.upsert("r0", 100 + step, **{"a": 7, name: "x"})
        pipeline.ingest()
        assert next(feeds).to_arrow()["id"].to_pylist() == [100 + step]
        assert next(every).to_arrow()[name].to_pylist() == ["x"]
        pipeline.change_columns({name: chr(ord(name) + 1)})


@pytest.mark.parametrize("mode", ["net", "commits", "all"])
def test_each_mode_begins_with_all_rows_from_earliest(
    pipeline: Pipeline, mode: Literal["net", "commits", "all"]
) -> None:
    feeds = open_table(pipeline.uri).follow("earliest", mode)
    first = next(feeds).to_arrow()
    state = by_key(first.select(["region", "id", "a", "s"]))
    assert state == pipeline.oracle
    pipeline.produce(20)
    pipeline.merge_all()
    for row in next(feeds).to_arrow().to_pylist():
        key = (row["region"], row["id"])
        if row["_change_type"] in ("delete", "update_preimage"):
            del state[key]
        else:
            state[key] = {name: row[name] for name in ("region", "id", "a", "s")}
    assert state == pipeline.oracle
