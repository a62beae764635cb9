"""Records and logs that are large: beyond the clients' default limits, and beyond the memory of who takes over."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined] # imported there, not listed
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.resident_memory import resident_bytes
from tests.support.whole_path import Service, until
from tests.whole_path.feed import PARTITIONS, Record
from tests.whole_path.test_bad_records import headers_of, read_letters
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

MIB = 1 << 20
BUDGET = 48 * MIB
LOG = 4 * BUDGET


def test_records_beyond_the_default_limits(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    """A large row comes through; of a record that is too large for the table the dead-letter topic, which takes no such
    record either, gets all but its value."""
    world = make_world(
        kafka, topic_name, tmp_path, seed,
        topic_config={"max.message.bytes": str(12 * MIB)},
        table={"record_bytes_max": 4 * MIB},
    )  # fmt: skip
    rng = random.Random(f"sizes {seed}")
    world.feed.produce(50)
    send_large(world, rng, 3 * MIB, row=True)
    world.feed.produce(50)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    world.check_strong()
    source = send_large(world, rng, 6 * MIB, row=False)
    world.feed.produce(50)
    world.wait_caught_up()
    world.check_strong()
    assert ingest.running
    (letter,) = read_letters(world, f"{topic_name}.dead-letters", {source})
    found = dict(headers_of(letter))
    assert found["__connect.errors.class.name"] == b"too_large"
    assert letter.value() is None
    length = found["lancewal.value.bytes"]
    assert isinstance(length, bytes)
    assert int(length) > 6 * MIB
    world.finish([ingest])


def test_who_takes_over_a_log_larger_than_its_memory(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """One region's generation began where the log did and is open still; all the rest of the log belongs to others."""
    limits = {"memory_bytes_max": BUDGET, "seal_bytes": 4 * MIB, "seal_rows": 100_000, "seal_age_s": 600.0}
    world = make_world(kafka, topic_name, tmp_path, seed, ingest=limits)
    quiet = {"customer": "quiet", "id": 1, "status": "kept in the log alone"}
    world.feed.send([Record("upsert", quiet)])
    nobody_else = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    at_rest = peak_bytes(nobody_else)
    rng = random.Random(f"log {seed}")
    while log_bytes(tmp_path) < LOG:
        load(world, rng, 16 * MIB)
        world.wait_caught_up()
        assert nobody_else.running, nobody_else.tail
    written = peak_bytes(nobody_else)
    nobody_else.kill()
    heir = world.lancewal.start("ingest", "run")
    until(lambda: len(heir.opened) == PARTITIONS, lambda: heir.tail)
    until(lambda: heir.passed("memtable.apply") > 0 or world.caught_up(), lambda: heir.tail)
    replayed = peak_bytes(heir)
    world.check_strong()
    print(f"{log_bytes(tmp_path) / MIB:.0f} MiB of log; peaks: {at_rest / MIB:.0f} MiB at rest, {written / MIB:.0f} MiB "
          f"while writing, {replayed / MIB:.0f} MiB taking over")  # fmt: skip
    assert replayed < at_rest + LOG / 2
    world.finish([heir])


def send_large(world: World, rng: random.Random, nbytes: int, *, row: bool) -> str:
    """A record whose value no compression makes smaller; where it lies, as a dead letter names it."""
    columns = {"customer": "large", "id": nbytes, "status": text(rng, nbytes)}
    placed: list[str] = []

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        world.feed.history.add(partition, offset, Record("upsert", columns) if row else None)
        placed.append(f"{world.feed.topic}-{partition}-{offset}")

    producer = Producer(
        {"bootstrap.servers": world.servers, "partitioner": "murmur2_random", "message.max.bytes": 32 * MIB}
    )
    key = world.feed.kafka_key(columns)
    producer.produce(world.feed.topic, json.dumps(columns).encode(), key, on_delivery=delivered)
    assert producer.flush(60) == 0
    return placed[0]


def load(world: World, rng: random.Random, nbytes: int) -> None:
    """Rows of many customers but the quiet one's, mostly new versions of the same."""
    size = 16_000
    world.feed.send(
        Record("upsert", {"customer": f"loud-{rng.randrange(300)}", "id": 1, "status": text(rng, size)})
        for _ in range(nbytes // size)
    )


def text(rng: random.Random, nbytes: int) -> str:
    return base64.b64encode(rng.randbytes(nbytes * 3 // 4)).decode()


def limit(world: World, topic: str, nbytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": world.servers})
    entry = ConfigEntry("max.message.bytes", str(nbytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)


def log_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "table" / "_lancewal" / "wal").rglob("*.arrow"))


def peak_bytes(service: Service) -> int:
    """Largest amount of memory that the process ever had."""
    return resident_bytes("VmHWM", service.pid)
