"""Interleavings that the protocol's safeguards are there for, each written down step by step.

With the safeguard a scenario ends well; without it, it raises.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lancewal_core import paths
from lancewal_core.errors import LancewalError
from lancewal_core.testing.faults import ListFault, PutFault
from lancewal_flusher.gc import GarbageState, collect_garbage
from tests.simulation.stage import ALWAYS, NEVER, Crashed, Stage, crash


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


def two_flushers_merge_the_same() -> None:
    """F has planned a merge; before it commits, G merges the same generations."""
    stage = Stage()
    a, f, g = stage.member("a", 0, 1), stage.flusher("f"), stage.flusher("g")
    stage.append(a, 0)
    stage.seal(a)
    stage.round(f)
    stage.append(a, 0)
    stage.seal(a)
    stage.scripts["f"].before("commit", "table", lambda: stage.round(g))
    stage.round(f)
    stage.check_table()
    stage.check()


def history_ends_while_it_is_kept() -> None:
    """What is merged leaves the index before its segments are deleted, whenever the collector stops."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    for _ in range(2):
        stage.append(a, 0)
        stage.append(a, 1)
        stage.seal(a)
        stage.round(f)
    stage.append(a, 0)
    stage.collect(f)
    stage.check()


def _unsettled(partition: int) -> None:
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0, records=3)
    a.script.puts.append((f"wal/{a.log}", PutFault.NEVER_ARRIVED))
    stage.send(partition, 3)
    a.worker._seal_policy = ALWAYS
    stage.step(a)
    a.worker._seal_policy = NEVER
    stage.step(a, 10)
    stage.check()


def seal_beside_an_unsettled_segment() -> None:
    """A generation with entries is due while a segment with more of them has no verdict."""
    _unsettled(0)


def reanchor_beside_an_unsettled_segment() -> None:
    """A generation without entries is due to move while its first entry has no verdict."""
    _unsettled(1)


def region_comes_back_into_the_same_log() -> None:
    """Between a reader's look at the index and its walk, A loses the region to B and gets it again."""
    stage = Stage()
    a, b, reader = stage.member("a", 0, 1), stage.member("b"), stage.reader("r")
    stage.append(a, 0)

    def there_and_back() -> None:
        for giver, taker in ((a, b), (b, a)):
            stage.give(taker, 0)
            stage.step(giver)
            stage.step(taker)
            stage.append(taker, 0)

    stage.scripts["r"].before("get", f"wal/{a.log}", there_and_back)
    reader.read("strong")
    stage.check()


def log_is_trimmed_before_it_is_walked() -> None:
    """Between a reader's look at the index and its walk, everything it wants is merged and trimmed."""
    stage = Stage()
    a, f, reader = stage.member("a", 0, 1), stage.flusher("f"), stage.reader("r")
    stage.append(a, 0)

    def merge_and_trim() -> None:
        for _ in range(2):
            stage.seal(a)
            stage.round(f)
            stage.append(a, 0)
        stage.collect(f)

    stage.scripts["r"].before("get", f"wal/{a.log}", merge_and_trim)
    reader.read("strong")
    stage.check()


def generation_opens_while_garbage_is_collected() -> None:
    """The collector has read the indexes; then B, with a new log, takes a region over and appends."""
    stage = Stage()
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    stage.append(a, 0)

    def hand_over() -> None:
        stage.give(b, 0)
        stage.step(a)
        stage.step(b)
        stage.append(b, 0)

    state = GarbageState()
    stage.scripts["f"].before("list", paths.history_prefix(stage.region(1)), hand_over)  # region 0's index is read
    collect_garbage(f, state)
    stage.scheduler.now += 10
    collect_garbage(f, state)
    stage.check()


def listing_leaves_a_region_out() -> None:
    """A region that holds old segments is not in any listing while another one goes far ahead in the same log."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    stage.append(a, 0)
    stage.append(a, 0)
    stage.append(a, 1)
    stage.scripts["f"].listings[stage.region(0).name] = ListFault.PARTIAL
    state = GarbageState()
    for _ in range(2):
        with suppress(LancewalError):  # a listing that cannot be right ends the round
            stage.collect(f, state)
    stage.check()


def late_commit_after_a_clean_up() -> None:
    """F has planned; G merges the same, the user appends and cleans up: only the newest version is left."""
    stage = Stage()
    a, f, g = stage.member("a", 0, 1), stage.flusher("f"), stage.flusher("g")
    stage.append(a, 0)
    stage.seal(a)
    stage.round(f)
    stage.append(a, 0)
    stage.seal(a)

    def merge_and_clean_up() -> None:
        stage.round(g)
        table = stage.checker.table
        stage.user_rows.append((table.append(stage.user_batch([5_000])), 5_000))
        stage.round(g)
        table.cleanup(keep=1)

    stage.scripts["f"].before("commit", "table", merge_and_clean_up)
    stage.round(f)
    stage.check_table()
    stage.check()


def merge_is_left_unfinished() -> None:
    """A user appends a key of the merge while it is under way; the flusher dies before the follow-up; time passes."""
    stage = Stage()
    a, f, g, c = stage.member("a", 0, 1), stage.flusher("f"), stage.flusher("g"), stage.flusher("c")
    stage.append(a, 0)
    stage.seal(a)
    stage.round(f)
    (k,) = stage.send(0)
    stage.step(a, 2)
    stage.seal(a)
    script = stage.scripts["f"]
    script.before("commit", "table", lambda: stage.checker.table.append(stage.user_batch([k])))
    script.before("commit", "table", crash, passing=2)
    with suppress(Crashed):
        stage.round(f)
    stage.append(a, 0)
    stage.seal(a)
    stage.collect(c)
    stage.round(g)
    stage.check_table()
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
        a.worker._seal_policy = ALWAYS
        a.worker._seal_due()  # A is in the middle of a step, in which it has polled before B was assigned anything
        a.worker._seal_policy = NEVER
        stage.round(f)
        stage.round(f)
        stage.collect(f)

    stage.send(0)
    a.worker._consume(0.1)
    b.script.before("get", f"wal/{a.log}", move_on)
    stage.take_over(a, b, 0, 1)
    a.worker._start_job(now=True)
    a.worker._settle_if_done()
    stage.check()
    stage.step(a)
    stage.step(b, 20)
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


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    successor_claims_before_a_late_put: ("no fence", "acknowledged up to"),
    two_flushers_merge_the_same: ("no sentinel", "a key shows twice"),
    history_ends_while_it_is_kept: ("delete before the boundary moves", "I8"),
    seal_beside_an_unsettled_segment: ("an index changes while a segment is unsettled", "acknowledged up to"),
    reanchor_beside_an_unsettled_segment: ("an index changes while a segment is unsettled", "acknowledged up to"),
    region_comes_back_into_the_same_log: ("joining over a gap", "I2"),
    log_is_trimmed_before_it_is_walked: ("no proof of a walk's end", "I1"),
    generation_opens_while_garbage_is_collected: ("candidates after the indexes", "I8|acknowledged up to"),
    listing_leaves_a_region_out: ("regions by listing", "I8|acknowledged up to"),
    late_commit_after_a_clean_up: ("commit by dataset object", "a key shows twice"),
    merge_is_left_unfinished: ("marked before the follow-up", "a key shows twice|never finished"),
    put_without_a_verdict: ("unknown is stored", "acknowledged up to"),
    put_refused_without_an_object: ("unknown is stored", "acknowledged up to"),
    region_is_reanchored_under_a_claimer: ("stale claim", "acknowledged up to"),
    retention_takes_markers: ("next without position", "nothing was lost"),
    more_arrives_behind_a_poll: ("position asked too late", "instead of"),
}
"""What each finds: the mutation, and what then is said."""
