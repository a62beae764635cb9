"""The whole path over a store 30 ms away whose PUTs are delayed, refused, or stored without an answer.

A proxy between the services and the store's server damages PUTs under ``_lancewal/``: segments, indexes, snapshots, records of
merges; and the PUT of a manifest, which is a commit of Lance.  Readers go to the server directly.  What was damaged is in the
proxy's books; what came of it is in the services' event logs and metrics.
"""

from __future__ import annotations

import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lancewal_core.names import paths
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from tests.support.http_fault_proxy import FAR_S, Faults, HttpFaultProxy
from tests.support.store_addresses import FIXTURES, REAL, inside, origin, through
from tests.support.whole_path import DEADLINE_S, Event, Service, until
from tests.whole_path.world import World, make_world, plain_rows

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

FAULTS = Faults(cut=0.25, refuse=0.03, unavailable=0.03, delay_s=0.15)


def metric(port: int, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels; 0 if there is none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    families: Any = text_string_to_metric_families
    samples = [sample for family in families(text) for sample in family.samples]
    return sum(float(s.value) for s in samples if s.name == name and labels.items() <= s.labels.items())


def missing(proxy: HttpFaultProxy, ingest: Service) -> list[str]:
    """What has not happened often enough: every kind of damage, and consumption beside PUTs."""
    counts = {
        "answers lost": (proxy.count("cut", "/wal/"), 2),
        "refused": (proxy.count("refuse"), 5),
        "unavailable": (proxy.count("unavailable"), 5),
        "polls beside the PUT of a segment": (polls_beside_puts(ingest.events), 10),
    }
    return [f"{what}: {found} of {wanted}" for what, (found, wanted) in counts.items() if found < wanted]


def polls_beside_puts(events: Sequence[Event]) -> int:
    """Polls that ended while the PUT of a segment was under way."""
    putting = False
    found = 0
    for event in events:
        if event["point"] == "wal.put":
            putting = event["when"] == "before"
        found += putting and (event["point"], event["when"]) == ("poll", "after")
    return found


@pytest.mark.parametrize("kind", REAL)  # s3, azure, gcs
def test_lost_replies(
    kind: str, request: pytest.FixtureRequest, kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    server = request.getfixturevalue(FIXTURES[kind])
    uri, options = inside(server, f"replies-{seed}", "one")
    (port,) = free_ports(1)
    with HttpFaultProxy(origin(server), "/_lancewal/", seed) as proxy:
        world = make_world(
            kafka,
            topic_name,
            tmp_path,
            seed,
            uri=uri,
            options=through(options, proxy.endpoint),
            http={"ingest_port": port, "flusher_port": 0},
        )
        world.options = options
        proxy.distance_s = FAR_S
        ingest = world.lancewal.start("ingest", "run")
        world.feed.produce(40)
        world.wait_caught_up()
        consumption_goes_on(world, proxy, ingest, port)
        the_same_segment_is_put_again(world, proxy, ingest, port)
        flusher = world.lancewal.start("flusher", "run")
        for part in ("/pages/", "/_versions/", "/merges/") * 2:
            the_answer_is_lost(world, proxy, part)
        if kind == "s3" or request.config.getoption("--every-case"):  # each store has met each loss by now
            at_random(world, proxy, ingest, flusher)
        world.wait_caught_up()
        world.wait_caught_up("eventual")
        world.check_strong()
        ingest.stop()
        flusher.stop()
        # A segment whose answer was lost counts as stored all the same, under the same number.
        stored = {event["object"] for event in ingest.events_of("wal.put") if event["when"] == "after"}
        lost = {d.path.partition("/one/")[2] for d in proxy.damaged if d.kind == "cut" and "/wal/" in d.path}
        assert {key for key in lost if paths.parse_wal_segment(key)} <= stored  # bundles are copies of them
        print({kind: proxy.count(kind) for kind in ("cut", "refuse", "unavailable")})
        proxy.faults = Faults()
        world.merge_all()
    receipt = world.check_merged()
    world.check_all_in(receipt)
    newest = lance.dataset(world.uri, storage_options=options).to_table()
    world.compare(plain_rows(newest), world.feed.history.ends, "plain Lance")


def consumption_goes_on(world: World, proxy: HttpFaultProxy, ingest: Service, port: int) -> None:
    """A segment's PUT hangs; what is produced meanwhile is consumed and waits; the PUT lands, its answer is lost."""
    proxy.hold("/_lancewal/wal/")
    world.feed.produce(10)
    until(lambda: proxy.holding)
    segments = metric(port, "lancewal_ingest_segments_total")
    rows = metric(port, "lancewal_ingest_rows_total")
    memory = metric(port, "lancewal_ingest_memory_bytes")
    polls = ingest.passed("poll")
    sent = world.feed.produce(500)
    until(
        lambda: metric(port, "lancewal_ingest_memory_bytes") >= memory + sent,
        lambda: f"{metric(port, 'lancewal_ingest_memory_bytes')} from {memory}, {sent} bytes sent",
    )
    assert ingest.passed("poll") > polls
    assert ingest.events_of("wal.put")[-1]["when"] == "before"
    assert metric(port, "lancewal_ingest_segments_total") == segments
    assert metric(port, "lancewal_ingest_rows_total") == rows
    world.check_strong()
    proxy.release("cut")
    world.wait_caught_up()
    world.check_strong()
    until(lambda: proxy.count("cut", "/wal/") == 1)  # readers see what landed before the connection ends
    until(lambda: metric(port, "lancewal_ingest_segments_total") > segments)
    assert metric(port, "lancewal_ingest_fences_total") == 0


def the_answer_is_lost(world: World, proxy: HttpFaultProxy, part: str) -> None:
    """The next such PUT lands, and nobody is told."""
    lost = proxy.count("cut", part)

    def held() -> bool:
        world.feed.produce(10)
        return proxy.holding

    while proxy.count("cut", part) == lost:  # as long as another process was faster, and nothing was stored
        damaged = len(proxy.damaged)
        proxy.hold(part)
        until(held, lambda: world.lancewal.tails, poll_s=0.1)
        proxy.release("cut")
        until(lambda: len(proxy.damaged) > damaged)  # noqa: B023
    world.check_strong()
    world.check_merged()


def at_random(world: World, proxy: HttpFaultProxy, ingest: Service, flusher: Service) -> None:
    proxy.faults = FAULTS
    ends_at = time.monotonic() + DEADLINE_S
    while still := missing(proxy, ingest):
        assert time.monotonic() < ends_at, f"{still}\n{ingest.tail}\n{flusher.tail}"
        world.feed.produce(40)
        world.check_strong()
        world.check_merged()


def the_same_segment_is_put_again(world: World, proxy: HttpFaultProxy, ingest: Service, port: int) -> None:
    """The store is away for longer than the client repeats by itself: no verdict, and no number is skipped."""
    proxy.hold("/_lancewal/wal/")
    world.feed.produce(10)
    until(lambda: proxy.holding)
    proxy.release("unavailable")
    world.wait_caught_up()
    world.check_strong()
    assert metric(port, "lancewal_ingest_failures_total", operation="append") >= 1
    begun = Counter(event["object"] for event in ingest.events_of("wal.put") if event["when"] == "before")
    assert max(begun.values()) > 1
    sequences = [int(name.rpartition("/")[2].partition(".")[0]) for name in begun]
    assert sequences == list(range(len(sequences)))
