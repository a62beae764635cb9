"""The rules by which a region index changes, one by one, and any sequence of them by several owners."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import StoreInconsistent
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TableVersion, TopicId
from lancewal_core.region.state import (
    NO_ROW_MS,
    GenerationRecord,
    GenerationState,
    RegionState,
    decode_state,
    encode_state,
)
from lancewal_core.region.transitions import (
    Claimant,
    Ended,
    claim,
    first_claim,
    flushed,
    is_ours,
    merged,
    paged,
    reanchor,
    refreshed,
    retire,
    revived,
    seal,
    trim,
)
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.entry import NoRowYet

REGION = Region("orders", TopicId("topic-id-1"), 0)


def flush_key(generation: int, attempt: str = "0") -> str:
    """Key of a flush of this generation; ``attempt``: a hex digit."""
    return paths.flush_file(f"{generation}-{attempt}", paths.FlushFile.MANIFEST)


TIMES = RecordTimes(1_000, 2_000)


def owner(name: str, sequence: int) -> Claimant:
    return Claimant(OwnerId(name), LogId(f"log-{name}"), Sequence(sequence))


def ended(next_: int, end: int, *, generation: int = 1, log: str = "log-a") -> Ended:
    return Ended(Generation(generation), LogId(log), Position(next_), Sequence(end), TIMES if next_ > 10 else None, 40)


def states(state: RegionState | None) -> str:
    assert state is not None
    state.check()
    return "".join(r.state.name[0] for r in state.generations)


def sure(state: RegionState | None) -> RegionState:
    assert state is not None
    state.check()
    return state


OPEN = first_claim(REGION, 1, Position(10), owner("a", 3), "w")


def sealed_times(count: int) -> RegionState:
    """Generations 1 to ``count`` SEALED, each of ten positions and two segments; the next is OPEN."""
    index = OPEN
    for n in range(1, count + 1):
        behind = Position(10 * n + 10)
        index = sure(
            seal(
                index, Generation(n), owner("a", 3 + 2 * n), behind, "w", hand_over=False, record_times=TIMES, now_ms=50
            )
        )
    return index


def flushed_to(state: RegionState, last: int) -> RegionState:
    for n in range(1, last + 1):
        state = flushed(state, Generation(n), flush_key(n), 60, "w") or state
    return state


# -- claim -------------------------------------------------------------------------------------------------------


def test_the_first_claim_opens_generation_one() -> None:
    OPEN.check()
    (record,) = OPEN.generations
    assert (record.generation, record.state, record.owner, record.log) == (1, GenerationState.OPEN, "a", "log-a")
    assert (record.first, record.next, record.first_sequence, record.end_sequence) == (10, None, 3, None)
    assert (OPEN.trimmed_generation, OPEN.trimmed) == (0, 0)


def test_a_claim_seals_what_the_caller_has_ended() -> None:
    index = sure(claim(OPEN, ended(25, 6), 2, owner("b", 0), "w2"))
    old, new = index.generations
    assert (old.state, old.next, old.end_sequence) == (GenerationState.SEALED, 25, 6)
    assert (old.owner, old.log, old.first_sequence) == ("a", "log-a", 3)
    assert (new.generation, new.state, new.first, new.owner, new.log) == (2, GenerationState.OPEN, 25, "b", "log-b")
    assert (index.contract_version, index.write_id) == (2, "w2")


def test_a_claim_after_a_hand_over_needs_no_end() -> None:
    handed = sure(
        seal(OPEN, Generation(1), owner("a", 5), Position(30), "w", hand_over=True, record_times=None, now_ms=50)
    )
    index = sure(claim(handed, None, 1, owner("b", 9), "w"))
    assert states(index) == "SO"
    assert (index.generations[1].first, index.generations[1].first_sequence) == (30, 9)


@pytest.mark.parametrize(
    "end",
    [None, ended(25, 6, generation=2), ended(25, 6, log="log-x")],
    ids=["nothing ended", "another generation ended", "another log ended"],
)
def test_a_claim_of_what_was_not_ended_does_not_apply(end: Ended | None) -> None:
    assert claim(OPEN, end, 1, owner("b", 0), "w") is None


def test_an_end_below_the_generation_s_first_segment_proves_nothing() -> None:
    """Re-anchored after the claimer read the index: the number it found absent, and fenced, may have been trimmed."""
    index = sure(reanchor(OPEN, Generation(1), owner("a", 9), "w"))
    assert claim(index, ended(10, 3), 1, owner("b", 0), "w") is None
    assert claim(index, ended(10, 8), 1, owner("b", 0), "w") is None
    assert states(claim(index, ended(10, 9), 1, owner("b", 0), "w")) == "SO"


def test_an_end_below_the_first_position_is_no_end_at_all() -> None:
    with pytest.raises(StoreInconsistent, match="starts at 10, its log ends at 9"):
        claim(OPEN, ended(9, 6), 1, owner("b", 0), "w")


def test_retiring_seals_what_the_caller_has_ended_and_opens_nothing() -> None:
    (old,) = sure(retire(OPEN, ended(25, 6), "w2")).generations
    assert (old.state, old.next, old.end_sequence) == (GenerationState.SEALED, 25, 6)
    assert (old.owner, old.log, old.first_sequence) == ("a", "log-a", 3)


def test_what_was_not_ended_is_not_retired() -> None:
    moved = sure(reanchor(OPEN, Generation(1), owner("a", 9), "w"))
    handed = sure(
        seal(OPEN, Generation(1), owner("a", 5), Position(25), "w", hand_over=True, record_times=None, now_ms=50)
    )
    for index, end in (
        (OPEN, ended(25, 6, generation=2)), (OPEN, ended(25, 6, log="log-x")), (moved, ended(10, 8)), (handed, ended(25, 6))
    ):  # fmt: skip
        assert retire(index, end, "w") is None


def test_an_index_without_a_generation_cannot_be_claimed() -> None:
    with pytest.raises(StoreInconsistent, match="no generation"):
        claim(replace(OPEN, generations=()), None, 1, owner("b", 0), "w")


# -- seal, re-anchor ---------------------------------------------------------------------------------------------


def test_seal_opens_the_next_generation_right_behind() -> None:
    index = sealed_times(1)
    old, new = index.generations
    assert (old.state, old.next, old.end_sequence) == (GenerationState.SEALED, 20, 5)
    assert (new.generation, new.state, new.first, new.first_sequence) == (2, GenerationState.OPEN, 20, 5)


def test_handing_over_opens_none() -> None:
    assert (
        states(
            seal(OPEN, Generation(1), owner("a", 5), Position(10), "w", hand_over=True, record_times=None, now_ms=50)
        )
        == "S"
    )


NOT_OURS: dict[str, tuple[RegionState, int, Claimant]] = {
    "another owner": (OPEN, 1, Claimant(OwnerId("b"), LogId("log-a"), Sequence(5))),
    "another log": (OPEN, 1, Claimant(OwnerId("a"), LogId("log-b"), Sequence(5))),
    "an older generation": (sealed_times(1), 1, owner("a", 9)),
    "a later generation": (OPEN, 2, owner("a", 9)),
    "handed over": (
        sure(
            seal(OPEN, Generation(1), owner("a", 5), Position(10), "w", hand_over=True, record_times=None, now_ms=50)
        ), 1, owner("a", 9),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("state", "generation", "claimant"), NOT_OURS.values(), ids=NOT_OURS.keys())
def test_only_the_owner_of_the_open_generation_changes_it(
    state: RegionState, generation: int, claimant: Claimant
) -> None:
    number = Generation(generation)
    assert not is_ours(state, number, claimant.owner, claimant.log)
    assert seal(state, number, claimant, Position(99), "w", hand_over=False, record_times=None, now_ms=50) is None
    assert reanchor(state, number, claimant, "w") is None


def test_reanchoring_moves_the_first_segment_forward_only() -> None:
    index = sure(reanchor(OPEN, Generation(1), owner("a", 7), "w2"))
    assert index.generations == (replace(OPEN.generations[0], first_sequence=Sequence(7)),)
    assert reanchor(index, Generation(1), owner("a", 7), "w") is None
    assert reanchor(index, Generation(1), owner("a", 6), "w") is None


# -- flushed, refreshed, merged ----------------------------------------------------------------------------------


def test_generations_are_flushed_strictly_in_order() -> None:
    index = sealed_times(3)
    assert flushed(index, Generation(2), "s", 60, "w") is None
    index = sure(flushed(index, Generation(1), flush_key(1), 60, "w"))
    assert states(index) == "FSSO"
    assert index.generations[0].flush == flush_key(1)
    assert flushed(index, Generation(1), "another attempt", 60, "w") is None
    assert flushed(index, Generation(4), "s", 60, "w") is None  # OPEN
    assert flushed(index, Generation(9), "s", 60, "w") is None
    assert states(flushed(index, Generation(2), flush_key(2), 60, "w")) == "FFSO"


def test_only_the_flush_found_broken_is_replaced() -> None:
    index = flushed_to(sealed_times(2), 1)
    assert refreshed(index, Generation(1), "another", "new", "w") is None
    assert refreshed(index, Generation(2), flush_key(1), "new", "w") is None
    new = flush_key(1, "e")
    assert sure(refreshed(index, Generation(1), flush_key(1), new, "w")).generations[0].flush == new
    in_table = sure(merged(index, Generation(1), TableVersion(4), 77, "w"))
    assert refreshed(in_table, Generation(1), flush_key(1), "new", "w") is None


def times_of(state: RegionState | None) -> list[tuple[int | None, int | None, int | None]]:
    return [(r.sealed_at_ms, r.flushed_at_ms, r.merged_at_ms) for r in sure(state).generations]


def test_each_state_has_the_time_at_which_it_was_written() -> None:
    index = sealed_times(2)
    assert times_of(index) == [(50, None, None), (50, None, None), (None, None, None)]
    index = sure(flushed(index, Generation(1), flush_key(1), 60, "w"))
    assert times_of(index)[0] == (50, 60, None)
    assert times_of(refreshed(index, Generation(1), flush_key(1), flush_key(1, "e"), "w"))[0] == (50, 60, None)
    index = sure(merged(index, Generation(1), TableVersion(4), 77, "w"))
    assert times_of(index)[0] == (50, 60, 77)
    assert times_of(revived(index, Generation(0), (), "w"))[0] == (50, 60, None)
    for by_another in (claim(OPEN, ended(25, 6), 2, owner("b", 0), "w2"), retire(OPEN, ended(25, 6), "w2")):
        assert times_of(by_another)[0] == (40, None, None)


def test_who_ends_a_generation_says_between_which_times_its_records_lie() -> None:
    for index in (
        claim(OPEN, ended(25, 6), 2, owner("b", 0), "w2"),
        retire(OPEN, ended(25, 6), "w2"),
        flushed_to(sealed_times(1), 1),
    ):
        assert [r.record_times for r in sure(index).generations][:1] == [TIMES]
    assert OPEN.generations[0].record_times is None


BAD = NoRowYet(7, "type")


def enders(state: RegionState, no_row: NoRowYet | None) -> list[NoRowYet | None]:
    """What the state says after each change that ends its OPEN generation."""
    end = replace(ended(25, 6), no_row=no_row)
    found = [claim(state, end, 2, owner("b", 0), "w2"), retire(state, end, "w2")]
    for hand_over in (False, True):
        found.append(
            seal(
                state, Generation(1), owner("a", 6), Position(25), "w2", record_times=None, now_ms=1,
                hand_over=hand_over, no_row=no_row,
            )
        )  # fmt: skip
    return [sure(one).no_row_yet for one in found]


def test_rejected_records_count_until_there_is_a_row() -> None:
    assert OPEN.no_row_yet == NoRowYet()
    assert enders(OPEN, BAD) == [BAD] * 4
    counted = replace(OPEN, no_row_yet=BAD)
    assert enders(counted, NoRowYet(3, "type")) == [NoRowYet(10, "type")] * 4
    assert enders(counted, NoRowYet(3, "range")) == [NoRowYet(10, "")] * 4
    assert enders(counted, NoRowYet()) == [BAD] * 4
    assert enders(counted, None) == [None] * 4
    assert enders(replace(OPEN, no_row_yet=None), BAD) == [None] * 4


def test_a_claim_after_a_hand_over_counts_nothing_twice() -> None:
    handed = sure(
        seal(
            OPEN, Generation(1), owner("a", 5), Position(30), "w", hand_over=True, record_times=None, now_ms=50,
            no_row=BAD,
        )
    )  # fmt: skip
    assert sure(claim(handed, replace(ended(25, 6), no_row=BAD), 1, owner("b", 9), "w")).no_row_yet == BAD


def test_merged_follows_the_watermark() -> None:
    index = flushed_to(sealed_times(3), 2)
    assert merged(index, Generation(0), TableVersion(4), 77, "w") is None
    index = sure(merged(index, Generation(1), TableVersion(4), 77, "w"))
    assert states(index) == "MFSO"
    assert (index.generations[0].merged_version, index.generations[0].merged_at_ms) == (4, 77)
    index = sure(merged(index, Generation(2), TableVersion(6), 99, "w"))
    assert [(r.merged_version, r.merged_at_ms) for r in index.generations[:2]] == [(4, 77), (6, 99)]
    assert merged(index, Generation(2), TableVersion(6), 99, "w") is None


# -- trim, paged -------------------------------------------------------------------------------------------------


def merged_to(count: int, last: int) -> RegionState:
    index = flushed_to(sealed_times(count), last)
    return sure(merged(index, Generation(last), TableVersion(4), 77, "w"))


def test_trim_moves_the_boundary_and_names_its_position() -> None:
    index = merged_to(3, 2)
    trimmed = sure(trim(index, index.generations[1], "w"))
    assert (trimmed.trimmed_generation, trimmed.trimmed) == (2, 30)
    assert [r.generation for r in trimmed.generations] == [3, 4]
    assert trim(trimmed, index.generations[1], "w") is None
    assert trim(trimmed, index.generations[0], "w") is None


def test_trim_keeps_the_highest_record_time_of_all_that_was_ever_trimmed() -> None:
    index = merged_to(5, 4)
    times = [RecordTimes(1, 900), RecordTimes(2, 100), None, RecordTimes(-5, 1_000)]
    records = [
        replace(record, record_times=time)
        for record, time in zip(index.generations, [*times, *[None] * 9], strict=False)
    ]
    index = replace(index, generations=tuple(records))
    assert index.trimmed_record_time_max_ms is None
    first = sure(trim(index, records[0], "w"))
    assert first.trimmed_record_time_max_ms == 900
    third = sure(trim(first, records[2], "w"))
    assert third.trimmed_record_time_max_ms == 900  # times need not ascend, and the third has no row
    assert sure(trim(third, records[3], "w")).trimmed_record_time_max_ms == 1_000
    assert sure(trim(index, records[3], "w")).trimmed_record_time_max_ms == 1_000
    left = sure(paged(index, records[:3], "w"))
    assert sure(trim(left, records[3], "w", records[:3])).trimmed_record_time_max_ms == 1_000
    assert sure(trim(left, records[1], "w", records[:3])).trimmed_record_time_max_ms == 900
    assert sure(trim(left, records[1], "w", records[:1])).trimmed_record_time_max_ms is None  # nobody has read its page


def test_a_record_time_that_is_not_known_stays_so() -> None:
    index = merged_to(4, 3)
    empty = replace(index.generations[0], record_times=None)  # its sealing is known: it has no row
    made_anew = replace(empty, sealed_at_ms=None)
    later = tuple(replace(record, record_times=RecordTimes(0, 7)) for record in index.generations[1:3])
    for record, expected in ((empty, 7), (made_anew, None)):
        before = replace(index, generations=(record, *later, *index.generations[3:]))
        once = sure(trim(before, record, "w"))
        assert once.trimmed_record_time_max_ms == (None if expected is None else NO_ROW_MS)
        assert sure(trim(once, later[1], "w")).trimmed_record_time_max_ms == expected


def test_only_what_is_merged_is_trimmed_and_never_the_newest() -> None:
    index = merged_to(3, 2)
    assert trim(index, index.generations[2], "w") is None
    assert trim(index, index.generations[3], "w") is None
    handed = sure(
        seal(OPEN, Generation(1), owner("a", 5), Position(30), "w", hand_over=True, record_times=None, now_ms=50)
    )
    handed = sure(merged(flushed_to(handed, 1), Generation(1), TableVersion(4), 77, "w"))
    assert trim(handed, handed.generations[0], "w") is None


def test_a_page_takes_merged_generations_only_and_leaves_one() -> None:
    index = merged_to(4, 3)
    assert [r.generation for r in sure(paged(index, index.generations[:2], "w")).generations] == [3, 4, 5]
    assert paged(index, index.generations[:4], "w") is None
    other = [replace(r, merged_at_ms=0) for r in index.generations[:2]]
    assert paged(index, [index.generations[0], other[1]], "w") is None  # the page is of another life of it
    left = sure(paged(index, index.generations[:3], "w"))
    assert (left.trimmed_generation, left.trimmed) == (0, 0)
    assert paged(left, index.generations[:3], "w") is None
    boundary = index.generations[1]  # it left for the page
    assert states(trim(left, boundary, "w")) == "SO"


# -- any sequence ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Owners:
    """Several processes that believe what they last saw, and a model of the region: the ranges that were sealed."""

    rng: random.Random
    index: RegionState | None = None
    sequences: dict[str, int] = field(default_factory=dict)
    written: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """(owner, generation) -> entry positions, the last being the position reached."""
    history: dict[int, GenerationRecord] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)

    def claimant(self, name: str) -> Claimant:
        self.sequences[name] = self.sequences.get(name, 0) + self.rng.randint(0, 2)
        return owner(name, self.sequences[name])

    def step(self) -> None:
        name = self.rng.choice("abc")
        change = self.rng.choice(
            [
                self.claim,
                self.append,
                self.append,
                self.seal,
                self.reanchor,
                self.retire,
                self.flush,
                self.merge,
                self.trim,
                self.page,
            ]
        )
        before, after = self.index, change(name)
        if after is None or after == before:
            return
        self.applied[change.__name__] = self.applied.get(change.__name__, 0) + 1
        self.check(before, after, change)
        self.index = after

    def claim(self, name: str) -> RegionState | None:
        if self.index is None:
            return first_claim(REGION, 1, Position(5), self.claimant(name), "w")
        end = self.ended(self.index.generations[-1]) if self.rng.random() < 0.8 else None
        return claim(self.index, end, 1, self.claimant(name), "w")

    def ended(self, newest: GenerationRecord) -> Ended:
        """What somebody who has ended the newest generation, or another, takes for its end."""
        entries = self.written.get((newest.owner, newest.generation), [newest.first])
        log_end = Sequence(self.sequences.get(newest.owner, 0) + self.rng.randint(-1, 1))
        generation = Generation(newest.generation - self.rng.choice([0, 0, 0, 1]))
        return Ended(generation, newest.log, Position(entries[-1]), log_end, None, 40)

    def retire(self, name: str) -> RegionState | None:
        if self.index is None or self.rng.random() < 0.7:
            return None
        return retire(self.index, self.ended(self.index.generations[-1]), "w")

    def append(self, name: str) -> None:
        """Records become durable in the log of whoever believes that it owns the region."""
        if self.index is not None and (newest := self.index.generations[-1]).owner == name:
            entries = self.written.setdefault((name, newest.generation), [newest.first])
            entries.append(entries[-1] + self.rng.randint(1, 9))
            self.sequences[name] += 1

    def seal(self, name: str) -> RegionState | None:
        """By whoever holds the newest generation, or believes so."""
        if self.index is None:
            return None
        generation = Generation(self.index.generations[-1].generation - self.rng.choice([0, 0, 0, 1]))
        entries = self.written.get((name, generation), [self.index.generations[-1].first])
        return seal(
            self.index, generation, self.claimant(name), Position(entries[-1]), "w",
            hand_over=self.rng.random() < 0.3, record_times=None, now_ms=50)  # fmt: skip

    def reanchor(self, name: str) -> RegionState | None:
        if self.index is None or (name, self.index.generations[-1].generation) in self.written:
            return None
        return reanchor(self.index, self.index.generations[-1].generation, self.claimant(name), "w")

    def flush(self, name: str) -> RegionState | None:
        if self.index is None:
            return None
        generation = self.rng.choice(self.index.generations).generation
        return flushed(self.index, generation, flush_key(generation, name), 60, "w")

    def merge(self, name: str) -> RegionState | None:
        if self.index is None:
            return None
        watermark = self.rng.choice(self.index.generations).generation
        return merged(self.index, watermark, TableVersion(watermark), 1000 + watermark, "w")

    def trim(self, name: str) -> RegionState | None:
        if self.index is None or not self.history or self.rng.random() < 0.7:
            return None
        return trim(self.index, self.rng.choice(list(self.history.values())), "w")

    def page(self, name: str) -> RegionState | None:
        if self.index is None or self.rng.random() < 0.7:
            return None
        return paged(self.index, self.index.generations[: self.rng.randint(1, len(self.index.generations))], "w")

    def check(self, before: RegionState | None, after: RegionState, change: Callable[[str], object]) -> None:
        assert decode_state(encode_state(after), "there") == after  # checks it, too
        old = {r.generation: r for r in before.generations} if before is not None else {}
        for record in after.generations:
            known = old.get(record.generation) or self.history.get(record.generation)
            if known is not None and known.state is not record.state:
                assert record.state.value == known.state.value + 1, change.__name__
            if known is not None and known.state is not GenerationState.OPEN:
                assert replace(
                    known,
                    state=record.state,
                    flush=record.flush,
                    flushed_at_ms=known.flushed_at_ms or record.flushed_at_ms,
                    merged_version=record.merged_version,
                    merged_at_ms=record.merged_at_ms,
                ) == record  # fmt: skip
            if record.state is not GenerationState.OPEN and known is not None and known.state is GenerationState.OPEN:
                entries = self.written.get((record.owner, record.generation), [record.first])
                assert record.next == entries[-1]
        self.history |= {r.generation: r for r in after.generations}
        numbers = sorted(self.history)
        assert numbers == list(range(1, len(numbers) + 1))
        assert all(self.history[b].first == self.history[a].next for a, b in pairwise(numbers))
        if before is not None:
            assert after.trimmed_generation >= before.trimmed_generation
            gone = old.keys() - {r.generation for r in after.generations}
            assert all(old[g].state is GenerationState.MERGED for g in gone)
            if after.trimmed_generation > before.trimmed_generation:
                boundary = self.history[after.trimmed_generation]
                assert (boundary.state, boundary.next) == (GenerationState.MERGED, after.trimmed)


@given(seed=st.integers(0, 2**32))
def test_any_sequence_of_changes_keeps_the_index_sound(seed: int) -> None:
    owners = Owners(random.Random(seed))
    for _ in range(120):
        owners.step()


def test_random_sequences_come_through_every_change() -> None:
    counts: dict[str, int] = {}
    for seed in range(20):
        owners = Owners(random.Random(seed))
        for _ in range(200):
            owners.step()
        for name, count in owners.applied.items():
            counts[name] = counts.get(name, 0) + count
    assert counts.keys() == {"claim", "retire", "seal", "reanchor", "flush", "merge", "trim", "page"}
    assert min(counts.values()) > 5, counts
