"""Expiry of rows of three contracts, whose time column has lain in the table all the while."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.rows.schema import Op
from lancewal_core.rows.ttl import Ttl
from lancewal_flusher.upkeep.expiry import Expired, OldestTimes, expire_next
from lancewal_flusher.upkeep.widening import WideningDone, WideningState, widen_next
from lancewal_reader.table import open_table
from tests.support.flusher_tables import OPEN_ROWS, FlusherTable, Operation
from tests.support.scripted import ManualClock

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAY_S = 86_400
LARGE = 2**40
MORE = [pa.field("at", pa.timestamp("us", "UTC")), pa.field("n", pa.int32())]


def put(id: int, hours: float, **values: Any) -> Operation:
    return Operation(Op.UPSERT, id, {"at": NOW - timedelta(hours=hours), **values})


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Merged rows, and rows of each contract above them, of which some take a row's time back or on."""
    made = FlusherTable(tmp_path, more=MORE, patches=False, ttl_column="at", ttl_s=DAY_S, history_window_s=0)
    made.generation(0, [put(id, 30 if id % 2 else 1, a=id, s="merged", n=id) for id in range(20)])
    made.round()
    made.generation(0, [put(id, 2 if id % 2 else 40, a=-id, s="first", n=1) for id in range(4)])
    made.change_columns({"a": "c"}, b="string")
    made.generation(0, [put(id, 2 if id % 2 else 40, c=-id, b="second", s="s", n=2) for id in range(4, 8)])
    made.change_columns({"s": None, "tags": None})
    made.change_columns(s="int64")
    made.ask_to_widen("n", "int64")
    assert isinstance(widen_next(made.context(), WideningState(), 60.0), WideningDone)
    made.take_up()
    made.generation(0, [put(id, 2 if id % 2 else 40, b="third", s=id, n=LARGE) for id in range(8, 12)])
    yield made
    made.close()


def expired(table: FlusherTable) -> int:
    """Expire, and count the rows."""
    clock = ManualClock(epoch_ms=int(NOW.timestamp() * 1000))
    rows, oldest = 0, OldestTimes()
    while True:
        done = expire_next(replace(table.context(), clock=clock), Ttl("at", DAY_S), oldest)
        if done is None:
            return rows
        assert isinstance(done, Expired)
        rows += done.rows


def old(row: dict[str, Any]) -> bool:
    return bool(row["at"] < NOW - timedelta(days=1))


def test_beside_rows_of_three_contracts_and_behind_their_merges(table: FlusherTable) -> None:
    """Rows that wait are never taken, and one of the table goes though a newer one of its key waits."""
    waiting = range(12)
    assert expired(table) == 10
    table.model = {key: row for key, row in table.model.items() if key[1] in waiting or not old(row)}
    found = {(row["region"], row["id"]): row for row in open_table(table.uri).to_arrow().to_pylist()}
    assert found == table.model
    while "FLUSHED" in table.states(0):
        table.round(OPEN_ROWS)
    table.check()
    assert expired(table) == 6
    table.model = {key: row for key, row in table.model.items() if not old(row)}
    table.check()
    assert expired(table) == 0
