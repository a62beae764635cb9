"""A moving cut of two tables of two topics, on the whole path: services publish it, are killed, and lose the catalog for a
while.  Whoever reads it sees the fold of the records below its positions, and never goes back."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.opened import open_directory, open_postgres
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from lancewal_reader.cuts import open_cut
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.table import open_table
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.whole_path import Service, until
from tests.whole_path.test_lost_replies import metric
from tests.whole_path.world import World, make_world, positions

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

NAMES = ("shop.items", "shop.orders")
CUT = {"name": "live", "tables": "shop.*", "every": 1}
WINDOW = {"history_window_s": 120}
AGE = "lancewal_flusher_cut_age_seconds"
HELD = "lancewal_flusher_cut_held_seconds"


class Shop:
    """Two tables with a catalog; the flusher of each publishes the cut of both."""

    def __init__(self, kafka: KafkaBroker, topic: str, folder: Path, seed: int, settings: Mapping[str, Any]) -> None:
        self.worlds: dict[str, World] = {}
        self.ports: dict[str, int] = {}
        for number, name in enumerate(NAMES):
            ingest_port, self.ports[name] = free_ports(2)
            place = folder / name
            place.mkdir()
            http = {"ingest_port": ingest_port, "flusher_port": self.ports[name]}
            world = make_world(
                kafka, f"{topic}-{number}", place, seed + number, http=http, table=WINDOW, in_process=True
            )
            tree = {**world.lancewal.tree, "catalog": dict(settings)}
            flusher = {**tree.get("flusher", {}), "cuts": [CUT]}
            world.lancewal.settings({**tree, "flusher": flusher})
            self.worlds[name] = world
        self.seen: list[Cut] = []

    def start(self, name: str, *command: str, failpoint: str | None = None) -> Service:
        return self.worlds[name].lancewal.start(*command, failpoint=failpoint, environment=SECRETS)

    def produce(self, count: int) -> None:
        for world in self.worlds.values():
            world.feed.produce(count)

    def read(self, catalog: StoredCatalog) -> Cut | None:
        """Both tables at the newest cut: each is the fold up to its positions, and nothing went back."""
        if catalog.cut("live") is None:
            return None
        tables = open_cut(catalog, "live", open_table)
        cut = tables._cut
        for name, table in tables.items():
            rows = table.to_arrow()
            assert str(receipt_of(rows.schema)) == cut.tables[name].receipt
            self.worlds[name].compare(rows.to_pylist(), positions(receipt_of(rows.schema)), f"{name} at {cut.number}")
        if self.seen:
            before = self.seen[-1]
            assert cut.number >= before.number
            for name, of in cut.tables.items():
                was, now = (Receipt.parse(one).positions for one in (before.tables[name].receipt, of.receipt))
                assert all(now[region] >= at for region, at in was.items()), (before, cut)
        self.seen.append(cut)
        return cut

    def has_all(self, catalog: StoredCatalog) -> bool:
        """Whether the cut has everything that was produced."""
        cut = self.read(catalog)
        if cut is None or list(cut.tables) != list(NAMES):
            return False
        of = {name: positions(Receipt.parse(cut.tables[name].receipt)) for name in NAMES}
        ends = {name: world.feed.history.ends for name, world in self.worlds.items()}
        return all(of[name].get(p, 0) >= end for name in NAMES for p, end in ends[name].items())

    def killed(self, service: Service, catalog: StoredCatalog) -> bool:
        """Produce and read once more; whether the service has ended."""
        self.produce(3)
        self.read(catalog)
        return not service.running

    def problems(self, name: str) -> list[str]:
        """Problems in the status of the flusher of this table."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}/status", timeout=60) as answer:
            return list(json.loads(answer.read())["problems"])

    def await_all(self, catalog: StoredCatalog) -> None:
        until(
            lambda: self.has_all(catalog), lambda: [world.lancewal.tails for world in self.worlds.values()], poll_s=0.1
        )


SECRETS = {"LANCEWAL_CATALOG__PASSWORD": PASSWORD}


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that the test may kill."""
    with PostgresServer() as server:
        yield server


def run(shop: Shop, catalog: StoredCatalog) -> list[Service]:
    """Start both ingests and both flushers; wait for the first cut of all that there is."""
    for name, world in shop.worlds.items():
        world.lancewal.run("catalog", "register", name, environment=SECRETS)
    services = [shop.start(name, "ingest", "run") for name in NAMES]
    shop.produce(30)
    services += [shop.start(name, "flusher", "run") for name in NAMES]
    shop.await_all(catalog)
    return services


def test_whoever_reads_the_cut_sees_all_tables_change_together_and_killed_publishers_leave_a_whole_one(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    shop = Shop(kafka, topic_name, tmp_path, seed, {"root": str(lake)})
    catalog = open_directory(str(lake))
    *ingests, items, orders = run(shop, catalog)
    for failpoint in ("cut.publish:before:2=kill", "cut.publish:after:2=kill"):
        orders.stop()
        orders = shop.start("shop.orders", "flusher", "run", failpoint=failpoint)
        items.freeze()  # one publishes, and is killed
        until(partial(shop.killed, orders, catalog), poll_s=0.3)
        assert orders.exit_code == -signal.SIGKILL
        shop.read(catalog)
        orders = shop.start("shop.orders", "flusher", "run")
        shop.await_all(catalog)
        items.thaw()  # what it had begun is older
        shop.produce(3)
        shop.await_all(catalog)
    numbers = [cut.number for cut in shop.seen]
    assert numbers[-1] > 3
    until(lambda: 0 < metric(shop.ports["shop.items"], AGE, cut="live") < 60)

    ingests[0].freeze()  # items lag
    shop.produce(3)
    until(lambda: metric(shop.ports["shop.orders"], HELD, cut="live", cut_table="shop.items") > 0)
    until(lambda: any("cut live is held back: table shop.items" in one for one in shop.problems("shop.orders")))
    assert any("shop.items" in line["reasons"] for line in orders.logged("cut_held"))
    ingests[0].thaw()
    shop.await_all(catalog)
    shown = shop.worlds["shop.items"].lancewal.succeed("cut", "show", "live")
    assert "moving, number" in shown
    for service in (*ingests, items, orders):
        service.stop()


def test_a_database_that_is_away_holds_up_nothing_but_the_publication(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int, own_postgres: PostgresServer
) -> None:
    url = own_postgres.database()
    shop = Shop(kafka, topic_name, tmp_path, seed, {"kind": "postgres", "url": url})
    catalog = open_postgres(url, PASSWORD)
    services = run(shop, catalog)
    own_postgres.kill()
    merged = {name: metric(port, "lancewal_flusher_merges_total") for name, port in shop.ports.items()}
    shop.produce(30)
    for name, world in shop.worlds.items():
        world.wait_caught_up("eventual")
        assert metric(shop.ports[name], "lancewal_flusher_merges_total") > merged[name]
    orders = services[-1]
    until(lambda: bool(orders.logged("cut_not_published")))
    assert {line["kind"] for line in orders.logged("cut_not_published")} == {"catalog_unavailable"}
    until(lambda: metric(shop.ports["shop.orders"], AGE, cut="live") > 2)
    own_postgres.start()
    shop.await_all(catalog)
    for service in services:
        service.stop()
