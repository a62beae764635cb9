"""Both services as production runs them, under producers and HTTP clients that mean no good.

One table, one ingest, one flusher for all of this module.  Behind each attack honest rows come through and are exact, both
processes live, and the peaks that the kernel keeps stay within their budgets.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports, listens
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.support.hostile_clients import CLIENTS, answer
from tests.support.hostile_records import LETTERS, ROWS, TOPIC_CONFIG, WIDE_COLUMNS, Batch, Sender
from tests.support.memory_watch import forget_peak, peak_bytes
from tests.support.whole_path import Service, until
from tests.whole_path.feed import COLUMNS
from tests.whole_path.test_bad_records import headers_of, read_letters
from tests.whole_path.test_lost_replies import metric
from tests.whole_path.world import World, make_world, positions

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

MIB = 1 << 20
BUDGET = 96 * MIB
BESIDE = 300 * MIB
DESCRIPTORS = 1024
"""A common limit of a process."""
COUNTS: Mapping[str, int] = {
    "records of 900 KB that pack well": 250,
    "patches of wide rows": 50_000,
    "rows with a vector": 100,
    "keys of 200 KB": 20,
    "2,000 headers each": 50,
    "lists of empty texts": 50,
    "times of 1970": 2_000,
}
"""Without limits the first two alone would take 300 MB each, several times over."""


@dataclass(frozen=True, slots=True)
class Stage:
    world: World
    sender: Sender
    services: Mapping[str, Service]
    ports: Mapping[str, int]

    def begin(self) -> None:
        for service in self.services.values():
            forget_peak(service.pid)

    def check(self) -> None:
        """Honest rows come through and are exact; nobody has ended, written a traceback, or taken too much."""
        self.world.feed.produce_everywhere()
        ends = self.world.feed.history.ends

        def durable() -> bool:
            assert all(service.running for service in self.services.values()), self.world.lancewal.tails
            return all((self._durable(partition) or 0) >= end for partition, end in ends.items())

        until(durable, lambda: f"produced {ends}; {answer(self.ports['ingest'], '/readyz')}", poll_s=0.2)
        rows = open_table(self.world.uri).to_arrow(columns=list(COLUMNS))
        cut = positions(receipt_of(rows.schema))
        self.world.compare(rows.to_pylist(), cut, "a strong read")
        assert all(cut[partition] >= end for partition, end in ends.items())
        taken = {name: peak_bytes(service.pid) for name, service in self.services.items()}
        print({name: peak >> 20 for name, peak in taken.items()})
        assert taken["ingest"] <= BUDGET + BESIDE, taken
        for service in self.services.values():
            assert "Traceback" not in service.log, service.tail

    def _durable(self, partition: int) -> float | None:
        return metric(self.ports["ingest"], "lancewal_ingest_durable_position", partition=str(partition))


@pytest.fixture(scope="module")
def stage(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("hostile")
    world = make_world(
        kafka, f"hostile-{folder.name}-{time.time_ns()}", folder, 1,
        in_process=True,
        topic_config=TOPIC_CONFIG,
        table={"columns": dict(WIDE_COLUMNS)},
        ingest={"memory_bytes_max": BUDGET, "seal_bytes": 16 * MIB, "seal_rows": 50_000, "seal_age_s": 2.0},
        flusher={"merge_memory_bytes_max": BUDGET},
    )  # fmt: skip
    ports = dict(zip(("ingest", "flusher"), free_ports(2), strict=True))
    variables = {
        "LANCEWAL_HTTP__INGEST_PORT": str(ports["ingest"]),
        "LANCEWAL_HTTP__FLUSHER_PORT": str(ports["flusher"]),
    }
    services = {name: world.lancewal.start(name, "run", environment=variables) for name in ports}
    for service in services.values():
        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    for port in ports.values():
        until(lambda port=port: listens(port), lambda: world.lancewal.tails)  # type: ignore[misc] # mypy infers no type
    yield Stage(world, Sender(world.servers, world.feed.topic, world.feed.history), services, ports)
    for service in services.values():
        service.stop()


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_far_larger_than_their_records(stage: Stage, name: str) -> None:
    stage.begin()
    make, _ = ROWS[name]
    assert stage.sender.send(Batch("zstd", make(random.Random(name), COUNTS[name]))) == COUNTS[name]
    stage.check()


def test_what_is_no_row_is_a_letter_that_nobody_can_forge(stage: Stage) -> None:
    """Of each kind some, in one go; under our names stand our headers alone."""
    stage.begin()
    rng = random.Random("letters")
    before = len(stage.sender.not_rows)
    records = [make(rng) for make in LETTERS.values() for _ in range(4)]
    rng.shuffle(records)
    assert stage.sender.send(Batch("lz4", iter(records))) == len(records)
    stage.check()
    topic = stage.world.feed.topic
    sources = {f"{topic}-{partition}-{offset}" for partition, offset in stage.sender.not_rows[before:]}
    letters = read_letters(stage.world, f"{topic}.dead-letters", sources)
    for name in ("lancewal.source", "__connect.errors.topic"):
        told = [[value for header, value in headers_of(letter) if header == name] for letter in letters]
        assert all(len(values) == 1 for values in told), name
    assert {bytes_of(dict(headers_of(letter))["lancewal.source"]).decode() for letter in letters} == sources


def bytes_of(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


@pytest.mark.parametrize("service", ["ingest", "flusher"])
@pytest.mark.parametrize("name", CLIENTS)
def test_clients_of_the_port_hold_nothing_up(stage: Stage, name: str, service: str) -> None:
    stage.begin()
    make, count = CLIENTS[name]
    with make(stage.ports[service], count):
        assert answer(stage.ports[service], "/livez") == (200, "ok\n")
        stage.check()
        assert len(list(Path(f"/proc/{stage.services[service].pid}/fd").iterdir())) < DESCRIPTORS / 2
