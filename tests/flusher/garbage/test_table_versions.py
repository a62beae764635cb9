"""Versions of the table: what is older than the window goes, and nothing that anybody needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.names.ids import TableVersion
from lancewal_core.names.paths import parse_table_version
from lancewal_core.process.clock import SystemClock
from lancewal_core.table.protocol import StoredTable
from lancewal_core.table.subscriptions.holding import HOLDS_NOTHING
from lancewal_core.table.subscriptions.needs import version_window_ms
from lancewal_core.table.watermarks import Watermarks
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage import table_versions
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.collect_all import look
from lancewal_flusher.garbage.find import claimed_histories
from lancewal_flusher.garbage.table_versions import WAITING_MAX_MS, VersionsSeen, due, expire_versions
from tests.support.flusher_tables import FlusherTable, upserts

DAY_S = 24 * 3600
LAST_MERGE = TableVersion(1_000)


def of(stored: Mapping[int, int], merge: int = LAST_MERGE, now: int = 100, window: int = 10) -> list[int]:
    times = {TableVersion(version): made for version, made in stored.items()}
    return [int(version) for version in due(times, TableVersion(merge), now, window)]


def test_a_version_stays_while_it_was_the_newest_in_the_window() -> None:
    assert of({1: 0, 2: 50, 3: 95}) == [1]  # until 95 the newest was 2
    assert of({1: 0, 2: 50, 3: 90}) == [1, 2]
    assert of({1: 0}) == []
    assert of({1: 99, 2: 100}) == []
    assert of({}) == []


def test_the_newest_merge_stays_and_all_above_it() -> None:
    assert of({1: 0, 2: 1, 3: 2, 4: 3}, merge=2) == [1]
    assert of({1: 0, 2: 1, 3: 2, 4: 3}, merge=0) == []


def test_of_clocks_that_differ_the_younger_version_stays() -> None:
    assert of({1: 0, 2: 99, 3: 50, 4: 60}) == [1]


def test_names_of_manifests() -> None:
    assert parse_table_version("_versions/18446744073709551608.manifest") == 7
    assert parse_table_version("_versions/7.manifest") == 7
    assert parse_table_version("_versions/latest_version_hint.json") is None
    assert parse_table_version("data/7.manifest") is None


class Later(SystemClock):
    """So many seconds from now."""

    def __init__(self, seconds: float = 8 * DAY_S) -> None:
        self.seconds = seconds

    def now_ms(self) -> int:
        return super().now_ms() + int(self.seconds * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


def later(table: FlusherTable, clock: Later | None = None) -> FlusherContext:
    return replace(table.context(), clock=clock or Later())


def versions(table: FlusherTable) -> list[int]:
    return sorted(int(found["version"]) for found in table.dataset.versions())


def merge_of(table: FlusherTable) -> int:
    return int(table.context().watermarks.newest()[1].version)


def test_old_versions_go_and_the_table_is_as_it_was(table: FlusherTable) -> None:
    before = versions(table)
    context = later(table)
    told = look(context).expired_versions
    assert versions(table) == before
    report = collect_garbage(context, GarbageState())
    assert list(report.expired_versions) == [v for v in before if v < merge_of(table)]
    assert told == len(report.expired_versions) > 2
    assert versions(table) == [v for v in before if v >= merge_of(table)]
    table.check()
    table.generation(0, upserts(range(3, 30), a=9))
    table.round()
    table.check()


def test_nothing_is_due_in_the_window(table: FlusherTable) -> None:
    before = versions(table)
    assert collect_garbage(later(table, Later(6 * DAY_S)), GarbageState()).expired_versions == ()
    assert versions(table) == before


def test_a_tag_and_a_branch_keep_their_versions(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    tagged, branched = versions(table)[-3:-1]
    rows = {v: lance.dataset(table.uri, version=v).to_table().sort_by("id") for v in (tagged, branched)}
    table.dataset.tags.create("kept", tagged)
    table.dataset.create_branch("apart", branched)
    context, state = later(table), GarbageState()
    assert not {tagged, branched} & set(collect_garbage(context, state).expired_versions)
    found: Any = table.dataset.checkout_version(("apart", None))
    assert found.to_table().sort_by("id") == rows[branched]
    assert lance.dataset(table.uri, version="kept").to_table().sort_by("id") == rows[tagged]
    # Held as they are, they are no reason to have Lance look at all versions again.
    asked: list[object] = []
    monkeypatch.setattr(type(context.table), "remove_versions", lambda _, wanted: asked.append(wanted))
    in_force, kept = claimed_histories(context)
    expire_versions(
        context, VersionsSeen(held=state.versions.held), in_force, kept, context.clock.now_ms(), HOLDS_NOTHING
    )
    assert asked == []
    expire_versions(context, VersionsSeen(), in_force, kept, context.clock.now_ms(), HOLDS_NOTHING)
    assert len(asked) == 1


def test_a_round_within_the_hour_asks_nothing(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, state = Later(0), GarbageState()
    context = later(table, clock)
    listed: list[StoredTable] = []
    real = type(context.table).stored_versions

    def stored_versions(self: StoredTable) -> Mapping[TableVersion, int]:
        listed.append(self)
        return real(self)

    monkeypatch.setattr(type(context.table), "stored_versions", stored_versions)
    for _ in range(3):
        collect_garbage(context, state)
    assert len(listed) == 1
    clock.seconds += 3601
    collect_garbage(context, state)
    assert len(listed) == 2


def test_nothing_goes_while_a_flush_waits_for_days(table: FlusherTable) -> None:
    before = versions(table)
    table.generation(1, upserts(range(3)))
    context = later(table)
    assert WAITING_MAX_MS < 7 * DAY_S * 1000  # when Lance removes files that no version names
    assert collect_garbage(context, GarbageState()).expired_versions == ()
    assert look(context).expired_versions == 0
    assert versions(table) == before
    table.round()
    assert collect_garbage(later(table), GarbageState()).expired_versions != ()


def test_nothing_goes_where_the_flusher_has_slept_since_it_looked(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge that slept beside it has files that no version names yet."""
    before = versions(table)
    clock = Later()
    context = later(table, clock)
    stored = context.table.stored_versions

    def slow() -> Mapping[TableVersion, int]:
        found = stored()
        clock.seconds += 8 * DAY_S
        return found

    monkeypatch.setattr(context.table, "stored_versions", slow)
    assert collect_garbage(context, GarbageState()).expired_versions == ()
    assert versions(table) == before
    monkeypatch.undo()
    assert collect_garbage(context, GarbageState()).expired_versions != ()


def test_nothing_goes_before_the_newest_merge_is_finished(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    context = later(table)
    monkeypatch.setattr(table_versions, "is_finished", lambda *_: False)
    assert collect_garbage(context, GarbageState()).expired_versions == ()


def test_nothing_goes_of_a_table_keyed_by_bytes(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, keyed_by_bytes=True, history_window_s=0)
    for number in range(3):
        table.generation(0, upserts(range(number + 1)))
        table.round()
    assert collect_garbage(later(table), GarbageState()).expired_versions == ()
    table.close()


def test_the_window_is_never_shorter_than_the_history_window_nor_an_hour(table: FlusherTable) -> None:
    contract = table.contract
    assert version_window_ms(contract.model_copy(update={"version_window_s": 0})) == 3_600_000
    assert (
        version_window_ms(contract.model_copy(update={"version_window_s": 0, "history_window_s": 9_000})) == 9_000_000
    )
    assert version_window_ms(contract) == 7 * DAY_S * 1000


def test_watermarks_are_known_by_another_process_afterwards(table: FlusherTable) -> None:
    in_force = table.context().watermarks.newest()[1]
    collect_garbage(later(table), GarbageState())
    opened = table.context()
    assert Watermarks(table.store, opened.table, None).newest()[1] == in_force


def test_nothing_goes_while_a_partition_is_damaged_or_a_restore_took_merges_back(table: FlusherTable) -> None:
    context = later(table)
    in_force, kept = claimed_histories(context)
    now = context.clock.now_ms()
    damaged = replace(kept, damaged={table.regions[0]: ObjectCorrupt("it is damaged", object="there")})
    assert expire_versions(context, VersionsSeen(), in_force, damaged, now, HOLDS_NOTHING) == ()
    assert expire_versions(context, VersionsSeen(), replace(in_force, regions={}), kept, now, HOLDS_NOTHING) == ()
    assert expire_versions(context, VersionsSeen(), in_force, kept, now, HOLDS_NOTHING) != ()
