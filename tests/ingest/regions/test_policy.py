"""When generations are sealed by the log's length: regions of a log in groups, none of more segments than said."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lancewal_core.names.ids import Generation, Position, Sequence
from lancewal_ingest.regions.memtable import MemTable
from lancewal_ingest.regions.policy import GROUPS, SealDecision, SealPolicy
from tests.support.regions import region

DISTANCE = 1_000


def generation(partition: int, first_length: float, entries: int) -> MemTable:
    at = Generation(1), Sequence(0), Position(0)
    return MemTable(region(partition), *at, opened_at=0.0, first_length=first_length, entries=entries)


def seals(partitions: int, distance: int, segments: int, first: int = 0) -> dict[int, list[tuple[int, int]]]:
    """By partition: where each generation began and ended, each region with an entry in each segment."""
    policy = SealPolicy(nbytes=1 << 60, rows=1 << 60, age_s=1e12, log_distance=distance)
    began = dict.fromkeys(range(partitions), first)
    found: dict[int, list[tuple[int, int]]] = {partition: [] for partition in began}
    for number in range(first + 1, first + segments + 1):
        for partition, since in began.items():
            if policy.decide(generation(partition, since, 1), 0.0, number) is SealDecision.SEAL:
                found[partition].append((since, number))
                began[partition] = number
    return found


@pytest.mark.parametrize("partitions", [8, 64, 100])
def test_regions_opened_together_are_sealed_in_groups(partitions: int) -> None:
    ends = [end for generations in seals(partitions, DISTANCE, 5 * DISTANCE).values() for _, end in generations]
    moments = sorted(set(ends))
    assert max(ends.count(moment) for moment in moments) <= -(-partitions // GROUPS)
    assert min(later - earlier for earlier, later in pairwise(moments)) == DISTANCE // GROUPS


@pytest.mark.parametrize("partitions", [2, 3, 4])
def test_few_regions_are_sealed_far_apart(partitions: int) -> None:
    ends = sorted(end for generations in seals(partitions, DISTANCE, 5 * DISTANCE).values() for _, end in generations)
    apart = {later - earlier for earlier, later in pairwise(ends)}
    assert min(apart) >= DISTANCE // (2 if partitions == 2 else 4)


@pytest.mark.parametrize("distance", [1, 2, 3, 7, 8, 1_000])
@pytest.mark.parametrize("first", [0, 1, 5, 999, 123_456])
def test_a_generation_never_spans_more_and_but_for_the_first_no_less(distance: int, first: int) -> None:
    for generations in seals(16, distance, 6 * distance, first).values():
        spans = [end - begin for begin, end in generations]
        assert len(spans) >= 5
        assert 1 <= spans[0] <= distance
        assert set(spans[1:]) == {distance}


def test_what_has_no_entries_is_moved_at_the_whole_distance_whatever_its_group() -> None:
    policy = SealPolicy(log_distance=DISTANCE)
    for partition in range(GROUPS):
        decided = [policy.decide(generation(partition, 10, 0), 0.0, length) for length in (DISTANCE + 9, DISTANCE + 10)]
        assert decided == [SealDecision.KEEP, SealDecision.REANCHOR]
