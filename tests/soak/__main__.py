"""A soak: everything for real, everything dying at random, audited all the time.

``python3 dev.py soak --minutes 30 [--storm] [--protocol consumer]``: a Kafka broker, an S3 server behind a proxy that refuses,
delays and loses replies, three ingest processes and two flushers.  Processes are killed, frozen and ended at random moments,
the broker now and then; the proxy's faults change.  Meanwhile upserts, patches and deletes are produced, and after each step
a strong read, an eventual read and a read at an earlier receipt are compared with the fold of the records that they say they
saw (I1, I2, I5).  At the end all is merged and compared with the fold of the whole topic.

``--storm``: the ingest processes live for about five seconds each, so that the group never comes to rest.
        report = self.world.verify()
        self.note("verify", records=report.records, rows=report.rows_read, not_covered=report.rows_not_covered)

Writes ``soak.jsonl``: the seed, every act and every audit.  The seed repeats the acts, not their exact moments.  Exit code
0 only if every comparison held.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import secrets
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path

from lancewal_core.errors import OutsideHistoryWindow, VersionGone
from lancewal_demo.stack import KafkaBroker, S3Server
from lancewal_reader import Receipt, open_table
from tests.support.http_fault_proxy import Faults, HttpFaultProxy
from tests.support.whole_path import Service
from tests.whole_path.world import SESSION_MS, World, make_world

FLEET = ("ingest", "ingest", "ingest", "flush", "flush")
WEATHER = (
    Faults(),
    Faults(),
    Faults(cut=0.2, delay_s=0.2),
    Faults(unavailable=0.3, conflict=0.05),
    Faults(refuse=0.2, delay_s=1.0),
    Faults(delay_s=3.0),
    Faults(unavailable=1.0),
)
LIFE_S = (3.0, 25.0)
STORM_LIFE_S = (4.0, 6.0)
"""Of an ingest process in a storm of rebalances."""
PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "classic": {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 400},
    "consumer": {"group.protocol": "consumer"},
}
FROZEN_S = (1.0, 8.0)
WEATHER_S = (5.0, 20.0)
BROKER_S = (60.0, 180.0)
RECEIPTS = 20
_UNAVAILABLE = re.compile(r"^lancewal: (kafka|store)_unavailable: ", re.MULTILINE)


class Place:
    """One process of the fleet, and what is to happen to it next."""

    def __init__(self, soak: Soak, command: str, *, storm: bool) -> None:
        self._soak = soak
        self._command = command
        self._life_s = STORM_LIFE_S if storm and command == "ingest" else LIFE_S
        self.service: Service = soak.world.lancewal.start(command, "run")
        self._next_at = soak.soon(self._life_s)
        self._frozen = False

    def tick(self) -> None:
        if self.service.exit_code == 1 and _UNAVAILABLE.search(self.service.log):
            # It was started while Kafka or the store was away: a supervisor starts it again.
            self._soak.note("restart", process=self.service.name)
            self.service = self._soak.world.lancewal.start(self._command, "run")
        elif self.service.exit_code is not None:
            raise AssertionError(
                f"{self.service.name} ended by itself with {self.service.exit_code}\n{self.service.tail}"
            )
        if time.monotonic() < self._next_at:
            return
        if self._frozen:
            self.thaw()
            self._next_at = self._soak.soon(self._life_s)
            return
        act = self._soak.rng.choice(["kill", "kill", "freeze", "end"])
        if act == "end" and not self.service.log:
            act = "kill"  # the interpreter is still loading: nobody is there to hear SIGTERM
        self._soak.note(act, process=self.service.name)
        match act:
            case "freeze":
                self.service.freeze()
                self._frozen = True
                self._next_at = self._soak.soon(FROZEN_S)
                return
            case "kill":
                self.service.kill()
            case "end":
                self.service.stop()
        self.service = self._soak.world.lancewal.start(self._command, "run")
        self._next_at = self._soak.soon(self._life_s)

    def thaw(self) -> None:
        if self._frozen:
            self.service.thaw()
            self._frozen = False


class Soak:
    def __init__(self, world: World, proxy: HttpFaultProxy, broker: KafkaBroker, seed: int, log: Path) -> None:
        self.world = world
        self.rng = random.Random(f"soak {seed}")
        self.counts: Counter[str] = Counter()
        self._proxy = proxy
        self._broker = broker
        self._log = log
        self._receipts: deque[tuple[Receipt, list[str]]] = deque(maxlen=RECEIPTS)
        self.note("begin", seed=seed)

    def note(self, act: str, **more: object) -> None:
        self.counts[act] += 1
        with self._log.open("a") as file:
            file.write(json.dumps({"at": round(time.time(), 3), "act": act, **more}) + "\n")

    def soon(self, span: tuple[float, float]) -> float:
        return time.monotonic() + self.rng.uniform(*span)

    def run(self, minutes: float, *, storm: bool) -> None:
        self.world.feed.produce(300)
        places = [Place(self, command, storm=storm) for command in FLEET]
        ends_at = time.monotonic() + minutes * 60
        weather_at, broker_at = self.soon(WEATHER_S), self.soon(BROKER_S)
        while time.monotonic() < ends_at:
            self.world.feed.produce(self.rng.randrange(1, 120))
            for place in places:
                place.tick()
            if time.monotonic() > weather_at:
                self._proxy.faults = self.rng.choice(WEATHER)
                self.note("weather", faults=str(self._proxy.faults))
                weather_at = self.soon(WEATHER_S)
            if time.monotonic() > broker_at:
                self.note("broker")
                self._broker.kill()
                self._broker.start()
                broker_at = self.soon(BROKER_S)
            self._audit()
        self.note("calm")
        self._proxy.faults = Faults()
        for place in places:
            place.thaw()
        self.world.wait_caught_up()
        self._audit()
        self.world.finish([place.service for place in places])
        report = self.world.verify()
        self.note("verify", records=report.records, rows=report.rows_read, not_covered=report.rows_not_covered)

    def _audit(self) -> None:
        receipt = self.world.check_strong()
        self.world.check_merged()
        table = open_table(self.world.uri, self.world.options)
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--storm", action="store_true", help="an ingest process joins or leaves every few seconds")
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="classic", help="of the consumer group")
    parser.add_argument("--folder", type=Path, default=None, help="where logs stay; default: a temporary folder")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lancewal-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "soak.jsonl"
    print(f"seed {given.seed}, {given.minutes:g} minutes, {log}", flush=True)
    with KafkaBroker(folder / "kafka") as broker, S3Server(folder / "s3") as s3:
        options = {name.lower(): value for name, value in s3.environment.items()}
        with HttpFaultProxy(s3.endpoint, "/_lancewal/", given.seed) as proxy:
            world = make_world(
                broker, f"soak-{given.seed}", folder, given.seed,
                uri=f"s3://{s3.bucket('soak')}/table",
                options={**options, "aws_endpoint": proxy.endpoint},
                table={"history_window_s": 60, "grace_s": 20},
                ingest={"seal_rows": 400, "seal_age_s": 3.0},
                kafka={"librdkafka": dict(PROTOCOLS[given.protocol])},
            )  # fmt: skip
            world.options = options
            soak = Soak(world, proxy, broker, given.seed, log)
            try:
                soak.run(given.minutes, storm=given.storm)
            except BaseException as error:
                soak.note("failed", error=str(error)[:2000])
                raise
            soak.note("held", rows=len(world.feed.history.fold(world.feed.history.ends)), reads=world.reads)
            print(json.dumps({**soak.counts, "reads": world.reads, "records": sum(world.feed.history.ends.values())}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
