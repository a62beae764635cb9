"""A partition that stopped goes on by an operator's decision: the record rejected, the loss accepted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lancewal_core.region.loss_record import read_losses
from lancewal_core.store.obstore import open_store
from lancewal_core.table.contract import read_contract
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from tests.support.record_batches import RawRecord, batch_of, send_batch
from tests.support.retention import delete_records
from tests.support.whole_path import Service, until
from tests.whole_path.feed import PARTITIONS, Record
from tests.whole_path.test_bad_records import GOOD, answer, headers_of, read_letters
from tests.whole_path.world import World, make_world, positions

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_rejecting_the_misrouted_record_that_stopped_a_partition(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    (port,) = free_ports(1)
    world = make_world(kafka, topic_name, tmp_path, seed, http={"ingest_port": port, "flusher_port": 0})
    world.feed.produce(100)
    wrong, offset = misroute(world)
    world.feed.produce(100)
    ingest = world.lancewal.start("ingest", "run")
    until(stopped(ingest, "misrouted"), lambda: ingest.tail)

    # The process is alive and owns the partition: the command takes it over by a fence.
    refused(world, "goes on at offset", "reject", f"{topic_name}-{wrong}-{offset + 1}")
    refused(world, "has topic", "reject", f"another-topic-{wrong}-{offset}")
    other = (wrong + 1) % PARTITIONS
    until(lambda: positions(world.check_strong()).get(other) == world.feed.history.ends[other])
    refused(world, "no record at offset", "reject", f"{topic_name}-{other}-{world.feed.history.ends[other]}")
    record = f"{topic_name}-{wrong}-{offset}"
    told = json.loads(world.lancewal.succeed("offset", "reject", record, "--dry-run", "-o", "json"))
    assert (told.pop("first")["kind"], told.pop("unreadable_to")) == ("misrouted", None)
    assert told == {
        "partition": wrong,
        "offset": offset,
        "rejected": {"misrouted": 1},
        "rows": 0,
        "goes_on": offset + 1,
        "topic": f"{topic_name}.dead-letters",
        "dry_run": True,
    }
    looked = world.lancewal.succeed("offset", "reject", record, "--dry-run")
    assert looked.startswith(f"without --dry-run: {record}: rejected (misrouted")
    said = world.lancewal.succeed("offset", "reject", record)
    assert said.startswith(f"{record}: rejected (misrouted")
    assert f"{topic_name}.dead-letters" in said
    # It goes on without a restart, and says so.
    world.wait_caught_up()
    until(lambda: answer(port, "/readyz") == (200, "ok\n"), lambda: ingest.tail)
    assert stopped(ingest, "misrouted")(), "it has stopped once"
    (letter,) = read_letters(world, f"{topic_name}.dead-letters", {f"{topic_name}-{wrong}-{offset}"})
    assert dict(headers_of(letter))["__connect.errors.class.name"] == b"misrouted"
    world.check_strong()
    refused(world, "goes on at offset", "reject", f"{topic_name}-{wrong}-{offset}")  # it is behind us
    world.finish([ingest])
    world.verify()


def test_rejecting_all_that_a_wrong_partitioner_wrote(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """Good records lie in between, and more than one turn of reading."""
    world = make_world(kafka, topic_name, tmp_path, seed)
    world.feed.produce(50)
    wrong, first = misroute(world)
    sources, last = {f"{topic_name}-{wrong}-{first}"}, first
    for _ in range(40):
        world.feed.produce(30)
        _, last = misroute(world)
        sources.add(f"{topic_name}-{wrong}-{last}")
    world.feed.produce(50)
    ingest = world.lancewal.start("ingest", "run")
    until(stopped(ingest, "misrouted"), lambda: ingest.tail)
    refused(world, "expected one from", "reject", f"{topic_name}-{wrong}-{first}", "--through", last + 100_000)
    said = world.lancewal.succeed("offset", "reject", f"{topic_name}-{wrong}-{first}", "--through", str(last))
    assert "41 records rejected (misrouted 41)" in said
    assert f"The partition goes on at {last + 1}" in said
    ingest.stop()
    letters = read_letters(world, f"{topic_name}.dead-letters", sources)
    assert {dict(headers_of(letter))["__connect.errors.class.name"] for letter in letters} == {b"misrouted"}
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    world.check_strong()
    world.finish([ingest])
    world.verify()


def test_misrouted_records_are_dead_letters_where_the_contract_says_so(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    world = make_world(kafka, topic_name, tmp_path, seed, table={"on_misrouted": "dead-letter"})
    sources = set()
    for _ in range(5):
        world.feed.produce(30)
        partition, offset = misroute(world)
        sources.add(f"{topic_name}-{partition}-{offset}")
    bad = world.feed.send_raw(b"{", world.feed.kafka_key(GOOD))
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    letters = read_letters(world, f"{topic_name}.dead-letters", sources | {f"{topic_name}-{bad[0]}-{bad[1]}"})
    kinds = sorted(str(dict(headers_of(letter))["__connect.errors.class.name"]) for letter in letters)
    assert kinds == ["b'misrouted'"] * 5 + ["b'not_json'"]
    world.finish([ingest])


def test_rejecting_a_bad_record_under_the_policy_stop(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    world = make_world(kafka, topic_name, tmp_path, seed, table={"on_bad_record": "stop"})
    world.feed.send([Record("upsert", GOOD)])  # so that the bad record is not its partition's first
    world.feed.produce(40)
    partition, offset = world.feed.send_raw(b'{"customer": 7}', world.feed.kafka_key(GOOD))
    # No client sends such a header.  A row lies on either side of it.
    good = Record("upsert", {**GOOD, "status": "beside"})
    raw = RawRecord(world.feed.kafka_key(GOOD), json.dumps(good.columns).encode(), timestamp_ms=int(time.time() * 1000))
    batch = batch_of([raw, replace(raw, headers=((b"\xff\xfe", b"x"),)), raw])
    code, base = send_batch(kafka.bootstrap_servers, topic_name, partition, batch)
    assert (code, base) == (0, offset + 1)
    for at, means in enumerate((good, None, good)):
        world.feed.history.add(partition, base + at, means)
    world.feed.produce(40)
    ingest = world.lancewal.start("ingest", "run")
    until(stopped(ingest, "bad_record"), lambda: ingest.tail)
    ingest.stop()
    refused(world, "goes on at offset", "reject", f"{topic_name}-{partition}-{offset - 1}")
    through = ("--through", str(base + 1))
    looked = world.lancewal.succeed("offset", "reject", f"{topic_name}-{partition}-{offset}", *through, "--dry-run")
    said = world.lancewal.succeed("offset", "reject", f"{topic_name}-{partition}-{offset}", *through)
    for text in (looked, said):
        assert "2 records rejected" in text
        assert "unreadable_header 1" in text
        assert "; 1 became rows" in text
    read_letters(world, f"{topic_name}.dead-letters", {f"{topic_name}-{partition}-{at}" for at in (offset, base + 1)})
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    world.finish([ingest])
    world.verify()


def test_a_good_record_is_not_rejected(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = make_world(kafka, topic_name, tmp_path, seed)
    world.feed.produce(40)
    partition, ends = 0, dict(world.feed.history.ends)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    ingest.stop()
    record = Record("upsert", GOOD)
    partition, offset = world.feed.send_raw(json.dumps(GOOD).encode(), world.feed.kafka_key(GOOD), record=record)
    assert offset == ends.get(partition, 0)
    refused(world, "is a good one", "reject", f"{topic_name}-{partition}-{offset}")


def test_accepting_the_loss_of_what_retention_took(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    world = make_world(kafka, topic_name, tmp_path, seed)
    world.feed.produce(200)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    ingest.kill()  # no hand-over: the command must end its log
    before = dict(world.feed.history.ends)
    world.feed.produce(200)
    partition, end = max(world.feed.history.ends.items(), key=lambda item: item[1] - before[item[0]])
    first, behind = before[partition], end - 3
    delete_records(world.servers, topic_name, {partition: behind})

    ingest = world.lancewal.start("ingest", "run")
    until(stopped(ingest, "retention_lost"), lambda: ingest.tail)
    (line,) = ingest.logged("partition_stopped")
    assert f"offsets {first} to {behind - 1}" in line["error"]
    assert f"`lancewal offset accept-loss {topic_name}-{partition}`" in line["error"]
    refused(world, "nothing is lost", "accept-loss", (partition + 1) % PARTITIONS, "--yes")
    told = json.loads(world.lancewal.succeed("offset", "accept-loss", str(partition), "--dry-run", "-o", "json"))
    lost = [{"kind": "offsets", "first": first, "next": behind}]
    assert told == {"partition": partition, "losses": lost, "goes_on": behind, "dry_run": True}
    looked = world.lancewal.succeed("offset", "accept-loss", str(partition), "--dry-run")
    assert looked.startswith(f"without --dry-run: {topic_name}-{partition}: offsets {first}")
    for offset in range(first, behind):
        world.feed.history.records[partition][offset] = None
    said = world.lancewal.succeed("offset", "accept-loss", f"{topic_name}-{partition}", "--yes")
    assert f"offsets {first} to {behind - 1} are recorded as lost" in said
    world.wait_caught_up()  # without a restart
    world.finish([ingest])
    store = open_store(world.uri, dict(world.options))
    contract = read_contract(store, world.uri)
    (loss,) = read_losses(store, contract.regions[partition], contract.making)
    assert (loss.first, loss.next) == (first, behind)
    refused(world, "nothing is lost", "accept-loss", partition, "--yes")


def misroute(world: World) -> tuple[int, int]:
    """A good row in another partition than its key's; where it lies."""
    value, key = json.dumps(GOOD).encode(), world.feed.kafka_key(GOOD)
    right, _ = world.feed.send_raw(value, key, record=Record("upsert", GOOD))
    return world.feed.send_raw(value, key, partition=(right + 1) % PARTITIONS)


def stopped(ingest: Service, kind: str) -> Callable[[], bool]:
    return lambda: [line["kind"] for line in ingest.logged("partition_stopped")] == [kind]


def refused(world: World, text: str, *command: object) -> None:
    answer = world.lancewal.run("offset", *map(str, command))
    assert answer.code == 2, (answer.out, answer.err)
    assert text in answer.err
