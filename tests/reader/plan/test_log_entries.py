"""The entries of a log by region and generation: those that a look through all segments finds, which happens once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TopicId
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.wal.entry import EntryHeader
from lancewal_core.wal.walk import Walk
from lancewal_reader.plan.log_entries import KnownEntries, LogEntries

LOG = LogId("l")
REGIONS = [Region("orders", TopicId("t"), partition) for partition in range(5)]


@dataclass
class Segments:
    """Trailers of a log, which count how often somebody asks for their entries."""

    sequence: Sequence
    held: tuple[EntryHeader, ...]
    looks: list[Sequence] = field(default_factory=list)

    @property
    def entries(self) -> tuple[EntryHeader, ...]:
        self.looks.append(self.sequence)
        return self.held


def log_of(presence: list[list[int]], looks: list[Sequence]) -> Walk[Any]:
    """Segment by segment, which regions have an entry of one record: 1, or 2 where one record before it is in none."""
    at = dict.fromkeys(REGIONS, 0)
    segments = []
    for number, present in enumerate(presence, 3):
        held = []
        for region, there in zip(REGIONS, present, strict=True):
            if there:
                at[region] += there - 1
                held.append(EntryHeader(region, Position(at[region]), Position(at[region] + 1), 1, 1, None, (), 10))
                at[region] += 1
        segments.append(Segments(Sequence(number), tuple(held), looks))
    return Walk(LOG, tuple(segments), Sequence(3 + len(presence)), None)


def generation(first: int, first_sequence: int, end_sequence: int | None) -> GenerationRecord:
    return GenerationRecord(
        generation=Generation(1),
        state=GenerationState.OPEN if end_sequence is None else GenerationState.SEALED,
        owner=OwnerId("o"),
        log=LOG,
        first=Position(first),
        next=None,
        first_sequence=Sequence(first_sequence),
        end_sequence=None if end_sequence is None else Sequence(end_sequence),
        flush=None,
        merged_version=None,
        merged_at_ms=None,
    )


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), max_size=12),
    st.integers(0, 8),
    st.integers(0, 16),
    st.none() | st.integers(0, 16),
)
def test_what_a_look_through_all_segments_finds(
    presence: list[list[int]], first: int, first_sequence: int, end_sequence: int | None
) -> None:
    looks: list[Sequence] = []
    entries = LogEntries(log_of(presence, looks))
    record = generation(first, first_sequence, end_sequence)
    found = {region: entries.of_generation(region, record) for region in REGIONS}
    assert looks == [Sequence(number) for number in range(3, 3 + len(presence))]
    for column, region in enumerate(REGIONS):
        nexts = list(accumulate(present[column] for present in presence))
        expected = [
            (number, next_ - 1)
            for number, present, next_ in zip(range(3, 15), presence, nexts, strict=False)
            if present[column] and next_ > first and number >= first_sequence
            if end_sequence is None or number < end_sequence
        ]
        assert [(ref.sequence, ref.first) for ref in found[region].refs] == expected
        firsts = [position for _, position in expected]
        assert found[region].chained == all(later == earlier + 1 for earlier, later in pairwise(firsts))


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8),
)
def test_plans_that_follow_one_another_find_what_each_finds_alone(
    presence: list[list[int]], looks_at: list[tuple[int, int]]
) -> None:
    """Whichever part of the log each has walked, also less than the one before."""
    looks: list[Sequence] = []
    whole = log_of(presence, looks)
    known = KnownEntries()
    for bounds in looks_at:
        begin, end = sorted(min(bound, len(presence)) for bound in bounds)
        walked = Walk(LOG, whole.segments[begin:end], Sequence(3 + end), None)
        found, alone = known.of({LOG: walked})[LOG], LogEntries(walked)
        for region in REGIONS:
            record = generation(0, 3 + begin, None)
            assert found.of_generation(region, record) == alone.of_generation(region, record)


def test_what_was_gone_over_is_not_gone_over_again() -> None:
    looks: list[Sequence] = []
    whole = log_of([[True] * 5] * 10, looks)
    known = KnownEntries()
    for end in (6, 8, 10):
        known.of({LOG: Walk(LOG, whole.segments[:end], Sequence(3 + end), None)})
    assert looks == [Sequence(number) for number in range(3, 13)]


class Interrupted:
    """A segment in the midst of which somebody presses Ctrl-C, once."""

    def __init__(self, segment: Segments) -> None:
        self.sequence, self._segment, self._pressed = segment.sequence, segment, False

    @property
    def entries(self) -> Iterator[EntryHeader]:
        for number, entry in enumerate(self._segment.held):
            if number == 2 and not self._pressed:
                self._pressed = True
                raise KeyboardInterrupt
            yield entry


def test_after_a_plan_that_was_interrupted_each_entry_is_there_once() -> None:
    whole = log_of([[1] * 5] * 6, [])
    known = KnownEntries()
    known.of({LOG: Walk(LOG, whole.segments[:3], Sequence(6), None)})
    interrupted: Walk[Any] = Walk(
        LOG, (*whole.segments[:4], Interrupted(whole.segments[4]), *whole.segments[5:]), whole.end, None
    )
    with pytest.raises(KeyboardInterrupt):
        known.of({LOG: interrupted})
    found, alone = known.of({LOG: interrupted})[LOG], LogEntries(whole)
    record = generation(0, 3, None)
    for region in REGIONS:
        assert found.of_generation(region, record) == alone.of_generation(region, record)
