"""Settings of Debezium's connector for PostgreSQL in Kafka Connect, and what a table needs to read its events."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.registry import RegistryServer
from tests.support.postgres import PASSWORD, PostgresServer

FORMATS: dict[str, dict[str, str]] = {
    "json": {"value": "json", "key": "json-compact", "envelope": "debezium"},
    "connect-json": {"value": "connect-json", "key": "connect-json", "envelope": "debezium"},
    "avro": {"value": "avro", "key": "avro", "envelope": "debezium"},
}
"""By form of records, ``table.format``."""
AS_CONFLUENT = {
    "apicurio.registry.headers.enabled": "false",
    "apicurio.registry.use-id": "contentId",
    "apicurio.registry.as-confluent": "true",
}
"""Settings of Apicurio's converter and serializer, release 2, by which they write Confluent's frame."""


_COMPOSE = Path(__file__).parents[2] / "compose" / "cdc" / "connector.json"
_OF_ITS_DATABASE = {"table.include.list", "signal.data.collection"}


def creating(partitions: int) -> dict[str, str]:
    """Settings by which Connect makes topics."""
    return {
        "topic.creation.default.partitions": str(partitions),
        "topic.creation.default.replication.factor": "1",
    }


def converters(form: str, registry: RegistryServer) -> dict[str, str]:
    """Settings of the converters of keys and values.  A NULL is written as NULL, and not as the column's DEFAULT."""
    if form == "avro":
        own = {"": "io.apicurio.registry.utils.converter.AvroConverter"}
        own |= {f".{name}": value for name, value in AS_CONFLUENT.items()}
        own |= {".apicurio.registry.auto-register": "true"}
        own |= {".apicurio.registry.url": f"{registry.root}/apis/registry/v2"}
    else:
        own = {"": "org.apache.kafka.connect.json.JsonConverter", ".replace.null.with.default": "false"}
        own |= {".schemas.enable": "true" if form == "connect-json" else "false"}
    return {f"{side}.converter{name}": value for side in ("key", "value") for name, value in own.items()}


def from_postgres(
    server: PostgresServer, database: str, prefix: str, form: str, registry: RegistryServer
) -> dict[str, str]:
    """Settings of a connector.  Its topics are ``PREFIX.SCHEMA.TABLE``, and ``prefix`` also names its slot.

    Those for JSON without schemas begin with the settings of Docker Compose, in which numbers are texts.  Converters for
    Avro write DEFAULT for NULL.
    """
    own = json.loads(_COMPOSE.read_text()) if form == "json" else {"decimal.handling.mode": "precise"}
    return {
        **{name: value for name, value in own.items() if name not in _OF_ITS_DATABASE},
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.password": PASSWORD,
        "database.dbname": database,
        "topic.prefix": prefix,
        "slot.name": prefix.replace("-", "_"),
        "plugin.name": "pgoutput",
        "publication.name": prefix.replace("-", "_"),
        "publication.autocreate.mode": "filtered",
        "poll.interval.ms": "100",
        "schema.name.adjustment.mode": "avro" if form == "avro" else "none",
        **converters(form, registry),
    }


def reading(form: str, registry: RegistryServer) -> Callable[[str, bytes | None], Any]:
    """Return a function from a topic and a value to the event, by no decoder of the product; None without a value."""
    if form == "avro":
        decode = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
        return lambda topic, value: decode(value, SerializationContext(topic, MessageField.VALUE))

    def read(_topic: str, value: bytes | None) -> Any:
        event = json.loads(value or b"null")
        return event["payload"] if event is not None and form == "connect-json" else event

    return read


class TopicRecords:
    """What a topic has, read on and on.

    ``take`` is called with each record."""

    def __init__(self, kafka: KafkaBroker, topic: str, take: Callable[[Any], None]) -> None:
        self.name = topic
        self._take = take
        settings = {"group.id": "reads-all", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
        self._next: dict[int, int] = {}

    def partitions(self) -> Mapping[int, Any]:
        """The partitions; none while the topic is not there."""
        found = self._consumer.list_topics(timeout=30).topics.get(self.name)
        return {} if found is None else found.partitions

    def read_on(self) -> None:
        """Take all records up to the present ends."""
        partitions = [TopicPartition(self.name, partition, 0) for partition in self.partitions()]
        if not self._next:
            self._consumer.assign(partitions)
        ends = {}
        for place in partitions:
            low, high = self._consumer.get_watermark_offsets(place, timeout=30)
            ends[place.partition] = high
            self._next[place.partition] = max(low, self._next.get(place.partition, 0))
        while any(self._next[partition] < end for partition, end in ends.items()):
            message = self._consumer.poll(30)
            assert message is not None, f"{self.name} gives nothing at {self._next} of {ends}"
            assert message.error() is None, message.error()
            self._take(message)
            self._next[message.partition() or 0] = (message.offset() or 0) + 1

    def close(self) -> None:
        self._consumer.close()
