"""Faults of the object store under running services: refusals, conflicts, latency, and a store that is away.

In a normal run each test has the server of one kind of store, S3, Azure or Google Cloud Storage; ``--every-case`` has all."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from lancewal_core.errors import MergedPositionUnknown, PlanRetriesExhausted, StoreInconsistent
from lancewal_core.table.proof import store_probe
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.clouds import GcsServer
from lancewal_demo.stack.ports import free_ports
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.support.http_fault_proxy import FAR_S, Faults, HttpFaultProxy
from tests.support.store_addresses import FIXTURES, REAL, StoreServer, inside, origin, through
from tests.support.whole_path import DEADLINE_S, Service, until
from tests.whole_path.test_lost_replies import metric
from tests.whole_path.world import World, make_world, positions

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

BUDGET = 64 << 20
AWAY_S = 20.0
"""Longer than the client and the protocol repeat a PUT by themselves."""


@pytest.fixture(params=REAL)  # s3, azure, gcs
def store(request: pytest.FixtureRequest) -> StoreServer:
    server: StoreServer = request.getfixturevalue(FIXTURES[request.param])
    return server


@pytest.mark.in_turns("faults", "store", each=3)
@pytest.mark.parametrize(
    "faults",
    [Faults(unavailable=0.3), Faults(conflict=0.3), Faults(delay_s=3.0)],
    ids=["503", "409", "latency"],
)
def test_puts_are_refused_or_late(
    faults: Faults, kafka: KafkaBroker, store: StoreServer, topic_name: str, tmp_path: Path, seed: int
) -> None:
    with behind_proxy(kafka, store, topic_name, tmp_path, seed) as (world, proxy, _):
        ingest = world.lancewal.start("ingest", "run")
        world.feed.produce(50)
        world.wait_caught_up()
        flusher = world.lancewal.start("flusher", "run")
        proxy.faults = faults
        rounds = 0
        ends_at = time.monotonic() + DEADLINE_S
        while rounds < 2 or (not faults.delay_s and proxy.count("unavailable") + proxy.count("conflict") < 20):
            assert time.monotonic() < ends_at, ingest.tail
            world.feed.produce(60)
            world.wait_caught_up()
            world.check_strong()
            world.check_merged()
            rounds += 1
        proxy.faults = Faults()
        world.wait_caught_up("eventual")
        assert ingest.running, ingest.tail
        assert flusher.running, flusher.tail
        world.finish([ingest, flusher])


@pytest.mark.in_turns("store", each=3)
def test_the_store_is_away(kafka: KafkaBroker, store: StoreServer, topic_name: str, tmp_path: Path, seed: int) -> None:
    with behind_proxy(kafka, store, topic_name, tmp_path, seed) as (world, proxy, port):
        ingest = world.lancewal.start("ingest", "run")
        world.feed.produce(50)
        world.wait_caught_up()
        proxy.faults = Faults(unavailable=1.0)
        began = time.monotonic()
        readiness = set[int]()
        while time.monotonic() < began + AWAY_S or 503 not in readiness:
            assert time.monotonic() < began + DEADLINE_S, ingest.tail
            world.feed.produce(50)
            world.check_strong()  # what was durable is still read
            assert answer(port, "/livez") == 200
            readiness.add(answer(port, "/readyz"))
            assert metric(port, "lancewal_ingest_memory_bytes") <= BUDGET
        assert not world.caught_up()
        proxy.faults = Faults()
        world.wait_caught_up()
        until(lambda: answer(port, "/readyz") == 200, lambda: ingest.tail)
        assert metric(port, "lancewal_ingest_fences_total") == 0
        world.finish([ingest])


@pytest.mark.gs
def test_a_key_takes_one_write_each_second(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google's limit at its strictest: a write that was refused counts as well.  Two flushers race for the same new keys."""
    monkeypatch.setattr(store_probe, "ROUNDS", 1)  # to save time when the table is made
    gcs = GcsServer(tmp_path / "gcs", key_interval_s=1.0)
    with gcs as store, behind_proxy(kafka, store, topic_name, tmp_path, seed) as (world, proxy, _):
        services = [world.lancewal.start(name, "run") for name in ("ingest", "flusher", "flusher")]
        ends_at = time.monotonic() + DEADLINE_S
        while proxy.throttled < 30:
            assert time.monotonic() < ends_at, world.lancewal.tails
            world.feed.produce(60)
            world.wait_caught_up()
            world.check_strong()
            world.check_merged()
        world.wait_caught_up("eventual")
        for service in services:
            assert service.running, service.tail
        world.finish(services)


@pytest.mark.in_turns("store", each=3)
def test_listings_are_partial(
    kafka: KafkaBroker, store: StoreServer, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """Of half of the listings of lancewal's folder something is missing: a read is right or says what the store does not
    show, and nothing that is needed is deleted.  (Lance trusts the listings of the table's own versions.)"""
    with behind_proxy(kafka, store, topic_name, tmp_path, seed, "/_lancewal/") as (world, proxy, _):
        options = through(world.options, proxy.endpoint)
        ingest = world.lancewal.start("ingest", "run")
        world.feed.produce(50)
        world.wait_caught_up()
        flusher = world.lancewal.start("flusher", "run")
        until(lambda: bool(flusher.events), lambda: flusher.tail)
        proxy.faults = Faults(partial=0.5)
        reads = Counter[str]()
        ends_at = time.monotonic() + DEADLINE_S
        while reads["right"] < 3 or proxy.count("partial") < 40:
            assert time.monotonic() < ends_at, f"{reads}\n{ingest.tail}\n{flusher.tail}"
            world.feed.produce(60)
            reads[read(world, options)] += 1
            world.check_strong()
            if reads.total() % 4 == 0:  # another owner finds its way
                ingest.kill()
                ingest = started(world)
                world.wait_caught_up()
        print(dict(reads), Counter(damaged.path.split("/")[2] for damaged in proxy.damaged))
        proxy.faults = Faults()
        world.wait_caught_up()
        world.wait_caught_up("eventual")
        assert flusher.running, flusher.tail
        world.finish([ingest, flusher])


def started(world: World) -> Service:
    """A member that has begun.  One that is not shown the contract ends by name, and is started again by whoever runs it."""
    while True:
        ingest = world.lancewal.start("ingest", "run")
        until(lambda: bool(ingest.events) or not ingest.running, lambda: ingest.tail)  # noqa: B023
        if ingest.running:
            return ingest
        assert "store_inconsistent" in ingest.tail


def read(world: World, options: dict[str, str]) -> str:
    """What a read through the proxy comes to: the right rows, or an error that says so."""
    try:
        rows = open_table(world.uri, storage_options=options).to_arrow()
    except (StoreInconsistent, PlanRetriesExhausted, MergedPositionUnknown) as error:
        return error.kind
    world.compare(rows.to_pylist(), positions(receipt_of(rows.schema)), "a read of partial listings")
    return "right"


@contextmanager
def behind_proxy(
    kafka: KafkaBroker,
    store: StoreServer,
    topic: str,
    folder: Path,
    seed: int,
    part: str = "/",
    topic_config: Mapping[str, str] | None = None,
) -> Iterator[tuple[World, HttpFaultProxy, int]]:
    """A table whose services reach the store through a proxy, 30 ms away; readers of the test go to the server directly.

    No object may be put twice, by whatever library, but for the file of a transaction of Lance."""
    uri, options = inside(store, f"faults-{topic[-8:]}", "one")
    (port,) = free_ports(1)
    with HttpFaultProxy(origin(store), part, seed) as proxy:
        world = make_world(
            kafka, topic, folder, seed,
            uri=uri,
            options=through(options, proxy.endpoint),
            http={"ingest_port": port, "flusher_port": 0},
            ingest={"memory_bytes_max": BUDGET},
            topic_config=topic_config,
        )  # fmt: skip
        world.options = options
        proxy.distance_s = FAR_S
        yield world, proxy, port
        # Google would take one write of a key each second.  Lance deletes the file of a transaction whose commit has met a
        # conflict, and puts it again with the next try.
        again = [path for path, times in proxy.put.items() if times > 1 and "/_transactions/" not in path]
        assert again == []


def answer(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
