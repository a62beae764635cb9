"""A store that is slow for long and then away, and a producer far ahead: memory stays within the budget, and it shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lancewal_demo.stack import KafkaBroker, S3Server
from tests.faults.test_store_faults import BUDGET, answer, behind_proxy
from tests.support.http_fault_proxy import Faults
from tests.support.whole_path import DEADLINE_S, Service, until
from tests.whole_path.feed import Record
from tests.whole_path.test_lost_replies import metric

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(300)]

AHEAD_BYTES = 4 * BUDGET
VALUE_BYTES = 8_000
SLOW_S = 8.0
AWAY_S = 12.0
WORKING_SPACE = BUDGET
"""What a process may need beside the rows that it counts: a batch as it comes, as JSON, as Arrow, as a segment."""


class Watch:
    """What can be seen of an ingest process from outside, again and again."""

    def __init__(self, ingest: Service, port: int) -> None:
        self._ingest = ingest
        self._port = port
        self.rss = 0
        self.counted = 0.0
        self.lag = 0.0
        self.ready: set[int] = set()

    def look(self) -> None:
        self.rss = max(self.rss, rss(self._ingest))
        self.counted = max(self.counted, metric(self._port, "lancewal_ingest_memory_bytes"))
        self.lag = max(self.lag, metric(self._port, "lancewal_ingest_lag_records"))
        self.ready.add(answer(self._port, "/readyz"))
        assert answer(self._port, "/livez") == 200

    def during(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at and not until():
            self.look()
            time.sleep(0.1)


def rss(service: Service) -> int:
    """Bytes of a process in memory, by the word of the operating system."""
    lines = Path(f"/proc/{service.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) << 10


def test_memory_stays_within_the_budget(
    kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int
) -> None:
    with behind_proxy(kafka, s3, topic_name, tmp_path, seed) as (world, proxy, port):
        # Generations as large as the budget allows: the rows stay in memory, and not in a hundred snapshots.
        world.lancewal.tree["ingest"] |= {"seal_rows": 1_000_000, "seal_age_s": 60, "seal_bytes": BUDGET // 2}
        world.lancewal.settings(world.lancewal.tree)
        ingest = world.lancewal.start("ingest", "run")
        world.feed.produce(50)
        world.wait_caught_up()
        at_rest = rss(ingest)
        proxy.faults = Faults(delay_s=3.0)
        text = "x" * VALUE_BYTES
        count = AHEAD_BYTES // VALUE_BYTES
        world.feed.send(
            Record("upsert", {"customer": f"customer-{n % 40}", "id": n % 400, "status": f"{n}{text}"})
            for n in range(count)
        )
        watch = Watch(ingest, port)
        watch.during(SLOW_S)
        proxy.faults = Faults(unavailable=1.0)
        watch.during(AWAY_S, lambda: 503 in watch.ready)
        watch.during(3)
        print(
            f"at rest {at_rest >> 20} MiB, peak {watch.rss >> 20}, counted {watch.counted / 2**20:.0f}, lag {watch.lag}"
        )
        assert 503 in watch.ready
        assert watch.lag > count / 4
        proxy.faults = Faults()
        watch.during(DEADLINE_S, lambda: metric(port, "lancewal_ingest_lag_records") == 0)
        assert world.caught_up(), ingest.tail
        until(lambda: answer(port, "/readyz") == 200, lambda: ingest.tail)
        print(f"peak {watch.rss >> 20} MiB, counted {watch.counted / 2**20:.0f}")
        assert BUDGET / 4 < watch.counted <= BUDGET
        assert watch.rss - at_rest <= BUDGET + WORKING_SPACE
        world.check_strong()
        ingest.stop()
