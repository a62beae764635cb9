"""Faults of Kafka under a running ingest: the broker dies, members come and go, transactions hang, offsets are reset."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_demo.stack import KafkaBroker
from tests.support.whole_path import until
from tests.whole_path.feed import Record
from tests.whole_path.world import SESSION_MS, World, make_world, positions

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

MOST = 3
EVERY_S = 2.0
STEPS = 7
PACE_S = 0.2
"""Of the load."""

PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "classic": {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 400},
    "consumer": {"group.protocol": "consumer"},
}


def test_the_broker_dies_under_load(mortal_kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = make_world(mortal_kafka, topic_name, tmp_path, seed)
    world.feed.produce(200)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    for end in (mortal_kafka.kill, mortal_kafka.stop):
        world.feed.produce(100)
        end()
        world.check_strong()  # reading needs no broker
        mortal_kafka.start()
        world.feed.produce(100)
    world.wait_caught_up()
    assert ingest.running, ingest.tail
    world.finish([ingest])


@pytest.mark.in_turns("protocol", each=2)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go_all_the_time(
    protocol: str, kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """Under load from one member to three and back; every ``EVERY_S`` one joins, leaves or dies."""
    rng = random.Random(f"storm {seed}")
    world = make_world(kafka, topic_name, tmp_path, seed, kafka={"options": dict(PROTOCOLS[protocol])})
    members = [world.lancewal.start("ingest", "run")]
    world.feed.produce(100)
    world.wait_caught_up()
    durable = []
    for _ in range(STEPS):
        # Who has not begun owns nothing: without one that has, nothing could go on.
        turning = [member for member in members if member.events]
        if len(turning) > 1 and (len(members) == MOST or rng.random() < 0.4):
            leaving = rng.choice(turning)
            members.remove(leaving)
            rng.choice([leaving.stop, leaving.stop, leaving.kill])()
        elif len(members) < MOST:
            members.append(world.lancewal.start("ingest", "run"))
        next_at = time.monotonic() + EVERY_S
        while time.monotonic() < next_at:
            world.feed.produce(20)
            world.check_strong()
            time.sleep(PACE_S)
        durable.append(sum(positions(world.check_strong()).values()))
        for member in members:
            assert member.running, member.tail
    assert durable[0] < durable[-1], durable  # it did not only go on once they rested
    for member in members[1:]:
        member.kill()
    del members[1:]
    until(lambda: bool(members[0].events), lambda: members[0].tail)
    world.wait_caught_up()
    world.finish(members)


@pytest.mark.in_turns("protocol", each=2)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_is_killed_and_replaced(
    protocol: str, kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    options = {**PROTOCOLS[protocol], "group.instance.id": "the-one"}
    world = make_world(kafka, topic_name, tmp_path, seed, kafka={"options": options})
    for _ in range(3):
        member = world.lancewal.start("ingest", "run")
        world.feed.produce(100)
        until(world.caught_up, lambda: member.tail)  # noqa: B023
        member.kill()
        world.feed.produce(50)
    member = world.lancewal.start("ingest", "run")
    until(world.caught_up, lambda: member.tail)
    world.finish([member])


def test_aborted_and_hanging_transactions(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = make_world(kafka, topic_name, tmp_path, seed)
    ingest = world.lancewal.start("ingest", "run")
    world.feed.produce(60)
    producer = Producer(
        {"bootstrap.servers": world.servers, "transactional.id": topic_name, "partitioner": "murmur2_random"}
    )
    producer.init_transactions(60)
    transact(world, producer, "aborted", commit=False)
    world.feed.produce(60)
    transact(world, producer, "committed", commit=True)
    world.wait_caught_up()

    # An open transaction holds back what lies behind it in its partition, and nothing else.
    producer.begin_transaction()
    held = send(world, producer, "open")
    world.feed.produce(100)
    ends = dict(world.feed.history.ends)
    until(
        lambda: all(_cut(world).get(p, 0) >= ends[p] for p in ends if p not in held), lambda: f"{_cut(world)} of {ends}"
    )
    for partition, offset in held.items():
        assert _cut(world)[partition] <= offset
    world.check_strong()
    producer.abort_transaction(60)
    world.feed.produce(20)  # markers have offsets too: the position passes the last of them with the next record
    world.wait_caught_up()
    world.finish([ingest])


def test_the_groups_offsets_are_reset(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = make_world(kafka, topic_name, tmp_path, seed, kafka={"group_id": topic_name})
    world.feed.produce(200)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    ingest.stop()
    admin = AdminClient({"bootstrap.servers": world.servers})
    contract = read_contract(open_store(world.uri), world.uri)
    places = [TopicPartition(topic_name, p, 0) for p in range(contract.partitions)]
    (reset,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(topic_name, places)]).values()
    reset.result(60)
    rows = world.check_strong()
    ingest = world.lancewal.start("ingest", "run")
    world.feed.produce(100)
    world.wait_caught_up()
    assert all(positions(world.check_strong()).get(p, 0) >= n for p, n in positions(rows).items())
    assert "position=0" not in ingest.log  # nothing is read a second time
    world.finish([ingest])


def transact(world: World, producer: Producer, status: str, *, commit: bool) -> None:
    producer.begin_transaction()
    send(world, producer, status, committed=commit)
    (producer.commit_transaction if commit else producer.abort_transaction)(60)


def send(world: World, producer: Producer, status: str, *, committed: bool = False) -> dict[int, int]:
    """A few upserts; where they lie, noted as rows only where they will be committed."""
    held: dict[int, int] = {}

    def note(record: Record | None) -> object:
        def delivered(error: object, message: Message) -> None:
            assert error is None
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            world.feed.history.add(partition, offset, record)
            held[partition] = min(offset, held.get(partition, offset))

        return delivered

    for number in range(8):
        row = {"customer": f"{status}-{number}", "id": number, "status": status}
        record = Record("upsert", row) if committed else None
        producer.produce(
            world.feed.topic,
            json.dumps(row).encode(),
            world.feed.kafka_key(row),
            on_delivery=note(record),  # type: ignore[arg-type]
        )
    producer.flush(60)
    return held


def _cut(world: World) -> dict[int, int]:
    return positions(world.check_strong())
