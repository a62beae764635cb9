"""Region keys lie where Kafka's own Java client puts them: its hash, its partitioner, a producer on a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path, launch_gateway

from lancewal_core.record_keys.key_choices import KeyFormat
from lancewal_core.record_keys.key_format import key_codec
from lancewal_core.record_keys.partitioner import partition_of as placed
from lancewal_core.record_keys.partitioner import partitions_of as partitions_by
from lancewal_core.record_keys.why_misrouted import LIBRDKAFKA
from lancewal_core.rows.murmur2 import NO_PARTITION, murmur2, partition_of, partitions_of
from lancewal_core.rows.schema import RowSchema
from lancewal_demo.stack import find_java
from lancewal_demo.stack.kafka_jars import kafka_jars

if TYPE_CHECKING:
    from lancewal_demo.stack import KafkaBroker

PARTITIONS = 12
VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "region_key_vectors.json").read_text(encoding="utf-8")
)["vectors"]


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A Java virtual machine with Kafka's client on its class path, called through py4j."""
    port, token, process = launch_gateway(
        classpath=f"{kafka_jars()}/*",
        javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"],
        java_path=str(find_java().program),
        jarpath=find_jar_path(),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(timeout=240)


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    """The keys of the vectors, and random ones of all lengths up to 40 and a few long ones."""
    random = np.random.default_rng(5)
    made = [random.bytes(length) for length in [*range(41), *range(41), 255, 256, 257, 1023, 100_001]]
    return [bytes.fromhex(vector["key_hex"]) for vector in VECTORS] + made


def test_hash_of_the_java_client(java: Any, keys: list[bytes]) -> None:
    utils = java.org.apache.kafka.common.utils.Utils
    signed = [utils.murmur2(key) for key in keys]
    assert [murmur2(key) for key in keys] == [hash_ % 2**32 for hash_ in signed]
    assert [vector["murmur2"] for vector in VECTORS] == [hash_ % 2**32 for hash_ in signed[: len(VECTORS)]]


def test_partitioner_of_the_java_client(java: Any, keys: list[bytes]) -> None:
    partitioner = java.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
    for partitions in (1, 2, 7, PARTITIONS, 1000):
        expected = [partitioner.partitionForKey(key, partitions) for key in keys]
        assert [partition_of(key, partitions) for key in keys] == expected
        assert partitions_of(pa.array(keys), partitions).tolist() == expected
    for vector in VECTORS:
        for partitions, partition in vector["partitions"].items():
            assert partitioner.partitionForKey(bytes.fromhex(vector["key_hex"]), int(partitions)) == partition


@pytest.mark.kafka
def test_where_producers_put_records(java: Any, keys: list[bytes], kafka: KafkaBroker, topic_name: str) -> None:
    """The Java producer as it comes, and librdkafka with each partitioner.  The keys hold an empty one."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic_name, PARTITIONS, 1)])[topic_name].result(timeout=30)
    expected = [partition_of(key, PARTITIONS) for key in keys]
    assert produced_by_java(java, kafka.bootstrap_servers, topic_name, keys) == expected
    for partitioner, named in LIBRDKAFKA.items():
        found = produced_by_librdkafka(kafka.bootstrap_servers, topic_name, keys, named)
        assert b"" in keys
        for key, partition in zip(keys, found, strict=True):
            by_chance = partitioner == "crc32" and not key
            assert placed(key, PARTITIONS, partitioner) == (NO_PARTITION if by_chance else partition)
        assert partitions_by(pa.array(keys), PARTITIONS, partitioner).tolist() == [
            placed(key, PARTITIONS, partitioner) for key in keys
        ]


def test_keys_of_jackson_as_it_comes(java: Any) -> None:
    """A map with its members in order has the key that Kafka Connect writes."""
    vectors = json.loads((Path(__file__).parents[1] / "record_keys" / "connect_json_vectors.json").read_bytes())[
        "vectors"
    ]
    mapper = java.com.fasterxml.jackson.databind.ObjectMapper()
    for vector in vectors:
        members = java.java.util.LinkedHashMap()
        for (name, type_), value in zip(vector["types"], vector["values"], strict=True):
            members.put(name, int(value) if "int" in type_ else value)
        assert bytes(mapper.writeValueAsBytes(members)).hex() == vector["key_hex"]


@pytest.mark.parametrize("key_format", ["short", "integer", "long"])
def test_integer_keys_of_kafkas_serializers(java: Any, key_format: KeyFormat) -> None:
    name, bits = {"short": ("Short", 16), "integer": ("Integer", 32), "long": ("Long", 64)}[key_format]
    box = getattr(java.java.lang, name)
    serializer = getattr(java.org.apache.kafka.common.serialization, f"{name}Serializer")()
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    codec = key_codec(RowSchema(columns, ("id",), ("id",)), key_format)
    assert codec is not None
    values = [0, 1, -1, 255, 256, -(1 << (bits - 1)), (1 << (bits - 1)) - 1]
    theirs = [bytes(serializer.serialize("t", box.valueOf(str(value)))) for value in values]
    assert codec.encode_batch([pa.array(values)]).to_pylist() == theirs
    assert [codec.encode([value]) for value in values] == theirs
    assert [codec.decode(key) for key in theirs] == [(value,) for value in values]


def test_text_keys_of_kafkas_serializers(java: Any) -> None:
    """Text, and a uuid, which is text of 36 characters, are the canonical keys of one string column."""
    package = java.org.apache.kafka.common.serialization
    codec = key_codec(
        RowSchema(pa.schema([pa.field("id", pa.string(), nullable=False)]), ("id",), ("id",)), "canonical"
    )
    assert codec is not None
    texts = ["", "acme", "gr\u00fcn", 'a"b\\c', " \t\n", "\U0001f600"]
    uuids = ["00000000-0000-0000-0000-000000000000", "f47ac10b-58cc-4372-a567-0e02b2c3d479"]
    theirs = [bytes(package.StringSerializer().serialize("t", text)) for text in texts]
    theirs += [bytes(package.UUIDSerializer().serialize("t", java.java.util.UUID.fromString(text))) for text in uuids]
    assert [codec.encode([text]) for text in texts + uuids] == theirs
    assert codec.encode_batch([pa.array(texts + uuids)]).to_pylist() == theirs
    assert [codec.decode(key) for key in theirs] == [(text,) for text in texts + uuids]


def produced_by_java(java: Any, bootstrap_servers: str, topic: str, keys: list[bytes]) -> list[int]:
    properties = java.java.util.Properties()
    properties.put("bootstrap.servers", bootstrap_servers)
    serializer = java.org.apache.kafka.common.serialization.ByteArraySerializer
    package = java.org.apache.kafka.clients.producer
    with closing(package.KafkaProducer(properties, serializer(), serializer())) as producer:
        sent = [producer.send(package.ProducerRecord(topic, key, b"java")) for key in keys]
        producer.flush()
        return [future.get().partition() for future in sent]


def produced_by_librdkafka(bootstrap_servers: str, topic: str, keys: list[bytes], partitioner: str) -> list[int]:
    found: dict[int, int] = {}

    def report(number: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition = message.partition()
        assert partition is not None
        found[number] = partition

    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": partitioner})
    for number, key in enumerate(keys):
        producer.produce(topic, b"librdkafka", key, on_delivery=partial(report, number))
    assert producer.flush(30) == 0
    return [found[number] for number in range(len(keys))]
