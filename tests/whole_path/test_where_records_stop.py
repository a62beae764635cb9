"""One table, real services, a real broker: what holds its records up is made, one after another, and named from outside and by
the service that meets it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_core.cli.options import read_settings
from lancewal_core.process.clock import SystemClock
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_core.table.control import Service
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from lancewal_tables.status.status import table_status
from tests.support.pauses import pause, resume
from tests.support.whole_path import until
from tests.whole_path.feed import PARTITIONS
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

GOOD = {"customer": "customer-1", "id": 1, "status": "new"}


def outside(world: World, reader_version: int | None = None) -> dict[str, Any]:
    """What `lancewal status` says."""
    settings = read_settings(world.lancewal.config)
    return asdict(table_status(settings, world.uri, kafka_timeout_s=120.0, reader_version=reader_version))


def page(port: int) -> dict[str, Any]:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/status", headers={"Accept": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except (urllib.error.URLError, ConnectionError):  # it has just begun
        return {"partitions": []}


def stop_of(status: dict[str, Any], partition: int) -> str:
    found = {one["partition"]: one["diagnosis"] for one in status["partitions"]}.get(partition)
    return "" if found is None else f"{found['step']}: {found['kind']}"


def fresh(status: dict[str, Any], partition: int) -> float:
    (found,) = (one["freshness_s"] for one in status["partitions"] if one["partition"] == partition)
    return float(found)


def text_of(status: dict[str, Any], partition: int) -> str:
    (found,) = (one["diagnosis"] for one in status["partitions"] if one["partition"] == partition)
    return f"{found['message']} {found['do']}"


def seen(look: Callable[[], dict[str, Any]], partition: int, stop: str) -> dict[str, Any]:
    """The first status in which the partition stands so."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [look()]
        return stop_of(found[0], partition) == stop

    until(there, lambda: found, poll_s=0.2)
    return found[0]


def test_what_holds_records_up_is_named(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    ingest_port, flusher_port = free_ports(2)
    ports = {"ingest_port": ingest_port, "flusher_port": flusher_port}
    world = make_world(
        kafka,
        topic_name,
        tmp_path,
        seed,
        in_process=True,
        http=ports,
        ingest={"seal_age_s": 0.5},
        flusher={"merge_interval_s": 0.2},
    )
    # Nothing was produced, and then nobody consumes.
    found = outside(world)
    assert (found["problems"], found["diagnosis"]["kind"]) == ((), "nothing_produced")
    bad, first = world.feed.send_raw(b"{", world.feed.kafka_key(GOOD))
    world.feed.send_raw(b"{}", world.feed.kafka_key(GOOD))
    _, last = world.feed.send_raw(b"[", world.feed.kafka_key(GOOD))
    found = outside(world)
    assert (found["problems"], stop_of(found, bad), found["group_members"]) == ((), "consumed: no_ingest", 0)

    # All that comes is rejected: the page says so, and whoever looks at the WAL.
    ingest = world.lancewal.start("ingest", "run")
    found = seen(lambda: page(ingest_port), bad, "decoded: all_rejected")
    assert found["seen_by"] == "ingest"
    (of,) = (one for one in found["partitions"] if one["partition"] == bad)
    assert of["consumed"] == of["decoded"] == of["durable"] == last + 1
    found = outside(world)
    assert (len(found["problems"]), stop_of(found, bad)) == (1, "decoded: all_rejected")
    (of,) = (one for one in found["partitions"] if one["partition"] == bad)
    assert of["rejections"]["records"] == 3
    assert first <= of["rejections"]["offset"] <= last

    # Rows are flushed, and the flusher may not merge them; then it does.
    store = open_store(world.uri)
    making = read_contract(store, world.uri).making
    pause(store, SystemClock(), lambda: "abcdef01", Service.FLUSHER, making=making)
    flusher = world.lancewal.start("flusher", "run")
    world.feed.produce_everywhere()
    world.wait_caught_up()
    found = seen(lambda: outside(world), bad, "merged: flusher_paused")
    until(lambda: page(flusher_port).get("paused") == {"flusher": "resumed"}, lambda: page(flusher_port))
    before = lance.dataset(world.uri).version
    resume(store, SystemClock(), lambda: "abcdef02", Service.FLUSHER, making=making)
    found = seen(lambda: outside(world), bad, "read: caught_up")
    until(lambda: bool(page(flusher_port).get("recent_merges")), lambda: page(flusher_port))
    assert stop_of(outside(world, before), bad) == "read: reader_behind"

    # A key that lies in the wrong partition stops it: its owner knows at once.
    wrong = (bad + 1) % PARTITIONS
    _, offset = world.feed.send_raw(json.dumps(GOOD).encode(), world.feed.kafka_key(GOOD), partition=wrong)
    found = seen(lambda: page(ingest_port), wrong, "decoded: misrouted")
    assert f"{topic_name}-{wrong}-{offset}" in text_of(found, wrong)
    assert stop_of(found, bad) != "decoded: misrouted"
    # What waits there grows old; the others are fresh.
    until(lambda: fresh(page(ingest_port), wrong) > 0, lambda: page(ingest_port))
    assert fresh(page(ingest_port), bad) == 0

    # Nobody is left.
    ingest.stop()
    flusher.stop()
    assert stop_of(outside(world), wrong) == "consumed: no_ingest"
