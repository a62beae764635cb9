"""Subscriptions of a table on disk: what they keep from garbage collection, how they are committed, and what ends them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

import lance
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from lancewal_core.errors import (
    InvalidInput,
    ObjectCorrupt,
    ObjectMissing,
    OutsideHistoryWindow,
    SubscriptionMissing,
    VersionGone,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import TableUuid, TableVersion
from lancewal_core.table.subscriptions.needs import Bounds
from lancewal_core.table.subscriptions.stored import SUBSCRIPTIONS_MAX, SubscriptionNames, names_family
from lancewal_flusher.garbage.find import FENCE_SIZE_MAX
from lancewal_reader.changes.feed import Mode
from lancewal_reader.commands.subscription import app
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.subscriptions import Subscriptions, losses_named
from lancewal_reader.table import open_table
from pyspark_lancewal import DefaultSource
from tests.reader.changes.test_all import applied, feed
from tests.reader.plan.test_points_across_breaks import Life, made_anew
from tests.reader.spark.feeds.test_feeds import sent
from tests.support.pipeline import Key, Pipeline, Row, by_key

DAY_S = 24 * 3600


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, seed=7, history_window_s=DAY_S, version_window_s=DAY_S, grace_s=0)
    made.produce(80)
    made.merge_all()
    made.produce(40)
    made.ingest()
    yield made
    made.close()


def merged_days_later(pipeline: Pipeline, days: float, rounds: int = 2) -> None:
    """More is merged, and then days pass; garbage is collected at their end."""
    for _ in range(rounds):
        pipeline.produce(60)
        pipeline.merge_all()
    pipeline.clock.ahead_s += days * DAY_S
    for _ in range(2):
        pipeline.collect()


def command(pipeline: Pipeline, *arguments: str) -> Result:
    result = CliRunner().invoke(app, [arguments[0], "-t", pipeline.uri, *arguments[1:]])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_what_a_consumer_has_not_passed_stays(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    rows = by_key(table.to_arrow())
    kept = table.subscriptions().create("kept")
    merged_days_later(pipeline, 3)
    assert by_key(table.to_arrow(at=kept.receipt)) == rows
    assert table.subscriptions().get("kept") == kept
    later = table.receipt()
    committed = table.subscriptions().commit("kept", later)
    assert committed.receipt == str(later)
    merged_days_later(pipeline, 3)
    with pytest.raises((OutsideHistoryWindow, VersionGone)):
        table.to_arrow(at=kept.receipt)


def test_without_a_subscription_it_goes(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    receipt = table.receipt()
    merged_days_later(pipeline, 3)
    with pytest.raises((OutsideHistoryWindow, VersionGone)):
        table.to_arrow(at=receipt)


def test_past_the_bound_nothing_is_held_and_the_error_says_how_to_go_on(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    subscription = table.subscriptions().create("late")
    merged_days_later(pipeline, 8)
    says = (
        r"subscription late cannot all be given .* To begin again without a gap, drop it and create it again from now"
    )
    with pytest.raises((OutsideHistoryWindow, VersionGone), match=says), losses_named("late"):
        table.to_arrow(at=subscription.receipt)
    table.subscriptions().drop("late")
    again = table.subscriptions().create("late")
    assert by_key(table.to_arrow(at=again.receipt)) == pipeline.oracle


def test_a_lagging_consumer_goes_on_behind_the_windows(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    table.subscriptions().create("slow")
    merged_days_later(pipeline, 0, rounds=1)
    middle, rows = table.receipt(), by_key(table.to_arrow())
    merged_days_later(pipeline, 3)
    table.subscriptions().commit("slow", middle)  # older than every window, and held by what came before
    merged_days_later(pipeline, 2)
    assert by_key(table.to_arrow(at=table.subscriptions().get("slow").receipt)) == rows


def test_a_commit_does_not_go_back_unless_asked(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    old = Receipt.parse(table.subscriptions().create("both").receipt)
    merged_days_later(pipeline, 0)
    table.subscriptions().commit("both", table.receipt())
    with pytest.raises(InvalidInput, match="back=True"):
        table.subscriptions().commit("both", old)
    table.subscriptions().commit("both", old, back=True)
    assert table.subscriptions().get("both").receipt == str(old)
    newest = table.receipt()
    table.subscriptions().commit("both", newest)
    merged_days_later(pipeline, 3)
    with pytest.raises((OutsideHistoryWindow, VersionGone), match="subscription both"):
        table.subscriptions().commit("both", old, back=True)
    assert table.subscriptions().get("both").receipt == str(newest)
    assert by_key(table.to_arrow(at=newest))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 65])
def test_names_that_are_none(pipeline: Pipeline, name: str) -> None:
    with pytest.raises(InvalidInput, match="is not a valid subscription name"):
        open_table(pipeline.uri).subscriptions().create(name)
    assert not pipeline.store.list(paths.SUBSCRIPTIONS)


def test_a_name_is_taken_once(pipeline: Pipeline) -> None:
    subscriptions = open_table(pipeline.uri).subscriptions()
    subscriptions.create("a")
    with pytest.raises(InvalidInput, match="there is a subscription 'a' already"):
        subscriptions.create("a")
    subscriptions.drop("a")
    with pytest.raises(SubscriptionMissing, match="no subscription 'a': there are none"):
        subscriptions.drop("a")
    with pytest.raises(SubscriptionMissing):
        subscriptions.get("a")
    with pytest.raises(SubscriptionMissing):
        subscriptions.commit("a", open_table(pipeline.uri).receipt())
    subscriptions.create("a")


def test_points_at_which_one_begins(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    subscriptions, now = table.subscriptions(), table.receipt()
    cut = {region.partition: position for region, position in now.positions.items()}
    ends = ",".join(f"{partition}={position}" for partition, position in sorted(cut.items()))
    assert subscriptions.create("receipt", now).receipt == str(now)
    assert subscriptions.create("text", str(now)).receipt == str(now)
    assert Receipt.parse(subscriptions.create("positions", f"positions:{ends}").receipt).positions == now.positions
    assert subscriptions.create("version", f"version:{now.version}").version == now.version
    with pytest.raises(InvalidInput, match="is not a receipt, nor another point"):
        subscriptions.create("wrong", "yesterday")
    assert [one.name for one in subscriptions] == ["positions", "receipt", "text", "version"]


def test_receipts_that_are_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    table = open_table(pipeline.uri)
    shutil.copytree(pipeline.uri, tmp_path / "copy")
    there = open_table(tmp_path / "copy").receipt()
    with pytest.raises(InvalidInput, match="the receipt is of a read at"):
        table.subscriptions().create("other", there)
    now = table.receipt()
    bare = Receipt(now.table_uuid, now.version, {}, now.place)
    with pytest.raises(InvalidInput, match="has no positions"):
        table.subscriptions().create("bare", bare)
    assert list(table.subscriptions()) == []
    table.subscriptions().create("kept")
    other = Receipt(TableUuid("another"), now.version, now.positions, now.place)
    later = Receipt(now.table_uuid, TableVersion(now.version + 50), now.positions, now.place)
    odd: list[tuple[Any, str]] = [
        (there, "the receipt is of a read at"),
        (other, "the receipt is of the table with uuid another"),
        (later, "the newest is"),
        (None, "expected a receipt, not NoneType"),
        ("rubbish", "not a receipt"),
    ]
    for receipt, says in odd:
        with pytest.raises(InvalidInput, match=says):
            table.subscriptions().commit("kept", receipt)
    assert table.subscriptions().get("kept").receipt == str(now)


def test_one_is_dropped_while_it_is_followed(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    for name in ("nobody", "no/body", 5):
        with pytest.raises((SubscriptionMissing, InvalidInput), match=r"no subscription 'nobody'|is not a valid"):
            table.follow(subscription=cast("Any", name))
    table.subscriptions().create("gone")
    feeds = table.follow(subscription="gone")
    table.subscriptions().drop("gone")
    pipeline.produce(5)
    pipeline.ingest()
    assert by_key(table.to_arrow(at=next(feeds).receipt)) == pipeline.oracle
    with pytest.raises(SubscriptionMissing, match="no subscription 'gone'"):
        feeds.commit()


def test_one_that_was_created_anew_gets_no_commit_of_the_former_one(pipeline: Pipeline) -> None:
    """Its consumer has not read what the former one's has."""
    table = open_table(pipeline.uri)
    subscriptions = table.subscriptions()
    former = subscriptions.create("cache")
    feeds = table.follow(subscription="cache")
    pipeline.produce(5)
    pipeline.ingest()
    feed = next(feeds)
    subscriptions.drop("cache")
    anew = subscriptions.create("cache", former.receipt)
    commits: list[Callable[[], object]] = [feeds.commit, lambda: subscriptions.commit(former, feed.receipt)]
    for commit in commits:
        with pytest.raises(SubscriptionMissing, match="'cache' was dropped, and another one has its name since"):
            commit()
    assert subscriptions.get("cache") == anew
    assert subscriptions.commit(anew, feed.receipt).id == anew.id
    subscriptions.commit("cache", table.receipt())


def test_a_table_without_a_merge(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, seed=1, history_window_s=0, version_window_s=0, grace_s=0)
    table = open_table(pipeline.uri)
    empty = table.subscriptions().create("empty")
    assert table.to_arrow(at=empty.receipt).num_rows == 0
    pipeline.produce(50)
    pipeline.merge_all()
    pipeline.produce(50)
    pipeline.merge_all()
    pipeline.clock.ahead_s += DAY_S
    pipeline.collect()
    assert table.to_arrow(at=empty.receipt).num_rows == 0
    pipeline.close()


def test_a_snapshot_outlives_the_changes_after_it(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    gone = table.receipt()
    merged_days_later(pipeline, 3)
    with pytest.raises((OutsideHistoryWindow, VersionGone)):
        table.subscriptions().create("old", gone)
    assert list(table.subscriptions()) == []


def test_nearly_outside_the_windows_is_outside(pipeline: Pipeline) -> None:
    """Garbage collection has not come yet, and may come at any moment."""
    table = open_table(pipeline.uri)
    receipt = table.receipt()
    merged_days_later(pipeline, 0)
    subscriptions = Subscriptions(table._reads, bounds=Bounds(margin_ms=DAY_S * 1000))
    assert by_key(table.to_arrow(at=receipt))
    with pytest.raises(OutsideHistoryWindow, match="or nearly"):
        subscriptions.create("old", receipt)
    assert list(subscriptions) == []
    subscriptions.create("now")


def test_a_user_s_clean_up_is_not_stopped(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    subscription = table.subscriptions().create("kept")
    merged_days_later(pipeline, 0)
    pipeline.append_by_hand([{"region": "x", "id": 1, "a": 1, "s": "by hand"}])
    lance.dataset(pipeline.uri).cleanup_old_versions(retain_versions=1)
    with pytest.raises(VersionGone, match="begin again"), losses_named("kept"):
        table.to_arrow(at=subscription.receipt)


@pytest.mark.parametrize("mode", ["net", "all"])
def test_what_is_lost_before_rows_are_read_names_the_subscription(
    pipeline: Pipeline, mode: Literal["net", "all"]
) -> None:
    table = open_table(pipeline.uri)
    table.subscriptions().create("cache")
    merged_days_later(pipeline, 0, rounds=1)
    feed = next(table.follow(subscription="cache", mode=mode))
    made: Any = DefaultSource
    source = made({"table": pipeline.uri, "subscription": "cache", "changes": mode})
    reader = source.reader(source.schema())
    merged_days_later(pipeline, 9)
    says = "^the changes after the receipt of subscription cache cannot .* drop it and create it again from now"
    uses: list[Callable[[], object]] = [
        feed.to_arrow,
        lambda: next(feed.to_batches()),
        lambda: list(reader.read(sent(reader.partitions()[0]))),
    ]
    for use in uses:
        with pytest.raises((OutsideHistoryWindow, VersionGone), match=says) as raised:
            use()
        assert str(raised.value).count("drop it and create it again") == 1
        assert raised.value.where["subscription"] == "cache"


def test_a_damaged_subscription_is_named_and_can_be_dropped(pipeline: Pipeline) -> None:
    subscriptions = open_table(pipeline.uri).subscriptions()
    subscriptions.create("sound")
    subscriptions.create("harmed")
    subscriptions.create("lost")
    ids = json.loads(pipeline.store.get(newest_names(pipeline)) or b"")["ids"]
    for info in pipeline.store.list(paths.subscription_prefix(ids["harmed"], None)):
        (Path(pipeline.uri) / info.key).write_bytes(b"{}")
    shutil.rmtree(Path(pipeline.uri) / paths.subscription_prefix(ids["lost"], None))
    found = subscriptions.readable()
    assert isinstance(found["harmed"], ObjectCorrupt)
    assert isinstance(found["lost"], ObjectMissing)
    with pytest.raises((ObjectCorrupt, ObjectMissing)):
        list(subscriptions)
    report = pipeline.collect()
    assert report.subscription_faults.keys() == {"harmed", "lost"}
    assert report.subscriptions.keys() == {"sound"}
    subscriptions.drop("harmed")
    subscriptions.drop("lost")
    assert [one.name for one in subscriptions] == ["sound"]
    assert not pipeline.collect().subscription_faults


def newest_names(pipeline: Pipeline) -> str:
    return min(info.key for info in pipeline.store.list(paths.subscription_names_prefix(None)))


def test_a_damaged_list_keeps_everything(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    kept = table.subscriptions().create("kept")
    newest = Path(pipeline.uri) / newest_names(pipeline)
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-1])
    merged_days_later(pipeline, 3)
    assert pipeline.collect().subscription_faults.keys() == {""}
    with pytest.raises(ObjectCorrupt):
        table.subscriptions().drop("kept")
    newest.write_bytes(whole)
    assert by_key(table.to_arrow(at=kept.receipt))


def test_a_thousand_subscriptions_are_the_most(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    kept = table.subscriptions().create("kept")
    family = names_family(None)
    ids = json.loads(pipeline.store.get(newest_names(pipeline)) or b"")["ids"]
    many = {f"s{number}": ids["kept"] for number in range(SUBSCRIPTIONS_MAX - 1)} | ids
    pipeline.store.put_if_absent(family.key(2), SubscriptionNames.encode(SubscriptionNames(ids=many, write_id="x")))
    with pytest.raises(InvalidInput, match="the table has 1000 subscriptions, and 1000 is the most"):
        table.subscriptions().create("one-more")
    merged_days_later(pipeline, 3)
    report = pipeline.collect()
    assert len(report.subscriptions) == SUBSCRIPTIONS_MAX
    assert by_key(table.to_arrow(at=kept.receipt))


def test_the_commands(pipeline: Pipeline) -> None:
    assert "no subscriptions" in command(pipeline, "list").output
    made = command(pipeline, "create", "orders")
    assert made.output.startswith("subscription orders: version ")
    listed = json.loads(command(pipeline, "list", "-o", "json").output)
    (one,) = listed["subscriptions"]
    assert (one["name"], one["receipt"]) == ("orders", made.output.split("receipt: ")[1].strip())
    assert "orders" in command(pipeline, "list").output
    looked = command(pipeline, "drop", "orders", "--dry-run").output
    assert looked == "subscription orders: nothing was changed (--dry-run)\n"
    assert command(pipeline, "drop", "orders", "--yes").output == "dropped subscription orders\n"
    with pytest.raises(SubscriptionMissing):
        command(pipeline, "drop", "orders", "--dry-run")
    command(pipeline, "create", "orders", "--start", f"version:{one['version']}")
    with pytest.raises(InvalidInput):
        command(pipeline, "create", "other", "--start", "yesterday")


def behind_a_former_topic(life: Life, name: str) -> set[str]:
    """A consumer begins amid unmerged records, then the topic is made anew, and three days pass.  Return the keys of the
    former topic's logs."""
    life.go_on()
    pipeline = life.pipeline
    open_table(pipeline.uri).subscriptions().create(name)
    life.produce()
    pipeline.ingest()
    life.note()
    pipeline.merge_all()
    former = {info.key for info in pipeline.store.list(paths.WAL)}
    made_anew(life)
    life.go_on()
    collected_days_later(pipeline, 3)
    return former


def collected_days_later(pipeline: Pipeline, days: float) -> None:
    pipeline.clock.ahead_s += days * DAY_S
    for _ in range(2):
        pipeline.collect()


def test_a_former_topic_stays_until_the_consumer_has_passed_it(tmp_path: Path) -> None:
    life = Life(tmp_path)
    former = behind_a_former_topic(life, "kept")
    pipeline, rows = life.pipeline, life.notes[2].rows
    table = open_table(pipeline.uri)
    kept = table.subscriptions().get("kept")
    assert by_key(table.to_arrow(at=kept.receipt)) == rows
    changes = feed(table, kept.receipt, str(table.receipt()))
    assert len({change.source for change in changes}) == 1
    assert applied(rows, changes) == pipeline.oracle
    middle = life.notes[3]
    table.subscriptions().commit("kept", str(middle.points["receipt"]))
    collected_days_later(pipeline, 1)
    receipt = table.subscriptions().get("kept").receipt
    assert receipt == str(middle.points["receipt"])
    feeds = table.follow(subscription="kept", mode="all")
    assert by_key(table.to_arrow(at=receipt)) == middle.rows
    assert next(feeds).receipt == table.receipt()
    assert applied(middle.rows, feed(table, receipt, str(table.receipt()))) == pipeline.oracle
    table.subscriptions().commit("kept", table.receipt())
    assert former & {info.key for info in pipeline.store.list(paths.WAL)}
    collected_days_later(pipeline, 0)
    left = [info for info in pipeline.store.list(paths.WAL) if info.key in former]
    assert all(info.size < FENCE_SIZE_MAX for info in left)
    pipeline.close()


def test_past_the_bound_a_former_topic_goes(tmp_path: Path) -> None:
    life = Life(tmp_path)
    behind_a_former_topic(life, "late")
    table = open_table(life.pipeline.uri)
    late = table.subscriptions().get("late")
    collected_days_later(life.pipeline, 5)
    says = "is of a topic that was recreated since"
    with pytest.raises(OutsideHistoryWindow, match=says):
        feed(table, late.receipt, str(table.receipt()))
    with pytest.raises(OutsideHistoryWindow, match="subscription late"):
        table.subscriptions().commit("late", str(life.notes[3].points["receipt"]))
    table.subscriptions().commit("late", table.receipt())
    with pytest.raises(OutsideHistoryWindow):
        table.subscriptions().create("again", late.receipt)
    life.pipeline.close()


@pytest.mark.parametrize("mode", ["all", "net"])
def test_after_a_crash_before_its_commit_only_all_gives_each_change_again(pipeline: Pipeline, mode: Mode) -> None:
    """A row is inserted, and a consumer that dies before its commit has it in its output; then the row is deleted."""
    table = open_table(pipeline.uri)
    output = by_key(table.to_arrow(at=table.subscriptions().create("index").receipt))
    pipeline.upsert("r1", 1_000)
    pipeline.ingest()
    apply(output, next(table.follow(subscription="index", mode=mode)).to_arrow())
    assert output == pipeline.oracle
    pipeline.delete("r1", 1_000)
    pipeline.ingest()
    heir = table.follow(subscription="index", mode=mode)
    pipeline.upsert("r1", 1_001)
    pipeline.ingest()
    apply(output, next(heir).to_arrow())
    heir.commit()
    assert (output == pipeline.oracle) == (mode == "all")
    assert output.keys() - pipeline.oracle.keys() == (set() if mode == "all" else {("r1", 1_000)})


def test_an_output_that_has_the_receipt_goes_on_from_there(pipeline: Pipeline) -> None:
    """The same with ``net``: the output remembers how far it is, and the subscription only keeps what is needed."""
    table = open_table(pipeline.uri)
    stored = table.subscriptions().create("index").receipt
    output = by_key(table.to_arrow(at=stored))
    pipeline.upsert("r1", 1_000)
    pipeline.ingest()
    feed = next(table.follow(stored))
    apply(output, feed.to_arrow())
    stored = str(feed.receipt)
    pipeline.delete("r1", 1_000)
    merged_days_later(pipeline, 3)
    feed = next(table.follow(stored))
    apply(output, feed.to_arrow())
    assert table.subscriptions().commit("index", feed.receipt).receipt == str(feed.receipt)
    assert output == pipeline.oracle


def apply(output: dict[Key, Row], changes: pa.Table) -> None:
    """Set each key to what its last change says."""
    names = [name for name in changes.column_names if not name.startswith("_")]
    for at, kind in enumerate(changes["_change_type"].to_pylist()):
        ((key, row),) = by_key(changes.select(names).slice(at, 1)).items()
        if kind in ("delete", "update_preimage"):
            output.pop(key, None)
        else:
            output[key] = row
