"""Packed tasks come out as they went in, and what they share travels once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from lancewal_core.errors import PlanStale, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.obstore import open_store
from lancewal_flusher.tasks import parcel as task_parcel
from lancewal_flusher.tasks.parcel import OpenParcel, discard, send

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shared:
    number: int
    keys: Numbers


@dataclass(frozen=True, slots=True)
class Own:
    """Another kind of task, with rows of its own."""

    keys: Numbers
    rows: Numbers


KEYS = np.arange(50_000)
TASKS = [*(Shared(n, KEYS) for n in range(5)), *(Own(KEYS, np.arange(n)) for n in (3, 40_000))]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path))


@pytest.fixture
def pool() -> Iterator[ThreadTasks]:
    made = ThreadTasks()
    yield made
    made.close()


def stored(store: ObjectStore) -> list[str]:
    return sorted(info.key for info in store.list(paths.PARCELS))


@pytest.mark.parametrize("inline", [True, False])
def test_tasks_come_out_as_they_went_in(
    store: ObjectStore, pool: ThreadTasks, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_parcel, "INLINE_BYTES_MAX", 1 << 20 if inline else 0)
    monkeypatch.setattr(task_parcel, "PART_BYTES", 100_000)  # values go across several parts
    parcel = send(store, pool, TASKS, "p1")
    assert len(parcel) == len(TASKS)
    assert KEYS.nbytes + 40_000 * 8 < parcel.ends[-1] < KEYS.nbytes + 40_000 * 8 + 5_000, "the keys are in it once"
    assert stored(store) == ([] if inline else [paths.parcel_part("p1", part) for part in range(8)])
    opened = OpenParcel(store, pool, parcel)
    found = [opened.load(place) for place in range(len(parcel))]
    assert [type(task) for task in found] == [type(task) for task in TASKS]
    assert [task.number for task in found[:5]] == [0, 1, 2, 3, 4]
    assert len({id(task.keys) for task in found}) == 1
    assert np.array_equal(found[0].keys, KEYS)
    assert [len(task.rows) for task in found[5:]] == [3, 40_000]
    assert np.array_equal(opened.load(6).rows, TASKS[6].rows)  # type: ignore[attr-defined] # it is an Own
    discard(store, parcel)
    assert stored(store) == []


def test_a_single_task_and_tasks_of_any_type(store: ObjectStore, pool: ThreadTasks) -> None:
    for tasks in (TASKS[:1], ["a", "b"], [None]):
        opened = OpenParcel(store, pool, send(store, pool, tasks, "p1"))
        assert repr([opened.load(place) for place in range(len(tasks))]) == repr(tasks)


def test_a_parcel_that_is_gone_is_named(store: ObjectStore, pool: ThreadTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_parcel, "INLINE_BYTES_MAX", 0)
    parcel = send(store, pool, TASKS, "p1")
    opened = OpenParcel(store, pool, parcel)
    discard(store, parcel)
    with pytest.raises(PlanStale, match=r"_lancewal/parcels/p1/00000.*their merge or compaction has ended"):
        opened.load(0)


def test_a_store_that_does_not_answer(store: ObjectStore, pool: ThreadTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_parcel, "INLINE_BYTES_MAX", 0)
    store.put_if_absent(paths.parcel_part("p1", 0), b"somebody else's")
    with pytest.raises(StoreUnavailable, match="hands tasks to executors"):
        send(store, pool, TASKS, "p1")
