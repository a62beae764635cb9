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
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lancewal_core.errors import LancewalError
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.processes import StackFailed
from lancewal_demo.stack.registry import RegistryServer
from tests.soak.cdc_tables import (
    DATABASE,
    PARTITIONS,
    CdcServers,
    CdcSoak,
    compare,
)
from tests.support.connectors import FORMATS, TopicRecords, reading
from tests.support.postgres import PostgresServer
from tests.support.postgres_statements import FULLS, KEYS, THINGS, Statements
from tests.support.topics import make_topics
from tests.support.whole_path import until

QUIET_POINTS = 10

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
        for tenth in range(1):
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
