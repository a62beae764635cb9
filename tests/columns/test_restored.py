"""A user restores a version with other columns: `repair restored` brings them to the newest contract, and no value is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_audit.repair.restored import plan_restored, repair_restored
from lancewal_core.errors import CommitUnknown, ContractMismatch, RepairRefused, TableRestored
from lancewal_core.open import open_by
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.table.columns.changes import Added, Adopted, Dropped, Renamed, Widened
from lancewal_core.table.columns.restored import bring_back
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import ColumnsCommit, CommitLost, CommitOutcome, Conflicted, columns_mark
from lancewal_flusher.upkeep.widening import WideningDone, WideningState, widen_next
from lancewal_reader.table import open_table
from lancewal_tables.define.alter import alter_terms
from tests.audit.verify.test_columns_changed import verify
from tests.columns.test_merges import check, merge_all
from tests.columns.test_reads import check_point, of_now
from tests.columns.three_contracts import DROP, LARGE, NAMES, SECOND, THIRD, ThreeContracts, vector, words
from tests.core.table.columns.test_steps import Steps, change, shown
from tests.support.flusher_tables import FlusherTable, patch, upserts
from tests.support.repairs import command, dry, repairing
from tests.support.scripted import InlineTasks


class Killed(BaseException):
    """The process ends here."""


class Merged(ThreeContracts):
    """The rows of each contract are merged before the next one; ``versions`` says where."""

    versions: list[int]

    def fill(self) -> None:
        self.versions = []
        for id in range(60):
            more = {"n": id, "old": f"o{id}", "text": words(id), "v": vector(id), "w": vector(id, 1)}
            self.upsert(f"r{id % 6}", id, tags=[f"t{id % 3}"], **more)
        self.merge_all()
        self.first()
        self.merged_now()
        self.changed(SECOND)
        self.second()
        self.merged_now()
        self.changed(DROP)
        self.changed(THIRD)
        self.widen()
        self.third()
        self.merged_now()

    def merged_now(self) -> None:
        self.merge_all()
        self.versions.append(self.table.newest().version)

    def restore(self, number: int) -> None:
        earlier: Any = lance.dataset(self.uri, version=self.versions[number])
        earlier.restore()


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Merged]:
    made = Merged(tmp_path_factory.mktemp("merged"))
    made.fill()
    yield made
    made.close()


@pytest.fixture
def table(merged: Merged, tmp_path: Path) -> Iterator[Merged]:
    copied = merged.copied(tmp_path)
    assert isinstance(copied, Merged)
    yield copied
    copied.close()


def goes_on(table: Merged) -> None:
    """Records of the newest columns, merges, and all of it once more."""
    pinned = table.table.newest()
    assert pinned.schema.names == NAMES[2]
    assert dict(pinned.field_ids) == table.contract.fields_of
    assert columns_mark(pinned) == table.contract.columns_change
    check_point(open_table(table.uri), table.oracle, NAMES[2])
    table.merge()
    check_point(open_table(table.uri), table.oracle, NAMES[2])
    table.upsert("r0", 0, n=LARGE, words="w4", v=[0.1] * 4, old=4)
    table.patch("r1", 1, n=LARGE, note="later", old=1)
    merge_all(table)
    check(table)


@pytest.mark.parametrize("choice", ["drop", "replay"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_restored_version_gets_the_columns_of_now(
    table: Merged, monkeypatch: pytest.MonkeyPatch, number: int, choice: str
) -> None:
    table.restore(number)
    for stops in (lambda: open_table(table.uri).to_arrow(), lambda: table.merge()):
        with pytest.raises((TableRestored, ContractMismatch), match="lancewal repair restored"):
            stops()
    said = dry(table, "restored", "--rows-since", choice)
    assert f"the table has the columns of version {number + 1} of the contract" in said
    assert "n, v become wider" in said
    said = command(table, "restored", "--rows-since", choice)
    assert "the table has the columns of version 5 of the contract" in said
    if choice == "drop":
        table.oracle = of_now(table.moments[number].rows)
    goes_on(table)
    assert "nothing to do" in command(table, "restored", "--rows-since", choice)
    for state in table.moments if choice == "replay" else ():
        check_point(open_table(table.uri), state.rows, state.names, at=state.points["receipt"])
    report = verify(table, monkeypatch, "wal")
    assert report.counts == {}


def test_no_merge_since(table: Merged) -> None:
    """The columns have changed, and nothing was merged: no decision is needed, and the columns are brought all the same."""
    before = table.table.newest().version
    table.changed([Renamed(("words",), "said"), Added(("more",), pa.int8())])
    earlier: Any = lance.dataset(table.uri, version=before)
    earlier.restore()
    with pytest.raises(ContractMismatch, match="lancewal repair restored"):
        table.merge()
    with pytest.raises(ContractMismatch, match="lancewal repair restored"):
        table.changed([Dropped(("tags",))])
    command(table, "restored", "--rows-since", "replay")
    assert table.table.newest().schema.names == table.columns.names
    table.merge()
    check(table)


@pytest.mark.in_turns("how", "at", each=2)
@pytest.mark.parametrize("at", range(2))
@pytest.mark.parametrize("how", ["dies before", "dies behind", "reply lost", "overtaken"])
def test_a_process_that_dies_or_comes_too_late(table: Merged, at: int, how: str) -> None:
    """At each commit; the same command goes on."""

    class Stepped(LanceTable):
        commits = 0

        def change_columns(self, commit: ColumnsCommit) -> CommitOutcome:
            self.commits += 1
            if self.commits - 1 != at:
                return super().change_columns(commit)
            if how == "dies before":
                raise Killed
            if how == "overtaken":
                return Conflicted("another commit came first")
            outcome = super().change_columns(commit)
            if how == "dies behind":
                raise Killed
            return CommitLost("the reply was lost") if how == "reply lost" else outcome

    table.restore(0)
    with repairing(table) as context:
        context = replace(context, table=Stepped(table.uri))
        try:
            repair_restored(context, plan_restored(context, "replay"))
        except (Killed, CommitUnknown):
            open_table(table.uri).to_arrow()
    command(table, "restored", "--rows-since", "replay")
    goes_on(table)


def test_columns_of_other_programs(table: Merged) -> None:
    table.restore(0)
    again = table.table.newest().version
    dataset: Any = lance.dataset(table.uri)
    dataset.add_columns(pa.schema([("theirs", pa.int64())]))
    with pytest.raises(RepairRefused, match=r"added columns to version .*\['theirs'\].*once more"):
        command(table, "restored", "--rows-since", "replay")
    earlier: Any = lance.dataset(table.uri, version=again)
    earlier.restore()
    command(table, "restored", "--rows-since", "replay")
    goes_on(table)


def test_an_index_over_a_column_that_must_be_written_again(table: Merged) -> None:
    earlier: Any = lance.dataset(table.uri, version=table.versions[0])
    earlier.restore()
    dataset: Any = lance.dataset(table.uri)
    dataset.create_scalar_index("n", "BTREE")
    with pytest.raises(RepairRefused, match="has index 'n_idx' over a column"):
        dry(table, "restored", "--rows-since", "replay")
    dataset.drop_index("n_idx")
    command(table, "restored", "--rows-since", "replay")
    goes_on(table)


def test_a_version_that_others_have_changed_stays(table: Merged) -> None:
    table.restore(0)
    dataset: Any = lance.dataset(table.uri)
    dataset.drop_columns(["w"])
    command(table, "restored", "--rows-since", "replay")
    with pytest.raises(ContractMismatch, match="column 'w' is missing"):
        table.merge()


def test_columns_that_were_only_renamed_and_dropped(table: Merged) -> None:
    """The restored version fits the newest contract, so merges go on.  Plain Lance shows the old columns until the repair."""
    before = table.table.newest().version
    table.changed([Renamed(("words",), "said"), Dropped(("tags",))])
    earlier: Any = lance.dataset(table.uri, version=before)
    earlier.restore()
    assert {"words", "tags"} < set(lance.dataset(table.uri).schema.names)
    said = dry(table, "restored", "--rows-since", "replay")
    assert "the table has the columns of version 5 of the contract, and gets those of the newest one" in said
    command(table, "restored", "--rows-since", "replay")
    assert table.table.newest().schema.names == table.columns.names
    table.merge()
    check(table)


def test_the_columns_of_a_restored_version_are_not_adopted(table: Merged) -> None:
    """That would drop the columns which the contract has got since."""
    table.restore(1)
    for changes in ([Adopted(())], [Adopted(("old",))], [Added(("more",), pa.int8())]):
        with pytest.raises(ContractMismatch, match=r"was restored, and does not have .*`lancewal repair restored`"):
            table.changed(changes)


def test_all_that_open_a_restored_version_name_the_way_out(table: Merged) -> None:
    table.restore(1)
    settings = Settings(table=TableSettings(uri=table.uri))
    for stops in (
        lambda: alter_terms(settings, {"grace_s": 601}),
        lambda: open_by(settings, InlineTasks(), table.clock),
    ):
        with pytest.raises(ContractMismatch, match=r"was restored, and does not have .*`lancewal repair restored`"):
            stops()


@pytest.mark.parametrize("merged", [False, True])
def test_a_version_in_the_middle_of_a_change(tmp_path: Path, merged: bool) -> None:
    """The table has grown, and the contract was not stored.  Or it was, and values of a new column were merged."""
    made, versions, steps = FlusherTable(tmp_path), list[int](), Steps()
    made.generation(0, upserts(range(3)))
    made.round()

    def noted() -> None:
        if merged:
            made.take_up()
            made.generation(0, [patch(1, n=5)])
            made.round()
        versions.append(made.dataset.version)

    steps.after[int(merged)] = noted
    change(made, [Added(("n",), pa.int32()), Renamed(("s",), "text"), Dropped(("tags",))], steps)
    change(made, [Widened(("n",), pa.int64())])
    made.take_up()
    assert isinstance(widen_next(made.context(), WideningState(), 60.0), WideningDone)
    change(made, [Added(("m",), pa.int8())])
    earlier: Any = lance.dataset(made.uri, version=versions[0])
    earlier.restore()
    done = bring_back(made.store, LanceTable(made.uri), made.tasks)
    assert done is not None
    assert (done.after, done.wider) == (5, ("n",))
    assert [*shown(made)] == ["region", "id", "a", "text", "n", "m"]
    assert {row["id"]: row["n"] for row in made.rows()} == {0: None, 1: 5 if merged else None, 2: None}
    assert bring_back(made.store, LanceTable(made.uri), made.tasks) is None
    made.close()


def test_a_column_that_another_program_drops_stays_dropped(tmp_path: Path) -> None:
    """The columns are those of an earlier contract, but no version was restored: nothing brings the column back."""
    made, steps = FlusherTable(tmp_path), Steps()
    steps.before[2] = lambda: made.dataset.drop_columns(["n"])
    for again in (steps, None):
        with pytest.raises(ContractMismatch, match="column 'n' is missing") as error:
            change(made, [Added(("n",), pa.int32())], again)
        assert "repair restored" not in str(error.value)
    assert bring_back(made.store, LanceTable(made.uri), made.tasks) is None
    change(made, [Adopted(())])
    assert "n" not in shown(made)
    made.close()
