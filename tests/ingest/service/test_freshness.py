"""How old what waits is: by its own time where that is known, else since when it is known that something waits."""

from __future__ import annotations

from dataclasses import replace

from lancewal_core.ids import Position
from lancewal_ingest.retention.horizon import Oldest
from lancewal_ingest.service.freshness import Freshness, Progress

NOTHING = Progress((), {}, {}, {}, {})
NOW_MS = 1_700_000_000_000


def at(position: int, end: int) -> Progress:
    return replace(NOTHING, durable={0: Position(position)}, ends={0: Position(end)})


def test_a_quiet_partition_is_fresh_however_long_it_is_quiet() -> None:
    freshness = Freshness()
    assert freshness.look(0.0, NOW_MS, at(7, 7)) == {0: 0.0}
    assert freshness.look(3600.0, NOW_MS + 3_600_000, at(7, 7)) == {0: 0.0}
    # After an hour one record comes: it is as old as it is, not as the last before it.
    consumed = replace(at(7, 7), oldest_consumed_ms={0: NOW_MS + 3_600_000})
    assert freshness.look(3600.01, NOW_MS + 3_600_010, consumed) == {0: 0.01}
    assert freshness.look(3600.02, NOW_MS + 3_600_020, at(8, 8)) == {0: 0.0}


def test_who_takes_over_and_gets_nothing_knows_since_when_something_waits() -> None:
    freshness = Freshness()
    assigned = replace(NOTHING, waiting=[0])
    assert freshness.look(100.0, NOW_MS, assigned) == {0: 0.0}
    assert freshness.look(130.0, NOW_MS, assigned) == {0: 30.0}
    # Opened with lag, and not a record comes.
    assert freshness.look(140.0, NOW_MS, at(7, 9)) == {0: 40.0}
    assert freshness.look(150.0, NOW_MS, at(7, 9)) == {0: 50.0}
    # Then it is known how old the first record is.
    fetched = replace(at(7, 9), oldest={0: Oldest(Position(7), NOW_MS - 600_000)})
    assert freshness.look(160.0, NOW_MS, fetched) == {0: 600.0}
    # What was fetched before the position has moved says nothing any more.
    assert freshness.look(170.0, NOW_MS, replace(fetched, durable={0: Position(8)})) == {0: 0.0}
    assert freshness.look(175.0, NOW_MS, replace(fetched, durable={0: Position(8)})) == {0: 5.0}


def test_opened_without_lag_it_is_fresh_at_once() -> None:
    freshness = Freshness()
    freshness.look(100.0, NOW_MS, replace(NOTHING, waiting=[0]))
    assert freshness.look(160.0, NOW_MS, at(9, 9)) == {0: 0.0}
    # What comes later has not waited since then.
    assert freshness.look(170.0, NOW_MS, at(9, 10)) == {0: 0.0}
    assert freshness.look(172.0, NOW_MS, at(9, 10)) == {0: 2.0}


def test_what_was_consumed_waits_also_where_the_end_is_not_known() -> None:
    freshness = Freshness()
    unknown = replace(NOTHING, durable={0: Position(7), 1: Position(3)}, oldest_consumed_ms={1: NOW_MS - 4_000})
    assert freshness.look(0.0, NOW_MS, unknown) == {0: 0.0, 1: 4.0}
    # A record from a clock that goes ahead is no younger than now.
    ahead = replace(unknown, oldest_consumed_ms={1: NOW_MS + 4_000})
    assert freshness.look(0.0, NOW_MS, ahead) == {0: 0.0, 1: 0.0}


def test_a_partition_that_left_and_comes_again_begins_anew() -> None:
    freshness = Freshness()
    freshness.look(0.0, NOW_MS, at(7, 9))
    assert freshness.look(5.0, NOW_MS, NOTHING) == {}
    assert freshness.look(9.0, NOW_MS, at(7, 9)) == {0: 0.0}
