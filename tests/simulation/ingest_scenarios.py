"""Interleavings around open, append and seal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lancewal_core.errors import ObjectMissing, RetentionLost
from lancewal_core.names import paths
from lancewal_core.names.ids import Sequence
from tests.simulation.checker import require
from tests.simulation.script import stops
from tests.simulation.stage import ALWAYS, NEVER, ONLY_EMPTY, Stage
from tests.support.regions import numbers
from tests.twins.faults import PutFault
from tests.twins.sim_clock import EPOCH_MS


def successor_claims_before_a_late_put() -> None:
    """A's segment arrives after B has found the end of A's log and claimed the region."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    a.script.before("put", f"wal/{a.log}", lambda: stage.take_over(a, b, 0, 1))
    stage.append(a, 0)
    stage.step(a, 2)
    stage.check()
    stage.step(b, 2)
    stage.check()


def _unsettled(partition: int) -> None:
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0, records=3)
    a.script.puts.append((f"wal/{a.log}", PutFault.NEVER_ARRIVED))
    stage.send(partition, 3)
    a.worker._sealing.policy = ALWAYS
    stage.step(a)
    a.worker._sealing.policy = NEVER
    stage.step(a, 10)
    stage.check()


def seal_beside_an_unsettled_segment() -> None:
    """A generation with entries is due while a segment with more of them has no verdict."""
    _unsettled(0)


def reanchor_beside_an_unsettled_segment() -> None:
    """A generation without entries is due to move while its first entry has no verdict."""
    _unsettled(1)


def seal_without_a_verdict() -> None:
    """The store does not say whether it has taken a seal, and it has not; the region's log goes on.  What is sealed in the end
    is what was put aside, and the entries behind it are the next generation's."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0, records=3)
    a.script.puts += [("/pages/", PutFault.NEVER_ARRIVED)] * 40
    stage.seal(a)
    require(a.worker._sealing.busy, "it has a verdict:", stage.counts)
    for _ in range(3):
        stage.append(a, 0)
    stage.step(a, 40)
    stage.check()
    require(not a.worker._sealing.busy, "it has no verdict yet:", stage.counts)
    stage.seal(a)
    stage.check()


def put_without_a_verdict() -> None:
    """The store does not say whether it has taken a segment, and it has not."""
    _put_fails(PutFault.NEVER_ARRIVED)


def put_refused_without_an_object() -> None:
    """The store reports a conflict (409), and there is no object."""
    _put_fails(PutFault.REFUSED)


def _put_fails(fault: PutFault) -> None:
    stage = Stage()
    a = stage.member("a", 0, 1)
    a.script.puts += [(f"wal/{a.log}", fault)] * 2
    stage.append(a, 0)
    stage.check()
    stage.step(a, 20)
    stage.append(a, 0)
    stage.step(a, 2)
    stage.check()


def region_is_reanchored_under_a_claimer() -> None:
    """B has read the index of a quiet region; A moves its beginning on, and what lies before is trimmed."""
    stage = Stage()
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    stage.append(a, 1)
    stage.append(a, 1)

    def move_on() -> None:
        a.worker._sealing.policy = ALWAYS
        # A is in the middle of a step, in which it has polled before B was assigned anything
        a.worker._sealing.advance(a.worker._writer)
        a.worker._sealing.policy = NEVER
        stage.round(f)
        stage.round(f)
        stage.collect(f)

    stage.send(0)
    a.worker._intake.consume(0.1, 0.0)
    b.script.before("get", f"wal/{a.log}", move_on)
    stage.take_over(a, b, 0, 1)
    a.worker._start_job(now=True)
    a.worker._settle_if_done()
    stage.check()
    stage.step(a)
    stage.step(b, 20)
    stage.check()


def segments_in_a_row_are_lost() -> None:
    """From the midst of a log, at either end of what a walk asks for at once: readers and claimers stop.  With them back, all
    goes on."""
    for first, count in ((1, 2), (1, 3), (0, 4), (3, 3)):
        stage = Stage()
        a, b = stage.member("a", 0, 1), stage.member("b")
        for _ in range(8):
            stage.append(a, 0)
        keys = sorted(info.key for info in stage.bucket.listing(paths.WAL) if a.log in info.key)
        with stage.without(*keys[first : first + count]):
            with stops(ObjectMissing):
                stage.reader("r").read("strong")
            with stops(ObjectMissing):
                stage.take_over(a, b, 0)
        stage.step(b, 10)
        stage.append(b, 0)
        stage.check()


def a_segment_of_a_sealed_generation_is_lost() -> None:
    """B claims what A left, and before it flushes that from the log one of its segments is lost: it stays SEALED until the
    segment is put back."""
    for at in (0, 1, 3):
        stage = Stage()
        a, b = stage.member("a", 0, 1), stage.member("b")
        for _ in range(4):
            stage.append(a, 0)
        key = sorted(info.key for info in stage.bucket.listing(paths.WAL) if a.log in info.key)[at]
        b.script.before("put", "/pages/", partial(stage.losses.take, key))
        stage.take_over(a, b, 0)
        stage.step(b, 4)
        require(stage.losses.get(key) is not None, "it was not lost:", key)
        with stops(ObjectMissing):
            stage.reader("r").read("strong")
        stage.losses.put_back(EPOCH_MS)
        stage.round(stage.flusher("f"))
        stage.check()


def retention_takes_markers() -> None:
    """Behind the last record lie only transaction markers; retention removes them with all before."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.send(0, 1, markers=2)
    stage.step(a, 40)  # an idle region's position moves once a second
    log = stage.topic.partitions[0]
    log.low = log.high
    stage.take_over(a, b, 0, 1)
    stage.check()
    if b.worker.stopped:
        raise AssertionError(f"nothing was lost, but: {b.worker.stopped}")


def more_arrives_behind_a_poll() -> None:
    """Records arrive between a poll and the question for the position."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.send(0, 20)  # a poll takes twelve
    stage.step(a, 6)
    stage.check()


def policies_change_around_a_segment() -> None:
    """A segment with a bad record has no verdict when its member takes up that such records are ignored: it stays of the
    version before, its letter too, and what comes next is of the new one.  An heir by the newest changes nothing in that."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    a.script.puts.append((f"wal/{a.log}", PutFault.NEVER_ARRIVED))
    first = stage.send_bad(0)
    stage.step(a, 2)
    stage.alter(on_bad_record="ignore")
    stage.take_up(a)
    stage.step(a, 4)
    stage.check()
    stage.send_bad(0)
    stage.append(a, 0)
    stage.step(a, 2)
    stage.check()
    stage.alter(on_bad_record="dead-letter")
    stage.take_up(b)
    stage.take_over(a, b, 0, 1)
    last = stage.send_bad(0)
    stage.append(b, 0)
    stage.step(b, 2)
    stage.check()
    require(stage.checker.rejected == {0: {first, last}}, "dead letters:", stage.checker.rejected)
    ends = {p: log.high for p, log in enumerate(stage.topic.partitions)}
    require(stage.acknowledged == ends, "durable up to", stage.acknowledged, "of", ends)


def policies_change_while_a_stop_is_in_flight() -> None:
    """A segment that ends right before a bad record has no verdict when its member takes up that such records are dead
    letters: it stops the partition by the version before, and the partition goes on by the new one.  Another, which has been
    stopped by what no policy lifts meanwhile, stays so."""
    stage = Stage(on_bad_record="stop")
    a = stage.member("a", 0, 1)
    stage.append(a, 0)
    stage.append(a, 1)
    a.script.puts.append((f"wal/{a.log}", PutFault.NEVER_ARRIVED))
    stage.send(0)
    bad = stage.send_bad(0)
    stage.send(0)
    stage.send_bad(1)
    stage.step(a, 2)
    a.worker._partitions.stop(stage.region(1), RetentionLost("seen beside the segment"))
    stage.alter(on_bad_record="dead-letter")
    stage.take_up(a)
    stage.step(a, 20)
    stage.check()
    require(isinstance(a.worker.stopped.get(stage.region(1)), RetentionLost), "stopped by", a.worker.stopped)
    end = stage.topic.partitions[0].high
    require(stage.acknowledged.get(0) == end, "durable up to", stage.acknowledged, "of", end, a.worker.stopped)
    require(stage.checker.rejected == {0: {bad}}, "dead letters:", stage.checker.rejected)


def segment_is_lost_that_only_anothers_generation_tells_of() -> None:
    """The newest segment of a log is lost, without a trace in the log.  That it was there tells the generation of region 1,
    which begins behind it: region 0 waits, the other is opened, and with the segment back all goes on."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.append(a, 0)
    a.worker._sealing.policy = ONLY_EMPTY
    stage.step(a)
    with stage.without(paths.wal_segment(a.worker._writer.log, Sequence(1))):
        with stops(ObjectMissing, "a generation begins in segment 2"):
            stage.take_over(a, b, 0, 1)
        require(numbers(b.worker.durable) == [1], "opened:", b.worker.durable)
    stage.step(b, 10)
    stage.append(b, 0)
    stage.append(b, 1)
    stage.check()


def one_of_two_regions_is_claimed_by_another() -> None:
    """C claims region 0 right before B's claim of both: the same swap makes the other one B's, and not this one."""
    stage = Stage()
    a, b, c = stage.member("a", 0, 1), stage.member("b"), stage.member("c")
    stage.append(a, 0)
    stage.append(a, 1)
    stage.give(b, 0, 1)
    stage.step(a)

    def be_faster() -> None:
        stage.group.expel(b.process.name, hears_at=stage.scheduler.now + 60.0)
        stage.give(c, 0)
        stage.step(c)
        stage.append(c, 0)

    b.script.before("put", "/pages/", be_faster)
    stage.step(b)
    stage.send(0)
    stage.append(b, 1)
    stage.check()
    stage.step(c, 2)
    stage.check()


def owner_appends_while_its_regions_are_opened() -> None:
    """A, which was expelled, makes more durable while B ends its log: Kafka is asked behind that, and has it all."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    b.script.before("get", f"wal/{a.log}", lambda: stage.append(a, 0))
    stage.group.expel(a.process.name, hears_at=stage.scheduler.now + 60.0)
    stage.give(b, 0, 1)
    stage.step(b)
    stage.check()
    require(not b.worker.stopped, "nothing was lost, but", b.worker.stopped)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    successor_claims_before_a_late_put: ("no fence", "acknowledged up to"),
    seal_beside_an_unsettled_segment: ("an index changes while a segment is unsettled", "acknowledged up to"),
    reanchor_beside_an_unsettled_segment: ("an index changes while a segment is unsettled", "acknowledged up to"),
    seal_without_a_verdict: ("a seal ends where the log ends by then", "acknowledged up to"),
    segment_is_lost_that_only_anothers_generation_tells_of: (
        "others' generations tell nothing of a log",
        "partition 0: committed 1 after 2",
    ),
    one_of_two_regions_is_claimed_by_another: ("declined is claimed too", "acknowledged up to"),
    owner_appends_while_its_regions_are_opened: ("Kafka is asked before logs are ended", "nothing was lost"),
    put_without_a_verdict: ("unknown is stored", "acknowledged up to"),
    put_refused_without_an_object: ("unknown is stored", "acknowledged up to"),
    region_is_reanchored_under_a_claimer: ("stale claim", "acknowledged up to"),
    segments_in_a_row_are_lost: ("a log's end is not confirmed", "acknowledged before it began"),
    a_segment_of_a_sealed_generation_is_lost: ("any entries are all", "I2 audience"),
    retention_takes_markers: ("next without position", "nothing was lost"),
    policies_change_around_a_segment: ("an entry names the version of the start", "no dead letter for"),
    policies_change_while_a_stop_is_in_flight: ("tried again while a segment is in flight", "durable up to"),
    more_arrives_behind_a_poll: ("position asked too late", "instead of"),
}
