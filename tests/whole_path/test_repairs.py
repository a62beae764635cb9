"""Repairs as an operator runs them, with real processes and a real topic: a damaged segment, a lost index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # imported there, not listed
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from lancewal_core.errors import LancewalError
from lancewal_core.names.ids import Region
from lancewal_core.region.loss_record import read_losses
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_core.wal.segment import FOOTER_SIZE, Trailer, decode_trailer
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.table import open_table
from tests.support.indexes import flip_record, page_versions
from tests.support.repairs import content
from tests.support.retention import delete_records
from tests.support.whole_path import until
from tests.whole_path.test_bad_records import GOOD
from tests.whole_path.world import SESSION_MS, World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_a_segment_is_damaged_and_an_index_is_lost(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    world = make_world(
        kafka,
        topic_name,
        tmp_path,
        seed,
        table={"history_window_s": 3600},
        ingest={"seal_rows": 100_000, "seal_age_s": 600},
    )
    ingest = world.lancewal.start("ingest", "run")
    for _ in range(4):
        world.feed.produce(60)
        world.feed.send_raw(b"{", world.feed.kafka_key(GOOD))  # a dead letter, in the midst of what is read again
        world.wait_caught_up()
    world.check_strong()

    # -- a segment, under a running ingest
    path = in_the_midst(world.uri)
    key = path.relative_to(world.uri).as_posix()
    path.write_bytes(path.read_bytes()[:-FOOTER_SIZE])
    with pytest.raises(LancewalError, match="lancewal repair segment"):
        open_table(world.uri).to_arrow()
    set_policy(world, topic_name, "compact")
    refused(world, "is compacted", "segment", key)
    set_policy(world, topic_name, "delete")
    before = content(Path(world.uri) / "_lancewal" / "made")
    assert "are read from Kafka" in world.lancewal.succeed("repair", "segment", key, "--dry-run")
    assert content(Path(world.uri) / "_lancewal" / "made") == before
    assert "is flushed" in world.lancewal.succeed("repair", "segment", key)
    world.check_strong()
    world.feed.produce(80)
    world.wait_caught_up()  # the same process goes on, in a new log
    world.check_strong()

    # -- a region's record in the newest versions of its page
    store = open_store(world.uri)
    contract = read_contract(store, world.uri)
    for version in page_versions(store, world.uri, contract.regions[1], making=contract.making)[:2]:
        flip_record(version, 1)
    refused(world, "must be paused", "region", f"{topic_name}-1")
    world.lancewal.succeed("pause", "ingest")
    world.lancewal.succeed("pause", "flusher")
    refused(world, "the table's consumer group has 1 member", "region", f"{topic_name}-1")
    ingest.kill()
    until(lambda: world.lancewal.run("repair", "region", f"{topic_name}-1").code == 0, poll_s=SESSION_MS / 4000)
    world.check_strong()
    world.lancewal.succeed("resume", "ingest")
    world.lancewal.succeed("resume", "flusher")
    world.feed.produce(60)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    world.check_strong()
    ingest.stop()
    world.merge_all()
    world.check_merged()


def test_a_segment_is_lost_and_kafka_has_dropped_its_records(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """A dead end, until an operator gives up what nobody has; ingest runs all the time."""
    world = make_world(
        kafka, topic_name, tmp_path, seed,
        table={"history_window_s": 3600}, ingest={"seal_rows": 100_000, "seal_age_s": 600},
    )  # fmt: skip
    ingest = world.lancewal.start("ingest", "run")
    for _ in range(4):
        world.feed.produce(60)
        world.wait_caught_up()
    world.check_strong()
    path = in_the_midst(world.uri)
    key = path.relative_to(world.uri).as_posix()
    path.unlink()
    delete_records(world.servers, topic_name, world.feed.history.ends)
    refused(world, "--accept-loss", "segment", key)
    before = content(Path(world.uri) / "_lancewal" / "made")
    shown = world.lancewal.succeed("repair", "segment", key, "--accept-loss", "--dry-run")
    assert content(Path(world.uri) / "_lancewal" / "made") == before
    report = json.loads(world.lancewal.succeed("repair", "segment", key, "--accept-loss", "--yes", "-o", "json"))
    recorded = [one for one in report["done"] if one.get("kind") == "offsets"]
    assert recorded
    assert all("are given up" in one["message"] for one in recorded)
    assert any(one.get("flushed") for one in report["done"])

    given_up = 0
    store = open_store(world.uri)
    contract = read_contract(store, world.uri)
    for region in contract.regions:
        for loss in read_losses(store, region, contract.making):
            assert f"partition {region.partition}: offsets {loss.first} to {loss.next - 1}" in shown
            for offset in range(loss.first, loss.next):
                given_up += world.feed.history.records[region.partition].get(offset) is not None
                world.feed.history.records[region.partition][offset] = None
    assert given_up
    world.check_strong()
    world.feed.produce(80)
    world.wait_caught_up()  # the same process goes on, in a new log
    world.finish([ingest])
    world.verify()


def in_the_midst(uri: str, among: frozenset[Path] | None = None) -> Path:
    """The largest segment but the first behind which its log goes on in each region that it has.

    What the last entry of an open generation held, nothing else shows: ingest reads it from Kafka, and no repair does.
    """
    segments = sorted((Path(uri) / "_lancewal" / "wal").rglob("*.arrow"))
    regions = {path: regions_of(path, path.relative_to(uri).as_posix()) for path in segments}

    def goes_on(path: Path) -> bool:
        later = [regions[other] for other in segments if other.parent == path.parent and other > path]
        return regions[path] <= set().union(*later)

    chosen = [path for path in segments[1:] if among is None or path in among]
    return max(filter(goes_on, chosen), key=lambda path: path.stat().st_size)


def regions_of(path: Path, key: str) -> set[Region]:
    data = path.read_bytes()
    trailer = decode_trailer(data, key, len(data))
    return {entry.region for entry in trailer.entries} if isinstance(trailer, Trailer) else set()


def set_policy(world: World, topic: str, policy: str) -> None:
    admin = AdminClient({"bootstrap.servers": world.servers})
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)

    def known() -> bool:
        config = admin.describe_configs([resource])[resource].result(60)
        return bool(config["cleanup.policy"].value == policy)

    until(known)


def refused(world: World, text: str, *command: object) -> None:
    answer = world.lancewal.run("repair", *map(str, command))
    assert answer.code == 2, (answer.out, answer.err)
    assert text in answer.err
