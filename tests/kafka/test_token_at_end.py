"""A token of a topic's ends, and of what a producer was told, from a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import Message, Producer

from lancewal_core.errors import TopicMissing
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.token import Token
from tests.flusher.table_settings import make_topic


@pytest.mark.kafka
def test_a_token_is_what_the_topic_holds(kafka: KafkaBroker, topic_name: str) -> None:
    options = {"bootstrap.servers": kafka.bootstrap_servers}
    with pytest.raises(TopicMissing):
        Token.at_end(topic_name, options)
    make_topic(kafka.bootstrap_servers, topic_name)
    assert Token.at_end(topic_name, options) == Token({})
    reports: list[Message] = []
    producer = Producer(options)
    for partition in (0, 2, 2):
        producer.produce(
            topic_name, b"x", partition=partition, on_delivery=lambda error, report: reports.append(report)
        )
    producer.flush(20)
    token = Token.of(*reports)
    assert token.positions == {(topic_name, 0): 1, (topic_name, 2): 2}
    assert Token.at_end(topic_name, options) == Token(token.positions)
