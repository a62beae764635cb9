"""What one merge may hold: the longest waiting generations come first, and one that needs more says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lancewal_core.errors import InvalidSettings
from lancewal_core.names.ids import Generation, Region, TopicId
from lancewal_core.table.protocol import fragment_files
from lancewal_flusher.merge.merge import Merged, NothingToMerge, merge_next
from lancewal_flusher.merge.plan import MergeLimits, RegionMerge, combined_regions, memory_bytes, within_memory
from lancewal_flusher.service.round import RoundState, run_round
from tests.support.flusher_tables import FlusherTable, patch, upsert, upserts

KEY_BYTES = 100
"""What the reference says of a changed key."""


def limits(keys: int) -> MergeLimits:
    return MergeLimits(memory_bytes=KEY_BYTES * keys)


def test_regions_wait_for_each_other_where_one_merge_cannot_hold_them(table: FlusherTable) -> None:
    for partition in (0, 1):
        table.generation(partition, upserts(range(40)))
    report = run_round(table.context(), limits(60), RoundState(), sealed_grace_s=60)
    assert [len(merge.generations) for merge in report.merges] == [1, 1]
    table.check()
    for partition in (0, 1):
        table.generation(partition, upserts(range(40), a=1))
    report = run_round(table.context(), limits(80), RoundState(), sealed_grace_s=60)
    assert [len(merge.generations) for merge in report.merges] == [2]
    table.check()


def test_generations_of_a_region_are_combined_as_far_as_they_fit(table: FlusherTable) -> None:
    for a in range(4):
        table.generation(0, upserts(range(30), a=a))
    held = MergeLimits(memory_bytes=100_000)
    (both,) = run_round(table.context(), held, RoundState(), sealed_grace_s=60).merges
    assert sum(map(len, both.generations.values())) == 4
    for a in range(4):
        table.generation(0, upserts(range(30), a=10 + a))
    report = run_round(table.context(), limits(40), RoundState(), sealed_grace_s=60)
    assert [list(map(len, merge.generations.values())) for merge in report.merges] == [[1]] * 4
    table.check()


def test_a_budget_that_no_generation_fits_into(table: FlusherTable) -> None:
    table.generation(0, upserts(range(40)))
    table.round()
    before = sorted(Path(table.uri).rglob("*"))
    table.generation(0, [*(upsert(id, a=1) for id in range(30)), patch(35, a=2)])
    made = sorted(Path(table.uri).rglob("*"))
    assert before != made
    with pytest.raises(InvalidSettings) as caught:
        run_round(table.context(), limits(30), RoundState(), sealed_grace_s=60)
    text = str(caught.value)
    assert "generation 2 with its 31 changed keys" in text
    assert "flusher.merge_memory_bytes_max is 3000. Set it to" in text
    assert caught.value.where["region"]
    assert sorted(Path(table.uri).rglob("*")) == made
    enough = int(text.split("Set it to ")[1].split()[0])
    assert (
        len(run_round(table.context(), MergeLimits(memory_bytes=enough), RoundState(), sealed_grace_s=60).merges) == 1
    )
    table.check()


def test_the_longest_waiting_come_first(table: FlusherTable) -> None:
    for partition in (0, 1):
        table.generation(partition, upserts(range(10)))
    merges = []
    for partition in (0, 1):
        flushed = table.flushed(partition, 1)
        assert memory_bytes([flushed]) == 10 * KEY_BYTES
        merges.append(RegionMerge(flushed.region, (flushed,)))
    for oldest in merges:
        taken = within_memory(merges, lambda merge, oldest=oldest: float(merge is oldest), limits(15))  # type: ignore[misc]
        assert taken == [oldest]
    assert within_memory(merges, lambda _: 0.0, limits(20)) == merges


def test_one_that_is_damaged_holds_no_memory_for_the_others(table: FlusherTable) -> None:
    """Its keys are read only when a merge takes it."""
    table.generation(0, upserts(range(40)))
    table.generation(1, upserts(range(40)))
    context, state = table.context(), RoundState()
    state.waiting.seen[table.regions[0], Generation(1)] = 0.0  # the longest waiting
    (fragment,) = table.flushed(0, 1).fragments
    (file,) = fragment_files(fragment)
    path = Path(table.uri) / "data" / file
    whole = path.read_bytes()
    path.write_bytes(bytes(len(whole)))
    report = run_round(context, limits(40), state, sealed_grace_s=60)
    assert [[region.name for region in merge.generations] for merge in report.merges] == [[table.regions[1].name]]
    assert [region.name for region in report.held] == [table.regions[0].name]
    path.write_bytes(whole)
    assert len(run_round(table.context(), limits(40), state, sealed_grace_s=60).merges) == 1
    table.check()


def test_a_region_with_a_damaged_flush_behind_a_sound_one_has_its_turn(table: FlusherTable) -> None:
    """And not the damaged region's that waits for longer alone."""
    table.generation(0, upserts(range(40)))
    table.generation(1, upserts(range(40)))
    table.generation(1, upserts(range(20), a=1))
    (file,) = fragment_files(table.flushed(0, 1).fragments[0])
    (Path(table.uri) / "data" / file).write_bytes(b"nothing")
    json = Path(table.uri) / table.flushed(1, 2).key
    json.write_bytes(json.read_bytes()[:-3])
    state = RoundState()
    state.waiting.seen[table.regions[0], Generation(1)] = 0.0
    report = run_round(table.context(), limits(40), state, sealed_grace_s=60)
    assert [merge.generations for merge in report.merges] == [{table.regions[1]: (1,)}]
    assert set(report.held) == set(table.regions)


def test_one_that_needs_too_much_is_named_when_all_others_are_merged(table: FlusherTable) -> None:
    table.generation(0, upserts(range(40)))
    table.generation(1, upserts(range(10)))
    with pytest.raises(InvalidSettings, match=table.regions[0].name):
        run_round(table.context(), limits(20), RoundState(), sealed_grace_s=60)
    assert table.states(1) == ["MERGED"]
    assert table.states(0) == ["FLUSHED"]


def test_a_merge_that_is_full_waits_for_nothing(table: FlusherTable) -> None:
    for start in range(0, 60, 10):
        table.generation(0, upserts(range(start, start + 10)))
        table.round()
    for partition in (0, 1):
        table.generation(partition, upserts(range(0, 60, 10), a=1))
    patient = MergeLimits(adopt_rows=1, defer_s=60)
    assert isinstance(merge_next(table.context(), patient), NothingToMerge)
    full = replace(patient, memory_bytes=6 * KEY_BYTES)
    assert isinstance(merge_next(table.context(), full), Merged)


def test_small_ones_are_combined_as_far_as_there_is_memory(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    flushed = table.flushed(0, 1)
    merges = [
        RegionMerge(Region("t", TopicId("i"), partition), (replace(flushed, key=f"{flushed.key}{partition}"),))
        for partition in range(20)
    ]
    keys = 20 * 10 * KEY_BYTES
    for combined in (0, 3, 20):
        held = MergeLimits(memory_bytes=keys + 3 * combined * flushed.nbytes)
        assert len(combined_regions(merges, held)) == combined
