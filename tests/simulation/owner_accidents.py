"""Accidents around who owns a region."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lancewal_core.errors import ObjectCorrupt, ObjectMissing, RetentionLost
from lancewal_core.names import paths
from lancewal_core.names.ids import OwnerId, Sequence
from lancewal_core.region.end_region import end_region
from lancewal_core.region.pages.state_page import StatePage, decode_page, encode_page
from lancewal_core.region.state import GenerationState
from lancewal_core.region.states import page_family
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.policy import SealDecision, SealPolicy
from tests.simulation.checker import require
from tests.simulation.script import stops
from tests.simulation.stage import ALWAYS, NEVER, ONLY_EMPTY, Member, Stage
from tests.support.regions import numbers
from tests.twins.faults import PutFault


def _handed_over() -> tuple[Stage, Member, Member]:
    """A has handed region 0 over to B, which has not opened it yet; C stands by."""
    stage = Stage()
    a, b, c = stage.member("a", 0, 1), stage.member("b"), stage.member("c")
    stage.append(a, 0)
    stage.give(b, 0)
    stage.step(a)
    return stage, b, c


def retention_follows_another_owner() -> None:
    """While B asks Kafka, C has taken the region on, and retention has removed what C made durable."""
    stage, b, c = _handed_over()

    def go_on() -> None:
        stage.take_over(b, c, 0)
        stage.append(c, 0)
        log = stage.topic.partitions[0]
        log.low = log.high

    b.script.before("kafka", "broker", go_on, passing=2)
    stage.step(b)
    require(not b.worker.stopped, "nothing was lost, but", b.worker.stopped)
    require(stage.counts.get("failed open: OwnershipLost") == 1, "B notes that it came late:", stage.counts)
    stage.check()


def region_was_elsewhere_in_between() -> None:
    """While B asks Kafka, C opens the region, appends, and hands it over: B claims behind that."""
    stage, b, c = _handed_over()

    def there_and_back() -> None:
        stage.take_over(b, c, 0)
        stage.append(c, 0)
        stage.give(b, 0)
        stage.step(c)

    b.script.before("kafka", "broker", there_and_back, passing=2)
    stage.step(b)
    stage.append(b, 0)
    stage.step(b, 10)
    stage.check()


def segment_in_the_middle_of_a_log_is_lost() -> None:
    """Who takes over does not end the log there: what lies behind is still others'."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    for _ in range(3):
        stage.append(a, 0)
    lost = sorted(info.key for info in stage.bucket.listing(paths.WAL) if a.log in info.key)[1]
    stage.bucket.delete(lost)
    with stops(ObjectMissing):
        stage.take_over(a, b, 0)
    require(stage.bucket.get(lost) is None, "there is something in the place of", lost)


def member_opens_long_after_its_log_was_ended() -> None:
    """B has ended A's log, in which nothing was ever written; when the fence is old enough to go, A gets a region again."""
    stage = Stage(history_window_s=0)
    a, b = stage.member("a", 0), stage.member("b")
    stage.take_over(a, b, 0)
    ended = a.log
    stage.scheduler.now += 8 * 24 * 3600
    stage.give(a, 1)
    stage.step(a, 2)
    require(a.log != ended, "A goes on with", a.log)
    stage.append(a, 1)
    stage.append(b, 0)
    stage.check()


def records_are_lost_behind_what_another_owner_did() -> None:
    """As above, and before B asks again, retention removes what nobody has read: B finds that out behind its claim."""
    stage, b, c = _handed_over()
    log = stage.topic.partitions[0]

    def there_and_back() -> None:
        stage.take_over(b, c, 0)
        stage.append(c, 0)
        stage.give(b, 0)
        stage.step(c)

    def retention() -> None:
        stage.send(0, 2)
        log.low = log.high

    b.script.before("kafka", "broker", there_and_back, passing=2)
    b.script.before("kafka", "broker", retention, passing=3)
    stage.step(b)
    require(
        isinstance(b.worker.stopped.get(stage.region(0)), RetentionLost), "B stops the partition:", b.worker.stopped
    )
    stage.check()


def hand_over_fails_and_the_region_comes_back() -> None:
    """The store fails while A hands over; A gets the region again, and an own segment cannot be read for a while."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    a.script.puts += [("/pages/", PutFault.NEVER_ARRIVED)] * 8
    stage.give(b, 0)
    stage.step(a)
    require(stage.counts.get("failed hand-over: StoreUnavailable") == 1, "it could not:", stage.counts)
    (key,) = [info.key for info in stage.bucket.listing(paths.WAL)]
    with stage.without(key):
        stage.give(a, 0)
        stage.step(a)
        require(stage.counts.get("failed open: StoreInconsistent") == 1, "its own segment is missing:", stage.counts)
    stage.step(a, 10)
    stage.append(a, 0)
    stage.check()


def own_segment_is_missing_that_one_of_two_regions_needs() -> None:
    """Both come back to A, which could not hand them over; the generation of region 1 begins behind that segment."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    a.worker._sealing.policy = ONLY_EMPTY
    stage.step(a)
    a.worker._sealing.policy = NEVER
    a.script.puts += [("/pages/", PutFault.NEVER_ARRIVED)] * 8
    stage.give(b, 0, 1)
    stage.step(a)
    require(stage.counts.get("failed hand-over: StoreUnavailable") == 1, "of both regions of the page:", stage.counts)
    (key,) = [info.key for info in stage.bucket.listing(paths.WAL)]
    with stage.without(key):
        stage.give(a, 0, 1)
        stage.step(a)
        require(stage.counts.get("failed open: StoreInconsistent") == 1, "its own segment is missing:", stage.counts)
        require(numbers(a.worker.durable) == [1], "A has", a.worker.durable)
    stage.step(a, 10)
    stage.append(a, 0)
    stage.append(a, 1)
    stage.check()


def fence_is_met_while_a_region_waits_to_be_opened() -> None:
    """B has fenced A's log; both regions come back to A, which opens one, meets the fence, and is due to open the other."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.append(a, 1)
    stage.take_over(a, b, 0, 1)
    stage.step(a)
    stage.give(a, 0, 1)
    stage.step(b)
    # The store fails once when A opens region 0, and once when it would look for what it wrote behind the fence.
    behind = paths.wal_segment(a.worker._writer.log, Sequence(3))
    a.script.down += [("get", paths.page_prefix(stage.page(0))), ("get", behind)]
    stage.send(0)
    stage.send(1)
    stage.step(a, 2)
    stage.scheduler.now += 1.0
    for _ in range(8):
        stage.step(a)
        stage.check()
    require("failed open: StoreUnavailable" in stage.counts, "one could not be opened at first:", stage.counts)
    require(stage.acknowledged == {0: 2, 1: 2}, "durable:", stage.acknowledged)
    stage.check()


def index_is_old_when_its_log_is_walked() -> None:
    """B has read that A owns the region; A loses it to C and has it again, in the same log."""
    stage = Stage()
    a, b, c = stage.member("a", 0, 1), stage.member("b"), stage.member("c")
    stage.append(a, 0)

    def there_and_back() -> None:
        for taker in (c, a):
            stage.group.owner[0] = None
            stage.give(taker, 0)
            stage.step(a, 2)
            stage.step(c, 2)
            stage.step(a, 2)
            stage.append(taker, 0)

    b.script.before("get", f"wal/{a.log}", there_and_back)
    stage.group.owner[0] = None
    stage.give(b, 0)
    stage.step(b)
    require(bool(b.worker.idle) or stage.counts.get("failed open: StoreInconsistent") == 1, "B", stage.counts)
    stage.give(b, 0)
    for _ in range(10):
        stage.step(a)
        stage.step(b)
        stage.step(c)
    stage.check()


def owner_sleeps_through_a_claim() -> None:
    """A is frozen in a step; B claims its regions; A would seal one and move the other."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.take_over(a, b, 0, 1)
    a.worker._sealing.policy = ALWAYS
    a.worker._sealing.advance(a.worker._writer)
    require(a.worker.durable == {}, "A still believes that it has", a.worker.durable)
    stage.append(b, 0)
    stage.check()


class _Wrong(SealPolicy):
    """Decides what must never be."""

    def decide(self, generation: MemTable, now: float, length: float) -> SealDecision:
        return SealDecision.REANCHOR


def index_would_change_too_early() -> None:
    """A bug in the loop or in the policy meets the checks in ``seal``."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0)
    a.worker._sealing.policy = _Wrong()
    with stops(RuntimeError):
        a.worker._sealing.advance(a.worker._writer)
    a.script.puts.append((f"wal/{a.log}", PutFault.NEVER_ARRIVED))
    a.worker._sealing.policy = ALWAYS
    stage.send(1)
    a.worker._intake.consume(0.1, 0.0)
    a.worker._start_job(now=True)
    with stops(RuntimeError):
        a.worker._sealing.advance(a.worker._writer)
    stage.step(a, 10)
    stage.check()


def entries_come_beside_a_seal() -> None:
    """A's region goes on in the log while its seal is on the way, and the first put of it does not arrive."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0, records=3)

    def go_on() -> None:
        for _ in range(3):
            stage.append(a, 0)
        stage.check()

    a.script.before("put", "/pages/", go_on)
    a.script.puts.append(("/pages/", PutFault.NEVER_ARRIVED))
    stage.seal(a)
    stage.append(a, 0)
    stage.check()


def seal_lands_and_nobody_says_so() -> None:
    """The store takes a seal, does not say so, and shows nothing for a while: tried again, it is found as ours."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0, records=3)
    a.script.puts.append(("/pages/", PutFault.REPLY_LOST))
    a.script.down += [("get", "/pages/")] * 10
    stage.seal(a)
    require(stage.counts.get("failed seal: StoreUnavailable") == 1, "it had a verdict at once:", stage.counts)
    stage.append(a, 0)
    newest = stage.checker.states.read([stage.region(0)])[stage.region(0)].generations[-1]
    require((newest.generation, newest.first) == (2, 3), "the region was opened anew:", newest)
    stage.check()


def region_is_claimed_beside_a_seal() -> None:
    """A's region goes on in the log while its seal is on the way, and B takes over before that lands: what was put aside and
    what came behind it are one generation."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0, records=3)

    def go_on() -> None:
        stage.append(a, 0)
        stage.take_over(a, b, 0)
        stage.append(b, 0)

    a.script.before("put", "/pages/", go_on)
    stage.seal(a)
    require(stage.region(0) not in a.worker.durable, "A still believes that it has", a.worker.durable)
    stage.step(b, 4)
    stage.check()
    (sealed, *_) = stage.checker.states.read([stage.region(0)])[stage.region(0)].generations
    require((sealed.first, sealed.next) == (0, 4), "B sealed", sealed)


def region_is_handed_over_beside_a_seal() -> None:
    """It goes to B once the seal has a verdict; where it gets none in time, B fences."""
    for fails in (1, 400):
        stage = Stage()
        a, b = stage.member("a", 0, 1), stage.member("b")
        stage.append(a, 0, records=3)
        a.script.puts += [("/pages/", PutFault.NEVER_ARRIVED)] * 24
        a.worker._sealing.policy = ALWAYS
        stage.step(a)
        a.worker._sealing.policy = NEVER
        stage.append(a, 0)
        require(a.worker._sealing.busy, "it has a verdict:", stage.counts)
        a.script.puts += [("/pages/", PutFault.NEVER_ARRIVED)] * fails
        stage.give(b, 0)
        stage.step(a)
        a.script.clear()
        stage.step(b, 4)
        stage.append(b, 0)
        stage.check()


def member_stops_beside_a_silent_page() -> None:
    """The seal of a region, or its hand-over, has no verdict for as long as A may take: what lies in the other page is handed
    over and flushed all the same, and what is left behind its next owner finds in the log."""
    for sealing in (True, False):
        stage = Stage(partitions=4)
        a, b = stage.member("a", 0, 1, 2, 3), stage.member("b")
        for partition in range(4):
            stage.append(a, partition)
        prefix = paths.page_prefix(stage.page(0))
        a.script.puts += [(prefix, PutFault.NEVER_ARRIVED)] * 4000
        if sealing:
            a.worker._sealing.policy = ALWAYS
            stage.step(a)
            require(
                numbers(a.worker._sealing.unsettled) == [0, 1],
                "the other page has a verdict:",
                a.worker._sealing.unsettled,
            )
        require(not a.worker.drain(2.0), "all is handed over")
        a.script.clear()
        indexes = stage.checker.states.read(stage.contract.regions)
        states = {region.partition: [r.state for r in state.generations] for region, state in indexes.items()}
        handed_over = [GenerationState.FLUSHED, GenerationState.FLUSHED] if sealing else [GenerationState.FLUSHED]
        left = [GenerationState.OPEN]
        require(states == {0: left, 1: left, 2: handed_over, 3: handed_over}, "handed over:", states)
        stage.take_over(a, b, 0, 1, 2, 3)
        stage.step(b, 4)
        for partition in range(4):
            stage.append(b, partition)
        stage.check()


def member_drains_behind_a_rebalance() -> None:
    """A has handed a region over and leaves; B has gone on with it: what A tells the group last is no older position."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.append(a, 1)
    while stage.group.committed != {0: 1, 1: 1}:
        stage.step(a)
    stage.give(b, 0)
    stage.step(a)  # too early to commit again: it keeps in mind what it has handed over
    stage.step(b)
    stage.append(b, 0)
    stage.step(b, 10)
    require(stage.group.committed.get(0) == 2, "B committed", stage.group.committed)
    require(a.worker.drain(1.0), "A drains")
    require(stage.group.committed == {0: 2, 1: 1}, "the group knows", stage.group.committed)
    stage.check()


def _moving_on(stage: Stage) -> tuple[Member, Callable[[], None]]:
    """A member, and an act by which the beginnings of its regions move on, what lies before is trimmed, and it writes more: in
    its log there is a hole then."""
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    stage.append(a, 1)

    def move_on() -> None:
        a.worker._sealing.policy = ALWAYS
        # A is in the middle of a step, in which it has polled before anybody else was assigned anything
        a.worker._sealing.advance(a.worker._writer)
        a.worker._sealing.policy = NEVER
        for _ in range(2):
            stage.round(f)
        stage.collect(f)
        a.worker._start_job(now=True)
        a.worker._settle_if_done()

    stage.send(0)
    a.worker._intake.consume(0.1, 0.0)
    return a, move_on


def log_is_trimmed_under_a_claimer() -> None:
    """B has read the indexes of two regions of A, which moves on: B finds the hole, and looks at the indexes again."""
    stage = Stage()
    a, move_on = _moving_on(stage)
    b = stage.member("b")
    b.script.before("get", f"wal/{a.log}", move_on)
    stage.take_over(a, b, 0, 1)
    require(stage.counts.get("failed open: OwnershipLost") == 2, "B claimed what it had not read:", stage.counts)
    stage.check()
    stage.step(b, 20)
    stage.step(a)
    stage.check()
    require(not b.worker.stopped, "B stopped:", b.worker.stopped)


def log_is_trimmed_and_the_index_is_not_to_be_read() -> None:
    """As above, but when B looks again the store fails: B does not say that something is lost."""
    stage = Stage()
    a, move_on = _moving_on(stage)
    b = stage.member("b")

    def move_on_and_fail() -> None:
        move_on()
        b.script.down += [("get", paths.page_prefix(stage.page(0)))] * 2

    b.script.before("get", f"wal/{a.log}", move_on_and_fail)
    stage.take_over(a, b, 0, 1)
    failed = {what: times for what, times in stage.counts.items() if what.startswith("failed open")}
    require(failed == {"failed open: StoreUnavailable": 2}, "B could not look:", failed)
    stage.step(b, 20)
    stage.step(a)
    stage.check()


def region_is_ended_while_its_owner_moves_on() -> None:
    """As ``alter`` does it: it ends what is there then.  Where a segment is lost, it ends nothing."""
    stage = Stage()
    a, move_on = _moving_on(stage)
    process = stage.process("e")
    stage.scripts["e"].before("get", f"wal/{a.log}", move_on)
    opened, ender = process.opened(stage.contract), OwnerId("e")
    end_region(opened, process.new_id, ender, stage.region(0))
    stage.check()
    stage.append(a, 0)  # it meets the fence
    stage.step(a, 4)
    stage.append(a, 0)
    stage.append(a, 0)
    first, *_ = [info.key for info in stage.bucket.listing(paths.WAL) if a.log in info.key]
    with stage.without(first), stops(ObjectMissing):
        end_region(opened, process.new_id, ender, stage.region(0))
    stage.append(a, 0)
    stage.check()


def state_of_a_region_is_damaged_under_its_owner() -> None:
    """Its record in the page: the owner puts the region off, and the other one goes on.  Repaired, all goes on."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.append(a, 1)
    family = page_family(stage.page(0))

    def versions() -> list[int]:
        return sorted(filter(None, (family.parse(info.key) for info in stage.bucket.listing(family.prefix))))

    def page(number: int) -> StatePage:
        return decode_page(stage.bucket.get(family.key(number)) or b"", family.key(number))

    def put(number: int, version: StatePage) -> None:
        stage.bucket.delete(family.key(number))
        stage.bucket.put(family.key(number), encode_page(version), 0)

    sound = page(first := versions()[-1])
    record = replace(sound.records[0], data=b"?" + sound.records[0].data)
    put(first + 1, replace(sound.with_records({0: record}), write_id="another"))
    a.worker._sealing.policy = ALWAYS
    with stops(ObjectCorrupt):
        stage.step(a)
    a.worker._sealing.policy = NEVER
    require(numbers(a.worker.durable) == [1], "A goes on with", a.worker.durable)
    stage.give(b, 0)
    stage.step(a)
    with stops(ObjectCorrupt):
        stage.step(b)
    stage.append(a, 1)
    *damaged, newest = versions()
    put(newest + 1, replace(page(newest).with_records({0: sound.records[0]}), write_id="repaired"))
    for number in (*damaged[damaged.index(first) + 1 :], newest):  # else the checker would meet it
        put(number, page(number).with_records({0: sound.records[0]}))
    stage.step(b, 10)
    stage.append(b, 0)
    stage.check()


def owner_hears_late_that_it_was_expelled() -> None:
    """A reads on from partitions that are B's by now, since nobody can tell it: what it writes meets B's fence."""
    stage = Stage()
    a, b = stage.member("a", 0, 1), stage.member("b")
    stage.append(a, 0)
    stage.group.expel(a.process.name, hears_at=stage.scheduler.now + 60.0)
    stage.give(b, 0, 1)
    stage.step(b)
    stage.send(0)
    read = a.source.delivered
    stage.step(a, 2)
    require(a.source.delivered > read, "A has heard of it:", a.source.delivered)
    require(a.worker.durable == {}, "A holds for durable what is behind the fence:", a.worker.durable)
    stage.check()
    stage.step(b, 2)
    stage.scheduler.now += 60.0
    stage.step(a, 2)
    require(not a.worker.waiting, "A goes on with what it has lost:", a.worker.waiting)
    stage.check()


def partition_takes_long_to_open() -> None:
    """The others are opened by the next turn: the loop turns in time, and group and store hear of it."""
    stage = Stage()
    b = stage.member("b")

    def take_long() -> None:
        stage.scheduler.now += 2

    b.script.before("kafka", "broker", take_long)
    b.worker._partitions.at_once = 1
    stage.give(b, 0, 1)
    stage.step(b)
    opened = numbers(b.worker.durable)
    require(opened == [0], "opened by the first turn:", opened)
    stage.step(b)
    require(numbers(b.worker.durable) == [0, 1], "by the second:", b.worker.durable)
    stage.append(b, 1)
    stage.check()


ACCIDENTS: list[Callable[[], None]] = [
    log_is_trimmed_and_the_index_is_not_to_be_read,
    region_is_ended_while_its_owner_moves_on,
    state_of_a_region_is_damaged_under_its_owner,
    own_segment_is_missing_that_one_of_two_regions_needs,
    owner_hears_late_that_it_was_expelled,
    log_is_trimmed_under_a_claimer,
    retention_follows_another_owner,
    region_was_elsewhere_in_between,
    segment_in_the_middle_of_a_log_is_lost,
    member_opens_long_after_its_log_was_ended,
    records_are_lost_behind_what_another_owner_did,
    hand_over_fails_and_the_region_comes_back,
    fence_is_met_while_a_region_waits_to_be_opened,
    index_is_old_when_its_log_is_walked,
    owner_sleeps_through_a_claim,
    index_would_change_too_early,
    entries_come_beside_a_seal,
    seal_lands_and_nobody_says_so,
    region_is_claimed_beside_a_seal,
    region_is_handed_over_beside_a_seal,
    member_stops_beside_a_silent_page,
    member_drains_behind_a_rebalance,
    partition_takes_long_to_open,
]
