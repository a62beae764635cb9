"""Which version may stand in for one that is gone: only one whose rows, under the delta's mask, are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pytest

from lancewal_core.names.ids import Generation, Position, Region, TableVersion, TopicId
from lancewal_core.table.watermarks import (
    PROPERTY_FOLLOWUP,
    PROPERTY_READ_VERSION,
    InForce,
    Watermark,
    Watermarks,
    merge_properties,
)
from lancewal_reader.plan.lineage import Lineage
from lancewal_reader.plan.stand_in import stand_in
from tests.support.scripted import InlineTasks, ManualClock
from tests.twins.faults import Faultless
from tests.twins.memory_store import MemoryBucket, MemoryStore
from tests.twins.memory_table import MemoryDataset, MemoryTable

REGION = Region("orders", TopicId("topic-id-1"), 0)

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Case:
    """Commits from version 2 on, one letter each:

    M merge computed from the version right below, R one computed from the version below that, F follow-up of the last
    merge, C compaction, X one whose transaction does not convert, I index build, A append, U a user's update.
    """

    commits: str
    version: int
    """The receipt's, which is gone."""
    gone: set[int]
    found: int | None
    merges: int = 99
    """How many merges the cut covers."""
    recorded: bool = True
    """Whether the merges stand under ``merges/``."""


CASES = [
    # below
    Case("MMM", 4, {4}, 3),
    Case("MMM", 4, {3, 4}, 2),
    Case("MMM", 4, {4}, None, recorded=False),
    Case("MMCM", 5, {4, 5}, None),  # what made 4 is gone with it
    Case("MAM", 4, {4}, None),  # a record does not say what the merge was computed from
    Case("MIR", 4, {4}, 3),
    Case("MAR", 4, {4}, None),  # 4 may show keys twice
    Case("MARC", 4, {4}, 5),  # so does its compaction
    # above
    Case("MC", 2, {2}, 3),
    Case("MX", 2, {2}, 3),
    Case("MIIC", 2, {2}, 3),
    Case("MCC", 2, {2, 3}, None),
    Case("MA", 2, {2}, None),
    Case("MU", 2, {2}, None),
    Case("MMM", 2, {2}, 3, merges=2),
    Case("MMM", 2, {2}, None, merges=1),
    Case("MMM", 2, {2, 3}, 4),
    Case("MMM", 2, {2, 3}, None, merges=2),
    Case("MMM", 2, {2, 3}, None, recorded=False),
    Case("MAR", 3, {3}, None),  # 4 may show keys twice
    Case("MARF", 3, {3}, 5),  # the follow-up has hidden them
    Case("MARFC", 3, {3, 5}, None),
    Case("MARF", 4, {4}, None),  # a read of 4 may have seen them
    Case("MCR", 3, {3}, None),  # whether 3 was an append is not known any more
    Case("MC", 3, {3}, None),  # what made 3 is gone with it
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.commits}-{c.version}-{len(c.gone)}-{c.merges}-{c.recorded}")
def test_stand_in(case: Case) -> None:
    store = MemoryStore(ManualClock(), MemoryBucket(), Faultless())
    dataset = MemoryDataset(pa.schema([("k", pa.int64())]))
    table = MemoryTable(dataset)
    watermarks = Watermarks(store, table, None)
    merges = 0
    for commit in case.commits:
        version = dataset.newest.number + 1
        match commit:
            case "M" | "R":
                merges += 1
                marks = {REGION: Watermark(Generation(merges), Position(10 * merges))}
                read = version - (1 if commit == "M" else 2)
                properties = merge_properties(marks, f"merge-{merges}") | {PROPERTY_READ_VERSION: str(read)}
                dataset.add(version - 1, "Update", (), properties=properties)
                if case.recorded:
                    in_force = InForce(TableVersion(version), f"merge-{merges}", marks)
                    watermarks.record(in_force, TableVersion(version), "merge")
            case "F":
                dataset.add(version - 1, "Update", (), properties={PROPERTY_FOLLOWUP: f"merge-{merges}"})
            case _:
                names = {"C": "Rewrite", "X": "Rewrite", "I": "CreateIndex", "A": "Append", "U": "Update"}
                dataset.add(version - 1, names[commit], (), readable=commit != "X")
    for version in case.gone:
        del dataset.versions[version]
    cut = {REGION: Position(10 * min(case.merges, merges) + 5)}
    found = stand_in(Lineage(table, Watermarks(store, table, None), InlineTasks()), case.version, cut)
    assert (None if found is None else found.version) == case.found
    if found is not None:
        assert found.in_force == Watermarks(store, table, None).at(found.version)


class CountedTasks(InlineTasks):
    """Tasks that note how many items each call of ``map`` has."""

    def __init__(self) -> None:
        self.items: list[int] = []

    def map(self, call: Callable[[A], T], items: Sequence[A]) -> list[T]:
        self.items.append(len(items))
        return super().map(call, items)


def test_commits_of_a_range_are_read_together_and_once() -> None:
    store = MemoryStore(ManualClock(), MemoryBucket(), Faultless())
    dataset = MemoryDataset(pa.schema([("k", pa.int64())]))
    table, tasks = MemoryTable(dataset), CountedTasks()
    for name in ("Append", "Rewrite", "Append", "CreateIndex", "Delete"):
        dataset.add(dataset.newest.number, name, ())
    lineage = Lineage(table, Watermarks(store, table, None), tasks)
    assert [step.version for step in lineage.foreign_steps(1, 5)] == [2, 4]
    assert list(lineage.steps(2, 6)) == [(3, 4), (5, 6)]
    assert tasks.items == [4, 1]
