"""Tables that change while a moving cut is published: their contracts, their names, their folders.

The positions of a publication are always those of the table and of the topic that they were asked for."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.catalog.cut import Cut
from lancewal_core.errors import (
    KafkaUnavailable,
    LancewalError,
    PartitionCountChanged,
    StoreUnavailable,
    TopicMissing,
    TopicReplaced,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Position
from lancewal_core.store.object_store import put_once
from lancewal_core.table.contract import Contract, encode_contract
from lancewal_flusher.cuts import moving, open_tables
from lancewal_flusher.cuts.moving import Moments
from lancewal_flusher.cuts.positions import PositionSource
from lancewal_reader.cuts import open_cut
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import open_table
from lancewal_tables.define.drop import drop
from tests.flusher.cuts.publishing import EVERY_S, Publishing, called_anew, check, cut_of, late
from tests.support.catalog_entries import entry
from tests.support.pipeline import Pipeline, by_key
from tests.tables.cuts.lake import Lake


def alter(table: Pipeline, **terms: Any) -> None:
    """Store the next version of the contract, as ``table alter`` does."""
    new = table.contract.model_copy(update={"version": table.contract.version + 1, **terms})
    put_once(table.store, paths.contract_version(new.version, new.making), encode_contract(new))
    table.take_up_contract()


def add_partition(table: Pipeline) -> None:
    """Give the topic, and the contract, a third partition, and records after that."""
    table.hand_over()
    alter(table, partitions=3, start=(-1, -1, 0))
    table.produce(20)
    table.ingest()
    table.merge_all()


def make_topic_again(table: Pipeline) -> None:
    """Make the topic again, and take it up in the contract."""
    alter(table, topic_id="t2", start=(0, 0))


def at_pause(live: Publishing, act: Callable[[], bool]) -> None:
    """Call ``act`` in each pause of the publisher.  It returns whether the publisher must end."""

    def pause(seconds: float) -> bool:
        live.clock.sleep(seconds)
        return act()

    live.cut._moments = Moments(live.clock, lambda: next(live.ids), pause)


def once(act: Callable[[], None]) -> Callable[[], bool]:
    left = [act]

    def call() -> bool:
        if left:
            left.pop()()
        return False

    return call


def brokers(live: Publishing, topics: Mapping[str, tuple[str, int]]) -> None:
    """Let the source refuse contracts of these topics that do not have this id and this number of partitions."""

    def ends(contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        for it in contracts:
            topic_id, partitions = topics.get(it.topic, (it.topic_id, it.partitions))
            if it.topic_id != topic_id:
                raise TopicReplaced("the topic was made again", topic=it.topic)
            if it.partitions != partitions:
                raise PartitionCountChanged("the topic has others", topic=it.topic)
        return live.lake.ends(contracts)

    live.cut._source = PositionSource(ends)


def regions(cut: Cut, name: str) -> dict[tuple[str, int], int]:
    return {(r.topic_id, r.partition): int(at) for r, at in Receipt.parse(cut.tables[name].receipt).positions.items()}


@pytest.mark.parametrize("change", [add_partition, make_topic_again])
def test_a_contract_that_changes_between_question_and_receipt(
    lake: Lake, live: Publishing, change: Callable[[Pipeline], None]
) -> None:
    """The table has no receipt at positions of other regions.  The next turn opens it again, and asks."""
    before = cut_of(lake.catalog)
    orders = lake.of["shop.orders"]
    orders.produce(5)
    orders.ingest()
    orders.merge_all()
    at_pause(live, once(lambda: change(orders)))
    turn = live.turn()
    assert list(turn.held) == ["shop.orders"]
    assert turn.held["shop.orders"].startswith(
        "partition_count_changed: the table got more partitions, or another topic"
    )
    assert cut_of(lake.catalog) == before
    assert live.turn().published
    found = regions(cut_of(lake.catalog), "shop.orders")
    now = {(r.topic_id, r.partition): len(orders.messages(r.partition)) for r in orders.contract.regions}
    assert {region: found[region] for region in now} == now
    assert by_key(open_cut(lake.catalog, "live", open_table)["shop.orders"].to_arrow()) == orders.oracle


@pytest.mark.parametrize("change", [add_partition, make_topic_again])
def test_a_contract_that_changes_while_another_table_is_waited_for(
    lake: Lake, live: Publishing, change: Callable[[Pipeline], None]
) -> None:
    late(lake)
    orders = lake.of["shop.orders"]
    orders.produce(5)
    orders.ingest()
    orders.merge_all()
    assert list(live.turn().held) == ["shop.items"]
    change(orders)
    lake.of["shop.items"].ingest()
    assert list(live.turn().held) == ["shop.orders"]
    assert live.turn().published
    assert by_key(open_cut(lake.catalog, "live", open_table)["shop.orders"].to_arrow()) == orders.oracle


def test_positions_that_are_waited_for_are_not_those_of_another_table_of_the_name(
    lake: Lake, live: Publishing, tmp_path: Path
) -> None:
    """The topic of shop.orders then has two tables, which are at the same positions."""
    late(lake)
    assert list(live.turn().held) == ["shop.items"]
    twin = Pipeline(tmp_path / "twin", seed=5, seal_rows=20, batch=15, topic="shop.orders", partitions=2)
    called_anew(twin)
    orders = lake.of["shop.orders"]
    orders.produce(40)
    orders.ingest()
    for partition in range(2):
        twin._messages[partition].extend(orders.messages(partition))
    twin.ingest()
    register_again(lake, "shop.items", twin)
    live.clock.sleep(open_tables.LOOK_S)
    assert live.turn().published
    cut = check(lake)
    assert regions(cut, "shop.items") == regions(cut, "shop.orders")


def register_again(lake: Lake, name: str, table: Pipeline) -> None:
    """Give the name to another table."""
    there, lake.of[name] = lake.catalog.table(name), table
    made = entry(name, table.uri, table_uuid=table.contract.table_uuid, topic=table.contract.topic)
    assert lake.catalog.swap_table(name, there, made)


def test_a_table_made_again_with_a_backlog_does_not_hold_back_the_others(
    lake: Lake, live: Publishing, tmp_path: Path
) -> None:
    again = Pipeline(tmp_path / "again", seed=5, seal_rows=20, batch=15, topic="shop.items", partitions=2)
    called_anew(again)
    again.produce(50)
    register_again(lake, "shop.items", again)
    live.clock.sleep(open_tables.LOOK_S)
    turn = live.turn()
    assert turn.published
    assert not turn.held
    assert list(turn.left_out) == ["shop.items"]
    assert list(check(lake).tables) == ["shop.orders", "shop.people"]
    again.ingest()
    assert live.turn().published
    assert check(lake).tables["shop.items"].table_uuid == "another-uuid"


def test_a_list_that_fails_after_a_fault_drops_no_table(
    lake: Lake, live: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(lake)
    live.source_fails = TopicMissing("gone", topic="shop.items")
    assert list(live.turn().held) == ["shop.items"]
    lake.of["shop.orders"].produce(3)
    lake.of["shop.orders"].ingest()

    def fails() -> None:
        raise StoreUnavailable("one request timed out")

    with monkeypatch.context() as patch:
        patch.setattr(lake.catalog, "tables", fails)
        with pytest.raises(StoreUnavailable):
            live.turn()
    assert list(live.turn().held) == ["shop.items"]
    live.source_fails = None
    assert live.turn().published
    assert "shop.items" in check(lake).tables


def twin_of_items(lake: Lake, folder: Path, name: str, partitions: int = 2) -> Pipeline:
    """Register another table of the topic of shop.items, with the topic's records if it has the partitions."""
    items = lake.of["shop.items"]
    twin = Pipeline(folder / name, seed=3, seal_rows=20, batch=15, topic="shop.items", partitions=partitions)
    lake.add(name, twin)
    if partitions == items.contract.partitions:
        for partition in range(partitions):
            twin._messages[partition].extend(items.messages(partition))
        twin.ingest()
    return twin


def test_two_tables_of_a_topic_take_up_its_partitions_one_after_the_other(
    lake: Lake, live: Publishing, tmp_path: Path
) -> None:
    twin = twin_of_items(lake, tmp_path, "shop.twin")
    live.clock.sleep(open_tables.LOOK_S)
    assert live.turn().published
    both = ["shop.items", "shop.twin"]
    brokers(live, {"shop.items": (twin.contract.topic_id, 3)})
    assert list(live.turn().held) == both
    alter(lake.of["shop.items"], partitions=3, start=(-1, -1, 0))
    for _ in range(2):
        turn = live.turn()
        assert list(turn.held) == both
        assert "differ in topic shop.items" in turn.held["shop.twin"]
    alter(twin, partitions=3, start=(-1, -1, 0))
    live.turn()
    assert live.turn().current
    cut = cut_of(lake.catalog)
    assert regions(cut, "shop.items") == regions(cut, "shop.twin")
    assert len(regions(cut, "shop.items")) == 3


def test_a_table_that_joins_with_other_partitions_of_a_topic_is_left_out(
    lake: Lake, live: Publishing, tmp_path: Path
) -> None:
    twin_of_items(lake, tmp_path, "shop.a_twin", partitions=3)
    lake.of["shop.orders"].produce(3)
    lake.of["shop.orders"].ingest()
    live.clock.sleep(open_tables.LOOK_S)
    for published in (True, False):
        turn = live.turn()
        assert (turn.published, turn.held, list(turn.left_out)) == (published, {}, ["shop.a_twin"])
    assert "differ in topic shop.items" in check(lake).left_out["shop.a_twin"]


def test_a_topic_made_again_while_its_positions_are_waited_for(lake: Lake, live: Publishing) -> None:
    """The turn names the topic, and once the table has taken it up the old positions are not waited for."""
    items = late(lake)  # records that nobody has any more
    assert "it has not moved" in live.turn().held["shop.items"]
    brokers(live, {"shop.items": ("t2", 2)})
    for _ in range(2):
        assert live.turn().held == {"shop.items": "topic_replaced: the topic was made again"}
    make_topic_again(items)
    assert live.turn().published
    found = regions(cut_of(lake.catalog), "shop.items")
    assert [found["t2", partition] for partition in range(2)] == [0, 0]


def test_an_end_that_is_late_after_a_topic_was_made_again(lake: Lake, live: Publishing) -> None:
    """Records of the former topic that were never merged are gone from the table.  The new topic's positions still count."""
    orders = lake.of["shop.orders"]
    make_topic_again(orders)
    brokers(live, {"shop.orders": ("t2", 2)})
    assert list(live.turn().held) == ["shop.orders"]
    assert live.turn().published
    orders.produce(5)
    orders.ingest()
    assert live.turn().published
    before = regions(cut_of(lake.catalog), "shop.orders")
    assert before["t2", 0] + before["t2", 1] == 5

    def late_ends(contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        return {it.topic: dict.fromkeys(range(it.partitions), Position(0)) for it in contracts}

    live.cut._source = PositionSource(late_ends)
    assert live.turn().current
    assert regions(cut_of(lake.catalog), "shop.orders") == before


def test_brokers_that_are_away_do_not_change_what_is_waited_for(lake: Lake, live: Publishing) -> None:
    items = late(lake)
    assert list(live.turn().held) == ["shop.items"]
    wanted = [len(items.messages(partition)) for partition in range(2)]
    source = live.cut._source

    def away(contracts: Sequence[Contract]) -> Mapping[str, Mapping[int, Position]]:
        raise StoreUnavailable("nobody answers")

    live.cut._source = PositionSource(away)
    with pytest.raises(LancewalError):
        live.turn()
    live.cut._source = source
    items.ingest()
    items.produce(5)
    assert live.turn().published
    assert list(regions(check(lake), "shop.items").values()) == wanted


@pytest.mark.parametrize("stop_at", [1, 2])
def test_a_publisher_that_is_told_to_stop_leaves_no_table_out(lake: Lake, stop_at: int) -> None:
    live = Publishing(lake, leave_out=True)
    assert live.turn().published
    before = check(lake)
    late(lake)
    pauses: list[int] = []

    def pause() -> bool:
        pauses.append(1)
        return len(pauses) >= stop_at

    at_pause(live, pause)
    assert not live.turn().published
    assert len(pauses) == stop_at
    assert stop_at * moving.SETTLE_S < EVERY_S
    assert cut_of(lake.catalog) == before


def at_rest(lake: Lake) -> None:
    """Records of shop.orders alone."""
    lake.of["shop.orders"].produce(2)
    lake.of["shop.orders"].ingest()


def vanishes(table: Pipeline) -> None:
    shutil.rmtree(table.uri)


def is_dropped(table: Pipeline) -> None:
    drop(table._opened(), lambda: uuid.uuid4().hex)


@pytest.mark.parametrize(("goes", "why"), [(vanishes, "table_missing: "), (is_dropped, "table_dropped: ")])
def test_a_table_at_rest_that_is_gone_holds_the_cut_back_within_a_look(
    lake: Lake, live: Publishing, goes: Callable[[Pipeline], None], why: str
) -> None:
    goes(lake.of["shop.items"])
    at_rest(lake)
    assert live.turn().published  # nobody looks at the table
    before = cut_of(lake.catalog)
    at_rest(lake)
    live.clock.sleep(open_tables.LOOK_S)
    turn = live.turn()
    assert list(turn.held) == ["shop.items"]
    assert turn.held["shop.items"].startswith(why)
    assert cut_of(lake.catalog) == before


def test_a_table_that_has_a_fault_for_long_hides_no_other_one(lake: Lake) -> None:
    """Each turn opens it again.  The tables that are open are looked at all the same."""
    live = Publishing(lake, leave_out=True)
    assert live.turn().published
    vanishes(lake.of["shop.items"])
    live.clock.sleep(open_tables.LOOK_S)
    at_rest(lake)
    assert list(live.turn().left_out) == ["shop.items"]
    vanishes(lake.of["shop.people"])
    for _ in range(int(open_tables.LOOK_S / EVERY_S) - 1):
        at_rest(lake)
        live.turn()
    at_rest(lake)
    assert sorted(live.turn().left_out) == ["shop.items", "shop.people"]


def test_a_receipt_is_parsed_when_it_is_first_seen(
    lake: Lake, live: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not live.turn().published
    parsed: list[str] = []
    parse = Receipt.parse

    def counted(text: str) -> Receipt:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(Receipt, "parse", counted)
    assert not live.turn().published
    assert parsed == []
    at_rest(lake)
    assert live.turn().published
    assert not live.turn().published
    assert parsed == [cut_of(lake.catalog).tables["shop.orders"].receipt]


def test_a_store_that_does_not_answer_a_look_says_nothing_about_the_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Publishing(lake, leave_out=True)
    assert live.turn().published
    at_rest(lake)
    live.clock.sleep(open_tables.LOOK_S)

    def fails(*of: object) -> None:
        raise StoreUnavailable("one request timed out")

    monkeypatch.setattr(open_tables, "check_present", fails)
    turn = live.turn()
    assert turn.published
    assert not turn.left_out


def test_a_window_that_gets_shorter_renews_the_receipt(lake: Lake, live: Publishing) -> None:
    """The receipt was to be renewed after ten minutes, when nobody could read it any more."""
    first = cut_of(lake.catalog)
    items = lake.of["shop.items"]
    alter(items, history_window_s=60, version_window_s=60)
    items.merge_all()
    live.clock.sleep(open_tables.LOOK_S)
    assert live.turn().published
    second = check(lake)
    assert first.tables["shop.items"] != second.tables["shop.items"]
    assert regions(first, "shop.items") == regions(second, "shop.items")


def test_a_window_that_is_shorter_than_the_interval_is_named(lake: Lake, live: Publishing) -> None:
    assert not live.turn().short
    alter(lake.of["shop.items"], history_window_s=int(EVERY_S), version_window_s=100)
    alter(lake.of["shop.people"], history_window_s=100, version_window_s=int(EVERY_S) - 1)
    live.clock.sleep(open_tables.LOOK_S)
    assert live.turn().short == {"shop.people": "its shorter window is 9 s, and the cut is published every 10 s"}


@pytest.mark.parametrize("leave_out", [False, True])
def test_a_topic_without_a_leader(lake: Lake, leave_out: bool, tmp_path: Path) -> None:
    """It holds up the cut if the cut has its table.  A table that is not in the cut yet is left out."""
    live = Publishing(lake, leave_out=leave_out)
    assert live.turn().published
    joined = Pipeline(tmp_path / "joined", seed=9, seal_rows=20, batch=15, topic="shop.new", partitions=2)
    lake.add("shop.new", joined)
    live.clock.sleep(open_tables.LOOK_S)
    live.source_fails = KafkaUnavailable("nobody leads it", topic="shop.new")
    at_rest(lake)
    turn = live.turn()
    assert turn.published
    assert not turn.held
    assert turn.left_out == {"shop.new": "kafka_unavailable: nobody leads it"}
    assert list(check(lake).tables) == ["shop.items", "shop.orders", "shop.people"]
    live.source_fails = KafkaUnavailable("nobody leads it", topic="shop.items")
    with pytest.raises(KafkaUnavailable):
        live.turn()
    live.source_fails = None
    assert live.turn().published
    assert "shop.new" in check(lake).tables
