"""Policies of the contract are changed while ingest runs: each entry follows the version that it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lancewal_core.names import paths
from lancewal_core.store.obstore import open_store
from lancewal_core.wal.segment import Segment, decode_segment
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from tests.support.whole_path import Service, until
from tests.whole_path.feed import Record
from tests.whole_path.test_bad_records import GOOD, headers_of, read_letters
from tests.whole_path.test_lost_replies import metric
from tests.whole_path.test_offset_decisions import misroute, stopped
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def listed(world: World) -> dict[tuple[int, int], int]:
    """By partition and offset of each record that an entry lists: the contract version that the entry names."""
    store = open_store(world.uri)
    found: dict[tuple[int, int], int] = {}
    for info in store.list(paths.WAL):
        data = None if paths.parse_wal_bundle(info.key) else store.get(info.key)
        segment = None if data is None else decode_segment(data, info.key)
        for entry in segment.entries if isinstance(segment, Segment) else ():
            found.update({(entry.region.partition, r.offset): entry.contract_version for r in entry.rejected})
    return found


def bad(world: World) -> tuple[int, int]:
    place = world.feed.send_raw(b"{", world.feed.kafka_key(GOOD))
    world.feed.produce(30)
    return place


def test_policies_are_altered_while_ingest_runs(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    """A partition that has stopped goes on by itself; what is ignored is counted; and a process that is killed behind the last
    change leaves what its heir reads by the versions that the entries name.  A record with an unknown column is looked up
    before it is rejected."""
    (port,) = free_ports(1)
    table, http = {"history_window_s": 3600, "grace_s": 600}, {"ingest_port": port}
    world = make_world(kafka, topic_name, tmp_path, seed, table=table, http=http, in_process=True)
    flusher, ingest = world.lancewal.start("flusher", "run"), world.lancewal.start("ingest", "run")
    world.feed.send([Record("upsert", GOOD)])
    world.feed.produce(30)
    letter = bad(world)
    world.wait_caught_up()
    wrong = misroute(world)
    until(stopped(ingest, "misrouted"), lambda: ingest.tail)

    said = world.lancewal.succeed("table", "alter", "--on", "misrouted=dead-letter")
    assert "version 3" in said  # 2 names the consumer group
    world.feed.produce(30)
    world.wait_caught_up()
    world.lancewal.succeed("table", "alter", "--on", "misrouted=ignore", "--on", "bad-record=ignore")
    until(lambda: taken_up(ingest) == [3, 4], lambda: ingest.tail)
    passed = {bad(world), misroute(world)}
    world.feed.produce(30)
    world.wait_caught_up()
    counted = {k: metric(port, "lancewal_ingest_records_ignored_total", kind=k) for k in ("not_json", "misrouted")}
    assert counted == {"not_json": 1, "misrouted": 1}

    ingest.kill()
    later = bad(world)
    heir = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    world.lancewal.succeed("table", "alter", "--on", "unknown-column=ignore")
    value, good = json.dumps({**GOOD, "colour": "blue", "size": {"is": None}}).encode(), Record("upsert", GOOD)
    world.feed.send_raw(value, world.feed.kafka_key(GOOD), record=good)  # at once: no watch has looked yet
    world.wait_caught_up()
    counted = {
        f: metric(port, "lancewal_ingest_other_names_total", field=f, kind="unknown") for f in ("colour", "size")
    }
    assert counted == {"colour": 1, "size": 1}
    assert metric(port, "lancewal_ingest_contract_version") == 5
    assert listed(world) == {letter: 2, wrong: 3, **dict.fromkeys({*passed, later}, 4)}
    sources = {f"{topic_name}-{partition}-{offset}" for partition, offset in (letter, wrong)}
    letters = read_letters(world, f"{topic_name}.dead-letters", sources)
    assert {dict(headers_of(one))["lancewal.source"] for one in letters} == {source.encode() for source in sources}
    world.verify()
    world.finish([heir, flusher])
    world.verify()


def taken_up(ingest: Service) -> list[int]:
    return [line["contract_version"] for line in ingest.logged("contract_taken_up")]
