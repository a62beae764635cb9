"""How old what waits is: since when Kafka can have it, by its own time where that can be true."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lancewal_core.names.ids import Position
from lancewal_ingest.retention.horizon import Oldest
from lancewal_ingest.service.freshness import Freshness, IngestProgress
from tests.support.regions import region

NOTHING = IngestProgress((), {}, {}, {}, {})
NOW_MS = 1_700_000_000_000
ZERO, ONE = region(0), region(1)


def at(position: int, end: int) -> IngestProgress:
    return replace(NOTHING, durable={ZERO: Position(position)}, ends={ZERO: Position(end)})


def test_a_quiet_partition_is_fresh_however_long_it_is_quiet() -> None:
    freshness = Freshness()
    assert freshness.look(0.0, NOW_MS, at(7, 7)) == {ZERO: 0.0}
    assert freshness.look(3600.0, NOW_MS + 3_600_000, at(7, 7)) == {ZERO: 0.0}
    # After an hour one record comes: it is as old as it is, not as the last before it.
    consumed = replace(at(7, 7), oldest_consumed_ms={ZERO: NOW_MS + 3_600_000})
    assert freshness.look(3600.01, NOW_MS + 3_600_010, consumed) == {ZERO: 0.01}
    assert freshness.look(3600.02, NOW_MS + 3_600_020, at(8, 8)) == {ZERO: 0.0}


def test_who_takes_over_and_gets_nothing_knows_since_when_something_waits() -> None:
    freshness = Freshness()
    assigned = replace(NOTHING, waiting=[ZERO])
    assert freshness.look(100.0, NOW_MS, assigned) == {ZERO: 0.0}
    assert freshness.look(130.0, NOW_MS, assigned) == {ZERO: 30.0}
    # Opened with lag, and not a record comes.
    assert freshness.look(140.0, NOW_MS, at(7, 9)) == {ZERO: 40.0}
    assert freshness.look(150.0, NOW_MS, at(7, 9)) == {ZERO: 50.0}
    # Then it is known how old the first record is.
    fetched = replace(at(7, 9), oldest={ZERO: Oldest(Position(7), NOW_MS - 600_000)})
    assert freshness.look(160.0, NOW_MS, fetched) == {ZERO: 600.0}
    # What was fetched before the position has moved says nothing any more.
    assert freshness.look(170.0, NOW_MS, replace(fetched, durable={ZERO: Position(8)})) == {ZERO: 0.0}
    assert freshness.look(175.0, NOW_MS, replace(fetched, durable={ZERO: Position(8)})) == {ZERO: 5.0}


def test_opened_without_lag_it_is_fresh_at_once() -> None:
    freshness = Freshness()
    freshness.look(100.0, NOW_MS, replace(NOTHING, waiting=[ZERO]))
    assert freshness.look(160.0, NOW_MS, at(9, 9)) == {ZERO: 0.0}
    # What comes later has not waited since then.
    assert freshness.look(170.0, NOW_MS, at(9, 10)) == {ZERO: 0.0}
    assert freshness.look(172.0, NOW_MS, at(9, 10)) == {ZERO: 2.0}


def test_what_was_consumed_waits_also_where_the_end_is_not_known() -> None:
    freshness = Freshness()
    unknown = replace(NOTHING, durable={ZERO: Position(7), ONE: Position(3)}, oldest_consumed_ms={ONE: NOW_MS - 4_000})
    assert freshness.look(0.0, NOW_MS, unknown) == {ZERO: 0.0, ONE: 4.0}
    # A record from a clock that goes ahead is no younger than now.
    ahead = replace(unknown, oldest_consumed_ms={ONE: NOW_MS + 4_000})
    assert freshness.look(0.0, NOW_MS, ahead) == {ZERO: 0.0, ONE: 0.0}


def test_a_partition_that_left_and_comes_again_begins_anew() -> None:
    freshness = Freshness()
    freshness.look(0.0, NOW_MS, at(7, 9))
    assert freshness.look(5.0, NOW_MS, NOTHING) == {}
    assert freshness.look(9.0, NOW_MS, at(7, 9)) == {ZERO: 0.0}


YEARS_S = 50 * 365 * 86_400.0
DAY_S = 86_400.0


def backfill(old_s: float, behind_s: float, *, minutes: int = 60, step_s: float = 1.0) -> Iterator[float]:
    """Yield the freshness of each look: 100 records/s with old times come, and become durable ``behind_s`` later."""
    freshness = Freshness()
    for n in range(int(minutes * 60 / step_s)):
        now = n * step_s
        looked_at = now // 5 * 5
        durable, end = 1000 + int(100 * max(0.0, now - behind_s)), 1000 + int(100 * looked_at)
        at = IngestProgress(
            (), {ZERO: Position(durable)}, {ZERO: NOW_MS + int(now * 1000 - old_s * 1000)}, {ZERO: Position(end)}, {},
            looked_at=looked_at, retention_s=math.inf,
        )  # fmt: skip
        yield freshness.look(now, NOW_MS + int(now * 1000), at)[ZERO]


@pytest.mark.parametrize("old_s", [YEARS_S, DAY_S, 600.0])
def test_a_backfill_of_old_times_is_as_old_as_kafka_can_have_it(old_s: float) -> None:
    found = list(backfill(old_s, behind_s=0.0))
    assert max(found[5:]) <= 6.0
    # A backfill that ingest is behind with is late, and no older than it is.
    behind = list(backfill(old_s, behind_s=400.0))
    assert all(400 <= seconds <= 400 * 17 / 16 + 6 for seconds in behind[500:])


def test_rows_that_come_with_their_own_time_have_that_age() -> None:
    assert max(backfill(old_s=0.5, behind_s=0.0)) == 0.5


def test_how_old_a_long_lag_is_is_never_too_little() -> None:
    """Of many looks some are kept: what came between two is as old as the earlier one."""
    behind = list(backfill(YEARS_S, behind_s=4 * 3600.0, minutes=10 * 60, step_s=5.0))[5 * 720 :]
    assert min(behind) >= 4 * 3600.0
    assert max(behind) <= 4 * 3600.0 * 17 / 16 + 6


def test_what_was_there_before_the_first_look_has_its_own_time_where_the_topic_can_have_kept_it() -> None:
    freshness = Freshness()
    waits = replace(at(7, 9), oldest_consumed_ms={ZERO: NOW_MS - 600_000}, looked_at=0.0, retention_s=3600.0)
    assert freshness.look(1.0, NOW_MS, waits) == {ZERO: 600.0}
    impossible = replace(waits, oldest_consumed_ms={ZERO: 0})
    assert freshness.look(2.0, NOW_MS + 1_000, impossible) == {ZERO: 2.0}
    # It waits on while others become durable.
    assert freshness.look(90.0, NOW_MS + 89_000, replace(impossible, durable={ZERO: Position(8)})) == {ZERO: 90.0}


def test_a_time_in_the_future_counts_since_the_record_waits() -> None:
    freshness = Freshness()
    ahead = replace(at(7, 9), oldest_consumed_ms={ZERO: NOW_MS + 10**9}, looked_at=0.0)
    assert freshness.look(10.0, NOW_MS, ahead) == {ZERO: 0.0}
    assert freshness.look(130.0, NOW_MS + 120_000, ahead) == {ZERO: 120.0}


def test_rows_of_a_transaction_are_late_since_they_can_be_read() -> None:
    freshness = Freshness()
    freshness.look(3600.0, NOW_MS, replace(at(7, 7), looked_at=3600.0))
    committed = replace(at(7, 900), oldest_consumed_ms={ZERO: NOW_MS - 3_600_000}, looked_at=3605.0)
    assert freshness.look(3605.0, NOW_MS + 5_000, committed) == {ZERO: 5.0}


def test_a_broker_that_is_silent_proves_nothing() -> None:
    freshness = Freshness()
    for now in (0.0, 300.0, 600.0):  # the last answer stays
        freshness.look(now, NOW_MS, replace(at(7, 7), looked_at=0.0))
    late = replace(at(7, 7), oldest_consumed_ms={ZERO: 0}, looked_at=0.0)
    assert freshness.look(601.0, NOW_MS, late) == {ZERO: 601.0}
