"""A topic keyed by JSON of another system, from a real producer to every way to read, and a key that it writes in two ways."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import lance
import pytest

from lancewal_core.rows.murmur2 import partition_of
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.table import open_table
from tests.support.whole_path import until
from tests.whole_path.feed import COLUMNS, PARTITIONS
from tests.whole_path.test_bad_records import headers_of, read_letters
from tests.whole_path.world import World, make_world, user_row

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def world_of(kafka: KafkaBroker, topic: str, folder: Path, seed: int) -> World:
    return make_world(
        kafka, topic, folder, seed, region_key=(), table={"format": {"key": "bytes"}, "on_misrouted": "dead-letter"}
    )


def test_a_topic_keyed_by_json(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = world_of(kafka, topic_name, tmp_path, seed)
    services = [world.lancewal.start("ingest", "run"), world.lancewal.start("flusher", "run")]
    world.feed.produce(150)
    nobodys, offset = world.feed.send_raw(json.dumps({"customer": "x", "id": 1}).encode(), None, partition=2)
    for _ in range(4):
        world.feed.produce(100)
        world.check_strong()
        world.check_merged()
    assert set(world.feed.history.ends) == set(range(PARTITIONS))
    world.wait_caught_up()
    (letter,) = read_letters(world, f"{topic_name}.dead-letters", {f"{topic_name}-{nobodys}-{offset}"})
    assert dict(headers_of(letter))["__connect.errors.class.name"] == b"misrouted"
    world.finish(services)
    assert world.verify().rows_unchecked == 0
    world.append_as_user([user_row("somebody", 1, "mine")])
    report = world.verify("topic")
    assert (report.counts, report.rows_unchecked) == ({"foreign": 1}, 0)
    assert {finding.partition for finding in report.findings} == {None}
    answer = world.lancewal.run("verify", "--partition", "1")
    assert (answer.code, "bytes" in answer.err) == (2, True)


def test_one_key_through_two_partitions(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = world_of(kafka, topic_name, tmp_path, seed)
    row = {**dict.fromkeys(COLUMNS), "customer": "hunter2", "id": 7}
    keys = (json.dumps({"id": 7, "customer": "hunter2", "salt": salt}).encode() for salt in itertools.count())
    usual = world.feed.kafka_key(row)
    other = next(key for key in keys if partition_of(key, PARTITIONS) != partition_of(usual, PARTITIONS))
    world.feed.send_raw(json.dumps({**row, "status": "old"}).encode(), usual)
    ingest = world.lancewal.start("ingest", "run")
    until(lambda: seen(world) == ["old"], lambda: ingest.tail)
    ingest.stop()
    world.lancewal.succeed("merge")
    world.feed.send_raw(json.dumps({**row, "status": "new"}).encode(), other)
    ingest = world.lancewal.start("ingest", "run")
    until(lambda: seen(world) == ["new"], lambda: ingest.tail)
    ingest.stop()

    answer = world.lancewal.run("merge")
    assert answer.code == 0, answer.err
    assert '"event": "keys_set_aside"' in answer.err
    assert "hunter2" not in answer.err + answer.out
    assert lance.dataset(world.uri).to_table(["status"]).to_pylist() == [{"status": "old"}]
    assert seen(world) == ["old"]

    shown = json.loads(world.lancewal.run("conflict", "list", "--output", "json").out)
    (listed,) = shown["keys"]
    assert shown["total"] == 1
    assert "not shown: 1" in world.lancewal.run("conflict", "list", "--limit", "0").out
    here, there = (partition_of(key, PARTITIONS) for key in (usual, other))
    assert listed["key"] == ["hunter2", 7]
    assert listed["owner"].endswith(f"/{here}")
    assert [waiting["partition"] for waiting in listed["waiting"]] == [there]
    answer = world.lancewal.run("conflict", "settle", f"{topic_name}-{there}", "--all", "--yes")
    assert (answer.code, "hunter2" in answer.err + answer.out) == (0, False)
    assert lance.dataset(world.uri).to_table(["status"]).to_pylist() == [{"status": "new"}]
    assert seen(world) == ["new"]
    assert world.verify().counts == {}


def seen(world: World) -> list[object]:
    return [row["status"] for row in open_table(world.uri).to_arrow().to_pylist()]
