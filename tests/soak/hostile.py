"""A soak among enemies: producers, writers of the folder and HTTP clients that mean no good, and a broker that goes away.

``python3 dev.py soak hostile --minutes 10 [--seed N] [--only ACT]``: a Kafka broker, one ingest with the default budget of
512 MiB, one flusher, a local folder.  Rows of an honest producer come all the time, and one hostile act follows the other.

1. No process ends, and none writes a traceback.
2. Resident memory of each stays below its budget + 300 MiB, by the peak that the kernel keeps.
3. Every strong read is the fold of the records that its receipt names, or, while an object is damaged, an error of ours by
   name.  Behind each act the honest rows come through.
4. What is bad is named: a stopped partition in ``/readyz``, each record that is no row in a dead letter of its own, whatever
   headers it had.

It goes on behind what does not hold, and prints it all: a table of what was done, how often, and the peaks; exit code 1 if
anything did not hold.  The seed repeats the acts, not their exact moments.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from lancewal_core.errors import LancewalError
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.soak.letters import letters_found
from tests.support import hostile_records
from tests.support.hostile_clients import CLIENTS, answer
from tests.support.hostile_objects import ACTS, KINDS, Changed, change
from tests.support.hostile_records import (
    CODECS,
    LETTERS,
    ROWS,
    STOPS,
    WIDE_COLUMNS,
    Batch,
    Sender,
    names_not_utf8,
    of_1970,
)
from tests.support.memory_watch import forget_peak, peak_bytes
from tests.support.whole_path import Service, until
from tests.whole_path.feed import COLUMNS, PARTITIONS
from tests.whole_path.test_lost_replies import metric
from tests.whole_path.world import World, make_world, positions

MIB = 1 << 20
BUDGET = 512 * MIB
BESIDE = 300 * MIB
PATIENCE_S = 120.0
"""So long honest rows may take behind an act."""
STOPPABLE = PARTITIONS - 1
"""The partition that gets records which stop one."""
DAMAGED_S = (2.0, 6.0)
"""How long an object stays damaged."""
_STANDS_S = 65.0
"""An open transaction is named after a minute."""
_FAULTS_MAX = 50

Act = Callable[[], tuple[int, str]]
"""How many there were, and what came of it."""


@dataclass(slots=True)
class Line:
    """Of the table: one kind of act."""

    times: int = 0
    count: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)


class HostileSoak:
    def __init__(self, broker: KafkaBroker, folder: Path, seed: int, only: str = "") -> None:
        self.rng = random.Random(f"hostile {seed}")
        self.lines: dict[str, Line] = {}
        self.faults: list[str] = []
        self.reads = 0
        self._seen: dict[str, int] = {}
        """How much of each log was looked at."""
        self._only = only
        self._broker = broker
        self._folder = folder
        self._world = self._made("orders", seed)
        self._other = self._other_table(seed)
        self._sender = Sender(broker.bootstrap_servers, self._world.feed.topic, self._world.feed.history)
        self._ports = dict(zip(("ingest", "flusher"), free_ports(2), strict=True))
        names = {"ingest": "LANCEWAL_HTTP__INGEST_PORT", "flusher": "LANCEWAL_HTTP__FLUSHER_PORT"}
        self._variables = {names[name]: str(port) for name, port in self._ports.items()}
        self._services = {name: self._start(name) for name in self._ports}

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self, minutes: float) -> None:
        self._come_through("the first rows")
        ends_at = time.monotonic() + minutes * 60
        deck: list[tuple[str, Act]] = []
        while time.monotonic() < ends_at:
            if not deck:
                deck = self._acts()
                self.rng.shuffle(deck)
            name, act = deck.pop()
            self._do(name, act)
        self._finish()

    def _acts(self) -> list[tuple[str, Act]]:
        """Each kind once, and as many damaged objects as all others together."""
        acts: list[tuple[str, Act]] = []
        acts += [(f"rows: {name}", partial(self._rows, name)) for name in ROWS]
        acts += [(f"no rows: {name}", partial(self._letters, name)) for name in LETTERS]
        acts += [("no rows: names of headers that are not UTF-8", self._odd_names)]
        acts += [("rows: times of 1970 while a member dies", self._member_dies)]
        acts += [(f"a stop: {name}", partial(self._stop, name)) for name in STOPS]
        acts += [(f"HTTP: {name}", partial(self._clients, name)) for name in CLIENTS]
        acts += [("a broker that goes away", self._broker_away), ("an open transaction", self._transaction)]
        hows = [self.rng.choice(ACTS) for _ in range(len(acts))]
        acts += [(f"an object: {how}", partial(self._object, how)) for how in hows]
        return [act for act in acts if self._only in act[0]]

    def _do(self, name: str, act: Act) -> None:
        line = self.lines.setdefault(name, Line())
        self._alive("before " + name)
        for service in self._services.values():
            forget_peak(service.pid)
        before = len(self.faults)
        began = time.monotonic()
        try:
            count, outcome = act()
            self._come_through(name)
        except (AssertionError, LancewalError, OSError) as error:
            exits = {which: service.exit_code for which, service in self._services.items()}
            self._fault(name, f"{type(error).__name__}: {error}; exit codes {exits}")
            count, outcome = 0, "did not hold"
        self._look_at_processes(name, line)
        line.times += 1
        line.count += count
        outcome = outcome if len(self.faults) == before else "did not hold"
        line.outcomes[outcome] = line.outcomes.get(outcome, 0) + 1
        took_s = time.monotonic() - began
        peaks = ", ".join(f"{key} {peak >> 20}" for key, peak in line.peaks.items())
        print(f"{time.strftime('%H:%M:%S')} {name}: {count}, {outcome}, {took_s:.1f} s, MiB: {peaks}", flush=True)

    # -- acts: how many, and what came of it ---------------------------------------------------------------------

    def _rows(self, name: str) -> tuple[int, str]:
        make, count = ROWS[name]
        codec = self.rng.choice(CODECS)
        if codec == "none":
            count //= 4
        return self._sender.send(Batch(codec, make(self.rng, count))), "rows"

    def _letters(self, name: str) -> tuple[int, str]:
        records = (LETTERS[name](self.rng) for _ in range(self.rng.randrange(5, 60)))
        return self._sender.send(Batch(self.rng.choice(CODECS), records)), "dead letters"

    def _odd_names(self) -> tuple[int, str]:
        partition = self.rng.randrange(PARTITIONS)
        return self._sender.send_by_hand(partition, list(names_not_utf8(self.rng, partition))), "dead letters"

    def _member_dies(self) -> tuple[int, str]:
        """What the dead member had is opened by the other one, though records of 1970 wait there: ingest is paused."""
        self._world.lancewal.succeed("pause", "ingest")
        ports = {"LANCEWAL_HTTP__INGEST_PORT": str(free_ports(1)[0])}
        second = self._world.lancewal.start("ingest", "run", environment=ports)
        half = PARTITIONS // 2
        try:
            self._await(lambda: self._shown("paused") == 1 and len(second.logged("partition_opened")) >= half)
            count = self._sender.send(Batch("none", of_1970(self.rng, 2_000)))
            ends = self._world.feed.history.ends
            # Its own partitions have been looked at since: it knows of records that wait.
            self._await(lambda: sum(self._shown("end_position", partition=str(p)) >= ends[p] for p in ends) >= half)
        finally:
            second.kill()
        self._await(lambda: self._shown("open_partitions") == PARTITIONS)
        self._world.lancewal.succeed("resume", "ingest")
        return count, "opened by the other member"

    def _await(self, condition: Callable[[], bool]) -> None:
        until(condition, lambda: self._readyz("ingest"), PATIENCE_S)

    def _shown(self, name: str, **labels: str) -> float:
        return metric(self._ports["ingest"], f"lancewal_ingest_{name}", **labels)

    def _stop(self, name: str) -> tuple[int, str]:
        make, kind = STOPS[name]
        count = self._sender.send(make(STOPPABLE))
        partition, offset = self._sender.not_rows[-1]
        assert partition == STOPPABLE
        expected = f"{kind}: partition {partition} stopped"
        until(lambda: expected in self._readyz("ingest"), lambda: self._readyz("ingest"), PATIENCE_S)
        self._come_through(f"{name}, the others", others=True)
        topic = self._world.feed.topic
        self._world.lancewal.succeed("offset", "reject", f"{topic}-{partition}-{offset}")
        self._services["ingest"].stop()
        self._services["ingest"] = self._start("ingest")
        return count, f"{kind}, led past"

    def _clients(self, name: str) -> tuple[int, str]:
        make, count = CLIENTS[name]
        port = self._ports[self.rng.choice(["ingest", "flusher"])]
        with make(port, count):
            began = time.monotonic()
            assert answer(port, "/livez") == (200, "ok\n")
            waited = time.monotonic() - began
            assert waited < 10, f"livez took {waited:.1f} s"
            self._come_through(name)
        return count, "livez 200, rows come through"

    def _broker_away(self) -> tuple[int, str]:
        self._broker.kill()
        time.sleep(self.rng.uniform(1, 20))
        self._broker.start()
        return 1, "waited out"

    def _transaction(self) -> tuple[int, str]:
        """Behind it nothing of its partition is read; all others go on."""
        producer = Producer(
            {"bootstrap.servers": self._broker.bootstrap_servers, "transactional.id": secrets.token_hex(4), "log_level": 2,
             "transaction.timeout.ms": 300_000}
        )  # fmt: skip
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(self._world.feed.topic, b"{}", partition=STOPPABLE)
        assert producer.flush(60) == 0
        began = time.monotonic()
        self._world.feed.produce_everywhere()
        self._come_through("an open transaction, the others", others=True)
        until(
            lambda: "after a transaction that is still open" in self._readyz("ingest"),
            lambda: self._readyz("ingest"),
            _STANDS_S + PATIENCE_S - (time.monotonic() - began),
            poll_s=1.0,
        )
        producer.abort_transaction(60)
        return 1, "named in readyz"

    def _object(self, how: str) -> tuple[int, str]:
        root = Path(self._world.uri)
        changed = None
        for what in self.rng.sample(sorted(KINDS), len(KINDS)):
            changed = change(root, Path(self._other.uri), what, how, self.rng)
            if changed is not None:
                break
        if changed is None:
            return 0, "nothing to change"
        try:
            named = self._live_with(changed)
        finally:
            changed.undo()
        return 1, f"{changed.what}: {named}"

    def _live_with(self, changed: Changed) -> str:
        """Who names it while it is there; every read is right or an error of ours."""
        named = set()
        until_ = time.monotonic() + self.rng.uniform(*DAMAGED_S)
        while time.monotonic() < until_:
            self._world.feed.produce(30)
            try:
                self._audit()
            except LancewalError as error:
                named.add(error.kind)
            for name in self._services:
                if changed.key in self._readyz(name):
                    named.add("readyz")
                assert answer(self._ports[name], "/livez")[0] == 200, f"livez of {name}"
            time.sleep(0.2)
        return " and ".join(sorted(named)) or "read by nobody"

    # -- what must hold ------------------------------------------------------------------------------------------

    def _audit(self, consistency: str = "strong") -> dict[int, int]:
        """A read equals the fold of what its receipt names; its cut."""
        table = open_table(self._world.uri)
        rows = table.to_arrow(columns=list(COLUMNS), consistency="strong" if consistency == "strong" else "eventual")
        receipt = receipt_of(rows.schema)
        self.reads += 1
        self._world.compare(rows.to_pylist(), positions(receipt), f"a {consistency} read of version {receipt.version}")
        return positions(receipt)

    def _come_through(self, name: str, *, others: bool = False) -> None:
        """Honest rows of every partition are read; ``others``: of all but the one that has stopped."""
        self._world.feed.produce_everywhere()
        ends = dict(self._world.feed.history.ends)
        if others:
            del ends[STOPPABLE]
        cut: dict[int, int] = {}
        said: list[str] = []

        def there() -> bool:
            self._alive(name)
            try:
                cut.update(self._audit())
            except LancewalError as error:
                said[:] = [str(error)]
                return False
            return _reached(cut, ends)

        def shown() -> str:
            ready = {name: self._readyz(name) for name in self._services}
            return f"after {name}: read {cut}, produced {ends}; {said}; {ready}"

        until(there, shown, PATIENCE_S, poll_s=0.3)

    def _alive(self, name: str) -> None:
        for which, service in self._services.items():
            if service.exit_code is not None:
                self._fault(name, f"{service.name} ended with {service.exit_code}: {service.tail[-3000:]}")
                self._services[which] = self._start(which)

    def _look_at_processes(self, name: str, line: Line) -> None:
        self._alive(name)
        for which, service in self._services.items():
            peak = peak_bytes(service.pid)
            line.peaks[which] = max(line.peaks.get(which, 0), peak)
            if which == "ingest" and peak > BUDGET + BESIDE:
                self._fault(name, f"{which} took {peak >> 20} MiB, {(peak - BUDGET) >> 20} over its budget")
            if "Traceback" in service.log[self._seen.get(service.name, 0) :]:
                at = service.log.index("Traceback", self._seen.get(service.name, 0))
                self._fault(name, f"{which} wrote a traceback: {service.log[at : at + 3000]}")
            self._seen[service.name] = len(service.log)

    def _fault(self, name: str, text: str) -> None:
        self.faults.append(f"{name}: {text}")
        print(f"DOES NOT HOLD: {name}: {text[:4000]}", flush=True)
        if len(self.faults) >= _FAULTS_MAX:
            raise SystemExit("too much does not hold")

    def _finish(self) -> None:
        self._come_through("the end")
        for name, service in self._services.items():
            service.stop()
            assert service.exit_code == 0, f"{name} ended with {service.exit_code}"
        for _ in range(8):
            self._world.lancewal.succeed("merge")
            ends = self._world.feed.history.ends
            cut = self._audit("eventual")
            if _reached(cut, ends):
                break
        else:
            raise AssertionError("eight rounds have left something unmerged")
        self._audit()
        expected = {f"{self._sender.topic}-{p}-{o}" for p, o in self._sender.not_rows}
        found = letters_found(self._broker.bootstrap_servers, self._sender.topic, len(expected), PATIENCE_S)
        if found != expected:
            self._fault("dead letters", f"missing {sorted(expected - found)[:9]}, false {sorted(found - expected)[:9]}")

    # -- the stage -----------------------------------------------------------------------------------------------

    def _made(self, topic: str, seed: int) -> World:
        folder = self._folder / topic
        folder.mkdir()
        return make_world(
            self._broker, topic, folder, seed,
            in_process=True,
            topic_config=hostile_records.TOPIC_CONFIG,
            table={"columns": dict(WIDE_COLUMNS), "history_window_s": 30, "grace_s": 20},
            ingest={"memory_bytes_max": BUDGET, "seal_rows": 20_000, "seal_age_s": 3.0, "linger_ms": 50},
            flusher={"merge_memory_bytes_max": BUDGET, "gc_interval_s": 5.0, "merge_interval_s": 4.0},
        )  # fmt: skip

    def _other_table(self, seed: int) -> World:
        """With objects of every kind, and its own rows."""
        world = self._made("others", seed + 1)
        ingest = world.lancewal.start("ingest", "run")
        for _ in range(3):
            world.feed.produce(400)
            until(lambda: _covers(world), lambda: ingest.tail)
        ingest.stop()
        world.lancewal.succeed("merge")
        return world

    def _start(self, name: str) -> Service:
        service = self._world.lancewal.start(name, "run", environment=self._variables)
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        until(lambda: self._answers(service, name), lambda: service.tail)
        return service

    def _answers(self, service: Service, name: str) -> bool:
        assert service.running, service.tail
        try:
            return answer(self._ports[name], "/livez")[0] == 200
        except OSError:
            return False

    def _readyz(self, name: str) -> str:
        return answer(self._ports[name], "/readyz")[1]


def _covers(world: World) -> bool:
    rows = open_table(world.uri).to_arrow(columns=["id"])
    return _reached(positions(receipt_of(rows.schema)), world.feed.history.ends)


def _reached(cut: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(cut.get(partition, 0) >= end for partition, end in ends.items())


def table_of(lines: dict[str, Line]) -> str:
    """In Markdown, as docs/reliability.md shows it."""
    rows = ["| what | times | how many | outcome | peak of ingest, flusher (MiB) |", "|---|---|---|---|---|"]
    for name, line in sorted(lines.items()):
        outcomes = "; ".join(f"{text} ({n})" if n > 1 else text for text, n in sorted(line.outcomes.items()))
        peaks = ", ".join(str(line.peaks.get(which, 0) >> 20) for which in ("ingest", "flusher"))
        rows.append(f"| {name} | {line.times} | {line.count:,} | {outcomes} | {peaks} |")
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--folder", type=Path, default=None, help="where logs stay; default: a temporary folder")
    parser.add_argument("--only", default="", help="a part of the name of the acts to take; default: all")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lancewal-hostile-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, {given.minutes:g} minutes, {folder}", flush=True)
    with KafkaBroker(folder / "kafka") as broker:
        soak = HostileSoak(broker, folder, given.seed, given.only)
        try:
            soak.run(given.minutes)
        finally:
            print(table_of(soak.lines))
            print(json.dumps({"seed": given.seed, "reads": soak.reads, "faults": len(soak.faults)}), flush=True)
    return 1 if soak.faults else 0
