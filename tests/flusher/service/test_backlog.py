"""What waits for its merge and since when, what is merged, and that it never becomes less."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.ids import Generation, Position, Region, TableVersion, TopicId
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.protocol import Table, TransactionGone, TransactionInfo, TransactionResult
from lancewal_core.table.watermarks import InForce, Watermark
from lancewal_flusher.service.backlog import Backlog, backlog_after
from lancewal_flusher.service.merged_positions import MergedPositions
from lancewal_flusher.service.metrics import FlusherMetrics
from lancewal_flusher.service.round import RoundReport
from lancewal_flusher.service.stored_times import StoredTimes
from tests.support.flusher_tables import FlusherTable, upserts

NO_ROUND = RoundReport((), (), 0, (), (), None, {})


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


def age(table: FlusherTable, kind: str, ending: str) -> float:
    """Make objects an hour old; the time that they have then."""
    hour_ago = time.time() - 3600
    for path in Path(table.uri, "_lancewal", kind).rglob(f"*{ending}"):
        os.utime(path, (hour_ago, hour_ago))
    return hour_ago


def looked(table: FlusherTable, times: StoredTimes | None = None) -> Backlog:
    """What a flusher that has just started sees."""
    return backlog_after(table.context(), NO_ROUND, times or StoredTimes(), MergedPositions())


def shown(backlog: Backlog, table: FlusherTable, name: str, partition: int = 0) -> float | None:
    metrics = FlusherMetrics(table.context().clock, "t", table.context().events)
    metrics.backlog(backlog)
    labels = {"table": "t", "partition": str(partition)}
    return metrics.registry.get_sample_value(f"lancewal_flusher_{name}", labels)


@pytest.mark.parametrize(("flush", "kind", "ending"), [(True, "flushes", ".json"), (False, "wal", ".arrow")])
def test_how_long_something_waits_survives_a_restart(table: FlusherTable, flush: bool, kind: str, ending: str) -> None:
    table.generation(0, upserts(range(5)), flush=flush)
    age(table, kind, ending)
    table.generation(0, upserts(range(5, 9)), flush=False)
    backlog = looked(table)
    assert len(backlog.waiting[table.regions[0]]) == 2
    assert shown(backlog, table, "oldest_unmerged_seconds") == pytest.approx(3600, abs=240)
    assert shown(backlog, table, "oldest_unmerged_seconds", 1) == 0
    assert shown(backlog, table, "merged_timestamp_seconds") is None


def test_what_the_table_has_is_as_new_as_the_last_segment_that_is_merged(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5)))
    age(table, "wal", ".arrow")
    table.generation(0, upserts(range(5, 9)))
    table.round()
    assert shown(looked(table), table, "merged_timestamp_seconds") == pytest.approx(time.time(), abs=240)
    hour_ago = age(table, "wal", ".arrow")
    backlog = looked(table)
    assert shown(backlog, table, "merged_timestamp_seconds") == pytest.approx(hour_ago, abs=1)
    assert shown(backlog, table, "oldest_unmerged_seconds") == 0


def test_a_store_that_does_not_list_costs_the_time_alone_and_what_is_known_is_not_asked_again(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.generation(0, upserts(range(5)))
    region, record, times = table.regions[0], table.record(0, 1), StoredTimes()

    class Silent:
        def list(self, *arguments: object, **named: object) -> None:
            raise StoreUnavailable("it does not answer")

    silent = cast(ObjectStore, Silent())
    assert times.waits_since_ms(silent, region, record) is None
    known = times.waits_since_ms(table.store, region, record)
    assert known is not None
    assert times.waits_since_ms(silent, region, record) == known
    times.keep({(region, record.generation)})
    assert times.waits_since_ms(silent, region, record) == known
    times.keep(set())
    assert times.waits_since_ms(silent, region, record) is None


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
    positions, table = MergedPositions(), cast(Table, Versions(made))
    assert positions.look(table, in_force(2, 7)) == {}
    assert positions.look(table, later) == fell
    assert positions.look(table, later) == {}
