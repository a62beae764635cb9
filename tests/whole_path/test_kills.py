"""The whole path under kills: Kafka, ingest, flusher and readers as real processes and stores, against a fold in Python.

While a feed of upserts, patches and deletes goes on, ingest and flusher processes are killed at named points and at random
moments, and started again.  Every read in between, by whatever reader, must be the fold of exactly the prefix that its
receipt names.  At the end everything is merged, and a plain Lance data set equals the fold of the whole topic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import lance
import pytest

from lancewal_demo.stack import KafkaBroker
from tests.support.store_addresses import REAL, at_real_server
from tests.support.whole_path import Kill, Life, Service, Slot, shuffled, until
from tests.whole_path.feed import Record
from tests.whole_path.world import World, make_world, plain_rows, user_row

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

INGEST_A = ("wal.put:before:3", "seal.cas:before:2", "handover.cas:before")
INGEST_B = ("claim.cas:after:2", "snapshot.write:after", "offset.commit:before:2")
FLUSHER = ("fragment.write:after", "commit.send:after", "merged.cas:before", "trim.delete:before")
"""``tests/faults/test_kill_points.py`` kills at every point of the protocol, one life each; here a life follows another."""
INSIDE_SEAL = {"seal.cas:before"}
INSIDE_FLUSH = {"snapshot.write:after", "flushed.cas:before"}
INSIDE_MERGE = {"fragment.write:after", "dv.write:after", "commit.send:before", "commit.send:after"}
INSIDE = INSIDE_SEAL | INSIDE_FLUSH | INSIDE_MERGE

BATCH = 40
PATIENCE_S = 12.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The processes' lives, and how many kills there must be."""

    ingest: tuple[Sequence[Life], Sequence[Life]]
    flusher: Sequence[Life]

    @property
    def kills(self) -> int:
        return sum(map(len, (*self.ingest, self.flusher)))


def under_kills(
    world: World, plan: Plan, rng: random.Random, enough: Callable[[World], bool] = lambda _: True
) -> list[Kill]:
    """Feed and read while the plan's processes die, and until it is ``enough``; at the end two members and a flusher are alive
    and caught up."""
    slots = [Slot(world.lancewal, ("ingest", "run"), lives, PATIENCE_S) for lives in plan.ingest]
    slots.append(Slot(world.lancewal, ("flusher", "run"), plan.flusher, PATIENCE_S))
    while not (all(slot.settled for slot in slots) and enough(world)):
        world.feed.produce(rng.randrange(BATCH))
        for slot in slots:
            if slot.tick() is not None:
                world.check_strong()
                world.check_merged()
    world.feed.produce(BATCH)
    # Both members hold regions again: the rebalance after the last kill is over.
    until(lambda: all(slot.service.passed("claim.cas") >= 1 for slot in slots[:2]), lambda: slots[0].service.tail)
    world.wait_caught_up()
    world.check_strong()
    for slot in slots:
        assert slot.tick() is None
        slot.service.stop()
    return [kill for slot in slots for kill in slot.kills]


def spread(world: World) -> bool:
    """Whether keys came again in other generations and other merges: there were many of both."""
    logs = "".join(log.read_text(errors="replace") for log in world.lancewal.folder.glob("*.log"))
    sealed, merged = (logs.count(f'"event": "{event}"') for event in ("generation_sealed", "merge_landed"))
    return sealed >= 20 and merged >= 5


def check_kills(kills: Sequence[Kill], plan: Plan) -> None:
    reached = {kill.reached for kill in kills}
    print("killed:", ", ".join(f"{kill.name} {kill.reached or 'at random'}" for kill in kills))
    assert len(kills) == plan.kills
    assert reached & INSIDE_SEAL
    assert reached & INSIDE_FLUSH
    assert reached & INSIDE_MERGE


def check_end(world: World) -> None:
    """Everything is handed over: merge it, and compare all readers with the fold of the whole topic."""
    world.merge_all()
    world.check_strong()
    receipt = world.check_merged()
    world.check_all_in(receipt)
    newest = lance.dataset(world.uri, storage_options=dict(world.options)).to_table()
    world.compare(plain_rows(newest), world.feed.history.ends, "plain Lance")


def freeze_and_take_over(world: World) -> None:
    """A member that SIGSTOP holds right before a PUT is declared dead; awake again, it must not disturb its successor."""
    frozen = world.lancewal.start("ingest", "run", failpoint="wal.put:before:4=stop")
    while not frozen.frozen:
        world.feed.produce(5)
    heir = world.lancewal.start("ingest", "run")
    until(lambda: heir.passed("claim.cas") >= 4, lambda: heir.tail)
    assert heir.passed("fence.put") >= 1
    world.feed.produce(BATCH)
    world.wait_caught_up()
    world.check_strong()
    frozen.thaw()
    # It meets the fence with its PUT, and comes back with a log of its own.
    until(lambda: len(frozen.logged("wal_fenced")) >= 1, lambda: frozen.tail)
    until(lambda: len(_since(frozen, "wal_fenced", "partition_opened")) >= 1, lambda: frozen.tail)
    world.feed.produce(BATCH)
    world.wait_caught_up()
    world.check_strong()
    frozen.stop()
    heir.stop()


def _since(service: Service, first: str, event: str) -> list[object]:
    events = [line.get("event") for line in service.lines]
    return [e for e in events[events.index(first) :] if e == event] if first in events else []


def freeze_a_flusher(world: World) -> None:
    """A flusher that SIGSTOP holds right before its commit wakes up after another one has merged the same: no row doubles.

    All keys are new, so that the two merges have no row in common that they would replace.
    """
    fresh = 10_000 + sum(world.feed.history.ends.values())
    rows = ({"customer": f"customer-{n}", "id": fresh, "status": "new"} for n in range(BATCH))
    world.feed.send(Record("upsert", row) for row in rows)
    ingest_all(world)
    late = world.lancewal.start("flusher", "run", failpoint="commit.send:before=stop")
    until(lambda: late.frozen, lambda: late.tail)
    world.merge_all()
    late.thaw()
    until(lambda: late.passed("commit.recv") >= 1, lambda: late.tail)
    check_end(world)
    late.stop()


def ingest_all(world: World) -> None:
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    ingest.stop()


def append_between_plan_and_commit(world: World, *, killed: bool) -> None:
    """A user appends a fresh key and keys that the merge under way has: Kafka's rows win, the fresh one stays."""
    suffix = "killed" if killed else "whole"

    def key(name: str) -> tuple[str, int]:
        return f"customer-{name}-{suffix}", 1

    def record(operation: str, name: str, **columns: object) -> Record:
        assert operation in ("upsert", "patch", "delete")
        customer, number = key(name)
        return Record(operation, {"customer": customer, "id": number, **columns})  # type: ignore[arg-type] # one of them

    world.feed.send(
        [
            record("upsert", "new", status="kafka"),
            record("patch", "patched", count=7),
            record("delete", "deleted"),
        ]
    )
    world.feed.produce(BATCH)
    ingest_all(world)
    flusher = world.lancewal.start("flusher", "run", failpoint="commit.send:before=stop")
    until(lambda: flusher.frozen, lambda: flusher.tail)
    assert (flusher.events[-1]["point"], flusher.events[-1]["when"]) == ("commit.send", "before")
    mine = user_row(*key("fresh"), "mine")
    world.append_as_user([mine, *(user_row(*key(name), "mine too") for name in ("new", "patched", "deleted"))])
    world.users[key("fresh")] = mine
    flusher.thaw()
    if killed:
        # Most likely before it has finished the merge, which is then the next one's to do.
        until(lambda: flusher.passed("commit.recv") >= 1, lambda: flusher.tail, poll_s=0.001)
        flusher.kill()
    else:
        until(lambda: flusher.passed("followup.commit") == 1, lambda: flusher.tail)
        world.wait_caught_up("eventual")
        world.check_strong()
        world.check_merged()
        flusher.stop()
    check_end(world)


def test_local_folder(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    rng = random.Random(f"kills {seed}")
    world = make_world(kafka, topic_name, tmp_path, seed)
    plan = Plan(
        (shuffled(rng, INGEST_A, 1, 3.0, INSIDE), shuffled(rng, INGEST_B, 1, 3.0, INSIDE)),
        shuffled(rng, FLUSHER, 2, 1.5, INSIDE),
    )
    assert plan.kills >= 14
    world.feed.produce(300)
    kills = under_kills(world, plan, rng, spread)
    check_kills(kills, plan)
    check_end(world)
    freeze_and_take_over(world)
    freeze_a_flusher(world)
    append_between_plan_and_commit(world, killed=False)
    append_between_plan_and_commit(world, killed=True)


@pytest.mark.in_turns("kind", each=3)
@pytest.mark.parametrize("kind", REAL)  # s3, azure, gcs
def test_a_store(
    kind: str, request: pytest.FixtureRequest, kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """Fewer kills; the region key is the whole primary key, so that tombstones delete."""
    rng = random.Random(f"kills {seed}")
    uri, options = at_real_server(request, kind, f"kills-{seed}", "tables/one")
    world = make_world(kafka, topic_name, tmp_path, seed, region_key=("customer", "id"), uri=uri, options=options)
    plan = Plan(
        (
            shuffled(rng, ("seal.cas:before:2", "wal.put:after:4"), 1, 3.0, INSIDE),
            shuffled(rng, ("flushed.cas:before:2", "fence.put:after"), 0, 3.0, INSIDE),
        ),
        shuffled(rng, ("dv.write:after", "commit.send:after"), 1, 1.5, INSIDE),
    )
    freeze_a_flusher(world)  # the table is empty: its first merge, twice at once
    freeze_a_flusher(world)
    world.feed.produce(200)
    check_kills(under_kills(world, plan, rng), plan)
    append_between_plan_and_commit(world, killed=False)
