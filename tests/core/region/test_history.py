"""What is kept of a region: the guard that an index reaches what is merged, and which history pages are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lancewal_core.errors import StoreInconsistent
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TableVersion, TopicId
from lancewal_core.process.clock import SystemClock
from lancewal_core.region.history import check_reaches, pages_of
from lancewal_core.region.state import RegionState, encode_history
from lancewal_core.region.transitions import Claimant, first_claim, flushed, merged, seal
from lancewal_core.table.watermarks import NOTHING_MERGED, InForce, Watermark
from tests.twins.memory_store import MemoryStore

REGION = Region("orders", TopicId("topic-id-1"), 0)
OWNER = Claimant(OwnerId("a"), LogId("log-a"), Sequence(0))
OPEN = first_claim(REGION, 1, Position(0), OWNER, "w")
"""Its newest generation is 1."""


class ReadMemoryStore(MemoryStore):
    """Remembers what was read."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(clock)
        self.read: list[str] = []

    def get(self, key: str) -> bytes | None:
        self.read.append(key)
        return super().get(key)


def sure(state: RegionState | None) -> RegionState:
    assert state is not None
    return state


def in_force(generation: int) -> InForce:
    return InForce(TableVersion(1), None, {REGION: Watermark(Generation(generation), Position(10))})


def test_an_index_that_ends_below_what_is_merged_is_refused() -> None:
    check_reaches(REGION, None, NOTHING_MERGED)
    sealed = sure(seal(OPEN, Generation(1), OWNER, Position(10), "w", hand_over=False, record_times=None, now_ms=0))
    for index in (sealed, replace(sealed, generations=sealed.generations[:1])):
        check_reaches(REGION, index, in_force(1))
    with pytest.raises(StoreInconsistent, match="has generation 1 as OPEN, which the table has merged"):
        check_reaches(REGION, OPEN, in_force(1))
    with pytest.raises(StoreInconsistent, match="orders/topic-id-1/0: the state found ends below generation 2"):
        check_reaches(REGION, OPEN, in_force(2))
    with pytest.raises(StoreInconsistent, match="ends below generation 1, which the table has merged"):
        check_reaches(REGION, None, in_force(1))


def test_pages_are_read_oldest_first_and_none_that_ends_below() -> None:
    index = OPEN
    for n in range(1, 7):
        end = replace(OWNER, first_sequence=Sequence(n))
        index = sure(
            seal(index, Generation(n), end, Position(10 * n), "w", hand_over=False, record_times=None, now_ms=0)
        )
        key = paths.flush_file(f"{n:08}", paths.FlushFile.MANIFEST)
        index = sure(flushed(index, Generation(n), key, 0, "w"))
    records = sure(merged(index, Generation(6), TableVersion(2), 0, "w")).generations
    store = ReadMemoryStore(SystemClock())
    pages = {paths.history_page(REGION, Generation(first), None): records[first - 1 : first + 1] for first in (5, 1, 3)}
    for key, page in pages.items():
        store.put_if_absent(key, encode_history(REGION, 1, page))
    store.put_if_absent(f"{paths.history_prefix(REGION, None)}note.txt", b"of an operator")
    first, second, third = sorted(pages)
    everything = [(key, pages[key]) for key in sorted(pages)]
    for above, asked in ((0, [first, second, third]), (1, [first, second, third]), (2, [second, third]), (9, [third])):
        store.read.clear()
        assert list(pages_of(store, REGION, None, above)) == everything[-len(asked) :]
        assert store.read == asked
