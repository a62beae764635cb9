"""A soak of change events: tables follow a PostgreSQL through Debezium while everything dies, and PostgreSQL is the oracle.

``python3 dev.py soak cdc --statements 10000 [--form json|connect-json|avro] [--seed N]``: PostgreSQL, Kafka Connect with
Debezium, a schema registry and a Kafka broker.  Random statements change two tables; an ingest process and a flusher follow
each.  Connect is stopped and started three times and killed once.  Ingest and flushers are killed at failpoints and at any
moment.  With ``avro`` the registry falls silent once, after a column was added of which no ingest knows.

 1. At ten quiet points and at the end a read equals the table in PostgreSQL, cell by cell.  A point is quiet once writes have
    stopped, and once each partition has the streamed event of a change after them.
 2. Each kind of statement has had an effect at least once in a hundred statements.
 3. Rows that a TRUNCATE takes stay, since ``on_truncate`` is ``ignore``.  A trigger keeps them in a further table.
 4. No partition stops, no record becomes a dead letter, and no service ends but by a kill of ours.
 5. At the end everything is merged, and ``lancewal verify`` finds nothing.

``--case key-schema``: the key's type changes.  With ``json`` rows go on, since key bytes stay.  Otherwise each partition
stops before its first record of the new schema (``key_form_changed``), and a new topic with a new table has all rows.
``--case compacted``, by ``json`` alone: a table begins to follow its topic after compaction took events of deleted rows.
``--case slot``: the slot is dropped and made again.  Rows that were deleted meanwhile stay, and nothing else differs.

Exit code 0 only if all of it held.  The seed repeats the statements, not the moments of kills.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from lancewal_core.cli.options import read_settings
from lancewal_core.errors import LancewalError, TokenTimeout
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.connect import ConnectWorker
from lancewal_demo.stack.processes import StackFailed, log_tail
from lancewal_demo.stack.registry import RegistryServer
from lancewal_reader.point.token import Token
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.soak.columns import FLUSHER, INGEST
from tests.support.connectors import FORMATS, TopicRecords, creating, from_postgres, reading
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.postgres_statements import FULLS, KEYS, THINGS, Statements
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, Life, Slot, until
from tests.whole_path.test_real_registry import settings_of

PARTITIONS = 3
MARKERS = 20
"""Rows by which each partition shows that its events are there."""
QUIET_POINTS = 10
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


# -- the soak ----------------------------------------------------------------------------------------------------


def soak(servers: CdcServers, form: str, seed: int, statements: int) -> Counter[str]:
    tables = {"things": THINGS.sql, "fulls": FULLS.sql}
    run = CdcSoak(servers, form, seed, tables)
    with ExitStack() as stack:
        stack.callback(run.end)
        run.worker.start()
        lives = 2 + statements // 1000
        adds = {} if form == "json" else {"on_unknown_column": "add", "columns_max": 1000}
        ignores = {"on_unknown_column": "ignore"} if form == "json" else adds
        run.follow("things", THINGS.columns, lives, **ignores)
        run.follow("fulls", FULLS.columns, lives, on_truncate="ignore")
        source = Statements(run.rng, run.connection, ddl=form != "json")
        run.check(SHADOWED)
        turn = CdcTurns(run, source)
        plan = turn.plan(statements)
        for number, kind in enumerate(source.deck(statements)):
            for act in plan.get(number, ()):
                act()
            turn.do(kind)
            if number % 25 == 0:
                run.look_after()
        run.finish(SHADOWED)
        run.counts.update({f"statement: {kind}": count for kind, count in source.effects.items()})
        run.counts["placeholders"] = sum(copy.placeholders for copy in run.copies.values())
        rare = {kind: source.effects[kind] for kind in source.kinds if source.effects[kind] < statements // 100}
        assert not rare, f"too seldom of {statements} statements: {rare}"
        assert run.counts["placeholders"] > 0
    return run.counts


SHADOWED = {"fulls": "shadow"}
"""Tables whose copies have rows that a TRUNCATE took: the table that has those too."""


class CdcTurns:
    """What happens beside statements, and when."""

    def __init__(self, run: CdcSoak, source: Statements) -> None:
        self._run, self._source = run, source
        self._later: list[str] = []
        """Kinds that wait for Connect."""

    def plan(self, statements: int) -> dict[int, list[Callable[[], None]]]:
        """By number of statement, what is done before it."""
        run = self._run
        plan: dict[int, list[Callable[[], None]]] = {}
        for tenth in range(1, QUIET_POINTS):
            plan.setdefault(statements * tenth // 10, []).append(self._quiet)
        away = max(statements // 40, 10)
        for at, end in ((15, run.worker.stop), (35, run.worker.kill), (55, run.worker.stop), (85, run.worker.stop)):
            place = statements * at // 100
            plan.setdefault(place, []).append(end)
            plan.setdefault(place + away, []).append(self._start_connect)
        if run.form == "avro":
            plan.setdefault(statements * 65 // 100, []).append(self._silence)
        return plan

    def _start_connect(self) -> None:
        self._run.worker.start()
        later, self._later = self._later, []
        for kind in later:
            self.do(kind)

    def do(self, kind: str) -> None:
        """Run a statement of the kind, if need be after others by which it can have an effect."""
        if kind == "widen":
            self._widen()
            return
        for _ in range(50):
            if self._source.run(kind):
                return
            full = "full " if kind.startswith(("full", "truncate")) else ""
            self._source.run(full + self._run.rng.choice(["insert", "delete"]))
        raise AssertionError(f"{kind} has no effect")

    def _widen(self) -> None:
        """Widen a column in the Lance table, and then at the source.  The copy must know the column."""
        run, source = self._run, self._source
        known = run.copies["things"].columns()
        column = next((name for name, type_ in source.extras.items() if type_ == "int" and name in known), None)
        if column is None and not run.worker.running:
            self._later.append("widen")  # no ingest will know a column before Connect is there again
            return
        if column is None:
            source.run("add int")
            run.mark()
            column = next(reversed(source.extras))
            run.until(lambda: column in run.copies["things"].columns())
        run.copies["things"].lancewal.succeed("table", "alter", "--widen-column", f"{column}: int64")
        # Until the flusher has written the column again, a large value is a bad record.
        run.until(lambda: run.copies["things"].columns()[column] == "int64")
        source.widen(column)

    def _quiet(self) -> None:
        since = time.monotonic()
        self._run.check(SHADOWED)
        rows = sum(self._source.effects.values())
        print(f"{time.strftime('%H:%M:%S')} {rows} statements: equal, {time.monotonic() - since:.0f} s", flush=True)

    def _silence(self) -> None:
        """The registry answers nobody, while records have a schema that no ingest has seen."""
        run, copy = self._run, self._run.copies["things"]
        ingest = copy.slots["ingest"]
        ingest.service.freeze()
        self._source.run("add int")
        run.connection.execute(b"UPDATE things SET name = 'silence'")
        run.mark()
        run.servers.registry.freeze()
        ingest.service.thaw()
        run.until(lambda: _waits(ingest.service.lines))
        for _ in range(50):
            self._source.run("update")
            self._source.run("full update")
        run.servers.registry.thaw()
        run.counts["registry outages"] += 1


def _waits(lines: Sequence[Mapping[str, Any]]) -> bool:
    return any("registry_unavailable" in json.dumps(line) for line in lines)


# -- cases -------------------------------------------------------------------------------------------------------

ROWS = "CREATE TABLE rows (id int PRIMARY KEY, note text)"
COLUMNS = {"id": "int64", "note": "string"}


def _change(run: CdcSoak, count: int) -> None:
    """Random statements for the table of the cases."""
    for _ in range(count):
        key, note = run.rng.randrange(1, KEYS), f"n{run.rng.randrange(10**6)}"
        statement = run.rng.choice(
            [
                f"INSERT INTO rows VALUES ({key}, '{note}') ON CONFLICT (id) DO UPDATE SET note = excluded.note",
                f"UPDATE rows SET note = '{note}' WHERE id % 5 = {key % 5}",
                f"DELETE FROM rows WHERE id = {key}",
            ]
        )
        run.counts["statements"] += 1
        run.connection.execute(statement.encode())


def key_schema(servers: CdcServers, form: str, seed: int, statements: int) -> Counter[str]:
    run = CdcSoak(servers, form, seed, {"rows": ROWS})
    with ExitStack() as stack:
        stack.callback(lambda: run.end())
        run.worker.start()
        copy = run.follow("rows", COLUMNS)
        _change(run, statements)
        run.check()
        before = run.of_postgres("rows")
        run.connection.execute(b"ALTER TABLE rows ALTER COLUMN id TYPE bigint")
        _change(run, statements)
        if form == "json":
            run.finish()
            return run.counts
        run.connection.execute(f"UPDATE rows SET note = 'all' WHERE id < {KEYS}".encode())
        run.mark()
        ingest = copy.slots["ingest"].service

        def stopped() -> bool:
            kinds = {line["partition"]: line["kind"] for line in ingest.logged("partition_stopped")}
            assert set(kinds.values()) <= {"key_form_changed"}, kinds
            return len(kinds) == PARTITIONS

        run.until(stopped)
        compare("rows", copy.rows(), before, sparse=False)
        run.counts["partitions stopped"] = PARTITIONS
        run.worker.stop()
        run.copies.clear()
        stack.callback(copy.end)
        copy.stop()
        run.prefix = "again"
        run.worker = run._worker(run.prefix)
        run.worker.start()
        run.follow("rows", COLUMNS)
        _change(run, statements)
        run.finish()
    return run.counts


def compacted(servers: CdcServers, form: str, seed: int, statements: int) -> Counter[str]:
    run = CdcSoak(servers, form, seed, {"rows": ROWS})
    topic = f"{run.prefix}.public.rows"
    config = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    make_topics(servers.broker.bootstrap_servers, {topic: PARTITIONS}, config)
    with ExitStack() as stack:
        stack.callback(run.end)
        run.worker.start()
        read = reading(form, servers.registry)

        def bare() -> int:
            """How many tombstones are alone."""
            deletes: set[tuple[int, int]] = set()
            tombstones: set[tuple[int, int]] = set()

            def take(message: Any) -> None:
                place = (message.partition(), message.offset())
                if message.value() is None:
                    tombstones.add((place[0], place[1] - 1))
                elif read(topic, message.value())["op"] == "d":
                    deletes.add(place)

            records = TopicRecords(servers.broker, topic, take)
            try:
                records.read_on()
            finally:
                records.close()
            return len(tombstones - deletes)

        alone = 0

        def enough() -> bool:
            nonlocal alone
            _change(run, max(statements // 10, 20))
            time.sleep(0.5)  # a segment must be older than that
            alone = bare()
            return run.counts["statements"] >= statements and alone >= min(KEYS // 10, 10)

        until(enough, timeout_s=120)
        run.follow("rows", COLUMNS, patches=False)
        run.check()
        run.counts["tombstones alone"] = alone
        _change(run, statements)
        run.finish()
    return run.counts


def slot(servers: CdcServers, form: str, seed: int, statements: int) -> Counter[str]:
    run = CdcSoak(servers, form, seed, {"rows": ROWS})
    with ExitStack() as stack:
        stack.callback(run.end)
        run.worker.start()
        copy = run.follow("rows", COLUMNS)
        _change(run, statements)
        run.check()
        before = run.of_postgres("rows")
        run.worker.stop()

        def free() -> bool:
            active = run.connection.execute(b"SELECT active FROM pg_replication_slots").fetchall()
            return active == [(False,)]

        run.until(free)
        run.connection.execute(b"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        (run.worker.directory / "offsets").unlink()
        _change(run, statements)
        run.connection.execute(b"DELETE FROM rows WHERE id % 3 = 0")
        meanwhile = run.of_postgres("rows")
        run.worker.start()
        stay = {key: row for key, row in before.items() if key not in meanwhile}
        assert len(stay) > 5
        run.mark()
        compare("rows", run.rows_at_end(copy), {**stay, **run.of_postgres("rows")}, sparse=False)
        run.counts["rows that stay"] = len(stay)
    return run.counts


CASES: Mapping[str, Callable[[CdcServers, str, int, int], Counter[str]]] = {
    "key-schema": key_schema,
    "compacted": compacted,
    "slot": slot,
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak cdc", description=__doc__)
    parser.add_argument("--statements", type=int, default=10_000)
    parser.add_argument("--form", choices=sorted(FORMATS), default="json", help="of the records")
    parser.add_argument("--case", choices=sorted(CASES), default=None, help="one of these in place of the soak")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--folder", type=Path, default=None, help="where logs stay; default: a temporary folder")
    given = parser.parse_args(arguments)
    if given.case == "compacted" and given.form != "json":
        parser.error(
            "--case compacted needs --form json: with other keys ingest waits for `lancewal offset accept-loss`"
        )
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lancewal-cdc-"))
    folder.mkdir(parents=True, exist_ok=True)
    what = given.case or "soak"
    print(f"seed {given.seed}, {what}, {given.statements} statements, {given.form}, {folder}", flush=True)
    began, failed = time.monotonic(), 0
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(folder / "kafka"))
        registry = stack.enter_context(RegistryServer(folder / "registry"))
        postgres = PostgresServer()
        postgres.options["wal_level"] = "logical"
        stack.enter_context(postgres)
        postgres.run(f"CREATE DATABASE {DATABASE}")
        run = CASES.get(given.case, soak)
        try:
            counts = run(CdcServers(broker, postgres, registry, folder), given.form, given.seed, given.statements)
        except (AssertionError, LancewalError, StackFailed) as error:
            failed = 1
            print(f"DOES NOT HOLD: {type(error).__name__}: {str(error)[:6000]}", flush=True)
        print(json.dumps({**counts, "failed": failed, "seconds": round(time.monotonic() - began)}), flush=True)
    return failed
