"""SIGKILL before or after every named point of the protocol: no row is lost, and none is duplicated.

In a normal run a process dies at every second point, before one and after the next.  ``--every-case`` kills on both sides
of each point, as ``dev.py soak every-case`` does.  ``tests/simulation/test_crash_points.py`` crashes on both sides of each
point on twins, in every run.

Processes, broker and S3 server are real.  Each case feeds its own table until a process has died at its point, and
checks that it was that point (by the exit status, and the last line that the process has logged). It starts the process
again without a failpoint, and compares all readers, including a plain Lance data set, with the fold of the produced
records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.process.failpoints import POINTS
from lancewal_core.store.obstore import open_store
from lancewal_demo.stack import KafkaBroker, S3Server
from lancewal_reader.point.receipt import Receipt
from tests.faults.fleet import TRIMMED_SOON, Fleet, Sections, fleet_on_s3
from tests.support.whole_path import Service, until
from tests.whole_path.feed import Record
from tests.whole_path.world import plain_rows, positions, user_row

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(600)]

SIDES = ("before", "after")
NO_STEP = {
    "spark.task",
    "catalog.swap",
    "cut.snapshot",
    "cut.put",
    "cut.drop",
    "cut.publish",
    "drop.contract",
    "drop.delete",
}
"""In the workers of Spark, which only log their points: what Spark does with a lost task is Spark's.  A command that makes or
drops a cut is killed in ``tests/tables/cuts/test_kills.py``, one that adds a table to a catalog in
``tests/whole_path/test_tables_by_name.py``: they change no row."""


# -- what leads to the points; each begins with a table without rows and ends with all of it merged ----------------


def in_ingest(fleet: Fleet, failpoint: str, feed: Callable[[Fleet], None] = Fleet.produce) -> None:
    """The only ingest dies while it consumes, beside a flusher."""
    flusher = fleet.flusher()
    fleet.feed_until_killed(fleet.ingest(failpoint), lambda: feed(fleet))
    go_on(fleet, flusher)


def with_bad_records(fleet: Fleet, failpoint: str) -> None:
    """Among the rows there are records that are none."""

    def feed(fleet: Fleet) -> None:
        fleet.produce()
        fleet.world.feed.send_raw(b"no row", b"customer-1")

    in_ingest(fleet, failpoint, feed)


def with_idle_regions(fleet: Fleet, failpoint: str) -> None:
    """One region alone has rows, one segment after the other; the log grows away from where the others begin."""

    def feed(fleet: Fleet) -> None:
        row = {"customer": "customer-1", "id": 1, "count": sum(fleet.world.feed.history.ends.values())}
        fleet.world.feed.send([Record("upsert", row)])

    in_ingest(fleet, failpoint, feed)


def after_a_crash(fleet: Fleet, failpoint: str) -> None:
    """It dies while it takes over from an ingest that died without handing over."""
    flusher = fleet.flusher()
    former = fleet.ingest()
    fleet.until_at_work(former)
    former.kill()
    fleet.feed_until_killed(fleet.ingest(failpoint), lambda: None)
    go_on(fleet, flusher)


def in_a_rebalance(fleet: Fleet, failpoint: str) -> None:
    """It dies while it gives regions to a second member, which then takes over all of them."""
    flusher = fleet.flusher()
    victim = fleet.ingest(failpoint)
    fleet.until_at_work(victim)
    heir = fleet.ingest()
    fleet.feed_until_killed(victim)
    go_on(fleet, flusher, heir)


def go_on(fleet: Fleet, flusher: Service, heir: Service | None = None) -> None:
    """An ingest is dead: what was durable is read, and its heir takes everything to the end."""
    fleet.world.check_strong()
    heir = heir or fleet.ingest()
    fleet.produce_more()
    fleet.end(heir, flusher)


def in_flusher(fleet: Fleet, failpoint: str) -> None:
    """The only flusher dies beside an ingest that goes on."""
    ingest = fleet.ingest()
    fleet.feed_until_killed(fleet.flusher(failpoint))
    fleet.world.check_strong()
    fleet.world.check_merged()
    heir = fleet.flusher()
    fleet.produce_more()
    fleet.end(ingest, heir)


def in_garbage_collection(fleet: Fleet, failpoint: str) -> None:
    """As ``in_flusher``; its heir then goes on deleting."""
    ingest = fleet.ingest()
    fleet.feed_until_killed(fleet.flusher(failpoint))
    fleet.world.check_strong()
    heir = fleet.flusher()
    fleet.feed_until(lambda: heir.passed("trim.delete") > 0, heir, fleet.produce)
    fleet.end(ingest, heir)


def in_follow_up(fleet: Fleet, failpoint: str) -> None:
    """Flushers die right after a merge, and, since a data file of it has vanished, in its follow-up.

    The rows are of one partition: what several flush together is not adopted, and could not be made anew.
    """
    world = fleet.world
    world.feed.send([Record("upsert", {"customer": "one", "id": n, "status": "kafka"}) for n in range(50)])
    ingest = fleet.ingest()
    fleet.until_ingested(ingest)
    ingest.stop()
    fleet.feed_until_killed(fleet.flusher("commit.recv:after=kill"), lambda: None)
    merged = lance.dataset(world.uri, storage_options=dict(world.options))
    adopted = merged.get_fragments()[0].data_files()[0].path
    open_store(world.uri, world.options).delete([f"data/{adopted}"])
    fleet.feed_until_killed(fleet.flusher(failpoint), lambda: None)
    flusher = fleet.flusher()
    fleet.feed_until(lambda: flusher.passed("merged.cas") > 0, flusher, lambda: None)
    fleet.produce_more()
    fleet.end(fleet.ingest(), flusher)


def in_follow_up_of_an_append(fleet: Fleet, failpoint: str) -> None:
    """Between the plan of a merge and its commit a user appends keys of it; the flusher dies where it hides them."""
    world = fleet.world
    flusher = fleet.flusher()
    ingest = fleet.ingest()
    fleet.produce_more()
    fleet.until_ingested(ingest)
    ingest.stop()
    fleet.until_merged(flusher)
    flusher.stop()
    keys = {name: f"customer-{name}" for name in ("new", "patched", "deleted", "fresh")}
    world.feed.send(
        [
            Record("upsert", {"customer": keys["new"], "id": 1, "status": "kafka"}),
            Record("patch", {"customer": keys["patched"], "id": 1, "count": 7}),
            Record("delete", {"customer": keys["deleted"], "id": 1}),
        ]
    )
    fleet.produce_more()
    ingest = fleet.ingest()
    fleet.until_ingested(ingest)
    ingest.stop()
    victim = fleet.flusher(f"commit.send:before=stop,{failpoint}")
    until(lambda: victim.frozen, lambda: victim.tail)
    world.append_as_user([user_row(customer, 1, "mine") for customer in keys.values()])
    world.users[keys["fresh"], 1] = user_row(keys["fresh"], 1, "mine")
    victim.thaw()
    fleet.feed_until_killed(victim, lambda: None)
    if ":after" in failpoint:
        world.check_strong()
    heir = fleet.flusher()
    fleet.feed_until(lambda: heir.passed("merged.cas") > 0, heir, lambda: None)
    world.check_merged()
    fleet.produce_more()
    fleet.end(fleet.ingest(), heir)


def in_reader(fleet: Fleet, failpoint: str) -> None:
    """``lancewal read`` dies while ingest and flusher go on."""
    ingest, flusher = fleet.ingest(), fleet.flusher()
    fleet.feed_until(lambda: flusher.passed("commit.recv") > 0, flusher, fleet.produce)
    fleet.feed_until_killed(fleet.reader(failpoint))
    world = fleet.world
    file = world.lancewal.folder / "rows.arrow"
    answer = world.lancewal.run("read", "-t", world.uri, "--output", "arrow", "--to", str(file))
    assert answer.code == 0, answer.err
    with pa.ipc.open_file(file) as rows:
        receipt = Receipt.parse(answer.err.partition("receipt: ")[2].split()[0])
        world.compare(plain_rows(rows.read_all()), positions(receipt), "lancewal read")
    fleet.end(ingest, flusher)


def in_command(fleet: Fleet, failpoint: str) -> None:
    """``lancewal table alter`` dies while ingest and flusher go on; run again, it makes the change once."""
    ingest, flusher = fleet.ingest(), fleet.flusher()
    fleet.until_at_work(ingest)
    add = ("table", "alter", "--add-column", "note: string")
    fleet.feed_until_killed(fleet.command(*add, failpoint=failpoint))
    fleet.world.lancewal.succeed(*add)
    drop_again(fleet)
    fleet.produce_more()
    fleet.end(ingest, flusher)


def in_widening(fleet: Fleet, failpoint: str) -> None:
    """The flusher dies while it widens a column; its heir ends that."""
    fleet.world.lancewal.succeed("table", "alter", "--add-column", "note: int32")
    ingest, victim = fleet.ingest(), fleet.flusher(failpoint)
    fleet.feed_until(lambda: victim.passed("merged.cas") > 0, victim, fleet.produce)
    fleet.world.lancewal.succeed("table", "alter", "--widen-column", "note: int64")
    fleet.feed_until_killed(victim)
    heir = fleet.flusher()
    fleet.feed_until(lambda: heir.passed("contract.put") > 0, heir, fleet.produce)
    drop_again(fleet)
    fleet.end(ingest, heir)


def drop_again(fleet: Fleet) -> None:
    """The table has the columns of the fold again."""
    assert "note" in lance.dataset(fleet.world.uri, storage_options=dict(fleet.world.options)).schema.names
    fleet.world.lancewal.succeed("table", "alter", "--drop-column", "note")


# -- the points ----------------------------------------------------------------------------------------------------


ONE_GENERATION: Sections = {"table": {"patches": False}, "ingest": {"seal_rows": 10_000, "seal_age_s": 600.0}}
"""Adopted as it is, since nothing is to be combined or completed."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a point is met, at which passing of it, and under which settings."""

    play: Callable[[Fleet, str], None]
    passing: int = 1
    sections: Sections = field(default_factory=dict)


WAYS = {
    "poll": Way(in_ingest, 30),
    "decode": Way(in_ingest, 6),
    "dlq.produce": Way(with_bad_records, 3),
    "wal.put": Way(in_ingest, 5),
    "bundle.put": Way(in_ingest),
    "memtable.apply": Way(in_ingest, 6),
    "offset.commit": Way(in_ingest, 2),
    "log.walk": Way(after_a_crash, 2),
    "fence.put": Way(after_a_crash),
    "claim.cas": Way(after_a_crash, 2),
    "seal.cas": Way(in_ingest, 3),
    "reanchor.cas": Way(with_idle_regions, 2, {"ingest": {"seal_log_distance": 3}}),
    "handover.cas": Way(in_a_rebalance),
    "snapshot.write": Way(in_ingest, 3),
    "flushed.cas": Way(in_ingest, 3),
    "plan.pin": Way(in_reader),
    "fragment.write": Way(in_flusher, 2),
    "dv.write": Way(in_flusher, 2),
    "commit.send": Way(in_flusher, 2),
    "commit.recv": Way(in_flusher, 2),
    "merges.put": Way(in_flusher, 3),  # the first is a checkpoint's
    "followup.commit": Way(in_follow_up, 1, ONE_GENERATION),
    "merged.cas": Way(in_flusher, 2),
    "keys.cas": Way(in_flusher, 2),
    "trim.cas": Way(in_garbage_collection, 2, TRIMMED_SOON),
    "trim.delete": Way(in_garbage_collection, 1, TRIMMED_SOON),
    "columns.bring": Way(in_command),
    "columns.grow": Way(in_command),
    "columns.widen": Way(in_widening),
    "contract.put": Way(in_command),
}


def test_every_step_of_the_protocol_is_among_them() -> None:
    assert WAYS.keys() | NO_STEP == POINTS
    assert not WAYS.keys() & NO_STEP


@pytest.mark.parametrize("when", SIDES)
def test_killed_while_hiding_what_a_user_appended(
    kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int, when: str
) -> None:
    one_generation: Sections = {"ingest": {"seal_rows": 10_000, "seal_age_s": 600.0}}
    with fleet_on_s3(kafka, s3, topic_name, tmp_path, seed, one_generation) as fleet:
        in_follow_up_of_an_append(fleet, f"followup.commit:{when}=kill")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "point" in metafunc.fixturenames:
        every = metafunc.config.getoption("--every-case")
        turns = [(point, when) for point in WAYS for when in SIDES]
        metafunc.parametrize(("point", "when"), turns if every else turns[::8] + turns[5::8])


def test_killed(
    kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int, point: str, when: str
) -> None:
    way = WAYS[point]
    with fleet_on_s3(kafka, s3, topic_name, tmp_path, seed, way.sections) as fleet:
        way.play(fleet, f"{point}:{when}:{way.passing}=kill")
