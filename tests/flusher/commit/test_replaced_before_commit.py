"""Commits other than merges, to a table that is deleted right before, and perhaps made anew by another program."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import lance
import pyarrow as pa
import pytest

from lancewal_audit.repair import lance_index
from lancewal_core.errors import TableMissing, TableReplaced
from lancewal_core.names.ids import Making, TableVersion
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.columns import versions
from lancewal_core.table.columns.changes import Added, Change, Widened
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.contract import Contract
from lancewal_core.table.subscriptions.holding import HOLDS_NOTHING
from lancewal_flusher.commit import widened
from lancewal_flusher.garbage import table_versions
from lancewal_flusher.garbage.find import claimed_histories
from lancewal_flusher.upkeep import indexes, widening
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_reader.table import reads_of
from lancewal_tables.snapshots import make
from tests.support.pipeline import KEY, Pipeline, by_key
from tests.support.repairs import repairing

COLUMNS = pa.schema([*KEY, ("a", pa.int32()), ("s", pa.string())])


def table_of(folder: Path, seed: int) -> Pipeline:
    """A table with three merges, an index that lacks the rows of the last one, and unmerged rows."""
    made = Pipeline(folder, COLUMNS, seed=seed, seal_rows=20, batch=15, partitions=2, making=Making(f"{seed:016x}"))
    for number in range(3):
        made.produce(30)
        made.merge_all()
        if number == 1:
            lance.dataset(made.uri).create_scalar_index("s", "BTREE")
    made.produce(30)
    made.ingest()
    return made


def alter(table: Pipeline, change: Change) -> None:
    changed = change_columns(table.store, table.table, table.clock, lambda: uuid.uuid4().hex, [change])
    table.contract = changed


def add_column(table: Pipeline) -> None:
    alter(table, Added(("note",), pa.string()))


def widen(table: Pipeline) -> None:
    alter(table, Widened(("a",), pa.int64()))
    widening.widen_next(table.flusher(), widening.WideningState())


def extend_index(table: Pipeline) -> None:
    indexes.extend_indexes(table.flusher(), IndexLimits(), at_once=True)


def repair_index(table: Pipeline) -> None:
    with repairing(table) as context:
        lance_index.repair_lance_index(lance_index.plan_lance_index(context, "s_idx"))


def snapshot(table: Pipeline) -> None:
    context = table.flusher()
    made = make.make_snapshot(context, reads_of(context, table.uri), "june")
    assert made.rows


def remove_versions(table: Pipeline) -> None:
    context = table.flusher()
    in_force, kept = claimed_histories(context)
    due = table_versions.VersionsDue((TableVersion(2),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_versions, "find_due", lambda *_: due)
        seen = table_versions.VersionsSeen()
        table_versions.expire_versions(context, seen, in_force, kept, context.clock.now_ms(), HOLDS_NOTHING)


@dataclass(frozen=True)
class Act:
    """Something that commits.  ``module`` looks for the table; the table goes at the look after ``passing`` others."""

    do: Callable[[Pipeline], None]
    module: ModuleType
    passing: int = 0


ACTS = {
    "a column is added": Act(add_column, versions),
    "a change is brought": Act(add_column, versions, 1),
    "columns are widened": Act(widen, widening),
    "a widening is marked": Act(widen, widened),
    "an index is extended": Act(extend_index, indexes),
    "an index is repaired": Act(repair_index, lance_index),
    "a snapshot's branch is made": Act(snapshot, make),
    "a snapshot's rows are written": Act(snapshot, make, 1),
    "versions are removed": Act(remove_versions, table_versions),
}


@pytest.mark.parametrize("made_anew", [False, True], ids=["deleted", "made anew"])
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_nothing_lands_in_another_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Act, made_anew: bool
) -> None:
    table, other = table_of(tmp_path / "orders", 1), table_of(tmp_path / "other", 2)
    look, left = act.module.check_present, [act.passing]

    def replaced(store: ObjectStore, contract: Contract) -> None:
        if not left[0]:
            shutil.rmtree(table.uri)
            if made_anew:
                shutil.copytree(other.uri, table.uri)
        left[0] -= 1
        look(store, contract)

    monkeypatch.setattr(act.module, "check_present", replaced)
    with pytest.raises(TableReplaced if made_anew else TableMissing, match=r"another table was made|was deleted"):
        act.do(table)
    assert left[0] < 0
    if not made_anew:
        assert not Path(table.uri).exists()
        return
    there, meant = lance.dataset(table.uri), lance.dataset(other.uri)
    assert [v["version"] for v in there.versions()] == [v["version"] for v in meant.versions()]
    assert by_key(there.to_table()) == by_key(meant.to_table())
    assert there.branches.list() == meant.branches.list()
