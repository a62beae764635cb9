"""Nothing stops without the catalog: ingest, flusher and reads by address go on through each fault of PostgreSQL.

The flusher's own view of each fault is in ``tests/flusher/service/test_reports.py``."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from tests.support.postgres import DATABASE, PASSWORD, OneAnswer, PostgresServer
from tests.support.tcp_fault_proxy import Damage
from tests.support.whole_path import until
from tests.whole_path.test_lost_replies import metric
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

NAME = "shop.orders"


class Catalog:
    """A server behind a proxy, and a replica of it without the last commits.  Clients know both."""

    def __init__(self, stack: ExitStack, root: Path) -> None:
        self.server = stack.enter_context(PostgresServer())
        self.proxy = stack.enter_context(OneAnswer(self.server.url()))
        first = self.proxy.through(self.server.database())
        self.replica = self.server.replica()
        stack.callback(self.replica.close)
        hosts, _, database = first.rpartition("/")
        url = f"{hosts},127.0.0.1:{self.replica.port}/{database}"
        self.settings = {"kind": "postgres", "url": url, "password": PASSWORD, "root": str(root)}

    def cut(self) -> None:
        """Lose each answer midway, after the log-in."""
        self.proxy.damage = Damage("cut", "answer", 600)
        self.proxy.reset_all()

    def pass_on(self) -> None:
        self.proxy.damage = None

    def fail_over(self) -> None:
        self.server.kill()
        self.replica.start()
        self.replica.promote()


def test_ingest_flusher_and_reads_go_on_through_every_fault_of_the_catalog(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """In each state rows come in, are merged and read, and a command that needs the catalog ends by name.

    At the end the failover loses the table's entry, which the flusher writes again."""
    ingest_port, flusher_port = free_ports(2)
    root = tmp_path / "lake"
    with ExitStack() as stack:
        catalog = Catalog(stack, root)
        http = {"ingest_port": ingest_port, "flusher_port": flusher_port}
        world = make_world(
            kafka, topic_name, tmp_path, seed, http=http, catalog=catalog.settings, uri=str(root / f"{NAME}.lance"),
            in_process=True,
        )  # fmt: skip
        lancewal = world.lancewal
        lancewal.succeed("catalog", "register", NAME, "--table", world.uri)
        lancewal.settings({**lancewal.tree, "table": {"uri": NAME}})
        services = [lancewal.start("ingest", "run"), lancewal.start("flusher", "run")]
        goes_on(world)

        def silent_s() -> float:
            return metric(flusher_port, "lancewal_flusher_catalog_silent_seconds")

        def status() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{flusher_port}/status", timeout=60) as shown:
                return str(shown.read().decode())

        def reported() -> bool:
            return bool(catalog.server.run("SELECT 1 FROM lancewal.reports", DATABASE))

        until(reported, lambda: lancewal.tails)
        states: tuple[tuple[Callable[[], object], Callable[[], object], str], ...] = (
            (catalog.server.kill, catalog.server.start, "does not answer"),
            (catalog.server.pause, catalog.server.resume, "does not answer"),
            (catalog.server.refuse_writes, catalog.server.take_writes, "takes no writes"),
            (catalog.cut, catalog.pass_on, "does not answer"),
            (catalog.server.fill, catalog.server.make_room, ""),
        )
        for number, (harm, mend, said) in enumerate(states):
            harm()
            goes_on(world)
            answer = lancewal.run("catalog", "list")
            assert (answer.code, said in answer.err) == (3 if said else 0, True), answer.err
            assert PASSWORD not in answer.err
            if not number:
                until(lambda: silent_s() > 0, lambda: lancewal.tails)
                until(lambda: "catalog_unavailable: the catalog postgresql://127.0.0.1:" in status(), status)
            mend()
        until(lambda: silent_s() == 0, lambda: lancewal.tails)
        catalog.fail_over()
        goes_on(world)
        flusher = services[1]
        until(lambda: bool(flusher.logged("catalog_differs")), lambda: lancewal.tails)
        assert flusher.logged("catalog_went_back")
        (found,) = flusher.logged("catalog_differs")
        assert (found["name"], found["kind"], found["mended"]) == (NAME, "no-entry", True)
        assert NAME in lancewal.succeed("catalog", "list")
        world.finish(services)


def goes_on(world: World) -> None:
    """Records that are produced now are merged and read, by the table's address."""
    world.feed.produce(60)
    world.wait_caught_up("eventual")
    world.check_strong()
    world.check_merged()
