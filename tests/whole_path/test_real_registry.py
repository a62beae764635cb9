"""A real registry, producers with serializers of other programs, and the faults that a registry has.

The registry is Apicurio, behind Confluent's API.  Its data are in memory: one that is started again is empty, and gives
its numbers to other schemas, as a registry does that was built again.
"""

from __future__ import annotations

import datetime as dt
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from lancewal_core.cli.options import read_settings
from lancewal_core.errors import RegistryUnavailable
from lancewal_core.names.ids import SchemaKey
from lancewal_core.settings.sections import RegistrySettings
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.connect.connect_jars import connect_jars
from lancewal_demo.stack.registry import RegistryServer
from lancewal_ingest.commands.topic_sample import newest_records
from lancewal_ingest.decode.framed.protobuf.proto_text import parse_proto
from lancewal_ingest.registry.confluent import ConfluentRegistry
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.support.connectors import AS_CONFLUENT
from tests.support.java import java
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, Service, until
from tests.whole_path.test_where_records_stop import page

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

Row = dict[str, Any]
Headers = list[tuple[str, str | bytes | None]]
PARTITIONS = 3
PLACE = {
    "type": "record",
    "name": "Place",
    "namespace": "org.example",
    "fields": [{"name": "lat", "type": "double"}, {"name": "lon", "type": "double"}],
}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
AT = {"type": "long", "logicalType": "timestamp-micros"}


def avro_schema(name: str, *more: dict[str, Any]) -> str:
    fields = [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}, *more]
    return json.dumps({"type": "record", "name": name, "fields": fields})


def settings_of(
    folder: Path, kafka: KafkaBroker, topic: str, registry: RegistryServer, **terms: Any
) -> dict[str, dict[str, object]]:
    return {
        "table": {
            "uri": str(folder / "table"),
            "topic": topic,
            "primary_key": ["id"],
            "region_key": ["id"],
            "partitioner": "crc32",
            "on_wrong_format": "dead-letter",
            **terms,
        },
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "registry": {"url": registry.url},
        "ingest": {"linger_ms": 10, "seal_rows": 100_000, "seal_age_s": 600},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }


def table(folder: Path, kafka: KafkaBroker, topic: str, registry: RegistryServer, **terms: Any) -> Lancewal:
    make_topics(kafka.bootstrap_servers, {topic: PARTITIONS, f"{topic}.dead-letters": 1})
    return Lancewal(folder, settings_of(folder, kafka, topic, registry, **terms))


class Feed:
    """A producer with a serializer of confluent-kafka."""

    def __init__(self, kafka: KafkaBroker, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        self._topic = topic

    def send(self, serializer: Callable[[Row, SerializationContext], bytes | None], rows: Sequence[Row]) -> None:
        context = SerializationContext(self._topic, MessageField.VALUE)
        for row in rows:
            self._producer.produce(self._topic, serializer(row, context), row["id"])
        assert self._producer.flush(30) == 0

    def put(self, partition: int, key: str, value: bytes | None) -> None:
        self._producer.produce(self._topic, value, key, partition)
        assert self._producer.flush(30) == 0


def seen(lancewal: Lancewal, key: str = "id") -> dict[Any, Row]:
    rows = open_table(str(lancewal.folder / "table")).to_arrow().to_pylist()
    assert len({row[key] for row in rows}) == len(rows)
    return {row[key]: row for row in rows}


def shows(lancewal: Lancewal, rows: dict[Any, Row], ingest: Service, key: str = "id") -> None:
    until(lambda: seen(lancewal, key) == rows, lambda: (seen(lancewal, key), ingest.tail))


def test_avro_of_confluent_s_serializer(
    kafka: KafkaBroker, registry: RegistryServer, topic_name: str, tmp_path: Path
) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema("org.example.Place", Schema(json.dumps(PLACE), "AVRO"))
    columns = {
        "id": "string",
        "n": "int64",
        "price": "decimal128(14, 2)",
        "at": "timestamp[us, UTC]",
        "place": "struct<lat: float64, lon: float64>",
        "later": "string",
    }
    lancewal = table(tmp_path, kafka, topic_name, registry, columns=columns, format={"value": "avro"})
    feed = Feed(kafka, topic_name)
    first = Schema(
        avro_schema(
            "Order",
            {"name": "price", "type": ["null", PRICE]},
            {"name": "at", "type": AT},
            {"name": "place", "type": "org.example.Place"},
        ),
        "AVRO",
        references=[SchemaReference("org.example.Place", "org.example.Place", 1)],
    )
    second = avro_schema("Order", {"name": "later", "type": ["null", "string"], "default": None})
    start = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    rows: list[Row] = [
        {
            "id": f"k{n}",
            "n": n,
            "price": None if n % 7 == 0 else Decimal(n).scaleb(-2),
            "at": start + n * dt.timedelta(hours=31),
            "place": {"lat": n / 3, "lon": -n / 7},
        }
        for n in range(200)
    ]
    feed.send(AvroSerializer(client, first), rows)
    assert "10 of the newest 10 records would be rows" in newest_records(read_settings(lancewal.config))
    create_table(read_settings(lancewal.config))
    ingest = lancewal.start("ingest", "run")
    expected = {row["id"]: {**row, "later": None} for row in rows}
    shows(lancewal, expected, ingest)
    newer: list[Row] = [{"id": f"k{n}", "n": -n, "later": "é" * n} for n in range(100, 120)]
    feed.send(AvroSerializer(client, second, conf={"subject.name.strategy": lambda *_: "by-another-name"}), newer)
    expected |= {row["id"]: {"price": None, "at": None, "place": None, **row} for row in newer}
    for number in range(3):
        feed.put(partition_of(f"k{number}"), f"k{number}", None)
        del expected[f"k{number}"]
    shows(lancewal, expected, ingest)
    ingest.stop()
    lancewal.succeed("merge")
    lancewal.succeed("verify")
    assert seen(lancewal) == expected


def test_json_of_confluent_s_serializer(
    kafka: KafkaBroker, registry: RegistryServer, topic_name: str, tmp_path: Path
) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    columns = {"id": "string", "n": "int64", "tags": "list<string>"}
    lancewal = table(tmp_path, kafka, topic_name, registry, columns=columns, format={"value": "json-schema"})
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "n": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
    rows: list[Row] = [{"id": f"k{n}", "n": n * 10**15, "tags": ["ü"] * (n % 4)} for n in range(200)]
    create_table(read_settings(lancewal.config))
    Feed(kafka, topic_name).send(JSONSerializer(json.dumps(schema), client), rows)
    ingest = lancewal.start("ingest", "run")
    shows(lancewal, {row["id"]: row for row in rows}, ingest)
    ingest.stop()
    lancewal.succeed("verify")


def protobuf_classes(texts: Mapping[str, str]) -> dict[str, Any]:
    """The classes of the messages of ``.proto`` files, by their full names."""
    pool = DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    for name, text in texts.items():
        pool.AddSerializedFile(parse_proto(text, name).SerializeToString())
    return {
        message.full_name: GetMessageClass(message)
        for name in texts
        for message in pool.FindFileByName(name).message_types_by_name.values()
    }


PLACE_PROTO = 'syntax = "proto3"; package org.example; message Place { double lat = 1; double lon = 2; }'
ORDER_PROTO = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; import "org/example/place.proto";
message Other { string id = 1; }
message Order {
  string id = 1; sint64 n = 2; optional bytes note = 16; Kind kind = 3; google.protobuf.Timestamp at = 4;
  org.example.Place place = 5; repeated float vector = 6; map<string, int32> counts = 7; google.protobuf.BoolValue paid = 8;
  enum Kind { PLAIN = 0; GIFT = 2; }
}
"""


def test_protobuf_of_confluent_s_serializer(
    kafka: KafkaBroker, registry: RegistryServer, topic_name: str, tmp_path: Path
) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    columns = {
        "id": "string",
        "n": "int64",
        "note": "binary",
        "kind": "string",
        "at": "timestamp[us, UTC]",
        "place": "struct<lat: float64, lon: float64>",
        "vector": "fixed_size_list<float32>[3]",
        "counts": "map<string, int32>",
        "paid": "bool",
    }
    terms = {"format": {"value": "protobuf", "record": "shop.Order"}, "on_other_record": "ignore"}
    lancewal = table(tmp_path, kafka, topic_name, registry, columns=columns, **terms)
    feed = Feed(kafka, topic_name)
    of = protobuf_classes({"org/example/place.proto": PLACE_PROTO, "order.proto": ORDER_PROTO})
    start = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    rows: list[Row] = [
        {
            "id": f"k{n}",
            "n": -n * 10**15,
            "note": b"\xff" * (n % 3) if n % 2 else None,
            "kind": "GIFT" if n % 5 == 0 else "PLAIN",
            "at": start + n * dt.timedelta(hours=31),
            "place": {"lat": n / 3, "lon": -n / 7} if n % 4 else None,
            "vector": [n, 0.5, -1.0],
            "counts": [("a", n)] if n % 6 else [],
            "paid": [None, False, True][n % 3],
        }
        for n in range(200)
    ]
    serializer = ProtobufSerializer(of["shop.Order"], client, {"use.deprecated.format": False})
    other = ProtobufSerializer(of["shop.Other"], client, {"use.deprecated.format": False})

    def written(row: Row, context: SerializationContext) -> bytes | None:
        paid = None if row["paid"] is None else {"value": row["paid"]}
        given = {**row, "counts": dict(row["counts"]), "paid": paid}
        found: bytes | None = serializer(of["shop.Order"](**given), context)
        return found

    feed.send(written, rows)
    feed.send(lambda row, context: other(of["shop.Other"](**row), context), [{"id": "other"}])
    create_table(read_settings(lancewal.config))
    ingest = lancewal.start("ingest", "run")
    expected = {row["id"]: row for row in rows}
    shows(lancewal, expected, ingest)
    ingest.stop()
    lancewal.succeed("merge")
    lancewal.succeed("verify")
    assert seen(lancewal) == expected


def partition_of(key: str) -> int:
    """Partition of a key by librdkafka's default partitioner."""
    return zlib.crc32(key.encode()) % PARTITIONS


FRAMES: dict[str, dict[str, str]] = {
    "as-confluent": AS_CONFLUENT,
    "id-handler": {
        "apicurio.registry.headers.enabled": "false",
        "apicurio.registry.use-id": "contentId",
        "apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
    },
}
"""Settings of Apicurio's serializer, release 2, by which it writes frames."""
NO_FRAMES: dict[str, dict[str, str]] = {
    "in the header apicurio.value.globalId": {},
    "id of 8 bytes": {"apicurio.registry.headers.enabled": "false"},
}
"""What the message says, and the settings."""


class JavaSerializer:
    """Apicurio's serializer for Avro, which is Java."""

    def __init__(self, jvm: Any, registry: RegistryServer, topic: str) -> None:
        self._jvm, self._registry, self._topic = jvm, registry, topic

    def __call__(self, settings: dict[str, str], schema: str, row: Row) -> tuple[bytes, Headers]:
        """Return a value and its headers."""
        jvm, settings = self._jvm, {**settings, "apicurio.registry.auto-register": "true"}
        serializer = jvm.io.apicurio.registry.serde.avro.AvroKafkaSerializer()
        given = jvm.java.util.HashMap()
        for name, text in {**settings, "apicurio.registry.url": f"{self._registry.root}/apis/registry/v2"}.items():
            given.put(name, text)
        serializer.configure(given, False)
        record = jvm.org.apache.avro.generic.GenericData.Record(jvm.org.apache.avro.Schema.Parser().parse(schema))
        record.put("id", row["id"])
        record.put("n", jvm.java.lang.Long(str(row["n"])))
        headers = jvm.org.apache.kafka.common.header.internals.RecordHeaders()
        value = bytes(serializer.serialize(self._topic, headers, record))
        return value, [(one.key(), bytes(one.value())) for one in headers.toArray()]


def test_a_registry_without_guids_is_asked_again(registry: RegistryServer) -> None:
    """Apicurio has no page for GUIDs.  Its answer is none of a registry, so no record becomes bad by it."""
    guid = SchemaKey("guid-8d3c3b4e-0f5a-4c0e-9d0b-6f1e2a3b4c5d")
    with pytest.raises(RegistryUnavailable, match=r"HTTP status 404: an answer that is not a registry's"):
        ConfluentRegistry(RegistrySettings(url=registry.url)).schema(guid)


def test_avro_of_java(kafka: KafkaBroker, registry: RegistryServer, topic_name: str, tmp_path: Path) -> None:
    columns = {"id": "string", "n": "int64"}
    lancewal = table(tmp_path, kafka, topic_name, registry, columns=columns, format={"value": "avro"})
    settings = read_settings(lancewal.config)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    rows: dict[str, Row] = {}
    jars = connect_jars()
    with java(jars["apicurio"], jars["worker"]) as jvm:
        serialize = JavaSerializer(jvm, registry, topic_name)
        for number, (how, frame) in enumerate(FRAMES.items()):
            row = {"id": how, "n": 2**40 + number}
            value, headers = serialize(frame, avro_schema("JavaOrder"), row)
            assert (value[:2], headers) == (b"\0\0", [])
            producer.produce(topic_name, value, how)
            rows[how] = row
        assert producer.flush(30) == 0
        assert "2 of the newest 2 records would be rows" in newest_records(settings)
        create_table(settings)
        ingest = lancewal.start("ingest", "run")
        shows(lancewal, rows, ingest)
        ingest.stop()
        for number, (says, frame) in enumerate(NO_FRAMES.items(), 1):
            value, headers = serialize(frame, avro_schema("JavaOrder"), {"id": says, "n": 1})
            producer.produce(topic_name, value, says, partition=0, headers=headers)
            assert producer.flush(30) == 0
            text = newest_records(settings)
            assert f"{number} wrong_format" in text
            assert says in text
            assert "apicurio.registry.use-id=contentId" in text


def keys_of(partition: int) -> list[str]:
    return [key for key in (f"k{n}" for n in range(100)) if partition_of(key) == partition]


class Numbered:
    """Schemas of one field that tell them apart, each registered under a subject of its own, and rows of them."""

    def __init__(self, registry: RegistryServer, feed: Feed, prefix: str) -> None:
        self._client: Any = SchemaRegistryClient({"url": registry.url})
        self._feed, self._prefix = feed, prefix
        self.rows: dict[str, Row] = {}

    def register(self, name: str, *more: dict[str, Any]) -> int:
        schema = Schema(avro_schema(f"{self._prefix}{name}", *more), "AVRO")
        self._client.clear_caches()
        return int(self._client.register_schema(f"{self._prefix}-{name}", schema))

    def delete(self, name: str) -> None:
        self._client.delete_subject(f"{self._prefix}-{name}")
        self._client.delete_subject(f"{self._prefix}-{name}", permanent=True)

    def send(self, number: int, partition: int, n: int, place: int = 0) -> None:
        """Send a row by the schema with this number, which has no further field."""
        key = keys_of(partition)[place]
        value = avro_string(key) + avro_long(n)
        self._feed.put(partition, key, b"\0" + number.to_bytes(4) + value)
        self.rows[key] = {"id": key, "n": n}


def avro_long(number: int) -> bytes:
    """A small number as Avro writes it."""
    assert 0 <= number < 64
    return bytes([number << 1])


def avro_string(text: str) -> bytes:
    return avro_long(len(text)) + text.encode()


def stopped(ingest: Service) -> dict[int, str]:
    """Kind of what holds up each partition."""
    started = ingest.logged("service_started")
    return {
        one["partition"]: one["diagnosis"]["kind"]
        for one in (page(started[0]["port"])["partitions"] if started else ())
        if one["diagnosis"]["step"] == "decoded"
    }


def test_faults_of_a_registry(kafka: KafkaBroker, registry: RegistryServer, topic_name: str, tmp_path: Path) -> None:
    """Deleted, silent, killed, empty after a start, and built again with other numbers, one after the other."""
    columns = {"id": "string", "n": "int64"}
    terms: dict[str, Any] = {"format": {"value": "avro"}, "on_unknown_column": "ignore"}
    lancewal = table(tmp_path, kafka, topic_name, registry, columns=columns, **terms)
    create_table(read_settings(lancewal.config))
    feed = Feed(kafka, topic_name)
    schemas = Numbered(registry, feed, "fault")
    first, gone, second = (schemas.register(name) for name in ("A", "B", "C"))
    ingest = lancewal.start("ingest", "run")
    for partition in range(PARTITIONS):
        schemas.send(first, partition, 1)
    shows(lancewal, schemas.rows, ingest)

    # A deleted schema: what the table has stored goes on, and another one stops its partition alone.
    schemas.delete("A")
    schemas.delete("B")
    shown = dict(schemas.rows)
    schemas.send(gone, 0, 2)
    schemas.send(first, 1, 2)
    shows(lancewal, {**schemas.rows, keys_of(0)[0]: shown[keys_of(0)[0]]}, ingest)
    until(lambda: stopped(ingest) == {0: "schema_unknown"}, lambda: (stopped(ingest), ingest.tail))
    assert schemas.register("B") != gone, "Apicurio gives no number twice"

    # A silent registry: a partition waits, and others go on.
    registry.freeze()
    schemas.send(second, 1, 3)
    schemas.send(first, 2, 3)
    key = keys_of(2)[0]
    until(lambda: seen(lancewal).get(key) == schemas.rows[key], lambda: ingest.tail)
    assert seen(lancewal)[keys_of(1)[0]]["n"] == 2
    registry.thaw()
    shows(lancewal, {**schemas.rows, keys_of(0)[0]: shown[keys_of(0)[0]]}, ingest)

    # A registry that was killed: likewise, and a process that starts works with what is stored.
    third = schemas.register("D")
    registry.kill()
    ingest.stop()
    ingest = lancewal.start("ingest", "run")
    schemas.send(third, 1, 4)
    until(
        lambda: stopped(ingest) == {0: "registry_unavailable", 1: "registry_unavailable"},
        lambda: (stopped(ingest), ingest.tail),
    )
    schemas.send(second, 2, 4)
    waiting = {keys_of(0)[0]: shown[keys_of(0)[0]], keys_of(1)[0]: {"id": keys_of(1)[0], "n": 3}}
    shows(lancewal, {**schemas.rows, **waiting}, ingest)
    registry.start()
    names = {first: "A", gone: "B", second: "C", third: "D"}
    numbers = range(1, third + 1)
    registered = [schemas.register(names.get(number, f"before{number}")) for number in numbers]
    assert registered == [*numbers], "in the same order they get the same numbers"
    shows(lancewal, schemas.rows, ingest)

    # A registry that was built again: a number names another schema, and the first bad record tells.
    registry.kill()
    registry.start()
    more = {"name": "more", "type": "string"}
    for number in numbers:
        fields = (more,) if number == second else ()
        assert schemas.register(names.get(number, f"before{number}"), *fields) == number
    key = keys_of(2)[0]
    before = b"\0" + second.to_bytes(4) + avro_string(key)
    feed.put(2, key, before + avro_long(5) + avro_string("more"))
    until(lambda: stopped(ingest) == {2: "schema_id_reused"}, lambda: (stopped(ingest), ingest.tail))
    assert seen(lancewal) == schemas.rows

    # The new number stays: later records are rows by it.
    look = "schema", "accept", str(second), "--from", f"{topic_name}-2-5"
    would = json.loads(lancewal.succeed(*look, "--dry-run", "-o", "json"))
    texts = {name: [one["name"] for one in json.loads(would[name])["fields"]] for name in ("before", "after")}
    assert texts == {"before": ["id", "n"], "after": ["id", "n", "more"]}
    assert (would["version"], would["since"], would["dry_run"]) == (2, {"2": 5}, True)
    text = lancewal.succeed(*look, "--dry-run")
    assert f"id-{second}: version 2 of the stored schema would count from {topic_name}-2-5 on, and in other" in text
    assert text.endswith("nothing was changed (--dry-run)\n")
    assert stopped(ingest) == {2: "schema_id_reused"}
    lancewal.succeed("schema", "accept", str(second))
    feed.put(2, key, before + avro_long(6) + avro_string("more"))
    shows(lancewal, {**schemas.rows, key: {"id": key, "n": 6}}, ingest)
    ingest.stop()
    lancewal.succeed("verify")
