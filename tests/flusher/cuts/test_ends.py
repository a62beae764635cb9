"""The ends of several topics, asked of a real broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from lancewal_core.errors import PartitionCountChanged, TopicMissing, TopicReplaced
from lancewal_core.process.tasks import ThreadTasks
from lancewal_demo.stack import KafkaBroker
from lancewal_flusher.cuts.ends import kafka_ends
from lancewal_kafka.topic import TopicInspector
from tests.support.topics import make_topics
from tests.support.whole_path import until

pytestmark = pytest.mark.kafka


def contract(topic: str, topic_id: str, partitions: int) -> Any:
    return SimpleNamespace(topic=topic, topic_id=topic_id, partitions=partitions)


def test_committed_ends_of_topics_that_are_the_contracts(kafka: KafkaBroker, topic_name: str) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    topics = {f"{topic_name}-a": 2, f"{topic_name}-b": 1}
    make_topics(kafka.bootstrap_servers, topics)
    plain = Producer(servers)
    for _ in range(3):
        plain.produce(f"{topic_name}-a", b"x", partition=1)
        plain.produce(f"{topic_name}-b", b"x", partition=0)
    plain.flush()
    in_transaction = Producer({**servers, "transactional.id": topic_name, "log_level": 2})
    in_transaction.init_transactions(60)
    in_transaction.begin_transaction()
    in_transaction.produce(f"{topic_name}-b", b"open", partition=0)
    in_transaction.flush()

    inspector, tasks = TopicInspector(servers), ThreadTasks()
    ids = {topic: inspector.identify(topic).topic_id for topic in topics}
    source = kafka_ends(servers, tasks)
    contracts = [contract(topic, ids[topic], partitions) for topic, partitions in topics.items()]
    assert source.holds == "positions"
    assert source.positions(contracts) == {f"{topic_name}-a": {0: 0, 1: 3}, f"{topic_name}-b": {0: 3}}
    in_transaction.commit_transaction(60)
    # The record, and the marker behind it, which the broker writes after its answer.
    until(lambda: source.positions(contracts)[f"{topic_name}-b"] == {0: 5}, lambda: "the transaction is over")

    with pytest.raises(TopicReplaced, match="it was deleted and recreated"):
        source.positions([contracts[0], contract(f"{topic_name}-b", "another", 1)])
    with pytest.raises(PartitionCountChanged, match="has 2 partitions, the table's contract says 1"):
        source.positions([contract(f"{topic_name}-a", ids[f"{topic_name}-a"], 1)])
    with pytest.raises(TopicMissing):
        source.positions([contract(f"{topic_name}-none", "none", 1)])
    tasks.close()
