"""A soak: everything for real, everything dying at random, audited all the time.

``python3 dev.py soak --minutes 30 [--storm] [--protocol consumer] [--store az]``: a Kafka broker, a store's server behind a
proxy that refuses, delays and loses replies, three ingest processes and two flushers.  Processes are killed, frozen and ended
at random moments, the broker now and then; the proxy's faults change.  ``--store`` is s3, az (Azure) or gs (Google Cloud
Storage).  Meanwhile upserts, patches and deletes are produced, and after each step
a strong read, an eventual read and a read at an earlier receipt are compared with the fold of the records that they say they
saw (I1, I2, I5).  At the end all is merged and compared with the fold of the whole topic.

Its first half is scaled: sessions, latencies and pauses are a tenth of what they are outside.  From 20 minutes on the second
half has them as they are (``pace``), with one outage of the store for three minutes (``outage``).

``python3 dev.py soak hostile``: not what breaks, but who means no good (``tests.soak.hostile``).

``python3 dev.py soak columns``: columns change all the time (``tests.soak.columns``).

``python3 dev.py soak changes``: streams of changes in Spark, killed beside the services (``tests.soak.changes``).

``python3 dev.py soak cuts``: cuts of three tables, with the catalog and the services killed (``tests.soak.cuts``).

``python3 dev.py soak drops``: tables are dropped, deleted and made again by name under load (``tests.soak.drops``).

``python3 dev.py soak cdc``: tables follow a PostgreSQL through Kafka Connect and Debezium (``tests.soak.cdc``).

``python3 dev.py soak every-case``: all cases of the tests whose cases take turns in ``dev.py test``: SIGKILL before and after
every point of the protocol, every index through every act, six times as many random schedules.  Properties are tried with
five times as many random examples, others each time.

``--storm``: the ingest processes live for about five seconds each, so that the group never comes to rest.

Writes ``soak.jsonl``: the seed, every act and every audit.  The seed repeats the acts, not their exact moments.  Exit code
0 only if every comparison held.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import secrets
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path

import pytest

from lancewal_core.errors import OutsideHistoryWindow, StoreUnavailable, VersionGone
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.table import open_table
from tests.soak import cdc, changes, columns, cuts, drops, hostile
from tests.soak.journal import Journal
from tests.soak.outage import Outage
from tests.soak.pace import PROTOCOLS, SCALED, Pace, paces
from tests.soak.place import Place
from tests.support.http_fault_proxy import Faults, HttpFaultProxy
from tests.support.store_addresses import SERVERS, StoreServer, inside, origin, through
from tests.support.whole_path import until
from tests.whole_path.world import World, make_world, plain_rows, positions

_TURNS = re.compile(r"mark\.in_turns\(|^@given\(", re.MULTILINE)
IN_TURNS = (
    "tests/faults/test_kill_points.py",
    "tests/faults/test_zombies.py",
    "tests/flusher/upkeep/test_index_matrix.py",
    "tests/reader/search/test_any_history.py",
    "tests/simulation/test_schedules.py",
    "tests/whole_path/test_lost_replies.py",
    *sorted({str(file) for file in Path("tests").rglob("test_*.py") if _TURNS.search(file.read_text())}),
)
FLEET = ("ingest", "ingest", "ingest", "flusher", "flusher")
RECEIPTS = 20
TURN_S = 1.0
"""Length of a turn while the store is away; at other times the audits take as long."""


class Soak:
    def __init__(
        self, world: World, proxy: HttpFaultProxy, broker: KafkaBroker, store: StoreServer, seed: int, log: Path
    ) -> None:
        self.world = world
        self.rng = random.Random(f"soak {seed}")
        self.counts: Counter[str] = Counter()
        self._proxy = proxy
        self._broker = broker
        self._store = store
        self._log = Journal(log)
        self._receipts: deque[tuple[Receipt, list[str]]] = deque(maxlen=RECEIPTS)
        self.note("begin", seed=seed)

    def note(self, act: str, **more: object) -> None:
        self.counts[act] += 1
        self._log.note(act, **more)

    def soon(self, span: tuple[float, float]) -> float:
        return time.monotonic() + self.rng.uniform(*span)

    def run(self, minutes: float, *, storm: bool, protocol: str) -> None:
        self.world.feed.produce(300)
        places = [Place(self, command, SCALED, storm=storm) for command in FLEET]
        for pace, part in paces(minutes, storm=storm):
            self._take_up(pace, protocol, places)
            self._live(pace, part * 60, places)
            self._come_to_rest(pace, places)
        self.world.finish([place.service for place in places])
        report = self.world.verify()
        self.note("verify", records=report.records, rows=report.rows_read, not_covered=report.rows_unchecked)

    def _take_up(self, pace: Pace, protocol: str, places: list[Place]) -> None:
        """Processes have the pace's sessions from their next start on."""
        self.note("pace", name=pace.name)
        tree = dict(self.world.lancewal.tree)
        tree["kafka"] = {**tree["kafka"], "options": session_of(pace, protocol)}
        self.world.lancewal.settings(tree)
        for place in places:
            place.pace = pace

    def _live(self, pace: Pace, length_s: float, places: list[Place]) -> None:
        """Act and audit for so long.  Nobody who dies while the store is away comes up again before it is back: one process of
        each kind is left to live through it."""
        ends_at = time.monotonic() + length_s
        weather_at, broker_at = self.soon(pace.weather), self.soon(pace.broker)
        outage_at = self.soon((0.1 * length_s, 0.4 * length_s)) if pace.outage_s else math.inf
        outage: Outage | None = None
        through_outage = (places[FLEET.index("ingest")], places[FLEET.index("flusher")])
        while outage is not None or time.monotonic() < ends_at:
            self.world.feed.produce(self.rng.randrange(1, 120))
            for place in places:
                if outage is not None and place in through_outage:
                    place.look_after()
                else:
                    place.tick()
            if time.monotonic() > weather_at:
                self._proxy.faults = self.rng.choice(pace.skies)
                self.note("weather", faults=str(self._proxy.faults))
                weather_at = self.soon(pace.weather)
            if time.monotonic() > broker_at:
                self.note("broker")
                self._broker.kill()
                self._broker.start()
                broker_at = self.soon(pace.broker)
            if time.monotonic() > outage_at:
                self.note("store away")
                for place in through_outage:
                    place.thaw()
                outage = Outage(self._store, pace.outage_s, self.world.uri, self.world.options)
                outage_at = math.inf
            if outage is None:
                self._audit()
            elif outage.tick():
                self.note("store back")
                self._look_at(outage)
                outage = None
            else:
                time.sleep(TURN_S)

    def _come_to_rest(self, pace: Pace, places: list[Place]) -> None:
        self.note("calm")
        self._proxy.faults = Faults()
        for place in places:
            place.thaw()
        since = time.monotonic()

        def caught_up() -> bool:
            for place in places:
                place.look_after()
            return self.world.caught_up()

        until(caught_up, lambda: f"strong reads see {self.world.feed.history.ends}", pace.patience_s, poll_s=0.2)
        self.note("caught up", after_s=round(time.monotonic() - since, 1))
        self._audit()

    def _look_at(self, outage: Outage) -> None:
        """A read that was begun in the outage says that the store did not answer, or is the fold of what it says it saw."""
        for rows in outage.reads():
            if isinstance(rows, StoreUnavailable):
                self.note("read in the outage", result=rows.kind)
            else:
                self.world.compare(plain_rows(rows), positions(receipt_of(rows.schema)), "a read begun in the outage")
                self.note("read in the outage", result="right")

    def _audit(self) -> None:
        receipt = self.world.check_strong()
        self.world.check_merged()
        table = open_table(self.world.uri, storage_options=self.world.options)
        rows = table.to_arrow(at=receipt)
        self._receipts.append((receipt, _sorted(rows)))
        earlier, expected = self.rng.choice(self._receipts)
        try:
            again = _sorted(table.to_arrow(at=earlier))
        except (VersionGone, OutsideHistoryWindow) as error:
            self.note("audit", receipt=type(error).__name__)
            return
        if again != expected:
            raise AssertionError(f"the receipt {earlier.to_json()} gave other rows than the first time")
        self.note("audit", receipt="equal")


def _sorted(rows: object) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))  # type: ignore[attr-defined] # a table


def session_of(pace: Pace, protocol: str) -> dict[str, object]:
    """Kafka properties of a member; the newer protocol's session is the broker's."""
    return {**PROTOCOLS[protocol], **(pace.session if protocol == "classic" else {})}


def main() -> int:
    if sys.argv[1:2] == ["hostile"]:
        return hostile.main(sys.argv[2:])
    if sys.argv[1:2] == ["columns"]:
        return columns.main(sys.argv[2:])
    if sys.argv[1:2] == ["changes"]:
        return changes.main(sys.argv[2:])
    if sys.argv[1:2] == ["cuts"]:
        return cuts.main(sys.argv[2:])
    if sys.argv[1:2] == ["drops"]:
        return drops.main(sys.argv[2:])
    if sys.argv[1:2] == ["cdc"]:
        return cdc.main(sys.argv[2:])
    if sys.argv[1:2] == ["every-case"]:
        return int(pytest.main([*IN_TURNS, "--every-case", *sys.argv[2:]]))
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--storm", action="store_true", help="an ingest process joins or leaves every few seconds")
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="classic", help="of the consumer group")
    parser.add_argument("--store", choices=sorted(SERVERS), default="s3", help="kind of object store")
    parser.add_argument("--folder", type=Path, default=None, help="where logs stay; default: a temporary folder")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lancewal-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "soak.jsonl"
    print(f"seed {given.seed}, {given.minutes:g} minutes, {given.store}, {log}", flush=True)
    with KafkaBroker(folder / "kafka") as broker, SERVERS[given.store](folder / "store") as store:
        uri, options = inside(store, "soak", "table")
        with HttpFaultProxy(origin(store), "/_lancewal/", given.seed) as proxy:
            world = make_world(
                broker, f"soak-{given.seed}", folder, given.seed,
                uri=uri,
                options=through(options, proxy.endpoint),
                table={"history_window_s": 60, "grace_s": 20},
                ingest={"seal_rows": 400, "seal_age_s": 3.0},
                kafka={"options": session_of(SCALED, given.protocol)},
            )  # fmt: skip
            world.options = options
            soak = Soak(world, proxy, broker, store, given.seed, log)
            try:
                soak.run(given.minutes, storm=given.storm, protocol=given.protocol)
            except BaseException as error:
                soak.note("failed", error=str(error)[:2000])
                raise
            soak.note("held", rows=len(world.feed.history.fold(world.feed.history.ends)), reads=world.reads)
            print(json.dumps({**soak.counts, "reads": world.reads, "records": sum(world.feed.history.ends.values())}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
