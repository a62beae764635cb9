"""One open table in several threads: each read is right by itself, and what is remembered never goes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Thread, get_ident

import pyarrow as pa
import pytest

from lancewal_core.errors import PlanRetriesExhausted
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region
from lancewal_core.rows.fold import Folded
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import encode_contract
from lancewal_reader.plan.strong import PlanContext, ReadPlan, RegionDelta, plan_strong
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.reading import reads as reads_module
from lancewal_reader.table import open_table
from lancewal_reader.unmerged import loaded as loaded_module
from lancewal_reader.unmerged.loaded import Loaded, LoadedCache
from tests.support.pipeline import Pipeline, by_key

REGION = Region("orders", "AAAAAAAAQACAAAAAAAAAAQ", 0)  # type: ignore[arg-type] # an id
THREADS = 4


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, seed=5, seal_rows=25, batch=15, grace_s=0)
    yield made
    made.close()


def test_threads_that_read_while_it_is_merged(pipeline: Pipeline) -> None:
    """In rounds: all begin at the same time, while the table changes; each read is one of the states that there were."""
    table = open_table(pipeline.uri)
    pipeline.produce(40)
    pipeline.ingest()
    begin = Barrier(THREADS + 1)

    def reader(number: int) -> list[pa.Table]:
        found = []
        for _ in range(4):
            begin.wait(60)
            found.append(table.to_arrow() if number % 2 else table.scan().to_arrow())
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        readers = [pool.submit(reader, number) for number in range(THREADS)]
        for step in range(4):
            begin.wait(60)
            pipeline.produce(20)
            pipeline.ingest()
            if step % 2:
                pipeline.merge_all()
                pipeline.collect()
    for of_one in readers:
        before: dict[Region, Position] = {}
        for rows in of_one.result():
            seen = receipt_of(rows.schema).positions
            assert by_key(rows) == pipeline.fold_at(seen)
            assert sum(seen.values()) >= 40
            assert all(seen[region] >= position for region, position in before.items())
            before = seen


class Planning:
    """``plan_strong`` as two threads meet in it: the first one's plan is held back until the second one's read has ended."""

    def __init__(self) -> None:
        self.plans: list[ReadPlan] = []
        self.planned, self.go_on = Event(), Event()
        self._first = get_ident()

    def __call__(self, context: PlanContext) -> ReadPlan:
        plan = plan_strong(context)
        self.plans.append(plan)
        if len(self.plans) == 1:
            self.planned.set()
            assert self.go_on.wait(60)
        return plan


def test_a_slower_thread_does_not_take_back_what_another_has_seen(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_table(pipeline.uri)
    pipeline.produce(20)
    pipeline.ingest()
    expected = dict(pipeline.oracle)
    planning = Planning()
    monkeypatch.setattr(reads_module, "plan_strong", planning)
    with ThreadPoolExecutor(1) as pool:
        slower = pool.submit(table.to_arrow)
        assert planning.planned.wait(60)
        pipeline.produce(20)
        pipeline.ingest()
        newer = table.to_arrow()
        planning.go_on.set()
        older = slower.result()
    assert (by_key(older), by_key(newer)) == (expected, pipeline.oracle), "it began before the other had ended"
    assert len(planning.plans) == 2
    # A read that begins now must not be older than the newer one: a store that shows the state of the older is refused.
    monkeypatch.setattr(reads_module, "PLANS_MAX", 2)
    monkeypatch.setattr(reads_module, "plan_strong", lambda context: planning.plans[0])
    with pytest.raises(PlanRetriesExhausted, match="the store shows an older state than an earlier read did"):
        table.to_arrow()
    monkeypatch.setattr(reads_module, "plan_strong", lambda context: planning.plans[1])
    assert by_key(table.to_arrow()) == pipeline.oracle


def test_a_contract_that_another_thread_has_taken_up_stays(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_table(pipeline.uri)
    reads, old = table._reads, table.contract
    newer = old.model_copy(update={"version": 2})

    def slow(*arguments: object) -> object:
        """What this thread reads is out of date when it is there."""
        monkeypatch.undo()
        pipeline.store.put_if_absent(paths.contract_version(2, None), encode_contract(newer))
        other = Thread(target=reads._take_up_contract)
        other.start()
        other.join()
        assert table.contract == newer
        return old

    monkeypatch.setattr(reads_module, "read_contract", slow)
    reads._take_up_contract()
    assert table.contract == reads.context.contract == newer


def test_a_delta_may_be_remembered_while_another_thread_looks(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pipeline.contract.rows
    cache = LoadedCache(count_max=2)
    *known, more = [RegionDelta(REGION, (), Position(n)) for n in range(3)]
    for delta in known:
        cache.add([delta], SIGNATURE, empty(schema))
    compared: list[RegionDelta] = []

    def meanwhile(loaded: Loaded, deltas: Sequence[RegionDelta], known: Sequence[RegionDelta]) -> None:
        """What another thread remembers while this one compares."""
        compared.extend(known)
        thread = Thread(target=lambda: cache.add([more], SIGNATURE, empty(schema)))
        thread.start()
        thread.join()

    monkeypatch.setattr(loaded_module, "_begun", meanwhile)
    assert cache.begun([more], SIGNATURE, lambda made: False) is None
    assert compared == [known[1], known[0]], "the newest first"
    assert cache.get([more], SIGNATURE) is not None


SIGNATURE = (("id", pa.int64()),)


def empty(schema: RowSchema) -> Loaded:
    return Loaded(Folded(schema.table.empty_table(), schema.key.empty_table(), schema.table.empty_table()), schema)
