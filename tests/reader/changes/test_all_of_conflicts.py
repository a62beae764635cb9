"""Every change in a table whose keys may come through two partitions: what reads show, or the named error."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from lancewal_core.errors import RegionConflict
from lancewal_flusher.merge.finish import finish_newest
from lancewal_reader.table import open_table
from tests.flusher.merge.test_set_aside import PARTITIONS, Conflicted, decide, one_of
from tests.reader.changes.test_all import State, applied, feed, state_now
from tests.support.flusher_tables import COMBINE, OPEN_ROWS, ScriptedTable, patch, upsert


def history(world: Conflicted, rng: random.Random) -> list[State]:
    """Most records of a key come through one partition."""
    table = open_table(world.table.uri)
    states = []
    for _ in range(12):
        for _ in range(rng.randrange(3)):
            partition = rng.randrange(PARTITIONS)
            stray = rng.random() < 0.2
            ids = sorted(
                {id if stray else id // PARTITIONS * PARTITIONS + partition for id in rng.sample(range(30), 3)}
            )
            world.send(partition, *[one_of(rng, id, deletes=True) for id in ids])
        match rng.randrange(4):
            case 0 | 1:
                world.merge(rng.choice([OPEN_ROWS, COMBINE]))
            case 2:
                decide(world, rng, ScriptedTable(world.table.uri))
        finish_newest(world.table.context())
        states.append(state_now(table))
    return states


@pytest.mark.in_turns("seed", each=4)
@pytest.mark.parametrize("seed", range(4))
def test_changes_lead_from_state_to_state_or_a_conflict_is_named(tmp_path: Path, seed: int) -> None:
    world = Conflicted(tmp_path, history_window_s=24 * 3600)
    states = history(world, random.Random(seed))
    table = open_table(world.table.uri)
    outcomes: Counter[str] = Counter()
    for start, end in combinations(states, 2):
        try:
            found = feed(table, start.receipt, end.receipt)
        except RegionConflict:
            outcomes["conflict"] += 1
        else:
            assert applied(start.rows, found) == end.rows
            outcomes.update({change.source for change in found})
    assert outcomes["record"]
    world.close()


def test_a_decision_is_a_step_that_gives_what_was_set_aside(tmp_path: Path) -> None:
    world = Conflicted(tmp_path, history_window_s=24 * 3600)
    table = open_table(world.table.uri)
    world.send(0, upsert(7, a=1), upsert(8, a=1))
    world.merge_all()
    states = [state_now(table)]
    world.send(1, upsert(7, a=2))
    world.merge_all()
    states.append(state_now(table))
    world.send(1, upsert(9, a=9), patch(7, s="waits too"))
    world.send(0, patch(7, s="owner"), upsert(8, a=8))
    states.append(state_now(table))
    world.merge_all()
    world.settle(1, [7])
    world.send(1, patch(7, a=3))
    states.append(state_now(table))
    with pytest.raises(RegionConflict, match=r"1 primary key came through two partitions.*lancewal conflict settle"):
        feed(table, states[0].receipt, states[1].receipt)
    found = feed(table, states[1].receipt, states[2].receipt)
    assert applied(states[1].rows, found) == states[2].rows
    assert sorted((change.key[1], change.source) for change in found) == [(7, "record"), (8, "record"), (9, "record")]
    found = feed(table, states[2].receipt, states[3].receipt)
    assert applied(states[2].rows, found) == states[3].rows
    assert [(change.key[1], change.source, change.partition) for change in found] == [
        (7, "settle", None),
        (7, "record", 1),
    ]
    world.close()


def test_a_merge_of_one_region_that_shows_a_key_again_is_refused(tmp_path: Path) -> None:
    """Records of two regions hide a key as long as both are unmerged."""
    world = Conflicted(tmp_path, history_window_s=24 * 3600)
    table = open_table(world.table.uri)
    world.send(0, upsert(5, a=1), upsert(6, a=1))
    world.table.generation(1, [patch(5, s="other")], flush=False, of=0)
    start = state_now(table)
    world.table.round(OPEN_ROWS, grace_s=3600)
    end = state_now(table)
    assert [len(state.rows) for state in (start, end)] == [1, 2]
    with pytest.raises(RegionConflict, match="1 primary key came through two partitions"):
        feed(table, start.receipt, end.receipt)
    world.close()


def test_records_that_meet_are_refused(tmp_path: Path) -> None:
    """A read shows neither of them."""
    world = Conflicted(tmp_path)
    table = open_table(world.table.uri)
    world.send(0, upsert(6, a=1))
    start = state_now(table)
    world.send(0, upsert(5, a=1))
    world.send(1, upsert(5, a=2))
    end = state_now(table)
    assert start.rows == end.rows
    with pytest.raises(RegionConflict, match="1 primary key came through two partitions"):
        feed(table, start.receipt, end.receipt)
    world.close()
