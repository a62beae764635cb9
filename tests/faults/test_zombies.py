"""Processes that SIGSTOP holds right before or right after an act of the protocol, while others take over and finish
everything; then they wake up and go on with what they were about to do: no key is there twice, none is missing.

In each case several processes are held, one after the other, each where it had taken over from those before.  The cases take
turns: a run has two of ingest and one of the flusher; ``--every-case`` has all, as ``dev.py soak every-case`` does.  Without
the fence, or with a check left out that it stands for, scenarios of ``tests/simulation/test_mutations.py`` fail in every run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import Path

import lance
import pytest

from lancewal_demo.stack import KafkaBroker, S3Server
from tests.faults.fleet import TRIMMED_SOON, Fleet, Sections, fleet_on_s3
from tests.support.whole_path import Service, until
from tests.whole_path.feed import Record
from tests.whole_path.world import World, user_row

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(600)]

INGEST = (
    ("wal.put:before:5", "wal.put:after:4"),
    ("memtable.apply:before:6", "memtable.apply:after:6"),
    ("seal.cas:before:3", "seal.cas:after:3"),
    ("flushed.cas:before:3", "flushed.cas:after:3"),
    ("claim.cas:before:2", "claim.cas:after:2"),
    ("snapshot.write:before:2", "fence.put:before"),
    ("decode:after:5", "fence.put:after"),
    ("snapshot.write:after:2", "log.walk:before:2"),
)
"""The second always opens regions that the first has left behind."""
FLUSHER = (
    {"fragment.write": 2, "dv.write": 2},
    {"commit.send": 2, "commit.recv": 2},
    {"merges.put": 3, "merged.cas": 2},
    {"trim.cas": 2, "trim.delete": 1},
)
"""At which passing; one is held before each, one after it."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "points" in metafunc.fixturenames:
        points, turn = (INGEST, slice(0, None, 5)) if metafunc.function is test_ingest else (FLUSHER, slice(1, 2))
        cases: Sequence[Collection[str]] = points
        every = metafunc.config.getoption("--every-case")
        metafunc.parametrize("points", cases if every else cases[turn], ids=" ".join)


def test_ingest(
    kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int, points: tuple[str, str]
) -> None:
    with fleet_on_s3(kafka, s3, topic_name, tmp_path, seed, {}) as fleet:
        flusher = fleet.flusher()
        zombies = []
        for failpoint in points:
            zombies.append(fleet.ingest(f"{failpoint}=stop"))
            fleet.feed_until_frozen(zombies[-1])
        heir = fleet.ingest()
        fleet.produce_more()
        they_wake_up(fleet, zombies, heir, flusher)


def test_in_a_rebalance(kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int) -> None:
    """The first is held while it gives regions to the second, the second right after it gave some to a third."""
    with fleet_on_s3(kafka, s3, topic_name, tmp_path, seed, {}) as fleet:
        flusher = fleet.flusher()
        members: list[Service] = []
        for failpoint in ("handover.cas:before=stop", "handover.cas:after=stop", None):
            members.append(fleet.ingest(failpoint))
            if len(members) > 1:
                fleet.feed_until_frozen(members[-2])
            fleet.until_at_work(members[-1])
        *zombies, heir = members
        they_wake_up(fleet, zombies, heir, flusher)


def they_wake_up(fleet: Fleet, zombies: list[Service], heir: Service, flusher: Service) -> None:
    """Once everything is done without them."""
    fleet.until_ingested(heir)
    fleet.until_merged(flusher)
    for zombie in zombies:
        opened = len(zombie.logged("partition_opened"))
        zombie.thaw()
        fleet.until_opened_again(zombie, opened)
        fleet.world.check_strong()
    for zombie in zombies:
        zombie.stop()
    fleet.produce_more()
    fleet.end(heir, flusher)


def test_flusher(
    kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int, points: Mapping[str, int]
) -> None:
    trims = "trim.cas" in points
    sections: Sections = TRIMMED_SOON if trims else {}
    with fleet_on_s3(kafka, s3, topic_name, tmp_path, seed, sections) as fleet:
        ingest = fleet.ingest()
        zombies = []
        for (point, passing), when in product(points.items(), ("before", "after")):
            zombies.append(fleet.flusher(f"{point}:{when}:{passing}=stop"))
            fleet.feed_until_frozen(zombies[-1])
        heir = fleet.flusher()
        fleet.produce_more()
        if trims:
            fleet.feed_until(lambda: heir.passed("trim.delete") > 0, heir, fleet.produce)
        fleet.until_ingested(ingest)
        fleet.until_merged(heir)
        for zombie in zombies:
            rounds = zombie.passed("plan.pin")
            zombie.thaw()
            fleet.feed_until(lambda: zombie.passed("plan.pin") > rounds, zombie, fleet.produce)  # noqa: B023
            fleet.world.check_strong()
        for zombie in zombies:
            zombie.stop()
        fleet.produce_more()
        fleet.end(ingest, heir)


@pytest.mark.parametrize("first_lands", [False, True], ids=["before both", "after the first"])
def test_flushers_on_an_empty_table(
    kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int, *, first_lands: bool
) -> None:
    """Two are held right before the first commit of all; a user appends keys of theirs, builds an index and compacts."""
    with fleet_on_s3(kafka, s3, topic_name, tmp_path, seed, {}) as fleet:
        world = fleet.world
        world.feed.send([Record("upsert", {"customer": name, "id": 7, "status": "kafka"}) for name in OFTEN])
        fleet.produce_more()
        ingest = fleet.ingest()
        fleet.until_ingested(ingest)
        ingest.stop()
        zombies = []
        for _ in range(2):
            zombies.append(fleet.flusher("commit.send:before=stop"))
            until(lambda: zombies[-1].frozen, lambda: zombies[-1].tail)
        assert lance.dataset(world.uri, storage_options=dict(world.options)).count_rows() == 0
        if first_lands:
            wake_up_a_flusher(zombies[0])
            fleet.until_merged(zombies[0])
        a_user_is_at_work(world)
        for zombie in zombies[first_lands:]:
            wake_up_a_flusher(zombie)
        # A key that was appended after its merge is there twice until Kafka's next record of it, and once from then on.
        world.feed.send([Record("upsert", {"customer": name, "id": 7, "status": "again"}) for name in OFTEN])
        fleet.produce_more()
        zombies[0].stop()
        fleet.end(fleet.ingest(), zombies[1])


OFTEN = [f"often-{number}" for number in range(12)]
"""Customers whose keys come through Kafka and from a user's hand."""


def wake_up_a_flusher(zombie: Service) -> None:
    """And wait until its late commit is decided and its next round has begun."""
    rounds = zombie.passed("plan.pin")
    zombie.thaw()
    until(lambda: zombie.passed("plan.pin") > rounds, lambda: zombie.tail)


def a_user_is_at_work(world: World) -> None:
    """Appends, an index, a compaction of what was appended, one more append."""
    mine = [user_row(f"mine-{number}", number, "mine") for number in range(6)]
    world.append_as_user([*mine[:3], *(user_row(name, 7, "twice") for name in OFTEN[:6])])
    world.append_as_user([*mine[3:5], *(user_row(name, 7, "twice") for name in OFTEN[6:])])
    dataset = lance.dataset(world.uri, storage_options=dict(world.options))
    dataset.create_scalar_index("id", "BTREE")
    before = len(dataset.get_fragments())
    dataset.optimize.compact_files(target_rows_per_fragment=1_000)
    assert len(lance.dataset(world.uri, storage_options=dict(world.options)).get_fragments()) < before
    world.append_as_user(mine[5:])
    world.users |= {(row["customer"], row["id"]): row for row in mine}
