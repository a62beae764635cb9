"""Interleavings around reads at points in time, and reads that wait or may be stale."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.checker import require
from tests.simulation.settings import USER_KEYS
from tests.simulation.stage import Member, Stage
from tests.simulation.travelling import Travelling
from tests.twins.faults import ListFault
from tests.twins.sim_clock import EPOCH_MS

_APART_S = 10.0
"""More than any clock is wrong."""


def _stage(history_window_s: int = 3600) -> tuple[Stage, Member, Travelling]:
    stage = Stage(history_window_s=history_window_s)
    return stage, stage.member("a", 0, 1), Travelling(stage, stage.process("t"))


def _later(stage: Stage) -> int:
    """A time between what was and what comes."""
    stage.scheduler.now += 2 * _APART_S
    return EPOCH_MS + int((stage.scheduler.now - _APART_S) * 1000)


def positions_divide_an_entry() -> None:
    """Of an entry of three records two lie below the position that is asked for."""
    stage, a, t = _stage()
    stage.append(a, 0, records=3)
    t.at_positions({0: 2, 1: 0})
    _said(stage, "read at positions")


def positions_lie_below_a_merge() -> None:
    """All records are merged, in two rounds, when somebody asks for those of the first."""
    stage, a, t = _stage()
    f = stage.flusher("f")
    for _ in range(2):
        stage.append_and_seal(a, 0)
        stage.round(f)
    stage.append(a, 0)
    t.at_positions({0: 1, 1: 0})
    _said(stage, "read at positions")


def time_lies_between_two_entries() -> None:
    """Both are in one generation, which is sealed and merged much later."""
    _within_a_generation(Travelling.at_timestamp, "read at timestamp")


def version_of_the_time_is_gone() -> None:
    """Of three versions that a user made the second is removed, which was the newest at the time that is asked for."""
    stage, _, t = _stage()
    stage.user_appends(USER_KEYS)
    _later(stage)
    stage.user_appends(USER_KEYS + 1)
    between = _later(stage)
    second = stage.checker.table.newest().version
    stage.user_appends(USER_KEYS + 2)
    stage.checker.table.remove_versions([second])
    t.at_timestamp(between)
    _said(stage, "read at timestamp: VersionGone")


def time_of_records_lies_within_a_generation() -> None:
    """Its first record is older and its second younger than the time."""
    _within_a_generation(Travelling.at_record_time, "read at record-time")


def _within_a_generation(read_at: Callable[[Travelling, int], None], said: str) -> None:
    """Of two records, with time between them; read while they are in the log, sealed, and merged."""
    stage, a, t = _stage()
    f = stage.flusher("f")
    stage.append(a, 0)
    between = _later(stage)
    stage.append(a, 0)
    for act in (lambda: None, lambda: stage.seal(a), lambda: stage.round(f)):
        act()
        read_at(t, between)
    _said(stage, said, 3)


def first_record_of_a_time_is_trimmed() -> None:
    """The first record of the time is trimmed, and another one, of a later time, is kept."""
    stage, a, t = _stage(history_window_s=4)
    f = stage.flusher("f")
    stage.append(a, 0)
    between = _later(stage)
    for _ in range(2):
        stage.append_and_seal(a, 0)
        stage.round(f)
    stage.collect(f)
    stage.append(a, 0)
    t.at_record_time(between)
    _said(stage, "read at record-time: OutsideHistoryWindow")


def every_record_of_a_time_is_trimmed() -> None:
    """All records are of the time and trimmed, and none is kept; the newest generation that is trimmed had no record."""
    stage, a, t = _stage(history_window_s=4)
    f = stage.flusher("f")
    before = _later(stage)
    stage.append_and_seal(a, 0, 1)
    stage.round(f)
    require(a.worker.drain(2.0), "A drains")
    b = stage.member("b")
    stage.take_over(a, b, 0, 1)
    stage.append(b, 1)
    stage.round(f)
    stage.collect(f)
    t.at_record_time(before)
    _said(stage, "read at record-time: OutsideHistoryWindow")


def what_is_trimmed_had_no_record() -> None:
    """Behind a version a partition has a generation without records, which is trimmed since, and one that is kept."""
    stage, a, t = _stage(history_window_s=4)
    f = stage.flusher("f")
    stage.append_and_seal(a, 0)
    stage.round(f)
    merged = _later(stage)
    require(a.worker.drain(2.0), "A drains")
    b = stage.member("b")
    stage.take_over(a, b, 0, 1)
    stage.append(b, 0)
    then = _later(stage)
    stage.round(f)
    stage.collect(f)
    state = stage.checker.states.read([stage.region(0)])[stage.region(0)]
    require(state.trimmed_generation == 2, "trimmed is", state.trimmed_generation)
    for ms in (merged, then):
        t.at_timestamp(ms)
    _said(stage, "read at timestamp", 2)


def record_becomes_durable_while_it_is_awaited() -> None:
    """A reader has its token before the record is in the log."""
    stage, a, t = _stage()
    stage.append(a, 0)
    stage.send(0)
    stage.scripts["t"].before("list", f"wal/{a.log}", lambda: stage.step(a, 2), passing=3)
    t.at_least(stage.topic.partitions[0].records[-1], 0, 2.0)
    _said(stage, "read at least, awaited")


def record_of_a_token_is_none() -> None:
    """It became a dead letter: while it is unmerged, and behind its merge."""
    _dead_letter_is_told(*_stage())


def listings_show_nothing_of_a_token_s_record() -> None:
    """A dead letter's entry is kept, but neither the listing of its log nor that of its partition's pages shows anything."""
    stage, a, t = _stage()
    stage.scripts["t"].listings[f"wal/{a.log}"] = ListFault.PARTIAL
    _dead_letter_is_told(stage, a, t)


def _dead_letter_is_told(stage: Stage, a: Member, t: Travelling) -> None:
    f = stage.flusher("f")
    stage.append(a, 0)
    offset = stage.send_bad(0)
    stage.append(a, 0)
    bad = next(record for record in stage.topic.partitions[0].records if record.offset == offset)
    for act in (lambda: None, lambda: stage.seal(a), lambda: stage.round(f)):
        act()
        t.at_least(bad, 0, 2.0)
    _said(stage, "read at least: TokenRejected", 3)


def plan_is_older_than_is_allowed() -> None:
    """A reader that takes what is five seconds old has a plan, which then gets too old."""
    stage, a, t = _stage()
    stage.append(a, 0)
    t.stale(5.0)
    stage.append(a, 0)
    t.stale(5.0)
    _later(stage)
    t.stale(5.0)


def _said(stage: Stage, event: str, times: int = 1) -> None:
    require(stage.counts.get(event) == times, f"not {times} times {event!r}, but", stage.counts)


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    positions_divide_an_entry: ("an entry counts whole below a cut", "I2"),
    positions_lie_below_a_merge: ("a version may hold more than the positions", "I2"),
    time_lies_between_two_entries: ("an entry counts whenever it was written", "produced long after"),
    version_of_the_time_is_gone: ("versions that are gone showed the same", "rows of a user"),
    time_of_records_lies_within_a_generation: ("times of records ascend", "lacks|not before"),
    first_record_of_a_time_is_trimmed: ("what is trimmed had no such time", "trimmed"),
    every_record_of_a_time_is_trimmed: ("the newest that is trimmed has the highest time", "trimmed"),
    what_is_trimmed_had_no_record: ("what is trimmed had records", "not 2 times"),
    record_becomes_durable_while_it_is_awaited: ("a token is not waited for", "is not in"),
    record_of_a_token_is_none: ("a dead letter is reached", "nor rejected"),
    listings_show_nothing_of_a_token_s_record: ("what no listing shows is not asked for", "nor rejected"),
    plan_is_older_than_is_allowed: ("a plan stays young", "I1"),
}
