"""Connections to the store that are cut, reset, silent or slow, at any byte, under ingest, flusher and readers.

The proxy damages TCP connections and knows no HTTP: also requests of Lance's own (manifests, data files, deletion vectors)
end in the middle, and the ones that a client keeps in its pool are dead when it takes them.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import lance
import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.support.store_addresses import FIXTURES, REAL, StoreServer, inside, origin, through
from tests.support.tcp_fault_proxy import DIRECTIONS, KINDS, TcpFaultProxy
from tests.support.whole_path import DEADLINE_S, Service
from tests.whole_path.world import World, make_world, plain_rows, positions

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

OFTEN = 2
"""How often each kind of damage is to happen in each direction."""
IMPATIENT = {"timeout": "2s", "connect_timeout": "2s", "client_max_retries": "3", "client_retry_timeout": "5"}
"""Silence ends with the client's time-out: 30 s by default, which the test cannot wait for."""


@pytest.mark.in_turns("kind", each=3)
@pytest.mark.parametrize("kind", REAL)  # s3, azure, gcs
def test_connections_break_at_any_byte(
    kind: str, request: pytest.FixtureRequest, kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    server: StoreServer = request.getfixturevalue(FIXTURES[kind])
    uri, direct = inside(server, f"network-{seed}", "one")
    with TcpFaultProxy(origin(server), seed) as proxy:
        damaged = through(direct | IMPATIENT, proxy.endpoint)
        world = make_world(kafka, topic_name, tmp_path, seed, uri=uri, options=damaged, in_process=True)
        world.options = direct
        ingest = world.lancewal.start("ingest", "run")
        flusher = world.lancewal.start("flusher", "run")
        world.feed.produce(40)
        world.wait_caught_up()
        proxy.probability = 0.4
        reads = Counter[str]()
        ends_at = time.monotonic() + DEADLINE_S
        while still := missing(proxy):
            assert time.monotonic() < ends_at, f"{still}, reads {reads}\n{ingest.tail}\n{flusher.tail}"
            check_alive(ingest, flusher)
            world.feed.produce(40)
            reads[read_through(world, damaged)] += 1
            world.check_strong()
            world.check_merged()
            proxy.reset_all()
        proxy.probability = 0.0
        proxy.reset_all()  # what is silent or slow stays so
        world.wait_caught_up()
        world.wait_caught_up("eventual")
        print(dict(proxy.happened), dict(reads))
        check_alive(ingest, flusher)
        ingest.stop()
        flusher.stop()
        world.merge_all()
    world.check_all_in(world.check_strong())
    world.check_all_in(world.check_merged())
    newest = lance.dataset(world.uri, storage_options=direct).to_table()
    world.compare(plain_rows(newest), world.feed.history.ends, "plain Lance")


def missing(proxy: TcpFaultProxy) -> list[str]:
    happened = proxy.happened
    return [f"{k} of {d}: {happened[k, d]}" for k in KINDS for d in DIRECTIONS if happened[k, d] < OFTEN]


def check_alive(*services: Service) -> None:
    for service in services:
        assert service.running, f"{service.name} ended with {service.exit_code}\n{service.tail}"


def read_through(world: World, options: dict[str, str]) -> str:
    """A strong read by the damaged way is right, or says that the store did not answer."""
    try:
        rows = open_table(world.uri, storage_options=options).to_arrow()
    except StoreUnavailable:
        return "unavailable"
    world.compare(plain_rows(rows), positions(receipt_of(rows.schema)), "a read through the proxy")
    return "right"
