"""What is read from a page after any history equals what an index of its own held, and so does each answer to a swap."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TableVersion, TopicId
from lancewal_core.names.paths import FlushFile
from lancewal_core.region.state import GenerationState, RegionState
from lancewal_core.region.states import Decide, RegionStates
from lancewal_core.region.transitions import (
    Claimant,
    Ended,
    claim,
    first_claim,
    flushed,
    merged,
    paged,
    reanchor,
    retire,
    seal,
    trim,
)
from lancewal_core.rows.record_times import RecordTimes
from tests.core.region.pages.single_indexes import SingleStates
from tests.support.fuzzing import fuzz
from tests.support.scripted import ManualClock, ScriptedStore
from tests.twins.faults import PutFault
from tests.twins.memory_store import MemoryStore

REGIONS = tuple(Region("orders", TopicId("topic-id-1"), p) for p in range(5))
PER_PAGE = 2
CHANGES = ("claim", "claim", "seal", "seal", "reanchor", "retire", "flush", "flush", "merge", "merge", "page", "trim")


@dataclass(frozen=True, slots=True)
class Change:
    """One transition, tried on whatever is found; what it draws it draws from ``seed``, so it is the same each time."""

    kind: str
    region: Region
    write_id: str
    seed: int

    def __call__(self, found: RegionState | None) -> RegionState | None:
        rng = Random(self.seed)
        name = rng.choice("ab")
        newest = None if found is None else found.newest
        sequence = Sequence(rng.randint(0, 3) + (0 if newest is None else newest.first_sequence))
        claimant = Claimant(OwnerId(name), LogId(f"log-{name}"), sequence)
        if found is None or newest is None:
            return first_claim(self.region, 1, Position(5), claimant, self.write_id) if self.kind == "claim" else None
        end = Position(newest.first + rng.randint(1, 9))
        ended = Ended(newest.generation, newest.log, end, Sequence(newest.first_sequence + 2), RecordTimes(3, 4), 400)
        generation = rng.choice(found.generations).generation
        match self.kind:
            case "claim":
                return claim(found, ended if rng.random() < 0.9 else None, 1, claimant, self.write_id)
            case "seal":
                hand_over = rng.random() < 0.2
                owner = Claimant(newest.owner, newest.log, sequence)
                return seal(
                    found,
                    newest.generation,
                    owner,
                    end,
                    self.write_id,
                    hand_over=hand_over,
                    record_times=None,
                    now_ms=500,
                )
            case "reanchor":
                return reanchor(found, newest.generation, claimant, self.write_id)
            case "retire":
                return retire(found, ended, self.write_id)
            case "flush":
                key = paths.flush_file(f"{rng.getrandbits(32):08x}", FlushFile.MANIFEST)
                return flushed(found, generation, key, 500, self.write_id)
            case "merge":
                return merged(found, generation, TableVersion(generation), 1000, self.write_id)
            case "page":
                upto = tuple(r for r in found.generations if r.generation <= generation)
                return paged(found, upto, self.write_id)
            case _:
                record = next(r for r in found.generations if r.generation == generation)
                return trim(found, record, self.write_id)


@fuzz(25)
@given(st.integers(0, 2**32))
def test_a_history_is_the_same(seed: int) -> None:
    rng = Random(seed)
    clock = ManualClock()
    store = ScriptedStore(clock)
    indexes, single = RegionStates(store, clock, PER_PAGE, None), SingleStates(MemoryStore(clock), clock)
    another = RegionStates(store.plain, clock, PER_PAGE, None)
    meanwhile: list[dict[Region, Decide]] = []

    def others_swap() -> None:
        for changes in meanwhile[:1]:
            meanwhile.clear()
            assert another.swap(changes) == single.swap(changes)

    store.before("put", "/pages/", others_swap, times=10**6)
    states: set[GenerationState] = set()
    for number in range(40):
        asked = rng.sample(REGIONS, rng.randint(1, len(REGIONS)))
        changes: dict[Region, Decide] = {
            region: Change(rng.choice(CHANGES), region, f"w{number}-{region.partition}", rng.getrandbits(32))
            for region in asked
        }
        faults = [PutFault.REPLY_LOST, PutFault.NEVER_ARRIVED, PutFault.REFUSED]
        store.faults.puts.clear()
        store.faults.puts.extend(rng.choices([PutFault.NONE, *faults], k=rng.randint(0, 2)))
        # Another process changes regions of the same pages, right before the first put.
        others = [region for region in REGIONS if region not in asked]
        between: dict[Region, Decide] = {
            region: Change(rng.choice(CHANGES), region, f"v{number}-{region.partition}", rng.getrandbits(32))
            for region in others
        }
        if rng.random() < 0.5:
            meanwhile.append(between)
        answers = (another if rng.random() < 0.2 else indexes).swap(changes)
        meanwhile.clear()
        assert answers == single.swap(changes)
        clock.seconds += rng.choice([0, 1, 100, 5000])
        read = rng.choice([indexes, another]).read(REGIONS)
        assert read == single.read(REGIONS)
        states |= {record.state for index in read.values() for record in index.generations}
    assert GenerationState.OPEN in states or GenerationState.SEALED in states


def test_histories_reach_every_state() -> None:
    clock = ManualClock()
    indexes = RegionStates(MemoryStore(clock), clock, PER_PAGE, None)
    rng = Random(3)
    states: set[GenerationState] = set()
    trimmed = Generation(0)
    for number in range(400):
        region = rng.choice(REGIONS)
        change = Change(rng.choice(CHANGES), region, f"w{number}", rng.getrandbits(32))
        _, state = indexes.swap({region: change})[region]
        if state is not None:
            states |= {record.state for record in state.generations}
            trimmed = max(trimmed, state.trimmed_generation)
    assert states == set(GenerationState)
    assert trimmed >= 1
