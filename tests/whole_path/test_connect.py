"""Kafka Connect as a producer: Debezium from PostgreSQL, and a source that writes by Apicurio's converter.

A table is to equal the one in PostgreSQL, after random statements and a kill of Connect among them.  One worker runs all
connectors.  Its start may take a minute on a loaded machine.  After five it fails with its log.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from lancewal_core.cli.options import read_settings
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.connect import ConnectWorker
from lancewal_demo.stack.registry import RegistryServer
from lancewal_reader.point.token import Token
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, until
from tests.whole_path.test_real_registry import FRAMES, PARTITIONS, seen, settings_of, shows

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

DATABASE, LINES = "shop", "connect-lines"
ORDERS, ACCOUNTS = "connect-shop.public.orders", "connect-shop.public.accounts"
LAST = 1000
"""The key of the row that the last statement inserts."""
CREATION = {"topic.creation.default.partitions": str(PARTITIONS), "topic.creation.default.replication.factor": "1"}


@dataclass(frozen=True, slots=True)
class Connected:
    worker: ConnectWorker
    postgres: PostgresServer
    lines: Path
    """A file, each of whose lines becomes a record of the topic ``LINES``."""


@pytest.fixture(scope="module")
def connect(
    kafka: KafkaBroker, _registry: RegistryServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connected]:
    """A worker with a connector for a table of PostgreSQL, and one for a file."""
    folder = tmp_path_factory.mktemp("connect")
    lines = folder / "lines"
    lines.touch()
    if not _registry.running:
        _registry.start()
    server = PostgresServer()
    server.options["wal_level"] = "logical"
    with server:
        server.run(f"CREATE DATABASE {DATABASE}")
        server.run("CREATE TABLE orders (id int PRIMARY KEY, note text)", DATABASE)
        server.run("INSERT INTO orders VALUES (1, 'before')", DATABASE)
        types = "id int PRIMARY KEY, name text, amount numeric(12, 2) DEFAULT 1.5, at timestamptz"
        server.run(f"CREATE TABLE accounts ({types})", DATABASE)
        server.run("INSERT INTO accounts VALUES (1, 'before', 0.01, now()), (2, NULL, NULL, NULL)", DATABASE)
        connectors = {"shop": from_postgres(server), "lines": from_file(lines, _registry)}
        with ConnectWorker(folder, kafka.bootstrap_servers, connectors) as worker:
            yield Connected(worker, server, lines)


def from_postgres(server: PostgresServer) -> dict[str, str]:
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.password": PASSWORD,
        "database.dbname": DATABASE,
        "topic.prefix": "connect-shop",
        "slot.name": "shop",
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "all_tables",
        "poll.interval.ms": "100",
        "decimal.handling.mode": "string",
        "value.converter.replace.null.with.default": "false",
        **{f"{side}.converter": json_converter for side in ("key", "value")},
        **{f"{side}.converter.schemas.enable": "false" for side in ("key", "value")},
        **CREATION,
    }


def from_file(lines: Path, registry: RegistryServer) -> dict[str, str]:
    """Settings of a connector whose rows are ``{line, source}``, and whose keys are the lines."""
    transforms = "org.apache.kafka.connect.transforms"
    converter = {"": "io.apicurio.registry.utils.converter.AvroConverter"}
    converter |= {f".{name}": value for name, value in FRAMES["as-confluent"].items()}
    converter |= {".apicurio.registry.auto-register": "true"}
    converter |= {".apicurio.registry.url": f"{registry.root}/apis/registry/v2"}
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(lines),
        "topic": LINES,
        "transforms": "row,key,source",
        "transforms.row.type": f"{transforms}.HoistField$Value",
        "transforms.row.field": "line",
        "transforms.key.type": f"{transforms}.ValueToKey",
        "transforms.key.fields": "line",
        "transforms.source.type": f"{transforms}.InsertField$Value",
        "transforms.source.static.field": "source",
        "transforms.source.static.value": "file",
        **{f"{side}.converter{name}": value for side in ("key", "value") for name, value in converter.items()},
        **CREATION,
    }


def values(kafka: KafkaBroker, topic: str) -> list[Any]:
    """The values of a topic of JSON, in no order."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reads-all"})
    found = []
    try:
        for partition in range(PARTITIONS):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            consumer.assign([TopicPartition(topic, partition, low)])
            while low < high:
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                found.append(json.loads(message.value() or b"null"))
                low = (message.offset() or 0) + 1
    finally:
        consumer.close()
    return found


def test_rows_of_postgresql_arrive(kafka: KafkaBroker, connect: Connected) -> None:
    connect.postgres.run("INSERT INTO orders VALUES (2, 'later')", DATABASE)
    wanted = {("r", 1, "before"), ("c", 2, "later")}
    until(lambda: topic_is_there(kafka, ORDERS), timeout_s=300)
    until(
        lambda: {(one["op"], one["after"]["id"], one["after"]["note"]) for one in values(kafka, ORDERS)} == wanted,
        lambda: values(kafka, ORDERS),
    )


def statements(rng: random.Random, count: int) -> Iterator[str]:
    """Random statements: rows that come, change, go, and get other keys; a fifth in transactions, some rolled back.

    No time lies before 1582-10-15: a snapshot of Debezium shows those in the Julian calendar, and a killed Connect may
    take its snapshot again.
    """

    def one() -> str:
        row, other = rng.sample(range(1, 40), 2)
        name = rng.choice(["NULL", f"'n{rng.randrange(1000)} é'"])
        amount = rng.choice(["NULL", "DEFAULT", f"{rng.randrange(-(10**9), 10**9) / 100}"])
        at = rng.choice(["NULL", "clock_timestamp()", "'1582-10-15T00:00:00Z'", "'9999-12-31T23:59:59.999999Z'"])
        values = f"name = {name}, amount = {amount}, at = {at}"
        return rng.choice(
            [
                f"INSERT INTO accounts VALUES ({row}, {name}, {amount}, {at}) ON CONFLICT (id) DO UPDATE SET {values}",
                f"UPDATE accounts SET {values} WHERE id = {row}",
                f"UPDATE accounts SET amount = amount + 0.01 WHERE id % 7 = {row % 7}",
                f"DELETE FROM accounts WHERE id = {row}",
                f"DELETE FROM accounts WHERE id = {row}; UPDATE accounts SET id = {row} WHERE id = {other}",
            ]
        )

    for _ in range(count):
        if rng.random() < 0.2:
            end = rng.choice(["COMMIT", "ROLLBACK"])
            yield f"BEGIN; {one()}; {one()}; {one()}; {end}"
        else:
            yield one()


def test_a_table_follows_a_table_of_postgresql(
    kafka: KafkaBroker, registry: RegistryServer, connect: Connected, tmp_path: Path, seed: int
) -> None:
    until(lambda: topic_is_there(kafka, ACCOUNTS), timeout_s=300)
    make_topics(kafka.bootstrap_servers, {f"{ACCOUNTS}.dead-letters": 1})
    terms: dict[str, Any] = {
        "columns": {"id": "int32", "name": "string", "amount": "decimal128(12, 2)", "at": "timestamp[us, UTC]"},
        "format": {"value": "json", "key": "json-compact", "envelope": "debezium"},
        "partitioner": "murmur2",
        "on_bad_record": "stop",
    }
    lancewal = Lancewal(tmp_path, settings_of(tmp_path, kafka, ACCOUNTS, registry, **terms))
    create_table(read_settings(lancewal.config))
    ingest = lancewal.start("ingest", "run")
    of_postgres = connect.postgres.url(DATABASE)
    with psycopg.connect(of_postgres, password=PASSWORD, autocommit=True) as connection:
        for number, statement in enumerate(statements(random.Random(seed), 500)):
            if number == 200:
                connect.worker.kill()
            if number == 300:
                connect.worker.start()
            connection.execute(statement.encode())
        connection.execute("INSERT INTO accounts (id) VALUES (%s)", (LAST,))
        found = connection.execute("SELECT id, name, amount, at FROM accounts").fetchall()
    rows = {row[0]: dict(zip(("id", "name", "amount", "at"), row, strict=True)) for row in found}
    assert len(rows) > 10
    # A killed Connect may take its snapshot again, and then stream changes from before it: only the streamed event of
    # the last change says that all events are there.
    until(
        lambda: any(one["op"] == "c" and one["after"]["id"] == LAST for one in values(kafka, ACCOUNTS) if one),
        lambda: values(kafka, ACCOUNTS),
    )
    end = Token.at_end(ACCOUNTS, {"bootstrap.servers": kafka.bootstrap_servers})
    open_table(str(lancewal.folder / "table")).receipt(at_least=end, timeout_s=240)
    assert seen(lancewal) == rows, ingest.tail
    ingest.stop()
    lancewal.succeed("merge")
    lancewal.succeed("verify")
    assert seen(lancewal) == rows


def topic_is_there(kafka: KafkaBroker, topic: str) -> bool:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "looks"})
    try:
        return topic in consumer.list_topics(timeout=30).topics
    finally:
        consumer.close()


def test_values_of_apicurio_s_converter_are_rows(
    kafka: KafkaBroker, registry: RegistryServer, connect: Connected, tmp_path: Path
) -> None:
    rows = {f"line {n} é": {"line": f"line {n} é", "source": "file"} for n in range(200)}
    connect.lines.write_text("".join(f"{line}\n" for line in rows))
    until(lambda: topic_is_there(kafka, LINES), timeout_s=300)
    make_topics(kafka.bootstrap_servers, {f"{LINES}.dead-letters": 1})
    terms: dict[str, Any] = {
        "columns": {"line": "string", "source": "string"},
        "primary_key": ["line"],
        "region_key": ["line"],
        "format": {"value": "avro", "key": "avro"},
        "partitioner": "murmur2",
    }
    lancewal = Lancewal(tmp_path, settings_of(tmp_path, kafka, LINES, registry, **terms))
    create_table(read_settings(lancewal.config))
    ingest = lancewal.start("ingest", "run")
    shows(lancewal, rows, ingest, key="line")
    ingest.stop()
