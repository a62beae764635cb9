"""A store that takes seconds for each PUT, or refuses them all, while Kafka holds far more than the process may.

The bound is the process's own memory, by the word of the operating system: the budget, and what Python, libraries, working
space and the client of Kafka take beside it.  That is 270 to 300 MiB here, 214 of them at rest; the bound leaves a tenth more,
since allocators give back as they please.  The backlog is more than fits beside a process at rest.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from lancewal_demo.stack import KafkaBroker, S3Server
from tests.faults.test_sizes import MIB, peak_bytes, text
from tests.faults.test_store_faults import BUDGET, answer, behind_proxy
from tests.support.http_fault_proxy import Faults
from tests.support.whole_path import Service, until
from tests.whole_path.feed import PARTITIONS, Record
from tests.whole_path.test_lost_replies import metric
from tests.whole_path.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(600)]

BESIDE = 330 * MIB
"""Of the process beside its budget."""
BACKLOG = 270 * MIB
VALUE = 16_000
SLOW = Faults(late_s=2.0, delay_s=1.0)
AWAY = Faults(unavailable=1.0)
LAG = "lancewal_ingest_lag_records"
SEGMENTS = "lancewal_ingest_segments_total"


@dataclass(slots=True)
class Watch:
    """What the process shows from outside, at each look."""

    ingest: Service
    port: int
    looks: int = 0
    full: int = 0
    """How often it consumed nothing because memory was full; else it waits for the segment in flight."""
    unready: int = 0
    memory_max: float = 0.0
    lag_max: float = 0.0
    segments: float = 0.0
    """Stored by the latest look."""

    def look(self) -> Self:
        assert self.ingest.running, self.ingest.tail
        assert answer(self.port, "/livez") == 200
        self.looks += 1
        self.unready += answer(self.port, "/readyz") == 503
        self.full += metric(self.port, "lancewal_ingest_throttled") > 0
        self.memory_max = max(self.memory_max, metric(self.port, "lancewal_ingest_memory_bytes"))
        self.lag_max = max(self.lag_max, metric(self.port, LAG))
        self.segments = metric(self.port, SEGMENTS)
        return self


def test_a_backlog_behind_a_slow_store(
    kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(f"backlog {seed}")
    with behind_proxy(kafka, s3, topic_name, tmp_path, seed) as (world, proxy, port):
        world.lancewal.settings(with_ingest(world, seal_rows=1_000_000, seal_bytes=4 * MIB, seal_age_s=600))
        former = world.lancewal.start("ingest", "run")
        world.feed.produce(50)
        world.wait_caught_up()
        at_rest = peak_bytes(former)
        former.stop()
        world.feed.send(backlog(rng))
        proxy.faults = SLOW
        ingest = world.lancewal.start("ingest", "run")
        until(lambda: len(ingest.opened) == PARTITIONS, lambda: ingest.tail)
        watch = Watch(ingest, port)
        # It goes on, at the store's speed.
        until(lambda: watch.look().segments > 6, lambda: f"{watch}\n{ingest.tail}", poll_s=0.2)
        slow = peak_bytes(ingest)
        proxy.faults = AWAY
        until(lambda: watch.look().unready > 3, lambda: f"{watch}\n{ingest.tail}", poll_s=0.2)
        away = peak_bytes(ingest)
        assert metric(port, LAG) > 0
        assert at_rest + watch.lag_max * VALUE > BUDGET + BESIDE, watch
        world.check_strong()  # what is durable is read
        proxy.faults = Faults()
        # By its metrics: a read that looks whether all is there fetches the whole log each time.
        until(lambda: metric(port, LAG) == 0 and answer(port, "/readyz") == 200, lambda: ingest.tail, poll_s=0.2)
        assert metric(port, SEGMENTS) > watch.segments
        peak = peak_bytes(ingest)
        print(f"{at_rest / MIB:.0f} MiB at rest; peaks {slow / MIB:.0f} behind a slow store, {away / MIB:.0f} while it was "
              f"away, {peak / MIB:.0f} in all; {watch}")  # fmt: skip
        assert peak <= BUDGET + BESIDE
        world.finish([ingest])


def backlog(rng: random.Random) -> Iterator[Record]:
    """Rows of some hundred keys of all partitions, each many times."""
    for _ in range(BACKLOG // VALUE):
        yield Record(
            "upsert", {"customer": f"loud-{rng.randrange(100)}", "id": rng.randrange(3), "status": text(rng, VALUE)}
        )


def with_ingest(world: World, **changes: object) -> dict[str, object]:
    tree = world.lancewal.tree
    return {**tree, "ingest": {**tree["ingest"], **changes}}
