"""A soak of cuts: made, read and dropped by the real command, while everything dies, beside an oracle of all tables.

``python3 dev.py soak cuts --minutes 10 [--cuts 200] [--seed N] [--no-spark]``: a Kafka broker, a catalog in PostgreSQL, and
three tables of two topics in local folders, each with an ingest process and a flusher.  Records come all the time.  Every
flusher publishes one moving cut of all tables.  ``lancewal cut make`` and ``cut drop`` run to their end, two at once, or are
killed before and after each of their steps and at any moment.  PostgreSQL is killed under them.  Services are killed at
failpoints and at any moment.  Tables are merged, trimmed and compacted meanwhile, and their versions expire.

The oracle is the history of what the broker has acknowledged, by topic, partition and offset.

 1. A command that is killed leaves a whole cut or none.  The same command, run again, makes it.
 2. Each cut has all that was acknowledged before its command began; with ``--up-to durable`` all that was durable.  Tables
    of one topic are cut at the same positions.
 3. Each table of a cut is the fold of the records below its positions, by the reader, by plain pylance and by Spark: right
    away, again and again, and at the end.
 4. The catalog has exactly the cuts that were made and not dropped.  Snapshots that dead commands have left over are those
    that ``cut list`` names, and go by the command that it advises.
 5. The moving cut never goes back, also for whoever reads it again and again while flushers die.  Each of its tables is the
    fold up to its positions, and so is each table of an earlier publication that a reader has pinned, as long as the
    windows keep it.  At the end it has everything.
 6. A command fails by a name that is expected.  No service ends but by a kill of ours.

Exit code 0 only if all of it held.  The seed repeats the draws, not their exact moments.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import secrets
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import lance

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.opened import catalog_of
from lancewal_core.cli.options import read_settings
from lancewal_core.errors import CatalogUnavailable, CutMissing, LancewalError, OutsideHistoryWindow, VersionGone
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.snapshots import cut_of
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.cuts import CutTables, open_cut
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.soak.columns import FLUSHER, INGEST
from tests.soak.journal import Journal
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.spark import LocalSpark, local_spark
from tests.support.whole_path import Lancewal, Life, Service, Slot, until
from tests.whole_path.world import World, make_world, positions

TOPICS = {"shop.orders": "orders", "shop.items": "items", "shop.items-again": "items"}
MAKE = [f"{step}:{when}" for step in ("cut.snapshot", "cut.put") for when in ("before", "after")]
MAKE += ["cut.snapshot:before:2", "cut.snapshot:after:2", "cut.snapshot:after:3"]
DROP = ["cut.drop:before", "cut.drop:after"]
LAGS = {"token_timeout", "outside_history_window", "version_gone"}
"""Why a cut cannot be made while services die: a table lags, or others have gone on too far meanwhile."""
AWAY = {"catalog_unavailable"}
KEPT_MAX = 25
LIVE = "live"
PATIENCE_S = 12.0
TRIES = 20
_KIND = re.compile(r"^lancewal: ([a-z_]+): ", re.MULTILINE)
Positions = Mapping[str, Mapping[int, int]]


class CutSoak:
    """One run.  ``lives``: how often each service is killed; after that it lives on."""

    def __init__(
        self,
        broker: KafkaBroker,
        postgres: PostgresServer,
        folder: Path,
        seed: int,
        lives: int,
        names: Sequence[str] = tuple(TOPICS),
        spark: LocalSpark | None = None,
    ) -> None:
        self.rng = random.Random(f"cuts {seed}")
        self.counts: Counter[str] = Counter()
        self.kept: dict[str, Cut] = {}
        self._postgres, self._spark = postgres, spark
        self._pinned: CutTables | None = None
        """An earlier publication of the moving cut."""
        self._live_at: tuple[int, Positions] = (0, {})
        """Number and positions of the newest publication that was seen."""
        self._catalog_settings = {"kind": "postgres", "url": postgres.database(), "password": PASSWORD}
        self._log = Journal(folder / "cuts.jsonl")
        self.tables: dict[str, World] = {}
        for name in names:
            self.tables[name] = self._table(name, broker, folder / name, seed)
        self._lancewal = next(iter(self.tables.values())).lancewal
        catalog = catalog_of(read_settings(self._lancewal.config))
        assert catalog is not None
        self.catalog: StoredCatalog = catalog
        self._slots = [
            self._slot(world, command, failpoints, lives)
            for world in self.tables.values()
            for command, failpoints in (("ingest", INGEST), ("flusher", FLUSHER))
        ]

    def run(self, done: Callable[[], bool]) -> None:
        """Acts until ``done``, and then the end."""
        for world in self._feeding:
            world.feed.produce(100)
        acts: list[tuple[Callable[[], None], int]] = [
            (self._make, 12), (self._drop, 2), (self._compact, 1), (self._kill_postgres, 1), (self._turn, 2),
        ]  # fmt: skip
        while not done():
            drop = self._drop if len(self.kept) >= KEPT_MAX else None
            (drop or self.rng.choices([act for act, _ in acts], [weight for _, weight in acts])[0])()
            self._turn()
        self._finish()

    # -- tables --------------------------------------------------------------------------------------------------

    def _table(self, name: str, broker: KafkaBroker, folder: Path, seed: int) -> World:
        """Make a table and its entry.  A second one of a topic has the feed of the first."""
        folder.mkdir()
        topic = f"cuts-{seed}-{TOPICS[name]}"
        beside = next((world for world in self.tables.values() if world.feed.topic == topic), None)
        if beside is None:
            world = make_world(
                broker, topic, folder, seed + len(self.tables),
                in_process=True,
                table={"history_window_s": 40, "grace_s": 10, "version_window_s": 40},
                ingest={"linger_ms": 60, "seal_rows": 80, "seal_age_s": 1.0},
                flusher={
                    "merge_interval_s": 0.5, "gc_interval_s": 5.0, "compaction_interval_s": 10.0,
                    "cuts": [{"name": LIVE, "tables": "shop.*", "every": "2s"}],
                },
            )  # fmt: skip
        else:
            tree = beside.lancewal.tree
            lancewal = Lancewal(folder, {**tree, "table": {**tree["table"], "uri": str(folder / "table")}})
            create_table(read_settings(lancewal.config))
            world = World(lancewal, beside.feed, str(folder / "table"), {}, beside.servers)
        world.lancewal.settings({**world.lancewal.tree, "catalog": self._catalog_settings})
        world.lancewal.succeed("catalog", "register", name)
        return world

    @property
    def _feeding(self) -> list[World]:
        """One table of each topic."""
        return list({world.feed.topic: world for world in self.tables.values()}.values())

    def _turn(self) -> None:
        """Records come, services are looked after, and cuts are read once more."""
        for world in self._feeding:
            world.feed.produce(self.rng.randrange(5, 40))
        self._look_after()
        self._check_live()
        if self.kept:
            self._check(self.rng.choice(list(self.kept.values())))

    def _compact(self) -> None:
        """As a user does, with plain Lance.  A merge may come first."""
        uri = self.rng.choice(list(self.tables.values())).uri
        try:
            lance.dataset(uri).optimize.compact_files()
            self.counts["compactions"] += 1
        except OSError as error:
            if "conflict" not in str(error).lower():
                raise
            self.counts["compactions that met a merge"] += 1

    # -- cuts ----------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        """Make a cut, however often that takes."""
        self.counts["names"] += 1
        name = f"cut-{self.counts['names']}"
        chosen = self.rng.sample(list(self.tables), self.rng.choice([1, *[len(self.tables)] * 3]))
        at = self.rng.choice(["ends", "ends", "durable"])
        command = ["cut", "make", name, "--up-to", at, *(word for table in chosen for word in ("--tables", table))]
        for _ in range(TRIES):
            floor = self._ends(chosen) if at == "ends" else self._durable(chosen)
            kinds = self._run(command, MAKE)
            cut = self._cut(name)
            if cut is None:
                assert None not in kinds, f"{command} succeeded, and there is no cut"
                continue
            self.counts["cuts"] += 1
            self.counts[f"cuts at {at}"] += 1
            self._check_new(cut, chosen, floor)
            self.kept[name] = cut
            return
        self.counts["given up"] += 1
        self._run_to_end(["cut", "drop", name, "--yes"], {"cut_missing"})
        assert self._cut(name) is None

    def _drop(self) -> None:
        if not self.kept:
            return
        name = self.rng.choice(list(self.kept))
        command = ["cut", "drop", name, "--yes"]
        kinds = self._run(command, DROP)
        if None not in kinds:
            if self._cut(name) is not None:
                self._check(self.kept[name])
            self._run_to_end(command, {"cut_missing"})
        assert self._cut(name) is None, f"{name} was dropped, and is there"
        del self.kept[name]
        self.counts["drops"] += 1

    def _check_new(self, cut: Cut, chosen: Sequence[str], floor: Positions) -> None:
        assert sorted(cut.tables) == sorted(chosen)
        by_topic: dict[str, Mapping[int, int]] = {}
        for name, of in cut.tables.items():
            at = positions(Receipt.parse(of.receipt))
            short = {p: n for p, n in floor[name].items() if at.get(p, 0) < n}
            assert not short, f"cut {cut.name}: {name} at {at} lacks what was there before: {short}"
            other = by_topic.setdefault(self.tables[name].feed.topic, at)
            assert other == at, f"cut {cut.name}: tables of one topic at {other} and {at}"
        self._check(cut)

    def _check(self, cut: Cut) -> None:
        """Every table of the cut is the fold up to its positions, by the reader and by plain pylance."""
        opened = open_cut(self.catalog, cut.name, open_table)
        for name, of in cut.tables.items():
            world, at = self.tables[name], opened.positions(name)
            assert at == positions(Receipt.parse(of.receipt))
            world.compare(opened[name].to_arrow().to_pylist(), at, f"cut {cut.name} of {name}")
            plain = lance.dataset(of.uri).checkout_version((of.snapshot, None)).to_table()
            world.compare(plain.to_pylist(), at, f"cut {cut.name} of {name}, by pylance")
        self.counts["checks"] += 1

    def _check_live(self) -> bool:
        """Read the moving cut, and an earlier publication of it.  Return whether the cut has everything."""
        try:
            live = open_cut(self.catalog, LIVE, open_table)
        except CutMissing:
            assert self._live_at[0] == 0, "the moving cut was there, and is gone"
            return False
        number, before = self._live_at
        at = {name: live.positions(name) for name in live}
        back = {name for name, of in before.items() if any(at[name].get(p, 0) < n for p, n in of.items())}
        assert number <= live.number, f"the moving cut went back from number {number} to {live.number}"
        assert not back, f"number {live.number} of the moving cut is at {at}, and number {number} was at {before}"
        for name in live:
            others = [at[other] for other in live if TOPICS[other] == TOPICS[name]]
            assert all(other == at[name] for other in others), f"number {live.number}: one topic at {others}"
        if live.number > number:
            self.counts["numbers of the moving cut"] += 1
            self._read_live(live)
        self._live_at = live.number, at
        if self._pinned is None or self.rng.random() < 0.1:
            self._pinned = live
        self._read_live(self._pinned)
        ends = self._ends(list(self.tables))
        return at.keys() == ends.keys() and all(
            at[name].get(p, 0) >= end for name, of in ends.items() for p, end in of.items()
        )

    def _read_live(self, live: CutTables) -> None:
        for name, table in live.items():
            try:
                rows = table.to_arrow().to_pylist()
            except (VersionGone, OutsideHistoryWindow) as error:
                if f"number {live.number} of cut {LIVE}" not in str(error):
                    raise
                self.counts[f"reads of the moving cut: {error.kind}"] += 1
            else:
                self.tables[name].compare(rows, live.positions(name), f"number {live.number} of {LIVE}, {name}")
                self.counts["reads of the moving cut"] += 1

    def _check_spark(self, cut: Cut) -> None:
        assert self._spark is not None
        for name, of in cut.tables.items():
            rows = self._spark.read(of.uri, at=f"snapshot:{of.snapshot}").toArrow().to_pylist()
            self.tables[name].compare(rows, positions(Receipt.parse(of.receipt)), f"cut {cut.name} of {name}, by Spark")
        self.counts["checks by Spark"] += 1

    def _ends(self, names: Sequence[str]) -> Positions:
        return {name: dict(self.tables[name].feed.history.ends) for name in names}

    def _durable(self, names: Sequence[str]) -> Positions:
        """What is durable in all tables of a topic."""
        found = {name: positions(open_table(self.tables[name].uri).receipt()) for name in names}
        return {
            name: {
                p: min(found[other].get(p, 0) for other in names if TOPICS[other] == TOPICS[name]) for p in found[name]
            }
            for name in names
        }

    def _cut(self, name: str) -> Cut | None:
        return self.catalog.cut(name)

    # -- commands ------------------------------------------------------------------------------------------------

    def _run(self, command: Sequence[str], failpoints: Sequence[str]) -> list[str | None]:
        """Run a command to its end, or kill it: the kind of the error of each process, None if it succeeded."""
        way = self.rng.choices(["run", "two", "point", "moment", "catalog"], [30, 10, 40, 10, 10])[0]
        self.counts[f"way: {way}"] += 1
        self._log.note("run", command=command, way=way)
        match way:
            case "run":
                return [self._ended(self._start(command), LAGS)]
            case "two":
                both = [self._start(command), self._start(command)]
                refused = "invalid_input" if command[1] == "make" else "cut_missing"
                found = [self._ended(one, LAGS | {refused}) for one in both]
                assert found.count(None) <= 1 or command[1] == "drop", f"{command} succeeded twice"
                return found
            case "point":
                at = self.rng.choice(failpoints)
                return [self._ended(self._start(command, f"{at}=kill"), LAGS, at)]
            case "moment":
                service, end = self._start(command), time.monotonic() + self.rng.uniform(0.0, 3.0)
                while service.running and time.monotonic() < end:
                    self._look_after()
                    time.sleep(0.02)
                service.kill()
                return [self._ended(service, LAGS, "any moment")]
        service = self._start(command, f"{self.rng.choice(failpoints)}=stop")
        until(lambda: not service.running or service.frozen, lambda: service.tail)
        self._kill_postgres()
        if service.running:
            service.thaw()
        return [self._ended(service, LAGS | AWAY)]

    def _run_to_end(self, command: Sequence[str], kinds: set[str]) -> None:
        self._ended(self._start(command), kinds)

    def _start(self, command: Sequence[str], failpoint: str | None = None) -> Service:
        return self._lancewal.start(*command, failpoint=failpoint)

    def _ended(self, service: Service, kinds: set[str], killed: str | None = None) -> str | None:
        """Wait for the end of a command: its success, one of these errors, or a kill if ``killed`` says where."""

        def ended() -> bool:
            self._look_after()
            return not service.running

        until(ended, lambda: service.tail, poll_s=0.05)
        if service.exit_code == 0:
            return None
        if service.exit_code == -signal.SIGKILL and killed is not None:
            self.counts[f"kill: command {killed}"] += 1
            self.counts["kills"] += 1
            return "killed"
        found = _KIND.search(service.log)
        kind = found[1] if found else "?"
        assert kind in kinds, f"{service.name} ended with {service.exit_code} by {kind}\n{service.tail}"
        self.counts[f"failed: {kind}"] += 1
        return kind

    def _kill_postgres(self) -> None:
        self._postgres.kill()
        if self.rng.random() < 0.3:
            try:
                self.catalog.cuts()
                raise AssertionError("a database that is away has answered")
            except CatalogUnavailable:
                self.counts["answers while the catalog was away: catalog_unavailable"] += 1
        self._postgres.start()
        self.counts["kills"] += 1
        self.counts["kill: PostgreSQL"] += 1

    # -- services ------------------------------------------------------------------------------------------------

    def _slot(self, world: World, command: str, failpoints: Mapping[str, int], count: int) -> Slot:
        rng, lives = self.rng, list[Life]()
        for _ in range(count):
            point = rng.choice([p for p in sorted(failpoints) if not p.startswith(("columns", "contract"))])
            at = f"{point}:{rng.choice(['before', 'after'])}:{rng.randint(1, failpoints[point])}"
            lives += [rng.choice([Life(at), Life(after_s=rng.uniform(1, 10))]), Life(after_s=rng.uniform(10, 40))]
        return Slot(world.lancewal, (command, "run"), lives, PATIENCE_S)

    def _look_after(self) -> None:
        for slot in self._slots:
            kill = slot.tick()
            if kill is not None:
                who = kill.name.partition("-")[2]
                self.counts["kills"] += 1
                self.counts[f"kill: {who}"] += 1
                self._log.note("kill", who=who, where=kill.reached)

    def _finish(self) -> None:
        """All is merged, and every cut is read once more, by Spark too."""
        for world in self._feeding:
            world.feed.produce_everywhere()

        def caught_up() -> bool:
            self._look_after()
            return all(world.caught_up("eventual") for world in self.tables.values())

        until(caught_up, self._tails, poll_s=0.2)

        def published() -> bool:
            self._look_after()
            return self._check_live()

        until(published, self._tails, poll_s=0.2)
        self.end()
        assert list(self.catalog.cuts()) == sorted([*self.kept, LIVE])
        for number, cut in enumerate(self.kept.values()):
            self._check(cut)
            if self._spark is not None and number % 5 == 0:
                self._check_spark(cut)
        self._drop_left_over()
        for name, world in self.tables.items():
            snapshots = {cut.tables[name].snapshot for cut in self.kept.values() if name in cut.tables}
            found = {branch.name for branch in LanceTable(world.uri).branches() if cut_of(branch)}
            assert found == snapshots, f"{name}: left over {found - snapshots}, missing {snapshots - found}"
            world.check_merged()
        self.counts["versions"] = sum(lance.dataset(world.uri).version for world in self.tables.values())
        self.counts["records"] = sum(sum(world.feed.history.ends.values()) for world in self._feeding)

    def _tails(self) -> str:
        return "\n".join(world.lancewal.tails for world in self.tables.values())

    def _drop_left_over(self) -> None:
        """Do as ``cut list`` says.  A command was killed after its record, before it dropped what an earlier try had left."""
        for line in self._lancewal.succeed("cut", "list").splitlines():
            if line.startswith("left over: "):
                self._lancewal.succeed(*line.split("`")[1].split()[1:], "--yes")
                self.counts["left over"] += 1

    def end(self) -> None:
        for slot in self._slots:
            if slot.service.running:
                slot.service.kill()
        self._log.close()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak cuts", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="at least so long")
    parser.add_argument("--cuts", type=int, default=200, help="at least so many")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--no-spark", action="store_true", help="read without Spark")
    parser.add_argument("--folder", type=Path, default=None, help="where logs stay; default: a temporary folder")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lancewal-cuts-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, {given.minutes:g} minutes, {given.cuts} cuts, {folder}", flush=True)
    began, failed = time.monotonic(), 0
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(folder / "kafka"))
        postgres = stack.enter_context(PostgresServer())
        spark = None if given.no_spark else stack.enter_context(local_spark(folder))
        soak = CutSoak(broker, postgres, folder, given.seed, int(given.minutes * 2), spark=spark)

        def done() -> bool:
            return bool(time.monotonic() - began > 60 * given.minutes and soak.counts["cuts"] >= given.cuts)

        try:
            soak.run(done)
        except (AssertionError, LancewalError) as error:
            failed = 1
            print(f"DOES NOT HOLD: {type(error).__name__}: {str(error)[:4000]}", flush=True)
        finally:
            soak.end()
        told = {**soak.counts, "failed": failed, "seconds": round(time.monotonic() - began)}
        print(json.dumps(told), flush=True)
    return failed
