"""Compaction in the flusher service: in turn with merges, whatever comes without end."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.errors import LancewalError, ObjectCorrupt, StoreUnavailable
from lancewal_core.process.clock import SystemClock
from lancewal_core.rows.schema import Op
from lancewal_core.settings.load import Settings
from lancewal_core.table.control import Service
from lancewal_flusher.merge.merge import Merged, merge_next
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service import limits, upkeep
from lancewal_flusher.service import round as rounds
from lancewal_flusher.service import table as flusher_table
from lancewal_flusher.upkeep.compaction import Compacted, compact_next
from tests.flusher.service.test_service import get, samples, serving, settings_of, wait_for
from tests.support.flusher_tables import OPEN_ROWS, FlusherTable, KeyedTable, Operation, upserts
from tests.support.pauses import pause, resume

EAGER = {"merge_interval_s": 0.05, "gc_interval_s": 0.2, "compaction_interval_s": 0.05}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Six fragments of five rows."""
    made = FlusherTable(tmp_path)
    for number in range(6):
        made.generation(number % 2, upserts(range(5 * number, 5 * number + 5)))
        made.round()
    yield made
    made.close()


def eager(table: FlusherTable, **more: Any) -> Settings:
    return settings_of(table, flusher={**EAGER, **more})


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, before_merge: Callable[[], object] = lambda: None,
            before_compaction: Callable[[], object] = lambda: None) -> Iterator[list[str]]:  # fmt: skip
    """What lands, in order: ``m`` for a merge, ``c`` for a compaction."""
    landed: list[str] = []

    def merge(*arguments: Any) -> Any:
        before_merge()
        result = merge_next(*arguments[:4])  # and look at what has come
        landed.extend("m" * isinstance(result, Merged))
        return result

    def compact(*arguments: Any, **options: Any) -> Any:
        before_compaction()
        result = compact_next(*arguments, **options)
        landed.extend("c" * isinstance(result, Compacted))
        return result

    monkeypatch.setattr(rounds, "merge_next", merge)
    monkeypatch.setattr(upkeep, "compact_next", compact)
    yield landed
    monkeypatch.undo()


def test_it_compacts_and_extends_indexes(table: FlusherTable) -> None:
    table.dataset.create_scalar_index("id", "BTREE")
    with serving(eager(table)) as port:
        wait_for(lambda: samples(port).get("compactions_total{small}") == 1)
        wait_for(lambda: samples(port).get("unindexed_rows{id_idx}") == 0)
        found = samples(port)
    assert found["compacted_fragments_total"] == 6
    assert found["compacted_bytes_total"] > 0
    assert found["compaction_conflicts_total{conflict}"] == found["hidden_rows"] == found["dropped_rows_total"] == 0
    assert found["hidden_ratio"] == found["hidden_fragments"] == found["deletion_debt_bytes"] == 0
    assert found["table_rows"] == 30
    assert found["table_bytes"] == found["compacted_bytes_total"] == found["rewritten_bytes_total{compaction}"]
    assert found["fragments"] == 1
    assert found["indexes_extended_total{id_idx}"] == 1
    assert found["compaction_seconds_count"] >= 1
    table.check()


def test_rows_that_an_index_cannot_take_are_named(tmp_path: Path) -> None:
    """In the log, by a metric, and on the page; the other rows are covered."""
    vector = pa.list_(pa.float32(), 2)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", vector)])
    table = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",))
    table.generation(0, [Operation(Op.UPSERT, (id,), {"v": [float(id), 1.0]}) for id in range(50)])
    table.round()
    table.dataset.create_index("v", "IVF_FLAT", num_partitions=1, metric="l2")
    with serving(eager(table, compaction_interval_s=3_600.0)) as port:
        odd = [(id, [1e20 if id == 77 else float(id), 1.0]) for id in range(50, 100)]
        table.generation(0, [Operation(Op.UPSERT, (id,), {"v": found}) for id, found in odd])
        wait_for(lambda: samples(port).get("index_far_rows{v_idx}") == 1)
        assert samples(port)["unindexed_rows{v_idx}"] == 0
        wait_for(
            lambda: any(
                "index v_idx: " in said and " in 1 row, " in said and "id=77" in said for said in problems(port)
            )
        )
    table.close()


def problems(port: int) -> list[str]:
    """Of the page."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/status", headers={"Accept": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        found: list[str] = json.loads(answer.read())["problems"]
        return found


def test_indexes_are_extended_right_behind_a_merge(table: FlusherTable) -> None:
    table.dataset.create_scalar_index("id", "BTREE")
    with serving(eager(table, compaction_interval_s=3_600.0)) as port:
        table.generation(0, upserts(range(100, 120)))
        wait_for(lambda: samples(port).get("indexes_extended_total{id_idx}") == 1)
        wait_for(lambda: samples(port).get("unindexed_rows{id_idx}") == 0)
        assert "compaction_seconds_count" not in samples(port) or samples(port)["compaction_seconds_count"] == 0
    table.check()


def test_merges_without_end_leave_compaction_its_turn(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """And compactions, of which there is always one more to do, leave merges theirs."""
    numbers = iter(range(1_000_000))

    def more() -> None:
        number = next(numbers)
        table.generation(number % 2, upserts(range(number % 40, number % 40 + 3), a=number))

    def append() -> None:
        for _ in range(4):
            table.user_append(0, [1_000 + next(numbers)], in_model=True)

    with watched(monkeypatch, more, append) as landed, serving(eager(table)) as port:
        wait_for(lambda: landed.count("c") >= 4 and landed.count("m") >= 8)
        assert get(port, "/readyz")[0] == 200
    order = "".join(landed)
    assert "cc" not in order, "a merge waited, and two compactions came first"
    rounds.run_round(table.context(), OPEN_ROWS, rounds.RoundState(), 0)
    table.check()


def test_compactions_without_end_leave_merges_theirs(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(range(1_000, 1_000_000))

    def append() -> None:
        for _ in range(4):
            table.user_append(1, [next(ids)], in_model=True)

    with watched(monkeypatch, before_compaction=append) as landed, serving(eager(table, merge_interval_s=30.0)):
        for number in range(3):
            at = len(landed)
            wait_for(lambda at=at: landed[at:].count("c") >= 2)  # type: ignore[misc] # no type for a default
            table.generation(0, upserts(range(number, 20), a=number))
            wait_for(lambda number=number: table.states(0)[3:] == ["MERGED"] * (number + 1))  # type: ignore[misc] # no type for a default
    table.check()


@pytest.mark.parametrize(
    ("error", "ready"),
    [
        (StoreUnavailable("503"), (200, "ok\n")),
        (ObjectCorrupt("x.lance is corrupt"), (503, "object_corrupt: compaction failed: x.lance is corrupt\n")),
    ],
)
def test_a_failing_compaction_holds_up_no_merge(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch, error: LancewalError, ready: tuple[int, str]
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(upkeep, "compact_next", fail)
    with serving(eager(table)) as port:
        for number in range(3):
            wait_for(lambda n=number: samples(port).get(f"failures_total{{{error.kind}}}", 0) > n)  # type: ignore[misc] # no type for a default
            table.generation(0, upserts(range(number + 3), a=number))
            wait_for(lambda n=number: table.states(0)[3:] == ["MERGED"] * (n + 1))  # type: ignore[misc] # no type for a default
        assert get(port, "/readyz") == ready
    table.check()


def test_off_and_paused(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_table, "POLL_S", 0.05)
    with watched(monkeypatch) as landed:
        with serving(eager(table, compaction=False)) as port:
            wait_for(lambda: samples(port)["round_seconds_count"] >= 5)
        assert landed == []
        pause(table.store, SystemClock(), lambda: "1", Service.FLUSHER, None)
        monkeypatch.setattr(flusher_table, "POLL_S", 0.05)
        with serving(eager(table)) as port:
            wait_for(lambda: samples(port)["paused"] == 1)
            threading.Event().wait(0.3)  # several intervals
            assert landed == []
            resume(table.store, SystemClock(), lambda: "2", Service.FLUSHER, None)
            began = time.monotonic()
            wait_for(lambda: landed == ["c"])
            assert time.monotonic() - began < 240
    table.check()


def test_a_worn_fragment_is_written_anew_right_behind_the_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before the next turn is due."""
    monkeypatch.setattr(limits, "MergeLimits", partial(MergeLimits, rewrite_bytes=0))
    table = FlusherTable(tmp_path)
    table.generation(0, upserts(range(1_000)))
    table.round()
    settings = settings_of(table, flusher={"merge_interval_s": 0.05, "compaction_interval_s": 3_000.0})
    with serving(settings) as port:
        table.generation(0, upserts(range(100), a=1))
        wait_for(lambda: table.states(0) == ["MERGED", "MERGED"])
        table.generation(0, upserts(range(100, 150), a=1))
        wait_for(lambda: table.states(0) == ["MERGED"] * 3)
        assert samples(port).get("compactions_total{deleted}", 0) == 0
        table.generation(0, upserts(range(150, 260), a=1))
        wait_for(lambda: samples(port).get("compactions_total{deleted}") == 1)
        wait_for(lambda: samples(port).get("hidden_rows") == 0)
    table.check()
    table.close()
