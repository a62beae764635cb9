"""The Python program of docs/how-to/send-changes-to-kafka.md, killed before it commits, and a consumer that drops repeats."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import open_table
from tests.kept.keeping import Keeper, program_of
from tests.kept.orders import COLUMNS, make_orders, reached
from tests.public.test_commands_as_written import written
from tests.public.test_public_names import programs
from tests.support.forks import ROOT
from tests.support.topics import make_topics
from tests.support.whole_path import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

PAGE = ROOT / "docs" / "how-to" / "send-changes-to-kafka.md"
ADDRESS, TOPIC, BROKER = "s3://bucket/orders", "order-changes", "broker:9092"
_, BY_PYTHON = programs(PAGE.read_text(encoding="utf-8"))
CREATE = next(written(PAGE.read_text(encoding="utf-8")))
PARTITIONS = 3


def test_the_topic_ends_right_though_its_producer_dies(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    world, orders = make_orders(kafka, topic_name, tmp_path, seed)
    topic = f"changes-{topic_name[-30:]}"
    make_topics(world.servers, {topic: PARTITIONS})
    world.lancewal.succeed(*shlex.split(CREATE.replace(ADDRESS, world.uri).replace(TOPIC, topic)))
    ingest = world.lancewal.start("ingest", "run")
    program = program_of(tmp_path, "to_kafka", [BY_PYTHON], {ADDRESS: world.uri, TOPIC: topic, BROKER: world.servers})
    kills = [f"subscription.commit:{when}:1" for when in ("before", "before", "after")]
    sender = Keeper("to kafka", program, list(kills))
    table = open_table(world.uri)

    def passed() -> bool:
        (subscription,) = table.subscriptions()
        return sender.tick() or reached(Receipt.parse(subscription.receipt), orders)

    orders.produce(60)
    world.wait_caught_up()  # else the first feeds might be empty
    while sender.kills:
        orders.produce(60)
        until(passed, lambda: sender.tail)
    orders.produce_everywhere()
    until(passed, lambda: sender.tail)
    sender.end()
    assert sender.met == kills
    ingest.stop()
    last, repeats = _consumed(world.servers, topic)
    assert repeats > 0
    rows = {
        int(key): {name: change.get(name) for name in COLUMNS}
        for key, change in last.items()
        if change["_change_type"] != "delete"
    }
    assert rows == orders.fold(table.receipt())


def _consumed(servers: str, topic: str) -> tuple[dict[str, dict[str, Any]], int]:
    """The last change of each key by its ``_sequence``, and how many messages were dropped as repeats."""
    last: dict[str, dict[str, Any]] = {}
    repeats = 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False})
    for partition in range(PARTITIONS):
        place = TopicPartition(topic, partition, 0)
        end = consumer.get_watermark_offsets(place, timeout=60)[1]
        consumer.assign([place])
        for _ in range(end):
            (message,) = consumer.consume(1, timeout=60)
            assert message.error() is None
            key, change = (message.key() or b"").decode(), json.loads(message.value() or "")
            if change["_sequence"] <= last.get(key, {"_sequence": -1})["_sequence"]:
                repeats += 1
            else:
                last[key] = change
    consumer.close()
    return last, repeats
