"""A soak of columns that change: the real command, ingest and flusher, killed at each step, beside an independent oracle.

``python3 dev.py soak columns --runs 30 [--changes 10] [--seed N] [--spark-every 5]``: a Kafka broker, and for each run a
table in a local folder, two ingest processes and a flusher.  Producers use old and new columns all the time, also names that
were renamed or dropped, and those that come back.  A change is a call of ``lancewal table alter`` with one to three options:
columns and members of structs and of lists of structs are added, renamed, dropped, widened, and old names are forgotten.
Commands run to their end, two at once, are killed or stopped before and after each step of the protocol, and then run again
or given up.  Services are killed at failpoints and at any moment.

The oracle (``column_model``) knows fields by numbers of its own.  It asks the store for one fact alone: by which version of
the contract each entry took its records.

 1. Each version of the contract is what a command or a widening makes of the one before.
 2. Each read has the names, types, order and cells of the oracle.  While a change is unfinished it has those before or after
    it, or of the table in between; cells of a field that is being dropped do not count then.
 3. pylance shows what the reader shows of a merged version, and so does Spark at the end of a run.
 4. Each receipt gives the same columns and rows as the first time, until the end of the run.
 5. No read fails.  There are exactly the dead letters that were asked for: records with a name that was forgotten.  No process
    ends but by a kill of ours.

Exit code 0 only if all of it held.  The seed repeats the draws, not their exact moments.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import signal
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from lancewal_core.errors import LancewalError
from lancewal_core.names import paths
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract, read_contract_version
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.table import open_table
from tests.soak.column_draws import Changes, ColumnFeed, first_columns
from tests.soak.column_model import Change, Columns, Row
from tests.soak.journal import Journal
from tests.soak.letters import letters_found
from tests.support.spark import LocalSpark, local_spark
from tests.support.whole_path import Life, Service, Slot, until
from tests.whole_path.feed import Key, Record
from tests.whole_path.world import make_world, positions

COMMAND = [
    f"{step}:{when}" for step in ("columns.grow", "contract.put", "columns.bring") for when in ("before", "after")
]
"""Where a command is killed or stopped; its first step 1 and step 4 are ``columns.bring``."""
INGEST = {
    "poll": 60, "decode": 20, "wal.put": 20, "memtable.apply": 20, "offset.commit": 4, "log.walk": 2, "fence.put": 1,
    "claim.cas": 2, "seal.cas": 6, "snapshot.write": 6, "flushed.cas": 6,
}  # fmt: skip
"""Failpoints, and at most at which passing."""
FLUSHER = {
    "plan.pin": 8, "fragment.write": 4, "dv.write": 4, "commit.send": 5, "commit.recv": 5, "merges.put": 5, "merged.cas": 5,
    "keys.cas": 4, "columns.widen": 1, "contract.put": 1, "columns.bring": 1,
}  # fmt: skip
PATIENCE_S = 12.0
"""A process that has not met its failpoint by then is killed where it is."""
RECEIPTS = 12


@dataclass(slots=True)
class Known:
    """What the oracle knows: each version of the contract, what may be under way, and who took which records."""

    versions: dict[int, Columns] = field(default_factory=lambda: {1: first_columns()})
    pending: list[list[Change]] = field(default_factory=list)
    """Calls of the command that may yet store their contract."""
    tables: list[Columns] = field(default_factory=lambda: [first_columns()])
    """What the table may look like.  Until the next change has ended, it may have fields of one that was given up, behind
    those of the contract.  No record sets them, so they are null."""
    entries: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """By partition, entries of the log: first and next position, and version of the contract."""
    seen: set[str] = field(default_factory=set)

    @property
    def newest(self) -> Columns:
        return self.versions[max(self.versions)]

    @property
    def ways(self) -> list[Columns]:
        """Columns by which records may be read from now on."""
        found = [self.newest, *(self.newest.after(call) for call in self.pending)]
        if len(self.pending) > 1:
            found.append(self.newest.after([change for call in self.pending for change in call]))
        return found

    @property
    def ever(self) -> set[int]:
        """Numbers of the fields that some version of the contract has."""
        return {f.number for columns in self.versions.values() for _, f in columns.all()}

    def begin(self, *calls: list[Change]) -> None:
        self.pending += calls
        self._spread()

    def end(self) -> None:
        """All commands have done what they were to do.  The table has the columns of the contract, and no others."""
        assert not self.pending, f"not in the contract after the command: {self.pending}"
        self.tables = [self.newest]

    def give_up(self) -> None:
        self.pending.clear()

    def look(self, uri: str) -> None:
        """Read new versions of the contract, and new entries."""
        store = open_store(uri)
        newest = read_contract(store, uri)
        for version in range(max(self.versions) + 1, newest.version + 1):
            contract = read_contract_version(store, newest, version)
            for call in [None, *self.pending]:
                found = (self.newest if call is None else self.newest.after(call)).fitting(contract)
                if found is not None:
                    break
            else:
                raise AssertionError(
                    f"version {version} of the contract is {contract}, after {self.newest} and by {self.pending}"
                )
            self.versions[version] = found
            if call is not None:
                self.pending.remove(call)
            at_rest = not self.pending and call is None and len(self.tables) == 1
            self.tables = [found] if at_rest else _distinct([*self.tables, *self._brought()])
            self._spread()
        for info in store.list("_lancewal/wal/"):
            if info.key in self.seen or paths.parse_wal_segment(info.key) is None:
                continue
            data = store.get(info.key)
            assert data is not None
            self.seen.add(info.key)
            segment = decode_segment(data, info.key)
            for entry in segment.entries if isinstance(segment, Segment) else ():
                known = self.entries.setdefault(entry.region.partition, [])
                known.append((int(entry.first), int(entry.next), entry.contract_version))
                known.sort()

    def version_of(self, partition: int, offset: int) -> int:
        known = self.entries.get(partition, [])
        at = bisect_right(known, (offset, 1 << 62, 0)) - 1
        assert at >= 0, f"no entry has partition {partition} offset {offset}"
        assert known[at][0] <= offset < known[at][1], f"no entry has partition {partition} offset {offset}"
        return known[at][2]

    def _brought(self) -> list[Columns]:
        """What the table, and a read with records of the newest contract, may look like from then on.  Fields of a change that
        was given up stay until the contract has named their ids."""
        gone = self.ever - {f.number for _, f in self.newest.all()}
        brought = [table.grown_to(self.newest).without(gone) for table in self.tables]
        shown = [self.newest.with_others_of(table).without(gone) for table in self.tables]
        return _distinct([self.newest, *brought, *shown])

    def _spread(self) -> None:
        """Add what pending calls may make of the table, in any order."""
        count = 0
        while count < len(self.tables):
            count = len(self.tables)
            for call in self.pending:
                after = self.newest.after(call)
                dropped = {f.number for _, f in self.newest.all()} - {f.number for _, f in after.all()}
                grown = [table.grown_to(after) for table in self.tables]
                shrunk = [table.without(dropped) for table in grown]
                self.tables = _distinct([*self.tables, *grown, *shrunk])


def _distinct(tables: Sequence[Columns]) -> list[Columns]:
    return [table for place, table in enumerate(tables) if table not in tables[:place]]


@dataclass(frozen=True, slots=True)
class Kept:
    """A read, as it was the first time."""

    receipt: Receipt
    schema: list[tuple[str, str]]
    rows: list[Any]
    merged: bool

    @staticmethod
    def of(table: pa.Table, *, merged: bool) -> Kept:
        return Kept(receipt_of(table.schema), _schema(table), _rows(table), merged)


class ColumnSoak:
    """One run: a table, its processes, and its changes."""

    def __init__(self, broker: KafkaBroker, folder: Path, seed: int, spark: LocalSpark | None) -> None:
        self.rng = random.Random(f"columns {seed}")
        self.counts: Counter[str] = Counter()
        self.known = Known()
        self.world = make_world(
            broker, f"columns-{seed}", folder, seed,
            in_process=True,
            table={
                "columns": {f.name: f.text for f in self.known.newest.fields},
                "history_window_s": 3600,
                "grace_s": 20,
            },
            ingest={"linger_ms": 60, "seal_rows": 80, "seal_age_s": 1.0},
            flusher={"merge_interval_s": 0.4, "gc_interval_s": 5.0},
        )  # fmt: skip
        self.feed = ColumnFeed(self.world.servers, self.world.feed.topic, seed, self._views)
        self.world.feed = self.feed
        self._changes = Changes(self.rng)
        self._spark = spark
        self._freed: dict[tuple[int, str], tuple[int, float]] = {}
        """Names that fields have lost: the version of the contract since then, and when the oracle knew that."""
        self._left: set[tuple[int, str]] = set()
        """Names that the table may have of a change that was given up."""
        self._letters: set[str] = set()
        self._kept: list[Kept] = []
        self._log = Journal(folder / "columns.jsonl")
        self._slots = [
            self._slot("ingest", INGEST, 3),
            self._slot("ingest", INGEST, 2),
            self._slot("flusher", FLUSHER, 5),
        ]

    def run(self, changes: int) -> None:
        self.feed.produce(200)
        self._turn()
        while self.counts["changes"] < changes:
            self._change()
            for _ in range(self.rng.randint(0, 2)):
                self._turn()
        self._finish()

    # -- changes -------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        known = self.known
        known.look(self.world.uri)
        before = known.newest
        free = [key for key, since in self._freed.items() if key not in self._left and self._taken_up(*since)]
        call = self._changes.draw(before, free, self.rng.choice([1, 1, 2, 3]))
        if not call:
            return
        given = {(self._place(before, c), c.to or c.path[-1]) for c in call if c.act in ("add", "rename")}
        forgotten = {(self._place(before, c), c.path[-1]) for c in call if c.act == "forget"}
        self.feed.unused = (given & self._freed.keys()) | forgotten
        if self.feed.unused:
            # Records that are under way mean the old field.
            self._until_caught_up()
        way = self.rng.choices(["run", "kill", "stop", "two"], [40, 30, 20, 10])[0]
        self.counts[f"way: {way}"] += 1
        calls = [call]
        if way == "two":
            columns = {c.path[0] for c in call} | {c.to for c in call}
            other = self._changes.draw(before, [], 1, columns)
            calls += [other] if other and other[0].act != "forget" else []
        self._log.note("change", way=way, calls=[[c.option for c in one] for one in calls])
        known.begin(*calls)
        self._run(way, calls)
        known.look(self.world.uri)
        if known.pending:
            self.counts["given up"] += 1
            self._left |= given
            known.give_up()
        else:
            known.end()
            self.counts["changes"] += len(calls)
            self.counts.update(change.act for one in calls for change in one)
        self.feed.unused = set()
        self._free_names(before)
        for place, name in forgotten:
            if place == 0 and known.newest.number_of(0, name) is None:
                self._send_letter(name)

    def _run(self, way: str, calls: Sequence[Sequence[Change]]) -> None:
        """Run the commands, to their end or until they are given up."""
        commands = [("table", "alter", *(word for change in call for word in change.option)) for call in calls]
        if way in ("run", "two"):
            for service in [self.world.lancewal.start(*command) for command in commands]:
                self._await_end(service)
            return
        (command,) = commands
        at = self.rng.choice(COMMAND)
        service = self.world.lancewal.start(*command, failpoint=f"{at}={'kill' if way == 'kill' else 'stop'}")
        until(lambda: not service.running or service.frozen, lambda: service.tail)
        if service.running:
            for _ in range(self.rng.randint(1, 3)):
                self._turn()
            if self.rng.random() < 0.5:
                service.kill()
                self._count_kill("command", at)
            else:
                service.thaw()
                self._await_end(service)
                return
        elif service.exit_code == -signal.SIGKILL:
            self._count_kill("command", at)
        else:
            self._await_end(service)
            return
        self._turn()
        self.known.look(self.world.uri)
        if self.known.pending and self.rng.random() < 0.3:
            return
        self._await_end(self.world.lancewal.start(*command))

    def _await_end(self, service: Service) -> None:
        until(lambda: not service.running, lambda: service.tail)
        assert service.exit_code == 0, f"{service.name} ended with {service.exit_code}\n{service.tail}"

    def _place(self, columns: Columns, change: Change) -> int:
        """The number of the struct of a change."""
        return next((f.number for f in columns.fields if f.name == change.path[0]), 0) if len(change.path) > 1 else 0

    def _free_names(self, before: Columns) -> None:
        now = {(place, f.name) for place, f in self.known.newest.all()}
        for place, lost in before.all():
            if (place, lost.name) not in now:
                self._freed[place, lost.name] = max(self.known.versions), time.monotonic()
        for name in now & self._freed.keys():
            del self._freed[name]

    def _taken_up(self, version: int, known_at: float) -> bool:
        """Whether all members know this version of the contract."""
        return all(
            slot.service.started_at > known_at
            or any(line["contract_version"] >= version for line in slot.service.logged("contract_taken_up"))
            for slot in self._slots[:2]
        )

    def _send_letter(self, name: str) -> None:
        version, since = max(self.known.versions), time.monotonic()

        def taken_up() -> bool:
            self._look_after()
            return self._taken_up(version, since)

        # A member that knows only a contract with the column takes a record with its name.
        until(taken_up, lambda: self.world.lancewal.tails)
        value = json.dumps({"customer": "customer-1", "id": 1, name: None}).encode()
        partition, offset = self.feed.send_raw(value, b"customer-1")
        self._letters.add(f"{self.feed.topic}-{partition}-{offset}")
        self.counts["letters"] += 1

    # -- audits --------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Records come, processes are looked after, and reads are compared."""
        self.feed.produce(self.rng.randrange(20, 80))
        self._look_after()
        self._audit()
        self._look_after()

    def _audit(self) -> None:
        before = list(self.known.tables)
        table = open_table(self.world.uri)
        for consistency in ("strong", "eventual"):
            merged = consistency == "eventual"
            rows = table.to_arrow(consistency="eventual" if merged else "strong")
            self.known.look(self.world.uri)
            self._check(rows, [*before, *self.known.tables], consistency)
            kept = Kept.of(rows, merged=merged)
            if merged:
                self._check_lance(kept)
            if len(self._kept) < RECEIPTS:
                self._kept.append(kept)
            elif self.rng.random() < 0.3:
                self._kept[self.rng.randrange(RECEIPTS)] = kept
        self._check_again(self.rng.choice(self._kept))

    def _check(self, rows: pa.Table, allowed: Sequence[Columns], what: str) -> None:
        self.counts["reads"] += 1
        cut = positions(receipt_of(rows.schema))
        fitting = [columns for columns in allowed if columns.shows(rows.schema)]
        assert fitting, f"{what}: a read has {_schema(rows)}, expected one of {[_names(c) for c in allowed]}"
        expected = self._fold(cut)
        found = {(row["customer"], row["id"]): row for row in rows.to_pylist()}
        assert len(found) == rows.num_rows, f"{what}: keys are there twice"
        wrong = [self._difference(found, expected, columns) for columns in fitting]
        if all(wrong):
            raise AssertionError(f"{what} read, cut {cut}: {wrong[0]}")

    def _difference(self, found: Mapping[Key, Any], expected: Mapping[Key, Row], columns: Columns) -> str:
        """How rows differ from the oracle, in fields that are not being dropped; empty: they do not."""
        dropped = self.known.ever - {f.number for _, f in self.known.newest.all()}
        gone = {(place, f.name) for place, f in columns.all() if f.number in dropped}
        if found.keys() != expected.keys():
            return f"keys {sorted(found.keys() ^ expected.keys())[:5]} are in one of them"
        for key, row in expected.items():
            shown = columns.shown(row)
            if _without(columns, shown, gone) != _without(columns, found[key], gone):
                lines = [self._entry_of(p, o, r) for p, o, r in self._records_of(key)]
                return "\n".join([f"{key}", f"read     {found[key]}", f"expected {shown}", *lines])
        return ""

    def _records_of(self, key: Key) -> list[tuple[int, int, Record]]:
        records = self.feed.history.records.items()
        return [
            (p, o, r) for p, offsets in records for o, r in sorted(offsets.items()) if r is not None and r.key == key
        ]

    def _entry_of(self, partition: int, offset: int, record: Record) -> str:
        try:
            version: object = self.known.version_of(partition, offset)
        except AssertionError as error:
            version = error
        return f"{partition}@{offset} by {version}: {record.operation} {dict(record.columns)}"

    def _fold(self, cut: Mapping[int, int]) -> dict[Key, Row]:
        table: dict[Key, Row] = {}
        for partition, offsets in self.feed.history.records.items():
            for offset in sorted(offsets):
                record = offsets[offset]
                if offset >= cut.get(partition, 0) or record is None:
                    continue
                columns = self.known.versions[self.known.version_of(partition, offset)]
                if record.operation == "delete":
                    table.pop(record.key, None)
                elif record.operation == "upsert":
                    table[record.key] = columns.upserted(record.columns)
                else:
                    table[record.key] = {**table.get(record.key, {}), **columns.cells(record.columns)}
        return table

    def _check_lance(self, kept: Kept) -> None:
        """pylance has the same cells; while a change is unfinished, in the columns that both show."""
        plain = lance.dataset(self.world.uri, version=kept.receipt.version).to_table()
        shown = [column for column in kept.schema if column in _schema(plain)]
        if len(self.known.tables) == 1:
            assert _schema(plain) == kept.schema, f"pylance {_schema(plain)}, reader {kept.schema}"
        names = [name for name, _ in shown]
        assert _picked(_rows(plain), names) == _picked(kept.rows, names), f"pylance, version {kept.receipt.version}"

    def _check_again(self, kept: Kept) -> None:
        self.counts["receipts"] += 1
        again = Kept.of(open_table(self.world.uri).to_arrow(at=kept.receipt), merged=kept.merged)
        assert again.schema == kept.schema, f"receipt {kept.receipt}: {again.schema}, first {kept.schema}"
        assert again.rows == kept.rows, f"receipt {kept.receipt}: other rows than the first time"
        if kept.merged:
            plain = lance.dataset(self.world.uri, version=kept.receipt.version).to_table()
            names = [name for name, _ in kept.schema if name in plain.column_names]
            assert _picked(_rows(plain), names) == _picked(kept.rows, names), f"pylance, version {kept.receipt.version}"

    def _check_spark(self, kept: Kept) -> None:
        assert self._spark is not None
        rows = self._spark.read(self.world.uri, at=str(kept.receipt)).toArrow()
        assert rows.column_names == [name for name, _ in kept.schema], f"Spark {rows.schema}, reader {kept.schema}"
        assert _rows(rows) == kept.rows, f"Spark has other rows at receipt {kept.receipt}"
        self.counts["Spark reads"] += 1

    # -- processes -----------------------------------------------------------------------------------------------

    def _slot(self, command: str, failpoints: Mapping[str, int], count: int) -> Slot:
        rng = self.rng
        points = rng.sample(sorted(failpoints), count)
        lives = [Life(f"{p}:{rng.choice(['before', 'after'])}:{rng.randint(1, failpoints[p])}") for p in points]
        return Slot(self.world.lancewal, (command, "run"), [*lives, Life(after_s=rng.uniform(1, 10))], PATIENCE_S)

    def _look_after(self) -> None:
        for slot in self._slots:
            kill = slot.tick()
            if kill is not None:
                self._count_kill(kill.name.partition("-")[2], kill.reached or "any moment")

    def _count_kill(self, who: str, where: str) -> None:
        self.counts["kills"] += 1
        self.counts[f"kill: {who} {where}"] += 1
        self._log.note("kill", who=who, where=where)

    def _until_caught_up(self, consistency: str = "strong") -> None:
        def there() -> bool:
            self._look_after()
            return self.world.caught_up(consistency)

        until(there, lambda: f"{self.feed.history.ends}\n{self.world.lancewal.tails}", poll_s=0.1)

    def _views(self) -> tuple[Sequence[Columns], Sequence[Columns]]:
        return list(self.known.versions.values()), self.known.ways

    def _finish(self) -> None:
        self.feed.produce_everywhere()
        self._until_caught_up()
        self._audit()
        self._stop()
        self.world.merge_all()
        self._audit()
        for kept in self._kept:
            self._check_again(kept)
        if self._spark is not None:
            self._check_spark(self._kept[-1])
            self._check_spark(self.rng.choice(self._kept))
        self.world.verify()
        found = letters_found(self.world.servers, self.feed.topic, len(self._letters))
        assert found == self._letters, f"dead letters {found}, expected {self._letters}"

    def _stop(self) -> None:
        """End the services well.  A failpoint may kill one meanwhile: its successor ends once it has taken over."""
        while self._slots:
            if _ends_well(self._slots[-1].service):
                del self._slots[-1]
                continue
            self._look_after()
            self.feed.produce_everywhere()
            self._until_caught_up()

    def end(self) -> None:
        for slot in self._slots:
            if slot.service.running:
                slot.service.kill()
        self._log.close()


def _ends_well(service: Service) -> bool:
    """End a service; False if something else has ended it.  One that has just started does not know the signal yet."""
    until(lambda: bool(service.events) or not service.running, lambda: service.tail)
    if service.running:
        service.terminate()
        until(lambda: not service.running, lambda: service.tail)
        return service.exit_code == 0
    return False


def _schema(table: pa.Table) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in table.schema]


def _names(columns: Columns) -> list[tuple[str, str]]:
    return [(f.name, f.text if f.text == f.wide_text else f"{f.text} or {f.wide_text}") for f in columns.fields]


def _rows(table: pa.Table) -> list[Any]:
    return sorted(table.to_pylist(), key=lambda row: (row["customer"], row["id"]))


def _picked(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]


def _without(columns: Columns, row: Mapping[str, Any], gone: set[tuple[int, str]]) -> dict[str, Any]:
    """A row without these columns and members."""
    found = {}
    for column in columns.fields:
        if (0, column.name) in gone:
            continue
        inner = {name for place, name in gone if place == column.number}
        found[column.name] = _less(row[column.name], inner) if inner else row[column.name]
    return found


def _less(cell: Any, inner: set[str]) -> Any:
    if isinstance(cell, list):
        return [_less(one, inner) for one in cell]
    return None if cell is None else {name: value for name, value in cell.items() if name not in inner}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak columns", description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--changes", type=int, default=10, help="in each run")
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(1_000_000), help="of the first run; the others follow"
    )
    parser.add_argument(
        "--spark-every", type=int, default=5, help="Spark reads at the end of each such run; 0: of none"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where logs stay; default: a temporary folder")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lancewal-columns-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, {given.runs} runs of {given.changes} changes, {folder}", flush=True)
    total: Counter[str] = Counter()
    began, failed = time.monotonic(), 0
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(folder / "kafka"))
        spark = stack.enter_context(local_spark(folder)) if given.spark_every else None
        for number in range(given.runs):
            seed, since = given.seed + number, time.monotonic()
            place = folder / f"run-{seed}"
            place.mkdir()
            with_spark = spark if given.spark_every and (number + 1) % given.spark_every == 0 else None
            soak = ColumnSoak(broker, place, seed, with_spark)
            try:
                soak.run(given.changes)
            except (AssertionError, LancewalError) as error:
                failed += 1
                print(f"DOES NOT HOLD: seed {seed}: {type(error).__name__}: {str(error)[:4000]}", flush=True)
            finally:
                soak.end()
                total += soak.counts
                total["runs"] += 1
            told = {name: soak.counts[name] for name in ("changes", "kills", "reads", "receipts")}
            print(f"{time.strftime('%H:%M:%S')} seed {seed}: {told}, {time.monotonic() - since:.0f} s", flush=True)
        print(json.dumps({**total, "failed": failed, "seconds": round(time.monotonic() - began)}), flush=True)
    return 1 if failed else 0
