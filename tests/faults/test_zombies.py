"""Processes that SIGSTOP holds right before an act of the protocol, while others take over and finish everything; then they
wake up and go on with what they were about to do: no key is there twice, none is missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_demo.stack import KafkaBroker, S3Server
from tests.faults.fleet import TRIMMED_SOON, Sections, fleet_on_s3

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(120)]

INGEST = {"wal.put": 5, "memtable.apply": 6, "seal.cas": 3, "flushed.cas": 3, "claim.cas": 2}
FLUSHER = {"fragment.write": 2, "commit.send": 2, "commit.recv": 2, "merged.cas": 2, "trim.delete": 1}
"""At which passing."""


@pytest.mark.parametrize("point", INGEST)
def test_ingest(kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int, point: str) -> None:
    with fleet_on_s3(kafka, s3, topic_name, tmp_path, seed, {}) as fleet:
        flusher = fleet.flusher()
        zombie = fleet.ingest(f"{point}:before:{INGEST[point]}=stop")
        fleet.feed_until_frozen(zombie)
        heir = fleet.ingest()
        fleet.produce_more()
        fleet.until_ingested(heir)
        fleet.until_merged(flusher)
        opened = len(zombie.logged("opened"))
        zombie.thaw()
        # Back in the group, it opens the regions that it is given now.
        fleet.feed_until(lambda: len(zombie.logged("opened")) > opened, zombie, fleet.produce)
        fleet.world.check_strong()
        zombie.stop()
        fleet.produce_more()
        fleet.end(heir, flusher)


@pytest.mark.parametrize("point", FLUSHER)
def test_flusher(kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int, point: str) -> None:
    trims = point.startswith("trim.")
    sections: Sections = TRIMMED_SOON if trims else {}
    with fleet_on_s3(kafka, s3, topic_name, tmp_path, seed, sections) as fleet:
        ingest = fleet.ingest()
        zombie = fleet.flusher(f"{point}:before:{FLUSHER[point]}=stop")
        fleet.feed_until_frozen(zombie)
        heir = fleet.flusher()
        fleet.produce_more()
        if trims:
            fleet.feed_until(lambda: heir.passed("trim.delete") > 0, heir, fleet.produce)
        fleet.until_ingested(ingest)
        fleet.until_merged(heir)
        rounds = zombie.passed("plan.pin")
        zombie.thaw()
        fleet.feed_until(lambda: zombie.passed("plan.pin") > rounds, zombie, fleet.produce)
        fleet.world.check_strong()
        zombie.stop()
        fleet.produce_more()
        fleet.end(ingest, heir)
