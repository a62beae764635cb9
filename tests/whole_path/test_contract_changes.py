"""Partitions added, and a topic made anew: the table takes them up by a command, once all of the old is merged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from lancewal_core.names.ids import topic_id
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.support.retention import delete_records
from tests.support.topics import delete_topic, make_topics
from tests.support.whole_path import until
from tests.whole_path.feed import PARTITIONS, Feed, History, Row, apply
from tests.whole_path.world import World, make_world, positions

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

MORE = PARTITIONS + 3


def test_added_partitions_are_taken_up(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = make_world(kafka, topic_name, tmp_path, seed)
    world.feed.produce(150)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    kept = open_table(world.uri)  # goes on over the change
    kept.to_arrow()
    admin = AdminClient({"bootstrap.servers": world.servers})
    (done,) = admin.create_partitions([NewPartitions(topic_name, MORE)]).values()
    done.result(60)
    until(lambda: not ingest.running, lambda: ingest.tail)
    assert ingest.exit_code == 2
    assert f"table alter --partitions {MORE}" in ingest.tail

    refused(world, "are not merged yet", "alter", "--partitions", str(MORE))
    world.merge_all()
    refused(world, f"has {MORE} partitions, not {MORE + 1}", "alter", "--partitions", str(MORE + 1))
    before = world.feed.history.fold(world.feed.history.ends)
    world.lancewal.succeed("table", "alter", "--partitions", str(MORE))
    refused(world, "would add none", "alter", "--partitions", str(MORE))

    # Keys have other partitions now, so their histories begin anew, each on the row that the old partitions left.
    feed = Feed(world.servers, topic_name, seed + 1, ("customer",))
    feed.produce(200)
    assert set(feed.history.records) - set(range(PARTITIONS))
    ingest = world.lancewal.start("ingest", "run")
    expected = go_on(before, feed.history)
    for table in (kept, open_table(world.uri)):
        until(lambda table=table: rows_of(table) == expected, lambda: ingest.tail)  # type: ignore[misc]
    ingest.stop()
    world.lancewal.succeed("merge")
    assert by_key(open_table(world.uri).to_arrow(consistency="eventual").to_pylist()) == expected
    assert world.verify("both").rows_unchecked == world.verify("topic").rows_unchecked == 0


def test_records_that_are_not_durable_when_partitions_are_added(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """Kafka drops some of them, producers go on by the new number: `status` and `alter` say what to do, the old partitions are
    drained, the new ones are taken up."""
    world = make_world(kafka, topic_name, tmp_path, seed)
    first = leave_undurable(world)
    more_partitions(world)
    feed = Feed(world.servers, topic_name, seed + 1, ("customer",))
    feed.produce(200)
    lost = max(world.feed.history.ends, key=lambda p: world.feed.history.ends[p] - first[p])
    behind = world.feed.history.ends[lost] - 1
    delete_records(world.servers, topic_name, {lost: behind})

    command = f"offset accept-loss {topic_name}-{lost}"
    status = world.lancewal.run("status")
    assert status.code == 1
    for text in (f"offsets {first[lost]} to {behind - 1} were deleted", f"lancewal {command}", f"--partitions {MORE}"):
        assert text in status.out
    held = [f"partition {p}: Kafka holds offsets" for p in range(PARTITIONS)]
    refused(world, f"`lancewal {command}`", *held, *alter())
    assert f"{first[lost]} to {behind - 1} are recorded as lost" in world.lancewal.succeed(*command.split(), "--yes")
    for offset in range(first[lost], behind):
        world.feed.history.records[lost][offset] = None

    ingest = world.lancewal.start("ingest", "run")
    until(lambda: len(ingest.logged("partition_stopped")) == PARTITIONS, lambda: ingest.tail)
    assert {line["kind"] for line in ingest.logged("partition_stopped")} == {"partition_count_changed"}
    ingest.stop()
    world.merge_all()
    before = world.feed.history.fold(world.feed.history.ends)
    taken = positions(receipt_of(open_table(world.uri).to_arrow().schema))
    for partition, end in world.feed.history.ends.items():
        beyond = feed.history.records.get(partition, {})
        assert taken[partition] - end == sum(offset < taken[partition] for offset in beyond)

    # Ingest that is at work when the contract is altered sees that, and ends.
    ingest = world.lancewal.start("ingest", "run")
    until(lambda: len(ingest.logged("partition_stopped")) == PARTITIONS, lambda: ingest.tail)
    world.lancewal.succeed(*alter("table"))
    until(lambda: not ingest.running, lambda: ingest.tail)
    assert ingest.exit_code == 2
    assert "Start this process again" in ingest.tail
    ingest = world.lancewal.start("ingest", "run")
    expected = go_on(before, feed.history)
    until(lambda: rows_of(open_table(world.uri)) == expected, lambda: ingest.tail)
    ingest.stop()
    world.lancewal.succeed("merge")
    assert by_key(open_table(world.uri).to_arrow(consistency="eventual").to_pylist()) == expected
    world.verify("both")


def leave_undurable(world: World) -> dict[int, int]:
    """Ingest is killed, and records come that it has not seen; where they begin."""
    world.feed.produce(100)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    ingest.kill()
    before = dict(world.feed.history.ends)
    world.feed.produce_everywhere()
    world.feed.produce(100)
    return before


def more_partitions(world: World) -> None:
    admin = AdminClient({"bootstrap.servers": world.servers})
    (done,) = admin.create_partitions([NewPartitions(world.feed.topic, MORE)]).values()
    done.result(60)
    until(lambda: len(admin.list_topics(world.feed.topic, 30).topics[world.feed.topic].partitions) == MORE)


def alter(*before: str) -> tuple[str, ...]:
    return *before, "alter", "--partitions", str(MORE)


def test_a_topic_made_anew_is_taken_up(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = make_world(kafka, topic_name, tmp_path, seed)
    world.feed.produce(150)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    delete_topic(world.servers, topic_name)
    make_topics(world.servers, {topic_name: 2})
    until(lambda: not ingest.running, lambda: ingest.tail)
    assert ingest.exit_code == 2
    admin = AdminClient({"bootstrap.servers": world.servers})
    new = topic_id(str(admin.describe_topics(TopicCollection([topic_name]))[topic_name].result(60).topic_id))
    if "topic_replaced" not in ingest.log:  # it may have looked while there was no topic
        answer = world.lancewal.run("ingest", "run")
        assert f"table alter --topic-id {new}" in answer.err

    refused(world, "are not merged yet. Merge the durable rows: `lancewal merge`", "alter", "--topic-id", new)
    world.merge_all()
    refused(world, "has id", "alter", "--topic-id", "another")
    before = world.feed.history.fold(world.feed.history.ends)
    world.lancewal.succeed("table", "alter", "--topic-id", new)
    contract = read_contract(open_store(world.uri), world.uri)
    assert (contract.version, contract.topic_id, contract.partitions, contract.start) == (3, new, 2, (0, 0))

    feed = Feed(world.servers, topic_name, seed + 1, ("customer",))
    feed.produce(150)
    ingest = world.lancewal.start("ingest", "run")
    expected = go_on(before, feed.history)
    table = open_table(world.uri)
    until(lambda: rows_of(table) == expected, lambda: ingest.tail)
    ingest.stop()
    world.lancewal.succeed("merge")
    assert by_key(open_table(world.uri).to_arrow(consistency="eventual").to_pylist()) == expected
    # What the old topic left can no longer be judged, and is not taken for rows of somebody's hand.
    assert world.verify().rows_unchecked == len({key for key in expected if key not in touched(feed.history)})


def touched(history: History) -> set[tuple[str, int]]:
    return {record.key for offsets in history.records.values() for record in offsets.values() if record is not None}


def go_on(table: dict[tuple[str, int], Row], history: History) -> dict[tuple[str, int], Row]:
    """The table after these records as well."""
    found = dict(table)
    for offsets in history.records.values():
        for offset in sorted(offsets):
            record = offsets[offset]
            if record is not None:
                apply(found, record)
    return found


def rows_of(table: object) -> dict[tuple[str, int], Row]:
    return by_key(table.to_arrow().to_pylist())  # type: ignore[attr-defined]


def by_key(rows: list[Row]) -> dict[tuple[str, int], Row]:
    found = {(row["customer"], row["id"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def refused(world: World, *texts_and_command: str) -> None:
    """``lancewal table`` with the command, which begins at the word of it, says all of these texts."""
    at = next(n for n, word in enumerate(texts_and_command) if word == "alter")
    answer = world.lancewal.run("table", *texts_and_command[at:])
    assert answer.code == 2, (answer.out, answer.err)
    for text in texts_and_command[:at]:
        assert text in answer.err, json.dumps(answer.err)
