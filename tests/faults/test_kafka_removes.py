"""Kafka no longer has what it had: retention, a log that lost its tail, compaction, tombstones that were cleaned away."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from lancewal_core.region.loss_record import read_losses
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_demo.stack import KafkaBroker
from tests.support.retention import delete_records
from tests.support.whole_path import Service, until
from tests.whole_path.feed import PARTITIONS, Feed, Key, Record
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

COMPACTED = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
"""Only whole segments are compacted, never the newest."""


def test_retention_takes_what_is_durable(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    """Right up to the durable positions, under a process that goes on and for one that takes over from a dead one: rows
    that are in the log alone are all there."""
    world = make_world(kafka, topic_name, tmp_path, seed, ingest={"seal_rows": 10_000, "seal_age_s": 600.0})
    world.feed.produce(200)
    former = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    delete_records(world.servers, world.feed.topic, dict(world.feed.history.ends))
    world.feed.produce(100)
    world.wait_caught_up()
    former.kill()
    delete_records(world.servers, world.feed.topic, dict(world.feed.history.ends))
    world.check_strong()
    heir = world.lancewal.start("ingest", "run")
    until(lambda: len(heir.opened) == PARTITIONS, lambda: heir.tail)
    world.check_strong()
    world.feed.produce(100)
    world.wait_caught_up()
    assert not heir.logged("partition_stopped")
    world.finish([heir])


@pytest.mark.parametrize("grown", [False, True], ids=["short", "grown again"])
def test_a_log_that_lost_its_tail(
    mortal_kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int, *, grown: bool
) -> None:
    """The broker comes back with an older copy of the topic, as after an election of a replica that was behind.

    Once producers have written beyond the durable positions again, nobody can see it from the offsets alone, but a consumer
    that has read on the lost tail can.
    """
    world = make_world(mortal_kafka, topic_name, tmp_path, seed)
    world.feed.produce(200)
    mortal_kafka.stop()
    for folder in topic_folders(mortal_kafka, topic_name):
        shutil.copytree(folder, tmp_path / "older" / folder.name)
    mortal_kafka.start()
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    older = dict(world.feed.history.ends)
    world.feed.produce(100)
    world.wait_caught_up()
    shorter = {p for p, end in world.feed.history.ends.items() if end > older[p]}
    assert shorter
    ingest.freeze()
    mortal_kafka.stop()
    for folder in topic_folders(mortal_kafka, topic_name):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "older" / folder.name, folder)
    mortal_kafka.start()
    if grown:
        grow(world, dict(world.feed.history.ends))
    ingest.thaw()
    until(lambda: stopped(ingest) == dict.fromkeys(shorter, "topic_truncated"), lambda: f"{shorter}\n{ingest.tail}")
    world.check_strong()  # what is durable stays what it is
    ingest.kill()
    if grown:
        # A process that starts now cannot know; who compares what is durable with Kafka can.
        answer = world.lancewal.run("verify")
        assert answer.code == 1, answer
        assert "wal_rejects" in answer.out, answer.out
    else:
        heir = world.lancewal.start("ingest", "run")
        until(lambda: stopped(heir) == dict.fromkeys(shorter, "topic_truncated"), lambda: heir.tail)
        heir.kill()
        goes_on_behind_it(world, shorter, older)


def goes_on_behind_it(world: World, shorter: set[int], ends: Mapping[int, int]) -> None:
    """A person accepts it: ingest waits until Kafka has grown up to what is durable, and all that comes then is there."""
    durable = dict(world.feed.history.ends)
    for partition in sorted(shorter):
        said = world.lancewal.succeed("offset", "accept-loss", f"{world.feed.topic}-{partition}", "--yes")
        assert f"Kafka ends at {ends[partition]}" in said
        assert f"goes on at {durable[partition]}" in said
    contract, store = read_contract(open_store(world.uri), world.uri), open_store(world.uri)
    for partition in sorted(shorter):
        (loss,) = read_losses(store, contract.regions[partition], contract.making)
        assert (loss.kind, loss.first, loss.next) == ("replaced", ends[partition], durable[partition])
    ingest = world.lancewal.start("ingest", "run")

    def waits() -> bool:
        return any(line["kind"] == "kafka_behind" for line in ingest.logged("operation_failed"))

    until(waits, lambda: ingest.tail)
    producer = Producer({"bootstrap.servers": world.servers})
    for partition in sorted(shorter):
        for _ in range(ends[partition], durable[partition]):
            producer.produce(world.feed.topic, b"to be passed over", partition=partition)
    assert producer.flush(60) == 0
    # Another producer: numbers that the old one gave its messages are lost with the tail.
    feed = Feed(world.servers, world.feed.topic, 1, ("customer",))
    feed.history, world.feed = world.feed.history, feed
    world.feed.produce(100)
    world.wait_caught_up()
    assert not ingest.logged("partition_stopped")
    world.finish([ingest])


def test_a_compacted_topic(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    """What comes next has gaps, where newer records of the same keys made older ones superfluous."""
    world = compacted_world(kafka, topic_name, tmp_path, seed, {})
    world.feed.produce(200)
    former = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    former.kill()
    durable = dict(world.feed.history.ends)

    def compacted() -> bool:
        world.feed.produce(40)
        return len([p for p, gaps in removed(world, durable).items() if len(gaps) > 3]) == PARTITIONS

    until(compacted, lambda: removed(world, durable), poll_s=0.3)
    patch = Record("patch", {"customer": "nobody", "id": 1, "status": "half a row"})
    world.feed.send_raw(b'{"customer": "nobody", "id": 1}', world.feed.kafka_key(patch.columns),
                        [("lancewal.op", b"patch")])  # fmt: skip
    heir = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    # The log says so once the segment is durable, which a reader may see before.
    until(lambda: bool(heir.logged("dead_letters_written")), lambda: heir.tail)
    assert not heir.logged("partition_stopped")
    assert [line["records"] for line in heir.logged("dead_letters_written")] == [1]
    world.feed.produce(100)
    world.wait_caught_up()
    world.finish([heir])


def test_tombstones_were_cleaned_away(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    """Ingest was away for longer than the topic keeps tombstones: it stops by name, and an operator lets it go on."""
    world = compacted_world(kafka, topic_name, tmp_path, seed, {"delete.retention.ms": "1000"})
    world.feed.produce(200)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    ingest.stop()
    durable = dict(world.feed.history.ends)
    partition, keys = most_keys(world)
    deleted, filler = keys[: len(keys) // 2], keys[-1]
    for key in deleted:
        columns = {"customer": key[0], "id": key[1]}
        place, _ = world.feed.send_raw(None, world.feed.kafka_key(columns), record=Record("delete", columns))
        assert place == partition

    def gone() -> bool:
        world.feed.send([Record("upsert", {"customer": filler[0], "id": filler[1], "status": "again"})])
        return len(lost_deletes(world, partition, durable)) == len(deleted)

    until(gone, lambda: removed(world, durable), poll_s=0.25)
    ingest = world.lancewal.start("ingest", "run")
    until(lambda: stopped(ingest) == {partition: "retention_lost"}, lambda: ingest.tail)
    (line,) = ingest.logged("partition_stopped")
    assert "delete.retention.ms is 1000" in line["error"]
    assert f"Deletes among offsets {durable[partition]} to" in line["error"]
    world.check_strong()
    other = (partition + 1) % PARTITIONS
    refused = world.lancewal.run("offset", "accept-loss", f"{topic_name}-{other}", "--yes")
    assert refused.code == 2
    assert "nothing is lost" in refused.err
    said = world.lancewal.succeed("offset", "accept-loss", str(partition), "--yes")
    assert f"the partition goes on at {durable[partition]}" in said
    ingest.stop()

    contract = read_contract(open_store(world.uri), world.uri)
    (loss,) = read_losses(open_store(world.uri), contract.regions[partition], contract.making)
    assert (loss.kind, loss.first) == ("tombstones", durable[partition])
    for offset in lost_deletes(world, partition, durable):  # no longer there for anybody: their rows stay
        assert offset < loss.next
        world.feed.history.records[partition][offset] = None
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    assert not ingest.logged("partition_stopped")
    world.finish([ingest])


def compacted_world(kafka: KafkaBroker, topic: str, folder: Path, seed: int, topic_config: Mapping[str, str]) -> World:
    return make_world(
        kafka, topic, folder, seed,
        region_key=("customer", "id"),
        topic_config={**COMPACTED, **topic_config},
        table={"patches": False},
    )  # fmt: skip


def topic_folders(broker: KafkaBroker, topic: str) -> list[Path]:
    found = [broker.directory / "data" / f"{topic}-{partition}" for partition in range(PARTITIONS)]
    assert all(folder.is_dir() for folder in found)
    return found


def grow(world: World, ends: Mapping[int, int]) -> None:
    """Other records in the place of the lost tail, and more; the history keeps what was there first."""
    reached: dict[int, int] = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        reached[partition] = offset

    producer = Producer({"bootstrap.servers": world.servers})

    def beyond() -> bool:
        for partition in range(PARTITIONS):
            producer.produce(world.feed.topic, b"another", partition=partition, on_delivery=delivered)
        assert producer.flush(60) == 0
        return all(reached[p] > end + 3 for p, end in ends.items())

    until(beyond, poll_s=0)


def kept(world: World) -> dict[int, set[int]]:
    """Offsets that each partition still has."""
    consumer = Consumer(
        {
            "bootstrap.servers": world.servers,
            "group.id": f"{world.feed.topic}-look",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: dict[int, set[int]] = {partition: set() for partition in range(PARTITIONS)}
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(world.feed.topic, partition, 0) for partition in found])
        while len(ended) < PARTITIONS:
            for message in consumer.consume(1000, 0.2):
                partition, offset, error = message.partition(), message.offset(), message.error()
                assert partition is not None
                assert offset is not None
                if error is None:
                    found[partition].add(offset)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF
                    ended.add(partition)
    finally:
        consumer.close()
    return found


def removed(world: World, durable: Mapping[int, int]) -> dict[int, list[int]]:
    """Offsets behind the durable positions that compaction has removed."""
    here = kept(world)
    history = world.feed.history.records
    return {p: [o for o in sorted(history[p]) if o >= durable[p] and o not in here[p]] for p in here}


def lost_deletes(world: World, partition: int, durable: Mapping[int, int]) -> list[int]:
    """Offsets of deletes behind the durable position that are no longer there."""
    gone = [(offset, world.feed.history.records[partition][offset]) for offset in removed(world, durable)[partition]]
    return [offset for offset, record in gone if record is not None and record.operation == "delete"]


def most_keys(world: World) -> tuple[int, list[Key]]:
    """The partition with the most rows, and their keys."""
    ends = world.feed.history.ends
    rows = {p: sorted(world.feed.history.fold({p: end})) for p, end in ends.items()}
    return max(rows.items(), key=lambda item: len(item[1]))


def stopped(ingest: Service) -> dict[int, str]:
    return {line["partition"]: line["kind"] for line in ingest.logged("partition_stopped")}
