"""An operator sees what waits under older contracts, and widenings that are open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lancewal_core.names import paths
from lancewal_core.rows.schema import Op
from lancewal_core.settings.load import Settings
from lancewal_flusher.service.process import FlusherProcess
from lancewal_flusher.service.table import FlusherTable as ServedTable
from lancewal_flusher.upkeep.widening import WideningDone
from lancewal_tables.commands.status import status_text
from lancewal_tables.status.status import table_status
from tests.support.asked import keys_read
from tests.support.flusher_tables import FlusherTable, Operation, patch, upserts


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[FlusherTable]:
    """A table with eight rows, whose column ``a`` is an int32."""
    columns = [("region", pa.string(), False), ("id", pa.int64(), False), ("a", pa.int32(), True)]
    made = FlusherTable(tmp_path, columns=pa.schema([pa.field(*column) for column in columns]))
    made.generation(0, [Operation(Op.UPSERT, i, {"a": i}) for i in range(8)])
    made.round()
    yield made
    made.close()


def settings_of(table: FlusherTable) -> Settings:
    return Settings.model_validate({"table": {"uri": table.uri}, "flusher": {"visibility_interval_s": 0}})


@contextmanager
def served(table: FlusherTable) -> Iterator[ServedTable]:
    settings = settings_of(table)
    with ExitStack() as stack:
        process = FlusherProcess(settings, lambda: False, stack)
        yield process.open(settings, process.metrics(settings), stack)


def metric(service: ServedTable, name: str) -> Any:
    registry = service.metrics.registry
    return registry.get_sample_value(f"lancewal_flusher_{name}", {"table": Path(service.settings.table.uri).name})


def watched(service: ServedTable) -> None:
    """As the thread does that watches over the store; then as in a pass."""
    service._silence.ask()
    service.look()


def test_rows_of_older_columns_are_counted_until_they_are_merged(table: FlusherTable) -> None:
    table.generation(0, upserts(range(8)))
    table.round()
    with served(table) as service:
        table.generation(0, upserts(range(5)))
        table.generation(1, [patch(1, a=3)], flush=False)
        watched(service)
        assert (metric(service, "older_contract_rows"), metric(service, "contract_version")) == (0, 1)
        table.change_columns({"a": "c"})
        table.generation(0, upserts(range(20, 23)))
        watched(service)
        assert (metric(service, "older_contract_rows"), metric(service, "contract_version")) == (5, 2)
        assert (service.shown([]).older_contract_rows, service.shown([]).contract_version) == (5, 2)
        # The command counts rows that are only in the log too.
        status = table_status(settings_of(table), table.uri)
        assert status.older_contract_rows == 6
        assert "\nolder     6 rows written before the newest change of columns, not merged yet\n" in status_text(status)
        while service.round(0.0).left is None:
            pass
        assert metric(service, "older_contract_rows") == 0
        assert table_status(settings_of(table), table.uri).older_contract_rows == 0


def test_keys_in_conflict_wait_under_older_columns_without_limit(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, keyed_by_bytes=True)
    with served(table) as service:
        for partition in (0, 1):
            table.generation(partition, [Operation(Op.UPSERT, 1, {"a": partition})], of=0)
        service.round(0.0)
        assert service.shown([]).keys_in_conflict == 1
        status = table_status(settings_of(table), table.uri)
        assert (status.keys_in_conflict, status.older_contract_rows) == (1, 0)
        table.change_columns(b="float64")
        watched(service)
        table.generation(0, [Operation(Op.UPSERT, 2, {"b": 0.5})])
        service.round(0.0)
        older = table_status(settings_of(table), table.uri).older_contract_rows
        assert older == metric(service, "older_contract_rows") == service.shown([]).older_contract_rows
        assert older
    table.close()


def test_an_open_widening_and_what_the_flusher_does_for_it(narrow: FlusherTable) -> None:
    table = narrow
    lance.dataset(table.uri).create_scalar_index("a", "BTREE")
    with served(table) as service:
        watched(service)
        assert (metric(service, "open_widening_seconds"), service.shown([]).widenings) == (0, ())
        asked_ms = int(time.time() * 1000) - 90_000
        table.ask_to_widen("a", "int64", now_ms=asked_ms)
        watched(service)  # a flusher that is paused sees it too
        assert metric(service, "open_widening_seconds") >= 90
        (shown,) = service.shown([]).widenings
        assert (shown.field, shown.old_type, shown.new_type, shown.since_ms) == ("a", "int32", "int64", asked_ms)
        assert shown.work is None
        status = table_status(settings_of(table), table.uri)
        assert status.widenings == (shown,)
        assert "\nwidening  a: int32 to int64, asked for at " in status_text(status)
        assert "whether a flusher works on a widening: its log and /status" in status.unknown
        service.widen()
        (shown,) = service.shown([]).widenings
        assert shown.work is not None
        assert shown.work.startswith("held: index a_idx is over one of the columns")
        lance.dataset(table.uri).drop_index("a_idx")
        assert isinstance(service.widen(), WideningDone)
        assert (metric(service, "open_widening_seconds"), service.shown([]).widenings) == (0, ())
        assert table_status(settings_of(table), table.uri).widenings == ()


def test_looking_for_a_widening_costs_no_request_of_its_own(
    narrow: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch over the store asks for version 1 of the contract, and for the next one, whose absence is an answer too."""
    table = narrow
    with served(table) as service:
        service.look()
        asked = keys_read(service.context.store, monkeypatch)
        assert service.widen() is None
        assert asked == []
        service._silence.ask()
        assert asked == [paths.contract_version(1, None), paths.contract_version(2, None)]
        assert service.widen() is None
        assert len(asked) == 2
        table.ask_to_widen("a", "int64")
        assert service.widen() is None
        service._silence.ask()
        assert isinstance(service.widen(), WideningDone)
        assert service.context.contract.version == 3


def test_a_widening_that_is_held_is_logged_once(narrow: FlusherTable) -> None:
    """However often the flusher looks; and again when it is held for another reason."""
    for name in ("first", "second"):
        narrow.dataset.create_scalar_index("a", "BTREE", name=name)
    narrow.ask_to_widen("a", "int64")
    with served(narrow) as service, capture_logs() as logs:
        for name in ("first", "second"):
            for _ in range(3):
                service.widen()
            narrow.dataset.drop_index(name)
        for _ in range(3):
            service.widen()
    events = [log["event"] for log in logs if log["event"] in ("widening_held", "widening_begun", "column_widened")]
    assert events == ["widening_held", "widening_held", "column_widened"]
