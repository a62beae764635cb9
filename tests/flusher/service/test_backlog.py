"""What waits for its merge and since when, what is merged, and that it never becomes less."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Barrier
from typing import cast

import pytest

from lancewal_core.names.ids import Generation, Position, Region, TableVersion, TopicId
from lancewal_core.process.clock import SystemClock
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.protocol import StoredTable, TransactionGone, TransactionInfo, TransactionResult
from lancewal_core.table.watermarks import InForce, Watermark
from lancewal_flusher.service.backlog import Backlog, BacklogReader, MergedPositions
from lancewal_flusher.service.metrics import FlusherMetrics
from lancewal_flusher.service.round import RoundReport
from tests.support.asked import keys_read
from tests.support.flusher_tables import FlusherTable, upserts

NO_ROUND = RoundReport((), (), 0, (), (), None, {})


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


class Later(SystemClock):
    """The machine's clock, so many seconds on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now_ms(self) -> int:
        return super().now_ms() + int(self._seconds * 1000)


def looked(table: FlusherTable) -> Backlog:
    """What a flusher that has just started sees."""
    return BacklogReader(table.context()).after(NO_ROUND)


def shown(
    backlog: Backlog, table: FlusherTable, name: str, partition: int = 0, *, later_s: float = 0.0
) -> float | None:
    metrics = FlusherMetrics(Later(later_s), "t", table.context().events)
    metrics.backlog(backlog)
    labels = {"table": "t", "partition": str(partition)}
    return metrics.registry.get_sample_value(f"lancewal_flusher_{name}", labels)


@pytest.mark.parametrize("flush", [True, False], ids=["flushed", "sealed"])
def test_how_long_something_waits_survives_a_restart(table: FlusherTable, flush: bool) -> None:
    table.generation(0, upserts(range(5)), flush=flush)
    record = table.record(0, 1)
    assert record.flushed_at_ms if flush else record.flushed_at_ms is None
    table.generation(0, upserts(range(5, 9)), flush=False)
    backlog = looked(table)
    region = table.regions[0]
    assert len(backlog.waiting[region]) == 2
    assert backlog.waits_since_ms == {region: record.flushed_at_ms if flush else record.sealed_at_ms}
    assert shown(backlog, table, "oldest_unmerged_seconds", later_s=3600) == pytest.approx(3600, abs=240)
    assert shown(backlog, table, "oldest_unmerged_seconds", 1, later_s=3600) == 0
    assert shown(backlog, table, "merged_timestamp_seconds") is None


def test_all_flushes_that_wait_are_asked_for_at_once(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in (range(5), range(5, 9)):
        table.generation(0, upserts(rows))
    keys = {record.flush for record in table.index(0).generations if record.flush}
    both, get = Barrier(len(keys)), type(table.context().store).get
    assert len(keys) == 2

    def together(store: ObjectStore, key: str) -> bytes | None:
        if key in keys:
            both.wait(60)
        return get(store, key)

    monkeypatch.setattr(type(table.context().store), "get", together)
    assert looked(table).rows[table.regions[0]] == 9


def test_a_flush_that_waits_is_asked_for_once(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    region = table.regions[0]
    reader, asked = BacklogReader(table.context()), keys_read(table.store, monkeypatch)
    found = []
    for rows in (range(5), range(5, 9), range(9, 10)):
        table.generation(0, upserts(rows))
        found += [reader.now().rows[region], reader.now().rows[region]]
    assert found == [5, 5, 9, 9, 10, 10]
    flushes = [table.record(0, generation).flush for generation in (1, 2, 3)]
    assert [asked.count(key or "") for key in flushes] == [1, 1, 1]
    table.round()
    assert reader.now().rows[region] == 0
    assert not reader._flushes


def test_what_the_table_has_is_as_new_as_the_last_generation_that_is_merged(table: FlusherTable) -> None:
    for rows in (range(5), range(5, 9)):
        began = time.time()
        table.generation(0, upserts(rows))
        ended = time.time()
        table.round()
        at = shown(looked(table), table, "merged_timestamp_seconds")
        assert at is not None
        assert began - 0.001 <= at <= ended
    assert shown(looked(table), table, "oldest_unmerged_seconds", later_s=3600) == 0


REGION = Region("orders", TopicId("t"), 0)


class Versions:
    """Versions by what made them; others are gone."""

    def __init__(self, made: Mapping[int, str]) -> None:
        self._made = made

    def transaction(self, version: int) -> TransactionResult:
        operation = self._made.get(version)
        return TransactionGone() if operation is None else TransactionInfo(operation, version - 1)


def in_force(version: int, position: int, merge: str | None = "m", perhaps: int | None = None) -> InForce:
    mark = Watermark(Generation(version), Position(position), None if perhaps is None else Generation(perhaps))
    return InForce(TableVersion(version), merge, {REGION: mark})


@pytest.mark.parametrize(
    ("made", "later", "fell"),
    [
        ({3: "Update", 4: "Update"}, in_force(4, 6), {REGION: 6}),
        ({3: "Update", 4: "Update"}, in_force(4, 7), {}),
        ({3: "Update", 4: "Update"}, in_force(4, 8), {}),
        ({3: "Restore", 4: "Update"}, in_force(4, 6), {}),
        ({4: "Update"}, in_force(4, 6), {}),
        ({3: "Update", 4: "Update"}, in_force(4, 6, merge=None), {}),
        ({3: "Update", 4: "Update"}, in_force(4, 6, perhaps=9), {}),
    ],
    ids=["it fell", "it stays", "it goes on", "restored", "one is gone", "a person's word", "a lower bound"],
)
def test_a_merged_position_never_falls_but_where_a_person_has_decided(
    made: Mapping[int, str], later: InForce, fell: Mapping[Region, int]
) -> None:
    positions, table = MergedPositions(), cast(StoredTable, Versions(made))
    assert positions.look(table, in_force(2, 7)) == {}
    assert positions.look(table, later) == fell
    assert positions.look(table, later) == {}
