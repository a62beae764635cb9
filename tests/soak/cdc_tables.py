"""Tables that follow a PostgreSQL through Debezium, and comparisons of them with it: the run of ``tests.soak.cdc``."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from lancewal_core.cli.options import read_settings
from lancewal_core.errors import TokenTimeout
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.connect import ConnectWorker
from lancewal_demo.stack.processes import log_tail
from lancewal_demo.stack.registry import RegistryServer
from lancewal_reader.point.token import Token
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.soak.columns import FLUSHER, INGEST
from tests.support.connectors import FORMATS, TopicRecords, creating, from_postgres, reading
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.postgres_statements import KEYS
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, Life, Slot, until
from tests.whole_path.test_real_registry import settings_of

PARTITIONS = 3
MARKERS = 20
"""Rows by which each partition shows that its events are there."""
PATIENCE_S = 12.0
DATABASE = "shop"
WAITS = {"registry_unavailable"}
"""Why a partition may stop and go on."""


@dataclass(frozen=True, slots=True)
class CdcServers:
    broker: KafkaBroker
    postgres: PostgresServer
    registry: RegistryServer
    folder: Path


class FollowingTable:
    """A Lance table that follows a topic, its services, and what the topic is known to have."""

    def __init__(
        self, servers: CdcServers, topic: str, form: str, columns: Mapping[str, object], lives: Mapping[str, list[Life]],
        **terms: Any,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.marked: set[int] = set()
        """Keys of markers whose streamed events are in the topic."""
        self.placeholders = 0
        """Values with a placeholder in the topic."""
        self._servers = servers
        self._read = reading(form, servers.registry)
        self._records = TopicRecords(servers.broker, topic, self._take)
        folder = servers.folder / topic
        folder.mkdir()
        self.uri = str(folder / "table")
        bootstrap = servers.broker.bootstrap_servers
        make_topics(bootstrap, {f"{topic}.dead-letters": 1})
        until(lambda: bool(self._records.partitions()), timeout_s=300)
        tree = settings_of(
            folder, servers.broker, topic, servers.registry,
            columns=columns, format=FORMATS[form], partitioner="murmur2", on_bad_record="stop", grace_s=20, **terms,
        )  # fmt: skip
        tree["ingest"] = {"linger_ms": 60, "seal_rows": 200, "seal_age_s": 2.0}
        tree["flusher"] = {"merge_interval_s": 1.0, "gc_interval_s": 10.0}
        tree["kafka"]["options"] = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        self.lancewal = Lancewal(folder, tree)
        create_table(read_settings(self.lancewal.config))
        self.slots = {
            command: Slot(self.lancewal, (command, "run"), lives.get(command, []), PATIENCE_S)
            for command in ("ingest", "flusher")
        }

    def look_after(self) -> Iterator[str]:
        """Start those again that were killed; their names."""
        for command, slot in self.slots.items():
            kill = slot.tick()
            if kill is not None:
                yield f"{command} {kill.reached or 'any moment'}"

    def read_topic(self) -> None:
        self._records.read_on()

    def columns(self) -> Mapping[str, str]:
        """Names and types of the contract's columns."""
        contract = read_contract(open_store(self.uri), self.uri)
        return {column.name: column.type for column in contract.columns}

    def rows_at_end(self) -> dict[int, dict[str, Any]] | None:
        """Rows of a read that has all records of the topic; None if some are not durable yet."""
        end = Token.at_end(self.topic, {"bootstrap.servers": self._servers.broker.bootstrap_servers})
        try:
            return self.rows(at_least=end, timeout_s=2.0)
        except TokenTimeout:
            for line in self.slots["ingest"].service.logged("partition_stopped"):
                assert line["kind"] in WAITS, f"{self.topic}: {line['error']}"
            return None

    def rows(self, **read: Any) -> dict[int, dict[str, Any]]:
        found = open_table(self.uri).to_arrow(**read).to_pylist()
        rows = {row["id"]: {name: plain(cell) for name, cell in row.items()} for row in found}
        assert len(rows) == len(found), f"{self.topic}: a key is there twice"
        return rows

    def stop(self) -> None:
        for slot in self.slots.values():
            slot.service.stop()

    def end(self) -> None:
        self._records.close()
        for slot in self.slots.values():
            if slot.service.running:
                slot.service.kill()

    @property
    def tails(self) -> str:
        return self.lancewal.tails

    def _take(self, message: Any) -> None:
        value = message.value()
        if value is None:
            return
        self.placeholders += b"__debezium_unavailable_value" in value
        event = self._read(self.topic, value)
        if event["op"] == "c" and event["after"]["id"] >= KEYS:
            self.marked.add(event["after"]["id"])


def plain(cell: Any) -> Any:
    """A cell in one form, whether psycopg gives it or a table."""
    if isinstance(cell, list):
        return [plain(one) for one in cell]
    return str(cell) if isinstance(cell, UUID) else cell


class CdcSoak:
    """One run: a database, its connector, and copies of its tables."""

    def __init__(self, servers: CdcServers, form: str, seed: int, tables: Mapping[str, Any]) -> None:
        self.rng = random.Random(f"cdc {seed}")
        self.counts: Counter[str] = Counter()
        self.form, self.servers = form, servers
        self.copies: dict[str, FollowingTable] = {}
        """By table."""
        self.prefix = "cdc"
        self._markers = KEYS
        self._tables = tables
        for table, sql in tables.items():
            servers.postgres.run(sql, DATABASE)
            servers.postgres.run(f"INSERT INTO {table} (id) VALUES (1)", DATABASE)  # else there is no topic
        self.connection = psycopg.connect(servers.postgres.url(DATABASE), password=PASSWORD, autocommit=True)
        self.worker = self._worker(self.prefix)

    def _worker(self, prefix: str) -> ConnectWorker:
        settings = from_postgres(self.servers.postgres, DATABASE, prefix, self.form, self.servers.registry)
        settings |= creating(PARTITIONS) | {
            "table.include.list": ",".join(f"public.{table}" for table in self._tables),
            "skipped.operations": "none",
            "binary.handling.mode": "bytes",  # the columns are binary
        }
        return ConnectWorker(self.servers.folder / prefix, self.servers.broker.bootstrap_servers, {prefix: settings})

    def follow(self, table: str, columns: Mapping[str, object], lives: int = 0, **terms: Any) -> FollowingTable:
        """Make a Lance table for a table; each of its services is killed so often."""
        all_ = {"ingest": self._lives(INGEST, lives), "flusher": self._lives(FLUSHER, lives)}
        copy = FollowingTable(self.servers, f"{self.prefix}.public.{table}", self.form, columns, all_, **terms)
        self.copies[table] = copy
        return copy

    def _lives(self, failpoints: Mapping[str, int], count: int) -> list[Life]:
        lives: list[Life] = []
        for _ in range(count):
            point = self.rng.choice(sorted(failpoints))
            at = f"{point}:{self.rng.choice(['before', 'after'])}:{self.rng.randint(1, failpoints[point])}"
            lives.append(self.rng.choice([Life(at), Life(after_s=self.rng.uniform(2, 15))]))
        return lives

    def look_after(self) -> None:
        for copy in self.copies.values():
            for killed in copy.look_after():
                self.counts["kills"] += 1
                self.counts[f"kill: {killed}"] += 1

    def until(self, condition: Callable[[], bool], timeout_s: float = 150.0) -> None:
        def looked() -> bool:
            self.look_after()
            return condition()

        until(looked, self.tails, timeout_s, poll_s=0.1)

    def tails(self) -> str:
        of_connect = log_tail(self.worker.log)
        return "\n".join([*(copy.tails for copy in self.copies.values()), of_connect[-3000:]])

    # -- quiet points --------------------------------------------------------------------------------------------

    def mark(self) -> None:
        """Write rows of which each partition has some, and wait until the streamed events of all are in the topics."""
        keys = range(self._markers, self._markers + MARKERS)
        self._markers = keys.stop
        for table in self.copies:
            self.connection.execute(f"DELETE FROM {table} WHERE id >= {KEYS}".encode())
            self.connection.execute(
                f"INSERT INTO {table} (id) SELECT generate_series({keys.start}, {keys.stop - 1})".encode()
            )

        def there() -> bool:
            for copy in self.copies.values():
                copy.read_topic()
            return all(copy.marked >= set(keys) for copy in self.copies.values())

        self.until(there)

    def check(self, more: Mapping[str, str] | None = None) -> None:
        """Each copy equals its table in PostgreSQL.  ``more``: by table, another one that has the rows to expect."""
        self.mark()
        for table, copy in self.copies.items():
            expected = self.of_postgres((more or {}).get(table, table))
            self.counts["cells"] += compare(table, self.rows_at_end(copy), expected, sparse=self.form != "json")
        self.counts["quiet points"] += 1

    def rows_at_end(self, copy: FollowingTable) -> dict[int, dict[str, Any]]:
        """Rows of a read that has all records of the topic, once they are durable."""
        found: list[dict[int, dict[str, Any]]] = []

        def read() -> bool:
            rows = copy.rows_at_end()
            found.extend([] if rows is None else [rows])
            return bool(found)

        self.until(read)
        return found[0]

    def of_postgres(self, table: str) -> dict[int, dict[str, Any]]:
        cursor = self.connection.execute(f"SELECT * FROM {table}".encode())
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        jsons = {column.name for column in cursor.description if column.type_display == "jsonb"}
        shown = ", ".join(f"{name}::text" if name in jsons else name for name in names)
        rows = self.connection.execute(f"SELECT {shown} FROM {table}".encode()).fetchall()
        return {row[names.index("id")]: dict(zip(names, map(plain, row), strict=True)) for row in rows}

    def finish(self, more: Mapping[str, str] | None = None) -> None:
        """Everything is merged and compared once more."""
        self.check(more)
        for table, copy in self.copies.items():
            copy.stop()
            copy.lancewal.succeed("merge")
            copy.lancewal.succeed("verify")
            rows = copy.rows(consistency="eventual")
            compare(table, rows, self.of_postgres((more or {}).get(table, table)), sparse=self.form != "json")

    def end(self) -> None:
        for copy in self.copies.values():
            copy.end()
        self.worker.kill()
        self.connection.close()


def compare(
    table: str, found: Mapping[int, Mapping[str, Any]], expected: Mapping[int, Mapping[str, Any]], *, sparse: bool
) -> int:
    """The cells are equal, in the columns of PostgreSQL; how many.  ``sparse``: a column that the table lacks is null."""
    assert found.keys() == expected.keys(), (
        f"{table}: keys {sorted(found.keys() ^ expected.keys())[:9]} are in one of them"
    )
    cells = 0
    for key, row in expected.items():
        for name, cell in row.items():
            if not sparse and name not in found[key]:
                continue
            cells += 1
            other = found[key].get(name)
            assert other == cell, f"{table}: row {key}, {name}: read {other!r:.200}, expected {cell!r:.200}"
    return cells
