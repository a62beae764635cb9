"""What the faults are made on: a broker, an S3 server behind a proxy, PostgreSQL, two ingest processes, a flusher, and
traffic.

Beside them two small tables, each with a process of its own that Prometheus scrapes too: one whose topic is keyed by others
has a flusher, and one of change events an ingest.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import lance
from confluent_kafka.admin import (  # type: ignore[attr-defined] # imported there, not listed
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from lancewal_core.names.paths import FlushFile
from lancewal_core.rows.murmur2 import partition_of
from lancewal_demo.stack import KafkaBroker, S3Server
from lancewal_demo.stack.ports import free_ports
from tests.support.http_fault_proxy import Faults, HttpFaultProxy
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.whole_path import Service, until
from tests.whole_path.feed import COLUMNS, PARTITIONS, Record
from tests.whole_path.world import World, make_world

SCRAPE_S = 1
JOBS = {"lancewal-ingest": ("ingest-1", "ingest-2", "events-ingest"), "lancewal-flusher": ("keyed-flusher", "flusher")}
"""Job of Prometheus -> the services that it scrapes."""
SERVICES = (*chain.from_iterable(JOBS.values()), "keyed-ingest")
"""The last runs only while its topic is written, and is not scraped."""
TOPIC = "watched"
LETTERS = f"{TOPIC}.dead-letters"
KEYED = "keyed"
"""Topic of the other table, and what the names of its services begin with."""
EVENTS = "events"
"""Topic of the table of change events, and what the name of its service begins with."""
FLUSHES = "flushes/"
"""In the path of what is stored of a flush."""
_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
RETENTION_S = 180
_BATCH, _PAUSE_S = 40, 0.2


class Traffic:
    """Produces random operations in a thread of its own while it is on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._on = threading.Event()
        self._ended = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self.error: BaseException | None = None
        self._thread.start()

    def on(self) -> None:
        self._on.set()

    def off(self) -> None:
        """Nothing is under way any more when it returns."""
        self._on.clear()
        with self._turn:
            pass

    def send(self, records: Iterable[Record]) -> None:
        """These, and then as before."""
        was_on = self._on.is_set()
        self._on.clear()
        with self._turn:
            self._world.feed.send(records)
        if was_on:
            self._on.set()

    def end(self) -> None:
        self._ended.set()
        self._on.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._on.wait()
            if self._ended.is_set():
                return
            try:
                with self._turn:
                    self._world.feed.produce(_BATCH)
            except Exception as error:  # the broker is away: said by what waits for the traffic
                self.error = error
            time.sleep(_PAUSE_S)


@dataclass(slots=True)
class Stage:
    broker: KafkaBroker
    store: S3Server
    catalog: PostgresServer
    proxy: HttpFaultProxy
    world: World
    keyed: World
    events: World
    folder: Path
    ports: dict[str, int]
    traffic: Traffic
    services: dict[str, Service] = field(default_factory=dict)
    spoilt: dict[Path, bytes] = field(default_factory=dict)
    astray: tuple[int, int] = (0, 0)
    """Partition and offset of a record that lies in the wrong partition."""

    def start(self, *names: str, **more: str) -> None:
        """Those of ``SERVICES``; ``more`` are variables of its settings."""
        for name in names:
            kind = "flusher" if "flusher" in name else "ingest"
            variable = f"LANCEWAL_HTTP__{kind.upper()}_PORT"
            environment = {variable: str(self.ports[name]), **more}
            world = {KEYED: self.keyed, EVENTS: self.events}.get(name.partition("-")[0], self.world)
            self.services[name] = world.lancewal.start(kind, "run", environment=environment)

    def kill(self, *names: str) -> None:
        for name in names:
            self.services.pop(name).kill()

    def restart(self, *names: str, **more: str) -> None:
        self.kill(*names)
        self.start(*names, **more)

    def restart_when_ready(self, name: str) -> None:
        """Kill it and start it anew, as soon as Prometheus can have seen the former life."""
        self.wait_for_answer(name)
        time.sleep(2 * SCRAPE_S)  # a life that no scrape has met is none to Prometheus
        self.restart(name)

    def wait_for_answer(self, name: str) -> None:
        until(lambda: self.metrics(name) != "", lambda: f"{name} does not answer\n{self.services[name].tail}")

    def metrics(self, name: str) -> str:
        """What the process exports; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def value(self, name: str, series: str, having: str = "") -> float | None:
        """The sum of a metric's series in whose labels stands this; None where there is none."""
        found = re.findall(rf"^{series}(?:{{[^}}]*{having}[^}}]*}})? (\S+)$", self.metrics(name), re.MULTILINE)
        return sum(map(float, found)) if found else None

    def wait_until_visible_in_time(self, times: int) -> None:
        """Until so many measurements one after the other saw within 2 s what was produced."""
        begun: tuple[float, float] | None = None

        def well() -> bool:
            nonlocal begun
            within = self.value("flusher", "lancewal_flusher_visible_seconds_bucket", 'le="2.0"')
            total = self.value("flusher", "lancewal_flusher_visible_seconds_count")
            if within is None or total is None:
                return False
            if begun is None or total - begun[0] != within - begun[1]:
                begun = total, within
            return total - begun[0] >= times

        until(well, lambda: f"rows are not visible within 2 s: {begun}\n{self.services['flusher'].tail}", poll_s=0.5)

    def wait_for_value(self, name: str, series: str, least: float) -> None:
        """Until the sum of a metric's series is at least so much."""

        def there() -> bool:
            found = self.value(name, series)
            return found is not None and found >= least

        until(there, lambda: f"{series} of {name} does not reach {least:g}\n{self.services[name].tail}")

    def run(self, *command: str) -> None:
        self.world.lancewal.succeed(*command)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})

    def refuse_flushes(self) -> None:
        """The store takes no manifest of a flush; segments and all else it does take."""
        self.proxy.part, self.proxy.faults = FLUSHES, Faults(unavailable=1.0)

    def harm_nothing(self) -> None:
        self.proxy.part, self.proxy.faults = "", Faults()

    def forbid_letters(self) -> None:
        """Whoever asks may describe the topic of dead letters, and no more."""
        operations = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
        rights = [_right(operation, AclPermissionType.ALLOW) for operation in operations]
        admin = self.admin()
        for made in admin.create_acls(rights).values():
            made.result(30)

    def allow_letters(self) -> None:
        admin = self.admin()
        every = _right(AclOperation.ANY, AclPermissionType.ANY, AclBindingFilter)
        for gone in admin.delete_acls([every]).values():
            gone.result(30)

    def wait_for_flush(self) -> None:
        """One more than there were."""
        before = self._manifests
        until(lambda: bool(self._manifests - before), lambda: self.world.lancewal.tails)

    def spoil_flushes(self) -> None:
        """Turn the bits of the manifests of flushes.  One that is away is no damage: it is made anew from the log."""
        self.spoilt = {file: file.read_bytes() for file in self._manifests}
        for file, content in self.spoilt.items():
            file.write_bytes(bytes(255 - byte for byte in content))

    def spoil_index(self, column: str) -> None:
        """Build an index of the column and turn the bits of its files."""
        table = lance.dataset(self.world.uri, storage_options=dict(self.world.options))
        there = self._index_files
        table.create_scalar_index(column, "BTREE")
        for file in self._index_files - there:
            file.write_bytes(bytes(255 - byte for byte in file.read_bytes()))

    def drop_index(self, column: str) -> None:
        lance.dataset(self.world.uri, storage_options=dict(self.world.options)).drop_index(f"{column}_idx")

    def set_keys_at_odds(self) -> None:
        """One primary key through two partitions of the other table, through the second when what came first is merged."""
        self.start("keyed-ingest")
        row = {"customer": "at odds", "id": 7}
        keys = [json.dumps({**row, "salt": salt}).encode() for salt in range(100)]
        of_partition = {partition_of(key, PARTITIONS): key for key in keys}
        for partition in (0, 1):
            self.keyed.feed.send_raw(json.dumps({**dict.fromkeys(COLUMNS), **row}).encode(), of_partition[partition])
            self.keyed.wait_caught_up("eventual")

    def settle_keys(self) -> None:
        self.keyed.lancewal.succeed("conflict", "settle", f"{KEYED}-1", "--all", "--yes")
        self.kill("keyed-ingest")

    def connector_writes(self, seconds: float, late_s: float) -> None:
        """Write for so long what a connector does: changes that the source has made ``late_s`` before, and heartbeats."""
        end = time.monotonic() + seconds
        row = {**dict.fromkeys(COLUMNS), "customer": "customer-1", "id": 1}
        key = b'{"customer":"customer-1","id":1}'
        while time.monotonic() < end:
            source = {"ts_ms": round(1000 * (time.time() - late_s))}
            event = {"before": None, "after": row, "source": source, "op": "c"}
            self.events.feed.send_raw(json.dumps(event).encode(), key)
            self.events.feed.send_raw(json.dumps({"ts_ms": source["ts_ms"]}).encode(), b"heartbeat", partition=0)
            time.sleep(0.3)

    @property
    def _index_files(self) -> set[Path]:
        return {file for file in self.store.directory.rglob("_indices/**/*") if file.is_file()}

    @property
    def _manifests(self) -> set[Path]:
        return {file for file in self.store.directory.rglob(FlushFile.MANIFEST.value) if file.is_file()}

    def mend_flushes(self) -> None:
        for file, content in self.spoilt.items():
            if file.exists():
                file.write_bytes(content)
        self.spoilt.clear()


def _right(operation: AclOperation, permission: AclPermissionType, kind: Any = AclBinding) -> Any:
    who = None if kind is AclBindingFilter else "User:ANONYMOUS"
    host = None if kind is AclBindingFilter else "*"
    return kind(ResourceType.TOPIC, LETTERS, ResourcePatternType.LITERAL, who, host, operation, permission)


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """Everything runs, and some rows are merged."""
    ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    with (
        KafkaBroker(folder / "kafka", _ACLS) as broker,
        S3Server(folder / "s3") as store,
        PostgresServer() as catalog,
        HttpFaultProxy(store.endpoint, "", 1) as proxy,
    ):
        of_store = {name.lower(): value for name, value in store.environment.items()}
        options = {**of_store, "aws_endpoint": proxy.endpoint}
        world = make_world(
            broker,
            TOPIC,
            folder,
            1,
            uri=f"s3://{store.bucket('watched')}/table",
            options=options,
            topic_config={"retention.ms": str(1000 * RETENTION_S)},
            table={"history_window_s": 2, "grace_s": 6, "subscription_hold_s_max": 120},
            catalog={"kind": "postgres", "url": catalog.database(), "password": PASSWORD},
            ingest={"seal_rows": 400, "seal_age_s": 2, "memory_bytes_max": "24MiB", "seal_bytes": "4MiB"},
            flusher={
                "merge_interval_s": 1,
                "visibility_interval_s": 1,
                "compaction_interval_s": 2,
                "gc_interval_s": 2,
                "cuts": [{"name": "live", "tables": [TOPIC], "every": 1}],
            },
        )
        world.lancewal.succeed("catalog", "register", TOPIC, "--table", world.uri)
        (folder / KEYED).mkdir()
        keyed = make_world(
            broker,
            KEYED,
            folder / KEYED,
            2,
            region_key=(),
            table={"format": {"key": "bytes"}},
            ingest={"seal_age_s": 1},
        )
        (folder / EVENTS).mkdir()
        events = make_world(
            broker,
            EVENTS,
            folder / EVENTS,
            3,
            region_key=("customer", "id"),
            table={"format": {"key": "json-compact", "envelope": "debezium"}},
        )
        traffic = Traffic(world)
        stage = Stage(broker, store, catalog, proxy, world, keyed, events, folder, ports, traffic)
        try:
            stage.start(*SERVICES)
            for one in (world, keyed):
                one.feed.produce(400)
                one.wait_caught_up("eventual")
            stage.kill("keyed-ingest")
            yield stage
        finally:
            traffic.end()
            stage.harm_nothing()
            stage.kill(*stage.services)
