"""A flusher as production runs it, over snapshots that somebody with the right to write into the folder has made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.rows.murmur2 import partition_of
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.support.hostile_clients import answer
from tests.support.hostile_objects import Changed, led_elsewhere, put, zeros
from tests.support.memory_watch import peak_bytes
from tests.support.whole_path import until
from tests.whole_path.feed import PARTITIONS, Record
from tests.whole_path.world import make_world, positions

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

MIB = 1 << 20
BUDGET = 64 * MIB
BESIDE = 300 * MIB


def waiting(uri: str, partition: int, name: str) -> Path:
    """The first file of that name in the snapshots of a partition that have rows."""
    found = Path(uri).glob(f"_lancewal/flushes/*/{name}")
    return min(path for path in found if _has_rows(json.loads(path.with_name("manifest.json").read_bytes()), partition))


def _has_rows(manifest: dict[str, dict[str, list[dict[str, str]]]], partition: int) -> bool:
    return any(part["rows"] and part["region"].endswith(f"/{partition}") for part in manifest["flush"]["parts"])


def records_of(partition: int) -> Iterator[Record]:
    """Upserts, and deletes of some of them and of others."""
    customers = [f"customer-{n}" for n in range(60)]
    for customer in (c for c in customers if partition_of(c.encode(), PARTITIONS) == partition):
        for id in range(4):
            yield Record("upsert", {"customer": customer, "id": id, "status": "open"})
        for id in (3, 7):
            yield Record("delete", {"customer": customer, "id": id})


def test_the_flusher_merges_all_regions_but_those_and_names_them(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    (port,) = free_ports(1)
    world = make_world(
        kafka,
        topic_name,
        tmp_path,
        seed,
        in_process=True,
        flusher={"merge_memory_bytes_max": BUDGET},
        http={"ingest_port": 0, "flusher_port": port},
    )
    other = tmp_path / "other"
    lance.write_dataset(pa.table({"customer": ["of another table"], "id": [1]}), str(other))
    for partitions in ([0], [1], range(2, PARTITIONS)):  # what is flushed together would be damaged together
        world.feed.send(record for partition in partitions for record in records_of(partition))
        ingest = world.lancewal.start("ingest", "run")
        world.wait_caught_up()
        ingest.stop()  # it has flushed all that it had
    path, bomb = waiting(world.uri, 0, "manifest.json"), waiting(world.uri, 1, "deletes.arrow")
    changed = [Changed("", "", p, p.relative_to(world.uri).as_posix(), p.read_bytes()) for p in (path, bomb)]
    put(path, led_elsewhere(path.read_bytes(), other))
    put(bomb, zeros("zstd"))

    flusher = world.lancewal.start("flusher", "run")
    ends = world.feed.history.ends
    sound = range(2, PARTITIONS)

    def merged() -> dict[int, int]:
        assert flusher.running, flusher.tail
        return positions(receipt_of(open_table(world.uri).to_arrow(["id"], consistency="eventual").schema))

    until(lambda: all(merged().get(p, 0) >= ends[p] for p in sound), lambda: flusher.tail)
    until(lambda: all(one.key in answer(port, "/readyz")[1] for one in changed), lambda: answer(port, "/readyz"))
    world.check_merged()
    assert answer(port, "/livez") == (200, "ok\n")
    assert peak_bytes(flusher.pid) <= BUDGET + BESIDE
    for one in changed:
        one.undo()
    until(lambda: all(merged().get(p, 0) >= end for p, end in ends.items()), lambda: flusher.tail)
    world.check_all_in(world.check_merged())
    until(lambda: answer(port, "/readyz")[0] == 200, lambda: answer(port, "/readyz"))
    flusher.stop()
    assert "Traceback" not in flusher.log
