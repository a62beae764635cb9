"""Kafka Connect as a producer: Debezium from PostgreSQL, and a source that writes by Apicurio's converter.

Tables are to equal the one in PostgreSQL, by JSON and by Avro, after random statements and a kill of Connect among them.
One worker runs all connectors.  Its start may take a minute on a loaded machine.  After five it fails with its log.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lancewal_core.cli.options import read_settings
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.connect import ConnectWorker
from lancewal_demo.stack.registry import RegistryServer
from lancewal_reader.point.token import Token
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.support.connectors import FORMATS, TopicRecords, converters, creating, from_postgres, reading
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, until
from tests.whole_path.test_real_registry import PARTITIONS, seen, settings_of, shows

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

DATABASE, LINES = "shop", "connect-lines"
PREFIXES = {"json": "connect-shop", "avro": "connect-avro"}
"""Of the topics of a connector, by the form of its records."""
LAST = set(range(1000, 1020))
"""Keys of the rows that the last statement inserts, some in each partition."""


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
        connectors = {"lines": from_file(lines, _registry)}
        for form, prefix in PREFIXES.items():
            connectors[form] = {**from_postgres(server, DATABASE, prefix, form, _registry), **creating(PARTITIONS)}
        with ConnectWorker(folder, kafka.bootstrap_servers, connectors) as worker:
            yield Connected(worker, server, lines)


def from_file(lines: Path, registry: RegistryServer) -> dict[str, str]:
    """Settings of a connector whose rows are ``{line, source}``, and whose keys are the lines."""
    transforms = "org.apache.kafka.connect.transforms"
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
        **converters("avro", registry),
        **creating(PARTITIONS),
    }


def events(kafka: KafkaBroker, topic: str, form: str, registry: RegistryServer) -> list[Any]:
    """The events of a topic, in no order; a tombstone is None."""
    found: list[Any] = []
    read = reading(form, registry)
    with closing(TopicRecords(kafka, topic, lambda message: found.append(read(topic, message.value())))) as records:
        records.read_on()
    return found


def test_rows_of_postgresql_arrive(kafka: KafkaBroker, registry: RegistryServer, connect: Connected) -> None:
    connect.postgres.run("INSERT INTO orders VALUES (2, 'later')", DATABASE)
    wanted = {("r", 1, "before"), ("c", 2, "later")}

    def there(form: str) -> set[tuple[Any, ...]]:
        found = events(kafka, f"{PREFIXES[form]}.public.orders", form, registry)
        return {(one["op"], one["after"]["id"], one["after"]["note"]) for one in found}

    for form in PREFIXES:
        until(lambda form=form: there(form) == wanted, lambda form=form: there(form), timeout_s=300)  # type: ignore[misc] # mypy infers no type for a default


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


class FollowsAccounts:
    """A table that follows ``accounts`` by one form of records."""

    def __init__(self, kafka: KafkaBroker, registry: RegistryServer, folder: Path, form: str) -> None:
        self._kafka, self._registry, self._form = kafka, registry, form
        self._topic = f"{PREFIXES[form]}.public.accounts"
        until(lambda: events(kafka, self._topic, form, registry) != [], timeout_s=300)
        make_topics(kafka.bootstrap_servers, {f"{self._topic}.dead-letters": 1})
        terms: dict[str, Any] = {
            "columns": {"id": "int32", "name": "string", "amount": "decimal128(12, 2)", "at": "timestamp[us, UTC]"},
            "format": FORMATS[form],
            "partitioner": "murmur2",
            "on_bad_record": "stop",
        }
        folder.mkdir()
        self._lancewal = Lancewal(folder, settings_of(folder, kafka, self._topic, registry, **terms))
        create_table(read_settings(self._lancewal.config))
        self._ingest = self._lancewal.start("ingest", "run")

    def shows(self, rows: dict[int, dict[str, Any]]) -> None:
        """The table has the rows once all events are there, and after a merge."""
        if self._form == "avro":  # the converter writes DEFAULT for NULL
            rows = {
                key: {**row, "amount": Decimal("1.50")} if row["amount"] is None else row for key, row in rows.items()
            }
        # A killed Connect may take its snapshot again, and then stream changes from before it: only the streamed event
        # of the last change in each partition says that all events are there.
        until(lambda: self._created() >= LAST, lambda: (LAST - self._created(), self._ingest.tail))
        end = Token.at_end(self._topic, {"bootstrap.servers": self._kafka.bootstrap_servers})
        open_table(str(self._lancewal.folder / "table")).receipt(at_least=end, timeout_s=240)
        assert seen(self._lancewal) == rows, self._ingest.tail
        self._ingest.stop()
        self._lancewal.succeed("merge")
        self._lancewal.succeed("verify")
        assert seen(self._lancewal) == rows

    def _created(self) -> set[int]:
        found = events(self._kafka, self._topic, self._form, self._registry)
        return {one["after"]["id"] for one in found if one is not None and one["op"] == "c"}


def test_tables_follow_a_table_of_postgresql(
    kafka: KafkaBroker, registry: RegistryServer, connect: Connected, tmp_path: Path, seed: int
) -> None:
    followers = [FollowsAccounts(kafka, registry, tmp_path / form, form) for form in PREFIXES]
    of_postgres = connect.postgres.url(DATABASE)
    with psycopg.connect(of_postgres, password=PASSWORD, autocommit=True) as connection:
        for number, statement in enumerate(statements(random.Random(seed), 500)):
            if number == 200:
                connect.worker.kill()
            if number == 300:
                connect.worker.start()
            connection.execute(statement.encode())
        last = "INSERT INTO accounts (id) SELECT generate_series(%s::int, %s)"
        connection.execute(last, (min(LAST), max(LAST)))
        found = connection.execute("SELECT id, name, amount, at FROM accounts").fetchall()
    rows = {row[0]: dict(zip(("id", "name", "amount", "at"), row, strict=True)) for row in found}
    assert len(rows) > len(LAST) + 10
    for follower in followers:
        follower.shows(rows)


def test_values_of_apicurio_s_converter_are_rows(
    kafka: KafkaBroker, registry: RegistryServer, connect: Connected, tmp_path: Path
) -> None:
    rows = {f"line {n} é": {"line": f"line {n} é", "source": "file"} for n in range(200)}
    connect.lines.write_text("".join(f"{line}\n" for line in rows))
    until(lambda: events(kafka, LINES, "avro", registry) != [], timeout_s=300)
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
