"""A flusher that works by an older contract meets changes of columns: before a round, within its steps, or before a kill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from lancewal_core.errors import ContractMismatch
from lancewal_core.keys.conflicts import read_conflicts
from lancewal_core.process.clock import SystemClock
from lancewal_core.rows.schema import Op
from lancewal_core.settings.load import Settings
from lancewal_core.table.columns.changes import Added, Adopted
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import CommitOutcome, TableCommit
from lancewal_flusher.context import FlusherContext, by_newest_contract
from lancewal_flusher.service.process import FlusherProcess
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.upkeep.compact_all import compact_to_the_end
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_tables.load.files import find_files
from lancewal_tables.load.part import PartLoaded
from lancewal_tables.load.whole import LoadAsked, LoadBounds, load
from tests.support.flusher_tables import (
    COLUMNS,
    COMBINE,
    OPEN_ROWS,
    FlusherTable,
    Operation,
    delete,
    patch,
    upsert,
    upserts,
)


class Killed(BaseException):
    """The process ends here."""


class CountedTable(LanceTable):
    """A table on which ``act`` happens right before call number ``at``."""

    def __init__(self, uri: str, at: int, act: Callable[[], object]) -> None:
        super().__init__(uri)
        self.left = at
        self._act = act

    def _count(self) -> None:
        self.left -= 1
        if self.left == -1:
            self._act()

    def newest(self) -> LancePinnedTable:
        self._count()
        return super().newest()

    def at(self, version: int) -> LancePinnedTable:
        self._count()
        return super().at(version)

    def write_rows(self, *args: Any) -> tuple[str, ...]:
        self._count()
        return super().write_rows(*args)

    def commit(self, commit: TableCommit) -> CommitOutcome:
        self._count()
        outcome = super().commit(commit)
        self._count()
        return outcome


def put(id: int, **values: Any) -> Operation:
    return Operation(Op.UPSERT, id, values)


def several(table: FlusherTable) -> None:
    table.change_columns({"s": None, "a": "c"})
    table.change_columns(s="int32", b="float64")


CHANGES: dict[str, Callable[[FlusherTable], object]] = {
    "add": lambda table: table.change_columns(b="float64"),
    "rename": lambda table: table.change_columns({"a": "c"}),
    "drop": lambda table: table.change_columns({"s": None}),
    "all": lambda table: several(table),
}


def waiting(table: FlusherTable) -> None:
    """Rows in the table, and generations that wait, one of them in the log alone."""
    table.generation(0, upserts(range(8)))
    table.round()
    table.generation(0, [patch(i, a=i) for i in range(3)])
    table.generation(0, [delete(5), upsert(30)])
    table.generation(1, [*upserts(range(3)), patch(9, s="x")])
    table.generation(1, [patch(0, s="y"), upsert(4)], flush=False)


def later(table: FlusherTable, change: str) -> None:
    """Rows of the new columns."""
    values: dict[str, dict[str, Any]] = {
        "add": {"b": 0.5},
        "rename": {"c": 4},
        "drop": {"a": 4},
        "all": {"c": 4, "b": 1.5, "s": 3},
    }
    more = values[change]
    table.generation(0, [put(0, **more), patch(1, **more), patch(70, **more)])


def works_on(context: FlusherContext, limits: Any = OPEN_ROWS) -> None:
    state = RoundState()
    left = None
    while left is None:
        report = by_newest_contract(context, lambda c: run_round(c, limits, state, 0.0))
        report.raise_held()
        left = report.left


def all_merged(table: FlusherTable) -> None:
    works_on(table.context())
    assert {*table.states(0), *table.states(1)} == {"MERGED"}
    table.check()


@pytest.fixture
def table(tmp_path: Path) -> Any:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("limits", [OPEN_ROWS, COMBINE], ids=["adopt", "combine"])
@pytest.mark.parametrize("change", CHANGES)
def test_before_a_round(table: FlusherTable, change: str, limits: Any) -> None:
    waiting(table)
    old = table.context()
    CHANGES[change](table)
    later(table, change)
    works_on(old, limits)
    table.check()


@pytest.mark.in_turns("change", "kill", each=2)
@pytest.mark.parametrize(("change", "kill"), [("drop", False), ("all", False), ("all", True)])
def test_within_the_steps_of_a_round(tmp_path: Path, change: str, kill: bool) -> None:
    """At each call that a round makes to the table."""
    at, over = 0, False
    while not over:
        table = FlusherTable(tmp_path / str(at))
        waiting(table)

        def act(table: FlusherTable = table) -> None:
            CHANGES[change](table)
            later(table, change)
            if kill:
                raise Killed

        counted = CountedTable(table.uri, at, act)
        with suppress(Killed):
            works_on(table.context(counted))
        over = counted.left >= 0
        if not over:
            all_merged(table)
        table.close()
        at += 1
    assert at > 8, "calls were counted"


def test_compaction(table: FlusherTable) -> None:
    for n in range(5):
        table.generation(0, upserts(range(10 * n, 10 * n + 10)))
        table.round()
    old = table.context()
    table.change_columns({"s": None, "a": "c"}, b="float64")
    limits = CompactionLimits(fragments_min=2)
    done = compact_to_the_end(old, limits, with_sentinel=True)
    assert done.fragments_after == 1
    table.check()


def test_a_service_goes_on_by_the_version_that_it_has_met(table: FlusherTable) -> None:
    waiting(table)
    settings = Settings.model_validate({"table": {"uri": table.uri}, "flusher": {"visibility_interval_s": 0}})
    with ExitStack() as stack:
        process = FlusherProcess(settings, lambda: False, stack)
        service = process.open(settings, process.metrics(settings), stack)
        service.round(0.0)
        assert service.context.contract.version == 1
        CHANGES["all"](table)
        later(table, "all")
        with capture_logs() as logs:
            assert service.round(0.0).merges
            service.round(0.0)
        assert service.context.contract == table.contract
        assert service.shown([]).contract_version == 3
        told = [log["contract_version"] for log in logs if log["event"] == "contract_taken_up"]
        assert told == [3]
    table.check()


def test_a_setting_with_the_columns_of_an_earlier_version_is_an_event(table: FlusherTable) -> None:
    """Whoever changes columns cannot change all settings at the same moment."""

    def told(columns: Mapping[str, str]) -> list[int]:
        settings = Settings.model_validate({"table": {"uri": table.uri, "columns": columns}})
        with ExitStack() as stack, capture_logs() as logs:
            process = FlusherProcess(settings, lambda: False, stack)
            process.open(settings, process.metrics(settings), stack)
        return [log["contract_version"] for log in logs if log["event"] == "columns_setting_former"]

    first = {column.name: column.type for column in table.contract.columns}
    change_columns(table.store, LanceTable(table.uri), SystemClock(), table.new_id, [Added(("more",), pa.int8())])
    assert told(first) == [1]
    assert told({**first, "more": "int8"}) == []
    with pytest.raises(ContractMismatch, match=r"table\.columns"):
        told({**first, "other": "int8"})


def test_columns_of_other_programs_are_logged_once_for_each_change(table: FlusherTable) -> None:
    waiting(table)
    settings = Settings.model_validate({"table": {"uri": table.uri}, "flusher": {"visibility_interval_s": 0}})

    def told(rounds: int = 2) -> list[list[str]]:
        with capture_logs() as logs:
            for _ in range(rounds):
                service.round(0.0)
        return [log["columns"] for log in logs if log["event"] == "foreign_columns_seen"]

    with ExitStack() as stack:
        process = FlusherProcess(settings, lambda: False, stack)
        service = process.open(settings, process.metrics(settings), stack)
        assert told() == []
        table.dataset.add_columns(pa.schema([("theirs", pa.int8())]))
        assert told() == [["theirs"]]
        table.generation(0, [patch(1, a=5)])
        assert told() == []  # merges are no changes
        table.dataset.add_columns(pa.schema([("more", pa.int8())]))
        assert told() == [["theirs", "more"]]
        adopt = [Adopted(())]
        change_columns(table.store, LanceTable(table.uri), SystemClock(), table.new_id, adopt)
        table.take_up()
        table.generation(0, [patch(1, theirs=5)])
        assert told() == []
        assert service.context.contract == table.contract


def test_rows_set_aside_with_newer_columns(tmp_path: Path) -> None:
    """A flusher that sleeps through a change does not write them again without their new values."""
    table = FlusherTable(tmp_path, keyed_by_bytes=True)
    table.round()
    old = table.context()
    table.change_columns(b="float64")
    for partition in (0, 1):
        table.generation(partition, [put(1, b=partition + 0.5)], of=0)
    table.round()
    table.generation(0, [put(2, b=2.0)])
    works_on(old)
    ref = old.watermarks.newest()[1].conflicts
    assert ref is not None
    assert sorted(read_conflicts(table.store, ref, table.contract).waiting["b"].to_pylist()) == [0.5, 1.5]
    table.close()


@pytest.mark.parametrize("change", CHANGES)
def test_a_load_that_began_before(table: FlusherTable, change: str) -> None:
    """Rows are in the columns of then; a value of a column that is gone is left out."""
    waiting(table)
    rows = [{"region": "r0", "id": i, "a": i, "s": f"loaded {i}", "tags": ["l"]} for i in range(500, 510)]
    file = Path(table.uri).parent / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), file, row_group_size=5)
    old = table.context()
    landed: list[PartLoaded] = []

    def change_behind_the_first(part: PartLoaded) -> None:
        landed.append(part)
        if len(landed) == 1:
            table.model.update({("r0", row["id"]): dict(row) for row in rows})
            CHANGES[change](table)

    done = load(
        old, find_files([str(file)], {}), LoadAsked("load", bounds=LoadBounds(part_rows=5)), change_behind_the_first
    )
    assert (len(landed), done.inserted) == (2, 10)
    all_merged(table)
