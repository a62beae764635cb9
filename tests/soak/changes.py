"""A soak of change streams: the program of a page in Spark, killed and started again beside services that are killed.

``python3 dev.py soak changes --minutes 10 [--spark 4.0] [--seed N]``: a Kafka broker, a table in a local folder, ingest and
flusher.  A Spark driver runs the stream of docs/how-to/keep-a-copy-from-changes.md twice, with ``changes=net`` and with
``changes=all``, into a Lance copy each.  Meanwhile orders are produced.  Each Spark runs for so many minutes: the oldest and
the newest that are supported, one after the other, unless ``--spark`` names some.

SIGKILL meets the driver with its JVM three times, ingest twice and the flusher twice, spread over the run.  Between two kills
both queries make a batch at least, however slow the machine is.

 1. A version of a copy, that a batch behind the first snapshot has made, equals the fold of the records that the end of the
    batch covers, by the offset in Spark's checkpoint.
 2. The driver does not end but by a kill of ours, or where the machine is too slow to start one of Spark's processes.
 3. At the end both copies and the table equal the fold of all records.

Exit code 0 only if all of it held.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import lance

from lancewal_core.errors import LancewalError
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.processes import Process, log_tail
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import open_table
from tests.kept.orders import OrderRow, Orders, make_orders, reached
from tests.public.test_public_names import programs
from tests.spark_versions.environments import NEWEST, OLDEST, ROOT, Environment, environment_of
from tests.support.spark import QUICK_START
from tests.support.whole_path import Service
from tests.whole_path.world import World

PAGE = ROOT / "docs" / "how-to" / "keep-a-copy-from-changes.md"
FUNCTIONS, _, _, BY_SPARK = programs(PAGE.read_text(encoding="utf-8"))
ADDRESS, COPY, CHECKPOINT = "s3://bucket/orders", "s3://bucket/orders-copy", "/checkpoints/orders-copy"
AWAIT = "query.awaitTermination()"
MODES = ("net", "all")
CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
}
ROWS_MAX = 1000
"""Of a batch: several of them make the first snapshot, and what has come while a query was away."""
SERVICES = ("ingest", "flusher")
KILLS = {"driver": 3, "ingest": 2, "flusher": 2}
TURN_S = 0.5
SLOW = "Python worker failed to connect back"
END_S = 900.0


class Copy:
    """The copy that one query keeps."""

    def __init__(self, mode: str, folder: Path) -> None:
        self.mode, self.counts = mode, Counter[str]()
        self.place, self.checkpoint = folder / f"copy-{mode}", folder / f"checkpoint-{mode}"
        self.moved = False
        """Whether there was a new batch since the last kill."""
        self._checked = 0

    def program(self, uri: str) -> str:
        """Return the program of the page, which goes on when the query is started."""
        program = f"{FUNCTIONS}\n\n{BY_SPARK}"
        texts = {
            f'"{ADDRESS}"': repr(uri),
            f'"{COPY}"': repr(str(self.place)),
            f'"{CHECKPOINT}"': repr(str(self.checkpoint)),
            'changes="net"': f'changes="{self.mode}", max_rows_per_trigger="{ROWS_MAX}"',
            AWAIT: "",
        }
        for text, there in texts.items():
            assert text in program, text
            program = program.replace(text, there)
        return program

    def check(self, orders: Orders) -> Receipt | None:
        """Compare the copy as it is now; the receipt of its last batch, None in the first snapshot."""
        try:
            copy = lance.dataset(str(self.place))
        except ValueError:  # it is not there yet
            return None
        transaction = copy.read_transaction(copy.version)
        assert transaction is not None
        number = int((transaction.transaction_properties or {})["batch"])
        self.moved |= number + 1 > self.counts["batches"]
        self.counts["batches"] = number + 1
        if number < 0:
            return None
        offset = json.loads((self.checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])
        if "part" in offset:
            return None
        receipt = Receipt.parse(offset["receipt"])
        if copy.version != self._checked:
            self._checked = copy.version
            self.counts["compared"] += 1
            compare(copy, orders.fold(receipt), f"{self.mode}: the copy after batch {number}")
        return receipt


_DRIVER = """
import sys, time
from pyspark.sql import SparkSession

SLOW = {slow!r}
SparkSession.builder{session}.getOrCreate()


def begun(program):
    while True:
        names = {{}}
        try:
            exec(program, names)
            query = names["query"]
            while query.isActive and query.lastProgress is None:
                time.sleep(0.1)
            if query.isActive:
                return query
            error = query.exception()
        except Exception as raised:
            error = raised
        if SLOW not in str(error):
            raise error
        print("too slow", flush=True)


programs = {programs!r}
queries = [begun(program) for program in programs]
while True:
    for number, query in enumerate(queries):
        if not query.isActive:
            error = query.exception()
            if SLOW not in str(error):
                raise error
            print("too slow", flush=True)
            queries[number] = begun(programs[number])
    time.sleep(0.1)
"""
"""Starts one query after the other, and one that Spark could not give a process in ten seconds once more."""


class Driver:
    """A driver with its JVM, which runs a query for each copy, and its successor as soon as it is dead."""

    def __init__(self, environment: Environment, uri: str, copies: Sequence[Copy], folder: Path) -> None:
        self.counts = Counter[str]()
        self._environment, self._folder, self._program = environment, folder, folder / "driver.py"
        session = "".join(f".config({name!r}, {value!r})" for name, value in CONF.items())
        programs = [copy.program(uri) for copy in copies]
        self._program.write_text(_DRIVER.format(slow=SLOW, session=session, programs=programs))
        self._process = self._start()

    def check(self) -> None:
        """It has not ended by itself."""
        assert self._process.exit_code is None, (
            f"the driver ended with {self._process.exit_code}\n{log_tail(self._process.log)}"
        )

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and its workers."""
        self.counts["kills"] += 1
        self.end()
        self._process = self._start()

    def end(self) -> None:
        """End it as well, and count how often Spark was too slow."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self.counts["too slow"] += self._process.log.read_text(errors="replace").count("too slow\n")

    def _start(self) -> Process:
        self.counts["starts"] += 1
        variables = self._environment.variables(self._folder)
        log = self._folder / f"driver-{self.counts['starts']}.log"
        return Process([self._environment.python, self._program], log, environment=variables)


def compare(found: lance.LanceDataset, expected: dict[int, OrderRow], what: str) -> None:
    """The rows are these, each once."""
    rows = found.to_table().to_pylist()
    by_id = {row["id"]: row for row in rows}
    wrong = [id for id in by_id.keys() | expected.keys() if by_id.get(id) != expected.get(id)]
    assert not wrong, f"{what} differs in {len(wrong)} of {len(expected)} orders: {_shown(wrong, by_id, expected)}"
    assert len(rows) == len(by_id), f"{what} has orders twice"


def _shown(wrong: Sequence[int], found: dict[int, OrderRow], expected: dict[int, OrderRow]) -> str:
    return "; ".join(f"{id} is {found.get(id)}, expected {expected.get(id)}" for id in sorted(wrong)[:5])


def run(broker: KafkaBroker, environment: Environment, folder: Path, seed: int, minutes: float) -> dict[str, object]:
    """One run, on one Spark; its figures."""
    rng, began = random.Random(f"changes {seed}"), time.monotonic()
    world, orders = make_orders(broker, f"changes-{seed}-{environment.version}", folder, seed)
    services = {name: world.lancewal.start(name, "run") for name in SERVICES}
    orders.produce(2000)
    copies = [Copy(mode, folder) for mode in MODES]
    driver = Driver(environment, world.uri, copies, folder)
    acts = _acts(rng, minutes * 60)
    try:
        while acts or time.monotonic() - began < minutes * 60:
            orders.produce(rng.randrange(5, 60))
            if acts and acts[0][0] <= time.monotonic() - began and all(copy.moved for copy in copies):
                _act(acts.pop(0)[1], world, services, driver)
                for copy in copies:
                    copy.moved = False
            driver.check()
            for copy in copies:
                copy.check(orders)
            time.sleep(TURN_S)
        orders.produce_everywhere()
        _await_end(orders, copies, driver)
        for name, service in services.items():
            assert service.exit_code is None, f"{name} ended by itself\n{service.tail}"
            service.stop()
        world.merge_all()
        receipt = open_table(world.uri).receipt()
        assert reached(receipt, orders)
        expected = orders.fold(receipt)
        compare(lance.dataset(world.uri), expected, "the table")
        for copy in copies:
            compare(lance.dataset(str(copy.place)), expected, f"{copy.mode}: the copy at the end")
        assert driver.counts["kills"] == KILLS["driver"]
    finally:
        driver.end()
        for service in services.values():
            service.kill()
    return {
        "pyspark": environment.version,
        "seed": seed,
        "seconds": round(time.monotonic() - began),
        "records": sum(orders.history.ends.values()),
        "orders": len(expected),
        "versions": lance.dataset(world.uri).version,
        "driver": dict(driver.counts),
        **{copy.mode: dict(copy.counts) for copy in copies},
    }


def _acts(rng: random.Random, length_s: float) -> list[tuple[float, str]]:
    """When whom to kill, in order: each one's kills are spread over the run."""
    return sorted(
        ((n + rng.uniform(0.6, 1.0)) / (kills + 1) * length_s, name)
        for name, kills in KILLS.items()
        for n in range(kills)
    )


def _act(name: str, world: World, services: dict[str, Service], driver: Driver) -> None:
    if name == "driver":
        driver.kill()
        return
    assert services[name].exit_code is None, f"{name} ended by itself\n{services[name].tail}"
    services[name].kill()
    services[name] = world.lancewal.start(name, "run")


def _await_end(orders: Orders, copies: Sequence[Copy], driver: Driver) -> None:
    deadline = time.monotonic() + END_S
    waiting = list(copies)
    while waiting:
        assert time.monotonic() < deadline, f"{[copy.mode for copy in waiting]} have not caught up in {END_S:g} s"
        driver.check()
        for copy in list(waiting):
            receipt = copy.check(orders)
            if receipt is not None and reached(receipt, orders):
                waiting.remove(copy)
        time.sleep(TURN_S)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak changes", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="on each Spark")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument(
        "--spark", action="append", metavar="VERSION", help="such as 4.1; may be repeated; default: oldest and newest"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where logs stay; default: a temporary folder")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lancewal-changes-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, {given.minutes:g} minutes on each Spark, {folder}", flush=True)
    failed = 0
    with KafkaBroker(folder / "kafka") as broker:
        for version in given.spark or (OLDEST, NEWEST):
            environment = environment_of(version)
            place = folder / f"spark-{environment.version}"
            place.mkdir()
            try:
                print(json.dumps(run(broker, environment, place, given.seed, given.minutes)), flush=True)
            except (AssertionError, LancewalError) as error:
                failed += 1
                print(f"DOES NOT HOLD: PySpark {environment.version}: {str(error)[:4000]}", flush=True)
    return 1 if failed else 0
